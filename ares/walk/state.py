"""The state of a walk: its instances, and how each fact changes them.

``State.apply`` is the only thing that changes an instance, and it decides nothing: it moves the instance by the
transition table and keeps what the fact says. So replaying a journal is applying its facts, in order, and asks
nobody. What happens *next* is decided in ``ares.walk.walk``.

Instances of one workflow live in a ``Scope``: the root, or one per sub-workflow step (or element) that opened. The
elements of a map are no graph nodes: ``Parts`` keeps them as arrays, with an ``Instance`` only for those under way
or failed, so that 100,000 elements are ordinary.
"""

from array import array
from collections.abc import Callable, Iterator
from typing import Any

from ares.errors import IllegalTransition, RecordedError
from ares.records import ErrorInfo
from ares.walk import facts as f
from ares.walk.table import FINAL, TRANSITIONS, Phase, Stimulus
from ares.workflow.graph import Graph, Node
from ares.workflow.policies import Delivery, ItemFailure, OnItemFailure

NEW, ACTIVE, DONE, BROKEN = range(4)  # what Parts keeps of each element


class Instance:
    """A step, a map element or a child step, in one round."""

    __slots__ = (
        "attempt",
        "born",
        "child",
        "condition",
        "crashes",
        "delay",
        "duration",
        "epoch",
        "error",
        "exception",
        "index",
        "node",
        "origin",
        "output",
        "parts",
        "path",
        "phase",
        "reason",
        "retryable",
        "scope",
        "settled",
        "snapshot",
        "targets",
        "unknown",
        "unrouted",
    )

    def __init__(self, scope: "Scope", node: Node, path: str, epoch: int, index: int | None = None) -> None:
        self.scope = scope
        self.node = node
        self.path = path
        self.index = index
        self.epoch = epoch
        #: The epoch in which it last forgot its ``once`` results; part of its idempotency key.
        self.born = scope.born
        self.phase = Phase.PENDING
        #: Attempts begun, those that a crash or an interrupt cut short not counted.
        self.attempt = 0
        self.crashes = 0
        self.condition: bool | None = None
        #: An at_most_once body was cut short: it may or may not have taken effect.
        self.unknown = False
        #: Whether what failed last may be retried, should its outcome turn out to be known.
        self.retryable = True
        self.output: Any = None
        self.error: ErrorInfo | None = None
        self.exception: BaseException | None = None
        self.reason: f.SkipReason | None = None
        self.origin = ""
        self.targets: frozenset[str] | None = None
        #: Why it got no route, at a branch point that is COMPLETED all the same.
        self.unrouted: ErrorInfo | None = None
        self.delay = 0.0
        self.duration = 0.0
        #: How many of its scope's writes it sees.
        self.snapshot = 0
        self.parts: Parts | None = None
        self.child: Scope | None = None
        #: Whether what depends on it was told of its end.
        self.settled = False

    @property
    def blocks(self) -> bool:
        """Whether what depends on it is skipped because of it."""
        return self.phase is Phase.FAILED or (self.phase is Phase.SKIPPED and self.reason in f.BLOCKING)

    def __repr__(self) -> str:
        return f"<Instance {self.path} {self.phase} attempt {self.attempt} epoch {self.epoch}>"


class Parts:
    """The elements of a map step."""

    __slots__ = (
        "active", "attempts", "born", "due", "durations", "ended", "failed", "length", "next", "outputs",
        "queued", "running", "states", "stopping", "unsettled", "writes",
    )  # fmt: skip

    def __init__(self, length: int) -> None:
        self.length = length
        self.states = bytearray(length)
        self.outputs: list[Any] = [None] * length
        self.durations = array("d", bytes(8 * length))
        #: Attempts, of the elements that took more than one.
        self.attempts: dict[int, int] = {}
        self.writes: dict[int, tuple[tuple[str, Any], ...]] = {}
        self.active: dict[int, Instance] = {}
        self.failed: dict[int, Instance] = {}
        #: No element below this one was never begun.
        self.next = 0
        #: Elements begun before that may run now (their retry is due, or they were cut short).
        self.due: list[int] = []
        #: Elements that ended.
        self.ended = 0
        #: No element begins any more.
        self.stopping = False
        # Only valid while the walk is live:
        #: Elements that hold one of max_concurrency's places: under way, and not waiting for a retry.
        self.running = 0
        #: Elements that ended and whose end is not settled yet.
        self.unsettled = 0
        #: Whether the walk's queue of ready work knows that an element may start.
        self.queued = False
        #: When not None: the epoch of which new elements are born.
        self.born: int | None = None

    def keep(self, element: Instance) -> None:
        """Reduce an ended element to what is kept of it."""
        i = element.index
        assert i is not None
        if element.phase is Phase.COMPLETED:
            self.states[i] = DONE
            self.outputs[i] = element.output
        else:
            self.states[i] = BROKEN
            self.failed[i] = element
        self.durations[i] = element.duration
        if element.attempt > 1:
            self.attempts[i] = element.attempt
        self.active.pop(i, None)
        self.ended += 1
        self.unsettled += 1

    def join(self, element: Instance) -> None:
        """Take in an element that begins."""
        assert element.index is not None
        self.active[element.index] = element
        self.states[element.index] = ACTIVE


