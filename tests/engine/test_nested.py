"""Runs inside steps: at any depth, on one worker, and each only once."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, RetryPolicy, Runtime, StepContext, StepSpec, Workflow
from ares.errors import (
    AttemptEnded,
    ExecutionBusyError,
    ExecutionConflictError,
    RuntimeClosedError,
    StepTimeoutError,
)
from tests.engine.helpers import (
    Child,
    Gate,
    Task,
    chain,
    eventually,
    fan,
    seconds_since,
    single,
)

Make = Callable[..., Runtime]


@pytest.fixture
def stuck() -> Iterator[Gate]:
    """What hanging bodies wait for; opened when the test is over, so that their threads end."""
    gate = Gate()
    yield gate
    gate.open()


def nested_ids(rt: Runtime, parent: str) -> list[str]:
    return [each.execution_id for each in rt.executions() if each.parent_id == parent]


# --- depth -----------------------------------------------------------------------------------------


@pytest.mark.case("C009")
@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
@pytest.mark.parametrize("depth", [1, 10])
def test_runs_nest_to_any_depth_on_one_worker(runtime: Make, store: str | None, steps_on: str, depth: int) -> None:
    rt = runtime(store, max_workers=1, steps_on=steps_on)

    def level(left: int) -> Workflow:
        wf = Workflow(f"level{left}")
        if left == 0:
            wf.step(lambda: 2, id="two")
            wf.step(lambda: 3, id="three")
            wf.step(lambda two, three: two * three, id="result")
        else:
            wf.step(lambda: rt.run(level(left - 1)).raise_for_status().outputs["result"] + 1, id="result")
        return wf

    started = time.monotonic()
    result = rt.run(level(depth)).raise_for_status()

    assert result.outputs["result"] == 6 + depth
    assert seconds_since(started) < 5
    pool = rt._life.engine().pool
    eventually(lambda: pool.busy == 0)


@pytest.mark.case("C009")
def test_sub_workflows_nest_to_any_depth_on_one_worker(runtime: Make, store: str | None) -> None:
    def level(left: int) -> Workflow:
        wf = Workflow(f"level{left}")
        if left == 0:
            wf.step(lambda: 2, id="two")
            wf.step(lambda: 3, id="three")
            wf.step(lambda two, three: two * three, id="result")
        else:
            wf.add(StepSpec("inner", workflow=level(left - 1)))
            wf.step(lambda inner: inner["result"] + 1, id="result")
        return wf

    result = runtime(store, max_workers=1).run(level(10)).raise_for_status()

    assert result.outputs["result"] == 16


def test_many_steps_of_a_fan_may_nest_at_once_on_few_workers(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    inner = fan(3, lambda i: i)
    wf = Workflow("w")
    for i in range(20):
        wf.add(StepSpec(f"s{i}", lambda: rt.run(inner).raise_for_status().outputs["join"]))

    result = rt.run(wf).raise_for_status()

    assert set(result.outputs.values()) == {"joined"}


def test_a_step_may_wait_for_what_it_submitted_on_one_worker(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=1, steps_on="workers")
    inner = fan(3)

    def body() -> object:
        first, second = rt.submit(inner), rt.submit(inner)
        return first.result(20).outputs["join"], second.result(20).outputs["join"]

    assert rt.run(single(body)).raise_for_status().outputs == {"body": ("joined", "joined")}


def test_a_step_may_wait_for_an_execution_that_was_submitted_elsewhere(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    begun, may_end = Gate(), Gate()
    other = rt.submit(single(lambda: begun.open() or may_end.wait() or 7))
    begun.wait()

    def body(ctx: StepContext) -> object:
        may_end.open()
        return rt.execution(other.id).result(20).outputs["body"]

    assert rt.run(single(body)).outputs == {"body": 7}


def test_while_a_worker_is_lent_another_takes_its_place(runtime: Make) -> None:
    rt = runtime(max_workers=1, steps_on="workers")
    beside = Gate()
    inner = single(beside.wait, name="inner")
    wf = Workflow("w")
    wf.step(lambda: rt.run(inner).raise_for_status() and None, id="nests")
    wf.step(beside.open, id="beside")

    rt.submit(wf).result(20).raise_for_status()


def test_two_runtimes_may_run_inside_each_other(runtime: Make) -> None:
    first, second = runtime(max_workers=1), runtime(max_workers=1)

    def level(left: int) -> Workflow:
        wf = Workflow(f"level{left}")
        wf.step(lambda: 1, id="beside")
        rt = first if left % 2 else second
        if left == 0:
            wf.step(lambda: 0, id="result")
        else:
            wf.step(lambda: rt.run(level(left - 1)).raise_for_status().outputs["result"] + 1, id="result")
        return wf

    assert first.run(level(6)).raise_for_status().outputs["result"] == 6


def test_a_run_on_another_runtime_ends_with_the_step_that_it_is_nested_in(runtime: Make, stuck: Gate) -> None:
    first, second = Runtime(), runtime(steps_on="workers")
    begun = Gate()
    ended: list[BaseException] = []

    def body() -> str:
        try:
            return str(second.run(single(lambda: begun.open() or stuck.wait(60))).status)
        except BaseException as error:
            ended.append(error)
            raise

    run = Task(first.run, single(body))
    begun.wait()
    first.close(timeout=0.2)

    with pytest.raises(RuntimeClosedError):
        run.result()
    eventually(lambda: ended)
    assert isinstance(ended[0], AttemptEnded)
    assert second.run(single(lambda: 1)).status is ExecutionStatus.COMPLETED


def test_a_run_on_another_thread_of_a_step_is_no_nested_run(runtime: Make) -> None:
    rt = runtime()

    def body() -> str:
        return Task(rt.run, single(lambda: 1)).result().execution_id

    result = rt.run(single(body))

    assert nested_ids(rt, result.execution_id) == []


# --- identity --------------------------------------------------------------------------------------


def test_a_nested_run_knows_its_parent(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    result = rt.run(single(lambda: [rt.run(single(lambda: 1)).execution_id for _ in range(3)]))

    assert sorted(nested_ids(rt, result.execution_id)) == sorted(result.outputs["body"])
    assert len(set(result.outputs["body"])) == 3


def test_a_nested_run_that_completed_is_not_run_again_by_the_next_attempt(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    calls: list[str] = []
    inner = single(lambda: calls.append("inner") or "once", name="inner")

    def body(ctx: StepContext) -> str:
        value = rt.run(inner).raise_for_status().outputs["body"]
        calls.append(f"outer {ctx.attempt}")
        if ctx.attempt < 3:
            raise ValueError("again")
        return value

    result = rt.run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    assert result.outputs == {"body": "once"}
    assert calls == ["inner", "outer 1", "outer 2", "outer 3"]


def test_a_nested_run_that_failed_goes_on_in_the_next_attempt(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    calls: list[str] = []
    inner = Workflow("inner")
    inner.step(lambda: calls.append("first"), id="first")

    def second() -> str:
        calls.append("second")
        if calls.count("second") == 1:
            raise ValueError("once")
        return "done"

    inner.step(second, depends_on=["first"])
    body = single(
        lambda: rt.run(inner).raise_for_status().outputs["second"],
        retry=RetryPolicy(max_attempts=2, initial_delay=0),
    )

    assert rt.run(body).outputs == {"body": "done"}
    assert calls == ["first", "second", "second"]


def test_the_elements_of_a_map_have_nested_runs_of_their_own(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    inner = Workflow("inner", inputs={"n": int})
    inner.step(lambda n: n * n, id="square")
    wf = Workflow("w")
    wf.step(lambda: list(range(10)), id="source")
    wf.step(lambda item: rt.run(inner, {"n": item}).outputs["square"], id="each", map_over="source")

    assert rt.run(wf).outputs["each"] == [n * n for n in range(10)]


def test_after_a_crash_and_a_resume_a_completed_nested_run_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    calls: list[str] = []
    hangs = Gate()

    def make(rt: Runtime) -> Workflow:
        def body(ctx: StepContext) -> str:
            value = rt.run(single(lambda: calls.append("inner") or "value", name="inner")).outputs["body"]
            if len(calls) == 1:
                calls.append("hung")
                hangs.wait(60)
            return str(value)

        return single(body)

    first = Runtime(file, steps_on="workers")
    run = Task(first.run, make(first), execution_id="x")
    eventually(lambda: "hung" in calls)
    first.close(timeout=0.05)
    with pytest.raises(RuntimeClosedError):
        run.result()

    with Runtime(file) as second:
        result = second.resume("x", make(second))
    hangs.open()

    assert result.outputs == {"body": "value"}
    assert calls == ["inner", "hung"]


def test_after_a_kill_a_nested_run_that_completed_is_not_repeated(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from ares import Runtime, Workflow
        file, traces, last = sys.argv[1:]

        def leave(text):
            with open(traces, "a") as out:
                out.write(text + "\\n")

        inner = Workflow("inner")
        inner.step(lambda: leave("inner") or "value", id="a")
        rt = Runtime(file)
        wf = Workflow("outer")

        def body(ctx):
            value = rt.run(inner).raise_for_status().outputs["a"]
            leave("outer")
            if last == "no":
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        wf.step(body)
        result = rt.run(wf, execution_id="x", if_exists="resume").raise_for_status()
        print(result.outputs["body"], flush=True)
        rt.close()
    """
    file, traces = str(tmp_path / "ares.db"), tmp_path / "traces"
    for _ in range(2):
        with Child(program, file, str(traces), "no") as child:
            assert child.finish()[0] == -9
    with Child(program, file, str(traces), "yes") as child:
        assert child.result().strip() == "value"

    assert traces.read_text().split() == ["inner", "outer", "outer", "outer"]


