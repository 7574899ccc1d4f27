"""Time: attempts that take too long, runs that take too long, and attempts that wait to be repeated."""

import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ares import (
    Delivery,
    ExecutionStatus,
    RetryPolicy,
    Runtime,
    StepContext,
    StepSpec,
    StepStatus,
    Trigger,
    Workflow,
)
from ares.engine import cutting
from ares.errors import (
    AttemptEnded,
    ExecutionTimeoutError,
    OutcomeUnknownError,
    PartFailedError,
    RetryAfter,
    RouteError,
    StepCancelledError,
    StepTimeoutError,
    UsageError,
)
from tests.engine.helpers import (
    Barrier,
    Child,
    Gate,
    Task,
    Threads,
    events_of,
    eventually,
    last,
    seconds_since,
    single,
    statuses,
    types_of,
)

Make = Callable[..., Runtime]


@pytest.fixture
def stuck() -> Iterator[Gate]:
    """What hanging bodies wait for; opened when the test is over, so that their threads end."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that attempts are given to end by themselves."""
    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.1)
    return 0.1


# --- one attempt ---------------------------------------------------------------------------------


@pytest.mark.case("C011")
def test_a_step_that_blocks_fails_at_its_deadline_and_its_worker_is_replaced(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    at: dict[str, float] = {}
    begun = time.monotonic()
    wf = single(lambda: last(5), timeout=1)
    wf.step(lambda: at.setdefault("independent", seconds_since(begun)), id="independent")

    result = rt.run(wf)

    assert seconds_since(begun) < 2.5
    assert at["independent"] < 1.7
    error = result.steps["body"].error
    assert isinstance(error, StepTimeoutError)
    assert isinstance(error, TimeoutError)
    assert (error.path, error.timeout) == ("body", 1)
    assert 1.0 <= result.steps["body"].duration < 1.5
    assert result.status is ExecutionStatus.FAILED


def test_an_abandoned_thread_is_a_warning_of_the_result(runtime: Make, stuck: Gate) -> None:
    rt = runtime()

    result = rt.run(single(lambda: stuck.wait(60), timeout=0.05))

    assert len(result.warnings) == 1
    assert "body" in result.warnings[0]


@pytest.mark.case("C012")
def test_a_late_return_changes_nothing(runtime: Make, store: str | None) -> None:
    threads = Threads()
    rt = runtime(store)
    late, stuck = Gate(), Gate()

    def body(ctx: StepContext) -> int:
        if ctx.attempt == 1:
            stuck.wait()
            late.open()
        return ctx.attempt

    wf = single(body, timeout=0.1, retry=RetryPolicy(max_attempts=2, initial_delay=0))
    result = rt.run(wf)
    stuck.open()
    late.wait()
    eventually(lambda: len(threads.all("ares-worker")) == 1)

    assert result.outputs == {"body": 2}
    assert result.steps["body"].attempts == 2
    told = types_of(events_of(rt, result.execution_id))
    assert [t for t in told if t.startswith("step.")] == [
        "step.started",
        "step.retrying",
        "step.started",
        "step.completed",
    ]
    assert rt.resume(result.execution_id).outputs == {"body": 2}


def test_a_late_failure_changes_nothing(runtime: Make) -> None:
    rt = runtime()
    late, stuck = Gate(), Gate()

    def body() -> None:
        try:
            stuck.wait()
            raise ValueError("late")
        finally:
            late.open()

    result = rt.run(single(body, timeout=0.05))
    before = types_of(events_of(rt, result.execution_id))
    stuck.open()
    late.wait()

    assert isinstance(result.error, StepTimeoutError)
    assert types_of(events_of(rt, result.execution_id)) == before


def test_the_context_of_an_attempt_that_is_over_is_dead(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    stuck, done = Gate(), Gate()
    ended: list[str] = []

    def body(ctx: StepContext) -> None:
        stuck.wait()
        calls: dict[str, Callable[[], object]] = {
            "set": lambda: ctx.set("v", 1),
            "once": lambda: ctx.once("k", lambda: 1),
            "tool": lambda: ctx.tool("t", lambda: 1),
            "emit": lambda: ctx.emit("x.y"),
            "progress": lambda: ctx.progress(1),
            "variables": lambda: ctx.variables,
            "upstream": lambda: ctx.upstream,
            "idempotency_key": lambda: ctx.idempotency_key,
            "idempotency_key_for": lambda: ctx.idempotency_key_for("k"),
        }
        for name, call in calls.items():
            try:
                call()
            except AttemptEnded:
                ended.append(name)
        ended.append(f"cancelled {ctx.cancelled}")
        done.open()

    wf = Workflow("w", variables={"v": 0})
    wf.step(body, timeout=0.05, writes=["v"])
    rt.run(wf)
    stuck.open()
    done.wait()

    assert ended == [
        "set",
        "once",
        "tool",
        "emit",
        "progress",
        "variables",
        "upstream",
        "idempotency_key",
        "idempotency_key_for",
        "cancelled True",
    ]


def test_attempt_ended_passes_through_except_exception(runtime: Make) -> None:
    stuck, done = Gate(), Gate()
    swallowed: list[bool] = []

    def body(ctx: StepContext) -> None:
        stuck.wait()
        try:
            try:
                ctx.progress(1)
            except Exception:
                swallowed.append(True)
        finally:
            done.open()

    runtime().run(single(body, timeout=0.05))
    stuck.open()
    done.wait()

    assert swallowed == []


def test_a_cooperative_body_sees_its_deadline_and_that_it_is_cancelled(runtime: Make) -> None:
    seen: dict[str, Any] = {}
    done = Gate()

    def body(ctx: StepContext) -> None:
        assert ctx.deadline is not None
        seen["left"] = ctx.deadline - time.monotonic()
        eventually(lambda: ctx.cancelled)
        done.open()

    runtime().run(single(body, timeout=0.2))
    done.wait()

    assert 0.1 < seen["left"] <= 0.2


def test_the_deadline_is_none_without_a_timeout(runtime: Make) -> None:
    assert runtime().run(single(lambda ctx: ctx.deadline)).outputs == {"body": None}


def test_a_timeout_counts_for_each_attempt_anew(runtime: Make) -> None:
    rt = runtime()
    calls: list[int] = []

    def body(ctx: StepContext) -> int:
        calls.append(ctx.attempt)
        last(0.15)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    result = rt.run(single(body, timeout=0.4, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    assert result.outputs == {"body": 3}


def test_a_body_that_ends_just_before_its_deadline_is_not_abandoned(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    bodies = Workflow("w")
    for i in range(200):
        bodies.add(StepSpec(f"s{i}", lambda: last(0.002), timeout=0.0025))

    result = rt.run(bodies)

    timed_out = [p for p, s in result.steps.items() if s.status is StepStatus.FAILED]
    assert all(isinstance(result.steps[p].error, StepTimeoutError) for p in timed_out)
    engine = rt._life.engine()
    eventually(lambda: engine.pool.busy == 0)
    assert rt.run(single(lambda: 1, timeout=60)).outputs == {"body": 1}


def test_the_elements_of_a_map_have_a_timeout_each(runtime: Make, stuck: Gate) -> None:
    rt = runtime(max_workers=4)
    wf = Workflow("w")
    wf.step(lambda: list(range(4)), id="source")
    wf.step(
        lambda item: stuck.wait(60) if item == 2 else item,
        id="each",
        map_over="source",
        timeout=0.3,
        on_item_failure="collect",
    )

    output = rt.run(wf).outputs["each"]

    assert [output[0], output[1], output[3]] == [0, 1, 3]
    assert isinstance(output[2].error, StepTimeoutError)


def test_a_condition_is_under_the_timeout_of_its_step(runtime: Make, stuck: Gate) -> None:
    called: list[int] = []

    result = runtime().run(single(lambda: called.append(1), condition=lambda: stuck.wait(60), timeout=0.05))

    assert isinstance(result.steps["body"].error, StepTimeoutError)
    assert called == []


def test_a_router_is_under_the_timeout_of_its_step_which_stays_completed(runtime: Make, stuck: Gate) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="point", router=lambda: stuck.wait(60), branches=["a"], timeout=0.1)
    wf.step(lambda: 2, id="a", depends_on=["point"])

    result = runtime().run(wf)

    assert result.status is ExecutionStatus.FAILED
    assert statuses(result) == {"point": "COMPLETED", "a": "SKIPPED"}
    assert result.steps["a"].reason.startswith("no_route")
    assert isinstance(result.error, RouteError)


def test_a_reconciliation_is_under_the_timeout_of_its_step(runtime: Make, stuck: Gate) -> None:
    def body() -> None:
        raise ValueError("who knows")

    result = runtime().run(single(body, delivery=Delivery.AT_MOST_ONCE, reconcile=lambda: stuck.wait(60), timeout=0.1))

    error = result.steps["body"].error
    assert isinstance(error, OutcomeUnknownError)
    assert isinstance(error.__cause__, StepTimeoutError)


def test_an_at_most_once_step_that_times_out_is_not_run_again(runtime: Make, stuck: Gate) -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        stuck.wait(60)

    result = runtime().run(
        single(body, delivery=Delivery.AT_MOST_ONCE, timeout=0.05, retry=RetryPolicy(max_attempts=3, initial_delay=0))
    )

    assert [question.key for question in result.interrupts] == ["outcome"]
    assert "0.05 s" in result.interrupts[0].message
    assert calls == [1]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1", True])
def test_a_runs_timeout_must_be_seconds_above_zero(runtime: Make, timeout: object) -> None:
    with pytest.raises(UsageError, match="timeout"):
        runtime().run(single(lambda: 1), timeout=timeout)  # type: ignore[arg-type]  # that is the point


# --- capacity ------------------------------------------------------------------------------------


def test_capacity_is_whole_again_after_every_worker_hung(runtime: Make, stuck: Gate) -> None:
    rt = runtime(max_workers=4)
    hanging = Workflow("hanging")
    for i in range(4):
        hanging.add(StepSpec(f"h{i}", lambda: stuck.wait(60), timeout=0.1))
    together = Barrier(4)
    whole = Workflow("whole")
    for i in range(4):
        whole.add(StepSpec(f"w{i}", together.wait))

    rt.run(hanging)
    rt.run(whole).raise_for_status()

    engine = rt._life.engine()
    assert engine.pool.abandoned == 4
    eventually(lambda: engine.pool.busy == 0)


def test_a_process_whose_workers_all_hang_runs_on_and_exits_by_itself() -> None:
    program = """
        import threading, time
        from ares import Runtime, StepSpec, Workflow

        wf = Workflow("w")
        for i in range(4):
            wf.add(StepSpec(f"h{i}", lambda: time.sleep(3600), timeout=0.3))
        together = threading.Barrier(4, timeout=10)
        for i in range(4):
            wf.add(StepSpec(f"later{i}", lambda: together.wait() and None, depends_on=["h0", "h1"], trigger="always"))

        with Runtime(max_workers=4) as rt:
            result = rt.run(wf)
            print([str(result.steps[f"h{i}"].status) for i in range(4)], flush=True)
            print([str(result.steps[f"later{i}"].status) for i in range(4)], flush=True)
            together.reset()
            again = Workflow("again")
            for i in range(4):
                again.add(StepSpec(f"s{i}", together.wait))
            print(rt.run(again).status, flush=True)
    """
    with Child(program) as child:
        out = child.result(timeout=10)

    assert out.splitlines() == [str(["FAILED"] * 4), str(["COMPLETED"] * 4), "COMPLETED"]
    assert seconds_since(child.begun) < 8


# --- sub-workflows -------------------------------------------------------------------------------


def child_of(body: Callable[..., Any], **options: Any) -> Workflow:
    wf = Workflow("parent")
    wf.add(StepSpec("child", workflow=single(body, name="inner"), **options))
    return wf


def test_the_timeout_of_a_sub_workflow_covers_all_of_it(runtime: Make, stuck: Gate, short_grace: float) -> None:
    begun = time.monotonic()

    result = runtime().run(child_of(lambda: stuck.wait(60), timeout=0.4))

    assert seconds_since(begun) < 3
    assert isinstance(result.steps["child"].error, StepTimeoutError)
    assert isinstance(result.steps["child/body"].error, StepCancelledError)


def test_what_a_timed_out_sub_workflow_has_not_begun_is_skipped(runtime: Make, short_grace: float) -> None:
    inner = Workflow("inner")
    inner.step(lambda ctx: eventually(lambda: ctx.cancelled), id="slow")
    inner.step(lambda slow: slow, id="next")
    inner.add(StepSpec("clean", lambda: "clean", depends_on=["next"], trigger=Trigger.ALWAYS))
    wf = Workflow("parent")
    wf.add(StepSpec("child", workflow=inner, timeout=0.4))

    result = runtime().run(wf)

    assert isinstance(result.steps["child"].error, StepTimeoutError)
    assert result.steps["child/next"].reason == "timeout"
    assert result.steps["child/clean"].status is StepStatus.COMPLETED


def test_a_sub_workflow_in_time_is_not_touched(runtime: Make) -> None:
    result = runtime().run(child_of(lambda: 1, timeout=60))

    assert result.outputs == {"child": {"body": 1}}


def test_a_timed_out_step_fails_the_sub_workflow_it_is_in(runtime: Make, stuck: Gate) -> None:
    wf = Workflow("parent")
    wf.add(StepSpec("child", workflow=single(lambda: stuck.wait(60), name="inner", timeout=0.05)))

    result = runtime().run(wf)

    assert isinstance(result.steps["child"].error, PartFailedError)
    assert isinstance(result.error, StepTimeoutError)


# --- the execution -------------------------------------------------------------------------------


def test_an_execution_that_walks_too_long_fails_and_names_what_was_not_done(
    runtime: Make, store: str | None, stuck: Gate, short_grace: float
) -> None:
    rt = runtime(store)
    wf = Workflow("w")
    wf.step(lambda: 1, id="quick")
    wf.step(lambda quick: stuck.wait(60), id="slow")
    wf.step(lambda slow: slow, id="never")
    wf.add(StepSpec("clean", lambda: "clean", depends_on=["never"], trigger=Trigger.ALWAYS))

    result = rt.run(wf, timeout=0.5)

    assert result.status is ExecutionStatus.FAILED
    assert isinstance(result.error, ExecutionTimeoutError)
    assert isinstance(result.error, TimeoutError)
    assert result.error.timeout == 0.5
    assert result.error.steps == ("slow", "never")
    assert isinstance(result.steps["slow"].error, StepCancelledError)
    assert result.steps["never"].reason == "timeout"
    assert result.outputs == {"quick": 1, "clean": "clean"}


def test_a_running_step_gets_the_grace_to_end_by_itself(runtime: Make) -> None:
    wf = single(lambda ctx: eventually(lambda: ctx.cancelled) or "in order")
    wf.step(lambda body: body, id="never")

    result = runtime().run(wf, timeout=0.5)

    assert result.outputs == {"body": "in order"}
    assert isinstance(result.error, ExecutionTimeoutError)
    assert result.error.steps == ("never",)


def test_a_resume_gets_the_timeout_anew_and_may_change_it(
    runtime: Make, store: str | None, stuck: Gate, short_grace: float
) -> None:
    rt = runtime(store)
    hangs = [True]
    wf = single(lambda: stuck.wait(60) if hangs else "done")
    first = rt.run(wf, timeout=0.1)

    second = rt.resume(first.execution_id, wf)
    hangs.clear()
    third = rt.resume(first.execution_id, wf, timeout=60)

    assert isinstance(second.error, ExecutionTimeoutError)
    assert second.error.timeout == 0.1
    assert third.outputs == {"body": "done"}


def test_a_run_in_time_is_not_touched(runtime: Make) -> None:
    assert runtime().run(single(lambda: 1), timeout=60).outputs == {"body": 1}


def test_a_submitted_execution_has_a_timeout_too(runtime: Make, stuck: Gate, short_grace: float) -> None:
    execution = runtime().submit(single(lambda: stuck.wait(60)), timeout=0.3)

    assert isinstance(execution.result(10).error, ExecutionTimeoutError)


@pytest.mark.case("C024")
def test_whoever_reads_the_events_of_an_execution_comes_to_their_end(
    runtime: Make, store: str | None, stuck: Gate, short_grace: float
) -> None:
    rt = runtime(store)
    execution = rt.submit(single(lambda: stuck.wait(60)), timeout=0.5)
    reader = Task(lambda: list(execution.events()))

    events = reader.result(timeout=5)

    assert types_of(events)[-1] == "workflow.failed"
    assert [e.payload["path"] for e in events if e.type == "step.failed"] == ["body"]
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


# --- retries -------------------------------------------------------------------------------------


@pytest.mark.case("C013")
def test_a_step_that_always_fails_is_called_as_often_as_it_may_be(
    runtime: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryPolicy, "delay", lambda self, attempt, draw: 0.0)
    calls: list[ValueError] = []

    def body() -> None:
        calls.append(ValueError(str(len(calls))))
        raise calls[-1]

    result = runtime().run(single(body, retry=RetryPolicy(max_attempts=4, initial_delay=0.5, max_delay=3)))

    assert len(calls) == 4
    assert result.steps["body"].attempts == 4
    assert result.steps["body"].error is calls[-1]


@pytest.mark.case("C014")
def test_a_retry_waits_its_delay_and_holds_no_worker_meanwhile(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    called: list[float] = []
    beside: list[float] = []

    def fails_three_times() -> int:
        called.append(time.monotonic())
        if len(called) < 4:
            raise ValueError("not yet")
        return 7

    wf = single(fails_three_times, retry=RetryPolicy(max_attempts=6, initial_delay=0.2, multiplier=1, jitter=0))
    for i in range(5):
        wf.step(lambda: beside.append(time.monotonic()), id=f"beside{i}")

    result = rt.run(wf)

    assert result.outputs["body"] == 7
    assert len(called) == 4
    gaps = [after - before for before, after in itertools.pairwise(called)]
    assert all(0.2 <= gap < 0.4 for gap in gaps), gaps
    assert max(beside) < called[1]


@pytest.mark.case("C014")
def test_what_is_not_to_be_retried_is_called_once(runtime: Make) -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        raise KeyError("no")

    policy = RetryPolicy(max_attempts=5, initial_delay=0, retry_on=(OSError, ValueError))
    result = runtime().run(single(body, retry=policy))

    assert calls == [1]
    assert isinstance(result.error, KeyError)


def test_retry_after_sets_the_delay(runtime: Make) -> None:
    called: list[float] = []

    def body() -> str:
        called.append(time.monotonic())
        if len(called) == 1:
            raise RetryAfter(0.15)
        return "done"

    result = runtime().run(single(body, retry=RetryPolicy(max_attempts=2, initial_delay=30)))

    assert result.outputs == {"body": "done"}
    assert 0.15 <= called[1] - called[0] < 2


def test_retry_after_counts_as_an_attempt(runtime: Make) -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        raise RetryAfter(0)

    result = runtime().run(single(body, retry=RetryPolicy(max_attempts=3)))

    assert len(calls) == 3
    assert isinstance(result.error, RetryAfter)


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_retry_after_a_time_that_is_none_retries_at_once(runtime: Make, seconds: float) -> None:
    calls: list[int] = []

    def body() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise RetryAfter(seconds)
        return len(calls)

    assert runtime().run(single(body, retry=RetryPolicy(max_attempts=2))).outputs == {"body": 2}


def test_retry_after_what_is_no_number_is_a_failure_like_any_other(runtime: Make) -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        raise RetryAfter("soon")  # type: ignore[arg-type]  # that is the point

    result = runtime().run(single(body, retry=RetryPolicy(max_attempts=2)))

    assert result.status is ExecutionStatus.FAILED
    assert calls == [1]


def test_retry_on_may_be_a_predicate(runtime: Make) -> None:
    calls: list[int] = []

    def body() -> int:
        calls.append(1)
        raise ValueError(len(calls))

    policy = RetryPolicy(max_attempts=9, initial_delay=0, retry_on=lambda error: error.args[0] < 3)
    result = runtime().run(single(body, retry=policy))

    assert len(calls) == 3
    assert result.error is not None
    assert result.error.args == (3,)


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_predicate_that_raises_lets_the_failure_stand(
    runtime: Make, raised: type[BaseException], steps_on: str
) -> None:
    if raised is KeyboardInterrupt and steps_on == "auto":
        pytest.skip("on the main thread it is a Ctrl-C")
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        raise ValueError("the failure itself")

    def predicate(error: BaseException) -> bool:
        raise raised("in retry_on")

    result = runtime(steps_on=steps_on).run(
        single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0, retry_on=predicate))
    )

    assert calls == [1]
    assert isinstance(result.error, ValueError)
    assert raised.__name__ in "".join(result.error.__notes__)


def test_a_timeout_is_retried(runtime: Make, stuck: Gate) -> None:
    calls: list[int] = []

    def body() -> str:
        calls.append(1)
        if len(calls) < 3:
            stuck.wait(60)
        return "third time"

    result = runtime().run(single(body, timeout=0.1, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    assert result.outputs == {"body": "third time"}


def test_a_run_ends_as_soon_as_its_last_step_does_whatever_timers_there_are(runtime: Make) -> None:
    wf = single(lambda: 1, timeout=3600)
    wf.add(StepSpec("child", workflow=single(lambda: 2, name="inner", timeout=3600), timeout=3600))
    begun = time.monotonic()

    rt = runtime()
    rt.run(wf, timeout=3600).raise_for_status()

    assert seconds_since(begun) < 5


def test_timers_of_steps_that_are_done_are_not_kept(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    heaps: list[int] = []

    def body(ctx: StepContext) -> None:
        heaps.append(len(rt._life.engine().live(ctx.execution_id).timers._heap))  # type: ignore[union-attr]

    wf = Workflow("w")
    for i in range(600):
        wf.add(StepSpec(f"s{i}", body, timeout=3600))
    rt.run(wf).raise_for_status()

    assert max(heaps) < 100


# --- the clock on the wall -----------------------------------------------------------------------


@pytest.mark.case("C045")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_setting_the_clock_changes_no_timeout_and_no_delay(
    runtime: Make, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    rt = runtime(max_workers=3)
    now, now_ns = time.time, time.time_ns
    offset = [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + offset[0])
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + int(offset[0] * 1e9))

    class Jumping(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dt.datetime.fromtimestamp(now() + offset[0], tz)

    monkeypatch.setattr("ares.engine.attempt.datetime", Jumping)
    together = Barrier(3)
    called: list[float] = []

    def half_a_second() -> str:
        together.wait()
        offset[0] = jump
        last(0.5)
        return "in time"

    def fails_once() -> str:
        if not called:
            together.wait()
        called.append(time.monotonic())
        if len(called) == 1:
            raise ValueError("once")
        return "again"

    wf = Workflow("w")
    wf.step(half_a_second, timeout=5)
    wf.step(lambda: (together.wait() and None) or last(3), id="blocks", timeout=1)
    wf.step(fails_once, retry=RetryPolicy(max_attempts=2, initial_delay=0.5, jitter=0))
    begun = time.monotonic()
    result = rt.run(wf)

    assert 1.0 <= seconds_since(begun) < 1.5
    assert result.outputs["half_a_second"] == "in time"
    assert isinstance(result.steps["blocks"].error, StepTimeoutError)
    assert 0.5 <= called[1] - called[0] < 0.8
    assert all(step.duration >= 0 for step in result.steps.values())
    events = events_of(rt, result.execution_id)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


def test_no_thread_is_left_waiting_for_a_timer(runtime: Make) -> None:
    threads = Threads()
    rt = runtime()
    rt.run(single(lambda: 1, timeout=3600)).raise_for_status()

    rt.close()

    assert threads.are_gone()
