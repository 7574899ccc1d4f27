"""What is true of a walk between any two calls. Every test of the walk ends with ``check``."""

from ares.errors import WalkError
from ares.walk.instance import Instance, Scope
from ares.walk.parts import ACTIVE, BROKEN, DONE
from ares.walk.questions import is_told, rests
from ares.walk.setback import holds_done_once
from ares.walk.stopping import stop_of
from ares.walk.table import FINAL, Phase
from ares.walk.walk import Walk
from ares.workflow.policies import Trigger


def check(walk: Walk, *, in_flight: int = 0, timers: int = 0) -> None:
    """Raise ``WalkError`` naming what is not as it must be.

    Args:
        walk: after ``begin``.
        in_flight: the number of pieces of work handed out and not answered, and of facts applied and not settled.
        timers: the number of retries that wait. Without either, a walk that has not ended has work queued, or waits.
    """
    state = walk.state
    for scope in state.root.all():
        _must(state.scopes.get(scope.prefix) is scope, repr(scope), "cannot be found by its prefix")
        for instance in scope.instances:
            _check_instance(instance)
            if not state.changed:
                _check_reasons(scope, instance)
            _must(instance.unknown == (instance.path in state.unsure), repr(instance), "is not known to be unknown")
    _must(len(state.scopes) == len(state.root.all()), "state", "has scopes that lie in nothing")
    for scope in state.root.live():
        _check_scope(scope)
    waiting = {i.path for i in state.instances() if i.phase is Phase.WAITING and i.is_inside_open}
    _must(set(state.waiting) == waiting, "state", "does not know who waits")
    stopped = [path for path, i in state.waiting.items() if stop_of(i) is not None]
    _must(bool(in_flight) or not stopped, "state", f"{stopped[:3]} are to stop, and still wait")
    if state.ended is not None:
        left = [i.path for scope in state.root.live() for i in scope.instances if i.phase not in FINAL]
        _must(not left, "execution", f"ended, but {left[:3]} have not")
        _must(not state.waiting, "execution", "ended with questions open")
    elif not in_flight and not timers:
        _must(not walk.is_idle() or rests(state.root), "execution", "can do nothing any more, but has not ended")


def _must(holds: bool, where: str, rule: str) -> None:
    if not holds:
        raise WalkError(f"{where}: {rule}")


def _check_scope(scope: Scope) -> None:
    where = repr(scope)
    unsettled = sum(not i.settled for i in scope.instances)
    _must(scope.remaining == unsettled, where, f"counts {scope.remaining} unsettled, {unsettled} are")
    for node in scope.graph.nodes:
        waiting = sum(not scope.instances[d].settled for d in node.deps)
        counted = scope.waiting[node.index]
        _must(counted == waiting, f"{where} {node.id}", f"waits for {counted} dependencies, {waiting} are unsettled")
    broken = {i for i in scope.instances if i.is_broken}
    _must(set(scope.failures) == broken, where, "does not know its failures")
    is_over = scope.over is not None or scope.turn is not None
    _must(not is_over or not scope.remaining, where, "is over before its steps are")
    _must(scope.over is None or scope.turn is None, where, "is asked what it knows")
    if scope.graph.workflow.fail_fast:
        _must(not broken or scope.stop is not None, where, "goes on after a failure")


def _check_instance(instance: Instance) -> None:
    phase, node = instance.phase, instance.node
    where = repr(instance)
    _must(phase in FINAL or not instance.settled, where, "is settled before its end")
    _must(phase is not Phase.WAITING or instance.question is not None, where, "waits for nothing")
    _must(phase is not Phase.ANSWERED or instance.answer is not None, where, "has no answer")
    _must(phase is not Phase.FAILED or instance.error is not None, where, "failed without an error")
    _must((phase is Phase.SKIPPED) == (instance.reason is not None), where, "reason and phase disagree")
    if phase is Phase.COMPLETED and instance.is_branch_point:
        _must(instance.targets is not None, where, "completed without a route")
    if instance.parts is not None:
        _check_parts(instance)
    if phase is Phase.OPEN:
        _must(instance.parts is not None if instance.is_map else instance.child is not None, where, "has no parts")
        _must(instance.child is None or instance.child.owner is instance, where, "is not the owner of its scope")
    retry = node.spec.retry
    limit = (1 if retry is None or instance.is_map else retry.max_attempts) + instance.recoveries + instance.granted
    _must(instance.attempt <= limit, where, f"may be attempted {limit} times")


def _check_reasons(scope: Scope, instance: Instance) -> None:
    """That it is where it is for reasons that still hold."""
    phase, node = instance.phase, instance.node
    where = repr(instance)
    if phase in (Phase.PENDING, Phase.SKIPPED):
        return
    deps = [scope.instances[d] for d in node.deps]
    # A branch point whose route is asked again is done for all but its branches.
    over = [d.phase in FINAL or (phase in FINAL and d.phase is Phase.ROUTING) for d in deps]
    stays = phase in FINAL and not all(over) and holds_done_once(scope, instance.path)
    _must(all(over) or stays, where, "began before its dependencies ended")
    completed = [d.phase in (Phase.COMPLETED, Phase.ROUTING) for d in deps]
    if not instance.is_always:
        _must(not any(d.blocks for d in deps), where, "began although a dependency blocks")
        _must(not deps or any(completed), where, "began with no dependency completed")
    if node.spec.trigger is Trigger.ALL_SUCCEEDED:
        _must(all(completed), where, "began with a dependency not completed")
    if node.map_source is not None and phase is not Phase.FAILED:
        source = scope.instances[node.map_source].phase
        _must(source is Phase.COMPLETED or (source is Phase.ROUTING and phase in FINAL), where, "maps over nothing")
    if node.branch_of is not None:
        targets = scope.instances[node.branch_of].targets
        _must(targets is not None and node.id in targets, where, "began without being routed to")
    if instance.targets is not None:
        _must(instance.targets <= set(scope.graph.ids(node.branches)), where, "has a stranger's route")


def _check_parts(owner: Instance) -> None:
    parts = owner.parts
    assert parts is not None
    where = repr(owner)
    ended = parts.states.count(DONE) + parts.states.count(BROKEN)
    _must(parts.ended == ended, where, f"counts {parts.ended} ended elements, {ended} are")
    active = {i for i, state in enumerate(parts.states) if state == ACTIVE}
    _must(set(parts.active) == active, where, "active elements and states disagree")
    failed = {i for i, state in enumerate(parts.states) if state == BROKEN}
    _must(set(parts.failed) == failed, where, "failed elements and states disagree")
    for element in (*parts.active.values(), *parts.failed.values()):
        _check_instance(element)
    for i, element in parts.active.items():
        _must(element.phase not in FINAL, repr(element), "ended and is active")
        holds = element.phase in (Phase.RUNNING, Phase.OPEN, Phase.RECONCILING) and not is_told(element)
        _must(not holds or i in parts.holding or owner.phase is not Phase.OPEN, repr(element), "runs without a place")
    limit = owner.node.spec.max_concurrency
    _must(limit is None or len(parts.holding) <= limit, where, f"{len(parts.holding)} elements run, {limit} may")
    if owner.phase is Phase.COMPLETED:
        _must(parts.ended == parts.length, where, "completed with elements left")
