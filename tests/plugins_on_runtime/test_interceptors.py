"""Interceptors on a Runtime: what they say is what becomes of the step, and nobody gets by."""

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ares import (
    Delivery,
    ExecutionStatus,
    Goto,
    HookResult,
    RecoveryPolicy,
    RetryPolicy,
    Runtime,
    Step,
    StepContext,
    StepSpec,
    StepStatus,
    Workflow,
)
from ares.errors import (
    AresError,
    InterceptorError,
    SerializationError,
    StepAbortedError,
    StepCancelledError,
)
from tests.bus.players import Gate
from tests.engine.helpers import (
    LIMIT,
    Task,
    chain,
    events_of,
    eventually,
    fan,
    seconds_since,
    single,
    statuses,
    types_of,
)
from tests.plugins_on_runtime.players import SOON, Asked, about, first_raises, naming, of

Make = Callable[..., Runtime]

#: Where steps run: on the caller's thread while nothing else can be done, on workers always, or on the caller's always.
PLACEMENTS = ["auto", "workers", "caller"]
AGAIN = RetryPolicy(max_attempts=3, initial_delay=0.0)


@pytest.fixture(params=PLACEMENTS)
def steps_on(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def body_that_must_not_run(ran: list[str]) -> Callable[[], None]:
    return lambda: ran.append("ran")


# --- abort ---------------------------------------------------------------------------------------------


def test_an_aborted_step_has_failed_and_never_ran(runtime: Make, store: str | None, steps_on: str) -> None:
    ran: list[str] = []
    guard = Asked(of({"body": HookResult.abort("not allowed")}))
    rt = runtime(store, plugins=[guard], steps_on=steps_on)

    result = rt.run(single(body_that_must_not_run(ran)), execution_id="e")

    assert ran == []
    assert result.status is ExecutionStatus.FAILED
    error = result.error
    assert isinstance(error, StepAbortedError)
    assert (error.path, error.plugin, error.reason) == ("body", "guard", "not allowed")
    assert result.steps["body"].status is StepStatus.FAILED
    assert about(events_of(rt, "e"), "body") == ["step.failed"]


def test_an_abort_is_neither_retried_nor_recovered(runtime: Make, store: str | None, steps_on: str) -> None:
    ran: list[str] = []
    guard = Asked(lambda _step: HookResult.abort("no"))
    rt = runtime(store, plugins=[guard], steps_on=steps_on)

    result = rt.run(single(body_that_must_not_run(ran), retry=AGAIN))

    assert (ran, guard.paths) == ([], ["body"])
    assert result.steps["body"].attempts == 1
    assert isinstance(result.error, StepAbortedError)


def test_what_depends_on_an_aborted_step_is_skipped_and_what_does_not_goes_on(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="secret")
    wf.step(lambda secret: secret, id="reader")
    wf.step(lambda: 2, id="other")
    rt = runtime(store, plugins=[Asked(of({"secret": HookResult.abort("no")}))])

    result = rt.run(wf)

    assert statuses(result) == {"secret": "FAILED", "reader": "SKIPPED", "other": "COMPLETED"}
    assert result.steps["reader"].reason == "upstream_failed: secret"


def test_an_abort_may_come_at_any_attempt(runtime: Make, store: str | None, steps_on: str) -> None:
    guard = Asked(lambda step: HookResult.abort("enough") if step.attempt == 2 else None)
    ran: list[int] = []

    def body(ctx: StepContext) -> None:
        ran.append(ctx.attempt)
        raise ValueError("again")

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(single(body, retry=AGAIN))

    assert ran == [1]
    assert [step.attempt for step in guard.steps] == [1, 2]
    assert isinstance(result.error, StepAbortedError)
    assert result.steps["body"].attempts == 2


def test_an_aborted_step_is_asked_about_again_when_its_execution_is_resumed(runtime: Make, store: str | None) -> None:
    verdicts = [HookResult.abort("not yet")]
    guard = Asked(lambda _step: verdicts.pop() if verdicts else None)
    rt = runtime(store, plugins=[guard])
    wf = single(lambda: "done")

    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    result = rt.resume("e", wf)

    assert result.raise_for_status().outputs == {"body": "done"}
    assert guard.paths == ["body", "body"]


# --- skip ----------------------------------------------------------------------------------------------


def test_a_skipped_step_never_ran_and_blocks_nothing(runtime: Make, store: str | None, steps_on: str) -> None:
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: ran.append("fetch"), id="fetch")
    wf.step(lambda: 2, id="other")
    wf.step(lambda fetch, other: (fetch, other), id="join")
    rt = runtime(store, plugins=[Asked(of({"fetch": HookResult.skip("cached")}))], steps_on=steps_on)

    result = rt.run(wf, execution_id="e").raise_for_status()

    assert ran == []
    assert statuses(result) == {"fetch": "SKIPPED", "other": "COMPLETED", "join": "COMPLETED"}
    assert result.output("join") == (None, 2)
    assert result.steps["fetch"].reason == "verdict: guard: cached"
    assert about(events_of(rt, "e"), "fetch") == ["step.skipped"]