class Scope:
    """The instances of one workflow: the root's, or those of a sub-workflow step that opened."""

    __slots__ = (
        "born", "graph", "inputs", "instances", "order", "owner", "prefix", "remaining", "round", "stop", "stop_new",
        "waiting", "writes",
    )  # fmt: skip

    def __init__(self, graph: Graph, prefix: str, owner: Instance | None, epoch: int) -> None:
        self.graph = graph
        self.prefix = prefix
        self.owner = owner
        self.round = 1
        self.born = 0 if owner is None else owner.born
        #: Its place among all that is ready: the positions of the steps it lies in.
        self.order: tuple[int, ...] = ()
        if owner is not None:
            self.order = (*owner.scope.order, owner.node.index, *(() if owner.index is None else (owner.index,)))
        self.instances = [Instance(self, node, prefix + node.id, epoch) for node in graph.nodes]
        #: Per node: dependencies whose end is not settled yet. Only valid while the walk is live.
        self.waiting: list[int] = []
        #: Nodes whose end is not settled yet. Only valid while the walk is live.
        self.remaining = len(graph.nodes)
        #: Why nothing begins in here any more, but ALWAYS steps.
        self.stop: f.SkipReason | None = None
        #: Set with the failure itself, before its consequences are settled.
        self.stop_new = False
        #: Writes in the order they took effect: (name, value, who wrote).
        self.writes: list[tuple[str, Any, Instance]] = []
        #: The values of its inputs, once somebody needed them; the root's are given.
        self.inputs: dict[str, Any] | None = None

    def get(self, step_id: str) -> Instance:
        """The instance of one of its steps."""
        return self.instances[self.graph.by_id[step_id]]


