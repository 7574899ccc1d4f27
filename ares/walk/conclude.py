"""How things with parts end: a map by its elements, a sub-workflow by its steps, an execution by the root's.

Pure functions from the state to the one fact that says so. What was cut short while its scope was stopped does not
count as a failure of its own: a map that collects failures does not complete with it, a sub-workflow names it only if
nothing else failed.
"""

from ares.errors import (
    AresError,
    ExecutionTimeoutError,
    PartFailedError,
    StepCancelledError,
    StepRejectedError,
    StepTimeoutError,
)
from ares.records import ErrorInfo, ExecutionStatus
from ares.walk.facts import Completed, Ended, Failed, Skipped, SkipReason
from ares.walk.instance import CUTTING, Instance, Scope, living
from ares.walk.judge import describe
from ares.walk.rounds import cut_off
from ares.walk.state import State
from ares.walk.stopping import stop_of
from ares.walk.table import Phase
from ares.workflow.policies import OnItemFailure

_STOPS = CUTTING | {SkipReason.FAIL_FAST}


def map_verdict(owner: Instance) -> Completed | Failed:
    """How a map step ends, whose elements have all ended or will not begin any more."""
    parts = owner.parts
    assert parts is not None
    stop = stop_of(owner)
    first = _first_element(owner)
    fails = owner.node.spec.on_item_failure is OnItemFailure.FAIL
    if first is not None and fails and (stop is None or not was_cut(first)):
        return _part_failed(owner, first)
    if parts.ended < parts.length or (stop is not None and any(map(_is_unfinished, parts.failed.values()))):
        return _failed(owner, StepCancelledError(owner.path, stop or ""))
    return _completed(owner)


def child_verdict(owner: Instance) -> Completed | Failed | Skipped:
    """How a sub-workflow step (or element) ends, all of whose steps have ended."""
    child = owner.child
    assert child is not None
    rejected = next((i for i in child.instances if i.reason is SkipReason.REJECTED), None)
    stopped = next((i.reason for i in child.instances if i.phase is Phase.SKIPPED and i.reason in _STOPS), None)
    stopped = stopped or cut_off(child)
    over = child.over
    if not child.failures and stopped is None and over is not None and over.error is not None:
        return Failed(owner.path, owner.scope.round, owner.epoch, owner.attempt, over.error, exception=over.exception)
    if not child.failures and stopped is None:
        return _completed(owner) if rejected is None else _rejected(owner, rejected)
    if child.overdue:
        return _failed(owner, StepTimeoutError(owner.path, owner.node.spec.timeout or 0.0))
    first = _first_step(child)
    if first is not None and not (was_cut(first) and child.stop in CUTTING):
        return _part_failed(owner, first)
    return _failed(owner, StepCancelledError(owner.path, child.stop or stopped or ""))


def execution_end(state: State) -> Ended:
    """How the execution ends, all of whose steps have ended."""
    if state.cancelled is not None:
        return Ended(ExecutionStatus.CANCELLED, ErrorInfo("", state.cancelled) if state.cancelled else None)
    if state.overdue is not None:
        error = ExecutionTimeoutError(state.execution_id, state.overdue, unfinished(state))
        return Ended(ExecutionStatus.FAILED, describe(error))
    failure = first_failure(state.root)
    if failure is not None:
        return Ended(ExecutionStatus.FAILED, failure.unrouted or failure.error)
    if state.root.over is not None and state.root.over.error is not None:
        return Ended(ExecutionStatus.FAILED, state.root.over.error)
    return Ended(ExecutionStatus.COMPLETED)


def unfinished(state: State) -> tuple[str, ...]:
    """The top-level steps that an execution out of time did not get done."""
    return tuple(i.path for i in state.root.instances if i.reason is SkipReason.TIMEOUT or _is_unfinished(i))


def rejected_in(state: State) -> tuple[str, ...]:
    """The steps and elements that a human said No to, and the steps that hold them."""
    return tuple(i.path for i in state.instances() if _is_rejected(i)) if state.was_refused else ()


def _is_rejected(instance: Instance) -> bool:
    if instance.phase is Phase.FAILED:
        return instance.error is not None and instance.error.type_name == StepRejectedError.__name__
    return instance.reason is SkipReason.REJECTED and not instance.origin


def first_failure(scope: Scope) -> Instance | None:
    """What made a workflow fail: the first step that failed, or the part of it that made it fail, innermost."""
    failure = _first_step(scope)
    while failure is not None and failure.error is not None and failure.error.type_name == PartFailedError.__name__:
        part = _first_step(failure.child) if failure.child is not None else _first_element(failure)
        if part is None:
            break
        failure = part
    return failure


def was_cut(instance: Instance) -> bool:
    """Whether it failed because it was asked to end, or may have."""
    if instance.phase is not Phase.FAILED or instance.error is None:
        return False
    return instance.unknown or instance.error.type_name == StepCancelledError.__name__


def _is_unfinished(instance: Instance) -> bool:
    """Whether it failed, and a resume has more to do in it than what failed of itself."""
    if instance.phase is not Phase.FAILED or instance.child is None:
        return was_cut(instance)
    return was_cut(instance) or any(i.reason in _STOPS for scope in instance.child.all() for i in scope.instances)


def _first_step(scope: Scope) -> Instance | None:
    """The first failure of a scope; what was cut short only if there is no other."""
    return next((i for i in scope.failures if not was_cut(i)), next(iter(scope.failures), None))


def _first_element(owner: Instance) -> Instance | None:
    """The failed element with the lowest index; what was cut short only if there is no other."""
    failed = () if owner.parts is None else owner.parts.failed.values()
    return min(failed, key=lambda e: (was_cut(e), e.index), default=None)


def _completed(owner: Instance) -> Completed:
    return Completed(owner.path, owner.scope.round, owner.epoch, owner.attempt)


def _rejected(owner: Instance, part: Instance) -> Skipped | Failed:
    """A human said No to something inside, and nothing failed."""
    if owner.index is not None:
        return _failed(owner, StepRejectedError(owner.path, part.path))
    return Skipped(owner.path, owner.scope.round, owner.epoch, SkipReason.REJECTED)


def _part_failed(owner: Instance, part: Instance) -> Failed:
    info = part.unrouted or part.error
    error = PartFailedError(owner.path, part.path, str(info))
    error.__cause__ = living(part.exception, info)
    return _failed(owner, error, "" if info is None else info.traceback)


def _failed(owner: Instance, error: AresError, traceback: str = "") -> Failed:
    info = describe(error, traceback)
    return Failed(owner.path, owner.scope.round, owner.epoch, owner.attempt, info, exception=error)
