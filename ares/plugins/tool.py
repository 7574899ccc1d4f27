"""Knows the tools of a program, and records the calls of those steps that are a tool themselves.

A step that calls ``ctx.tool`` leaves a record of its own. One that only says which tool it is, by the ``tool_name`` of
its metadata, is recorded here: what it returned, how long it took, whether it succeeded. All that this takes comes with
the events of its outcome, so no step waits for this plugin.
"""

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from ares.errors import UsageError
from ares.events import Delivery, Event, EventFilter, EventType
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.records import ToolEntry

#: Who emits the events of ``ctx.tool``: those of entries that plugins recorded name the plugin.
_STEP: Final = "step"

_OUTCOMES: Final = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.STEP_RETRYING})
_ENDS: Final = frozenset(
    {
        EventType.WORKFLOW_COMPLETED,
        EventType.WORKFLOW_FAILED,
        EventType.WORKFLOW_CANCELLED,
        EventType.WORKFLOW_INTERRUPTED,
        EventType.WORKFLOW_WAITING,
    }
)

#: What is told of a tool that nobody registered.
UNREGISTERED: Final = "tool.unregistered"

#: Path, round and attempt.
_Attempt = tuple[Any, Any, Any]


class ToolPlugin(Plugin):
    """A registry of tools, and the records of steps that are tools.

    A step whose tool was not registered is recorded all the same. That it was not is told once for each execution and
    tool by an event ``tool.unregistered`` (payload: ``tool``, ``path`` of the first such step), and kept in
    ``unregistered``.

    Args:
        name: Of the plugin.
        buffer: How many events can wait; more are dropped, and their calls not recorded.
    """

    capabilities = frozenset({Capability.TOOL})
    subscribes_to = EventFilter(types={EventType.TOOL_CALLED, *_OUTCOMES, *_ENDS}, journaled=True)

    def __init__(self, name: str = "tool", *, buffer: int = 4096) -> None:
        self.name = name
        self.buffer = buffer
        self._lock = threading.Lock()
        self._pid = os.getpid()
        #: Description by name; replaced under the lock, never changed.
        self._tools: Mapping[str, str] = {}
        self._bus: EventBus | None = None
        # What follows belongs to the plugin's own thread; what others may read is replaced, never changed.
        self._missed = 0
        self._unregistered: Mapping[str, int] = {}
        #: By stream: the attempts under way that called ``ctx.tool``, and the tools that were told of.
        self._called: dict[str, set[_Attempt]] = {}
        self._told: dict[str, set[str]] = {}

    # --- the registry: any thread, at any time ---------------------------------------------------------

    def register_tool(self, name: str, description: str = "") -> None:
        """Make a tool known. One that is known already gets the new description.

        Args:
            name: As steps and ``ctx.tool`` call it.
            description: What it is good for, for people to read.

        Raises:
            UsageError: the name is no text, or empty.
        """
        _check_name(name)
        with self._lock:
            self._tools = {**self._tools, name: description}

    def is_registered(self, name: str) -> bool:
        """Whether a tool of this name was registered."""
        return name in self._tools

    @property
    def tools(self) -> Mapping[str, str]:
        """What is known: descriptions by name. Not to be changed."""
        return self._tools

    @property
    def unregistered(self) -> Mapping[str, int]:
        """Tools that steps named and nobody had registered by then, and how many calls there were. Not to be
        changed."""
        return self._unregistered

    @property
    def missed(self) -> int:
        """How many events were lost to a full buffer, and calls that came too late to be recorded, because their
        execution was over."""
        return self._missed

    # --- the plugin's own thread -------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Begin to listen. In the child of a fork nobody else holds the lock that was inherited."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        self._bus = bus
        self._called, self._told = {}, {}

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Listen no more. The registry stays."""
        self._bus = None
        self._called, self._told = {}, {}

    def on_event(self, ctx: Context, delivery: Delivery) -> None:
        """A tool was called, an attempt has ended, or an execution has.

        Raises:
            UsageError: there is a call to record, but its execution is over.
        """
        self._missed += delivery.dropped_before
        event = delivery.event
        if event.type in _OUTCOMES:
            self._ended(ctx, event)
        elif event.type == EventType.TOOL_CALLED:
            if event.module == _STEP:
                self._called.setdefault(event.stream_id, set()).add(_attempt(event))
        elif event.type in _ENDS:
            self._called.pop(event.stream_id, None)
            self._told.pop(event.stream_id, None)

    def _ended(self, ctx: Context, event: Event) -> None:
        called = self._called.get(event.stream_id)
        if called is not None and (attempt := _attempt(event)) in called:
            called.discard(attempt)
            return
        payload = event.payload
        tool = payload.get("tool_name")
        # What has no duration is no attempt: a map that completed, whose elements were recorded.
        if not isinstance(tool, str) or not tool or "duration" not in payload:
            return
        if not self.is_registered(tool):
            self._warn(event, tool)
        path = payload["path"]
        entry = ToolEntry(
            step_id=path.rpartition("/")[2],
            path=path,
            tool_name=tool,
            input=None,  # known to the step alone
            output=payload.get("output"),
            duration=payload["duration"],
            success=event.type == EventType.STEP_COMPLETED,
            error=payload.get("error", ""),
        )
        try:
            ctx.record(entry)
        except UsageError:
            self._missed += 1
            raise

    def _warn(self, event: Event, tool: str) -> None:
        self._unregistered = {**self._unregistered, tool: self._unregistered.get(tool, 0) + 1}
        told = self._told.setdefault(event.stream_id, set())
        if tool not in told and self._bus is not None:
            told.add(tool)
            payload = {"tool": tool, "path": event.payload["path"]}
            self._bus.emit(event.stream_id, UNREGISTERED, self.name, payload)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"a tool's name must be a non-empty str, not {name!r}")


def _attempt(event: Event) -> _Attempt:
    payload = event.payload
    return payload.get("path"), payload.get("round"), payload.get("attempt")
