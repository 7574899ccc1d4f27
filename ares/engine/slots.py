"""The slots that one walk takes of the named pools of its Runtime.

A step that names a pool takes a slot of it for each attempt of its body and for each ``reconcile``, from before its
interceptors are asked until the attempt has ended or is given up. Its condition and its router take none, nor does a
retry that waits for its delay, or a body that was parked.

A walk that finds no slot free is in line for one, and the pool is *closed* to it until one is offered: what else is
ready goes on past it. It holds no worker meanwhile. The other way round it keeps the slot that it was offered while all
that the work waits for is a worker, or it might never have both. Whatever else is not used is given back.

A step keeps its slot while it waits for a run that is nested in it, and shares it: whatever is nested in it, at any
depth, takes this slot in place of the pool's, one at a time. So a step never waits for itself, no more run at once than
the pool allows, and a step in a pool of one finds that nobody else has been there in between.
"""

import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ares.engine.places import Places

if TYPE_CHECKING:
    from ares.engine.attempt import Attempt
    from ares.engine.driver import Driver

#: Of which pool an outer step holds a slot, and what stands for the pool inside.
Shared = Mapping[Places, Places]


class Slot:
    """What one attempt has taken of a pool."""

    __slots__ = ("_owner", "_places", "inside")

    def __init__(self, places: Places, owner: "Slots") -> None:
        self._places = places
        self._owner = owner
        #: The slot once more, for what is nested in the attempt.
        self.inside = Places(1)

    def give_back(self) -> None:
        """The attempt has ended, or was given up. Called once."""
        self._places.release(self._owner)


class Slots:
    """The slots of one walk. On its owner's thread, except what says otherwise.

    Args:
        driver: the walk's owner.
        pools: the slots of each pool.
        shared: the pools of which steps hold a slot that this walk is nested in.
    """

    def __init__(self, driver: "Driver", pools: Mapping[str, Places], shared: Shared) -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._ref = weakref.ref(driver)
        self._pools = pools
        self._shared = shared
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
        self._places(pool).line_up(self, partial(driver.post, self._reopen, pool))
        return False

    def _reopen(self, pool: str) -> None:
        """A slot is offered."""
        if pool in self.closed:
            self.closed.remove(pool)
            self._hold(pool)

    def _hold(self, pool: str) -> bool:
        if self._places(pool).try_hold(self):
            self.in_hand.add(pool)
        return pool in self.in_hand

    def use(self, pool: str) -> Slot:
        """Give an attempt the slot that is in hand."""
        self.in_hand.remove(pool)
        return Slot(self._places(pool), self)

    def put_down(self, keep: str | None = None) -> None:
        """Give back what is in hand, but for one pool."""
        for pool in self.in_hand - {keep}:
            self.in_hand.remove(pool)
            self._places(pool).release(self)

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
        self._places(pool).step_aside(self)

    def leave(self) -> None:
        """The walk is over."""
        for places in self._pools.values():
            self._of(places).leave(self)

    def inside(self, attempt: "Attempt") -> Shared:
        """Any thread. What a run that is nested in an attempt finds in place of pools."""
        slot, pool = attempt.slot, attempt.work.pool
        if slot is None or pool is None:
            return self._shared
        return {**self._shared, self._pools[pool]: slot.inside}

    def _places(self, pool: str) -> Places:
        return self._of(self._pools[pool])

    def _of(self, places: Places) -> Places:
        return self._shared.get(places, places)
