"""Writes down what is said to it: a plugin that is told everything, and an execution that keeps what is recorded."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from ares.context import Context
from ares.errors import ExecutionNotFoundError
from ares.events import Delivery, Event, EventFilter
from ares.plugin import EventBus, Plugin
from ares.records import ExecutionOutcome, ExecutionState, ExperienceCheckpoint, Step, StepResult

#: Events that can wait to be written down: more than a test should make.
_BUFFER: Final = 100_000


@attrs.frozen
class Told:
    """One call to the recorder.

    Attributes:
        method: what was called: ``start``, ``before_step``, ``on_event``, ...
        execution_id: the execution that it was about, "" if none.
        what: the record that it was handed: a Step, a StepResult, an Event, ...; None at ``start`` and ``stop``.
    """

    method: str
    execution_id: str
    what: Any = None


class RecordingPlugin(Plugin):
    """Is told everything that can be told, and writes it down in order. Any thread may look.

    Observers' hooks come before the step goes on, so by the end of a run they are there. Events come a little later:
    wait for them by ``wait_for``, or look once the Runtime is closed.

    Args:
        name: of the plugin.
        per_item: whether step hooks are told for each element of a map.
    """

    subscribes_to = EventFilter()
    buffer = _BUFFER

    def __init__(self, name: str = "recorder", *, per_item: bool = False) -> None:
        self.name = name
        self.per_item = per_item
        self._changed = threading.Condition()
        self._told: list[Told] = []
        #: Events that were lost because the buffer was full.
        self.dropped = 0

    @property
    def told(self) -> tuple[Told, ...]:
        """All calls so far, in order."""
        with self._changed:
            return tuple(self._told)

    def of(self, method: str, execution_id: str | None = None) -> list[Any]:
        """What the calls of one method were handed, in order; of one execution, or of all."""
        return [each.what for each in self.told if each.method == method and execution_id in (None, each.execution_id)]

    @property
    def events(self) -> list[Event]:
        """The events so far, in the order in which they came."""
        return self.of("on_event")

    def paths(self, method: str = "after_step") -> list[str]:
        """The paths of the steps that one of the step hooks was told of."""
        return [each.path for each in self.of(method)]

    def wait_for(self, wanted: str | Callable[[Event], object], timeout: float = 10.0) -> Event:
        """The first event of a type, or that a function says yes to; waited for if it has not come.

        Raises:
            TimeoutError: there is none after ``timeout`` seconds.
        """

        def matches(event: Event) -> bool:
            return event.type == wanted if isinstance(wanted, str) else bool(wanted(event))

        position = 0

        def first() -> Event | None:
            nonlocal position
            while position < len(self._told):
                each = self._told[position]
                position += 1
                if each.method == "on_event" and matches(each.what):
                    event: Event = each.what
                    return event
            return None

        with self._changed:
            found = self._changed.wait_for(first, timeout)
            if found is None:
                types = sorted({each.what.type for each in self._told if each.method == "on_event"})
                what = f"event {wanted!r}" if isinstance(wanted, str) else "such event"
                raise TimeoutError(f"no {what} within {timeout:g} s; there were {', '.join(types) or 'none at all'}")
            return found

    def _tell(self, method: str, execution_id: str = "", what: Any = None) -> None:
        with self._changed:
            self._told.append(Told(method, execution_id, what))
            self._changed.notify_all()

    # --- as a plugin --------------------------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("start")

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("stop")

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("before_step", execution_id, step)

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("after_step", execution_id, result)

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("before_execution", execution.execution_id, execution)

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self._tell("after_execution", outcome.execution_id, outcome)

    def on_event(self, ctx: Context, delivery: Delivery) -> None:  # noqa: ARG002 - a contract's word
        """Is written down."""
        self.dropped += delivery.dropped_before
        self._tell("on_event", delivery.event.stream_id, delivery.event)


class RecordingExecution:
    """Stands for an execution on a bus without a Runtime: ``bus.open_execution(execution_id, execution)``. Calls that
    name it have its metadata, and what plugins give to ``ctx.record`` is kept here. Any thread.

    Args:
        metadata: what ``ctx.metadata`` shows.
    """

    def __init__(self, metadata: Mapping[str, str] | None = None) -> None:
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        self._lock = threading.Lock()
        self._recorded: list[tuple[str, Any]] = []

    def record(self, writer: str, entry: Any) -> None:
        """Keep an entry."""
        with self._lock:
            self._recorded.append((writer, entry))

    @property
    def recorded(self) -> list[tuple[str, Any]]:
        """Who recorded what, in order: the plugin's name and the entry."""
        with self._lock:
            return list(self._recorded)


class RecordingJournal:
    """Stands for the journal that plugins find behind ``ctx.journal``: ``PluginBus(journal=RecordingJournal())``. Any
    thread.

    Args:
        checkpoints: what ``snapshot`` gives, by execution.
    """

    def __init__(self, checkpoints: Mapping[str, ExperienceCheckpoint] | None = None) -> None:
        self._checkpoints = dict(checkpoints or {})
        self._lock = threading.Lock()
        self._flushed: list[str | None] = []
        self._appended: list[Event] = []

    def flush(self, execution_id: str | None = None) -> None:
        """Note that it was asked for."""
        with self._lock:
            self._flushed.append(execution_id)

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        """The checkpoint that it was given.

        Raises:
            ExecutionNotFoundError: it was given none.
        """
        if execution_id not in self._checkpoints:
            raise ExecutionNotFoundError(execution_id)
        return self._checkpoints[execution_id]

    def append(self, event: Event) -> None:
        """Keep an event."""
        with self._lock:
            self._appended.append(event)

    @property
    def flushed(self) -> list[str | None]:
        """What was asked to be flushed, in order: executions, or None for all."""
        with self._lock:
            return list(self._flushed)

    @property
    def appended(self) -> list[Event]:
        """The events that were to be kept, in order."""
        with self._lock:
            return list(self._appended)
