"""The bus: where plugins are registered, live and are called, and where events pass.

Its life: plugins are registered, ``start`` moves them in, ``stop`` moves them out, once. A bus that was not started has
no thread. Events pass at any time until it has stopped, with or without plugins.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import uuid4

from ares.bus.card import buffer_size, positive_seconds, problem_of
from ares.bus.exchange import Box, Exchange
from ares.bus.executions import Executions, Say, silent
from ares.bus.faults import BusFaultPoints
from ares.bus.health import PluginHealth
from ares.bus.hooks import HookOrder
from ares.bus.population import Population
from ares.bus.ref import Ref
from ares.bus.resident import House
from ares.bus.subscription import BusSubscription
from ares.context import ExecutionPort, NoJournal, PluginJournal
from ares.errors import PluginError, UsageError
from ares.events import Event, EventFilter, EventType
from ares.plugin.capabilities import Capability
from ares.plugin.contracts import RuntimePlugin
from ares.plugin.engine_bus import Stages
from ares.plugin.verdicts import HookResult
from ares.records import ExecutionOutcome, ExecutionState, RouteDecision, RouteState, Step, StepFailure, StepResult

#: The stream of events that concern no execution.
BUS_STREAM: Final = "bus"
_MODULE: Final = "ares.bus"


class PluginBus:
    """An ``EngineBus``, an ``EventBus`` and a ``PluginDirectory``. Any thread.

    Args:
        name: Of what it serves; it is in the names of its threads.
        timeout: Seconds that a call to a plugin may take, where the plugin does not say itself.
        journal: What plugins find behind ``ctx.journal``.
        say: Takes what there is to log. It is called wherever something goes wrong, so it must not block.
        faults: The fault points of a bus that this one takes the place of.
    """

    def __init__(
        self,
        *,
        name: str = "",
        timeout: float = 30.0,
        journal: PluginJournal | None = None,
        say: Say = silent,
        faults: BusFaultPoints | None = None,
    ) -> None:
        self._name = name
        self._timeout = positive_seconds(timeout, lambda problem: UsageError(f"the timeout of plugins {problem}"))
        self._say = say
        self._executions = Executions(say)
        self._exchange = Exchange(uuid4().hex[:12], self._dropped)
        self._faults = faults or BusFaultPoints()
        house = House(
            name,
            self._timeout,
            self._executions,
            journal or NoJournal(),
            self._announce,
            self._faults,
            self._tell_fault,
        )
        self._population = Population(house, self._exchange, self)

    def __repr__(self) -> str:
        names = ", ".join(resident.name for resident in self._population.residents)
        return f"<PluginBus {self._name} of {names or 'nobody'}>"

    # --- its life --------------------------------------------------------------------------------------

    def register(self, *plugins: RuntimePlugin) -> None:
        """Let plugins in, all or none. Before ``start``.

        Raises:
            RegistrationError: one of them cannot live on a bus, or not on this one any more.
        """
        self._population.register(plugins)

    def start(self) -> None:
        """Start the plugins, in order of registration, as many as can be.

        Raises:
            HookOrderError: the order they ask for cannot be; none was started.
            ExceptionGroup: of the ``PluginError`` of each that did not start. It is out of hooks and directory; the
                others run. But if a required one did not start, those that had are stopped again, in reverse.
            UsageError: the bus was started or stopped before.
        """
        self._population.start()

    def stop(self, timeout: float | None = None) -> tuple[PluginError, ...]:
        """Stop the plugins, in reverse, each after the calls and events that were sent before; then end all
        subscriptions. Any number of times. A plugin that does not stop in time is abandoned.

        Args:
            timeout: Seconds for all together; without it each has its own.

        Returns:
            Why plugins did not stop in good order.

        Raises:
            UsageError: called by a plugin of this bus, which would have to wait for itself.
        """
        errors = self._population.stop(timeout)
        self._exchange.end()
        return errors

    def renewed(self, journal: PluginJournal | None = None) -> "PluginBus":
        """A bus with the same plugins that was not started, with a journal of its own: for the child of a fork, where
        this one's threads are gone and its locks may be held by them."""
        faults = self._faults.handed_on()
        bus = PluginBus(name=self._name, timeout=self._timeout, journal=journal, say=self._say, faults=faults)
        bus.register(*self._population.plugins)
        return bus

    @property
    def has_stopped(self) -> bool:
        """Whether it was stopped, or will not run because a required plugin did not start."""
        return self._population.is_stopping

    @property
    def plugins(self) -> tuple[RuntimePlugin, ...]:
        """Those that were registered, in order."""
        return self._population.plugins

    def is_inside(self) -> bool:
        """Whether the calling thread is the one of a plugin of this bus."""
        return self._population.is_inside()

    # --- the directory -----------------------------------------------------------------------------------

    def plugins_by_cap(self, cap: Capability) -> tuple[Ref, ...]:
        """The running plugins with a capability, in order of registration."""
        return tuple(
            Ref(resident, self._executions)
            for resident in self._population.running
            if cap in resident.card.capabilities
        )

    def health(self) -> Mapping[str, PluginHealth]:
        """How each plugin is, by name, in order of registration."""
        return {resident.name: resident.health() for resident in self._population.residents}

    @property
    def fault_points(self) -> BusFaultPoints:
        """Where calls to plugins can be made to go wrong; closed until somebody opens them."""
        return self._faults

    def hook_order(self) -> HookOrder:
        """In which order plugins are called; prints well."""
        return self._population.hooks.order()

    # --- events --------------------------------------------------------------------------------------------

    def emit(self, stream_id: str, event_type: str, module: str, payload: Mapping[str, Any] | None = None) -> None:
        """Say that something happened in a stream. Never blocks.

        Args:
            stream_id: An execution's id, or whatever the emitter makes one.
            event_type: A dotted name.
            module: Who says it.
            payload: Is copied; its values are not.

        Raises:
            UsageError: no event can be like that.
        """
        self._exchange.emit(stream_id, event_type, module, payload)

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> BusSubscription:
        """Receive what ``filter`` selects from now on. A subscription to a bus that has stopped is over.

        Args:
            filter: Which events.
            buffer: How many of them can wait to be taken; more are dropped and counted.

        Raises:
            UsageError: the filter can select nothing.
        """
        if not isinstance(filter, EventFilter):
            raise UsageError(f"subscribe() takes an EventFilter, not {filter!r}")
        problem = problem_of(filter)
        if problem:
            raise UsageError(f"this filter selects nothing: {problem}")
        size = buffer_size(buffer, lambda problem: UsageError(f"the buffer of a subscription {problem}"))
        subscription = BusSubscription(filter, size, self._exchange.detach)
        self._exchange.attach(subscription)
        return subscription

    def wants(self, event_type: str) -> bool:
        """See ``EngineBus``."""
        return self._exchange.wants(event_type)

    def is_listened_to(self) -> bool:
        """See ``EngineBus``."""
        return self._exchange.is_listened_to()

    def publish(self, events: Iterable[Event]) -> None:
        """See ``EngineBus``."""
        self._exchange.publish(events)

    def _dropped(self, box: Box, event: Event) -> None:
        self._executions.complain(
            event.stream_id, (box.label, "lost"), f"{box.label} lost an event, its buffer was full"
        )

    def _announce(self, event_type: EventType, plugin: str, execution_id: str, problem: str) -> None:
        payload = {"plugin": plugin, "problem": problem} if problem else {"plugin": plugin}
        self._exchange.emit(execution_id or BUS_STREAM, event_type, _MODULE, payload)

    def _tell_fault(self, execution_id: str, payload: Mapping[str, Any]) -> None:
        self._exchange.emit(execution_id or BUS_STREAM, EventType.FAULT_INJECTED, _MODULE, payload)

    # --- for the engine --------------------------------------------------------------------------------------

    @property
    def stages(self) -> Stages:
        """See ``EngineBus``."""
        return self._population.hooks.stages

    def open_execution(self, execution_id: str, port: ExecutionPort) -> None:
        """See ``EngineBus``."""
        self._executions.open(execution_id, port)

    def close_execution(self, execution_id: str) -> tuple[str, ...]:
        """See ``EngineBus``."""
        hanging = ((resident, resident.look()) for resident in self._population.running)
        words = (f"plugin {resident.name!r} hangs in {hung.method}" for resident, hung in hanging if hung is not None)
        if self._executions.is_open(execution_id):
            # A walk that failed for its store has no end in the journal; who listens is told all the same.
            self._exchange.end_stream(execution_id)
        return (*self._executions.close(execution_id), *words)

    def warnings(self, execution_id: str) -> tuple[str, ...]:
        """See ``EngineBus``."""
        return self._executions.drain(execution_id)

    def intercept(self, execution_id: str, step: Step) -> HookResult | None:
        """See ``EngineBus``."""
        return self._population.hooks.intercept(execution_id, step)

    def before_step(self, execution_id: str, step: Step) -> None:
        """See ``EngineBus``."""
        self._population.hooks.before_step(execution_id, step)

    def after_step(self, execution_id: str, result: StepResult) -> None:
        """See ``EngineBus``."""
        self._population.hooks.after_step(execution_id, result)

    def before_execution(self, execution: ExecutionState) -> None:
        """See ``EngineBus``."""
        self._population.hooks.before_execution(execution)

    def after_execution(self, outcome: ExecutionOutcome) -> None:
        """See ``EngineBus``."""
        self._population.hooks.after_execution(outcome)

    def route(self, execution_id: str, state: RouteState) -> tuple[RouteDecision | None, tuple[str, ...]]:
        """See ``EngineBus``."""
        return self._population.hooks.route(execution_id, state)

    def should_recover(self, execution_id: str, failure: StepFailure, state: ExecutionState) -> bool:
        """See ``EngineBus``."""
        return self._population.hooks.should_recover(execution_id, failure, state)

    def on_round_end(self, execution_id: str, round: int, state: ExecutionState) -> None:
        """See ``EngineBus``."""
        self._population.hooks.on_round_end(execution_id, round, state)

    def should_execute_round(self, execution_id: str, next_round: int, state: ExecutionState) -> tuple[bool, str]:
        """See ``EngineBus``."""
        return self._population.hooks.should_execute_round(execution_id, next_round, state)
