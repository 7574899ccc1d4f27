"""What the engine asks of a bus. Who lives on it is nobody's business here.

Calls that wait for plugins are made on the step's own thread, never on the one that walks. None of them raises because
of a plugin, except ``intercept``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import attrs

from ares.context import ExecutionPort
from ares.events import Event
from ares.plugin.verdicts import HookResult
from ares.records import ExecutionOutcome, ExecutionState, RouteDecision, RouteState, Step, StepFailure, StepResult


@attrs.frozen
class Stages:
    """Which of the calls below would reach anybody. Does not change once the bus has started: ask once a walk.

    ``per_item``: whether an observer's step hooks want each element of a map, besides the map step itself.
    Interceptors are always asked for each element, and never for the map step.
    """

    has_interceptors: bool = False
    has_before: bool = False
    has_after: bool = False
    per_item: bool = False
    has_execution_hooks: bool = False
    has_routers: bool = False
    has_recovery: bool = False
    has_loop: bool = False


class EngineBus(Protocol):
    """The engine's view of the plugins."""

    @property
    def stages(self) -> Stages:
        """What there is to be called."""

    # --- an execution's stay -----------------------------------------------------------------------

    def open_execution(self, execution_id: str, port: ExecutionPort) -> None:
        """A walk begins: calls that name it get a context with this port behind it."""

    def close_execution(self, execution_id: str) -> tuple[str, ...]:
        """The walk is over. Returns the last of its ``warnings``."""

    def warnings(self, execution_id: str) -> tuple[str, ...]:
        """What went wrong with plugins during this walk, in words, and was not told yet."""

    # --- hooks: awaited on the step's thread -------------------------------------------------------

    def intercept(self, execution_id: str, step: Step) -> HookResult | None:
        """Ask the interceptors, one after another, before every attempt. The first abort, skip or complete is the
        verdict; inputs that were replaced add up to one ``replace``, with all inputs in it.

        Raises:
            InterceptorError: one of them failed, hung, or gave an answer that is none. The step must not run.
        """

    def before_step(self, execution_id: str, step: Step) -> None:
        """Tell the observers that an attempt is about to run its body."""

    def after_step(self, execution_id: str, result: StepResult) -> None:
        """Tell the observers that a step ended and its outcome is committed."""

    def before_execution(self, execution: ExecutionState) -> None:
        """Tell the observers that an execution begins."""

    def after_execution(self, outcome: ExecutionOutcome) -> None:
        """Tell the observers that an execution ended."""

    # --- questions: awaited on the step's thread, or a worker --------------------------------------

    def route(self, execution_id: str, state: RouteState) -> tuple[RouteDecision | None, tuple[str, ...]]:
        """Ask the routers in order: the first decision, if there is one, and who abstained before it. One that fails,
        or names no candidate of ``state``, abstains."""

    def should_recover(self, execution_id: str, failure: StepFailure, state: ExecutionState) -> bool:
        """Whether any recovery plugin wants the step recovered. One that fails says no."""

    def on_round_end(self, execution_id: str, round: int, state: ExecutionState) -> None:
        """Tell the loop controllers that a round completed or failed."""

    def should_execute_round(self, execution_id: str, next_round: int, state: ExecutionState) -> tuple[bool, str]:
        """Whether no loop controller is against another round, and the name of the first that is. One that fails, or
        says neither yes nor no, says no."""

    # --- events ------------------------------------------------------------------------------------

    def wants(self, event_type: str) -> bool:
        """Whether an event of this type would reach anybody."""

    def is_listened_to(self) -> bool:
        """Whether ``publish`` reaches anybody, apart from what begins and ends streams. Asked for every entry."""

    def publish(self, events: Iterable[Event]) -> None:
        """Pass on what was committed to the journal, in order. Never blocks."""

    # --- besides -----------------------------------------------------------------------------------

    def health(self) -> Mapping[str, Any]:
        """How each plugin is, by name."""
