"""The facade: wires a store, a bus and an engine, and is what a program holds on to.

Nothing starts before it is needed: the constructor looks at a store's file and starts nothing; opening it, the lease
and the threads come with ``start`` or the first run, in the process that makes it. A child of a fork makes its own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import attrs

from ares.bus import PluginBus
from ares.bus.health import PluginHealth
from ares.context import StepContext
from ares.engine.attempt import current
from ares.engine.beginning import Begun
from ares.engine.decisions import Decision
from ares.engine.definitions import Definition, Definitions
from ares.engine.driver import Driver
from ares.engine.engine import Engine
from ares.engine.execution import Execution
from ares.engine.notices import notices
from ares.engine.options import Durability, Limits, Options, StepsOn
from ares.engine.results import WorkflowResult
from ares.engine.takeover import ResumeRequest
from ares.errors import LeaseLostError, RuntimeClosedError, StoreError, UsageError
from ares.events import Event
from ares.journal.protocol import Claim, Journal, Store
from ares.journal.writer import StoreJournal
from ares.plugin.contracts import RuntimePlugin
from ares.questions import Approve, Question, Reject, RunAgain
from ares.records import ExecutionStatus, ExecutionSummary, ExperienceCheckpoint
from ares.runtime.answering import Answering, place_of
from ares.runtime.checks import (
    check_timeout,
    lease_seconds,
    option,
    paths_of,
    pool_sizes,
    recover_seconds,
    run_request,
    worker_count,
)
from ares.runtime.following import Following
from ares.runtime.installed import chosen
from ares.runtime.parts import Life, Parts
from ares.runtime.plugging import Plugins, with_defaults
from ares.runtime.plugin_journal import RuntimeJournal
from ares.runtime.reading import Reader, status_of
from ares.runtime.recovering import Recovering
from ares.runtime.recovery import Recovery, recover
from ares.stores.opening import open_store
from ares.workflow import Workflow


class Runtime:
    """Runs workflows and keeps what happened. Thread-safe: many threads run many executions on one Runtime.

    Args:
        store: a file for the embedded SQLite store, the URL of a PostgreSQL database (``postgresql://...``), or a store
            of one's own; None or ``":memory:"`` keeps all in this process.
        plugins: what lives on its bus beside the built-in ones, or instead of those of the same name; ``"installed"``
            for all that installed distributions offer under the entry-point group ``ares.plugins``.
        workflows: those that ``recover`` takes up and that handles by id can be read with.
        agents: what steps with an ``agent_type`` and no function run.
        max_workers: how many steps run at once; ``min(32, processors + 4)`` unless given.
        pools: the size of each named pool: at most so many steps that name it (``pool="api"``) run at once, whichever
            executions they belong to.
        steps_on: ``"auto"``, ``"workers"``, or for tests ``"caller"``: all on the calling
            thread, without delays and timeouts.
        around_step: a context manager factory ``cm(ctx)``, entered on the thread that runs each attempt.
        redact: ``redact(name, value)`` may replace what is kept of tool records and event payloads.
        plugin_timeout: seconds that one call to a plugin may take, where the plugin does not say itself.
        durability: ``"sync"``, ``"async"`` or ``"best_effort"``.
        lease_timeout: seconds after which another owner that gives no sign counts as gone, 1 or more. Its own sign is
            given six times in that, and every 5 seconds at least.
        recover_interval: seconds after which it calls ``recover`` by itself, for the first time at its start, on a
            thread of its own; None for never.
        interrupt_handler: ``handler(question)``, called on a worker for each open question, inside ``around_step``; it
            returns ``Approve``, ``Reject`` or ``RunAgain``, or None to leave the question open. Without one, ``run``
            returns WAITING once nothing else can move.
        check_values: without a file, refuse values that a file could not keep, too.

    Raises:
        StoreError: the file is there, but is no store, or one of a newer version.
        RegistrationError: a plugin that cannot be one, or cannot be imported, or two of one name.
        NotBuiltError: an argument whose feature does not exist yet.
    """

    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        plugins: Iterable[RuntimePlugin] | Literal["installed"] = (),
        workflows: Iterable[Workflow] = (),
        agents: Mapping[str, Callable[..., Any]] | None = None,
        max_workers: int | None = None,
        pools: Mapping[str, int] | None = None,
        steps_on: StepsOn | str = StepsOn.AUTO,
        around_step: Callable[[StepContext], AbstractContextManager[Any]] | None = None,
        redact: Callable[[str, Any], Any] | None = None,
        plugin_timeout: float = 30.0,
        durability: Durability | str = Durability.SYNC,
        lease_timeout: float = 30.0,
        recover_interval: float | None = None,
        interrupt_handler: Callable[..., Any] | None = None,
        check_values: bool = False,
    ) -> None:
        if interrupt_handler is not None and not callable(interrupt_handler):
            raise UsageError(f"interrupt_handler must be a callable or None, not {interrupt_handler!r}")
        self._workflows = tuple(workflows)
        self._agents = dict(agents or {})
        self._limits = Limits(worker_count(max_workers), pool_sizes(pools))
        self._options = Options(
            option(StepsOn, "steps_on", steps_on),
            option(Durability, "durability", durability),
            around_step,
            redact,
            check_values,
            interrupt_handler,
        )
        self._recover_interval = recover_seconds(recover_interval, self._workflows)
        self.lease_timeout = lease_seconds(lease_timeout)
        self.warnings: list[str] = []
        self._life = Life(lambda: open_store(store), self._make_parts)
        journal = RuntimeJournal(self._engine_here, self.checkpoint)
        residents = with_defaults(chosen(plugins), is_stored=store not in (None, ":memory:"))
        self._plugins = Plugins(self._life.store_name, residents, plugin_timeout, journal)

    def __repr__(self) -> str:
        return f"<Runtime {self._life.store_name}>"

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
            HookOrderError: the order that plugins ask for cannot be.
            ExceptionGroup: a plugin that is required did not start.
            RuntimeClosedError: the Runtime was closed.
        """
        self._engine()

    def close(self, timeout: float = 10.0) -> None:
        """Stop: nothing begins, what runs has ``timeout`` seconds, the rest is cut short, everything is committed and
        given back. Idempotent, always returns. From inside a step, or of a plugin, it only marks, and takes effect as
        that ends."""
        if self._plugins.is_inside():
            self._life.close_soon(timeout)
            return
        self._life.close(timeout)
        if self._life.here() is None:
            self.bus.stop(0)  # it never started, but may have subscriptions

    @property
    def max_workers(self) -> int:
        """How many steps run at once."""
        return self._limits.max_workers

    @property
    def bus(self) -> PluginBus:
        """Where its plugins live and events pass. In the child of a fork there is another one."""
        return self._plugins.bus

    def health(self) -> Mapping[str, PluginHealth]:
        """How each plugin is, by name."""
        return self.bus.health()

    def _engine(self) -> Engine:
        """The engine, started if it was not."""
        if self._life.here() is None and self._plugins.is_inside():
            raise UsageError("the Runtime is still starting its plugins: none of them can use it yet")
        return self._life.engine()

    def _engine_here(self) -> Engine | None:
        parts = self._life.here()
        return None if parts is None else parts.engine

    def _known(self, workflow_id: str) -> Definition | None:
        parts = self._life.here()
        return None if parts is None else parts.engine.definitions.known(workflow_id)

    def _make_parts(self, store: Store) -> Parts:
        journal = StoreJournal(
            store,
            durability=self._options.durability,
            lease_timeout=self.lease_timeout,
            on_warning=self._warn,
            on_lost=self._lose,
        )
        journal.start()
        bus = self.bus
        try:
            bus = self._plugins.start()
            engine = Engine(journal, bus, self._options, self._agents, self._limits, self.warnings)
            for workflow in self._workflows:
                engine.definitions.define(workflow)
            parts = Parts(journal, bus, engine)
            if self._recover_interval is not None:
                # It waits until these are what the Runtime has.
                parts.recovering = Recovering(self.recover, self._recover_interval, journal.name, self._warn)
                parts.recovering.start()
        except BaseException:
            bus.stop(1.0)
            journal.close(1.0)
            raise
        return parts

    def _warn(self, message: str) -> None:
        self.warnings.append(message)  # logged with a result: a sink may block, and this is the journal's thread

    def _lose(self, lost: Mapping[Claim, LeaseLostError]) -> None:
        engine = self._engine_here()
        if engine is not None:
            engine.lose(lost)

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
        definition = engine.definitions.define(workflow)
        parent = engine.parent()
        if parent is not None and execution_id is None:
            execution_id, if_exists = engine.nested_id(parent), "resume"
            engine.wait_for_previous(execution_id)
        request = run_request(definition, inputs, execution_id, metadata, timeout, parent)
        status = ExecutionStatus.RUNNING
        return self._walked(engine, lambda: engine.beginning.new_or_again(definition, request, if_exists, status))

    def _walked(self, engine: Engine, begin: Callable[[], Begun | WorkflowResult]) -> WorkflowResult:
        """The result of what ``begin`` gives: walked here, unless it is one already."""
        self.check_may_wait()
        begun: Begun | WorkflowResult | None = None
        try:
            with self._unless_closed():
                begun = begin()
                if isinstance(begun, WorkflowResult):
                    return begun
                result = engine.walk(begun, current.get())
            return self._told(result)
        except BaseException as error:
            # A Ctrl-C may come before the walk has the claim, or after it was done with it.
            if isinstance(begun, Begun) and not isinstance(error, Exception):
                engine.journal.release(begun.claim)
            raise

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
        definition = engine.definitions.define(workflow)
        request = run_request(definition, inputs, execution_id, metadata, timeout, None)
        with self._unless_closed():
            begun = engine.beginning.new_or_again(definition, request, if_exists, ExecutionStatus.PENDING)
            driver = None if isinstance(begun, WorkflowResult) else engine.submit(begun)
        return Execution(self, request.execution_id, driver)

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
        definition = engine.definitions.of(row, workflow)
        check_timeout(timeout)
        how = ResumeRequest(paths_of(definition, rerun), reopen, accept_changes, timeout)
        return self._walked(engine, lambda: engine.beginning.again(definition, execution_id, how))

    @staticmethod
    def _told(result: WorkflowResult) -> WorkflowResult:
        for warning in result.warnings:
            notices.say("WARNING", "execution {}: {}", result.execution_id, warning)
        return result

    def recover(self, workflows: Iterable[Workflow] = ()) -> Recovery:
        """Take up every execution that nobody walks and whose workflow is in ``workflows=``: those that have begun, or
        were submitted, and those that wait, once an answer or a cancel is in. Each goes to one process, however many
        try.

        Args:
            workflows: take up those of these, too.

        Returns:
            At once: those that go on here, and why others do not.

        Raises:
            StoreError: the store cannot be read.
        """
        return recover(self, self._engine(), (*self._workflows, *workflows))

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
        if driver is None:
            return engine.journal.request(execution_id, "cancel", reason)
        return driver.outside.cancel(reason, lambda: engine.journal.request(execution_id, "cancel", reason))

    def answer(
        self,
        question: Question | str,
        answer: Approve | Reject | RunAgain,
        *,
        step: str | Callable[..., Any] | None = None,
        key: str | None = None,
        round: int | None = None,
    ) -> None:
        """Answer a question, whichever process walks its execution; recorded when this returns.

        The first answer counts. An execution that is walked, here or elsewhere, goes on by itself; of one that nobody
        walks, ``resume`` or ``recover`` carries it out.

        Args:
            question: from ``questions()`` or a result's ``interrupts``; or the id of the execution, with ``step``.
            answer: ``Approve``, ``Reject``, or, where the outcome of an ``at_most_once`` step is unknown, ``RunAgain``.
            step: the path of the step that asks, or its function.
            key: which of its questions; the open one unless given.
            round: in which round; the present one unless given.

        Raises:
            ExecutionNotFoundError: there is no such execution.
            QuestionNotFoundError: the step asks nothing, or something else.
            QuestionAnsweredError: somebody was faster.
            UsageError: it is no answer, or none to such a question.
            SerializationError: its value cannot be stored.
        """
        place = place_of(question, step, key, round)
        self._answering(self._engine().journal).answer(place, answer)

    def questions(self, execution_id: str | None = None) -> Sequence[Question]:
        """The questions that nobody has answered yet, of one execution or of all, the oldest execution first.

        Raises:
            ExecutionNotFoundError: there is no such execution.
        """
        return list(self._answering(self._life.source()).questions(execution_id))

    def _answering(self, journal: Journal | Store) -> Answering:
        checks_values = self._options.check_values
        parts = self._life.here()
        following = Following() if parts is None else parts.following
        return Answering(journal, self._reader(), self._known, self.live, following, checks_values=checks_values)

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
        wanted = None if status is None else option(ExecutionStatus, "status", status)
        return self._reader().executions(wanted, workflow_id, metadata, limit)

    def summary(self, execution_id: str) -> ExecutionSummary:
        """One execution, as ``executions`` lists it.

        Raises:
            ExecutionNotFoundError: there is none.
        """
        return self._reader().summary(execution_id)

    def checkpoint(self, execution_id: str) -> ExperienceCheckpoint:
        """All that an execution is, as the fold of its journal. Reducers and classes are those of its workflow, if this
        Runtime has seen it.

        Raises:
            ExecutionNotFoundError: there is none.
        """
        return self._reader().checkpoint(execution_id)

    def decisions(self, execution_id: str, workflow: Workflow) -> Iterator[Decision]:
        """What was decided at the branch points of an execution, in order, each with what routers were shown: so that
        others can be asked the same (``Decision.ask``). Reads only, and claims nothing.

        Args:
            execution_id: which one; it may still be walked.
            workflow: its definition.

        Raises:
            ExecutionNotFoundError: there is none.
            ExecutionConflictError: it is of another workflow.
            DefinitionError: the workflow cannot run.
        """
        return self._reader().decisions(execution_id, Definitions(self._agents, self._limits.pools).define(workflow))

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

    def _reader(self) -> Reader:
        return Reader(self._life.source(), self._known)

    @contextmanager
    def _unless_closed(self) -> Iterator[None]:
        """What a store refuses that was closed meanwhile is refused for that reason."""
        try:
            yield
        except StoreError as error:
            if self._life.is_closed:
                raise RuntimeClosedError("the Runtime is closed") from error
            raise

    # --- for handles ----------------------------------------------------------------------------------------

    def check_may_wait(self) -> None:
        """Raise UsageError in a plugin of this Runtime: the hooks of what it waits for would wait for it."""
        if self._plugins.is_inside():
            raise UsageError("a plugin cannot wait for a run of the Runtime that it lives on; submit() does not wait")

    def status_of(self, execution_id: str) -> ExecutionStatus:
        """Where an execution stands."""
        return self._reader().status(execution_id)

    def live(self, execution_id: str) -> Driver | None:
        """Its walk in this process."""
        parts = self._life.here()
        return None if parts is None else parts.engine.live(execution_id)

    def has_gone_on(self, driver: Driver) -> bool:
        """Whether a walk that is over is not the last of its execution: somebody answered, and went on."""
        row = self._life.source().execution(driver.execution_id)
        is_past = driver.status is ExecutionStatus.WAITING or status_of(row).is_final
        return is_past and row.last_seq > driver.ledger.log.last_seq

    def result_of(self, execution_id: str, driver: Driver | None) -> WorkflowResult:
        """The result of an execution whose walk is over."""
        parts = self._life.here()
        engine = self._engine() if parts is None else parts.engine
        if driver is not None and driver.over.is_set():
            return engine.result_of(driver)
        row = engine.journal.execution(execution_id)
        definition = engine.definitions.of(row, None)
        stored = engine.beginning.stored_result(definition, execution_id, status_of(row))
        return stored if driver is None else attrs.evolve(stored, warnings=driver.warnings)  # it rests

    def stored_events(self, execution_id: str, after: int = 0) -> Iterator[Event]:
        """The events of an execution as its journal has them now."""
        return self._reader().events(execution_id, after)
