"""A store for tests of the journal: in memory, but written in batches as one on a disk is; it can block and fail."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ares.journal.protocol import Append, Entry, NewExecution
from ares.stores.volatile import VolatileStore


def new(execution_id: str = "e1") -> NewExecution:
    return NewExecution(execution_id, "wf", "1", None, {}, time.time_ns())


def draft(body: Any = "{}", path: str = "step") -> list[tuple[str, str, Any]]:
    return [("fact", path, body)]


@attrs.frozen
class Commit:
    """One call of ``append``: on which thread, whether synced, and what was to be written."""

    thread: str
    sync: bool
    rows: list[tuple[str, int]]


class SpyStore:
    """A volatile store that pretends to encode. ``before`` and ``after`` run around each real write."""

    keeps_references = False
    name = "spy.db"

    def __init__(self) -> None:
        self.inner = VolatileStore()
        self.commits: list[Commit] = []
        self.before: Callable[[Sequence[Append]], None] = lambda appends: None
        self.after: Callable[[Sequence[Append]], None] = lambda appends: None
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        rows = [(append.claim.execution_id, entry.seq) for append in appends for entry in append.entries]
        self.commits.append(Commit(threading.current_thread().name, sync, rows))
        self.before(appends)
        results = self.inner.append(appends, sync=sync)
        self.after(appends)
        return results

    def stored(self, execution_id: str = "e1") -> list[Entry]:
        return list(self.inner.entries(execution_id))

    def seqs(self, execution_id: str = "e1") -> list[int]:
        return [entry.seq for entry in self.stored(execution_id)]


class Gate:
    """Holds whoever passes until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _appends: Sequence[Append] = ()) -> None:
        self.reached.set()
        assert self.opened.wait(30)


def run_all(*works: Callable[[], None]) -> list[threading.Thread]:
    """Start a thread for each."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def join_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
