"""What a thread does for one attempt: a fixed list of stages, the same on a worker and inline.

The user's code runs in a copy of the caller's context variables and inside ``around_step``. What it returns is encoded
here, on the thread that ran it, before anyone sees the value. A stage never raises: it answers, with the fact to be
journaled and its body, or with a ``Failure`` that the walk's owner judges. The exception is a ``KeyboardInterrupt`` on
the main thread, which is Ctrl-C and no step's failure.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ares.context import StepContext
from ares.engine import rounds
from ares.engine.asking import answered
from ares.engine.attempt import Attempt, current
from ares.engine.elsewhere import elsewhere, goes_elsewhere
from ares.engine.failing import failure_of, is_ctrl_c, let_go, speaks_of, trace_of
from ares.engine.results import step_result
from ares.engine.routing import SHOWN, followed, route_state
from ares.engine.variables import Values
from ares.errors import (
    InvariantError,
    RouteError,
    StepAbortedError,
    StepCancelledError,
    StepParked,
)
from ares.forks import end_child_of
from ares.plugin.verdicts import HookAction, HookResult
from ares.records import ErrorInfo
from ares.walk import facts as f
from ares.walk.conclude import first_failure
from ares.walk.instance import living
from ares.walk.judge import Failure, describe
from ares.walk.questions import is_told
from ares.walk.route import check_route, decide_route
from ares.walk.route import unrouted as unrouted_by
from ares.walk.state import Instance
from ares.walk.table import Phase
from ares.walk.walk import WorkKind
from ares.workflow import BindingKind, Call, Goto

#: Calls to those who are told of steps, from which no fact follows.
TELLING: Final = (WorkKind.BEFORE, WorkKind.AFTER)

#: What an attempt comes to: a fact with its body, or a failure to be judged.
Answer = tuple[f.InstanceFact | f.RoundEnded, Any] | Failure


def perform(attempt: Attempt) -> Answer:
    """Do one piece of work. Raises only a Ctrl-C on the main thread."""
    return attempt.take_variables().run(_perform, attempt)


def decide(attempt: Attempt) -> Answer | None:
    """Ask the interceptors about an attempt that is about to begin. None if they let it.

    Raises only a Ctrl-C on the main thread.
    """
    return attempt.run_in_variables(_decide)


def _decide(attempt: Attempt) -> Answer | None:
    current.set(attempt)
    driver = attempt.driver
    try:
        ctx, _, _ = _prepare(attempt, driver.call_of(attempt.instance))
        assert ctx is not None
        verdict = driver.bus.intercept(driver.execution_id, ctx.step)
        return None if verdict is None else _obeyed(attempt, verdict)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        failure = failure_of(attempt, error, 0.0, is_refused=True)
        failure.not_done = True
        return failure


def _obeyed(attempt: Attempt, verdict: HookResult) -> Answer | None:
    """What follows from what an interceptor said."""
    instance = attempt.instance
    match verdict.action:
        case HookAction.REPLACE:
            attempt.replaced = verdict.inputs
            attempt.verdict = f"{verdict.plugin} replaced inputs"
            return None
        case HookAction.ABORT:
            error = StepAbortedError(instance.path, verdict.plugin, verdict.reason)
            return Failure(describe(error), error, not_done=True)
        case HookAction.SKIP:
            origin = f"{verdict.plugin}: {verdict.reason}" if verdict.reason else verdict.plugin
            reason = f.SkipReason.VERDICT
            skipped = f.Skipped(instance.path, instance.scope.round, attempt.epoch, reason, origin)
            return skipped, attempt.driver.ledger.encode(skipped)
        case HookAction.COMPLETE:
            return _succeeded(attempt, verdict.output, None, 0.0, verdict=verdict.plugin)


def _perform(attempt: Attempt) -> Answer:
    current.set(attempt)
    if attempt.slot is not None:
        attempt.slot.thread = threading.get_ident()
    began = time.monotonic()
    if attempt.cancelled and attempt.kind is WorkKind.BODY:
        # A cancel was recorded between its start and this: whoever was told so sees no body begin any more.
        error = StepCancelledError(attempt.path, "cancelled before it began")
        return Failure(describe(error), error, not_done=True)
    try:
        return _STAGES[attempt.kind](attempt)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return failure_of(attempt, error, time.monotonic() - began)


# --- the stages -------------------------------------------------------------------------------------


def _body(attempt: Attempt) -> Answer:
    driver = attempt.driver
    call = driver.call_of(attempt.instance)
    ctx, args, kwargs = _prepare(attempt, call)
    is_told = driver.stages.has_before and not attempt.goes_on
    if is_told and ctx is not None and (attempt.instance.index is None or driver.stages.per_item):
        driver.bus.before_step(driver.execution_id, ctx.step)
    attempt.make_sure()
    if goes_elsewhere(attempt.work):
        call = elsewhere(attempt, call)
    else:
        attempt.start_clock()
    began = time.monotonic()
    try:
        value = _call_user(attempt, ctx, call, args, kwargs)
    except StepParked as parked:
        let_go(parked)
        return _parked(attempt)
    except BaseException as error:
        if attempt.instance.node.spec.metadata:
            attempt.record_as_tool(None, time.monotonic() - began, str(describe(error)))
        raise
    if attempt.asked is not None:
        swallowed = f"it asked {attempt.asked.key!r} and went on: what ctx.interrupt raises must be let pass"
        raise InvariantError(attempt.path, swallowed)
    seconds = time.monotonic() - began
    if attempt.instance.node.spec.metadata:
        attempt.record_as_tool(value, seconds)
    targets = None
    if isinstance(value, Goto):
        targets = attempt.instance.scope.graph.workflow.target_ids(value.targets)
        value = value.value
        problem = check_route(attempt.instance, targets)
        if problem is not None:
            raise problem
    return _succeeded(attempt, value, targets, seconds)


def _parked(attempt: Attempt) -> Answer:
    """The body asks, and has ended for that."""
    asked = attempt.asked
    if asked is None:
        raise InvariantError(attempt.path, "it raised a StepParked of its own, which asks nobody: call ctx.interrupt")
    return asked, attempt.driver.ledger.encode(asked)


def _ask(attempt: Attempt) -> Answer:
    """Put a question to whoever answers questions in this process."""
    driver, instance = attempt.driver, attempt.instance
    handler, asked = driver.options.interrupt_handler, instance.question
    assert handler is not None
    if asked is None or instance.phase is not Phase.WAITING:
        return _TOLD  # somebody else was faster
    question = driver.asking.question(instance)
    call = Call(handler, ())
    ctx = None if driver.options.around_step is None else attempt.context(call, [])
    given = _call_user(attempt, ctx, call, (question,), {})
    if given is None:
        return _TOLD
    fact = answered(asked, given)
    return fact, driver.ledger.encode(fact)


def _succeeded(
    attempt: Attempt, value: Any, targets: tuple[str, ...] | None, seconds: float, *, verdict: str = ""
) -> Answer:
    instance = attempt.instance
    writes = tuple(attempt.writes.items())
    # A reconciliation is no attempt: it speaks of the last one, which a crash did not count.
    number = attempt.number if attempt.kind is WorkKind.BODY else instance.attempt
    fact = f.Succeeded(
        instance.path, instance.scope.round, attempt.epoch, number, value, writes, targets, seconds, verdict
    )
    return fact, attempt.driver.ledger.encode(fact)


def _condition(attempt: Attempt) -> Answer:
    call = attempt.instance.node.condition
    assert call is not None
    holds = bool(_simple_call(attempt, call))
    instance = attempt.instance
    fact = f.Checked(instance.path, instance.scope.round, attempt.epoch, holds)
    return fact, attempt.driver.ledger.encode(fact)


def _reconcile(attempt: Attempt) -> Answer:
    call, told = attempt.instance.node.reconcile, attempt.instance.answer
    began = time.monotonic()
    if call is None or is_told(attempt.instance):
        assert told is not None
        return _succeeded(attempt, told.value, None, 0.0)
    value = _simple_call(attempt, call)
    return _succeeded(attempt, value, None, time.monotonic() - began)


def _route(attempt: Attempt) -> Answer:
    instance = attempt.instance
    call = instance.node.router
    answer = None
    if call is not None:
        try:
            answer = _simple_call(attempt, call)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            let_go(error)
            fact = unrouted(instance, f"its router raised {describe(error)}", error)
            return fact, attempt.driver.ledger.encode(fact)
    if answer is None and attempt.driver.stages.has_routers:
        decided = _route_by_plugins(attempt)
    else:
        decided = decide_route(instance, answer)
    return decided, attempt.driver.ledger.encode(decided)


def _route_by_plugins(attempt: Attempt) -> f.Routed | f.Unrouted:
    """What the router plugins say, where neither the body nor the step's own router has decided."""
    instance, driver = attempt.instance, attempt.driver
    histories = driver.telling.histories
    state = route_state(
        driver.execution_id,
        instance,
        driver.values.snapshot(instance.scope, instance.snapshot),
        {} if histories is None else histories.read(*SHOWN),
    )
    decision, abstained = driver.bus.route(driver.execution_id, state)
    decided, problem = followed(instance, state, decision, abstained)
    if problem:
        driver.warn(problem)
    return decided


