"""Who is called when: the tables of one started bus, and the calls that the engine makes through them.

Observers of a hook are called in waves: the messages of a wave go out in order, then its answers are awaited once; the
next wave is declared to come later. Interceptors and routers are called one after another. What an observer raises is
complained of and survived.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ares.bus.awaiting import send_all
from ares.bus.call import Call, Latch
from ares.bus.card import Card
from ares.bus.executions import Executions
from ares.bus.ordering import Order
from ares.bus.resident import Resident
from ares.errors import InterceptorError, PluginError
from ares.plugin.capabilities import Capability
from ares.plugin.engine_bus import Stages
from ares.plugin.verdicts import HookAction, HookResult
from ares.records import ExecutionOutcome, ExecutionState, RouteDecision, RouteState, Step, StepFailure, StepResult

ResidentWaves = tuple[tuple[Resident, ...], ...]

_OBSERVED: Final = ("before_step", "after_step", "before_execution", "after_execution")


@attrs.frozen
class HookOrder:
    """The resolved order, by names. ``waves`` maps each hook to its waves."""

    interceptors: tuple[str, ...]
    waves: Mapping[str, tuple[tuple[str, ...], ...]]
    routers: tuple[str, ...]
    recovery: tuple[str, ...]
    loop: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = {"intercept": " > ".join(self.interceptors)}
        lines |= {hook: " > ".join(", ".join(wave) for wave in waves) for hook, waves in self.waves.items()}
        lines |= {"route": " > ".join(self.routers), "should_recover": " > ".join(self.recovery)}
        lines["should_execute_round"] = " > ".join(self.loop)
        return "\n".join(f"{hook}: {line}" for hook, line in lines.items() if line)


class Hooks:
    """See above. Any thread; made once the plugins have started, and never changed."""

    def __init__(self, order: Order, running: Mapping[str, Resident], executions: Executions) -> None:
        self._executions = executions
        self._order = order
        self._running = running
        self._interceptors = self._line(lambda card: card.intercepts)
        self._routers = self._line(lambda card: Capability.ROUTER in card.capabilities)
        self._recovery = self._line(lambda card: Capability.RECOVERY in card.capabilities)
        self._controllers = self._line(lambda card: Capability.LOOP in card.capabilities)
        self._waves = {hook: self._observers(hook) for hook in _OBSERVED}
        #: For elements of a map: of those that ask for them.
        self._item_waves = {hook: self._observers(hook, per_item=True) for hook in ("before_step", "after_step")}
        self.stages = Stages(
            has_interceptors=bool(self._interceptors),
            has_before=bool(self._waves["before_step"]),
            has_after=bool(self._waves["after_step"]),
            per_item=any(self._item_waves.values()),
            has_execution_hooks=bool(self._waves["before_execution"] or self._waves["after_execution"]),
            has_routers=bool(self._routers),
            has_recovery=bool(self._recovery),
            has_loop=bool(self._controllers),
        )

    def order(self) -> HookOrder:
        """The resolved order, to be shown."""
        return HookOrder(
            _names(self._interceptors),
            {hook: tuple(_names(wave) for wave in waves) for hook, waves in self._waves.items()},
            _names(self._routers),
            _names(self._recovery),
            _names(self._controllers),
        )

    def _line(self, is_member: Callable[[Card], bool]) -> tuple[Resident, ...]:
        line = self._order.line(lambda card: card.name in self._running and is_member(card))
        return tuple(self._running[card.name] for card in line)

    def _observers(self, hook: str, *, per_item: bool = False) -> ResidentWaves:
        def is_member(card: Card) -> bool:
            is_asked_before = hook == "before_step" and card.intercepts
            wanted = hook in card.hooks and not is_asked_before and (card.per_item or not per_item)
            return wanted and card.name in self._running

        waves = self._order.waves(is_member)
        return tuple(tuple(self._running[card.name] for card in wave) for wave in waves)

    # --- observers -----------------------------------------------------------------------------------

    def before_step(self, execution_id: str, step: Step) -> None:
        """See ``EngineBus``."""
        waves = self._waves if step.index is None else self._item_waves
        self._tell(waves["before_step"], "before_step", execution_id, (execution_id, step))

    def after_step(self, execution_id: str, result: StepResult) -> None:
        """See ``EngineBus``."""
        waves = self._waves if result.index is None else self._item_waves
        self._tell(waves["after_step"], "after_step", execution_id, (execution_id, result))

    def before_execution(self, execution: ExecutionState) -> None:
        """See ``EngineBus``."""
        self._tell(self._waves["before_execution"], "before_execution", execution.execution_id, (execution,))

    def after_execution(self, outcome: ExecutionOutcome) -> None:
        """See ``EngineBus``."""
        self._tell(self._waves["after_execution"], "after_execution", outcome.execution_id, (outcome,))

    def _tell(self, waves: ResidentWaves, hook: str, execution_id: str, args: tuple[Any, ...]) -> None:
        if not waves:
            return
        port = self._executions.port(execution_id)
        for wave in waves:
            latch = Latch(len(wave))
            calls = [(resident, resident.call(hook, args, execution_id, port, latch)) for resident in wave]
            send_all(calls, latch)
            for resident, call in calls:
                error = call.error
                if error is None and isinstance(call.value, HookResult):
                    error = PluginError(resident.name, hook, "gave a verdict, which only an interceptor can: ignored")
                if error is not None:
                    resident.complain(execution_id, error)

    # --- those who are asked -------------------------------------------------------------------------

    def _ask(
        self, resident: Resident, method: str, execution_id: str, args: tuple[Any, ...], *, is_patient: bool = False
    ) -> Call:
        latch = Latch(1)
        call = resident.call(method, args, execution_id, self._executions.port(execution_id), latch)
        call.is_patient = is_patient
        send_all([(resident, call)], latch)
        return call

    def intercept(self, execution_id: str, step: Step) -> HookResult | None:
        """See ``EngineBus``."""
        replaced = None
        for resident in self._interceptors:
            # It may have to wait for the interceptor as long as others are served: what counts is its own time.
            call = self._ask(resident, "before_step", execution_id, (execution_id, step), is_patient=True)
            problem = call.error or _problem_of(call.value, resident.name, step)
            if problem is not None:
                resident.complain(execution_id, problem)
                raise InterceptorError(resident.name, "before_step", f"could not decide: {problem}") from problem
            if call.value is None:
                continue
            verdict: HookResult = attrs.evolve(call.value, plugin=resident.name)
            if verdict.action is not HookAction.REPLACE:
                return verdict
            step = attrs.evolve(step, inputs={**step.inputs, **verdict.inputs})
            replaced = attrs.evolve(verdict, inputs=step.inputs)
        return replaced

    def route(self, execution_id: str, state: RouteState) -> tuple[RouteDecision | None, tuple[str, ...]]:
        """See ``EngineBus``."""
        abstained: list[str] = []
        for resident in self._routers:
            call = self._ask(resident, "route", execution_id, (state,))
            problem = call.error or _stray(call.value, resident.name, state)
            if problem is not None:
                resident.complain(execution_id, problem)
            elif call.value is not None:
                return call.value, tuple(abstained)
            abstained.append(resident.name)
        return None, tuple(abstained)

    def should_recover(self, execution_id: str, failure: StepFailure, state: ExecutionState) -> bool:
        """See ``EngineBus``."""
        for resident in self._recovery:
            call = self._ask(resident, "should_recover", execution_id, (failure, state))
            problem = call.error
            if problem is None and not isinstance(call.value, bool):
                problem = PluginError(
                    resident.name, "should_recover", f"must say True or False, not {_kind(call.value)}"
                )
            if problem is not None:
                resident.complain(execution_id, problem)
            elif call.value:
                return True
        return False

    def on_round_end(self, execution_id: str, round: int, state: ExecutionState) -> None:
        """See ``EngineBus``. One after another: what one of them writes, the next may want to read."""
        for resident in self._controllers:
            call = self._ask(resident, "on_round_end", execution_id, (round, state))
            if call.error is not None:
                resident.complain(execution_id, call.error)

    def should_execute_round(self, execution_id: str, next_round: int, state: ExecutionState) -> tuple[bool, str]:
        """See ``EngineBus``."""
        for resident in self._controllers:
            call = self._ask(resident, "should_execute_round", execution_id, (next_round, state))
            problem = call.error
            if problem is None and not isinstance(call.value, bool):
                said = _kind(call.value)
                problem = PluginError(resident.name, "should_execute_round", f"must say True or False, not {said}")
            if problem is not None:
                resident.complain(execution_id, problem)
            if problem is not None or not call.value:
                return False, resident.name
        return True, ""


def _names(residents: Sequence[Resident]) -> tuple[str, ...]:
    return tuple(resident.name for resident in residents)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _problem_of(verdict: object, plugin: str, step: Step) -> PluginError | None:
    """Why an interceptor's answer is none."""
    if verdict is None:
        return None
    if not isinstance(verdict, HookResult):
        return PluginError(plugin, "before_step", f"must return a HookResult or None, not {_kind(verdict)}")
    inputs: object = verdict.inputs
    if not isinstance(inputs, Mapping):
        return PluginError(plugin, "before_step", f"must replace inputs by a mapping, not {_kind(inputs)}")
    strange = sorted(str(name) for name in inputs if name not in step.inputs)
    if strange:
        return PluginError(
            plugin, "before_step", f"replaces {', '.join(map(repr, strange))}, which the step does not take"
        )
    return None


def _stray(decision: object, plugin: str, state: RouteState) -> PluginError | None:
    """Why a router's answer cannot be followed."""
    if decision is None:
        return None
    if not isinstance(decision, RouteDecision):
        return PluginError(plugin, "route", f"must return a RouteDecision or None, not {_kind(decision)}")
    targets: object = decision.targets
    if not isinstance(targets, tuple | list):
        return PluginError(plugin, "route", f"must name its targets in a tuple, not {_kind(targets)}")
    strange = [target for target in targets if target not in state.candidates]
    if strange:
        names, choice = ", ".join(map(repr, strange)), ", ".join(map(repr, state.candidates))
        return PluginError(plugin, "route", f"names {names}; there are {choice}")
    return None
