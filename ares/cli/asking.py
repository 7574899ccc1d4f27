"""The commands for humans who are asked: ``questions`` and ``answer``."""

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from ares.cli.concealing import without_password
from ares.cli.documents import jsonable
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.text import instant, long, seconds, shown
from ares.errors import UsageError
from ares.questions import Approve, Question, Reject, RunAgain
from ares.runtime import Runtime
from ares.runtime.checks import check_id


@attrs.frozen
class Said:
    """What ``ares answer`` was told."""

    approve: bool
    reject: bool
    run_again: bool
    feedback: str
    data: str | None

    def answer(self) -> Approve | Reject | RunAgain:
        """The answer that this is.

        Raises:
            UsageError: it is none, or more than one; or ``data`` is no JSON, or is not wanted.
        """
        if self.approve + self.reject + self.run_again != 1:
            raise UsageError("say one of --approve, --reject and --run-again")
        value = None if self.data is None else _parsed(self.data)
        if self.approve:
            return Approve(value, self.feedback)
        if self.reject:
            return Reject(self.feedback, value)
        if self.data is not None:
            raise UsageError("--data goes with --approve or --reject: what runs again makes its own output")
        return RunAgain(self.feedback)


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--data is no JSON: {error}") from error


def command(name: str, execution_id: str, *more: str, store: str) -> str:
    """A command about the questions of an execution, as a shell takes it."""
    dashes = ["--"] if execution_id.startswith("-") else []
    return shlex.join(["ares", name, *more, "--store", without_password(store), *dashes, execution_id])


def questions(session: Session, store: str | None, execution_id: str | None) -> int:
    """List the open questions, of one execution or of all."""
    runtime = Runtime(existing_store(store))
    if execution_id is not None:
        check_id(execution_id)
    found = runtime.questions(execution_id)
    session.document = {"questions": [question_document(each) for each in found]}
    if session.as_json:
        return 0
    if not found:
        session.note("no open questions")
        return 0
    now = datetime.now(UTC)
    headings = ("ID", "STEP", "KEY", "ASKED", "AGO", "QUESTION")
    session.out.table(headings, [_row(each, now) for each in found])
    return 0


def _row(question: Question, now: datetime) -> Sequence[str]:
    step = question.path if question.round == 1 else f"{question.path} (round {question.round})"
    ago = seconds((now - question.asked_at).total_seconds())
    said = long(question.message) + ("" if question.payload is None else f"  {shown(question.payload)}")
    return question.execution_id, step, question.key, instant(question.asked_at), ago, said


def question_document(question: Question) -> dict[str, Any]:
    """A question as JSON."""
    return {
        "execution_id": question.execution_id,
        "path": question.path,
        "round": question.round,
        "key": question.key,
        "cause": str(question.cause),
        "message": question.message,
        "payload": jsonable(question.payload),
        "asked_at": question.asked_at.isoformat(),
    }


def answer(session: Session, store: str | None, execution_id: str, step: str, key: str | None, said: Said) -> int:
    """Leave an answer; whoever walks the execution carries it out."""
    given = said.answer()
    file = existing_store(store)
    with Runtime(file) as runtime:
        check_id(execution_id)
        runtime.answer(execution_id, given, step=step, key=key)
        summary = runtime.summary(execution_id)
        left = len(runtime.questions(execution_id))
    session.document = {
        "execution_id": execution_id,
        "path": step,
        "answer_recorded": True,
        "status": str(summary.status),
        "owner": summary.owner or None,
        "open_questions": left,
    }
    if session.as_json:
        return 0
    if summary.owner:
        session.out.line(execution_id, f": answer recorded; {summary.owner}, which walks it, goes on at once")
    else:
        session.out.line(execution_id, ": answer recorded; nobody walks it now, the next resume carries it out")
    if left:
        session.note(f"{left} more open: {command('questions', execution_id, store=file)}")
    return 0
