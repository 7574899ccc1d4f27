"""A reader's own buffer of events: it is woken like an actor is, and ends when there will be no more.

The lock is reentrant: a finalizer that the garbage collector runs in here may emit an event.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ares.bus.buffer import REST, Counts, EventBuffer
from ares.events import Delivery, Event, EventFilter


class BusSubscription:
    """A ``Subscription``. Any thread; several may read, each event goes to one of them.

    A subscription to certain streams ends when all of them have ended; every one ends when the bus stops. What waits by
    then can still be read.
    """

    def __init__(self, filter: EventFilter, buffer: int, on_close: Callable[[Any], None]) -> None:
        self.filter = filter
        self._lock = threading.RLock()
        self._buffer = EventBuffer(buffer)
        self._on_close = on_close
        #: Streams that have not ended, where only certain ones are wanted.
        self._streams = set(filter.stream_ids)
        self._is_over = False
        #: One of each reader that sleeps: released to wake it.
        self._gates: list[threading.Lock] = []
        #: Until when the buffer has to be half full to wake them, in seconds of the monotonic clock.
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
            gate = threading.Lock()
            gate.acquire()
            with self._lock:
                # Before the look at the buffer: an event that a finalizer puts into it from here on opens the gate.
                self._gates.append(gate)
                delivery = self._buffer.take()
                if delivery is not None:
                    self._rests_until = time.monotonic() + REST
                if delivery is not None or self._is_over:
                    self._forget(gate)
                    return delivery
                pause = self._pause(until)
            if pause is not None and pause <= 0:
                raise TimeoutError(f"no event in {timeout:g} s")
            try:
                gate.acquire(timeout=-1 if pause is None else pause)
            finally:
                with self._lock:
                    self._forget(gate)

    def _pause(self, until: float | None) -> float | None: ...