def unrouted(instance: Instance, problem: str, cause: BaseException | None) -> f.Unrouted:
    """The fact that a route was asked for and not found."""
    permitted = instance.scope.graph.ids(instance.node.branches)
    error = RouteError(instance.path, problem, permitted)
    error.__cause__ = cause
    return unrouted_by(instance, error, trace_of(cause))


def _verdict(attempt: Attempt) -> Answer:
    """A sub-workflow failed: whether ``retry_on`` speaks of what failed in it."""
    instance = attempt.instance
    assert instance.error is not None
    assert instance.child is not None
    failed = first_failure(instance.child)
    innermost = None if failed is None else living(failed.exception, failed.unrouted or failed.error)
    over = instance.child.over
    if failed is None and over is not None and over.exception is not None:
        innermost = over.exception.__cause__  # what ``until`` raised
    policy = instance.node.spec.retry
    retryable = policy is not None and innermost is not None and speaks_of(policy, innermost)
    return Failure(instance.error, instance.exception, retryable=retryable, draw=random.random())


def _before(attempt: Attempt) -> Answer:
    attempt.driver.bus.before_step(attempt.driver.execution_id, attempt.step({}))
    return _TOLD


def _after(attempt: Attempt) -> Answer:
    attempt.driver.bus.after_step(attempt.driver.execution_id, step_result(attempt.instance))
    return _TOLD


