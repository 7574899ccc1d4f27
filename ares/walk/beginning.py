"""How what is ready begins: a body, or a step's parts. Also when it begins again: retried, reconciled, resumed."""

from collections.abc import Callable, Mapping
from typing import Final

from ares.errors import MapSourceError, OutcomeUnknownError, StepCrashedError
from ares.walk import facts as f
from ares.walk import questions
from ares.walk.agenda import Agenda, RetryIn, WorkKind
from ares.walk.instance import Instance, Scope, inside_of
from ares.walk.judge import cut_short
from ares.walk.setback import failed_inside
from ares.walk.stopping import is_cut, may_retry, stop_of
from ares.walk.table import FINAL, Phase


def start(agenda: Agenda, instance: Instance) -> None:
    """Begin a step that is ready."""
    node, scope = instance.node, instance.scope
    instance.snapshot = len(scope.writes)
    if node.map_source is not None:
        source = scope.instances[node.map_source].output
        if isinstance(source, list | tuple):
            _open(agenda, instance, len(source))
        else:
            source_id = scope.graph.nodes[node.map_source].id
            agenda.fail(instance, MapSourceError(instance.path, source_id, type(source).__qualname__))
    elif instance.has_child:
        open_child(agenda, instance)
    elif may_run(agenda, instance):
        agenda.push(WorkKind.BODY, instance)


def may_run(agenda: Agenda, instance: Instance) -> bool:
    """Whether the body of an instance may run next; if not, it ends here, or is reconciled first."""
    if instance.unknown:
        agenda.fail(instance, OutcomeUnknownError(instance.path), unknown=True, after=f.After.RECONCILE)
        return False
    limit = instance.node.spec.max_crashes
    if limit is not None and instance.crashes >= limit:
        agenda.fail(instance, StepCrashedError(instance.path, instance.crashes))
        return False
    return True


def open_child(agenda: Agenda, instance: Instance) -> None:
    """Open a sub-workflow, or open it again: then only what failed or was blocked runs again."""
    inside = agenda.state.scopes.get(inside_of(instance.path, instance.scope.round))
    _open(agenda, instance, None, () if inside is None else failed_inside(inside))
    assert instance.child is not None
    count(instance.child)


def count(scope: Scope) -> None:
    """Find out what in a scope has ended, and what each step waits for."""
    final = [i.phase in FINAL for i in scope.instances]
    scope.remaining = final.count(False)
    scope.waiting = [sum(not final[d] for d in node.deps) for node in scope.graph.nodes]
    for instance, is_final in zip(scope.instances, final, strict=True):
        instance.settled = is_final
    scope.swept = scope.stop  # what it stops finds that out as it is taken up


def retry(agenda: Agenda, instance: Instance) -> None:
    """Have what failed tried again when its delay is over."""
    if may_retry(instance):
        agenda.command(RetryIn(instance, instance.epoch, instance.attempt, instance.delay))
    else:
        give_up(agenda, instance)


def give_up(agenda: Agenda, instance: Instance) -> None:
    """End what waits for a retry."""
    agenda.fail(instance, cut_short(instance, instance.error, instance.exception))


def reconcile(agenda: Agenda, instance: Instance) -> None:
    """An at_most_once body was cut short: find out whether it took effect, or fail for not knowing."""
    if is_cut(instance):
        agenda.fail(instance, OutcomeUnknownError(instance.path, stop_of(instance) or ""), unknown=True)
    elif instance.node.reconcile is not None or questions.is_told(instance):
        agenda.push(WorkKind.RECONCILE, instance)
    else:
        questions.ask_outcome(agenda, instance)


def go_on(agenda: Agenda, instance: Instance) -> None:
    """Have the body of a step run again, whose question was answered."""
    if questions.may_go_on(agenda, instance):
        agenda.push(WorkKind.BODY, instance)


#: What follows where a step stands between two lives of its body.
AGAIN: Final[Mapping[Phase, Callable[[Agenda, Instance], None]]] = {
    Phase.RETRYING: retry,
    Phase.RECONCILING: reconcile,
    Phase.WAITING: questions.wait,
    Phase.ANSWERED: go_on,
}


def _open(agenda: Agenda, instance: Instance, length: int | None, set_back: tuple[f.SetBack, ...] = ()) -> None:
    round_, attempt = instance.scope.round, instance.attempt + 1
    agenda.emit(f.Opened(instance.path, round_, instance.epoch, attempt, length, set_back), instance)
