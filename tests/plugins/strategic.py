"""Agents to choose from, and executions that end as a test wants it."""

import json
from pathlib import Path
from typing import Any

from ares.plugins import StrategyEvolution
from ares.records import ExecutionOutcome, ExecutionState, ExecutionStatus, RuntimeRecommendation
from tests.plugins.routing import alone

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED


def asking(execution_id: str = "e", step_id: str = "choose", round: int = 1, workflow_id: str = "w") -> ExecutionState:
    return ExecutionState(execution_id, workflow_id, step_id, round, {}, {})


def ended(
    execution_id: str = "e",
    status: ExecutionStatus = COMPLETED,
    round: int = 1,
    duration: float = 1.0,
    workflow_id: str = "w",
    **counts: int,
) -> ExecutionOutcome:
    given = {"total_steps": 3, "failed_steps": 0, "skipped_steps": 0, "route_count": 1, "tool_count": 2, **counts}
    more = {"memory_hit_count": 0, "interrupt_count": 0, "error_count": 0}
    return ExecutionOutcome(execution_id, workflow_id, status, round, duration, **given, **more)


class Played:
    """A plugin that is called as a bus would, by one thread."""

    def __init__(self, path: Path, agents: Any = ("a", "b", "c"), **options: Any) -> None:
        self.plugin = StrategyEvolution(path, agents, **{"ttl": 0, "seed": 1, **options})
        self.plugin.start(alone(""), None)  # type: ignore[arg-type]  # it has no use for a bus
        self._number = 0

    def ask(self, execution_id: str = "e", step_id: str = "choose", round: int = 1) -> RuntimeRecommendation:
        found = self.plugin.recommend(alone(execution_id), asking(execution_id, step_id, round))
        assert found is not None
        return found

    def end(self, execution_id: str = "e", status: ExecutionStatus = COMPLETED, **more: Any) -> None:
        self.plugin.after_execution(alone(execution_id), ended(execution_id, status, **more))

    def end_round(self, execution_id: str = "e", status: ExecutionStatus = COMPLETED, **more: Any) -> None:
        self.plugin.record_outcome(alone(execution_id), ended(execution_id, status, **more))

    def run(self, wins: Any, **more: Any) -> RuntimeRecommendation:
        """One execution; ``wins`` says of a recommendation whether it completes."""
        self._number += 1
        execution_id = f"{id(self)}-{self._number}"
        found = self.ask(execution_id)
        self.end(execution_id, COMPLETED if wins(found) else FAILED, **more)
        return found

    def runs(self) -> dict[str, int]:
        return {each.agent: each.runs for each in self.plugin.standings("w", "choose")}

    def total(self) -> int:
        return sum(self.runs().values())

    def reopen(self) -> None:
        self.plugin.stop(alone(""))
        self.plugin.start(alone(""), None)  # type: ignore[arg-type]


def hint(recommended: RuntimeRecommendation) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recommended.mutation_hint)
    return found