def _round(attempt: Attempt) -> Answer:
    return rounds.answer(attempt, _simple_call)


_TOLD: Final = Failure(ErrorInfo("", ""))  # nobody judges it
_STAGES: dict[WorkKind, Callable[[Attempt], Answer]] = {
    WorkKind.BODY: _body,
    WorkKind.CONDITION: _condition,
    WorkKind.RECONCILE: _reconcile,
    WorkKind.ROUTE: _route,
    WorkKind.ASK: _ask,
    WorkKind.VERDICT: _verdict,
    WorkKind.BEFORE: _before,
    WorkKind.AFTER: _after,
    WorkKind.ROUND: _round,
}


# --- calling ------------------------------------------------------------------------------------------


def _prepare(attempt: Attempt, call: Call) -> tuple[StepContext | None, tuple[object, ...], dict[str, object]]:
    """The context and the arguments of a call; they show each other. No context is made that nobody looks at."""
    driver = attempt.driver
    values = driver.values.of(call, attempt.instance)
    if attempt.replaced:
        values = [
            attempt.replaced.get(b.parameter, v) if b.kind is not BindingKind.CTX else v
            for b, v in zip(call.bindings, values, strict=True)
        ]
    ctx = None
    shows = driver.options.around_step is not None or driver.stages.has_before or driver.stages.has_interceptors
    shows = shows or "tool_name" in attempt.instance.node.spec.metadata
    if shows or any(v is Values.CTX for v in values):
        ctx = attempt.context(call, values)
        values = [ctx if v is Values.CTX else v for v in values]
    args, kwargs = call.arguments(values)
    return ctx, args, kwargs


def _simple_call(attempt: Attempt, call: Call) -> Any:
    ctx, args, kwargs = _prepare(attempt, call)
    attempt.start_clock()
    return _call_user(attempt, ctx, call, args, kwargs)


def _call_user(attempt: Attempt, ctx: StepContext | None, call: Call, args: Any, kwargs: Any) -> Any:
    around = attempt.driver.options.around_step
    here = os.getpid()
    if around is None or ctx is None:
        try:
            value = call.fn(*args, **kwargs)
        except BaseException as error:
            end_child_of(here, error)
            raise
        end_child_of(here)
        return value
    raised: BaseException | None = None
    value = None
    with around(ctx):
        try:
            value = call.fn(*args, **kwargs)
        except BaseException as error:
            end_child_of(here, error)
            raised = error
            raise
        end_child_of(here)
    if raised is not None:
        raise raised  # what around_step swallowed is a failure all the same
    return value


__all__ = ["TELLING", "Answer", "decide", "perform", "unrouted"]
