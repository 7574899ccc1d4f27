"""The built-in plugins, a file each. They use only what a stranger's plugin can use.

Those that every Runtime with a store has are imported with this module, the others when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ares.plugins.checkpoint import CheckpointPlugin
from ares.plugins.interrupt import InterruptPlugin, OpenQuestion
from ares.plugins.observer import Gaps, ObserverPlugin
from ares.plugins.tool import ToolPlugin

if TYPE_CHECKING:
    from ares.plugins._faults import ArenaReport, Fault, FaultKind, FaultTargetKind, FiredFault
    from ares.plugins._rules import Rule, RuleCounts, rules_from
    from ares.plugins.arena import ArenaPlugin
    from ares.plugins.evolution import AgentStepResolver, EvolutionRouter
    from ares.plugins.experience import ExperienceCounts, ExperienceMemory
    from ares.plugins.expression import ExpressionRouter
    from ares.plugins.fallback import FallbackRouter, RouterTally
    from ares.plugins.loop import LoopPlugin
    from ares.plugins.memory import MemoryRouter, PrefetchCounts
    from ares.plugins.recovery import BasicRecoveryPlugin
    from ares.plugins.strategy import AgentStanding, Objectives, StrategyCounts, StrategyEvolution, Weights

__all__ = [
    "AgentStanding",
    "AgentStepResolver",
    "ArenaPlugin",
    "ArenaReport",
    "BasicRecoveryPlugin",
    "CheckpointPlugin",
    "EvolutionRouter",
    "ExperienceCounts",
    "ExperienceMemory",
    "ExpressionRouter",
    "FallbackRouter",
    "Fault",
    "FaultKind",
    "FaultTargetKind",
    "FiredFault",
    "Gaps",
    "InterruptPlugin",
    "LoopPlugin",
    "MemoryRouter",
    "Objectives",
    "ObserverPlugin",
    "OpenQuestion",
    "PrefetchCounts",
    "RouterTally",
    "Rule",
    "RuleCounts",
    "StrategyCounts",
    "StrategyEvolution",
    "ToolPlugin",
    "Weights",
    "rules_from",
]

#: In which module what is imported late is found.
_LATE = {
    "AgentStanding": "strategy",
    "AgentStepResolver": "evolution",
    "ArenaPlugin": "arena",
    "ArenaReport": "_faults",
    "BasicRecoveryPlugin": "recovery",
    "EvolutionRouter": "evolution",
    "ExperienceCounts": "experience",
    "ExperienceMemory": "experience",
    "ExpressionRouter": "expression",
    "FallbackRouter": "fallback",
    "Fault": "_faults",
    "FaultKind": "_faults",
    "FaultTargetKind": "_faults",
    "FiredFault": "_faults",
    "LoopPlugin": "loop",
    "MemoryRouter": "memory",
    "Objectives": "strategy",
    "PrefetchCounts": "memory",
    "RouterTally": "fallback",
    "Rule": "_rules",
    "RuleCounts": "_rules",
    "StrategyCounts": "strategy",
    "StrategyEvolution": "strategy",
    "Weights": "strategy",
    "rules_from": "_rules",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
