"""What a walk has to do: consequences to draw, work to hand out, facts and commands to hand over.

Knows the order of work and nothing of steps. ``Work`` and the commands are what the shell sees of it.
"""

import heapq
from collections import deque
from enum import StrEnum

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
        self._ready: list[_Entry] = []
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
        self._serial += 1
        heapq.heappush(self._ready, (place, self._serial, kind, instance, instance.epoch))

    def pop(self) -> Work | None:
        """The first that was queued, in definition order, whether or not it is still wanted."""
        if not self._ready:
            return None
        _, _, kind, instance, epoch = heapq.heappop(self._ready)
        return Work(kind, instance, epoch)

    def is_empty(self) -> bool:
        """Whether no work is queued."""
        return not self._ready

    def queued(self) -> list[Work]:
        """All that is queued, in no order."""
        return [Work(kind, instance, epoch) for _, _, kind, instance, epoch in self._ready]
