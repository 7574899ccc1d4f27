"""Questions to a human: who waits for an answer, who does not, and what a body gets when its answer is in."""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import attrs
import pytest

import ares
from ares import (
    Answer,
    Approve,
    ExecutionStatus,
    Interrupt,
    ItemFailure,
    Reject,
    RetryPolicy,
    Runtime,
    StepContext,
    StepSpec,
    StepStatus,
    Workflow,
)
from ares.errors import (
    InvariantError,
    SerializationError,
    StepRejectedError,
    UsageError,
    WorkflowWaitingError,
)
from tests.engine.helpers import LIMIT, Gate, Task, events_of, statuses, types_of

Make = Callable[..., Runtime]


def asking(*ids: str) -> Workflow:
    """Steps beside one another that each ask, and one that joins what they were told."""
    wf = Workflow("asking")
    for step in ids:
        wf.step(lambda ctx: ctx.interrupt("name", f"what is {ctx.step.path}?"), id=step)
    wf.step(lambda ctx: {s: r.output for s, r in ctx.upstream.items()}, id="join", depends_on=ids)
    return wf


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_returns_waiting_once_all_that_is_left_waits(runtime: Make, store: str | None) -> None:
    wf = asking("a", "b")
    wf.step(lambda: "did not wait", id="stranger")
    rt = runtime(store)

    result = rt.run(wf, execution_id="e")

    assert result.status is ExecutionStatus.WAITING
    assert statuses(result) == {"a": "WAITING", "b": "WAITING", "join": "PENDING", "stranger": "COMPLETED"}
    assert result.outputs == {"stranger": "did not wait"}
    assert sorted((q.path, q.step_id, q.key, q.round, q.message, q.payload) for q in result.interrupts) == [
        ("a", "a", "name", 1, "what is a?", None),
        ("b", "b", "name", 1, "what is b?", None),
    ]
    assert all(abs(datetime.now(UTC) - q.asked_at) < timedelta(minutes=1) for q in result.interrupts)
    assert tuple(rt.questions("e")) == tuple(rt.questions()) == result.interrupts
    assert rt.execution("e").status is rt.summary("e").status is rt.checkpoint("e").status is ExecutionStatus.WAITING


def test_a_resume_goes_on_where_answers_are_in_and_waits_for_the_others(runtime: Make, store: str | None) -> None:
    wf = asking("a", "b")
    rt = runtime(store)
    asked = rt.run(wf, execution_id="e")

    unchanged = rt.resume("e", wf)
    rt.answer("e", Approve("B"), step="b")
    half = rt.resume("e", wf)
    rt.answer("e", Approve("A"), step="a", key="name", round=1)
    whole = rt.resume("e", wf)

    assert sorted(q.path for q in asked.interrupts) == ["a", "b"]
    assert unchanged.interrupts == asked.interrupts  # in the order in which they were asked
    assert [q.path for q in half.interrupts] == ["a"]
    assert half.outputs == {"b": "B"}
    assert whole.raise_for_status().outputs["join"] == {"a": "A", "b": "B"}
    assert whole.interrupts == ()
    assert rt.resume("e", wf).outputs == whole.outputs


def test_raise_for_status_says_that_it_waits(runtime: Make, store: str | None) -> None:
    result = runtime(store).run(asking("a"), execution_id="e")

    with pytest.raises(WorkflowWaitingError, match="'e'"):
        result.raise_for_status()


def test_a_failure_elsewhere_does_not_end_an_execution_that_waits(runtime: Make, store: str | None) -> None:
    wf = asking("a")

    @wf.step
    def fails() -> None:
        raise LookupError("gone")

    rt = runtime(store)
    waiting = rt.run(wf, execution_id="e")
    rt.answer(waiting.interrupts[0], Approve("A"))
    result = rt.resume("e", wf)

    assert waiting.status is ExecutionStatus.WAITING
    assert result.status is ExecutionStatus.FAILED
    assert result.outputs["join"] == {"a": "A"}


