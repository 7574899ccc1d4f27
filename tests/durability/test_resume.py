"""What a resume does again, and what it leaves alone."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, Goto, Runtime, StepSpec, StepStatus, Workflow
from ares.errors import (
    ExecutionConflictError,
    ExecutionNotFoundError,
    ExecutionTimeoutError,
    RecordedError,
    RouteError,
    RuntimeClosedError,
    UsageError,
    WorkflowFailedError,
)
from tests.durability.nursery import DEADLINE
from tests.durability.traces import Ran, told


def chain(ran: Ran, broken: set[str], **options: Any) -> Workflow:
    """first -> second -> third, and tidy whatever happens; each writes what it is called."""
    wf = Workflow("chain", variables={"log": []}, reducers={"log": "append"}, **options)

    def body(name: str) -> Callable[..., str]:
        def run(ctx: ares.StepContext) -> str:
            ran.append(name)
            ctx.set("log", name)
            if name in broken:
                raise ValueError(name)
            return f"{name} in attempt {ctx.attempt}"

        return run

    before: list[str] = []
    for name in ("first", "second", "third"):
        wf.add(StepSpec(name, body(name), depends_on=before, writes="log"))
        before = [name]
    wf.add(StepSpec("tidy", body("tidy"), depends_on=before, writes="log", trigger="always"))
    return wf


# --- completed -------------------------------------------------------------------------------------------------------


def test_a_completed_execution_gives_its_stored_result_and_runs_nothing(ran: Ran, again: Callable[[], Runtime]) -> None:
    wf = chain(ran, set())
    whole = again().run(wf, execution_id="e")
    ran.since()

    rt = again()
    resumed = rt.resume("e", wf)
    by_id = rt.run(wf, execution_id="e", if_exists="resume")
    by_handle = rt.execution("e").result()

    assert ran == []
    assert told(resumed) == told(by_id) == told(by_handle) == told(whole)
    assert [e.type for e in rt.execution("e").events()][-1] == "workflow.completed"
    assert rt.execution("e").status is ExecutionStatus.COMPLETED


def test_an_unknown_execution_and_another_ones_workflow_are_refused(ran: Ran, again: Callable[[], Runtime]) -> None:
    rt = again()
    rt.run(chain(ran, set()), execution_id="e")

    with pytest.raises(ExecutionNotFoundError) as missing:
        rt.resume("nobody", chain(ran, set()))
    with pytest.raises(ExecutionConflictError) as other:
        rt.resume("e", Workflow("other"))

    assert missing.value.execution_id == "nobody"
    assert other.value.execution_id == "e"
    assert "chain" in str(other.value)


def test_a_runtime_that_does_not_know_the_workflow_says_which_one_it_needs(
    ran: Ran, again: Callable[[], Runtime]
) -> None:
    again().run(chain(ran, set()), execution_id="e")

    with pytest.raises(UsageError, match="'chain'"):
        again().resume("e")


# --- failed ----------------------------------------------------------------------------------------------------------


def test_of_a_failed_execution_what_failed_and_what_follows_runs_again_and_nothing_else(
    ran: Ran, broken: set[str], again: Callable[[], Runtime]
) -> None:
    wf = chain(ran, broken)
    broken.add("second")
    failed = again().run(wf, execution_id="e")
    assert ran.since() == ["first", "second", "tidy"]
    broken.clear()

    result = again().resume("e", wf)

    assert (failed.status, result.status) == (ExecutionStatus.FAILED, ExecutionStatus.COMPLETED)
    assert failed.steps["third"].reason == "upstream_failed: second"
    assert ran.since() == ["second", "third", "tidy"]
    assert result.outputs["third"] == "third in attempt 1"
    assert {path: step.attempts for path, step in result.steps.items()} == dict.fromkeys(wf_ids(wf), 1)


def wf_ids(wf: Workflow) -> list[str]:
    return [spec.id for spec in wf.steps]


def test_the_writes_of_what_is_set_back_are_withdrawn(ran: Ran, broken: set[str], again: Callable[[], Runtime]) -> None:
    wf = chain(ran, broken)
    broken.add("second")
    failed = again().run(wf, execution_id="e")
    broken.clear()

    rt = again()
    result = rt.resume("e", wf)

    assert failed.variables["log"] == ["first", "tidy"]
    assert result.variables["log"] == ["first", "second", "third", "tidy"]
    assert rt.checkpoint("e").variables["log"] == result.variables["log"]


def test_an_execution_that_fails_again_and_again_goes_on_from_where_it_is_each_time(
    ran: Ran, broken: set[str], again: Callable[[], Runtime]
) -> None:
    wf = chain(ran, broken)
    began = []
    for left in (["first", "second", "third"], ["second", "third"], ["third"], []):
        broken.clear()
        broken.update(left)
        rt = again()
        result = rt.resume("e", wf) if began else rt.run(wf, execution_id="e")
        began.append(ran.since())

    assert result.status is ExecutionStatus.COMPLETED
    assert began == [["first", "tidy"], ["first", "second", "tidy"], ["second", "third", "tidy"], ["third", "tidy"]]


def test_the_error_of_an_earlier_process_is_a_recorded_one(
    ran: Ran, broken: set[str], again: Callable[..., Runtime]
) -> None:
    wf = chain(ran, broken)
    broken.add("third")
    here = again().run(wf, execution_id="e")

    stored = again(workflows=[wf]).execution("e").result()

    assert isinstance(here.error, ValueError)
    assert isinstance(stored.error, RecordedError)
    assert (stored.error.type_name, stored.error.message) == ("ValueError", "third")
    assert "in run" in stored.error.traceback
    with pytest.raises(WorkflowFailedError) as failed:
        stored.raise_for_status()
    assert failed.value.__cause__ is stored.error


def test_a_failed_maps_completed_elements_stay(ran: Ran, broken: set[str], again: Callable[[], Runtime]) -> None:
    wf = Workflow("map")
    wf.step(lambda: [0, 1, 2, 3], id="source")

    @wf.step(map_over="source", max_concurrency=1)
    def each(ctx: ares.StepContext, item: int) -> int:
        ran.append(ctx.step.path)
        if ctx.step.path in broken:
            raise ValueError(item)
        return item * 10

    broken.add("each[2]")
    failed = again().run(wf, execution_id="e")
    broken.clear()
    result = again().resume("e", wf)

    assert failed.steps["each"].status is StepStatus.FAILED
    assert result.outputs["each"] == [0, 10, 20, 30]
    assert ran == ["each[0]", "each[1]", "each[2]", "each[2]", "each[3]"]


def test_a_failed_childs_completed_steps_stay(ran: Ran, broken: set[str], again: Callable[[], Runtime]) -> None:
    wf = Workflow("parent")
    wf.add(StepSpec("inside", workflow=chain(ran, broken)))
    wf.step(lambda inside: inside, id="after")

    broken.add("second")
    again().run(wf, execution_id="e")
    assert ran.since() == ["first", "second", "tidy"]
    broken.clear()
    result = again().resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert ran.since() == ["second", "third", "tidy"]
    assert result.outputs["after"] == {"tidy": "tidy in attempt 1"}


def test_a_resume_asks_for_a_missing_route_again_and_does_not_run_the_body(
    ran: Ran, again: Callable[[], Runtime]
) -> None:
    answers: Iterator[Any] = iter(["rigth", "right"])
    wf = Workflow("routes")

    @wf.step(branches=("left", "right"), router=lambda: next(answers))
    def fork() -> str:
        ran.append("fork")
        return "fork"

    wf.step(lambda fork: ran.append("left"), id="left")
    wf.step(lambda fork: ran.append("right"), id="right")

    failed = again().run(wf, execution_id="e")
    result = again().resume("e", wf)

    assert isinstance(failed.error, RouteError)
    assert failed.steps["fork"].status is StepStatus.COMPLETED
    assert failed.steps["right"].reason == "no_route: fork"
    assert result.status is ExecutionStatus.COMPLETED
    assert ran == ["fork", "right"]


def test_what_fail_fast_kept_from_starting_goes_back(ran: Ran, broken: set[str]) -> None:
    wf = Workflow("fast", fail_fast=True)

    def body(name: str) -> Callable[[], str]:
        def run() -> str:
            ran.append(name)
            if name in broken:
                raise ValueError(name)
            return name

        return run

    wf.step(body("breaks"), id="breaks")
    wf.step(body("stranger"), id="stranger", depends_on=["root"])
    wf.step(body("root"), id="root")
    broken.add("breaks")
    rt = Runtime(steps_on="caller")
    with rt:
        failed = rt.run(wf, execution_id="e")
        assert ran.since() == ["breaks"]
        broken.clear()
        result = rt.resume("e", wf)

    assert failed.steps["stranger"].reason == "fail_fast"
    assert sorted(ran.since()) == ["breaks", "root", "stranger"]
    assert result.status is ExecutionStatus.COMPLETED


def test_an_execution_out_of_time_gets_its_time_anew_or_another_one(again: Callable[[], Runtime], ran: Ran) -> None:
    go_on = threading.Event()
    wf = Workflow("slow")

    @wf.step
    def slow(ctx: ares.StepContext) -> str:
        ran.append("slow")
        while not go_on.wait(0.01):
            if ctx.cancelled:
                raise InterruptedError("out of time")
        return "done"

    wf.step(lambda slow: ran.append("next"), id="next")

    late = again().run(wf, execution_id="e", timeout=0.2)
    late_again = again().resume("e", wf)
    go_on.set()
    result = again().resume("e", wf, timeout=DEADLINE)

    assert isinstance(late.error, ExecutionTimeoutError)
    assert isinstance(late_again.error, ExecutionTimeoutError)
    assert late_again.error.timeout == 0.2
    assert result.status is ExecutionStatus.COMPLETED
    assert ran[-1] == "next"


# --- cancelled -------------------------------------------------------------------------------------------------------


def cancelled_at_second(ran: Ran, again: Callable[[], Runtime]) -> Workflow:
    """An execution "e" of ``chain`` that was cancelled while ``second`` ran."""
    at_second = threading.Event()
    wf = chain(ran, set())

    def second(ctx: ares.StepContext) -> str:
        ran.append("second")
        at_second.set()
        while not ctx.cancelled:
            threading.Event().wait(0.01)
        raise InterruptedError("cancelled")

    rt = again()
    handle = rt.submit(wf.replace(second=second), execution_id="e")
    assert at_second.wait(DEADLINE)
    assert rt.cancel("e", "enough")
    assert handle.result(DEADLINE).status is ExecutionStatus.CANCELLED
    return wf


def test_a_cancelled_execution_goes_on_only_when_it_is_reopened(ran: Ran, again: Callable[[], Runtime]) -> None:
    wf = cancelled_at_second(ran, again)
    assert ran.since() == ["first", "second", "tidy"]

    stays = again().resume("e", wf)
    assert ran.since() == []
    result = again().resume("e", wf, reopen=True)

    assert stays.status is ExecutionStatus.CANCELLED
    assert stays.steps["third"].reason == "cancelled"
    assert result.status is ExecutionStatus.COMPLETED
    assert ran.since() == ["second", "third", "tidy"]


def test_a_cancelled_execution_is_not_rerun_by_accident(ran: Ran, again: Callable[[], Runtime]) -> None:
    wf = cancelled_at_second(ran, again)
    ran.since()

    with pytest.raises(UsageError, match="reopen"):
        again().resume("e", wf, rerun=["first"])
    result = again().resume("e", wf, rerun=["first"], reopen=True)

    assert ran.since() == ["first", "second", "third", "tidy"]
    assert result.status is ExecutionStatus.COMPLETED


# --- interrupted and pending -----------------------------------------------------------------------------------------


def test_a_run_that_was_closed_over_goes_on_and_the_cut_costs_no_attempt(
    ran: Ran, again: Callable[[], Runtime]
) -> None:
    at_second, errors = threading.Event(), []
    wf = chain(ran, set())

    def second(ctx: ares.StepContext) -> str:
        ran.append("second")
        at_second.set()
        while not ctx.cancelled:
            threading.Event().wait(0.01)
        raise InterruptedError("closing")

    rt = again()

    def run() -> None:
        try:
            rt.run(wf.replace(second=second), execution_id="e")
        except RuntimeClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert at_second.wait(DEADLINE)
    rt.close(0.5)
    thread.join(DEADLINE)
    rt = again()
    interrupted = rt.execution("e").status
    result = rt.resume("e", wf)

    assert len(errors) == 1
    assert "'e'" in str(errors[0])
    assert interrupted is ExecutionStatus.INTERRUPTED
    assert result.status is ExecutionStatus.COMPLETED
    assert ran == ["first", "second", "second", "third", "tidy"]
    assert result.outputs["second"] == "second in attempt 1"


def test_a_resume_is_a_fact_that_names_what_was_in_flight(ran: Ran, again: Callable[[], Runtime]) -> None:
    wf = chain(ran, set())
    rt = again()
    rt.run(wf, execution_id="e")
    before = rt.checkpoint("e").state_version

    rt.resume("e", wf, rerun=["third"])

    (resumed,) = [e for e in rt.execution("e").events() if e.type == "workflow.resumed"]
    assert resumed.seq == before + 1
    assert resumed.payload["set_back"] == ["third", "tidy"]


# --- rerun -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(ran: Ran, broken: set[str]) -> Workflow:
    """source -> each (a map that collects) -> inside (a child: one -> two) -> after."""
    child = Workflow("child", inputs={"each": list})

    def body(name: str) -> None:
        ran.append(name)
        if name in broken:
            raise ValueError(name)

    child.step(lambda each: body("inside/one"), id="one")
    child.step(lambda one: body("inside/two"), id="two")
    wf = Workflow("tree")

    @wf.step
    def source() -> list[int]:
        body("source")
        return [0, 1, 2]

    @wf.step(map_over=source, on_item_failure="collect")
    def each(ctx: ares.StepContext, item: int) -> int:
        body(ctx.step.path)
        return item

    wf.add(StepSpec("inside", workflow=child, inputs={"each": each}))

    @wf.step
    def after(each: list[int], inside: dict[str, Any]) -> list[str]:
        body("after")
        return [str(item) for item in each]

    return wf


EVERYTHING = ["after", "each[0]", "each[1]", "each[2]", "inside/one", "inside/two", "source"]


@pytest.mark.parametrize(
    ("rerun", "runs"),
    [
        (["after"], ["after"]),
        ("after", ["after"]),
        (["inside/two"], ["after", "inside/two"]),
        (["inside/one"], ["after", "inside/one", "inside/two"]),
        (["inside"], ["after", "inside/one", "inside/two"]),
        (["each[1]"], ["after", "each[1]", "inside/one", "inside/two"]),
        (["each[2]", "each[0]"], ["after", "each[0]", "each[2]", "inside/one", "inside/two"]),
        (["each"], [name for name in EVERYTHING if name != "source"]),
        (["source"], EVERYTHING),
    ],
    ids=str,
)
def test_a_rerun_runs_what_it_names_and_what_follows(
    tree: Workflow, ran: Ran, again: Callable[[], Runtime], rerun: Any, runs: list[str]
) -> None:
    whole = again().run(tree, execution_id="e")
    assert sorted(ran.since()) == EVERYTHING

    result = again().resume("e", tree, rerun=rerun)

    assert sorted(ran.since()) == runs
    assert told(result) == told(whole)
    assert told(again().resume("e", tree)) == told(whole)


def test_a_rerun_of_item_failures_runs_those_elements_and_what_follows(
    tree: Workflow, ran: Ran, broken: set[str], again: Callable[[], Runtime]
) -> None:
    broken.add("each[1]")
    first = again().run(tree, execution_id="e")
    broken.clear()
    ran.since()

    result = again().resume("e", tree, rerun="item_failures")

    assert first.status is ExecutionStatus.COMPLETED
    assert first.outputs["each"][1].item == 1
    assert sorted(ran.since()) == ["after", "each[1]", "inside/one", "inside/two"]
    assert result.outputs["after"] == ["0", "1", "2"]


def test_a_rerun_of_item_failures_where_there_are_none_runs_nothing(
    tree: Workflow, ran: Ran, again: Callable[[], Runtime]
) -> None:
    again().run(tree, execution_id="e")
    ran.since()

    result = again().resume("e", tree, rerun="item_failures")

    assert ran == []
    assert result.status is ExecutionStatus.COMPLETED


def test_a_rerun_may_be_told_by_the_steps_function(tree: Workflow, ran: Ran, again: Callable[[], Runtime]) -> None:
    again().run(tree, execution_id="e")
    ran.since()

    again().resume("e", tree, rerun=[tree.steps[-1].run])

    assert ran == ["after"]


@pytest.mark.parametrize(
    "name", ["afer", "each[3]", "each[x]", "inside/three", "source[0]", "", "each[-1]", "each[01]"]
)
def test_a_rerun_that_names_nothing_is_refused_and_changes_nothing(
    tree: Workflow, ran: Ran, again: Callable[[], Runtime], name: str
) -> None:
    rt = again()
    rt.run(tree, execution_id="e")
    before = rt.checkpoint("e")
    ran.since()

    with pytest.raises(UsageError, match="rerun names") as refused:
        rt.resume("e", tree, rerun=[name])

    assert repr(name) in str(refused.value)
    assert rt.checkpoint("e") == before
    assert rt.resume("e", tree).status is ExecutionStatus.COMPLETED
    assert ran == []


def test_a_rerun_of_a_failed_execution_also_runs_what_failed(
    ran: Ran, broken: set[str], again: Callable[[], Runtime]
) -> None:
    wf = chain(ran, broken)
    broken.add("third")
    again().run(wf, execution_id="e")
    broken.clear()
    ran.since()

    again().resume("e", wf, rerun=["second"])

    assert ran == ["second", "third", "tidy"]


def test_a_branch_that_is_taken_after_a_rerun_leaves_nothing_of_the_other(
    ran: Ran, again: Callable[[], Runtime]
) -> None:
    ways = itertools.cycle(["left", "right"])
    wf = Workflow("ways")
    wf.step(lambda: Goto(next(ways)), id="fork", branches=("left", "right"))
    wf.step(lambda fork: "l", id="left")
    wf.step(lambda fork: "r", id="right")
    wf.step(lambda left, right: (left, right), id="join")

    first = again().run(wf, execution_id="e")
    second = again().resume("e", wf, rerun=["fork"])

    assert (first.outputs["join"], second.outputs["join"]) == (("l", None), (None, "r"))
    assert "left" not in second.outputs
