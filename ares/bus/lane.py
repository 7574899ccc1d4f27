"""Where events wait for one who takes them, and the exact books of it.

``matched == delivered + dropped + pending`` at every moment. There is no lock in here, because an event may be emitted
from a finalizer, which the garbage collector runs wherever it likes: whoever holds a lock then must not come to wait
for somebody who waits for him. Instead each figure has one owner. Offering is done by one thread at a time (the
exchange sees to that), taking by one thread at a time (the owner of the lane sees to that), and between the two is a
``SimpleQueue``. What is pending is derived.
"""

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

import attrs

from ares.events import Delivery, Event

#: Seconds that a reader which has just emptied its lane is left asleep, unless the lane is half full before. So a
#: steady flow wakes it fifty times a second and not once an event.
REST: Final = 0.02


@attrs.frozen
class Counts:
    """The books of a lane at one moment."""

    matched: int = 0
    delivered: int = 0
    dropped: int = 0
    pending: int = 0


class EventLane:
    """At most ``capacity`` events; one that finds no room is dropped and counted.

    Whoever offers or takes on the main thread may be hit by a ``KeyboardInterrupt``, and then has counted an event that
    is not there. Of such a lane it is known what waits, and the rest is derived the other way round: an event that did
    not come through was dropped.
    """

    __slots__ = (
        "_capacity",
        "_delivered",
        "_dropped",
        "_is_closed",
        "_is_torn",
        "_lost",
        "_matched",
        "_waiting",
        "half",
    )

    def __init__(self, capacity: int) -> None:
        #: From so many on it is worth waking the reader at once.
        self.half = max(1, capacity // 2)
        self._capacity = capacity
        #: An event after which none was lost stands for its own delivery, which is made by the one who takes it.
        self._waiting: SimpleQueue[Event | Delivery] = SimpleQueue()
        # The offering side's:
        self._matched = 0
        self._dropped = 0
        #: Dropped since the last one that was kept.
        self._lost = 0
        # The taking side's:
        self._delivered = 0
        # Set once:
        self._is_closed = False
        self._is_torn = False

    def __len__(self) -> int:
        return self._waiting.qsize()

    # --- one at a time ---------------------------------------------------------------------------------

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event, or drop it; ``keep`` is for one that must not be dropped."""
        try:
            self._matched += 1
            if self._waiting.qsize() >= self._capacity and not keep:
                self._dropped += 1
                self._lost += 1
                return False
            if self._lost:
                lost, self._lost = self._lost, 0
                self._waiting.put(Delivery(event, lost))
            else:
                self._waiting.put(event)
        except BaseException:
            self._is_torn = True
            raise
        return True

    # --- one at a time, beside the other -----------------------------------------------------------------

    def take(self) -> Delivery | None:
        """The oldest, which counts as delivered."""
        if self._is_closed:
            return None
        try:
            oldest = self._waiting.get_nowait()
            self._delivered += 1
        except Empty:
            return None
        except BaseException:
            self._is_torn = True
            raise
        return oldest if isinstance(oldest, Delivery) else Delivery(oldest)

    def close(self) -> None:
        """Drop all that waits, and all that is still on its way."""
        self._is_closed = True
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()

    # --- any thread --------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """The books."""
        # In this order, so that what changes in between can only look as if it were pending.
        is_closed, delivered, dropped, matched = self._is_closed, self._delivered, self._dropped, self._matched
        pending = 0 if is_closed else matched - delivered - dropped
        if self._is_torn:
            pending = min(pending, len(self))
        return Counts(matched, delivered, matched - delivered - pending, pending)
