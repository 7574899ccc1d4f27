"""Where events pass: who wants what, and in which order it reaches them.

*Wanted or not* is looked up in an index by type, which is replaced as a whole when somebody comes or goes. So an event
that nobody wants costs a look-up, and is never made.

*Order.* Events pass one at a time, through one sequencer, so that all who receive events of a stream receive them in
the same order. When ``emit`` returns, every buffer has the event or has counted it as dropped.

*Never blocks.* Whoever passes an event on holds the sequencer's lock for microseconds: no lock is taken under it,
nothing waits, nobody's code runs. So it may be taken anywhere, also in a finalizer that the garbage collector runs
while this very thread holds any other lock of the bus. Only if it holds the sequencer's own, because it was interrupted
while it passed an event on, there is more to it: the lock is reentrant, and what the finalizer emits is passed on by
the one it interrupted, after its own.

*Ends.* An event that ends a stream is never dropped, and ends the subscriptions that want only that stream; also those
that come too late for it, as long as it is remembered.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from ares.errors import UsageError
from ares.events import Event, EventFilter, EventType

#: What ends a stream: nothing more happens in an execution until somebody takes it up again.
ENDS: Final = frozenset(
    {
        EventType.WORKFLOW_COMPLETED,
        EventType.WORKFLOW_FAILED,
        EventType.WORKFLOW_CANCELLED,
        EventType.WORKFLOW_INTERRUPTED,
        EventType.WORKFLOW_WAITING,
    }
)
#: What shows that one goes on which had ended.
_BEGINNINGS: Final = frozenset({EventType.WORKFLOW_STARTED, EventType.WORKFLOW_RESUMED, EventType.INTERRUPT_RESOLVED})
#: Passed on whether or not anybody wants them.
_BOUNDS: Final[frozenset[str]] = ENDS | _BEGINNINGS

#: Streams whose end is remembered.
_REMEMBERED: Final = 1_000


class Box(Protocol):
    """Somebody's buffer."""

    @property
    def filter(self) -> EventFilter:
        """What it wants."""

    @property
    def label(self) -> str:
        """What a complaint calls it."""

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """Keep an event; False if it was dropped. Never blocks."""

    def stream_ended(self, stream_id: str) -> bool:
        """A stream that its filter names has ended. Returns whether it wants nothing any more. Never blocks."""

    def end(self) -> None:
        """There will be nothing any more. Never blocks."""


class _Index:
    """Who wants what. Never changed once it is made."""

    __slots__ = ("any_type", "by_stream", "by_type", "has_any", "wanted", "wants_all")

    def __init__(self, boxes: Iterable[Box]) -> None:
        boxes = list(boxes)
        self.has_any = bool(boxes)
        everywhere: list[Box] = []
        here: list[Box] = []
        for box in boxes:
            (here if box.filter.stream_ids else everywhere).append(box)
        named = {event_type for box in everywhere for event_type in box.filter.types}
        #: Of those that want all streams: who wants a type, and who wants one that nobody names.
        self.by_type = {t: tuple(box for box in everywhere if _wants_type(box, t)) for t in named}
        self.any_type = tuple(box for box in everywhere if not box.filter.types)
        #: Who wants certain streams only, of whatever type.
        self.by_stream: dict[str, list[Box]] = {}
        for box in here:
            for stream_id in box.filter.stream_ids:
                self.by_stream.setdefault(stream_id, []).append(box)
        self.wants_all = bool(self.any_type) or any(not box.filter.types for box in here)
        self.wanted = _BOUNDS.union(named, *(box.filter.types for box in here))

    def wants(self, event_type: str) -> bool:
        """Whether an event of this type should be passed on."""
        return self.wants_all or event_type in self.wanted

    def of_stream(self, event: Event) -> list[Box]:
        """Who wants certain streams only, and this event."""
        return [box for box in self.by_stream.get(event.stream_id, ()) if _wants_type(box, event.type)]


def _wants_type(box: Box, event_type: str) -> bool:
    return not box.filter.types or event_type in box.filter.types


