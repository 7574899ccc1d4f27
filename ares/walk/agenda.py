"""What a walk has to do: consequences to draw, work to hand out, facts and commands to hand over.

Knows the order of work and nothing of steps. ``Work`` and the commands are what the shell sees of it.
"""

import heapq
from collections import deque
from collections.abc import Collection
from enum import StrEnum
from typing import Final

import attrs

from ares.errors import AresError
from ares.walk import facts as f
from ares.walk.instance import Instance
from ares.walk.judge import describe
from ares.walk.state import State


class WorkKind(StrEnum):
    """What is to be done for an instance."""

    CONDITION = "condition"
    BODY = "body"
    RECONCILE = "reconcile"
    #: Somebody here answers questions: ask him.
    ASK = "ask"
    ROUTE = "route"
    #: Over a failed sub-workflow, whose ``exception`` says how: may it be retried?
    VERDICT = "verdict"
    #: Those who are told of steps are told that one with parts begins, or ended.
    BEFORE = "before"
    AFTER = "after"
    #: All steps of a scope have ended, which its ``turn`` stands for: is there another round?
    ROUND = "round"
    #: Never handed out: an element of this map may begin.
    ELEMENT = "element"


#: What takes a slot of the pool that its step names: what calls upon that of which there is only so much.
_TAKES_SLOT: Final = frozenset({WorkKind.BODY, WorkKind.RECONCILE, WorkKind.ELEMENT})


@attrs.define(eq=False)
class Work:
    """One thing to do, for one instance in one epoch."""

    kind: WorkKind
    instance: Instance
    epoch: int

    @property
    def pool(self) -> str | None:
        """The pool of which it takes a slot."""
        return pool_of(self.kind, self.instance)


def pool_of(kind: WorkKind, instance: Instance) -> str | None:
    """The pool of which such work takes a slot."""
    pool = instance.node.spec.pool
    return pool if pool is not None and kind in _TAKES_SLOT else None


@attrs.define(eq=False)
class RetryIn:
    """Command: call ``walk.due(instance, epoch, attempt)`` in ``delay`` seconds."""

    instance: Instance
    epoch: int
    attempt: int
    delay: float


@attrs.define(eq=False)
class StartTimer:
    """Command: a sub-workflow step has ``timeout`` seconds from now; then comes ``DeadlinePassed`` in this epoch."""

    instance: Instance
    epoch: int
    timeout: float


@attrs.define(eq=False)
class CutShort:
    """Command: ask the work under way for this instance to end, and end it after the grace.

    Only the shell knows whether there is any. Without, an instance that has not ended yet ends at once.
    """

    instance: Instance
    epoch: int
    reason: f.SkipReason


Command = RetryIn | StartTimer | CutShort
_Entry = tuple[tuple[int, ...], int, WorkKind, Instance, int]


class Agenda:
    """The lists that a walk works off. See the module."""

    def __init__(self, state: State) -> None:
        self.state = state
        #: Heaps of queued work, what takes a slot of a pool by itself: whoever has no slot of one passes over it.
        self._ready: list[_Entry] = []
        self._pooled: dict[str, list[_Entry]] = {}
        self._serial = 0
        self._consequences: deque[Instance] = deque()
        self._facts: list[tuple[f.Fact, Instance | None]] = []
        self._commands: list[Command] = []
        #: Whether somebody in this process answers questions.
        self.has_answerer = False

    # --- what follows -----------------------------------------------------------------------------

    def follow(self, instance: Instance) -> None:
        """Have the consequences drawn of where an instance stands now."""
        self._consequences.append(instance)

    def next_to_follow(self) -> Instance | None:
        """The next instance whose consequences are to be drawn."""
        return self._consequences.popleft() if self._consequences else None

    def emit(self, fact: f.InstanceFact, instance: Instance) -> None:
        """A fact that follows: applied, to be journaled, and its own consequences to be drawn."""
        self.state.apply(fact, instance)
        self._facts.append((fact, instance))
        self._consequences.append(instance)

    def note(self, fact: f.Ended | f.RoundFact) -> None:
        """The execution ends, or a round does or begins."""
        self.state.apply(fact)
        self._facts.append((fact, None))

    def skip(self, instance: Instance, reason: f.SkipReason, origin: str = "") -> None:
        """The instance does not run."""
        self.emit(f.Skipped(instance.path, instance.scope.round, instance.epoch, reason, origin), instance)

    def fail(
        self, instance: Instance, error: AresError, *, unknown: bool = False, after: f.After = f.After.FINAL
    ) -> None:
        """The instance fails, for a reason of ares' own."""
        round_, attempt, info = instance.scope.round, instance.attempt, describe(error)
        fact = f.Failed(instance.path, round_, instance.epoch, attempt, info, after, unknown=unknown, exception=error)
        self.emit(fact, instance)

    def ask(self, instance: Instance) -> None:
        """The instance waits for an answer."""
        if self.has_answerer:
            self.push(WorkKind.ASK, instance)

    def command(self, command: Command) -> None:
        """Have the shell do something."""
        self._commands.append(command)

    def drain(self) -> tuple[list[tuple[f.Fact, Instance | None]], list[Command]]:
        """The facts and commands since the last time."""
        out = self._facts, self._commands
        self._facts, self._commands = [], []
        return out

    # --- what may be done now ------------------------------------------------------------------------

    def push(self, kind: WorkKind, instance: Instance, element: int | None = None) -> None:
        """Queue work in definition order; ``element`` is the first that may begin of a map."""
        index = instance.index if element is None else element
        place = (*instance.scope.order, instance.node.index, *(() if index is None else (index,)))
        pool = pool_of(kind, instance)
        heap = self._ready if pool is None else self._pooled.setdefault(pool, [])
        self._serial += 1
        heapq.heappush(heap, (place, self._serial, kind, instance, instance.epoch))

    @property
    def has_pools(self) -> bool:
        """Whether anything that is queued takes a slot."""
        return bool(self._pooled)

    def first_pool(self, closed: Collection[str] = ()) -> str | None:
        """The pool of the first that is queued in definition order, but of these pools; None if it takes no slot, or if
        there is nothing."""
        heads: dict[str | None, _Entry] = {pool: heap[0] for pool, heap in self._pooled.items() if pool not in closed}
        if self._ready:
            heads[None] = self._ready[0]
        return min(heads, key=lambda pool: heads[pool][:2], default=None)

    def first_of(self, pool: str) -> Work | None:
        """The first that was queued of a pool, whether or not it is still wanted."""
        heap = self._pooled.get(pool)
        return _work(heap[0]) if heap else None

    def pop(self, pool: str | None = None) -> Work | None:
        """The same, taken out; None for ``pool``: of what takes no slot."""
        heap = self._ready if pool is None else self._pooled.get(pool)
        if not heap:
            return None
        entry = heapq.heappop(heap)
        if pool is not None and not heap:
            del self._pooled[pool]
        return _work(entry)

    def is_empty(self, closed: Collection[str] = ()) -> bool:
        """Whether no work is queued, but of these pools."""
        return not self._ready and (not self._pooled or self._pooled.keys() <= set(closed))


def _work(entry: _Entry) -> Work:
    return Work(*entry[2:])
