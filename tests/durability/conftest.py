"""What the tests of promises share: a place for child processes, and files that live as long as a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durability.nursery import Nursery


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
def db(tmp_path: Path) -> str:
    """A place for a store."""
    return str(tmp_path / "ares.db")


@pytest.fixture
def effects(tmp_path: Path) -> str:
    """A place for side-effect lines."""
    return str(tmp_path / "effects.txt")
