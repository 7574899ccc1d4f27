"""How the work of one walk gets a thread: the owner's own, or a worker's place in the pool.

Work is pulled only once there is a place for it, and a slot of the pool that its step names. An attempt of a body goes
through at most four stages: interceptors are asked, its start is journaled, that is committed where it has to be, the
body runs. Between the stages it may have to wait for a place again, and may be cut short. All on the thread that owns
the walk, except what says otherwise.
"""

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ares.engine.attempt import Attempt
from ares.engine.elsewhere import goes_elsewhere
from ares.engine.jobs import TELLING, Answer, decide, perform
from ares.engine.pool import WorkerPool
from ares.engine.slots import Slots
from ares.journal.protocol import Ticket
from ares.walk import facts as f
from ares.walk.judge import Failure, refuse
from ares.walk.stopping import may_begin
from ares.walk.table import Phase
from ares.walk.walk import Work, WorkKind
from ares.workflow import Delivery

if TYPE_CHECKING:
    from ares.engine.driver import Driver

#: After a crash, so many starts are committed before their bodies: one of them may be what killed the process, and
#: a start that was lost with it could never be counted.
CAREFUL_STARTS = 64


class Dispatch:
    """Hands out the work of one walk.

    Args:
        driver: the walk's owner.
        pool: the workers.
        slots: those of named pools.
        is_submitted: the owner's thread runs no work itself.
        after_crash: the last owner died.
    """

    def __init__(
        self, driver: "Driver", pool: WorkerPool, slots: Slots, *, is_submitted: bool, after_crash: bool
    ) -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._ref = weakref.ref(driver)
        #: Places are held by this, which keeps no walk.
        self._pool = pool
        self.slots = slots
        self._is_submitted = is_submitted
        self._careful = CAREFUL_STARTS if after_crash else 0
        #: Calls to plugins that are no part of an attempt and wait for a worker, and what follows each.
        self._errands: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        #: Attempts that interceptors let pass and that wait for a worker.
        self._let_pass: deque[Attempt] = deque()
        #: What must have nothing beside it while it is under way.
        self._alone: Attempt | None = None
        #: Whether the pool was asked for a place.
        self.is_in_line = False

    @property
    def _driver(self) -> "Driver":
        driver = self._ref()
        assert driver is not None
        return driver

    # --- turns --------------------------------------------------------------------------------------------

    def next(self) -> Work | None:
        """Hand out what can be done now. Returns a piece of work that the owner is to run itself."""
        driver, slots = self._driver, self.slots
        if slots.closed:
            slots.look()
        if driver.over.is_set():
            return None  # that was its end, and it has left all lines
        if driver.options.on_caller:
            work = None if driver.crew else driver.walk.next_work(slots.takes)
            driver.collect()
        else:
            work = self._sole_work()
            if work is not None or not self._send_out():
                self._want_no_place()
        if slots.is_waiting and work is not None:
            slots.drop(keep=work.pool)  # nobody looks at offers until it has ended
        elif slots.in_hand:
            slots.put_down(keep=self._kept_pool())
        return work

    def drop(self) -> None:
        """Nothing begins any more: forget what waits to."""
        while self._let_pass:
            self._give_up(self._let_pass.popleft())
        self.slots.drop()
        if not self._errands:
            self._want_no_place()

    def pause(self) -> None:
        """Nothing begins for now: let others have what is offered to this walk."""
        self.slots.drop()
        self._want_no_place()

    def _want_no_place(self) -> None:
        """There is no work for another worker: let others have what is offered to this walk."""
        if self.is_in_line:
            self.is_in_line = False
            self._pool.step_aside(self)

    def _kept_pool(self) -> str | None:
        """The pool of which a slot is kept: that of the next work, if it waits for nothing but a worker, or for what
        has ended already."""
        waits = self.is_in_line or self._awaits_order()
        return self._driver.walk.next_pool(self.slots.closed) if waits else None

    def leave(self) -> None:
        """The walk is over."""
        self.slots.leave()
        self._pool.leave(self)

    def run_inline(self, work: Work) -> None:
        """Run a piece of work on the owner's own thread."""
        driver = self._driver
        attempt = self._new_attempt(work)
        driver.crew.join(attempt)
        if self._asks_first(attempt):
            attempt.is_waiting = True
            if not self._heard(attempt, decide(attempt), inline=True):
                return
        if not self._start(attempt, inline=True):
            driver.crew.leave(attempt)
            return
        answer = perform(attempt)
        if attempt.close():
            driver.answered(attempt, answer, inline=True)

    def _sole_work(self) -> Work | None:
        """The only thing that can be done, while nothing else can happen: the owner may as well do it itself."""
        driver = self._driver
        if self._is_submitted or driver.is_bounded or not driver.options.may_inline:
            return None
        if driver.walk.waits():
            return None  # an answer may come in, and something begin beside it
        if driver.crew or driver.unsettled or driver.timers.pending or self._errands or self.slots.closed:
            return None
        walk = driver.walk
        work = walk.next_work(self.slots.takes)
        other = None if work is None else walk.next_work()
        driver.collect()
        if work is None:
            return None
        if other is None and work.instance.node.spec.timeout is None and not goes_elsewhere(work):
            return work
        if other is not None:
            walk.put_back(other)
        walk.put_back(work)
        return None

    def _send_out(self) -> bool:
        """Hand out work to free workers. Returns whether there is more than they can take."""
        driver, walk, closed = self._driver, self._driver.walk, self.slots.closed
        while self._let_pass:
            if not self._hold_place():
                return True
            self._let_begin(self._let_pass.popleft())
        while not (walk.is_idle(closed) or driver.outside.is_barred or self._runs_alone() or self._awaits_order()):
            if not self._hold_place():
                return True
            work = walk.next_work(self.slots.takes)
            driver.collect()
            if work is not None and driver.crew and _is_last_chance(work):
                walk.put_back(work)  # until what is under way has ended
                work = None
            if work is None:
                self._pool.release(self)
                break
            attempt = self._new_attempt(work)
            self._alone = attempt if _is_last_chance(work) else None
            driver.crew.join(attempt)
            if self._asks_first(attempt):
                attempt.is_waiting = True
                attempt.seat = self._pool.run(self, _job(self._decide_on_worker, attempt))
            elif self._start(attempt, inline=False):
                self._go(attempt)
        return False

    def _hold_place(self) -> bool:
        if self._pool.try_hold(self):
            return True
        self.is_in_line = True
        self._pool.line_up(self, self._driver.wake)
        return False

    def _awaits_order(self) -> bool:
        """With one worker a run is deterministic: what comes next is decided when all that follows from the step before
        is known, however fast it was and however long its commit takes."""
        driver = self._driver
        if self._pool.size > 1:
            return False
        asks = driver.stages.has_interceptors and len(driver.crew) > 0  # its place is free between two stages
        return asks or driver.unsettled > 0 or driver.crew.has_news()

    def _runs_alone(self) -> bool:
        """Whether what is under way must have nothing beside it."""
        return self._alone is not None and self._driver.crew.of(self._alone.instance) is self._alone

    # --- one attempt -----------------------------------------------------------------------------------------

    def _new_attempt(self, work: Work) -> Attempt:
        driver = self._driver
        begins = work.kind is WorkKind.BODY and work.instance.phase is not Phase.ANSWERED
        number = work.instance.attempt + begins
        attempt = Attempt(driver, work, max(number, 1), driver.copy_variables())
        if work.pool is not None:
            attempt.slot = self.slots.use(work.pool)
        if not driver.options.has_timeouts or work.kind in (WorkKind.VERDICT, WorkKind.ASK, *TELLING):
            attempt.timeout = None
        return attempt

    def _asks_first(self, attempt: Attempt) -> bool:
        """Whether interceptors are asked before the attempt begins."""
        return self._driver.stages.has_interceptors and attempt.kind is WorkKind.BODY and not attempt.goes_on

    def _decide_on_worker(self, attempt: Attempt) -> None:
        """On the worker: ask the interceptors, and tell the owner."""
        driver = attempt.driver
        try:
            verdict = decide(attempt)
        except BaseException as error:
            if attempt.close():
                driver.post(driver.broken, error)
            return
        driver.post(self._heard, attempt, verdict)

    def _heard(self, attempt: Attempt, verdict: Answer | None, *, inline: bool = False) -> bool:
        """The interceptors have spoken. Returns whether the attempt may begin here and now."""
        driver, instance = self._driver, attempt.instance
        driver.outside.heed()
        if driver.outside.is_asked_to_stop or not _may_begin(attempt):
            self._give_up(attempt)  # whatever they said
            return False
        if verdict is None and inline:
            return self._is_free(attempt)
        if verdict is None:
            self._let_pass.append(attempt)
            return False
        self._give_up(attempt)
        if isinstance(verdict, Failure):
            refusal = refuse(instance, verdict, stopping=driver.cutting.bars(instance))
            driver.hand_over(refusal, instance, inline=inline)
        else:
            driver.hand_over(verdict[0], instance, verdict[1], inline=inline)
        return False

    def _let_begin(self, attempt: Attempt) -> None:
        """Use the place that is held for an attempt that interceptors let pass."""
        if not _may_begin(attempt):
            self._pool.release(self)
            self._give_up(attempt)
        elif not self._is_free(attempt):
            self._pool.release(self)
        elif self._start(attempt, inline=False):
            self._go(attempt)

    def _is_free(self, attempt: Attempt) -> bool:
        """From here on whoever cancels tells the attempt so itself. If a cancel is on its way already, it is given up
        until that is a fact, which decides what becomes of it."""
        attempt.is_waiting = False
        if not self._driver.outside.is_barred:
            return True
        self._give_up(attempt)
        self._driver.walk.put_back(attempt.work)
        return False

    def _give_up(self, attempt: Attempt) -> None:
        attempt.close()
        self._driver.crew.leave(attempt)

    def _start(self, attempt: Attempt, *, inline: bool) -> bool:
        """Journal the start of a body. False when the body has to wait for its commit, or will never run."""
        if attempt.kind is not WorkKind.BODY:
            return True
        driver, instance = self._driver, attempt.instance
        head = (instance.path, instance.scope.round, attempt.epoch, attempt.number)
        fact = f.Continued(*head) if attempt.goes_on else f.Started(*head, attempt.verdict)
        careful = self._careful > 0 or instance.node.spec.delivery is Delivery.AT_MOST_ONCE
        self._careful -= self._careful > 0
        ticket = driver.ledger.append((fact,), lazy=not careful)
        driver.walk.apply(fact, instance)
        if not careful or (ticket.done and ticket.error is None):
            return True
        if inline:
            return driver.wait_for(ticket)
        ticket.add_callback(lambda t: driver.post(self._start_committed, attempt, t))
        return False

    def _start_committed(self, attempt: Attempt, ticket: Ticket) -> None:
        driver = self._driver
        if ticket.error is None and not (attempt.is_over or attempt.cancelled or driver.cutting.is_stopping):
            self._go(attempt)
            return
        self._pool.release(self)
        if attempt.close():
            driver.crew.leave(attempt)
            if ticket.error is None:
                driver.cutting.cut_unbegun(attempt)
        if ticket.error is not None:
            driver.cutting.fail(ticket.error)

    def _go(self, attempt: Attempt) -> None:
        driver = self._driver
        attempt.seat = self._pool.run(self, _job(_on_worker, attempt))
        driver.crew.time(attempt, driver.cutting.overdue)

    # --- calls to plugins that are no part of an attempt ---------------------------------------------------------

    def send(self, call: Callable[[], None], then: Callable[[], None], *, inline: bool = False) -> None:
        """Have plugins called where they may be waited for, and ``then`` on this thread.

        Args:
            call: waits for plugins.
            then: what follows.
            inline: this thread was running a step, and nothing else can happen meanwhile.
        """
        driver = self._driver
        is_free = not (self._is_submitted or driver.crew or driver.timers.pending or self.slots.is_waiting)
        if inline or driver.options.on_caller or is_free:
            call()
            then()
            return
        self._errands.append((call, then))
        self.send_errands()

    def send_errands(self) -> bool:
        """Send out what waits. Returns whether there is more than workers can take."""
        while self._errands:
            if not self._hold_place():
                return True
            call, then = self._errands.popleft()
            self._pool.run(self, _errand(self._driver, call, then))
        return False


