"""The walk: what happens next.

Theory
------
An execution is a list of facts. ``State`` (``ares.walk.state``) is what they add up to; its every change is one fact,
and one table (``ares.walk.table``) says which fact may meet which phase of a step. This module looks at the state and
decides what follows. Its life is three calls, made by the one thread that owns the walk:

``apply(fact)``
    The fact is part of the journal now, so the state changes. Nothing else does, except that a failure or a cancel
    bars at once what must not begin any more.
``settle(fact, instance)``
    The fact is safe to build upon (committed, say), so its consequences happen: dependents are considered, steps are
    skipped, maps and sub-workflows open and complete, the execution ends. Consequences are facts themselves, applied
    here and handed out by ``drain()`` for the journal. They are not waited for: whoever loses them decides the same
    again.
``next_work()``
    One thing that may be done now, in definition order: a condition, a body, a reconciliation, a route, a verdict
    over a failed sub-workflow, a question to a human. Work is made when it is asked for, so a map of 100,000 elements
    costs what is under way. Whoever asks may pass over the work of some pools: it stays queued, and costs nothing.

Every question to the outside is one piece of work answered by one fact. What was asked and not answered when the
process died is asked again, because nothing but facts lasts: ``begin()`` looks at the state, wherever it comes from,
and queues everything that is due. That is all there is to resuming.

Applying in one order (the journal's) and settling in another (as commits arrive) is sound because settling only adds:
a step becomes ready when all its dependencies are settled, whichever came last. What takes away (a failure under
``fail_fast``, a cancel) becomes facts about each step it touches, and those stand in the journal where they happened.

A step is *considered* once, when its last dependency is settled; ``ares.walk.readiness`` says whether it runs. It ends
once: in COMPLETED, FAILED or SKIPPED. A *scope* (one workflow's steps) concludes when its last step has ended: the
root's end is the execution's, a child's is its sub-workflow step's. Where its workflow has a loop, whether there is
another round is one more question (``ares.walk.rounds``), and the next round is another scope in its place. "Nothing
running, nothing ready, something unfinished" can therefore be seen exactly, never guessed by the clock: it is a walk
that *rests*, because a human has been asked (``ares.walk.questions``), or a defect (``ares.walk.invariants``).
"""

from collections.abc import Callable, Collection

from ares.errors import RouteError, StepCancelledError, StepRejectedError
from ares.walk import beginning, elements, questions, rounds
from ares.walk import facts as f
from ares.walk.agenda import Agenda, Command, CutShort, RetryIn, StartTimer, Work, WorkKind
from ares.walk.conclude import child_verdict, execution_end
from ares.walk.instance import CUTTING, Instance, Scope
from ares.walk.readiness import verdict
from ares.walk.route import UNASKED, unrouted
from ares.walk.state import State
from ares.walk.stopping import is_cut, may_begin, may_retry, stop_of
from ares.walk.table import FINAL, Phase
from ares.walk.telling import Telling
from ares.workflow.graph import Graph

__all__ = ["Command", "CutShort", "RetryIn", "StartTimer", "Walk", "Work", "WorkKind"]


#: What follows from these is not simply what follows from where their instance stands. Of a start nothing does: that
#: comes with the attempt's end.
_OF_ITS_OWN_KIND = (f.Started, f.Continued, f.Asked, f.RoundEnded, f.CancelRequested, f.DeadlinePassed)

#: Where an instance stands of which something is asked.
_ASKED_IN = {WorkKind.RECONCILE: Phase.RECONCILING, WorkKind.ASK: Phase.WAITING, WorkKind.ROUTE: Phase.ROUTING}


