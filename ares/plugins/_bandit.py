"""Which of several agents is best, by runs that each say little: beliefs about agents, and draws from them.

Nothing here but arithmetic. A run is worth its *utility*: how far it succeeded, less what it took, both on one scale
(``Weights``). Of an agent's mean utility, which nobody knows, a normal distribution is believed: around the mean of
its runs, and one more that was as good as the average; as wide as the standard error of that mean. Whoever draws a
number from the belief about each agent and takes the agent of the highest does Thompson sampling: each agent is tried
as often as it is likely to be the best one.

Source: Russo, Van Roy, Kazerouni, Osband, Wen, "A Tutorial on Thompson Sampling", 2018 (arXiv:1707.02038).
"""

import math
import random
import sys
from collections.abc import Sequence
from typing import Final

import attrs

#: Runs for which what is known of all agents counts in the mean of one agent, and in the variance of its runs.
_PRIOR_MEAN: Final = 1
_PRIOR_VARIANCE: Final = 2
#: Utility, as a part of all weights, by which runs of one agent are taken to differ at least. Otherwise two runs that
#: happened to be alike would be taken for certainty.
_LEAST_DEVIATION: Final = 0.1
#: Where a normal distribution is looked at, in standard deviations from its mean.
_GRID: Final = tuple(step / 8 for step in range(-40, 41))


@attrs.frozen
class Weights:
    """What a run is worth: ``success`` times how far it succeeded, less ``duration`` and ``cost`` times how long and
    how dear it was. The last two are taken in units of the average agent: with weights of 1 and 0.1, an agent that
    takes longer than another by as much as the average agent takes must succeed in 10 more of 100 runs to be as
    good."""

    success: float = 1.0
    duration: float = 0.1
    cost: float = 0.1

    @property
    def total(self) -> float:
        """All of them together."""
        return self.success + self.duration + self.cost


@attrs.frozen
class Run:
    """What came of one run: how far it succeeded, from 0 to 1; how long it took, in seconds; what it cost, in any
    unit."""

    agent: str
    success: float
    duration: float
    cost: float


@attrs.frozen
class Belief:
    """What is believed of an agent: its mean utility is about ``mean``, give or take the standard ``deviation``."""

    mean: float
    deviation: float


def utilities(runs: Sequence[Run], weights: Weights) -> list[float]:
    """What each run was worth."""
    time_unit = _unit([(run.agent, run.duration) for run in runs])
    cost_unit = _unit([(run.agent, run.cost) for run in runs])
    return [
        weights.success * run.success
        - weights.duration * (run.duration / time_unit)
        - weights.cost * (run.cost / cost_unit)
        for run in runs
    ]


def _unit(taken: Sequence[tuple[str, float]]) -> float:
    """The mean of the means of the agents: unlike the mean of the runs, it does not depend on who was run how often."""
    by_agent: dict[str, list[float]] = {}
    for agent, value in taken:
        by_agent.setdefault(agent, []).append(value)
    means = [math.fsum(value / len(values) for value in values) for values in by_agent.values()]
    # What takes no time, or costs nothing, has no unit, and needs none.
    return max(math.fsum(mean / len(means) for mean in means), sys.float_info.min) if any(means) else 1.0


def beliefs(agents: Sequence[str], runs: Sequence[Run], weights: Weights) -> list[Belief]:
    """What is believed of each agent, in the order of ``agents``. Of one without runs, what is believed of all."""
    worth = utilities(runs, weights)
    least = (_LEAST_DEVIATION * weights.total) ** 2
    mean = math.fsum(worth) / len(worth) if worth else 0.0
    variance = max(least, math.fsum((each - mean) ** 2 for each in worth) / len(worth)) if worth else least
    by_agent: dict[str, list[float]] = {agent: [] for agent in agents}
    for run, each in zip(runs, worth, strict=True):
        if run.agent in by_agent:
            by_agent[run.agent].append(each)
    return [_belief(each, mean, variance) for each in by_agent.values()]


def _belief(worth: list[float], mean: float, variance: float) -> Belief:
    count = len(worth)
    own = math.fsum(worth) / count if count else 0.0
    spread = math.fsum((each - own) ** 2 for each in worth) + _PRIOR_VARIANCE * variance
    return Belief(
        (math.fsum(worth) + _PRIOR_MEAN * mean) / (count + _PRIOR_MEAN),
        math.sqrt(spread / (count + _PRIOR_VARIANCE) / (count + _PRIOR_MEAN)),
    )


def drawn(believed: Sequence[Belief], rng: random.Random) -> int:
    """The index of the agent whose draw is the highest: Thompson sampling."""
    draws = [rng.gauss(belief.mean, belief.deviation) for belief in believed]
    return max(range(len(draws)), key=draws.__getitem__)


def chance(believed: Sequence[Belief], index: int) -> float:
    """How likely it is, from 0 to 1, that an agent is the best of all, if what is believed of each is independent.

    It is the integral, over all values that the agent's mean can have, of how likely each is, times how likely it is
    that each other agent's mean is less; summed over a grid.
    """
    one, others = believed[index], [each for number, each in enumerate(believed) if number != index]
    total = weight = 0.0
    for step in _GRID:
        density = math.exp(-step * step / 2)
        value = one.mean + step * one.deviation
        weight += density
        total += density * math.prod(_below(each, value) for each in others)
    return min(1.0, total / weight)


def _below(belief: Belief, value: float) -> float:
    """How likely it is that an agent's mean is less than a value."""
    return 0.5 * math.erfc((belief.mean - value) / (belief.deviation * math.sqrt(2)))
