"""Executions that somebody else walks: handles on them, and the one thread that walks them all."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ares import Execution, ExecutionStatus, RetryPolicy, Runtime, StepContext, Workflow
from ares.errors import ExecutionExistsError, ExecutionNotFoundError, InputError, StoreError, UsageError
from ares.stores.volatile import VolatileStore
from tests.engine.helpers import (
    Barrier,
    Gate,
    Task,
    Threads,
    chain,
    eventually,
    fan,
    hang,
    last,
    seconds_since,
    single,
    types_of,
)

Make = Callable[..., Runtime]


@pytest.fixture
def stuck() -> Iterator[Gate]:
    """What hanging bodies wait for; opened when the test is over, so that their threads end."""
    gate = Gate()
    yield gate
    gate.open()


# --- submitting ------------------------------------------------------------------------------------


def test_submit_returns_while_the_steps_still_run(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    may_end = Gate()

    execution = rt.submit(single(lambda: may_end.wait() or 1))
    was_done = execution.done()
    may_end.open()

    assert not was_done
    assert execution.result(10).outputs == {"body": 1}


def test_what_is_submitted_is_in_the_store_when_submit_returns(tmp_path: Path) -> None:
    begun, may_end = Gate(), Gate()
    with Runtime(tmp_path / "ares.db", max_workers=1) as rt:
        rt.submit(single(lambda: begun.open() or may_end.wait()))
        begun.wait()
        rt.submit(single(lambda: 1), execution_id="x", metadata={"who": "me"})

        (found,) = Runtime(tmp_path / "ares.db").executions(metadata={"who": "me"})
        may_end.open()

    assert found.execution_id == "x"
    assert found.status is ExecutionStatus.PENDING


def test_submit_refuses_what_run_refuses(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda n: n, id="body")

    with pytest.raises(InputError):
        rt.submit(wf)
    rt.submit(wf, {"n": 1}, execution_id="x").wait(10)
    with pytest.raises(ExecutionExistsError):
        rt.submit(wf, {"n": 1}, execution_id="x")
    with pytest.raises(UsageError):
        rt.submit(wf, {"n": 1}, execution_id="")


def test_an_existing_execution_may_be_submitted_to_go_on(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    calls: list[int] = []

    def body() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")
        return len(calls)

    wf = single(body)
    rt.submit(wf, execution_id="x").wait(10)

    again = rt.submit(wf, execution_id="x", if_exists="resume").result(10)
    once_more = rt.submit(wf, execution_id="x", if_exists="resume").result(10)

    assert again.outputs == once_more.outputs == {"body": 2}
    assert len(calls) == 2


def test_a_thousand_executions_may_be_submitted_at_once(runtime: Make) -> None:
    rt = runtime(max_workers=4)
    threads = Threads()
    started = time.monotonic()

    executions = [rt.submit(fan(2, lambda i: i)) for _ in range(1000)]
    count = len(threads.all())
    results = [execution.result(30) for execution in executions]

    assert {result.status for result in results} == {ExecutionStatus.COMPLETED}
    assert count <= 5
    assert seconds_since(started) < 30


def test_many_threads_may_submit_at_once(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    ready = Barrier(32)

    def submit(number: int) -> object:
        ready.wait()
        return rt.submit(fan(2, lambda _: number)).result(30).outputs["s0"]

    tasks = [Task(submit, number) for number in range(32)]

    assert [task.result() for task in tasks] == list(range(32))


# --- the thread that walks them --------------------------------------------------------------------


def test_the_thread_of_submitted_walks_runs_no_code_of_the_users(runtime: Make, store: str | None) -> None:
    seen: set[str] = set()

    def note(value: object = None) -> object:
        seen.add(threading.current_thread().name.partition(" ")[0].rstrip("-0123456789"))
        return value

    class Around:
        def __init__(self, ctx: StepContext) -> None:
            note()

        def __enter__(self) -> None:
            note()

        def __exit__(self, *_: object) -> None:
            note()

    def reduce(old: int, new: int) -> int:
        note()
        return old + new

    calls: list[int] = []

    def fails_once(ctx: StepContext) -> None:
        note()
        ctx.set("v", 1)
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    wf = Workflow("w", variables={"v": 0}, reducers={"v": reduce})
    wf.step(lambda: note([1, 2]), id="source", condition=lambda: note(True))
    wf.step(note, id="each", map_over="source")
    wf.step(
        fails_once,
        writes=["v"],
        retry=RetryPolicy(max_attempts=2, initial_delay=0, retry_on=lambda _: bool(note(True))),
    )
    wf.step(lambda: note(1), id="point", router=lambda: note("taken"), branches=["taken"])
    wf.step(note, id="taken", depends_on=["point", "fails_once"])
    rt = runtime(store, around_step=Around, redact=lambda _, value: note(value))

    execution = rt.submit(wf)
    execution.wait(10)

    assert seen == {"ares-worker"}
    execution.result().raise_for_status()


def test_a_body_that_hangs_does_not_keep_other_submitted_walks(runtime: Make, stuck: Gate) -> None:
    rt = runtime(max_workers=2)
    begun = Gate()
    hanging = rt.submit(single(lambda: begun.open() or stuck.wait(60)))
    begun.wait()

    assert rt.submit(chain(50)).result(10).status is ExecutionStatus.COMPLETED
    assert not hanging.done()


def test_timeouts_and_delays_of_many_submitted_walks_are_kept_by_the_one_thread(runtime: Make) -> None:
    rt = runtime(max_workers=4)
    counts: dict[int, int] = {}

    def make(number: int) -> Workflow:
        def body() -> int:
            counts[number] = counts.get(number, 0) + 1
            if counts[number] == 1:
                raise ValueError("once")
            return number

        return single(body, retry=RetryPolicy(max_attempts=2, initial_delay=0.05 + number / 1000, jitter=0))

    started = time.monotonic()
    executions = [rt.submit(make(number)) for number in range(50)]
    results = [execution.result(20).outputs["body"] for execution in executions]

    assert results == list(range(50))
    assert seconds_since(started) < 5


def test_a_walk_that_is_over_is_not_kept_for_a_deadline_that_it_still_had(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    for _ in range(300):
        rt.submit(single(lambda: 1, timeout=3600), timeout=3600).result(10)

    assert len(rt._life.engine().walks._deadlines) < 200


class Broken(VolatileStore):
    """Fails for one execution, in a way that no store may."""

    def append(self, appends, *, sync):  # type: ignore[no-untyped-def]  # as its base
        if any(a.claim.execution_id == "bad" and a.status == "COMPLETED" for a in appends):
            raise ZeroDivisionError("a defect")
        return super().append(appends, sync=sync)


def test_a_store_that_fails_for_one_execution_ends_that_one_alone(runtime: Make) -> None:
    rt = runtime(Broken())

    bad = rt.submit(single(lambda: 1), execution_id="bad")
    good = rt.submit(chain(5))

    assert good.result(10).status is ExecutionStatus.COMPLETED
    with pytest.raises(StoreError) as raised:
        bad.result(10)
    assert raised.value.execution_id == "bad"
    assert bad.status is ExecutionStatus.INTERRUPTED


def test_a_defect_in_one_walk_ends_that_one_alone(runtime: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from ares.engine.driver import Driver

    original = Driver.answered

    def answered(self, attempt, answer, *, inline=False):  # type: ignore[no-untyped-def]  # as the original
        if self.execution_id == "bad":
            raise ZeroDivisionError("a defect")
        original(self, attempt, answer, inline=inline)

    monkeypatch.setattr(Driver, "answered", answered)
    rt = runtime()

    bad = rt.submit(single(lambda: 1), execution_id="bad")
    good = rt.submit(chain(5))

    assert good.result(10).status is ExecutionStatus.COMPLETED
    with pytest.raises(ZeroDivisionError):
        bad.result(10)
    pool = rt._life.engine().pool
    eventually(lambda: pool.busy == 0)


# --- handles ---------------------------------------------------------------------------------------


def test_result_waits_no_longer_than_its_timeout(runtime: Make, stuck: Gate) -> None:
    execution = runtime().submit(single(lambda: stuck.wait(60)))

    started = time.monotonic()
    with pytest.raises(TimeoutError, match="running"):
        execution.result(0.1)

    assert 0.1 <= seconds_since(started) < 2


def test_wait_says_whether_it_is_done(runtime: Make, stuck: Gate) -> None:
    execution = runtime().submit(single(lambda: stuck.wait(60)))

    assert execution.wait(0.05) is False
    assert execution.wait(0) is False
    stuck.open()
    assert execution.wait(10) is True
    assert execution.wait(0) is True


def test_the_status_of_a_handle_is_the_executions(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    execution = rt.submit(single(lambda: begun.open() or may_end.wait()))
    begun.wait()
    eventually(lambda: execution.status is ExecutionStatus.RUNNING)
    may_end.open()
    execution.wait(10)

    assert execution.status is ExecutionStatus.COMPLETED


def test_the_result_of_a_failed_execution_is_returned_not_raised(runtime: Make, store: str | None) -> None:
    error = ValueError("x")

    def body() -> None:
        raise error

    result = runtime(store).submit(single(body)).result(10)

    assert result.status is ExecutionStatus.FAILED
    assert result.error is error


def test_several_handles_give_the_same_result(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    first = rt.submit(single(lambda: [1]))
    second = rt.execution(first.id)

    assert isinstance(second, Execution)
    assert first.result(10).outputs == second.result(10).outputs == {"body": [1]}
    assert first.result() is first.result()


def test_there_is_no_handle_on_what_does_not_exist(runtime: Make, store: str | None) -> None:
    with pytest.raises(ExecutionNotFoundError):
        runtime(store).execution("nobody")


def test_a_handle_on_a_run_in_another_thread_sees_it(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    run = Task(rt.run, single(lambda: begun.open() or may_end.wait() or 5), execution_id="x")
    begun.wait()
    handle = rt.execution("x")

    assert not handle.done()
    progress = handle.progress()
    may_end.open()

    assert progress is not None
    assert (progress.done, progress.total, progress.running) == (0, 1, ("body",))
    assert handle.result(10).outputs == run.result().outputs == {"body": 5}


def test_a_handle_follows_an_execution_that_is_resumed(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    calls: list[int] = []

    def body() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")
        return "done"

    wf = single(body)
    handle = rt.submit(wf, execution_id="x")
    assert handle.result(10).status is ExecutionStatus.FAILED

    rt.resume("x", wf)

    assert rt.execution("x").result(10).outputs == {"body": "done"}


def test_a_handle_on_what_another_process_walked_reads_the_journal(tmp_path: Path) -> None:
    wf = single(lambda: 1)
    with Runtime(tmp_path / "ares.db") as first:
        first.run(wf, execution_id="x")

    with Runtime(tmp_path / "ares.db", workflows=[wf]) as second:
        handle = second.execution("x")
        assert handle.done()
        assert handle.progress() is None
        assert handle.result().outputs == {"body": 1}
    with Runtime(tmp_path / "ares.db") as third, pytest.raises(UsageError, match="definition"):
        third.execution("x").result()


# --- callbacks ---------------------------------------------------------------------------------------


def test_a_done_callback_is_called_once_the_execution_is_done_on_a_thread_of_its_own(
    runtime: Make, store: str | None
) -> None:
    rt = runtime(store)
    may_end, called = Gate(), Gate()
    seen: list[tuple[str, bool, str]] = []
    execution = rt.submit(single(lambda: may_end.wait() or 1))

    def callback(done: Execution) -> None:
        seen.append((done.id, done.done(), threading.current_thread().name))
        called.open()

    execution.add_done_callback(callback)
    may_end.open()
    called.wait()

    assert seen == [(execution.id, True, f"ares-callback {execution.id}")]


def test_a_callback_on_what_is_done_is_called_at_once(runtime: Make, store: str | None) -> None:
    execution = runtime(store).submit(single(lambda: 1))
    execution.wait(10)
    called = Gate()

    execution.add_done_callback(lambda done: done.result() and called.open())

    called.wait()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)])
def test_what_a_callback_raises_hurts_nobody(runtime: Make, error: BaseException) -> None:
    rt = runtime()
    called = Gate()
    execution = rt.submit(single(lambda: 1))

    def bad(_: Execution) -> None:
        raise error

    execution.add_done_callback(bad)
    execution.add_done_callback(lambda _: called.open())

    called.wait()
    assert execution.result().outputs == {"body": 1}
    assert rt.submit(single(lambda: 2)).result(10).outputs == {"body": 2}


def test_a_callback_may_block_or_run_workflows(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    done = Gate()
    results: list[object] = []
    execution = rt.submit(single(lambda: 1))
    execution.add_done_callback(lambda _: hang())

    def run_another(_: Execution) -> None:
        results.append(rt.run(fan(2)).outputs["join"])
        done.open()

    execution.add_done_callback(run_another)

    done.wait()
    assert results == ["joined"]
    assert rt.submit(single(lambda: 2)).result(10).outputs == {"body": 2}


# --- progress ----------------------------------------------------------------------------------------


def test_progress_counts_steps_elements_and_child_steps(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=1)
    begun, may_end = Gate(), Gate()

    def each(ctx: StepContext, item: int) -> None:
        if item == 2:
            ctx.progress(3, 10)
            begun.open()
            may_end.wait()

    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2, 3], id="source")
    wf.step(each, map_over="source")
    execution = rt.submit(wf)
    begun.wait()
    progress = execution.progress()
    may_end.open()
    execution.wait(10)

    assert progress is not None
    assert (progress.done, progress.total) == (3, 6)
    assert progress.running == ("each[2]",)
    assert progress.details == {"each[2]": (3, 10)}
    final = execution.progress()
    assert final is not None
    assert (final.done, final.total, final.running) == (6, 6, ())


# --- events ------------------------------------------------------------------------------------------


def test_events_are_read_while_the_execution_goes_on_and_end_with_it(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=1)
    gates = [Gate() for _ in range(3)]
    execution = rt.submit(chain(3, lambda i: gates[i].wait()))
    seen: list[str] = []
    reading = Gate()

    def read() -> list[int | None]:
        numbers = []
        for event in execution.events():
            numbers.append(event.seq)
            seen.append(f"{event.type} {event.payload.get('path', '')}")
            reading.open()
        return numbers

    reader = Task(read)
    reading.wait()
    gates[0].open()
    eventually(lambda: "step.completed s0" in seen)
    assert "step.completed s1" not in seen
    gates[1].open()
    gates[2].open()

    numbers = reader.result()
    assert numbers == list(range(1, len(numbers) + 1))
    assert seen[-1] == "workflow.completed "


def test_events_may_be_read_from_a_number_on(runtime: Make, store: str | None) -> None:
    execution = runtime(store).submit(chain(3))
    execution.wait(10)
    every = list(execution.events())

    assert list(execution.events(after=4)) == every[4:]
    assert list(execution.events(after=len(every))) == []


def test_many_readers_get_the_same_events(runtime: Make, store: str | None) -> None:
    execution = runtime(store, max_workers=2).submit(fan(30, lambda _: last(0.001)))

    readers = [Task(lambda: [e.seq for e in execution.events()]) for _ in range(5)]

    told = [reader.result() for reader in readers]
    assert all(each == list(range(1, len(told[0]) + 1)) for each in told)


@pytest.mark.case("C022")
def test_the_events_of_many_parallel_steps_are_numbered_without_a_hole(runtime: Make, store: str | None) -> None:
    execution = runtime(store, max_workers=16).submit(fan(200, lambda i: i))
    execution.result(30).raise_for_status()

    events = list(execution.events())

    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert types_of(events)[0] == "workflow.started"
    assert types_of(events)[-1] == "workflow.completed"
    at = {(e.type, e.payload.get("path")): e.seq for e in events}
    assert len(at) == len(events)
    for i in range(200):
        assert at["step.started", f"s{i}"] < at["step.completed", f"s{i}"]  # type: ignore[operator]  # all have one
