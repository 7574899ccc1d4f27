"""How things with parts end: a map by its elements, a sub-workflow by its steps, an execution by the root's.

Pure functions from the state to the one fact that says so.
"""

from ares.errors import AresError, ExecutionTimeoutError, PartFailedError, StepCancelledError, StepTimeoutError
from ares.records import ErrorInfo, ExecutionStatus
from ares.walk.facts import Completed, Ended, Failed, SkipReason
from ares.walk.judge import describe
from ares.walk.state import Instance, State
from ares.walk.table import Phase
from ares.workflow.policies import OnItemFailure

_CUT = (SkipReason.CANCELLED, SkipReason.TIMEOUT, SkipReason.FAIL_FAST)


def map_verdict(owner: Instance) -> Completed | Failed:
    """How a map step ends, whose elements have all ended or will not begin any more."""
    parts = owner.parts
    assert parts is not None
    broken = owner.node.spec.on_item_failure is OnItemFailure.FAIL and parts.failed
    if broken:
        return _part_failed(owner, parts.failed[min(parts.failed)])
    cut_inside = any(isinstance(e.exception, StepCancelledError) for e in parts.failed.values())
    if parts.ended < parts.length or (owner.scope.stop in _CUT and cut_inside):
        return _failed(owner, StepCancelledError(owner.path, owner.scope.stop or "fail_fast"))
    return _completed(owner)


def child_verdict(owner: Instance) -> Completed | Failed:
    """How a sub-workflow step (or element) ends, all of whose steps have ended."""
    child = owner.child
    assert child is not None
    skipped = {i.reason for i in child.instances if i.phase is Phase.SKIPPED}
    if child.stop is SkipReason.TIMEOUT or SkipReason.TIMEOUT in skipped:
        cut = any(isinstance(i.exception, StepCancelledError) for i in child.instances)
        if cut or SkipReason.TIMEOUT in skipped:
            return _failed(owner, StepTimeoutError(owner.path, owner.node.spec.timeout or 0.0))
    for instance in child.instances:
        if instance.phase is Phase.FAILED or instance.unrouted is not None:
            return _part_failed(owner, first_inside(child.instances))
    if SkipReason.CANCELLED in skipped:
        return _failed(owner, StepCancelledError(owner.path))
    return _completed(owner)


def first_inside(instances: list[Instance]) -> Instance:
    """The first of a scope's steps, in definition order, that failed of itself or got no route."""
    return next(i for i in instances if i.phase is Phase.FAILED or i.unrouted is not None)


def execution_end(state: State) -> Ended:
    """How the execution ends, all of whose steps have ended."""
    if state.cancelled is not None:
        return Ended(ExecutionStatus.CANCELLED, ErrorInfo("", state.cancelled) if state.cancelled else None)
    if state.overdue is not None:
        error = ExecutionTimeoutError(state.execution_id, state.overdue, unfinished(state))
        return Ended(ExecutionStatus.FAILED, describe(error))
    failure = first_failure(state)
    if failure is not None:
        return Ended(ExecutionStatus.FAILED, failure.unrouted or failure.error)
    return Ended(ExecutionStatus.COMPLETED)


def unfinished(state: State) -> tuple[str, ...]:
    """The top-level steps that an execution out of time did not get done."""
    return tuple(
        i.path
        for i in state.root.instances
        if i.reason is SkipReason.TIMEOUT or (i.phase is Phase.FAILED and isinstance(i.exception, StepCancelledError))
    )


def first_failure(state: State) -> Instance | None:
    """The first instance that failed of itself and made the execution fail, innermost first."""
    for instance in state.failures:
        if _matters(state, instance):
            return instance
    return None


def _matters(state: State, failure: Instance) -> bool:
    """Whether a failure reached the root: it is not one that a map collected, or that a retry made good."""
    instance = failure
    while True:
        if instance.phase is not Phase.FAILED and instance.unrouted is None:
            return False
        if instance.index is not None:
            instance = state.owner_of(instance)
        elif instance.scope.owner is not None:
            instance = instance.scope.owner
        else:
            return True


def _completed(owner: Instance) -> Completed:
    return Completed(owner.path, owner.scope.round, owner.epoch, owner.attempt)


def _part_failed(owner: Instance, part: Instance) -> Failed:
    info = part.unrouted or part.error
    error = PartFailedError(owner.path, part.path, str(info))
    error.__cause__ = part.exception
    return _failed(owner, error, "" if info is None else info.traceback)


def _failed(owner: Instance, error: AresError, traceback: str = "") -> Failed:
    info = describe(error, traceback)
    return Failed(owner.path, owner.scope.round, owner.epoch, owner.attempt, info, exception=error)
