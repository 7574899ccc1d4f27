"""Plugins as their authors might write them."""

import threading
from collections import Counter
from typing import Any

from ares import Capability, Plugin
from ares.records import RouteAdvice, RouteState, RuntimeRecommendation


class Historian(Plugin):
    """Advises what was taken most often."""

    name = "historian"
    capabilities = frozenset({Capability.MEMORY})

    def __init__(self) -> None:
        self._taken = Counter({"left": 3, "right": 1})

    def advise_route(self, ctx: Any, state: RouteState) -> list[RouteAdvice]:
        known = [each for each in state.candidates if each in self._taken]
        total = sum(self._taken[each] for each in known)
        return [RouteAdvice(each, self._taken[each] / total, "was taken before") for each in known]


class Trainer(Plugin):
    """Recommends whoever had the most successes."""

    name = "trainer"
    capabilities = frozenset({Capability.EVOLUTION})

    def __init__(self) -> None:
        self._outcomes = Counter[str]()

    def recommend(self, ctx: Any, state: Any) -> RuntimeRecommendation | None:
        good = self._outcomes["COMPLETED"]
        return RuntimeRecommendation("critic", confidence=good / self._outcomes.total()) if good else None

    def record_outcome(self, ctx: Any, outcome: Any) -> None:
        self._outcomes[str(outcome.status)] += 1


class Conductor(Plugin):
    """Has three rounds."""

    name = "conductor"
    capabilities = frozenset({Capability.LOOP})

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = 0

    def should_execute_round(self, ctx: Any, next_round: int, state: Any) -> bool:
        return next_round <= 3

    def on_round_end(self, ctx: Any, round: int, state: Any) -> None:
        with self._lock:
            self._ended += 1
