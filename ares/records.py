"""The records that cross the boundaries of ares: what plugins are handed, results, and the checkpoint.

Durations are seconds, instants are UTC datetimes. Everything here is plain data; nothing here knows where it
came from or where it is kept.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import attrs


class ExecutionStatus(StrEnum):
    """Where an execution stands. INTERRUPTED is running by the journal, but claimed by nobody."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def is_final(self) -> bool:
        """Whether the execution has ended."""
        return self in _FINAL_EXECUTIONS


_FINAL_EXECUTIONS = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED})


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"

    @property
    def is_final(self) -> bool:
        """Whether the step has ended."""
        return self in _FINAL_STEPS


_FINAL_STEPS = frozenset({StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED})


@attrs.frozen
class ErrorInfo:
    """What is kept of a failure: the type's name, its message, and the traceback's text."""

    type_name: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


# --- a step, as hooks and contexts see it --------------------------------------------------------


@attrs.frozen
class Step:
    """A step about to run: one instance (``path``, ``round``), one attempt."""

    step_id: str
    path: str
    base_id: str
    index: int | None
    round: int
    name: str
    agent_type: str
    status: StepStatus
    attempt: int
    inputs: Mapping[str, Any]
    metadata: Mapping[str, Any]
    started_at: datetime | None


@attrs.frozen
class StepResult:
    """How one instance of a step ended, or where it stands.

    ``base_id`` is the step's id without its map index, ``index`` that index. ``error`` is the exception itself, or
    a ``RecordedError`` when it happened in an earlier process. ``reason`` says why a step was skipped. ``duration``
    is the seconds of the last attempt.
    """

    step_id: str
    path: str
    base_id: str
    index: int | None
    round: int
    name: str
    status: StepStatus
    output: Any = None
    error: BaseException | None = None
    reason: str = ""
    attempts: int = 0
    duration: float = 0.0
    metadata: Mapping[str, Any] = attrs.field(factory=dict)


# --- the entries of an execution's histories -----------------------------------------------------


@attrs.frozen
class RouteEntry:
    """One decision at a branch point."""

    step_id: str
    path: str
    targets: tuple[str, ...]
    reason: str
    source: str
    timestamp: datetime


@attrs.frozen
class ToolEntry:
    """One call of a tool; ``duration`` in seconds."""

    step_id: str
    path: str
    tool_name: str
    input: Any
    output: Any
    duration: float
    success: bool
    error: str


@attrs.frozen
class MemoryEntry:
    """One query to a memory."""

    step_id: str
    path: str
    query: str
    hit_count: int
    best_score: float
    used_ids: tuple[str, ...]


@attrs.frozen
class InterruptEntry:
    """One question asked of a human, or its answer."""

    step_id: str
    path: str
    key: str
    action: str
    feedback: str


@attrs.frozen
class LoopEntry:
    """The end of one round."""

    round: int
    exit_reason: str


@attrs.frozen
class ErrorEntry:
    """One failed attempt."""

    step_id: str
    path: str
    message: str


@attrs.frozen
class ScoringSignal:
    """One figure by which a run may be judged."""

    source: str
    score: float
    label: str


# --- what routers, memories, evolution and recovery see and say ----------------------------------


@attrs.frozen
class RouteState:
    """What a router is asked about."""

    execution_id: str
    workflow_id: str
    step_id: str
    path: str
    round: int
    output: Any
    variables: Mapping[str, Any]
    candidates: tuple[str, ...]
    routes: Sequence[RouteEntry] = ()
    tools: Sequence[ToolEntry] = ()
    memory_hits: Sequence[MemoryEntry] = ()


@attrs.frozen
class RouteDecision:
    """What a router decided: the branches to take; ``source`` is who decided."""

    targets: tuple[str, ...]
    reason: str = ""
    source: str = "router"
    scores: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class RouteAdvice:
    """What a memory would do next, and how sure it is (0 to 1)."""

    next_step_id: str
    confidence: float
    reason: str = ""


