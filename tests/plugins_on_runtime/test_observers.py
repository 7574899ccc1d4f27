"""Observers on a Runtime: when they are told, of what, and in which order."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ares import (
    Context,
    Event,
    EventFilter,
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    Goto,
    HookResult,
    RetryPolicy,
    Runtime,
    Step,
    StepContext,
    StepResult,
    StepStatus,
    Workflow,
)
from ares.errors import HookOrderError
from tests.bus.players import Gate, Log, Named, Watcher
from tests.engine.helpers import Barrier, GatedStore, Task, chain, eventually, fan, seconds_since, single
from tests.plugins_on_runtime.players import Asked, Diary, of

Make = Callable[..., Runtime]


@pytest.fixture(params=["auto", "workers", "caller"])
def steps_on(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- order ---------------------------------------------------------------------------------------------


@pytest.mark.case("C027")
def test_one_that_raises_keeps_none_of_the_others_from_being_called(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    """In the order of registration where that is declared, before the step and after it."""
    log = Log()

    class Broken(Watcher):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            super().after_step(ctx, execution_id, result)
            raise ValueError("no")

    plugins = [Watcher("A", log), Broken("B", log, runs_after=("A",)), Watcher("C", log, runs_after=("B",))]
    rt = runtime(store, plugins=plugins, steps_on=steps_on)

    result = rt.run(single(lambda: log.add("step")))

    assert log.lines == ["A.before", "B.before", "C.before", "step", "A.after", "B.after", "C.after"]
    assert result.status is ExecutionStatus.COMPLETED
    assert rt.health()["B"].errors == 1
    assert "plugin 'B': after_step raised ValueError: no" in result.warnings


def test_declared_order_holds_for_every_hook_whatever_the_order_of_registration(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    log = Log()
    late = Diary("late", log, runs_after=("early",))
    last = Diary("last", log, runs_after=("late",))
    early = Diary("early", log, runs_before=("last",))
    rt = runtime(store, plugins=[last, late, early], steps_on=steps_on)

    rt.run(chain(3)).raise_for_status()

    names = [line[0] for line in log.lines]
    assert names == ["early", "late", "last"] * (len(names) // 3)
    assert len(names) == 3 * (2 + 2 * 3)


def test_a_later_hook_is_sent_only_when_the_earlier_one_has_answered(runtime: Make, gate: Gate) -> None:
    log = Log()

    class Slow(Watcher):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            gate.pass_through()
            log.add("slow has answered")

    rt = runtime(plugins=[Watcher("second", log, runs_after=("slow",)), Slow("slow", log)])
    running = Task(rt.run, single(lambda: log.add("step")))
    gate.await_entry()
    assert log.lines == []
    gate.open()

    running.result().raise_for_status()
    assert log.lines[:3] == ["slow has answered", "second.before", "step"]


def test_observers_of_no_declared_order_are_told_together(runtime: Make, steps_on: str) -> None:
    meeting = Barrier(3)

    class Sociable(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            meeting.wait()

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            meeting.wait()

    rt = runtime(plugins=[Sociable(name) for name in "abc"], steps_on=steps_on)

    rt.run(chain(2)).raise_for_status()

    assert [rt.health()[name].errors for name in "abc"] == [0, 0, 0]


@pytest.mark.parametrize(
    ("orders", "names"),
    [
        ({"a": {"runs_after": ("b",)}, "b": {"runs_after": ("a",)}}, ("a", "b")),
        ({"a": {"runs_after": ("stranger",)}}, ("a", "stranger")),
    ],
    ids=["cycle", "stranger"],
)
def test_an_order_that_cannot_be_is_refused_at_start_with_the_names(
    runtime: Make, store: str | None, orders: dict[str, Any], names: tuple[str, ...]
) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary(name, log, **more) for name, more in orders.items()])

    with pytest.raises(HookOrderError) as refused:
        rt.start()

    assert all(name in str(refused.value) for name in names)
    assert log.lines == []


# --- when ----------------------------------------------------------------------------------------------


def test_a_body_begins_only_when_all_have_been_told(runtime: Make, store: str | None, steps_on: str) -> None:
    log = Log()
    plugins = [Watcher(name, log) for name in "abcd"]
    rt = runtime(store, plugins=plugins, steps_on=steps_on)

    rt.run(chain(5, lambda i: log.add(f"body {i}"))).raise_for_status()

    for i in range(5):
        at = log.lines.index(f"body {i}")
        assert sorted(log.lines[at - 4 : at]) == ["a.before", "b.before", "c.before", "d.before"]
        assert sorted(log.lines[at + 1 : at + 5]) == ["a.after", "b.after", "c.after", "d.after"]


def test_after_step_comes_when_the_outcome_is_committed(tmp_path: Any, runtime: Make) -> None:
    store = GatedStore(tmp_path / "ares.db", holds=lambda kind, path: path == "body" and "succeeded" in kind.lower())
    log = Log()
    rt = runtime(store, plugins=[Diary("diary", log)])
    running = Task(rt.run, single(lambda: 1), execution_id="e")
    store.reached.wait()
    assert ("diary", "before_step", "body") in log.lines
    assert ("diary", "after_step", "body", "COMPLETED") not in log.lines
    store.gate.open()

    running.result().raise_for_status()
    assert ("diary", "after_step", "body", "COMPLETED") in log.lines


def test_what_after_step_reads_from_the_journal_has_the_step(runtime: Make, tmp_path: Any, steps_on: str) -> None:
    found: list[Any] = []

    class Reader(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            found.append(ctx.journal.snapshot(execution_id).outputs)

    rt = runtime(tmp_path / "ares.db", plugins=[Reader("reader")], steps_on=steps_on)

    rt.run(chain(2)).raise_for_status()

    assert found == [{"s0": 0}, {"s0": 0, "s1": 1}]


def test_after_step_comes_before_the_event_of_the_outcome_and_before_dependents(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    log = Log()
    heard = threading.Event()

    class Both(Named):
        subscribes_to = EventFilter(types=["step.completed"])

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            # Had the event passed, it would be in this subscription by now.
            log.add(("after", result.path, sorted(seen_so_far(subscription))))

        def on_event(self, ctx: Context, delivery: Any) -> None:
            heard.set()

    rt = runtime(store, plugins=[Both("both")], steps_on=steps_on)
    subscription = rt.bus.subscribe(EventFilter(types=["step.completed"]), buffer=100)

    rt.run(chain(3, lambda i: log.add(("body", f"s{i}")))).raise_for_status()

    assert [line[:2] for line in log.lines] == [(what, f"s{i}") for i in range(3) for what in ("body", "after")]
    assert [line[2] for line in log.lines if line[0] == "after"] == [[], ["s0"], ["s1"]]
    assert heard.wait(20)


def seen_so_far(subscription: Any) -> list[str]:
    """The paths of the events that wait in a subscription, taken out of it."""
    found = []
    while subscription.pending:
        event: Event = subscription.get(0).event
        found.append(event.payload["path"])
    return found


def test_after_step_is_told_of_every_attempt(runtime: Make, store: str | None, steps_on: str) -> None:
    log = Log()

    def body(ctx: StepContext) -> str:
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return "at last"

    class Teller(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            log.add(("before", step.attempt))

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            log.add(("after", result.attempts, result.status))

    rt = runtime(store, plugins=[Teller("teller")], steps_on=steps_on)

    rt.run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0.0))).raise_for_status()

    assert [line[:2] for line in log.lines] == [
        ("before", 1), ("after", 1), ("before", 2), ("after", 2), ("before", 3), ("after", 3),
    ]  # fmt: skip
    assert log.lines[-1][2] is StepStatus.COMPLETED


def test_after_step_is_told_of_a_failure_with_its_error(runtime: Make, store: str | None, steps_on: str) -> None:
    told: list[StepResult] = []

    class Teller(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            told.append(result)

    def body() -> None:
        raise ValueError("broken")

    rt = runtime(store, plugins=[Teller("teller")], steps_on=steps_on)
    rt.run(single(body))

    [result] = told
    assert (result.path, result.status, str(result.error)) == ("body", StepStatus.FAILED, "broken")


def test_after_step_is_told_of_a_step_that_timed_out(runtime: Make, store: str | None, gate: Gate) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary("diary", log)])

    rt.run(single(lambda: gate.pass_through("step"), timeout=0.1))

    assert ("diary", "after_step", "body", "FAILED") in log.lines


def test_a_skipped_step_has_no_hooks(runtime: Make, store: str | None, steps_on: str) -> None:
    log = Log()
    wf = Workflow("w")
    wf.step(lambda: Goto("left"), id="choose", branches=("left", "right"))
    wf.step(lambda choose: 1, id="left")
    wf.step(lambda choose: 1, id="right")
    wf.step(lambda: 1, id="off", condition=lambda: False)
    wf.step(lambda: 1, id="refused")
    guard = Asked(of({"refused": HookResult.skip("no")}))
    rt = runtime(store, plugins=[guard, Diary("diary", log)], steps_on=steps_on)

    rt.run(wf).raise_for_status()

    assert {line[2] for line in log.lines if line[1] in ("before_step", "after_step")} == {"choose", "left"}


@pytest.mark.parametrize(
    ("verdict", "status"), [(HookResult.complete(1), "COMPLETED"), (HookResult.abort("no"), "FAILED")]
)
def test_of_a_step_that_an_interceptor_ended_observers_hear_the_outcome_alone(
    runtime: Make, store: str | None, steps_on: str, verdict: HookResult, status: str
) -> None:
    log = Log()
    rt = runtime(store, plugins=[Asked(lambda _step: verdict), Diary("diary", log)], steps_on=steps_on)

    rt.run(single(lambda: 1))

    assert [line for line in log.lines if line[1] in ("before_step", "after_step")] == [
        ("diary", "after_step", "body", status)
    ]


def test_observers_see_the_inputs_that_interceptors_made(runtime: Make, steps_on: str) -> None:
    seen: list[Any] = []

    class Seer(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            seen.append(dict(step.inputs))

    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda n: n, id="body")
    guard = Asked(lambda _step: HookResult.replace({"n": 2}))

    runtime(plugins=[Seer("seer"), guard], steps_on=steps_on).run(wf, {"n": 1}).raise_for_status()

    assert seen == [{"n": 2}]


def test_the_verdict_of_an_observer_is_ignored_and_told(runtime: Make, store: str | None) -> None:
    class Usurper(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> HookResult:
            return HookResult.abort("I say so")

    result = runtime(store, plugins=[Usurper("usurper")]).run(single(lambda: 1))

    assert result.raise_for_status().outputs == {"body": 1}
    assert any("'usurper'" in warning and "ignored" in warning for warning in result.warnings)


# --- elements of maps -----------------------------------------------------------------------------------


def test_elements_are_told_only_to_those_who_ask_for_each(runtime: Make, store: str | None, steps_on: str) -> None:
    log, items = Log(), Log()
    wf = Workflow("w")
    wf.step(lambda: [1, 2, 3], id="source")
    wf.step(lambda item: item, id="each", map_over="source", max_concurrency=1)
    rt = runtime(store, plugins=[Diary("whole", log), Diary("pieces", items, per_item=True)], steps_on=steps_on)

    rt.run(wf).raise_for_status()

    elements = [f"each[{i}]" for i in range(3)]
    assert not [line for line in log.lines if line[2] in elements]
    for i, element in enumerate(elements):
        assert [line[1] for line in items.lines if line[2] == element] == ["before_step", "after_step"], i


# --- executions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("submitted", [False, True])
def test_the_hooks_of_an_execution_are_around_all_of_it(
    runtime: Make, store: str | None, steps_on: str, submitted: bool
) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary("diary", log)], steps_on=steps_on)
    wf = fan(4, lambda i: log.add(("body", i)))

    result = rt.submit(wf, execution_id="e").result(20) if submitted else rt.run(wf, execution_id="e")

    result.raise_for_status()
    assert log.lines[0] == ("diary", "before_execution", "e")
    assert log.lines[-1] == ("diary", "after_execution", "COMPLETED")
    assert len(log.lines) == 2 + 4 + 2 * 5


def test_after_execution_is_told_how_it_went(runtime: Make, store: str | None) -> None:
    told: list[ExecutionOutcome] = []

    class Teller(Named):
        def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
            told.append(outcome)

    def fails() -> None:
        raise ValueError("no")

    wf = Workflow("w")
    wf.step(lambda: 1, id="good")
    wf.step(fails, id="bad")
    wf.step(lambda bad: 1, id="behind")

    runtime(store, plugins=[Teller("teller")]).run(wf, execution_id="e")

    [outcome] = told
    assert (outcome.execution_id, outcome.workflow_id, outcome.status) == ("e", "w", ExecutionStatus.FAILED)
    assert (outcome.total_steps, outcome.failed_steps, outcome.skipped_steps) == (3, 1, 1)
    assert outcome.error_count == 1
    assert outcome.duration > 0


def test_an_execution_that_is_resumed_is_told_of_again(runtime: Make, store: str | None) -> None:
    told: list[ExecutionState] = []
    broken = [True]

    class Teller(Named):
        def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
            told.append(execution)
            states.append({path: str(step.status) for path, step in execution.steps.items()})

    states: list[dict[str, str]] = []

    def second() -> None:
        if broken:
            raise ValueError("no")

    wf = Workflow("w")
    wf.step(lambda: 1, id="first")
    wf.step(second, id="second", depends_on=["first"])
    rt = runtime(store, plugins=[Teller("teller")])

    rt.run(wf, execution_id="e")
    broken.clear()
    rt.resume("e", wf).raise_for_status()

    assert [state.execution_id for state in told] == ["e", "e"]
    assert states == [{"first": "PENDING", "second": "PENDING"}, {"first": "COMPLETED", "second": "PENDING"}]


def test_a_stored_result_is_told_to_nobody(runtime: Make, store: str | None) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary("diary", log)])
    wf = single(lambda: 1)
    rt.run(wf, execution_id="e")
    before = len(log.lines)

    rt.resume("e", wf).raise_for_status()

    assert len(log.lines) == before


def test_the_result_is_there_only_when_after_execution_has_answered(
    runtime: Make, store: str | None, gate: Gate
) -> None:
    class Slow(Named):
        def after_execution(self, ctx: Context, outcome: Any) -> None:
            gate.pass_through()

    rt = runtime(store, plugins=[Slow("slow")])
    execution = rt.submit(single(lambda: 1))
    gate.await_entry()
    assert not execution.done()
    gate.open()

    assert execution.result(20).status is ExecutionStatus.COMPLETED


def test_the_metadata_of_a_run_is_there_in_every_hook(runtime: Make, store: str | None) -> None:
    seen: list[Any] = []

    class Seer(Diary):
        def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
            seen.append((ctx.execution_id, dict(ctx.metadata)))

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            seen.append((ctx.execution_id, dict(ctx.metadata)))

        def after_execution(self, ctx: Context, outcome: Any) -> None:
            seen.append((ctx.execution_id, dict(ctx.metadata)))

    rt = runtime(store, plugins=[Seer("seer", Log())])

    rt.run(single(lambda: 1), execution_id="e", metadata={"team": "blue"})

    assert seen == [("e", {"team": "blue"})] * 3


# --- one slow plugin for many ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slow_plugin_that_many_executions_share_is_only_busy(runtime: Make, store: str | None) -> None:
    """Two hundred executions queue for it, each for far longer than one call may take; those that wait too long are
    told that it is busy, and nobody takes it for hung."""
    pause = threading.Event()

    class Slow(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            pause.wait(0.05)

    rt = runtime(store, plugins=[Slow("slow", timeout=1.0)], max_workers=32)
    began = time.monotonic()

    results = [execution.result(50) for execution in [rt.submit(single(lambda: 1)) for _ in range(200)]]

    health = rt.health()["slow"]
    assert all(result.status is ExecutionStatus.COMPLETED for result in results)
    assert (health.timeouts, str(health.state)) == (0, "running")
    assert not any("hangs" in warning for result in results for warning in result.warnings)
    assert seconds_since(began) < 40


# --- wall clocks ------------------------------------------------------------------------------------------


@pytest.mark.case("C045")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_hooks_do_not_care_what_the_wall_clock_does(
    runtime: Make, store: str | None, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real, real_ns = time.time, time.time_ns

    class Setter(Named):
        """Sets the clock in the middle of its own call."""

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            monkeypatch.setattr(time, "time", lambda: real() + jump)
            monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(jump * 1e9))
            assert not ctx.cancelled
            assert ctx.deadline is not None
            ctx.wait(0.05)

    log = Log()
    rt = runtime(store, plugins=[Setter("setter", timeout=1.0), Diary("diary", log, timeout=1.0)])

    result = rt.run(chain(3), execution_id="e").raise_for_status()
    monkeypatch.undo()

    assert result.warnings == ()
    assert [rt.health()[name].timeouts for name in ("setter", "diary")] == [0, 0]
    assert 0 <= rt.health()["setter"].latency < 1
    assert all(0 <= step.duration < 10 for step in result.steps.values())
    seqs = [event.seq for event in rt.stored_events("e")]
    assert seqs == sorted(seqs)


@pytest.mark.case("C045")
def test_a_hook_that_hangs_while_the_clock_is_set_back_still_times_out(
    runtime: Make, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    real = time.time

    class Stuck(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
            gate.pass_through()

    rt = runtime(plugins=[Stuck("stuck", timeout=1.0)])
    began = time.monotonic()

    rt.run(chain(3)).raise_for_status()
    took = seconds_since(began)
    monkeypatch.undo()

    assert 1.0 <= took < 2.5
    eventually(lambda: rt.health()["stuck"].timeouts == 1)
