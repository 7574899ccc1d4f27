"""What router plugins are shown at a branch point, and what follows from what they say.

The same for a walk that goes on and for one that is looked at afterwards.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ares.records import RouteDecision, RouteState
from ares.walk import facts as f
from ares.walk.route import decide_route
from ares.walk.state import Instance

#: The histories that they are shown, by the names that a RouteState has for them.
SHOWN: Final = ("routes", "tools", "memory_hits")


def route_state(
    execution_id: str, instance: Instance, variables: Mapping[str, Any], histories: Mapping[str, Sequence[Any]]
) -> RouteState:
    """What routers are asked about.

    Args:
        execution_id: the execution.
        instance: the branch point, which has returned.
        variables: as they are to be shown.
        histories: those of ``SHOWN`` that there are.
    """
    scope = instance.scope
    return RouteState(
        execution_id,
        scope.graph.workflow.id,
        instance.node.id,
        instance.path,
        scope.round,
        instance.output,
        variables,
        scope.graph.ids(instance.node.branches),
        **histories,
    )


def followed(
    instance: Instance, state: RouteState, decision: RouteDecision | None, abstained: tuple[str, ...]
) -> tuple[f.Routed | f.Unrouted, str]:
    """The fact that follows from what router plugins said of a branch point that nobody else has decided.

    Args:
        instance: the branch point.
        state: what they were asked about.
        decision: what the first of them that has an answer said, if one has.
        abstained: the names of those that were asked before it.

    Returns:
        The fact, and why the decision counts as no answer; "" if it does not.
    """
    if instance.node.router is not None:
        abstained = ("router", *abstained)
    if decision is None:
        return decide_route(instance, None, abstained=abstained), ""
    if decision.source == "fallback" and not decision.targets:
        targets: tuple[str, ...] = state.candidates  # default traversal
    else:
        targets = tuple(decision.targets)
    decided = decide_route(
        instance,
        targets,
        source=decision.source,
        reason=decision.reason,
        scores={name: float(decision.scores.get(name, 0.0)) for name in state.candidates},
        abstained=abstained,
    )
    if isinstance(decided, f.Unrouted):
        # What a plugin may not choose counts as no answer, and the user is told.
        problem = f"{decided.error.message}; it counts as no answer"
        return decide_route(instance, None, abstained=(*abstained, decision.source)), problem
    return decided, ""
