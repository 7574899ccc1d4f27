"""What may not begin any more, and why. Pure functions of the state.

Three things stop a scope: a cancel, a deadline, and, under its workflow's ``fail_fast``, a failure in it. A stop holds
from the fact on that says so, and for all that is open inside; later facts that would begin something are refused. The
first two are *cutting*: what runs is asked to end, and nothing is tried again. A failure lets what began come to its
own end, retries included; but a sub-workflow is not tried again, because steps would begin inside.

ALWAYS steps are exempt, with all that is inside them: they are there to clean up.
"""

from ares.walk.facts import SkipReason
from ares.walk.instance import CUTTING, Instance, Scope
from ares.walk.table import Phase
from ares.workflow.policies import OnItemFailure

_STRENGTH = {None: 0, SkipReason.FAIL_FAST: 1, SkipReason.TIMEOUT: 2, SkipReason.CANCELLED: 3}


def stop_of(instance: Instance) -> SkipReason | None:
    """Why it is to stop; None while it is not."""
    return None if instance.is_always else instance.scope.stop


def is_cut(instance: Instance) -> bool:
    """Whether it is to end although it began."""
    return stop_of(instance) in CUTTING


def may_retry(instance: Instance) -> bool:
    """Whether what began, and failed, may be tried again."""
    stop = stop_of(instance)
    return stop is None or (stop not in CUTTING and not instance.has_child)


def may_begin(instance: Instance) -> bool:
    """Whether an attempt of it may begin now. What its dependencies say is another question."""
    if instance.phase is not Phase.PENDING:
        return may_retry(instance)
    if instance.index is not None:
        return takes_elements(instance.map_step)
    return stop_of(instance) is None


def takes_elements(owner: Instance) -> bool:
    """Whether an element of a map step may begin: none does after the first failure, unless those are collected."""
    parts = owner.parts
    if parts is None or owner.phase is not Phase.OPEN or stop_of(owner) is not None:
        return False
    return not parts.failed or owner.node.spec.on_item_failure is OnItemFailure.COLLECT


def spread(top: Scope, reason: SkipReason) -> None:
    """Stop a scope and all that is open inside."""
    left = [top]
    while left:
        scope = left.pop()
        if _STRENGTH[scope.stop] < _STRENGTH[reason]:
            scope.stop = reason
            for inner in scope.inside.values():
                owner = inner.owner
                if owner is not None and owner.phase is Phase.OPEN and not owner.is_always:
                    left.append(inner)


def derive(top: Scope, reason: SkipReason | None) -> None:
    """Work out anew what is stopped, at and under the root: ``reason`` stops all of it."""
    for scope in top.all():
        scope.stop = None
    if reason is not None:
        spread(top, reason)
    for scope in top.live():
        if scope.overdue:
            spread(scope, SkipReason.TIMEOUT)
        elif scope.failures and scope.graph.workflow.fail_fast:
            spread(scope, SkipReason.FAIL_FAST)
