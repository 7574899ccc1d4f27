"""The command ``recover``: go on with all that processes left which are gone, and stay until it has ended or waits.

What a Runtime takes up runs beside this thread, which only looks who is done, so that Ctrl-C finds it here.
"""

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.cli.asking import command
from ares.cli.concealing import without_password
from ares.cli.display import watching
from ares.cli.documents import error_document
from ares.cli.exits import ExitCode, code_of_status, said
from ares.cli.outcome import LISTED, STYLES, failures_of, result_document, say_questions
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.target import Program, load
from ares.cli.text import counted, long, seconds
from ares.cli.walking import how_to_go_on
from ares.engine.execution import Execution
from ares.engine.options import INTERRUPT_GRACE
from ares.engine.results import WorkflowResult
from ares.errors import AresError, ExecutionNotFoundError
from ares.postbox import Latch
from ares.records import Progress
from ares.runtime import Runtime

#: Seconds between two looks who is done.
_LOOK = 0.1
#: Seconds in which any owner has missed three beats, however short the lease of the one who looks is.
_LEAST_WATCH = 20.0
#: From the best outcome to the worst.
_WORSE = (ExitCode.COMPLETED, ExitCode.WAITING, ExitCode.CANCELLED, ExitCode.INTERRUPTED, ExitCode.FAILED)


@attrs.frozen
class _Outcome:
    """What became of one execution."""

    execution_id: str
    #: None where its walk ended because of the store.
    result: WorkflowResult | None
    error: AresError | None = None

    @property
    def code(self) -> int:
        """As the exit code of its own command would be."""
        return ExitCode.FAILED if self.result is None else code_of_status(self.result.status)


@attrs.define(eq=False)
class _Recovered:
    """What is known so far."""

    program: Program
    store: str
    #: Why executions were left, and what went wrong with some of these.
    left: Mapping[str, str] = attrs.field(factory=dict)
    errors: Mapping[str, Exception] = attrs.field(factory=dict)
    outcomes: list[_Outcome] = attrs.field(factory=list)

    @property
    def code(self) -> int:
        """That of the worst outcome."""
        codes = [each.code for each in self.outcomes]
        codes += [ExitCode.FAILED] * bool(self.errors)
        return max(codes, key=_WORSE.index, default=ExitCode.COMPLETED)

    def how_to_go_on(self, result: WorkflowResult) -> str:
        """The command that goes on with one."""
        if result.workflow_id != self.program.workflow.id:
            return ""  # it is another one of the target's Runtime
        return how_to_go_on(result.execution_id, result.status, self.program.target, self.store)

    def document(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "executions": [self._document(each) for each in self.outcomes],
            "left": [{"execution_id": each, "reason": reason} for each, reason in self.left.items()],
        }

    def _document(self, outcome: _Outcome) -> dict[str, Any]:
        result, error = outcome.result, outcome.error
        if result is None:
            return {"execution_id": outcome.execution_id, "error": error and error_document(error)}
        return result_document(result, failures_of(result), self.how_to_go_on(result))


