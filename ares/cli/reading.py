"""The commands that only read: ``list``, ``events`` and ``graph``; ``show`` and ``watch`` have modules of their own.

They look at a store without opening it for writing, start nothing, and hold nothing between two looks, so they can be
repeated at any rate beside whoever writes, and work on a file that cannot be written.
"""

from datetime import UTC, datetime
from typing import Any

from ares.cli.documents import jsonable
from ares.cli.outcome import STYLES
from ares.cli.screen import Part
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.target import load
from ares.cli.text import SHORT, cut, instant, pairs, seconds
from ares.events import Event
from ares.records import ExecutionStatus, ExecutionSummary
from ares.runtime import Runtime
from ares.runtime.checks import check_id
from ares.workflow import mermaid

#: Characters of what an event says, in a table.
_SAID = 300


def list_executions(
    session: Session, store: str | None, *, status: ExecutionStatus | None, workflow_id: str | None, limit: int | None
) -> int:
    """List executions, newest first."""
    runtime = Runtime(existing_store(store))
    found = runtime.executions(status, workflow_id, limit=limit)
    session.document = {"executions": [summary_document(each) for each in found]}
    if session.as_json:
        return 0
    if not found:
        session.note("no executions")
        return 0
    now = datetime.now(UTC)
    session.out.table(("ID", "WORKFLOW", "STATUS", "STARTED", "DURATION", "ERROR"), [_row(e, now) for e in found])
    return 0


def _row(summary: ExecutionSummary, now: datetime) -> tuple[Part, ...]:
    status = (str(summary.status), STYLES.get(str(summary.status), ""))
    began, spent, error = instant(summary.created_at), seconds(lasted(summary, now)), cut(summary.error, SHORT)
    return summary.execution_id, summary.workflow_id, status, began, spent, error


def lasted(summary: ExecutionSummary, now: datetime) -> float:
    """The seconds from its beginning to its end; until now while it is walked; else to the last that is known of it.

    Instants of UTC, so that no change of clocks comes in between.
    """
    until = summary.ended_at or (now if summary.owner else summary.updated_at)
    return (until - summary.created_at).total_seconds()


def summary_document(summary: ExecutionSummary) -> dict[str, Any]:
    """An execution in a listing, as JSON. ``duration`` is in seconds; null while it has not ended."""
    ended = summary.ended_at
    return {
        "execution_id": summary.execution_id,
        "workflow_id": summary.workflow_id,
        "workflow_version": summary.workflow_version,
        "status": str(summary.status),
        "parent_id": summary.parent_id,
        "metadata": dict(summary.metadata),
        "created_at": summary.created_at.isoformat(),
        "updated_at": summary.updated_at.isoformat(),
        "ended_at": None if ended is None else ended.isoformat(),
        "duration": None if ended is None else (ended - summary.created_at).total_seconds(),
        "failure": summary.error or None,
        "owner": summary.owner or None,
    }


# --- events ---------------------------------------------------------------------------------------------------


def events(session: Session, store: str | None, execution_id: str, *, after: int) -> int:
    """Show what happened in one execution so far, in order."""
    runtime = Runtime(existing_store(store))
    check_id(execution_id)
    found = runtime.stored_events(execution_id, after)
    if session.as_json:
        session.document = {"execution_id": execution_id, "events": [event_document(event) for event in found]}
        return 0
    for event in found:
        session.out.line(*event_line(event))
    return 0


def event_line(event: Event) -> tuple[Part, ...]:
    """An event on a line."""
    payload = dict(event.payload)
    path = payload.pop("path", "")
    time = f"{event.timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    said = cut(pairs(payload), _SAID)
    return f"{event.seq:>6}  {time}  {event.type:<20}  ", (str(path), "bold"), "  ", said


def event_document(event: Event) -> dict[str, Any]:
    """An event as JSON."""
    return {
        "seq": event.seq,
        "time": event.timestamp.isoformat(),
        "type": event.type,
        "module": event.module,
        "payload": jsonable(event.payload),
    }


# --- graph ----------------------------------------------------------------------------------------------------


def graph(session: Session, target: str) -> int:
    """Print a workflow's graph."""
    workflow = load(target).workflow
    found = workflow.validate()
    text = mermaid(found)
    session.document = {
        "workflow_id": workflow.id,
        "mermaid": text,
        "steps": [{"id": node.id, "depends_on": list(found.ids(node.deps))} for node in found.nodes],
    }
    if not session.as_json:
        for line in text.splitlines():
            session.out.line(line)
    return 0
