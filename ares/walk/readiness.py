"""Whether a step runs, once all its dependencies are final. Pure functions of a scope.

In this order: a dependency that failed or blocks; a branch that was not taken, and what lies behind it; the trigger.
An ALWAYS step runs whatever happened.
"""

from typing import NamedTuple

from ares.walk.facts import SkipReason
from ares.walk.instance import Instance, Scope
from ares.walk.table import Phase
from ares.workflow.graph import Graph
from ares.workflow.policies import Trigger


class Skip(NamedTuple):
    """The verdict that a step does not run, and the step that is the reason."""

    reason: SkipReason
    origin: str = ""


def verdict(scope: Scope, instance: Instance) -> Skip | None:
    """Why the step is skipped, or None when it runs. All its dependencies are final."""
    node = instance.node
    if not node.deps:
        return None
    if instance.is_always:
        return None if node.map_source is None else _no_source(scope.instances[node.map_source])
    deps = [scope.instances[i] for i in node.deps]
    return _blocked(deps) or _not_taken(scope, instance, deps) or _not_triggered(scope, instance, deps)


def _blocked(deps: list[Instance]) -> Skip | None:
    for dep in deps:
        if dep.phase is Phase.FAILED:
            return Skip(SkipReason.UPSTREAM_FAILED, dep.node.id)
        if dep.blocks:
            assert dep.reason is not None
            is_first = dep.reason is SkipReason.REJECTED and not dep.origin
            return Skip(dep.reason, dep.node.id if is_first else dep.origin)
    return None


def _not_taken(scope: Scope, instance: Instance, deps: list[Instance]) -> Skip | None:
    if instance.node.branch_of is not None:
        skip = _not_chosen(scope.instances[instance.node.branch_of], instance)
        if skip is not None:
            return skip
    points = dict.fromkeys(dep.origin for dep in deps if dep.reason is SkipReason.NOT_TAKEN)
    if points:
        completed = [dep.node.index for dep in deps if dep.phase is Phase.COMPLETED]
        for point in points:
            if not _any_below(scope.graph, completed, point):
                return Skip(SkipReason.NOT_TAKEN, point)
    return None


def _not_chosen(point: Instance, branch: Instance) -> Skip | None:
    """Why a branch does not run, as far as its branch point is concerned."""
    if point.unrouted is not None:
        return Skip(SkipReason.NO_ROUTE, point.node.id)
    if point.targets is not None and branch.node.id in point.targets:
        return None
    # A branch point that was skipped chose nothing; if that was for a branch further out, that one is the reason.
    return Skip(SkipReason.NOT_TAKEN, point.origin if point.reason is SkipReason.NOT_TAKEN else point.node.id)


def _any_below(graph: Graph, steps: list[int], point: str) -> bool:
    """Whether one of some steps depends on a branch point, directly or not. Looks only at what lies between."""
    above = graph.by_id.get(point)
    if above is None:
        return False
    rank, nodes = graph.rank, graph.nodes
    floor = rank[above]
    seen = set(steps)
    left = [i for i in steps if rank[i] > floor]
    while left:
        for dep in nodes[left.pop()].deps:
            if dep == above:
                return True
            if rank[dep] > floor and dep not in seen:
                seen.add(dep)
                left.append(dep)
    return False


def _not_triggered(scope: Scope, instance: Instance, deps: list[Instance]) -> Skip | None:
    undone = [dep for dep in deps if dep.phase is not Phase.COMPLETED]
    if len(undone) == len(deps) or (undone and instance.node.spec.trigger is Trigger.ALL_SUCCEEDED):
        return Skip(SkipReason.UPSTREAM_SKIPPED, undone[0].node.id)
    source = instance.node.map_source
    return None if source is None else _no_source(scope.instances[source])


def _no_source(source: Instance) -> Skip | None:
    """Why a map step does not run, as far as its source is concerned: without a list there are no elements."""
    if source.phase is Phase.COMPLETED:
        return None
    return _blocked([source]) or Skip(SkipReason.UPSTREAM_SKIPPED, source.node.id)
