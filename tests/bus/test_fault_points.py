"""Where calls to plugins are made to go wrong: in the plugin's own thread, as if by itself, or not at all."""

import gc
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus, PluginState
from ares.context import Context
from ares.errors import (
    PluginCrashError,
    PluginError,
    PluginTimeoutError,
    PluginUnresponsiveError,
    RegistrationError,
    UsageError,
)
from ares.events import EventFilter, EventType
from ares.plugin import Capability, EventBus, FaultPoint, FaultTarget, HasFaultPoints, Injection
from tests.bus.players import (
    LONG,
    Gate,
    Listener,
    Log,
    Named,
    Said,
    Servant,
    Watcher,
    choice,
    event,
    failure,
    in_thread,
    outcome,
    refs,
    result,
    state,
    step,
    until,
)
from tests.engine.helpers import Child

NewBus = Callable[..., PluginBus]

TIMEOUT = 0.1


class Injects:
    """A stranger's injector: one function says what goes wrong, and all points are written down."""

    name = "stranger"

    def __init__(self, order: Callable[[FaultPoint], Injection | None] = lambda _: None) -> None:
        self.order = order
        self.asked = Log()

    def inject(self, point: FaultPoint) -> Injection | None:
        self.asked.add(point)
        return self.order(point)

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(point.plugin, point.call) for point in self.asked.lines]


class Strange(BaseException):
    """What no except clause expects."""


def always(injection: Injection) -> Injects:
    return Injects(lambda _: injection)


def in_call(call: str, make: Callable[[], Injection]) -> Injects:
    return Injects(lambda point: make() if point.call == call else None)


def hang(seconds: float = math.inf) -> Injection:
    return Injection("hang", ValueError("hung"), seconds)


# --- closed and open -----------------------------------------------------------------------------------


def test_the_fault_points_of_a_bus_are_closed_until_somebody_opens_them(new_bus: NewBus) -> None:
    bus, injector = new_bus(Servant("a")), always(Injection("error", ValueError("x")))

    assert not bus.fault_points.is_open
    assert not bus.health()["a"].faults_on
    assert refs(bus)["a"].call("do", str, 1) == "1"

    bus.fault_points.open(injector)
    assert bus.fault_points.is_open
    assert bus.health()["a"].faults_on
    with pytest.raises(PluginError):
        refs(bus)["a"].call("do", str, 1)

    bus.fault_points.close(injector)
    assert refs(bus)["a"].call("do", str, 1) == "1"
    assert (bus.health()["a"].faults_on, bus.health()["a"].faults) == (False, 1)
    assert len(injector.calls) == 1


def test_one_injector_at_a_time_and_no_other_closes_the_points(new_bus: NewBus) -> None:
    bus, first, second = new_bus(), Injects(), Injects()
    bus.fault_points.open(first)

    with pytest.raises(UsageError, match="are open already, for 'stranger'"):
        bus.fault_points.open(second)
    bus.fault_points.close(second)
    assert bus.fault_points.is_open

    bus.fault_points.close(first)
    bus.fault_points.close(first)
    bus.fault_points.open(second)


def test_what_cannot_inject_is_refused_and_nothing_is_opened(new_bus: NewBus) -> None:
    bus = new_bus()
    broken: Any = type("Broken", (), {"name": "broken", "inject": None})()

    for what in (broken, object()):
        with pytest.raises((UsageError, AttributeError)):
            bus.fault_points.open(what)
    assert not bus.fault_points.is_open


def test_who_can_be_struck_in_what_is_told(new_bus: NewBus) -> None:
    class Router(Watcher):
        capabilities = frozenset({Capability.ROUTER})

        def route(self, ctx: Context, state: Any) -> None: ...

        def _private(self) -> None: ...

    unhooked = Watcher("b", Log())
    unhooked.before_step = None  # type: ignore[method-assign,assignment]
    bus = new_bus(Router("a", Log()), unhooked, start=False)

    targets = bus.fault_points.targets

    calls = frozenset({"start", "stop", "before_step", "after_step", "route"})
    assert targets["a"] == FaultTarget("a", frozenset({Capability.ROUTER}), calls)
    assert targets["b"].calls == {"start", "stop", "after_step"}
    assert list(targets) == ["a", "b"]


def test_plugins_that_were_not_let_in_are_no_targets(new_bus: NewBus) -> None:
    bus = new_bus(Named("a"), start=False)

    with pytest.raises(RegistrationError):
        bus.register(Named("b"), Named("a"))

    assert list(bus.fault_points.targets) == ["a"]


