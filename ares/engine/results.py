"""What a run gives back: the result of an execution, read off the state of its walk."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, overload

import attrs

from ares.engine.histories import Histories
from ares.errors import (
    ExecutionTimeoutError,
    RecordedError,
    UsageError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotCompletedError,
    WorkflowWaitingError,
)
from ares.events import instant
from ares.questions import Question
from ares.records import (
    ErrorInfo,
    ExecutionOutcome,
    ExecutionStatus,
    ExperienceCheckpoint,
    StepResult,
    StepState,
    StepStatus,
)
from ares.walk.conclude import first_failure, rejected_in, unfinished
from ares.walk.facts import Asked
from ares.walk.judge import describe
from ares.walk.parts import DONE
from ares.walk.rounds import dismantle
from ares.walk.state import Instance, Scope, State, find
from ares.walk.table import STATUS, Phase
from ares.workflow import Workflow

T = TypeVar("T")


def step_id_of(instance: Instance) -> str:
    """The id of an instance: the step's, with the index of a map element."""
    return instance.node.id if instance.index is None else f"{instance.node.id}[{instance.index}]"


def question_of(execution_id: str, asked: Asked, at: int) -> Question:
    """An open question, asked at a time in nanoseconds since the epoch."""
    step_id = asked.path.rpartition("/")[2]
    head = (execution_id, step_id, asked.path, asked.round, asked.key)
    return Question(*head, asked.message, asked.payload, instant(at), asked.cause)


def step_result(instance: Instance, *, at_rest: bool = False) -> StepResult:
    """One instance as others see it. ``at_rest``: nothing moves any more, so one that holds only what waits, waits."""
    spec = instance.node.spec
    reason = str(instance.reason or "")
    if instance.origin:
        reason = f"{reason}: {instance.origin}"
    return StepResult(
        step_id=step_id_of(instance),
        path=instance.path,
        base_id=instance.node.id,
        index=instance.index,
        round=instance.scope.round,
        name=spec.name,
        status=StepStatus.WAITING if at_rest and instance.phase is Phase.OPEN else STATUS[instance.phase],
        output=instance.output if STATUS[instance.phase] is StepStatus.COMPLETED else None,
        error=_error(instance),
        reason=reason,
        attempts=instance.attempt,
        duration=instance.duration,
        metadata=MappingProxyType(spec.metadata),
    )


def _error(instance: Instance) -> BaseException | None:
    info = instance.unrouted or (instance.error if instance.phase is Phase.FAILED else None)
    return None if info is None else instance.exception or recorded(info)


def recorded(info: ErrorInfo) -> RecordedError:
    """Stands for an exception of an earlier process."""
    return RecordedError(info.type_name, info.message, info.traceback)


def _element_result(owner: Instance, index: int) -> StepResult:
    """A map element that completed, or that never began: it has no instance."""
    parts = owner.parts
    assert parts is not None
    done = parts.states[index] == DONE
    began = 1 if done else 0
    return StepResult(
        step_id=f"{owner.node.id}[{index}]",
        path=f"{owner.path}[{index}]",
        base_id=owner.node.id,
        index=index,
        round=owner.scope.round,
        name=owner.node.spec.name,
        status=StepStatus.COMPLETED if done else StepStatus.PENDING,
        output=parts.outputs[index] if done else None,
        attempts=parts.attempts.get(index, began),
        duration=parts.durations[index],
        metadata=MappingProxyType(owner.node.spec.metadata),
    )


