"""What a walk keeps: instances of steps, and the scopes that hold them.

Instances of one workflow live in a ``Scope``: the root, or one per sub-workflow step (or element) that opened. The
elements of a map are no graph nodes, and most have no instance either: see ``ares.walk.parts``.

This module is data and questions about it. What changes it, and when, is ``ares.walk.state``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ares.errors import RecordedError
from ares.records import ErrorInfo
from ares.walk.facts import BLOCKING, Answered, Asked, RoundEnded, SkipReason
from ares.walk.table import Phase
from ares.workflow.graph import Graph, Node
from ares.workflow.policies import Trigger

if TYPE_CHECKING:
    from ares.walk.parts import Parts

NO_ANSWERS: Final[Mapping[str, Answered]] = MappingProxyType({})

#: What ends also what runs, after a grace; a failure under ``fail_fast`` lets it go on.
CUTTING: Final = frozenset({SkipReason.CANCELLED, SkipReason.TIMEOUT})


class Instance:
    """A step, a map element or a child step, in one round."""

    __slots__ = (
        "answer",
        "answers",
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
        "granted",
        "index",
        "node",
        "origin",
        "output",
        "parts",
        "path",
        "phase",
        "question",
        "reason",
        "recoveries",
        "retryable",
        "scope",
        "settled",
        "snapshot",
        "targets",
        "told_beginning",
        "told_end",
        "unknown",
        "unrouted",
    )

    def __init__(self, scope: "Scope", node: Node, path: str, epoch: int, index: int | None = None) -> None:
        self.scope = scope
        self.node = node
        self.path = path
        #: Its position in the list that its step maps over; None for what is no map element.
        self.index = index
        #: Raised whenever it is set back or cut short, so that a message from before is known by it.
        self.epoch = epoch
        #: The epoch in which it last forgot its ``once`` results; part of its idempotency key.
        self.born: int = scope.born
        self.phase = Phase.PENDING
        #: Attempts begun, those that a crash or an interrupt cut short not counted.
        self.attempt = 0
        self.crashes = 0
        #: How often its recovery policy was applied.
        self.recoveries = 0
        #: Attempts that a human gave it beyond those of its retry policy.
        self.granted = 0
        #: What it asked last, and what the answer was, if there is one.
        self.question: Asked | None = None
        self.answer: Answered | None = None
        #: The answers that its body is given, by key. Never changed, only replaced: bodies read it on other threads.
        self.answers: Mapping[str, Answered] = NO_ANSWERS
        self.condition: bool | None = None
        #: An at_most_once body was cut short: it may or may not have taken effect.
        self.unknown = False
        #: Whether what failed last may be retried, should it turn out not to have taken effect.
        self.retryable = True
        self.output: Any = None
        self.error: ErrorInfo | None = None
        #: The exception of ``error`` or of ``unrouted``, if it was raised in this process.
        self.exception: BaseException | None = None
        self.reason: SkipReason | None = None
        self.origin = ""
        self.targets: frozenset[str] | None = None
        #: Why it got no route, at a branch point that is COMPLETED all the same.
        self.unrouted: ErrorInfo | None = None
        self.delay = 0.0
        self.duration = 0.0
        #: How many of its scope's writes it sees. Set by the walk when it becomes ready.
        self.snapshot = 0
        self.parts: Parts | None = None
        self.child: Scope | None = None
        #: Whether what depends on it was told of its end. Set by the walk.
        self.settled = False
        # Only valid while the walk is live; see ``ares.walk.telling``:
        #: The epoch of which was told that it begins; the epoch and attempt of which was told that it ended.
        self.told_beginning: int | None = None
        self.told_end: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<Instance {self.path} {self.phase} attempt {self.attempt} epoch {self.epoch}>"

    @property
    def is_always(self) -> bool:
        """Whether it runs, and goes on, whatever happened."""
        return self.node.spec.trigger is Trigger.ALWAYS

    @property
    def is_map(self) -> bool:
        """Whether it is a map step, and none of its elements."""
        return self.node.map_source is not None and self.index is None

    @property
    def has_child(self) -> bool:
        """Whether it runs a sub-workflow, as a step or as a map element."""
        return self.node.child is not None and not self.is_map

    @property
    def is_branch_point(self) -> bool:
        """Whether it has a route. A map has, its elements have not."""
        return bool(self.node.branches) and self.index is None

    @property
    def blocks(self) -> bool:
        """Whether what depends on it is skipped because of it."""
        return self.phase is Phase.FAILED or (self.phase is Phase.SKIPPED and self.reason in BLOCKING)

    @property
    def is_broken(self) -> bool:
        """Whether it makes its workflow fail."""
        return self.phase is Phase.FAILED or self.unrouted is not None

    @property
    def is_inside_open(self) -> bool:
        """Whether all that it lies in is open, so that it may move."""
        at = self
        while at.index is not None or at.scope.owner is not None:
            outer = at.map_step if at.index is not None else at.scope.owner
            assert outer is not None
            if outer.phase is not Phase.OPEN:
                return False
            at = outer
        return True

    @property
    def map_step(self) -> "Instance":
        """The map step that it is an element of."""
        assert self.index is not None
        return self.scope.instances[self.node.index]

    @property
    def siblings(self) -> "Parts":
        """All elements of the map step that it is an element of."""
        parts = self.map_step.parts
        assert parts is not None
        return parts


class Scope:
    """The instances of one workflow in one round: the root's, or those of a sub-workflow step that opened."""

    __slots__ = (
        "began",
        "born",
        "carried",
        "epoch",
        "failures",
        "graph",
        "inputs",
        "inside",
        "instances",
        "newest",
        "order",
        "over",
        "overdue",
        "owner",
        "prefix",
        "remaining",
        "round",
        "start",
        "stop",
        "swept",
        "turn",
        "waiting",
        "writes",
    )

    def __init__(self, graph: Graph, prefix: str, owner: Instance | None, epoch: int) -> None:
        self.graph = graph
        self.prefix = prefix
        self.owner = owner
        self.round = 1
        #: The epoch in which its round began, or it was opened again.
        self.epoch = epoch
        #: How its round ended, once that is known.
        self.over: RoundEnded | None = None
        self.born = 0 if owner is None else owner.born
        #: Its place among all that is ready: the positions of the steps it lies in.
        self.order: tuple[int, ...] = ()
        if owner is not None:
            self.order = (*owner.scope.order, owner.node.index, *(() if owner.index is None else (owner.index,)))
        self.instances = [Instance(self, node, prefix + node.id, epoch) for node in graph.nodes]
        #: The scopes that lie directly in it, by prefix.
        self.inside: dict[str, Scope] = {}
        #: Writes in the order they took effect: (name, value, who wrote). Another list once some were withdrawn.
        self.writes: list[tuple[str, Any, Instance]] = []
        #: What the variables were when some round began, if it is known; and what earlier rounds have written since
        #: then, by name: all of it where there is a reducer, else the last.
        self.start: Mapping[str, Any] | None = None
        self.carried: dict[str, list[Any]] = {}
        #: The values of its inputs, once somebody needed them; the root's are given.
        self.inputs: dict[str, Any] | None = None
        #: What failed for good in it or got no route, in the order it happened.
        self.failures: list[Instance] = []
        #: Whether the time of the sub-workflow step that it belongs to is up.
        self.overdue = False
        #: Why nothing begins in here any more, but ALWAYS steps.
        self.stop: SkipReason | None = None
        # Only valid while the walk is live:
        #: The ``stop`` whose consequences have happened.
        self.swept: SkipReason | None = None
        #: Per node: dependencies whose end is not settled yet.
        self.waiting: list[int] = []
        #: Nodes whose end is not settled yet.
        self.remaining = len(graph.nodes)
        #: Stands for the question whether there is another round, while that is asked.
        self.turn: Instance | None = None
        # The shell's, who keeps what it knows of a round where it goes with it:
        #: When it began, in seconds of whatever clock; the newest snapshot of its variables.
        self.began: float | None = None
        self.newest: Any = None

    def __repr__(self) -> str:
        return f"<Scope {self.prefix!r}, {len(self.instances):,} instances>"

    def get(self, step_id: str) -> Instance:
        """The instance of one of its steps."""
        return self.instances[self.graph.by_id[step_id]]

    def all(self) -> "list[Scope]":
        """Itself and every scope that lies in it, the outer ones first."""
        found = [self]
        for scope in found:  # grows as it goes
            found.extend(scope.inside.values())
        return found

    def live(self) -> "list[Scope]":
        """Itself and those in it whose steps may still move: the steps they belong to are open."""
        found = [self]
        for scope in found:  # grows as it goes
            found.extend(s for s in scope.inside.values() if s.owner is not None and s.owner.phase is Phase.OPEN)
        return found


def find(scopes: Mapping[str, Scope], path: str) -> Instance | None:
    """The instance at a path in some scopes, by prefix; see ``State.find``."""
    cut = path.rfind("/") + 1
    scope = scopes.get(path[:cut])
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
    i = int(index)
    return parts.active.get(i) or parts.failed.get(i) or parts.skipped.get(i)


def inside_of(path: str, round: int) -> str:
    """The prefix of what lies in a sub-workflow step or element, in so many rounds of the workflow that it is in."""
    return f"{path}/" if round == 1 else f"{path}#{round}/"


def starts_inside(path: str) -> tuple[str, ...]:
    """What the prefix of every scope begins with that lies in a step or its elements."""
    return path + "/", path + "[", path + "#"


def living(exception: BaseException | None, info: ErrorInfo | None) -> BaseException | None:
    """The exception itself, or what stands for it when it was raised in an earlier process."""
    if exception is not None or info is None:
        return exception
    return RecordedError(info.type_name, info.message, info.traceback)