class Walk:
    """Decides what follows from the facts of one execution. Owned by one thread; see the module's theory."""

    def __init__(self, graph: Graph, execution_id: str = "") -> None:
        self.state = State(graph, execution_id)
        self._agenda = Agenda(self.state)
        self.telling = Telling()
        #: Whether there are loop controllers. Set before the walk begins.
        self.has_controllers = False

    # --- facts in ---------------------------------------------------------------------------------

    def apply(self, fact: f.Fact, instance: Instance | None = None) -> Instance | None:
        """Change the state by one fact; ``instance`` spares looking it up. Returns the instance it was about.

        Raises:
            IllegalTransition: the fact cannot happen now; nothing has changed. ``state.accepts`` tells before.
        """
        return self.state.apply(fact, instance)

    def settle(self, fact: f.Fact, instance: Instance | None = None) -> None:
        """Let the consequences of an applied fact happen."""
        if isinstance(fact, _OF_ITS_OWN_KIND):
            self._settle(fact, instance)
        elif instance is not None and not rounds.is_past(instance):
            self._agenda.follow(instance)
        self._run()

    def _settle(self, fact: f.Fact, instance: Instance | None) -> None:
        match fact:
            case f.CancelRequested():
                self._sweep(self.state.root)
            case f.DeadlinePassed():
                owner = instance or self.state.find(fact.path)
                self._sweep(self.state.root if owner is None or owner.child is None else owner.child)
            case f.RoundEnded():
                self._conclude(self.state.scope_of(fact))
            case f.Asked() if instance is not None and instance.phase is Phase.WAITING:
                self._agenda.follow(instance)  # else what follows from the answer is settled with that

    def due(self, instance: Instance, epoch: int, attempt: int) -> None:
        """A retry's delay is over. Too late or twice is no harm."""
        if instance.phase is not Phase.RETRYING or instance.epoch != epoch or instance.attempt != attempt:
            return
        if not may_retry(instance):
            return  # what stopped it ends it
        if instance.index is not None:
            elements.due(self._agenda, instance)
        elif instance.has_child:
            beginning.open_child(self._agenda, instance)
        elif beginning.may_run(self._agenda, instance):
            self._agenda.push(WorkKind.BODY, instance)
        self._run()

    def told(self, work: Work) -> None:
        """Those who are told of steps have heard of one that begins (``BEFORE``) or has ended (``AFTER``)."""
        if work.instance.epoch == work.epoch:
            tell = self.telling.began if work.kind is WorkKind.BEFORE else self.telling.ended
            tell(work.instance)
            self._agenda.follow(work.instance)
            self._run()

    def begin(self) -> None:
        """Look at the whole state and queue all that is due. Called once, after the last replayed fact."""
        for scope in self.state.scopes.values():
            beginning.count(scope)
        self.telling.forget_past(self.state)
        self._take_up(self.state.root)
        self._run()

    # --- work and consequences out -----------------------------------------------------------------

    def drain(self) -> tuple[list[tuple[f.Fact, Instance | None]], list[Command]]:
        """The consequences since the last call: facts, applied already and to be journaled, and commands.

        Any call but ``apply``, ``put_back``, ``is_idle`` and ``next_pool`` may have some.
        """
        return self._agenda.drain()

    def next_work(self, takes: Callable[[str], bool] | None = None) -> Work | None:
        """The next thing that may be done now, first in definition order; None when there is nothing.

        Args:
            takes: is asked for a pool when there is work of it to be done, and says whether that may be taken.
        """
        while (work := self._pop(takes)) is not None:
            if work.kind is WorkKind.ELEMENT:
                element = self._next_element(work)
                if element is not None:
                    return element
            elif _is_wanted(work):
                return work
        return None

    def _pop(self, takes: Callable[[str], bool] | None) -> Work | None:
        agenda = self._agenda
        if not agenda.has_pools:
            return agenda.pop()
        refused: set[str] = set()
        while not agenda.is_empty(refused):
            pool = agenda.first_pool(refused)
            if pool is None or takes is None or not _is_wanted(agenda.first_of(pool)) or takes(pool):
                return agenda.pop(pool)
            refused.add(pool)
        return None

    def _next_element(self, work: Work) -> Work | None:
        if work.instance.epoch != work.epoch:
            return None
        element = elements.take(self._agenda, work.instance)
        self._run()
        return element

    def next_pool(self, closed: Collection[str]) -> str | None:
        """The pool of the next thing, if work of these pools is passed over; None if it takes no slot."""
        return self._agenda.first_pool(closed)

    def wants(self, pool: str) -> bool:
        """Whether there is work of a pool to be done. What has become void of it is forgotten."""
        while (work := self._agenda.first_of(pool)) is not None and not _is_wanted(work):
            self._agenda.pop(pool)
            if work.kind is WorkKind.ELEMENT:
                self._next_element(work)  # there is none, and that may be the end of its map
        return work is not None

    def put_back(self, work: Work) -> None:
        """``work`` was taken from ``next_work`` and will not be begun now: queue it again."""
        if work.instance.epoch != work.epoch:
            return
        if work.kind is WorkKind.BODY and work.instance.index is not None:
            elements.put_back(self._agenda, work.instance)
        else:
            self._agenda.push(work.kind, work.instance)

    def answer_here(self) -> None:
        """Have every question made work: somebody in this process answers them. Before ``begin``."""
        self._agenda.has_answerer = True

    def waits(self) -> bool:
        """Whether questions are open."""
        return bool(self.state.waiting)

    def is_idle(self, closed: Collection[str] = ()) -> bool:
        """Whether no work is queued, but of these pools. Queued work may have become void; ``next_work`` finds out."""
        return self._agenda.is_empty(closed)

    # --- consequences ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (instance := self._agenda.next_to_follow()) is not None:
            self._consequences(instance)

    def _consequences(self, instance: Instance) -> None:
        phase = instance.phase
        if self.telling.owes_end(instance):
            self._agenda.push(WorkKind.AFTER, instance)
        elif phase is Phase.OPEN:
            self._continue_open(instance)
        elif instance.index is not None:
            elements.settle(self._agenda, instance)
        elif phase in FINAL:
            self._settle_final(instance)
        elif phase is Phase.PENDING:
            self._consider(instance)
        elif phase is Phase.ROUTING:
            self._ask_route(instance)
        elif phase in beginning.AGAIN:
            beginning.AGAIN[phase](self._agenda, instance)

    def _settle_final(self, instance: Instance) -> None:
        if instance.settled:
            return
        instance.settled = True
        scope = instance.scope
        scope.remaining -= 1
        if instance.is_broken and scope.stop is not scope.swept:
            self._sweep(scope)
        for d in instance.node.dependents:
            scope.waiting[d] -= 1
            dependent = scope.instances[d]
            if not scope.waiting[d] and dependent.phase is Phase.PENDING:
                self._agenda.follow(dependent)
        if not scope.remaining:
            self._conclude(scope)

    def _consider(self, instance: Instance) -> None:
        scope, stop = instance.scope, stop_of(instance)
        skip = None if stop in CUTTING else verdict(scope, instance)
        if skip is not None:
            self._agenda.skip(instance, skip.reason, skip.origin)
        elif stop is not None:
            self._agenda.skip(instance, stop)
        elif instance.node.condition is not None and instance.condition is None:
            instance.snapshot = len(scope.writes)
            self._agenda.push(WorkKind.CONDITION, instance)
        elif instance.condition is False:
            self._agenda.skip(instance, f.SkipReason.CONDITION)
        elif questions.owes_question(instance):
            questions.ask_before(self._agenda, instance)
        elif self.telling.owes_beginning(instance):
            self._agenda.push(WorkKind.BEFORE, instance)
        else:
            beginning.start(self._agenda, instance)

    def _ask_route(self, instance: Instance) -> None:
        if is_cut(instance):
            self._leave_unrouted(instance)
        else:
            instance.snapshot = len(instance.scope.writes)
            self._agenda.push(WorkKind.ROUTE, instance)

    def _leave_unrouted(self, instance: Instance) -> None:
        """No branch of it can begin any more; a resume asks."""
        permitted = instance.scope.graph.ids(instance.node.branches)
        error = RouteError(instance.path, f"{UNASKED}{stop_of(instance)}", permitted)
        self._agenda.emit(unrouted(instance, error), instance)

    # --- scopes -----------------------------------------------------------------------------------------

    def _take_up(self, scope: Scope) -> None:
        """Queue all that is due in a scope that opens, or that was open when its process ended."""
        if not scope.remaining:
            self._conclude(scope)
            return
        for instance in scope.instances:
            phase = instance.phase
            # What began goes on, even if the definition has put something before it meanwhile.
            if phase not in FINAL and not (phase is Phase.PENDING and scope.waiting[instance.node.index]):
                if phase is not Phase.OPEN:
                    instance.snapshot = len(scope.writes)
                self._agenda.follow(instance)

    def _continue_open(self, instance: Instance) -> None:
        if instance.child is None:
            elements.take_up(self._agenda, instance)
            return
        timeout = instance.node.spec.timeout
        if timeout is not None and instance.child.remaining:
            self._agenda.command(StartTimer(instance, instance.epoch, timeout))
        self._take_up(instance.child)

    def _conclude(self, scope: Scope) -> None:
        """All steps of a scope have ended: there is another round, which may have to be asked first, or it ends."""
        if scope.over is None and rounds.matter(scope, has_controllers=self.has_controllers):
            if scope.turn is not None:
                return
            reason = rounds.exit_of(scope)
            if reason is None or (self.has_controllers and reason is not f.RoundExit.CANCELLED):
                scope.turn = rounds.turn_of(scope)
                self._agenda.push(WorkKind.ROUND, scope.turn)
                return
            self._agenda.note(rounds.ended(scope, reason))
        if scope.over is not None and scope.over.again and scope.stop is None:
            self._agenda.note(rounds.started(scope))
            scope = self.state.scopes[scope.prefix]
            beginning.count(scope)
            self._take_up(scope)
        else:
            self._finish(scope)

    def _finish(self, scope: Scope) -> None:
        owner = scope.owner
        if owner is None:
            if self.state.ended is None:
                self._agenda.note(execution_end(self.state))
            return
        fact = child_verdict(owner)
        if isinstance(fact, f.Failed) and _may_be_retried(owner, fact):
            owner.error, owner.exception = fact.error, fact.exception
            self._agenda.push(WorkKind.VERDICT, owner)
        else:
            self._agenda.emit(fact, owner)

    def _sweep(self, top: Scope) -> None:
        """Let happen what follows from a stop, in a scope and all that is open inside."""
        for scope in top.live():
            if scope.stop is not None and scope.swept is not scope.stop:
                scope.swept = scope.stop
                if scope.turn is not None and scope.stop in CUTTING:
                    self._agenda.command(CutShort(scope.turn, scope.turn.epoch, scope.stop))
                for instance in scope.instances:
                    if instance.phase not in FINAL and not instance.is_always:
                        self._stop(instance, scope.stop)

    def _stop(self, instance: Instance, reason: f.SkipReason) -> None:
        """What is ready is skipped, what waits ends, and, unless it is fail_fast, what runs is cut short.

        What is not ready yet is left until it is, so that an ALWAYS step comes after all that runs before it.
        """
        if instance.phase is Phase.OPEN:
            if instance.child is None:
                elements.stop(self._agenda, instance, reason)
            return
        if instance.phase is Phase.PENDING:
            if instance.scope.waiting[instance.node.index]:
                return
            self._agenda.follow(instance)
        elif instance.phase is Phase.RETRYING and not may_retry(instance):
            beginning.give_up(self._agenda, instance)
        elif instance.phase is Phase.WAITING:
            questions.close(self._agenda, instance)
        elif instance.phase is Phase.ANSWERED and not may_retry(instance):
            questions.may_go_on(self._agenda, instance)
        elif instance.phase is Phase.ROUTING and reason in CUTTING:
            self._leave_unrouted(instance)
        if reason in CUTTING:
            self._agenda.command(CutShort(instance, instance.epoch, reason))


