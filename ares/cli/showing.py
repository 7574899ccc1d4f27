"""The command ``show``: one execution, its steps and its decisions, from its journal.

Elements of maps are counted, and of a hundred thousand only those that failed are worth a line each, up to a limit;
``--all`` lists every one. Child steps inside an element go with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from ares.cli.decided import Route, routes_of, say_routes
from ares.cli.documents import error_document, jsonable
from ares.cli.outcome import LISTED, STYLES
from ares.cli.reading import lasted, summary_document
from ares.cli.screen import Part
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.text import counted, instant, long, seconds, shown
from ares.records import ExecutionSummary, ExperienceCheckpoint, StepState, StepStatus
from ares.runtime import Runtime
from ares.runtime.checks import check_id


@attrs.define(eq=False)
class _Elements:
    """The elements of one map that were heard of."""

    by_status: Counter[str] = attrs.field(factory=Counter)
    failed: list[StepState] = attrs.field(factory=list)
    all: list[StepState] = attrs.field(factory=list)

    def listed(self, *, in_full: bool) -> Sequence[StepState]:
        """Those that get a line."""
        return self.all if in_full else self.failed[:LISTED]

    def said(self, *, in_full: bool) -> str:
        """The counts, and how many failed ones are left out."""
        counts = ", ".join(f"{number:,} {status.lower()}" for status, number in self.by_status.items())
        left = 0 if in_full else len(self.failed) - LISTED
        more = f"; {counted(left, 'failed element')} not listed, see --all" if left > 0 else ""
        return f"elements: {counts}{more}"


@attrs.frozen
class _Picture:
    """All there is to show."""

    summary: ExecutionSummary
    checkpoint: ExperienceCheckpoint
    inputs: Any
    #: The steps outside of maps, in definition order, each with its elements where it is a map.
    steps: Sequence[tuple[StepState, _Elements | None]]
    #: The decisions at branch points; None where nobody asked for them.
    routes: Sequence[Route] | None


def show(session: Session, store: str | None, execution_id: str, *, in_full: bool, with_routes: bool) -> int:
    """Show one execution."""
    runtime = Runtime(existing_store(store))
    check_id(execution_id)
    summary = runtime.summary(execution_id)
    first = next(iter(runtime.stored_events(execution_id)), None)
    checkpoint = runtime.checkpoint(execution_id)
    inputs = {} if first is None else first.payload.get("inputs", {})
    routes = routes_of(runtime.stored_events(execution_id), checkpoint.dag_edges) if with_routes else None
    picture = _Picture(summary, checkpoint, inputs, list(_grouped(checkpoint.step_states.values())), routes)
    session.document = _document(picture, in_full=in_full)
    if not session.as_json:
        _say(session, picture, in_full=in_full)
    return 0


def _grouped(states: Iterable[StepState]) -> Iterator[tuple[StepState, _Elements | None]]:
    maps: dict[str, _Elements] = {}
    outside = []
    for state in states:
        owner, bracket, rest = state.path.partition("[")
        if not bracket:
            outside.append(state)
            continue
        elements = maps.setdefault(owner, _Elements())
        elements.all.append(state)
        if rest.endswith("]") and "/" not in rest:
            elements.by_status[str(state.status)] += 1
            if state.status is StepStatus.FAILED:
                elements.failed.append(state)
    return ((state, maps.get(state.path)) for state in outside)


# --- for people -----------------------------------------------------------------------------------------------


def _say(session: Session, picture: _Picture, *, in_full: bool) -> None:
    out = session.out
    for name, *parts in _head(picture):
        out.line((f"{name:<11}", "bold"), *parts)
    for title, values in (("inputs", picture.inputs), ("variables", picture.checkpoint.variables)):
        if values:
            out.line((title, "bold"))
            for name, value in values.items():
                out.line(f"  {name} = ", shown(value))
    rows = [row for state, elements in picture.steps for row in _rows(picture, state, elements, in_full=in_full)]
    out.line()
    out.table(("STEP", "STATUS", "ATTEMPTS", "SECONDS", ""), rows)
    if picture.routes is not None:
        out.line()
        say_routes(out, picture.routes)


def _head(picture: _Picture) -> Iterator[Sequence[Any]]:
    summary, checkpoint = picture.summary, picture.checkpoint
    status = str(summary.status)
    version = f" (version {summary.workflow_version})" if summary.workflow_version else ""
    spent = seconds(lasted(summary, datetime.now(UTC)))
    yield "execution", summary.execution_id
    yield "workflow", summary.workflow_id, version
    yield "status", (status, STYLES.get(status, ""))
    yield "started", instant(summary.created_at)
    if summary.ended_at is None:
        yield "last entry", instant(summary.updated_at)
    else:
        yield "ended", instant(summary.ended_at)
    yield "duration", spent, "" if summary.ended_at else " so far"
    if summary.owner:
        yield "owner", summary.owner
    if summary.parent_id:
        yield "parent", summary.parent_id
    if summary.metadata:
        yield "metadata", ", ".join(f"{name}={value}" for name, value in summary.metadata.items())
    exit_reason = _exit_reason(checkpoint)
    if checkpoint.round > 1 or exit_reason:
        yield "round", str(checkpoint.round), f" ({exit_reason})" if exit_reason else ""
    if checkpoint.error is not None:
        yield "error", (long(str(checkpoint.error)), "red")


def _exit_reason(checkpoint: ExperienceCheckpoint) -> str | None:
    """Why the last round had no other after it; None as long as that is not known, and without rounds."""
    last = checkpoint.loop_history[-1] if checkpoint.loop_history else None
    return last.exit_reason or None if last is not None and last.round == checkpoint.round else None


def _rows(
    picture: _Picture, state: StepState, elements: _Elements | None, *, in_full: bool
) -> Iterator[tuple[Part, ...]]:
    note: Part = _note(state)
    outputs = picture.checkpoint.outputs
    if elements is not None:
        note = elements.said(in_full=in_full)
    elif not note and state.path in outputs:
        note = f"-> {shown(outputs[state.path])}"
    yield _row(state, _name(state), note)
    for each in () if elements is None else elements.listed(in_full=in_full):
        yield _row(each, f"  {_name(each)}", _note(each))


def _name(state: StepState) -> str:
    """Its path, and its round where that is not the execution's: in a sub-workflow that loops."""
    return f"{state.path} (round {state.round})" if "/" in state.path and state.round > 1 else state.path


