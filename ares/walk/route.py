"""Which branches a decision takes, and whether it may. Pure; who decided is not asked here."""

from typing import Any

from ares.errors import RouteError
from ares.walk.facts import Routed, Unrouted
from ares.walk.judge import describe
from ares.walk.state import Instance
from ares.workflow.policies import OnNoRoute


def _permitted(instance: Instance) -> tuple[str, ...]:
    return tuple(instance.scope.graph.nodes[b].id for b in instance.node.branches)


def check_route(instance: Instance, targets: tuple[str, ...]) -> RouteError | None:
    """What is wrong with taking these branches, or None."""
    permitted = _permitted(instance)
    for target in targets:
        if target not in permitted:
            return RouteError(instance.path, f"{target!r} is no branch of it", permitted)
    graph = instance.scope.graph
    conflict = graph.route_conflict(instance.node.index, [graph.by_id[t] for t in targets])
    if conflict is not None:
        return RouteError(instance.path, f"a route that takes {', '.join(targets)}: {conflict}", permitted)
    return None


def decide_route(instance: Instance, answer: Any, *, source: str) -> Routed | Unrouted:
    """The fact that follows from a router's answer; None: it abstained, and ``on_no_route`` says what happens."""
    permitted = _permitted(instance)
    if answer is None:
        mode = instance.node.spec.on_no_route
        if mode is OnNoRoute.FAIL:
            return _unrouted(instance, RouteError(instance.path, "nobody decided its route", permitted))
        targets, source = (permitted if mode is OnNoRoute.ALL else ()), "on_no_route"
    else:
        names = (answer,) if isinstance(answer, str) or callable(answer) else tuple(answer)
        targets = instance.scope.graph.workflow.target_ids(names)
    problem = check_route(instance, targets)
    if problem is not None:
        return _unrouted(instance, problem)
    return Routed(instance.path, instance.scope.round, instance.epoch, targets, source)


def _unrouted(instance: Instance, error: RouteError) -> Unrouted:
    return Unrouted(instance.path, instance.scope.round, instance.epoch, describe(error), exception=error)
