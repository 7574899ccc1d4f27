"""The live events of a Runtime: the journal's own, in order, as far as a reader can take them, and then the end."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ares import (
    Context,
    Delivery,
    Event,
    EventFilter,
    ExecutionStatus,
    Goto,
    RetryPolicy,
    Runtime,
    StepContext,
    StepSpec,
    ToolEntry,
    Workflow,
)
from ares.bus.subscription import BusSubscription
from ares.errors import StoreError, UsageError
from ares.stores.sqlite import SqliteStore
from tests.bus.players import Gate, Listener, Log, Named
from tests.engine.helpers import (
    Child,
    GatedStore,
    Task,
    chain,
    events_of,
    eventually,
    fan,
    seconds_since,
    single,
    types_of,
)
from tests.plugins_on_runtime.players import Diary, without_time

Make = Callable[..., Runtime]

AMPLE = 100_000
ENDS = ("workflow.completed", "workflow.failed", "workflow.cancelled", "workflow.interrupted", "workflow.waiting")


def reading(subscription: BusSubscription) -> Task[list[Event]]:
    """A thread that iterates, with no timeout of its own."""
    return Task(lambda: [delivery.event for delivery in subscription])


def of_stream(rt: Runtime, execution_id: str = "e", buffer: int = AMPLE) -> BusSubscription:
    return rt.bus.subscribe(EventFilter(stream_ids=[execution_id], journaled=True), buffer=buffer)


def one_of_each() -> Workflow:
    """A workflow that makes facts and notes of many kinds."""
    child = Workflow("child", inputs={"n": int})
    child.step(lambda n: n + 1, id="inner")
    wf = Workflow("each", inputs={"n": int}, variables={"total": 0})

    def work(ctx: StepContext, n: int) -> int:
        ctx.emit("work.noticed", n=n)
        ctx.tool("adder", lambda a, b: a + b, n, b=1)
        ctx.set("total", n)
        ctx.once("paid", lambda: "receipt")
        if ctx.attempt == 1:
            raise ValueError("again")
        return n

    wf.step(work, retry=RetryPolicy(max_attempts=2, initial_delay=0.0), writes=["total"])
    wf.step(lambda work: [work, 2, 3], id="source")
    wf.step(lambda item: item * 2, id="each", map_over="source", max_concurrency=2)
    wf.step(lambda: Goto("left"), id="choose", branches=("left", "right"))
    wf.step(lambda choose: "l", id="left")
    wf.step(lambda choose: "r", id="right")
    wf.step(lambda: 1, id="off", condition=lambda: False)
    wf.add(StepSpec("sub", workflow=child, inputs={"n": "work"}))
    wf.step(lambda: 1, id="paid", delivery="at_most_once")
    return wf


# --- the same as the journal's -----------------------------------------------------------------------------


@pytest.mark.case("C022")
@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_two_hundred_steps_on_sixteen_workers_have_events_without_a_hole(
    runtime: Make, store: str | None, durability: str
) -> None:
    rt = runtime(store, max_workers=16, durability=durability, plugins=[Diary("diary", Log())])
    subscription = of_stream(rt)
    reader = reading(subscription)

    rt.run(fan(200), execution_id="e").raise_for_status()
    live = reader.result()

    stored = events_of(rt, "e")
    assert [event.seq for event in live] == list(range(1, len(stored) + 1))
    assert without_time(live) == without_time(stored)
    assert live[0].type == "workflow.started"
    assert live[-1].type == "workflow.completed"
    assert max(Counter(event.id for event in live).values()) == 1
    for i in range(200):
        mine = [event.type for event in live if event.payload.get("path") == f"s{i}"]
        assert mine == ["step.started", "step.completed"]
    assert (subscription.dropped, subscription.pending) == (0, 0)


@pytest.mark.case("C022")
@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_a_retry_writes_no_event_twice(runtime: Make, store: str | None, steps_on: str) -> None:
    rt = runtime(store, steps_on=steps_on)
    reader = reading(of_stream(rt))

    def body(ctx: StepContext) -> None:
        if ctx.attempt < 3:
            raise ValueError("again")

    rt.run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0.0)), execution_id="e").raise_for_status()

    assert types_of(reader.result()) == [
        "workflow.started",
        *["step.started", "step.retrying"] * 2,
        "step.started",
        "step.completed",
        "workflow.completed",
    ]


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
@pytest.mark.parametrize("is_submitted", [False, True])
def test_live_events_are_those_of_the_journal_whatever_happens_in_a_run(
    runtime: Make, store: str | None, steps_on: str, is_submitted: bool
) -> None:
    rt = runtime(store, steps_on=steps_on, max_workers=4)
    reader = reading(of_stream(rt))

    if is_submitted:
        rt.submit(one_of_each(), {"n": 1}, execution_id="e").result(20).raise_for_status()
    else:
        rt.run(one_of_each(), {"n": 1}, execution_id="e").raise_for_status()

    live, stored = reader.result(), events_of(rt, "e")
    assert types_of(live) == types_of(stored)
    assert without_time(live) == without_time(stored)


def test_the_time_of_a_live_event_is_about_the_one_that_is_stored(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    reader = reading(of_stream(rt))

    rt.run(chain(3), execution_id="e").raise_for_status()

    for live, stored in zip(reader.result(), events_of(rt, "e"), strict=True):
        assert abs((live.timestamp - stored.timestamp).total_seconds()) < 1


def test_a_resumed_execution_goes_on_counting(runtime: Make, store: str | None) -> None:
    broken = [True]

    def body() -> None:
        if broken:
            raise ValueError("no")

    rt = runtime(store)
    wf = single(body)
    first = reading(of_stream(rt))
    rt.run(wf, execution_id="e")
    before = first.result()
    broken.clear()
    everything = rt.bus.subscribe(EventFilter(journaled=True), buffer=AMPLE)
    rt.resume("e", wf).raise_for_status()
    rt.close()
    after = [delivery.event for delivery in everything if delivery.event.stream_id == "e"]

    assert types_of(after) == ["workflow.resumed", "step.started", "step.completed", "workflow.completed"]
    assert without_time([*before, *after]) == without_time(list(rt.stored_events("e")))


def test_executions_beside_one_another_have_each_their_own_numbers(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=8)
    subscription = rt.bus.subscribe(EventFilter(journaled=True), buffer=AMPLE)

    for execution in [rt.submit(fan(5), execution_id=f"e{i}") for i in range(20)]:
        execution.result(20).raise_for_status()
    rt.close()
    live = [delivery.event for delivery in subscription]

    for i in range(20):
        mine = [event for event in live if event.stream_id == f"e{i}"]
        assert without_time(mine) == without_time(list(rt.stored_events(f"e{i}")))


def test_no_outcome_is_told_that_is_not_committed(runtime: Make, tmp_path: Path) -> None:
    """That something has begun may be told at once: nobody waits for that commit."""
    store = GatedStore(tmp_path / "ares.db", holds=lambda _kind, path: path == "s1")
    rt = runtime(store)
    subscription = of_stream(rt)
    running = Task(rt.run, chain(3), execution_id="e")
    store.reached.wait()
    committed = types_of(rt.stored_events("e"))

    seen: list[Event] = []
    with suppress(TimeoutError):
        while (delivery := subscription.get(0.2)) is not None:
            seen.append(delivery.event)
    store.gate.open()
    running.result().raise_for_status()

    assert types_of(seen)[: len(committed)] == committed == ["workflow.started", "step.started", "step.completed"]
    assert {event.type for event in seen[len(committed) :]} <= {"step.started"}
    assert without_time(seen) == without_time(events_of(rt, "e"))[: len(seen)]


class FailingStore:
    """A SQLite store that takes nothing any more once a step has got to its outcome."""

    def __init__(self, file: Path, path: str) -> None:
        self._inner = SqliteStore(file)
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, appends: Any, *, sync: bool) -> Any:
        if any(entry.path == self._path for append in appends for entry in append.entries):
            raise StoreError(self._inner.name, "no more")
        return self._inner.append(appends, sync=sync)


@pytest.mark.case("C024")
def test_a_reader_comes_to_its_end_when_the_store_takes_nothing_any_more(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(FailingStore(tmp_path / "ares.db", "s1"))
    subscription = of_stream(rt)
    reader = reading(subscription)

    with pytest.raises(StoreError):
        rt.run(chain(3), execution_id="e")

    live = reader.result(5)
    print(live)
    stored = list(rt.stored_events("e"))
    assert without_time(live[: len(stored)]) == without_time(stored)


# --- ends ----------------------------------------------------------------------------------------------


@pytest.mark.case("C024")
@pytest.mark.parametrize("of_step", [True, False], ids=["step", "execution"])
def test_a_reader_without_a_timeout_comes_to_the_end_of_a_run_that_has_one(
    runtime: Make, store: str | None, gate: Gate, of_step: bool
) -> None:
    began = time.monotonic()
    rt = runtime(store)
    reader = reading(of_stream(rt))
    wf = single(lambda ctx: _until_cancelled(ctx, gate), timeout=0.5 if of_step else None)

    result = rt.run(wf, execution_id="e", timeout=None if of_step else 0.5)
    events = reader.result(2)

    assert result.status is ExecutionStatus.FAILED
    assert events[-1].type == "workflow.failed"
    assert "Timeout" in events[-1].payload["error_type"]
    if of_step:
        assert "'body'" in events[-1].payload["error"]
    else:
        assert "workflow.overdue" in types_of(events)
    assert seconds_since(began) < 4


def _until_cancelled(ctx: StepContext, gate: Gate) -> None:
    while not ctx.cancelled:
        gate.opened.wait(0.01)


@pytest.mark.case("C024")
@pytest.mark.parametrize("how", ["completes", "fails", "is cancelled", "is closed"])
def test_the_last_event_of_a_stream_says_how_it_ended(runtime: Make, store: str | None, gate: Gate, how: str) -> None:
    rt = runtime(store)
    reader = reading(of_stream(rt))

    def body(ctx: StepContext) -> None:
        gate.entered.release()
        if how == "fails":
            raise ValueError("no")
        if how != "completes":
            _until_cancelled(ctx, gate)

    wf = Workflow("w")
    wf.step(body)
    wf.step(lambda: 1, id="after", depends_on=["body"])
    rt.submit(wf, execution_id="e")
    gate.await_entry()
    if how == "is cancelled":
        rt.cancel("e")
    elif how == "is closed":
        rt.close()

    events = reader.result()
    last = {"completes": "completed", "fails": "failed", "is cancelled": "cancelled", "is closed": "interrupted"}[how]
    assert events[-1].type == f"workflow.{last}"
    assert [event.type for event in events if event.type in ENDS] == [f"workflow.{last}"]


def test_the_end_of_a_stream_is_never_dropped(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    subscription = of_stream(rt, buffer=1)

    rt.run(chain(50), execution_id="e").raise_for_status()
    found = list(subscription)

    assert [delivery.event.type for delivery in found] == ["workflow.started", "workflow.completed"]
    assert found[-1].dropped_before == 100
    counts = subscription.counts()
    assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (102, 2, 100, 0)


def test_who_comes_after_the_end_is_not_kept_waiting(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(single(lambda: 1), execution_id="e")

    assert list(of_stream(rt)) == []


def test_who_subscribed_to_everything_is_released_by_the_close(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    reader = reading(rt.bus.subscribe(EventFilter(), buffer=AMPLE))
    rt.run(chain(2))

    rt.close()

    assert "workflow.completed" in types_of(reader.result())


def test_a_runtime_that_never_started_releases_its_subscribers_at_close(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    reader = reading(rt.bus.subscribe(EventFilter()))

    rt.close()

    assert reader.result() == []


# --- drops ---------------------------------------------------------------------------------------------


@pytest.mark.case("C021")
def test_a_slow_reader_of_a_thousand_events_of_a_step_knows_how_many_it_lost(runtime: Make, store: str | None) -> None:
    pause, took = threading.Event(), []
    heard, quick = Log(), Log()
    wanted = EventFilter(types=["step.noticed"])
    slow = Listener("slow", lambda d: pause.wait(0.01) or heard.add(d), subscribes_to=wanted, buffer=10)
    fast = Listener("fast", quick.add, subscribes_to=wanted, buffer=1_000)
    rt = runtime(store, plugins=[slow, fast])

    def body(ctx: StepContext) -> None:
        began = time.monotonic()
        for n in range(1_000):
            ctx.emit("step.noticed", n=n)
        took.append(seconds_since(began))

    result = rt.run(single(body), execution_id="e").raise_for_status()
    rt.close()

    health = rt.health()
    deliveries: list[Delivery] = heard.lines
    assert health["slow"].events_matched == 1_000
    assert health["slow"].events_delivered == len(deliveries)
    assert health["slow"].events_delivered + health["slow"].events_dropped == 1_000
    assert sum(1 + delivery.dropped_before for delivery in deliveries) <= 1_000
    assert health["slow"].events_dropped > 0
    assert [delivery.event.payload["n"] for delivery in quick.lines] == list(range(1_000))
    assert [warning for warning in result.warnings if "'slow' lost" in warning]
    assert len([warning for warning in result.warnings if "'slow' lost" in warning]) == 1
    assert took[0] < (0.5 if store is None else 2)


def test_books_of_a_subscription_always_balance(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=8)
    subscription = rt.bus.subscribe(EventFilter(), buffer=7)
    stop = threading.Event()
    problems: list[Any] = []

    def audit() -> None:
        while not stop.is_set():
            counts = subscription.counts()
            if counts.matched != counts.delivered + counts.dropped + counts.pending:
                problems.append(counts)

    auditor = Task(audit)
    reader = Task(lambda: [delivery.dropped_before for delivery in subscription])
    for execution in [rt.submit(fan(10)) for _ in range(10)]:
        execution.result(20)
    rt.close()
    stop.set()

    auditor.result()
    assert problems == []
    lost = sum(reader.result())
    counts = subscription.counts()
    assert counts.pending == 0
    assert counts.delivered + counts.dropped == counts.matched
    assert lost <= counts.dropped


# --- who hears what --------------------------------------------------------------------------------------


def test_a_listener_hears_all_of_its_filter_before_it_is_stopped(runtime: Make, store: str | None) -> None:
    heard = Log()
    ear = Listener("ear", lambda d: heard.add(d.event.payload["path"]), buffer=1_000)
    ear.subscribes_to = EventFilter(types=["step.completed"])  # type: ignore[misc]
    rt = runtime(store, plugins=[ear])

    rt.run(chain(100)).raise_for_status()
    rt.close()

    assert heard.lines == [f"s{i}" for i in range(100)]


def test_what_a_plugin_says_has_no_number_and_is_not_in_the_journal(runtime: Make, store: str | None) -> None:
    class Speaker(Named):
        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            self.bus.emit(execution_id, "speaker.said", self.name, {"path": step.path})

    heard = Log()
    ear = Listener("ear", heard.add, subscribes_to=EventFilter(types=["speaker.said"]))
    rt = runtime(None, plugins=[Speaker("speaker"), ear])

    rt.run(chain(3), execution_id="e").raise_for_status()
    rt.close()

    assert [d.event.payload for d in heard.lines] == [{"path": f"s{i}"} for i in range(3)]
    assert {(d.event.seq, d.event.stream_id, d.event.module) for d in heard.lines} == {(None, "e", "speaker")}
    assert "speaker.said" not in types_of(rt.stored_events("e"))


def test_filters_by_type_and_stream_hold(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    subscription = rt.bus.subscribe(EventFilter(types=["step.completed"], stream_ids=["e2"]), buffer=AMPLE)

    for i in range(4):
        rt.run(chain(3), execution_id=f"e{i}")
    rt.close()

    found = [delivery.event for delivery in subscription]
    assert {(event.type, event.stream_id) for event in found} <= {
        ("step.completed", "e2"), ("workflow.completed", "e2"),
    }  # fmt: skip
    assert [e.payload["path"] for e in found if e.type == "step.completed"] == ["s0", "s1", "s2"]


def test_a_filter_that_selects_nothing_is_refused_by_name(runtime: Make) -> None:
    rt = runtime()

    with pytest.raises(UsageError, match="selects nothing"):
        rt.bus.subscribe(EventFilter(types=["undotted"]))


@pytest.mark.case("C023")
def test_a_reader_may_end_itself_and_another_while_it_handles_an_event(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    wanted = EventFilter(types=["step.noticed"])
    heard: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    subscriptions = {name: rt.bus.subscribe(wanted) for name in heard}

    def read(name: str) -> None:
        for delivery in subscriptions[name]:
            heard[name].append(delivery.event.payload["n"])
            if name == "a":
                for other in ("a", "c", "a"):
                    subscriptions[other].close()

    readers = [Task(read, name) for name in ("a", "b")]

    def body(ctx: StepContext) -> None:
        ctx.emit("step.noticed", n=1)
        eventually(lambda: subscriptions["c"].is_over)
        ctx.emit("step.noticed", n=2)

    rt.run(single(body), execution_id="e").raise_for_status()
    read("c")
    rt.close()
    for reader in readers:
        reader.result()

    assert heard == {"a": [1], "b": [1, 2], "c": []}


def test_a_record_of_a_plugin_is_an_event_like_any_other(runtime: Make, store: str | None) -> None:
    class Recorder(Named):
        def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
            ctx.record(ToolEntry("body", "body", "hammer", None, None, 0.0, True, ""))

    rt = runtime(store, plugins=[Recorder("recorder")])
    reader = reading(of_stream(rt))

    rt.run(single(lambda: 1), execution_id="e").raise_for_status()

    live = reader.result()
    assert [e.module for e in live if e.type == "tool.called"] == ["recorder"]
    assert without_time(live) == without_time(events_of(rt, "e"))


def test_nested_runs_have_streams_of_their_own(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    subscription = rt.bus.subscribe(EventFilter(journaled=True), buffer=AMPLE)

    outer = single(lambda: rt.run(single(lambda: 1, "inner")).execution_id, "outer")
    inner_id = rt.run(outer, execution_id="e").raise_for_status().outputs["body"]
    rt.close()

    live = [delivery.event for delivery in subscription]
    for execution_id in ("e", inner_id):
        mine = [event for event in live if event.stream_id == execution_id]
        assert without_time(mine) == without_time(list(rt.stored_events(execution_id)))


# --- the lives of plugins as events -----------------------------------------------------------------------


def test_the_start_the_failure_and_the_stop_of_plugins_are_events(runtime: Make) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("no")

    rt = runtime(plugins=[Named("good"), Named("bad", start=fails)])
    subscription = rt.bus.subscribe(EventFilter(types=["plugin.started", "plugin.failed", "plugin.stopped"]))

    rt.start()
    rt.close()

    found = [(d.event.type, d.event.payload["plugin"]) for d in subscription]
    assert [line for line in found if line[1] in ("good", "bad")] == [
        ("plugin.started", "good"), ("plugin.failed", "bad"), ("plugin.stopped", "good"),
    ]  # fmt: skip


def test_a_plugin_that_is_found_to_hang_is_an_event_of_the_execution(runtime: Make, gate: Gate) -> None:
    rt = runtime(plugins=[Named("stuck", before_step=gate.pass_through, timeout=0.2)])
    subscription = rt.bus.subscribe(EventFilter(types=["plugin.failed"], stream_ids=["e"]))

    rt.run(chain(3), execution_id="e")

    found = [d.event for d in subscription if d.event.type == "plugin.failed"]
    assert [event.payload["plugin"] for event in found] == ["stuck"]
    assert "before_step" in found[0].payload["problem"]


# --- across processes -------------------------------------------------------------------------------------


def test_events_of_a_killed_execution_go_on_where_they_stopped(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from ares import EventFilter, Runtime, Workflow

        wf = Workflow("w")
        wf.step(lambda: 1, id="first")
        wf.step(lambda first: os.kill(os.getpid(), signal.SIGKILL), id="second")
        Runtime(sys.argv[1]).run(wf, execution_id="e")
    """
    file = str(tmp_path / "ares.db")
    with Child(program, file) as child:
        code, _, _ = child.finish()
    assert code == -9
    wf = Workflow("w")
    wf.step(lambda: 1, id="first")
    wf.step(lambda first: 2, id="second")
    with Runtime(file) as rt:
        before = list(rt.stored_events("e"))
        subscription = rt.bus.subscribe(EventFilter(journaled=True, stream_ids=["e"]), buffer=AMPLE)
        rt.resume("e", wf).raise_for_status()
        live = [delivery.event for delivery in subscription]

        assert live[0].type == "workflow.resumed"
        assert without_time([*before, *live]) == without_time(events_of(rt, "e"))
