"""What plugins record of an execution: kept once, in order, whoever dies."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ares import (
    Context,
    ErrorEntry,
    EventFilter,
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    HookPolicy,
    HookResult,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteDecision,
    RouteEntry,
    RouteState,
    Runtime,
    ScoringSignal,
    Step,
    StepResult,
    ToolEntry,
    Workflow,
)
from ares.errors import StoreError, UsageError
from ares.stores.sqlite import SqliteStore
from tests.bus.players import Gate, Listener, Log, Named
from tests.engine.helpers import Child, GatedStore, Task, chain, events_of, eventually, fan, single
from tests.plugins_on_runtime.players import Signpost, naming

Make = Callable[..., Runtime]


def tool(path: str, name: str = "hammer", output: Any = None) -> ToolEntry:
    return ToolEntry(path, path, name, {"n": 1}, output, 0.5, True, "")


def one_of_each() -> list[Any]:
    return [
        RouteEntry("s", "s", ("a",), "because", "memory", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        tool("s", output=[1, "two", None]),
        MemoryEntry("s", "s", "what was it", 2, 0.75, ("m1", "m2")),
        InterruptEntry("s", "s", "ok?", "approve", "fine"),
        LoopEntry(1, "enough"),
        ErrorEntry("s", "s", "it broke"),
        ScoringSignal("judge", 0.25, "dull"),
    ]


class Recorder(Named):
    """Records an entry with every hook."""

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
        ctx.record(tool("begin", f"{self.name} before_execution"))

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        ctx.record(tool(step.path, f"{self.name} before_step"))

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        ctx.record(tool(result.path, f"{self.name} after_step"))

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        ctx.record(tool("end", f"{self.name} after_execution"))


def names(rt: Runtime, execution_id: str = "e") -> list[tuple[str, str]]:
    return [(entry.path, entry.tool_name) for entry in rt.checkpoint(execution_id).tool_history]


@pytest.fixture(params=["auto", "workers", "caller"])
def steps_on(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- kept ----------------------------------------------------------------------------------------------


def test_every_kind_of_entry_comes_back_as_it_was_recorded(runtime: Make, tmp_path: Path) -> None:
    class All(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            for entry in one_of_each():
                ctx.record(entry)

    file = tmp_path / "ares.db"
    with Runtime(file, plugins=[All("all")]) as rt:
        rt.run(single(lambda: 1), execution_id="e").raise_for_status()

    route, used, memory, interrupt, loop, error, signal = one_of_each()
    with Runtime(file) as again:
        found = again.checkpoint("e")
    assert found.route_history == (route,)
    assert found.tool_history == (used,)
    assert found.memory_hits == (memory,)
    assert found.interrupt_history == (interrupt,)
    assert loop in found.loop_history
    assert error in found.error_history
    assert found.scoring_signals == (signal,)


def test_what_any_hook_records_is_kept_in_the_order_of_its_writer(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    rt = runtime(store, plugins=[Recorder("r")], steps_on=steps_on)

    rt.run(chain(3), execution_id="e").raise_for_status()

    assert names(rt) == [
        ("begin", "r before_execution"),
        *[(f"s{i}", f"r {hook}") for i in range(3) for hook in ("before_step", "after_step")],
        ("end", "r after_execution"),
    ]


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_nothing_is_lost_or_doubled_where_many_record_at_once(
    runtime: Make, store: str | None, durability: str
) -> None:
    rt = runtime(store, plugins=[Recorder(f"r{n}") for n in range(4)], max_workers=16, durability=durability)

    rt.run(fan(50), execution_id="e").raise_for_status()

    found = names(rt)
    assert len(found) == len(set(found)) == 4 * (2 + 2 * 51)
    for n in range(4):
        mine = [name for name in found if name[1].startswith(f"r{n} ")]
        for i in range(50):
            of_step = [what for path, what in mine if path == f"s{i}"]
            assert of_step == [f"r{n} before_step", f"r{n} after_step"]


def test_what_before_step_records_is_committed_with_the_outcome_of_its_step(runtime: Make, tmp_path: Path) -> None:
    class Early(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            ctx.record(tool(step.path, "early"))

    rt = runtime(tmp_path / "ares.db", plugins=[Early("early")])

    rt.run(chain(2), execution_id="e").raise_for_status()

    kinds = [(event.type, event.payload.get("path")) for event in events_of(rt, "e")]
    for path in ("s0", "s1"):
        assert kinds.index(("tool.called", path)) < kinds.index(("step.completed", path))


def test_what_an_interceptor_records_of_a_step_that_it_refuses_is_kept(runtime: Make, store: str | None) -> None:
    class Guard(Named):
        hook_policy = HookPolicy.INTERCEPT

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> HookResult:
            ctx.record(ErrorEntry("body", step.path, "refused by policy 7"))
            return HookResult.skip("policy 7")

    rt = runtime(store, plugins=[Guard("guard")])

    rt.run(single(lambda: 1), execution_id="e").raise_for_status()

    assert [entry.message for entry in rt.checkpoint("e").error_history] == ["refused by policy 7"]


def test_what_was_recorded_is_shown_to_routers(runtime: Make, store: str | None) -> None:
    class Memory(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            if result.path == "first":
                ctx.record(MemoryEntry("first", "first", "q", 1, 0.5, ("m1",)))

    wf = Workflow("w")
    wf.step(lambda: 1, id="first")
    wf.step(lambda first: 1, id="choose", branches=("left", "right"))
    wf.step(lambda choose: 1, id="left")
    wf.step(lambda choose: 1, id="right")
    post = Signpost("post", lambda state: RouteDecision((("left" if state.memory_hits else "right"),), "", "memory"))

    result = runtime(store, plugins=[Memory("memory"), post]).run(wf).raise_for_status()

    assert "left" in result.outputs


def test_what_was_recorded_before_a_resume_is_shown_after_it(runtime: Make, tmp_path: Path) -> None:
    broken = [True]

    class Memory(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            if result.path == "first":
                ctx.record(MemoryEntry("first", "first", "q", 1, 0.5, ("m1",)))

    def second() -> None:
        if broken:
            raise ValueError("no")

    wf = Workflow("w")
    wf.step(lambda: 1, id="first")
    wf.step(second, depends_on=["first"])
    wf.step(lambda second: 1, id="choose", branches=("left", "right"))
    wf.step(lambda choose: 1, id="left")
    wf.step(lambda choose: 1, id="right")
    seen: list[RouteState] = []
    post = Signpost("post", lambda state: seen.append(state) or RouteDecision(("left",), "", "router"))
    file = tmp_path / "ares.db"
    with Runtime(file, plugins=[Memory("memory"), post]) as rt:
        assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    broken.clear()

    with Runtime(file, plugins=[Memory("memory"), post]) as rt:
        rt.resume("e", wf).raise_for_status()
        assert len(rt.checkpoint("e").memory_hits) == 1

    assert [hit.used_ids for hit in seen[0].memory_hits] == [("m1",)]


# --- refused -------------------------------------------------------------------------------------------


def test_a_call_that_belongs_to_no_execution_records_nothing(runtime: Make, store: str | None) -> None:
    said: list[BaseException] = []

    class Hasty(Named):
        def start(self, ctx: Context, bus: Any) -> None:
            try:
                ctx.record(tool("nowhere"))
            except UsageError as error:
                said.append(error)

    runtime(store, plugins=[Hasty("hasty")]).start()

    assert "belongs to no execution" in str(said[0])


@pytest.mark.parametrize("entry", [None, "text", {"tool": "hammer"}], ids=repr)
def test_what_is_no_entry_is_the_plugins_own_failure(runtime: Make, store: str | None, entry: Any) -> None:
    class Careless(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            ctx.record(entry)

    result = runtime(store, plugins=[Careless("careless")]).run(single(lambda: 1))

    assert result.status is ExecutionStatus.COMPLETED
    assert any("records a" in warning for warning in naming(result, "careless"))


def test_what_cannot_be_stored_of_an_entry_is_kept_as_it_looks_and_nothing_else_is_lost(
    runtime: Make, tmp_path: Path
) -> None:
    class Careless(Recorder):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            super().after_step(ctx, execution_id, result)
            ctx.record(tool(result.path, "careless", output=object()))

    rt = runtime(tmp_path / "ares.db", plugins=[Careless("c")])

    result = rt.run(chain(2), execution_id="e").raise_for_status()

    assert result.warnings == ()
    assert len(names(rt)) == 2 + 6
    shown = [entry.output for entry in rt.checkpoint("e").tool_history if entry.tool_name == "careless"]
    assert all("object object at" in str(output) for output in shown)


def test_what_is_recorded_after_the_end_is_refused(runtime: Make, store: str | None, gate: Gate) -> None:
    """A plugin that was given up writes into a journal that may be another's by now: it is told so."""
    said: list[str] = []

    class Late(Named):
        timeout = 0.2

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            gate.pass_through()
            try:
                ctx.record(tool("late"))
                said.append("kept")
            except UsageError as error:
                said.append(str(error))

    rt = runtime(store, plugins=[Late("late")])
    rt.run(single(lambda: 1), execution_id="e").raise_for_status()
    gate.open()
    eventually(lambda: said)

    assert "over" in said[0]
    assert names(rt) == []


