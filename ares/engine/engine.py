"""Starts walks: makes, claims and replays executions, and hands each to a thread that walks it.

Knows a ``Journal`` and an ``EngineBus``, and which executions are walked in this process.
"""

import contextvars
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import attrs

from ares.engine.attempt import Attempt, current
from ares.engine.definitions import Agents, Definition, Definitions
from ares.engine.driver import Driver, Setting
from ares.engine.histories import Histories
from ares.engine.loops import Mail, WalksThread, walk_here
from ares.engine.options import CANCEL_GRACE, CLOSE_COMMIT, COMMIT_TIMEOUT, Options
from ares.engine.pool import WorkerPool
from ares.engine.replay import Replay, check_drift, check_inputs, fold, read, replay
from ares.engine.results import Kept, WorkflowResult, make_result, question_of, result_of_record
from ares.engine.takeover import ResumeRequest, plan_set_back, take_up
from ares.engine.variables import Values
from ares.errors import (
    AttemptEnded,
    RuntimeClosedError,
    StoreError,
    UsageError,
)
from ares.events import instant
from ares.journal.encoding import encode
from ares.journal.failures import afresh
from ares.journal.protocol import Claim, Journal, NewExecution
from ares.plugin.engine_bus import EngineBus
from ares.records import ExecutionStatus
from ares.walk import facts as f
from ares.walk.walk import Walk


@attrs.define(eq=False)
class Begun:
    """An execution that is claimed and about to be walked."""

    definition: Definition
    claim: Claim
    walk: Walk
    metadata: Mapping[str, str]
    remembered: dict[tuple[str, int, int, str], Any]
    #: The facts by which it begins, and the number of the first of them.
    opening: tuple[int, Sequence[f.Fact]]
    histories: Histories | None = None
    after_crash: bool = False
    asked_at: Mapping[str, int] = attrs.field(factory=dict)