class State:
    """Everything a journal says about an execution. Changed by ``apply`` alone."""

    def __init__(self, graph: Graph, execution_id: str = "") -> None:
        self.graph = graph
        self.execution_id = execution_id
        self.round = 1
        self.epoch = 0
        self.root = Scope(graph, "", None, 0)
        self.scopes: dict[str, Scope] = {"": self.root}
        self.created: f.Created | None = None
        self.timeout: float | None = None
        self.cancelled: str | None = None
        self.overdue: float | None = None
        self.ended: f.Ended | None = None
        #: What failed for good, in the order it happened; map elements whose failures are collected are not in it.
        self.failures: list[Instance] = []
        self.running = 0
        self._handlers: dict[type, Callable[[Any, Instance | None], Instance | None]] = {
            f.Created: self._created,
            f.Resumed: self._resumed,
            f.CancelRequested: self._cancel_requested,
            f.DeadlinePassed: self._deadline_passed,
            f.Interrupted: self._interrupted,
            f.Ended: self._ended,
            f.Checked: self._checked,
            f.Started: self._started,
            f.Opened: self._opened,
            f.Succeeded: self._succeeded,
            f.Failed: self._failed,
            f.Completed: self._completed,
            f.Skipped: self._skipped,
            f.Routed: self._routed,
            f.Unrouted: self._unrouted,
        }

    def apply(self, fact: f.Fact, instance: Instance | None = None) -> Instance | None:
        """Change the state by one fact; ``instance`` spares looking it up. Returns the instance it was about.

        Raises ``IllegalTransition`` for a fact that cannot happen now, and then nothing has changed.
        """
        return self._handlers[type(fact)](fact, instance)

    # --- finding instances ----------------------------------------------------------------------

    def find(self, path: str) -> Instance | None:
        """The instance at a path; None for a map element that is not under way or failed, and for a path unknown."""
        cut = path.rfind("/") + 1
        scope = self.scopes.get(path[:cut])
        if scope is None:
            return None
        name = path[cut:]
        if not name.endswith("]"):
            position = scope.graph.by_id.get(name)
            return None if position is None else scope.instances[position]
        base, _, index = name[:-1].partition("[")
        position = scope.graph.by_id.get(base)
        parts = None if position is None else scope.instances[position].parts
        if parts is None or not index.isdecimal():
            return None
        return parts.active.get(int(index)) or parts.failed.get(int(index))

    def owner_of(self, element: Instance) -> Instance:
        """The map step an element belongs to."""
        return element.scope.instances[element.node.index]

    def new_element(self, owner: Instance, index: int) -> Instance:
        """An element about to begin; it joins the map's parts when its first fact is applied."""
        element = Instance(owner.scope, owner.node, f"{owner.path}[{index}]", self.epoch, index)
        parts = owner.parts
        assert parts is not None
        element.born = owner.born if parts.born is None else parts.born
        element.snapshot = owner.snapshot
        return element

    def instances(self) -> Iterator[Instance]:
        """Every instance but the elements that completed or never began."""
        for scope in list(self.scopes.values()):
            for instance in scope.instances:
                yield instance
                if instance.parts is not None:
                    yield from instance.parts.active.values()
                    yield from instance.parts.failed.values()

    def _need(self, path: str, fact: f.InstanceFact) -> Instance:
        instance = self.find(path)
        if instance is not None:
            return instance
        # The first fact of a map element makes it.
        owner = self.find(path[: path.rindex("[")]) if path.endswith("]") else None
        if owner is None or owner.parts is None or not isinstance(fact, f.Started | f.Opened | f.Failed):
            raise IllegalTransition(path, "unknown", type(fact).__name__)
        return self.new_element(owner, int(path[path.rindex("[") + 1 : -1]))

    def _move(self, fact: f.InstanceFact, instance: Instance | None, stimulus: Stimulus) -> Instance:
        if instance is None:
            instance = self._need(fact.path, fact)
        target = TRANSITIONS.get((instance.phase, stimulus))
        if target is None or instance.epoch != fact.epoch:
            raise IllegalTransition(
                fact.path, f"{instance.phase} in epoch {instance.epoch}", f"{stimulus} (epoch {fact.epoch})"
            )
        if instance.phase is Phase.RUNNING:
            self.running -= 1
        elif target is Phase.RUNNING:
            self.running += 1
        if instance.index is not None and instance.phase is Phase.PENDING:
            self.parts_of(instance).join(instance)
        instance.phase = target
        return instance

    def parts_of(self, element: Instance) -> Parts:
        """The parts that an element is one of."""
        parts = self.owner_of(element).parts
        assert parts is not None
        return parts

    # --- facts of an instance --------------------------------------------------------------------

    def _checked(self, fact: f.Checked, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.CHECKED)
        instance.condition = fact.holds
        return instance

    def _started(self, fact: f.Started, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.STARTED)
        instance.attempt = fact.attempt
        return instance

    def _opened(self, fact: f.Opened, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.OPENED)
        instance.attempt = fact.attempt
        if fact.length is not None:
            if instance.parts is None or instance.parts.length != fact.length:
                instance.parts = Parts(fact.length)
        else:
            prefix = instance.path + "/"
            assert instance.node.child is not None
            if prefix not in self.scopes:
                self.scopes[prefix] = Scope(instance.node.child, prefix, instance, self.epoch)
            instance.child = self.scopes[prefix]
            instance.child.owner = instance
            instance.child.stop = None
            instance.child.stop_new = False
            self._set_back(fact.set_back, self.epoch)
        return instance

    def _succeeded(self, fact: f.Succeeded, instance: Instance | None) -> Instance:
        instance = instance or self._need(fact.path, fact)
        unrouted = instance.node.branches and fact.targets is None and instance.index is None
        self._move(fact, instance, Stimulus.DONE_UNROUTED if unrouted else Stimulus.DONE)
        instance.output = fact.output
        instance.duration = fact.duration
        instance.unknown = False
        instance.error = instance.exception = None
        if fact.targets is not None:
            instance.targets = frozenset(fact.targets)
        if instance.index is None:
            instance.scope.writes.extend([(name, value, instance) for name, value in fact.writes])
        else:
            parts = self.parts_of(instance)
            if fact.writes:
                parts.writes[instance.index] = fact.writes
            parts.keep(instance)
        return instance

    def _failed(self, fact: f.Failed, instance: Instance | None) -> Instance:
        stimulus = _AFTER[fact.after]
        instance = self._move(fact, instance, stimulus)
        instance.error = fact.error
        instance.exception = fact.exception
        instance.delay = fact.delay
        instance.duration = fact.duration
        instance.unknown = fact.unknown
        instance.retryable = fact.retryable
        if fact.after is not f.After.FINAL:
            return instance
        if instance.index is not None:
            parts = self.parts_of(instance)
            parts.keep(instance)
            if instance.node.spec.on_item_failure is OnItemFailure.COLLECT:
                return instance
            parts.stopping = True
        elif instance.scope.graph.workflow.fail_fast:
            instance.scope.stop_new = True
        self.failures.append(instance)
        return instance

    def _completed(self, fact: f.Completed, instance: Instance | None) -> Instance:
        instance = instance or self._need(fact.path, fact)
        unrouted = instance.node.branches and instance.index is None
        self._move(fact, instance, Stimulus.DONE_UNROUTED if unrouted else Stimulus.DONE)
        instance.error = instance.exception = None
        if instance.parts is not None and instance.index is None:
            instance.output = _gathered(instance)
            for i in sorted(instance.parts.writes):
                instance.scope.writes.extend([(n, v, instance) for n, v in instance.parts.writes[i]])
        elif instance.child is not None:
            child = instance.child
            instance.output = {child.graph.nodes[i].id: child.instances[i].output for i in child.graph.sinks}
            if instance.index is not None:
                self.parts_of(instance).keep(instance)
        return instance

    def _skipped(self, fact: f.Skipped, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.SKIPPED)
        instance.reason = f.SkipReason(fact.reason)
        instance.origin = fact.origin
        return instance

    def _routed(self, fact: f.Routed, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.ROUTED)
        instance.targets = frozenset(fact.targets)
        instance.unrouted = None
        return instance

    def _unrouted(self, fact: f.Unrouted, instance: Instance | None) -> Instance:
        instance = self._move(fact, instance, Stimulus.ROUTED)
        instance.targets = frozenset()
        instance.unrouted = fact.error
        instance.exception = fact.exception
        if instance.scope.graph.workflow.fail_fast:
            instance.scope.stop_new = True
        self.failures.append(instance)
        return instance

    # --- facts of the execution ------------------------------------------------------------------

    def _created(self, fact: f.Created, _: Instance | None) -> None:
        self.created = fact
        self.timeout = fact.timeout
        self.root.inputs = dict(fact.inputs)

    def _cancel_requested(self, fact: f.CancelRequested, _: Instance | None) -> None:
        self.cancelled = fact.reason
        for scope in self.scopes.values():
            scope.stop_new = True

    def _deadline_passed(self, fact: f.DeadlinePassed, instance: Instance | None) -> Instance | None:
        if fact.path:
            instance = instance or self.find(fact.path)
            if instance is None or instance.phase is not Phase.OPEN or instance.child is None:
                raise IllegalTransition(fact.path, "not open", "overdue")
            for scope in self.under(instance.child):
                scope.stop_new = True
            return instance
        self.overdue = fact.timeout
        for scope in self.scopes.values():
            scope.stop_new = True
        return None

    def _ended(self, fact: f.Ended, _: Instance | None) -> None:
        self.ended = fact

    def _interrupted(self, fact: f.Interrupted, _: Instance | None) -> None:
        self.epoch += 1
        for path in fact.in_flight:
            instance = self.find(path)
            if instance is not None and instance.phase is Phase.RUNNING:
                self._cut(instance, self.epoch)

    def _resumed(self, fact: f.Resumed, _: Instance | None) -> None:
        self.epoch = fact.epoch
        for path in fact.in_flight:
            instance = self.find(path)
            if instance is not None and instance.phase is Phase.RUNNING:
                self._cut(instance, fact.epoch)
                instance.crashes += 1
        if fact.timeout is not None:
            self.timeout = fact.timeout
        self.ended = None
        self.overdue = None
        if fact.reopened:
            self.cancelled = None
        for scope in self.scopes.values():
            scope.stop = None
            scope.stop_new = False
        self._set_back(fact.set_back, fact.epoch)

    def _cut(self, instance: Instance, epoch: int) -> None:
        """An attempt ended with its process or its run: it counts as not begun, unless it may not run twice."""
        unknown = instance.node.spec.delivery is Delivery.AT_MOST_ONCE
        target = TRANSITIONS[instance.phase, Stimulus.CUT_UNKNOWN if unknown else Stimulus.CUT]
        self.running -= 1
        instance.phase = target
        instance.unknown = unknown
        instance.retryable = True
        instance.attempt -= 1
        instance.epoch = epoch

    # --- set-back ---------------------------------------------------------------------------------

    def under(self, scope: Scope) -> list[Scope]:
        """A scope and all scopes that lie in it."""
        return [s for prefix, s in self.scopes.items() if prefix.startswith(scope.prefix)]

    def _set_back(self, entries: tuple[f.SetBack, ...], epoch: int) -> None:
        withdrawn: set[Instance] = set()
        for entry in entries:
            instance = self.find(entry.path)
            if instance is None:
                self._reset_element(entry.path)
                continue
            if entry.route:
                instance.phase = TRANSITIONS[instance.phase, Stimulus.REROUTE]
                instance.unrouted = instance.targets = None
                instance.settled = False
                withdrawn.add(instance)
                continue
            if instance.phase is Phase.RUNNING:
                raise IllegalTransition(entry.path, instance.phase, "set back")
            self._reset(instance, entry, epoch)
            withdrawn.add(instance)
        if not withdrawn:
            return
        self.failures = [i for i in self.failures if i not in withdrawn and self._stands(i)]
        for scope in {i.scope for i in withdrawn}:
            scope.writes = [w for w in scope.writes if w[2].phase is not Phase.PENDING]

    def _stands(self, failure: Instance) -> bool:
        """Whether a failure is still one: its scope and map may have been dropped or reset meanwhile."""
        if self.scopes.get(failure.scope.prefix) is not failure.scope:
            return False
        if failure.index is None:
            return failure.phase in FINAL
        parts = self.owner_of(failure).parts
        return parts is not None and failure.index in parts.failed

    def _reset_element(self, path: str) -> None:
        """A completed element that runs again. A path of a definition whose change was accepted is passed over."""
        owner = self.find(path[: path.rfind("[")]) if path.endswith("]") else None
        if owner is None or owner.parts is None:
            return
        i = int(path[path.rfind("[") + 1 : -1])
        if i < owner.parts.length and owner.parts.states[i] == DONE:
            owner.parts.states[i] = NEW
            owner.parts.outputs[i] = None
            owner.parts.ended -= 1
            owner.parts.writes.pop(i, None)

    def _reset(self, instance: Instance, entry: f.SetBack, epoch: int) -> None:
        instance.phase = TRANSITIONS[instance.phase, Stimulus.SET_BACK]
        instance.epoch = epoch
        instance.attempt = instance.crashes = 0
        instance.condition = instance.output = instance.error = instance.exception = None
        instance.reason = instance.targets = instance.unrouted = None
        instance.origin = ""
        instance.settled = False
        if entry.fresh:
            instance.born = epoch
            instance.unknown = False
        if entry.redo:
            instance.parts = instance.child = None
            for prefix in [p for p in self.scopes if p.startswith((instance.path + "/", instance.path + "["))]:
                del self.scopes[prefix]
        elif instance.parts is not None:
            self._reopen_parts(instance.parts, epoch if entry.fresh else None)

    def _reopen_parts(self, parts: Parts, born: int | None) -> None:
        for i in parts.failed:
            parts.states[i] = NEW
        parts.ended -= len(parts.failed)
        parts.failed.clear()
        parts.born = born
        parts.stopping = False
        parts.next = 0


_AFTER = {
    f.After.FINAL: Stimulus.FAILED,
    f.After.RETRY: Stimulus.RETRY,
    f.After.RECONCILE: Stimulus.RECONCILE,
}


def _gathered(owner: Instance) -> list[Any]:
    """The output of a map: its elements' in order, with an ItemFailure where one failed."""
    parts = owner.parts
    assert parts is not None
    outputs = parts.outputs
    for i, element in parts.failed.items():
        error = element.exception
        if error is None:
            info = element.error
            assert info is not None
            error = RecordedError(info.type_name, info.message, info.traceback)
        outputs[i] = ItemFailure(i, source_item(owner, i), error)
    return outputs


def source_item(owner: Instance, index: int) -> Any:
    """The element that one instance of a map step works on."""
    assert owner.node.map_source is not None
    return owner.scope.instances[owner.node.map_source].output[index]
