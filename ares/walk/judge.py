"""What follows a failed attempt: a retry, a reconciliation, or the end. Pure; the draw for the jitter comes with it."""

import attrs

from ares.errors import OutcomeUnknownError
from ares.records import ErrorInfo
from ares.walk.facts import After, Failed
from ares.walk.state import Instance
from ares.walk.table import Phase
from ares.workflow.policies import Delivery


def describe(error: BaseException, traceback: str = "") -> ErrorInfo:
    """What is kept of an exception. Never raises, whatever the exception's own ``__str__`` does."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "ares.errors") else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as inner:
        message = f"<its message cannot be shown: {type(inner).__name__}>"
    return ErrorInfo(name, message, traceback)


@attrs.define
class Failure:
    """How an attempt failed, as the thread that ran it reports it.

    ``retryable`` is what the step's ``retry_on`` says of the exception; ``retry_after`` are the seconds a
    ``RetryAfter`` asked for; ``draw`` is a number in [0, 1) for the jitter; ``not_done`` says that the effect of an
    at_most_once body is known not to have happened. ``duration`` in seconds.
    """

    error: ErrorInfo
    exception: BaseException | None = None
    retryable: bool = False
    retry_after: float | None = None
    draw: float = 0.0
    not_done: bool = False
    duration: float = 0.0


def judge(instance: Instance, failure: Failure, *, stopping: bool) -> Failed:
    """The fact that follows from a failure. ``stopping``: the execution is cancelled or out of time."""
    spec = instance.node.spec
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
    if spec.delivery is Delivery.AT_MOST_ONCE and not failure.not_done and _may_have_happened(instance):
        fact.unknown = True
        if instance.phase is Phase.RUNNING and instance.node.reconcile is not None and not stopping:
            fact.after = After.RECONCILE
            return fact
        unknown = OutcomeUnknownError(instance.path, str(failure.error))
        unknown.__cause__ = failure.exception
        fact.error = describe(unknown, failure.error.traceback)
        fact.exception = unknown
        return fact
    if failure.not_done and instance.unknown:
        # Known now not to have happened: what had cut it short decides whether it runs again.
        fact.retryable = instance.retryable
        if instance.error is not None:
            fact.error, fact.exception = instance.error, instance.exception or failure.exception
    limit = spec.retry.max_attempts if spec.retry is not None else 1
    if fact.retryable and not stopping and instance.attempt < limit:
        fact.after = After.RETRY
        if failure.retry_after is not None:
            fact.delay = failure.retry_after
        elif spec.retry is not None and instance.attempt > 0:
            fact.delay = spec.retry.delay(instance.attempt, failure.draw)
    return fact


def _may_have_happened(instance: Instance) -> bool:
    return instance.unknown or instance.phase is Phase.RUNNING
