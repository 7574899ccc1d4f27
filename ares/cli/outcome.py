"""How a walk went: in lines for people, as a document for machines.

Knows a ``WorkflowResult``. The outputs of the steps that nothing depends on are what a run is for: they go to stdout,
everything about the run itself to stderr.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.cli.asking import question_document
from ares.cli.documents import error_document, jsonable
from ares.cli.exits import code_of_status, said
from ares.cli.session import Session
from ares.cli.text import counted, long, seconds, shown
from ares.engine.results import WorkflowResult
from ares.questions import Question
from ares.records import StepResult, StepStatus
from ares.workflow import Workflow

#: How many failures are listed.
LISTED = 20

STYLES: Mapping[str, str] = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CANCELLED": "yellow",
    "INTERRUPTED": "yellow",
    "WAITING": "cyan",
    "RUNNING": "cyan",
    "SKIPPED": "dim",
    "PENDING": "dim",
}


@attrs.frozen
class Failures:
    """What failed: the steps that made the run fail, and how many elements a map collected instead, by its path."""

    fatal: tuple[StepResult, ...]
    collected: Mapping[str, int]


def failures_of(result: WorkflowResult) -> Failures:
    """The failures of a run. What failed inside a map that completed all the same was collected by it."""
    fatal = []
    collected: Counter[str] = Counter()
    for step in _failed(result.steps):
        owner = _collector(step.path, result.steps)
        if owner is None:
            fatal.append(step)
        elif step.path.rindex("[") == len(owner) and step.path.endswith("]"):
            collected[owner] += 1  # an element itself, and not a step inside one
    return Failures(tuple(fatal), collected)


def _collector(path: str, steps: Mapping[str, StepResult]) -> str | None:
    """The outermost completed map that a path lies in, if any."""
    for place, char in enumerate(path):
        if char == "[" and steps[path[:place]].status is StepStatus.COMPLETED:
            return path[:place]
    return None


def _failed(steps: Mapping[str, StepResult]) -> Iterator[StepResult]:
    # A step whose route failed is COMPLETED, with an error.
    return (step for step in steps.values() if step.status is StepStatus.FAILED or step.error is not None)


def report(session: Session, workflow: Workflow, result: WorkflowResult, go_on: str, answer_with: str = "") -> int:
    """Say how a walk went, in whichever form is wanted.

    Args:
        session: where to.
        workflow: what was walked.
        result: how it went.
        go_on: the command that goes on with it, if one can.
        answer_with: the command that answers a question of it, if one can.

    Returns:
        The exit code.
    """
    failures = failures_of(result)
    session.document = result_document(result, failures, go_on)
    if not session.as_json:
        _say(session, workflow, result, failures)
        if result.interrupts and answer_with:
            session.note(f"answer with: {answer_with}")
        if go_on:
            session.note(f"go on with: {go_on}")
    return code_of_status(result.status)


def _say(session: Session, workflow: Workflow, result: WorkflowResult, failures: Failures) -> None:
    graph = workflow.graph()
    for step_id in graph.ids(graph.sinks):
        if step_id in result.outputs:
            session.out.line((step_id, "bold"), ": ", shown(result.outputs[step_id]))
    for path, count in failures.collected.items():
        session.note(f"{path}: {counted(count, 'element')} failed, collected in its output")
    _say_what_failed(session, result, failures)
    for warning in result.warnings:
        session.note(("warning: ", "yellow"), long(warning))
    say_questions(session, result.interrupts)
    for path in result.rejected[:LISTED]:
        session.note((path, "bold"), " was rejected")
    status = str(result.status)
    session.note((status.lower(), STYLES.get(status, "")), f" in {seconds(result.duration)}")


def _say_what_failed(session: Session, result: WorkflowResult, failures: Failures) -> None:
    for step in failures.fatal[:LISTED]:
        session.note((step.path, "bold red"), ": ", "" if step.error is None else long(said(step.error)))
    if len(failures.fatal) > LISTED:
        session.note(f"and {counted(len(failures.fatal) - LISTED, 'failure')} more: ares show {result.execution_id}")
    if result.error is not None and not any(step.error is result.error for step in failures.fatal[:LISTED]):
        session.note(long(said(result.error)))


def say_questions(session: Session, questions: Sequence[Question]) -> None:
    """Say what an execution waits for."""
    for question in questions[:LISTED]:
        session.note((question.path, "bold cyan"), " asks: ", long(question.message))
    if len(questions) > LISTED:
        session.note(f"and {counted(len(questions) - LISTED, 'question')} more")


def result_document(result: WorkflowResult, failures: Failures, go_on: str) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "execution_id": result.execution_id,
        "workflow_id": result.workflow_id,
        "status": str(result.status),
        "duration": result.duration,
        "outputs": jsonable(result.outputs),
        "variables": jsonable(result.variables),
        "error": None if result.error is None else error_document(result.error),
        "failures": [
            {"path": step.path, **({} if step.error is None else error_document(step.error))} for step in failures.fatal
        ],
        "collected": dict(failures.collected),
        "questions": [question_document(question) for question in result.interrupts],
        "rejected": list(result.rejected),
        "warnings": list(result.warnings),
        "resume": go_on or None,
    }