def test_a_plugin_finds_them_behind_the_bus_that_it_is_handed(new_bus: NewBus) -> None:
    class Curious(Named):
        def start(self, ctx: Context, bus: EventBus) -> None:
            assert isinstance(bus, HasFaultPoints)
            self.found = bus.fault_points

    plugin = Curious("a")
    bus = new_bus(plugin)

    assert plugin.found is bus.fault_points
    assert isinstance(bus, HasFaultPoints)


# --- what an injector is asked ---------------------------------------------------------------------------


def test_an_injector_is_asked_about_every_call_with_all_that_tells_it_from_others(new_bus: NewBus) -> None:
    class All(Watcher):
        capabilities = frozenset({Capability.ROUTER, Capability.RECOVERY, Capability.EVOLUTION})
        subscribes_to = EventFilter(types=["a.b"])

        def __init__(self) -> None:
            super().__init__("a", Log())

        def on_event(self, ctx: Context, delivery: Any) -> None: ...

        def before_execution(self, ctx: Context, execution: Any) -> None: ...

        def after_execution(self, ctx: Context, outcome: Any) -> None: ...

        def route(self, ctx: Context, state: Any) -> None: ...

        def recommend(self, ctx: Context, state: Any) -> None: ...

        def record_outcome(self, ctx: Context, outcome: Any) -> None: ...

        def should_recover(self, ctx: Context, failure: Any, state: Any) -> bool:
            return False

    injector = Injects()
    bus = new_bus(All(), start=False)
    bus.fault_points.open(injector)
    bus.start()
    bus.before_execution(state())
    bus.before_step("e", step("p"))
    bus.after_step("e", result("p"))
    bus.route("e", choice("x"))
    bus.should_recover("e", failure(), state())
    bus.after_execution(outcome())
    refs(bus)["a"].call("recommend", state=state())
    refs(bus)["a"].call("record_outcome", outcome())
    bus.publish([event()])
    bus.emit("e", "a.b", "test", {"path": "q", "round": 2, "attempt": 3, "more": 4})
    bus.emit("e", "a.b", "test", {"path": 1, "round": "2", "attempt": True})
    bus.stop()

    caps = All.capabilities
    assert injector.asked.lines == [
        FaultPoint("a", caps, "start"),
        FaultPoint("a", caps, "before_execution", "e", "s", 1),
        FaultPoint("a", caps, "before_step", "e", "p", 1, 1),
        FaultPoint("a", caps, "after_step", "e", "p", 1),
        FaultPoint("a", caps, "route", "e", "s", 1),
        FaultPoint("a", caps, "should_recover", "e", "s", 1, 3),
        FaultPoint("a", caps, "after_execution", "e", "", 1),
        FaultPoint("a", caps, "recommend", "", "s", 1),
        FaultPoint("a", caps, "record_outcome", "", "", 1),
        FaultPoint("a", caps, "on_event", "e", event_type="a.b"),
        FaultPoint("a", caps, "on_event", "e", "q", 2, 3, "a.b"),
        FaultPoint("a", caps, "on_event", "e", event_type="a.b"),
        FaultPoint("a", caps, "stop"),
    ]


def test_an_injector_is_asked_in_the_plugins_own_thread(new_bus: NewBus) -> None:
    threads = Log()
    bus = new_bus(Servant("a"))
    bus.fault_points.open(Injects(lambda _: threads.add(threading.current_thread().name)))

    refs(bus)["a"].call("do", str)

    assert threads.lines == ["ares-plugin a test"]


def test_an_injector_that_raises_leaves_the_call_alone_and_is_complained_of(new_bus: NewBus) -> None:
    def fail(_point: FaultPoint) -> None:
        raise Strange("the injector is broken")

    said, log = Said(), Log()
    bus = new_bus(Watcher("a", log), say=said)
    bus.open_execution("e", None)  # type: ignore[arg-type]  # nobody looks at it
    bus.fault_points.open(Injects(fail))

    for _ in range(3):
        bus.before_step("e", step())

    assert log.lines == ["a.before"] * 3
    assert bus.health()["a"].errors == bus.health()["a"].faults == 0
    text = "the fault injector failed at before_step of 'a': Strange: the injector is broken"
    assert bus.close_execution("e") == (f"{text} (3 times)",)
    assert said.of("WARNING") == [text]


@pytest.mark.parametrize("answer", ["error", ValueError("x"), object()])
def test_an_answer_that_is_no_injection_is_one_that_failed(new_bus: NewBus, answer: Any) -> None:
    said = Said()
    bus = new_bus(Servant("a"), say=said)
    bus.fault_points.open(Injects(lambda _: answer))

    assert refs(bus)["a"].call("do", str, 1) == "1"
    assert "the fault injector failed at do of 'a': TypeError: inject must return" in said.of("WARNING")[0]
    assert bus.health()["a"].faults == 0


