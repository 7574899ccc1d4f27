"""An actor's mailbox: a lane for calls and a lane for events. It knows nothing of what is in them.

The *control lane* never blocks and is unbounded, because each message in it has a caller who waits, or a timeout. The
*event lane* is bounded and drops. Calls come first, always: a flood of events delays a call by one event at most.

Putting and closing share one lock, the owner's. So a message is either refused, or in the lane when ``close`` looks,
and whoever closes can answer it; none gets lost between the two.

A call that is put wakes the one reader. An event wakes it when it is in *deep* sleep, by a token in the control lane.
After it has taken events it sleeps *light* for ``REST`` seconds, and is only woken for a lane that is half full.

Offering an event takes no lock (``ares.bus.lane`` says why). The reader who falls asleep says so and looks at the lane
after that; whoever offers puts the event into the lane and looks at the sleeper after that. One of them sees the other.
"""

import time
from contextlib import AbstractContextManager, suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, Final

from ares.bus.lane import REST, Counts, EventLane
from ares.events import Delivery, Event
from ares.postbox import new_bell, ring


class _Sleep(Enum):
    AWAKE = 0
    LIGHT = 1
    DEEP = 2


_AWAKE, _LIGHT, _DEEP = _Sleep

#: What ``get`` returns instead of a message when it is time to take events.
EVENTS_WAIT: Final = object()


class MailboxClosedError(Exception):
    """The actor takes no more messages."""


class Mailbox:
    """Both lanes of one actor.

    Args:
        lock: Guards the control lane; reentrant.
        capacity: Of the event lane; 0 for a reader that wants none.
    """

    def __init__(self, lock: AbstractContextManager[Any], capacity: int = 0) -> None:
        self._lock = lock
        self._control: SimpleQueue[Any] = SimpleQueue()
        self._is_closed = False
        self._has_events: Final = capacity > 0
        self._takes_events = self._has_events
        self._events = EventLane(capacity)
        self._sleep = _AWAKE
        #: Wakes it from light sleep.
        self._bell = new_bell()
        #: Until when the reader rests, in seconds of the monotonic clock.
        self._rests_until = 0.0

    # --- any thread --------------------------------------------------------------------------------

    def put(self, message: Any) -> None:
        """Queue a message in the control lane.

        Raises:
            MailboxClosedError: nobody would ever see it.
        """
        with self._lock:
            self.put_held(message)

    def put_held(self, message: Any) -> None:
        """As ``put``, for one who holds the lock."""
        if self._is_closed:
            raise MailboxClosedError
        self._control.put(message)
        if self._sleep is _LIGHT:
            ring(self._bell)

    def end_events(self) -> None:
        """Take no more events; those that wait stay."""
        self._takes_events = False

    def discard_events(self) -> None:
        """Take no more events and drop those that wait."""
        self._takes_events = False
        self._events.close()

    def counts(self) -> Counts:
        """The books of the event lane."""
        return self._events.counts()

    # --- one thread at a time ------------------------------------------------------------------------

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event, unless its lane is full; ``keep`` is for one that must not be dropped. True if it was kept,
        or is not wanted any more."""
        if not self._takes_events:
            return True
        is_kept = self._events.offer(event, keep=keep)
        sleep = self._sleep
        if sleep is not _AWAKE and (sleep is _DEEP or len(self._events) >= self._events.half):
            self._sleep = _AWAKE
            self._control.put(EVENTS_WAIT)
            if sleep is _LIGHT:
                ring(self._bell)
        return is_kept

    # --- the reader --------------------------------------------------------------------------------

    def get(self) -> Any:
        """Wait for the next message, or for a moment to take events."""
        if not self._has_events:
            return self._control.get()
        while True:
            pause = self._fall_asleep()
            if pause == 0:
                return EVENTS_WAIT
            if pause is not None and self.empty():
                self._bell.acquire(timeout=pause)
            if pause is None or not self.empty():
                message = self._control.get()
                self._sleep = _AWAKE
                return message

    def empty(self) -> bool:
        """Whether no message waits in the control lane."""
        return self._control.empty()

    def take_event(self) -> Delivery | None:
        """The oldest event, or None. The reader rests after that."""
        delivery = self._events.take()
        if delivery is None:
            self._rests_until = time.monotonic() + REST
        return delivery

    def close(self) -> list[Any]:
        """Take no more messages. Returns those that nobody will see now, in order; events are dropped.

        For the reader, or when there is none any more.
        """
        with self._lock:
            self._is_closed = True
        self.discard_events()
        rest = []
        with suppress(Empty):
            while True:
                rest.append(self._control.get_nowait())
        return [message for message in rest if message is not EVENTS_WAIT]

    def _fall_asleep(self) -> float | None:
        """How long to wait for a message, None for as long as it takes; 0 when events are to be taken now."""
        rest = self._rests_until - time.monotonic()
        self._sleep = _DEEP if rest <= 0 else _LIGHT
        waiting = len(self._events)
        if waiting and self.empty() and (rest <= 0 or waiting >= self._events.half):
            self._sleep = _AWAKE
            return 0
        return None if rest <= 0 else rest
