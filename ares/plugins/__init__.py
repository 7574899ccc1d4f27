"""The built-in plugins, a file each. They use only what a stranger's plugin can use.

Those that every Runtime with a store has are imported with this module, the others when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ares.plugins.checkpoint import CheckpointPlugin
from ares.plugins.observer import Gaps, ObserverPlugin
from ares.plugins.tool import ToolPlugin

if TYPE_CHECKING:
    from ares.plugins._rules import Rule, RuleCounts, rules_from
    from ares.plugins.evolution import AgentStepResolver, EvolutionRouter
    from ares.plugins.expression import ExpressionRouter
    from ares.plugins.fallback import FallbackRouter, RouterTally
    from ares.plugins.loop import LoopPlugin
    from ares.plugins.memory import MemoryRouter, PrefetchCounts
    from ares.plugins.recovery import BasicRecoveryPlugin

__all__ = [
    "AgentStepResolver",
    "BasicRecoveryPlugin",
    "CheckpointPlugin",
    "EvolutionRouter",
    "ExpressionRouter",
    "FallbackRouter",
    "Gaps",
    "LoopPlugin",
    "MemoryRouter",
    "ObserverPlugin",
    "PrefetchCounts",
    "RouterTally",
    "Rule",
    "RuleCounts",
    "ToolPlugin",
    "rules_from",
]

#: In which module what is imported late is found.
_LATE = {
    "AgentStepResolver": "evolution",
    "BasicRecoveryPlugin": "recovery",
    "EvolutionRouter": "evolution",
    "ExpressionRouter": "expression",
    "FallbackRouter": "fallback",
    "LoopPlugin": "loop",
    "MemoryRouter": "memory",
    "PrefetchCounts": "memory",
    "RouterTally": "fallback",
    "Rule": "_rules",
    "RuleCounts": "_rules",
    "rules_from": "_rules",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
