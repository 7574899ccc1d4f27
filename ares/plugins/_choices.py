"""What an evolution plugin chooses from, and what it has chosen. Optuna is not needed to speak of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ares.errors import UsageError
from ares.plugins._bandit import Weights

#: What can be proposed for a parameter.
Value = bool | int | float | str
#: Of which it is proposed: a tuple of the lowest and the highest number, or a list of choices.
Range = tuple[int, int] | tuple[float, float] | Sequence[Value]
#: The agents, and the parameters of each.
Agents = Mapping[str, Mapping[str, Range]]

#: Integers that a float, as which Optuna keeps them, tells apart.
_WIDEST: Final = 2**53


@attrs.frozen
class Setting:
    """What there is to choose from, and how: the agents and their parameters, the weights, how many of the newest
    runs count, and where chance begins."""

    agents: Agents
    weights: Weights
    window: int
    seed: int | None


@attrs.define(eq=False)
class Proposal:
    """What to run: an agent, its parameters, and how likely it is to be the best (0 to 1). ``trial`` is Optuna's, until
    something was told of it."""

    agent: str
    parameters: Mapping[str, Value]
    chance: float
    trial: Any = None


def checked_agents(given: Iterable[str] | Agents, plugin: str) -> dict[str, dict[str, Range]]:
    """The agents that a plugin is given.

    Raises:
        UsageError: one of them, or the range of a parameter, can never be proposed.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"plugin {plugin!r}: agents must be a list of names, or map them to parameters, not {given!r}")
    found = {}
    for agent, parameters in given.items() if isinstance(given, Mapping) else ((each, {}) for each in given):
        what = f"plugin {plugin!r}, agent {agent!r}"
        if not _is_text(agent):
            raise UsageError(f"{what}: its name must be a text that is not empty")
        if agent in found:
            raise UsageError(f"{what}: it is there twice")
        if not isinstance(parameters, Mapping) or not all(map(_is_text, parameters)):
            raise UsageError(f"{what}: its parameters must map names to ranges, not {parameters!r}")
        found[agent] = {name: _checked_range(each, f"{what}, {name!r}") for name, each in parameters.items()}
    if not found:
        raise UsageError(f"plugin {plugin!r}: there is no agent to propose")
    return found


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in value)  # half of a character is in no file


def _checked_range(among: Any, what: str) -> Range:
    if isinstance(among, tuple):
        return _checked_bounds(among, what)
    if isinstance(among, str) or not isinstance(among, Sequence) or not among:
        raise UsageError(f"{what}: a range must be a tuple of two numbers, or a list of choices, not {among!r}")
    for each in among:
        is_number = isinstance(each, int | float) and math.isfinite(each)
        if not is_number and not _is_text(each):
            raise UsageError(f"{what}: a choice must be a text, a finite number, True or False, not {each!r}")
    if len(set(among)) < len(among):
        raise UsageError(f"{what}: a choice is there twice; 1, 1.0 and True are the same")
    return list(among)


def _checked_bounds(among: tuple[Any, ...], what: str) -> Range:
    numbers = [each for each in among if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) != 2 or len(among) != 2 or not all(map(math.isfinite, numbers)) or not numbers[0] <= numbers[1]:
        raise UsageError(f"{what}: a tuple must be the lowest and the highest number, not {among!r}")
    low, high = numbers
    if isinstance(low, int) and isinstance(high, int):
        if max(abs(low), abs(high)) > _WIDEST:
            raise UsageError(f"{what}: whole numbers beyond 2**53 cannot be told apart")
        return low, high
    if not math.isfinite(float(high) - float(low)):
        raise UsageError(f"{what}: the range is too wide for a float")
    return float(low), float(high)
