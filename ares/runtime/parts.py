"""What a Runtime has started, and how that ends: by ``close``, with the process, or in the child of a fork."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable

import attrs

from ares.engine.attempt import current
from ares.engine.engine import Engine
from ares.errors import RuntimeClosedError
from ares.journal.protocol import Store
from ares.journal.writer import StoreJournal

#: Seconds that a Runtime which nobody closed takes for it at the end of the process.
_EXIT_SECONDS = 1.0


@attrs.define(eq=False)
class Parts:
    """A journal and the engine on it."""

    journal: StoreJournal
    engine: Engine
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def close(self, timeout: float) -> None:
        """End all walks in good order, then the journal. Idempotent; a second caller waits for the first."""
        with self._lock:
            self.engine.close(timeout)
            self.journal.close(max(1.0, min(timeout, 5.0)))


class Life:
    """Starts a Runtime's parts when they are first needed, in the process that needs them, and ends them.

    Args:
        open_store: makes the store, anew in the child of a fork.
        make_parts: starts everything on a store.
    """

    def __init__(self, open_store: Callable[[], Store], make_parts: Callable[[Store], Parts]) -> None:
        self._open_store = open_store
        self._make_parts = make_parts
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._parts: Parts | None = None
        #: What parents of this process had started: never used and never closed here.
        self._inherited: list[Parts] = []
        self._is_closed = False
        self._store: Store | None = open_store()
        self._store.inspect()
        self.store_name = self._store.name
        _lives.add(self)

    def engine(self) -> Engine:
        """The engine, started if it was not.

        Raises:
            StoreError: the store cannot be opened or written.
            RuntimeClosedError: it was closed.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeClosedError("the Runtime is closed")
            if self._pid != os.getpid():
                self._leave_parent()
            if self._parts is None:
                store = self._store or self._open_store()
                self._store = None
                self._parts = self._make_parts(store)
            return self._parts.engine

    def _leave_parent(self) -> None:
        if self._parts is not None:
            self._inherited.append(self._parts)
        self._parts = self._store = None
        self._pid = os.getpid()

    def here(self) -> Parts | None:
        """What was started in this process, closed or not."""
        with self._lock:
            return self._parts if self._pid == os.getpid() else None

    def source(self) -> Store | StoreJournal:
        """What can be read from, without starting anything."""
        with self._lock:
            is_here = self._pid == os.getpid()
            if self._parts is not None and is_here and not self._is_closed:
                return self._parts.journal
            if self._store is not None and is_here:
                return self._store
        return self._open_store()

    def close(self, timeout: float) -> None:
        """See ``Runtime.close``."""
        with self._lock:
            self._is_closed = True
            parts = self._parts if self._pid == os.getpid() else None
        if parts is None:
            return
        if current.get() is None and not parts.engine.walks.is_this():
            parts.close(timeout)
            return
        # From inside a step: it cannot wait for its own end.
        parts.engine.refuse()
        threading.Thread(target=parts.close, args=(timeout,), name="ares-closing", daemon=True).start()

    def renew_lock(self) -> None:
        """In the child of a fork: the lock that another thread held is held by nobody now."""
        self._lock = threading.Lock()


_lives: "weakref.WeakSet[Life]" = weakref.WeakSet()


def _close_all() -> None:
    for life in list(_lives):
        life.close(_EXIT_SECONDS)


def _renew_locks() -> None:
    for life in list(_lives):
        life.renew_lock()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
