"""Cancels: recorded at once, obeyed at once by what has not begun, and within the grace by what has."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import Delivery, ExecutionStatus, RetryPolicy, Runtime, StepContext, StepSpec, Trigger, Workflow
from ares.engine import cutting
from ares.errors import (
    ExecutionNotFoundError,
    StepCancelledError,
    StoreError,
    WorkflowCancelledError,
)
from ares.stores.volatile import VolatileStore
from tests.engine.helpers import (
    Gate,
    GatedStore,
    Task,
    chain,
    events_of,
    eventually,
    fan,
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
    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.2)
    return 0.2


def begun_run(rt: Runtime, wf: Workflow, **options: Any) -> tuple[Task[Any], str]:
    """A run on a thread of its own, and its id."""
    options.setdefault("execution_id", f"run-{time.monotonic_ns()}")
    return Task(rt.run, wf, **options), options["execution_id"]


# --- the promise ---------------------------------------------------------------------------------


@pytest.mark.case("C016")
@pytest.mark.parametrize("trials", [300])
def test_after_cancel_returned_no_step_starts(runtime: Make, trials: int) -> None:
    rt = runtime(max_workers=2)
    draw = random.Random(16)

    for trial in range(trials):
        starts: list[float] = []
        ended: list[int] = []
        begun = Gate()

        def body(i: int, starts: list[float] = starts, begun: Gate = begun, ended: list[int] = ended) -> None:
            starts.append(time.monotonic())
            begun.open()
            last(0.0002)
            ended.append(i)

        wf = chain(20, body) if trial % 2 else fan(20, body)
        run, run_id = begun_run(rt, wf)
        begun.wait()
        last(draw.random() * 0.012)
        taken = rt.cancel(run_id, "enough")
        at = time.monotonic()
        result = run.result()

        assert [s for s in starts if s > at + 0.05] == []
        if taken:
            assert result.status is ExecutionStatus.CANCELLED or len(ended) == 20
        else:
            assert result.status is ExecutionStatus.COMPLETED
        assert rt.cancel(run_id) is False


def test_a_cancel_that_comes_while_the_last_step_runs_is_not_lost(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()

    def body() -> str:
        begun.open()
        may_end.wait()
        return "done"

    run, run_id = begun_run(rt, single(body))
    begun.wait()
    assert rt.cancel(run_id, "too late for the step, not for the run")
    may_end.open()
    result = run.result()

    assert result.status is ExecutionStatus.CANCELLED
    assert result.outputs == {"body": "done"}


def test_cancel_is_false_once_the_execution_has_ended(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    result = rt.run(single(lambda: 1))

    assert rt.cancel(result.execution_id) is False
    assert rt.execution(result.execution_id).cancel() is False


def test_an_execution_that_does_not_exist_cannot_be_cancelled(runtime: Make, store: str | None) -> None:
    with pytest.raises(ExecutionNotFoundError):
        runtime(store).cancel("nobody")


def test_what_has_not_begun_is_skipped_and_always_steps_run(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()

    def slow() -> str:
        begun.open()
        may_end.wait()
        return "slow"

    wf = Workflow("w")
    wf.step(slow)
    wf.step(lambda slow: slow, id="next")
    wf.add(StepSpec("clean", lambda: "clean", depends_on=["next"], trigger=Trigger.ALWAYS))
    run, run_id = begun_run(rt, wf)
    begun.wait()
    rt.cancel(run_id, "no more")
    may_end.open()
    result = run.result()

    assert statuses(result) == {"slow": "COMPLETED", "next": "SKIPPED", "clean": "COMPLETED"}
    assert result.steps["next"].reason == "cancelled"
    with pytest.raises(WorkflowCancelledError):
        result.raise_for_status()
    assert types_of(events_of(rt, run_id))[-1] == "workflow.cancelled"


def test_a_body_is_told_and_may_end_in_order(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun = Gate()

    def body(ctx: StepContext) -> str:
        begun.open()
        eventually(lambda: ctx.cancelled)
        return "in order"

    run, run_id = begun_run(rt, single(body))
    begun.wait()
    rt.cancel(run_id)

    assert run.result().outputs == {"body": "in order"}


def test_a_body_that_does_not_end_is_abandoned_after_the_grace(
    runtime: Make, store: str | None, stuck: Gate, short_grace: float
) -> None:
    rt = runtime(store, steps_on="workers")
    begun = Gate()

    def body() -> None:
        begun.open()
        stuck.wait(60)

    wf = single(body)
    wf.add(StepSpec("clean", lambda: "clean", depends_on=["body"], trigger=Trigger.ALWAYS))
    run, run_id = begun_run(rt, wf)
    begun.wait()
    asked = time.monotonic()
    rt.cancel(run_id)
    result = run.result()

    assert 0.2 <= seconds_since(asked) < 2
    error = result.steps["body"].error
    assert isinstance(error, StepCancelledError)
    assert error.path == "body"
    assert result.outputs == {"clean": "clean"}
    assert result.status is ExecutionStatus.CANCELLED
    assert "abandoned" in result.warnings[0]


def test_the_grace_is_five_seconds() -> None:
    assert cutting.CANCEL_GRACE == 5.0


def test_a_cancel_is_recorded_while_an_inline_body_blocks_the_walk(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait())
    wf.step(lambda body: body, id="next")
    run, run_id = begun_run(rt, wf)
    begun.wait()

    asked = time.monotonic()
    assert rt.cancel(run_id)
    assert seconds_since(asked) < 2
    may_end.open()

    assert run.result().steps["next"].reason == "cancelled"


def test_a_retry_that_waits_is_given_up(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    failed = Gate()

    def body() -> None:
        failed.open()
        raise ValueError("again")

    run, run_id = begun_run(rt, single(body, retry=RetryPolicy(max_attempts=2, initial_delay=50)))
    failed.wait()
    eventually(lambda: rt.execution(run_id).progress().running == ())  # type: ignore[union-attr]  # it is walked here
    asked = time.monotonic()
    rt.cancel(run_id)
    result = run.result()

    assert seconds_since(asked) < 5
    assert result.status is ExecutionStatus.CANCELLED
    assert isinstance(result.steps["body"].error, StepCancelledError)


def test_a_failure_after_a_cancel_is_not_retried(runtime: Make) -> None:
    rt = runtime()
    begun = Gate()
    calls: list[int] = []

    def body(ctx: StepContext) -> None:
        calls.append(1)
        begun.open()
        eventually(lambda: ctx.cancelled)
        raise ValueError("stopped")

    run, run_id = begun_run(rt, single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0)))
    begun.wait()
    rt.cancel(run_id)
    result = run.result()

    assert calls == [1]
    assert result.status is ExecutionStatus.CANCELLED


def test_the_elements_of_a_map_that_have_not_begun_do_not_begin(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    begun, may_end = Gate(), Gate()
    called: list[int] = []

    def each(item: int) -> None:
        called.append(item)
        begun.open()
        may_end.wait()

    wf = Workflow("w")
    wf.step(lambda: list(range(100)), id="source")
    wf.step(each, map_over="source")
    run, run_id = begun_run(rt, wf)
    begun.wait()
    rt.cancel(run_id)
    may_end.open()

    assert run.result().status is ExecutionStatus.CANCELLED
    assert len(called) <= 2


def test_a_sub_workflow_is_cancelled_with_its_execution(runtime: Make) -> None:
    rt = runtime()
    begun, may_end = Gate(), Gate()
    inner = single(lambda: begun.open() or may_end.wait(), name="inner")
    inner.step(lambda body: body, id="next")
    wf = Workflow("w")
    wf.add(StepSpec("child", workflow=inner))
    wf.step(lambda child: child, id="after")
    run, run_id = begun_run(rt, wf)
    begun.wait()
    rt.cancel(run_id)
    may_end.open()
    result = run.result()

    assert result.status is ExecutionStatus.CANCELLED
    assert result.steps["child/next"].reason == "cancelled"
    assert result.steps["after"].status == "SKIPPED"


# --- submitted ones, and those that nobody walks ---------------------------------------------------


def test_a_submitted_execution_is_cancelled_through_its_handle(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait())
    wf.step(lambda body: body, id="next")
    execution = rt.submit(wf)
    begun.wait()

    assert execution.cancel("no")
    may_end.open()

    assert execution.result(10).status is ExecutionStatus.CANCELLED
    assert execution.status is ExecutionStatus.CANCELLED


def test_a_submitted_execution_that_has_not_begun_is_cancelled_without_a_step(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    begun, may_end = Gate(), Gate()
    called: list[int] = []
    blocking = rt.submit(single(lambda: begun.open() or may_end.wait()))
    begun.wait()
    waiting = rt.submit(single(lambda: called.append(1)))

    assert waiting.cancel()
    result = waiting.result(10)
    may_end.open()

    assert result.status is ExecutionStatus.CANCELLED
    assert called == []
    blocking.result(10).raise_for_status()


def test_a_cancelled_execution_goes_on_only_when_asked_explicitly(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait() or "body")
    wf.step(lambda body: f"after {body}", id="next")
    run, run_id = begun_run(rt, wf)
    begun.wait()
    rt.cancel(run_id)
    may_end.open()
    run.result()

    assert rt.resume(run_id, wf).status is ExecutionStatus.CANCELLED
    assert rt.resume(run_id, wf, reopen=True).outputs == {"body": "body", "next": "after body"}


def test_a_cancel_of_what_nobody_walks_is_carried_out_by_the_next_one_who_does(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    begun, may_end = Gate(), Gate()
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        begun.open()
        may_end.wait()

    wf = single(body)
    wf.step(lambda body: calls.append(2), id="next")
    first = Runtime(file, steps_on="workers")
    _run, run_id = begun_run(first, wf)
    begun.wait()
    first.close(timeout=0.05)
    may_end.open()

    with Runtime(file) as second:
        assert second.cancel(run_id, "meanwhile")
        assert second.execution(run_id).status is ExecutionStatus.INTERRUPTED
        result = second.resume(run_id, wf)

    assert result.status is ExecutionStatus.CANCELLED
    assert 2 not in calls


def cancel_when_there(rt: Runtime, run_id: str) -> bool:
    while True:
        try:
            return rt.cancel(run_id)
        except ExecutionNotFoundError:
            last(0.0001)


def test_a_cancel_at_the_very_end_does_not_come_back_at_a_resume(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    wf = fan(3)

    for _ in range(20):
        run, run_id = begun_run(rt, wf)
        cancel_when_there(rt, run_id)
        run.result()
        again = rt.resume(run_id, wf, reopen=True, rerun=["s0"])
        assert again.status is ExecutionStatus.COMPLETED


# --- from several sides ---------------------------------------------------------------------------


def test_several_cancels_at_once_are_one(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, may_end = Gate(), Gate()
    run, run_id = begun_run(rt, single(lambda: begun.open() or may_end.wait()))
    begun.wait()

    answers = [task.result() for task in [Task(rt.cancel, run_id, f"reason {n}") for n in range(8)]]
    may_end.open()
    result = run.result()

    assert answers == [True] * 8
    assert result.status is ExecutionStatus.CANCELLED
    assert types_of(events_of(rt, run_id)).count("workflow.cancelling") == 1


def test_a_second_cancel_does_not_reach_the_clean_up(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    begun, cleaning, may_end = Gate(), Gate(), Gate()

    def clean(ctx: StepContext) -> bool:
        cleaning.open()
        may_end.wait()
        return ctx.cancelled

    wf = single(lambda ctx: begun.open() or eventually(lambda: ctx.cancelled))
    wf.add(StepSpec("clean", clean, depends_on=["body"], trigger=Trigger.ALWAYS))
    run, run_id = begun_run(rt, wf)
    begun.wait()
    rt.cancel(run_id)
    cleaning.wait()
    rt.cancel(run_id)
    may_end.open()

    assert run.result().outputs["clean"] is False


def test_a_step_may_cancel_its_own_execution(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    wf = single(lambda ctx: rt.cancel(ctx.execution_id, "enough"))
    wf.step(lambda body: body, id="next")

    result = rt.run(wf)

    assert result.status is ExecutionStatus.CANCELLED
    assert result.outputs == {"body": True}
    assert result.steps["next"].reason == "cancelled"


class Refusing(VolatileStore):
    """A store that takes no requests."""

    def request(self, execution_id: str, kind: str, body: str, name: str = "") -> bool:
        raise StoreError(self.name, "full")


def test_a_cancel_that_cannot_be_recorded_changes_nothing(runtime: Make) -> None:
    rt = runtime(Refusing())
    begun, may_end = Gate(), Gate()

    def body(ctx: StepContext) -> bool:
        begun.open()
        may_end.wait()
        return ctx.cancelled

    wf = single(body)
    wf.step(lambda body: body, id="next")
    run, run_id = begun_run(rt, wf)
    begun.wait()

    with pytest.raises(StoreError):
        rt.cancel(run_id)
    may_end.open()

    assert run.result().raise_for_status().outputs == {"body": False, "next": False}


def test_a_walk_that_waits_for_a_worker_when_it_is_cancelled_leaves_the_place_to_others(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    begun, may_end = Gate(), Gate()
    blocking = rt.submit(single(lambda: begun.open() or may_end.wait()))
    begun.wait()
    given_up = [rt.submit(fan(2)) for _ in range(5)]
    wanted = rt.submit(fan(2))
    for each in given_up:
        each.cancel()

    may_end.open()

    assert wanted.result(10).status is ExecutionStatus.COMPLETED
    assert {each.result(10).status for each in given_up} == {ExecutionStatus.CANCELLED}
    blocking.result(10)
    pool = rt._life.engine().pool
    eventually(lambda: pool.busy == 0)


def test_cancelling_while_starts_are_committed_leaks_no_place(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db", max_workers=2)
    draw = random.Random(7)
    wf = Workflow("w")
    for i in range(6):
        wf.add(StepSpec(f"s{i}", lambda: None, delivery=Delivery.AT_MOST_ONCE))

    for _ in range(60):
        execution = rt.submit(wf)
        last(draw.random() * 0.004)
        execution.cancel()
        result = execution.result(10)
        assert result.status in (ExecutionStatus.CANCELLED, ExecutionStatus.COMPLETED)

    pool = rt._life.engine().pool
    eventually(lambda: pool.busy == 0)
    assert rt.run(fan(2)).status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_step_that_is_cancelled_while_its_start_is_committed_never_begins_and_is_not_unknown(
    runtime: Make, tmp_path: Path, steps_on: str
) -> None:
    store = GatedStore(tmp_path / "ares.db", holds=lambda kind, _: kind == "started")
    rt = runtime(store, steps_on=steps_on)
    called: list[int] = []
    wf = single(lambda: called.append(1), delivery=Delivery.AT_MOST_ONCE)
    wf.add(StepSpec("clean", lambda: "clean", depends_on=["body"], trigger=Trigger.ALWAYS))
    run, run_id = begun_run(rt, wf)
    store.reached.wait()

    assert rt.cancel(run_id)
    store.gate.open()
    result = run.result()

    assert called == []
    assert result.status is ExecutionStatus.CANCELLED
    assert isinstance(result.steps["body"].error, StepCancelledError)
    assert result.outputs == {"clean": "clean"}
    pool = rt._life.engine().pool
    eventually(lambda: pool.busy == 0)
    assert rt.resume(run_id, wf, reopen=True).outputs["clean"] == "clean"
    assert called == [1]


def test_no_thread_of_a_cancelled_run_outlives_its_body(runtime: Make) -> None:
    rt = runtime(steps_on="workers")
    before = threading.active_count()
    begun, may_end = Gate(), Gate()
    run, run_id = begun_run(rt, single(lambda: begun.open() or may_end.wait()))
    begun.wait()
    rt.cancel(run_id)
    may_end.open()
    run.result()

    rt.close()

    assert threading.active_count() <= before
