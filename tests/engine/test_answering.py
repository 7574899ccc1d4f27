"""Answers: who may give one, which one counts, what is refused and how, and what those who wait are told."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from ares import (
    Approve,
    Context,
    Execution,
    ExecutionStatus,
    Plugin,
    Reject,
    RunAgain,
    Runtime,
    Step,
    StepContext,
    StepSpec,
    Workflow,
)
from ares.errors import (
    ExecutionNotFoundError,
    QuestionAnsweredError,
    QuestionNotFoundError,
    RuntimeClosedError,
    SerializationError,
    StoreError,
    UsageError,
)
from ares.journal.protocol import Entry
from ares.stores.sqlite import SqliteStore
from ares.stores.volatile import VolatileStore
from tests.engine.helpers import LIMIT, Barrier, Gate, Task, Threads, eventually, single, statuses, types_of

Make = Callable[..., Runtime]


@attrs.frozen
class Sum:
    amount: int


def asks(*keys: str) -> Workflow:
    """A step that asks for each key in turn, and one that follows."""
    wf = Workflow("asks")
    wf.step(lambda ctx: [ctx.interrupt(key, "?") for key in keys or ("k",)], id="ask")
    wf.step(lambda ask: ask, id="after")
    return wf


def many(count: int) -> Workflow:
    """A map of which every element asks."""
    wf = Workflow("many")
    wf.step(lambda: list(range(count)), id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source")
    return wf


# --- submitted --------------------------------------------------------------------------------------------------------


def test_a_submitted_execution_goes_on_by_itself(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(asks("x", "y"), execution_id="e")
    told: list[tuple[str, Any]] = []

    for key in "xy":
        assert handle.wait(LIMIT)
        assert handle.done()
        (question,) = handle.result(0).interrupts
        told.append((question.key, handle.status))
        rt.answer(question, Approve(key.upper()))
    result = handle.result(LIMIT)

    assert told == [("x", ExecutionStatus.WAITING), ("y", ExecutionStatus.WAITING)]
    assert result.status is ExecutionStatus.COMPLETED
    assert result.outputs["after"] == ["X", "Y"]


def test_one_at_rest_holds_no_thread_of_its_own_and_keeps_its_claim(runtime: Make, store: str | None) -> None:
    threads = Threads()
    rt = runtime(store, max_workers=2)
    rt.submit(asks(), execution_id="first").wait(LIMIT)
    eventually(lambda: not threads.all("ares-step"))
    before = threads.names()
    for number in range(20):
        assert rt.submit(asks(), execution_id=f"e{number}").wait(LIMIT)
    eventually(lambda: threads.names() == before)

    other = rt if store is None else runtime(store)
    with pytest.raises(UsageError, match="e0"):
        other.resume("e0", asks())
    assert rt.summary("e0").owner != ""


def test_a_handle_that_nobody_looked_at_tells_how_its_execution_went_on(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    gate = Gate()
    wf = Workflow("w")

    @wf.step
    def ask(ctx: StepContext) -> Any:
        gate.wait()
        return [ctx.interrupt(key, "?") for key in "xy"]

    running = Task(rt.run, wf, execution_id="e")
    eventually(lambda: rt.live("e") is not None)
    handle, unseen = rt.execution("e"), rt.execution("e")
    gate.open()
    running.result()
    for key in "xy":
        assert [question.key for question in handle.result(LIMIT).interrupts] == [key]
        rt.answer("e", Approve(key), step="ask")
        rt.resume("e")

    for each in (handle, unseen):
        assert each.status is ExecutionStatus.COMPLETED
        assert each.result(LIMIT).outputs == {"ask": ["x", "y"]}
    assert handle.result(LIMIT) is handle.result(LIMIT)


def test_the_result_of_one_at_rest_has_the_warnings_of_its_walk(runtime: Make, store: str | None) -> None:
    class Broken(Plugin):
        name = "broken"

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            raise ValueError("boom")

    rt = runtime(store, plugins=[Broken()])
    handle = rt.submit(asks("x"), execution_id="e")
    said = "plugin 'broken': before_step raised ValueError: boom"

    at_rest = handle.result(LIMIT)
    rt.answer(at_rest.interrupts[0], Approve(1))

    assert at_rest.warnings == (said,)
    assert handle.result(LIMIT).warnings == (said, said)


def test_an_answer_that_cannot_be_read_is_a_warning_of_what_rests_on(runtime: Make, tmp_path: Path) -> None:
    knowing = asks()
    knowing.types = (Sum,)
    with runtime(str(tmp_path / "a.db")) as rt:
        rt.run(knowing, execution_id="e")
        rt.answer("e", Approve(Sum(3)), step="ask")
    with runtime(str(tmp_path / "a.db"), workflows=[asks()]) as rt:
        [handle] = rt.recover()
        eventually(lambda: any("cannot be read" in each for each in handle.result(LIMIT).warnings))
        assert handle.status is ExecutionStatus.WAITING


def test_whoever_waits_after_an_answer_waits_for_what_follows(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    gate = Gate()

    @wf.step
    def ask(ctx: StepContext) -> str:
        value: str = ctx.interrupt("k", "?")
        gate.wait()
        return value

    rt = runtime(store)
    handle = rt.submit(wf, execution_id="e")
    rt.answer(handle.result(LIMIT).interrupts[0], Approve("yes"))
    called = Gate()
    handle.add_done_callback(lambda _: called.open())

    assert not handle.done()
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    assert not called.is_open()
    gate.open()
    assert handle.result(LIMIT).outputs == {"ask": "yes"}
    called.wait()


def test_an_answer_that_is_refused_leaves_it_at_rest(runtime: Make, store: str | None) -> None:
    rt = runtime(store, check_values=True)
    handle = rt.submit(asks("x", "y"), execution_id="e")
    first = handle.result(LIMIT).interrupts[0]
    rt.answer(first, Approve(1))
    assert handle.wait(LIMIT)

    with pytest.raises(QuestionAnsweredError):
        rt.answer(first, Approve(2))
    with pytest.raises(SerializationError):
        rt.answer("e", Approve(object()), step="ask")

    assert handle.wait(LIMIT)
    (question,) = handle.result(LIMIT).interrupts
    assert question.key == "y"
    rt.answer(question, Approve(2))
    assert handle.result(LIMIT).outputs["after"] == [1, 2]


def test_what_cannot_be_recorded_leaves_it_at_rest(runtime: Make) -> None:
    class Refusing(VolatileStore):
        def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
            raise StoreError("the disk", "is full", execution_id)

    rt = runtime(Refusing())
    handle = rt.submit(asks(), execution_id="e")
    (question,) = handle.result(LIMIT).interrupts

    with pytest.raises(StoreError):
        rt.answer(question, Approve())
    assert handle.wait(LIMIT)
    with pytest.raises(StoreError):
        rt.cancel("e")
    assert handle.wait(LIMIT)
    assert handle.result(LIMIT).interrupts == (question,)


def test_whoever_waits_after_a_cancel_waits_for_its_end(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(asks(), execution_id="e")
    assert handle.wait(LIMIT)

    assert rt.cancel("e", "enough")

    assert handle.result(LIMIT).status is ExecutionStatus.CANCELLED


def test_done_callbacks_are_called_at_rest_and_after(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    seen: list[Any] = []
    gates = [Gate(), Gate()]

    def note(gate: Gate) -> Callable[[Execution], None]:
        return lambda execution: seen.append(execution.status) or gate.open()

    handle = rt.submit(asks(), execution_id="e")
    handle.add_done_callback(note(gates[0]))
    gates[0].wait()
    rt.answer("e", Approve(1), step="ask")
    handle.add_done_callback(note(gates[1]))
    gates[1].wait()

    assert seen == [ExecutionStatus.WAITING, ExecutionStatus.COMPLETED]


def test_the_events_of_one_end_where_it_rests_and_go_on_from_there(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(asks(), execution_id="e")
    first = list(handle.events())
    rt.answer("e", Approve(1), step="ask")
    rest = list(handle.events(after=len(first)))

    assert types_of(first)[-2:] == ["interrupt.created", "workflow.waiting"]
    assert types_of(rest)[0] == "interrupt.resolved"
    assert types_of(rest)[-1] == "workflow.completed"
    assert [event.seq for event in first + rest] == list(range(1, len(first) + len(rest) + 1))


def test_submitted_on_the_caller_s_thread_it_ends_at_rest_and_a_resume_goes_on(
    runtime: Make, store: str | None
) -> None:
    rt = runtime(store, steps_on="caller")
    handle = rt.submit(asks("x", "y"), execution_id="e")
    assert handle.done()
    rt.answer(handle.result(LIMIT).interrupts[0], Approve(1))
    rt.answer(rt.resume("e", asks("x", "y")).interrupts[0], Approve(2))

    assert rt.resume("e", asks("x", "y")).outputs["after"] == [1, 2]


def test_a_run_on_any_thread_returns_as_soon_as_it_rests(runtime: Make, store: str | None) -> None:
    rt = runtime(store)

    result = Task(rt.run, asks(), execution_id="e").result(timeout=15.0)  # its thread looks up every 30 s

    assert result.status is ExecutionStatus.WAITING


# --- the first answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("submitted", [False, True], ids=["run", "submit"])
def test_the_first_answer_counts_whoever_else_gives_one(runtime: Make, store: str | None, submitted: bool) -> None:
    rt = runtime(store)
    wf = asks()
    question = (
        rt.submit(wf, execution_id="e").result(LIMIT) if submitted else rt.run(wf, execution_id="e")
    ).interrupts[0]
    barrier = Barrier(16)

    def answer(number: int) -> int | None:
        barrier.wait()
        try:
            rt.answer(question, Approve(number))
        except QuestionAnsweredError:
            return None
        return number

    tasks = [Task(answer, number) for number in range(16)]
    winners = [number for task in tasks if (number := task.result()) is not None]
    result = rt.execution("e").result(LIMIT) if submitted else rt.resume("e", wf)

    assert len(winners) == 1
    assert result.outputs["ask"] == winners


def test_an_answer_that_loses_against_the_end_is_told_that_it_was_answered(tmp_path: Any, runtime: Make) -> None:
    looked, ended = Gate(), Gate()

    class Slow(SqliteStore):
        """Holds up the late answer, whose question was still open, until the execution has ended."""

        def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
            if "late" in body:
                looked.open()
                ended.wait()
            return super().request(execution_id, kind, body, name)

    rt = runtime(Slow(tmp_path / "a.db"))
    handle = rt.submit(asks(), execution_id="e")
    question = handle.result(LIMIT).interrupts[0]
    late = Task(rt.answer, question, Approve("late"))
    looked.wait()
    rt.answer(question, Approve("first"))
    eventually(lambda: handle.status is ExecutionStatus.COMPLETED)
    ended.open()

    with pytest.raises(QuestionAnsweredError):
        late.result()


@pytest.mark.parametrize("submitted", [False, True], ids=["run", "submit"])
def test_a_thousand_questions_are_answered_in_any_order_in_linear_time(runtime: Make, submitted: bool) -> None:
    """What is read for each answer does not grow with what was answered before."""
    count = 1_000 if submitted else 300
    reads: list[int] = []

    class Counting(VolatileStore):
        def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
            found = list(super().entries(execution_id, after))
            reads.append(len(found))
            return iter(found)

    rt = runtime(Counting())
    wf = many(count)
    handle = rt.submit(wf, execution_id="e") if submitted else None
    result = rt.run(wf, execution_id="e") if handle is None else handle.result(LIMIT)
    questions = list(result.interrupts)
    random.Random(7).shuffle(questions)
    reads.clear()
    for question in questions:
        rt.answer(question, Approve(question.path))
    read = sum(reads)
    result = rt.resume("e", wf) if handle is None else handle.result(LIMIT)
    told = sum(len(event.payload.get("paths", ())) for event in rt.execution("e").events())

    assert result.outputs["each"] == [f"each[{i}]" for i in range(count)]
    assert read < 12 * count
    assert told < 32 * count


def test_a_hundred_questions_in_a_file_are_answered_from_many_threads(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(many(100), execution_id="e")
    questions = list(handle.result(LIMIT).interrupts)
    random.Random(7).shuffle(questions)

    tasks = [Task(lambda n: [rt.answer(q, Approve(q.path)) for q in questions[n::4]], n) for n in range(4)]
    for task in tasks:
        task.result()

    assert handle.result(LIMIT).outputs["each"] == [f"each[{i}]" for i in range(100)]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_answer_to_what_is_not_asked_is_refused_by_name(runtime: Make, store: str | None) -> None:
    wf = asks("x", "y")
    rt = runtime(store)
    question = rt.run(wf, execution_id="e").interrupts[0]

    with pytest.raises(ExecutionNotFoundError, match="'nobody'"):
        rt.answer("nobody", Approve(), step="ask")
    with pytest.raises(ExecutionNotFoundError, match="'nobody'"):
        rt.questions("nobody")
    for step, key, number in (("after", None, None), ("stranger", None, None), ("ask", "z", None), ("ask", "x", 2)):
        with pytest.raises(QuestionNotFoundError) as caught:
            rt.answer("e", Approve(), step=step, key=key, round=number)
        assert (caught.value.execution_id, caught.value.path, caught.value.key) == ("e", step, key)
    assert rt.questions("e") == [question]


def test_an_answer_to_what_was_answered_is_refused_before_and_after_the_end(runtime: Make, store: str | None) -> None:
    wf = asks("x", "y")
    rt = runtime(store)
    first = rt.run(wf, execution_id="e").interrupts[0]
    rt.answer(first, Approve(1))
    for question in (first, "e"):
        with pytest.raises(QuestionAnsweredError, match="'x'"):
            rt.answer(question, Approve(2), step="ask")
    assert rt.questions("e") == []
    second = rt.resume("e", wf).interrupts[0]
    with pytest.raises(QuestionAnsweredError, match="'x'"):
        rt.answer(first, Approve(3))
    rt.answer(second, Approve(4))
    result = rt.resume("e", wf)
    with pytest.raises(QuestionAnsweredError, match="'y'"):
        rt.answer(second, Approve(5))

    assert result.outputs["after"] == [1, 4]


def test_an_answer_to_what_ended_unanswered_says_how_it_ended(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    question = rt.run(asks(), execution_id="e").interrupts[0]
    rt.cancel("e")
    rt.resume("e", asks())

    with pytest.raises(QuestionNotFoundError, match="CANCELLED"):
        rt.answer(question, Approve())


def test_what_was_answered_once_asked_anew_and_closed_was_not_answered(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.answer(rt.run(asks(), execution_id="e").interrupts[0], Approve())
    rt.resume("e", asks())
    rt.resume("e", asks(), rerun=("ask",))
    rt.cancel("e")
    rt.resume("e", asks())

    with pytest.raises(QuestionNotFoundError, match="CANCELLED"):
        rt.answer("e", Approve(), step="ask")


def test_an_answer_for_another_round_is_told_which_one_asks(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(asks(), execution_id="e")

    with pytest.raises(QuestionNotFoundError, match="round 7 was named, and it asks in round 1"):
        rt.answer("e", Approve(), step="ask", round=7)


def test_the_step_that_asks_may_be_named_by_its_function(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")

    @wf.step
    def ask(ctx: StepContext) -> Any:
        return ctx.interrupt("k", "?")

    rt = runtime(store)
    rt.run(wf, execution_id="e")

    rt.answer("e", Approve(3), step=ask)

    assert rt.resume("e", wf).output(ask) == 3


def test_a_function_is_no_name_where_the_workflow_is_unknown(runtime: Make, tmp_path: Path) -> None:
    with runtime(str(tmp_path / "a.db")) as rt:
        rt.run(asks(), execution_id="e")
    with runtime(str(tmp_path / "a.db")) as rt, pytest.raises(UsageError, match=r"'asks'.*name the step by its path"):
        rt.answer("e", Approve(), step=lambda: None)


@pytest.mark.parametrize("step", [3, ["ask"], b"ask"])
def test_what_is_no_path_of_a_step_is_refused(runtime: Make, step: Any) -> None:
    rt = runtime()
    rt.run(asks(), execution_id="e")

    with pytest.raises(UsageError, match="the path of the step that asks, or its function"):
        rt.answer("e", Approve(), step=step)


@pytest.mark.parametrize("given", ["yes", None, True, Approve, object()])
def test_only_an_answer_is_one(runtime: Make, store: str | None, given: Any) -> None:
    rt = runtime(store)
    question = rt.run(asks(), execution_id="e").interrupts[0]

    with pytest.raises(UsageError, match="an Approve, a Reject or a RunAgain"):
        rt.answer(question, given)
    assert rt.questions("e") == [question]


def test_what_is_no_question_and_no_id_is_refused(runtime: Make) -> None:
    rt = runtime()
    rt.run(asks(), execution_id="e")

    with pytest.raises(UsageError, match="step="):
        rt.answer("e", Approve())
    with pytest.raises(UsageError, match="a Question or an execution's id"):
        rt.answer(7, Approve(), step="ask")  # type: ignore[arg-type]
    for bad in (Approve(1, feedback=7), Reject(b"no")):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="words"):
            rt.answer("e", bad, step="ask")


@pytest.mark.parametrize("interrupt", [None, "may I?"], ids=["dynamic", "static"])
def test_run_again_answers_nothing_but_an_unknown_outcome(
    runtime: Make, store: str | None, interrupt: str | None
) -> None:
    rt = runtime(store)
    wf = single((lambda: 1) if interrupt else (lambda ctx: ctx.interrupt("k", "?")), interrupt=interrupt)
    question = rt.run(wf, execution_id="e").interrupts[0]

    with pytest.raises(UsageError, match="RunAgain"):
        rt.answer(question, RunAgain())
    assert rt.questions("e") == [question]


def test_an_answer_that_cannot_be_kept_is_refused_to_whoever_gives_it(runtime: Make, tmp_path: Any) -> None:
    for rt in (runtime(str(tmp_path / "a.db")), runtime(check_values=True)):
        question = rt.run(asks(), execution_id="e").interrupts[0]

        with pytest.raises(SerializationError, match="'ask'"):
            rt.answer(question, Approve([object()]))

        assert rt.questions("e") == [question]
        rt.answer(question, Approve([1]))
        assert rt.resume("e", asks()).outputs["after"] == [[1]]


@attrs.frozen
class Stranger:
    """A class that no workflow names."""


def test_an_answer_of_a_class_that_nobody_named_is_refused(runtime: Make, tmp_path: Any) -> None:
    rt = runtime(str(tmp_path / "a.db"))
    question = rt.run(asks(), execution_id="e").interrupts[0]
    rt.close()
    for other in (runtime(str(tmp_path / "a.db")), runtime(str(tmp_path / "a.db"), workflows=[asks()])):
        with pytest.raises(SerializationError, match="Stranger"):
            other.answer(question, Approve(Stranger()))
        assert other.questions("e") == [question]


DAMAGED = ["", "no json", "5", "null", "[1, 2]", '["ask", "{}"]', '["ask", "[]"]', '["nobody", "{}"]', "[null, null]"]


def test_a_damaged_answer_is_a_warning_and_hurts_nobody(runtime: Make, tmp_path: Any) -> None:
    db = tmp_path / "a.db"
    rt = runtime(str(db))
    handle = rt.submit(asks(), execution_id="e")
    (question,) = handle.result(LIMIT).interrupts
    other = SqliteStore(db)
    other.open()
    for number, body in enumerate(DAMAGED):
        assert other.request("e", "answer", body, f"damaged {number}")
    other.close()
    rt.answer(question, Approve("sound"))
    result = handle.result(LIMIT)

    assert result.outputs["after"] == ["sound"]
    assert len(result.warnings) == len(DAMAGED)
    assert all("an answer cannot be read" in warning for warning in result.warnings)


def test_a_closed_runtime_takes_no_answer(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    question = rt.run(asks(), execution_id="e").interrupts[0]
    rt.close()

    with pytest.raises(RuntimeClosedError):
        rt.answer(question, Approve())


# --- whom they are shown ----------------------------------------------------------------------------------------------


def test_questions_are_listed_by_execution_the_oldest_first_until_they_are_answered(
    runtime: Make, store: str | None
) -> None:
    rt = runtime(store)
    for name in ("first", "second", "third"):
        rt.run(many(2), execution_id=name)
    rt.run(single(lambda: 1), execution_id="asks nothing")
    rt.answer("second", Approve(), step="each[0]")

    questions = rt.questions()
    assert [q.execution_id for q in questions] == ["first", "first", "second", "third", "third"]
    assert sorted((q.execution_id, q.path) for q in questions) == [  # elements ask in the order that threads have it
        ("first", "each[0]"),
        ("first", "each[1]"),
        ("second", "each[1]"),
        ("third", "each[0]"),
        ("third", "each[1]"),
    ]
    assert [q.path for q in rt.questions("second")] == ["each[1]"]
    assert rt.questions("asks nothing") == []


def test_recover_takes_what_was_answered_and_leaves_the_rest(runtime: Make, tmp_path: Any) -> None:
    wf = asks()
    first = runtime(str(tmp_path / "a.db"))
    for name in ("answered", "cancelled", "open"):
        first.run(wf, execution_id=name)
    first.answer("answered", Approve(1), step="ask")
    first.cancel("cancelled")
    first.close()

    rt = runtime(str(tmp_path / "a.db"), workflows=[wf])
    recovery = rt.recover()

    results = {handle.id: handle.result(LIMIT).status for handle in recovery}
    assert results == {"answered": ExecutionStatus.COMPLETED, "cancelled": ExecutionStatus.CANCELLED}
    assert dict(recovery.left) == {"open": "waits for an answer"}


def test_an_element_that_asks_beside_others_that_run_is_answered_meanwhile(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    gate = Gate()
    wf.step(lambda: ["asks", "runs"], id="source")

    @wf.step(map_over="source")
    def each(ctx: StepContext, item: str) -> Any:
        if item == "asks":
            return ctx.interrupt("k", "?")
        gate.wait()
        return item

    rt = runtime(store, max_workers=2)
    handle = rt.submit(wf, execution_id="e")
    eventually(lambda: rt.questions("e"))
    rt.answer("e", Approve("told"), step="each[0]")
    eventually(lambda: statuses(rt.execution("e").result(LIMIT)) if handle.done() else _is_done(rt, "each[0]"))
    gate.open()

    assert handle.result(LIMIT).outputs["each"] == ["told", "runs"]


def _is_done(rt: Runtime, path: str) -> bool:
    return str(rt.checkpoint("e").step_states[path].status) == "COMPLETED"


def test_an_answer_in_a_sub_workflow_s_map_finds_its_element(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 1], id="source")
    wf.add(StepSpec("sub", workflow=many(2), map_over="source"))
    rt = runtime(store)
    handle = rt.submit(wf, execution_id="e")
    for question in reversed(handle.result(LIMIT).interrupts):
        rt.answer(question, Approve(question.path))

    assert handle.result(LIMIT).outputs["sub"] == [
        {"each": [f"sub[{i}]/each[{j}]" for j in range(2)]} for i in range(2)
    ]
