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
    over a failed sub-workflow. Work is made when it is asked for, so a map of 100,000 elements costs what is under way.

Every question to the outside is one piece of work answered by one fact. What was asked and not answered when the
process died is asked again, because nothing but facts lasts: ``begin()`` looks at the state, wherever it comes from,
and queues everything that is due. That is all there is to resuming.

Applying in one order (the journal's) and settling in another (as commits arrive) is sound because settling only adds:
a step becomes ready when all its dependencies are settled, whichever came last. What takes away (a failure under
``fail_fast``, a cancel) becomes facts about each step it touches, and those stand in the journal where they happened.

A step is *considered* once, when its last dependency is settled; ``ares.walk.readiness`` says whether it runs. It ends
once: in COMPLETED, FAILED or SKIPPED. A *scope* (one workflow's steps) concludes when its last step has ended: the
root's end is the execution's, a child's is its sub-workflow step's. "Nothing running, nothing ready, something
unfinished" can therefore be seen exactly, and is a defect (``ares.walk.invariants``), never a guess by the clock.
"""

import heapq
from collections import deque
from enum import StrEnum

import attrs

from ares.errors import AresError, MapSourceError, OutcomeUnknownError, StepCrashedError
from ares.walk import facts as f
from ares.walk.conclude import child_verdict, execution_end, map_verdict
from ares.walk.judge import describe
from ares.walk.readiness import verdict
from ares.walk.setback import failed_inside
from ares.walk.state import NEW, Instance, Scope, State
from ares.walk.table import FINAL, Phase
from ares.workflow.graph import Graph
from ares.workflow.policies import Trigger


class WorkKind(StrEnum):
    """What is to be done for an instance."""

    CONDITION = "condition"
    BODY = "body"
    RECONCILE = "reconcile"
    ROUTE = "route"
    VERDICT = "verdict"
    ELEMENT = "element"  # never handed out: an element of this map may begin


@attrs.define(eq=False)
class Work:
    """One thing to do, for one instance in one epoch."""

    kind: WorkKind
    instance: Instance
    epoch: int


@attrs.define(eq=False)
class RetryIn:
    """Command: call ``walk.due(instance, epoch, attempt)`` in ``delay`` seconds."""

    instance: Instance
    epoch: int
    attempt: int
    delay: float


@attrs.define(eq=False)
class StartTimer:
    """Command: a sub-workflow step has ``timeout`` seconds from now; then comes ``DeadlinePassed``."""

    instance: Instance
    epoch: int
    timeout: float


@attrs.define(eq=False)
class CutShort:
    """Command: ask the work under way for this instance to end, and end it after the grace."""

    instance: Instance
    epoch: int
    reason: f.SkipReason


Command = RetryIn | StartTimer | CutShort
_Entry = tuple[tuple[int, ...], int, WorkKind, Instance, int]


class Walk:
    """Decides what follows from the facts of one execution. Owned by one thread; see the module's theory."""

    def __init__(self, graph: Graph, execution_id: str = "") -> None:
        self.state = State(graph, execution_id)
        self._ready: list[_Entry] = []
        self._serial = 0
        self._todo: deque[Instance] = deque()
        self._facts: list[tuple[f.Fact, Instance | None]] = []
        self._commands: list[Command] = []

    # --- facts in ---------------------------------------------------------------------------------

    def apply(self, fact: f.Fact, instance: Instance | None = None) -> Instance | None:
        """Change the state by one fact. Raises ``IllegalTransition``, changing nothing, for one that cannot be."""
        return self.state.apply(fact, instance)

    def settle(self, fact: f.Fact, instance: Instance | None = None) -> None:
        """Let the consequences of an applied fact happen."""
        match fact:
            case f.CancelRequested():
                self._stop(list(self.state.scopes.values()), f.SkipReason.CANCELLED)
            case f.DeadlinePassed():
                inside = self.state.scopes.values() if instance is None else self._under(instance)
                self._stop(list(inside), f.SkipReason.TIMEOUT)
            case _ if instance is not None:
                self._todo.append(instance)
        self._run()

    def due(self, instance: Instance, epoch: int, attempt: int) -> None:
        """A retry's delay is over. Too late or twice is no harm."""
        if instance.phase is not Phase.RETRYING or instance.epoch != epoch or instance.attempt != attempt:
            return
        if instance.index is not None:
            heapq.heappush(self.state.parts_of(instance).due, instance.index)
            self._offer_elements(self.state.owner_of(instance))
        elif instance.node.child is not None:
            self._open_child(instance)
        else:
            self._push(WorkKind.BODY, instance)
        self._run()

    def begin(self) -> None:
        """Look at the whole state and queue all that is due. Called once, after the last replayed fact."""
        scopes = list(self.state.scopes.values())
        for scope in scopes:
            self._count(scope)
        if self.state.cancelled is not None:
            self._stop(scopes, f.SkipReason.CANCELLED)
        for failure in list(self.state.failures):
            self._fail_fast(failure)
        self._queue(self.state.root)
        self._run()

    def _queue(self, scope: Scope) -> None:
        """Queue all that is due in a scope that opens, or that was open when its process ended."""
        if not scope.remaining:
            self._conclude(scope)
            return
        for instance in scope.instances:
            if instance.phase not in FINAL and not scope.waiting[instance.node.index]:
                self._todo.append(instance)

    def _count(self, scope: Scope) -> None:
        final = [i.phase in FINAL for i in scope.instances]
        scope.remaining = final.count(False)
        scope.waiting = [sum(not final[d] for d in node.deps) for node in scope.graph.nodes]
        for instance, is_final in zip(scope.instances, final, strict=True):
            instance.settled = is_final

    # --- work and consequences out -----------------------------------------------------------------

    def drain(self) -> tuple[list[tuple[f.Fact, Instance | None]], list[Command]]:
        """The consequences since the last call: facts, applied already and to be journaled, and commands."""
        out = self._facts, self._commands
        self._facts, self._commands = [], []
        return out

    def next_work(self) -> Work | None:
        """The next thing that may be done now, first in definition order; None when there is nothing."""
        while self._ready:
            _, _, kind, instance, epoch = heapq.heappop(self._ready)
            if kind is WorkKind.ELEMENT:
                work = self._next_element(instance)
                if work is not None:
                    return work
            elif instance.epoch == epoch and self._may_start(kind, instance):
                return Work(kind, instance, epoch)
        return None

    def put_back(self, work: Work) -> None:
        """Give back work that was handed out and not begun."""
        instance = work.instance
        if instance.index is not None and work.kind is WorkKind.BODY:
            parts = self.state.parts_of(instance)
            parts.running -= 1
            heapq.heappush(parts.due, instance.index)
            self._offer_elements(self.state.owner_of(instance))
        else:
            self._push(work.kind, instance)

    def is_idle(self) -> bool:
        """Whether no work is queued. Queued work may have become void meanwhile; ``next_work`` finds out."""
        return not self._ready

    def _may_start(self, kind: WorkKind, instance: Instance) -> bool:
        if kind is WorkKind.ROUTE:
            return instance.phase is Phase.ROUTING
        if kind is WorkKind.VERDICT:
            return instance.phase is Phase.OPEN
        if instance.phase is Phase.PENDING:
            return not _barred(instance)
        return instance.phase in (Phase.RETRYING, Phase.RECONCILING)

    def _push(self, kind: WorkKind, instance: Instance) -> None:
        self._serial += 1
        place = (*instance.scope.order, instance.node.index)
        if instance.index is not None:
            place = (*place, instance.index)
        heapq.heappush(self._ready, (place, self._serial, kind, instance, instance.epoch))

    # --- elements of a map ---------------------------------------------------------------------------

    def _offer_elements(self, owner: Instance) -> None:
        """Queue the map once, while an element of it may begin."""
        parts = owner.parts
        assert parts is not None
        limit = owner.node.spec.max_concurrency
        if parts.queued or (limit is not None and parts.running >= limit):
            return
        if parts.due:
            first = parts.due[0]
        else:
            while parts.next < parts.length and parts.states[parts.next] != NEW:
                parts.next += 1
            if parts.stopping or parts.next >= parts.length:
                return
            first = parts.next
        parts.queued = True
        self._serial += 1
        place = (*owner.scope.order, owner.node.index, first)
        heapq.heappush(self._ready, (place, self._serial, WorkKind.ELEMENT, owner, owner.epoch))

    def _next_element(self, owner: Instance) -> Work | None:
        parts = owner.parts
        if parts is None or owner.phase is not Phase.OPEN:
            return None
        parts.queued = False
        element = None
        if parts.due:
            candidate = parts.active.get(heapq.heappop(parts.due))
            if candidate is not None and candidate.phase in (Phase.PENDING, Phase.RETRYING):
                element = candidate
        elif not _barred(owner) and not parts.stopping and parts.next < parts.length and not parts.states[parts.next]:
            element = self.state.new_element(owner, parts.next)
            parts.join(element)
        if element is None:
            self._offer_elements(owner)
            return None
        parts.running += 1
        self._offer_elements(owner)
        if element.node.child is not None:
            self._open_child(element)
            self._run()
            return None
        return Work(WorkKind.BODY, element, element.epoch)

    def _settle_element(self, element: Instance) -> None:
        owner = self.state.owner_of(element)
        parts = owner.parts
        assert parts is not None
        if element.phase in FINAL:
            parts.running -= 1
            parts.unsettled -= 1
        elif element.phase is Phase.RETRYING:
            parts.running -= 1
            self._commands.append(RetryIn(element, element.epoch, element.attempt, element.delay))
        elif element.phase is Phase.RECONCILING:
            self._reconcile(element)
            return
        self._offer_elements(owner)
        self._conclude_map(owner)

    def _conclude_map(self, owner: Instance) -> None:
        parts = owner.parts
        assert parts is not None
        over = parts.ended == parts.length or (parts.stopping and not parts.active)
        if over and not parts.unsettled and owner.phase is Phase.OPEN:
            self._emit(map_verdict(owner), owner)

    def _resume_parts(self, owner: Instance) -> None:
        """Queue what is due of a map that was open when its process ended, or that opens."""
        parts = owner.parts
        assert parts is not None
        parts.due = []
        parts.running = parts.unsettled = parts.next = 0
        parts.queued = False
        for i, element in sorted(parts.active.items()):
            parts.running += 1  # given back as it is settled, unless it goes on at once
            if element.phase is not Phase.PENDING:
                self._todo.append(element)
            elif not self._crashed_too_often(element):
                parts.running -= 1
                heapq.heappush(parts.due, i)
        self._offer_elements(owner)
        self._conclude_map(owner)

    # --- consequences ----------------------------------------------------------------------------------

    def _emit(self, fact: f.InstanceFact, instance: Instance) -> None:
        """A fact that follows: applied, handed out for the journal, and its own consequences queued."""
        self.state.apply(fact, instance)
        self._facts.append((fact, instance))
        self._todo.append(instance)

    def _run(self) -> None:
        while self._todo:
            self._consequences(self._todo.popleft())

    def _consequences(self, instance: Instance) -> None:
        phase = instance.phase
        if phase is Phase.OPEN:
            self._continue_open(instance)
        elif instance.index is not None:
            self._settle_element(instance)
        elif phase in FINAL:
            self._settle_final(instance)
        elif phase is Phase.PENDING:
            self._consider(instance)
        elif phase is Phase.RETRYING:
            self._commands.append(RetryIn(instance, instance.epoch, instance.attempt, instance.delay))
        elif phase is Phase.RECONCILING:
            self._reconcile(instance)
        elif phase is Phase.ROUTING:
            self._push(WorkKind.ROUTE, instance)

    def _settle_final(self, instance: Instance) -> None:
        if instance.settled:
            return
        instance.settled = True
        scope = instance.scope
        scope.remaining -= 1
        self._fail_fast(instance)
        for d in instance.node.dependents:
            scope.waiting[d] -= 1
            if not scope.waiting[d]:
                self._todo.append(scope.instances[d])
        if not scope.remaining:
            self._conclude(scope)

    def _consider(self, instance: Instance) -> None:
        scope = instance.scope
        skip = verdict(scope, instance)
        if skip is not None:
            self._emit(self._skipped(instance, skip.reason, skip.origin), instance)
        elif scope.stop is not None and instance.node.spec.trigger is not Trigger.ALWAYS:
            self._emit(self._skipped(instance, scope.stop, ""), instance)
        elif instance.node.condition is not None and instance.condition is None:
            instance.snapshot = len(scope.writes)
            self._push(WorkKind.CONDITION, instance)
        elif instance.condition is False:
            self._emit(self._skipped(instance, f.SkipReason.CONDITION, ""), instance)
        else:
            self._start(instance)

    def _start(self, instance: Instance) -> None:
        instance.snapshot = len(instance.scope.writes)
        node = instance.node
        if self._crashed_too_often(instance):
            return
        if node.map_source is not None:
            source = instance.scope.instances[node.map_source]
            if source.phase is not Phase.COMPLETED:
                reason = f.SkipReason.UPSTREAM_FAILED if source.blocks else f.SkipReason.UPSTREAM_SKIPPED
                self._emit(self._skipped(instance, reason, source.node.id), instance)
            elif isinstance(source.output, list | tuple):
                self._open(instance, len(source.output))
            else:
                kind = type(source.output).__qualname__
                self._fail(instance, MapSourceError(instance.path, source.node.id, kind))
        elif node.child is not None:
            self._open_child(instance)
        elif instance.unknown:
            self._reconcile(instance)
        else:
            self._push(WorkKind.BODY, instance)

    def _reconcile(self, instance: Instance) -> None:
        """An at_most_once body was cut short: ask whether it took effect, or fail for not knowing."""
        if instance.node.reconcile is not None:
            self._push(WorkKind.RECONCILE, instance)
        else:
            self._fail(instance, OutcomeUnknownError(instance.path), unknown=True)

    def _crashed_too_often(self, instance: Instance) -> bool:
        limit = instance.node.spec.max_crashes
        if limit is None or instance.crashes < limit:
            return False
        self._fail(instance, StepCrashedError(instance.path, instance.crashes), unknown=instance.unknown)
        return True

    def _fail(self, instance: Instance, error: AresError, *, unknown: bool = False) -> None:
        info = describe(error)
        self._emit(
            f.Failed(
                instance.path,
                instance.scope.round,
                instance.epoch,
                instance.attempt,
                info,
                unknown=unknown,
                exception=error,
            ),
            instance,
        )

    @staticmethod
    def _skipped(instance: Instance, reason: f.SkipReason, origin: str) -> f.Skipped:
        return f.Skipped(instance.path, instance.scope.round, instance.epoch, reason, origin)

    # --- maps and sub-workflows ------------------------------------------------------------------------

    def _open(self, instance: Instance, length: int | None, set_back: tuple[f.SetBack, ...] = ()) -> None:
        round_, attempt = instance.scope.round, instance.attempt + 1
        self._emit(f.Opened(instance.path, round_, instance.epoch, attempt, length, set_back), instance)

    def _open_child(self, instance: Instance) -> None:
        """Open a sub-workflow, or open it again for a retry: then only what failed or was blocked runs again."""
        inside = self.state.scopes.get(instance.path + "/")
        self._open(instance, None, () if inside is None else failed_inside(self.state, inside))
        assert instance.child is not None
        for scope in self._under(instance):
            self._count(scope)

    def _continue_open(self, instance: Instance) -> None:
        if instance.child is None:
            self._resume_parts(instance)
            return
        if instance.node.spec.timeout is not None:
            self._commands.append(StartTimer(instance, instance.epoch, instance.node.spec.timeout))
        self._queue(instance.child)

    def _under(self, instance: Instance) -> list[Scope]:
        assert instance.child is not None
        return self.state.under(instance.child)

    def _conclude(self, scope: Scope) -> None:
        owner = scope.owner
        if owner is None:
            if self.state.ended is None:
                ended = execution_end(self.state)
                self.state.apply(ended)
                self._facts.append((ended, None))
            return
        fact = child_verdict(owner)
        if isinstance(fact, f.Failed) and owner.node.spec.retry is not None and scope.stop is None:
            owner.error, owner.exception = fact.error, fact.exception
            self._push(WorkKind.VERDICT, owner)
        else:
            self._emit(fact, owner)

    # --- stopping ----------------------------------------------------------------------------------------

    def _fail_fast(self, instance: Instance) -> None:
        scope = instance.scope
        failed = instance.phase is Phase.FAILED or instance.unrouted is not None
        if failed and instance.index is None and scope.graph.workflow.fail_fast:
            self._stop(self._with_open_children(scope), f.SkipReason.FAIL_FAST)

    def _with_open_children(self, scope: Scope) -> list[Scope]:
        return [s for s in self.state.under(scope) if s is scope or (s.owner is not None and s.owner.phase is Phase.OPEN)]

    def _stop(self, scopes: list[Scope], reason: f.SkipReason) -> None:
        """Nothing begins in these scopes any more but ALWAYS steps; unless it is fail_fast, what runs is cut short."""
        if reason is f.SkipReason.FAIL_FAST:
            scopes = [s for s in scopes if s.stop is None]
        for scope in scopes:
            scope.stop = reason
            scope.stop_new = True
            for instance in scope.instances:
                if instance.phase is Phase.PENDING:
                    if instance.node.spec.trigger is not Trigger.ALWAYS:
                        self._emit(self._skipped(instance, reason, ""), instance)
                elif instance.phase is Phase.OPEN:
                    if instance.parts is not None:
                        self._stop_parts(instance, reason)
                elif reason is not f.SkipReason.FAIL_FAST and instance.phase not in FINAL:
                    self._commands.append(CutShort(instance, instance.epoch, reason))
        self._run()

    def _stop_parts(self, owner: Instance, reason: f.SkipReason) -> None:
        parts = owner.parts
        assert parts is not None
        parts.stopping = True
        for element in list(parts.active.values()):
            if element.phase is Phase.PENDING:
                # Begun once and cut short by the end of its process: it has not begun now.
                del parts.active[element.index or 0]
                parts.states[element.index or 0] = NEW
            elif reason is not f.SkipReason.FAIL_FAST and element.phase is not Phase.OPEN:
                self._commands.append(CutShort(element, element.epoch, reason))
        self._conclude_map(owner)


def _barred(instance: Instance) -> bool:
    """Whether it may not begin: its scope starts nothing new, and it is no ALWAYS step."""
    return instance.scope.stop_new and instance.node.spec.trigger is not Trigger.ALWAYS
