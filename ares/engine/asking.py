"""The questions of one walk: how their answers come in, who is asked here, and what happens when nothing else is left.

A walk *rests* when all that is left of it waits for answers. One that a thread is blocked in ends there, WAITING, and
gives its claim back; a submitted one holds no thread anyway, keeps its claim and goes on when an answer comes in. All
on the thread that owns the walk, except what says otherwise.
"""

import json
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ares.engine.options import COMMIT_TIMEOUT
from ares.engine.results import question_of
from ares.errors import SerializationError, StoreError, UsageError
from ares.journal.encoding import decode, encode
from ares.journal.protocol import Request, Ticket
from ares.questions import AnswerAction, Approve, Cause, Question, Reject, RunAgain
from ares.records import ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f
from ares.walk.instance import Instance
from ares.walk.judge import Failure

if TYPE_CHECKING:
    from ares.engine.driver import Driver

#: Of so many steps that wait the fact that a walk rests tells the paths.
TOLD_PATHS = 16
#: Seconds in which an answer comes in that was recorded in this process, where the store does its work.
_ON_ITS_WAY = 1.0

Given = Approve | Reject | RunAgain


def answered(asked: f.Asked, given: Given) -> f.Answered:
    """The fact that a question was answered.

    Raises:
        UsageError: it is no answer, or none to such a question.
    """
    match given:
        case Approve():
            action, value, feedback = AnswerAction.APPROVE, given.value, given.feedback
        case Reject():
            action, value, feedback = AnswerAction.REJECT, given.value, given.reason
        case RunAgain():
            action, value, feedback = AnswerAction.RUN_AGAIN, None, given.feedback
        case _:
            raise UsageError(f"an answer is an Approve, a Reject or a RunAgain, not {given!r}")
    if action is AnswerAction.RUN_AGAIN and asked.cause is not Cause.OUTCOME:
        raise UsageError(f"RunAgain answers whether an at_most_once step took effect; step {asked.path!r} asks another")
    if not isinstance(feedback, str):
        raise UsageError(f"feedback and reason are words, not {feedback!r}")
    return f.Answered(asked.path, asked.round, asked.epoch, asked.attempt, asked.key, action, value, feedback)


def name_of(asked: f.Asked) -> str:
    """What tells a question from every other that its execution ever asks, the same one asked anew included."""
    return json.dumps([asked.path, asked.round, asked.epoch, asked.attempt, asked.key])


def body_of(fact: f.Answered, codec: Codec) -> str:
    """An answer as a request carries it.

    Raises:
        SerializationError: its value cannot be stored.
    """
    return json.dumps([fact.path, encode(fact, codec)])