class _Together:
    """Several executions, for the display."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        self.id = counted(len(executions), "execution")
        self._executions = executions

    def progress(self) -> Progress | None:
        """The sum of theirs."""
        all_ = {each.id: found for each in self._executions if (found := each.progress()) is not None}
        if not all_:
            return None
        done, total = sum(each.done for each in all_.values()), sum(each.total for each in all_.values())
        running = tuple(f"{id_}: {path}" for id_, each in all_.items() for path in each.running)
        details = {f"{id_}: {path}": far for id_, each in all_.items() for path, far in each.details.items()}
        return Progress(done, total, running, details)


def recover(session: Session, target: str, store: str | None) -> int:
    """Take up what nobody walks any more of a target's workflow, and go on with it.

    Returns:
        The exit code of the worst outcome: failed or not taken, interrupted, cancelled, waiting, completed.
    """
    place = existing_store(store)
    program = load(target)
    program.workflow.validate()
    runtime = program.runtime(place)
    found = _Recovered(program, place)
    try:
        _recover(session, runtime, found)
    except KeyboardInterrupt:
        return _interrupted(session, runtime, found)
    finally:
        runtime.close()
    session.document = found.document()
    _say_what_became_of_them(session, found)
    counts = Counter("failed" if each.result is None else each.result.status.lower() for each in found.outcomes)
    ended = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    session.note(f"{counted(len(found.outcomes), 'execution')} recovered{': ' if ended else ''}{ended}")
    return found.code


def _recover(session: Session, runtime: Runtime, found: _Recovered) -> None:
    _take(session, runtime, found)
    if silent := _silent(runtime, found.left):
        _await_signs(session, runtime, silent)
        _take(session, runtime, found)


def _take(session: Session, runtime: Runtime, found: _Recovered) -> None:
    """Take up what can be, and stay until it has ended or waits."""
    recovery = runtime.recover([found.program.workflow])
    # Some may be walked here already: a target's Runtime can recover on its own account.
    taken = [*recovery.taken, *(runtime.execution(each) for each in recovery.left if runtime.live(each))]
    ours = {each.id for each in taken}
    found.left = {each: reason for each, reason in recovery.left.items() if each not in ours}
    found.errors = recovery.errors
    if not taken:
        return
    beginning = f"recovering {counted(len(taken), 'execution')} (store {without_password(found.store)})"
    with watching(session, _Together(taken), beginning):
        for each in _as_they_end(taken):
            found.outcomes.append(_outcome(each))


def _silent(runtime: Runtime, left: Iterable[str]) -> list[str]:
    """Those whose owners seem to be gone. Nobody can tell at once of an owner on another machine, and this process was
    not there to watch it: the wall clock, which decides nothing, says whether waiting may be worth it."""
    found = []
    for each in left:
        with contextlib.suppress(ExecutionNotFoundError):  # it ended and was pruned
            summary = runtime.summary(each)
            if summary.owner and summary.silent_for > runtime.lease_timeout:
                found.append(each)
    return found


def _await_signs(session: Session, runtime: Runtime, silent: Sequence[str]) -> None:
    """Stay until the owners of all these have proved to be gone, or had the time to prove that they are not."""
    longest = max(2 * runtime.lease_timeout, _LEAST_WATCH)
    who = f"{counted(len(silent), 'execution')} left: no sign of the owner"
    session.note(f"{who}; waiting up to {seconds(longest)} to see whether it is gone")
    give_up, rest = time.monotonic() + longest, Latch()
    while time.monotonic() < give_up and _silent(runtime, silent):
        rest.wait(runtime.lease_timeout / 10)


def _as_they_end(taken: Iterable[Execution]) -> Iterator[Execution]:
    """Each when it has ended; those that wait last, when nothing else can move: somebody may answer until then."""
    moving, resting = list(taken), []
    while moving:
        still = []
        for each in moving:
            if not each.done():
                still.append(each)
            elif each.status.is_final:
                yield each
            else:
                resting.append(each)
        moving = still
        if moving:
            moving[0].wait(_LOOK)
        else:
            moving = [each for each in resting if not each.done()]
            resting = [each for each in resting if each not in moving]
    yield from resting


def _outcome(execution: Execution) -> _Outcome:
    try:
        return _Outcome(execution.id, execution.result())
    except AresError as error:
        return _Outcome(execution.id, None, error)


def _interrupted(session: Session, runtime: Runtime, found: _Recovered) -> int:
    """What runs is given a moment, and all of it can be recovered again."""
    session.hear_no_more()
    runtime.close(INTERRUPT_GRACE)
    _say_what_became_of_them(session, found)
    dashes = ["--"] if found.program.target.startswith("-") else []
    words = ["ares", "recover", "--store", without_password(found.store), *dashes, found.program.target]
    session.note(f"interrupted; go on with: {shlex.join(words)}")
    error = {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": session.stop_code}
    session.document = {**found.document(), "error": error}
    return session.stop_code


# --- for people -----------------------------------------------------------------------------------------------


def _say_what_became_of_them(session: Session, found: _Recovered) -> None:
    """Not before the display has ended, which is on stderr and would write over a line of stdout."""
    for outcome in () if session.as_json else found.outcomes:
        _say(session, found, outcome)
    ids = sorted(found.left, key=lambda each: each not in found.errors)
    for each in ids[:LISTED]:
        session.note("left ", (each, "bold red" if each in found.errors else "bold"), f": {found.left[each]}")
    if len(ids) > LISTED:
        session.note(f"left {counted(len(ids) - LISTED, 'more execution')}")


def _say(session: Session, found: _Recovered, outcome: _Outcome) -> None:
    result = outcome.result
    if result is None:
        why = "" if outcome.error is None else long(said(outcome.error))
        session.out.line((outcome.execution_id, "bold"), ": ", ("failed", STYLES["FAILED"]), f": {why}")
        return
    status = str(result.status)
    why = "" if result.error is None else f": {long(said(result.error))}"
    spent = f" in {seconds(result.duration)}"
    session.out.line((outcome.execution_id, "bold"), ": ", (status.lower(), STYLES.get(status, "")), spent, why)
    for warning in result.warnings:
        session.note(("warning: ", "yellow"), long(warning))
    say_questions(session, result.interrupts)
    if result.interrupts:
        session.note(f"answer with: {command('answer', outcome.execution_id, '--approve', store=found.store)} STEP")
    if go_on := found.how_to_go_on(result):
        session.note(f"go on with: {go_on}")
