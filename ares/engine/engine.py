"""Starts walks: hands each execution that has begun to a thread that walks it, and knows which are walked here.

How one begins is told in ``ares.engine.beginning``.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from types import MappingProxyType

from ares.engine.attempt import Attempt, current
from ares.engine.beginning import Beginning, Begun
from ares.engine.definitions import Agents, Definitions
from ares.engine.driver import Driver
from ares.engine.loops import Mail, WalksThread, walk_here
from ares.engine.options import CANCEL_GRACE, CLOSE_COMMIT, Limits, Options
from ares.engine.places import Places
from ares.engine.pool import WorkerPool
from ares.engine.results import WorkflowResult, make_result
from ares.engine.setting import Setting
from ares.errors import AttemptEnded, LeaseLostError, RuntimeClosedError, StoreError
from ares.journal.failures import afresh
from ares.journal.protocol import Claim, Journal
from ares.plugin.engine_bus import EngineBus
from ares.records import ExecutionStatus


class Engine:
    """Walks executions on one store. Thread-safe."""

    def __init__(
        self,
        journal: Journal,
        bus: EngineBus,
        options: Options,
        agents: Agents,
        limits: Limits,
        warnings: Sequence[str] = (),
    ) -> None:
        #: What the journal had to say, oldest first; grows.
        self._warnings = warnings
        self.journal = journal
        self.bus = bus
        self.options = options
        executors = () if options.executors is None else options.executors.names
        self.definitions = Definitions(agents, limits.pools, executors)
        self.beginning = Beginning(journal, bus, options)
        self._lock = threading.Lock()
        self._live: dict[str, Driver] = {}
        self._unwatch: dict[str, Callable[[], None]] = {}
        #: Executions whose walk here came upon a defect.
        self._defects: dict[str, Exception] = {}
        self._closing = False
        self.pool = WorkerPool(journal.name, limits.max_workers)
        #: The slots of each named pool.
        self.pools = {name: Places(size) for name, size in limits.pools.items()}
        self.walks = WalksThread(journal.name)

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
            pools=self.pools,
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
            driver.execution_id, lambda request: driver.outside.on_request(request, self.journal.close_request)
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
            if isinstance(driver.error, Exception) and not isinstance(driver.error, StoreError | RuntimeClosedError):
                self._defects[driver.execution_id] = driver.error

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
        waits = current.get()  # also a step on this thread that submits, with ``steps_on="caller"``
        try:
            with nullcontext() if waits is None else waits.lent():
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

    def defect_of(self, execution_id: str) -> Exception | None:
        """What a walk of an execution in this process came upon, so that another one would again."""
        with self._lock:
            return self._defects.get(execution_id)

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
            driver.outside.request_stop("closed", timeout)
        return drivers

    def lose(self, lost: Mapping[Claim, LeaseLostError]) -> None:
        """End the walks whose claims were lost."""
        for driver in self.walked():
            error = lost.get(driver.ledger.log.claim)
            if error is not None:
                driver.outside.lose(error)

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

    def is_walked_on(self) -> bool:
        """Whether the process does not end before a walk does: one on a thread that it waits for."""
        with self._lock:
            owners = {driver.owner for driver in self._live.values()}
        here = threading.current_thread()
        return any(each.ident in owners for each in threading.enumerate() if each is not here and not each.daemon)

    def parent(self) -> Attempt | None:
        """The step that a run on the calling thread is nested in, if it is walked here."""
        attempt = current.get()
        if attempt is None or self.live(attempt.driver.execution_id) is not attempt.driver:
            return None
        return attempt

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