class Asking:
    """The questions of one walk.

    Args:
        driver: the walk's owner.
        codec: reads answers that come as text.
        asked_at: when the open ones were asked, by path, in nanoseconds since the epoch.
    """

    def __init__(self, driver: "Driver", codec: Codec, asked_at: Mapping[str, int]) -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._driver: Driver = weakref.proxy(driver)
        self._codec = codec
        self._asked_at = dict(asked_at)
        #: Whether the walk rests.
        self.is_resting = False
        #: The commit of the fact that it does.
        self.ticket: Ticket | None = None
        #: Numbers the rests.
        self._serial = 0
        #: Whether there is nothing left to do, unless a message that is there already says otherwise.
        self._is_about_to = False
        #: Until when what is on its way to the walk is waited for.
        self._stirs_by: float | None = None

    # --- what is open -----------------------------------------------------------------------------------------

    def note(self, fact: f.Fact) -> None:
        """Keep when a question was asked."""
        if isinstance(fact, f.Asked):
            self._asked_at[fact.path] = time.time_ns()

    def open(self) -> tuple[Question, ...]:
        """The open questions, in the order they were asked."""
        return tuple(sorted(map(self.question, self._driver.walk.state.waiting.values()), key=lambda q: q.asked_at))

    def question(self, instance: Instance) -> Question:
        """What an instance asks. Any thread, while it waits."""
        asked = instance.question
        assert asked is not None
        return question_of(self._driver.execution_id, asked, self._asked_at.get(asked.path, 0))

    # --- answers -------------------------------------------------------------------------------------------------

    def carry_out(self, request: Request, done: Callable[[int], None]) -> None:
        """Make an answer a fact. Left for the next owner if this walk is ending."""
        driver = self._driver
        if driver.over.is_set() or driver.cutting.is_stopping:
            return
        self._carry_out(request, done)
        driver.outside.heard_answer(request.name)

    def _carry_out(self, request: Request, done: Callable[[int], None]) -> None:
        driver = self._driver
        try:
            fact = self._read(request.body)
        except SerializationError as error:
            # It stays: whoever knows the class of its value can go on with it.
            driver.warn(f"an answer cannot be read: {error}")
            return
        instance = driver.walk.state.find(fact.path)
        if instance is None or not driver.walk.state.accepts(fact, instance):
            _carried_out(request, done)  # what asked was cancelled, or set back, meanwhile
            return
        ticket = driver.hand_over(fact, instance)
        # Only once the fact is committed may the request go: a crash in between must not lose both.
        ticket.add_callback(lambda t: None if t.error else _carried_out(request, done))

    def _read(self, body: Any) -> f.Answered:
        if isinstance(body, f.Answered):
            return body
        try:
            path, text = json.loads(body)
        except (ValueError, TypeError) as error:
            raise SerializationError(f"it is damaged: {error}") from error
        fact = decode(f.Answered.kind, path, text, self._codec)
        assert isinstance(fact, f.Answered)
        return fact

    def unanswered(self, instance: Instance, failure: Failure) -> None:
        """Whoever is asked here did not answer: the question stays open."""
        if failure.exception is not None and not self._driver.cutting.is_stopping:
            self._driver.warn(f"interrupt_handler raised {failure.error}: step {instance.path!r} still waits")

    # --- rest -----------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """A message came in: whether there is something to do is another question now."""
        self._is_about_to = False
        self._stirs_by = None

    def next_at(self) -> float | None:
        """When ``rest`` is to be called again if nothing is in the mail, in seconds of the monotonic clock."""
        return time.monotonic() if self._is_about_to else self._stirs_by

    def rest(self) -> None:
        """There is nothing to do but wait for answers; called again if nothing is in the mail either.

        Nor while an answer or a cancel from this process is on its way, which the journal brings on another thread:
        what was recorded before the walk rests is carried out before it does. If that takes long, that the walk waits
        is journaled all the same, so that a store which has failed is found out.
        """
        driver = self._driver
        if not self._is_about_to:
            if driver.outside.is_about_to_stir:
                self._stirs_by = self._stirs_by or time.monotonic() + _ON_ITS_WAY
                if time.monotonic() < self._stirs_by:
                    return
            self._is_about_to, self._stirs_by = True, None
            return
        self._is_about_to = False
        self.is_resting = True
        self._serial += 1
        serial = self._serial
        fact = f.Waiting(tuple(islice(driver.walk.state.waiting, TOLD_PATHS)))
        ticket = self.ticket = driver.ledger.append((fact,), status=ExecutionStatus.WAITING)
        driver.walk.apply(fact)
        driver.clocks.stand_still()
        if driver.owner is None:
            ticket.add_callback(lambda t: driver.post(self._rested, serial, t))
            return
        with suppress(TimeoutError):
            ticket.wait(COMMIT_TIMEOUT)
        self._rested(serial, ticket)

    def stir(self) -> None:
        """Something happens: the walk does not rest any more."""
        self.look_again()
        if self.is_resting:
            self.is_resting = False
            self._driver.outside.idle.clear()
            self._driver.clocks.go_on()

    def rest_on(self) -> None:
        """What was about to happen does not, or has begun."""
        if self.is_resting and self.ticket is not None and self.ticket.done:
            self._rested(self._serial, self.ticket)

    def _rested(self, serial: int, ticket: Ticket) -> None:
        driver = self._driver
        if driver.over.is_set() or not self.is_resting or serial != self._serial:
            return
        if ticket.error is not None or not ticket.done:
            error = ticket.error or _no_commit(driver.execution_id)
            if driver.options.ends_with(error):
                driver.cutting.fail(error)
                return
            driver.warn(f"that it waits is not stored: {ticket.error}")
        if driver.cutting.is_stopping or (driver.owner is not None and not driver.outside.is_about_to_stir):
            driver.finish(ExecutionStatus.WAITING)
        elif driver.owner is None:
            for problem in driver.bus.warnings(driver.execution_id):
                driver.warn(problem)  # its result can be looked at from now on
            driver.outside.come_to_rest()


def _no_commit(execution_id: str) -> StoreError:
    return StoreError("the store", f"no commit within {COMMIT_TIMEOUT:g} s", execution_id)


def _carried_out(request: Request, done: Callable[[int], None]) -> None:
    # If the request stays it is carried out once more, and that changes nothing.
    with suppress(StoreError):
        done(request.number)
