"""What the suite of stores is made with: entries, leases, and how they come into a store."""

import time
from collections.abc import Callable, Iterator

import pytest

from ares.journal.owner import this_process
from ares.journal.protocol import Append, Claim, Entry, Lease, NewExecution, Store


def new(execution_id: str = "e1", **changes: object) -> NewExecution:
    """An execution as it might be."""
    given: dict[str, object] = {
        "workflow_id": "wf",
        "workflow_version": "1",
        "parent_id": None,
        "metadata": {},
        "created_at": time.time_ns(),
    }
    return NewExecution(execution_id, **{**given, **changes})  # type: ignore[arg-type]


def rows(first: int, count: int = 1, *, at: int | None = None, body: str = "{}", path: str = "step") -> list[Entry]:
    """``count`` entries from ``first`` onwards."""
    now = time.time_ns() if at is None else at
    return [Entry(seq, now, "fact", path, body) for seq in range(first, first + count)]


def add(store: Store, claim: Claim, first: int, count: int = 1, **more: object) -> Exception | None:
    """Append some entries under a claim; the result."""
    (result,) = store.append([Append(claim, rows(first, count), **more)], sync=True)  # type: ignore[arg-type]
    return result


def seqs(store: Store, execution_id: str = "e1", after: int = 0) -> list[int]:
    """The numbers of what is stored."""
    return [entry.seq for entry in store.entries(execution_id, after)]


def alive(_lease: Lease) -> bool:
    return False


def gone(_lease: Lease) -> bool:
    return True


class StoreFixtures:
    """What every test of a store starts from."""

    @pytest.fixture
    def make_store(self) -> Callable[[], Store]:
        """A function that makes a store, not yet opened; each call of it another object on a place of its own."""
        raise NotImplementedError("a fixture make_store returns a function that makes the store")

    @pytest.fixture
    def store(self, make_store: Callable[[], Store]) -> Iterator[Store]:
        """A store that was opened."""
        made = make_store()
        made.open()
        yield made
        made.close()

    @pytest.fixture
    def lease(self, store: Store) -> int:
        """A lease of this process on it."""
        return store.start_lease(this_process())
