"""Whether a fact about an instance can happen now. Pure functions of the two.

By the transition table; by epoch and attempt, so that a late message dies by one comparison; and, if it begins
something, by what is stopped.
"""

from typing import Final

from ares.errors import IllegalTransition
from ares.questions import AnswerAction, Cause, OnReject
from ares.walk import facts as f
from ares.walk.instance import Instance
from ares.walk.parts import NEW
from ares.walk.stopping import may_begin
from ares.walk.table import TRANSITIONS, Phase, Stimulus

_STIMULI: Final[dict[type, Stimulus]] = {
    f.Checked: Stimulus.CHECKED,
    f.Started: Stimulus.STARTED,
    f.Opened: Stimulus.OPENED,
    f.Skipped: Stimulus.SKIPPED,
    f.Routed: Stimulus.ROUTED,
    f.Unrouted: Stimulus.ROUTED,
    f.Asked: Stimulus.ASKED,
    f.Continued: Stimulus.CONTINUED,
}
_AFTER: Final = {
    f.After.FINAL: Stimulus.FAILED,
    f.After.RETRY: Stimulus.RETRY,
    f.After.RECONCILE: Stimulus.RECONCILE,
    f.After.SKIP: Stimulus.RECOVERED,
}
_BEGINS: Final = frozenset({Stimulus.STARTED, Stimulus.OPENED})
#: Where a step stands when it asks, by why.
_ASKS: Final = {Cause.BEFORE: Phase.PENDING, Cause.BODY: Phase.RUNNING, Cause.OUTCOME: Phase.RECONCILING}
#: What can happen to an attempt that was about to begin, by what interceptors said of it.
_DECIDES: Final = frozenset({Stimulus.DONE, Stimulus.DONE_UNROUTED, Stimulus.RETRY})


def admit(fact: f.InstanceFact, instance: Instance) -> Phase:
    """The phase that a fact leads to.

    Raises:
        IllegalTransition: it cannot happen now.
    """
    stimulus = _stimulus(fact, instance)
    target = TRANSITIONS.get((instance.phase, stimulus))
    needed = Phase.OPEN if isinstance(fact, f.Completed) else _ASKS[fact.cause] if isinstance(fact, f.Asked) else None
    if target is None or needed not in (None, instance.phase):
        raise IllegalTransition(fact.path, instance.phase, stimulus)
    if instance.epoch != fact.epoch:
        raise IllegalTransition(fact.path, f"in epoch {instance.epoch}", f"{stimulus} (epoch {fact.epoch})")
    if instance.scope.round != fact.round:
        raise IllegalTransition(fact.path, f"in round {instance.scope.round}", f"{stimulus} (round {fact.round})")
    waits = instance.phase is Phase.PENDING or instance.phase is Phase.RETRYING
    begins = stimulus in _BEGINS or (waits and _is_verdict(fact, stimulus, instance))
    attempt = getattr(fact, "attempt", None)
    if attempt is not None and attempt != instance.attempt + begins:
        raise IllegalTransition(fact.path, f"in attempt {instance.attempt}", f"{stimulus} (attempt {attempt})")
    if instance.index is not None and instance.phase is Phase.PENDING:
        _admit_element(instance, stimulus)
    if begins and not _has_form(fact, instance):
        raise IllegalTransition(fact.path, "a step of another kind", stimulus)
    if (begins or stimulus is Stimulus.CONTINUED) and not may_begin(instance):
        raise IllegalTransition(fact.path, "not to begin any more", stimulus)
    return target


def _is_verdict(fact: f.InstanceFact, stimulus: Stimulus, instance: Instance) -> bool:
    """Whether interceptors said this of an attempt that was about to begin."""
    is_refusal = isinstance(fact, f.Failed) and fact.attempt > instance.attempt
    return stimulus in _DECIDES or is_refusal or getattr(fact, "reason", None) is f.SkipReason.VERDICT


def _stimulus(fact: f.InstanceFact, instance: Instance) -> Stimulus:
    """What a fact is to the table."""
    stimulus = _STIMULI.get(type(fact))
    if stimulus is not None:
        return stimulus
    if isinstance(fact, f.Failed):
        return _AFTER[fact.after]
    if isinstance(fact, f.Answered):
        return _of_answer(fact, instance)
    asks = instance.is_branch_point and getattr(fact, "targets", None) is None
    return Stimulus.DONE_UNROUTED if asks else Stimulus.DONE


def _of_answer(fact: f.Answered, instance: Instance) -> Stimulus:
    """What an answer is to the table, by what was asked.

    Raises:
        IllegalTransition: it is the answer to another question, or none that can be given to this one.
    """
    asked = instance.question
    if asked is None or asked.key != fact.key:
        raise IllegalTransition(fact.path, instance.phase, f"an answer to {fact.key!r}")
    if not instance.is_inside_open:
        raise IllegalTransition(fact.path, "inside what is not open", f"an answer to {fact.key!r}")
    if fact.action is AnswerAction.RUN_AGAIN:
        if asked.cause is not Cause.OUTCOME:
            raise IllegalTransition(fact.path, f"asked {asked.cause}", fact.action)
        return Stimulus.CLEARED
    if is_no(fact, asked) or asked.cause is Cause.BODY:
        return Stimulus.ANSWERED
    return Stimulus.CLEARED if asked.cause is Cause.BEFORE else Stimulus.TOLD


def is_no(answer: f.Answered, asked: f.Asked) -> bool:
    """Whether the answer ends the step: a No that its body does not want to hear."""
    return answer.action is AnswerAction.REJECT and asked.on_reject is OnReject.SKIP


def _has_form(fact: f.InstanceFact, instance: Instance) -> bool:
    """Whether what begins is what its step runs by: a body, a map's elements, or a sub-workflow."""
    if isinstance(fact, f.Opened):
        return instance.is_map if fact.length is not None else instance.has_child
    return not instance.is_map and not instance.has_child


def _admit_element(element: Instance, stimulus: Stimulus) -> None:
    """An element that begins is the one that its map knows, or one that has not begun yet."""
    owner, i = element.map_step, element.index
    parts = owner.parts
    assert i is not None
    known = None if parts is None else parts.active.get(i)
    is_new = parts is not None and parts.states[i] == NEW and element.epoch == owner.epoch
    if owner.phase is not Phase.OPEN or not (known is element or (known is None and is_new)):
        raise IllegalTransition(element.path, f"an element of a step that is {owner.phase}", stimulus)
