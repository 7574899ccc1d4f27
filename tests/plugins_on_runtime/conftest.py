"""Where plugins hang for as long as a test lasts."""

from collections.abc import Callable, Iterator

import pytest

from ares import Runtime
from tests.bus.players import Gate


@pytest.fixture
def gate(runtime: Callable[..., Runtime]) -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()
