"""A plugin on a Runtime hurts itself alone: the walk goes on, the close returns, the process exits, the culprit is
named."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pykka
import pytest

from ares import EventFilter, ExecutionStatus, Runtime
from ares.bus import PluginState
from tests.bus.players import Gate, Listener, Log
from tests.engine.helpers import Child, Threads, chain, eventually, fan, seconds_since, single
from tests.plugins_on_runtime.players import (
    FLOOD,
    PLACES,
    SOON,
    Diary,
    Everywhere,
    await_hung,
    closes_generators,
    exits,
    floods,
    interrupts,
    is_strange,
    naming,
    raises,
)

Make = Callable[..., Runtime]

STEPS = 100
#: Places whose hooks are awaited while an execution can still be told of it.
TOLD = tuple(place for place in PLACES if place != "stop")


def hundred(rt: Runtime, *, until_hung: bool) -> Any:
    """A chain of a hundred steps; the last waits until the villain is known to hang, where nobody waits for it."""
    return chain(STEPS, lambda i: await_hung(rt, "villain") if until_hung and i == STEPS - 1 else i)


# --- raising -------------------------------------------------------------------------------------------


@pytest.mark.case("C019")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("deed", [raises, exits, interrupts, closes_generators, is_strange])
def test_a_plugin_that_raises_whatever_it_may_be_stops_nobody_and_is_named(
    runtime: Make, store: str | None, place: str, deed: Any
) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary("neighbour", log), Everywhere("villain", place, deed)])

    result = rt.run(chain(STEPS), execution_id="e")
    good = rt.run(fan(8))
    rt.close()

    assert result.status is good.status is ExecutionStatus.COMPLETED
    assert [line for line in log.lines if line[1] == "before_step"][:STEPS] == [
        ("neighbour", "before_step", f"s{i}") for i in range(STEPS)
    ]
    health = rt.health()
    assert health["neighbour"].errors == 0
    assert health["villain"].errors >= 1
    assert place in health["villain"].last_error
    assert health["villain"].state == (PluginState.FAILED if place == "start" else PluginState.STOPPED)
    if place in TOLD and place != "on_event":  # of which nobody knows when it comes
        assert naming(result, "villain")
        assert naming(good, "villain")


@pytest.mark.case("C019")
def test_what_raises_a_hundred_times_is_one_warning_with_a_count(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[Everywhere("villain", "before_step", raises)])

    result = rt.run(chain(STEPS))

    [warning] = naming(result, "villain")
    assert warning == f"plugin 'villain': before_step raised RuntimeError: villainy ({STEPS} times)"


def test_who_raised_during_one_execution_is_not_named_in_the_next(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[Everywhere("villain", "before_step", raises, once=True)])

    assert naming(rt.run(chain(2)), "villain")
    assert naming(rt.run(chain(2)), "villain") == []


# --- hanging -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_plugin_that_hangs_costs_one_timeout_in_all_and_is_named(
    runtime: Make, store: str | None, gate: Gate, place: str
) -> None:
    log = Log()
    villain = Everywhere("villain", place, gate.pass_through, timeout=SOON)
    rt = runtime(store, plugins=[Diary("neighbour", log), villain])
    began = time.monotonic()

    result = rt.run(hundred(rt, until_hung=place == "on_event"))
    took = seconds_since(began)
    state = rt.health()["villain"].state
    began = time.monotonic()
    rt.close()

    assert result.status is ExecutionStatus.COMPLETED
    assert villain.times == 1
    assert took < 10 * SOON
    assert seconds_since(began) < 5
    assert len([line for line in log.lines if line[1] == "after_step"]) == STEPS
    health = rt.health()["villain"]
    assert health.timeouts == 1
    assert place in health.last_error or place in str(result.warnings)
    if place == "stop":
        assert state is PluginState.RUNNING
        assert health.state is PluginState.ABANDONED
    else:
        assert naming(result, "villain")
        assert state is (PluginState.FAILED if place == "start" else PluginState.UNRESPONSIVE)


def test_many_executions_share_the_cost_of_one_that_hangs(runtime: Make, gate: Gate) -> None:
    rt = runtime(plugins=[Everywhere("villain", "before_step", gate.pass_through, timeout=SOON)], max_workers=4)
    began = time.monotonic()

    results = [execution.result(20) for execution in [rt.submit(chain(5)) for _ in range(20)]]

    assert all(result.status is ExecutionStatus.COMPLETED for result in results)
    assert all(naming(result, "villain") for result in results)
    assert seconds_since(began) < 10 * SOON
    assert rt.health()["villain"].timeouts == 1


def test_a_plugin_that_has_come_back_is_told_again(runtime: Make, gate: Gate) -> None:
    villain = Everywhere("villain", "before_step", gate.pass_through, timeout=SOON)
    rt = runtime(plugins=[villain])
    rt.run(chain(3))
    assert villain.times == 1

    gate.open()
    eventually(lambda: rt.health()["villain"].state is PluginState.RUNNING)
    again = rt.run(chain(3))

    assert villain.times == 4
    assert naming(again, "villain") == []


def test_the_hung_call_is_told_that_it_should_end(runtime: Make) -> None:
    """A plugin that looks at its context comes back by itself."""
    told: list[bool] = []

    def waits(_plugin: Everywhere, ctx: Any) -> None:
        told.append(ctx.wait(60))

    rt = runtime(plugins=[Everywhere("villain", "before_step", waits, timeout=0.1, once=True)])

    result = rt.run(chain(2))

    assert result.status is ExecutionStatus.COMPLETED
    eventually(lambda: told == [True])


def test_close_waits_for_a_hung_plugin_no_longer_than_its_timeout(runtime: Make, store: str | None, gate: Gate) -> None:
    threads = Threads()
    rt = runtime(store, plugins=[Everywhere("villain", "before_step", gate.pass_through, timeout=SOON)])
    rt.run(chain(2))
    began = time.monotonic()

    rt.close(timeout=0.1)

    assert seconds_since(began) < 3
    gate.open()
    eventually(threads.are_gone)


# --- flooding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "is_stored"), [*((place, False) for place in PLACES), ("before_step", True)])
def test_a_plugin_that_floods_the_bus_keeps_nobody_from_anything(
    runtime: Make, tmp_path: Path, place: str, is_stored: bool
) -> None:
    heard = Log()
    villain = Everywhere("villain", place, floods, once=True)
    ear = Listener("ear", heard.add, subscribes_to=EventFilter(types=["step.completed"]), buffer=1_000)
    wet = Listener("wet", lambda _delivery: None, subscribes_to=EventFilter(types=["flood.drop"]), buffer=10)
    rt = runtime(tmp_path / "ares.db" if is_stored else None, plugins=[ear, wet, villain])
    subscription = rt.bus.subscribe(EventFilter(types=["flood.drop"]), buffer=10)

    result = rt.run(chain(STEPS))
    rt.close()

    assert result.status is ExecutionStatus.COMPLETED
    assert len(heard.lines) == STEPS
    health = rt.health()
    assert health["ear"].events_dropped == 0
    assert health["villain"].timeouts == 0
    counts = subscription.counts()
    # The subscription is there before the plugins are, but a plugin listens from when it has started.
    assert counts.matched == FLOOD == counts.delivered + counts.dropped + counts.pending
    if place not in ("start", "stop"):
        wet_one = health["wet"]
        assert wet_one.events_matched == FLOOD == wet_one.events_delivered + wet_one.events_dropped


def test_what_a_flood_drops_of_an_execution_is_told_in_its_warnings(runtime: Make) -> None:
    wet = Listener("wet", lambda _delivery: None, subscribes_to=EventFilter(types=["flood.drop"]), buffer=10)
    rt = runtime(plugins=[wet, Everywhere("villain", "before_step", floods, once=True)])

    result = rt.run(chain(2))
    rt.close()

    [warning] = naming(result, "wet")
    assert warning.startswith("plugin 'wet' lost an event, its buffer was full (")
    assert rt.health()["wet"].events_dropped > FLOOD / 2


# --- all of it, and others beside it --------------------------------------------------------------------


class Citizen(pykka.ThreadingActor):
    """An actor of the host program that has nothing to do with any of this."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


