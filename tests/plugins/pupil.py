"""Somebody who learns from outcomes, by keeping them."""

from typing import Any

from ares.context import Context
from ares.plugin import Capability
from ares.records import ExecutionOutcome, ExecutionState
from tests.bus.players import Named


class Pupil(Named):
    """Learns from outcomes, by keeping them."""

    capabilities = frozenset({Capability.EVOLUTION})

    def __init__(self, name: str = "pupil", **more: Any) -> None:
        super().__init__(name, **more)
        self.outcomes: list[ExecutionOutcome] = []

    def recommend(self, ctx: Context, state: ExecutionState) -> None:
        return None

    def record_outcome(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        self.outcomes.append(outcome)
