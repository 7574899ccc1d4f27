"""Steps that end their process, and processes that end in the middle of steps."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, Runtime, StepStatus, Workflow
from tests.durability.children import named
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.traces import Ran, counted, traces

New = Callable[..., Runtime]


def resume_until_it_lives(nursery: Nursery, workflow: str, db: str, *, most: int = 12) -> tuple[int, dict[str, Any]]:
    """How many processes died, the first included, and what the last one said."""
    for deaths in range(1, most):
        child = nursery.start("resume", workflow=workflow, db=db)
        try:
            return deaths, child.result()
        except AssertionError:
            assert child.wait() in (7, -9), child.errors()
    raise AssertionError(f"{most} processes died")


def test_a_step_that_kills_its_process_cannot_do_so_for_ever(nursery: Nursery, db: str, effects: str) -> None:
    assert nursery.start("run", workflow="deadly", db=db, inputs={"effects": effects}).wait() == 7

    deaths, result = resume_until_it_lives(nursery, "deadly", db)

    # The start of the first may have been lost with its process; those after a crash are committed before their bodies.
    assert deaths in (3, 4)
    assert result["status"] == "FAILED"
    assert result["steps"]["kills"][0] == "FAILED"
    assert "the process died 3 times while step 'kills' was running" in result["steps"]["kills"][3]
    assert result["steps"]["after"][1] == "upstream_failed: kills"
    assert counted(effects) == Counter({"before": 1, "kills in attempt 1": deaths, "tidy": 1})


def test_only_the_element_that_kills_fails(nursery: Nursery, db: str, effects: str) -> None:
    workflow = "deadly_beside_others"
    assert nursery.start("run", workflow=workflow, db=db, inputs={"effects": effects}).wait() == 7

    deaths, result = resume_until_it_lives(nursery, workflow, db)

    assert deaths in (3, 4)
    assert result["status"] == "COMPLETED"
    assert {path for path, step in result["steps"].items() if step[0] == "FAILED"} == {"each[11]"}
    others = [times for path, times in counted(effects).items() if path != "each[11]"]
    assert len(others) == 19
    assert sum(others) <= 19 + deaths  # one other at most was in flight with it each time


def test_without_a_limit_it_may_go_on_for_ever(nursery: Nursery, db: str, effects: str) -> None:
    workflow = "deadly_without_limit"
    assert nursery.start("run", workflow=workflow, db=db, inputs={"effects": effects}).wait() == 7

    for _ in range(6):
        assert nursery.start("resume", workflow=workflow, db=db).wait() == 7

    assert counted(effects)["kills in attempt 1"] == 7


def test_what_is_no_crash_does_not_count(ran: Ran, again: New) -> None:
    wf = Workflow("closed", inputs={})
    begun = threading.Event()

    @wf.step(max_crashes=1)
    def slow(ctx: ares.StepContext) -> str:
        ran.append("slow")
        begun.set()
        while not ctx.cancelled and len(ran) < 6:
            threading.Event().wait(0.005)
        return "done" if len(ran) == 6 else wait_for_ever()

    def wait_for_ever() -> str:
        never.wait(DEADLINE)
        return "too late"

    never = threading.Event()
    rt = again()
    rt.submit(wf, execution_id="e")
    for _ in range(5):
        assert begun.wait(DEADLINE)
        begun.clear()
        rt.close(0.05)
        rt = again(workflows=[wf])
        assert [execution.id for execution in rt.recover()] == ["e"]
    result = rt.execution("e").result(DEADLINE)
    never.set()

    assert result.status is ExecutionStatus.COMPLETED
    assert result.steps["slow"].attempts == 1
    assert ran == ["slow"] * 6


def test_a_crash_uses_up_no_attempt(nursery: Nursery, db: str, effects: str) -> None:
    assert nursery.start("run", workflow="in_three_parts", db=db, inputs={"effects": effects}).wait() == -9

    deaths, result = resume_until_it_lives(nursery, "in_three_parts", db)

    assert deaths == 2
    assert set(result["attempts"].values()) == {1}


@pytest.mark.case("C029")
def test_finished_work_inside_a_sub_workflow_is_not_done_again(nursery: Nursery, db: str, effects: str) -> None:
    assert nursery.start("run", workflow="in_three_parts", db=db, inputs={"effects": effects}).wait() == -9
    assert nursery.start("resume", workflow="in_three_parts", db=db).wait() == -9
    before_the_last = traces(effects)

    result = nursery.call("resume", workflow="in_three_parts", db=db)

    assert counted(effects) == Counter(p1=1, s1=1, s2=1, s3=2, p2=2)
    assert traces(effects)[len(before_the_last) :] == ["p2"]
    assert result["outputs"] == {"p1": "0", "sub": "{'s3': 3}", "p2": "4"}
    with Runtime(db) as rt:
        resumed = [e.payload["in_flight"] for e in rt.execution("e").events() if e.type == "workflow.resumed"]
    # What dies at once may take its start with it; after a crash starts are committed first.
    assert resumed in ([["sub/s3"], ["p2"]], [[], ["p2"]])


def test_a_step_that_was_running_beside_a_crash_runs_again_with_what_it_had(
    nursery: Nursery, db: str, effects: str
) -> None:
    workflow = "deadly_beside_others"
    assert nursery.start("run", workflow=workflow, db=db, inputs={"effects": effects}).wait() == 7

    with Runtime(db, workflows=[named(workflow)]) as rt:
        handle = rt.execution("e")
        assert handle.status is ExecutionStatus.INTERRUPTED
        result = handle.result()

    done = {path for path, step in result.steps.items() if step.status is StepStatus.COMPLETED}
    assert "source" in done
    assert "each[11]" not in done
