"""The slots that one walk takes of the named pools of its Runtime.

A step that names a pool takes a slot of it for each attempt of its body and for each ``reconcile``, from before its
interceptors are asked until the attempt has ended or is given up. Its condition and its router take none, nor does a
retry that waits for its delay, or a body that was parked.

A walk that finds no slot free is in line for one, and the pool is *closed* to it until one is offered: what else is
ready goes on past it. It holds no worker meanwhile. The other way round it keeps the slot that it was offered while all
that the work waits for is a worker, or it might never have both. Whatever else is not used is given back.

A step that waits for another execution *lends* its slot meanwhile, as it lends its worker, and waits for one again
before it goes on. Nothing of ares waits while it holds a slot, so no two can wait for each other's slots.
"""

import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ares.engine.places import Places
from ares.postbox import Latch

if TYPE_CHECKING:
    from ares.engine.driver import Driver

#: Seconds after which a body that waits for its slot again looks whether it was given up.
_LOOK_UP = 0.1


class Slot:
    """What one attempt has taken of a pool. Any thread."""

    def __init__(self, places: Places, owner: "Slots") -> None:
        self._places = places
        self._walk = owner
        self._lock = threading.Lock()
        self._is_held = True
        self._is_over = False
        #: Whether it was lent: from then on it is counted for itself, and not for the walk.
        self._was_lent = False
        #: The thread that the body runs on.
        self.thread: int | None = None

    def give_back(self) -> None:
        """On the owner's thread. The attempt has ended, or was given up."""
        with self._lock:
            self._is_over = True
            self._let_go()
            if self._was_lent:
                self._places.leave(self)
        self._walk.came_back(self)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While the body waits for another execution, its slot is free. No-op on other threads than the body's."""
        if self.thread != threading.get_ident():
            yield
            return
        with self._lock:
            self._let_go()
            self._was_lent = True
        try:
            yield
        except Exception:
            self._take_again()
            raise
        self._take_again()  # but after a Ctrl-C or the like, with which the body ends

    def _let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            self._places.release(self if self._was_lent else self._walk)

    def _take_again(self) -> None:
        bell = Latch()
        while not self._goes_on():
            self._places.line_up(self, bell.set)
            bell.wait(_LOOK_UP)
            bell.clear()

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._is_held and not self._is_over and self._places.try_hold(self):
                self._is_held = True
            return self._is_held or self._is_over


class Slots:
    """The slots of one walk. On its owner's thread, except what says otherwise.

    Args:
        driver: the walk's owner.
        pools: the slots of each pool.
    """

    def __init__(self, driver: "Driver", pools: Mapping[str, Places]) -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._ref = weakref.ref(driver)
        self._pools = pools
        #: What attempts have.
        self._in_use: set[Slot] = set()
        #: The pools that this walk is in line for.
        self.closed: set[str] = set()
        #: Those of which a slot is held that no attempt has.
        self.in_hand: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a slot may be offered to the walk, or is kept for work that waits for a worker."""
        return bool(self.closed or self.in_hand)

    def takes(self, pool: str) -> bool:
        """Take a slot in hand, for work that is pulled now; or get in line for one."""
        if pool in self.in_hand:
            return True
        if pool in self.closed:
            return False
        if self._hold(pool):
            return True
        driver = self._ref()
        assert driver is not None
        self.closed.add(pool)
        self._pools[pool].line_up(self, partial(driver.post, self._reopen, pool))
        return False

    def _reopen(self, pool: str) -> None:
        """A slot is offered."""
        if pool in self.closed:
            self.closed.remove(pool)
            self._hold(pool)

    def _hold(self, pool: str) -> bool:
        if self._pools[pool].try_hold(self):
            self.in_hand.add(pool)
        return pool in self.in_hand

    def use(self, pool: str) -> Slot:
        """Give an attempt the slot that is in hand."""
        self.in_hand.remove(pool)
        slot = Slot(self._pools[pool], self)
        self._in_use.add(slot)
        return slot

    def came_back(self, slot: Slot) -> None:
        """An attempt has given back what it had."""
        self._in_use.discard(slot)

    def put_down(self, keep: str | None = None) -> None:
        """Give back what is in hand, but for one pool."""
        for pool in self.in_hand - {keep}:
            self.in_hand.remove(pool)
            self._pools[pool].release(self)

    def look(self) -> None:
        """Out of the lines of which nothing is wanted any more."""
        driver = self._ref()
        assert driver is not None
        for pool in [pool for pool in self.closed if not driver.walk.wants(pool)]:
            self._step_aside(pool)
        driver.collect()

    def drop(self, keep: str | None = None) -> None:
        """Nothing begins for now: others may have it all, but for what is in hand of one pool."""
        self.put_down(keep)
        for pool in list(self.closed):
            self._step_aside(pool)

    def _step_aside(self, pool: str) -> None:
        self.closed.remove(pool)
        self._pools[pool].step_aside(self)

    def leave(self) -> None:
        """The walk is over."""
        for slot in list(self._in_use):
            slot.give_back()
        for places in self._pools.values():
            places.leave(self)
