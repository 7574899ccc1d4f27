"""The end of a round in the shell: who is told, who is asked, and what of the round before is let go.

On a worker, or inline: the loop controllers are told that the round is over, then ``until`` is asked, then they are
(``max_rounds`` is the walk's own business). The owner of the walk makes the answer a fact. As long as it is none, the
process may die, and all of them are told and asked again.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ares.engine.attempt import Attempt
from ares.engine.failing import is_ctrl_c, let_go, trace_of
from ares.engine.results import Kept, Steps
from ares.errors import ReducerError, StepTimeoutError, UntilError
from ares.records import ExecutionState, StepResult
from ares.walk import facts as f
from ares.walk.instance import CUTTING, Instance, Scope
from ares.walk.judge import Failure, describe
from ares.walk.rounds import dismantle, ended, exit_of, status_of
from ares.workflow import Call

if TYPE_CHECKING:
    from ares.engine.driver import Driver


def answer(attempt: Attempt, call: Callable[[Attempt, Call], Any]) -> tuple[f.RoundEnded, Any]:
    """Tell that a round is over, and find out whether there is another. Raises only a Ctrl-C on the main thread.

    Args:
        attempt: at the question.
        call: calls a function as a step's is called.
    """
    scope = attempt.instance.scope
    try:
        fact = _answer(attempt, call)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        let_go(error)
        fact = _failed(scope, f"it raised {describe(error)}", error)
    return fact, attempt.driver.ledger.encode(fact)


def _answer(attempt: Attempt, call: Callable[[Attempt, Call], Any]) -> f.RoundEnded:
    driver, scope = attempt.driver, attempt.instance.scope
    bus, execution_id = driver.bus, driver.execution_id
    reason = exit_of(scope)
    tells = driver.stages.has_loop and reason is not f.RoundExit.CANCELLED
    if tells:
        bus.on_round_end(execution_id, scope.round, driver.rounds.state_of(scope))
        driver.ledger.flush()  # so that what they recorded of the round is among what they are asked about
    if reason is not None:
        return ended(scope, reason)
    if scope.graph.until is not None:
        is_enough = bool(call(attempt, scope.graph.until))
        attempt.stop_clock()
        if is_enough:
            return ended(scope, f.RoundExit.UNTIL)
    if tells and not attempt.cancelled:
        is_wanted, by = bus.should_execute_round(execution_id, scope.round + 1, driver.rounds.state_of(scope))
        if not is_wanted:
            return ended(scope, f.RoundExit.CONTROLLER, by)
    fact = ended(scope, None)
    with suppress(ReducerError):  # whoever needs the value is told
        fact.variables = driver.values.snapshot(scope, len(scope.writes))
    return fact


def _failed(scope: Scope, problem: str, cause: BaseException) -> f.RoundEnded:
    """The fact that nobody knows whether there is another round."""
    fact = ended(scope, f.RoundExit.UNTIL_FAILED)
    path = "" if scope.owner is None else scope.owner.path
    error = UntilError(path, scope.graph.workflow.id, scope.round, problem)
    error.__cause__ = cause
    fact.error, fact.exception = describe(error, trace_of(cause)), error
    return fact


class Rounds:
    """The rounds of one walk. On the thread that owns it, except what says otherwise."""

    def __init__(self, driver: "Driver") -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._driver: Driver = weakref.proxy(driver)
        driver.walk.state.root.began = time.monotonic()
        self._lock = threading.Lock()
        #: What plugins were shown of rounds, and may still be looking at.
        self._shown: list[weakref.ref[RoundSteps]] = []
        driver.walk.state.dispose = self._dispose

    # --- what comes back ----------------------------------------------------------------------------------

    def answered(
        self, attempt: Attempt, said: "tuple[f.InstanceFact | f.RoundEnded, Any] | Failure", *, inline: bool
    ) -> None:
        """The question whether there is another round came to this."""
        driver, turn = self._driver, attempt.instance
        scope = turn.scope
        if driver.cutting.is_interrupted or scope.turn is not turn or isinstance(said, Failure):
            return
        fact, body = said
        assert isinstance(fact, f.RoundEnded)
        if fact.error is not None and driver.outside.is_asked_to_stop:
            return  # it was asked to end: how it failed is no answer, and whoever resumes asks again
        stop = scope.stop
        if stop is not None and (fact.again or (fact.error is not None and stop in CUTTING)):
            fact = ended(scope, f.RoundExit(str(stop)))
            body = driver.ledger.encode(fact)
        was_asked = scope.graph.until is not None or driver.stages.has_loop
        if not was_asked or exit_of(scope) is not None:
            driver.hand_over_now(fact, turn)  # the state says so itself, and would again
        else:
            driver.hand_over(fact, turn, body, inline=inline)

    def late(self, attempt: Attempt, timeout: float) -> tuple[f.RoundEnded, Any]:
        """The answer in place of an ``until`` that was still running after its seconds."""
        error = StepTimeoutError(attempt.path, timeout)
        fact = _failed(attempt.instance.scope, f"it was still running after {timeout:g} s", error)
        return fact, self._driver.ledger.encode(fact)

    def cut_short(self, attempt: Attempt) -> None:
        """The question was asked to end, and has not in time: there is no other round."""
        scope = attempt.instance.scope
        assert scope.stop is not None
        fact = ended(scope, f.RoundExit(str(scope.stop)))
        self.answered(attempt, (fact, self._driver.ledger.encode(fact)), inline=False)

    def note(self, fact: f.Fact, instance: Instance | None) -> None:
        """Take note of what followed: a round begins."""
        driver = self._driver
        if isinstance(fact, f.RoundStarted):
            scope = driver.walk.state.scopes[fact.path + "/" if fact.path else ""]
            driver.tally.turn(fact.round, len(scope.instances), is_execution=not fact.path)
            if not fact.path:
                driver.ledger.forget()
            scope.began = time.monotonic()
        elif isinstance(fact, f.Opened) and instance is not None and instance.child is not None:
            instance.child.began = instance.child.began or time.monotonic()

    # --- what plugins are shown ------------------------------------------------------------------------------

    def state_of(self, scope: Scope) -> ExecutionState:
        """Any thread, while the round is over and the next has not begun. How it went.

        Raises:
            ReducerError: the variables cannot be added up.
        """
        driver = self._driver
        path = scope.prefix[:-1]
        steps = RoundSteps(driver.kept, scope)
        with self._lock:
            self._shown = [ref for ref in self._shown if ref() is not None]
            self._shown.append(weakref.ref(steps))
        histories = driver.telling.histories
        of_round: dict[str, Any] = {} if histories is None else dict(histories.of_round(path))
        return ExecutionState(
            driver.execution_id,
            scope.graph.workflow.id,
            path,
            scope.round,
            driver.values.snapshot(scope, len(scope.writes)),
            steps,
            **of_round,
            status=status_of(scope),
            duration=time.monotonic() - (scope.began or driver.began),
        )

    def _dispose(self, scope: Scope) -> None:
        """A round is past: nobody keeps what it held, but those who look at it still."""
        with self._lock:
            looking, self._shown = self._shown, []
        for ref in looking:
            steps = ref()
            if steps is not None:
                steps.copy()
        dismantle(scope)


class RoundSteps(Steps):
    """The steps of one round by path. Results are made when looked up, as long as the round is the present one; who
    still has this when the next begins has a copy."""

    def __init__(self, kept: Kept, scope: Scope) -> None:
        super().__init__(kept)
        self._lock = threading.RLock()
        self._inside: dict[str, Scope] = {each.prefix: each for each in scope.all()}
        self._copy: dict[str, StepResult] | None = None

    @property
    def _scopes(self) -> Mapping[str, Scope]:
        return self._inside

    def copy(self) -> None:
        """Look up everything now."""
        with self._lock:
            if self._copy is None:
                self._copy = {path: super(RoundSteps, self).__getitem__(path) for path in super().__iter__()}
                self._inside = {}

    def __getitem__(self, path: str) -> StepResult:
        with self._lock:
            return super().__getitem__(path) if self._copy is None else self._copy[path]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(super().__iter__()) if self._copy is None else list(self._copy))

    def __len__(self) -> int:
        with self._lock:
            return super().__len__() if self._copy is None else len(self._copy)
