"""Moving in, moving out, and what is left behind: nothing."""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from ares.bus import PluginBus, PluginState
from ares.errors import (
    HookOrderError,
    PluginBusyError,
    PluginCrashError,
    PluginError,
    PluginTimeoutError,
    PluginUnresponsiveError,
    UsageError,
)
from ares.events import EventFilter
from ares.plugin import Capability, EventBus, PluginDirectory
from tests.bus.conftest import plugin_threads
from tests.bus.players import LONG, Gate, Guard, Listener, Log, Named, Said, Servant, in_thread, refs, step, until

NewBus = Callable[..., PluginBus]


class Living(Named):
    """Writes down its life; ``at`` says what it does at start and stop."""

    def __init__(self, name: str, log: Log, **at: Any) -> None:
        super().__init__(name)
        self.log = log
        self.at = at

    def start(self, ctx: Any, bus: EventBus) -> None:
        self.log.add(f"start {self.name}")
        self.at.get("start", lambda *_: None)(ctx, bus)

    def stop(self, ctx: Any) -> None:
        self.log.add(f"stop {self.name}")
        self.at.get("stop", lambda *_: None)(ctx)


def raising(error: BaseException) -> Callable[..., None]:
    def explode(*_args: Any) -> None:
        raise error

    return explode


def states(bus: PluginBus) -> dict[str, str]:
    return {name: health.state.value for name, health in bus.health().items()}


def test_plugins_start_in_order_of_registration_and_stop_in_reverse(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(*(Living(name, log) for name in "abc"))

    assert bus.stop() == ()

    assert log.lines == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]
    assert states(bus) == dict.fromkeys("abc", "stopped")


def test_a_bus_that_was_not_started_has_no_thread(new_bus: NewBus) -> None:
    bus = new_bus(Named("a"), start=False)

    assert plugin_threads() == []
    assert states(bus) == {"a": "registered"}
    assert bus.stop() == ()


def test_threads_are_daemons_named_after_what_they_serve(new_bus: NewBus) -> None:
    new_bus(Named("audit"), name="app.db")

    [thread] = [thread for thread in threading.enumerate() if thread.name.startswith("ares-plugin")]
    assert thread.name == "ares-plugin audit app.db"
    assert thread.daemon


