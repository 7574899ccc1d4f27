"""The owner of one walk: takes messages, applies and numbers facts, hands out work, and decides nothing.

Everything in here but the methods marked *any thread* runs on one thread: the one that called ``run``, or the one that
all submitted walks share. Others reach it by ``post``. A worker posts the outcome of its attempt; the owner gives it to
the journal, applies it, and lets its consequences happen once it is committed (``sync``), or at once.

How work that is under way comes to an early end is told in ``ares.engine.cutting``.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context as ContextVars
from typing import Any

import attrs

from ares.engine.attempt import Attempt
from ares.engine.crew import Crew
from ares.engine.cutting import Cutting
from ares.engine.feed import Feed, Place
from ares.engine.histories import Histories
from ares.engine.jobs import TELLING, Answer, decide, perform
from ares.engine.ledger import Ledger
from ares.engine.options import CANCEL_GRACE, COMMIT_TIMEOUT, Options
from ares.engine.pool import WorkerPool
from ares.engine.results import Kept, Steps, outcome_of, step_result
from ares.engine.tally import Tally
from ares.engine.timers import Timers
from ares.engine.variables import Values
from ares.errors import StoreError, WalkError
from ares.journal.collector import ExecutionCollector
from ares.journal.protocol import ExecutionLog, Request, Ticket
from ares.plugin.engine_bus import EngineBus
from ares.records import ExecutionState, ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f
from ares.walk.judge import Failure, judge, refuse
from ares.walk.state import Instance
from ares.walk.stopping import may_begin
from ares.walk.table import FINAL, Phase
from ares.walk.walk import CutShort, RetryIn, StartTimer, Walk, Work, WorkKind
from ares.workflow import Call, Delivery

#: After a crash, so many starts are committed before their bodies: one of them may be what killed the process, and
#: a start that was lost with it could never be counted.
CAREFUL_STARTS = 64


@attrs.define(eq=False)
class Setting:
    """What a walk is given to work with.

    ``warnings`` are the journal's, ``variables`` the caller's context. ``is_bounded``: something else may end the walk,
    the timeout of a step that it is nested in, so that its own thread must not get stuck in a body.
    """

    execution_id: str
    walk: Walk
    log: ExecutionLog
    codec: Codec | None
    options: Options
    pool: WorkerPool
    bus: EngineBus
    calls: Mapping[Any, Call]
    metadata: Mapping[str, str]
    variables: ContextVars
    remembered: dict[tuple[str, int, str], Any]
    keeps_references: bool
    warnings: Sequence[str] = ()
    is_submitted: bool = False
    is_bounded: bool = False
    after_crash: bool = False
    #: What is journaled of the execution already and was not told yet, with the number of the first.
    opening: tuple[int, Sequence[f.Fact]] = (1, ())
    histories: Histories | None = None


class Driver:
    """Walks one execution to its end, or until it is stopped."""

    def __init__(
        self,
        setting: Setting,
        post: Callable[["Driver", Callable[[], None]], None],
        on_finish: Callable[["Driver"], None],
    ) -> None:
        self.execution_id = setting.execution_id
        self.walk = setting.walk
        self.kept = Kept(setting.walk.state)
        self.ledger = Ledger(
            setting.log,
            setting.codec,
            keeps_references=setting.keeps_references,
            remembered=setting.remembered,
            is_running=not setting.is_submitted,
        )
        self.options = setting.options
        self.metadata = setting.metadata
        self.values = Values(setting.walk.state.created)
        self.bus = setting.bus
        self.stages = setting.bus.stages
        self.histories = setting.histories
        self.collector = ExecutionCollector(setting.metadata, self.ledger.encode)
        self._feed = Feed(setting.execution_id, setting.bus, setting.options)
        self.ledger.connect(self._feed, setting.histories, self.collector)
        self.timers = Timers()
        self.crew = Crew(setting.pool, self.timers)
        self.tally = Tally()
        self.cutting = Cutting(self)
        self._setting = setting
        self._pool = setting.pool
        self._post = post
        self._on_finish = on_finish
        self._began = time.monotonic()
        self._careful = CAREFUL_STARTS if setting.after_crash else 0
        self._warnings: list[str] = []
        self._journal_warned = len(setting.warnings)
        self._has_begun = False
        #: Facts applied whose consequences wait for their commit, or for those who are told of them first.
        self.unsettled = 0
        #: Calls to plugins that wait for a worker, and what follows each.
        self._errands: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        #: Attempts that interceptors let pass and that wait for a worker.
        self._let_pass: deque[Attempt] = deque()
        #: What came before the plugins were told that the execution begins.
        self._early: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self._is_told_of_end = False
        #: What must have nothing beside it while it is under way.
        self._alone: Attempt | None = None
        #: Whether the pool was asked for a place.
        self._is_in_line = False
        #: The commit of the end, once it was handed over.
        self._end_ticket: Ticket | None = None
        #: Until when the thread of submitted walks has put it aside.
        self.scheduled_at: float | None = None
        # Shared with other threads, under the lock:
        self._lock = threading.Lock()
        #: A stop is on its way to the owner.
        self._stop_asked = False
        #: A cancel is being recorded: nothing begins.
        self._cancel_flag = False
        #: Why it is to be cancelled, once that is recorded and until it is a fact.
        self._cancel_reason: str | None = None
        self._ending = False
        self._callbacks: list[Callable[[], None]] = []
        # Written by the owner before ``over`` is set, read by others after:
        self.over = threading.Event()
        self.error: BaseException | None = None
        #: The thread that walks, where it is the caller's.
        self.owner: int | None = None
        self.status = ExecutionStatus.RUNNING
        self.duration = 0.0

    # --- any thread ---------------------------------------------------------------------------------

    def post(self, fn: Callable[..., object], *args: Any) -> None:
        """Have the owner call ``fn(*args)``, unless the walk is over by then."""
        if not self.over.is_set():
            self._post(self, lambda: self._receive(fn, args))

    def _receive(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.begin()
        if self._early is not None and fn not in (self._begin, self.cutting.stop):
            self._early.append((fn, args))
        elif not self.over.is_set():
            fn(*args)

    def call_of(self, instance: Instance) -> Call:
        """The function of a step, or the agent that stands for it."""
        return instance.node.run or self._setting.calls[instance.node]

    def lend(self) -> AbstractContextManager[None]:
        """Free the calling worker's place while it waits for a nested run."""
        return self._pool.lend()

    def flag_cancel(self) -> bool:
        """Start nothing more, because a cancel is about to be recorded; False when the execution has ended."""
        with self._lock:
            if self._ending:
                return False
            self._cancel_flag = True
            return True

    def unflag_cancel(self) -> None:
        """The cancel could not be recorded after all."""
        with self._lock:
            self._cancel_flag = self._cancel_reason is not None
        self.wake()

    def confirm_cancel(self, reason: str) -> None:
        """The cancel is recorded: whatever ends from now on, the execution does not complete."""
        with self._lock:
            if self._cancel_reason is not None or self.walk.state.cancelled is not None:
                return  # what runs now is the clean-up
            self._cancel_reason = reason
        for attempt in self.crew.all():
            attempt.cancel("cancelled", for_good=True)
        self.wake()

    def request_cancel(self, reason: str) -> None:
        """Cancel a nested run with its parent, whose cancel is recorded already."""
        if self.flag_cancel():
            self.confirm_cancel(reason)

    def on_request(self, request: Request, done: Callable[[int], None]) -> None:
        """A request came in from outside."""
        if request.kind == "cancel" and self.flag_cancel():
            # An inline body holds up the owner; it is asked to end here and now.
            self.confirm_cancel(request.body)
        self.post(self.cutting.carry_out, request, done)

    def request_stop(self, reason: str, grace: float = CANCEL_GRACE) -> None:
        """Stop in good order: nothing begins, what runs has ``grace`` seconds, the rest is cut short."""
        self._stop_asked = True
        for attempt in self.crew.all():
            attempt.cancel(reason, grace=grace)  # an inline body holds up the owner; it is asked to end here and now
        self.post(self.cutting.stop, reason, grace)

    def wake(self) -> None:
        """Have the owner look for what it can do."""
        self.post(_nothing)

    def when_over(self, fn: Callable[[], None]) -> None:
        """Call ``fn`` once the walk is over; at once if it is."""
        with self._lock:
            if not self.over.is_set():
                self._callbacks.append(fn)
                return
        fn()

    def warn(self, message: str) -> None:
        """Something went wrong beside the walk."""
        self._warnings.append(message)

    @property
    def is_bounded(self) -> bool:
        """Whether the walk may have to end before what it runs does."""
        return self._setting.is_bounded or self.walk.state.timeout is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong beside the walk, the journal's warnings of the meantime included."""
        return (*self._warnings, *self._setting.warnings[self._journal_warned :])

    # --- the owner's thread ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Take up the walk: queue all that is due. A request or a stop that is there before begins it, too."""
        if self.over.is_set() or self._has_begun:
            return
        self._has_begun = True
        self.bus.open_execution(self.execution_id, self.collector)
        first, facts = self._setting.opening
        if facts:
            self._feed.add(first, facts)
        if not self.stages.has_execution_hooks:
            self._begin()
            return
        self._early = []
        self._send(lambda: self.bus.before_execution(self.execution_state()), self._begin)

    def _begin(self) -> None:
        early, self._early = self._early or (), None
        if self.cutting.is_stopping:
            return
        self.tally.start(self.walk.state)
        self.walk.telling.before, self.walk.telling.after = self.stages.has_before, self.stages.has_after
        self.walk.begin()
        timeout = self.walk.state.timeout
        if timeout is not None and self.options.has_timeouts:
            self.timers.after(timeout, self.cutting.execution_overdue, timeout)
        self.collect()
        for fn, args in early:
            if not self.over.is_set():
                fn(*args)

    def pump(self) -> Work | None:
        """Do what can be done now without waiting. Returns a piece of work that the owner is to run itself."""
        if self.over.is_set():
            return None
        self._heed()
        self.timers.fire()
        has_errands = self._send_errands()
        if self._early is not None and not self.cutting.is_stopping:
            return None
        if self.cutting.is_stopping:
            while self._let_pass:
                self._give_up(self._let_pass.popleft())
            if not has_errands:
                self._want_no_place()
            self.cutting.try_finish()
            return None
        if has_errands or self._is_barred:
            if not has_errands:
                self._want_no_place()
            return None
        return self._dispatch()

    @property
    def _is_barred(self) -> bool:
        """Whether a cancel is recorded, or about to be, and is no fact yet: then nothing begins."""
        return self._cancel_flag and self.walk.state.cancelled is None

    def _heed(self) -> None:
        """Make a recorded cancel a fact, before anything else becomes one."""
        if self._cancel_reason is not None:
            self.cutting.cancel(self._cancel_reason)

    def turn(self) -> None:
        """One turn of a submitted walk, whose thread runs no work itself."""
        work = self.pump()
        assert work is None
        if not self.over.is_set():
            self.check_progress()

    def next_at(self) -> float | None:
        """When ``pump`` has something to do even if no message comes, in seconds of the monotonic clock."""
        return self.timers.next_at()

    def run_inline(self, work: Work) -> None:
        """Run a piece of work on the owner's own thread."""
        attempt = self._new_attempt(work)
        self.crew.join(attempt)
        if self._asks_first(attempt) and not self._heard(attempt, decide(attempt), inline=True):
            return
        if not self._start(attempt, inline=True):
            self.crew.leave(attempt)
            return
        answer = perform(attempt)
        if attempt.close():
            self.answered(attempt, answer, inline=True)

    # --- handing out work ---------------------------------------------------------------------------------

    def _dispatch(self) -> Work | None:
        if self.options.on_caller:
            work = None if self.crew else self.walk.next_work()
            self.collect()
            return work
        work = self._sole_work()
        if work is not None or not self._send_out():
            self._want_no_place()
        return work

    def _sole_work(self) -> Work | None:
        """The only thing that can be done, while nothing else can happen: the owner may as well do it itself."""
        if self._setting.is_submitted or self.is_bounded or not self.options.may_inline:
            return None
        if self.crew or self.unsettled or self.timers.pending or self._errands:
            return None
        work = self.walk.next_work()
        other = None if work is None else self.walk.next_work()
        self.collect()
        if work is None or (other is None and work.instance.node.spec.timeout is None):
            return work
        if other is not None:
            self.walk.put_back(other)
        self.walk.put_back(work)
        return None

    def _send_out(self) -> bool:
        """Hand out work to free workers. Returns whether there is more than they can take."""
        while self._let_pass:
            if not self._hold_place():
                return True
            self._let_begin(self._let_pass.popleft())
        while not (self.walk.is_idle() or self._is_barred or self._runs_alone() or self._awaits_order()):
            if not self._hold_place():
                return True
            work = self.walk.next_work()
            self.collect()
            if work is not None and self.crew and _is_last_chance(work):
                self.walk.put_back(work)  # until what is under way has ended
                work = None
            if work is None:
                self._pool.release(self)
                break
            attempt = self._new_attempt(work)
            self._alone = attempt if _is_last_chance(work) else None
            self.crew.join(attempt)
            if self._asks_first(attempt):
                attempt.seat = self._pool.run(self, lambda attempt=attempt: self._decide_on_worker(attempt))  # type: ignore[misc]
            elif self._start(attempt, inline=False):
                self._go(attempt)
        return False

    def _hold_place(self) -> bool:
        if self._pool.try_hold(self):
            return True
        self._is_in_line = True
        self._pool.line_up(self, self.wake)
        return False

    # --- interceptors ---------------------------------------------------------------------------------------

    def _asks_first(self, attempt: Attempt) -> bool:
        """Whether interceptors are asked before the attempt begins."""
        return self.stages.has_interceptors and attempt.kind is WorkKind.BODY

    def _decide_on_worker(self, attempt: Attempt) -> None:
        try:
            verdict = decide(attempt)
        except BaseException as error:
            if attempt.close():
                self.post(self._broken, error)
            return
        self.post(self._heard, attempt, verdict)

    def _heard(self, attempt: Attempt, verdict: Answer | None, *, inline: bool = False) -> bool:
        """The interceptors have spoken. Returns whether the attempt may begin here and now."""
        instance = attempt.instance
        # It was cut short, skipped or set back meanwhile: then it does not begin, whatever they said.
        is_void = attempt.is_over or self.cutting.is_stopping or self._stop_asked or instance.epoch != attempt.epoch
        if is_void or not may_begin(instance) or instance.phase not in (Phase.PENDING, Phase.RETRYING):
            self._give_up(attempt)
            return False
        if verdict is None:
            if not inline:
                self._let_pass.append(attempt)
            return inline
        attempt.close()
        self.crew.leave(attempt)
        if isinstance(verdict, Failure):
            refusal = refuse(instance, verdict, stopping=self.cutting.bars(instance))
            self.hand_over(refusal, instance, inline=inline)
        else:
            self.hand_over(verdict[0], instance, verdict[1], inline=inline)
        return False

    def _let_begin(self, attempt: Attempt) -> None:
        """Use the place that is held for an attempt that interceptors let pass."""
        instance = attempt.instance
        if attempt.is_over or instance.epoch != attempt.epoch or not may_begin(instance) or instance.phase in FINAL:
            self._pool.release(self)
            self._give_up(attempt)
        elif self._start(attempt, inline=False):
            self._go(attempt)

    def _give_up(self, attempt: Attempt) -> None:
        attempt.close()
        self.crew.leave(attempt)

    # --- calls to plugins that are no part of an attempt -----------------------------------------------------

    def _send(self, call: Callable[[], None], then: Callable[[], None], *, inline: bool = False) -> None:
        """Have plugins called where they may be waited for, and ``then`` on this thread."""
        is_free = not (self._setting.is_submitted or self.crew or self.timers.pending)
        if inline or self.options.on_caller or is_free:
            call()
            then()
            return
        self._errands.append((call, then))
        self._send_errands()

    def _send_errands(self) -> bool:
        """Send out what waits. Returns whether there is more than workers can take."""
        while self._errands:
            if not self._hold_place():
                return True
            call, then = self._errands.popleft()
            self._pool.run(self, lambda call=call, then=then: self._run_errand(call, then))  # type: ignore[misc]
        return False

    def _run_errand(self, call: Callable[[], None], then: Callable[[], None]) -> None:
        """On a worker."""
        try:
            call()
        except BaseException as error:
            self.post(self._broken, error)
        else:
            self.post(then)

    def execution_state(self, instance: Instance | None = None) -> ExecutionState:
        """How the execution stands, for plugins: as a step's body would see it, or as it is now."""
        state = self.walk.state
        scope = state.root if instance is None else instance.scope
        writes = len(scope.writes) if instance is None else instance.snapshot
        names = ("routes", "tools", "memory_hits", "scoring_signals")
        return ExecutionState(
            self.execution_id,
            state.root.graph.workflow.id,
            "" if instance is None else instance.node.id,
            scope.round,
            self.values.snapshot(scope, writes),
            Steps(self.kept),
            **({} if self.histories is None else self.histories.read(*names)),
        )

    def _awaits_order(self) -> bool:
        """With one worker a run is deterministic: what comes next is decided when all that follows from the step before
        is known, however fast it was and however long its commit takes."""
        return self._pool.size == 1 and (self.unsettled > 0 or self.crew.has_news())

    def _runs_alone(self) -> bool:
        """Whether what is under way must have nothing beside it."""
        return self._alone is not None and self.crew.of(self._alone.instance) is self._alone

    def _want_no_place(self) -> None:
        """There is no work for another worker: let others have what is offered to this walk."""
        if self._is_in_line:
            self._is_in_line = False
            self._pool.step_aside(self)

    def _new_attempt(self, work: Work) -> Attempt:
        number = work.instance.attempt + (work.kind is WorkKind.BODY)
        attempt = Attempt(self, work, max(number, 1), self._setting.variables.copy())
        if not self.options.has_timeouts or work.kind in (WorkKind.VERDICT, *TELLING):
            attempt.timeout = None
        return attempt

    def _start(self, attempt: Attempt, *, inline: bool) -> bool:
        """Journal the start of a body. False when the body has to wait for its commit, or will never run."""
        if attempt.kind is not WorkKind.BODY:
            return True
        instance = attempt.instance
        fact = f.Started(instance.path, instance.scope.round, attempt.epoch, attempt.number)
        careful = self._careful > 0 or instance.node.spec.delivery is Delivery.AT_MOST_ONCE
        self._careful -= self._careful > 0
        fact.verdict = attempt.verdict
        ticket = self.ledger.append((fact,), lazy=not careful)
        self.walk.apply(fact, instance)
        if not careful or (ticket.done and ticket.error is None):
            return True
        if inline:
            return self._wait(ticket)
        ticket.add_callback(lambda t: self.post(self._start_committed, attempt, t))
        return False

    def _start_committed(self, attempt: Attempt, ticket: Ticket) -> None:
        if ticket.error is None and not (attempt.is_over or attempt.cancelled or self.cutting.is_stopping):
            self._go(attempt)
            return
        self._pool.release(self)
        if attempt.close():
            self.crew.leave(attempt)
            if ticket.error is None:
                self.cutting.cut_unbegun(attempt)
        if ticket.error is not None:
            self.cutting.fail(ticket.error)

    def _go(self, attempt: Attempt) -> None:
        self.crew.send(attempt, self._on_worker, self.cutting.overdue)

    def _on_worker(self, attempt: Attempt) -> None:
        """On the worker: do the work, and tell the owner."""
        try:
            answer = perform(attempt)
        except BaseException as error:
            # A defect, or a late body that found its attempt taken to pieces: nobody may wait for this for ever.
            if attempt.close():
                self.post(self._broken, error)
            return
        if attempt.close():
            self.post(self.answered, attempt, answer)

    def _broken(self, error: BaseException) -> None:
        raise error

    # --- what comes back ----------------------------------------------------------------------------------

    def answered(self, attempt: Attempt, answer: Answer, *, inline: bool = False) -> None:
        """An attempt that was closed came to this."""
        self._heed()
        self.crew.leave(attempt)
        instance = attempt.instance
        if attempt.kind in TELLING:
            if not self.cutting.is_stopping:
                self.walk.told(attempt.work)
                self.collect()
            return
        if self.cutting.is_interrupted or instance.epoch != attempt.epoch or not _fits(attempt):
            return  # it was cut short, skipped or set back meanwhile: a late answer changes nothing
        if isinstance(answer, Failure):
            if self._stop_asked or self.cutting.is_stopping:
                return  # it was asked to end: how it failed is no judgement on the step, which runs again
            fact: f.InstanceFact = judge(instance, answer, stopping=self.cutting.bars(instance))
            self.hand_over(fact, instance, inline=inline)
        else:
            self.hand_over(answer[0], instance, answer[1], inline=inline)

    def hand_over(self, fact: f.InstanceFact, instance: Instance, body: Any = None, *, inline: bool = False) -> None:
        """Give a fact to the journal, apply it, and let its consequences happen when that is safe.

        In this order, so that a Ctrl-C between the two leaves a fact that is journaled and not one that is missing.
        """
        tells = self.stages.has_after and (instance.index is None or self.stages.per_item) and _is_outcome(fact)
        held: list[Place] = []
        ticket = self.ledger.append((fact,), None if body is None else (body,), held=held)
        self.walk.apply(fact, instance)
        self.tally.add(fact, instance)
        if not self.options.is_sync:
            ticket.add_callback(self._check_commit)
            self._conclude(fact, instance, held, tells=tells, inline=inline)
        elif inline:
            if self._wait(ticket):
                self._conclude(fact, instance, held, tells=tells, inline=True)
            else:
                self._feed.release(held, is_lost=True)
        elif ticket.done and ticket.error is None:
            self._conclude(fact, instance, held, tells=tells)
        else:
            self.unsettled += 1
            ticket.add_callback(lambda t: self.post(self._committed, fact, instance, held, tells, t))

    def _conclude(
        self, fact: f.InstanceFact, instance: Instance, held: list[Place], *, tells: bool, inline: bool = False
    ) -> None:
        """A fact is as safe as was asked for: tell those who are told of outcomes first, then let things happen."""
        if not tells:
            if held:
                self._feed.release(held)
            self.settle(fact, instance)
            return
        result = step_result(instance)
        self.unsettled += 1

        def told() -> None:
            self._feed.release(held)
            self.unsettled = max(0, self.unsettled - 1)
            if self.error is None and not self.cutting.is_interrupted:
                self.settle(fact, instance)

        self._send(lambda: self.bus.after_step(self.execution_id, result), told, inline=inline)

    def hand_over_now(self, fact: f.DeadlinePassed | f.CancelRequested, instance: Instance | None) -> Ticket:
        """A fact that bars what has not begun: it takes effect at once."""
        ticket = self.ledger.append((fact,))
        self.walk.apply(fact, instance)
        ticket.add_callback(self._check_commit)
        self.settle(fact, instance)
        return ticket

    def _check_commit(self, ticket: Ticket) -> None:
        """Any thread. A commit that nobody waited for failed: that ends the walk, but in ``best_effort``."""
        if ticket.error is not None and not self.options.is_best_effort:
            self.post(self.cutting.fail, ticket.error)

    def _wait(self, ticket: Ticket) -> bool:
        try:
            ticket.wait(COMMIT_TIMEOUT)
        except StoreError as error:
            self.cutting.fail(error)
        except TimeoutError:
            self.cutting.fail(StoreError("the store", f"no commit within {COMMIT_TIMEOUT:g} s", self.execution_id))
        else:
            return True
        return False

    def _committed(
        self, fact: f.InstanceFact, instance: Instance, held: list[Place], tells: bool, ticket: Ticket
    ) -> None:
        self._heed()
        self.unsettled = max(0, self.unsettled - 1)
        if ticket.error is not None:
            self._feed.release(held, is_lost=True)
            self.cutting.fail(ticket.error)
        elif self.error is None:
            self._conclude(fact, instance, held, tells=tells)

    def settle(self, fact: f.Fact, instance: Instance | None) -> None:
        """Let the consequences of a fact happen."""
        self.walk.settle(fact, instance)
        self.collect()

    def collect(self) -> None:
        """Journal what followed, and carry out what the walk wants."""
        facts, commands = self.walk.drain()
        if self.cutting.is_interrupted:
            return  # nothing comes after that in the journal; whoever resumes decides the same
        if facts:
            last = facts[-1][0]
            for fact, instance in facts:
                self.tally.add(fact, instance)
            happened = [fact for fact, _ in facts]
            if isinstance(last, f.Ended):
                self._end(last, happened)
            else:
                self.ledger.append(happened).add_callback(self._check_commit)
        for command in commands:
            match command:
                case RetryIn():
                    self._retry(command)
                case StartTimer() if self.options.has_timeouts:
                    self.timers.after(command.timeout, self.cutting.child_overdue, command, command.instance.attempt)
                case CutShort():
                    self.cutting.cut_short(command)

    def _retry(self, command: RetryIn) -> None:
        if self.options.on_caller or command.delay <= 0:
            self._due(command)
        else:
            self.timers.after(command.delay, self._due, command)

    def _due(self, command: RetryIn) -> None:
        self.walk.due(command.instance, command.epoch, command.attempt)
        self.collect()

    # --- the end -----------------------------------------------------------------------------------------------

    def _end(self, ended: f.Ended, facts: Sequence[f.Fact]) -> None:
        with self._lock:
            self._ending = True  # from here on it is too late for a cancel
        error = "" if ended.error is None else str(ended.error)
        self._end_ticket = self.ledger.append(facts, status=ended.status, error=error)
        self._end_ticket.add_callback(lambda _: self.post(self.conclude))
        if self._end_ticket.done:
            self.conclude()

    def conclude(self) -> bool:
        """Finish, if the end was handed over and is committed. Returns whether it was handed over."""
        ended, ticket = self.walk.state.ended, self._end_ticket
        if ended is None or ticket is None:
            return False
        if ticket.done:
            self._ended(ended, ticket)
        return True

    def _ended(self, ended: f.Ended, ticket: Ticket) -> None:
        if ticket.error is not None:
            if not self.options.is_best_effort:
                self.error = ticket.error
                self.finish(ExecutionStatus.INTERRUPTED)
                return
            self.warn(f"the end is not stored: {ticket.error}")
        if not self.stages.has_execution_hooks:
            self.finish(ended.status)
        elif not self._is_told_of_end:
            self._is_told_of_end = True
            self._send(lambda: self._tell_of_end(ended.status), lambda: self.finish(ended.status))

    def _tell_of_end(self, status: ExecutionStatus) -> None:
        duration = time.monotonic() - self._began
        self.bus.after_execution(outcome_of(self.kept, self.histories, status=status, duration=duration))
        ticket = self.ledger.flush()
        if ticket is not None:
            try:
                ticket.wait(COMMIT_TIMEOUT)
            except (StoreError, TimeoutError) as error:
                self.warn(f"what plugins recorded of the end is not stored: {error}")

    def finish(self, status: ExecutionStatus) -> None:
        """The walk is over; nobody is told before its claim is given back."""
        if self.over.is_set():
            return
        self.status = status
        self.duration = time.monotonic() - self._began
        self.timers.clear()
        self._pool.leave(self)
        self.collector.close()
        self._feed.end()
        self._warnings += self.bus.close_execution(self.execution_id)
        try:
            self._on_finish(self)
        finally:
            with self._lock:
                self.over.set()
                callbacks, self._callbacks = self._callbacks, []
            for fn in callbacks:
                fn()

    def check_progress(self) -> None:
        """Raise if the walk can never move again: a defect, found instead of a hang."""
        waits = self.crew or self.unsettled or self.timers.pending or self._is_in_line or self.cutting.is_stopping
        waits = waits or self._early is not None
        if not (waits or self.over.is_set() or self._cancel_flag or self._ending) and self.walk.is_idle():
            raise WalkError(f"execution {self.execution_id!r} can do nothing any more, but has not ended")


def _is_outcome(fact: f.InstanceFact) -> bool:
    """Whether an attempt, or all of a step, came to something that plugins are told of."""
    if isinstance(fact, f.Failed):
        return fact.after is not f.After.RECONCILE
    return isinstance(fact, f.Succeeded | f.Completed)


def _nothing() -> None:
    """A message that only wakes the owner."""


def _is_last_chance(work: Work) -> bool:
    """Whether one more death of the process would be the end of a step. Then nothing runs beside it: it must not fail
    for what another did."""
    instance = work.instance
    limit = instance.node.spec.max_crashes
    return work.kind is WorkKind.BODY and limit is not None and 0 < instance.crashes >= limit - 1


def _fits(attempt: Attempt) -> bool:
    """Whether the instance still waits for this very answer."""
    phase = attempt.instance.phase
    match attempt.kind:
        case WorkKind.CONDITION:
            return phase is Phase.PENDING
        case WorkKind.BODY:
            return phase is Phase.RUNNING and attempt.instance.attempt == attempt.number
        case WorkKind.RECONCILE:
            return phase in (Phase.RECONCILING, Phase.PENDING)
        case WorkKind.ROUTE:
            return phase is Phase.ROUTING
        case _:
            return phase is Phase.OPEN
