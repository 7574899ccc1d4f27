"""Plugins, steps and other people that the tests of the bus are played with."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ares.bus import PluginBus
from ares.bus.awaiting import send_all
from ares.bus.call import Call, Latch
from ares.bus.card import read
from ares.bus.executions import Executions
from ares.bus.resident import House, Resident
from ares.context import Context, NoExecution, NoJournal
from ares.events import Event, EventFilter, instant
from ares.plugin import Capability, HookPolicy, Plugin
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    RouteState,
    Step,
    StepFailure,
    StepResult,
    StepStatus,
)

#: Seconds that nothing in these tests takes unless it is broken.
LONG = 20.0


def step(path: str = "s", index: int | None = None, **inputs: Any) -> Step:
    return Step(path, path, "s", index, 1, "s", "", StepStatus.RUNNING, 1, inputs, {}, None)


def result(path: str = "s", index: int | None = None) -> StepResult:
    return StepResult(path, path, "s", index, 1, "s", StepStatus.COMPLETED)


def state(execution_id: str = "e") -> ExecutionState:
    return ExecutionState(execution_id, "w", "s", 1, {}, {})


def outcome(execution_id: str = "e") -> ExecutionOutcome:
    return ExecutionOutcome(execution_id, "w", ExecutionStatus.COMPLETED, 1, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)


def choice(*candidates: str) -> RouteState:
    return RouteState("e", "w", "s", "s", 1, None, {}, candidates)


def failure() -> StepFailure:
    return StepFailure("e", "w", "s", "s", 1, 3, ValueError("spent"))


def event(number: int = 0, event_type: str = "a.b", stream_id: str = "e") -> Event:
    return Event(f"id-{number}", number, stream_id, event_type, "test", {"n": number}, instant(0))


class Log:
    """What happened, in order. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[Any] = []

    def add(self, line: Any) -> None:
        with self._lock:
            self._lines.append(line)

    @property
    def lines(self) -> list[Any]:
        with self._lock:
            return list(self._lines)


class Said:
    """Stands for the application's log."""

    def __init__(self) -> None:
        self.log = Log()

    def __call__(self, level: str, message: str, *args: Any, error: BaseException | None = None) -> None:
        self.log.add((level, message.format(*args)))

    def of(self, *levels: str) -> list[str]:
        return [text for level, text in self.log.lines if level in levels]


class Named(Plugin):
    """A plugin with a name, and whatever attributes a test gives it."""

    def __init__(self, name: str = "named", **attributes: Any) -> None:
        self.name = name
        for attribute, value in attributes.items():
            setattr(self, attribute, value)


class Servant(Named):
    """Does what it is asked by a ref, in its own thread."""

    capabilities = frozenset({Capability.TOOL})

    def do(self, ctx: Context, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    def context(self, ctx: Context, fn: Callable[[Context], Any]) -> Any:
        return fn(ctx)


class Watcher(Named):
    """Observes steps and writes down what it saw."""

    def __init__(self, name: str, log: Log, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.log = log

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> Any:
        self.log.add(f"{self.name}.before")

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        self.log.add(f"{self.name}.after")


class Guard(Named):
    """Intercepts steps by a function."""

    hook_policy = HookPolicy.INTERCEPT

    def __init__(self, name: str, decide: Callable[[Step], Any], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.decide = decide

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> Any:
        return self.decide(step)


class Listener(Named):
    """Hands each delivery to a function."""

    subscribes_to = EventFilter()

    def __init__(self, name: str, hear: Callable[[Any], None], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.hear = hear

    def on_event(self, ctx: Context, delivery: Any) -> None:
        self.hear(delivery)


class Gate:
    """Where a plugin hangs until the test lets it go; nobody hangs here for ever."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def pass_through(self, *_args: Any, **_kwargs: Any) -> None:
        self.entered.release()
        assert self.opened.wait(LONG), "the test never opened the gate"

    def await_entry(self) -> None:
        assert self.entered.acquire(timeout=LONG), "nobody came to the gate"

    def open(self) -> None:
        self.opened.set()


def refs(bus: PluginBus) -> dict[str, Any]:
    """Those that have a capability, by name."""
    return {ref.name: ref for cap in Capability for ref in bus.plugins_by_cap(cap)}


def until(what: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about and nobody can be told of."""
    pause = threading.Event()
    for _ in range(int(LONG / 0.002)):
        if what():
            return
        pause.wait(0.002)
    raise AssertionError("it did not come about")


def in_thread(fn: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """Run ``fn`` on a thread of its own. Returns a function that waits for it and gives what it returned or raised."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, fn(*args)))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(LONG)
        assert outcome, "it did not end"
        is_ok, value = outcome[0]
        if is_ok:
            return value
        raise value

    return join


@contextmanager
def residing(plugin: Any, timeout: float = 30.0) -> Iterator[Resident]:
    """One plugin in its actor, with no bus around it; it is not started as a plugin."""
    house = House("test", timeout, Executions(), NoJournal(), lambda *_: None)
    resident = Resident(read(plugin), house)
    from ares.bus.health import PluginState

    resident.move(PluginState.RUNNING)
    resident.actor.begin()
    try:
        yield resident
    finally:
        resident.move(PluginState.STOPPED)
        resident.abandon()
        resident.actor.join(LONG)


def sent(resident: Resident, method: str, *args: Any, patient: bool = False) -> Call:
    """A call that was sent."""
    call = resident.call(method, args, "e", NoExecution(), Latch(1))
    call.is_patient = patient
    resident.send(call)
    return call


def asked(resident: Resident, method: str, *args: Any) -> Call:
    """A call that was sent and is done."""
    latch = Latch(1)
    call = resident.call(method, args, "e", NoExecution(), latch)
    send_all([(resident, call)], latch)
    return call