@pytest.mark.slow
def test_all_villains_at_once(runtime: Make, store: str | None, gate: Gate) -> None:
    deeds: list[Any] = [raises, exits, interrupts, is_strange, gate.pass_through]
    log = Log()
    villains = [
        Everywhere(f"{place}-{number}", place, deed, timeout=SOON)
        for place in PLACES
        for number, deed in enumerate(deeds)
    ]
    citizen = Citizen.start()
    rt = runtime(store, plugins=[*villains, Diary("neighbour", log)])
    began = time.monotonic()

    result = rt.run(chain(STEPS))
    rt.close()

    assert result.status is ExecutionStatus.COMPLETED
    assert len([line for line in log.lines if line[1] == "after_step"]) == STEPS
    assert seconds_since(began) < 20
    assert all(health.timeouts <= 1 for health in rt.health().values())
    for villain in villains:
        if villain.place in ("start", "before_execution", "before_step", "after_step", "after_execution"):
            assert naming(result, villain.name), villain.name
    assert citizen.ask("alive?") == "alive?"
    citizen.stop()


def test_the_hosts_registry_has_none_of_the_actors_and_stops_none(runtime: Make, store: str | None) -> None:
    log = Log()
    citizen = Citizen.start()
    rt = runtime(store, plugins=[Diary("diary", log)])
    rt.run(chain(2)).raise_for_status()
    before = len(log.lines)

    assert pykka.ActorRegistry.get_all() == [citizen]
    pykka.ActorRegistry.stop_all()
    result = rt.run(chain(2))

    assert result.raise_for_status().warnings == ()
    assert len(log.lines) == 2 * before
    assert rt.health()["diary"].state is PluginState.RUNNING