def _row(state: StepState, name: str, note: Part) -> tuple[Part, ...]:
    status = str(state.status)
    spent = f"{state.duration:>7.3f}" if state.attempts else ""
    return name, (status, STYLES.get(status, "")), f"{state.attempts:>8}", spent, note


def _note(state: StepState) -> str:
    """Why it failed or was skipped, or what went wrong before it ran again."""
    return long(state.reason if state.error is None else str(state.error))


# --- for machines ---------------------------------------------------------------------------------------------


def _document(picture: _Picture, *, in_full: bool) -> dict[str, Any]:
    checkpoint = picture.checkpoint
    error = checkpoint.error
    return {
        **summary_document(picture.summary),
        "round": checkpoint.round,
        "exit_reason": _exit_reason(checkpoint),
        "failure": None if error is None else {**error_document(error), "traceback": error.traceback},
        "inputs": jsonable(picture.inputs),
        "variables": jsonable(checkpoint.variables),
        "outputs": jsonable(checkpoint.outputs),
        "steps": [_step_document(state, elements, in_full=in_full) for state, elements in picture.steps],
        **({} if picture.routes is None else {"routes": [route.document for route in picture.routes]}),
    }


def _step_document(state: StepState, elements: _Elements | None, *, in_full: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": state.path,
        "round": state.round,
        "status": str(state.status),
        "attempts": state.attempts,
        "seconds": state.duration,
        "reason": state.reason or None,
        "error": None if state.error is None else error_document(state.error),
    }
    if elements is not None:
        listed = elements.listed(in_full=in_full)
        document["elements"] = {
            "by_status": dict(elements.by_status),
            "listed": [_step_document(each, None, in_full=in_full) for each in listed],
            "are_all_listed": in_full or len(listed) == len(elements.failed) == len(elements.all),
        }
    return document