# --- flushed, and kept where the store fails --------------------------------------------------------------


def test_a_flush_commits_what_waits_while_a_body_runs(runtime: Make, tmp_path: Path, gate: Gate) -> None:
    class Saver(Named):
        subscribes_to = EventFilter(types=["save.now"])

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            ctx.record(tool(step.path, "early"))

        def on_event(self, ctx: Context, delivery: Any) -> None:
            ctx.journal.flush("e")
            saved.set()

    saved = threading.Event()
    rt = runtime(tmp_path / "ares.db", plugins=[Saver("saver")])
    running = Task(rt.run, single(lambda: gate.pass_through("step")), execution_id="e")
    gate.await_entry()
    rt.bus.emit("e", "save.now", "test")

    assert saved.wait(20)
    assert names(rt) == [("body", "early")]
    gate.open()
    running.result().raise_for_status()
    assert names(rt) == [("body", "early")]


def test_what_waits_is_committed_at_the_default_interval(runtime: Make, tmp_path: Path, gate: Gate) -> None:
    class Early(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            ctx.record(tool(step.path, "early"))

    rt = runtime(tmp_path / "ares.db", plugins=[Early("early")])
    running = Task(rt.run, single(lambda: gate.pass_through("step")), execution_id="e")
    gate.await_entry()

    eventually(lambda: names(rt) == [("body", "early")], 10)
    gate.open()
    running.result().raise_for_status()


class FailsOnce(SqliteStore):
    """Takes no record of a plugin the first time."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.failures = 1

    def append(self, appends: Any, *, sync: bool) -> Any:
        kinds = [entry.kind for append in appends for entry in append.entries]
        if self.failures and "recorded" in kinds:
            self.failures -= 1
            raise StoreError(self.name, "not now")
        return super().append(appends, sync=sync)


def test_in_best_effort_a_store_that_fails_loses_no_record_and_doubles_none(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(FailsOnce(tmp_path / "ares.db"), plugins=[Recorder("r")], durability="best_effort")

    result = rt.run(chain(5), execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    found = names(rt)
    assert len(found) == len(set(found)) == 2 + 10


def test_a_commit_that_takes_long_holds_up_no_recording(runtime: Make, tmp_path: Path) -> None:
    store = GatedStore(tmp_path / "ares.db", holds=lambda kind, path: path == "s1" and kind != "started")
    counted = Log()

    class Busy(Named):
        subscribes_to = EventFilter(types=["record.now"])

        def on_event(self, ctx: Context, delivery: Any) -> None:
            for n in range(100):
                ctx.record(tool("s1", f"busy {n}"))
            counted.add("done")

    rt = runtime(store, plugins=[Busy("busy")])
    running = Task(rt.run, chain(3), execution_id="e")
    store.reached.wait()
    rt.bus.emit("e", "record.now", "test")
    eventually(lambda: counted.lines)
    store.gate.open()

    running.result().raise_for_status()
    assert names(rt) == [("s1", f"busy {n}") for n in range(100)]


# --- across processes ------------------------------------------------------------------------------------


def test_what_was_committed_before_a_kill_is_there_once_after_it(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from ares import Plugin, Runtime, ToolEntry, Workflow

        class Recorder(Plugin):
            name = "recorder"
            def before_step(self, ctx, execution_id, step):
                ctx.record(ToolEntry(step.path, step.path, "before", None, None, 0.0, True, ""))

        wf = Workflow("w")
        for i in range(6):
            def body(i=i):
                if i == 4 and sys.argv[2] == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                return i
            wf.step(body, id=f"s{i}", depends_on=[f"s{i - 1}"] if i else [])
        with Runtime(sys.argv[1], plugins=[Recorder()]) as rt:
            rt.run(wf, execution_id="e", if_exists="resume").raise_for_status()
            print([entry.path for entry in rt.checkpoint("e").tool_history], flush=True)
    """
    file = str(tmp_path / "ares.db")
    with Child(program, file, "kill") as child:
        code, _, err = child.finish()
    assert code == -9, err
    with Child(program, file, "live") as child:
        said = child.result()

    # What was recorded of the fourth step before the kill waited for its outcome.
    assert said.strip() in (
        str([f"s{i}" for i in range(6)]),
        str(["s0", "s1", "s2", "s3", "s4", "s4", "s5"]),
    )


def test_an_event_that_a_plugin_keeps_is_in_the_journal_and_not_told_twice(runtime: Make, store: str | None) -> None:
    """With a store the built-in observer keeps what only passed over the bus."""
    heard = Log()

    class Speaker(Named):
        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            self.bus.emit(execution_id, "speaker.said", self.name, {"path": step.path})

    ear = Listener("ear", heard.add, subscribes_to=EventFilter(types=["speaker.said"]), buffer=1_000)
    rt = runtime(store, plugins=[Speaker("speaker"), ear])

    def body(i: int) -> None:
        if i == 19:
            eventually(lambda: len(heard.lines) == 20)

    rt.run(chain(20, body), execution_id="e").raise_for_status()
    rt.close()

    assert [delivery.event.payload["path"] for delivery in heard.lines] == [f"s{i}" for i in range(20)]
    kept = [event for event in rt.stored_events("e") if event.type == "speaker.said"]
    assert len({event.payload["path"] for event in kept}) == len(kept)
    assert {event.module for event in kept} <= {"speaker"}
    if store is None:
        assert kept == []
    else:
        assert [event.payload["path"] for event in kept] == [f"s{i}" for i in range(len(kept))]
        assert kept


def test_an_event_whose_payload_cannot_be_stored_is_heard_all_the_same(runtime: Make, store: str | None) -> None:
    heard = Log()

    class Speaker(Named):
        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            self.bus.emit(execution_id, "speaker.said", self.name, {"what": object()})
            self.bus.emit(execution_id, "speaker.said", self.name, {"what": step.path})

    ear = Listener("ear", heard.add, subscribes_to=EventFilter(types=["speaker.said"]), buffer=1_000)
    rt = runtime(store, plugins=[Speaker("speaker"), ear])

    result = rt.run(chain(3), execution_id="e").raise_for_status()
    rt.close()

    assert len(heard.lines) == 6
    assert naming(result, "speaker") == naming(result, "ear") == []
    assert rt.checkpoint("e").outputs == {"s0": 0, "s1": 1, "s2": 2}


def test_a_plugin_that_emits_what_is_no_payload_is_told_and_named(runtime: Make, store: str | None) -> None:
    class Speaker(Named):
        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            self.bus.emit(execution_id, "speaker.said", self.name, ["no", "mapping"])

    rt = runtime(store, plugins=[Speaker("speaker"), Listener("ear", print)])

    result = rt.run(single(lambda: 1)).raise_for_status()

    [warning] = naming(result, "speaker")
    assert "the payload of 'speaker.said' must map names to values" in warning
