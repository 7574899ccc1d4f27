"""The end of a Runtime: asked for, from inside, in the middle of everything, or forgotten."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ares import ExecutionStatus, RetryPolicy, Runtime, StepContext, StepStatus, Workflow
from ares.errors import RuntimeClosedError, StoreError
from tests.engine.helpers import (
    Child,
    Gate,
    GatedStore,
    Task,
    Threads,
    chain,
    eventually,
    fan,
    last,
    open_files,
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


# --- what it does ----------------------------------------------------------------------------------


def test_close_is_idempotent(store: str | None) -> None:
    rt = Runtime(store)
    rt.run(fan(2)).raise_for_status()

    rt.close()
    rt.close()
    with rt._life._lock:
        pass


def test_close_of_what_was_never_started_starts_nothing(store: str | None) -> None:
    threads = Threads()

    Runtime(store).close()

    assert threads.are_gone()
    assert store is None or not Path(store).exists()


def test_nothing_runs_on_a_closed_runtime(store: str | None) -> None:
    rt = Runtime(store)
    result = rt.run(single(lambda: 1))
    rt.close()

    for call in (
        lambda: rt.run(single(lambda: 1)),
        lambda: rt.submit(single(lambda: 1)),
        lambda: rt.resume(result.execution_id),
        rt.recover,
        lambda: rt.cancel(result.execution_id),
        rt.start,
        rt.__enter__,
    ):
        with pytest.raises(RuntimeClosedError):
            call()


def test_what_a_closed_runtime_kept_can_still_be_read(store: str | None) -> None:
    rt = Runtime(store)
    execution = rt.submit(single(lambda: 1))
    execution.wait(10)
    rt.close()

    assert execution.status is ExecutionStatus.COMPLETED
    assert execution.result().outputs == {"body": 1}
    assert types_of(execution.events())[-1] == "workflow.completed"
    assert rt.checkpoint(execution.id).outputs == {"body": 1}
    assert [each.execution_id for each in rt.executions()] == [execution.id]


def test_a_running_step_may_end_and_the_run_goes_on_later(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    begun, may_end = Gate(), Gate()
    calls: list[str] = []

    def first() -> str:
        calls.append("first")
        begun.open()
        may_end.wait()
        return "first"

    wf = Workflow("w")
    wf.step(first)
    wf.step(lambda first: calls.append("second") or f"{first}, second", id="second")
    rt = Runtime(file)
    run = Task(rt.run, wf, execution_id="x")
    begun.wait()
    closing = Task(rt.close)
    eventually(lambda: rt._life._is_closed)
    may_end.open()
    closing.result()

    with pytest.raises(RuntimeClosedError, match="x"):
        run.result()
    with Runtime(file) as again:
        assert again.execution("x").status is ExecutionStatus.INTERRUPTED
        assert again.resume("x", wf).outputs == {"first": "first", "second": "first, second"}
    assert calls == ["first", "second"]


def test_a_body_sees_that_its_runtime_closes(runtime: Make, store: str | None) -> None:
    rt = runtime(store, steps_on="workers")
    begun = Gate()
    seen: list[bool] = []

    def body(ctx: StepContext) -> None:
        begun.open()
        eventually(lambda: ctx.cancelled)
        seen.append(True)

    run = Task(rt.run, single(body))
    begun.wait()
    rt.close()

    run.result()  # it was the last step: the run completed
    assert seen == [True]


@pytest.mark.parametrize("steps_on", ["workers", "auto"])
def test_close_does_not_wait_longer_than_its_timeout_for_steps_that_hang(
    store: str | None, steps_on: str, stuck: Gate
) -> None:
    rt = Runtime(store, steps_on=steps_on)
    begun = Gate()
    run = Task(rt.run, single(lambda: begun.open() or stuck.wait(60)))
    begun.wait()

    started = time.monotonic()
    rt.close(timeout=0.2)
    took = seconds_since(started)
    stuck.open()

    assert took < 3.5
    with pytest.raises(RuntimeClosedError):
        run.result()


def test_a_step_that_was_abandoned_by_close_runs_again_and_counts_no_crash(tmp_path: Path, stuck: Gate) -> None:
    file = tmp_path / "ares.db"
    attempts: list[int] = []
    begun = Gate()

    def body(ctx: StepContext) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            begun.open()
            stuck.wait(60)
        return "done"

    wf = single(body, max_crashes=1)
    rt = Runtime(file, steps_on="workers")
    run = Task(rt.run, wf, execution_id="x")
    begun.wait()
    rt.close(timeout=0.05)
    with pytest.raises(RuntimeClosedError):
        run.result()

    with Runtime(file) as again:
        result = again.resume("x", wf)

    assert result.outputs == {"body": "done"}
    assert attempts == [1, 1]


def test_how_a_body_fails_while_its_runtime_closes_is_no_judgement_on_the_step(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    begun = Gate()
    calls: list[int] = []

    def body(ctx: StepContext) -> str:
        calls.append(1)
        if len(calls) == 1:
            begun.open()
            eventually(lambda: ctx.cancelled)
            raise RuntimeError("stopped half way")
        return "done"

    wf = single(body)
    rt = Runtime(file)
    run = Task(rt.run, wf, execution_id="x")
    begun.wait()
    rt.close()
    with pytest.raises(RuntimeClosedError):
        run.result()

    with Runtime(file) as again:
        assert again.resume("x", wf).outputs == {"body": "done"}


def test_a_retry_that_waits_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    calls: list[int] = []

    def body() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")
        return "done"

    wf = single(body, retry=RetryPolicy(max_attempts=2, initial_delay=0.5, jitter=0))
    rt = Runtime(file)
    run = Task(rt.run, wf, execution_id="x")
    eventually(lambda: calls and rt.execution("x").progress().running == ())  # type: ignore[union-attr]  # walked here
    started = time.monotonic()
    rt.close()
    assert seconds_since(started) < 3
    with pytest.raises(RuntimeClosedError):
        run.result()

    with Runtime(file) as again:
        assert again.resume("x", wf).steps["body"].attempts == 2


def test_what_is_submitted_and_has_not_begun_stays_pending(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait() or 1)
    rt = Runtime(file, max_workers=1)
    blocking = rt.submit(wf)
    begun.wait()
    waiting = [rt.submit(wf) for _ in range(3)]
    closing = Task(rt.close)
    eventually(lambda: rt._life._is_closed)
    may_end.open()
    closing.result()

    assert blocking.status is ExecutionStatus.COMPLETED
    assert {each.status for each in waiting} == {ExecutionStatus.PENDING}
    with pytest.raises(RuntimeClosedError):
        waiting[0].result()
    with Runtime(file, workflows=[wf]) as again:
        assert {each.status for each in again.executions()} == {ExecutionStatus.COMPLETED, ExecutionStatus.PENDING}
        recovery = again.recover()
        assert {each.id for each in recovery} == {each.id for each in waiting}
        assert {each.result(10).status for each in recovery} == {ExecutionStatus.COMPLETED}


def test_everyone_who_waits_for_an_execution_is_told(runtime: Make, store: str | None, stuck: Gate) -> None:
    rt = runtime(store)
    begun = Gate()
    execution = rt.submit(single(lambda: begun.open() or stuck.wait(60)))
    begun.wait()
    waiting = [Task(execution.result) for _ in range(3)]
    reader = Task(lambda: list(execution.events()))

    rt.close(timeout=0.1)

    for each in waiting:
        with pytest.raises(RuntimeClosedError):
            each.result()
    assert types_of(reader.result())[-1] == "workflow.interrupted"


def test_two_threads_may_close_at_once(store: str | None, stuck: Gate) -> None:
    rt = Runtime(store)
    begun = Gate()
    run = Task(rt.run, single(lambda: begun.open() or stuck.wait(60), timeout=60))
    begun.wait()

    closing = [Task(rt.close, 0.2) for _ in range(4)]

    for each in closing:
        each.result(5)
    with pytest.raises(RuntimeClosedError):
        run.result()


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
@pytest.mark.parametrize("what", ["started", "succeeded", "ended"])
def test_a_close_while_something_is_not_committed_yet_loses_nothing_that_was_promised(
    tmp_path: Path, steps_on: str, what: str
) -> None:
    store = GatedStore(tmp_path / "ares.db", holds=lambda kind, path: kind == what and path in ("a", ""))
    calls: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: calls.append("a") or 1, id="a", delivery="at_most_once" if what == "started" else "at_least_once")
    wf.step(lambda a: calls.append("b") or a + 1, id="b")
    rt = Runtime(store, steps_on=steps_on)  # type: ignore[arg-type]  # it passes on what it does not define
    run = Task(rt.run, wf, execution_id="x")
    store.reached.wait()
    before = list(calls)

    closing = Task(rt.close, 0.1)
    eventually(lambda: rt._life._is_closed)
    last(0.2)
    store.gate.open()
    closing.result()
    try:
        result = run.result()
    except RuntimeClosedError:
        result = None

    assert calls == before or (steps_on == "auto" and what == "started")
    with Runtime(tmp_path / "ares.db") as again:
        if what == "started" and not calls:
            # Its start stands in the journal, and nobody knows here that it did not begin.
            assert again.resume("x", wf, rerun=["a"]).outputs == {"a": 1, "b": 2}
        else:
            assert again.resume("x", wf).outputs == {"a": 1, "b": 2}
    assert calls == ["a", "b"]
    assert result is None or what == "ended"


def test_a_close_in_the_middle_of_many_runs_loses_none(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    wf = fan(4, lambda i: i)
    ids = [f"run-{n}" for n in range(12)]
    rt = Runtime(file, max_workers=3)
    runs = [Task(rt.run, wf, execution_id=each) for each in ids[:6]]
    for each in ids[6:]:
        try:
            rt.submit(wf, execution_id=each)
        except RuntimeClosedError:
            break
    last(0.01)
    rt.close()
    for run in runs:
        with suppress(RuntimeClosedError):
            run.result()

    with Runtime(file, workflows=[wf]) as again:
        for execution in again.recover():
            assert execution.result(20).status is ExecutionStatus.COMPLETED
        assert {each.status for each in again.executions()} == {ExecutionStatus.COMPLETED}


# --- from inside -----------------------------------------------------------------------------------


@pytest.mark.case("C026")
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_step_may_close_its_own_runtime(store: str | None, steps_on: str) -> None:
    rt = Runtime(store, steps_on=steps_on)
    took: list[float] = []

    def body() -> str:
        started = time.monotonic()
        rt.close()
        took.append(seconds_since(started))
        return "ended in order"

    wf = single(body)
    wf.step(lambda body: body, id="next")
    run = Task(rt.run, wf, execution_id="x")

    with pytest.raises(RuntimeClosedError):
        run.result(timeout=2)
    started = time.monotonic()
    rt.close()

    assert seconds_since(started) < 2
    assert took[0] < 0.5
    assert rt.checkpoint("x").step_states["body"].status is StepStatus.COMPLETED


def test_a_step_may_close_its_runtime_more_than_once(store: str | None) -> None:
    threads = Threads()
    rt = Runtime(store)

    run = Task(rt.run, single(lambda: [rt.close() for _ in range(5)] and None))
    run.result()  # it was the only step

    rt.close()
    eventually(threads.are_gone)


def test_a_step_of_a_submitted_execution_may_close_the_runtime(store: str | None) -> None:
    rt = Runtime(store)
    wf = single(rt.close)
    wf.step(lambda body: body, id="next")
    execution = rt.submit(wf)

    with pytest.raises(RuntimeClosedError):
        execution.result(5)


def test_a_done_callback_may_close_the_runtime(store: str | None) -> None:
    rt = Runtime(store)
    closed = Gate()
    execution = rt.submit(single(lambda: 1))
    execution.add_done_callback(lambda _: rt.close() or closed.open())

    closed.wait()

    assert execution.result().outputs == {"body": 1}


def test_a_signal_handler_that_interrupts_run_may_close_the_runtime() -> None:
    program = """
        import os, signal, sys, threading, time
        from ares import Runtime, Workflow
        from ares.errors import RuntimeClosedError

        rt = Runtime(sys.argv[1] or None)
        signal.signal(signal.SIGTERM, lambda *_: rt.close(timeout=5))
        wf = Workflow("w")
        wf.step(lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(0.2), id="a", timeout=30)
        wf.step(lambda a: a, id="b")
        begun = time.monotonic()
        try:
            rt.run(wf)
        except RuntimeClosedError:
            print("closed", time.monotonic() - begun < 2)
    """
    with Child(program, "") as child:
        assert child.result().split() == ["closed", "True"]


def test_close_while_a_run_waits_for_the_worker_that_it_lent(store: str | None) -> None:
    rt = Runtime(store, max_workers=1, steps_on="workers")
    begun = Gate()

    def inner_body(ctx: StepContext) -> None:
        begun.open()
        eventually(lambda: ctx.cancelled)

    inner = single(inner_body, name="inner")
    inner.step(lambda body: body, id="never")
    wf = single(lambda: rt.run(inner).raise_for_status(), name="outer")
    run = Task(rt.run, wf, execution_id="x")
    begun.wait()

    started = time.monotonic()
    rt.close(timeout=5)

    assert seconds_since(started) < 4
    with pytest.raises(RuntimeClosedError):
        run.result()
    assert rt.checkpoint("x").step_states["body"].status is not StepStatus.FAILED


# --- nothing is left ---------------------------------------------------------------------------------


@pytest.mark.case("C050")
def test_each_close_gives_back_every_thread_and_every_file(tmp_path: Path) -> None:
    threads = Threads()
    wf = chain(3)
    file = tmp_path / "ares.db"
    with Runtime(file) as rt:
        rt.run(wf).raise_for_status()
    files = open_files()
    took: list[float] = []

    for _ in range(300):
        started = time.monotonic()
        with Runtime(file, max_workers=2) as rt:
            rt.run(wf).raise_for_status()
        took.append(seconds_since(started))
        assert threads.are_gone(), threads.names()
        assert open_files() <= files

    half = len(took) // 2
    assert sorted(took[half:])[half // 2] < 3 * sorted(took[:half])[half // 2]


def test_a_thousand_runtimes_leave_no_more_than_ten() -> None:
    wf = fan(2)

    def one() -> None:
        with Runtime(max_workers=2) as rt:
            rt.run(wf).raise_for_status()

    for _ in range(10):
        one()
    threads, files = threading.active_count(), open_files()

    for _ in range(990):
        one()

    assert threading.active_count() <= threads
    assert open_files() <= files


def test_runtimes_that_are_dropped_without_a_close_leave_no_thread_without_a_store() -> None:
    threads = Threads()

    for _ in range(100):
        Runtime().run(chain(2)).raise_for_status()

    assert threads.are_gone()


@pytest.mark.case("C028")
def test_a_runtime_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    places = [tmp_path / "file" / "ares.db", tmp_path]
    threads, files = threading.active_count(), open_files()

    for n in range(100):
        with pytest.raises(StoreError):
            Runtime(places[n % 2]).start()

    assert threading.active_count() <= threads + 1
    assert open_files() <= files + 1


def test_a_workflow_that_cannot_run_among_the_known_ones_stops_what_started(tmp_path: Path) -> None:
    threads = Threads()
    files = open_files()

    for _ in range(10):
        rt = Runtime(tmp_path / "ares.db", workflows=[single(lambda nowhere: nowhere)])
        with pytest.raises(Exception, match="nowhere"):
            rt.start()

    assert threads.are_gone()
    assert open_files() <= files + 1


# --- forgotten ---------------------------------------------------------------------------------------

FORGETFUL = """
    import sys, threading, time, atexit
    begun = time.monotonic()
    started = []
    def at_the_very_end():
        ares = [t.name for t in started if t.name.startswith("ares-")]
        print("threads started at exit:", ares, flush=True)
        print("took", time.monotonic() - begun, flush=True)
    atexit.register(at_the_very_end)  # registered before ares, so run after it

    from ares import Runtime, Workflow, StepSpec
    rt = Runtime(sys.argv[1] or None)
    wf = Workflow("w")
    {steps}
    original = threading.Thread.start
    def watch():
        global begun
        begun = time.monotonic()
        def start(thread):
            started.append(thread)
            original(thread)
        threading.Thread.start = start
    atexit.register(watch)  # registered after ares, so run before it
    {act}
