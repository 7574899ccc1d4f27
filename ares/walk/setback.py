"""What a resume sets back: which steps run again, and what they forget. Pure; decides nothing by itself.

What failed, was cut short, or was skipped because of it goes back, with everything downstream; so does whatever the
caller names in ``rerun``. A step that goes back for its own sake keeps what it had finished inside: completed elements,
completed child steps. One that lies downstream of another is done again as a whole, since its inputs may change.
"""

from collections.abc import Iterable

from ares.errors import UsageError
from ares.walk.facts import REOPENED, SetBack
from ares.walk.state import Instance, Scope, State
from ares.walk.table import Phase
from ares.workflow.policies import Delivery, Trigger

ITEM_FAILURES = "item_failures"


def failed_inside(state: State, scope: Scope) -> tuple[SetBack, ...]:
    """What the retry of a sub-workflow step runs again: its failed and blocked steps, and what follows them."""
    return _plan(state, scope, failed=True, kept=set(), named=set(), items=False)


def plan(state: State, rerun: str | Iterable[str], *, failed: bool) -> tuple[SetBack, ...]:
    """What a resume sets back. ``failed``: what failed goes back, beside what ``rerun`` names.

    ``rerun`` is step ids or paths, or ``"item_failures"`` for the failures that maps collected. Raises ``UsageError``
    for a path that is no step of this execution, and for a completed at_most_once step that would run again unnamed.
    """
    items = rerun == ITEM_FAILURES
    names = () if items else (rerun,) if isinstance(rerun, str) else tuple(rerun)
    named: dict[Scope, set[int]] = {}
    kept: dict[Scope, set[int]] = {}
    elements: list[SetBack] = []
    for name in names:
        _name(state, name, named, kept, elements)
    if items:
        for instance in list(state.instances()):
            if instance.parts is not None and instance.parts.failed:
                _keep(instance, kept)
    out: list[SetBack] = list(elements)
    for scope in list(state.scopes.values()):
        if scope is state.root or scope in named or scope in kept:
            at_root = failed and scope is state.root
            out += _plan(
                state, scope, failed=at_root, kept=kept.get(scope, set()), named=named.get(scope, set()), items=items
            )
    _check_at_most_once(state, out)
    return tuple(out)


def _name(
    state: State,
    name: str,
    named: dict[Scope, set[int]],
    kept: dict[Scope, set[int]],
    elements: list[SetBack],
) -> None:
    if name.endswith("]"):
        owner = state.find(name[: name.rfind("[")])
        index = name[name.rfind("[") + 1 : -1]
        if owner is None or owner.parts is None or not index.isdecimal() or int(index) >= owner.parts.length:
            raise UsageError(f"rerun names {name!r}, which is no element of this execution")
        elements.append(SetBack(name, redo=True, fresh=True))
        _keep(owner, kept)
        return
    instance = state.find(name)
    if instance is None:
        raise UsageError(f"rerun names {name!r}, which is no step of this execution")
    named.setdefault(instance.scope, set()).add(instance.node.index)
    if instance.scope.owner is not None:
        _keep(instance.scope.owner, kept)


def _keep(instance: Instance, kept: dict[Scope, set[int]]) -> None:
    """Set a step back that keeps what it finished inside, and with it those it lies in."""
    at: Instance | None = instance
    while at is not None:
        kept.setdefault(at.scope, set()).add(at.node.index)
        at = at.scope.owner


def _plan(
    state: State, scope: Scope, *, failed: bool, kept: set[int], named: set[int], items: bool
) -> list[SetBack] | tuple[SetBack, ...]:
    seeds = set(kept)
    routes: set[int] = set()
    if failed:
        for instance in scope.instances:
            if instance.phase is Phase.FAILED or instance.reason in REOPENED:
                seeds.add(instance.node.index)
            elif instance.unrouted is not None:
                routes.add(instance.node.index)
    below = _below(scope, seeds | named)
    out = []
    for instance in scope.instances:
        i = instance.node.index
        if i in named or i in below:
            fresh = i in named or instance.node.spec.trigger is Trigger.ALWAYS
            out.append(SetBack(instance.path, redo=True, fresh=fresh))
        elif i in seeds:
            again = items and instance.parts is not None
            fresh = instance.node.spec.trigger is Trigger.ALWAYS or again
            out.append(SetBack(instance.path, redo=False, fresh=fresh))
        elif i in routes:
            out.append(SetBack(instance.path, route=True))
    return tuple(out)


def _below(scope: Scope, seeds: set[int]) -> set[int]:
    nodes = scope.graph.nodes
    found: set[int] = set()
    left = [d for i in seeds for d in nodes[i].dependents]
    while left:
        i = left.pop()
        if i not in found:
            found.add(i)
            left.extend(nodes[i].dependents)
    return found


def _check_at_most_once(state: State, entries: list[SetBack]) -> None:
    for entry in entries:
        instance = state.find(entry.path)
        if instance is None or not entry.redo or (entry.fresh and instance.node.spec.trigger is not Trigger.ALWAYS):
            continue
        inside = [instance]
        for prefix in (instance.path + "/", instance.path + "["):
            for scope_prefix, scope in state.scopes.items():
                if scope_prefix.startswith(prefix):
                    inside += scope.instances
        for step in inside:
            done = step.phase is Phase.COMPLETED or (step.parts is not None and step.parts.ended)
            if done and step.node.spec.delivery is Delivery.AT_MOST_ONCE:
                raise UsageError(
                    f"step {step.path!r} is at_most_once and completed, and would run again: name it in rerun, too"
                )
