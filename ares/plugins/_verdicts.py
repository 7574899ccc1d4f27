"""What became of the decisions of an execution, by its checkpoint: which branch each took, and how well it went."""

from collections.abc import Sequence
from typing import Final

from ares.plugins._experiences import Asked
from ares.records import ExecutionStatus, ExperienceCheckpoint, StepStatus

#: The executions that say something about the way they took.
SCORED: Final = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)


def targets_of(asked: Sequence[Asked], checkpoint: ExperienceCheckpoint) -> dict[int, str]:
    """The branch that was taken, for each decision that was for one alone."""
    last = {route.path: route.targets for route in checkpoint.route_history}
    found = {}
    for each in asked:
        target = each.target
        if target is None:
            # A history does not tell rounds: its last entry is of the round in which the step stands.
            step = checkpoint.step_states.get(each.path)
            targets = last.get(each.path, ())
            stands = step is not None and step.status is StepStatus.COMPLETED and step.error is None
            is_its = stands and step is not None and step.round == each.round and len(targets) == 1
            target = targets[0] if is_its else ""
        if target:
            found[each.number] = target
    return found


def score_of(status: ExecutionStatus, checkpoint: ExperienceCheckpoint) -> float:
    """How well an execution went, from 0 to 1."""
    if status is ExecutionStatus.FAILED:
        return 0.0
    scores: list[object] = [signal.score for signal in checkpoint.scoring_signals]
    valid = [float(score) for score in scores if isinstance(score, int | float) and 0 <= score <= 1]
    return sum(valid) / len(valid) if valid else 1.0
