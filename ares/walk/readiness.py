"""Whether a step runs, once all its dependencies are final. Pure functions of a scope.

In this order: a dependency that failed or blocks; a branch that was not taken, and what lies behind it; the trigger.
An ALWAYS step runs whatever happened.
"""

from typing import NamedTuple

from ares.walk.facts import SkipReason
from ares.walk.state import Instance, Scope
from ares.walk.table import Phase
from ares.workflow.policies import Trigger


class Skip(NamedTuple):
    """The verdict that a step does not run, and the step that is the reason."""

    reason: SkipReason
    origin: str = ""


def verdict(scope: Scope, instance: Instance) -> Skip | None:
    """Why the step is skipped, or None when it runs. All its dependencies are final."""
    node = instance.node
    trigger = node.spec.trigger
    if trigger is Trigger.ALWAYS or not node.deps:
        return None
    deps = [scope.instances[i] for i in node.deps]
    return _blocked(deps) or _not_taken(scope, instance, deps) or _not_triggered(deps, trigger)


def _blocked(deps: list[Instance]) -> Skip | None:
    for dep in deps:
        if dep.phase is Phase.FAILED:
            return Skip(SkipReason.UPSTREAM_FAILED, dep.node.id)
        if dep.blocks:
            assert dep.reason is not None
            return Skip(dep.reason, dep.origin)
    return None


def _not_taken(scope: Scope, instance: Instance, deps: list[Instance]) -> Skip | None:
    node = instance.node
    if node.branch_of is not None:
        point = scope.instances[node.branch_of]
        if point.unrouted is not None:
            return Skip(SkipReason.NO_ROUTE, point.node.id)
        if point.phase is Phase.SKIPPED:
            # Nobody decided, so no branch was taken; which point that was stays the origin.
            return Skip(SkipReason.NOT_TAKEN, point.origin if point.reason is SkipReason.NOT_TAKEN else point.node.id)
        if point.targets is None or node.id not in point.targets:
            return Skip(SkipReason.NOT_TAKEN, point.node.id)
    completed = [dep.node.index for dep in deps if dep.phase is Phase.COMPLETED]
    for dep in deps:
        if dep.reason is SkipReason.NOT_TAKEN:
            below = scope.graph.below(scope.graph.by_id[dep.origin]) if completed else frozenset[int]()
            if not any(i in below for i in completed):
                return Skip(SkipReason.NOT_TAKEN, dep.origin)
    return None


def _not_triggered(deps: list[Instance], trigger: Trigger) -> Skip | None:
    if trigger is Trigger.ALL_SUCCEEDED:
        for dep in deps:
            if dep.phase is not Phase.COMPLETED:
                return Skip(SkipReason.UPSTREAM_SKIPPED, dep.node.id)
    if all(dep.phase is not Phase.COMPLETED for dep in deps):
        return Skip(SkipReason.UPSTREAM_SKIPPED, deps[0].node.id)
    return None