class Kept:
    """The state of a walk, for those who look at it: the walk's driver, and its results.

    Steps and their scopes refer to each other. So what they hold, outputs and exceptions with all that is in their
    frames, would stay until the garbage collector comes by, however large it is. The last one who lets go of this
    takes the state apart instead.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    def __del__(self) -> None:
        if "state" not in self.__dict__:
            return  # a Ctrl-C came before it had one
        dismantle(self.state.root)
        self.state.__dict__.clear()


class Steps(Mapping[str, StepResult]):
    """Every instance of an execution by path: steps, map elements, child steps. Results are made when looked up."""

    def __init__(self, kept: Kept, *, at_rest: bool = False) -> None:
        self._kept = kept
        self._at_rest = at_rest

    @property
    def _scopes(self) -> Mapping[str, Scope]:
        return self._kept.state.scopes

    def __getitem__(self, path: str) -> StepResult:
        instance = find(self._scopes, path)
        if instance is not None:
            return step_result(instance, at_rest=self._at_rest)
        owner, index = self._element(path)
        if owner is None:
            raise KeyError(path)
        return _element_result(owner, index)

    def _element(self, path: str) -> tuple[Instance | None, int]:
        base, _, digits = path.removesuffix("]").rpartition("[")
        if not path.endswith("]") or not digits.isdecimal():
            return None, 0
        owner = find(self._scopes, base)
        if owner is None or owner.parts is None or int(digits) >= owner.parts.length:
            return None, 0
        return owner, int(digits)

    def __iter__(self) -> Iterator[str]:
        for scope in list(self._scopes.values()):  # a plugin may look while the walk goes on
            for instance in scope.instances:
                yield instance.path
                if instance.parts is not None:
                    for i in range(instance.parts.length):
                        yield f"{instance.path}[{i}]"

    def __len__(self) -> int:
        return sum(
            1 + (0 if instance.parts is None else instance.parts.length)
            for scope in list(self._scopes.values())
            for instance in scope.instances
        )

    def __repr__(self) -> str:
        return f"<{len(self)} steps>"


@attrs.frozen(eq=False)
class WorkflowResult:
    """How a run went.

    Attributes:
        execution_id: the execution, for ``resume`` and the command line.
        workflow_id: its workflow.
        status: COMPLETED, FAILED, CANCELLED, WAITING or INTERRUPTED.
        outputs: what every completed top-level step of the last round returned.
        variables: the variables at the end.
        steps: a mapping of path to StepResult, map elements (``measure[3]``) and child steps (``child/step``) included.
        error: why it failed: the first failed step's own exception (a ``RecordedError`` if that was in an earlier
            process), or an ``ExecutionTimeoutError``.
        duration: seconds of walking in this process.
        interrupts: open questions.
        rejected: paths of the steps that a human rejected.
        warnings: what went wrong beside the walk: plugins, drops, abandoned threads, a store in ``best_effort``.
    """

    execution_id: str
    workflow_id: str
    status: ExecutionStatus
    outputs: Mapping[str, Any]
    variables: Mapping[str, Any]
    steps: Mapping[str, StepResult]
    error: BaseException | None = None
    duration: float = 0.0
    interrupts: tuple[Question, ...] = ()
    rejected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    _step_id: Callable[[Any], str] = attrs.field(default=str, repr=False)

    @overload
    def output(self, step: str) -> Any: ...

    @overload
    def output(self, step: Callable[..., T]) -> T: ...

    def output(self, step: Any) -> Any:
        """What a step returned; ``step`` is its function or its id.

        Raises:
            UsageError: the step did not complete.
        """
        step_id = self._step_id(step)
        if step_id not in self.outputs:
            found = self.steps.get(step_id)
            state = "is no step of this workflow" if found is None else f"is {found.status}"
            raise UsageError(f"no output: {step_id!r} {state}")
        return self.outputs[step_id]

    def raise_for_status(self) -> "WorkflowResult":
        """Return the result itself if the execution completed.

        Raises:
            WorkflowFailedError: it failed; ``__cause__`` is ``error``.
            WorkflowWaitingError: it waits for answers.
            WorkflowCancelledError: it was cancelled.
            WorkflowNotCompletedError: it was interrupted, or goes on elsewhere.
        """
        if self.status is ExecutionStatus.COMPLETED:
            return self
        kind = {
            ExecutionStatus.FAILED: WorkflowFailedError,
            ExecutionStatus.WAITING: WorkflowWaitingError,
            ExecutionStatus.CANCELLED: WorkflowCancelledError,
        }.get(self.status, WorkflowNotCompletedError)
        problem = "" if self.error is None else str(describe(self.error))
        raise kind(self.execution_id, self.workflow_id, problem) from self.error


def outcome_of(
    kept: Kept, histories: Histories | None, *, status: ExecutionStatus, duration: float
) -> ExecutionOutcome:
    """How an execution went, in figures; ``duration`` in seconds."""
    state = kept.state
    found = Counter[StepStatus]()
    for scope in state.scopes.values():
        for instance in scope.instances:
            found[STATUS[instance.phase]] += 1
            if instance.parts is not None:
                broken, skipped = len(instance.parts.failed), len(instance.parts.skipped)
                found[StepStatus.FAILED] += broken
                found[StepStatus.SKIPPED] += skipped
                found[StepStatus.COMPLETED] += instance.parts.length - broken - skipped
    names = ("routes", "tools", "memory_hits", "interrupts", "errors")
    counts = [0 if histories is None else histories.count(name) for name in names]
    return ExecutionOutcome(
        state.execution_id,
        state.graph.workflow.id,
        status,
        state.root.round,
        duration,
        found.total(),
        found[StepStatus.FAILED],
        found[StepStatus.SKIPPED],
        *counts,
    )


def error_of(state: State) -> BaseException | None:
    """Why an execution failed, as an exception."""
    if state.ended is None or state.ended.status is not ExecutionStatus.FAILED:
        return None
    if state.overdue is not None:
        return ExecutionTimeoutError(state.execution_id, state.overdue, unfinished(state))
    failure = first_failure(state.root)
    if failure is not None:
        return _error(failure)
    if state.root.over is not None and state.root.over.exception is not None:
        return state.root.over.exception
    return None if state.ended.error is None else recorded(state.ended.error)


def make_result(
    kept: Kept,
    variables: Mapping[str, Any],
    *,
    status: ExecutionStatus,
    duration: float,
    warnings: tuple[str, ...] = (),
    questions: tuple[Question, ...] = (),
) -> WorkflowResult:
    """The result of an execution whose walk has stopped."""
    state = kept.state
    done = {i.node.id: i.output for i in state.root.instances if i.phase in (Phase.COMPLETED, Phase.ROUTING)}
    return WorkflowResult(
        execution_id=state.execution_id,
        workflow_id=state.graph.workflow.id,
        status=status,
        outputs=done,
        variables=variables,
        steps=Steps(kept, at_rest=status is ExecutionStatus.WAITING),
        error=error_of(state),
        duration=duration,
        interrupts=questions,
        rejected=rejected_in(state),
        warnings=warnings,
        step_id=state.graph.workflow.step_id,
    )


def result_of_record(record: ExperienceCheckpoint, workflow: Workflow) -> WorkflowResult:
    """The result of an execution as its journal has it, when its definition is not the present one: with the steps that
    it had, under the ids that they had."""
    return WorkflowResult(
        execution_id=record.execution_id,
        workflow_id=record.workflow_id,
        status=record.status,
        outputs=record.outputs,
        variables=record.variables,
        steps={path: _recorded_step(state) for path, state in record.step_states.items()},
        error=None if record.error is None or record.status is not ExecutionStatus.FAILED else recorded(record.error),
        step_id=lambda step: step if isinstance(step, str) else workflow.step_id(step),
    )


def _recorded_step(state: StepState) -> StepResult:
    step_id = state.path.rpartition("/")[2]
    base, bracket, index = step_id.removesuffix("]").partition("[")
    return StepResult(
        step_id=step_id,
        path=state.path,
        base_id=base,
        index=int(index) if bracket else None,
        round=state.round,
        name=base,
        status=state.status,
        output=state.output,
        error=None if state.error is None else recorded(state.error),
        reason=state.reason,
        attempts=state.attempts,
        duration=state.duration,
    )
