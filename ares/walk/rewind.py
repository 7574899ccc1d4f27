"""How instances are set back: what a ``SetBack`` undoes, and what outlives it. Which ones are: see ``setback``.

A step goes back to PENDING in a new epoch. What it had finished inside (elements, child steps) stays, unless ``redo``
says that its inputs may be others now; the elements that failed go back with it. Its writes are withdrawn.

Two things outlive even a ``redo``: the epoch in which an instance was last made fresh, since its idempotency key must
never return to an older one, and that the outcome of an at_most_once body is unknown, which only a ``reconcile`` or the
caller who names that very step can change.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ares.errors import IllegalTransition
from ares.walk.facts import SetBack
from ares.walk.instance import Instance, Scope, inside_of, starts_inside
from ares.walk.parts import ACTIVE, NEW
from ares.walk.table import TRANSITIONS, Phase, Stimulus

if TYPE_CHECKING:
    from ares.walk.state import State


def check(state: "State", entries: tuple[SetBack, ...], cut: Collection[str] = ()) -> None:
    """Refuse what cannot be set back. ``cut`` are the paths of what is cut short before.

    Raises:
        IllegalTransition: for a step that is running, or whose route is not there to be asked again.
    """
    for entry in entries:
        instance = state.find(entry.path)
        if instance is None or (instance.phase is Phase.RUNNING and entry.path in cut):
            continue
        stimulus = Stimulus.REROUTE if entry.route else Stimulus.SET_BACK
        if (instance.phase, stimulus) not in TRANSITIONS:
            raise IllegalTransition(entry.path, instance.phase, stimulus)


def set_back(state: "State", entries: tuple[SetBack, ...], epoch: int) -> None:
    """Set instances back. Paths that a changed definition does not have any more are passed over."""
    touched: dict[Scope, None] = {}
    for entry in entries:
        if entry.fresh:
            _make_fresh(state, entry, epoch)
        instance = state.find(entry.path)
        if entry.path.endswith("]"):
            _reset_element(state, entry)
        elif instance is not None:
            touched[instance.scope] = None
            if entry.route:
                instance.phase = TRANSITIONS[instance.phase, Stimulus.REROUTE]
                instance.unrouted = instance.exception = instance.targets = None
            else:
                _reset(state, instance, entry, epoch)
    for scope in touched:
        scope.failures = [i for i in scope.failures if i.is_broken]
        scope.writes = [w for w in scope.writes if w[2].phase is not Phase.PENDING]


def adopt(state: "State", epoch: int) -> None:
    """The definition is another one now: a map that is open over what is no list of its length any more begins anew."""
    for scope in state.root.live():
        for instance in scope.instances:
            if instance.phase is not Phase.OPEN or instance.parts is None or instance.node.map_source is None:
                continue
            source = scope.instances[instance.node.map_source]
            is_list = source.phase is Phase.COMPLETED and isinstance(source.output, list | tuple)
            if not is_list or len(source.output) != instance.parts.length:
                _reset(state, instance, SetBack(instance.path, redo=True), epoch)


def drop_inside(state: "State", instance: Instance) -> None:
    """Drop all that is inside a step: its elements, its child's steps, and theirs."""
    _hush(state, instance.path)
    beside = instance.scope.inside
    starts = starts_inside(instance.path)
    for prefix in [p for p in beside if p.startswith(starts)] if instance.node.child is not None else ():
        for scope in beside.pop(prefix).all():
            del state.scopes[scope.prefix]
    instance.parts = instance.child = None


def _hush(state: "State", owner: str) -> None:
    """What asks inside a step is asked no more, or not before that opens again."""
    inside = starts_inside(owner)
    if any(path.startswith(inside) for path in state.waiting):
        state.waiting = {path: each for path, each in state.waiting.items() if not path.startswith(inside)}


def _make_fresh(state: "State", entry: SetBack, epoch: int) -> None:
    state.reborn[entry.path] = epoch
    named = [p for p in state.unsure if p == entry.path or (entry.redo and p.startswith(entry.path + "["))]
    # What lies in an element is no element: child steps are named by themselves.
    state.unsure.difference_update(p for p in named if "/" not in p[len(entry.path) :])


def _reset(state: "State", instance: Instance, entry: SetBack, epoch: int) -> None:
    state.waiting.pop(instance.path, None)
    _hush(state, instance.path)
    instance.phase = TRANSITIONS[instance.phase, Stimulus.SET_BACK]
    instance.epoch = epoch
    instance.attempt = instance.crashes = instance.recoveries = instance.granted = 0
    instance.question = instance.answer = None
    instance.condition = instance.output = instance.error = instance.exception = None
    instance.reason = instance.targets = instance.unrouted = None
    instance.origin = ""
    instance.retryable = True
    state.recall(instance)
    if entry.redo:
        drop_inside(state, instance)
    elif instance.parts is not None:
        for i in list(instance.parts.failed):
            instance.parts.forget(i)


def _reset_element(state: "State", entry: SetBack) -> None:
    cut = entry.path.rindex("[")
    owner = state.find(entry.path[:cut])
    i = int(entry.path[cut + 1 : -1])
    if owner is None or owner.parts is None or i >= owner.parts.length:
        return
    parts = owner.parts
    state.waiting.pop(entry.path, None)
    _hush(state, entry.path)
    if parts.states[i] == ACTIVE:
        parts.withdraw(i)
    elif parts.states[i] != NEW:
        parts.forget(i)
    inside = owner.scope.inside.pop(inside_of(entry.path, owner.scope.round), None) if entry.redo else None
    for scope in () if inside is None else inside.all():
        del state.scopes[scope.prefix]
