"""Whether a scope whose steps have all ended has another round, and what carries over to it.

A round is a ``Scope``: the next one is another scope in the same place, with instances of its own in a new epoch, so
that nothing said of the round before can be taken for this one's. Its inputs and the variables carry over; outputs,
what was made fresh and what was unknown do not.

What the state says by itself (a failure, ``max_rounds``, a stop) is decided here. Where that leaves the answer open,
it is one question to the outside, for which the scope's ``turn`` stands, and one fact that answers it. A stop keeps the
next round from beginning whatever was answered; the answer stands for whoever resumes.

Variables are kept as writes, and a reducer is the user's code. So what earlier rounds wrote is kept by name, the last
value where there is no reducer. Whoever answered the question may have added it all up, and says so in the fact
(``variables``, which is not stored): then nothing of the past is kept. A replay has the writes instead, and comes to
the same values.
"""

from typing import TYPE_CHECKING, Final

from ares.errors import IllegalTransition
from ares.records import ExecutionStatus
from ares.walk.facts import RoundEnded, RoundExit, RoundFact, RoundStarted, SkipReason
from ares.walk.instance import CUTTING, Instance, Scope
from ares.walk.table import FINAL, Phase

if TYPE_CHECKING:
    from ares.walk.state import State

#: The end of the path of what stands for the question; no step's id can be like that.
UNTIL: Final = "#until"

_STOPS: Final = frozenset({SkipReason.CANCELLED, SkipReason.TIMEOUT, SkipReason.FAIL_FAST})


# --- the question -----------------------------------------------------------------------------------------------


def matter(scope: Scope, *, has_controllers: bool) -> bool:
    """Whether the end of a scope's steps is the end of a round: those of a loop, and, where there are controllers to be
    told, those of the execution."""
    return scope.graph.workflow.loop is not None or (has_controllers and scope.owner is None)


def exit_of(scope: Scope) -> RoundExit | None:
    """Why there is no other round, as far as the state says; None where that is to be asked."""
    stopped = _stopped(scope)
    if scope.stop in CUTTING and (scope.failures or stopped):
        return RoundExit(str(scope.stop))
    if scope.failures:
        return RoundExit.FAILED
    if stopped is not None:
        return RoundExit(str(stopped))
    loop = scope.graph.workflow.loop
    if loop is None:
        return RoundExit.NO_LOOP
    if loop.max_rounds is not None and scope.round >= loop.max_rounds:
        return RoundExit.MAX_ROUNDS
    return None if scope.stop is None else RoundExit(str(scope.stop))


def status_of(scope: Scope) -> ExecutionStatus:
    """How a round ended: what was cut short has failed."""
    is_whole = not scope.failures and _stopped(scope) is None
    return ExecutionStatus.COMPLETED if is_whole else ExecutionStatus.FAILED


def cut_off(scope: Scope) -> SkipReason | None:
    """What kept a loop from going on, if something did."""
    over = scope.over
    if over is None:
        return None
    return scope.stop if over.again else SkipReason(over.reason) if over.reason in _STOPS else None


def turn_of(scope: Scope) -> Instance:
    """What stands for the question about a scope."""
    turn = Instance(scope, scope.graph.turn, scope.prefix + UNTIL, scope.epoch)
    turn.snapshot = len(scope.writes)
    return turn


def _stopped(scope: Scope) -> SkipReason | None:
    """Why steps of it were skipped that would have run."""
    return next((i.reason for i in scope.instances if i.phase is Phase.SKIPPED and i.reason in _STOPS), None)


# --- facts ------------------------------------------------------------------------------------------------------


def ended(scope: Scope, reason: RoundExit | None, by: str = "") -> RoundEnded:
    """The fact that the round ended, for this reason; None: there is another."""
    path = scope.prefix[:-1]
    return RoundEnded(path, scope.round, scope.epoch, reason is None, "" if reason is None else reason.value, by)


def started(scope: Scope) -> RoundStarted:
    """The fact that the next round begins."""
    return RoundStarted(scope.prefix[:-1], scope.round + 1, scope.epoch)


def prefix_of(fact: RoundFact) -> str:
    """The prefix of the scope that a fact is about."""
    return fact.path + "/" if fact.path else ""


