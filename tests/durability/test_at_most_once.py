"""A body that must not run twice: what counts as cut short, who may say what came of it, and what nobody may do."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, ItemFailure, RetryPolicy, Runtime, StepSpec, StepStatus, Workflow
from ares.errors import NotDone, OutcomeUnknownError, PartFailedError, StoreError, UsageError
from ares.stores.sqlite import SqliteStore
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


# --- what leaves the outcome unknown ---------------------------------------------------------------------------------


def test_an_exception_leaves_the_outcome_unknown_and_is_not_retried(ran: Ran, again: New) -> None:
    def pay() -> None:
        ran.append("pay")
        raise ConnectionError("the line went dead")

    result = again().run(paying(pay), execution_id="e")

    assert ran == ["pay"]
    assert result.status is ExecutionStatus.FAILED
    error = result.steps["pay"].error
    assert isinstance(error, OutcomeUnknownError)
    assert error.path == "pay"
    assert "the line went dead" in str(error)
    assert isinstance(error.__cause__, ConnectionError)
    assert result.steps["send"].reason == "upstream_failed: pay"


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
    assert isinstance(result.steps["pay"].error, OutcomeUnknownError)
    assert "0.1 s" in str(result.steps["pay"].error)


def test_a_value_that_cannot_be_stored_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    def pay() -> object:
        ran.append("pay")
        return object()

    result = again().run(paying(pay), execution_id="e")

    assert ran == ["pay"]
    assert isinstance(result.steps["pay"].error, OutcomeUnknownError)


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
    wf = cut_by(lambda rt: rt.cancel("e"), ran, again())

    result = again().resume("e", wf, reopen=True)

    assert ran == ["pay"]
    assert result.status is ExecutionStatus.FAILED
    assert "unknown" in str(result.steps["pay"].error)


def test_a_close_leaves_the_outcome_unknown(ran: Ran, again: New) -> None:
    wf = cut_by(lambda rt: rt.close(0.2), ran, again())

    rt = again()
    assert rt.execution("e").status is ExecutionStatus.INTERRUPTED
    result = rt.resume("e", wf)

    assert ran == ["pay"]
    assert result.steps["pay"].status is StepStatus.FAILED
    assert "unknown" in str(result.steps["pay"].error)


def test_a_crash_leaves_the_outcome_unknown(nursery: Nursery, db: str, effects: str) -> None:
    child = nursery.start("run", workflow="deadly_pay", db=db, inputs={"effects": effects})
    assert child.wait() == -9

    for _ in range(3):
        result = nursery.call("resume", workflow="deadly_pay", db=db)
        assert result["status"] == "FAILED"
        assert "unknown" in result["steps"]["pay"][3]
    assert traces(effects) == ["pay"]


# --- what a resume may do --------------------------------------------------------------------------------------------


def test_no_resume_runs_it_until_rerun_names_it(ran: Ran, broken: set[str], again: New) -> None:
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

    assert [r.status for r in unknown] == [ExecutionStatus.FAILED] * 3
    assert {type(r.steps["pay"].error).__name__ for r in unknown} == {"OutcomeUnknownError"}
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


def test_its_elements_are_each_run_at_most_once(ran: Ran, broken: set[str], again: New) -> None:
    wf = Workflow("many")
    wf.step(lambda: [0, 1, 2], id="orders")

    @wf.step(map_over="orders", delivery="at_most_once", on_item_failure="collect")
    def pay(ctx: ares.StepContext, item: int) -> int:
        ran.append(ctx.step.path)
        if ctx.step.path in broken:
            raise ConnectionError
        return item

    broken.add("pay[1]")
    first = again().run(wf, execution_id="e")
    broken.clear()
    assert sorted(ran.since()) == ["pay[0]", "pay[1]", "pay[2]"]
    rt = again()
    with pytest.raises(UsageError, match="at_most_once"):
        rt.resume("e", wf, rerun=["orders"])
    named = rt.resume("e", wf, rerun=["pay[1]"])

    assert isinstance(first.outputs["pay"][1], ItemFailure)
    assert isinstance(first.outputs["pay"][1].error, OutcomeUnknownError)
    assert ran == ["pay[1]"]
    assert named.outputs["pay"] == [0, 1, 2]


def test_a_failed_map_tells_of_the_element_whose_outcome_is_unknown(ran: Ran, again: New) -> None:
    wf = Workflow("many")
    wf.step(lambda: [0], id="orders")

    @wf.step(map_over="orders", delivery="at_most_once")
    def pay(item: int) -> None:
        ran.append("pay")
        raise ConnectionError

    failed = again().run(wf, execution_id="e")
    resumed = again().resume("e", wf)

    for result in (failed, resumed):
        assert isinstance(result.steps["pay"].error, PartFailedError)
        assert "unknown" in str(result.steps["pay"].error)
    assert ran == ["pay"]


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
    result = rt.resume("e", paying(pay))
    asked = rt.resume("e", paying(pay, lambda: "it was paid"), rerun=["order"])

    assert ran == ["pay"]
    assert isinstance(result.error, OutcomeUnknownError)
    assert asked.outputs["send"] == "sent after it was paid"
