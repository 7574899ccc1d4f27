"""What a plugin is: contracts, capabilities, verdicts and the protocols of the bus. No behaviour."""

from ares.context import Context, PluginJournal
from ares.plugin.capabilities import Capability
from ares.plugin.contracts import (
    EventListener,
    EvolutionPlugin,
    ExecutionHook,
    Flusher,
    LoopController,
    MemoryPlugin,
    Plugin,
    RecoveryPlugin,
    RouterPlugin,
    RuntimePlugin,
    WorkflowHook,
)
from ares.plugin.services import Answer, EventBus, PluginDirectory, PluginRef, Subscription
from ares.plugin.verdicts import HookAction, HookPolicy, HookResult

__all__ = [
    "Answer",
    "Capability",
    "Context",
    "EventBus",
    "EventListener",
    "EvolutionPlugin",
    "ExecutionHook",
    "Flusher",
    "HookAction",
    "HookPolicy",
    "HookResult",
    "LoopController",
    "MemoryPlugin",
    "Plugin",
    "PluginDirectory",
    "PluginJournal",
    "PluginRef",
    "RecoveryPlugin",
    "RouterPlugin",
    "RuntimePlugin",
    "Subscription",
    "WorkflowHook",
]
