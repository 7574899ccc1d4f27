"""Branch points, peers and a wrapped bus that the tests of the routers are played with."""

from collections.abc import Callable, Sequence
from typing import Any

from ares import Workflow
from ares.bus import PluginBus
from ares.context import Context, NoExecution, NoJournal
from ares.events import Event, EventFilter
from ares.plugin import Capability, EventBus
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    MemoryEntry,
    RouteAdvice,
    RouteDecision,
    RouteState,
    RuntimeRecommendation,
    Step,
    StepStatus,
)
from tests.bus.players import Log, Named

WAYS = ("left", "middle", "right")


def crossing(run: Callable[..., Any] = lambda: "here", name: str = "crossing", **options: Any) -> Workflow:
    """A branch point with three ways, joined again."""
    wf = Workflow(name, variables={"colour": "red"})
    wf.step(run, id="choose", branches=WAYS, **options)
    for way in WAYS:
        wf.step(lambda choose, way=way: way, id=way)
    wf.step(lambda left, middle, right: [way for way in (left, middle, right) if way], id="join")
    return wf


def at(output: Any = None, /, *, path: str = "choose", execution_id: str = "e", **variables: Any) -> RouteState:
    """What a router is asked about."""
    return RouteState(execution_id, "crossing", path.rpartition("/")[2], path, 1, output, variables, WAYS)


def running(path: str = "choose", round: int = 1) -> Step:
    step_id = path.rpartition("/")[2]
    return Step(step_id, path, step_id, None, round, step_id, "", StepStatus.RUNNING, 1, {}, {}, None)


def begun(execution_id: str = "e", workflow_id: str = "crossing") -> ExecutionState:
    return ExecutionState(execution_id, workflow_id, "", 1, {}, {})


def ended(execution_id: str = "e", status: ExecutionStatus = ExecutionStatus.COMPLETED) -> ExecutionOutcome:
    return ExecutionOutcome(execution_id, "crossing", status, 1, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)


def decision_of(bus: PluginBus, state: RouteState) -> RouteDecision:
    """What the routers of a bus decide, which is something."""
    decision, _ = bus.route(state.execution_id, state)
    assert decision is not None
    return decision


def routed(events: Sequence[Event]) -> dict[str, Any]:
    [event] = [event for event in events if event.type == "route.decided"]
    return dict(event.payload)


class Heard:
    """What was told on a bus by events of a type."""

    def __init__(self, bus: Any, event_type: str) -> None:
        self._subscription = bus.subscribe(EventFilter(types=[event_type]), buffer=1_000)

    def __call__(self) -> list[tuple[str, dict[str, Any]]]:
        return [(each.stream_id, dict(each.payload)) for each in self.events()]

    def events(self) -> list[Event]:
        found = []
        while self._subscription.pending:
            found.append(self._subscription.get(1).event)
        return found


class Port:
    """Stands for an execution, and keeps what is recorded."""

    def __init__(self) -> None:
        self.metadata = {"user": "ann"}
        self.log = Log()

    def record(self, writer: str, entry: Any) -> None:
        self.log.add((writer, entry))

    @property
    def hits(self) -> list[MemoryEntry]:
        return [entry for _, entry in self.log.lines]


class Memory(Named):
    """Advises by a function."""

    capabilities = frozenset({Capability.MEMORY})

    def __init__(self, say: Callable[[RouteState], Any], name: str = "memory", **more: Any) -> None:
        super().__init__(name, **more)
        self.say = say
        self.asked = Log()

    def advise_route(self, ctx: Context, state: RouteState) -> Any:
        self.asked.add(state)
        return self.say(state)

    @property
    def states(self) -> list[RouteState]:
        states: list[RouteState] = self.asked.lines
        return states


def advice(target: str = "left", confidence: float = 0.9, reason: str = "") -> Callable[[RouteState], Any]:
    return lambda _state: [RouteAdvice(target, confidence, reason)]


def when_it_has_returned(target: str) -> Callable[[RouteState], Any]:
    """Advice of a memory that must see the output."""
    return lambda state: [RouteAdvice(target, 0.9)] if state.candidates else []


class Evolution(Named):
    """Recommends by a function."""

    capabilities = frozenset({Capability.EVOLUTION})

    def __init__(self, say: Callable[[ExecutionState], Any], name: str = "strategy", **more: Any) -> None:
        super().__init__(name, **more)
        self.say = say
        self.states: list[ExecutionState] = []

    def recommend(self, ctx: Context, state: ExecutionState) -> Any:
        self.states.append(state)
        return self.say(state)

    def record_outcome(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """It never learns."""


def prefers(agent: str, confidence: float = 0.9) -> Callable[[ExecutionState], Any]:
    return lambda _state: RuntimeRecommendation(agent, confidence=confidence)


# --- a bus in a wrapper ------------------------------------------------------------------------------------------


class Forwarding:
    """A decorator of a bus that forwards the two protocols, and nothing besides."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def emit(self, stream_id: str, event_type: str, module: str, payload: Any = None) -> None:
        self._inner.emit(stream_id, event_type, module, payload)

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> Any:
        return self._inner.subscribe(filter, buffer=buffer)

    def plugins_by_cap(self, cap: Capability) -> Any:
        return self._inner.plugins_by_cap(cap)


class Transparent:
    """A decorator that passes on whatever it is asked for."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Wrapped(Named):
    """Hands a plugin a decorated bus, and is that plugin otherwise."""

    def __init__(self, plugin: Any, wrapper: Callable[[Any], Any]) -> None:
        super().__init__(plugin.name, capabilities=plugin.capabilities)
        self._plugin = plugin
        self._wrapper = wrapper

    def start(self, ctx: Context, bus: EventBus) -> None:
        self._plugin.start(ctx, self._wrapper(bus))

    def stop(self, ctx: Context) -> None:
        self._plugin.stop(ctx)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_plugin"], name)


def alone(execution_id: str = "e") -> Context:
    """A context of a call that somebody makes without a bus: nobody waits for it."""
    import threading

    return Context(execution_id, NoExecution(), NoJournal(), "test", threading.RLock())
