"""What the tests of promises share: a place for child processes, and files that live as long as a test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime
from tests.durability.nursery import Nursery
from tests.durability.traces import Ran


@pytest.fixture(scope="session")
def shared_nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture
def nursery(shared_nursery: Nursery) -> Iterator[Nursery]:
    """Starts child processes; whatever still lives when the test ends is killed."""
    yield shared_nursery
    shared_nursery.close_children()


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store: a file, or what ``ON_BOTH`` says."""
    if getattr(request, "param", "sqlite") == "postgres":
        return str(request.getfixturevalue("postgres"))
    return str(tmp_path / "ares.db")


@pytest.fixture
def effects(tmp_path: Path) -> str:
    """A place for side-effect lines."""
    return str(tmp_path / "effects.txt")


@pytest.fixture
def ran() -> Ran:
    """The bodies that began."""
    return Ran()


@pytest.fixture
def broken() -> set[str]:
    """Names of steps that fail, as long as they are in here."""
    return set()


@pytest.fixture
def again(db: str) -> Iterator[Callable[..., Runtime]]:
    """A function that closes the Runtime it gave before and gives a new one on the same file."""
    made: list[Runtime] = []

    def new(store: Any = None, **options: Any) -> Runtime:
        while made:
            made.pop().close()
        made.append(Runtime(store or db, **{"max_workers": 2, **options}))
        return made[0]

    yield new
    while made:
        made.pop().close()