def test_an_answer_before_the_run_rests_is_taken_up_by_that_run(runtime: Make, store: str | None) -> None:
    wf = asking("a")
    asked, answered = Gate(), Gate()

    @wf.step
    def beside() -> None:
        asked.open()
        answered.wait()

    rt = runtime(store, max_workers=2)
    running = Task(rt.run, wf, execution_id="e")
    asked.wait()
    watcher = rt.execution("e")
    for event in _until(watcher, "interrupt.created"):
        rt.answer("e", Approve("early"), step=event.payload["path"])
    for _ in _until(watcher, "interrupt.resolved"):
        answered.open()

    assert running.result().outputs["join"] == {"a": "early"}


def _until(execution: ares.Execution, event_type: str) -> Iterator[ares.Event]:
    """The first event of a type."""
    for event in execution.events():
        if event.type == event_type:
            yield event
            return


# --- what a body gets -------------------------------------------------------------------------------------------------


@attrs.frozen
class Price:
    amount: Decimal
    since: datetime


VALUES = [
    None,
    True,
    2**80,
    "länge \U0001f600",
    b"\x00\xff",
    datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))),
    Decimal("1.10"),
    Price(Decimal("9.90"), datetime(2026, 1, 1, tzinfo=UTC)),
    {("a", 1): {Decimal(2): [Price(Decimal(0), datetime(1, 1, 1, tzinfo=UTC))]}},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_answer_is_the_value_that_was_given(runtime: Make, store: str | None, value: object) -> None:
    wf = Workflow("w", types=[Price])
    wf.step(lambda ctx: ctx.interrupt("k", "?"), id="a")
    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Approve(value))
    if store is not None:  # also for a Runtime that has seen nothing of it
        rt.close()
        rt = runtime(store)
    output = rt.resume("e", wf).outputs["a"]

    assert output == value
    assert type(output) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_payload_is_shown_as_it_was_given(runtime: Make, store: str | None, value: object) -> None:
    wf = Workflow("w", types=[Price])
    wf.step(lambda ctx: ctx.interrupt("k", "?", value), id="a")
    rt = runtime(store)

    result = rt.run(wf, execution_id="e")

    assert [q.payload for q in (*result.interrupts, *rt.questions("e"))] == [value] * 2


@pytest.mark.parametrize("durability", ["async", "best_effort"])
def test_in_every_mode_a_question_that_is_seen_can_be_answered(
    runtime: Make, store: str | None, durability: str
) -> None:
    wf = asking("a")
    rt = runtime(store, durability=durability)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Approve("A"))
    handle = rt.submit(wf, execution_id="f")
    rt.answer(handle.result(LIMIT).interrupts[0], Approve("B"))

    assert rt.resume("e", wf).outputs["a"] == "A"
    assert handle.result(LIMIT).outputs["a"] == "B"


