"""ares: durable workflows for synchronous Python.

A program defines a ``Workflow`` of steps and hands it to a ``Runtime``, which blocks until the walk is done and keeps
what happened. All public names are here; exceptions are in ``ares.errors``.
"""

from loguru import logger as _logger

from ares.context import StepContext
from ares.engine.execution import Execution
from ares.engine.options import Durability, StepsOn
from ares.engine.results import WorkflowResult
from ares.events import Event, EventFilter, EventType
from ares.records import (
    ErrorInfo,
    ExecutionStatus,
    ExecutionSummary,
    ExperienceCheckpoint,
    Progress,
    Step,
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
    "Delivery",
    "Durability",
    "ErrorInfo",
    "Event",
    "EventFilter",
    "EventType",
    "Execution",
    "ExecutionStatus",
    "ExecutionSummary",
    "ExperienceCheckpoint",
    "Goto",
    "Input",
    "ItemFailure",
    "OnItemFailure",
    "OnNoRoute",
    "Progress",
    "Recovery",
    "RecoveryPolicy",
    "RecoveryStrategy",
    "RetryPolicy",
    "Runtime",
    "SkipReason",
    "Step",
    "StepContext",
    "StepDefaults",
    "StepResult",
    "StepSpec",
    "StepStatus",
    "StepsOn",
    "Trigger",
    "Workflow",
    "WorkflowResult",
    "__version__",
    "mermaid",
    "register",
]
