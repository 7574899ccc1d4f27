"""What happens between two rounds of a loop: what waits is stored, memories are asked, outcomes are learned from.

It does not drive the loop: the walk does that, and asks this plugin among others whether there is to be another round.
Its peers it finds by what they can do, through the directory of whatever bus it was started on. It knows none of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from ares.errors import PluginError, UsageError
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.plugins._peers import Asked, answers, ask, until
from ares.plugins._rules import words
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    MemoryEntry,
    RouteAdvice,
    RouteState,
    StepResult,
    StepStatus,
)

#: What is told of a peer that failed at the end of a round.
PEER_FAILED: Final = "loop.peer_failed"

#: Whether there is to be another round: its number, and how the round before went.
RoundRule = Callable[[int, ExecutionState], bool]


class LoopPlugin(Plugin):
    """At the end of each round, of an execution and of a sub-workflow that loops: has what was recorded so far stored
    (``flush`` of the plugins with the capability ``checkpoint``), asks those with ``memory`` (``advise_route``) and
    keeps what they said as a ``MemoryEntry`` each, and tells those with ``evolution`` how the round went
    (``record_outcome``).

    A memory is asked about a ``RouteState`` without candidates and with the outputs of the round's steps, by id, as
    ``output``. A peer that fails or hangs is passed over, counted in ``peer_failures`` and told by an event
    ``loop.peer_failed`` (``round``, ``plugin``, ``call``, ``problem``). Should the process die at the end of a round,
    all of this happens again: an outcome is known by its execution, workflow and round.

    Args:
        rule: Called with the number of the next round and the state at the end of the last; false ends the loop. Called
            in the plugin's thread; what it raises ends the loop, too, with a warning. None: yes to all.
        enough: Ends the loop once the best of the round's scoring signals is at least this.
        name: Of the plugin.
        timeout: Seconds that the end of a round may take; None for the bus's own. Peers get 0.8 of it.

    Raises:
        UsageError: ``rule`` cannot be called, or ``enough`` is no number.
    """

    capabilities = frozenset({Capability.LOOP})

    def __init__(
        self,
        rule: RoundRule | None = None,
        *,
        enough: float | None = None,
        name: str = "loop",
        timeout: float | None = None,
    ) -> None:
        if rule is not None and not callable(rule):
            raise UsageError(f"the rule of plugin {name!r} must be a callable or None, not {rule!r}")
        is_number = isinstance(enough, int | float) and not isinstance(enough, bool) and not math.isnan(enough)
        if enough is not None and not is_number:
            raise UsageError(f"enough of plugin {name!r} must be a number or None, not {enough!r}")
        self.name = name
        self.timeout = timeout
        self._rule = rule
        self._enough = enough
        self._bus: EventBus | None = None
        #: Replaced, never changed: others may read it.
        self._failures: Mapping[str, int] = MappingProxyType({})

    @property
    def peer_failures(self) -> Mapping[str, int]:
        """How often each peer failed at the end of a round. Any thread."""
        return self._failures

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Remember where the peers live."""
        self._bus = bus

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Forget it."""
        self._bus = None

    def should_execute_round(self, ctx: Context, next_round: int, state: ExecutionState) -> bool:  # noqa: ARG002
        """Whether the scores leave something to be wished for, and what the rule says."""
        best = max((signal.score for signal in state.scoring_signals), default=None)
        if self._enough is not None and best is not None and best >= self._enough:
            return False
        return True if self._rule is None else bool(self._rule(next_round, state))

    def on_round_end(self, ctx: Context, round: int, state: ExecutionState) -> None:
        """A round completed or failed: bring together those who care.

        Raises:
            AresError: there is no checkpoint plugin, and the journal could not commit what was recorded.
        """
        end = until(ctx)
        flushed = ask(self._bus, Capability.CHECKPOINT, "flush", state.execution_id)
        self._hear(flushed, "flush", state, end)
        if not flushed:
            ctx.journal.flush(state.execution_id)
        # Both at once: neither needs the other.
        asked = ask(self._bus, Capability.MEMORY, "advise_route", _route_state(state))
        told = ask(self._bus, Capability.EVOLUTION, "record_outcome", outcome_of(state))
        for plugin, advice in self._hear(asked, "advise_route", state, end):
            try:
                ctx.record(_entry_of(advice, round))
            except Exception as error:
                self._complain(plugin, "advise_route", state, error)
        self._hear(told, "record_outcome", state, end)

    def _hear(
        self, asked: tuple[Asked, ...], call: str, state: ExecutionState, end: float | None
    ) -> list[tuple[str, Any]]:
        return answers(asked, end, lambda plugin, error: self._complain(plugin, call, state, error))

    def _complain(self, plugin: str, call: str, state: ExecutionState, error: Exception) -> None:
        cause = error.__cause__
        if isinstance(error, PluginError) and isinstance(cause, AttributeError) and cause.name == call == "flush":
            return  # it keeps nothing back: a checkpoint plugin need not be a Flusher
        self._failures = MappingProxyType({**self._failures, plugin: self._failures.get(plugin, 0) + 1})
        if self._bus is not None:
            payload = {"round": state.round, "plugin": plugin, "call": call, "problem": words(error)}
            with suppress(Exception):  # a wrapper's bus may not take it; it is counted all the same
                self._bus.emit(state.execution_id, PEER_FAILED, self.name, payload)


def outcome_of(state: ExecutionState) -> ExecutionOutcome:
    """How a round went, in figures: all its steps, map elements and steps of sub-workflows included."""
    found = Counter(result.status for result in state.steps.values())
    status = state.status
    if status is ExecutionStatus.RUNNING:  # of a bus that does not say
        broken = any(result.error is not None for result in _own_steps(state))
        status = ExecutionStatus.FAILED if broken else ExecutionStatus.COMPLETED
    return ExecutionOutcome(
        state.execution_id,
        state.workflow_id,
        status,
        state.round,
        state.duration,
        found.total(),
        found[StepStatus.FAILED],
        found[StepStatus.SKIPPED],
        len(state.routes),
        len(state.tools),
        len(state.memory_hits),
        sum(entry.action == "ask" for entry in state.interrupts),
        len(state.errors),
    )


def _own_steps(state: ExecutionState) -> list[StepResult]:
    """The steps of the very workflow whose round it is."""
    prefix = f"{state.step_id}/" if state.step_id else ""
    return [result for result in state.steps.values() if result.path == prefix + result.base_id]


def _route_state(state: ExecutionState) -> RouteState:
    """The end of a round, as a memory is asked about it."""
    return RouteState(
        state.execution_id,
        state.workflow_id,
        state.step_id,
        state.step_id,
        state.round,
        {step.base_id: step.output for step in _own_steps(state) if step.status is StepStatus.COMPLETED},
        state.variables,
        (),
        state.routes,
        state.tools,
        state.memory_hits,
    )


def _entry_of(advice: Any, round: int) -> MemoryEntry:
    if not isinstance(advice, Sequence) or not all(isinstance(each, RouteAdvice) for each in advice):
        raise TypeError(f"advise_route must return RouteAdvices, not a {type(advice).__name__}")
    best = max((float(each.confidence) for each in advice), default=0.0)
    return MemoryEntry("", "", f"end of round {round}", len(advice), best, ())
