"""What all tests share: the two stores that everything is shown on, and Runtimes that are closed whatever happens."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """What a Runtime is given as its store: nothing, or a file."""
    return None if request.param == "memory" else str(tmp_path / "ares.db")


@pytest.fixture
def runtime() -> Iterator[Callable[..., Runtime]]:
    """Makes Runtimes, closed at the end of the test without waiting for steps that hang."""
    made: list[Runtime] = []

    def make(*args: Any, **kwargs: Any) -> Runtime:
        made.append(Runtime(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close(timeout=0.2)