@pytest.mark.parametrize("seconds", [-1, math.nan, "1", None, True])
def test_an_injection_lasts_for_some_time_or_none(seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds from 0"):
        Injection("delay", seconds=seconds)


@pytest.mark.parametrize("error", ["x", ValueError, 3])
def test_an_injection_raises_what_can_be_raised(error: Any) -> None:
    with pytest.raises(ValueError, match="raises an exception or nothing"):
        Injection("error", error)


def test_an_injector_may_close_the_points_while_it_is_asked(new_bus: NewBus) -> None:
    bus = new_bus(Servant("a"))

    def order(_point: FaultPoint) -> Injection:
        bus.fault_points.close(injector)
        return Injection("error", ValueError("the last one"), 5 * LONG)

    injector = Injects(order)
    bus.fault_points.open(injector)

    with pytest.raises(PluginError, match="the last one"):  # and at once: nothing hangs any more
        refs(bus)["a"].call("do", str)
    assert refs(bus)["a"].call("do", str, 1) == "1"


# --- what it orders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "becomes"), [(ValueError("x"), PluginError), (Strange("x"), PluginCrashError)])
def test_what_is_ordered_to_be_raised_is_as_if_the_plugin_had_raised_it(
    new_bus: NewBus, error: BaseException, becomes: type[PluginError]
) -> None:
    ran = Log()
    bus = new_bus(Servant("a"), Servant("b"))
    injector = Injects(lambda point: Injection("error", error) if point.plugin == "a" else None)
    bus.fault_points.open(injector)

    with pytest.raises(becomes) as raised:
        refs(bus)["a"].call("do", ran.add, 1)

    assert type(raised.value) is becomes
    assert raised.value.__cause__ is error
    assert ran.lines == []
    assert refs(bus)["b"].call("do", str, 1) == "1"
    health = bus.health()["a"]
    assert (health.calls, health.errors, health.faults, health.last_error) == (2, 1, 1, str(raised.value))
    assert bus.health()["b"].faults == 0


def test_a_late_fault_comes_when_the_plugin_has_done_its_work(new_bus: NewBus) -> None:
    ran = Log()
    bus = new_bus(Servant("a"))
    bus.fault_points.open(Injects(lambda _: Injection("error", ValueError("late"), is_late=True)))

    with pytest.raises(PluginError, match="late"):
        refs(bus)["a"].call("do", ran.add, 1)

    assert ran.lines == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_delay_alone_changes_nothing_but_the_time(new_bus: NewBus, is_late: bool) -> None:
    bus = new_bus(Servant("a"))
    bus.fault_points.open(always(Injection("delay", seconds=0.02, is_late=is_late)))

    assert refs(bus)["a"].call("do", str, 1) == "1"
    assert bus.health()["a"].slowest >= 0.02
    assert bus.health()["a"].errors == 0


def test_a_plugin_that_hangs_by_order_costs_one_timeout_and_comes_back(new_bus: NewBus) -> None:
    left = [hang()]
    bus = new_bus(Servant("a"), timeout=TIMEOUT)
    bus.fault_points.open(Injects(lambda _: left.pop() if left else None))
    ref = refs(bus)["a"]

    with pytest.raises(PluginTimeoutError, match=r"gave no answer in 0.1 s, by an injected fault") as raised:
        ref.call("do", str)
    until(lambda: bus.health()["a"].state is PluginState.RUNNING)

    assert raised.value.seconds == TIMEOUT
    assert ref.call("do", str, 1) == "1"
    health = bus.health()["a"]
    assert (health.timeouts, health.errors, health.faults) == (1, 1, 1)


def test_what_hangs_by_order_goes_on_past_its_time_until_somebody_finds_out(new_bus: NewBus) -> None:
    entered = threading.Event()

    def order(point: FaultPoint) -> Injection | None:
        if point.call != "on_event":
            return None
        entered.set()
        return hang()

    class Both(Listener, Servant): ...

    bus = new_bus(Both("a", lambda _: None, subscribes_to=EventFilter(types=["a.b"])), timeout=0.02)
    bus.fault_points.open(Injects(order))
    bus.emit("e", "a.b", "test")
    assert entered.wait(LONG)
    threading.Event().wait(0.04)  # past its time, by as much again

    with pytest.raises(PluginUnresponsiveError):
        refs(bus)["a"].call("do", str)


def test_closing_the_points_ends_what_hangs_by_order(new_bus: NewBus) -> None:
    entered = threading.Event()

    def order(_point: FaultPoint) -> Injection:
        entered.set()
        return hang()

    injector = Injects(order)
    bus = new_bus(Servant("a"), timeout=LONG)
    bus.fault_points.open(injector)
    answer = in_thread(refs(bus)["a"].call, "do", str)
    assert entered.wait(LONG)
    began = time.monotonic()

    bus.fault_points.close(injector)

    with pytest.raises(PluginError, match="hung"):
        answer()
    assert time.monotonic() - began < LONG / 2
    assert bus.health()["a"].state is PluginState.RUNNING


def test_a_bus_stops_although_a_plugin_hangs_by_order(new_bus: NewBus) -> None:
    bus = new_bus(Servant("a"), timeout=TIMEOUT)
    bus.fault_points.open(in_call("stop", hang))
    began = time.monotonic()

    [error] = bus.stop()

    assert isinstance(error, PluginTimeoutError)
    assert time.monotonic() - began < 10 * TIMEOUT
    assert bus.health()["a"].state is PluginState.ABANDONED


# --- what is told ------------------------------------------------------------------------------------------


def test_each_struck_call_is_told_by_an_event_before_it_goes_wrong(new_bus: NewBus) -> None:
    bus = new_bus(Watcher("a", Log()), start=False)
    heard = bus.subscribe(EventFilter(types=["fault.injected", "plugin.failed"]))
    bus.fault_points.open(Injects(lambda _: Injection("panic", Strange("x"))))

    with pytest.raises(ExceptionGroup):
        bus.start()
    events = [heard.get(1) for _ in range(2)]

    [injected, failed] = [each.event for each in events if each]
    assert (injected.type, injected.stream_id, failed.type) == (EventType.FAULT_INJECTED, "bus", "plugin.failed")
    assert injected.payload == {"plugin": "a", "call": "start", "fault": "panic", "by": "stranger"}


def test_a_fault_in_an_execution_is_told_in_its_stream_with_the_place(new_bus: NewBus) -> None:
    bus = new_bus(Watcher("a", Log()))
    heard = bus.subscribe(EventFilter(stream_ids=["e"]))
    bus.fault_points.open(always(Injection("delay", seconds=0.001)))

    bus.before_step("e", step("p[3]"))

    delivery = heard.get(1)
    assert delivery is not None
    told = {"plugin": "a", "call": "before_step", "fault": "delay", "by": "stranger"}
    assert delivery.event.payload == told | {"path": "p[3]", "round": 1, "attempt": 1}


def test_no_fault_breeds_another_in_a_listener_that_hears_of_faults(new_bus: NewBus) -> None:
    heard = Log()
    wanted = EventFilter(types=["a.b", "fault.injected"])
    bus = new_bus(Listener("a", lambda delivery: heard.add(delivery.event.type), subscribes_to=wanted))
    bus.fault_points.open(Injects(lambda _: Injection("error", ValueError("x"))))

    bus.emit("e", "a.b", "test")
    until(lambda: "fault.injected" in heard.lines)
    bus.stop()

    # The event was struck, and its stop.
    assert heard.lines == ["fault.injected"]
    assert bus.health()["a"].faults == 2


# --- what is left ------------------------------------------------------------------------------------------


def test_a_call_that_was_struck_keeps_nothing_alive(new_bus: NewBus) -> None:
    class Thing: ...

    thing = Thing()
    gone = weakref.ref(thing)
    bus = new_bus(Watcher("a", Log()))
    bus.fault_points.open(Injects(lambda _: Injection("error", ValueError("x"))))
    gc.collect()
    gc.disable()
    try:
        bus.before_step("e", step(thing=thing))
        del thing
        until(lambda: gone() is None)
    finally:
        gc.enable()


def test_a_bus_that_takes_the_place_of_another_has_its_fault_points(new_bus: NewBus, gate: Gate) -> None:
    bus, injector = new_bus(Servant("a"), start=False), in_call("do", lambda: Injection("error", ValueError("x")))
    bus.fault_points.open(injector)
    again = bus.renewed()
    again.start()

    with pytest.raises(PluginError):
        refs(again)["a"].call("do", str)
    again.fault_points.close(injector)
    assert refs(again)["a"].call("do", str, 1) == "1"
    again.stop()


def test_in_the_child_of_a_fork_the_fault_points_are_closed() -> None:
    program = """
        import os
        from ares.bus import PluginBus
        from tests.bus.players import Servant, refs
        from tests.bus.test_fault_points import always
        from ares.plugin import Injection

        bus = PluginBus()
        bus.register(Servant("a"))
        bus.start()
        bus.fault_points.open(always(Injection("delay", seconds=0.001)))
        pid = os.fork()
        if pid == 0:
            mine = bus.renewed()
            mine.start()
            ok = not mine.fault_points.is_open and refs(mine)["a"].call("do", str, 1) == "1"
            os._exit(0 if ok and mine.health()["a"].faults == 0 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        bus.stop()
    """
    with Child(program) as child:
        assert child.result() == "0\n"