def test_keys_and_not_the_order_of_calls_match_answers_to_questions(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    calls: list[int] = []

    @wf.step
    def body(ctx: StepContext) -> dict[str, str]:
        calls.append(1)
        keys = ["x", "y", "z"] if len(calls) % 2 else ["z", "y", "x"]
        return {key: ctx.interrupt(key, key) for key in keys}

    rt = runtime(store)
    result = rt.run(wf, execution_id="e")
    while result.interrupts:
        rt.answer(result.interrupts[0], Approve(f"for {result.interrupts[0].key}"))
        result = rt.resume("e", wf)

    assert result.outputs["body"] == {"x": "for x", "y": "for y", "z": "for z"}
    assert len(calls) == 4


def test_any_text_is_a_key_that_of_unknown_outcomes_too(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    keys = ["outcome", "before", " ", "\0", "a/b[0]", "\ud800"]
    wf.step(lambda ctx: [ctx.interrupt(key, "?") for key in keys], id="a")
    rt = runtime(store)

    result = rt.run(wf, execution_id="e")
    for key in keys:
        assert [q.key for q in result.interrupts] == [key]
        rt.answer(result.interrupts[0], Approve(key))
        result = rt.resume("e", wf)

    assert result.outputs["a"] == keys


def test_a_no_skips_the_step_and_blocks_what_follows(runtime: Make, store: str | None) -> None:
    wf = asking("a", "b")
    rt = runtime(store)
    rt.run(wf, execution_id="e")
    rt.answer("e", Reject("too expensive"), step="a")
    rt.answer("e", Approve("B"), step="b")
    result = rt.resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert result.rejected == ("a",)
    assert (result.steps["a"].status, result.steps["a"].reason) == (StepStatus.SKIPPED, "rejected")
    assert result.steps["join"].reason == "rejected: a"
    assert [(e.action, e.feedback) for e in rt.checkpoint("e").interrupt_history if e.path == "a"] == [
        ("ask", "what is a?"),
        ("reject", "too expensive"),
    ]


def test_a_body_that_wants_to_hear_a_no_is_told(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: ["yes", "no"], id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?", on_reject="return"), id="a", map_over="source")
    rt = runtime(store)
    rt.run(wf, execution_id="e")
    rt.answer("e", Approve(1, "fine"), step="a[0]")
    rt.answer("e", Reject("not so", 2), step="a[1]")

    result = rt.resume("e", wf)

    assert result.outputs["a"] == [Answer(True, 1, "fine"), Answer(False, 2, "not so")]
    assert result.rejected == ()


def test_a_no_to_an_element_is_its_failure(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 1], id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="a", map_over="source", on_item_failure="collect")
    rt = runtime(store)
    rt.run(wf, execution_id="e")
    rt.answer("e", Reject("no"), step="a[0]")
    rt.answer("e", Approve("yes"), step="a[1]")

    failure, output = rt.resume("e", wf).outputs["a"]

    assert output == "yes"
    assert isinstance(failure, ItemFailure)
    assert isinstance(failure.error, StepRejectedError)


@pytest.mark.parametrize("how", ["static", "dynamic"])
def test_what_ended_with_a_no_is_asked_anew_when_it_is_set_back(runtime: Make, store: str | None, how: str) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="first")
    ran: list[str] = []

    def body(ctx: StepContext, first: int) -> Any:
        value = ctx.interrupt("k", "?") if how == "dynamic" else "static"
        ran.append("went on")
        return value

    wf.step(body, id="a", interrupt="may I?" if how == "static" else None)
    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Reject("no", value="not this"))
    rejected = rt.resume("e", wf)
    asked = rt.resume("e", wf, rerun=["first"])

    assert rejected.rejected == ("a",)
    assert asked.status is ExecutionStatus.WAITING
    assert [q.path for q in asked.interrupts] == ["a"]
    assert ran == []
    rt.answer(asked.interrupts[0], Approve("this"))
    assert rt.resume("e", wf).outputs["a"] == ("this" if how == "dynamic" else "static")


def test_an_answer_is_kept_by_a_retry_and_a_resume_and_forgotten_by_a_rerun_of_the_step(
    runtime: Make, store: str | None
) -> None:
    wf = Workflow("w")
    broken = {"first", "second"}

    @wf.step(retry=RetryPolicy(max_attempts=2, initial_delay=0.0))
    def a(ctx: StepContext) -> str:
        value = ctx.interrupt("k", "?")
        if ctx.attempt == 1 and "first" in broken:
            raise ConnectionError
        if "second" in broken:
            raise LookupError
        return f"{value} in attempt {ctx.attempt}"

    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Approve("yes"))
    failed = rt.resume("e", wf)
    broken.clear()
    resumed = rt.resume("e", wf)
    rerun = rt.resume("e", wf, rerun=["a"])

    assert failed.status is ExecutionStatus.FAILED
    assert failed.steps["a"].attempts == 2
    assert resumed.outputs["a"] == "yes in attempt 1"
    assert rerun.status is ExecutionStatus.WAITING


# --- the static question ----------------------------------------------------------------------------------------------