def test_a_skip_may_come_after_a_failed_attempt(runtime: Make, store: str | None, steps_on: str) -> None:
    guard = Asked(lambda step: HookResult.skip("given up") if step.attempt > 1 else None)

    def body() -> None:
        raise ValueError("once")

    rt = runtime(store, plugins=[guard], steps_on=steps_on)
    result = rt.run(single(body, retry=AGAIN), execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    assert result.steps["body"].status is StepStatus.SKIPPED
    assert about(events_of(rt, "e"), "body") == ["step.started", "step.retrying", "step.skipped"]


# --- complete ------------------------------------------------------------------------------------------


def test_a_completed_step_has_the_output_that_was_given_and_never_ran(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: ran.append("fetch"), id="fetch")
    wf.step(lambda fetch: fetch["n"] + 1, id="use")
    rt = runtime(store, plugins=[Asked(of({"fetch": HookResult.complete({"n": 1})}))], steps_on=steps_on)

    result = rt.run(wf, execution_id="e").raise_for_status()

    assert ran == []
    assert result.outputs == {"fetch": {"n": 1}, "use": 2}
    assert about(events_of(rt, "e"), "fetch") == ["step.completed"]


@pytest.mark.parametrize("output", [None, False, [], 0])
def test_a_step_may_be_completed_with_nothing(runtime: Make, store: str | None, output: Any) -> None:
    rt = runtime(store, plugins=[Asked(lambda _step: HookResult.complete(output))])

    assert rt.run(single(lambda: 1)).raise_for_status().outputs == {"body": output}


def test_the_route_of_a_completed_branch_point_is_asked_for(runtime: Make, store: str | None, steps_on: str) -> None:
    seen: list[Any] = []

    wf = Workflow("w")
    wf.step(lambda: "left", id="choose", branches=("left", "right"), router=lambda: seen.append("asked") or "right")
    wf.step(lambda choose: f"went {choose}", id="left")
    wf.step(lambda choose: f"went {choose}", id="right")
    rt = runtime(store, plugins=[Asked(of({"choose": HookResult.complete("given")}))], steps_on=steps_on)

    result = rt.run(wf).raise_for_status()

    assert seen == ["asked"]
    assert result.outputs == {"choose": "given", "right": "went given"}
    assert result.steps["left"].reason == "not_taken: choose"


def test_a_completed_branch_point_without_a_route_fails_like_any_other(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: Goto("left"), id="choose", branches=("left", "right"))
    wf.step(lambda choose: choose, id="left")
    wf.step(lambda choose: choose, id="right")
    rt = runtime(store, plugins=[Asked(of({"choose": HookResult.complete("given")}))])

    result = rt.run(wf)

    assert result.status is ExecutionStatus.FAILED
    assert statuses(result) == {"choose": "COMPLETED", "left": "SKIPPED", "right": "SKIPPED"}
    assert result.steps["left"].reason.startswith("no_route")


def test_what_cannot_be_stored_completes_no_step(runtime: Make, tmp_path: Any) -> None:
    ran: list[str] = []
    rt = runtime(tmp_path / "ares.db", plugins=[Asked(lambda _step: HookResult.complete(object()))])

    result = rt.run(single(body_that_must_not_run(ran), retry=AGAIN))

    assert ran == []
    assert isinstance(result.error, SerializationError)
    assert "body" in str(result.error)


# --- replace -------------------------------------------------------------------------------------------


def test_replaced_inputs_are_what_the_body_sees(runtime: Make, store: str | None, steps_on: str) -> None:
    seen: list[Any] = []
    wf = Workflow("w", inputs={"who": str, "n": int})

    def body(ctx: StepContext, who: str, n: int) -> str:
        seen.append(dict(ctx.inputs))
        return f"{who} {n}"

    wf.step(body)
    guard = Asked(lambda step: HookResult.replace({"who": f"not {step.inputs['who']}"}))
    rt = runtime(store, plugins=[guard], steps_on=steps_on)

    result = rt.run(wf, {"who": "you", "n": 3}, execution_id="e").raise_for_status()

    assert result.outputs == {"body": "not you 3"}
    assert seen == [{"who": "not you", "n": 3}]


def test_that_inputs_were_replaced_is_journaled_with_the_start(runtime: Make, tmp_path: Any) -> None:
    file = tmp_path / "ares.db"
    wf = Workflow("w", inputs={"who": str})
    wf.step(lambda who: who, id="body")
    with Runtime(file, plugins=[Asked(lambda _step: HookResult.replace({"who": "me"}), "butler")]) as rt:
        rt.run(wf, {"who": "you"}, execution_id="e").raise_for_status()

    connection = sqlite3.connect(file)
    with connection:
        bodies = [row[0] for row in connection.execute("SELECT body FROM entries ORDER BY seq")]
    connection.close()
    assert sum("butler replaced inputs" in body for body in bodies) == 1


def test_several_interceptors_each_see_what_those_before_made_of_the_inputs(runtime: Make, store: str | None) -> None:
    wf = Workflow("w", inputs={"a": int, "b": int})
    wf.step(lambda a, b: (a, b), id="body")
    first = Asked(lambda _step: HookResult.replace({"a": 10}), "first")
    second = Asked(lambda step: HookResult.replace({"b": step.inputs["a"] + 1}), "second")
    rt = runtime(store, plugins=[second, first])
    ordered = runtime(plugins=[Asked(second.decide, "second", runs_after=("first",)), first])

    assert ordered.run(wf, {"a": 1, "b": 2}).outputs == {"body": (10, 11)}
    assert ordered.bus.hook_order().interceptors == ("first", "second")
    assert rt.run(wf, {"a": 1, "b": 2}).outputs == {"body": (10, 2)}


def test_a_replacement_holds_for_one_attempt(runtime: Make, store: str | None, steps_on: str) -> None:
    wf = Workflow("w", inputs={"n": int})
    seen: list[int] = []

    def body(n: int) -> int:
        seen.append(n)
        if n == 100:
            raise ValueError("again")
        return n

    wf.step(body, retry=AGAIN)
    guard = Asked(lambda step: HookResult.replace({"n": 100}) if step.attempt == 1 else None)

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(wf, {"n": 1})

    assert result.raise_for_status().outputs == {"body": 1}
    assert seen == [100, 1]


@pytest.mark.parametrize(
    "verdict", ["yes", HookResult.replace({"stranger": 1}), HookResult(action="replace", inputs=3)]
)  # type: ignore[arg-type]
def test_an_answer_that_is_none_lets_nobody_pass(runtime: Make, store: str | None, verdict: Any) -> None:
    ran: list[str] = []
    rt = runtime(store, plugins=[Asked(lambda _step: verdict)])

    result = rt.run(single(body_that_must_not_run(ran)))

    assert ran == []
    assert isinstance(result.error, InterceptorError)
    assert naming(result, "guard")


# --- fail closed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("?"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_step_does_not_run_when_an_interceptor_raises(
    runtime: Make, store: str | None, steps_on: str, error: BaseException
) -> None:
    ran: list[str] = []

    def decide(_step: Step) -> None:
        raise error

    rt = runtime(store, plugins=[Asked(decide)], steps_on=steps_on)

    result = rt.run(single(body_that_must_not_run(ran)), execution_id="e")

    assert ran == []
    assert isinstance(result.error, InterceptorError)
    assert (result.error.plugin, result.error.call) == ("guard", "before_step")
    assert naming(result, "guard")
    assert about(events_of(rt, "e"), "body") == ["step.failed"]


