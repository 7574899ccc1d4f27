"""Questions to a human: when a step asks, what follows from the answer, and how a question is closed unanswered.

A question parks its instance in WAITING and nothing else; ``State.waiting`` has all of them. What the body asks is a
fact of the thread that ran it. The other two follow: the step's ``interrupt=``, once, before it begins; and whether an
``at_most_once`` body that was cut short took effect, where no ``reconcile`` can say so.
"""

from ares.errors import OutcomeUnknownError, StepRejectedError
from ares.questions import BEFORE_KEY, OUTCOME_KEY, AnswerAction, Cause, Interrupt, OnReject
from ares.walk import facts as f
from ares.walk.admission import is_no
from ares.walk.agenda import Agenda
from ares.walk.instance import Instance, Scope
from ares.walk.judge import cut_short
from ares.walk.parts import Parts
from ares.walk.stopping import is_cut, stop_of
from ares.walk.table import FINAL, Phase


def owes_question(instance: Instance) -> bool:
    """Whether a step that is ready has to ask before it begins. The elements of a map do not ask: their map has."""
    asks = instance.node.spec.interrupt is not None and instance.index is None
    return asks and not instance.unknown and BEFORE_KEY not in instance.answers


def ask_before(agenda: Agenda, instance: Instance) -> None:
    """Ask whether a step may begin."""
    given = instance.node.spec.interrupt
    asked = given if isinstance(given, Interrupt) else Interrupt(given or "")
    _ask(agenda, instance, BEFORE_KEY, asked.message, dict(asked.payload) or None, Cause.BEFORE)


def ask_outcome(agenda: Agenda, instance: Instance) -> None:
    """Ask whether a body that was cut short took effect."""
    error = "" if instance.error is None else f" ({instance.error})"
    message = f"Step {instance.path!r} is at_most_once and was cut short{error}. Did it take effect?"
    _ask(agenda, instance, OUTCOME_KEY, message, None, Cause.OUTCOME)


def wait(agenda: Agenda, instance: Instance) -> None:
    """A question is open: have whoever answers here asked, unless it is stopped meanwhile."""
    if stop_of(instance) is None:
        agenda.ask(instance)
    else:
        close(agenda, instance)


def is_told(instance: Instance) -> bool:
    """Whether a human said that an at_most_once body took effect, and what it returned."""
    asked, answer = instance.question, instance.answer
    if instance.phase is not Phase.RECONCILING or asked is None or answer is None:
        return False
    # The answer may be an older one: that the body was to run again, after which its outcome is unknown anew.
    return asked.cause is Cause.OUTCOME and answer.action is AnswerAction.APPROVE


def may_go_on(agenda: Agenda, instance: Instance) -> bool:
    """Whether the body of an instance may run again, now that its answer is in; if not, the instance ends here.

    A No is its end whatever stops it. It says nothing of whether an at_most_once body took effect.
    """
    asked, answer = instance.question, instance.answer
    assert asked is not None
    assert answer is not None
    if not is_no(answer, asked):
        if not is_cut(instance):
            return True
        agenda.fail(instance, cut_short(instance, instance.error, instance.exception))
    elif instance.index is not None:
        agenda.fail(instance, StepRejectedError(instance.path, answer.feedback), unknown=instance.unknown)
    else:
        agenda.skip(instance, f.SkipReason.REJECTED)
    return False


def close(agenda: Agenda, instance: Instance) -> None:
    """What waits for an answer is stopped: nobody needs it any more."""
    asked = instance.question
    if asked is not None and asked.cause is Cause.BEFORE:
        stop = stop_of(instance)
        assert stop is not None
        agenda.skip(instance, stop)
    elif instance.unknown:
        error = OutcomeUnknownError(instance.path, stop_of(instance) or "")
        error.__cause__ = instance.exception
        agenda.fail(instance, error, unknown=True)
    else:
        agenda.fail(instance, cut_short(instance, instance.error, instance.exception))


def rests(scope: Scope) -> bool:
    """Whether all that is left of a scope waits for answers. Looks at every step of it.

    What is ready, runs, retries or has an end of which not all has followed yet does not wait.
    """
    waits = False
    for each in scope.live():
        if not each.remaining:
            return False  # what it belongs to ends, or is being asked whether to try again
        for instance in each.instances:
            if instance.phase is Phase.OPEN:
                if instance.parts is not None and not _elements_rest(instance, instance.parts):
                    return False
            elif instance.phase is Phase.WAITING:
                waits = True
            elif not _is_still(each, instance):
                return False
    return waits or any(_waits_inside(instance) for each in scope.live() for instance in each.instances)


def _is_still(scope: Scope, instance: Instance) -> bool:
    """Whether a step has ended with all that follows, or waits for others to."""
    if instance.phase is Phase.PENDING:
        return scope.waiting[instance.node.index] > 0
    return instance.phase in FINAL and instance.settled


def _elements_rest(owner: Instance, parts: Parts) -> bool:
    """Whether all elements of a map wait for answers, or for a place that one inside which somebody waits takes."""
    if parts.queued or parts.unsettled:
        return False
    limit = owner.node.spec.max_concurrency
    is_full = limit is not None and len(parts.holding) >= limit
    due = set(parts.due) if is_full else ()
    return all(e.phase in (Phase.WAITING, Phase.OPEN) or i in due for i, e in parts.active.items())


def _waits_inside(instance: Instance) -> bool:
    parts = instance.parts if instance.phase is Phase.OPEN else None
    return parts is not None and any(element.phase is Phase.WAITING for element in parts.active.values())


def _ask(
    agenda: Agenda, instance: Instance, key: str, message: str, payload: dict[str, str] | None, cause: Cause
) -> None:
    round_, attempt = instance.scope.round, instance.attempt
    fact = f.Asked(instance.path, round_, instance.epoch, attempt, key, message, payload, cause, OnReject.SKIP)
    agenda.emit(fact, instance)
