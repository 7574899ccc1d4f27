"""A reader's own buffer of events: it is woken like an actor is, and ends when there will be no more.

The lock is reentrant: a finalizer that the garbage collector runs in here may emit an event.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from ares.bus.buffer import REST, Counts, EventBuffer
from ares.events import Delivery, Event, EventFilter


class BusSubscription:
    """A ``Subscription``. Any thread; several may read, and each event goes to one of them.

    A subscription to certain streams ends when all of them have ended; every one ends when its bus stops. What waits by
    then can still be read.
    """

    def __init__(self, filter: EventFilter, buffer: int, on_close: Callable[["BusSubscription"], None]) -> None:
        self.filter = filter
        self._lock = threading.RLock()
        self._buffer = EventBuffer(buffer)
        self._on_close = on_close
        #: Streams that have not ended, where only certain ones are wanted.
        self._streams = set(filter.stream_ids)
        self._is_over = False
        #: Readers that sleep: the lock whose release wakes each, and how many events it takes to wake it.
        self._sleepers: dict[threading.Lock, int] = {}
        #: Until when a reader that falls asleep is not woken for a few events, in seconds of the monotonic clock.
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
            with self._lock:
                delivery = self._take()
                if delivery is not None or self._is_over:
                    return delivery
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"no event in {timeout:g} s")
            self._sleep(until)

    def _take(self) -> Delivery | None:
        delivery = self._buffer.take()
        if delivery is not None and not len(self._buffer):
            self._rests_until = time.monotonic() + REST
        return delivery

    def _sleep(self, until: float | None) -> None:
        """Sleep until it is worth looking again."""
        gate = threading.Lock()
        gate.acquire()
        now = time.monotonic()
        rest = self._rests_until - now
        ends = [] if until is None else [until - now]
        if rest > 0:
            ends.append(rest)
        try:
            with self._lock:
                needed = self._sleepers[gate] = self._buffer.half if rest > 0 else 1
                # Only now: an event that comes from here on wakes this reader.
                if len(self._buffer) >= needed or self._is_over:
                    return
            gate.acquire(timeout=min([threading.TIMEOUT_MAX, *(max(end, 0) for end in ends)]))
        finally:
            with self._lock:
                self._sleepers.pop(gate, None)

    # --- the books -----------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """The four figures at one moment."""
        with self._lock:
            return self._buffer.counts()

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
        with self._lock:
            self._is_over = True
            self._buffer.discard()
            self._wake()
        self._on_close(self)

    # --- what the bus does with it -------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether there will be no more than what is pending."""
        with self._lock:
            return self._is_over

    @property
    def label(self) -> str:
        """What a complaint calls it."""
        return "a subscription"

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event for the reader, unless its buffer is full. True if it was kept, or is not wanted any more."""
        with self._lock:
            if self._is_over:
                return True
            is_kept = self._buffer.offer(event, keep=keep)
            if self._sleepers:
                self._wake(len(self._buffer))
            return is_kept

    def stream_ended(self, stream_id: str) -> bool:
        """One of the streams that it asked for will have no more events. Returns whether none will."""
        with self._lock:
            self._streams.discard(stream_id)
            if not self._streams:
                self._is_over = True
                self._wake()
            return self._is_over

    def end(self) -> None:
        """There will be no more events at all."""
        with self._lock:
            self._is_over = True
            self._wake()

    def _wake(self, events: int | None = None) -> None:
        for gate, needed in list(self._sleepers.items()):
            if events is None or events >= needed:
                del self._sleepers[gate]
                gate.release()
