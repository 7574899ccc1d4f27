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
from ares.plugin.faults import FaultPoint, FaultPoints, FaultTarget, HasFaultPoints, Injection, Injector
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
    "FaultPoint",
    "FaultPoints",
    "FaultTarget",
    "Flusher",
    "HasFaultPoints",
    "HookAction",
    "HookPolicy",
    "HookResult",
    "Injection",
    "Injector",
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