def test_a_static_question_is_asked_once_before_the_body_and_after_the_condition(
    runtime: Make, store: str | None
) -> None:
    happened: list[str] = []
    wf = Workflow("w")

    @wf.step(
        interrupt=Interrupt("publish?", {"to": "everybody"}),
        condition=lambda: happened.append("condition") or True,
        retry=RetryPolicy(max_attempts=2, initial_delay=0.0),
    )
    def a(ctx: StepContext) -> None:
        happened.append("body")
        if ctx.attempt == 1:
            raise ConnectionError

    wf.step(lambda: None, id="no", interrupt="never asked", condition=lambda: False)
    rt = runtime(store)
    (question,) = rt.run(wf, execution_id="e").interrupts
    asked = list(happened)
    rt.answer(question, Approve("ignored"))
    result = rt.resume("e", wf)

    assert (question.key, question.message, question.payload) == ("", "publish?", {"to": "everybody"})
    assert asked == ["condition"]
    assert happened == ["condition", "body", "body"]
    assert result.outputs == {"a": None}


def test_a_map_is_asked_for_as_a_whole(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [1, 2, 3], id="source")
    wf.step(lambda item: item, id="a", map_over="source", interrupt="all of them?")
    rt = runtime(store)
    waiting = rt.run(wf, execution_id="e")
    rt.answer(waiting.interrupts[0], Approve())

    assert [q.path for q in waiting.interrupts] == ["a"]
    assert rt.resume("e", wf).outputs["a"] == [1, 2, 3]


# --- the parked body --------------------------------------------------------------------------------------------------


