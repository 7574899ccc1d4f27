"""How work under way comes to an early end: timeouts, cancels, and stops of the whole walk.

A *timeout* ends one attempt: its thread is abandoned and replaced. A *cancel*, and a deadline of the execution or of a
sub-workflow, are facts: what has not begun is skipped, what runs is asked to end and is abandoned after the grace. A
*stop* (close, Ctrl-C, a store that fails) is no fact about any step: nothing begins, what runs has a grace, and then
the rest is journaled as cut short, to go on with at the next resume. All on the thread that owns the walk.
"""

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ares.engine.attempt import Attempt
from ares.engine.elsewhere import left_running
from ares.engine.failing import needs_recovery, recovers
from ares.engine.jobs import Answer, unrouted
from ares.engine.options import CANCEL_GRACE, INTERRUPT_GRACE
from ares.engine.timers import Timer
from ares.errors import LeaseLostError, StepCancelledError, StepTimeoutError, StoreError
from ares.journal.protocol import Request, Ticket
from ares.records import ExecutionStatus
from ares.walk import facts as f
from ares.walk.judge import Failure, describe, judge
from ares.walk.state import Instance
from ares.walk.table import FINAL, Phase
from ares.walk.walk import CutShort, StartTimer, WorkKind

if TYPE_CHECKING:
    from ares.engine.driver import Driver


#: Seconds in which an answer comes that was posted already.
_IN_A_MOMENT = 0.1


