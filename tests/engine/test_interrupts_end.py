"""How open questions and ends go together: time that stands still, cancels, fail_fast, close; and who asks for ares."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ares import (
    Approve,
    ExecutionStatus,
    Question,
    Reject,
    RunAgain,
    Runtime,
    StepContext,
    StepSpec,
    StepStatus,
    Workflow,
)
from ares.errors import (
    ExecutionTimeoutError,
    QuestionNotFoundError,
    StepCancelledError,
    StepTimeoutError,
    StoreError,
)
from ares.stores.sqlite import SqliteStore
from tests.engine.helpers import LIMIT, Barrier, Gate, eventually, hang, single, statuses

Make = Callable[..., Runtime]

#: Seconds. More than a step takes that does nothing, on a machine that is busy with other things.
SHORT = 0.4


def pause(seconds: float) -> None:
    """Let time pass, in which nothing may happen."""
    threading.Event().wait(seconds)


def asks(**options: Any) -> Workflow:
    """Before a question, the question, after it."""
    wf = Workflow("asks", **options)
    wf.step(lambda: "begun", id="before")
    wf.step(lambda ctx, before: ctx.interrupt("k", "?"), id="ask")
    wf.step(lambda ask: ask, id="after")
    return wf


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_timeout_of_an_execution_stands_still_while_all_of_it_waits(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(asks(), execution_id="e", timeout=SHORT)
    assert handle.wait(LIMIT)

    pause(SHORT + 0.1)
    rt.answer("e", Approve("in time"), step="ask")

    assert handle.result(LIMIT).outputs["after"] == "in time"


def test_the_timeout_of_an_execution_counts_while_something_runs_beside_the_question(
    runtime: Make, store: str | None
) -> None:
    wf = asks()
    gate = Gate()

    @wf.step
    def runs(ctx: StepContext) -> None:
        while not ctx.cancelled:
            pause(0.005)

    rt = runtime(store, max_workers=3)
    result = rt.submit(wf, execution_id="e", timeout=SHORT).result(LIMIT)
    gate.open()

    assert result.status is ExecutionStatus.FAILED
    assert isinstance(result.error, ExecutionTimeoutError)
    assert result.interrupts == ()
    assert isinstance(result.steps["ask"].error, StepCancelledError)


def test_the_timeout_of_an_execution_goes_on_with_what_was_left_of_it(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")

    @wf.step
    def ask(ctx: StepContext) -> None:
        ctx.interrupt("k", "?")
        while not ctx.cancelled:
            pause(0.005)

    rt = runtime(store)
    handle = rt.submit(wf, execution_id="e", timeout=SHORT)
    assert handle.wait(LIMIT)
    pause(SHORT)
    begun = time.monotonic()
    rt.answer("e", Approve(), step="ask")
    result = handle.result(LIMIT)

    assert isinstance(result.error, ExecutionTimeoutError)
    assert time.monotonic() - begun >= SHORT / 4


def test_the_timeout_of_a_sub_workflow_stands_still_while_all_of_it_waits(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=asks(), timeout=SHORT))
    gate = Gate()
    wf.step(gate.wait, id="beside")
    rt = runtime(store, max_workers=3)
    handle = rt.submit(wf, execution_id="e")
    eventually(lambda: rt.questions("e"))
    pause(SHORT + 0.1)
    rt.answer("e", Approve("in time"), step="sub/ask")
    eventually(lambda: "sub" in rt.checkpoint("e").outputs)
    gate.open()

    assert handle.result(LIMIT).outputs["sub"] == {"after": "in time"}


@pytest.mark.parametrize("rests", [True, False], ids=["at rest", "beside another step"])
def test_the_timeout_of_a_sub_workflow_counts_again_once_it_was_answered(
    runtime: Make, store: str | None, rests: bool
) -> None:
    child = Workflow("child")
    child.step(lambda ctx: ctx.interrupt("k", "?"), id="ask")

    @child.step
    def after(ctx: StepContext, ask: None) -> None:
        while not ctx.cancelled:
            pause(0.005)
        raise InterruptedError

    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=child, timeout=SHORT))
    gate = Gate()
    if not rests:
        wf.step(gate.wait, id="beside")
    rt = runtime(store, max_workers=3)
    handle = rt.submit(wf, execution_id="e")
    eventually(lambda: rt.questions("e"))
    pause(0.05)
    rt.answer("e", Approve(), step="sub/ask")
    eventually(lambda: rt.checkpoint("e").step_states["sub"].status is StepStatus.FAILED)
    gate.open()

    assert isinstance(handle.result(LIMIT).steps["sub"].error, StepTimeoutError)


def test_the_timeout_of_a_step_is_given_anew_to_the_rerun_and_none_passes_while_it_waits(
    runtime: Make, store: str | None
) -> None:
    wf = Workflow("w")
    left: list[float] = []

    @wf.step(timeout=SHORT)
    def ask(ctx: StepContext) -> str:
        assert ctx.deadline is not None
        left.append(ctx.deadline - time.monotonic())
        return str(ctx.interrupt("k", "?"))

    rt = runtime(store)
    handle = rt.submit(wf, execution_id="e")
    assert handle.wait(LIMIT)
    pause(SHORT + 0.1)
    rt.answer("e", Approve("yes"), step="ask")

    assert handle.result(LIMIT).outputs["ask"] == "yes"
    assert all(seconds > SHORT / 2 for seconds in left)


# --- ends -------------------------------------------------------------------------------------------------------------


def all_kinds() -> Workflow:
    """Every kind of question, open at once."""
    wf = Workflow("all kinds")

    def unsure() -> None:
        raise ConnectionError

    wf.step(lambda: 1, id="static", interrupt="may I?")
    wf.step(lambda ctx: ctx.interrupt("k", "?"), id="dynamic")
    wf.step(unsure, id="outcome", delivery="at_most_once")
    wf.step(lambda: [0, 1], id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source")
    wf.add(StepSpec("sub", workflow=asks()))
    wf.step(lambda: "tidied", id="tidy", trigger="always", depends_on=["static", "dynamic", "outcome", "each", "sub"])
    return wf


@pytest.mark.parametrize("submitted", [True, False], ids=["submit", "resume"])
def test_a_cancel_closes_every_question(runtime: Make, store: str | None, submitted: bool) -> None:
    wf = all_kinds()
    rt = runtime(store, workflows=[wf])
    if submitted:
        handle = rt.submit(wf, execution_id="e")
        asked = handle.result(LIMIT).interrupts
        rt.cancel("e", "enough")
        closed = handle.result(LIMIT)
    else:
        asked = rt.run(wf, execution_id="e").interrupts
        rt.cancel("e", "enough")
        closed = rt.resume("e", wf)

    kinds = {path: type(step.error).__name__ for path, step in closed.steps.items() if step.error is not None}
    assert closed.status is ExecutionStatus.CANCELLED
    assert closed.interrupts == ()
    assert closed.outputs["tidy"] == "tidied"
    assert closed.steps["static"].reason == "cancelled"
    assert {kinds[path] for path in ("dynamic", "sub/ask", "each[0]", "each[1]")} == {"StepCancelledError"}
    assert kinds["outcome"] == "OutcomeUnknownError"
    assert rt.questions("e") == []
    assert {question.path for question in asked} == {"static", "dynamic", "outcome", "each[0]", "each[1]", "sub/ask"}
    for question in asked:
        with pytest.raises(QuestionNotFoundError):
            rt.answer(question, Approve())


def test_a_reopened_execution_asks_again_what_a_cancel_closed(runtime: Make, store: str | None) -> None:
    wf = all_kinds()
    rt = runtime(store)
    asked = rt.run(wf, execution_id="e").interrupts
    rt.cancel("e")
    rt.resume("e", wf)

    again = rt.resume("e", wf, reopen=True)

    assert again.status is ExecutionStatus.WAITING
    assert sorted(q.path for q in again.interrupts) == sorted(q.path for q in asked)
    for question in again.interrupts:
        rt.answer(question, RunAgain() if question.key == "outcome" else Approve("yes"))
    last = rt.resume("e", wf)
    assert [q.path for q in last.interrupts] == ["outcome"]
    assert last.outputs["each"] == ["yes", "yes"]


def test_an_always_step_may_ask_after_a_cancel(runtime: Make, store: str | None) -> None:
    wf = asks()
    wf.step(lambda ctx: ctx.interrupt("k", "how to tidy?"), id="tidy", trigger="always", depends_on=["after"])
    rt = runtime(store)
    handle = rt.submit(wf, execution_id="e")
    assert handle.wait(LIMIT)
    rt.cancel("e")

    (question,) = handle.result(LIMIT).interrupts
    rt.answer(question, Approve("well"))
    result = handle.result(LIMIT)

    assert question.path == "tidy"
    assert result.status is ExecutionStatus.CANCELLED
    assert result.outputs["tidy"] == "well"


@pytest.mark.parametrize("place", ["top", "sub", "each"])
def test_fail_fast_closes_the_questions_beside_the_failure(runtime: Make, store: str | None, place: str) -> None:
    wf = Workflow("w", fail_fast=True)
    asked = Gate()
    match place:
        case "top":
            wf.step(lambda ctx: ctx.interrupt("k", "?"), id="ask")
        case "sub":
            wf.add(StepSpec("sub", workflow=asks()))
        case "each":
            wf.step(lambda: [0], id="source")
            wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source")
    path = {"top": "ask", "sub": "sub/ask", "each": "each[0]"}[place]

    @wf.step
    def fails() -> None:
        asked.wait()
        raise LookupError("gone")

    wf.step(lambda: "tidied", id="tidy", trigger="always", depends_on=["fails"])
    rt = runtime(store, max_workers=3)
    handle = rt.submit(wf, execution_id="e")
    eventually(lambda: rt.questions("e"))
    asked.open()
    result = handle.result(LIMIT)

    assert isinstance(result.error, LookupError)
    assert isinstance(result.steps[path].error, StepCancelledError)
    assert result.interrupts == ()
    assert result.outputs["tidy"] == "tidied"
    assert rt.questions("e") == []


@pytest.mark.parametrize("stop", ["cancel", "fail_fast"])
def test_a_body_that_asks_when_it_was_stopped_already_is_not_waited_for(
    runtime: Make, store: str | None, stop: str
) -> None:
    wf = Workflow("w", fail_fast=stop == "fail_fast")
    begun, stopped = Barrier(4), Gate()

    def body(ctx: StepContext) -> Any:
        begun.wait()
        stopped.wait()
        return ctx.interrupt("k", "?")

    def pay() -> None:
        begun.wait()
        stopped.wait()
        raise ConnectionError

    wf.step(body, id="dynamic")
    wf.step(pay, id="outcome", delivery="at_most_once")
    wf.step(lambda: [0], id="source")
    wf.step(lambda ctx, item: body(ctx), id="each", map_over="source")

    @wf.step(depends_on=["source"])
    def fails() -> None:
        begun.wait()
        if stop == "fail_fast":
            raise LookupError("gone")

    rt = runtime(store, max_workers=5)
    handle = rt.submit(wf, execution_id="e")
    if stop == "cancel":
        eventually(lambda: _is_over(rt, "fails"))
        rt.cancel("e")
    eventually(lambda: _is_over(rt, "fails"))
    stopped.open()
    result = handle.result(LIMIT)

    assert result.status is (ExecutionStatus.CANCELLED if stop == "cancel" else ExecutionStatus.FAILED)
    assert result.interrupts == ()
    assert rt.questions("e") == []
    assert result.steps["dynamic"].status is result.steps["each[0]"].status is StepStatus.FAILED
    assert "whether it took effect is unknown" in str(result.steps["outcome"].error)


def _is_over(rt: Runtime, path: str) -> bool:
    found = rt.checkpoint("e").step_states.get(path)
    return found is not None and found.status in (StepStatus.COMPLETED, StepStatus.FAILED)


def test_a_map_whose_element_failed_waits_for_those_that_ask(runtime: Make, store: str | None) -> None:
    """After the first failure none begins; what has begun comes to its own end."""
    wf = Workflow("w")
    wf.step(lambda: ["asks", "fails", "never"], id="source")

    @wf.step(map_over="source", max_concurrency=1)
    def each(ctx: StepContext, item: str) -> Any:
        if item == "asks":
            return ctx.interrupt("k", "?")
        raise LookupError(item)

    rt = runtime(store)
    waiting = rt.run(wf, execution_id="e")
    rt.answer(waiting.interrupts[0], Approve("told"))
    result = rt.resume("e", wf)

    assert [q.path for q in waiting.interrupts] == ["each[0]"]
    assert (result.steps["each[0]"].output, result.steps["each[2]"].status) == ("told", StepStatus.PENDING)
    assert "fails" in str(result.steps["each"].error)


def test_close_leaves_what_rests_waiting_and_what_runs_beside_it_interrupted(runtime: Make, tmp_path: Any) -> None:
    wf = asks()
    begun = Gate()

    @wf.step
    def runs(ctx: StepContext) -> None:
        begun.open()
        while not ctx.cancelled:
            pause(0.005)
        raise InterruptedError

    db = str(tmp_path / "a.db")
    rt = runtime(db, max_workers=3)
    resting = rt.submit(asks(), execution_id="rests")
    assert resting.wait(LIMIT)
    rt.submit(wf, execution_id="runs")
    begun.wait()
    eventually(lambda: rt.questions("runs"))
    rt.close()

    rt = runtime(db)
    assert rt.execution("rests").status is ExecutionStatus.WAITING
    assert rt.execution("runs").status is ExecutionStatus.INTERRUPTED
    assert [(q.execution_id, q.path) for q in rt.questions()] == [("rests", "ask"), ("runs", "ask")]
    assert resting.status is ExecutionStatus.WAITING
    for name in ("rests", "runs"):
        rt.answer(name, Approve(name), step="ask")
    finished = wf.replace(runs=lambda: None)
    assert rt.resume("rests", asks()).outputs["after"] == "rests"
    assert rt.resume("runs", finished).outputs["after"] == "runs"


def test_close_ends_a_run_that_rests_with_what_it_has(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handles = [rt.submit(asks(), execution_id=f"e{i}") for i in range(10)]
    for handle in handles[::2]:
        assert handle.wait(LIMIT)
    begun = time.monotonic()
    rt.close()

    assert time.monotonic() - begun < LIMIT / 2
    assert all(handle.wait(LIMIT) for handle in handles)


def test_an_answer_is_taken_up_while_the_only_other_step_runs(runtime: Make, store: str | None) -> None:
    """The thread that called ``run`` runs no step itself while a question is open."""
    wf = Workflow("w")
    told = Gate()
    wf.step(lambda ctx: ctx.interrupt("k", "?"), id="ask")
    wf.step(lambda ask: told.open(), id="after")

    @wf.step
    def first() -> None:
        eventually(lambda: rt.questions("e"))

    @wf.step
    def beside(first: None) -> None:
        rt.answer("e", Approve(), step="ask")
        told.wait()

    rt = runtime(store, max_workers=3)

    assert rt.run(wf, execution_id="e").status is ExecutionStatus.COMPLETED


# --- who is asked in this process -------------------------------------------------------------------------------------


def test_a_handler_is_asked_like_a_step_function_and_its_answer_is_the_answer(runtime: Make, store: str | None) -> None:
    asked: list[tuple[str, str, str]] = []
    entered: list[str] = []

    @contextlib.contextmanager
    def around(ctx: StepContext) -> Iterator[None]:
        entered.append(ctx.step.path)
        yield

    def handler(question: Question) -> Any:
        asked.append((question.path, question.key, threading.current_thread().name[:4]))
        match question.cause:
            case "before":
                return Approve()
            case "outcome":
                return Approve("it was done")
        return Reject("no") if question.path == "each[1]" else Approve(f"for {question.path}")

    wf = all_kinds()
    rt = runtime(store, interrupt_handler=handler, around_step=around, max_workers=2)
    result = rt.run(wf, execution_id="e")

    assert sorted(path for path, _, _ in asked) == ["dynamic", "each[0]", "each[1]", "outcome", "static", "sub/ask"]
    assert {name for _, _, name in asked} == {"ares"}
    assert entered.count("dynamic") == 3  # asks, is asked about, goes on
    assert result.outputs["static"] == 1
    assert result.outputs["dynamic"] == "for dynamic"
    assert result.outputs["outcome"] == "it was done"
    assert result.outputs["sub"] == {"after": "for sub/ask"}
    assert result.rejected == ("each[1]",)


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_a_handler_is_asked_whoever_runs_the_steps(runtime: Make, store: str | None, steps_on: str) -> None:
    rt = runtime(store, interrupt_handler=lambda q: Approve(q.key), steps_on=steps_on, max_workers=1)
    wf = Workflow("w")
    wf.step(lambda ctx: [ctx.interrupt(key, "?") for key in "xyz"], id="a")

    assert rt.run(wf).outputs["a"] == ["x", "y", "z"]
    assert rt.submit(wf).result(LIMIT).outputs["a"] == ["x", "y", "z"]


def _raises(_: Question) -> None:
    raise LookupError("nobody there")


@pytest.mark.parametrize(
    ("handler", "warning"),
    [
        (lambda _: None, ""),
        (_raises, "LookupError: nobody there"),
        (lambda _: "yes", "an Approve, a Reject or a RunAgain"),
        (lambda _: RunAgain(), "RunAgain"),
        (lambda _: Approve(object()), "SerializationError"),
        (lambda *, question: question, "TypeError"),
    ],
    ids=["None", "raises", "a str", "RunAgain", "what cannot be kept", "takes no question"],
)
def test_a_handler_that_gives_no_answer_leaves_the_question_open(
    runtime: Make, store: str | None, handler: Any, warning: str
) -> None:
    rt = runtime(store, interrupt_handler=handler, check_values=True)
    result = rt.run(asks(), execution_id="e")

    assert result.status is ExecutionStatus.WAITING
    assert [q.path for q in result.interrupts] == ["ask"]
    assert len(result.warnings) == bool(warning)
    assert all(warning in each for each in result.warnings)
    rt.answer(result.interrupts[0], Approve("from elsewhere"))
    assert rt.resume("e", asks()).outputs["after"] == "from elsewhere"


def test_a_handler_may_answer_by_answer(runtime: Make, store: str | None) -> None:
    rt = runtime(store, interrupt_handler=lambda question: rt.answer(question, Approve("by answer")))

    assert rt.run(asks()).outputs["after"] == "by answer"
    assert rt.submit(asks()).result(LIMIT).outputs["after"] == "by answer"


@pytest.mark.parametrize("late", [Approve("late"), None], ids=["answers late", "gives up"])
def test_while_a_handler_takes_its_time_somebody_else_may_answer(
    runtime: Make, store: str | None, late: Approve | None
) -> None:
    asked, gate = Gate(), Gate()

    def handler(_: Question) -> Approve | None:
        asked.open()
        gate.wait()
        return late

    rt = runtime(store, interrupt_handler=handler, max_workers=2)
    handle = rt.submit(asks(), execution_id="e")
    asked.wait()
    eventually(lambda: rt.questions("e"))
    rt.answer("e", Approve("faster"), step="ask")
    eventually(lambda: "ask" in rt.checkpoint("e").outputs)
    gate.open()
    result = handle.result(LIMIT)

    assert result.outputs["after"] == "faster"
    assert result.warnings == ()


def test_a_handler_that_never_returns_holds_up_neither_a_cancel_nor_a_close(runtime: Make, store: str | None) -> None:
    asked = Gate()

    def handler(_: Question) -> None:
        asked.open()
        hang()

    rt = runtime(store, interrupt_handler=handler, max_workers=2)
    handle = rt.submit(asks(), execution_id="e")
    asked.wait()
    rt.cancel("e")
    begun = time.monotonic()

    assert handle.result(LIMIT).status is ExecutionStatus.CANCELLED
    assert time.monotonic() - begun < 3.0
    rt.close(timeout=0.2)
    assert time.monotonic() - begun < 6.0


def test_one_that_is_asked_first_is_not_one_that_answers_the_next_question(runtime: Make, store: str | None) -> None:
    """Two questions of one step: the first is answered elsewhere while its handler thinks; its late answer is to the
    first."""
    asked, gate = Gate(), Gate()

    def handler(question: Question) -> Approve | None:
        if question.key == "x":
            asked.open()
            gate.wait()
        return Approve(f"handler to {question.key}")

    wf = Workflow("w")
    wf.step(lambda ctx: [ctx.interrupt(key, "?") for key in "xy"], id="ask")
    rt = runtime(store, interrupt_handler=handler, max_workers=2)
    handle = rt.submit(wf, execution_id="e")
    asked.wait()
    eventually(lambda: rt.questions("e"))
    rt.answer("e", Approve("elsewhere to x"), step="ask", key="x")
    eventually(lambda: "ask" in rt.checkpoint("e").outputs)
    gate.open()

    assert handle.result(LIMIT).outputs["ask"] == ["elsewhere to x", "handler to y"]


def test_a_resume_asks_the_handler_of_this_process_what_is_open(runtime: Make, tmp_path: Any) -> None:
    db = str(tmp_path / "a.db")
    first = runtime(db)
    first.run(all_kinds(), execution_id="e")
    first.close()
    answers = {"outcome": Approve("done")}
    rt = runtime(db, interrupt_handler=lambda q: answers.get(q.key, Approve(q.path)))

    result = rt.resume("e", all_kinds())

    assert result.raise_for_status().outputs["each"] == ["each[0]", "each[1]"]


def test_a_question_before_a_single_step_is_seen_in_its_status(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    result = rt.run(single(lambda: 1, interrupt="may I?"), execution_id="e")

    assert statuses(result) == {"body": "WAITING"}
    assert rt.checkpoint("e").step_states["body"].status is StepStatus.WAITING


class LateInbox(SqliteStore):
    """Requests are found only once it was journaled that the walk waits, or never; or after a moment, if it is not."""

    def __init__(self, file: Any, moment: float, *, fails: bool = False) -> None:
        super().__init__(file)
        self.rests = threading.Event()
        self.moment = moment
        self.fails = fails

    def append(self, appends: Any, *, sync: bool) -> Any:
        if any(entry.kind == "waiting" for each in appends for entry in each.entries):
            self.rests.set()
            if self.fails:
                raise OSError("gone")
        return super().append(appends, sync=sync)

    def requests(self, lease: int, after: int = 0) -> Any:
        found = super().requests(lease, after)
        if found and self.fails:
            raise OSError("gone")
        if found:
            self.rests.wait(self.moment)
        return found


@pytest.mark.parametrize("steps_on", ["auto", "caller"])
def test_an_answer_that_is_on_its_way_is_carried_out_before_the_walk_rests(
    runtime: Make, tmp_path: Any, steps_on: str
) -> None:
    store = LateInbox(tmp_path / "a.db", moment=0.2)
    rt = runtime(store, steps_on=steps_on, interrupt_handler=lambda question: rt.answer(question, Approve("told")))

    assert rt.run(asks()).outputs["after"] == "told"
    assert not store.rests.is_set()


def test_an_answer_that_is_on_its_way_for_long_is_waited_for_at_rest(
    runtime: Make, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ares.engine.asking._ON_ITS_WAY", 0.05)
    store = LateInbox(tmp_path / "a.db", moment=LIMIT)
    rt = runtime(store, interrupt_handler=lambda question: rt.answer(question, Approve("told")))

    assert rt.run(asks()).outputs["after"] == "told"
    assert store.rests.is_set()


def test_a_store_that_fails_while_an_answer_is_on_its_way_ends_the_walk(
    runtime: Make, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ares.engine.asking._ON_ITS_WAY", 0.05)
    store = LateInbox(tmp_path / "a.db", moment=0.0, fails=True)
    rt = runtime(store, interrupt_handler=lambda question: rt.answer(question, Approve("told")))

    with pytest.raises(StoreError, match="gone"):
        rt.run(asks())
