"""The commands that walk: ``run`` and ``resume``.

The walk has the main thread, so that Ctrl-C finds it there and ends it in good order; what is seen meanwhile is on
another. However it ends, the last thing said is how to go on.
"""

import shlex
from collections.abc import Callable

import attrs

from ares.cli.asking import command
from ares.cli.concealing import without_password
from ares.cli.display import watching
from ares.cli.inputs import read_inputs
from ares.cli.outcome import report
from ares.cli.session import Session
from ares.cli.store import IN_PROCESS, existing_store
from ares.cli.target import load
from ares.engine.beginning import new_id
from ares.engine.execution import Execution
from ares.engine.options import Durability
from ares.engine.results import WorkflowResult
from ares.records import ExecutionStatus
from ares.runtime import Runtime
from ares.runtime.checks import check_id
from ares.workflow import Workflow

#: Seconds that closing may take after a Ctrl-C: the walk has had its grace by then.
_CLOSE_SECONDS = 0.2


@attrs.frozen
class Run:
    """What ``ares run`` is asked for."""

    target: str
    inputs: tuple[str, ...]
    inputs_json: str | None
    store: str | None
    execution_id: str | None
    if_exists: str
    timeout: float | None
    durability: Durability | None
    workers: int | None


@attrs.frozen
class Resume:
    """What ``ares resume`` is asked for."""

    execution_id: str
    target: str
    rerun: tuple[str, ...]
    reopen: bool
    accept_changes: bool
    timeout: float | None
    store: str | None


@attrs.frozen
class _Walk:
    """One walk, about to begin: all that is needed to show it, to stop it and to say how to go on."""

    session: Session
    runtime: Runtime
    workflow: Workflow
    execution_id: str
    target: str
    store: str
    begin: Callable[[], WorkflowResult]
    #: What to say once it has begun.
    beginning: str

    @property
    def how_to_answer(self) -> str:
        """The command that answers what it asks; empty when nothing is kept."""
        if self.store == IN_PROCESS:
            return ""
        return f"{command('answer', self.execution_id, '--approve', store=self.store)} STEP"

    def how_to_go_on(self, status: ExecutionStatus) -> str:
        """The command that goes on with it; empty when nothing is kept, or nothing left to do."""
        return how_to_go_on(self.execution_id, status, self.target, self.store)


def how_to_go_on(execution_id: str, status: ExecutionStatus, target: str, store: str) -> str:
    """The command that goes on with an execution; empty when nothing is kept, or nothing left to do."""
    if store == IN_PROCESS or status is ExecutionStatus.COMPLETED:
        return ""
    reopen = ["--reopen"] if status is ExecutionStatus.CANCELLED else []
    names = [execution_id, target]
    dashes = ["--"] if any(name.startswith("-") for name in names) else []
    return shlex.join(["ares", "resume", *reopen, "--store", without_password(store), *dashes, *names])


def run(session: Session, wanted: Run) -> int:
    """Run a workflow from its beginning, or go on with the execution of the id that was given."""
    program = load(wanted.target)
    workflow = program.workflow
    workflow.validate()
    inputs = read_inputs(workflow, wanted.inputs, wanted.inputs_json)
    execution_id = new_id() if wanted.execution_id is None else wanted.execution_id
    check_id(execution_id)
    store = wanted.store or IN_PROCESS
    runtime = program.runtime(store, durability=wanted.durability, max_workers=wanted.workers)

    def begin() -> WorkflowResult:
        return runtime.run(
            workflow, inputs, execution_id=execution_id, if_exists=wanted.if_exists, timeout=wanted.timeout
        )

    kept = (
        "nothing is kept: there is no --store and no ARES_STORE"
        if store == IN_PROCESS
        else f"store {without_password(store)}"
    )
    said = f"running {workflow.id!r} as {execution_id} ({kept})"
    return _walk(_Walk(session, runtime, workflow, execution_id, wanted.target, store, begin, said))


def resume(session: Session, wanted: Resume) -> int:
    """Go on with an execution."""
    store = existing_store(wanted.store)
    execution_id = wanted.execution_id
    check_id(execution_id)
    program = load(wanted.target)
    workflow = program.workflow
    workflow.validate()
    runtime = program.runtime(store)
    rerun = "item_failures" if wanted.rerun == ("item_failures",) else wanted.rerun

    def begin() -> WorkflowResult:
        return runtime.resume(
            execution_id,
            workflow,
            rerun=rerun,
            reopen=wanted.reopen,
            accept_changes=wanted.accept_changes,
            timeout=wanted.timeout,
        )

    said = f"resuming {execution_id} of {workflow.id!r} (store {without_password(store)})"
    return _walk(_Walk(session, runtime, workflow, execution_id, wanted.target, store, begin, said))


def _walk(walk: _Walk) -> int:
    """Walk on this thread, then say how it went."""
    session = walk.session
    try:
        with watching(session, Execution(walk.runtime, walk.execution_id, None), walk.beginning):
            result = walk.begin()
    except KeyboardInterrupt:
        return _interrupted(walk)
    except BaseException:
        walk.runtime.close(_CLOSE_SECONDS)
        raise
    try:
        return report(session, walk.workflow, result, walk.how_to_go_on(result.status), walk.how_to_answer)
    finally:
        walk.runtime.close()


def _interrupted(walk: _Walk) -> int:
    """The walk was ended by Ctrl-C, and what it had is committed."""
    session = walk.session
    session.hear_no_more()
    walk.runtime.close(_CLOSE_SECONDS)
    go_on = walk.how_to_go_on(ExecutionStatus.INTERRUPTED)
    session.note(f"interrupted; go on with: {go_on}" if go_on else "interrupted; nothing was kept")
    session.document = {
        "execution_id": walk.execution_id,
        "workflow_id": walk.workflow.id,
        "status": str(ExecutionStatus.INTERRUPTED),
        "error": {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": session.stop_code},
        "resume": go_on or None,
    }
    return session.stop_code