def test_stopping_twice_stops_once(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(Living("a", log))

    bus.stop()
    bus.stop()

    assert log.lines == ["start a", "stop a"]


def test_a_bus_lives_once(new_bus: NewBus) -> None:
    bus = new_bus(Named("a"))
    with pytest.raises(UsageError):
        bus.start()
    bus.stop()

    with pytest.raises(UsageError):
        bus.start()


def test_start_starts_all_it_can_and_then_raises_one_group(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(
        Living("a", log),
        Living("b", log, start=raising(ValueError("no"))),
        Living("c", log),
        Living("d", log, start=raising(SystemExit(3))),
        start=False,
    )

    with pytest.raises(ExceptionGroup) as caught:
        bus.start()

    errors = caught.value.exceptions
    assert all(isinstance(error, PluginError) for error in errors)
    assert [(error.plugin, error.call) for error in errors] == [("b", "start"), ("d", "start")]  # type: ignore[union-attr]
    assert isinstance(errors[1], PluginCrashError)
    assert states(bus) == {"a": "running", "b": "failed", "c": "running", "d": "failed"}
    assert "no" in bus.health()["b"].last_error
    assert bus.stop() == ()
    assert log.lines == ["start a", "start b", "start c", "start d", "stop c", "stop a"]


def test_a_plugin_that_failed_is_out_of_hooks_and_directory_and_named_in_every_warning(new_bus: NewBus) -> None:
    class Failing(Servant):
        def start(self, ctx: Any, bus: EventBus) -> None:
            raise ValueError("no")

        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None: ...

    said = Said()
    bus = new_bus(Failing("broken"), Servant("sound"), start=False, say=said)

    with pytest.raises(ExceptionGroup):
        bus.start()

    assert not bus.stages.has_before
    assert [ref.name for ref in bus.plugins_by_cap(Capability.TOOL)] == ["sound"]
    for execution in ("e1", "e2"):
        bus.open_execution(execution, None)  # type: ignore[arg-type]  # nobody records
        assert ["broken" in line and "no" in line for line in bus.warnings(execution)] == [True]
        assert bus.warnings(execution) == ()
        assert bus.close_execution(execution) == ()
    assert [line for line in said.of("ERROR") if "broken" in line]


def test_a_required_plugin_that_fails_makes_the_bus_stop_what_started_in_reverse(new_bus: NewBus) -> None:
    log = Log()
    needed = Living("c", log, start=raising(ValueError("no")))
    needed.required = True
    bus = new_bus(
        Living("a", log, start=raising(KeyError("neither"))),
        Living("b1", log),
        Living("b2", log),
        needed,
        Living("d", log),
        start=False,
    )

    with pytest.raises(ExceptionGroup) as caught:
        bus.start()

    assert [error.plugin for error in caught.value.exceptions] == ["a", "c"]  # type: ignore[union-attr]
    assert log.lines == ["start a", "start b1", "start b2", "start c", "stop b2", "stop b1"]
    assert states(bus) == {"a": "failed", "b1": "stopped", "b2": "stopped", "c": "failed", "d": "registered"}


def test_every_interceptor_is_required(new_bus: NewBus) -> None:
    class Unready(Guard):
        required = False

        def start(self, ctx: Any, bus: EventBus) -> None:
            raise ValueError("no key")

    log = Log()
    bus = new_bus(Living("a", log), Unready("guard", lambda _step: None), start=False)

    with pytest.raises(ExceptionGroup, match="required plugin 'guard'"):
        bus.start()

    assert log.lines == ["start a", "stop a"]


def test_a_plugin_that_raises_at_stop_has_stopped_and_the_others_stop_all_the_same(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(
        Living("a", log), Living("b", log, stop=raising(ValueError("no"))), Living("c", log, stop=raising(SystemExit()))
    )

    errors = bus.stop()

    assert [(error.plugin, error.call) for error in errors] == [("c", "stop"), ("b", "stop")]
    assert log.lines[3:] == ["stop c", "stop b", "stop a"]
    assert states(bus) == dict.fromkeys("abc", "stopped")
    assert plugin_threads() == []


def test_a_start_that_hangs_costs_one_timeout_and_is_stopped_again_if_it_succeeds_late(
    new_bus: NewBus, gate: Gate
) -> None:
    log = Log()
    slow = Living("slow", log, start=gate.pass_through)
    slow.timeout = 0.05
    bus = new_bus(Living("a", log), slow, Living("c", log), start=False)

    with pytest.raises(ExceptionGroup) as caught:
        bus.start()

    [error] = caught.value.exceptions
    assert isinstance(error, PluginTimeoutError)
    assert states(bus) == {"a": "running", "slow": "failed", "c": "running"}
    gate.open()
    until(lambda: "stop slow" in log.lines)
    until(lambda: len(plugin_threads()) == 2)


def test_a_start_that_fails_late_is_not_stopped(new_bus: NewBus, gate: Gate) -> None:
    def late_failure(*_args: Any) -> None:
        gate.pass_through()
        raise ValueError("late")

    log = Log()
    slow = Living("slow", log, start=late_failure)
    slow.timeout = 0.05
    bus = new_bus(slow, start=False)
    with pytest.raises(ExceptionGroup):
        bus.start()

    gate.open()
    until(lambda: plugin_threads() == [])

    assert log.lines == ["start slow"]


def test_a_stop_that_hangs_costs_one_timeout_and_is_abandoned(new_bus: NewBus, gate: Gate) -> None:
    log = Log()
    slow = Living("slow", log, stop=gate.pass_through)
    slow.timeout = 0.05
    bus = new_bus(Living("a", log), slow)

    [error] = bus.stop()

    assert isinstance(error, PluginTimeoutError)
    assert states(bus) == {"a": "stopped", "slow": "abandoned"}
    assert log.lines[2:] == ["stop slow", "stop a"]


def test_stop_is_bounded_in_all(new_bus: NewBus, gate: Gate) -> None:
    log = Log()
    bus = new_bus(*(Living(f"p{n}", log, stop=gate.pass_through) for n in range(3)), timeout=LONG)
    began = time.monotonic()

    errors = bus.stop(timeout=0.5)

    assert time.monotonic() - began < 5
    assert len(errors) == 3
    assert set(states(bus).values()) == {"abandoned"}


def test_waiting_in_the_queue_and_stopping_together_are_bounded(new_bus: NewBus, gate: Gate) -> None:
    """It comes to its stop only just in time, and then hangs in it."""
    pause = threading.Event()

    class Slow(Servant):
        def stop(self, ctx: Any) -> None:
            gate.pass_through()

    bus = new_bus(Slow("slow", timeout=LONG))
    refs(bus)["slow"].ask("do", pause.wait, 1.0)
    began = time.monotonic()

    [error] = bus.stop(timeout=1.5)

    assert 1.4 < time.monotonic() - began < 2.3
    assert isinstance(error, PluginTimeoutError)
    assert states(bus) == {"slow": "abandoned"}


def test_a_plugin_that_hangs_in_a_call_does_not_hold_up_stop(new_bus: NewBus, gate: Gate) -> None:
    """Its timeout was paid when it was found to hang; stopping costs nothing more."""
    log = Log()

    class Stuck(Servant):
        def stop(self, ctx: Any) -> None:
            log.add("stop")

    bus = new_bus(Stuck("stuck", timeout=0.05))
    with pytest.raises(PluginTimeoutError):
        refs(bus)["stuck"].call("do", gate.pass_through)
    assert states(bus) == {"stuck": "unresponsive"}

    [error] = bus.stop()

    assert isinstance(error, PluginUnresponsiveError)
    assert states(bus) == {"stuck": "abandoned"}
    gate.open()
    until(lambda: plugin_threads() == [])
    assert log.lines == [], "nobody waits for its stop any more"


def test_calls_that_were_queued_before_are_served_before_stop(new_bus: NewBus, gate: Gate) -> None:
    log = Log()

    class Busy(Servant):
        def stop(self, ctx: Any) -> None:
            log.add("stop")

    bus = new_bus(Busy("busy"))
    ref = refs(bus)["busy"]
    ref.ask("do", gate.pass_through)
    gate.await_entry()
    answers = [ref.ask("do", log.add, n) for n in range(3)]
    stopping = in_thread(bus.stop)
    until(lambda: states(bus) == {"busy": "stopping"})

    gate.open()

    assert stopping() == ()
    assert all(answer.done() for answer in answers)
    assert log.lines == [0, 1, 2, "stop"]


def test_calls_behind_a_plugin_that_is_abandoned_are_answered(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Servant("busy"))
    ref = refs(bus)["busy"]
    first = ref.ask("do", gate.pass_through)
    gate.await_entry()
    queued = ref.ask("do", print)

    [error] = bus.stop(timeout=0.05)

    assert isinstance(error, PluginBusyError)
    for answer in (first, queued):
        with pytest.raises(PluginError):
            answer.result()


@pytest.mark.parametrize("moment", ["start", "call", "stop"])
def test_a_plugin_that_stops_its_own_bus_is_told_that_it_cannot(new_bus: NewBus, moment: str) -> None:
    caught = Log()

    def stop_it(*_args: Any) -> None:
        assert bus.is_inside()
        try:
            bus.stop()
        except UsageError as error:
            caught.add(str(error))

    plugin = Servant("suicidal")
    if moment != "call":
        setattr(plugin, moment, stop_it)
    bus = new_bus(plugin, start=False)
    bus.start()
    if moment == "call":
        refs(bus)["suicidal"].call("do", stop_it)

    assert not bus.is_inside()
    assert bus.stop() == ()
    assert len(caught.lines) == 1


def test_a_subscriber_may_stop_the_bus(new_bus: NewBus) -> None:
    bus = new_bus(Named("a"))
    subscription = bus.subscribe(EventFilter())

    def read() -> int:
        return sum(1 for _delivery in subscription if bus.stop() == ())

    reading = in_thread(read)
    bus.emit("e", "a.b", "test")

    assert reading() == 2  # and the event of the plugin's end
    assert states(bus) == {"a": "stopped"}


def test_stop_during_start_lets_the_starter_move_everybody_out(new_bus: NewBus, gate: Gate) -> None:
    log = Log()
    bus = new_bus(Living("a", log), Living("b", log, start=gate.pass_through), Living("c", log), start=False)
    starting = in_thread(bus.start)
    gate.await_entry()

    assert bus.stop(timeout=0.05) == ()
    gate.open()

    with pytest.raises(UsageError, match="stopped"):
        starting()
    assert log.lines == ["start a", "start b", "stop b", "stop a"]


def test_two_threads_may_stop_at_once(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(*(Living(f"p{n}", log) for n in range(5)))
    start = threading.Barrier(4)

    def stop() -> Any:
        start.wait(LONG)
        return bus.stop()

    joins = [in_thread(stop) for _ in range(4)]

    assert [join() for join in joins] == [()] * 4
    assert log.lines[5:] == [f"stop p{n}" for n in reversed(range(5))]


@pytest.mark.case("C028")
def test_a_hundred_failed_starts_leave_no_thread(new_bus: NewBus) -> None:
    baseline = threading.active_count()
    for _ in range(100):
        log = Log()
        strict = Living("c", log, start=raising(ValueError("bad path")))
        strict.required = True
        bus = new_bus(Living("a", log), Living("b", log), strict, Living("d", log), start=False)

        with pytest.raises(ExceptionGroup):
            bus.start()

        assert log.lines == ["start a", "start b", "start c", "stop b", "stop a"]
        assert threading.active_count() <= baseline  # one of an earlier test may have ended meanwhile


def test_three_hundred_buses_leave_no_thread_and_no_actor() -> None:
    import pykka

    baseline = threading.active_count(), len(pykka.ActorRegistry.get_all())
    for _ in range(300):
        bus = PluginBus()
        bus.register(Named("a"), Listener("b", lambda _delivery: None))
        bus.start()
        bus.subscribe(EventFilter())
        bus.before_step("e", step())
        bus.emit("e", "a.b", "test")
        bus.stop()

        assert threading.active_count() <= baseline[0]
    assert len(pykka.ActorRegistry.get_all()) == baseline[1]


def test_a_cycle_is_found_before_anybody_starts(new_bus: NewBus) -> None:
    log = Log()
    first, second = Living("a", log), Living("b", log)
    first.runs_after, second.runs_after = ("b",), ("a",)
    bus = new_bus(first, second, start=False)

    with pytest.raises(HookOrderError):
        bus.start()

    assert log.lines == []
    assert plugin_threads() == []


def test_what_a_plugin_is_handed_at_start_is_a_bus_and_a_directory(new_bus: NewBus) -> None:
    seen: list[Any] = []

    def look(ctx: Any, bus: Any) -> None:
        assert isinstance(bus, EventBus)
        assert isinstance(bus, PluginDirectory)
        seen.append([ref.name for ref in bus.plugins_by_cap(Capability.TOOL)])
        seen.append(bus.subscribe(EventFilter()))
        bus.emit("e", "hello.world", "look", {"from": "start"})

    bus = new_bus(Servant("earlier"), Living("looker", Log(), start=look), Servant("later"))

    assert seen[0] == ["earlier"]
    assert "hello.world" in {seen[1].get(0).event.type for _ in range(seen[1].pending)}
    bus.stop()
    assert seen[1].is_over
    assert seen[1].counts().pending == 0


def test_what_a_plugin_subscribed_to_ends_with_it(new_bus: NewBus) -> None:
    subscriptions: list[Any] = []
    plugin = Living("reader", Log(), start=lambda _ctx, bus: subscriptions.append(bus.subscribe(EventFilter())))
    bus = new_bus(plugin)
    reading = in_thread(lambda: [delivery.event.type for delivery in subscriptions[0]])

    bus.stop()

    assert "plugin.started" in reading()


@pytest.mark.case("C056")
def test_hooks_see_their_own_actors_context_and_do_not_change_the_callers(new_bus: NewBus) -> None:
    value: ContextVar[str] = ContextVar("value", default="unset")
    value.set("boot")
    seen = Log()

    class Reader(Named):
        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
            seen.add(value.get())
            value.set("plugin")

    bus = new_bus(Reader("reader"))
    value.set("caller")
    for _ in range(2):
        bus.before_step("e", step())

    assert seen.lines == ["unset", "plugin"]
    assert value.get() == "caller"


def test_a_renewed_bus_has_the_same_plugins_and_was_not_started(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(Living("a", log), name="app", timeout=3.0)

    with bus._population._lock:  # held by somebody who does not exist in the child
        again = in_thread(bus.renewed)()

    assert states(again) == {"a": "registered"}
    again.start()
    assert again.stop() == ()
    assert log.lines == ["start a", "start a", "stop a"]
    assert states(bus) == {"a": "running"}


@pytest.mark.parametrize("timeout", [0, -1, "3", True, float("inf")])
def test_the_timeout_of_a_bus_is_seconds(timeout: Any) -> None:
    with pytest.raises(UsageError, match="timeout"):
        PluginBus(timeout=timeout)


def test_no_thread_to_be_had_is_a_failure_of_the_plugin(new_bus: NewBus, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bus = new_bus(Named("a"), start=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ExceptionGroup) as caught:
            bus.start()

    assert "thread" in str(caught.value.exceptions[0])
    assert bus.health()["a"].state is PluginState.FAILED
