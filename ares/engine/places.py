"""Places of which there are only so many: for busy workers, and the slots of named pools.

A place is *held* before there is anything to do with it, so that nobody sets work aside that cannot go on. Whoever
finds no place free gets in line; a place that becomes free is *offered* to whoever came first, and nobody else can take
it. So no walk starves another, and no wake-up is lost. Hence the invariant: while somebody is in line, none is free.
What is held or offered is counted by its owner, so that all of it comes back when the owner leaves, whatever happened
to it: a Ctrl-C may hit the main thread between any two lines.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable


class Places:
    """At most ``size`` places that are taken at once. Thread-safe."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        #: Places that are held, offered or used.
        self._busy = 0
        self._held: defaultdict[Hashable, int] = defaultdict(int)
        self._offered: defaultdict[Hashable, int] = defaultdict(int)
        #: Owners in line, first come first served, and how to tell them of an offer.
        self._line: dict[Hashable, Callable[[], None]] = {}
        self._is_closed = False

    @property
    def busy(self) -> int:
        """How many places are held, offered or used."""
        with self._lock:
            return self._busy

    def try_hold(self, owner: Hashable) -> bool:
        """Hold one more place for ``owner``, if one was offered to it or is free."""
        with self._lock:
            if self._offered[owner]:
                self._offered[owner] -= 1
                self._held[owner] += 1
                return True
            if self._is_closed or self._busy >= self.size:
                return False
            self._busy += 1
            self._held[owner] += 1
            return True

    def release(self, owner: Hashable) -> None:
        """Give back a place that ``owner`` holds. No-op if it has left meanwhile."""
        with self._lock:
            if self._held.get(owner):
                self._held[owner] -= 1
                self._busy -= 1
                self._offer()

    def line_up(self, owner: Hashable, tell: Callable[[], None]) -> None:
        """Have one place offered to ``owner`` when its turn comes, and ``tell`` called then, on any thread: it is short
        and calls nothing of this. ``try_hold`` finds out."""
        with self._lock:
            self._line.setdefault(owner, tell)
            self._offer()

    def step_aside(self, owner: Hashable) -> None:
        """``owner`` needs no more places than it holds: out of the line, and its offers to others."""
        with self._lock:
            self._line.pop(owner, None)
            self._busy -= self._offered[owner]
            del self._offered[owner]
            self._offer()

    def leave(self, owner: Hashable) -> None:
        """``owner`` is gone: what it did not use is free."""
        with self._lock:
            self._line.pop(owner, None)
            self._busy -= self._offered[owner] + self._held[owner]
            del self._offered[owner], self._held[owner]
            self._offer()

    def _offer(self) -> None:
        """Under the lock. Offer what is free to those in line.

        They are told first: after an interruption an owner may look for an offer that it was not made, but is never
        made one that it does not hear of.
        """
        while self._line and self._busy < self.size and not self._is_closed:
            owner = next(iter(self._line))
            self._line[owner]()
            self._busy += 1
            self._offered[owner] += 1
            del self._line[owner]