def _job(fn: Callable[[Attempt], None], attempt: Attempt) -> Callable[[], None]:
    return lambda: fn(attempt)


def _on_worker(attempt: Attempt) -> None:
    """On the worker: do the work, and tell the owner."""
    driver = attempt.driver
    try:
        answer = perform(attempt)
    except BaseException as error:
        # A defect, or a late body that found its attempt taken to pieces: nobody may wait for this for ever.
        if attempt.close():
            driver.post(driver.broken, error)
        return
    if attempt.close():
        driver.post(driver.answered, attempt, answer)


def _errand(driver: "Driver", call: Callable[[], None], then: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            call()
        except BaseException as error:
            driver.post(driver.broken, error)
        else:
            driver.post(then)

    return run


def _may_begin(attempt: Attempt) -> bool:
    """Whether nothing has cut it short, skipped it or set it back since it was made."""
    instance = attempt.instance
    waits = instance.phase in (Phase.PENDING, Phase.RETRYING) and instance.epoch == attempt.epoch
    return waits and not attempt.is_over and may_begin(instance)


def _is_last_chance(work: Work) -> bool:
    """Whether one more death of the process would be the end of a step. Then nothing runs beside it: it must not fail
    for what another did."""
    instance = work.instance
    limit = instance.node.spec.max_crashes
    return work.kind is WorkKind.BODY and limit is not None and 0 < instance.crashes >= limit - 1