"""


def forgetful(steps: str, act: str) -> str:
    return FORGETFUL.format(steps=steps, act=act)


@pytest.mark.parametrize("file", ["", "ares.db"])
@pytest.mark.parametrize(
    ("steps", "act"),
    [
        ("wf.step(lambda: 1, id='a')", "rt.run(wf).raise_for_status()"),
        ("wf.step(lambda: time.sleep(3600), id='a')", "rt.submit(wf); time.sleep(0.2)"),
        ("wf.step(lambda: time.sleep(3600), id='a', timeout=0.1)", "rt.run(wf)"),
        (
            "wf.step(lambda: time.sleep(3600), id='a')",
            "threading.Thread(target=rt.run, args=(wf,), daemon=True).start(); time.sleep(0.2)",
        ),
        (
            "wf.step(lambda: 1, id='a')",
            (
                "more = [Runtime(f'{sys.argv[1]}{i}' if sys.argv[1] else None) for i in range(3)]; "
                "[each.submit(wf) for each in more]"
            ),
        ),
    ],
    ids=["idle", "submitted", "abandoned", "inline", "several"],
)
def test_a_runtime_that_was_never_closed_closes_itself_at_exit(tmp_path: Path, file: str, steps: str, act: str) -> None:
    with Child(forgetful(steps, act), str(tmp_path / file) if file else "", warnings="default") as child:
        code, out, err = child.finish(timeout=20)

    assert code == 0, err
    assert "Traceback" not in err, err
    started, took = out.splitlines()
    assert started == "threads started at exit: []"
    assert float(took.split()[1]) < 2.0
    if file:
        with Runtime(tmp_path / file) as rt:
            assert {e.status for e in rt.executions()} <= {
                ExecutionStatus.COMPLETED,
                ExecutionStatus.INTERRUPTED,
                ExecutionStatus.PENDING,
                ExecutionStatus.FAILED,
            }


def test_what_a_forgotten_runtime_was_running_can_be_resumed_at_once(tmp_path: Path) -> None:
    program = """
        import sys, time
        from ares import Runtime, Workflow
        rt = Runtime(sys.argv[1])
        wf = Workflow("w")
        wf.step(lambda: 1, id="a")
        wf.step(lambda a: time.sleep(3600), id="b")
        rt.submit(wf, execution_id="x")
        time.sleep(0.3)
    """
    file = tmp_path / "ares.db"
    with Child(program, str(file), warnings="default") as child:
        assert child.finish()[0] == 0
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    wf.step(lambda a: a + 1, id="b")

    with Runtime(file) as rt:
        result = rt.resume("x", wf)

    assert result.outputs == {"a": 1, "b": 2}


def test_an_unused_runtime_costs_nothing_at_exit() -> None:
    program = """
        from ares import Runtime
        made = [Runtime() for _ in range(50)]
    """
    with Child(program) as child:
        assert child.result() == ""
    assert seconds_since(child.begun) < 5
