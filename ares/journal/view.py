"""A journal as people and listeners read it: each entry as one event, and values without the classes they were.

Knows how a fact reads as an ``Event``. Refuses to encode or copy anything: a payload refers to the very values of the
fact. Every entry is one event, so the events of an execution have the numbers of its journal, without a hole.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from ares.errors import SerializationError
from ares.events import Event, EventType, instant
from ares.journal.encoding import Unpacker, decode
from ares.journal.notes import Emitted, Note, Opaque, Recorded, Remembered, ToolCalled
from ares.journal.protocol import Entry
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    ExecutionStatus,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.walk import facts as f

#: Emitter and payload.
_View = tuple[str, dict[str, Any]]


def event_of(execution_id: str, entry: Entry, fact: f.Fact | Note) -> Event:
    """The event that a journal entry is to others.

    Args:
        execution_id: Whose journal it stands in; the event's stream.
        entry: The entry.
        fact: What its body says, decoded.

    Returns:
        An event with the entry's number. Its payload is a dict: ``path``, ``round`` and, of an attempt, ``attempt`` of
        what it is about; and what there is to tell: ``output``, ``duration`` in seconds, ``error`` and ``error_type``,
        ``reason``, ``targets``, and so on. That of an ``Emitted`` is exactly what was emitted, and its ``module`` the
        step's path or the name of the plugin; that of a ``Recorded`` has the fields of the entry, and its ``module`` is
        the plugin that recorded it.
    """
    module, payload = _VIEWS[type(fact)](fact)
    seq = entry.seq
    return Event(f"{execution_id}:{seq}", seq, execution_id, type_of(fact), module, payload, instant(entry.at))


def type_of(fact: f.Fact | Note) -> str:
    """The type of the event that a fact or note is to others. Cheap: whoever wants no such event need not have it
    made."""
    known = _TYPES[type(fact)]
    return known if type(known) is str else known(fact)  # type: ignore[operator]  # it is a function then


def decode_leniently(kind: str, path: str, body: str, codec: Unpacker) -> f.Fact | Note:
    """As ``decode``, for people: what the codec cannot load is an ``Opaque`` that shows its JSON.

    Nothing that is to be executed may be read this way.

    Raises:
        SerializationError: the text is damaged, or of a kind that this version of ares does not know.
    """
    return decode(kind, path, body, _Lenient(codec))


class _Lenient:
    """A codec that loads as much of a value as it can."""

    def __init__(self, codec: Unpacker) -> None:
        self._codec = codec

    def unpack(self, tree: object, /) -> Any:
        try:
            return self._codec.unpack(tree)
        except SerializationError:
            if type(tree) is list:
                return [self.unpack(part) for part in tree]
            if type(tree) is dict and not (len(tree) == 1 and next(iter(tree))[:1] == "$"):
                return {name: self.unpack(part) for name, part in tree.items()}
            return Opaque(json.dumps(tree, separators=(",", ":")))


# --- the types of events -----------------------------------------------------------------------------------------

_ENDS: Final = {
    ExecutionStatus.COMPLETED: EventType.WORKFLOW_COMPLETED.value,
    ExecutionStatus.FAILED: EventType.WORKFLOW_FAILED.value,
    ExecutionStatus.CANCELLED: EventType.WORKFLOW_CANCELLED.value,
}
_FAILURES: Final = {
    f.After.FINAL: EventType.STEP_FAILED.value,
    f.After.RETRY: EventType.STEP_RETRYING.value,
    f.After.RECONCILE: EventType.STEP_RECONCILING.value,
    f.After.SKIP: EventType.STEP_SKIPPED.value,
}
#: A type of its own where none of those that ares emits would be true: that a plugin keeps an entry about an interrupt
#: or a round is not the interrupt's or the round's own event.
_RECORDED: Final[dict[type, str]] = {
    RouteEntry: EventType.ROUTE_DECIDED.value,
    ToolEntry: EventType.TOOL_CALLED.value,
    MemoryEntry: EventType.MEMORY_HIT.value,
    InterruptEntry: "interrupt.recorded",
    ErrorEntry: "error.recorded",
    ScoringSignal: "score.recorded",
    LoopEntry: "loop.recorded",
}
#: The type, or what tells it.
_TYPES: Final[dict[type, str | Callable[[Any], str]]] = {
    f.Created: EventType.WORKFLOW_STARTED.value,
    f.Resumed: EventType.WORKFLOW_RESUMED.value,
    f.CancelRequested: EventType.WORKFLOW_CANCELLING.value,
    f.DeadlinePassed: EventType.WORKFLOW_OVERDUE.value,
    f.Interrupted: EventType.WORKFLOW_INTERRUPTED.value,
    f.Waiting: EventType.WORKFLOW_WAITING.value,
    f.Ended: lambda fact: _ENDS[fact.status],
    f.RoundEnded: EventType.ROUND_COMPLETED.value,
    f.RoundStarted: EventType.ROUND_STARTED.value,
    f.Checked: EventType.STEP_CHECKED.value,
    f.Started: EventType.STEP_STARTED.value,
    f.Opened: EventType.STEP_STARTED.value,
    f.Succeeded: EventType.STEP_COMPLETED.value,
    f.Completed: EventType.STEP_COMPLETED.value,
    f.Failed: lambda fact: _FAILURES[fact.after],
    f.Skipped: EventType.STEP_SKIPPED.value,
    f.Routed: EventType.ROUTE_DECIDED.value,
    f.Unrouted: EventType.ROUTE_FAILED.value,
    f.Asked: EventType.INTERRUPT_CREATED.value,
    f.Answered: EventType.INTERRUPT_RESOLVED.value,
    f.Continued: EventType.STEP_CONTINUED.value,
    Remembered: EventType.STEP_REMEMBERED.value,
    ToolCalled: EventType.TOOL_CALLED.value,
    Emitted: lambda note: note.type,
    Recorded: lambda note: _RECORDED[type(note.entry)],
}


# --- of the execution --------------------------------------------------------------------------------------------


def _created(fact: f.Created) -> _View:
    payload: dict[str, Any] = {"workflow_id": fact.workflow_id, "version": fact.version, "inputs": fact.inputs}
    if fact.timeout is not None:
        payload["timeout"] = fact.timeout
    if fact.metadata:
        payload["metadata"] = fact.metadata
    return "walk", payload


def _resumed(fact: f.Resumed) -> _View:
    payload: dict[str, Any] = {
        "in_flight": list(fact.in_flight),
        "set_back": [each.path for each in fact.set_back],
        "reopened": fact.reopened,
    }
    if fact.accepted is not None:
        payload["accepted"] = list(fact.accepted)
    if fact.timeout is not None:
        payload["timeout"] = fact.timeout
    return "walk", payload


def _cancelling(fact: f.CancelRequested) -> _View:
    return "walk", {"reason": fact.reason}


def _overdue(fact: f.DeadlinePassed) -> _View:
    payload: dict[str, Any] = {"timeout": fact.timeout}
    if fact.path:
        payload["path"] = fact.path
    return "walk", payload


def _interrupted(fact: f.Interrupted) -> _View:
    payload = {"in_flight": list(fact.in_flight), "reason": fact.reason}
    return "walk", payload


def _waiting(fact: f.Waiting) -> _View:
    return "walk", {"paths": list(fact.paths)}


def _ended(fact: f.Ended) -> _View:
    if fact.error is None:
        payload = {}
    elif fact.status is ExecutionStatus.CANCELLED:
        payload = {"reason": fact.error.message}
    else:
        payload = _error(fact.error)
    return "walk", payload


def _round_ended(fact: f.RoundEnded) -> _View:
    payload = {**_round(fact), "again": fact.again}
    if fact.reason:
        payload["reason"] = fact.reason
    if fact.by:
        payload["by"] = fact.by
    if fact.error is not None:
        payload.update(_error(fact.error))
    return "walk", payload


def _round_started(fact: f.RoundStarted) -> _View:
    return "walk", _round(fact)


def _round(fact: f.RoundFact) -> dict[str, Any]:
    return {"path": fact.path, "round": fact.round} if fact.path else {"round": fact.round}


def _error(info: ErrorInfo) -> dict[str, Any]:
    return {"error": str(info), "error_type": info.type_name}


# --- of an instance ----------------------------------------------------------------------------------------------


def _checked(fact: f.Checked) -> _View:
    return "step", {"path": fact.path, "round": fact.round, "holds": fact.holds}


def _started(fact: f.Started | f.Continued) -> _View:
    payload = {"path": fact.path, "round": fact.round, "attempt": fact.attempt}
    return "step", payload


def _opened(fact: f.Opened) -> _View:
    payload: dict[str, Any] = {"path": fact.path, "round": fact.round, "attempt": fact.attempt}
    if fact.length is not None:
        payload["length"] = fact.length
    return "walk", payload


def _succeeded(fact: f.Succeeded) -> _View:
    payload = {
        "path": fact.path,
        "round": fact.round,
        "attempt": fact.attempt,
        "duration": fact.duration,
        "output": fact.output,
    }
    if fact.writes:
        payload["writes"] = [name for name, _ in fact.writes]
    if fact.targets is not None:
        payload["targets"] = list(fact.targets)
    return "step", payload


def _failed(fact: f.Failed) -> _View:
    payload = {
        "path": fact.path,
        "round": fact.round,
        "attempt": fact.attempt,
        "duration": fact.duration,
        "error": str(fact.error),
        "error_type": fact.error.type_name,
    }
    if fact.after is f.After.RETRY:
        payload["delay"] = fact.delay
    if fact.unknown:
        payload["is_outcome_unknown"] = True
    if fact.recovery:
        payload["recovery"] = fact.recovery
    if fact.after is f.After.SKIP:
        payload["reason"] = f.SkipReason.RECOVERED.value
    return "step", payload


def _completed(fact: f.Completed) -> _View:
    payload = {"path": fact.path, "round": fact.round, "attempt": fact.attempt}
    return "walk", payload


def _skipped(fact: f.Skipped) -> _View:
    reason = f"{fact.reason}: {fact.origin}" if fact.origin else str(fact.reason)
    return "walk", {"path": fact.path, "round": fact.round, "reason": reason}


def _routed(fact: f.Routed) -> _View:
    payload = {
        "path": fact.path,
        "round": fact.round,
        "targets": list(fact.targets),
        "source": fact.source,
        "reason": fact.reason,
        "scores": fact.scores,
        "abstained": list(fact.abstained),
    }
    return "step", payload


def _unrouted(fact: f.Unrouted) -> _View:
    payload = {"path": fact.path, "round": fact.round, **_error(fact.error)}
    return "step", payload


def _asked(fact: f.Asked) -> _View:
    payload = {
        "path": fact.path,
        "round": fact.round,
        "attempt": fact.attempt,
        "key": fact.key,
        "message": fact.message,
        "payload": fact.payload,
        "cause": fact.cause.value,
    }
    return "step", payload


def _answered(fact: f.Answered) -> _View:
    payload = {
        "path": fact.path,
        "round": fact.round,
        "attempt": fact.attempt,
        "key": fact.key,
        "action": fact.action.value,
        "value": fact.value,
        "feedback": fact.feedback,
    }
    return "walk", payload


# --- of a note ---------------------------------------------------------------------------------------------------


def _remembered(note: Remembered) -> _View:
    return "step", {"path": note.path, "round": note.round, "key": note.key}


def _tool(note: ToolCalled) -> _View:
    payload = {
        "path": note.path,
        "round": note.round,
        "attempt": note.attempt,
        "tool": note.tool_name,
        "input": note.input,
        "output": note.output,
        "duration": note.duration,
        "success": note.success,
    }
    if note.error:
        payload["error"] = note.error
    return "step", payload


def _emitted(note: Emitted) -> _View:
    module = note.path if note.module == "step" and note.path else note.module
    return module, dict(note.payload)


#: As the events of ``ctx.tool`` name it.
_SHOWN_AS: Final = {"tool_name": "tool"}


def _recorded(note: Recorded) -> _View:
    entry = note.entry
    payload = {_SHOWN_AS.get(a.name, a.name): getattr(entry, a.name) for a in attrs.fields(type(entry))}
    return note.writer, payload


_VIEWS: Final[dict[type, Callable[[Any], _View]]] = {
    f.Created: _created,
    f.Resumed: _resumed,
    f.CancelRequested: _cancelling,
    f.DeadlinePassed: _overdue,
    f.Interrupted: _interrupted,
    f.Waiting: _waiting,
    f.Ended: _ended,
    f.RoundEnded: _round_ended,
    f.RoundStarted: _round_started,
    f.Checked: _checked,
    f.Started: _started,
    f.Opened: _opened,
    f.Succeeded: _succeeded,
    f.Failed: _failed,
    f.Completed: _completed,
    f.Skipped: _skipped,
    f.Routed: _routed,
    f.Unrouted: _unrouted,
    f.Asked: _asked,
    f.Answered: _answered,
    f.Continued: _started,
    Remembered: _remembered,
    ToolCalled: _tool,
    Emitted: _emitted,
    Recorded: _recorded,
}
