"""A reader's own lane of events: it is woken like an actor is, and ends when there will be no more.

Offering an event takes no lock (``ares.bus.lane`` says why). Readers, of whom there may be several, share one among
themselves. A reader that finds nothing says how many events are worth waking for, looks once more, and sleeps on a
bell; whoever offers looks at that after the event is in the lane. A bell wakes one reader, and one that is woken passes
it on if there is more to be had, or nothing at all any more.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Self

from ares.bus.lane import REST, Counts, EventLane
from ares.events import Delivery, Event, EventFilter
from ares.postbox import longest_wait, new_bell, ring

#: More events than there will ever be: nobody sleeps.
_NEVER: Final = 1 << 62


class BusSubscription:
    """A ``Subscription``. Any thread; several may read, and each event goes to one of them.

    A subscription to certain streams ends when all of them have ended; every one ends when its bus stops. What waits by
    then can still be read.
    """

    def __init__(self, filter: EventFilter, buffer: int, on_close: Callable[["BusSubscription"], None]) -> None:
        self.filter = filter
        self._events = EventLane(buffer)
        self._on_close = on_close
        #: Streams that have not ended, where only certain ones are wanted. Of the one who offers.
        self._streams = set(filter.stream_ids)
        #: Set once.
        self._is_over = False
        self._bell = new_bell()
        #: How many events are to ring it.
        self._rings_at = _NEVER
        #: Guards what is the readers'. Reentrant: a finalizer that the garbage collector runs in here may close this.
        self._lock = threading.RLock()
        self._sleepers = 0
        #: Until when it takes a lane that is half full, in seconds of the monotonic clock.
        self._rests_until = 0.0

    def __repr__(self) -> str:
        return f"<Subscription {self.counts()}>"

    # --- reading -------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        delivery = self.get()
        if delivery is None:
            raise StopIteration
        return delivery

    def get(self, timeout: float | None = None) -> Delivery | None:
        """The next event; None when there will be none.

        Raises:
            TimeoutError: none came in ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            is_over = self._is_over  # before the look at the lane: what came before the end is not missed
            delivery = self._take()
            if delivery is not None or is_over:
                return delivery
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"no event in {timeout:g} s")
            self._sleep(until)

    def _take(self) -> Delivery | None:
        with self._lock:
            delivery = self._events.take()
            left = len(self._events)
            if delivery is not None and not left:
                self._rests_until = time.monotonic() + REST
            if self._sleepers and (left or self._is_over):
                ring(self._bell)
            return delivery

    def _sleep(self, until: float | None) -> None:
        """Sleep until it is worth looking again."""
        now = time.monotonic()
        pause = longest_wait() if until is None else max(0.0, min(until - now, longest_wait()))
        with self._lock:
            rest = self._rests_until - now
            needed = self._events.half if rest > 0 else 1
            self._sleepers += 1
            self._rings_at = min(self._rings_at, needed)
        try:
            if len(self._events) < needed and not self._is_over:
                self._bell.acquire(timeout=min(pause, rest) if rest > 0 else pause)
        finally:
            with self._lock:
                self._sleepers -= 1
                # Whoever rang has reset it; others may still sleep, and it does no harm to wake them for less.
                self._rings_at = 1 if self._sleepers else _NEVER

    # --- the books -----------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """The four figures at one moment."""
        return self._events.counts()

    @property
    def matched(self) -> int:
        """Events that the filter selected."""
        return self.counts().matched

    @property
    def delivered(self) -> int:
        """Those that were taken."""
        return self.counts().delivered

    @property
    def dropped(self) -> int:
        """Those that found the buffer full, or were waiting when it was closed."""
        return self.counts().dropped

    @property
    def pending(self) -> int:
        """Those that wait to be taken."""
        return self.counts().pending

    # --- its end -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Want no more. Drops what is pending; any thread, any number of times, at any moment."""
        self.end()
        self._events.close()
        self._on_close(self)

    @property
    def is_over(self) -> bool:
        """Whether there will be no more than what is pending."""
        return self._is_over

    # --- what the bus does with it -------------------------------------------------------------------

    @property
    def label(self) -> str:
        """What a complaint calls it."""
        return "a subscription"

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event for the reader, unless its lane is full. True if it was kept, or is not wanted any more. One
        thread at a time."""
        if self._is_over:
            return True
        is_kept = self._events.offer(event, keep=keep)
        if len(self._events) >= self._rings_at:
            self._rings_at = _NEVER
            ring(self._bell)
        return is_kept

    def stream_ended(self, stream_id: str) -> bool:
        """One of the streams that it asked for will have no more events. Returns whether none will. One thread at a
        time."""
        self._streams.discard(stream_id)
        if not self._streams:
            self.end()
        return self._is_over

    def end(self) -> None:
        """There will be no more events at all."""
        self._is_over = True
        ring(self._bell)
