"""What happened, as others see it: events, the filters that select them, and their delivery.

An event is either the view of one journal entry (then ``seq`` is its number in its execution) or something
that only passed over the bus (then ``seq`` is None). This module knows no bus and no journal.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import attrs


class EventType(StrEnum):
    """The event types that ares itself emits. Any other dotted name is the user's own."""

    WORKFLOW_STARTED = "workflow.started"
    WORKFLOW_RESUMED = "workflow.resumed"
    WORKFLOW_CANCELLING = "workflow.cancelling"
    WORKFLOW_OVERDUE = "workflow.overdue"
    WORKFLOW_INTERRUPTED = "workflow.interrupted"
    WORKFLOW_WAITING = "workflow.waiting"
    WORKFLOW_COMPLETED = "workflow.completed"
    WORKFLOW_FAILED = "workflow.failed"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    STEP_CHECKED = "step.checked"
    STEP_STARTED = "step.started"
    STEP_RETRYING = "step.retrying"
    STEP_RECONCILING = "step.reconciling"
    STEP_COMPLETED = "step.completed"
    STEP_FAILED = "step.failed"
    STEP_SKIPPED = "step.skipped"
    STEP_WAITING = "step.waiting"
    STEP_CONTINUED = "step.continued"
    STEP_REMEMBERED = "step.remembered"
    ROUTE_DECIDED = "route.decided"
    ROUTE_FAILED = "route.failed"
    TOOL_CALLED = "tool.called"
    MEMORY_HIT = "memory.hit"
    INTERRUPT_CREATED = "interrupt.created"
    INTERRUPT_RESOLVED = "interrupt.resolved"
    CHECKPOINT_SAVED = "checkpoint.saved"
    ROUND_STARTED = "round.started"
    ROUND_COMPLETED = "round.completed"
    PLUGIN_STARTED = "plugin.started"
    PLUGIN_STOPPED = "plugin.stopped"
    PLUGIN_FAILED = "plugin.failed"
    FAULT_INJECTED = "fault.injected"


@attrs.frozen
class Event:
    """One thing that happened in a stream (an execution, unless its emitter says otherwise).

    ``timestamp`` is the wall clock in UTC and orders nothing: within a stream ``seq`` does.
    """

    id: str
    seq: int | None
    stream_id: str
    type: str
    module: str
    payload: Mapping[str, Any]
    timestamp: datetime


def instant(nanoseconds: int) -> datetime:
    """The UTC instant of a journal time stamp, given in nanoseconds since the epoch."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def _names(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen
class EventFilter:
    """Selects events: of any of ``types`` and of any of ``stream_ids``; empty matches all.

    ``journaled`` selects those that stand in a journal (True), or those that only passed over the bus (False); None
    matches both.
    """

    types: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    stream_ids: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    journaled: bool | None = None

    def matches(self, event: Event) -> bool:
        """Whether the filter selects ``event``."""
        return (
            (not self.types or event.type in self.types)
            and (not self.stream_ids or event.stream_id in self.stream_ids)
            and (self.journaled is None or self.journaled == (event.seq is not None))
        )


@attrs.frozen
class Delivery:
    """An event as one subscriber receives it, and how many it lost just before."""

    event: Event
    dropped_before: int = 0
