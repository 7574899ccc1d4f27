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
from ares.plugin import Capability, HookAction, HookPolicy, HookResult, Plugin
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    ExecutionSummary,
    ExperienceCheckpoint,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    Progress,
    RouteAdvice,
    RouteDecision,
    RouteEntry,
    RouteState,
    RuntimeRecommendation,
    ScoringSignal,
    Step,
    StepFailure,
    StepResult,
    StepStatus,
    ToolEntry,
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
    "ErrorEntry",
    "ErrorInfo",
    "Event",
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
    "InterruptEntry",
    "ItemFailure",
    "LoopEntry",
    "MemoryEntry",
    "OnItemFailure",
    "OnNoRoute",
    "Plugin",
    "Progress",
    "Recovery",
    "RecoveryPolicy",
    "RecoveryStrategy",
    "RetryPolicy",
    "RouteAdvice",
    "RouteDecision",
    "RouteEntry",
    "RouteState",
    "Runtime",
    "RuntimeRecommendation",
    "ScoringSignal",
    "SkipReason",
    "Step",
    "StepContext",
    "StepDefaults",
    "StepFailure",
    "StepResult",
    "StepSpec",
    "StepStatus",
    "StepsOn",
    "ToolEntry",
    "Trigger",
    "Workflow",
    "WorkflowResult",
    "__version__",
    "mermaid",
    "register",
]