class Cutting:
    """Ends the work of one walk early."""

    def __init__(self, driver: "Driver") -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._driver: Driver = weakref.proxy(driver)
        self._stop: str | None = None
        self._grace: Timer | None = None
        #: Whether the walk was journaled as interrupted, and takes no facts any more.
        self.is_interrupted = False
        #: Paths of attempts that a Ctrl-C tore away.
        self._dropped: dict[str, None] = {}
        #: The commit of the fact that the execution is cancelled.
        self._cancelling: Ticket | None = None

    # --- time -------------------------------------------------------------------------------------------

    def overdue(self, attempt: Attempt) -> None:
        """An attempt's time was up, and it was closed for it."""
        driver = self._driver
        timeout = attempt.timeout or 0.0
        self._abandon(attempt, "its time is up")
        if attempt.kind is WorkKind.ROUTE:
            fact = unrouted(attempt.instance, f"its router was still running after {timeout:g} s", None)
            answer: Answer = (fact, driver.ledger.encode(fact))
        elif attempt.kind is WorkKind.ROUND:
            answer = driver.rounds.late(attempt, timeout)
        else:
            error = StepTimeoutError(attempt.path, timeout)
            retryable = attempt.kind is WorkKind.BODY
            draw = driver.options.draw()
            answer = failure = Failure(describe(error), error, retryable=retryable, draw=draw, duration=timeout)
            if needs_recovery(attempt, retryable=retryable):
                self._recover(attempt, failure, error)
                return
        driver.answered(attempt, answer)

    def _recover(self, attempt: Attempt, failure: Failure, error: StepTimeoutError) -> None:
        """Ask whether a step whose last attempt was overdue is to be recovered."""
        driver = self._driver
        said: list[bool] = []
        driver.unsettled += 1

        def answered() -> None:
            owner = attempt.driver
            owner.unsettled = max(0, owner.unsettled - 1)
            failure.recovers = said == [True]
            owner.answered(attempt, failure)

        driver.dispatch.send(lambda: said.append(recovers(attempt, error)), answered)

    def child_overdue(self, command: StartTimer, attempt: int) -> None:
        """A sub-workflow's time may be up."""
        instance = command.instance
        is_same = instance.epoch == command.epoch and instance.attempt == attempt
        if instance.phase is Phase.OPEN and is_same and not self.is_stopping:
            fact = f.DeadlinePassed(instance.path, command.timeout, command.epoch)
            self._driver.hand_over_now(fact, instance)

    def execution_overdue(self, timeout: float) -> None:
        """The execution's time is up."""
        if self._driver.walk.state.ended is None and not self.is_stopping:
            self._driver.hand_over_now(f.DeadlinePassed("", timeout), None)

    # --- cancels ------------------------------------------------------------------------------------------

    def carry_out(self, request: Request, done: Callable[[int], None]) -> None:
        """Do what was asked from outside. Left for the next owner if this walk is ending."""
        if request.kind != "cancel" or self._driver.over.is_set() or self.is_stopping:
            return
        self.cancel(request.body)
        if self._cancelling is None:
            _carried_out(request, done)
        else:
            # Only once the fact is committed may the request go: a crash in between must not lose both.
            self._cancelling.add_callback(lambda t: None if t.error else _carried_out(request, done))

    def cancel(self, reason: str) -> None:
        """Make a cancel a fact."""
        state = self._driver.walk.state
        if state.cancelled is None and state.ended is None and not self.is_stopping:
            self._cancelling = self._driver.hand_over_now(f.CancelRequested(reason), None)

    def bars(self, instance: Instance) -> bool:
        """Whether a failed attempt of the instance is not followed by another."""
        state = self._driver.walk.state
        cut = instance.scope.stop in (f.SkipReason.CANCELLED, f.SkipReason.TIMEOUT)
        return cut or state.cancelled is not None or state.overdue is not None

    def cut_short(self, command: CutShort) -> None:
        """The walk wants an instance to end: ask its attempt, or fail it at once if none is under way."""
        driver = self._driver
        attempt = driver.crew.of(command.instance)
        if attempt is not None:
            attempt.cancel(command.reason, for_good=command.reason is f.SkipReason.CANCELLED)
            driver.crew.watch(attempt, CANCEL_GRACE, self._end_grace, attempt, command.reason)
        elif command.instance.epoch == command.epoch:
            self._fail(command.instance, command.reason)

    def cut_unbegun(self, attempt: Attempt) -> None:
        """A start was committed, and then the body was not to begin any more. A stop says so by itself."""
        instance = attempt.instance
        if not self.is_stopping and instance.phase is Phase.RUNNING:
            error = StepCancelledError(instance.path, "cancelled before it began")
            failure = Failure(describe(error), error, not_done=True)
            self._driver.hand_over(judge(instance, failure, stopping=True), instance)

    def _end_grace(self, attempt: Attempt, reason: str) -> None:
        if attempt.close():
            self._abandon(attempt, reason)
            if attempt.kind is WorkKind.ROUND:
                self._driver.rounds.cut_short(attempt)
            else:
                self._fail(attempt.instance, reason)

    def _abandon(self, attempt: Attempt, reason: str) -> None:
        name = left_running(attempt)
        if name:
            self._driver.warn(f"step {attempt.path!r} may still run on executor {name!r}, which cannot stop it")
        # A thread that waits for an executor hears of this, and is free.
        if self._driver.crew.abandon(attempt, reason) and attempt.bell is None:
            self._driver.warn(f"step {attempt.path!r} did not end in time: its thread was abandoned")

    def _fail(self, instance: Instance, reason: str) -> None:
        driver = self._driver
        if instance.phase is Phase.ROUTING:
            driver.hand_over(unrouted(instance, f"no route: {reason}", None), instance)
        elif instance.phase not in FINAL and instance.phase is not Phase.PENDING:
            error = StepCancelledError(instance.path, reason)
            driver.hand_over(judge(instance, Failure(describe(error), error), stopping=True), instance)

    # --- stops ---------------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether the walk is being stopped: nothing begins any more."""
        return self._stop is not None

    def stop(self, reason: str, grace: float) -> None:
        """Stop in good order: what runs has ``grace`` seconds."""
        driver = self._driver
        if driver.over.is_set():
            return
        if self._grace is not None:
            self._hurry(grace)
            return
        self._stop = reason
        for attempt in driver.crew.all():
            attempt.cancel(reason, grace=grace)
        self._grace = driver.timers.after(grace, self._cut_all)
        self.try_finish()

    def _hurry(self, grace: float) -> None:
        """It is being stopped, and now there is less time for it."""
        if self._grace is not None and self._grace.is_pending and time.monotonic() + grace < self._grace.when:
            self._grace.stop()
            self._grace = self._driver.timers.after(grace, self._cut_all)

    def fail(self, error: BaseException) -> None:
        """The walk cannot keep its promise any more: nothing new starts, what runs has the cancel grace."""
        if self._driver.error is None:
            self._driver.error = error
        self.stop(str(error), CANCEL_GRACE)

    def lose(self, error: LeaseLostError) -> None:
        """Nothing more can be written. Of an end that was handed over the store says whether it came in time."""
        if self._driver.walk.state.ended is None:
            self.fail(error)

    def try_finish(self) -> None:
        """Finish the stop once nothing is under way."""
        driver = self._driver
        if driver.crew or driver.unsettled or self.is_interrupted or driver.conclude():
            return
        ended = driver.walk.state.ended
        if ended is not None and driver.ledger.has_ended:
            # A Ctrl-C tore the ticket away, and nothing comes behind the end. To give the claim back waits for it.
            driver.finish(ended.status)
            return
        if driver.asking.is_resting and driver.error is None:
            self._finish_at_rest()
            return
        self.is_interrupted = True
        if self._grace is not None:
            self._grace.stop()
        if not driver.ledger.is_running:
            driver.finish(ExecutionStatus.PENDING)  # it never began, and goes on being submitted
            return
        ticket = self._write_interrupted()
        if ticket is None:
            driver.finish(ExecutionStatus.INTERRUPTED)
        else:
            ticket.add_callback(lambda t: driver.post(self._stopped, t))

    def _finish_at_rest(self) -> None:
        """It waits for answers, and that is journaled, or about to be: nothing is cut short."""
        self.is_interrupted = True
        if self._grace is not None:
            self._grace.stop()
        ticket = self._driver.asking.ticket
        assert ticket is not None
        ticket.add_callback(self._committed_at_rest)

    def _committed_at_rest(self, ticket: Ticket) -> None:
        status = ExecutionStatus.WAITING if ticket.error is None else ExecutionStatus.INTERRUPTED
        self._driver.post(self._driver.finish, status)

    def _write_interrupted(self) -> Ticket | None:
        """Journal what is cut short, which counts against none of it. None where nothing can be journaled any more."""
        driver = self._driver
        if isinstance(driver.error, StoreError) or driver.ledger.log.closed():
            return None
        running = {i.path: None for i in driver.walk.state.instances() if i.phase is Phase.RUNNING}
        fact = f.Interrupted(tuple(running | self._dropped), self._stop or "")
        return driver.ledger.append((fact,))

    def _stopped(self, ticket: Ticket) -> None:
        driver = self._driver
        if driver.error is None and driver.options.ends_with(ticket.error):
            driver.error = ticket.error
        driver.finish(ExecutionStatus.INTERRUPTED)

    def _cut_all(self) -> None:
        """The grace of a stop is over: what still runs is abandoned."""
        driver = self._driver
        for attempt in driver.crew.all():
            if attempt.close():
                self._abandon(attempt, self._stop or "")
            driver.crew.leave(attempt)  # also where its answer was lost to a Ctrl-C
        driver.unsettled = 0
        if driver.walk.state.ended is not None and not driver.end_now():
            driver.finish(ExecutionStatus.INTERRUPTED)  # its end was not even handed over
        self.try_finish()

    def drop_inline(self) -> None:
        """The work that ran on the owner's own thread was torn away by a Ctrl-C."""
        for attempt in self._driver.crew.all():
            if attempt.seat is None:
                attempt.cancel("interrupted", grace=INTERRUPT_GRACE)
                attempt.close()
                self._driver.crew.leave(attempt)
                # Its start may be journaled and not applied.
                self._dropped[attempt.path] = None
        self._driver.unsettled = 0  # what would follow is decided anew

    def expect_no_lost_answer(self) -> None:
        """After a Ctrl-C: if all that is under way has ended, its answers are here in a moment, or were torn away."""
        if all(attempt.is_over for attempt in self._driver.crew.all()):
            self._hurry(_IN_A_MOMENT)

    def crash(self, error: BaseException) -> None:
        """The walk cannot go on, for a reason that is no fact: a defect, or a second Ctrl-C."""
        driver = self._driver
        if driver.over.is_set():
            return
        for attempt in driver.crew.all():
            if attempt.close():
                self._abandon(attempt, "its walk failed")
        driver.error = driver.error or error
        if not self.is_interrupted and driver.walk.state.ended is None:
            self.is_interrupted = True
            with suppress(Exception):  # what it was in the middle of may be what is broken
                self._write_interrupted()
        driver.finish(ExecutionStatus.INTERRUPTED)


def _carried_out(request: Request, done: Callable[[int], None]) -> None:
    # If the request stays it is carried out once more, and that changes nothing.
    with suppress(StoreError):
        done(request.number)
