"""The live feed of one walk: what is journaled, as events on the bus, in the order of its numbers.

An entry takes its place when it is numbered, and passes when it is *released*: what began at once, what came of it once
that is committed, and, where somebody is told of an outcome first, after that. What comes behind it waits for it. An
entry that nobody listens for costs a look, and is never made an event.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from ares.engine.options import Options
from ares.journal.notes import Note
from ares.journal.protocol import Entry, Ticket
from ares.journal.view import event_of, type_of
from ares.plugin.engine_bus import EngineBus
from ares.walk import facts as f

#: What begins or ends a stream passes whoever listens, so that who comes later learns of it.
_BOUNDS: Final = (f.Created, f.Resumed, f.Interrupted, f.Ended)


class Place:
    """Of one entry in the feed."""

    __slots__ = ("at", "entry", "is_released", "seq")

    def __init__(self, seq: int, at: int, entry: f.Fact | Note) -> None:
        self.seq = seq
        self.at = at
        self.entry = entry
        self.is_released = False


class Feed:
    """See above. Any thread.

    Args:
        execution_id: the stream.
        bus: where events pass.
        options: whether events wait for their commit.
    """

    def __init__(self, execution_id: str, bus: EngineBus, options: Options) -> None:
        self._execution_id = execution_id
        self._bus = bus
        self._waits = options.is_sync
        # Reentrant: a commit is told on whichever thread made it, which may be one that passes events on.
        self._lock = threading.RLock()
        self._places: deque[Place] = deque()
        self._is_passing = False

    def add(
        self,
        first: int,
        entries: Sequence[f.Fact | Note],
        ticket: Ticket | None = None,
        held: list[Place] | None = None,
    ) -> None:
        """Give entries that were numbered from ``first`` their places.

        Args:
            first: the number of the first of them.
            entries: in order.
            ticket: their commit; None if they are committed.
            held: takes those that are released by ``release`` and not by their commit, which the caller waits for.
        """
        if self._bus.is_listened_to():
            wanted = [(seq, entry) for seq, entry in enumerate(entries, first) if self._bus.wants(type_of(entry))]
        else:
            wanted = [(seq, entry) for seq, entry in enumerate(entries, first) if isinstance(entry, _BOUNDS)]
        if not wanted:
            return
        at = time.time_ns()
        places = [Place(seq, at, entry) for seq, entry in wanted]
        with self._lock:
            self._places.extend(places)
        if held is not None:
            held += places
        elif self._waits and ticket is not None:
            ticket.add_callback(lambda t: self.release(places, is_lost=t.error is not None))
        else:
            self.release(places)

    def release(self, places: Sequence[Place], *, is_lost: bool = False) -> None:
        """Let entries pass; ``is_lost``: they are not in the journal, and so they did not happen."""
        with self._lock:
            for place in places:
                place.is_released = True
            if is_lost:
                gone = set(places)
                self._places = deque(place for place in self._places if place not in gone)
            if self._is_passing:
                return  # this very thread passes events on, further down its stack
            self._is_passing = True
            try:
                while self._places and self._places[0].is_released:
                    self._pass(self._places.popleft())
            finally:
                self._is_passing = False

    def end(self) -> None:
        """The walk is over: nobody will release what is still held."""
        with self._lock:
            self.release(tuple(self._places))

    def _pass(self, place: Place) -> None:
        entry = Entry(place.seq, place.at, place.entry.kind, getattr(place.entry, "path", ""), None)
        self._bus.publish((event_of(self._execution_id, entry, place.entry),))