def admit_end(scope: Scope, fact: RoundEnded, *, is_lenient: bool) -> None:
    """Refuse a round's end that cannot be.

    Args:
        scope: what it is about.
        fact: what is said of it.
        is_lenient: the journal is of another definition, which may have lacked some of the steps.

    Raises:
        IllegalTransition: another round, one that has ended, steps that have not, another round under a stop.
    """
    where = _where(scope)
    if fact.round != scope.round or scope.over is not None or not _is_open(scope):
        raise IllegalTransition(fact.path, where, f"{fact.kind} (round {fact.round})")
    if not is_lenient and any(i.phase not in FINAL for i in scope.instances):
        raise IllegalTransition(fact.path, f"{where} with steps that have not ended", fact.kind)
    if fact.again and scope.stop is not None:
        raise IllegalTransition(fact.path, f"{where}, not to go on any more", fact.kind)


def admit_start(scope: Scope, fact: RoundStarted) -> None:
    """Refuse a round's beginning that cannot be.

    Raises:
        IllegalTransition: not the next round, or nobody said that there is one, or a stop came since.
    """
    is_next = scope.over is not None and scope.over.again and fact.round == scope.round + 1
    if not is_next or scope.stop is not None or not _is_open(scope):
        raise IllegalTransition(fact.path, _where(scope), f"{fact.kind} (round {fact.round})")


def _where(scope: Scope) -> str:
    return f"in round {scope.round}" + ("" if scope.over is None else ", which has ended")


def _is_open(scope: Scope) -> bool:
    return scope.owner is None or (scope.owner.phase is Phase.OPEN and scope.owner.child is scope)


# --- from one to the next ---------------------------------------------------------------------------------------


def begin(state: "State", before: Scope) -> None:
    """The next round begins: another scope stands where that of the one before stood."""
    state.epoch += 1
    scope = _next_round(before, state.epoch)
    for inner in before.all():
        del state.scopes[inner.prefix]
    state.scopes[scope.prefix] = scope
    if scope.owner is None:
        state.root = scope
    else:
        scope.owner.child = scope.owner.scope.inside[scope.prefix] = scope
    # What outlives a set-back is of an instance, and all of those are gone.
    for kept in (state.reborn, state.answers):
        for path in [p for p in kept if p.startswith(scope.prefix)]:
            del kept[path]
    state.unsure.difference_update([p for p in state.unsure if p.startswith(scope.prefix)])


def _next_round(scope: Scope, epoch: int) -> Scope:
    """The scope of the round after that of ``scope``, which gives it what it has of the past."""
    after = Scope(scope.graph, scope.prefix, scope.owner, epoch)
    after.round = scope.round + 1
    after.inputs = scope.inputs
    after.overdue = scope.overdue
    over = scope.over
    if over is not None and over.variables is not None:
        after.start = over.variables
        return after
    after.start, after.carried, scope.carried = scope.start, scope.carried, {}
    reducers = scope.graph.workflow.reducers
    for name, value, _ in scope.writes:
        if name in reducers:
            after.carried.setdefault(name, []).append(value)
        else:
            after.carried[name] = [value]
    return after


def reconsider(scope: Scope, *, is_retried: bool) -> None:
    """Something was set back, or is taken up again: does it still hold how the round ended?

    Args:
        scope: where it may have been set back.
        is_retried: whether what failed is tried again.
    """
    over = scope.over
    if over is None:
        return
    was_stopped = not over.again and over.reason in _STOPS and scope.stop is None
    failed = is_retried and over.error is not None
    if was_stopped or failed or any(i.phase not in FINAL for i in scope.instances):
        scope.over = None


def dismantle(scope: Scope) -> None:
    """Take apart a scope that is past, and all in it: steps and scopes refer to each other, and what they hold, outputs
    and exceptions with all that is in their frames, would stay until the garbage collector comes by."""
    for each in scope.all():
        each.instances.clear()
        each.failures.clear()
        each.writes.clear()
        each.inside.clear()
        each.owner = each.inputs = each.turn = each.newest = None


def is_past(instance: Instance) -> bool:
    """Whether it is of a round that is over and was taken apart."""
    return not instance.scope.instances
