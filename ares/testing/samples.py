"""Records as a walk would hand them to a plugin, made from a few fields: the rest is something harmless.

Each function takes the fields of its record by name. What is not given is that of a step ``step`` of a workflow
``workflow``, in its first round, in the execution ``execution``.
"""

import time
from datetime import UTC, datetime
from typing import Any

from ares.events import Event
from ares.journal.fold import Fold
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    ExperienceCheckpoint,
    RouteState,
    Step,
    StepFailure,
    StepResult,
    StepStatus,
)
from ares.walk.facts import Created

EXECUTION = "execution"
WORKFLOW = "workflow"


def make_step(path: str = "step", **fields: Any) -> Step:
    """A step that is about to run its body; ids and index are those of ``path`` (``audit/parse``, ``measure[3]``)."""
    defaults = {
        **_names(path),
        "round": 1,
        "agent_type": "",
        "status": StepStatus.RUNNING,
        "attempt": 1,
        "inputs": {},
        "metadata": {},
        "started_at": datetime.now(UTC),
    }
    return Step(**{**defaults, **fields})


def make_step_result(path: str = "step", **fields: Any) -> StepResult:
    """The outcome of a step that completed, unless ``status`` says otherwise."""
    defaults = {**_names(path), "round": 1, "status": StepStatus.COMPLETED, "attempts": 1, "duration": 0.25}
    return StepResult(**{**defaults, **fields})


def make_route_state(path: str = "step", **fields: Any) -> RouteState:
    """A branch point with the branches ``left`` and ``right``."""
    defaults = {
        "execution_id": EXECUTION,
        "workflow_id": WORKFLOW,
        "step_id": _names(path)["step_id"],
        "path": path,
        "round": 1,
        "output": None,
        "variables": {},
        "candidates": ("left", "right"),
    }
    return RouteState(**{**defaults, **fields})


def make_execution_state(**fields: Any) -> ExecutionState:
    """An execution as it begins."""
    defaults = {
        "execution_id": EXECUTION,
        "workflow_id": WORKFLOW,
        "step_id": "",
        "round": 1,
        "variables": {},
        "steps": {},
    }
    return ExecutionState(**{**defaults, **fields})


def make_outcome(status: ExecutionStatus | str = ExecutionStatus.COMPLETED, **fields: Any) -> ExecutionOutcome:
    """An execution of one step that ended."""
    status = ExecutionStatus(status)
    counts = ("skipped_steps", "route_count", "tool_count", "memory_hit_count", "interrupt_count", "error_count")
    defaults = {
        "execution_id": EXECUTION,
        "workflow_id": WORKFLOW,
        "status": status,
        "round": 1,
        "duration": 0.25,
        "total_steps": 1,
        "failed_steps": int(status is ExecutionStatus.FAILED),
        **dict.fromkeys(counts, 0),
    }
    return ExecutionOutcome(**{**defaults, **fields})


def make_failure(error: BaseException | None = None, path: str = "step", **fields: Any) -> StepFailure:
    """A step whose retries are spent; with a ``ConnectionError`` unless another error is given."""
    defaults = {
        "execution_id": EXECUTION,
        "workflow_id": WORKFLOW,
        "step_id": _names(path)["step_id"],
        "path": path,
        "round": 1,
        "attempts": 3,
        "error": ConnectionError("no answer") if error is None else error,
    }
    return StepFailure(**{**defaults, **fields})


def make_checkpoint(execution_id: str = EXECUTION) -> ExperienceCheckpoint:
    """The checkpoint of an execution that has just begun: of one step."""
    nodes = (("step", "", ()),)
    fold = Fold(execution_id)
    fold.add(1, time.time_ns(), Created(WORKFLOW, "1", "", "", nodes, {}, {}, {}))
    return fold.checkpoint()


def make_event(event_type: str = "step.completed", *, seq: int | None = 1, **fields: Any) -> Event:
    """An event of the execution's journal; with ``seq=None`` one that only passed over the bus."""
    stream = fields.get("stream_id", EXECUTION)
    defaults = {
        "id": f"{stream}:{seq}",
        "seq": seq,
        "stream_id": stream,
        "type": event_type,
        "module": "step",
        "payload": {},
        "timestamp": datetime.now(UTC),
    }
    return Event(**{**defaults, **fields})


def _names(path: str) -> dict[str, Any]:
    """How the step at a path is called."""
    step_id = path.rpartition("/")[2]
    base, bracket, index = step_id.partition("[")
    number = int(index.rstrip("]")) if bracket else None
    return {"step_id": step_id, "path": path, "base_id": base, "index": number, "name": base}
