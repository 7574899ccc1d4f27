"""How an attempt failed, as the thread that ran it tells the walk's owner.

What the step's policies say of the failure is asked here, because they are the user's code, or a plugin's; what is kept
of an exception is decided here, because its frames hold all that the body held.
"""

import inspect
import random
import threading
import traceback
from contextlib import suppress

from ares.engine.attempt import Attempt
from ares.errors import (
    AttemptEnded,
    InvariantError,
    NotDone,
    RecordedError,
    ReducerError,
    RetryAfter,
    RouteError,
    SerializationError,
    StepCancelledError,
    WriteError,
)
from ares.records import StepFailure
from ares.walk.judge import Failure, describe, may_recover, may_try_again, type_name
from ares.walk.walk import WorkKind
from ares.workflow import RetryPolicy

#: Marks the code of generators and coroutines.
_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

#: Failures of the body that another attempt would only repeat.
_BROKEN = (SerializationError, RouteError, WriteError, InvariantError, ReducerError)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether this is a Ctrl-C, which is no step's failure."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def failure_of(attempt: Attempt, error: BaseException, seconds: float, *, is_refused: bool = False) -> Failure:
    """The failure of a piece of work that raised, after so many seconds; or, ``is_refused``, that no interceptor let
    begin: nothing is recovered from that, since a recovery would go on as if access had been granted."""
    instance = attempt.instance
    if isinstance(error, AttemptEnded):
        # Its own end reached the body before anyone else took note of it.
        ended = StepCancelledError(instance.path, "its attempt was ended")
        return Failure(describe(ended), ended, duration=seconds)
    if isinstance(error, SerializationError) and not error.where:
        error.where = f"the output of step {instance.path!r}"
    failure = Failure(describe(error), error, duration=seconds, draw=random.random())
    failure.not_done = isinstance(error, NotDone) or attempt.is_held_back
    if attempt.kind is WorkKind.BODY and not isinstance(error, _BROKEN):
        failure.retryable, failure.retry_after = _retry_of(attempt, error)
        if not attempt.cancelled and not is_refused and needs_recovery(attempt, retryable=failure.retryable):
            attempt.stop_clock()
            failure.recovers = recovers(attempt, error)
    let_go(error)
    failure.error = describe(error, trace_of(error))
    return failure


def needs_recovery(attempt: Attempt, *, retryable: bool) -> bool:
    """Whether an attempt that failed is the last, and its step has a policy for that."""
    instance = attempt.instance
    is_last = not may_try_again(instance, attempt.number, retryable=retryable)
    return is_last and attempt.kind is WorkKind.BODY and may_recover(instance)


def recovers(attempt: Attempt, error: BaseException) -> bool:
    """Whether the step is to be recovered: what the recovery plugins say, and yes if there are none. Waits for them."""
    driver, instance = attempt.driver, attempt.instance
    if not driver.stages.has_recovery:
        return True
    scope = instance.scope
    failure = StepFailure(
        driver.execution_id,
        scope.graph.workflow.id,
        instance.node.id,
        instance.path,
        scope.round,
        attempt.number,
        error,
    )
    return driver.bus.should_recover(driver.execution_id, failure, driver.telling.state_of(instance))


def _retry_of(attempt: Attempt, error: BaseException) -> tuple[bool, float | None]:
    """What the step's retry policy says of an exception. ``RetryAfter`` and ``retry_on`` are the user's."""
    policy = attempt.instance.node.spec.retry
    try:
        if isinstance(error, RetryAfter):
            return True, max(0.0, float(error.seconds))
        return policy is None or policy.matches(error), None
    except BaseException as inner:
        if is_ctrl_c(inner):
            raise
        with suppress(Exception):
            error.add_note(f"not retried: its seconds, or retry_on of step {attempt.path!r}, raised {describe(inner)}")
        return False, None


def let_go(error: BaseException) -> None:
    """Empty the frames of a traceback, and take those of ares off its beginning.

    What a body held when it raised (data, connections, locks) would otherwise live as long as its exception, and that
    is kept with the step. Whoever wants to look at it can: ``around_step`` is left before this.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        first = trace = each.__traceback__
        while first is not None and str(first.tb_frame.f_globals.get("__name__", "")).startswith("ares."):
            first = first.tb_next
        BaseException.with_traceback(each, first)  # whatever it makes of an assignment
        while trace is not None:
            # To clear the frame of a generator would end the generator, which may go on elsewhere.
            if not trace.tb_frame.f_code.co_flags & _SUSPENDABLE:
                with suppress(RuntimeError):  # it is still running
                    trace.tb_frame.clear()
            trace = trace.tb_next


def trace_of(error: BaseException | None) -> str:
    """The text of a traceback, the last of it if it is long."""
    if error is None:
        return ""
    try:
        return "".join(traceback.format_exception(error))[-20_000:]
    except Exception as inner:
        return f"<the traceback cannot be shown: {type(inner).__name__}>"


def speaks_of(policy: RetryPolicy, error: BaseException) -> bool:
    """What ``retry_on`` says of an exception. One that an earlier process had is known by the name of its type."""
    kinds = policy.retry_on
    if isinstance(error, RecordedError) and isinstance(kinds, type | tuple):
        found = _exceptions_named(error.type_name)
        if found:
            return any(issubclass(kind, kinds) for kind in found)
    return policy.matches(error)


def _exceptions_named(name: str) -> list[type[BaseException]]:
    """The exceptions of that name that this process knows."""
    known: dict[type[BaseException], None] = {}
    waiting: list[type[BaseException]] = [BaseException]
    while waiting:
        kind = waiting.pop()
        if kind not in known:
            known[kind] = None
            waiting += type.__subclasses__(kind)
    return [kind for kind in known if type_name(kind) == name]
