"""Which branches a decision takes, or why it cannot be followed. Pure: whom to ask is the shell's business.

A body chooses with a ``Goto`` (``check_route``); else its router is asked, and what it answers becomes the one fact
that settles the branch point (``decide_route``). Both refuse the same: a name that is no branch, and two branches that
may write one variable in no order.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ares.errors import RouteError
from ares.walk.facts import Routed, Unrouted
from ares.walk.instance import Instance
from ares.walk.judge import describe
from ares.workflow.policies import OnNoRoute
from ares.workflow.spec import StepSpec

#: How the problem begins where everybody abstained, and where nobody was asked.
_NOBODY: Final = "no route: "
UNASKED: Final = "no route was asked for: "


def check_route(instance: Instance, targets: Iterable[str]) -> RouteError | None:
    """Why a body may not choose these branches; None if it may.

    Args:
        instance: the step that returned a ``Goto``.
        targets: the ids in it (``Workflow.target_ids``).
    """
    if instance.index is not None:
        return RouteError(instance.path, "an element of a map chose branches; the map step's router does that")
    if not instance.node.branches:
        return RouteError(instance.path, "it returned a Goto, but has no branches")
    return _checked(instance, targets, "its body chose")


def decide_route(
    instance: Instance,
    answer: Any,
    *,
    source: str = "router",
    reason: str = "",
    scores: Mapping[str, float] | None = None,
    abstained: tuple[str, ...] | None = None,
) -> Routed | Unrouted:
    """The fact that follows from what a router answered.

    Args:
        instance: the branch point.
        answer: a branch, or a list or tuple of them, by id or function; an empty one takes none, None abstains.
        source: who answered.
        reason: why, in the words of whoever did.
        scores: of every candidate, where there are any.
        abstained: who was asked before and had no answer; the step's own router, if it has one, unless given.
    """
    if answer is None:
        return _nobody_decided(instance, abstained)
    answers = list(answer) if isinstance(answer, list | tuple) else [answer]
    strange = [a for a in answers if not isinstance(a, str | StepSpec) and not callable(a)]
    if strange:
        problem = f"{_named(source)} answered {answer!r}, which is neither a branch nor a list of branches"
        return unrouted(instance, RouteError(instance.path, problem, _permitted(instance)))
    targets = instance.scope.graph.workflow.target_ids(answers)
    error = _checked(instance, targets, f"{_named(source)} chose")
    if error is not None:
        return unrouted(instance, error)
    return _routed(instance, targets, source, reason, abstained or (), scores)


def unrouted(instance: Instance, error: RouteError, traceback: str = "") -> Unrouted:
    """The fact that a branch point got no route, for this reason."""
    return Unrouted(instance.path, instance.scope.round, instance.epoch, describe(error, traceback), exception=error)


def nobody_decided(fact: Unrouted) -> bool:
    """Whether there is no route because everybody abstained: not one that cannot be followed, or was not asked for."""
    return fact.error.message.startswith(str(RouteError(fact.path, _NOBODY)))


def nobody_was_asked(fact: Unrouted) -> bool:
    """Whether there is no route because the walk had to end before anybody was asked for one."""
    return fact.error.message.startswith(str(RouteError(fact.path, UNASKED)))


def _checked(instance: Instance, targets: Iterable[str], chose: str) -> RouteError | None:
    graph, node = instance.scope.graph, instance.node
    found: dict[int, None] = {}
    for name in targets:
        index = graph.by_id.get(name)
        if index is None or index not in node.branches:
            return RouteError(instance.path, f"{chose} {name!r}, which is no branch of it", _permitted(instance))
        found[index] = None
    conflict = graph.route_conflict(node.index, found)
    if conflict is None:
        return None
    one, other = conflict.branches
    problem = f"{chose} {one!r} and {other!r}, which may both write variable {conflict.variable!r}; it has no reducer"
    return RouteError(instance.path, problem, _permitted(instance))


def _nobody_decided(instance: Instance, abstained: tuple[str, ...] | None) -> Routed | Unrouted:
    on_no_route = instance.node.spec.on_no_route
    if abstained is None:
        abstained = ("router",) if instance.node.router is not None else ()
    if on_no_route is OnNoRoute.FAIL:
        problem = "it chose no branch and has no router"
        if abstained:
            problem = "its router abstained" if abstained == ("router",) else f"{', '.join(abstained)} abstained"
        return unrouted(instance, RouteError(instance.path, f"{_NOBODY}{problem}", _permitted(instance)))
    targets = _permitted(instance) if on_no_route is OnNoRoute.ALL else ()
    return _routed(instance, targets, "fallback", f"on_no_route={on_no_route.value}", abstained)


def _routed(
    instance: Instance,
    targets: Iterable[str],
    source: str,
    reason: str = "",
    abstained: tuple[str, ...] = (),
    scores: Mapping[str, float] | None = None,
) -> Routed:
    graph = instance.scope.graph
    taken = tuple(dict.fromkeys(graph.nodes[graph.by_id[name]].id for name in targets))
    round_, epoch = instance.scope.round, instance.epoch
    return Routed(instance.path, round_, epoch, taken, source, reason, dict(scores or {}), abstained)


def _permitted(instance: Instance) -> tuple[str, ...]:
    return instance.scope.graph.ids(instance.node.branches)


def _named(source: str) -> str:
    return "its body" if source == "step" else "its router" if source == "router" else source
