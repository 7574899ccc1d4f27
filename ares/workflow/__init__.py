"""What a user writes: a workflow, its steps and their policies, and the graph that it becomes. Pure data.

Nothing in this package knows threads, time, chance or storage, and nothing in it runs a step. The names below are its
door; the modules behind it are for the rest of ares.
"""

from ares.workflow.binding import Binding, BindingKind, Call, bind_call
from ares.workflow.definition import Workflow
from ares.workflow.fingerprint import Difference, WorkflowFingerprint, compare
from ares.workflow.graph import Graph, Node
from ares.workflow.mermaid import mermaid
from ares.workflow.policies import (
    MISSING,
    UNSET,
    Delivery,
    Input,
    ItemFailure,
    Loop,
    OnItemFailure,
    OnNoRoute,
    RecoveryPolicy,
    RecoveryStrategy,
    RetryPolicy,
    StepDefaults,
    Trigger,
)
from ares.workflow.spec import Goto, StepOptions, StepRef, StepSpec
from ares.workflow.writers import Conflict

__all__ = [
    "MISSING",
    "UNSET",
    "Binding",
    "BindingKind",
    "Call",
    "Conflict",
    "Delivery",
    "Difference",
    "Goto",
    "Graph",
    "Input",
    "ItemFailure",
    "Loop",
    "Node",
    "OnItemFailure",
    "OnNoRoute",
    "RecoveryPolicy",
    "RecoveryStrategy",
    "RetryPolicy",
    "StepDefaults",
    "StepOptions",
    "StepRef",
    "StepSpec",
    "Trigger",
    "Workflow",
    "WorkflowFingerprint",
    "bind_call",
    "compare",
    "mermaid",
]
