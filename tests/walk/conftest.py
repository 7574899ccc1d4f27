"""Every walk of a test is checked when the test is over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ares.workflow import Workflow
from tests.walk.hand import Hand


@pytest.fixture
def walking() -> Iterator[Callable[..., Hand]]:
    """Begin a walk; its invariants are checked at the end of the test."""
    hands: list[Hand] = []

    def begin(workflow: Workflow, inputs: dict[str, Any] | None = None) -> Hand:
        hands.append(Hand(workflow, inputs))
        return hands[-1]

    yield begin
    for hand in hands:
        hand.check()
