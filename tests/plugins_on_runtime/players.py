"""Plugins that the tests of plugins on a Runtime are played with, besides those of the tests of the bus."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ares import Context, Event, EventFilter, ExecutionState, HookResult, Runtime, Step, StepResult, WorkflowResult
from ares.bus import PluginState
from ares.plugin import Capability, EventBus
from ares.records import RouteDecision, RouteState
from tests.bus.players import Gate, Guard, Log, Named
from tests.engine.helpers import eventually

#: Seconds that a plugin has which is going to hang.
SOON = 0.3
#: Events that are a flood.
FLOOD = 100_000

#: Where a plugin can do something.
PLACES = ("start", "before_execution", "before_step", "on_event", "after_step", "after_execution", "stop")


class Everywhere(Named):
    """Has every method that a plugin may have, and does one deed in one place: each time, or the first time only."""

    subscribes_to = EventFilter(types=["step.completed"])
    buffer = 1_000

    def __init__(
        self, name: str, place: str, deed: Callable[["Everywhere", Context], object], *, once: bool = False, **more: Any
    ) -> None:
        super().__init__(name, **more)
        self.place = place
        self.deed = deed
        self.once = once
        self.times = 0
        self.bus: EventBus

    def _at(self, place: str, ctx: Context) -> None:
        if place != self.place:
            return
        self.times += 1
        if self.times == 1 or not self.once:
            self.deed(self, ctx)

    def start(self, ctx: Context, bus: EventBus) -> None:
        self.bus = bus
        self._at("start", ctx)

    def stop(self, ctx: Context) -> None:
        self._at("stop", ctx)

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
        self._at("before_execution", ctx)

    def after_execution(self, ctx: Context, outcome: Any) -> None:
        self._at("after_execution", ctx)

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        self._at("before_step", ctx)

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        self._at("after_step", ctx)

    def on_event(self, ctx: Context, delivery: Any) -> None:
        self._at("on_event", ctx)


class Strange(BaseException):
    """What no except clause expects."""


def raises(_plugin: Everywhere, _ctx: Context) -> None:
    raise RuntimeError("villainy")


def exits(_plugin: Everywhere, _ctx: Context) -> None:
    sys.exit(3)


def interrupts(_plugin: Everywhere, _ctx: Context) -> None:
    raise KeyboardInterrupt


def is_strange(_plugin: Everywhere, _ctx: Context) -> None:
    raise Strange("strange")


def closes_generators(_plugin: Everywhere, _ctx: Context) -> None:
    raise GeneratorExit


def floods(plugin: Everywhere, ctx: Context) -> None:
    """Emits far more than anybody can take, in the stream of the execution if there is one."""
    for number in range(FLOOD):
        plugin.bus.emit(ctx.execution_id or "flood", "flood.drop", plugin.name, {"n": number})


class Asked(Guard):
    """An interceptor that writes down whom it was asked about."""

    def __init__(self, decide: Callable[[Step], Any] = lambda _step: None, name: str = "guard", **more: Any) -> None:
        super().__init__(name, decide, **more)
        self.steps: list[Step] = []

    @property
    def paths(self) -> list[str]:
        return [step.path for step in self.steps]

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> Any:
        self.steps.append(step)  # on its own thread alone
        return self.decide(step)


def of(paths: Mapping[str, HookResult]) -> Callable[[Step], HookResult | None]:
    """A verdict for some steps, and none for the others."""
    return lambda step: paths.get(step.path)


def first_raises(error: Exception) -> Callable[[Step], None]:
    """Cannot decide the first time; lets everything pass later."""
    left = [error]

    def decide(_step: Step) -> None:
        if left:
            raise left.pop()

    return decide


class Diary(Named):
    """Observes everything and writes it down, with what is around it."""

    def __init__(self, name: str, log: Log, **more: Any) -> None:
        super().__init__(name, **more)
        self.log = log

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
        self.log.add((self.name, "before_execution", execution.execution_id))

    def after_execution(self, ctx: Context, outcome: Any) -> None:
        self.log.add((self.name, "after_execution", outcome.status.value))

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        self.log.add((self.name, "before_step", step.path))

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        self.log.add((self.name, "after_step", result.path, result.status.value))


class Signpost(Named):
    """A router plugin that says what it is told to."""

    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, name: str, say: Callable[[RouteState], RouteDecision | None], **more: Any) -> None:
        super().__init__(name, **more)
        self.say = say
        self.states: list[RouteState] = []

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        self.states.append(state)
        return self.say(state)


def hang_in(gate: Gate) -> Callable[..., None]:
    """A deed that takes for ever, as far as the test is concerned."""
    return gate.pass_through


def await_hung(rt: Runtime, name: str) -> None:
    """Wait until a plugin has been at something for longer than it may."""
    eventually(lambda: rt.health()[name].state is PluginState.UNRESPONSIVE)


def naming(result: WorkflowResult, name: str) -> list[str]:
    """The warnings of a result that name somebody."""
    return [warning for warning in result.warnings if repr(name) in warning]


def without_time(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """All of events but their timestamps, and durations to the microsecond that a journal keeps."""
    return [(e.id, e.seq, e.stream_id, e.type, e.module, _rounded(e.payload)) for e in events]


def _rounded(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if name == "duration" else value for name, value in payload.items()}


def about(events: list[Event], path: str) -> list[str]:
    """The types of the events about one step."""
    return [event.type for event in events if event.payload.get("path") == path]
