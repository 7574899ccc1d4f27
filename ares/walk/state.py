"""The state of a walk, and how each fact changes it.

``State.apply`` is the only thing that changes what an instance is, and it decides nothing: it moves the instance by
the transition table and keeps what the fact says. So replaying a journal is applying its facts, in order, and asks
nobody. What happens *next* is decided in ``ares.walk.walk``.

A fact is admitted before it takes effect (``ares.walk.admission``). One that is refused changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ares.errors import IllegalTransition
from ares.questions import AnswerAction, Cause
from ares.walk import facts as f
from ares.walk import rewind, rounds, stopping
from ares.walk.admission import admit, is_no
from ares.walk.instance import NO_ANSWERS, Instance, Scope, find, inside_of
from ares.walk.parts import Parts, gathered
from ares.walk.table import TRANSITIONS, Phase, Stimulus
from ares.workflow.graph import Graph
from ares.workflow.policies import Delivery

__all__ = ["Instance", "Scope", "State", "find"]


class State:
    """Everything a journal says about an execution. Changed by ``apply`` alone."""

    def __init__(self, graph: Graph, execution_id: str = "") -> None:
        self.graph = graph
        self.execution_id = execution_id
        #: Raised by every resume, interrupt and set-back.
        self.epoch = 0
        self.root = Scope(graph, "", None, 0)
        #: Every scope by its prefix; the outer ones first.
        self.scopes: dict[str, Scope] = {"": self.root}
        self.created: f.Created | None = None
        self.timeout: float | None = None
        #: The reason of the cancel, which may be empty; None while there is none.
        self.cancelled: str | None = None
        #: The timeout that has passed, in seconds.
        self.overdue: float | None = None
        self.ended: f.Ended | None = None
        #: Whether the definition was changed meanwhile, so that what is finished need not follow from it.
        self.changed = False
        #: Set by whoever replays the journal of another definition: facts that do not fit are passed over.
        self.lenient = False
        #: By path, what outlives any set-back: when it was last made fresh, and whose outcome is unknown.
        self.reborn: dict[str, int] = {}
        self.unsure: set[str] = set()
        #: The answers that bodies are given, by path and key, with the epoch in which the instance was made fresh last.
        self.answers: dict[str, tuple[int, dict[str, f.Answered]]] = {}
        #: Whether a human ever said No.
        self.was_refused = False
        #: Those that wait for an answer, by path, in what is open.
        self.waiting: dict[str, Instance] = {}
        #: What becomes of a scope whose round is over when the next one begins.
        self.dispose: Callable[[Scope], None] = rounds.dismantle
        self._on_execution: dict[type, Callable[[Any, Instance | None], Instance | None]] = {
            f.Created: self._created,
            f.Resumed: self._resumed,
            f.CancelRequested: self._cancel_requested,
            f.DeadlinePassed: self._deadline_passed,
            f.Interrupted: self._interrupted,
            f.Waiting: self._waiting,
            f.Ended: self._ended,
            f.RoundEnded: self._round_ended,
            f.RoundStarted: self._round_started,
        }
        self._on_instance: dict[type, Callable[[Any, Instance], None]] = {
            f.Checked: self._checked,
            f.Started: self._started,
            f.Opened: self._opened,
            f.Succeeded: self._succeeded,
            f.Failed: self._failed,
            f.Completed: self._completed,
            f.Skipped: self._skipped,
            f.Routed: self._routed,
            f.Unrouted: self._unrouted,
            f.Asked: self._asked,
            f.Answered: self._answered,
            f.Continued: self._continued,
        }

    def apply(self, fact: f.Fact, instance: Instance | None = None) -> Instance | None:
        """Change the state by one fact; ``instance`` spares looking it up. Returns the instance it was about.

        Raises:
            IllegalTransition: the fact cannot happen now; nothing has changed.
        """
        try:
            effect = self._on_instance.get(type(fact))
            if effect is None:
                return self._on_execution[type(fact)](fact, instance)
            at: Any = fact
            if instance is None:
                instance = self._located(at)
            target = admit(at, instance)
        except IllegalTransition:
            if self.lenient:
                return None
            raise
        if instance.index is not None and instance.phase is Phase.PENDING:
            instance.siblings.join(instance)
        if instance.phase is Phase.WAITING:
            self.waiting.pop(instance.path, None)
        elif target is Phase.WAITING:
            self.waiting[instance.path] = instance
        instance.phase = target
        effect(fact, instance)
        return instance

    def accepts(self, fact: f.InstanceFact, instance: Instance | None = None) -> bool:
        """Whether ``apply`` would take a fact: not one that comes too late, or begins what may not begin any more."""
        try:
            admit(fact, instance or self._located(fact))
        except IllegalTransition:
            return False
        return True

    # --- finding instances ----------------------------------------------------------------------

    def find(self, path: str) -> Instance | None:
        """The instance at a path; None for a map element that completed or has not begun, and for a path unknown."""
        return find(self.scopes, path)

    def instances(self) -> Iterator[Instance]:
        """Every instance but the elements that completed or never began."""
        for scope in list(self.scopes.values()):
            for instance in scope.instances:
                yield instance
                if instance.parts is not None:
                    yield from list(instance.parts.active.values())
                    yield from list(instance.parts.failed.values())
                    yield from list(instance.parts.skipped.values())

    def new_element(self, owner: Instance, index: int) -> Instance:
        """An element about to begin. It joins the map's parts when its first fact is applied."""
        element = Instance(owner.scope, owner.node, f"{owner.path}[{index}]", owner.epoch, index)
        element.born = owner.born
        element.snapshot = owner.snapshot
        self.recall(element)
        return element

    def recall(self, instance: Instance) -> None:
        """Give an instance that begins anew what outlived its last life."""
        if self.reborn or self.unsure:
            instance.born = max(instance.born, self.reborn.get(instance.path, 0))
            instance.unknown = instance.path in self.unsure
        else:
            instance.unknown = False
        if instance.index is None and instance.scope.owner is not None:
            instance.born = max(instance.born, instance.scope.owner.born)
        born, answers = self.answers.get(instance.path, (-1, {}))
        instance.answers = answers if born == instance.born else NO_ANSWERS

    def _located(self, fact: f.InstanceFact) -> Instance:
        instance = self.find(fact.path)
        if instance is not None:
            return instance
        # The first fact of a map element makes it.
        if fact.path.endswith("]"):
            base, _, index = fact.path[:-1].rpartition("[")
            owner = self.find(base)
            if owner is not None and owner.parts is not None and int(index) < owner.parts.length:
                return self.new_element(owner, int(index))
        raise IllegalTransition(fact.path, "unknown", type(fact).__name__)

    # --- facts of an instance --------------------------------------------------------------------

    def _checked(self, fact: f.Checked, instance: Instance) -> None:
        instance.condition = fact.holds

    def _started(self, fact: f.Started, instance: Instance) -> None:
        instance.attempt = fact.attempt

    def _opened(self, fact: f.Opened, instance: Instance) -> None:
        instance.attempt = fact.attempt
        instance.snapshot = len(instance.scope.writes)
        if fact.length is None:
            self._open_scope(instance, fact.set_back)
        elif instance.parts is not None and instance.parts.length == fact.length:
            self._wait_on(instance.parts.active.values())
        else:
            rewind.drop_inside(self, instance)
            instance.parts = Parts(fact.length)

    def _open_scope(self, owner: Instance, set_back: tuple[f.SetBack, ...]) -> None:
        prefix = inside_of(owner.path, owner.scope.round)
        scope = self.scopes.get(prefix)
        if scope is None:
            assert owner.node.child is not None
            scope = Scope(owner.node.child, prefix, owner, self.epoch)
            self.scopes[prefix] = owner.scope.inside[prefix] = scope
            if self.reborn or self.unsure or self.answers:
                for instance in scope.instances:
                    self.recall(instance)
        else:
            # Again, after a retry or a resume. What is still said of the last time is known by its epoch.
            self.epoch += 1
            owner.epoch = self.epoch
            scope.owner = owner
            scope.overdue = False
            scope.stop = None
            scope.epoch = self.epoch
            rewind.set_back(self, set_back, self.epoch)
            rounds.reconsider(scope, is_retried=True)
            self._wait_on(scope.instances)
        owner.child = scope

    def _wait_on(self, instances: Iterable[Instance]) -> None:
        """What lay in a step that was set back, and asked, asks again now that it is open."""
        self.waiting.update((each.path, each) for each in instances if each.phase is Phase.WAITING)

    def _succeeded(self, fact: f.Succeeded, instance: Instance) -> None:
        instance.attempt = fact.attempt
        instance.output = fact.output
        instance.duration = fact.duration
        instance.error = instance.exception = None
        self._know(instance, unknown=False)
        if fact.targets is not None:
            instance.targets = frozenset(fact.targets)
        if instance.index is None:
            instance.scope.writes.extend([(name, value, instance) for name, value in fact.writes])
        else:
            parts = instance.siblings
            if fact.writes:
                parts.writes[instance.index] = fact.writes
            parts.keep(instance)

    def _failed(self, fact: f.Failed, instance: Instance) -> None:
        instance.attempt = fact.attempt
        instance.error = fact.error
        instance.exception = fact.exception
        instance.delay = fact.delay
        instance.duration = fact.duration
        instance.retryable = fact.retryable
        self._know(instance, unknown=fact.unknown)
        if fact.recovery:
            instance.recoveries = fact.recovery
        if fact.after is f.After.SKIP:
            self._do_without(instance, f.SkipReason.RECOVERED)
        elif fact.after is f.After.FINAL:
            if instance.index is not None:
                instance.siblings.keep(instance)
            else:
                self._broke(instance)

    def _broke(self, instance: Instance) -> None:
        scope = instance.scope
        scope.failures.append(instance)
        if scope.graph.workflow.fail_fast:
            stopping.spread(scope, f.SkipReason.FAIL_FAST)

    def _completed(self, _: f.Completed, instance: Instance) -> None:
        instance.error = instance.exception = None
        if instance.is_map:
            assert instance.parts is not None
            instance.output = gathered(instance)
            for i in sorted(instance.parts.writes):
                instance.scope.writes.extend([(name, value, instance) for name, value in instance.parts.writes[i]])
            return
        child = instance.child
        assert child is not None
        instance.output = {child.graph.nodes[i].id: child.instances[i].output for i in child.graph.sinks}
        if instance.index is not None:
            instance.siblings.keep(instance)

    def _skipped(self, fact: f.Skipped, instance: Instance) -> None:
        self._do_without(instance, f.SkipReason(fact.reason), fact.origin)

    def _do_without(self, instance: Instance, reason: f.SkipReason, origin: str = "") -> None:
        instance.reason = reason
        instance.origin = origin
        instance.error = instance.exception = None
        if instance.index is not None:
            instance.siblings.keep(instance)

    def _routed(self, fact: f.Routed, instance: Instance) -> None:
        instance.targets = frozenset(fact.targets)

    def _unrouted(self, fact: f.Unrouted, instance: Instance) -> None:
        instance.targets = frozenset()
        instance.unrouted = fact.error
        instance.exception = fact.exception
        self._broke(instance)

    def _asked(self, fact: f.Asked, instance: Instance) -> None:
        instance.question = fact
        instance.answer = None

    def _answered(self, fact: f.Answered, instance: Instance) -> None:
        asked = instance.question
        assert asked is not None
        instance.answer = fact
        self.was_refused = self.was_refused or fact.action is AnswerAction.REJECT
        if fact.action is AnswerAction.RUN_AGAIN:
            instance.granted += 1
            instance.retryable = True
            self._know(instance, unknown=False)
        elif asked.cause is not Cause.OUTCOME and not is_no(fact, asked):
            # Of an outcome nothing is kept: the next one that is unknown is asked about anew. Nor is a No, which ends
            # the step: should that be set back, it has to ask.
            answers = {**instance.answers, fact.key: fact}
            instance.answers = answers
            self.answers[instance.path] = (instance.born, answers)

    def _continued(self, fact: f.Continued, instance: Instance) -> None:
        """The phase says it all."""

    def _know(self, instance: Instance, *, unknown: bool) -> None:
        """Keep whether the outcome of an at_most_once body is unknown."""
        if instance.unknown or unknown:
            instance.unknown = unknown
            (self.unsure.add if unknown else self.unsure.discard)(instance.path)

    # --- facts of the execution ------------------------------------------------------------------

    def _created(self, fact: f.Created, _: Instance | None) -> None:
        if self.created is not None:
            raise IllegalTransition("", "created", fact.kind)
        self.created = fact
        self.timeout = fact.timeout
        self.root.inputs = dict(fact.inputs)

    def _not_ended(self, fact: f.ExecutionFact) -> None:
        if self.ended is not None:
            raise IllegalTransition("", self.ended.status, fact.kind)

    def _cancel_requested(self, fact: f.CancelRequested, _: Instance | None) -> None:
        self._not_ended(fact)
        if self.cancelled is None:
            self.cancelled = fact.reason
            stopping.spread(self.root, f.SkipReason.CANCELLED)

    def _deadline_passed(self, fact: f.DeadlinePassed, instance: Instance | None) -> Instance | None:
        self._not_ended(fact)
        if not fact.path:
            self.overdue = fact.timeout
            stopping.spread(self.root, f.SkipReason.TIMEOUT)
            return None
        instance = instance or self.find(fact.path)
        if instance is None or instance.phase is not Phase.OPEN or instance.child is None:
            raise IllegalTransition(fact.path, "unknown" if instance is None else instance.phase, fact.kind)
        if instance.epoch != fact.epoch:
            raise IllegalTransition(fact.path, f"in epoch {instance.epoch}", f"{fact.kind} (epoch {fact.epoch})")
        instance.child.overdue = True
        stopping.spread(instance.child, f.SkipReason.TIMEOUT)
        return instance

    def _waiting(self, fact: f.Waiting, _: Instance | None) -> None:
        self._not_ended(fact)

    def _ended(self, fact: f.Ended, _: Instance | None) -> None:
        self._not_ended(fact)
        self.ended = fact

    def _interrupted(self, fact: f.Interrupted, _: Instance | None) -> None:
        self._not_ended(fact)
        self.epoch += 1
        self._cut(fact.in_flight, crashed=False)

    def _resumed(self, fact: f.Resumed, _: Instance | None) -> None:
        if fact.epoch <= self.epoch:
            raise IllegalTransition("", f"in epoch {self.epoch}", f"{fact.kind} (epoch {fact.epoch})")
        rewind.check(self, fact.set_back, fact.in_flight)
        is_retried = self.ended is not None or fact.reopened
        self.epoch = fact.epoch
        self._cut(fact.in_flight, crashed=True)
        if fact.timeout is not None:
            self.timeout = fact.timeout
        if is_retried:
            self.overdue = None
        if fact.reopened:
            self.cancelled = None
        self.ended = None
        rewind.set_back(self, fact.set_back, fact.epoch)
        if fact.accepted is not None:
            self.changed = True
            rewind.adopt(self, fact.epoch)
        cancelled = f.SkipReason.CANCELLED if self.cancelled is not None else None
        stopping.derive(self.root, cancelled or (f.SkipReason.TIMEOUT if self.overdue is not None else None))
        for scope in self.root.all():
            rounds.reconsider(scope, is_retried=is_retried)

    def _round_ended(self, fact: f.RoundEnded, _: Instance | None) -> None:
        self._not_ended(fact)
        scope = self.scope_of(fact)
        rounds.admit_end(scope, fact, is_lenient=self.lenient)
        scope.over = fact
        scope.turn = None

    def _round_started(self, fact: f.RoundStarted, _: Instance | None) -> None:
        self._not_ended(fact)
        before = self.scope_of(fact)
        rounds.admit_start(before, fact)
        rounds.begin(self, before)
        self.dispose(before)

    def scope_of(self, fact: f.RoundFact) -> Scope:
        """The scope that a fact about a round is about.

        Raises:
            IllegalTransition: there is none in this epoch.
        """
        scope = self.scopes.get(rounds.prefix_of(fact))
        if scope is None or scope.epoch != fact.epoch:
            raise IllegalTransition(fact.path, "no scope" if scope is None else f"in epoch {scope.epoch}", fact.kind)
        return scope

    def _cut(self, paths: tuple[str, ...], *, crashed: bool) -> None:
        """Attempts ended with their process or their run: they count as not begun, unless they may not run twice."""
        for path in paths:
            instance = self.find(path)
            if instance is None or instance.phase is not Phase.RUNNING:
                continue
            unknown = instance.node.spec.delivery is Delivery.AT_MOST_ONCE
            instance.phase = TRANSITIONS[Phase.RUNNING, Stimulus.CUT_UNKNOWN if unknown else Stimulus.CUT]
            instance.epoch = self.epoch
            instance.attempt -= 1
            instance.crashes += crashed
            instance.retryable = True
            self._know(instance, unknown=unknown)
