"""Stores that fail on purpose, around one that works."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from ares.journal.protocol import Append, Store
from tests.durability.traces import die

T = TypeVar("T")

#: For a test that is shown with both stores that outlast a process.
ON_BOTH = pytest.mark.parametrize("db", ["sqlite", "postgres"], indirect=True)


class StoreWrapper:
    """A store that is another one, but for what a subclass changes."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        return self._inner.append(appends, sync=sync)


class CrashingStore(StoreWrapper):
    """Commits entries one by one and kills its process at the ``at``-th one: right before it, or right after.

    A store may commit what it is given in one transaction; that it does so here entry by entry makes every boundary
    between two facts a place to die at.
    """

    def __init__(self, inner: Store, *, at: int, before: bool) -> None:
        super().__init__(inner)
        self._at = at
        self._before = before
        self._count = 0

    def create(self, new: Any, lease: int | None, status: str, entries: Any) -> Any:
        self._count += len(entries)
        if self._before and self._count >= self._at:
            die()
        claim = self._inner.create(new, lease, status, entries)
        if self._count >= self._at:
            die()
        return claim

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        return [self._append(append, sync=sync) for append in appends]

    def _append(self, append: Append, *, sync: bool) -> Exception | None:
        for entry in append.entries:
            self._count += 1
            if self._before and self._count >= self._at:
                die()
            is_last = entry is append.entries[-1]
            part = Append(append.claim, [entry], append.status if is_last else None, append.error if is_last else "")
            (refused,) = self._inner.append([part], sync=sync)
            if refused is not None:
                return refused
            if self._count >= self._at:
                die()
        return None


class CrashingInbox(CrashingStore):
    """As its base; what is left in the inbox, and what is taken from it, are places to die at, too."""

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        return self._counted(lambda: self._inner.request(execution_id, kind, body, name))

    def close_request(self, number: int) -> None:
        self._counted(lambda: self._inner.close_request(number))

    def _counted(self, act: Callable[[], T]) -> T:
        self._count += 1
        if self._before and self._count >= self._at:
            die()
        done = act()
        if self._count >= self._at:
            die()
        return done