def test_a_step_does_not_run_when_an_interceptor_hangs_and_that_costs_one_timeout(
    runtime: Make, store: str | None, gate: Gate, steps_on: str
) -> None:
    ran: list[int] = []
    guard = Asked(gate.pass_through, timeout=SOON)
    rt = runtime(store, plugins=[guard], steps_on=steps_on)
    began = time.monotonic()

    result = rt.run(fan(20, ran.append))

    assert ran == []
    assert isinstance(result.error, InterceptorError)
    assert {step.status for path, step in result.steps.items() if path != "join"} == {StepStatus.FAILED}
    assert SOON <= seconds_since(began) < 10 * SOON
    assert rt.health()["guard"].timeouts == 1
    assert naming(result, "guard")


def test_an_interceptor_that_failed_is_asked_again_where_the_step_may_be_retried(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    guard = Asked(first_raises(ValueError("not now")))
    ran: list[int] = []

    def body(ctx: StepContext) -> int:
        ran.append(ctx.attempt)
        return ctx.attempt

    rt = runtime(store, plugins=[guard], steps_on=steps_on)
    result = rt.run(single(body, retry=AGAIN), execution_id="e").raise_for_status()

    assert ran == [2]
    assert [step.attempt for step in guard.steps] == [1, 2]
    assert about(events_of(rt, "e"), "body") == ["step.retrying", "step.started", "step.completed"]
    assert result.steps["body"].attempts == 2


def test_an_interceptor_that_failed_is_not_asked_again_where_the_policy_does_not_speak_of_it(
    runtime: Make, store: str | None
) -> None:
    guard = Asked(first_raises(ValueError("not now")))
    retry = RetryPolicy(max_attempts=3, initial_delay=0.0, retry_on=ConnectionError)

    result = runtime(store, plugins=[guard]).run(single(lambda: 1, retry=retry))

    assert isinstance(result.error, InterceptorError)
    assert guard.paths == ["body"]


def test_a_hung_interceptor_lets_steps_pass_again_once_it_has_answered(runtime: Make, gate: Gate) -> None:
    calls: list[str] = []

    def decide(step: Step) -> None:
        calls.append(step.path)
        if len(calls) == 1:
            gate.pass_through()

    rt = runtime(plugins=[Asked(decide, timeout=SOON)])
    assert isinstance(rt.run(single(lambda: 1)).error, InterceptorError)
    gate.open()
    eventually(lambda: rt.health()["guard"].state == "running")

    assert rt.run(single(lambda: 1)).raise_for_status().outputs == {"body": 1}


def test_an_interceptor_that_did_not_start_lets_no_run_begin(runtime: Make, store: str | None) -> None:
    class Broken(Asked):
        def start(self, *_: Any) -> None:
            raise ValueError("no")

    ran: list[str] = []
    rt = runtime(store, plugins=[Broken()])

    with pytest.raises(ExceptionGroup, match="guard"):
        rt.run(single(body_that_must_not_run(ran)))

    assert ran == []


def test_a_slow_interceptor_that_many_wait_for_is_only_busy(runtime: Make, store: str | None) -> None:
    """Its timeout counts executing only: 60 steps wait for it for six times as long as it may take for one."""
    pause = threading.Event()
    guard = Asked(lambda _step: pause.wait(0.02) or None, timeout=0.2)
    rt = runtime(store, plugins=[guard], max_workers=16)

    result = rt.run(fan(60))

    assert result.status is ExecutionStatus.COMPLETED
    assert (rt.health()["guard"].timeouts, rt.health()["guard"].errors) == (0, 0)
    assert naming(result, "guard") == []


# --- which steps ---------------------------------------------------------------------------------------


def test_each_element_of_a_map_is_asked_about(runtime: Make, store: str | None, steps_on: str) -> None:
    ran: list[int] = []
    verdicts = {
        "each[0]": HookResult.skip("none of this"),
        "each[1]": HookResult.complete("given"),
        "each[2]": HookResult.replace({"item": 20}),
    }
    guard = Asked(of(verdicts))
    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2, 3], id="source")
    wf.step(lambda item: ran.append(item) or item, id="each", map_over="source", max_concurrency=2)
    rt = runtime(store, plugins=[guard], steps_on=steps_on)

    result = rt.run(wf, execution_id="e").raise_for_status()

    assert sorted(guard.paths) == ["each[0]", "each[1]", "each[2]", "each[3]", "source"]
    assert sorted(step.index for step in guard.steps if step.index is not None) == [0, 1, 2, 3]
    assert result.output("each") == [None, "given", 20, 3]
    assert sorted(ran) == [3, 20]
    assert result.steps["each[0]"].status is StepStatus.SKIPPED
    events = events_of(rt, "e")
    assert about(events, "each[0]") == ["step.skipped"]
    assert about(events, "each[1]") == ["step.completed"]