@attrs.frozen
class ExecutionState:
    """Where an execution stands, for those who decide about rounds, recovery and agents.

    Loop controllers are told of one round: ``steps`` are those of the workflow whose round it was and all that lies in
    them, the histories those of that round, ``status`` is COMPLETED or FAILED, ``duration`` the seconds that the round
    took in this process; of a round of a sub-workflow, ``workflow_id`` is that one's and ``step_id`` the path of its
    step. Nobody else is told ``status``, ``duration``, ``interrupts`` and ``errors``.
    """

    execution_id: str
    workflow_id: str
    step_id: str
    round: int
    variables: Mapping[str, Any]
    steps: Mapping[str, StepResult]
    routes: Sequence[RouteEntry] = ()
    tools: Sequence[ToolEntry] = ()
    memory_hits: Sequence[MemoryEntry] = ()
    scoring_signals: Sequence[ScoringSignal] = ()
    interrupts: Sequence[InterruptEntry] = ()
    errors: Sequence[ErrorEntry] = ()
    status: ExecutionStatus = ExecutionStatus.RUNNING
    duration: float = 0.0


@attrs.frozen
class ExecutionOutcome:
    """How an execution, or one round of it, went; ``duration`` in seconds.

    Of an execution, the steps are those of its last round, and what is counted besides is that of all rounds.
    """

    execution_id: str
    workflow_id: str
    status: ExecutionStatus
    round: int
    duration: float
    total_steps: int
    failed_steps: int
    skipped_steps: int
    route_count: int
    tool_count: int
    memory_hit_count: int
    interrupt_count: int
    error_count: int


@attrs.frozen
class RuntimeRecommendation:
    """What an evolution plugin would change, and how sure it is (0 to 1)."""

    preferred_agent: str = ""
    router_weight: float = 0.0
    mutation_hint: str = ""
    confidence: float = 0.0


@attrs.frozen
class StepFailure:
    """A step whose retries are spent."""

    execution_id: str
    workflow_id: str
    step_id: str
    path: str
    round: int
    attempts: int
    error: BaseException


# --- the checkpoint ------------------------------------------------------------------------------


@attrs.frozen
class StepState:
    """One instance of a step as the checkpoint keeps it: no values but its output."""

    path: str
    round: int
    status: StepStatus
    attempts: int = 0
    reason: str = ""
    error: ErrorInfo | None = None
    output: Any = None
    duration: float = 0.0


@attrs.frozen
class ExperienceCheckpoint:
    """All that an execution is, as the fold of its journal: nothing in it is kept anywhere else.

    ``state_version`` is the number of the last journal entry folded in. ``step_states`` maps paths, map elements and
    child steps included, to where they stand; ``outputs`` holds the completed top-level steps. ``dag_edges`` are
    (from, to) pairs.
    """

    schema_version: int
    execution_id: str
    workflow_id: str
    workflow_version: str
    state_version: int
    status: ExecutionStatus
    round: int
    error: ErrorInfo | None
    step_states: Mapping[str, StepState]
    variables: Mapping[str, Any]
    outputs: Mapping[str, Any]
    dag_nodes: tuple[str, ...]
    dag_edges: tuple[tuple[str, str], ...]
    route_history: tuple[RouteEntry, ...]
    tool_history: tuple[ToolEntry, ...]
    memory_hits: tuple[MemoryEntry, ...]
    interrupt_history: tuple[InterruptEntry, ...]
    loop_history: tuple[LoopEntry, ...]
    error_history: tuple[ErrorEntry, ...]
    scoring_signals: tuple[ScoringSignal, ...]
    created_at: datetime | None
    updated_at: datetime | None


@attrs.frozen
class ExecutionSummary:
    """One execution in a listing. ``error`` is a line about why it failed.

    ``owner`` is who walks it, empty for nobody, and ``silent_for`` the seconds since that process gave its last sign,
    by the wall clock; ``requests`` is how many answers and cancels are in that nobody has carried out yet.
    """

    execution_id: str
    workflow_id: str
    workflow_version: str
    status: ExecutionStatus
    parent_id: str | None
    metadata: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    error: str
    owner: str
    silent_for: float = 0.0
    requests: int = 0


@attrs.frozen
class Progress:
    """How far an execution is: steps and map elements that ended, how many there are so far, the paths that run now,
    with what their bodies said by ``ctx.progress`` (done, total); the execution's round, whose steps these are."""

    done: int
    total: int
    running: tuple[str, ...]
    details: Mapping[str, tuple[float | None, float | None]]
    round: int = 1
