"""ares: durable workflows for synchronous Python.

A program defines a ``Workflow`` of steps and hands it to a ``Runtime``, which blocks until the walk is done and keeps
what happened. All public names are here; exceptions are in ``ares.errors``.
"""

from loguru import logger as _logger

from ares.context import Context, StepContext
from ares.engine.execution import Execution
from ares.engine.options import Durability, StepsOn
from ares.engine.results import WorkflowResult
from ares.events import Event, EventFilter, EventType
from ares.plugin import (
    Capability,
    EventBus,
    HookAction,
    HookPolicy,
    HookResult,
    Plugin,
    PluginDirectory,
    PluginRef,
    RuntimePlugin,
    Subscription,
)
from ares.records import (
    ErrorInfo,
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    ExecutionSummary,
    ExperienceCheckpoint,
    Progress,
    RouteAdvice,
    RouteDecision,
    RouteState,
    RuntimeRecommendation,
    Step,
    StepFailure,
    StepResult,
    StepStatus,
)
from ares.runtime import Recovery, Runtime
from ares.values import register
from ares.walk.facts import SkipReason
from ares.workflow import (
    Delivery,
    Goto,
    Input,
    ItemFailure,
    OnItemFailure,
    OnNoRoute,
    RecoveryPolicy,
    RecoveryStrategy,
    RetryPolicy,
    StepDefaults,
    StepSpec,
    Trigger,
    Workflow,
    mermaid,
)

# A library is silent until the application asks: logger.enable("ares").
_logger.disable("ares")

__version__ = "0.1.0"

__all__ = [
    "Capability",
    "Context",
    "Delivery",
    "Durability",
    "ErrorInfo",
    "Event",
    "EventBus",
    "EventFilter",
    "EventType",
    "Execution",
    "ExecutionOutcome",
    "ExecutionState",
    "ExecutionStatus",
    "ExecutionSummary",
    "ExperienceCheckpoint",
    "Goto",
    "HookAction",
    "HookPolicy",
    "HookResult",
    "Input",
    "ItemFailure",
    "OnItemFailure",
    "OnNoRoute",
    "Plugin",
    "PluginDirectory",
    "PluginRef",
    "Progress",
    "Recovery",
    "RecoveryPolicy",
    "RecoveryStrategy",
    "RetryPolicy",
    "RouteAdvice",
    "RouteDecision",
    "RouteState",
    "Runtime",
    "RuntimePlugin",
    "RuntimeRecommendation",
    "SkipReason",
    "Step",
    "StepContext",
    "StepDefaults",
    "StepFailure",
    "StepResult",
    "StepSpec",
    "StepStatus",
    "StepsOn",
    "Subscription",
    "Trigger",
    "Workflow",
    "WorkflowResult",
    "__version__",
    "mermaid",
    "register",
]