def test_an_aborted_element_fails_its_map(runtime: Make, store: str | None, steps_on: str) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.step(lambda item: item, id="each", map_over="source", max_concurrency=1, retry=AGAIN)
    guard = Asked(of({"each[1]": HookResult.abort("no")}))

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(wf)

    assert result.status is ExecutionStatus.FAILED
    assert result.steps["each[1]"].status is StepStatus.FAILED
    assert isinstance(result.steps["each[1]"].error, StepAbortedError)
    assert guard.paths.count("each[1]") == 1


def test_an_aborted_element_is_collected_where_failures_are(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.step(lambda item: item, id="each", map_over="source", on_item_failure="collect")
    guard = Asked(of({"each[1]": HookResult.abort("no")}))

    result = runtime(store, plugins=[guard]).run(wf).raise_for_status()

    found = result.output("each")
    assert (found[0], found[1].index, found[2]) == (0, 1, 2)
    assert isinstance(found[1].error, StepAbortedError) or "no" in str(found[1].error)


def test_the_steps_of_a_sub_workflow_are_asked_about(runtime: Make, store: str | None, steps_on: str) -> None:
    child = Workflow("child")
    child.step(lambda: 1, id="inner")
    child.step(lambda inner: inner + 1, id="outer")
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=child))
    guard = Asked(of({"sub/inner": HookResult.complete(41)}))

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(wf).raise_for_status()

    assert [path for path in guard.paths if "/" in path] == ["sub/inner", "sub/outer"]
    assert result.output("sub") == {"outer": 42}


