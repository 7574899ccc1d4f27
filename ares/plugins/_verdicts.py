"""What became of the decisions of an execution, by its checkpoint: which branch each took, and how well it went."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from ares.plugins._experiences import Asked
from ares.records import ExecutionStatus, ExperienceCheckpoint, RouteEntry, StepStatus

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: The executions that say something about the way they took.
SCORED: Final = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)


def targets_of(asked: Sequence[Asked], checkpoint: ExperienceCheckpoint) -> dict[int, str]:
    """The branch that was taken, for each decision that was for one alone."""
    last = {route.path: route for route in checkpoint.route_history}
    routes: dict[str, list[RouteEntry]] = {}
    for route in checkpoint.route_history:
        routes.setdefault(route.path, []).append(route)
    times: dict[str, list[int]] = {}
    for each in asked:
        times.setdefault(each.path, []).append(each.asked_at // 1_000)
    for path, its in times.items():
        its.sort()
        routes[path] = sorted(routes.get(path, ()), key=lambda route: micros(route.timestamp))
    found = {}
    for each in asked:
        step = checkpoint.step_states.get(each.path)
        if step is not None and step.round == each.round:
            stands = step.status is StepStatus.COMPLETED and step.error is None
            decided = last.get(each.path) if stands else None
        else:  # of an earlier round, which completed
            decided = _next(routes[each.path], each.asked_at // 1_000, times[each.path])
        if decided is not None and len(decided.targets) == 1:
            found[each.number] = decided.targets[0]
    return found


def _next(routes: Sequence[RouteEntry], asked_at: int, times: Sequence[int]) -> RouteEntry | None:
    """The decision that followed on a question, before the next question: a history does not tell rounds."""
    after = bisect_left(routes, asked_at, key=lambda route: micros(route.timestamp))
    then = bisect_right(times, asked_at)
    until = math.inf if then == len(times) else times[then]
    return next((route for route in routes[after : after + 1] if micros(route.timestamp) <= until), None)


def micros(at: datetime | None) -> int:
    """Microseconds since the epoch; 0 for an instant that nobody knows, as a plugin may have recorded it."""
    return 0 if not isinstance(at, datetime) or at.tzinfo is None else (at - _EPOCH) // timedelta(microseconds=1)


def score_of(status: ExecutionStatus, checkpoint: ExperienceCheckpoint) -> float:
    """How well an execution went, from 0 to 1."""
    if status is ExecutionStatus.FAILED:
        return 0.0
    scores: list[object] = [signal.score for signal in checkpoint.scoring_signals]
    valid = [float(score) for score in scores if isinstance(score, int | float) and 0 <= score <= 1]
    return sum(valid) / len(valid) if valid else 1.0
