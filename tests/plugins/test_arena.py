"""An arena makes plugins, steps and the store go wrong: as it was told, where it was told, and then no more."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ares.plugins
from ares import EventFilter, ExecutionStatus, RecoveryPolicy, RetryPolicy, Runtime, StepContext, StepSpec, Workflow
from ares.bus import PluginBus, PluginState
from ares.context import Context
from ares.errors import (
    InjectedError,
    InjectedPanic,
    PluginCrashError,
    PluginError,
    StepTimeoutError,
    StoreError,
    UsageError,
)
from ares.plugin import Capability, Plugin
from ares.plugins import ArenaPlugin, FaultKind, FaultTargetKind
from ares.plugins._faults import Fault, Place, Schedule, draw
from ares.stores.sqlite import SqliteStore
from ares.stores.volatile import VolatileStore
from benchmarks.arena import cells, matrix, seeds
from benchmarks.ring import BY_NAME, Ring
from tests.bus.players import LONG, Guard, Log, Servant, Watcher, in_thread, refs, step
from tests.engine.helpers import Child, Threads, chain, events_of, eventually, fan, single
from tests.plugin.test_contracts import Everything
from tests.plugins_on_runtime.players import Diary, naming
from tests.sampling import some

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]

TIMEOUT = 0.2


class Ledger(Watcher):
    """Observes steps, keeps something back, and has a capability to be found by."""

    capabilities = frozenset({Capability.OBSERVER})

    def __init__(self, name: str = "ledger", **more: Any) -> None:
        super().__init__(name, Log(), **more)

    def flush(self, ctx: Context, execution_id: str) -> None:
        self.log.add(f"{self.name}.flush")


def struck(arena: ArenaPlugin) -> list[tuple[str, str, str]]:
    return [(fired.name, fired.call, fired.path) for fired in arena.report().fired]


def faults_in(rt: Runtime, execution_id: str) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in events_of(rt, execution_id) if event.type == "fault.injected"]


# --- which calls ---------------------------------------------------------------------------------------


def test_a_fault_strikes_once_unless_it_is_told_how_often(new_bus: NewBus) -> None:
    ledger, arena = Ledger(), ArenaPlugin()
    bus = new_bus(ledger)

    with arena.injecting(bus):
        fault = arena.schedule_fault("ledger", call="before_step")
        bus.before_step("e", step("p"))
        assert arena.faults == ()
        bus.before_step("e", step("q"))
        thrice = arena.schedule_fault("ledger", call="after_step", times=3)
        assert arena.faults == (thrice,)

    assert (fault.times, thrice.times) == (1, 3)
    assert struck(arena) == [("ledger", "before_step", "p")]
    assert arena.report().unfired == (thrice,)
    assert ledger.log.lines == ["ledger.before"]
    assert bus.health()["ledger"].faults == 1


def test_a_fault_strikes_only_the_plugin_call_and_step_that_it_names(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger("a"), Ledger("b"))

    with arena.injecting(bus):
        arena.schedule_fault("b", "panic", call="before_step", path="q", probability=1.0)
        for path in ("p", "q", "q/r"):
            bus.before_step("e", step(path))
        refs(bus)["b"].call("flush", "e")

    assert struck(arena) == [("b", "before_step", "q")]


def test_a_fault_of_a_capability_strikes_any_plugin_that_has_it(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger("a"), Servant("b"), Ledger("c"))

    with arena.injecting(bus):
        arena.schedule_fault(capability="observer", call="flush", probability=1.0)
        for name in "ac":
            with pytest.raises(PluginError):
                refs(bus)[name].call("flush", "e")
        assert refs(bus)["b"].call("do", str, 1) == "1"

    assert [name for name, _, _ in struck(arena)] == ["a", "c"]


def test_a_fault_without_a_call_strikes_in_any_start_and_stop_among_them(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger(), start=False)

    with arena.injecting(bus):
        arena.schedule_fault("ledger", "delay", seconds=0.001, probability=1.0)
        bus.start()
        bus.before_step("e", step())
        bus.stop()

    assert [call for _, call, _ in struck(arena)] == ["before_step", "start", "stop"]


@pytest.mark.parametrize("kind", ["error", "panic", "timeout"])
def test_a_plugin_that_does_not_start_by_a_fault_is_left_out_and_named(runtime: Make, kind: str) -> None:
    arena = ArenaPlugin()
    rt = runtime(plugins=[Ledger("other"), Ledger()], plugin_timeout=TIMEOUT)

    with arena.injecting(rt.bus):
        arena.schedule_fault("ledger", kind, call="start")
        result = rt.run(chain(2)).raise_for_status()

    assert naming(result, "ledger")
    assert "inject" in naming(result, "ledger")[0]
    assert rt.health()["ledger"].state is PluginState.FAILED
    assert rt.health()["other"].state is PluginState.RUNNING


def test_a_required_plugin_that_does_not_start_once_starts_the_next_time(runtime: Make) -> None:
    arena = ArenaPlugin()
    rt = runtime(plugins=[Guard("guard", lambda _: None)])

    with arena.injecting(rt.bus):
        arena.schedule_fault("guard", call="start")
        with pytest.raises(ExceptionGroup, match="guard"):
            rt.run(chain(2))
        rt.run(chain(2)).raise_for_status()
        arena.schedule_fault("guard", call="before_step")
        assert rt.run(chain(2)).status is ExecutionStatus.FAILED

    assert len(arena.report().fired) == 2
    rt.run(chain(2)).raise_for_status()


def test_who_was_refused_by_a_broken_interceptor_is_not_recovered(runtime: Make, store: str | None) -> None:
    arena, ran = ArenaPlugin(), Log()
    for strategy in ("skip", "retry"):
        rt = runtime(store, plugins=[Guard("guard", lambda _: None)])
        wf = single(lambda: ran.add(1), recovery=RecoveryPolicy(strategy), retry=RetryPolicy(2, initial_delay=0))

        with arena.injecting(rt.bus):
            arena.schedule_fault("guard", call="before_step", times=2)
            result = rt.run(wf)

        assert result.status is ExecutionStatus.FAILED
        assert ran.lines == []
        rt.close()


# --- chance ----------------------------------------------------------------------------------------------


def test_a_draw_is_the_same_in_every_process_and_version() -> None:
    place = Place(FaultTargetKind.PLUGIN, "ledger", "after_step", "", "measure[3]", 1, 2)

    assert draw(7, FaultKind.ERROR, place) == 0.2027738783053039


def test_draws_are_spread_evenly_over_the_numbers_below_one() -> None:
    drawn = [
        draw(seed, kind, Place(FaultTargetKind.STEP, "\ud800", "body", "", f"s[{index}]", round_, 1))
        for seed in (-1, 0, 1, 10**30)
        for kind in FaultKind
        for index in range(100)
        for round_ in (1, 2)
    ]
    assert len(set(drawn)) == len(drawn)
    assert 0 <= min(drawn) <= max(drawn) < 1

    for tenth in range(10):
        share = sum(1 for each in drawn if tenth / 10 <= each < (tenth + 1) / 10) / len(drawn)
        assert 0.08 < share < 0.12


@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["", "start", "flush"]), st.integers(1, 3))),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["start", "flush"]), st.sampled_from(["p", "q"]))),
)
def test_a_schedule_is_what_a_list_of_faults_would_be(seed: int, planned: Any, calls: Any) -> None:
    schedule = Schedule(seed)
    left: list[list[Any]] = []
    for number, (name, call, times) in enumerate(planned, 1):
        fault = Fault(number, FaultKind.ERROR, FaultTargetKind.PLUGIN, name, call=call, times=times, probability=0.6)
        schedule.add(fault)
        left.append([fault, times])
    for name, call, path in calls:
        place = Place(FaultTargetKind.PLUGIN, name, call, path=path)
        expected = None
        for line in left:
            fits = line[0].name in ("", name) and line[0].call in ("", call) and line[1]
            if fits and draw(seed, FaultKind.ERROR, place) < 0.6:
                line[1] -= 1
                expected = line[0]
                break
        assert schedule.strike(place, frozenset(), "e") is expected

    assert schedule.faults == tuple(fault for fault, times in left if times)
    assert dict(schedule.report().counts) == {fault: fault.times - times for fault, times in left}


def chanced(rt: Runtime, seed: int) -> Any:
    """What strikes by a seed, in many executions of one workflow."""
    arena = ArenaPlugin(seed=seed)
    with arena.injecting(rt.bus):
        arena.schedule_fault("ledger", "panic", call="before_step", probability=0.3)
        arena.schedule_fault("ledger", call="after_step", probability=0.3)
        for execution in [rt.submit(fan(16), execution_id=f"{seed}-{os.urandom(4).hex()}") for _ in range(3)]:
            assert execution.result(LONG).status is ExecutionStatus.COMPLETED
    return arena.report().fired


def test_a_run_meets_the_same_faults_whenever_it_is_replayed_from_its_seed(runtime: Make) -> None:
    many, one = (runtime(plugins=[Ledger()], max_workers=workers) for workers in (8, 1))

    first = chanced(many, 7)

    assert 0 < len(first) < 2 * 3 * 17
    assert chanced(many, 7) == first
    assert chanced(one, 7) == first
    assert chanced(many, 8) != first
    # Three executions of one workflow share every draw.
    assert len(set(first)) * 3 == len(first)


# --- taken back -----------------------------------------------------------------------------------------------


@pytest.mark.case("C058")
@pytest.mark.parametrize("keeps", [SqliteStore, lambda _: VolatileStore()])
def test_faults_are_taken_back_after_the_run_that_they_were_for(runtime: Make, tmp_path: Path, keeps: Any) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(keeps(tmp_path / "ares.db")), plugins=[arena, Ledger()], around_step=arena.steps())
    wf = Workflow("experiment")
    wf.step(lambda: 1, id="a")
    wf.step(lambda a: a + 1, id="b")
    rt.start()

    with arena.injecting():
        arena.schedule_step_fault("b")
        arena.schedule_store_fault("delay", seconds=0.002, probability=1.0)
        arena.schedule_fault("ledger", call="after_step", probability=1.0)
        failed = rt.run(wf, execution_id="first")
        assert rt.health()["ledger"].faults_on
    before = arena.report()
    second = rt.run(wf, execution_id="second")

    assert failed.status is ExecutionStatus.FAILED
    assert isinstance(failed.error, InjectedError)
    assert {fired.target for fired in before.fired} == {"step", "store", "plugin"}
    assert arena.faults == ()
    assert second.outputs == {"a": 1, "b": 2}
    assert second.warnings == ()
    assert arena.report() == before
    eventually(lambda: len(faults_in(rt, "first")) >= 1)
    assert {told["by"] for told in faults_in(rt, "first")} == {"arena"}
    assert faults_in(rt, "second") == []
    assert not rt.health()["ledger"].faults_on


@pytest.mark.case("C058")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, UsageError])
def test_faults_are_taken_back_when_the_trial_itself_fails(new_bus: NewBus, error: type[BaseException]) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger())

    def trial() -> None:
        with arena.injecting(bus):
            arena.schedule_fault("ledger", probability=1.0)
            if error is UsageError:
                arena.schedule_fault("nobody")
            raise error

    with pytest.raises(error):
        trial()

    assert arena.faults == ()
    assert not bus.fault_points.is_open
    bus.before_step("e", step())
    assert bus.health()["ledger"].faults == 0


@pytest.mark.case("C058")
def test_faults_strike_and_are_taken_back_though_the_arena_cannot_tell_of_them(runtime: Make, tmp_path: Path) -> None:
    class Mute:
        """A bus in a decorator that has lost its voice."""

        def __init__(self, bus: Any) -> None:
            self.fault_points = bus.fault_points

        def emit(self, *_: Any) -> None:
            raise OSError("no voice")

    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(tmp_path / "ares.db")))
    rt.start()

    with arena.injecting(Mute(rt.bus)):
        arena.schedule_store_fault("delay", seconds=0.001)
        rt.run(chain(2)).raise_for_status()

    assert len(arena.report().fired) == 1
    assert arena.report().problems == ("a fault of the store could not be told: no voice",)
    assert (arena.faults, rt.bus.fault_points.is_open) == ((), False)


def test_what_hangs_goes_on_when_the_trial_ends(runtime: Make, tmp_path: Path) -> None:
    arena = ArenaPlugin()
    store = arena.store(SqliteStore(tmp_path / "ares.db"))
    rt = runtime(store, plugins=[Ledger()], around_step=arena.steps(), plugin_timeout=LONG)
    began = time.monotonic()

    with arena.injecting(rt.bus):
        arena.schedule_fault("ledger", "timeout", call="before_step")
        arena.schedule_step_fault("s1", "timeout")
        arena.schedule_store_fault("delay", seconds=LONG, path="s2")
        execution = rt.submit(fan(3))
        eventually(lambda: len(arena.report().fired) >= 2)
    result = execution.result(LONG)

    assert time.monotonic() - began < LONG / 2
    assert result.steps["s0"].status == "COMPLETED"


def test_who_hung_is_called_again_as_soon_as_the_trial_is_over(runtime: Make) -> None:
    arena = ArenaPlugin()
    rt = runtime(plugins=[Ledger()], plugin_timeout=TIMEOUT)

    for _ in range(3):
        with arena.injecting(rt.bus):
            arena.schedule_fault("ledger", "timeout", call="after_step", path="s1")
            assert naming(rt.run(chain(2)), "ledger")
        assert rt.run(chain(2)).warnings == ()


def test_a_fault_that_was_cancelled_strikes_no_more(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger())

    with arena.injecting(bus):
        fault = arena.schedule_fault("ledger", call="before_step", times=2)
        bus.before_step("e", step("p"))
        assert arena.cancel_fault(fault)
        assert not arena.cancel_fault(fault)
        bus.before_step("e", step("q"))

    assert struck(arena) == [("ledger", "before_step", "p")]
    assert arena.report().counts == ((fault, 1),)
    assert not ArenaPlugin().cancel_fault(fault)


def test_nothing_strikes_outside_of_a_trial(runtime: Make, tmp_path: Path) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(tmp_path / "ares.db")), plugins=[arena, Ledger()], around_step=arena.steps())
    faults = (
        arena.schedule_fault("ledger", probability=1.0),
        arena.schedule_step_fault(),
        arena.schedule_store_fault(),
    )

    result = rt.run(chain(3)).raise_for_status()

    assert result.warnings == ()
    assert (arena.faults, arena.report().unfired) == (faults, faults)


def test_a_trial_has_what_was_scheduled_before_it_and_a_report_of_its_own(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(seed=3), new_bus(Ledger())
    arena.schedule_fault("ledger", call="before_step")
    with arena.injecting(bus):
        bus.before_step("e", step("p"))
    first = arena.report()

    unfired = arena.schedule_fault("ledger", call="after_step")
    with arena.injecting(bus):
        bus.before_step("e", step("q"))

    assert (
        str(first)
        == "seed 3: 1 faults fired, 0 did not\n  fired: error in before_step of plugin 'ledger' at p round 1 attempt 1"
    )
    assert str(arena.report()) == f"seed 3: 0 faults fired, 1 did not\n  unfired: {unfired}"
    assert str(unfired) == "error in after_step of plugin 'ledger', once"


def test_the_fork_of_a_process_in_a_trial_is_in_none(tmp_path: Path) -> None:
    program = """
        import os, sys
        from ares import Runtime
        from ares.plugins import ArenaPlugin
        from ares.stores.sqlite import SqliteStore
        from tests.engine.helpers import chain
        from tests.plugins.test_arena import Ledger

        arena = ArenaPlugin()
        rt = Runtime(arena.store(SqliteStore(sys.argv[1])), plugins=[arena, Ledger()], around_step=arena.steps())
        rt.start()
        with arena.injecting(rt.bus):
            arena.schedule_step_fault(times=1_000)
            arena.schedule_fault("ledger", times=1_000)
            pid = os.fork()
            if pid == 0:
                with Runtime(plugins=[arena, Ledger()], around_step=arena.steps()) as mine:
                    ok = mine.run(chain(2)).status == "COMPLETED" and arena.faults == ()
                    with arena.injecting(mine.bus):
                        arena.schedule_step_fault("s0")
                        ok = ok and mine.run(chain(2)).status == "FAILED"
                os._exit(0 if ok else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), rt.run(chain(2)).status)
        rt.close()
    """
    with Child(program, str(tmp_path / "ares.db")) as child:
        assert child.result() == "0 FAILED\n"


# --- steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("kind", "error"), [("error", InjectedError), ("panic", InjectedPanic)])
def test_a_step_fails_before_its_body_or_after_it(
    runtime: Make, store: str | None, kind: str, error: type[BaseException], late: bool
) -> None:
    arena, ran = ArenaPlugin(), Log()
    rt = runtime(store, around_step=arena.steps())

    with arena.injecting(rt.bus):
        arena.schedule_step_fault("s1", kind, late=late)
        result = rt.run(chain(3, ran.add), execution_id="e")

    assert type(result.error) is error
    assert str(result.error) == "injected by 'arena' into step 's1'"
    assert ran.lines == ([0, 1] if late else [0])
    told = {"step": "s1", "fault": kind, "by": "arena", "path": "s1", "round": 1, "attempt": 1}
    assert faults_in(rt, "e") == [told]


def test_an_element_of_a_map_is_struck_by_its_path_and_tried_again(runtime: Make) -> None:
    arena = ArenaPlugin()
    rt = runtime(around_step=arena.steps(), max_workers=4)
    wf = Workflow("map")
    wf.step(lambda: [1, 2, 3], id="numbers")
    wf.step(lambda item: item, id="each", map_over="numbers", retry=RetryPolicy(3, initial_delay=0))

    with arena.injecting(rt.bus):
        arena.schedule_step_fault("each[1]", times=2)
        result = rt.run(wf).raise_for_status()

    assert result.outputs["each"] == [1, 2, 3]
    assert result.steps["each[1]"].attempts == 3
    assert struck(arena) == [("each", "body", "each[1]")] * 2


def test_a_step_is_named_by_its_id_wherever_it_is(runtime: Make) -> None:
    arena = ArenaPlugin()
    rt = runtime(around_step=arena.steps(), max_workers=4)
    child = Workflow("child")
    child.step(lambda: 1, id="each")
    wf = Workflow("parent")
    wf.step(lambda: [1, 2], id="numbers")
    wf.step(lambda item: item, id="each", map_over="numbers")
    wf.add(StepSpec("part", workflow=child))

    with arena.injecting(rt.bus):
        arena.schedule_step_fault("each", "delay", seconds=0.001, probability=1.0)
        rt.run(wf).raise_for_status()
        assert [path for _, _, path in struck(arena)] == ["each[0]", "each[1]", "part/each"]
    with arena.injecting(rt.bus):
        arena.schedule_step_fault("part/each", probability=1.0)
        rt.run(wf)
        assert [path for _, _, path in struck(arena)] == ["part/each"]


def test_a_step_that_hangs_runs_into_its_timeout_and_leaves_no_thread(runtime: Make) -> None:
    arena, threads = ArenaPlugin(), Threads()
    rt = runtime(around_step=arena.steps())

    with arena.injecting(rt.bus):
        arena.schedule_step_fault("body", "timeout")
        result = rt.run(single(lambda: 1, timeout=0.05))
        assert isinstance(result.error, StepTimeoutError)
        rt.close()
        eventually(lambda: threads.are_gone("ares-worker", "ares-step"))


def test_a_delayed_step_gives_what_it_gives(runtime: Make) -> None:
    arena = ArenaPlugin()
    rt = runtime(around_step=arena.steps())

    with arena.injecting(rt.bus):
        arena.schedule_step_fault("body", "delay", seconds=0.05)
        result = rt.run(single(lambda: 1)).raise_for_status()

    assert result.output("body") == 1
    assert result.steps["body"].duration >= 0.05


def test_faults_strike_inside_of_what_else_is_around_a_step(runtime: Make) -> None:
    arena, log = ArenaPlugin(), Log()

    @contextmanager
    def around(ctx: StepContext) -> Iterator[None]:
        log.add("in")
        try:
            yield
        except InjectedError:
            log.add("hurt")
            raise
        finally:
            log.add("out")

    rt = runtime(around_step=arena.steps(around))
    with arena.injecting(rt.bus):
        arena.schedule_step_fault("body")
        assert rt.run(single(lambda: log.add("body"))).status is ExecutionStatus.FAILED
        rt.run(single(lambda: log.add("body"))).raise_for_status()

    assert log.lines == ["in", "hurt", "out", "in", "body", "out"]


def test_a_fault_that_is_swallowed_around_a_step_fails_it_all_the_same(runtime: Make) -> None:
    arena, log = ArenaPlugin(), Log()
    rt = runtime(around_step=arena.steps(lambda _ctx: suppress(BaseException)))

    with arena.injecting(rt.bus):
        for late in (False, True):
            arena.schedule_step_fault("body", late=late)
            result = rt.run(single(lambda: log.add("body")))
            assert result.status is ExecutionStatus.FAILED

    assert log.lines == ["body"]


# --- the store ------------------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "ares.db"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["error", "panic"])
def test_a_store_that_fails_ends_the_walk_and_it_can_be_resumed(runtime: Make, db: Path, kind: str, late: bool) -> None:
    arena, ran = ArenaPlugin(), Log()
    rt = runtime(arena.store(SqliteStore(db)))
    wf = chain(3, ran.add)

    with arena.injecting(rt.bus):
        arena.schedule_store_fault(kind, path="s1", late=late)
        with pytest.raises(StoreError, match="inject"):
            rt.run(wf, execution_id="e")
        stored = list(SqliteStore(db).entries("e"))
    result = rt.resume("e", wf).raise_for_status()

    assert any(entry.path == "s1" for entry in stored) is late
    assert result.outputs == {"s0": None, "s1": None, "s2": None}
    assert ran.lines == ([0, 1, 2] if late else [0, 1, 1, 2])


def test_a_store_that_is_slow_costs_time_and_nothing_else(runtime: Make, db: Path) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(db)))
    rt.start()
    began = time.monotonic()

    with arena.injecting(rt.bus):
        arena.schedule_store_fault("delay", seconds=0.03, probability=1.0)
        result = rt.run(chain(3)).raise_for_status()

    assert result.warnings == ()
    assert time.monotonic() - began >= 3 * 0.03


def test_in_best_effort_a_store_that_fails_for_a_while_is_a_warning(runtime: Make, db: Path) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(db)), durability="best_effort")

    with arena.injecting(rt.bus):
        arena.schedule_store_fault(path="s0")
        # Its end would not be tried again: the claim is given back then.
        wf = chain(3, lambda i: i == 2 and eventually(lambda: arena.report().fired))
        result = rt.run(wf, execution_id="e").raise_for_status()

    assert "injected by 'arena'" in str(result.warnings)
    rt.close()
    with Runtime(db) as other:
        assert other.checkpoint("e").status is ExecutionStatus.COMPLETED


def test_other_calls_of_a_store_fail_too(runtime: Make, db: Path) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(db)))
    rt.start()

    with arena.injecting(rt.bus):
        arena.schedule_store_fault(call="create")
        with pytest.raises(StoreError, match=r"create failed, injected by 'arena' \(execution 'e'\)"):
            rt.run(chain(2), execution_id="e")
        rt.run(chain(2), execution_id="e").raise_for_status()

    assert [fired.execution_id for fired in arena.report().fired] == ["e"]


def test_a_fault_of_the_store_is_told_on_the_bus_and_breeds_no_other(runtime: Make, db: Path) -> None:
    arena = ArenaPlugin()
    rt = runtime(arena.store(SqliteStore(db)), plugins=[arena])
    rt.start()
    heard = rt.bus.subscribe(EventFilter(types=["fault.injected"], journaled=False))

    with arena.injecting(rt.bus):
        arena.schedule_store_fault("delay", seconds=0.001, probability=1.0)
        rt.run(chain(2), execution_id="e").raise_for_status()
        rt.close()
        fired = [fired for fired in arena.report().fired if fired.call == "append"]

    assert heard.matched == len(fired) <= 10
    told = heard.get(1)
    assert told is not None
    assert (told.event.stream_id, told.event.module, told.event.payload["fault"]) == ("e", "arena", "delay")


def test_a_wrapped_store_is_the_store_that_it_wraps(runtime: Make, db: Path) -> None:
    inner = SqliteStore(db)
    wrapped = ArenaPlugin().store(inner)

    assert wrapped.name == inner.name
    assert not wrapped.keeps_references
    assert repr(wrapped) == f"<FaultyStore around {inner!r}>"
    with pytest.raises(AttributeError):
        wrapped.nothing  # type: ignore[attr-defined]  # noqa: B018
    with Runtime(wrapped) as rt:
        rt.run(chain(2), execution_id="e").raise_for_status()
        assert [each.execution_id for each in rt.executions()] == ["e"]


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"plugin": "ledgre"}, "there is no plugin 'ledgre' on this bus.* there are ledger, other"),
        ({"plugin": "ledger", "call": "before_stpe"}, "ledger has no call 'before_stpe'; there are after_step, befor"),
        ({"plugin": "ledger", "call": "route"}, "ledger has no call 'route'"),
        ({"capability": "router"}, "no plugin with capability 'router' on this bus.* there are observer"),
        ({"capability": "observer", "call": "route"}, "ledger, other has no call 'route'"),
        ({"capability": "observers"}, "'observers' is no capability; there are observer, checkpoint"),
        ({}, "name one of the two"),
        ({"plugin": "ledger", "capability": "observer"}, "name one of the two"),
        ({"plugin": ""}, "the name of a plugin must be a non-empty str, not ''"),
        ({"plugin": 3}, "the name of a plugin must be a non-empty str, not 3"),
        ({"plugin": "ledger", "call": 3}, "the call of a fault must be a non-empty str, not 3"),
        ({"plugin": "ledger", "path": ""}, "the path of a step must be a non-empty str, not ''"),
        ({"plugin": "ledger", "kind": "explosion"}, "one of error, panic, timeout, delay here, not 'explosion'"),
        ({"plugin": "ledger", "kind": []}, r"one of error, panic, timeout, delay here, not \[\]"),
        ({"plugin": "ledger", "probability": 0}, "probability of a fault must be .* not 0"),
        ({"plugin": "ledger", "probability": 1.1}, "probability of a fault must be .* not 1.1"),
        ({"plugin": "ledger", "probability": float("nan")}, "probability of a fault must be .* not nan"),
        ({"plugin": "ledger", "probability": True}, "probability of a fault must be .* not True"),
        ({"plugin": "ledger", "probability": "0.5"}, "probability of a fault must be .* not '0.5'"),
        ({"plugin": "ledger", "times": 0}, "a number of times from 1, not 0"),
        ({"plugin": "ledger", "times": True}, "a number of times from 1, not True"),
        ({"plugin": "ledger", "times": 1.5}, "a number of times from 1, not 1.5"),
        ({"plugin": "ledger", "kind": "delay"}, "a delay takes seconds, a number above 0, not None"),
        ({"plugin": "ledger", "kind": "delay", "seconds": -1}, "a delay takes seconds, a number above 0, not -1"),
        ({"plugin": "ledger", "kind": "delay", "seconds": float("inf")}, "a delay takes seconds"),
        ({"plugin": "ledger", "seconds": 1}, "only a delay takes seconds, not a fault of kind 'error'"),
        ({"plugin": "ledger", "late": 1}, "late must be True or False, not 1"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_and_said(new_bus: NewBus, arguments: dict[str, Any], says: str) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger(), Ledger("other"))

    with arena.injecting(bus), pytest.raises(UsageError, match=says):
        arena.schedule_fault(**arguments)

    assert arena.report().counts == ()


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (lambda arena: arena.schedule_step_fault(""), "the id or path of a step must be a non-empty str, not ''"),
        (lambda arena: arena.schedule_step_fault("s", "no"), "one of error, panic, timeout, delay here, not 'no'"),
        (lambda arena: arena.schedule_store_fault("timeout"), "one of error, panic, delay here, not 'timeout'"),
        (lambda arena: arena.schedule_store_fault(call="write"), "a store has no call 'write'; there are append, beat"),
        (lambda arena: arena.schedule_store_fault(call=["append"]), "a store has no call"),
        (lambda arena: arena.store("ares.db"), "takes a store object, such as .* not 'ares.db'"),
        (lambda arena: arena.store([]), "takes a store object"),
        (lambda arena: ArenaPlugin(seed="x"), "the seed of an arena must be an int, not 'x'"),
        (lambda arena: ArenaPlugin(seed=True), "the seed of an arena must be an int, not True"),
    ],
)
def test_what_no_arena_can_do_is_refused_and_said(schedule: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        schedule(ArenaPlugin())


def test_what_was_scheduled_for_nobody_is_refused_when_it_is_to_begin(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger())
    fault = arena.schedule_fault("nobody")

    with pytest.raises(UsageError, match="no plugin 'nobody'"), arena.injecting(bus):
        pass

    assert not bus.fault_points.is_open
    arena.cancel_fault(fault)
    with arena.injecting(bus):
        assert bus.fault_points.is_open


def test_a_trial_needs_a_bus_with_fault_points_and_there_is_one_at_a_time(new_bus: NewBus) -> None:
    arena, other, bus = ArenaPlugin(), ArenaPlugin("other"), new_bus()

    for on, says in ((None, "lives on no running bus"), (object(), "has no fault points")):
        with pytest.raises(UsageError, match=says), arena.injecting(on):  # type: ignore[arg-type]  # that is the point
            pass
    with arena.injecting(bus):
        with pytest.raises(UsageError, match="arena 'arena' is injecting already"), arena.injecting(bus):
            pass
        with pytest.raises(UsageError, match="open already, for 'arena'"), other.injecting(bus):
            pass
        assert bus.fault_points.is_open
    with other.injecting(bus):
        assert bus.fault_points.is_open


# --- many at once ---------------------------------------------------------------------------------------------


def test_a_fault_with_a_number_strikes_no_more_often_whoever_comes_first(new_bus: NewBus) -> None:
    arena = ArenaPlugin()
    bus = new_bus(*[Ledger(f"l{number}") for number in range(4)])

    with arena.injecting(bus):
        arena.schedule_fault(capability=Capability.OBSERVER, call="before_step", times=50)
        waits = [in_thread(lambda: [bus.before_step("e", step()) for _ in range(40)]) for _ in range(4)]
        for wait in waits:
            wait()

    assert len(arena.report().fired) == sum(health.faults for health in bus.health().values()) == 50


def test_trials_that_come_and_go_beside_calls_strike_nobody_in_between(new_bus: NewBus) -> None:
    arena, bus, over = ArenaPlugin(), new_bus(Ledger()), threading.Event()

    def call() -> int:
        count = 0
        while not over.is_set():
            bus.before_step("e", step())
            count += 1
        return count

    calling = in_thread(call)
    fired = 0
    for number in range(50):
        with arena.injecting(bus):
            arena.schedule_fault("ledger", ("error", "panic", "timeout")[number % 3], times=2)
            fault = arena.schedule_fault("ledger", "delay", seconds=0.0001, probability=0.5)
            arena.cancel_fault(fault)
        fired += len(arena.report().fired)
    over.set()

    assert calling() > 0
    assert bus.health()["ledger"].faults == fired
    assert bus.health()["ledger"].state is PluginState.RUNNING


def test_a_report_has_ten_thousand_faults_and_counts_the_others() -> None:
    schedule = Schedule(0)
    fault = Fault(1, FaultKind.ERROR, FaultTargetKind.PLUGIN, "ledger", times=None)
    schedule.add(fault)

    for _ in range(10_010):
        schedule.strike(Place(FaultTargetKind.PLUGIN, "ledger", "flush"), frozenset(), "e")

    report = schedule.report()
    assert (len(report.fired), report.more, report.counts) == (10_000, 10, ((fault, 10_010),))
    assert "and 10 more" in str(report)


def test_a_panic_is_a_crash_and_an_error_is_none(new_bus: NewBus) -> None:
    arena, bus = ArenaPlugin(), new_bus(Ledger())

    with arena.injecting(bus):
        for kind, becomes in (("error", PluginError), ("panic", PluginCrashError)):
            arena.schedule_fault("ledger", kind, call="flush")
            with pytest.raises(becomes) as raised:
                refs(bus)["ledger"].call("flush", "e")
            assert type(raised.value) is becomes
            assert "by 'arena' into flush of plugin 'ledger'" in str(raised.value)


def test_the_neighbours_of_who_is_struck_are_told_of_everything(runtime: Make, store: str | None) -> None:
    arena, log = ArenaPlugin(), Log()
    rt = runtime(store, plugins=[Diary("neighbour", log), Ledger()], plugin_timeout=TIMEOUT)

    with arena.injecting(rt.bus):
        arena.schedule_fault("ledger", "timeout", call="before_step")
        arena.schedule_fault("ledger", "panic", call="after_step", probability=1.0)
        rt.run(fan(8), execution_id="e").raise_for_status()

    told = [line[1] for line in log.lines]
    assert (told.count("before_step"), told.count("after_step")) == (9, 9)


# --- everybody ------------------------------------------------------------------------------------------------


def test_every_built_in_plugin_is_in_the_ring_with_every_call_of_the_contracts() -> None:
    """One that is missing gets a line in ``SUBJECTS`` and in ``Ring.plugins`` of ``benchmarks.ring``."""
    ring = Ring()
    targets = ring.runtime.bus.fault_points.targets
    there = {type(plugin) for plugin in ring.runtime.bus.plugins}
    built_in = {
        kind
        for kind in (getattr(ares.plugins, name) for name in ares.plugins.__all__)
        if isinstance(kind, type) and issubclass(kind, Plugin)
    }
    contracts = {name for name in vars(Everything) if not name.startswith("_") and callable(getattr(Everything, name))}

    assert built_in - there == set()
    assert set(BY_NAME) == set(targets) - {"arena"}
    for name, subject in BY_NAME.items():
        assert (targets[name].calls & contracts) - set(subject.calls) == set(), name
    ring.runtime.close()


def test_whatever_fault_in_whatever_call_of_whatever_plugin_hurts_that_one_alone() -> None:
    assert matrix(some(list(cells()), one_in=2)) == []


def test_what_several_faults_at_once_come_to_is_what_they_explain() -> None:
    assert [problem for played in seeds(range(1_000, 1_012)) for problem in played.problems] == []
