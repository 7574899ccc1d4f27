"""The decisions at branch points of a past execution, each with what routers were shown: so that others can be asked.

Reads a journal and nothing else. What a router is shown is what an earlier entry led to: the output of the step, the
variables and the histories as they were when it had returned, or, if its process died before there was a route, when
the execution was taken up again. Two things a journal does not tell, and they are named instead of guessed:

- What happened between that moment and the decision, in steps beside it, may or may not have been shown: it is not, and
  what it touches is ``uncertain``.
- A value of a class that the program does not have cannot be shown; then there is no state, and ``missing`` says why.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import attrs

from ares.engine.definitions import Definition
from ares.engine.histories import Histories
from ares.engine.replay import Replaying
from ares.engine.routing import SHOWN, followed, route_state
from ares.engine.variables import Values
from ares.errors import ReducerError, SerializationError
from ares.events import instant
from ares.journal.notes import Note, Opaque
from ares.journal.protocol import Entry
from ares.journal.view import decode_leniently
from ares.plugin.engine_bus import EngineBus
from ares.records import RouteState
from ares.walk import facts as f
from ares.walk.route import nobody_decided, nobody_was_asked
from ares.walk.state import Instance
from ares.walk.table import Phase
from ares.workflow import ItemFailure

#: Characters that are shown of a value that cannot be loaded.
_LONGEST: Final = 300


class Decider(StrEnum):
    """Whose a decision was. Only those of ROUTERS could have been another with other router plugins."""

    #: Router plugins were asked; or nobody was there to be asked, and the step's ``on_no_route`` decided.
    ROUTERS = "routers"
    #: The step, by a ``Goto``.
    STEP = "step"
    #: The step's own ``router``, which decided or failed.
    OWN_ROUTER = "own router"
    #: There was no time to ask anybody: the execution was to end.
    NOBODY = "nobody"


@attrs.frozen
class Choice:
    """What was decided, or would be.

    Attributes:
        targets: the branches that are taken; None where there is no route, which fails the execution.
        source: who decided, as the journal names it: ``step``, ``router``, ``fallback``, ``memory``, ...
        reason: why.
        scores: of each candidate, where router plugins decided.
        abstained: who was asked before and had no answer.
        error: why there is no route.
        problems: what went wrong with plugins while they were asked; of a past choice the journal does not tell.
    """

    targets: tuple[str, ...] | None
    source: str = ""
    reason: str = ""
    scores: Mapping[str, float] = attrs.field(factory=dict)
    abstained: tuple[str, ...] = ()
    error: str = ""
    problems: tuple[str, ...] = ()

    def takes_as(self, other: "Choice") -> bool:
        """Whether both take the same branches, in whatever order and for whatever reason."""
        if self.targets is None or other.targets is None:
            return self.targets is other.targets
        return set(self.targets) == set(other.targets)


@attrs.frozen(eq=False)
class Decision:
    """One decision of a past execution.

    Attributes:
        execution_id: the execution.
        seq: the number of its journal entry.
        at: when that was written.
        path: the branch point.
        round: of the workflow that it is in.
        decider: whose the decision was.
        then: what it was.
        state: what router plugins were shown, or would have been; None where they were not asked, or it cannot be
            rebuilt.
        missing: why it cannot be rebuilt; "" if it can, or need not.
        uncertain: what of the state may have been another: variables by ``variables.<name>``, and histories.
        is_same_workflow: whether the execution had the very definition then by which it is read now.
    """

    execution_id: str
    seq: int
    at: datetime
    path: str
    round: int
    decider: Decider
    then: Choice
    state: RouteState | None = None
    missing: str = ""
    uncertain: tuple[str, ...] = ()
    is_same_workflow: bool = True
    _instance: Instance | None = attrs.field(default=None, repr=False)

    def ask(self, bus: EngineBus) -> Choice:
        """What the routers of a bus would decide, as in a walk: one that fails has no answer, and ``on_no_route``
        counts where none has one. Nothing is journaled, and no hook is called. Open the execution on the bus first,
        so that what goes wrong is told.

        Raises:
            ValueError: there is no ``state`` to ask about.
        """
        if self.state is None or self._instance is None:
            raise ValueError(f"nobody can be asked about {self.path!r}: {self.missing or self.decider}")
        said, abstained = bus.route(self.execution_id, self.state)
        fact, problem = followed(self._instance, self.state, said, abstained)
        problems = bus.warnings(self.execution_id) + ((problem,) if problem else ())
        return attrs.evolve(_choice(fact), problems=problems)


def decisions(definition: Definition, execution_id: str, entries: Iterable[Entry], store: str) -> Iterator[Decision]:
    """The decisions of an execution, in the order of its journal, each as soon as its entry was read.

    Args:
        definition: the workflow; where it is not the one that the execution had, what does not fit is named.
        execution_id: the execution.
        entries: its journal, from the first entry on.
        store: where that stands, for messages.

    Raises:
        StoreError: the journal has a hole.
        SerializationError: an entry is damaged.
        IllegalTransition: the journal tells what cannot have happened.
    """
    past = _Past(definition, execution_id, store)
    for entry in entries:
        decision = past.take(entry)
        if decision is not None:
            yield decision


@attrs.frozen
class _Point:
    """A moment: how many writes there were to the variables of a scope, and entries in each history."""

    writes: int
    entries: Mapping[str, int]


@attrs.frozen
class _Shown:
    """A state as far as it can be rebuilt."""

    state: RouteState | None = None
    missing: str = ""
    uncertain: tuple[str, ...] = ()


class _Past:
    def __init__(self, definition: Definition, execution_id: str, store: str) -> None:
        self._definition = definition
        self._execution_id = execution_id
        self._replaying = Replaying(definition.graph, execution_id, store)
        self._histories = Histories()
        self._values = Values(None)
        #: By path, when what waits for its route could be asked about.
        self._points: dict[str, _Point] = {}

    def take(self, entry: Entry) -> Decision | None:
        self._replaying.count(entry.seq)
        fact: f.Fact | Note = entry.body
        if isinstance(entry.body, str):
            fact = decode_leniently(entry.kind, entry.path, entry.body, self._definition.codec)
        try:
            instance = self._replaying.add(fact, entry.at)
        except TypeError as error:  # a map over what cannot be loaded: which item failed cannot be said
            raise SerializationError("it needs a value that cannot be loaded", where=f"{entry.path!r}") from error
        decision = self._decision(entry, fact, instance)
        self._histories.add(fact, instant(entry.at))
        if isinstance(fact, f.Created):
            self._values = Values(fact)
        for each in self._moved(fact, instance):
            self._mark(each)
        return decision

    def _moved(self, fact: f.Fact | Note, instance: Instance | None) -> Iterable[Instance | None]:
        """Whose route may be asked for by what a fact led to."""
        state = self._replaying.walk.state
        match fact:
            case f.Resumed():  # those that have no route yet are asked about now, and shown what there is now
                return state.instances()
            case f.Opened():  # again, perhaps: then what got no route inside is asked about again
                return [state.find(entry.path) for entry in fact.set_back]
            case _:
                return (instance,)

    def _mark(self, instance: Instance | None) -> None:
        if instance is not None and instance.phase is Phase.ROUTING:
            entries = {name: len(entries) for name, entries in self._histories.read(*SHOWN).items()}
            self._points[instance.path] = _Point(len(instance.scope.writes), entries)

    def _decision(self, entry: Entry, fact: f.Fact | Note, instance: Instance | None) -> Decision | None:
        match fact:
            case f.Succeeded() if fact.targets is not None:
                decider, then = Decider.STEP, Choice(fact.targets, "step")
            case f.Routed() | f.Unrouted():
                decider, then = _decider(fact, instance), _choice(fact)
            case _:
                return None
        point = self._points.pop(fact.path, None)
        shown = _Shown() if decider is not Decider.ROUTERS else self._shown(instance, point, then)
        return Decision(
            self._execution_id,
            entry.seq,
            instant(entry.at),
            fact.path,
            fact.round,
            decider,
            then,
            shown.state,
            shown.missing,
            shown.uncertain,
            self._replaying.is_same_workflow,
            instance,
        )

    def _shown(self, instance: Instance | None, point: _Point | None, then: Choice) -> _Shown:
        if instance is None or point is None or not instance.node.branches:
            return _Shown(missing="the workflow has changed since: it has no such branch point")
        strange = set(then.targets or ()) - set(instance.scope.graph.ids(instance.node.branches))
        if strange:
            names = ", ".join(map(repr, sorted(strange)))
            return _Shown(missing=f"the workflow has changed since: {names} is no branch of this step")
        try:
            variables = self._values.snapshot(instance.scope, point.writes)
        except ReducerError as error:
            return _Shown(missing=str(error))
        now = self._histories.read(*SHOWN)
        histories = {name: now[name][:count] for name, count in point.entries.items()}
        state = route_state(self._execution_id, instance, variables, histories)
        values = {"its output": state.output, **{f"variable {name!r}": each for name, each in variables.items()}}
        for name, value in values.items():
            found = _opaque_in(value)
            if found is not None:
                return _Shown(missing=f"{name} holds what cannot be loaded: {found.text[:_LONGEST]}")
        # What was written and recorded since then, by others than the branch point.
        written = [f"variables.{name}" for name, _, _ in instance.scope.writes[point.writes :] if name in variables]
        longer = [
            name
            for name, count in point.entries.items()
            if any(entry.path != instance.path for entry in now[name][count:])
        ]
        return _Shown(state, uncertain=tuple(dict.fromkeys((*written, *longer))))


def _decider(fact: f.Routed | f.Unrouted, instance: Instance | None) -> Decider:
    if isinstance(fact, f.Unrouted):
        if nobody_decided(fact):
            return Decider.ROUTERS
        return Decider.NOBODY if nobody_was_asked(fact) else Decider.OWN_ROUTER
    has_own = instance is not None and instance.node.router is not None
    # It is asked first, and named if it abstains.
    return Decider.OWN_ROUTER if has_own and fact.abstained[:1] != ("router",) else Decider.ROUTERS


def _choice(fact: f.Routed | f.Unrouted) -> Choice:
    if isinstance(fact, f.Unrouted):
        return Choice(None, error=fact.error.message)
    return Choice(fact.targets, fact.source, fact.reason, fact.scores, fact.abstained)


def _opaque_in(value: Any) -> Opaque | None:
    """What stands in a value for one that could not be loaded: in lists and dicts, and in what is made of them."""
    left: list[Any] = [value]
    while left:
        each = left.pop()
        if isinstance(each, Opaque):
            return each
        if isinstance(each, list | tuple | set | frozenset):
            left += each
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, ItemFailure):
            left.append(each.item)
    return None


__all__ = ["Choice", "Decider", "Decision", "decisions"]
