"""What authors of workflows, plugins and stores use in their own tests.

With ares installed, pytest has the fixtures ``ares_bus``, ``ares_recorder``, ``ares_arena``, ``ares_child``,
``step_context`` and ``crash_after``. The same, and suites for one's own plugins and stores to subclass, are here by
name:

- ``step_context``: a StepContext to call a step function with, without a Runtime.
- ``crash_after``, ``Nursery``: real processes, and how they die.
- ``RecordingPlugin``, ``RecordingExecution``, ``RecordingJournal``: write down what is said to them.
- ``make_step``, ``make_step_result``, ...: records as a walk would hand them to a plugin.
- ``PluginContract``, ``RouterContract``, ``MemoryContract``, ``EvolutionContract``, ``RecoveryContract``,
  ``LoopContract``, ``StoreContract``: what must hold for each.

Importing this imports next to nothing: each name brings the module that it lives in.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ares.testing.contracts import (
        EvolutionContract,
        LoopContract,
        MemoryContract,
        PluginContract,
        RecoveryContract,
        RouterContract,
        StoreContract,
    )
    from ares.testing.crashing import CrashPoint, crash_after
    from ares.testing.processes import ChildProcess, Line, Nursery
    from ares.testing.recorder import RecordingExecution, RecordingJournal, RecordingPlugin, Told
    from ares.testing.samples import (
        make_checkpoint,
        make_event,
        make_execution_state,
        make_failure,
        make_outcome,
        make_route_state,
        make_step,
        make_step_result,
    )
    from ares.testing.step import ProbedStepContext, StepProbe, step_context

__all__ = [
    "ChildProcess",
    "CrashPoint",
    "EvolutionContract",
    "Line",
    "LoopContract",
    "MemoryContract",
    "Nursery",
    "PluginContract",
    "ProbedStepContext",
    "RecordingExecution",
    "RecordingJournal",
    "RecordingPlugin",
    "RecoveryContract",
    "RouterContract",
    "StepProbe",
    "StoreContract",
    "Told",
    "crash_after",
    "make_checkpoint",
    "make_event",
    "make_execution_state",
    "make_failure",
    "make_outcome",
    "make_route_state",
    "make_step",
    "make_step_result",
    "step_context",
]

#: In which module each name lives.
_HOMES = {
    "ares.testing.contracts": "EvolutionContract LoopContract MemoryContract PluginContract RecoveryContract "
    "RouterContract StoreContract",
    "ares.testing.crashing": "CrashPoint crash_after",
    "ares.testing.processes": "ChildProcess Line Nursery",
    "ares.testing.recorder": "RecordingExecution RecordingJournal RecordingPlugin Told",
    "ares.testing.samples": "make_checkpoint make_event make_execution_state make_failure make_outcome "
    "make_route_state make_step make_step_result",
    "ares.testing.step": "ProbedStepContext StepProbe step_context",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def is_test_process() -> bool:
    """Whether this is the process that pytest runs tests in: its children are not, however they were started."""
    plugin = sys.modules.get("_ares_pytest")
    return plugin is not None and plugin.test_process == os.getpid()


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ares.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
