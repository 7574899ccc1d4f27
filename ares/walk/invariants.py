"""What is true of a walk between any two calls. Every test of the walk ends with ``check``."""

from ares.errors import WalkError
from ares.walk.state import ACTIVE, BROKEN, DONE, Instance, Scope
from ares.walk.table import FINAL, Phase
from ares.walk.walk import Walk
from ares.workflow.policies import Trigger


def check(walk: Walk, *, in_flight: int = 0, timers: int = 0) -> None:
    """Raise ``WalkError`` naming what is not as it must be.

    ``in_flight`` is the number of pieces of work handed out and not answered and settled, ``timers`` that of the
    retries and deadlines pending: without either, a walk that has not ended must have work queued.
    """
    state = walk.state
    for scope in state.scopes.values():
        _check_scope(scope)
        for instance in scope.instances:
            _check_instance(scope, instance)
    running = sum(i.phase is Phase.RUNNING for i in state.instances())
    _must(running == state.running, "state", f"counts {state.running} running, {running} are")
    if state.ended is not None:
        left = [i.path for i in state.instances() if i.phase not in FINAL]
        _must(not left, "execution", f"ended, but {left[:3]} have not")
    elif not in_flight and not timers:
        _must(not walk.is_idle(), "execution", "can do nothing any more, but has not ended")


def _must(holds: bool, where: str, rule: str) -> None:
    if not holds:
        raise WalkError(f"{where}: {rule}")


def _check_scope(scope: Scope) -> None:
    where = f"scope {scope.prefix!r}"
    unsettled = sum(not i.settled for i in scope.instances)
    _must(scope.remaining == unsettled, where, f"counts {scope.remaining} unsettled, {unsettled} are")
    for node in scope.graph.nodes:
        waiting = sum(not scope.instances[d].settled for d in node.deps)
        _must(scope.waiting[node.index] == waiting, f"{where} {node.id}", f"waits for {scope.waiting}, not {waiting}")


def _check_instance(scope: Scope, instance: Instance) -> None:
    phase, node = instance.phase, instance.node
    where = repr(instance)
    _must(phase in FINAL or not instance.settled, where, "is settled before its end")
    deps = [scope.instances[d] for d in node.deps]
    if phase not in (Phase.PENDING, Phase.SKIPPED):
        _must(all(d.phase in FINAL for d in deps), where, "began before its dependencies ended")
        if node.spec.trigger is not Trigger.ALWAYS:
            _must(not any(d.blocks for d in deps), where, "began although a dependency blocks")
            _must(not deps or any(d.phase is Phase.COMPLETED for d in deps), where, "began with no dependency completed")
        if node.spec.trigger is Trigger.ALL_SUCCEEDED:
            _must(all(d.phase is Phase.COMPLETED for d in deps), where, "began with a dependency not completed")
        if node.branch_of is not None:
            targets = scope.instances[node.branch_of].targets
            _must(targets is not None and node.id in targets, where, "began without being routed to")
    _must((phase is Phase.FAILED) <= (instance.error is not None), where, "failed without an error")
    _must((phase is Phase.SKIPPED) == (instance.reason is not None), where, "reason and phase disagree")
    if phase is Phase.COMPLETED and node.branches:
        permitted = {scope.graph.nodes[b].id for b in node.branches}
        _must(instance.targets is not None and instance.targets <= permitted, where, "has no route, or a stranger's")
    if instance.parts is not None:
        _check_parts(instance)
    if phase is Phase.OPEN and instance.child is not None:
        _must(instance.child.owner is instance, where, "is not the owner of its scope")


def _check_parts(owner: Instance) -> None:
    parts = owner.parts
    assert parts is not None
    where = repr(owner)
    ended = parts.states.count(DONE) + parts.states.count(BROKEN)
    _must(parts.ended == ended, where, f"counts {parts.ended} ended elements, {ended} are")
    _must(parts.states.count(ACTIVE) == len(parts.active), where, "active elements and states disagree")
    _must(set(parts.failed) == {i for i, s in enumerate(parts.states) if s == BROKEN}, where, "failed and states disagree")
    limit = owner.node.spec.max_concurrency
    _must(limit is None or parts.running <= limit, where, f"{parts.running} elements run, {limit} may")
    if owner.phase is Phase.COMPLETED:
        _must(parts.ended == parts.length, where, "completed with elements left")