def test_writes_before_the_question_are_dropped_and_what_once_did_is_kept(runtime: Make, store: str | None) -> None:
    wf = Workflow("w", variables={"seen": "nothing", "kept": "nothing"})
    effects: list[str] = []
    bodies: list[int] = []

    @wf.step(writes=["seen", "kept"])
    def a(ctx: StepContext) -> str:
        bodies.append(1)
        if len(bodies) == 1:
            ctx.set("seen", "by the parked run")
        token = ctx.once("token", lambda: effects.append("effect") or f"token {len(bodies)}")
        ctx.interrupt("k", "?")
        ctx.set("kept", token)
        return token

    rt = runtime(store)
    waiting = rt.run(wf, execution_id="e")
    rt.answer(waiting.interrupts[0], Approve())
    result = rt.resume("e", wf)

    assert waiting.variables == {"seen": "nothing", "kept": "nothing"}
    assert result.variables == {"seen": "nothing", "kept": "token 1"}
    assert result.outputs["a"] == "token 1"
    assert effects == ["effect"]
    assert result.steps["a"].attempts == 1


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_the_rerun_is_inside_around_step_and_sees_the_caller_s_variables_and_one_attempt(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    entered: list[str] = []
    seen: list[tuple[str, int, str]] = []
    wf = Workflow("w")

    @wf.step
    def a(ctx: StepContext) -> str:
        seen.append((who.get(), ctx.attempt, ctx.idempotency_key))
        who.set("changed by the body")
        return str(ctx.interrupt("k", "?"))

    @contextlib.contextmanager
    def around(ctx: StepContext) -> Iterator[None]:
        entered.append(f"into {ctx.step.path}")
        try:
            yield
        finally:
            entered.append("out")

    rt = runtime(store, around_step=around, steps_on=steps_on)
    who.set("the caller")
    waiting = rt.run(wf, execution_id="e")
    who.set("another caller")
    rt.answer(waiting.interrupts[0], Approve("yes"))
    result = rt.resume("e", wf)

    assert result.outputs["a"] == "yes"
    assert entered == ["into a", "out"] * 2
    assert [name for name, _, _ in seen] == ["the caller", "another caller"]
    assert seen[0][1:] == seen[1][1:]


def _swallow_all(ctx: StepContext) -> str:
    try:
        return str(ctx.interrupt("k", "?"))
    except:  # noqa: E722 - what a careless body does
        return "went on"


def _swallow_base(ctx: StepContext) -> str:
    with contextlib.suppress(BaseException):
        ctx.interrupt("k", "?")
    return "went on"


def _swallow_and_ask_again(ctx: StepContext) -> str:
    for key in ("k", "another"):
        with contextlib.suppress(BaseException):
            ctx.interrupt(key, "?")
    return "went on"


def _ask_in_a_helper_thread(ctx: StepContext) -> str:
    def ask() -> None:
        with contextlib.suppress(BaseException):
            ctx.interrupt("k", "?")

    helper = threading.Thread(target=ask)
    helper.start()
    helper.join(LIMIT)
    return "went on"


@pytest.mark.parametrize(
    "body", [_swallow_all, _swallow_base, _swallow_and_ask_again, _ask_in_a_helper_thread], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_body_that_swallows_the_question_fails(
    runtime: Make, store: str | None, body: Callable[[StepContext], str], steps_on: str
) -> None:
    wf = Workflow("w")
    wf.step(body, id="a")
    rt = runtime(store, steps_on=steps_on)

    result = rt.run(wf, execution_id="e")

    assert isinstance(result.error, InvariantError)
    assert "'k'" in str(result.error)
    assert rt.questions("e") == []


def test_a_question_may_pass_through_a_pool_a_once_and_a_tool(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")

    @wf.step
    def a(ctx: StepContext) -> list[Any]:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(ctx.interrupt, "pool", "?").result()
        second = ctx.once("asks", lambda: ctx.interrupt("once", "?"))
        return [first, second, ctx.tool("human", lambda about: ctx.interrupt("tool", about), "what?")]

    rt = runtime(store)
    result = rt.run(wf, execution_id="e")
    while result.interrupts:
        rt.answer(result.interrupts[0], Approve(result.interrupts[0].key))
        result = rt.resume("e", wf)

    assert result.outputs["a"] == ["pool", "once", "tool"]
    assert [(tool.success, tool.output) for tool in rt.checkpoint("e").tool_history] == [(True, "tool")]


def test_a_parked_of_its_own_asks_nobody(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")

    @wf.step
    def a() -> None:
        raise ares.errors.StepParked("a", "k")

    assert isinstance(runtime(store).run(wf).error, InvariantError)


def test_a_body_that_fails_over_the_question_fails_with_that(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")

    @wf.step
    def a(ctx: StepContext) -> None:
        try:
            ctx.interrupt("k", "?")
        finally:
            raise LookupError("in the clean-up")

    rt = runtime(store)

    assert isinstance(rt.run(wf, execution_id="e").error, LookupError)
    assert rt.questions("e") == []


def test_a_question_with_a_payload_that_cannot_be_kept_fails_the_attempt(runtime: Make, tmp_path: Any) -> None:
    wf = Workflow("w")
    wf.step(lambda ctx: ctx.interrupt("k", "?", {"deep": [object()]}), id="a")
    for rt in (runtime(str(tmp_path / "a.db")), runtime(check_values=True)):
        result = rt.run(wf, execution_id="e")

        assert result.status is ExecutionStatus.FAILED
        assert isinstance(result.error, SerializationError)
        assert "'a'" in str(result.error)
        assert rt.questions("e") == []


@pytest.mark.parametrize("place", ["condition", "router", "reconcile", "at_most_once"])
def test_only_a_body_that_may_run_again_can_ask(runtime: Make, store: str | None, place: str) -> None:
    refusals: list[str] = []

    def ask(ctx: StepContext) -> Any:
        try:
            ctx.interrupt("k", "?")
        except UsageError as error:
            refusals.append(str(error))
            raise

    def unsure() -> None:
        raise ConnectionError

    wf = Workflow("w")
    match place:
        case "condition":
            wf.step(lambda: 1, id="a", condition=ask)
        case "router":
            wf.step(lambda: 1, id="a", branches=("b",), router=ask)
            wf.step(lambda a: a, id="b")
        case "reconcile":
            wf.step(unsure, id="a", delivery="at_most_once", reconcile=ask)
        case "at_most_once":
            wf.step(ask, id="a", delivery="at_most_once")
    result = runtime(store).run(wf, execution_id="e")

    assert [place.removesuffix("r") in refusal for refusal in refusals] == [True]
    if place == "at_most_once":
        assert [q.key for q in result.interrupts] == ["outcome"]
    else:
        assert result.status is ExecutionStatus.FAILED


@pytest.mark.parametrize("key", ["", None, 7, b"k"])
def test_a_key_and_a_message_are_text(runtime: Make, key: Any) -> None:
    wf = Workflow("w")
    wf.step(lambda ctx: ctx.interrupt(key, "?"), id="a")
    wf.step(lambda ctx: ctx.interrupt("k", key), id="b")
    wf.step(lambda ctx: ctx.interrupt("k", "?", on_reject=key), id="c")

    result = runtime().run(wf)

    assert [type(result.steps[step].error) for step in "abc"] == [UsageError] * 3


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_who_waits_holds_no_worker(runtime: Make, store: str | None, steps_on: str) -> None:
    wf = asking(*(f"s{i}" for i in range(20)))
    wf.step(lambda: list(range(20)), id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source", max_concurrency=2)
    wf.step(lambda source: "done", id="behind")
    rt = runtime(store, max_workers=1, steps_on=steps_on)
    waiting = rt.run(wf, execution_id="e")
    for question in reversed(waiting.interrupts):
        rt.answer(question, Approve(question.path))

    result = rt.resume("e", wf)

    assert len(waiting.interrupts) == 40
    assert waiting.outputs["behind"] == "done"
    assert result.outputs["join"] == {f"s{i}": f"s{i}" for i in range(20)}
    assert result.outputs["each"] == [f"each[{i}]" for i in range(20)]


def test_one_that_waits_does_not_hold_up_a_retry_beside_it(runtime: Make, store: str | None) -> None:
    wf = asking("a")

    @wf.step(retry=RetryPolicy(max_attempts=3, initial_delay=0.02))
    def flaky(ctx: StepContext) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    result = runtime(store).run(wf, execution_id="e")

    assert result.status is ExecutionStatus.WAITING
    assert result.outputs == {"flaky": 3}


# --- sub-workflows, maps of them, nested runs -------------------------------------------------------------------------


def child() -> Workflow:
    """A sub-workflow whose one step asks twice, and one that follows."""
    wf = Workflow("child")
    wf.step(lambda ctx: (ctx.interrupt("one", "?"), ctx.interrupt("two", "?")), id="ask")
    wf.step(lambda ask: ask, id="after")
    return wf


def answer_all(rt: Runtime, wf: Workflow, result: ares.WorkflowResult) -> ares.WorkflowResult:
    """Approve whatever is asked, with where and what it was, until nothing is."""
    while result.interrupts:
        for question in result.interrupts:
            rt.answer(question, Approve(f"{question.path} {question.key}"))
        result = rt.resume(result.execution_id, wf)
    return result


def test_a_step_waits_while_its_sub_workflow_does(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=child()))
    rt = runtime(store)

    waiting = rt.run(wf, execution_id="e")
    result = answer_all(rt, wf, waiting)

    assert statuses(waiting) == {"sub": "WAITING", "sub/ask": "WAITING", "sub/after": "PENDING"}
    assert result.outputs["sub"] == {"after": ("sub/ask one", "sub/ask two")}


def test_elements_that_are_sub_workflows_ask_each_for_itself(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.add(StepSpec("sub", workflow=child(), map_over="source", max_concurrency=1))
    rt = runtime(store, max_workers=1)

    result = answer_all(rt, wf, rt.run(wf, execution_id="e"))

    assert [each["after"] for each in result.outputs["sub"]] == [
        (f"sub[{i}]/ask one", f"sub[{i}]/ask two") for i in range(3)
    ]


def test_a_no_inside_a_sub_workflow_is_one_to_its_step(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=child()))
    wf.step(lambda sub: sub, id="behind")
    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Reject())

    result = rt.resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert result.rejected == ("sub", "sub/ask")
    assert [result.steps[path].reason for path in ("sub", "sub/ask", "sub/after", "behind")] == [
        "rejected",
        "rejected",
        "rejected: ask",
        "rejected: sub",
    ]


def test_a_nested_run_that_waits_is_gone_on_with_when_its_step_runs_again(runtime: Make, store: str | None) -> None:
    inner = Workflow("inner")
    inner.step(lambda: "before", id="before")
    inner.step(lambda ctx, before: ctx.interrupt("k", "?"), id="ask")
    wf = Workflow("outer")
    ran: list[str] = []

    @wf.step
    def nests(ctx: StepContext) -> Any:
        result = rt.run(inner)
        ran.append(str(result.status))
        return result.raise_for_status().outputs["ask"]

    rt = runtime(store)
    failed = rt.run(wf, execution_id="e")
    (question,) = rt.questions()
    rt.answer(question, Approve("yes"))
    result = rt.resume("e", wf)

    assert isinstance(failed.error, WorkflowWaitingError)
    assert question.execution_id != "e"
    assert rt.summary(question.execution_id).parent_id == "e"
    assert result.outputs["nests"] == "yes"
    assert ran == ["WAITING", "COMPLETED"]


# --- events -----------------------------------------------------------------------------------------------------------


def test_events_and_history_tell_of_the_question_and_of_its_answer(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda ctx: ctx.interrupt("k", "how much?", {"of": "it"}), id="a")
    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Approve(7, feedback="as agreed"))
    rt.resume("e", wf)

    events = events_of(rt, "e")
    told = {event.type: event.payload for event in events}

    assert types_of(events) == [
        "workflow.started",
        "step.started",
        "interrupt.created",
        "workflow.waiting",
        "workflow.resumed",
        "interrupt.resolved",
        "step.continued",
        "step.completed",
        "workflow.completed",
    ]
    assert [event.seq for event in events] == list(range(1, 10))
    created, resolved = told["interrupt.created"], told["interrupt.resolved"]
    assert (created["path"], created["key"], created["message"], created["payload"]) == (
        "a",
        "k",
        "how much?",
        {"of": "it"},
    )
    assert (resolved["path"], resolved["key"], resolved["action"], resolved["value"], resolved["feedback"]) == (
        "a",
        "k",
        "approve",
        7,
        "as agreed",
    )
    assert told["workflow.waiting"]["paths"] == ["a"]
    assert [(e.path, e.key, e.action, e.feedback) for e in rt.checkpoint("e").interrupt_history] == [
        ("a", "k", "ask", "how much?"),
        ("a", "k", "approve", "as agreed"),
    ]


# --- hooks ------------------------------------------------------------------------------------------------------------


class Hooks(ares.Plugin):
    """Counts what it is told."""

    name = "hooks"

    def __init__(self, *, intercepts: bool) -> None:
        self.calls: list[str] = []
        if intercepts:
            self.hook_policy = ares.HookPolicy.INTERCEPT

    def before_step(self, ctx: ares.Context, execution_id: str, step: ares.Step) -> None:
        self.calls.append(f"before {step.path} {step.attempt}")

    def after_step(self, ctx: ares.Context, execution_id: str, result: ares.StepResult) -> None:
        self.calls.append(f"after {result.path} {result.status}")


@pytest.mark.parametrize("intercepts", [False, True], ids=["observer", "interceptor"])
@pytest.mark.parametrize("submitted", [False, True], ids=["run", "submit"])
def test_the_rerun_of_a_parked_body_is_no_step_anew_to_plugins(
    runtime: Make, store: str | None, intercepts: bool, submitted: bool
) -> None:
    hooks = Hooks(intercepts=intercepts)
    wf = child()
    rt = runtime(store, plugins=[hooks])
    if submitted:
        handle = rt.submit(wf, execution_id="e")
        while (result := handle.result(LIMIT)).interrupts:
            rt.answer(result.interrupts[0], Approve("yes"))
    else:
        answer_all(rt, wf, rt.run(wf, execution_id="e"))

    assert hooks.calls == ["before ask 1", "after ask COMPLETED", "before after 1", "after after COMPLETED"]