@pytest.mark.parametrize(
    ("decide", "status"),
    [
        (lambda: HookResult.abort("no"), StepStatus.FAILED),
        (lambda: HookResult.skip("no"), StepStatus.SKIPPED),
        (lambda: HookResult.complete(5), StepStatus.COMPLETED),
        (lambda: 1 / 0, StepStatus.FAILED),
    ],
    ids=["abort", "skip", "complete", "raise"],
)
def test_a_step_to_be_done_at_most_once_that_was_refused_has_no_unknown_outcome(
    runtime: Make, store: str | None, steps_on: str, decide: Any, status: StepStatus
) -> None:
    ran: list[str] = []
    rt = runtime(store, plugins=[Asked(lambda _step: decide())], steps_on=steps_on)
    wf = single(body_that_must_not_run(ran), delivery=Delivery.AT_MOST_ONCE)

    result = rt.run(wf, execution_id="e")

    assert ran == []
    assert result.steps["body"].status is status
    assert result.interrupts == ()
    assert "step.started" not in types_of(events_of(rt, "e"))


def test_a_step_to_be_done_at_most_once_has_no_unknown_outcome_when_the_interceptor_hangs(
    runtime: Make, store: str | None, steps_on: str, gate: Gate
) -> None:
    ran: list[str] = []
    rt = runtime(store, plugins=[Asked(gate.pass_through, timeout=SOON)], steps_on=steps_on)

    result = rt.run(single(body_that_must_not_run(ran), delivery=Delivery.AT_MOST_ONCE), execution_id="e")

    assert ran == []
    assert isinstance(result.error, InterceptorError)
    assert (result.status, result.interrupts) == (ExecutionStatus.FAILED, ())
    assert "step.started" not in types_of(events_of(rt, "e"))


