"""What follows a failed attempt: a retry, a reconciliation, or the end. Pure; the draw for the jitter comes with it."""

import attrs

from ares.errors import OutcomeUnknownError, StepCancelledError
from ares.records import ErrorInfo
from ares.walk.facts import After, Failed
from ares.walk.instance import Instance
from ares.walk.stopping import is_cut, may_retry, stop_of
from ares.walk.table import Phase
from ares.workflow.policies import Delivery, RecoveryStrategy


def describe(error: BaseException, traceback: str = "") -> ErrorInfo:
    """What is kept of an exception. Never raises, whatever the exception's own ``__str__`` does."""
    try:
        message = str(error)
    except BaseException as inner:  # SystemExit, say: whatever it is, it is not what the step failed with
        message = f"<its message cannot be shown: {type(inner).__name__}>"
    return ErrorInfo(type_name(type(error)), message, traceback)


def type_name(kind: type) -> str:
    """What the type of an exception is called where only its name is kept."""
    is_known = kind.__module__ in ("builtins", "ares.errors")
    return kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}"


@attrs.define
class Failure:
    """How an attempt failed, as the thread that ran it reports it.

    Attributes:
        error: what is kept of the exception.
        exception: the exception itself.
        retryable: what the step's ``retry_on`` says of it.
        retry_after: the seconds that a ``RetryAfter`` asked for.
        draw: a number in [0, 1) for the jitter.
        not_done: whether the effect of an at_most_once body is known not to have happened.
        recovers: whether the step's recovery policy is to be applied once its retries are spent.
        duration: seconds.
    """

    error: ErrorInfo
    exception: BaseException | None = None
    retryable: bool = False
    retry_after: float | None = None
    draw: float = 0.0
    not_done: bool = False
    recovers: bool = False
    duration: float = 0.0


def judge(instance: Instance, failure: Failure, *, stopping: bool = False) -> Failed:
    """The fact that follows from a failure.

    Args:
        instance: what failed: in an attempt, in its condition, or, a sub-workflow, in one of its steps.
        failure: how.
        stopping: nothing is tried again, for a reason that the walk does not know. A cancel, a deadline and
            ``fail_fast`` it knows.
    """
    fact = Failed(
        instance.path,
        instance.scope.round,
        instance.epoch,
        instance.attempt,
        failure.error,
        duration=failure.duration,
        retryable=failure.retryable,
        exception=failure.exception,
    )
    if instance.phase is Phase.PENDING:
        # Its condition failed, which is asked once. Nothing became known of an effect that was unknown before.
        fact.unknown = instance.unknown
        return fact
    stopping = (stopping and not instance.is_always) or is_cut(instance)
    if instance.node.spec.delivery is Delivery.AT_MOST_ONCE and not failure.not_done:
        _judge_unknown(instance, failure, fact, stopping=stopping)
        return fact
    if failure.not_done and instance.unknown:
        # Known now not to have happened: what had cut it short decides whether it runs again.
        fact.retryable = instance.retryable
        if instance.error is not None:
            fact.error, fact.exception = instance.error, instance.exception or failure.exception
    _retry(instance, failure, fact, stopping=stopping)
    return fact


def refuse(instance: Instance, failure: Failure, *, stopping: bool = False) -> Failed:
    """The fact that follows when an attempt fails before it begins, because an interceptor refused it or failed. It
    counts as an attempt; the body of an at_most_once step has certainly not run.

    Args:
        instance: what waits for its attempt.
        failure: how, ``retryable`` only where the interceptor itself failed.
        stopping: as for ``judge``.
    """
    fact = Failed(
        instance.path,
        instance.scope.round,
        instance.epoch,
        instance.attempt + 1,
        failure.error,
        retryable=failure.retryable,
        exception=failure.exception,
    )
    _retry(instance, failure, fact, stopping=(stopping and not instance.is_always) or is_cut(instance))
    return fact


def _retry(instance: Instance, failure: Failure, fact: Failed, *, stopping: bool) -> None:
    """Have what failed tried again, if there are attempts left and nothing stops it."""
    retry = instance.node.spec.retry
    if not may_try_again(instance, fact.attempt, retryable=fact.retryable):
        if failure.recovers and not stopping and may_retry(instance):
            _recover(instance, fact)
        return
    if stopping or not may_retry(instance):
        fact.exception = cut_short(instance, fact.error, fact.exception)
        fact.error = describe(fact.exception, fact.error.traceback)
        return
    fact.after = After.RETRY
    if failure.retry_after is not None:
        fact.delay = failure.retry_after
    elif retry is not None and fact.attempt > 0:
        fact.delay = retry.delay(fact.attempt, failure.draw)


def may_try_again(instance: Instance, attempt: int, *, retryable: bool) -> bool:
    """Whether a failed attempt of this number leaves the step's retry policy another one."""
    retry = instance.node.spec.retry
    return retryable and attempt < (1 if retry is None else retry.max_attempts) + instance.granted


def may_recover(instance: Instance) -> bool:
    """Whether the step's recovery policy leaves it another recovery."""
    policy = instance.node.spec.recovery
    return policy is not None and instance.recoveries < policy.max_attempts


def _recover(instance: Instance, fact: Failed) -> None:
    """Apply the step's recovery policy: another attempt, perhaps by another agent, or none and no failure."""
    policy = instance.node.spec.recovery
    if policy is not None and may_recover(instance):
        fact.recovery = instance.recoveries + 1
        fact.after = After.SKIP if policy.strategy is RecoveryStrategy.SKIP else After.RETRY


def cut_short(instance: Instance, info: ErrorInfo | None, cause: BaseException | None) -> StepCancelledError:
    """Why something ends that would be tried again if nothing had stopped it: it did not fail for good."""
    stop = stop_of(instance) or "stopping"
    error = StepCancelledError(instance.path, stop if info is None else f"{stop}, before it was tried again ({info})")
    error.__cause__ = cause
    return error


def _judge_unknown(instance: Instance, failure: Failure, fact: Failed, *, stopping: bool) -> None:
    """An at_most_once body may have taken effect: ask, once, or fail for not knowing."""
    fact.unknown = True
    if instance.phase is Phase.RUNNING and not stopping:
        fact.after = After.RECONCILE
        return
    unknown = OutcomeUnknownError(instance.path, str(failure.error))
    unknown.__cause__ = failure.exception
    fact.error = describe(unknown, failure.error.traceback)
    fact.exception = unknown