def test_a_nested_run_of_an_id_that_is_given_is_an_execution_like_any_other(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    inner = single(lambda: 1, name="inner")

    result = rt.run(single(lambda: rt.run(inner, execution_id="mine").execution_id))

    assert result.outputs == {"body": "mine"}
    assert nested_ids(rt, result.execution_id) == ["mine"]


def test_another_workflow_in_the_place_of_a_nested_run_is_refused(runtime: Make, store: str | None) -> None:
    rt = runtime(store)

    def body(ctx: StepContext) -> object:
        rt.run(single(lambda: 1, name=f"inner{ctx.attempt}"))
        raise ValueError("again")

    result = rt.run(single(body, retry=RetryPolicy(max_attempts=2, initial_delay=0)))

    assert isinstance(result.error, ExecutionConflictError)


def test_recover_leaves_nested_runs_to_their_parents(tmp_path: Path, stuck: Gate) -> None:
    file = tmp_path / "ares.db"
    inner = single(lambda: 1, name="inner")
    begun = Gate()
    hanging = single(lambda: begun.open() or stuck.wait(60), name="inner")
    first = Runtime(file, steps_on="workers")
    run = Task(first.run, single(lambda: first.run(hanging), name="outer"), execution_id="outer")
    begun.wait()
    first.close(timeout=0.05)
    with pytest.raises(RuntimeClosedError):
        run.result()

    with Runtime(file) as second:
        outer = single(lambda: second.run(inner).outputs["body"], name="outer")
        second._workflows = (inner, outer)
        recovery = second.recover()
        assert [each.id for each in recovery] == ["outer"]
        assert [reason for reason in recovery.left.values() if "nested in outer" in reason]
        assert next(iter(recovery)).result(20).outputs == {"body": 1}


# --- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_nested_run_is_interrupted_when_its_step_times_out_and_the_next_attempt_goes_on_with_it(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    rt = runtime(store, steps_on=steps_on)
    calls: list[str] = []
    ended: list[BaseException] = []
    hang = Gate()
    inner = Workflow("inner")
    inner.step(lambda: calls.append("first"), id="first")

    def second() -> str:
        calls.append("second")
        if calls.count("second") == 1:
            hang.wait(60)
        return "done"

    inner.step(second, depends_on=["first"])

    def body() -> str:
        try:
            return str(rt.run(inner).raise_for_status().outputs["second"])
        except BaseException as error:
            ended.append(error)
            raise

    result = rt.run(single(body, timeout=1.0, retry=RetryPolicy(max_attempts=2, initial_delay=0)))
    eventually(lambda: ended)
    hang.open()

    assert result.outputs == {"body": "done"}
    assert calls == ["first", "second", "second"]
    assert [type(each) for each in ended] == [AttemptEnded]


def test_the_nested_run_of_a_step_that_timed_out_for_good_gives_its_claim_back(
    runtime: Make, store: str | None, stuck: Gate
) -> None:
    rt = runtime(store)
    inner = single(lambda: stuck.wait(60), name="inner")

    result = rt.run(single(lambda: rt.run(inner), timeout=0.2))

    assert isinstance(result.error, StepTimeoutError)
    (nested,) = nested_ids(rt, result.execution_id)
    eventually(lambda: rt.execution(nested).status is ExecutionStatus.INTERRUPTED)


def test_a_nested_run_is_cancelled_with_its_parent(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    inner = single(lambda: begun.open() or may_end.wait(), name="inner")
    inner.step(lambda body: body, id="never")
    run = Task(rt.run, single(lambda: rt.run(inner).status), execution_id="x")
    begun.wait()

    rt.cancel("x", "all of it")
    may_end.open()

    assert run.result().status is ExecutionStatus.CANCELLED
    (nested,) = nested_ids(rt, "x")
    assert rt.execution(nested).status is ExecutionStatus.CANCELLED
    assert rt.checkpoint(nested).step_states["never"].reason == "cancelled"


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_nested_run_that_begins_after_its_step_was_asked_to_end_ends_too(store: str | None, how: str) -> None:
    rt = Runtime(store)
    begun = Gate()
    inner = Workflow("inner")
    inner.step(lambda: 1, id="first")
    inner.step(lambda first: first, id="second")
    seen: list[object] = []

    def body(ctx: StepContext) -> str:
        begun.open()
        eventually(lambda: ctx.cancelled)
        try:
            seen.append(rt.run(inner).status)
        except BaseException as error:
            seen.append(type(error))
            raise
        return "ended"

    run = Task(rt.run, single(body), execution_id="x")
    begun.wait()
    if how == "cancel":
        rt.cancel("x")
        assert run.result().status is ExecutionStatus.CANCELLED
        assert seen == [ExecutionStatus.CANCELLED]
    else:
        rt.close()
        with pytest.raises(RuntimeClosedError):
            run.result()
        assert seen in ([AttemptEnded], [RuntimeClosedError])
    rt.close()


def test_cancelling_a_nested_run_alone_leaves_its_parent_to_decide(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    inner = single(lambda: begun.open() or may_end.wait(), name="inner")
    inner.step(lambda body: body, id="never")
    run = Task(rt.run, single(lambda: str(rt.run(inner, execution_id="inner").status)))
    begun.wait()

    rt.cancel("inner")
    may_end.open()

    assert run.result().outputs == {"body": "CANCELLED"}


def test_the_failure_of_a_nested_run_is_what_its_step_makes_of_it(runtime: Make) -> None:
    rt = runtime()
    inner = single(lambda: 1 / 0, name="inner")

    result = rt.run(single(lambda: str(rt.run(inner).status)))

    assert result.outputs == {"body": "FAILED"}


def test_no_run_begins_inside_an_attempt_that_is_over(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    stuck, done = Gate(), Gate()
    ended: list[type[BaseException]] = []

    def body() -> None:
        stuck.wait(60)
        for options in ({}, {"execution_id": "named"}):
            try:
                rt.run(single(lambda: 1, name="inner"), **options)  # type: ignore[arg-type]  # keywords
            except BaseException as error:
                ended.append(type(error))
        done.open()

    rt.run(single(body, timeout=0.05))
    stuck.open()
    done.wait()

    assert ended == [AttemptEnded, AttemptEnded]
    assert not list(rt.executions(status="RUNNING"))


def test_a_nested_run_under_a_timeout_runs_nothing_inline(runtime: Make) -> None:
    rt = runtime()
    inner = single(lambda: threading.get_ident(), name="inner")  # noqa: PLW0108 - a builtin has no signature

    result = rt.run(single(lambda: (threading.get_ident(), rt.run(inner).outputs["body"]), timeout=60))

    outer_thread, inner_thread = result.outputs["body"]
    assert outer_thread != inner_thread


def test_a_live_execution_cannot_be_run_again_from_inside(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    refused: list[Any] = []

    def body(ctx: StepContext) -> None:
        try:
            rt.resume(ctx.execution_id)
        except ExecutionBusyError as error:
            refused.append(error.execution_id)

    result = rt.run(single(body))

    assert refused == [result.execution_id]


def test_a_chain_of_nested_runs_one_after_another_does_not_pile_up(runtime: Make) -> None:
    rt = runtime(max_workers=1)

    result = rt.run(chain(100, lambda _: str(rt.run(fan(2)).status)))

    assert set(result.outputs.values()) == {"COMPLETED"}
    assert rt._life.engine().pool.busy == 0