def test_a_step_to_be_done_at_most_once_may_be_tried_again_where_only_the_interceptor_failed(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    ran: list[str] = []
    guard = Asked(first_raises(ValueError("not now")))
    wf = single(body_that_must_not_run(ran), delivery=Delivery.AT_MOST_ONCE, retry=AGAIN)

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert ran == ["ran"]


def test_a_refused_at_most_once_step_runs_when_a_resume_lets_it(runtime: Make, store: str | None) -> None:
    ran: list[str] = []
    verdicts = [HookResult.abort("not yet")]
    guard = Asked(lambda _step: verdicts.pop() if verdicts else None)
    wf = single(lambda: ran.append("ran") or "charged", delivery=Delivery.AT_MOST_ONCE)
    rt = runtime(store, plugins=[guard])

    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    result = rt.resume("e", wf)

    assert ran == ["ran"]
    assert result.raise_for_status().outputs == {"body": "charged"}


def test_replaced_inputs_reach_a_step_to_be_done_at_most_once(runtime: Make, store: str | None, steps_on: str) -> None:
    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda n: n, id="body", delivery=Delivery.AT_MOST_ONCE)
    guard = Asked(lambda _step: HookResult.replace({"n": 2}))

    result = runtime(store, plugins=[guard], steps_on=steps_on).run(wf, {"n": 1})

    assert result.raise_for_status().outputs == {"body": 2}


def test_a_step_that_its_condition_skips_is_not_asked_about(runtime: Make, store: str | None) -> None:
    guard = Asked()

    result = runtime(store, plugins=[guard]).run(single(lambda: 1, condition=lambda: False))

    assert result.steps["body"].status is StepStatus.SKIPPED
    assert guard.paths == []


def test_submitted_walks_ask_just_the_same(runtime: Make, store: str | None) -> None:
    ran: list[int] = []
    guard = Asked(of({"s1": HookResult.complete("given"), "s2": HookResult.skip("no")}))

    result = runtime(store, plugins=[guard], max_workers=2).submit(chain(4, ran.append)).result(20)

    assert [statuses(result)[f"s{i}"] for i in range(3)] == ["COMPLETED", "COMPLETED", "SKIPPED"]
    assert ran == [0]  # nothing that the fourth depends on completed


# --- while somebody is being asked -----------------------------------------------------------------------


def types_so_far(rt: Runtime) -> list[str]:
    try:
        return types_of(rt.stored_events("e"))
    except AresError:  # it is not there yet
        return []


def asked_at(gate: Gate, path: str) -> Asked:
    """An interceptor that is at one step for as long as the test wants."""
    return Asked(lambda step: gate.pass_through() if step.path == path and not gate.opened.is_set() else None)


