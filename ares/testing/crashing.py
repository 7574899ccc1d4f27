"""Has a process die at the two moments that a promise of durability is about: a step's body has returned, and its
outcome is not committed yet, or just is.

It is a store that wraps another one, because only a store knows what a commit is. It kills the process that it is used
in, without any clean-up; so it is for a child process of a test.
"""

import os
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

import ares.testing
from ares.errors import UsageError
from ares.journal.protocol import Append, Entry, Store
from ares.stores.opening import open_store

#: The entries that an attempt's outcome is journaled by.
_OUTCOMES: Final = frozenset({"succeeded", "failed"})
_INDEX: Final = re.compile(r"\[\d+\]")


@attrs.frozen
class CrashPoint:
    """Where a process is to die. See ``crash_after``."""

    step: str
    before_commit: bool
    nth: int

    def on(self, store: str | Path | Store) -> "CrashingStore":
        """A store to hand to ``Runtime``, which kills this process at the point.

        Args:
            store: the file of an SQLite store, or a store.

        Raises:
            UsageError: this is the process that runs the tests.
        """
        if ares.testing.is_test_process():
            raise UsageError(
                f"crash_after({self.step!r}) would kill the process that runs the tests; use it in a child process"
            )
        return CrashingStore(open_store(store), self)


def crash_after(step: str, *, before_commit: bool = False, nth: int = 1) -> CrashPoint:
    """Where a process is to die, as ``kill -9`` would have it: right after the body of a step has returned or raised,
    before anything of that is committed, or right after its commit, before anybody has heard of it.

    Use it in a child process: ``Runtime(crash_after("charge", before_commit=True).on("orders.db"))``.

    Args:
        step: the step's id or path; an element of a map by its own path (``measure[3]``), or any of them by the map's.
        before_commit: whether it dies before the commit of the outcome, or after it.
        nth: at which of such outcomes, from 1: attempts and elements are counted.

    Raises:
        UsageError: ``step`` is no text, or ``nth`` no number from 1.
    """
    _check(step, nth)
    return CrashPoint(step, before_commit, nth)


def _check(step: object, nth: object) -> None:
    if not isinstance(step, str) or not step:
        raise UsageError(f"a step to crash after is named by its id or path, not by {step!r}")
    if isinstance(nth, bool) or not isinstance(nth, int) or nth < 1:
        raise UsageError(f"nth counts outcomes, from 1; {nth!r} is none of them")


class CrashingStore:
    """A store that is another one until its point is reached."""

    def __init__(self, inner: Store, point: CrashPoint) -> None:
        self._inner = inner
        self._point = point
        self._lock = threading.Lock()
        self._seen: set[tuple[str, int]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def name(self) -> str:
        """See ``Store``."""
        return self._inner.name

    @property
    def keeps_references(self) -> bool:
        """See ``Store``."""
        return self._inner.keeps_references

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        """See ``Store``; unless this is where the process dies."""
        is_here = self._is_here(appends)
        if is_here and self._point.before_commit:
            _die()
        results = self._inner.append(appends, sync=sync)
        if is_here:
            _die()
        return results

    def _is_here(self, appends: Sequence[Append]) -> bool:
        """Whether the outcome that is waited for is among the entries. One that is appended again counts once."""
        with self._lock:
            for append in appends:
                found = ((append.claim.execution_id, entry.seq) for entry in append.entries if self._is_outcome(entry))
                self._seen.update(found)
            return len(self._seen) >= self._point.nth

    def _is_outcome(self, entry: Entry) -> bool:
        return entry.kind in _OUTCOMES and self._point.step in (entry.path, _INDEX.sub("", entry.path))


def _die() -> None:
    if hasattr(signal, "SIGKILL"):
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # it takes effect a moment later, and nothing more may happen until then
    os._exit(137)
