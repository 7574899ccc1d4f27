"""What an evolution plugin learns from an outcome, and what it knows by that of each agent."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from ares.errors import UsageError
from ares.plugins._bandit import Run, Weights, beliefs, chance
from ares.records import ExecutionOutcome, ExecutionStatus

#: The highest number that is reckoned with, and the highest weight.
_MOST: Final = 1e300
_HEAVIEST: Final = 1e6


def _success(outcome: ExecutionOutcome) -> float | None:
    if outcome.status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED):
        return float(outcome.status is ExecutionStatus.COMPLETED)
    # Of an execution that goes on after this round.
    return float(outcome.failed_steps == 0) if outcome.status is ExecutionStatus.RUNNING else None


def _cost(outcome: ExecutionOutcome) -> float:
    return float(outcome.tool_count)


@attrs.frozen
class Objectives:
    """What is learnt from an outcome, besides its ``duration``.

    Attributes:
        success: How far it succeeded, from 0 to 1; None if it tells nothing of the agent. By default 1 if the execution
            completed, 0 if it failed; of a round of one that goes on, 1 if no step failed; None for all others.
        cost: What it cost, in any unit, 0 or more. By default the number of tool calls.
        weights: What each of the three counts.

    Raises:
        UsageError: a weight is no number from 0 to a million; all are 0; what is to be called cannot be.
    """

    success: Callable[[ExecutionOutcome], float | None] = _success
    cost: Callable[[ExecutionOutcome], float] = _cost
    weights: Weights = attrs.field(factory=Weights)

    def __attrs_post_init__(self) -> None:
        given: tuple[object, ...] = (self.success, self.cost)
        if not all(map(callable, given)):
            raise UsageError("objectives: success and cost must be callables that take an ExecutionOutcome")
        if not isinstance(self.weights, Weights):
            raise UsageError(f"objectives: weights must be Weights, not {self.weights!r}")
        each = attrs.astuple(self.weights)
        if not all(is_number(weight) and 0 <= weight <= _HEAVIEST for weight in each) or not any(each):
            raise UsageError(f"objectives: weights must be from 0 to a million, not all of them 0: {self.weights!r}")

    def run(self, agent: str, outcome: ExecutionOutcome) -> Run | None:
        """What an outcome says of an agent; None for nothing.

        Raises:
            ValueError: what ``success`` or ``cost`` returned is no number, or out of its range.
        """
        success = self.success(outcome)
        if success is None:
            return None
        cost = self.cost(outcome)
        if not is_number(success) or not 0 <= success <= 1:
            raise ValueError(f"the success of an outcome must be from 0 to 1, or None, not {success!r}")
        if not is_number(cost) or cost < 0:
            raise ValueError(f"the cost of an outcome must be a finite number from 0 on, not {cost!r}")
        return Run(agent, float(success), min(max(0.0, outcome.duration), _MOST), float(cost))


@attrs.frozen
class AgentStanding:
    """What is known of an agent at a step.

    Attributes:
        agent: Its name.
        runs: How many of its runs are among the newest that count.
        success: The mean of them, from 0 to 1; None if there is no run, like the next two.
        duration: The mean, in seconds.
        cost: The mean, in whatever unit it is in.
        utility: What one of its runs is expected to be worth, on the scale of the weights.
        chance: How likely it is to be the best of all agents there, from 0 to 1.
    """

    agent: str
    runs: int
    success: float | None
    duration: float | None
    cost: float | None
    utility: float
    chance: float


def standings(agents: Sequence[str], runs: Sequence[Run], weights: Weights) -> tuple[AgentStanding, ...]:
    """What is known of each agent by some runs, the best first."""
    believed = beliefs(agents, runs, weights)
    found = []
    for number, agent in enumerate(agents):
        own = [run for run in runs if run.agent == agent]
        found.append(
            AgentStanding(
                agent,
                len(own),
                _mean([run.success for run in own]),
                _mean([run.duration for run in own]),
                _mean([run.cost for run in own]),
                believed[number].mean,
                chance(believed, number),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.utility))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def is_number(value: object) -> bool:
    """Whether it is a number that can be reckoned with, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST <= value <= _MOST