def _may_be_retried(owner: Instance, fact: f.Failed) -> bool:
    """Whether a sub-workflow that failed has attempts left, and failed of itself, not by a stop or a No."""
    retry = owner.node.spec.retry
    has_attempts = retry is not None and owner.attempt < retry.max_attempts
    return has_attempts and not isinstance(fact.exception, StepCancelledError | StepRejectedError)


def _is_wanted(work: Work | None) -> bool:
    """Whether queued work is still to be done."""
    if work is None or work.instance.epoch != work.epoch:
        return False
    phase = work.instance.phase
    match work.kind:
        case WorkKind.CONDITION:
            return phase is Phase.PENDING and work.instance.condition is None and may_begin(work.instance)
        case WorkKind.BODY:
            return phase in (Phase.PENDING, Phase.RETRYING, Phase.ANSWERED) and may_begin(work.instance)
        case WorkKind.BEFORE:
            return phase is Phase.PENDING and may_begin(work.instance)
        case WorkKind.AFTER:
            return True
        case WorkKind.ROUND:
            return work.instance.scope.turn is work.instance
        case WorkKind.ELEMENT:
            return phase is Phase.OPEN and elements.first(work.instance) is not None
        case _:
            return phase is _ASKED_IN.get(work.kind, Phase.OPEN)