class Exchange:
    """See above. Any thread.

    Args:
        prefix: Of the ids of the events that are made here.
        on_drop: Told of a box and an event that was dropped; holds no lock, does not block.
    """

    def __init__(self, prefix: str, on_drop: Callable[[Box, Event], None]) -> None:
        self._prefix = prefix
        self._on_drop = on_drop
        #: Guards who is there; never held together with the sequencer's.
        self._lock = threading.RLock()
        self._boxes: dict[Box, None] = {}
        #: Of events that only pass here, and of those that stand in a journal.
        self._passing = _Index(())
        self._journaled = _Index(())
        self._is_over = False
        #: The sequencer's; guards what follows.
        self._sequence = threading.RLock()
        #: Events made here, for their ids.
        self._count = 0
        #: What a finalizer has emitted while another event was passed on.
        self._waiting: deque[Event] = deque()
        self._is_passing = False
        #: Streams whose end has passed, oldest first.
        self._ended: dict[str, None] = {}

    # --- who is there --------------------------------------------------------------------------------

    def attach(self, box: Box) -> None:
        """From now on ``box`` is offered what its filter selects."""
        with self._lock:
            is_over = self._is_over
            if not is_over:
                self._boxes[box] = None
                self._look_around()
        if is_over:
            box.end()
            return
        with self._sequence:
            for stream_id in box.filter.stream_ids:
                is_over = (stream_id in self._ended and box.stream_ended(stream_id)) or is_over
        if is_over:
            self.detach(box)

    def detach(self, box: Box) -> None:
        """``box`` is offered nothing any more, except what is on its way."""
        with self._lock:
            if box in self._boxes:
                del self._boxes[box]
                self._look_around()

    def end(self) -> None:
        """Nothing passes any more."""
        with self._lock:
            self._is_over = True
            boxes, self._boxes = self._boxes, {}
            self._look_around()
        for box in boxes:
            box.end()

    def _look_around(self) -> None:
        self._passing = _Index(box for box in self._boxes if box.filter.journaled is not True)
        self._journaled = _Index(box for box in self._boxes if box.filter.journaled is not False)

    def wants(self, event_type: str) -> bool:
        """Whether a journaled event of this type should be passed on."""
        return self._journaled.wants(event_type)

    def is_listened_to(self) -> bool:
        """Whether journaled events reach anybody, apart from what begins and ends streams."""
        return self._journaled.has_any

    # --- what passes -----------------------------------------------------------------------------------

    def emit(self, stream_id: str, event_type: str, module: str, payload: Mapping[str, Any] | None) -> None:
        """Make an event and pass it on. Never blocks.

        Raises:
            UsageError: an argument that no event can have.
        """
        if not self._passing.wants(event_type):
            return
        _check(stream_id, event_type, module)
        copy = _copy(event_type, payload)
        at = datetime.now(UTC)
        with self._sequence:
            self._count += 1
            event = Event(f"{self._prefix}-{self._count}", None, stream_id, str(event_type), module, copy, at)
            aftermath = self._pass_on(event)
        if aftermath:
            self._clear_up(aftermath)

    def publish(self, events: Iterable[Event]) -> None:
        """Pass on events that were made elsewhere, in order. Never blocks."""
        for event in events:
            if self.wants(event.type):
                with self._sequence:
                    aftermath = self._pass_on(event)
                if aftermath:
                    self._clear_up(aftermath)

    def end_stream(self, stream_id: str) -> None:
        """Nothing more happens in a stream for now: tell so if nobody has."""
        with self._sequence:
            is_over = stream_id in self._ended
        if not is_over:
            self.emit(stream_id, EventType.WORKFLOW_INTERRUPTED, "walk", None)

    # --- under the sequencer's lock --------------------------------------------------------------------

    def _pass_on(self, event: Event) -> list[tuple[Box, Event | None]]:
        """Returns who lost an event, and (None) who wants no more."""
        aftermath: list[tuple[Box, Event | None]] = []
        if self._is_passing:  # this very thread is passing one on, further down its stack
            self._waiting.append(event)
            return aftermath
        self._is_passing = True
        try:
            self._offer(event, aftermath)
            while self._waiting:
                self._offer(self._waiting.popleft(), aftermath)
        finally:
            self._is_passing = False
        return aftermath

    def _offer(self, event: Event, aftermath: list[tuple[Box, Event | None]]) -> None:
        index = self._passing if event.seq is None else self._journaled
        is_end = event.type in ENDS
        for box in index.by_type.get(event.type, index.any_type):
            if not box.offer(event, keep=is_end):
                aftermath.append((box, event))  # noqa: PERF401 - setting up a generator would cost more than it saves
        if index.by_stream:
            aftermath += [(box, event) for box in index.of_stream(event) if not box.offer(event, keep=is_end)]
        if is_end:
            self._remember_end(event.stream_id)
            named = dict.fromkeys(
                (
                    *self._passing.by_stream.get(event.stream_id, ()),
                    *self._journaled.by_stream.get(event.stream_id, ()),
                )
            )
            aftermath += [(box, None) for box in named if box.stream_ended(event.stream_id)]
        elif self._ended and event.type in _BEGINNINGS:
            self._ended.pop(event.stream_id, None)

    def _remember_end(self, stream_id: str) -> None:
        self._ended[stream_id] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    # --- and after it ----------------------------------------------------------------------------------

    def _clear_up(self, aftermath: list[tuple[Box, Event | None]]) -> None:
        for box, lost in aftermath:
            if lost is None:
                self.detach(box)
            else:
                self._on_drop(box, lost)


def _check(stream_id: object, event_type: object, module: object) -> None:
    if not isinstance(stream_id, str) or not stream_id:
        raise UsageError(f"an event's stream_id must be a non-empty str, not {stream_id!r}")
    if not isinstance(event_type, str) or "." not in event_type:
        raise UsageError(f"an event's type must be a dotted name, not {event_type!r}")
    if not isinstance(module, str):
        raise UsageError(f"an event's module must be a str, not {module!r}")


def _copy(event_type: str, payload: object) -> dict[str, Any]:
    if payload is None:
        return {}
    if not isinstance(payload, dict | Mapping):
        raise UsageError(f"the payload of {event_type!r} must map names to values, it is {payload!r}")
    copy = dict(payload)
    for name in copy:
        if not isinstance(name, str):
            raise UsageError(f"the payload of {event_type!r} must map names to values, one of which is {name!r}")
    return copy
