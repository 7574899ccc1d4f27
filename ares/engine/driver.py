"""The owner of one walk: takes messages, applies and numbers facts, hands out work, and decides nothing.

Everything in here but the methods marked *any thread* runs on one thread: the one that called ``run``, or the one that
all submitted walks share. Others reach it by ``post``. A worker posts the outcome of its attempt; the owner gives it to
the journal, applies it, and lets its consequences happen once it is committed (``sync``), or at once.

What other threads may ask of a walk is told in ``ares.engine.outside``, how work gets a thread in
``ares.engine.dispatch``, how it comes to an early end in ``ares.engine.cutting``, what plugins hear of it in
``ares.engine.telling``, and how humans are asked in ``ares.engine.asking``.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context as ContextVars
from typing import Any

from ares.engine.asking import Asking
from ares.engine.attempt import Attempt
from ares.engine.clocks import Clocks
from ares.engine.crew import Crew
from ares.engine.cutting import Cutting
from ares.engine.dispatch import Dispatch
from ares.engine.feed import Place
from ares.engine.jobs import TELLING, Answer
from ares.engine.ledger import Ledger
from ares.engine.options import COMMIT_TIMEOUT
from ares.engine.outside import Outside
from ares.engine.results import Kept
from ares.engine.rounds import Rounds
from ares.engine.setting import Setting
from ares.engine.slots import Slots
from ares.engine.tally import Tally
from ares.engine.telling import Telling
from ares.engine.timers import Timers
from ares.engine.variables import Values
from ares.errors import StoreError, WalkError
from ares.journal.protocol import Ticket
from ares.postbox import Latch
from ares.records import ExecutionStatus
from ares.walk import facts as f
from ares.walk.judge import Failure, judge
from ares.walk.state import Instance
from ares.walk.table import Phase
from ares.walk.walk import CutShort, RetryIn, StartTimer, Work, WorkKind
from ares.workflow import Call

#: What a piece of work comes to.
Outcome = f.InstanceFact | f.RoundEnded

#: With a step: its replacement among the calls of agents.
REPLACEMENT = "replacement"


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
        self.telling = Telling(self, setting.bus, setting.options, setting.histories)
        self.timers = Timers()
        self.clocks = Clocks(self.timers)
        self.crew = Crew(setting.pool, self.timers)
        self.tally = Tally()
        self.outside = Outside(self)
        self.cutting = Cutting(self)
        self.asking = Asking(self, setting.reader, setting.asked_at)
        self.rounds = Rounds(self)
        slots = Slots(self, setting.pools)
        self.dispatch = Dispatch(
            self, setting.pool, slots, is_submitted=setting.is_submitted, after_crash=setting.after_crash
        )
        self._setting = setting
        self._pool = setting.pool
        self._post = post
        self._on_finish = on_finish
        self.began = time.monotonic()
        self._warnings: list[str] = []
        self._journal_warned = len(setting.warnings)
        self._has_begun = False
        #: Facts applied whose consequences wait for their commit, or for those who are told of them first.
        self.unsettled = 0
        #: What came before the plugins were told that the execution begins.
        self._early: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        #: The commit of the end, once it was handed over.
        self._end_ticket: Ticket | None = None
        #: Until when the thread of submitted walks has put it aside.
        self.scheduled_at: float | None = None
        # Written by the owner before ``over`` is set, read by others after:
        self.over = Latch()
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
        self.asking.look_again()
        waits = self._early is not None and not self.cutting.is_stopping
        if self._early is not None and waits and fn not in (self._begin, self.cutting.stop, self.cutting.lose):
            self._early.append((fn, args))
        elif not self.over.is_set():
            fn(*args)

    def call_of(self, instance: Instance) -> Call:
        """The function of a step, or the agent that stands for it, or for it once it was recovered."""
        calls, node = self._setting.calls, instance.node
        if instance.recoveries and (node, REPLACEMENT) in calls:
            return calls[node, REPLACEMENT]
        return node.run or calls[node]

    def copy_variables(self) -> ContextVars:
        """The caller's context variables, for one attempt."""
        return self._setting.variables.copy()

    def lend(self) -> AbstractContextManager[None]:
        """Free the calling worker's place while it waits for a nested run."""
        return self._pool.lend()

    def wake(self) -> None:
        """Have the owner look for what it can do."""
        self.post(_nothing)

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
        self._early = []
        if not self.telling.begin(self._setting.opening, self._begin):
            self._begin()

    def _begin(self) -> None:
        early, self._early = self._early or (), None
        if self.outside.is_asked_to_stop:
            return
        self.tally.start(self.walk.state)
        self.walk.telling.before, self.walk.telling.after = self.stages.has_before, self.stages.has_after
        if self.options.interrupt_handler is not None:
            self.walk.answer_here()
        self.walk.has_controllers = self.stages.has_loop
        self.walk.begin()
        timeout = self.walk.state.timeout
        if timeout is not None and self.options.has_timeouts:
            self.clocks.start(None, timeout, self.cutting.execution_overdue, timeout)
        self.collect()
        for fn, args in early:
            if not self.over.is_set():
                fn(*args)

    def pump(self) -> Work | None:
        """Do what can be done now without waiting. Returns a piece of work that the owner is to run itself."""
        if self.over.is_set():
            return None
        self.outside.heed()
        self.timers.fire()
        if self.walk.waits() or self.clocks.has_halted:
            self.clocks.adjust()
        if self.over.is_set():
            return None  # it ended just now, and has left all lines
        has_errands = self.dispatch.send_errands()
        if self.cutting.is_stopping:
            self.dispatch.drop()
            self.cutting.try_finish()
            return None
        if has_errands or self._early is not None:
            return None
        if self.outside.is_barred or self.outside.is_asked_to_stop:
            self.dispatch.pause()
            return None
        return self.dispatch.next()

    def turn(self) -> None:
        """One turn of a submitted walk, whose thread runs no work itself."""
        work = self.pump()
        assert work is None
        if not self.over.is_set():
            self.check_progress()

    def next_at(self) -> float | None:
        """When ``pump`` has something to do even if no message comes, in seconds of the monotonic clock."""
        return min(filter(None, (self.asking.next_at(), self.timers.next_at())), default=None)

    # --- what comes back ----------------------------------------------------------------------------------

    def broken(self, error: BaseException) -> None:
        """A defect on another thread is one of the walk."""
        raise error

    def answered(self, attempt: Attempt, answer: Answer, *, inline: bool = False) -> None:
        """An attempt that was closed came to this."""
        self.outside.heed()
        self.crew.leave(attempt)
        instance = attempt.instance
        if attempt.kind in TELLING:
            if not self.cutting.is_stopping:
                self.walk.told(attempt.work)
                self.collect()
            return
        if attempt.kind is WorkKind.ROUND:
            self.rounds.answered(attempt, answer, inline=inline)
            return
        if self.cutting.is_interrupted or instance.epoch != attempt.epoch or not _fits(attempt):
            return  # it was cut short, skipped or set back meanwhile: a late answer changes nothing
        if attempt.kind is WorkKind.ASK:
            self._was_asked(instance, answer)
        elif isinstance(answer, Failure):
            if self.outside.is_asked_to_stop:
                return  # it was asked to end: how it failed is no judgement on the step, which runs again
            fact: f.InstanceFact = judge(instance, answer, stopping=self.cutting.bars(instance))
            self.hand_over(fact, instance, inline=inline)
        else:
            self.hand_over(answer[0], instance, answer[1], inline=inline)

    def _was_asked(self, instance: Instance, answer: Answer) -> None:
        """Whoever answers questions here was asked one."""
        if isinstance(answer, Failure):
            self.asking.unanswered(instance, answer)
            return
        fact, body = answer
        if isinstance(fact, f.Answered) and self.walk.state.accepts(fact, instance):
            self.hand_over(fact, instance, body)

    def hand_over(self, fact: Outcome, instance: Instance, body: Any = None, *, inline: bool = False) -> Ticket:
        """Give a fact to the journal, apply it, and let its consequences happen when that is safe.

        In this order, so that a Ctrl-C between the two leaves a fact that is journaled and not one that is missing.
        """
        self.asking.stir()
        tells = self.telling.wants(fact, instance)
        held: list[Place] = []
        ticket = self.ledger.append((fact,), None if body is None else (body,), held=held)
        self.walk.apply(fact, instance)
        self.tally.add(fact, instance)
        self.asking.note(fact)
        if not self.options.is_sync:
            ticket.add_callback(self._check_commit)
            self._conclude(fact, instance, held, tells=tells, inline=inline)
        elif inline:
            if self.wait_for(ticket):
                self._conclude(fact, instance, held, tells=tells, inline=True)
            else:
                self.telling.feed.release(held, is_lost=True)
        elif ticket.done and ticket.error is None:
            self._conclude(fact, instance, held, tells=tells)
        else:
            self.unsettled += 1
            ticket.add_callback(lambda t: self.post(self._committed, fact, instance, held, tells, t))
        return ticket

    def _conclude(
        self, fact: Outcome, instance: Instance, held: list[Place], *, tells: bool, inline: bool = False
    ) -> None:
        """A fact is as safe as was asked for: tell those who are told of outcomes first, then let things happen."""
        if tells:
            self.telling.conclude(fact, instance, held, inline=inline)
            return
        if held:
            self.telling.feed.release(held)
        self.settle(fact, instance)

    def hand_over_now(self, fact: f.ExecutionFact, instance: Instance | None) -> Ticket:
        """A fact that takes effect at once: it bars what has not begun, or whoever loses it decides the same again."""
        self.asking.stir()
        ticket = self.ledger.append((fact,))
        self.walk.apply(fact, instance)
        ticket.add_callback(self._check_commit)
        self.settle(fact, instance)
        return ticket

    def _check_commit(self, ticket: Ticket) -> None:
        """Any thread. A commit that nobody waited for may have failed."""
        if self.options.ends_with(ticket.error):
            self.post(self.cutting.fail, ticket.error)

    def wait_for(self, ticket: Ticket) -> bool:
        """Wait for a commit. False if it failed, which ends the walk."""
        try:
            ticket.wait(COMMIT_TIMEOUT)
        except StoreError as error:
            self.cutting.fail(error)
        except TimeoutError:
            self.cutting.fail(StoreError("the store", f"no commit within {COMMIT_TIMEOUT:g} s", self.execution_id))
        else:
            return True
        return False

    def _committed(self, fact: Outcome, instance: Instance, held: list[Place], tells: bool, ticket: Ticket) -> None:
        self.outside.heed()
        self.unsettled = max(0, self.unsettled - 1)
        if ticket.error is not None:
            self.telling.feed.release(held, is_lost=True)
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
                self.asking.note(fact)
                self.rounds.note(fact, instance)
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
                    self.clocks.start(
                        command.instance, command.timeout, self.cutting.child_overdue, command, command.instance.attempt
                    )
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
        self.outside.end()
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

    def end_now(self) -> bool:
        """As ``conclude``, and wait for nobody who is told of the end."""
        ended, ticket = self.walk.state.ended, self._end_ticket
        if ended is not None and ticket is not None and ticket.done and ticket.error is None:
            self.finish(ended.status)
        return self.conclude()

    def _ended(self, ended: f.Ended, ticket: Ticket) -> None:
        if ticket.error is not None:
            if self.options.ends_with(ticket.error):
                self.error = ticket.error
                self.finish(ExecutionStatus.INTERRUPTED)
                return
            self.warn(f"the end is not stored: {ticket.error}")
        self.telling.end(ended.status, time.monotonic() - self.began, lambda: self.finish(ended.status))

    def finish(self, status: ExecutionStatus) -> None:
        """The walk is over; nobody is told before its claim is given back."""
        if self.over.is_set():
            return
        self.status = status
        self.duration = time.monotonic() - self.began
        self.timers.clear()
        self.dispatch.leave()
        self._warnings += self.telling.close()
        try:
            self._on_finish(self)
        finally:
            self.tell_over()

    def tell_over(self) -> None:
        """Let everybody know that the walk is over; once more, of an interruption."""
        self.over.set()
        self.outside.come_to_rest()

    def check_progress(self) -> None:
        """Come to rest if all that is left waits for answers. Raise if the walk can never move again: a defect, found
        instead of a hang."""
        waits = self.crew or self.unsettled or self.timers.pending > self.clocks.ticking or self._early is not None
        waits = waits or self.dispatch.is_in_line or self.outside.is_asked_to_stop or self.asking.is_resting
        if waits or self.over.is_set() or self.outside.is_barred or self.outside.is_too_late or not self.walk.is_idle():
            return
        if self.walk.waits():
            self.asking.rest()
        else:
            raise WalkError(f"execution {self.execution_id!r} can do nothing any more, but has not ended")


def _nothing() -> None:
    """A message that only wakes the owner."""


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
        case WorkKind.ASK:
            return phase is Phase.WAITING
        case WorkKind.ROUTE:
            return phase is Phase.ROUTING
        case _:
            return phase is Phase.OPEN
