"""ares: durable workflows for synchronous Python.

A program defines a ``Workflow`` of steps and hands it to a ``Runtime``, which blocks until the walk is done and keeps
what happened. All public names are here; exceptions are in ``ares.errors``.

Importing this imports next to nothing: each name brings the module that it lives in when it is first asked for, so a
command that only shows its help, or a web worker that runs no workflow, pays for none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loguru import logger as _logger

if TYPE_CHECKING:
    from ares.context import Context, StepContext
    from ares.engine.execution import Execution
    from ares.engine.options import Durability, StepsOn
    from ares.engine.results import WorkflowResult
    from ares.events import Event, EventFilter, EventType
    from ares.plugin import Capability, HookAction, HookPolicy, HookResult, Plugin
    from ares.questions import Answer, Approve, Interrupt, Question, Reject, RunAgain
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
        Loop,
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

# A library is silent until the application asks: logger.enable("ares"). Here and now, or it would silence it again.
_logger.disable("ares")

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Approve",
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
    "Interrupt",
    "InterruptEntry",
    "ItemFailure",
    "Loop",
    "LoopEntry",
    "MemoryEntry",
    "OnItemFailure",
    "OnNoRoute",
    "Plugin",
    "Progress",
    "Question",
    "Recovery",
    "RecoveryPolicy",
    "RecoveryStrategy",
    "Reject",
    "RetryPolicy",
    "RouteAdvice",
    "RouteDecision",
    "RouteEntry",
    "RouteState",
    "RunAgain",
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

#: In which module each name lives.
_HOMES = {
    "ares.context": "Context StepContext",
    "ares.engine.execution": "Execution",
    "ares.engine.options": "Durability StepsOn",
    "ares.engine.results": "WorkflowResult",
    "ares.events": "Event EventFilter EventType",
    "ares.plugin": "Capability HookAction HookPolicy HookResult Plugin",
    "ares.questions": "Answer Approve Interrupt Question Reject RunAgain",
    "ares.records": "ErrorEntry ErrorInfo ExecutionOutcome ExecutionState ExecutionStatus ExecutionSummary "
    "ExperienceCheckpoint InterruptEntry LoopEntry MemoryEntry Progress RouteAdvice RouteDecision RouteEntry "
    "RouteState RuntimeRecommendation ScoringSignal Step StepFailure StepResult StepStatus ToolEntry",
    "ares.runtime": "Recovery Runtime",
    "ares.values": "register",
    "ares.walk.facts": "SkipReason",
    "ares.workflow": "Delivery Goto Input ItemFailure Loop OnItemFailure OnNoRoute RecoveryPolicy RecoveryStrategy "
    "RetryPolicy StepDefaults StepSpec Trigger Workflow mermaid",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
#: Parts of the package that are named by themselves.
_PARTS = frozenset({"context", "errors", "events", "plugin", "plugins", "records", "runtime", "stores", "workflow"})


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"ares.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ares' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})
