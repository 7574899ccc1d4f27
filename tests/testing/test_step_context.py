"""``step_context``: a step function called in a unit test sees what it would see in a walk."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import Approve, Reject, Runtime, StepContext, Workflow
from ares.errors import AttemptEnded, SerializationError, StepParked, UsageError, WriteError
from ares.testing import ProbedStepContext, make_step_result, step_context


def test_it_is_a_step_context_with_the_fields_it_was_given() -> None:
    ctx = step_context(
        "audit/measure[3]",
        execution_id="e7",
        inputs={"item": 4},
        variables={"total": 5},
        metadata={"team": "audit"},
        attempt=2,
        round=3,
        agent_type="critic",
    )

    assert isinstance(ctx, StepContext)
    assert (ctx.execution_id, ctx.attempt, ctx.round) == ("e7", 2, 3)
    assert (ctx.step.path, ctx.step.step_id, ctx.step.base_id, ctx.step.index) == (
        "audit/measure[3]",
        "measure[3]",
        "measure",
        3,
    )
    assert (ctx.inputs, ctx.variables, ctx.metadata) == ({"item": 4}, {"total": 5}, {"team": "audit"})
    assert ctx.step.agent_type == "critic"
    assert (ctx.deadline, ctx.cancelled) == (None, False)
    ctx.logger.info("may be used")


def test_what_the_body_did_is_told_by_the_probe() -> None:
    def charge(ctx: StepContext, order: str) -> str:
        ctx.set("total", 1)
        ctx.set("total", 2)
        ctx.emit("order.charged", order=order)
        ctx.progress(1, 2)
        return ctx.once("receipt", ctx.tool, "bank", str.upper, order)

    ctx = step_context(writes=["total"])

    assert charge(ctx, "o1") == "O1"
    probe = ctx.probe
    assert probe.writes == {"total": 2}
    assert probe.events == [("order.charged", {"order": "o1"})]
    assert probe.progress == (1, 2)
    assert probe.remembered == {"receipt": "O1"}
    (tool,) = probe.tools
    assert (tool.tool_name, tool.input, tool.output, tool.success) == ("bank", ["o1"], "O1", True)


def test_a_later_attempt_is_given_what_once_kept() -> None:
    first = step_context()
    first.once("receipt", lambda: 7)
    second = step_context(attempt=2, remembered=first.probe.remembered)

    assert second.once("receipt", lambda: 8) == 7
    assert second.idempotency_key == first.idempotency_key
    assert len({first.idempotency_key, first.idempotency_key_for("a"), first.idempotency_key_for("b")}) == 3


def test_a_question_is_answered_by_key_or_ends_the_call() -> None:
    def decide(ctx: StepContext) -> tuple[object, bool]:
        granted = ctx.interrupt("amount", "How much?", {"upper": 10})
        return granted, ctx.interrupt("sure", "Sure?", on_reject="return").approved

    ctx = step_context(answers={"amount": Approve(7), "sure": Reject("no")})
    assert decide(ctx) == (7, False)
    assert ctx.probe.questions == [("amount", "How much?"), ("sure", "Sure?")]

    for answers in ({}, {"amount": Reject("too much")}):
        with pytest.raises(StepParked, match="amount"):
            decide(step_context(answers=answers))
    with pytest.raises(UsageError, match="on_reject='stop'"):
        step_context().interrupt("k", "m", on_reject="stop")


def test_upstream_takes_results_or_just_outputs() -> None:
    skipped = make_step_result("b", status="SKIPPED", reason="condition")

    ctx = step_context(upstream={"a": [1], "b": skipped})

    assert (ctx.upstream["a"].output, str(ctx.upstream["a"].status)) == ([1], "COMPLETED")
    assert ctx.upstream["b"] is skipped


def test_a_test_can_cancel_it_from_another_side() -> None:
    ctx = step_context()

    ctx.probe.cancel()

    assert ctx.cancelled


def test_it_is_cancelled_when_its_time_is_up() -> None:
    ctx = step_context(timeout=60)
    assert ctx.deadline is not None
    assert 0 < ctx.deadline - time.monotonic() <= 60
    assert not ctx.cancelled

    assert step_context(timeout=0).cancelled


def test_after_the_end_of_the_attempt_it_is_dead() -> None:
    ctx = step_context(writes=["total"])
    ctx.probe.end()

    assert ctx.cancelled
    calls: list[Callable[[], object]] = [
        lambda: ctx.set("total", 1),
        lambda: ctx.variables,
        lambda: ctx.once("k", print),
        lambda: ctx.emit("a.b"),
    ]
    for call in calls:
        with pytest.raises(AttemptEnded):
            call()
    assert ctx.probe.writes == {}


def test_variables_cannot_be_changed() -> None:
    ctx = step_context(variables={"total": 1}, inputs={"item": 1})

    with pytest.raises(TypeError):
        ctx.variables["total"] = 2  # type: ignore[index]  # that is what it is about
    with pytest.raises(TypeError):
        ctx.inputs["item"] = 2  # type: ignore[index]  # that is what it is about


def test_a_field_that_no_step_has_is_refused() -> None:
    with pytest.raises(UsageError, match="colour"):
        step_context(colour="red")
    with pytest.raises(UsageError, match="collection of names"):
        step_context(writes="total")


def test_a_failing_tool_is_recorded_and_its_error_is_the_bodys() -> None:
    ctx = step_context()

    with pytest.raises(ZeroDivisionError):
        ctx.tool("divide", lambda a, b: a / b, 1, b=0)

    (tool,) = ctx.probe.tools
    assert (tool.success, tool.input) == (False, {"args": [1], "kwargs": {"b": 0}})
    assert tool.error.startswith("ZeroDivisionError")


def test_the_fixture_is_the_function(step_context: Callable[..., ProbedStepContext]) -> None:
    assert step_context("charge").step.path == "charge"


# --- as in a walk -----------------------------------------------------------------------------------------------------


class Strange:
    """What no store can keep."""


class Speechless(ValueError):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def fail_without_a_word() -> None:
    raise Speechless


BODIES: dict[str, Callable[[StepContext], Any]] = {
    "the step": lambda ctx: (ctx.step.path, ctx.step.base_id, ctx.step.index, ctx.step.name, str(ctx.step.status)),
    "numbers": lambda ctx: (ctx.attempt, ctx.round),
    "variables": lambda ctx: dict(ctx.variables),
    "upstream": lambda ctx: {name: (str(each.status), each.output) for name, each in ctx.upstream.items()},
    "a write": lambda ctx: ctx.set("total", 1),
    "a write that is not declared": lambda ctx: ctx.set("other", 1),
    "a tool": lambda ctx: ctx.tool("t", len, "abc"),
    "a tool that fails": lambda ctx: ctx.tool("t", len, 3),
    "a tool that fails and cannot say how": lambda ctx: ctx.tool("t", fail_without_a_word),
    "once": lambda ctx: [ctx.once("k", lambda: 1), ctx.once("k", lambda: 2), ctx.once("l", lambda: 3)],
    "once inside itself": lambda ctx: ctx.once("k", lambda: ctx.once("k", lambda: 1)),
    "once without a key": lambda ctx: ctx.once("", lambda: 1),
    "once that fails": lambda ctx: ctx.once("k", lambda: 1 / 0),
    "once of what cannot be kept": lambda ctx: ctx.once("k", Strange),
    "an event": lambda ctx: ctx.emit("a.b", value=[1]),
    "an event without a type": lambda ctx: ctx.emit(""),
    "an event that cannot be kept": lambda ctx: ctx.emit("a.b", value=Strange()),
    "progress": lambda ctx: ctx.progress(1),
    "no deadline": lambda ctx: (ctx.deadline, ctx.cancelled),
    "keys": lambda ctx: (
        ctx.idempotency_key == ctx.idempotency_key,
        ctx.idempotency_key == ctx.idempotency_key_for("k"),
    ),
    "its text": lambda ctx: repr(ctx).replace(ctx.execution_id, "E"),
}


def outcome(body: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "returned", body()
    except Exception as error:
        return type(error).__name__, None if isinstance(error, Speechless) else str(error)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_comes_to_the_same_as_in_a_walk(name: str, tmp_path: Path) -> None:
    body, walked = BODIES[name], []
    wf = Workflow("w", variables={"total": 0, "other": 0})
    wf.step(lambda: [1, 2], id="before")

    @wf.step(id="body", depends_on=["before"], writes=["total"])
    def run(ctx: StepContext) -> None:
        walked.append(outcome(lambda: body(ctx)))

    with Runtime(tmp_path / "ares.db") as runtime:
        runtime.run(wf).raise_for_status()
    ctx = step_context(
        "body", writes=["total"], variables={"total": 0, "other": 0}, upstream={"before": [1, 2]}, execution_id="E"
    )

    assert [outcome(lambda: body(ctx))] == walked


def test_the_errors_are_those_of_a_walk() -> None:
    assert {WriteError.__name__, SerializationError.__name__, UsageError.__name__} <= {
        outcome(lambda body=body: body(step_context()))[0] for body in BODIES.values()
    }
