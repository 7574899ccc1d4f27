"""The fold: what the facts and notes of a journal add up to, for whoever reads it without the workflow.

Pure, as the walk is, and knows even less: no graph and no policy, only what is journaled. It decides nothing and
refuses nothing that a walk has let happen. It moves as ``ares.walk.state`` does, fact by fact, and a property test
holds the two together. What the journal does not tell, it cannot know either:

- Elements of a map are there from their start, and not while they have not begun or are set back.
- A failed element whose map collects failures has its ``ErrorInfo`` in the map's output.
- The steps of a sub-workflow are those that the journal's nodes name under it. Where they name none, each appears with
  its first fact, and the output of the sub-workflow step is what *all* of them that completed returned, because which
  of them nothing depends on is not known.
- An ``at_most_once`` step that was cut short is PENDING here; the walk knows that it cannot simply run again.
- RUNNING means by the journal: whether somebody still walks the execution, the store can tell.
- ``step_states`` and ``outputs`` are those of the last round; ``loop_history`` has the execution's rounds, and not
  those of sub-workflows.
- ``variables`` are the top-level workflow's. One whose reducer is a function is given by ``reducers``; without it, or
  when a reducer raises, its value is the tuple of what was written, in order.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from ares.errors import WalkError
from ares.events import instant
from ares.journal._steps import Step, Steps, name_of
from ares.journal.notes import Emitted, Note, Recorded, Remembered, ToolCalled
from ares.questions import AnswerAction, Cause
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    ExecutionStatus,
    ExperienceCheckpoint,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    StepStatus,
    ToolEntry,
)
from ares.walk import facts as f
from ares.workflow.reducers import NAMED, combine

#: Of ``ExperienceCheckpoint``: raised when a field of it changes its meaning.
SCHEMA_VERSION: Final = 1

Reducer = Callable[[Any, Any], Any]

#: Where a step stands after an answer, by what was asked; elsewhere it waits on, for its body or its end.
_ANSWERED: Final = {
    (Cause.BEFORE, AnswerAction.APPROVE): StepStatus.PENDING,
    (Cause.OUTCOME, AnswerAction.RUN_AGAIN): StepStatus.PENDING,
    (Cause.OUTCOME, AnswerAction.APPROVE): StepStatus.RUNNING,
}
_AFTER: Final = {f.After.FINAL: StepStatus.FAILED, f.After.SKIP: StepStatus.SKIPPED}


class Fold:
    """Adds up the journal of one execution, entry by entry, into its ``ExperienceCheckpoint``.

    An entry costs the same whatever came before it, except that a set-back looks at what it sets back and at the
    variables' writes. Belongs to one thread.

    Args:
        execution_id: Whose journal it is.
        reducers: The functions that combine the writes of variables, where they are not among the named ones.
    """

    def __init__(self, execution_id: str, *, reducers: Mapping[str, Reducer] | None = None) -> None:
        self.execution_id = execution_id
        self._reducers = reducers or {}
        self._seq = 0
        self._created_at: int | None = None
        self._updated_at: int | None = None
        self._workflow = ("", "")
        self._initial: Mapping[str, Any] = {}
        self._reducer_names: Mapping[str, str] = {}
        self._status = ExecutionStatus.PENDING
        self._round = 1
        self._error: ErrorInfo | None = None
        self._steps = Steps()
        #: (variable, value, who wrote), in the order they took effect.
        self._writes: list[tuple[str, Any, Step]] = []
        #: What earlier rounds wrote, by variable; without a reducer, the last.
        self._carried: dict[str, list[Any]] = {}
        self._routes: list[RouteEntry] = []
        self._tools: list[ToolEntry] = []
        self._errors: list[ErrorEntry] = []
        self._memory_hits: list[MemoryEntry] = []
        self._interrupts: list[InterruptEntry] = []
        self._loops: list[LoopEntry] = []
        self._signals: list[ScoringSignal] = []
        #: Where an entry that a plugin recorded belongs.
        self._histories: dict[type, list[Any]] = {
            RouteEntry: self._routes,
            ToolEntry: self._tools,
            ErrorEntry: self._errors,
            MemoryEntry: self._memory_hits,
            InterruptEntry: self._interrupts,
            LoopEntry: self._loops,
            ScoringSignal: self._signals,
        }
        self._handlers: dict[type, Callable[[Any], None]] = {
            f.Created: self._on_created,
            f.Resumed: self._on_resumed,
            f.CancelRequested: self._on_nothing,
            f.DeadlinePassed: self._on_nothing,
            f.Interrupted: self._on_interrupted,
            f.Waiting: self._on_waiting,
            f.Ended: self._on_ended,
            f.RoundEnded: self._on_round_ended,
            f.RoundStarted: self._on_round_started,
            f.Checked: self._on_checked,
            f.Started: self._on_started,
            f.Opened: self._on_opened,
            f.Succeeded: self._on_succeeded,
            f.Failed: self._on_failed,
            f.Completed: self._on_completed,
            f.Skipped: self._on_skipped,
            f.Routed: self._on_routed,
            f.Unrouted: self._on_unrouted,
            f.Asked: self._on_asked,
            f.Answered: self._on_answered,
            f.Continued: self._on_continued,
            Remembered: self._on_nothing,
            ToolCalled: self._on_tool,
            Emitted: self._on_nothing,
            Recorded: self._on_recorded,
        }

    def add(self, seq: int, at: int, entry: f.Fact | Note) -> None:
        """Take in the next entry of the journal.

        Args:
            seq: Its number.
            at: When it was written, in nanoseconds since the epoch.
            entry: The fact or note.

        Raises:
            WalkError: The entry does not follow the one before it; nothing was changed.
        """
        if seq != self._seq + 1:
            raise WalkError(f"execution {self.execution_id!r}: entry {seq} does not follow entry {self._seq}")
        self._seq = seq
        self._updated_at = at
        if self._created_at is None:
            self._created_at = at
        self._handlers[type(entry)](entry)

    def checkpoint(self) -> ExperienceCheckpoint:
        """Everything so far. Later entries do not change it."""
        nodes = self._steps.nodes
        top = self._steps.top.values()
        return ExperienceCheckpoint(
            schema_version=SCHEMA_VERSION,
            execution_id=self.execution_id,
            workflow_id=self._workflow[0],
            workflow_version=self._workflow[1],
            state_version=self._seq,
            status=self._status,
            round=self._round,
            error=self._error,
            step_states={step.path: step.state() for step in self._steps.listed()},
            variables=self._variables(),
            outputs={step.path: step.output for step in top if step.status is StepStatus.COMPLETED},
            dag_nodes=tuple(node[0] for node in nodes),
            dag_edges=tuple((dep, step_id) for step_id, _, deps in nodes for dep in deps),
            route_history=tuple(self._routes),
            tool_history=tuple(self._tools),
            memory_hits=tuple(self._memory_hits),
            interrupt_history=tuple(self._interrupts),
            loop_history=tuple(self._loops),
            error_history=tuple(self._errors),
            scoring_signals=tuple(self._signals),
            created_at=None if self._created_at is None else instant(self._created_at),
            updated_at=None if self._updated_at is None else instant(self._updated_at),
        )

    def questions(self) -> list[tuple[f.Asked, int]]:
        """The open questions in the order they were asked, and when that was, in nanoseconds since the epoch."""
        asking = [(step.asked_seq, step.question) for step in self._steps.unfolded() if step.question is not None]
        return [question for _, question in sorted(asking, key=itemgetter(0))]

    def question(self, path: str) -> f.Asked | None:
        """What the step at a path asks."""
        step = self._steps.find(path)
        return None if step is None or step.question is None else step.question[0]

    @property
    def seq(self) -> int:
        """The number of the last entry that was taken in."""
        return self._seq

    # --- facts of an instance ------------------------------------------------------------------------------------

    def _on_nothing(self, entry: object) -> None:
        """Takes in an entry that changes nothing here."""

    def _moved(self, fact: f.InstanceFact, status: StepStatus, *, is_under_way: bool = False) -> Step:
        step = self._steps.at(fact.path)
        step.round = fact.round
        step.status = status
        step.is_under_way = is_under_way
        step.question = None
        if self._status in (ExecutionStatus.PENDING, ExecutionStatus.WAITING):
            self._status = ExecutionStatus.RUNNING
        return step

    def _on_checked(self, fact: f.Checked) -> None:
        self._moved(fact, StepStatus.PENDING)

    def _on_started(self, fact: f.Started) -> None:
        self._moved(fact, StepStatus.RUNNING, is_under_way=True).attempts = fact.attempt

    def _on_opened(self, fact: f.Opened) -> None:
        step = self._moved(fact, StepStatus.RUNNING)
        step.attempts = fact.attempt
        if fact.length is not None:
            if step.length != fact.length:
                self._steps.forget_inside(step)
            step.length = fact.length
        else:
            self._steps.open(step)
        self._set_back(fact.set_back)

    def _on_succeeded(self, fact: f.Succeeded) -> None:
        step = self._moved(fact, StepStatus.COMPLETED)
        step.attempts = fact.attempt
        step.output = fact.output
        step.duration = fact.duration
        step.error = None
        if fact.writes:
            if fact.path.endswith("]"):
                step.writes = fact.writes
            elif "/" not in fact.path:
                self._writes.extend([(name, value, step) for name, value in fact.writes])
        if fact.targets is not None:
            self._decided(fact, fact.targets, "", "step")

    def _on_failed(self, fact: f.Failed) -> None:
        step = self._moved(fact, _AFTER.get(fact.after, StepStatus.RUNNING))
        if fact.after is f.After.SKIP:
            step.reason = f.SkipReason.RECOVERED.value
        step.attempts = fact.attempt
        step.error = None if fact.after is f.After.SKIP else fact.error
        step.duration = fact.duration
        self._errors.append(ErrorEntry(name_of(fact.path), fact.path, str(fact.error)))

    def _on_completed(self, fact: f.Completed) -> None:
        step = self._moved(fact, StepStatus.COMPLETED)
        step.error = None
        if step.length is None:
            step.output = self._steps.output_inside(step)
            return
        outputs: list[Any] = [None] * step.length
        for i, element in sorted(step.elements.items()):
            outputs[i] = element.error if element.status is StepStatus.FAILED else element.output
            if "/" not in fact.path:
                self._writes.extend([(name, value, step) for name, value in element.writes])
        step.output = outputs

    def _on_skipped(self, fact: f.Skipped) -> None:
        step = self._moved(fact, StepStatus.SKIPPED)
        step.error = None
        step.reason = f"{fact.reason}: {fact.origin}" if fact.origin else str(fact.reason)

    def _on_routed(self, fact: f.Routed) -> None:
        self._moved(fact, StepStatus.COMPLETED).error = None
        self._decided(fact, fact.targets, fact.reason, fact.source)

    def _on_unrouted(self, fact: f.Unrouted) -> None:
        self._moved(fact, StepStatus.COMPLETED).error = fact.error
        self._errors.append(ErrorEntry(name_of(fact.path), fact.path, str(fact.error)))

    def _on_asked(self, fact: f.Asked) -> None:
        step = self._moved(fact, StepStatus.WAITING)
        assert self._updated_at is not None
        step.question, step.asked_seq = (fact, self._updated_at), self._seq
        self._interrupts.append(InterruptEntry(name_of(fact.path), fact.path, fact.key, "ask", fact.message))

    def _on_answered(self, fact: f.Answered) -> None:
        asked = self._steps.at(fact.path).question
        leads_to = StepStatus.WAITING if asked is None else _ANSWERED.get((asked[0].cause, fact.action))
        self._moved(fact, leads_to or StepStatus.WAITING)
        self._interrupts.append(
            InterruptEntry(name_of(fact.path), fact.path, fact.key, fact.action.value, fact.feedback)
        )

    def _on_continued(self, fact: f.Continued) -> None:
        self._moved(fact, StepStatus.RUNNING, is_under_way=True)

    def _decided(self, fact: f.Succeeded | f.Routed, targets: tuple[str, ...], reason: str, source: str) -> None:
        assert self._updated_at is not None
        self._routes.append(
            RouteEntry(name_of(fact.path), fact.path, targets, reason, source, instant(self._updated_at))
        )

    def _on_tool(self, note: ToolCalled) -> None:
        self._tools.append(
            ToolEntry(
                step_id=name_of(note.path),
                path=note.path,
                tool_name=note.tool_name,
                input=note.input,
                output=note.output,
                duration=note.duration,
                success=note.success,
                error=note.error,
            )
        )

    def _on_recorded(self, note: Recorded) -> None:
        self._histories[type(note.entry)].append(note.entry)

    # --- facts of the execution ----------------------------------------------------------------------------------

    def _on_created(self, fact: f.Created) -> None:
        self._workflow = (fact.workflow_id, fact.version)
        self._initial = fact.variables
        self._reducer_names = fact.reducers
        self._steps.define(fact.nodes)

    def _on_ended(self, fact: f.Ended) -> None:
        self._status = fact.status
        self._error = fact.error

    def _on_waiting(self, _: f.Waiting) -> None:
        self._status = ExecutionStatus.WAITING

    def _on_round_ended(self, fact: f.RoundEnded) -> None:
        if not fact.path:
            self._loops.append(LoopEntry(fact.round, f"{fact.reason}: {fact.by}" if fact.by else fact.reason))

    def _on_round_started(self, fact: f.RoundStarted) -> None:
        self._steps.turn(fact.path, fact.round)
        if fact.path:
            return
        self._round = fact.round
        for name, value, _ in self._writes:
            if name in self._reducer_names:
                self._carried.setdefault(name, []).append(value)
            else:
                self._carried[name] = [value]
        self._writes = []

    def _on_interrupted(self, fact: f.Interrupted) -> None:
        self._status = ExecutionStatus.INTERRUPTED
        self._steps.cut(fact.in_flight)

    def _on_resumed(self, fact: f.Resumed) -> None:
        self._status = ExecutionStatus.RUNNING
        self._error = None
        self._steps.cut(fact.in_flight)
        if fact.nodes is not None:
            self._workflow = (self._workflow[0], fact.version)
            self._steps.define(fact.nodes)
            self._writes = [write for write in self._writes if write[2] in self._steps]
        self._set_back(fact.set_back)

    def _set_back(self, entries: tuple[f.SetBack, ...]) -> None:
        if self._steps.set_back(entries):
            self._writes = [write for write in self._writes if write[2].status is not StepStatus.PENDING]

    # --- variables -----------------------------------------------------------------------------------------------

    def _variables(self) -> dict[str, Any]:
        written = {name: list(values) for name, values in self._carried.items()}
        for name, value, _ in self._writes:
            written.setdefault(name, []).append(value)
        return {**self._initial, **{name: self._combined(name, values) for name, values in written.items()}}

    def _combined(self, name: str, values: list[Any]) -> Any:
        named = self._reducer_names.get(name)
        reducer = named if named in NAMED else self._reducers.get(name)
        if reducer is None and named is not None:
            return tuple(values)  # a reducer of the user's that nobody gave
        try:
            return combine(reducer if named is not None else None, self._initial.get(name), values)
        except Exception:
            return tuple(values)  # a reducer is the user's; what was written is still worth showing
