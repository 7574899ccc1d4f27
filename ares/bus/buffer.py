"""What waits for one reader of events, and the exact books of it.

``matched == delivered + dropped + pending`` after every method. Not locked: its owner's lock guards it. It is safe for
that lock to be reentrant, that is, for ``offer`` to run in the middle of another method of the same thread: whoever
logs or emits in a finalizer does so wherever the garbage collector happens to run.
"""

from collections import deque
from typing import Final

import attrs

from ares.events import Delivery, Event

#: Seconds that a reader which has just emptied its buffer is left asleep, unless the buffer is half full before. So a
#: steady flow wakes it fifty times a second and not once an event.
REST: Final = 0.02


@attrs.frozen
class Counts:
    """The books of a buffer at one moment."""

    matched: int = 0
    delivered: int = 0
    dropped: int = 0
    pending: int = 0


class EventBuffer:
    """At most ``capacity`` events; one that finds no room is dropped and counted."""

    __slots__ = ("_capacity", "_lost", "_waiting", "delivered", "dropped", "half", "matched")

    def __init__(self, capacity: int) -> None:
        self.matched = 0
        self.delivered = 0
        self.dropped = 0
        #: From so many on it is worth waking the reader at once.
        self.half = max(1, capacity // 2)
        self._capacity = capacity
        #: Dropped since the last one that was kept.
        self._lost = 0
        #: An event after which none was lost stands for its own delivery, which is made by the one who takes it.
        self._waiting: deque[Event | Delivery] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event for the reader, or drop it; ``keep`` is for one that must not be dropped."""
        self.matched += 1
        waiting = self._waiting
        if len(waiting) >= self._capacity and not keep:
            self.dropped += 1
            self._lost += 1
            return False
        if self._lost:
            lost, self._lost = self._lost, 0
            waiting.append(Delivery(event, lost))
        else:
            waiting.append(event)
        return True

    def take(self) -> Delivery | None:
        """The oldest, which counts as delivered."""
        if not self._waiting:
            return None
        oldest = self._waiting.popleft()
        self.delivered += 1
        return oldest if isinstance(oldest, Delivery) else Delivery(oldest)

    def discard(self) -> int:
        """Drop all that waits. Returns how many."""
        count = 0
        while self._waiting:
            self._waiting.popleft()
            self.dropped += 1
            count += 1
        return count

    def counts(self) -> Counts:
        """The books."""
        return Counts(self.matched, self.delivered, self.dropped, len(self._waiting))