class Engine:
    """Walks executions on one store. Thread-safe."""

    def __init__(
        self,
        journal: Journal,
        bus: EngineBus,
        options: Options,
        agents: Agents,
        max_workers: int,
        warnings: Sequence[str] = (),
    ) -> None:
        #: What the journal had to say, oldest first; grows.
        self._warnings = warnings
        self.journal = journal
        self.bus = bus
        self.options = options
        self.definitions = Definitions(agents)
        self._lock = threading.Lock()
        self._live: dict[str, Driver] = {}
        self._unwatch: dict[str, Callable[[], None]] = {}
        self._closing = False
        self.pool = WorkerPool(journal.name, max_workers)
        self.walks = WalksThread(journal.name)

    # --- beginning ----------------------------------------------------------------------------------------

    def begin_new(self, definition: Definition, request: "RunRequest", status: ExecutionStatus) -> Begun:
        """Store a new execution and claim it; committed when this returns.

        Raises:
            InputError: the inputs do not fit the declaration.
            SerializationError: an input cannot be stored.
            ExecutionExistsError: the id is taken.
        """
        graph = definition.graph
        fingerprint = graph.fingerprint
        workflow = graph.workflow
        fact = f.Created(
            workflow.id,
            workflow.version,
            fingerprint.digest,
            fingerprint.shape,
            definition.nodes,
            workflow.bind_inputs(request.inputs),
            dict(workflow.variables),
            {name: r if isinstance(r, str) else "custom" for name, r in workflow.reducers.items()},
            request.timeout,
            dict(request.metadata),
        )
        body: Any = fact
        if not self.journal.keeps_references or self.options.check_values:
            text = encode(fact, definition.codec)
            body = fact if self.journal.keeps_references else text
        new = NewExecution(
            request.execution_id, workflow.id, workflow.version, request.parent_id, request.metadata, time.time_ns()
        )
        walk = Walk(graph, request.execution_id)
        walk.apply(fact)
        claim = self.journal.create(new, status, [(fact.kind, "", body)], claimed=True)
        try:
            return Begun(definition, claim, walk, request.metadata, {}, (1, (fact,)), self._histories())
        except BaseException:  # a Ctrl-C between the two
            self.journal.release(claim)
            raise

    def _replay(self, definition: Definition, execution_id: str) -> Replay:
        entries = self.journal.entries(execution_id)
        return replay(definition.graph, execution_id, entries, definition.codec, self.journal.name)

    def begin_again(self, definition: Definition, execution_id: str, how: ResumeRequest) -> Begun | WorkflowResult:
        """Claim an execution and prepare going on with it; or give its stored result, if it stands.

        What is refused is refused before the claim is taken: nothing in the store is touched by then.

        Raises:
            ExecutionBusyError: a live owner walks it.
            WorkflowChangedError: the definition differs, and the change was not accepted.
            UsageError: ``rerun`` names what is not there.
        """
        stands = self._as_it_stands(definition, execution_id, how)
        if stands is not None:
            return stands
        claim: Claim | None = None
        try:
            if self.journal.execution(execution_id).live:
                # Somebody walks it, and this says who; unless it was given back just now.
                claim = self.journal.claim(execution_id)
            found = self._checked(definition, execution_id, how)
            if claim is None:
                claim = self.journal.claim(execution_id)
            # Only now nobody else can go on with it: whoever did in the meantime may have come to its end.
            stands = self._as_it_stands(definition, execution_id, how)
            if stands is None:
                if claim.last_seq != found.last_seq:
                    found = self._checked(definition, execution_id, how)
                return self._take_up(definition, claim, found, how)
        except BaseException:
            if claim is not None:
                self.journal.release(claim)
            raise
        self.journal.release(claim)
        return stands

    def _checked(self, definition: Definition, execution_id: str, how: ResumeRequest) -> Replay:
        """What there is to go on with, if that is possible in the way it was asked for."""
        found = self._replay(definition, execution_id)
        if how.accept_changes:
            check_inputs(found, definition.graph)
        else:
            check_drift(found, definition.graph)
        plan_set_back(found.walk.state, how)
        return found

    def _as_it_stands(self, definition: Definition, execution_id: str, how: ResumeRequest) -> WorkflowResult | None:
        """The result of an execution that a resume changes nothing about."""
        status = ExecutionStatus(self.journal.execution(execution_id).status)
        if status is ExecutionStatus.CANCELLED and how.rerun and not how.reopen:
            raise UsageError(f"execution {execution_id!r} was cancelled: rerun needs reopen=True as well")
        is_done = status is ExecutionStatus.COMPLETED and not how.rerun
        if is_done or (status is ExecutionStatus.CANCELLED and not how.reopen):
            return self.stored_result(definition, execution_id, status)
        return None

    def _take_up(self, definition: Definition, claim: Claim, found: Replay, how: ResumeRequest) -> Begun:
        crashed = claim.was_abandoned and found.walk.state.ended is None
        facts = take_up(found, definition.graph, definition.nodes, how, was_abandoned=crashed)
        references = self.journal.keeps_references
        drafts = [(fact.kind, "", fact if references else encode(fact, definition.codec)) for fact in facts]
        ticket = self.journal.log(claim).append(drafts, status=ExecutionStatus.RUNNING)
        try:
            ticket.wait(COMMIT_TIMEOUT)
        except TimeoutError as error:
            problem = f"no commit within {COMMIT_TIMEOUT:g} s"
            raise StoreError(self.journal.name, problem, claim.execution_id) from error
        return Begun(
            definition,
            claim,
            found.walk,
            found.created.metadata,
            found.remembered,
            (self.journal.log(claim).last_seq - len(facts) + 1, facts),
            self._histories(definition, claim.execution_id),
            crashed,
            found.asked_at,
        )

    def _histories(self, definition: Definition | None = None, execution_id: str = "") -> Histories | None:
        """The histories of an execution, which goes on if it has a definition already; None if nobody asks for them."""
        stages = self.bus.stages
        if not (stages.has_routers or stages.has_recovery or stages.has_execution_hooks or stages.has_loop):
            return None
        histories = Histories()
        for entry in () if definition is None else self.journal.entries(execution_id):
            codec = None if definition is None else definition.codec
            histories.add(read(entry.kind, entry.path, entry.body, codec), instant(entry.at))
        return histories

    # --- walking --------------------------------------------------------------------------------------------

    def _setting(self, begun: Begun, *, submitted: bool, parent: Attempt | None = None) -> Setting:
        references = self.journal.keeps_references
        variables = contextvars.copy_context()
        # What is submitted from inside a step has a life of its own, and must not keep that step's alive.
        variables.run(current.set, None)
        return Setting(
            execution_id=begun.claim.execution_id,
            walk=begun.walk,
            log=self.journal.log(begun.claim),
            codec=None if references and not self.options.check_values else begun.definition.codec,
            options=self.options,
            pool=self.pool,
            bus=self.bus,
            calls=begun.definition.calls,
            metadata=MappingProxyType(dict(begun.metadata)),  # plugins see it, too
            variables=variables,
            remembered=begun.remembered,
            keeps_references=references,
            warnings=self._warnings,
            is_submitted=submitted,
            is_bounded=parent is not None and parent.is_bounded,
            after_crash=begun.after_crash,
            opening=begun.opening,
            histories=begun.histories,
            reader=begun.definition.codec,
            asked_at=begun.asked_at,
        )

    def _admit(self, driver: Driver) -> None:
        """Take in a walk that is about to begin.

        Raises:
            RuntimeClosedError: it is too late; the claim was given back.
            StoreError: the store cannot be read.
        """
        with self._lock:
            closing = self._closing
            if not closing:
                self._live[driver.execution_id] = driver
        if closing:
            driver.cutting.crash(RuntimeClosedError("the Runtime is closed"))
            raise RuntimeClosedError("the Runtime is closed")
        end = self.journal.watch(
            driver.execution_id, lambda request: driver.on_request(request, self.journal.close_request)
        )
        with self._lock:
            self._unwatch[driver.execution_id] = end

    def _leave(self, driver: Driver) -> None:
        """The walk is over: nobody is told before its claim is given back."""
        with self._lock:
            unwatch = self._unwatch.get(driver.execution_id)
        if unwatch is not None:
            unwatch()
        self.journal.release(driver.ledger.log.claim)
        with self._lock:
            if self._live.get(driver.execution_id) is driver:
                self._unwatch.pop(driver.execution_id, None)
                del self._live[driver.execution_id]

    def walk(self, begun: Begun, parent: Attempt | None) -> WorkflowResult:
        """Walk on the calling thread until the walk is over.

        Raises:
            StoreError: the store could not keep its promise.
            RuntimeClosedError: the Runtime was closed meanwhile.
            AttemptEnded: the step that this run is nested in is over.
        """
        driver = self._walk_here(begun, parent)
        return self.result_of(driver, parent)

    def _walk_here(self, begun: Begun, parent: Attempt | None, *, submitted: bool = False) -> Driver:
        mail = Mail()
        try:
            driver = Driver(self._setting(begun, submitted=submitted, parent=parent), mail.post, self._leave)
            if parent is not None:
                parent.adopt(driver)
        except BaseException:
            self.journal.release(begun.claim)
            raise
        try:
            with nullcontext() if parent is None else parent.driver.lend():
                walk_here(driver, mail, self._admit)
        finally:
            if self._walks(driver):
                self._leave(driver)  # a Ctrl-C came while it left
            if parent is not None:
                parent.disown(driver)
        return driver

    def submit(self, begun: Begun) -> Driver:
        """Have an execution walked on the thread that all submitted walks share; here, with ``steps_on="caller"``."""
        if self.options.on_caller:
            return self._walk_here(begun, None, submitted=True)
        try:
            driver = Driver(self._setting(begun, submitted=True), self.walks.post, self._leave)
        except BaseException:
            self.journal.release(begun.claim)
            raise
        try:
            self._admit(driver)
            driver.post(driver.begin)
        except BaseException as error:
            driver.cutting.crash(error)
            raise
        return driver

    def result_of(self, driver: Driver, parent: Attempt | None = None) -> WorkflowResult:
        """The result of a walk that is over; reducers run on the calling thread."""
        is_cut = driver.status in (ExecutionStatus.INTERRUPTED, ExecutionStatus.PENDING)
        if parent is not None:
            ends = parent.cancelled or self._walks(parent.driver)
            if parent.is_over or (is_cut and driver.error is None and ends):
                raise AttemptEnded(parent.path)  # it is interrupted because the step that it is nested in ends
        error = driver.error
        if is_cut and self._closing and (error is None or isinstance(error, StoreError)):
            problem = f"the Runtime was closed; execution {driver.execution_id!r} can be resumed"
            raise RuntimeClosedError(problem) from error
        if isinstance(error, StoreError):
            raise afresh(error)
        if isinstance(error, Exception):
            raise error
        state = driver.walk.state
        variables = driver.values.snapshot(state.root, len(state.root.writes))
        return make_result(
            driver.kept,
            variables,
            status=driver.status,
            duration=driver.duration,
            warnings=driver.warnings,
            questions=driver.asking.open(),
        )

    def stored_result(self, definition: Definition, execution_id: str, status: ExecutionStatus) -> WorkflowResult:
        """The result of an execution that nobody walks in this process, read from its journal."""
        found = self._replay(definition, execution_id)
        if found.fingerprint.digest != definition.graph.fingerprint.digest:
            entries = self.journal.entries(execution_id)
            record = fold(execution_id, definition.graph, entries, definition.codec)
            return result_of_record(attrs.evolve(record, status=status), definition.graph.workflow)
        state = found.walk.state
        variables = Values(found.created).snapshot(state.root, len(state.root.writes))
        asked = [(fact, found.asked_at[path]) for path, i in state.waiting.items() if (fact := i.question) is not None]
        questions = tuple(question_of(execution_id, *each) for each in sorted(asked, key=lambda pair: pair[1]))
        return make_result(Kept(state), variables, status=status, duration=0.0, questions=questions)

    # --- those under way ----------------------------------------------------------------------------------------

    def _walks(self, driver: Driver) -> bool:
        return self.live(driver.execution_id) is driver

    def live(self, execution_id: str) -> Driver | None:
        """The walk of an execution in this process."""
        with self._lock:
            return self._live.get(execution_id)

    def walked(self, execution_id: str | None = None) -> list[Driver]:
        """The walks in this process: that of one execution, or all."""
        with self._lock:
            return [d for name, d in self._live.items() if execution_id is None or name == execution_id]

    def wait_for_previous(self, execution_id: str) -> None:
        """A step runs again whose attempt before was ended: let that one's nested run give its claim back."""
        driver = self.live(execution_id)
        if driver is not None:
            driver.over.wait(2 * CANCEL_GRACE)

    def refuse(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._closing = True

    def ask_to_end(self, timeout: float) -> list[Driver]:
        """Begin nothing more, and ask every walk to end within so many seconds. Returns them."""
        with self._lock:
            self._closing = True
            drivers = list(self._live.values())
        for driver in drivers:
            driver.request_stop("closed", timeout)
        return drivers

    def close(self, timeout: float, commit: float = CLOSE_COMMIT) -> None:
        """Stop every walk in good order; what does not end in ``timeout`` seconds is cut short, and that committed in
        ``commit`` more."""
        deadline = time.monotonic() + timeout
        for driver in self.ask_to_end(timeout):
            driver.over.wait(max(0.0, deadline + commit - time.monotonic()))
        self.walks.close(commit)
        self.pool.close(max(0.1, min(1.0, deadline - time.monotonic())))

    def is_inside(self) -> bool:
        """Whether the calling thread is one that a walk needs to come to its end: in a step, or in a signal handler
        that interrupted ``run``."""
        me = threading.get_ident()
        with self._lock:
            is_owner = any(driver.owner == me for driver in self._live.values())
        return is_owner or current.get() is not None or self.walks.is_this()

    def nested_id(self, attempt: Attempt) -> str:
        """The id of the next run nested in an attempt: the same when the step runs again."""
        instance = attempt.instance
        parts = (
            attempt.driver.execution_id,
            instance.path,
            str(instance.scope.round),
            str(instance.born),
            str(attempt.next_run()),
        )
        return "nested-" + blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


@attrs.frozen
class RunRequest:
    """What a run is given."""

    execution_id: str
    inputs: Mapping[str, Any]
    metadata: Mapping[str, str]
    timeout: float | None = None
    parent_id: str | None = None


def new_id() -> str:
    """An execution id that nobody has."""
    return uuid.uuid4().hex
