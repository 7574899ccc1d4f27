"""What a Runtime has started, and how that ends: by ``close``, with the process, or in the child of a fork."""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable

import attrs

from ares.bus import PluginBus
from ares.engine.attempt import current
from ares.engine.engine import Engine
from ares.engine.notices import notices
from ares.engine.options import CLOSE_COMMIT
from ares.errors import RuntimeClosedError
from ares.executors.ending import before_executors_end
from ares.executors.named import NamedExecutors
from ares.journal.protocol import Store
from ares.journal.writer import StoreJournal
from ares.runtime.following import Following
from ares.runtime.recovering import Recovering
from ares.values import prepare

#: Seconds that what is walked by Runtimes which nobody closed has at the end of the process, and then its commits.
_EXIT_SECONDS = 0.5
_EXIT_COMMIT = 0.5


#: Seconds that the plugins have to stop, or half of what there is in all: one that hangs costs as much.
_PLUGIN_SECONDS = 3.0
#: Seconds beyond its timeout that a close may take for the store.
_GRACE = 5.0


@attrs.define(eq=False)
class Parts:
    """A journal, the plugins, and the engine on both, and what recovers by itself, if anything does."""

    journal: StoreJournal
    bus: PluginBus
    engine: Engine
    executors: NamedExecutors
    recovering: Recovering | None = None
    following: Following = attrs.field(factory=Following)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def close(self, timeout: float, commit: float = CLOSE_COMMIT) -> None:
        """End all walks in good order, within ``timeout`` and ``commit`` seconds, then the plugins, then the journal.

        Idempotent; a second caller waits for the first, but no longer than its own timeout allows.
        """
        if not self._lock.acquire(timeout=timeout + _GRACE):
            return
        try:
            until = time.monotonic() + timeout
            if self.recovering is not None:
                self.recovering.end()
            self.engine.close(timeout, commit)
            self.executors.close()
            if self.recovering is not None:
                self.recovering.join(max(commit, until - time.monotonic()))
            # They may have something to write, so the journal is still there.
            left = min(until - time.monotonic(), max(_PLUGIN_SECONDS, timeout / 2))
            self.bus.stop(max(commit, left))
            self.journal.close(max(1.0, min(timeout, _GRACE)))
        finally:
            self._lock.release()


class Life:
    """Starts a Runtime's parts when they are first needed, in the process that needs them, and ends them.

    Args:
        open_store: makes the store, anew in the child of a fork.
        make_parts: starts everything on a store.
    """

    def __init__(self, open_store: Callable[[], Store], make_parts: Callable[[Store], Parts]) -> None:
        self._open_store = open_store
        self._make_parts = make_parts
        self._lock = threading.RLock()  # a signal handler may come upon its own thread in here
        self._pid = os.getpid()
        self._parts: Parts | None = None
        #: What parents of this process had started: never used and never closed here.
        self._inherited: list[Parts] = []
        self._is_closed = False
        self._closing = threading.Lock()
        self._is_closing_soon = False
        self._store: Store | None = open_store()
        self._store.inspect()
        prepare()
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

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is being."""
        return self._is_closed

    def here(self) -> Parts | None:
        """What was started in this process, closed or not. Takes no lock: plugins ask while they are started."""
        is_here = self._pid == os.getpid()  # looked at first: what a parent started is dropped before it changes
        return self._parts if is_here else None

    def source(self) -> Store | StoreJournal:
        """What can be read from, without starting anything. Takes no lock, as ``here``."""
        is_here = self._pid == os.getpid()
        parts, store = self._parts, self._store
        if parts is not None and is_here:
            return parts.journal  # closed or not: what was stored stays readable
        return store if store is not None and is_here else self._open_store()

    def close(self, timeout: float, commit: float = CLOSE_COMMIT) -> None:
        """See ``Runtime.close``."""
        with self._lock:
            self._is_closed = True
            parts = self._parts if self._pid == os.getpid() else None
        if parts is None:
            return
        if parts.engine.is_inside():
            parts.engine.refuse()
            self.close_soon(timeout)
        else:
            parts.close(timeout, commit)

    def close_soon(self, timeout: float) -> None:
        """Close from another thread: what is asked from inside a step or a plugin cannot wait for the end of it. Takes
        no lock: it may be a plugin that is being started."""
        closing = threading.Thread(target=self.close, args=(timeout,), daemon=True)
        closing.name = f"ares-closing {self.store_name}"
        with self._closing:
            if self._is_closing_soon:
                return
            self._is_closing_soon = True
        closing.start()

    def begin_to_close(self, timeout: float) -> None:
        """Ask what is walked to end, and wait for nothing."""
        with self._lock:
            self._is_closed = True
            parts = self._parts if self._pid == os.getpid() else None
        if parts is not None:
            parts.engine.ask_to_end(timeout)

    def is_waited_for_by_executors(self) -> bool:
        """Whether what it runs may keep the process from ending, and nothing else does."""
        parts = self.here()
        return parts is not None and parts.executors.were_used and not parts.engine.is_walked_on()

    def renew_lock(self) -> None:
        """In the child of a fork: the locks that another thread held are held by nobody now."""
        self._lock = threading.RLock()
        self._closing = threading.Lock()
        self._is_closing_soon = False


_lives: "weakref.WeakSet[Life]" = weakref.WeakSet()


def _close_all() -> None:
    notices.end()
    _close(list(_lives))


def _close_users_of_executors() -> None:
    _close([life for life in _lives if life.is_waited_for_by_executors()])


def _close(lives: list[Life]) -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for life in lives:
        life.begin_to_close(_EXIT_SECONDS)
    for life in lives:
        life.close(max(0.0, deadline - time.monotonic()), _EXIT_COMMIT)


def _in_child() -> None:
    for life in list(_lives):
        life.renew_lock()
    current.set(None)  # the step that forked is the parent's


atexit.register(_close_all)
before_executors_end(_close_users_of_executors)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
