"""A body that must not run twice: what counts as cut short, who may say what came of it, and what nobody may do.

Where no ``reconcile`` can say, a human is asked; until then the step waits, and no resume runs its body.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import ares
from ares import (
    Approve,
    ExecutionStatus,
    ItemFailure,
    Question,
    Reject,
    RetryPolicy,
    RunAgain,
    Runtime,
    StepSpec,
    StepStatus,
    Workflow,
    WorkflowResult,
)
from ares.errors import (
    NotDone,
    OutcomeUnknownError,
    QuestionAnsweredError,
    StepRejectedError,
    StoreError,
    UsageError,
)
from ares.stores.sqlite import SqliteStore
from tests.durability import flows
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.stores import StoreWrapper
from tests.durability.traces import Ran, traces

EAGER = RetryPolicy(max_attempts=5, initial_delay=0.0)
New = Callable[..., Runtime]


def paying(body: Callable[..., Any], reconcile: Callable[..., Any] | None = None, **options: Any) -> Workflow:
    """order -> pay (at_most_once) -> send."""
    wf = Workflow("shop")
    wf.step(lambda: 7, id="order")
    wf.step(body, id="pay", depends_on=["order"], delivery="at_most_once", reconcile=reconcile, retry=EAGER, **options)
    wf.step(lambda pay: f"sent after {pay}", id="send")
    return wf


def asks(result: WorkflowResult, path: str = "pay") -> Question:
    """The one question that is open: did the body take effect?"""
    assert result.status is ExecutionStatus.WAITING
    assert result.steps[path].status is StepStatus.WAITING
    (question,) = result.interrupts
    assert (question.path, question.key, question.cause) == (path, "outcome", "outcome")
    assert "take effect?" in question.message
    return question


# --- what leaves the outcome unknown ---------------------------------------------------------------------------------


def test_an_exception_leaves_the_outcome_unknown_and_is_not_retried(ran: Ran, again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError("the line went dead")

    result = again().run(paying(pay), execution_id="e")

    assert ran == ["pay"]
    assert "the line went dead" in asks(result).message
    assert result.steps["send"].status is StepStatus.PENDING


def test_an_execution_that_ends_before_anybody_answers_fails_for_not_knowing(ran: Ran, again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError("the line went dead")

    wf = paying(pay)
    rt = again()
    asks(rt.run(wf, execution_id="e"))
    rt.cancel("e")
    result = rt.resume("e", wf)

    assert ran == ["pay"]
    assert result.status is ExecutionStatus.CANCELLED
    error = result.steps["pay"].error
    assert isinstance(error, OutcomeUnknownError)
    assert error.path == "pay"
    asks(rt.resume("e", wf, reopen=True))
    assert ran == ["pay"]


def test_not_done_is_an_ordinary_failure(ran: Ran, again: New) -> None:
    def pay(ctx: ares.StepContext) -> str:
        ran.append("pay")
        if ctx.attempt < 3:
            raise NotDone("refused before anything happened")
        return "paid"

    result = again().run(paying(pay), execution_id="e")

    assert ran == ["pay"] * 3
    assert result.outputs["send"] == "sent after paid"


def test_not_done_in_the_last_attempt_fails_the_step_and_a_resume_runs_it_again(
    ran: Ran, broken: set[str], again: New
) -> None:
    def pay() -> str:
        ran.append("pay")
        if broken:
            raise NotDone
        return "paid"

    broken.add("pay")
    failed = again().run(paying(pay), execution_id="e")
    broken.clear()
    result = again().resume("e", paying(pay))

    assert isinstance(failed.error, NotDone)
    assert ran == ["pay"] * 6
    assert result.status is ExecutionStatus.COMPLETED


def test_a_timeout_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    let_go = threading.Event()

    def pay() -> None:
        ran.append("pay")
        let_go.wait(DEADLINE)

    result = again().run(paying(pay, timeout=0.1), execution_id="e")
    let_go.set()

    assert ran == ["pay"]
    assert "0.1 s" in asks(result).message


def test_a_value_that_cannot_be_stored_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    def pay() -> object:
        ran.append("pay")
        return object()

    result = again().run(paying(pay), execution_id="e")

    assert ran == ["pay"]
    assert "SerializationError" in asks(result).message


def cut_by(end: Callable[[Runtime], object], ran: Ran, rt: Runtime, **options: Any) -> Workflow:
    """An execution "e" whose body was cut short by what ``end`` does with its Runtime."""
    begun = threading.Event()

    def pay(ctx: ares.StepContext) -> None:
        ran.append("pay")
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError("asked to end")

    wf = paying(pay, **options)
    handle = rt.submit(wf, execution_id="e")
    assert begun.wait(DEADLINE)
    end(rt)
    assert handle.wait(DEADLINE)
    return wf


def test_a_cancel_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    rt = again()
    wf = cut_by(lambda rt: rt.cancel("e"), ran, rt)
    cancelled = rt.execution("e").result(DEADLINE)

    assert "it took effect is unknown" in str(cancelled.steps["pay"].error)
    assert cancelled.interrupts == ()
    asks(again().resume("e", wf, reopen=True))
    assert ran == ["pay"]


def test_a_close_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    wf = cut_by(lambda rt: rt.close(0.2), ran, again())

    rt = again()
    assert rt.execution("e").status is ExecutionStatus.INTERRUPTED
    asks(rt.resume("e", wf))

    assert ran == ["pay"]


# --- what a human may say of it --------------------------------------------------------------------------------------


def test_approve_says_that_it_was_done_and_what_it_came_to(ran: Ran, again: New) -> None:
    def pay() -> str:
        ran.append("pay")
        raise ConnectionError

    wf = paying(pay)
    rt = again()
    rt.answer(asks(rt.run(wf, execution_id="e")), Approve("paid by hand"))
    result = rt.resume("e", wf).raise_for_status()

    assert ran == ["pay"]
    assert result.outputs["pay"] == "paid by hand"
    assert result.outputs["send"] == "sent after paid by hand"
    assert result.steps["pay"].attempts == 1


def test_run_again_says_that_it_was_not_done(ran: Ran, again: New) -> None:
    def pay(ctx: ares.StepContext) -> str:
        ran.append(f"pay {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError
        return "paid"

    wf = paying(pay)
    rt = again()
    rt.answer(asks(rt.run(wf, execution_id="e")), RunAgain())
    result = rt.resume("e", wf).raise_for_status()

    assert ran == ["pay 1", "pay 2"]
    assert result.outputs["send"] == "sent after paid"


def test_run_again_is_one_attempt_more_than_the_policy_allows_and_asks_anew(ran: Ran, again: New) -> None:
    def pay(ctx: ares.StepContext) -> str:
        ran.append(f"pay {ctx.attempt}")
        raise ConnectionError(f"attempt {ctx.attempt}")

    wf = Workflow("shop")
    wf.step(pay, delivery="at_most_once")
    rt = again()
    rt.answer(asks(rt.run(wf, execution_id="e")), RunAgain())
    second = asks(rt.resume("e", wf))
    rt.answer(second, RunAgain())
    with pytest.raises(QuestionAnsweredError):
        rt.answer(second, Approve("paid"))
    third = asks(rt.resume("e", wf))

    assert ran == ["pay 1", "pay 2", "pay 3"]
    assert "attempt 2" in second.message
    assert "attempt 3" in third.message


def test_reject_skips_it_and_what_follows(ran: Ran, again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError

    wf = paying(pay)
    rt = again()
    rt.answer(asks(rt.run(wf, execution_id="e")), Reject("leave it"))
    results = [rt.resume("e", wf), rt.resume("e", wf)]

    assert ran == ["pay"]
    for result in results:
        assert result.status is ExecutionStatus.COMPLETED
        assert result.rejected == ("pay",)
        assert result.steps["pay"].reason == "rejected"
        assert result.steps["send"].reason == "rejected: pay"


@pytest.mark.parametrize(
    ("answer", "paid", "times"),
    [(Approve("by hand"), "by hand", 1), (RunAgain(), "paid", 2), (Reject("leave it"), None, 1)],
    ids=["approve", "run again", "reject"],
)
def test_a_crash_leaves_the_outcome_unknown_and_only_a_human_knows(
    nursery: Nursery, db: str, again: New, answer: Approve | RunAgain | Reject, paid: str | None, times: int
) -> None:
    effects = db + ".effects"
    assert nursery.start("run", workflow="deadly_pay", db=db, inputs={"effects": effects}).wait() == -9

    wf = flows.deadly_pay()
    for _ in range(2):
        question = asks(again().resume("e", wf))
    assert traces(effects) == ["pay"]
    again().answer(question, answer)
    result = again().resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert result.outputs == ({} if paid is None else {"pay": paid, "send": "sent"})
    assert traces(effects) == ["pay"] * times


# --- what a resume may do --------------------------------------------------------------------------------------------


def test_no_resume_runs_it_until_somebody_answers_or_rerun_names_it(ran: Ran, broken: set[str], again: New) -> None:
    def pay() -> str:
        ran.append("pay")
        if broken:
            raise ConnectionError
        return "paid"

    wf = paying(pay)
    broken.add("pay")
    again().run(wf, execution_id="e")
    broken.clear()

    unknown = [again().resume("e", wf), again().resume("e", wf), again().resume("e", wf, rerun=["order"])]
    assert ran == ["pay"]
    named = again().resume("e", wf, rerun=["pay"])

    assert [asks(r).path for r in unknown] == ["pay"] * 3
    assert ran == ["pay", "pay"]
    assert named.outputs["send"] == "sent after paid"


def test_a_rerun_of_one_that_completed_has_to_name_it(ran: Ran, again: New) -> None:
    def pay() -> str:
        ran.append("pay")
        return "paid"

    wf = paying(pay)
    again().run(wf, execution_id="e")

    rt = again()
    before = rt.checkpoint("e")
    with pytest.raises(UsageError, match="'pay' is at_most_once"):
        rt.resume("e", wf, rerun=["order"])
    assert rt.checkpoint("e") == before
    rt.resume("e", wf, rerun=["send"])
    assert ran == ["pay"]
    result = rt.resume("e", wf, rerun=["order", "pay"])

    assert ran == ["pay", "pay"]
    assert result.status is ExecutionStatus.COMPLETED


def test_one_inside_a_sub_workflow_has_to_be_named_too(ran: Ran, again: New) -> None:
    wf = Workflow("outer")
    wf.add(StepSpec("shop", workflow=paying(lambda: ran.append("pay"))))
    again().run(wf, execution_id="e")

    rt = again()
    with pytest.raises(UsageError, match="'shop/pay' is at_most_once"):
        rt.resume("e", wf, rerun=["shop"])
    rt.resume("e", wf, rerun=["shop", "shop/pay"])

    assert ran == ["pay", "pay"]


def paying_many(ran: Ran, **options: Any) -> Workflow:
    """A map of three at_most_once elements, of which the second and the third are cut short the first time."""
    wf = Workflow("many")
    wf.step(lambda: [0, 1, 2], id="orders")

    @wf.step(map_over="orders", delivery="at_most_once", **options)
    def pay(ctx: ares.StepContext, item: int) -> str:
        ran.append(ctx.step.path)
        if item and ctx.attempt == 1:
            raise ConnectionError
        return f"paid {item}"

    return wf


def test_its_elements_are_each_run_at_most_once_and_asked_about(ran: Ran, again: New) -> None:
    wf = paying_many(ran)
    rt = again()
    first = rt.run(wf, execution_id="e")
    second = again().resume("e", wf)
    assert sorted(ran.since()) == ["pay[0]", "pay[1]", "pay[2]"]

    rt = again()
    with pytest.raises(UsageError, match="at_most_once"):
        rt.resume("e", wf, rerun=["orders"])
    asked = {question.path: question for question in rt.questions("e")}
    rt.answer(asked["pay[2]"], Approve("by hand"))
    third = rt.resume("e", wf)
    rt.answer(asked["pay[1]"], RunAgain())
    last = rt.resume("e", wf)

    for result, paths in ((first, ["pay[1]", "pay[2]"]), (second, ["pay[1]", "pay[2]"]), (third, ["pay[1]"])):
        assert result.status is ExecutionStatus.WAITING
        assert sorted(question.path for question in result.interrupts) == paths
    assert ran == ["pay[1]"]
    assert last.outputs["pay"] == ["paid 0", "paid 1", "by hand"]


def test_an_element_that_a_human_says_no_to_fails(ran: Ran, again: New) -> None:
    wf = paying_many(ran, on_item_failure="collect")
    rt = again()
    rt.run(wf, execution_id="e")
    rt.answer("e", Reject("not that one"), step="pay[1]")
    rt.answer("e", Approve("by hand"), step="pay[2]")
    result = rt.resume("e", wf)

    assert sorted(ran) == ["pay[0]", "pay[1]", "pay[2]"]
    paid, rejected, by_hand = result.outputs["pay"]
    assert (paid, by_hand) == ("paid 0", "by hand")
    assert isinstance(rejected, ItemFailure)
    assert isinstance(rejected.error, StepRejectedError)
    assert result.rejected == ("pay[1]",)


def test_a_map_whose_elements_are_unknown_at_the_end_tells_of_one(ran: Ran, again: New) -> None:
    wf = paying_many(ran, on_item_failure="fail")
    rt = again()
    rt.run(wf, execution_id="e")
    rt.cancel("e")
    result = rt.resume("e", wf)

    assert result.status is ExecutionStatus.CANCELLED
    assert isinstance(result.steps["pay[1]"].error, OutcomeUnknownError)
    assert sorted(ran) == ["pay[0]", "pay[1]", "pay[2]"]


@pytest.mark.parametrize(
    ("on_item_failure", "answer"),
    [("fail", RunAgain()), ("collect", Reject("leave it"))],
    ids=["run again", "reject"],
)
def test_elements_that_a_crash_cut_short_are_each_asked_about(
    nursery: Nursery, db: str, again: New, on_item_failure: str, answer: RunAgain | Reject
) -> None:
    effects = db + ".effects"
    inputs = {"effects": effects}
    child = nursery.start("run", workflow=f"deadly_pays_{on_item_failure}", db=db, inputs=inputs, max_workers=3)
    assert child.wait() == -9
    before = traces(effects)

    wf = flows.deadly_pays(on_item_failure)
    rt = again()
    assert rt.resume("e", wf).status is ExecutionStatus.WAITING
    rt.answer("e", Approve("by hand"), step="pay[0]")
    asks(rt.resume("e", wf), "pay[1]")
    rt.answer("e", answer, step="pay[1]")
    result = again().resume("e", wf)
    by_hand, other = result.outputs["pay"]

    assert sorted(before) == ["pay[0]", "pay[1]"]
    assert by_hand == "by hand"
    if isinstance(answer, RunAgain):
        assert (traces(effects)[2:], other) == (["pay[1]"], "paid 1")
    else:
        assert (traces(effects)[2:], result.rejected) == ([], ("pay[1]",))


# --- reconcile -------------------------------------------------------------------------------------------------------


def test_reconcile_says_what_came_of_it(ran: Ran, again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError

    def ask(ctx: ares.StepContext, order: int) -> str:
        ran.append("ask")
        return f"paid {order}"

    result = again().run(paying(pay, ask), execution_id="e")

    assert ran == ["pay", "ask"]
    assert result.outputs["send"] == "sent after paid 7"
    assert result.steps["pay"].attempts == 1


def test_reconcile_that_finds_nothing_lets_the_body_run_again(ran: Ran, again: New) -> None:
    def pay(ctx: ares.StepContext) -> str:
        ran.append(f"pay {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError
        return "paid"

    def ask() -> None:
        ran.append("ask")
        raise NotDone

    result = again().run(paying(pay, ask), execution_id="e")

    assert ran == ["pay 1", "ask", "pay 2", "ask", "pay 3"]
    assert result.status is ExecutionStatus.COMPLETED


def test_reconcile_that_fails_is_asked_again_at_the_next_resume(ran: Ran, broken: set[str], again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError

    def ask() -> str:
        ran.append("ask")
        if broken:
            raise OSError("the bank does not answer")
        return "paid"

    wf = paying(pay, ask)
    broken.add("ask")
    failed = again().run(wf, execution_id="e")
    failed_again = again().resume("e", wf)
    broken.clear()
    result = again().resume("e", wf)

    assert ran == ["pay", "ask", "ask", "ask"]
    assert isinstance(failed.error, OutcomeUnknownError)
    assert "the bank does not answer" in str(failed.error)
    assert failed_again.status is ExecutionStatus.FAILED
    assert result.outputs["pay"] == "paid"


def test_reconcile_comes_before_the_body_after_a_close(ran: Ran, again: New) -> None:
    wf = cut_by(lambda rt: rt.close(0.2), ran, again(), reconcile=lambda: ran.append("ask"))

    result = again().resume("e", wf)

    assert ran == ["pay", "ask"]
    assert result.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("found", [True, False])
def test_reconcile_comes_before_the_body_after_a_crash(nursery: Nursery, db: str, effects: str, found: bool) -> None:
    inputs = {"effects": effects, "found": found}
    assert nursery.start("run", workflow="reconciled_pay", db=db, inputs=inputs).wait() == -9

    result = nursery.call("resume", workflow="reconciled_pay", db=db)

    assert result["status"] == "COMPLETED"
    keys = {line.split(" ")[1] for line in traces(effects)}
    words = [line.split(" ")[0] for line in traces(effects)]
    assert words == (["pay", "ask"] if found else ["pay", "ask", "pay"])
    assert len(keys) == 1


def test_reconcile_has_the_idempotency_key_of_the_body(ran: Ran, again: New) -> None:
    def pay(ctx: ares.StepContext) -> None:
        ran.append(ctx.idempotency_key)
        raise ConnectionError

    again().run(paying(pay, lambda ctx: ran.append(ctx.idempotency_key)), execution_id="e")

    assert len(ran) == 2
    assert len(set(ran)) == 1


# --- the start is committed first ------------------------------------------------------------------------------------


class Watched(StoreWrapper):
    """Knows the starts that are committed."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.started: list[str] = []
        self.fails = False

    def append(self, appends: Any, *, sync: bool) -> Any:
        if self.fails:
            raise StoreError("the disk", "is full")
        results = super().append(appends, sync=sync)
        self.started += [entry.path for append in appends for entry in append.entries if entry.kind == "started"]
        return results


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_its_start_is_committed_before_its_body_in_every_mode(
    db: str, again: New, durability: str, steps_on: str
) -> None:
    store = Watched(SqliteStore(db))
    seen: list[list[str]] = []

    result = again(store, durability=durability, steps_on=steps_on).run(
        paying(lambda: seen.append(list(store.started)))
    )

    assert result.status is ExecutionStatus.COMPLETED
    assert "pay" in seen[0]


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_start_that_cannot_be_committed_never_becomes_a_body(db: str, ran: Ran, again: New, durability: str) -> None:
    store = Watched(SqliteStore(db))
    wf = paying(lambda: ran.append("pay"))

    def order() -> int:
        store.fails = True
        return 7

    broken_wf = wf.replace(order=order)
    rt = again(store, durability=durability)
    with pytest.raises(StoreError) as failed:
        rt.run(broken_wf, execution_id="e")
    assert ran == []
    store.fails = False
    result = rt.resume("e", wf)

    assert failed.value.execution_id == "e"
    assert ran == ["pay"]
    assert result.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_an_outcome_that_cannot_be_committed_is_unknown(db: str, ran: Ran, again: New, durability: str) -> None:
    store = Watched(SqliteStore(db))

    def pay() -> str:
        ran.append("pay")
        store.fails = True
        return "paid"

    rt = again(store, durability=durability)
    with pytest.raises(StoreError):
        rt.run(paying(pay), execution_id="e")
    store.fails = False
    asks(rt.resume("e", paying(pay)))
    asked = rt.resume("e", paying(pay, lambda: "it was paid"), rerun=["order"])

    assert ran == ["pay"]
    assert asked.outputs["send"] == "sent after it was paid"
