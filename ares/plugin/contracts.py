"""What a plugin is, as protocols. A plugin is found to be what its methods say; it never declares them twice.

Every method is called in the plugin's own thread, one at a time, with a ``Context`` first. What it raises is the
caller's to survive: it becomes a ``PluginError``, is counted and logged.

Optional attributes of any plugin: ``hook_policy`` (``HookPolicy``), ``runs_after`` and ``runs_before`` (names of
plugins or capabilities), ``required`` (whether the bus does without it), ``per_item`` (whether its step hooks are asked
for each element of a map), ``timeout`` (seconds that one call may execute).
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ares.context import Context
from ares.events import Delivery, EventFilter
from ares.plugin.capabilities import Capability
from ares.plugin.services import EventBus
from ares.plugin.verdicts import HookPolicy, HookResult
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    RouteAdvice,
    RouteDecision,
    RouteState,
    RuntimeRecommendation,
    Step,
    StepFailure,
    StepResult,
)


@runtime_checkable
class RuntimePlugin(Protocol):
    """All that a plugin must have."""

    @property
    def name(self) -> str:
        """Who it is: one on a bus."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What others find it by."""

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Get ready; must not block. ``bus`` may be kept until ``stop``; it is a ``PluginDirectory`` as well."""

    def stop(self, ctx: Context) -> None:
        """Let go of everything. Comes after all calls and events that were sent before."""


@runtime_checkable
class WorkflowHook(Protocol):
    """Is told of every step. Either method alone will do."""

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> HookResult | None:
        """An attempt is about to run its body, which waits. Only an interceptor's verdict counts."""

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        """A step ended, and its outcome is committed."""


@runtime_checkable
class ExecutionHook(Protocol):
    """Is told of every execution. Either method alone will do."""

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
        """An execution begins, or is taken up again."""

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """An execution ended."""


@runtime_checkable
class EventListener(Protocol):
    """Is told of events, some time after they happened; ``buffer`` of them can wait, more are dropped and counted."""

    @property
    def subscribes_to(self) -> EventFilter:
        """Which events."""

    @property
    def buffer(self) -> int:
        """How many may wait; 64 if it does not say."""

    def on_event(self, ctx: Context, delivery: Delivery) -> None:
        """One of them happened."""


@runtime_checkable
class RouterPlugin(Protocol):
    """Decides at branch points. Capability ``router``."""

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        """Which of ``state.candidates`` to take; None to abstain."""


@runtime_checkable
class MemoryPlugin(Protocol):
    """Remembers earlier runs. Capability ``memory``."""

    def advise_route(self, ctx: Context, state: RouteState) -> Sequence[RouteAdvice]:
        """What it would do next, and how sure it is."""


@runtime_checkable
class EvolutionPlugin(Protocol):
    """Learns from outcomes. Capability ``evolution``."""

    def recommend(self, ctx: Context, state: ExecutionState) -> RuntimeRecommendation | None:
        """What it would change; None for nothing."""

    def record_outcome(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """How a round or an execution went."""


@runtime_checkable
class RecoveryPlugin(Protocol):
    """Decides whether a failed step may be recovered. Capability ``recovery``."""

    def should_recover(self, ctx: Context, failure: StepFailure, state: ExecutionState) -> bool:
        """Whether to try."""


@runtime_checkable
class LoopController(Protocol):
    """Decides about rounds. Capability ``loop``."""

    def should_execute_round(self, ctx: Context, next_round: int, state: ExecutionState) -> bool:
        """Whether there is to be another round."""

    def on_round_end(self, ctx: Context, round: int, state: ExecutionState) -> None:
        """A round ended."""


@runtime_checkable
class Flusher(Protocol):
    """Keeps something back that can be written out."""

    def flush(self, ctx: Context, execution_id: str) -> None:
        """Write it out."""


class Plugin:
    """A base for plugins, with harmless defaults.

    A subclass sets ``name`` and adds the methods it wants. Hooks are deliberately not here: one that a plugin does not
    define costs nothing.
    """

    name: str = ""
    capabilities: frozenset[Capability] = frozenset()
    hook_policy: HookPolicy = HookPolicy.OBSERVE
    runs_after: Sequence[str] = ()
    runs_before: Sequence[str] = ()
    required: bool = False
    per_item: bool = False
    #: Seconds; None for the bus's own.
    timeout: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Nothing to get ready."""

    def stop(self, ctx: Context) -> None:
        """Nothing to let go of."""