def test_an_actor_of_the_host_outlives_plugins_that_crash(runtime: Make) -> None:
    citizen = Citizen.start()
    rt = runtime(plugins=[Everywhere(place, place, exits) for place in PLACES])

    rt.run(chain(3)).raise_for_status()
    rt.close()

    assert citizen.is_alive()
    assert citizen.ask("alive?") == "alive?"
    citizen.stop()


# --- a whole process ------------------------------------------------------------------------------------

PROGRAM = """
    import sys, time
    from ares import EventFilter, Plugin, Runtime, Workflow

    place, ends, file, deed = sys.argv[1:5]

    class Stuck(Plugin):
        name = "stuck"
        timeout = 0.3 if deed == "sleeps" else 30
        subscribes_to = EventFilter(types=["step.completed"])
        def hang(self, where):
            if where != place:
                return
            if deed == "sleeps": time.sleep(3600)
            if deed == "raises": raise RuntimeError("villainy")
            if deed == "exits": sys.exit(3)
            while deed == "floods" and not self.is_flooded:
                self.flood()
        is_flooded = False
        def flood(self):
            self.is_flooded = True
            for n in range(100_000):
                rt.bus.emit("flood", "flood.drop", "stuck", {"n": n})
        def start(self, ctx, bus): self.hang("start")
        def stop(self, ctx): self.hang("stop")
        def before_execution(self, ctx, execution): self.hang("before_execution")
        def before_step(self, ctx, execution_id, step): self.hang("before_step")
        def after_step(self, ctx, execution_id, result): self.hang("after_step")
        def after_execution(self, ctx, outcome): self.hang("after_execution")
        def on_event(self, ctx, delivery): self.hang("on_event")

    wf = Workflow("w")
    for i in range(100):
        wf.step(lambda i=i: i, id=f"s{i}", depends_on=[f"s{i - 1}"] if i else [])
    rt = Runtime(file or None, plugins=[Stuck()])
    result = rt.run(wf)
    assert str(result.status) == "COMPLETED", result
    if ends == "closed":
        rt.close()
    print(time.time(), flush=True)
"""


@pytest.mark.parametrize("ends", ["closed", "never closed"])
@pytest.mark.parametrize("place", PLACES)
def test_a_process_whose_plugin_sleeps_for_an_hour_exits_within_two_seconds(
    tmp_path: Path, place: str, ends: str
) -> None:
    file = str(tmp_path / "ares.db") if place in ("before_step", "stop") else ""
    exits_in_time(place, ends, file, "sleeps")


@pytest.mark.parametrize("deed", ["raises", "exits", "floods"])
@pytest.mark.parametrize("place", ["start", "before_step", "on_event", "stop"])
def test_a_process_exits_within_two_seconds_whatever_its_plugin_does(place: str, deed: str) -> None:
    exits_in_time(place, "never closed", "", deed)


def exits_in_time(place: str, ends: str, file: str, deed: str) -> None:
    with Child(PROGRAM, place, ends, file, deed) as child:
        worked = float(child.hear())
        code, _, err = child.finish()
    took = time.time() - worked

    assert code == 0, err
    assert err == ""
    assert took < 2


def test_a_process_with_many_open_runtimes_whose_plugins_hang_exits_within_two_seconds() -> None:
    program = """
        import time
        from ares import Plugin, Runtime, Workflow

        class Stuck(Plugin):
            timeout = 0.1
            def __init__(self, place): self.name, self.place = place, place
            def before_step(self, ctx, execution_id, step): self.place == "step" and time.sleep(3600)
            def stop(self, ctx): self.place == "stop" and time.sleep(3600)

        wf = Workflow("w")
        wf.step(lambda: 1, id="body")
        runtimes = [Runtime(plugins=[Stuck("step"), Stuck("stop")]) for _ in range(5)]
        for rt in runtimes:
            rt.run(wf).raise_for_status()
        print(time.time(), flush=True)
    """
    with Child(program) as child:
        worked = float(child.hear())
        code, _, err = child.finish()
    took = time.time() - worked

    assert (code, err) == (0, "")
    assert took < 2


def test_the_plugins_of_a_runtime_that_nobody_closed_are_stopped_at_exit() -> None:
    program = """
        from ares import Plugin, Runtime, Workflow

        class Polite(Plugin):
            name = "polite"
            def stop(self, ctx): print("stopped", flush=True)

        wf = Workflow("w")
        wf.step(lambda: 1, id="body")

        def work():
            Runtime(plugins=[Polite()]).run(wf).raise_for_status()

        work()
        print("worked", flush=True)
    """
    with Child(program) as child:
        said = child.result()

    assert said == "worked\nstopped\n"


def test_a_step_of_a_hung_plugin_is_not_what_times_out(runtime: Make, gate: Gate) -> None:
    """Hooks are awaited outside the step's own timeout."""
    rt = runtime(plugins=[Everywhere("villain", "before_step", gate.pass_through, timeout=SOON)])

    result = rt.run(single(lambda: "in time", timeout=SOON / 2))

    assert result.raise_for_status().outputs == {"body": "in time"}
