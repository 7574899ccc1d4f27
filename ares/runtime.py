"""The facade: wires a store, a bus and an engine, and is what a program holds on to.

Nothing starts before it is needed: the constructor looks at a store's file and starts nothing; opening it, the lease
and the threads come with ``start`` or the first run, in the process that makes it. A child of a fork makes its own.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import attrs
from loguru import logger

from ares.context import StepContext
from ares.engine.attempt import Attempt, current
from ares.engine.driver import Driver
from ares.engine.engine import Begun, Definition, Engine, ResumeRequest, RunRequest, new_id
from ares.engine.execution import Execution
from ares.engine.options import Durability, Options, StepsOn
from ares.engine.replay import read
from ares.engine.results import WorkflowResult
from ares.errors import (
    AresError,
    ExecutionConflictError,
    ExecutionExistsError,
    ExecutionNotFoundError,
    NotBuiltError,
    RuntimeClosedError,
    UsageError,
)
from ares.events import Event, instant
from ares.journal.fold import Fold
from ares.journal.protocol import ExecutionRow, Store
from ares.journal.view import decode_leniently, event_of
from ares.journal.writer import StoreJournal
from ares.plugin.bus import NoBus
from ares.records import ExecutionStatus, ExecutionSummary, ExperienceCheckpoint
from ares.stores.opening import open_store
from ares.values import Codec
from ares.workflow import Workflow
from ares.workflow.checks import text_problem

#: Seconds that a Runtime which nobody closed takes for it at the end of the process.
_EXIT_SECONDS = 1.0


@attrs.frozen
class Recovery:
    """What ``recover`` took up, and why it left what it left (execution id to reason)."""

    taken: tuple[Execution, ...]
    left: Mapping[str, str]

    def __iter__(self) -> Iterator[Execution]:
        return iter(self.taken)

    def __len__(self) -> int:
        return len(self.taken)


class Runtime:
    """Runs workflows and keeps what happened. Thread-safe: many threads run many executions on one Runtime.

    Args:
        store: a file for the embedded SQLite store, or a store of one's own; None or ``":memory:"`` keeps all in this
            process.
        workflows: those that ``recover`` takes up and that handles by id can be read with.
        agents: what steps with an ``agent_type`` and no function run.
        max_workers: how many steps run at once; ``min(32, processors + 4)`` unless given.
        steps_on: ``"auto"``, ``"workers"``, or for tests ``"caller"``: all on the calling thread, no delays or timeouts.
        around_step: a context manager factory ``cm(ctx)``, entered on the thread that runs each attempt.
        redact: ``redact(name, value)`` may replace what is kept of tool records and event payloads.
        durability: ``"sync"``, ``"async"`` or ``"best_effort"``.
        lease_timeout: seconds after which an owner on another machine that gives no sign counts as gone.
        check_values: without a file, refuse values that a file could not keep, too.

    Raises:
        StoreError: the file is there, but is no store, or one of a newer version.
        NotBuiltError: an argument whose feature does not exist yet.
    """

    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        plugins: Iterable[Any] = (),
        workflows: Iterable[Workflow] = (),
        agents: Mapping[str, Callable[..., Any]] | None = None,
        max_workers: int | None = None,
        steps_on: StepsOn | str = StepsOn.AUTO,
        around_step: Callable[[StepContext], AbstractContextManager[Any]] | None = None,
        redact: Callable[[str, Any], Any] | None = None,
        plugin_timeout: float = 30.0,
        durability: Durability | str = Durability.SYNC,
        lease_timeout: float = 30.0,
        interrupt_handler: Callable[..., Any] | None = None,
        check_values: bool = False,
    ) -> None:
        for name, value in (("plugins", list(plugins)), ("interrupt_handler", interrupt_handler)):
            if value:
                raise NotBuiltError(name, "Runtime")
        self._store_spec = store
        self._workflows = tuple(workflows)
        self._agents = dict(agents or {})
        self._max_workers = _workers(max_workers)
        self._options = Options(
            _option(StepsOn, "steps_on", steps_on),
            _option(Durability, "durability", durability),
            around_step,
            redact,
            check_values,
        )
        self.plugin_timeout = plugin_timeout
        self.lease_timeout = lease_timeout
        self.warnings: list[str] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._parts: _Parts | None = None
        self._inherited: list[_Parts] = []
        self._is_closed = False
        store_object = open_store(store)
        store_object.inspect()
        self._first_store: Store | None = store_object
        self._store_name = store_object.name
        _REGISTRY.add(self)

    def __repr__(self) -> str:
        return f"<Runtime {self._store_name}>"

    # --- life ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Open the store and take its lease. The first run does it otherwise.

        Raises:
            StoreError: the store cannot be opened or written.
            RuntimeClosedError: the Runtime was closed.
        """
        self._engine()

    def close(self, timeout: float = 10.0) -> None:
        """Stop: nothing begins, what runs has ``timeout`` seconds, the rest is cut short, everything is committed and
        given back. Idempotent, always returns. From inside a step it only marks, and takes effect as the step ends."""
        parts = self._take_parts()
        if parts is None:
            return
        if current.get() is not None or parts.engine.walks.is_this():
            thread = threading.Thread(target=parts.close, args=(timeout,), name="ares-closing", daemon=True)
            parts.engine.refuse()
            thread.start()
            return
        parts.close(timeout)

    def _take_parts(self) -> "_Parts | None":
        with self._lock:
            self._is_closed = True
            return self._parts if self._pid == os.getpid() else None

    def _here(self) -> "_Parts | None":
        """What was started in this process, whether it is closed or not."""
        with self._lock:
            return self._parts if self._pid == os.getpid() else None

    def _known(self, workflow_id: str) -> Definition | None:
        parts = self._here()
        return None if parts is None else parts.engine.known(workflow_id)

    def _engine(self) -> Engine:
        with self._lock:
            if self._is_closed:
                raise RuntimeClosedError("the Runtime is closed")
            if self._pid != os.getpid():
                self._forked()
            if self._parts is None:
                self._parts = self._make_parts()
            return self._parts.engine

    def _forked(self) -> None:
        """In a child: what was inherited is kept, never used or closed, and everything is made anew."""
        if self._parts is not None:
            self._inherited.append(self._parts)
        self._parts = None
        self._first_store = None
        self._pid = os.getpid()

    def _make_parts(self) -> "_Parts":
        store = self._first_store or open_store(self._store_spec)
        self._first_store = None
        journal = StoreJournal(store, durability=self._options.durability, on_warning=self._warn)
        journal.start()
        try:
            engine = Engine(journal, NoBus(), self._options, self._agents, self._max_workers, self.warnings)
            for workflow in self._workflows:
                engine.define(workflow)
        except BaseException:
            journal.close(1.0)
            raise
        return _Parts(journal, engine)

    def _warn(self, message: str) -> None:
        self.warnings.append(message)  # logged with a result: a sink may block, and this is the journal's thread

    # --- running ------------------------------------------------------------------------------------

    def run(
        self,
        workflow: Workflow,
        inputs: Mapping[str, Any] | None = None,
        *,
        execution_id: str | None = None,
        if_exists: str = "error",
        metadata: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> WorkflowResult:
        """Run a workflow on the calling thread's watch, and return when it is done.

        Args:
            workflow: what to run.
            inputs: a value for each of its declared inputs.
            execution_id: names the execution; made up unless given.
            if_exists: ``"error"``, or ``"resume"``: go on with the execution of that id, or return its result.
            metadata: strings to find executions by.
            timeout: seconds that it may walk.

        Raises:
            DefinitionError: the workflow cannot run.
            InputError: the inputs do not fit.
            ExecutionExistsError: the id is taken.
            StoreError: the store could not keep its promise; the execution can be resumed.
        """
        engine = self._engine()
        definition = engine.define(workflow)
        parent = self._parent(engine)
        if parent is not None and execution_id is None:
            execution_id, if_exists = engine.nested_id(parent), "resume"
            engine.wait_for_previous(execution_id)
        request = self._request(definition, inputs, execution_id, metadata, timeout, parent)
        begun = self._begin(engine, definition, request, if_exists, ExecutionStatus.RUNNING)
        if isinstance(begun, WorkflowResult):
            return begun
        return self._told(engine.walk(begun, parent or current.get()))

    def submit(
        self,
        workflow: Workflow,
        inputs: Mapping[str, Any] | None = None,
        *,
        execution_id: str | None = None,
        if_exists: str = "error",
        metadata: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Execution:
        """As ``run``, but return as soon as the id and the inputs are committed."""
        engine = self._engine()
        definition = engine.define(workflow)
        request = self._request(definition, inputs, execution_id, metadata, timeout, None)
        begun = self._begin(engine, definition, request, if_exists, ExecutionStatus.PENDING)
        if isinstance(begun, WorkflowResult):
            return Execution(self, request.execution_id, None)
        return Execution(self, request.execution_id, engine.submit(begun))

    def _parent(self, engine: Engine) -> Attempt | None:
        """The step that a run is nested in, if it is one of this Runtime's own."""
        attempt = current.get()
        if attempt is None or engine.live(attempt.driver.execution_id) is not attempt.driver:
            return None
        return attempt

    def _request(
        self,
        definition: Definition,
        inputs: Mapping[str, Any] | None,
        execution_id: str | None,
        metadata: Mapping[str, str] | None,
        timeout: float | None,
        parent: Attempt | None,
    ) -> RunRequest:
        if execution_id is None:
            execution_id = new_id()
        check_id(execution_id)
        _check_timeout(timeout)
        bound = definition.graph.workflow.bind_inputs(inputs)
        parent_id = None if parent is None else parent.driver.execution_id
        return RunRequest(execution_id, bound, _metadata(metadata), timeout, parent_id)

    def _begin(
        self,
        engine: Engine,
        definition: Definition,
        request: RunRequest,
        if_exists: str,
        status: ExecutionStatus,
    ) -> Begun | WorkflowResult:
        if if_exists not in ("error", "resume"):
            raise UsageError(f"if_exists must be 'error' or 'resume', not {if_exists!r}")
        try:
            return engine.begin_new(definition, request, status)
        except ExecutionExistsError:
            if if_exists == "error":
                raise
        self._check_same(engine, definition, request)
        return self._begin_again(engine, definition, request.execution_id, ResumeRequest(timeout=request.timeout))

    def _check_same(self, engine: Engine, definition: Definition, request: RunRequest) -> None:
        """Refuse to go on with an execution that was begun with something else."""
        row = engine.journal.execution(request.execution_id)
        if row.workflow_id != definition.id:
            raise ExecutionConflictError(request.execution_id, f"another workflow, {row.workflow_id!r}")
        created = self._created(engine, definition, request.execution_id)
        wanted = definition.codec.encode(dict(request.inputs)) if not engine.journal.keeps_references else None
        if wanted is None:
            same = created.inputs == request.inputs
        else:
            same = definition.codec.encode(dict(created.inputs)) == wanted
        if not same:
            raise ExecutionConflictError(request.execution_id, "other inputs")

    @staticmethod
    def _created(engine: Engine, definition: Definition, execution_id: str) -> Any:
        entry = next(iter(engine.journal.entries(execution_id)))
        return read(entry.kind, entry.path, entry.body, definition.codec)

    # --- going on -------------------------------------------------------------------------------------

    def resume(
        self,
        execution_id: str,
        workflow: Workflow | None = None,
        *,
        rerun: str | Iterable[str] = (),
        reopen: bool = False,
        accept_changes: bool = False,
        timeout: float | None = None,
    ) -> WorkflowResult:
        """Go on with an execution, on the calling thread's watch.

        Args:
            execution_id: which one.
            workflow: its definition; one that this Runtime has seen need not be given.
            rerun: steps to run again, with all that follows them; ``"item_failures"``: what maps collected.
            reopen: go on with a cancelled one.
            accept_changes: go on although the definition changed.
            timeout: seconds that it may walk from now on.

        Returns:
            Its result; of one that ended COMPLETED (or CANCELLED, without ``reopen``) the stored one: nothing runs.

        Raises:
            ExecutionNotFoundError: there is none.
            ExecutionBusyError: a live owner walks it.
            WorkflowChangedError: the definition differs; nothing was changed.
        """
        engine = self._engine()
        row = engine.journal.execution(execution_id)
        definition = self._definition_of(engine, row, workflow)
        _check_timeout(timeout)
        names = rerun if isinstance(rerun, str) else tuple(definition.graph.workflow.step_id(r) if callable(r) else r for r in rerun)
        how = ResumeRequest(names, reopen, accept_changes, timeout)
        begun = self._begin_again(engine, definition, execution_id, how)
        if isinstance(begun, WorkflowResult):
            return begun
        return self._told(engine.walk(begun, current.get()))

    @staticmethod
    def _told(result: WorkflowResult) -> WorkflowResult:
        """Log a result's warnings, whatever the sinks do."""
        for warning in result.warnings:
            try:
                logger.warning("execution {}: {}", result.execution_id, warning)
            except Exception:
                return result  # a sink of the application's that raises; the warnings are in the result
        return result

    def _definition_of(self, engine: Engine, row: ExecutionRow, workflow: Workflow | None) -> Definition:
        if workflow is not None:
            if workflow.id != row.workflow_id:
                raise ExecutionConflictError(row.execution_id, f"another workflow, {row.workflow_id!r}")
            return engine.define(workflow)
        known = engine.known(row.workflow_id)
        if known is None:
            raise UsageError(
                f"the definition of workflow {row.workflow_id!r} is needed for execution {row.execution_id!r}: "
                "pass it, or name it in Runtime(workflows=[...])"
            )
        return known

    def _begin_again(
        self, engine: Engine, definition: Definition, execution_id: str, how: ResumeRequest
    ) -> Begun | WorkflowResult:
        row = engine.journal.execution(execution_id)
        status = ExecutionStatus(row.status)
        stands = status is ExecutionStatus.COMPLETED and not how.rerun
        if stands or (status is ExecutionStatus.CANCELLED and not how.reopen):
            if how.rerun and status is ExecutionStatus.CANCELLED:
                raise UsageError(f"execution {execution_id!r} was cancelled: rerun needs reopen=True as well")
            return engine.stored_result(definition, execution_id, status)
        return engine.begin_again(definition, execution_id, how)

    def recover(self) -> Recovery:
        """Take up every execution that nobody walks and whose workflow is in ``workflows=``. Returns at once."""
        engine = self._engine()
        taken: list[Execution] = []
        left: dict[str, str] = {}
        known = {workflow.id: workflow for workflow in self._workflows}
        statuses = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.WAITING)
        for row in reversed(engine.journal.executions(statuses=statuses)):
            reason = _not_to_recover(row, known)
            if reason is None:
                try:
                    begun = self._begin_again(
                        engine, engine.define(known[row.workflow_id]), row.execution_id, ResumeRequest()
                    )
                    if isinstance(begun, Begun):
                        taken.append(Execution(self, row.execution_id, engine.submit(begun)))
                    continue
                except AresError as error:
                    reason = f"{type(error).__name__}: {error}"
            left[row.execution_id] = reason
        return Recovery(tuple(taken), left)

    # --- from outside -----------------------------------------------------------------------------------

    def cancel(self, execution_id: str, reason: str = "") -> bool:
        """Ask an execution to stop, wherever it is walked; recorded when this returns.

        Returns:
            False if it had ended already.

        Raises:
            ExecutionNotFoundError: there is none.
        """
        engine = self._engine()
        driver = engine.live(execution_id)
        if driver is not None and not driver.flag_cancel():
            return False
        try:
            recorded = engine.journal.request(execution_id, "cancel", reason)
        except BaseException:
            if driver is not None:
                driver.unflag_cancel()
            raise
        if driver is not None and not recorded:
            driver.unflag_cancel()
        return recorded

    def execution(self, execution_id: str) -> Execution:
        """A handle on an execution.

        Raises:
            ExecutionNotFoundError: there is none.
        """
        engine = self._engine()
        engine.journal.execution(execution_id)
        return Execution(self, execution_id, engine.live(execution_id))

    def executions(
        self,
        status: ExecutionStatus | str | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionSummary]:
        """The executions in the store, newest first."""
        wanted = None if status is None else _option(ExecutionStatus, "status", status)
        stored = None if wanted is None else [wanted]
        if wanted in (ExecutionStatus.INTERRUPTED, ExecutionStatus.RUNNING):
            stored = [ExecutionStatus.RUNNING]
        found = []
        for row in self._reader().executions(statuses=stored, workflow_id=workflow_id, metadata=metadata):
            summary = _summary(row)
            if wanted is None or summary.status is wanted:
                found.append(summary)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def checkpoint(self, execution_id: str) -> ExperienceCheckpoint:
        """All that an execution is, as the fold of its journal. Reducers and classes are those of its workflow, if this
        Runtime has seen it."""
        reader = self._reader()
        row = reader.execution(execution_id)
        known = self._known(row.workflow_id)
        workflow = None if known is None else known.graph.workflow
        reducers = {} if workflow is None else {n: r for n in workflow.reducers if (r := workflow.reducer(n))}
        fold = Fold(execution_id, reducers=reducers)
        codec = Codec() if known is None else known.codec
        for entry in reader.entries(execution_id):
            body: Any = entry.body
            if isinstance(body, str):
                body = decode_leniently(entry.kind, entry.path, body, codec)
            fold.add(entry.seq, entry.at, body)
        return attrs.evolve(fold.checkpoint(), status=_status(row))

    def prune(self, older_than: timedelta, *, compact: bool = False) -> int:
        """Delete the executions that ended more than ``older_than`` ago; those that have not ended stay.

        Args:
            older_than: the age of their end.
            compact: give the freed space back to the file system, which keeps others waiting meanwhile.

        Returns:
            How many were deleted.
        """
        journal = self._engine().journal
        count = journal.prune(time.time_ns() - int(older_than / timedelta(microseconds=1)) * 1000)
        if compact:
            journal.compact()
        return count

    def _reader(self) -> Any:
        """Whatever can read the store: the journal, or before anything was started the store itself."""
        parts = self._here()
        if parts is not None and not self._is_closed:
            return parts.journal
        store = self._first_store
        return open_store(self._store_spec) if store is None else store

    # --- for handles ----------------------------------------------------------------------------------------

    def status_of(self, execution_id: str) -> ExecutionStatus:
        """Where an execution stands."""
        return _status(self._reader().execution(execution_id))

    def live(self, execution_id: str) -> Driver | None:
        """Its walk in this process."""
        parts = self._here()
        return None if parts is None else parts.engine.live(execution_id)

    def result_of(self, execution_id: str, driver: Driver | None) -> WorkflowResult:
        """The result of an execution whose walk is over."""
        parts = self._here()
        engine = self._engine() if parts is None else parts.engine
        if driver is not None:
            return engine.result_of(driver)
        row = engine.journal.execution(execution_id)
        definition = self._definition_of(engine, row, None)
        return engine.stored_result(definition, execution_id, _status(row))

    def stored_events(self, execution_id: str, after: int = 0) -> Iterator[Event]:
        """The events of an execution as its journal has them now."""
        reader = self._reader()
        row = reader.execution(execution_id)
        known = self._known(row.workflow_id)
        codec = Codec() if known is None else known.codec
        for entry in reader.entries(execution_id, after):
            body: Any = entry.body
            if isinstance(body, str):
                body = decode_leniently(entry.kind, entry.path, body, codec)
            yield event_of(execution_id, entry, body)


@attrs.define(eq=False)
class _Parts:
    """What a Runtime has started, in one process."""

    journal: StoreJournal
    engine: Engine
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def close(self, timeout: float) -> None:
        with self._lock:
            self.engine.close(timeout)
            self.journal.close(max(1.0, min(timeout, 5.0)))


_REGISTRY: "weakref.WeakSet[Runtime]" = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the process: whoever forgot to close."""
    for runtime in list(_REGISTRY):
        runtime.close(_EXIT_SECONDS)


def _renew_locks() -> None:
    """In the child of a fork: a lock that another thread held is held by nobody now."""
    for runtime in list(_REGISTRY):
        runtime._lock = threading.Lock()  # noqa: SLF001 - the registry is this module's own


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


# --- checks -----------------------------------------------------------------------------------------------------


def check_id(execution_id: object) -> None:
    """Refuse what cannot be the id of an execution.

    Raises:
        UsageError: it is empty, too long, or holds control characters.
    """
    problem = text_problem(execution_id)
    if problem:
        raise UsageError(f"the execution id {execution_id!r} {problem}")


def _option(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        permitted = ", ".join(repr(str(member)) for member in kind)
        raise UsageError(f"{name} must be one of {permitted}, not {value!r}") from None


def _workers(value: Any) -> int:
    if value is None:
        return min(32, (os.cpu_count() or 1) + 4)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"max_workers must be a whole number from 1, not {value!r}")
    return int(value)


def _check_timeout(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise UsageError(f"timeout must be a number of seconds above 0, not {value!r}")


def _metadata(value: Mapping[str, str] | None) -> dict[str, str]:
    found: dict[Any, Any] = dict(value or {})
    for name, text in found.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError(f"metadata must map str to str, not {name!r} to {text!r}")
    return found


def _status(row: ExecutionRow) -> ExecutionStatus:
    status = ExecutionStatus(row.status)
    if status is ExecutionStatus.RUNNING and not row.live:
        return ExecutionStatus.INTERRUPTED
    return status


def _summary(row: ExecutionRow) -> ExecutionSummary:
    return ExecutionSummary(
        row.execution_id,
        row.workflow_id,
        row.workflow_version,
        _status(row),
        row.parent_id,
        row.metadata,
        instant(row.created_at),
        instant(row.updated_at),
        None if row.ended_at is None else instant(row.ended_at),
        row.error,
        row.owner if row.live else "",
    )


def _not_to_recover(row: ExecutionRow, known: Mapping[str, Workflow]) -> str | None:
    if row.live:
        return f"owned by {row.owner}"
    if row.parent_id is not None:
        return f"nested in {row.parent_id}, which goes on with it"
    if row.status == ExecutionStatus.WAITING and not row.requests:
        return "waits for an answer"
    if row.workflow_id not in known:
        return f"its workflow {row.workflow_id!r} is not in workflows="
    return None