@pytest.mark.parametrize("placement", ["auto", "workers"])
def test_a_cancel_while_an_interceptor_is_asked_skips_the_step(
    runtime: Make, store: str | None, gate: Gate, placement: str
) -> None:
    ran: list[str] = []
    rt = runtime(store, plugins=[asked_at(gate, "body")], steps_on=placement)
    running = Task(rt.run, single(body_that_must_not_run(ran)), execution_id="e")
    gate.await_entry()

    rt.cancel("e", "enough")
    gate.open()
    result = running.result()

    assert ran == []
    assert result.status is ExecutionStatus.CANCELLED
    assert result.steps["body"].status is StepStatus.SKIPPED
    assert result.steps["body"].reason.startswith("cancelled")
    assert "step.started" not in types_of(events_of(rt, "e"))


def test_a_cancel_while_an_interceptor_is_asked_before_a_retry_ends_the_step(
    runtime: Make, store: str | None, gate: Gate
) -> None:
    ran: list[int] = []

    def body(ctx: StepContext) -> None:
        ran.append(ctx.attempt)
        raise ValueError("again")

    guard = Asked(lambda step: gate.pass_through() if step.attempt == 2 else None)
    rt = runtime(store, plugins=[guard], steps_on="workers")
    running = Task(rt.run, single(body, retry=AGAIN), execution_id="e")
    gate.await_entry()

    rt.cancel("e", "enough")
    gate.open()
    result = running.result()

    assert ran == [1]
    assert result.status is ExecutionStatus.CANCELLED
    assert result.steps["body"].status is StepStatus.FAILED
    assert isinstance(result.steps["body"].error, StepCancelledError)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_clean_up_that_is_being_asked_about_when_the_execution_ends_early_runs_all_the_same(
    runtime: Make, store: str | None, gate: Gate, how: str
) -> None:
    """It had not begun, so it is none of those that are cut short."""
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: 1, id="work")
    wf.step(lambda: ran.append("cleaned"), id="clean", depends_on=["work"], trigger="always")
    rt = runtime(store, plugins=[asked_at(gate, "clean")], steps_on="workers")
    running = Task(rt.run, wf, execution_id="e", timeout=0.2 if how == "timeout" else None)
    gate.await_entry()

    if how == "cancel":
        rt.cancel("e", "enough")
    else:
        eventually(lambda: "workflow.overdue" in types_so_far(rt))
    gate.open()
    result = running.result()

    assert ran == ["cleaned"], result.steps["clean"]
    assert result.steps["clean"].status is StepStatus.COMPLETED
    assert result.status in (ExecutionStatus.CANCELLED, ExecutionStatus.FAILED)


def test_a_timeout_of_the_execution_while_an_interceptor_is_asked_skips_the_step(
    runtime: Make, store: str | None, gate: Gate
) -> None:
    ran: list[str] = []
    rt = runtime(store, plugins=[asked_at(gate, "body")])
    running = Task(rt.run, single(body_that_must_not_run(ran)), execution_id="e", timeout=0.2)
    gate.await_entry()

    eventually(lambda: "workflow.overdue" in types_so_far(rt))
    gate.open()
    result = running.result()

    assert ran == []
    assert result.status is ExecutionStatus.FAILED
    assert result.steps["body"].reason.startswith("timeout")


def test_a_hung_interceptor_holds_up_no_cancel(runtime: Make, store: str | None, gate: Gate) -> None:
    """The walk ends although the interceptor has not come back."""
    ran: list[str] = []
    rt = runtime(store, plugins=[asked_at(gate, "body")], steps_on="workers")
    running = Task(rt.run, single(body_that_must_not_run(ran)), execution_id="e")
    gate.await_entry()
    began = time.monotonic()

    rt.cancel("e")
    result = running.result(15)

    assert result.status is ExecutionStatus.CANCELLED
    assert ran == []
    assert seconds_since(began) < 8


