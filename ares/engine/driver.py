"""The owner of one walk: takes messages, applies and numbers facts, hands out work, and decides nothing.

Everything in here but the few methods marked *any thread* runs on one thread: the one that called ``run``, or the one
that all submitted walks share. Others reach it by ``post``. A worker posts the outcome of its attempt; the owner
applies it, hands it to the journal, and lets its consequences happen once it is committed (``sync``), or at once.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Context as ContextVars
from typing import Any

import attrs

from ares.engine.attempt import Attempt
from ares.engine.jobs import Answer, perform, unrouted
from ares.engine.options import CANCEL_GRACE, COMMIT_TIMEOUT, Options
from ares.engine.pool import WorkerPool
from ares.engine.timers import Timer, Timers
from ares.engine.variables import Values
from ares.errors import (
    AresError,
    LeaseLostError,
    StepCancelledError,
    StepTimeoutError,
    StoreError,
    WalkError,
)
from ares.journal.encoding import encode
from ares.journal.notes import Note, Remembered
from ares.journal.protocol import ExecutionLog, Request, Ticket
from ares.plugin.bus import Bus
from ares.records import ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f
from ares.walk.judge import Failure, describe, judge
from ares.walk.state import Instance
from ares.walk.table import FINAL, Phase
from ares.walk.walk import CutShort, RetryIn, StartTimer, Walk, Work, WorkKind
from ares.workflow import Call, Delivery

Draft = tuple[str, str, Any]

#: After a crash, so many starts are committed before their bodies: one of them may be what killed the process, and
#: a start that was lost with it could never be counted.
CAREFUL_STARTS = 64


@attrs.define(eq=False)
class Setting:
    """What a walk is given to work with."""

    execution_id: str
    walk: Walk
    log: ExecutionLog
    codec: Codec | None
    options: Options
    pool: WorkerPool
    bus: Bus
    calls: Mapping[Any, Call]
    metadata: Mapping[str, str]
    variables: ContextVars
    remembered: dict[tuple[str, int, str], Any]
    keeps_references: bool
    warnings_before: int = 0
    is_submitted: bool = False
    after_crash: bool = False


class Driver:
    """Walks one execution to its end, or until it is stopped."""

    def __init__(
        self,
        setting: Setting,
        post: Callable[[Callable[[], None]], None],
        on_finish: Callable[["Driver"], None],
    ) -> None:
        self._on_finish = on_finish
        self.execution_id = setting.execution_id
        self.walk = setting.walk
        self.log = setting.log
        self.options = setting.options
        self.metadata = setting.metadata
        self.values = Values()
        self.bus = setting.bus
        self.hooks = setting.bus if setting.bus.hooks_steps() else None
        self.commit_timeout = COMMIT_TIMEOUT
        self._setting = setting
        self._post = post
        self._pool = setting.pool
        self._timers = Timers()
        self._began = time.monotonic()
        self._careful = CAREFUL_STARTS if setting.after_crash else 0
        self._attempts: dict[Instance, Attempt] = {}
        self._clocks: dict[Attempt, Timer] = {}
        #: Facts applied whose consequences wait for their commit.
        self._unsettled = 0
        self._stop: str | None = None
        self._stop_timer: Timer | None = None
        self._interrupted = False
        self._said_running = not setting.is_submitted
        self.warnings: list[str] = []
        #: How many warnings the journal had given before.
        self.warnings_before = setting.warnings_before
        # Shared with other threads, under the lock:
        self._lock = threading.Lock()
        self._remembered = setting.remembered
        self._cancel_flag = False
        self._ending = False
        self._callbacks: list[Callable[[], None]] = []
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.status = ExecutionStatus.RUNNING
        self.duration = 0.0
        self.steps_total = len(self.walk.state.root.instances)
        self.steps_done = 0
        #: Until when the thread of submitted walks has put it aside.
        self.scheduled_at: float | None = None

    # --- any thread ---------------------------------------------------------------------------------

    def post(self, fn: Callable[..., None], *args: Any) -> None:
        """Have the owner call ``fn(*args)``."""
        self._post(lambda: fn(*args))

    def encode(self, entry: f.Fact | Note) -> Any:
        """The body of an entry as the store keeps it. Raises ``SerializationError``."""
        codec = self._setting.codec
        if codec is not None:
            text = encode(entry, codec)
            if not self._setting.keeps_references:
                return text
        if isinstance(entry, f.Failed | f.Unrouted):
            return attrs.evolve(entry, exception=None)  # its frames would live as long as the store
        return entry

    def note(self, note: Note, body: Any, *, lazy: bool = False) -> Ticket:
        """Journal something that is no fact of the walk. The caller holds its attempt's lock."""
        return self.log.append([(note.kind, note.path, body)], lazy=lazy)

    def recall(self, path: str, born: int, key: str) -> tuple[bool, Any]:
        """What ``once`` kept, and whether it did."""
        with self._lock:
            name = (path, born, key)
            return name in self._remembered, self._remembered.get(name)

    def remember(self, note: Remembered) -> None:
        """Keep what ``once`` committed."""
        with self._lock:
            self._remembered[note.path, note.born, note.key] = note.value

    def lend(self) -> AbstractContextManager[None]:
        """Free the calling worker's place while it waits for a nested run."""
        return self._pool.lend()

    def call_of(self, instance: Instance) -> Call:
        """The function of a step, or the agent that stands for it."""
        return instance.node.run or self._setting.calls[instance.node]

    def flag_cancel(self) -> bool:
        """Start nothing more, because a cancel is about to be recorded; False when the execution has ended."""
        with self._lock:
            if self._ending or self.over.is_set():
                return False
            self._cancel_flag = True
            attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel("cancelled", for_good=True)
        return True

    def request_cancel(self, reason: str) -> None:
        """Cancel a nested run with its parent, whose cancel is recorded already."""
        if self.flag_cancel():
            self.post(self._cancel, reason)

    def unflag_cancel(self) -> None:
        """The cancel could not be recorded after all."""
        with self._lock:
            self._cancel_flag = False
        self.post(self._nothing)

    def on_request(self, request: Request, done: Callable[[int], None]) -> None:
        """A request came in from outside."""
        self.post(self._carry_out, request, done)

    def request_stop(self, reason: str, grace: float = CANCEL_GRACE) -> None:
        """Stop in good order: nothing begins, what runs has ``grace`` seconds, the rest is cut short."""
        self.post(self.stop, reason, grace)

    def when_over(self, fn: Callable[[], None]) -> None:
        """Call ``fn`` once the walk is over; at once if it is."""
        with self._lock:
            if not self.over.is_set():
                self._callbacks.append(fn)
                return
        fn()

    def progress(self) -> tuple[int, int, list[tuple[str, float | None, float | None]]]:
        """Steps and elements that ended, how many there are so far, and what runs: (path, done, total)."""
        with self._lock:
            running = [(a.path, a.done, a.total) for a in self._attempts.values()]
            return self.steps_done, self.steps_total, running

    # --- the owner's thread ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Take up the walk: queue all that is due."""
        if self.over.is_set():
            return
        self._count(self.walk.state)
        self.walk.begin()
        if self.walk.state.timeout is not None and self.options.has_timeouts:
            self._timers.after(self.walk.state.timeout, self._out_of_time, self.walk.state.timeout)
        self._collect()

    def pump(self) -> Work | None:
        """Do what can be done now without waiting. Returns a piece of work that the owner is to run itself."""
        if self.over.is_set():
            return None
        self._timers.fire()
        if self._stop is not None:
            self._try_finish_stop()
            return None
        if self._cancel_flag and self.walk.state.cancelled is None:
            return None
        return self._dispatch()

    def next_at(self) -> float | None:
        """When ``pump`` has something to do even if no message comes, in seconds of the monotonic clock."""
        return self._timers.next_at()

    def run_inline(self, work: Work) -> None:
        """Run a piece of work on the owner's own thread."""
        attempt = self._new_attempt(work)
        if not self._start(attempt, inline=True):
            return
        self._register(attempt)
        answer = perform(attempt)
        if attempt.close():
            self._answered(attempt, answer, inline=True)

    def stop(self, reason: str, grace: float) -> None:
        """See ``request_stop``."""
        if self.over.is_set() or self._stop is not None:
            return
        self._stop = reason
        with self._lock:
            self._ending = True
            attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel(reason)
        self._stop_timer = self._timers.after(grace, self._cut_all)
        self._try_finish_stop()

    def fail(self, error: BaseException) -> None:
        """The walk cannot keep its promise any more: nothing new starts, what runs has the cancel grace."""
        if self.error is None:
            self.error = error
        self.stop(str(error), CANCEL_GRACE)

    def _append(self, drafts: list[Draft], *, status: str | None = None, error: str = "", lazy: bool = False) -> Ticket:
        """Hand facts to the journal; the first ones say that the execution is running now."""
        if status is None and not self._said_running:
            status = ExecutionStatus.RUNNING
        self._said_running = True
        return self.log.append(drafts, status=status, error=error, lazy=lazy)

    def turn(self) -> None:
        """One turn of a submitted walk, whose thread runs no work itself."""
        work = self.pump()
        if work is not None:
            self.run_inline(work)
            self.post(self._nothing)  # steps_on="caller": one after another
        elif not self.over.is_set():
            self.check_progress()

    def drop_inline(self) -> None:
        """The work that ran on the owner's own thread was torn away by a Ctrl-C."""
        with self._lock:
            attempts = [a for a in self._attempts.values() if a.worker is None]
        for attempt in attempts:
            attempt.cancel("interrupted")
            if attempt.close():
                self._drop(attempt)

    def crash(self, error: BaseException) -> None:
        """The walk cannot go on, for a reason that is no fact: a defect, or a second Ctrl-C."""
        with self._lock:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel("its walk failed")
            if attempt.close():
                self._drop(attempt)
                if attempt.worker is not None:
                    self._pool.abandon(attempt.worker)
        self.error = self.error or error
        self._finish(ExecutionStatus.INTERRUPTED)

    def _nothing(self) -> None:
        """A message that only wakes the owner."""

    # --- handing out work ---------------------------------------------------------------------------------

    def _dispatch(self) -> Work | None:
        walk = self.walk
        if self.options.on_caller:
            work = None if self._attempts else walk.next_work()
            self._collect()
            return work
        may_inline = not self._setting.is_submitted and self.options.may_inline
        if may_inline and not self._attempts and not self._unsettled and not self._timers.pending:
            work = walk.next_work()
            other = None if work is None else walk.next_work()
            self._collect()
            if work is None:
                return None
            if other is None and work.instance.node.spec.timeout is None:
                return work
            if other is not None:
                walk.put_back(other)
            walk.put_back(work)
        while not walk.is_idle():
            if not self._pool.try_reserve():
                self._pool.when_free(self._wake)
                break
            work = walk.next_work()
            self._collect()
            if work is None:
                self._pool.release()
                break
            self._launch(work)
        return None

    def _wake(self) -> None:
        self.post(self._nothing)

    def _new_attempt(self, work: Work) -> Attempt:
        number = work.instance.attempt + (work.kind is WorkKind.BODY)
        attempt = Attempt(self, work, max(number, 1), self._setting.variables.copy())
        if not self.options.has_timeouts or work.kind is WorkKind.VERDICT:
            attempt.timeout = None
        return attempt

    def _register(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts[attempt.instance] = attempt

    def _launch(self, work: Work) -> None:
        """Use the reserved worker for a piece of work."""
        attempt = self._new_attempt(work)
        self._register(attempt)
        if self._start(attempt, inline=False):
            self._go(attempt)

    def _go(self, attempt: Attempt) -> None:
        attempt.worker = self._pool.run(lambda: self._on_worker(attempt))
        if attempt.timeout is not None:
            self._clocks[attempt] = self._timers.after(attempt.timeout, self._check_clock, attempt)

    def _start(self, attempt: Attempt, *, inline: bool) -> bool:
        """Journal the start of a body. False when the body has to wait for its commit, or will never run."""
        if attempt.kind is not WorkKind.BODY:
            return True
        instance = attempt.instance
        fact = f.Started(instance.path, instance.scope.round, attempt.epoch, attempt.number)
        careful = self._careful > 0 or instance.node.spec.delivery is Delivery.AT_MOST_ONCE
        self._careful -= self._careful > 0
        ticket = self._append([(fact.kind, fact.path, self.encode(fact))], lazy=not careful)
        self.walk.apply(fact, instance)
        if not careful or (ticket.done and ticket.error is None):
            return True
        if inline:
            return self._wait(ticket)
        ticket.add_callback(lambda t: self.post(self._start_committed, attempt, t))
        return False

    def _start_committed(self, attempt: Attempt, ticket: Ticket) -> None:
        if ticket.error is not None or attempt.is_over or self._stop is not None or attempt.cancelled:
            self._pool.release()
            if ticket.error is not None:
                self.fail(ticket.error)
            if attempt.close():
                # It never began: what the journal says of its start is taken back by a cut.
                self._drop(attempt)
                self._cut_unbegun(attempt)
            return
        self._go(attempt)

    def _cut_unbegun(self, attempt: Attempt) -> None:
        instance = attempt.instance
        if self._stop is None and instance.phase is Phase.RUNNING:
            error = StepCancelledError(instance.path, "cancelled")
            self._hand_over(self._judge(attempt, Failure(describe(error), error, not_done=True)), instance)

    def _on_worker(self, attempt: Attempt) -> None:
        """On the worker: do the work, and tell the owner."""
        answer = perform(attempt)
        if attempt.close():
            self.post(self._answered, attempt, answer)

    # --- what comes back ----------------------------------------------------------------------------------

    def _drop(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts.pop(attempt.instance, None)
        clock = self._clocks.pop(attempt, None)
        if clock is not None:
            clock.stop()

    def _answered(self, attempt: Attempt, answer: Answer, *, inline: bool = False) -> None:
        self._drop(attempt)
        instance = attempt.instance
        if instance.epoch != attempt.epoch or not _fits(attempt):
            return  # it was skipped or set back meanwhile: a late answer changes nothing
        if isinstance(answer, Failure):
            fact: f.InstanceFact = self._judge(attempt, answer)
            body = self.encode(fact)
        else:
            fact, body = answer
        self._hand_over(fact, instance, body, inline=inline)

    def _judge(self, attempt: Attempt, failure: Failure) -> f.InstanceFact:
        state = self.walk.state
        stopping = state.cancelled is not None or state.overdue is not None or self._is_cut(attempt.instance)
        return judge(attempt.instance, failure, stopping=stopping)

    @staticmethod
    def _is_cut(instance: Instance) -> bool:
        return instance.scope.stop in (f.SkipReason.CANCELLED, f.SkipReason.TIMEOUT)

    def _hand_over(
        self, fact: f.InstanceFact, instance: Instance, body: Any = None, *, inline: bool = False
    ) -> None:
        """Give a fact to the journal, apply it, and let its consequences happen when that is safe.

        In this order, so that a Ctrl-C between the two leaves a fact that is journaled and not one that is missing.
        """
        ticket = self._append([(fact.kind, fact.path, self.encode(fact) if body is None else body)])
        self.walk.apply(fact, instance)
        self._tally(instance)
        if not self.options.is_sync:
            ticket.add_callback(self._check_commit)
        elif not ticket.done:
            if inline:
                if self._wait(ticket):
                    self._settle(fact, instance)
                return
            self._unsettled += 1
            ticket.add_callback(lambda t: self.post(self._committed, fact, instance, t))
            return
        elif ticket.error is not None:
            self.fail(ticket.error)
            return
        self._settle(fact, instance)

    def _check_commit(self, ticket: Ticket) -> None:
        """Any thread. In ``async``, a commit that fails ends the walk."""
        if ticket.error is not None and not self.options.is_best_effort:
            self.post(self.fail, ticket.error)

    def _wait(self, ticket: Ticket) -> bool:
        try:
            ticket.wait(self.commit_timeout)
        except (StoreError, TimeoutError) as error:
            self.fail(error if isinstance(error, StoreError) else self._slow_store())
            return False
        return True

    def _slow_store(self) -> StoreError:
        return StoreError(self._setting.log.claim.execution_id, f"no commit within {self.commit_timeout:g} s")

    def _committed(self, fact: f.Fact, instance: Instance | None, ticket: Ticket) -> None:
        self._unsettled -= 1
        if ticket.error is not None:
            self.fail(ticket.error)
        elif self.error is None:
            self._settle(fact, instance)

    def _settle(self, fact: f.Fact, instance: Instance | None) -> None:
        self.walk.settle(fact, instance)
        self._collect()

    def _collect(self) -> None:
        """Journal what followed, and carry out what the walk wants."""
        facts, commands = self.walk.drain()
        if facts:
            last = facts[-1][0]
            ended = last if isinstance(last, f.Ended) else None
            drafts = [(fact.kind, getattr(fact, "path", ""), self.encode(fact)) for fact, _ in facts]
            for fact, instance in facts:
                self._tally(instance, fact)
            if ended is None:
                self._append(drafts).add_callback(self._check_commit)
            else:
                self._end(ended, drafts)
        for command in commands:
            match command:
                case RetryIn():
                    self._retry(command)
                case StartTimer():
                    if self.options.has_timeouts:
                        self._timers.after(command.timeout, self._child_out_of_time, command)
                case CutShort():
                    self._cut_short(command)

    def _tally(self, instance: Instance | None, fact: f.Fact | None = None) -> None:
        if instance is None:
            return
        with self._lock:
            if isinstance(fact, f.Opened):
                self.steps_total += fact.length if fact.length is not None else len(instance.node.child.nodes)  # type: ignore[union-attr]
            elif instance.phase in FINAL or (instance.phase is Phase.ROUTING):
                self.steps_done += not isinstance(fact, f.Routed | f.Unrouted)

    def _count(self, state: Any) -> None:
        for scope in state.scopes.values():
            if scope is not state.root:
                self.steps_total += len(scope.instances)
            for instance in scope.instances:
                self.steps_done += instance.phase in FINAL
                if instance.parts is not None:
                    self.steps_total += instance.parts.length
                    self.steps_done += instance.parts.ended

    # --- time ----------------------------------------------------------------------------------------------

    def _retry(self, command: RetryIn) -> None:
        delay = 0.0 if self.options.on_caller else command.delay
        if delay <= 0:
            self.walk.due(command.instance, command.epoch, command.attempt)
            self._collect()
        else:
            self._timers.after(delay, self._due, command)

    def _due(self, command: RetryIn) -> None:
        self.walk.due(command.instance, command.epoch, command.attempt)
        self._collect()

    def _check_clock(self, attempt: Attempt) -> None:
        """The attempt's time may be up; it counts from when its body began."""
        self._clocks.pop(attempt, None)
        ends_at = attempt.deadline()
        assert attempt.timeout is not None
        left = attempt.timeout if ends_at is None else ends_at - time.monotonic()
        if left > 0:
            self._clocks[attempt] = self._timers.after(left, self._check_clock, attempt)
        elif attempt.close():
            self._abandon(attempt)
            path = attempt.path
            if attempt.kind is WorkKind.ROUTE:
                answer = unrouted(attempt, f"its router was still running after {attempt.timeout:g} s", None)
            else:
                error = StepTimeoutError(path, attempt.timeout)
                retryable = attempt.kind is WorkKind.BODY
                answer = Failure(describe(error), error, retryable=retryable, draw=self.options.draw())
                answer.duration = attempt.timeout
            self._answered(attempt, answer)

    def _abandon(self, attempt: Attempt) -> None:
        attempt.cancel("its time is up")
        if attempt.worker is not None:
            self._pool.abandon(attempt.worker)
            self.warnings.append(f"step {attempt.path!r} did not end in time: its thread was abandoned")

    def _child_out_of_time(self, command: StartTimer) -> None:
        instance = command.instance
        if instance.phase is Phase.OPEN and instance.epoch == command.epoch:
            self._hand_over_now(f.DeadlinePassed(instance.path, command.timeout, command.epoch), instance)

    def _out_of_time(self, timeout: float) -> None:
        self._hand_over_now(f.DeadlinePassed("", timeout), None)

    def _hand_over_now(self, fact: f.DeadlinePassed | f.CancelRequested, instance: Instance | None) -> None:
        """A fact that bars what has not begun: it takes effect at once."""
        self.walk.apply(fact, instance)
        self._append([(fact.kind, getattr(fact, "path", ""), self.encode(fact))]).add_callback(self._check_commit)
        self._settle(fact, instance)

    # --- stopping --------------------------------------------------------------------------------------------

    def _carry_out(self, request: Request, done: Callable[[int], None]) -> None:
        if request.kind != "cancel" or self.over.is_set() or self._stop is not None:
            return
        self._cancel(request.body)
        done(request.number)

    def _cancel(self, reason: str) -> None:
        if self.walk.state.cancelled is None and self.walk.state.ended is None and self._stop is None:
            self._hand_over_now(f.CancelRequested(reason), None)

    def _cut_short(self, command: CutShort) -> None:
        attempt = self._attempts.get(command.instance)
        if attempt is not None:
            attempt.cancel(command.reason, for_good=command.reason is f.SkipReason.CANCELLED)
            self._timers.after(CANCEL_GRACE, self._end_grace, attempt, command.reason)
        elif command.instance.epoch == command.epoch:
            self._fail_cut(Attempt(self, Work(_kind_of(command.instance), command.instance, command.epoch), 1, self._setting.variables), command.reason)

    def _end_grace(self, attempt: Attempt, reason: str) -> None:
        if attempt.close():
            self._abandon(attempt)
            self._drop(attempt)
            self._fail_cut(attempt, reason)

    def _fail_cut(self, attempt: Attempt, reason: str) -> None:
        instance = attempt.instance
        if instance.phase is Phase.ROUTING:
            fact, body = unrouted(attempt, f"no route: {reason}", None)  # type: ignore[misc]
            self._hand_over(fact, instance, body)
        elif instance.phase not in FINAL and instance.phase is not Phase.PENDING:
            error = StepCancelledError(instance.path, reason)
            self._hand_over(judge(instance, Failure(describe(error), error), stopping=True), instance)

    def _cut_all(self) -> None:
        """The grace of a stop is over: what still runs is abandoned."""
        with self._lock:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            if attempt.close():
                self._abandon(attempt)
                self._drop(attempt)
        self._unsettled = 0
        self._try_finish_stop()

    def _try_finish_stop(self) -> None:
        if self._attempts or self._unsettled or self._interrupted or self.walk.state.ended is not None:
            return
        self._interrupted = True
        if self._stop_timer is not None:
            self._stop_timer.stop()
        if isinstance(self.error, StoreError) or self.log.closed():
            self._finish(ExecutionStatus.INTERRUPTED)
            return
        state = self.walk.state
        in_flight = tuple(i.path for i in state.instances() if i.phase is Phase.RUNNING)
        fact = f.Interrupted(in_flight, self._stop or "")
        ticket = self._append([(fact.kind, "", self.encode(fact))])
        ticket.add_callback(lambda t: self.post(self._stopped, t))

    def _stopped(self, ticket: Ticket) -> None:
        if ticket.error is not None and self.error is None and not self.options.is_best_effort:
            self.error = ticket.error
        self._finish(ExecutionStatus.INTERRUPTED)

    # --- the end -----------------------------------------------------------------------------------------------

    def _end(self, ended: f.Ended, drafts: list[Draft]) -> None:
        with self._lock:
            self._ending = True
        error = "" if ended.error is None else str(ended.error)
        ticket = self._append(drafts, status=ended.status, error=error)
        if ticket.done:
            self._ended(ended, ticket)
        else:
            ticket.add_callback(lambda t: self.post(self._ended, ended, t))

    def _ended(self, ended: f.Ended, ticket: Ticket) -> None:
        if ticket.error is not None:
            if not self.options.is_best_effort:
                self.error = ticket.error
                self._finish(ExecutionStatus.INTERRUPTED)
                return
            self.warnings.append(f"the end is not stored: {ticket.error}")
        self._finish(ended.status)

    def _finish(self, status: ExecutionStatus) -> None:
        if self.over.is_set():
            return
        self.status = status
        self.duration = time.monotonic() - self._began
        self._on_finish(self)
        with self._lock:
            self.over.set()
            callbacks, self._callbacks = self._callbacks, []
        for fn in callbacks:
            fn()

    def check_progress(self) -> None:
        """Raise if the walk can never move again: a defect, found instead of a hang."""
        stuck = not (
            self.over.is_set()
            or self._attempts
            or self._unsettled
            or self._timers.pending
            or self._stop is not None
            or self._cancel_flag
            or self._ending
        )
        if stuck and self.walk.is_idle() and self.walk.state.ended is None:
            raise WalkError(f"execution {self.execution_id!r} can do nothing any more, but has not ended")


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


def _kind_of(instance: Instance) -> WorkKind:
    return WorkKind.ROUTE if instance.phase is Phase.ROUTING else WorkKind.RECONCILE


__all__ = ["AresError", "Driver", "LeaseLostError", "Setting"]