def test_a_step_that_fails_fast_while_another_is_being_asked_about_keeps_that_from_running(
    runtime: Make, store: str | None, gate: Gate
) -> None:
    ran: list[str] = []
    has_begun = threading.Event()
    wf = Workflow("w", fail_fast=True)

    def fails() -> None:
        has_begun.set()
        gate.await_entry()
        raise ValueError("no")

    wf.step(fails, id="fails")
    wf.step(lambda: has_begun.wait(LIMIT), id="first")  # the interceptor is asked about one step at a time
    wf.step(lambda first: ran.append("ran"), id="asked")
    rt = runtime(store, plugins=[asked_at(gate, "asked")], steps_on="workers", max_workers=3)
    running = Task(rt.run, wf, execution_id="e")

    eventually(lambda: "step.failed" in types_so_far(rt))
    gate.open()
    result = running.result()

    assert ran == []
    assert statuses(result) == {"fails": "FAILED", "first": "COMPLETED", "asked": "SKIPPED"}


def test_a_timeout_of_the_step_does_not_count_while_interceptors_are_asked(runtime: Make, store: str | None) -> None:
    pause = threading.Event()
    guard = Asked(lambda _step: pause.wait(0.3) or None)

    result = runtime(store, plugins=[guard]).run(single(lambda: "in time", timeout=0.2))

    assert result.raise_for_status().outputs == {"body": "in time"}


def test_close_while_an_interceptor_is_asked_interrupts_and_the_step_runs_at_the_next_resume(
    runtime: Make, tmp_path: Any, gate: Gate
) -> None:
    ran: list[str] = []
    wf = single(lambda: ran.append("ran"))
    rt = runtime(tmp_path / "ares.db", plugins=[asked_at(gate, "body")], steps_on="workers")
    execution = rt.submit(wf, execution_id="e")
    gate.await_entry()
    closing = Task(rt.close, 0.2)
    closing.result()
    gate.open()

    assert ran == []
    assert execution.done()
    with Runtime(tmp_path / "ares.db") as again:
        assert again.execution("e").status in (ExecutionStatus.INTERRUPTED, ExecutionStatus.PENDING)
        assert again.resume("e", wf).status is ExecutionStatus.COMPLETED
    assert ran == ["ran"]


# --- verdicts are kept --------------------------------------------------------------------------------------


def test_verdicts_of_an_interrupted_execution_are_not_asked_for_again(runtime: Make, tmp_path: Any, gate: Gate) -> None:
    """Four steps were decided before it was closed; whoever resumes it asks about the fifth alone."""
    file = tmp_path / "ares.db"
    verdicts = {
        "s0": HookResult.complete("given"),
        "s1": HookResult.skip("no"),
        "s2": HookResult.replace({}),
    }
    ran: list[str] = []
    wf = Workflow("w")
    for i in range(4):
        wf.step(lambda i=i: ran.append(f"s{i}"), id=f"s{i}", depends_on=[f"s{i - 1}"] if i else [], trigger="always")
    wf.step(lambda: gate.pass_through() or ran.append("s4"), id="s4", depends_on=["s3"], trigger="always")
    first = runtime(file, plugins=[Asked(of(verdicts))], steps_on="workers")
    first.submit(wf, execution_id="e")
    gate.await_entry()
    first.close(timeout=0.1)
    gate.open()
    guard = Asked(lambda _step: None)

    with Runtime(file, plugins=[guard]) as second:
        result = second.resume("e", wf).raise_for_status()

    assert guard.paths == ["s4"]
    assert statuses(result) == {
        "s0": "COMPLETED", "s1": "SKIPPED", "s2": "COMPLETED", "s3": "COMPLETED", "s4": "COMPLETED",
    }  # fmt: skip
    assert result.outputs["s0"] == "given"
    assert result.steps["s1"].reason == "verdict: guard: no"
    assert [name for name in ran if name != "s4"] == ["s2", "s3"]


def test_a_recovery_policy_does_not_save_an_aborted_step(runtime: Make, store: str | None) -> None:
    wf = single(lambda: 1, recovery=RecoveryPolicy("skip"))

    result = runtime(store, plugins=[Asked(lambda _step: HookResult.abort("no"))]).run(wf)

    assert isinstance(result.error, StepAbortedError)
