"""What the walk decides, seen from outside: joins, routes, maps and sub-workflows through a real Runtime."""

import random
import threading
from typing import Any

import pytest

from ares import Goto, Runtime, StepSpec, Workflow, WorkflowResult
from ares.errors import PartFailedError, RouteError, WorkflowFailedError


def forked(router: Any) -> tuple[Workflow, list[str]]:
    """A branch point with two arms, what runs noted."""
    wf = Workflow("forked")
    ran: list[str] = []

    @wf.step(branches=["left", "right"], router=router)
    def point() -> int:
        return 1

    @wf.step(depends_on=[point])
    def left() -> str:
        ran.append("left")
        return "L"

    @wf.step(depends_on=[point])
    def right() -> str:
        ran.append("right")
        return "R"

    return wf, ran


@pytest.mark.case("C001")
def test_a_join_behind_a_branch_not_taken_runs_once_and_so_does_what_follows() -> None:
    wf = Workflow("join")
    ran: list[str] = []

    @wf.step(branches=["left", "right"])
    def choose() -> Goto:
        return Goto("right")

    @wf.step(depends_on=[choose])
    def left() -> int:
        return 1

    @wf.step(depends_on=[choose])
    def right() -> int:
        return 2

    @wf.step
    def join(left: int | None, right: int | None) -> tuple[int | None, int | None]:
        ran.append("join")
        return left, right

    @wf.step
    def after(join: Any) -> Any:
        ran.append("after")
        return join

    with Runtime() as runtime:
        result = runtime.run(wf)

    assert result.status == "COMPLETED"
    assert result.steps["left"].status == "SKIPPED"
    assert result.output(after) == (None, 2)
    assert ran == ["join", "after"]
    assert all(step.status.is_final for step in result.steps.values())


@pytest.mark.case("C003")
def test_a_join_waits_for_the_branch_that_was_taken_and_is_never_skipped_before() -> None:
    draw = random.Random(3)
    for _ in range(50):
        wf = Workflow("slow")
        goes = threading.Event()
        ran: list[Any] = []

        @wf.step(branches=["slow", "fast"])
        def choose() -> Goto:
            return Goto("slow")

        @wf.step(depends_on=[choose])
        def slow(goes: threading.Event = goes, pause: float = draw.random() / 100) -> str:
            goes.wait(pause)  # nobody sets it: a pause of up to 10 ms
            return "slow"

        @wf.step(depends_on=[choose])
        def fast() -> str:
            return "fast"

        @wf.step(depends_on=[choose])
        def stranger() -> None:
            return None

        @wf.step
        def join(slow: str | None, fast: str | None, ran: list[Any] = ran) -> tuple[str | None, str | None]:
            ran.append((slow, fast))
            return slow, fast

        with Runtime(max_workers=3) as runtime:
            result = runtime.run(wf)
            events = list(runtime.execution(result.execution_id).events())

        assert ran == [("slow", None)]
        assert [e.type for e in events if e.payload.get("path") == "join"] == ["step.started", "step.completed"]


@pytest.mark.case("C007")
def test_a_router_that_names_a_stranger_fails_the_run_and_the_error_names_all() -> None:
    wf, ran = forked(lambda: "rigth")

    with Runtime() as runtime:
        result = runtime.run(wf)

    assert result.status == "FAILED"
    assert ran == []
    assert isinstance(result.error, RouteError)
    for part in ("point", "rigth", "left", "right"):
        assert part in str(result.error)
    assert result.steps["point"].status == "COMPLETED"
    assert result.steps["left"].reason == "no_route: point"


@pytest.mark.case("C007")
def test_a_router_that_takes_none_skips_every_arm_and_the_run_completes() -> None:
    wf, ran = forked(list)

    with Runtime() as runtime:
        result = runtime.run(wf)

    assert (result.status, ran) == ("COMPLETED", [])


@pytest.mark.case("C007")
def test_a_router_that_names_an_arm_twice_runs_it_once() -> None:
    wf, ran = forked(lambda: ["left", "left"])

    with Runtime() as runtime:
        result = runtime.run(wf)

    assert (result.status, ran) == ("COMPLETED", ["left"])


@pytest.mark.case("C007")
@pytest.mark.parametrize(("on_no_route", "expected"), [("all", ["left", "right"]), ("none", [])])
def test_a_router_that_abstains_leaves_it_to_on_no_route(on_no_route: str, expected: list[str]) -> None:
    wf = Workflow("abstains")
    ran: list[str] = []
    wf.add(StepSpec("point", lambda: 1, branches=("left", "right"), router=lambda: None, on_no_route=on_no_route))
    wf.add(StepSpec("left", lambda: ran.append("left"), depends_on=["point"]))
    wf.add(StepSpec("right", lambda: ran.append("right"), depends_on=["point"]))

    with Runtime(max_workers=1) as runtime:
        result = runtime.run(wf)

    assert (result.status, ran) == ("COMPLETED", expected)


def chained_maps(source: Any) -> tuple[WorkflowResult, list[Any]]:
    wf = Workflow("maps")
    ran: list[Any] = []

    @wf.step
    def producer() -> Any:
        return source

    @wf.step(map_over=producer)
    def first(item: Any) -> Any:
        ran.append(item)
        return item

    @wf.step(map_over=first)
    def second(item: Any) -> Any:
        ran.append(item)
        return item

    @wf.step
    def collect(second: list[Any]) -> list[Any]:
        return second

    with Runtime() as runtime:
        return runtime.run(wf), ran


@pytest.mark.case("C008")
@pytest.mark.parametrize(("source", "expected"), [([], []), ((), []), (["x"], ["x"])])
def test_maps_over_few_elements_complete_in_a_chain(source: Any, expected: list[Any]) -> None:
    result, ran = chained_maps(source)

    assert result.status == "COMPLETED"
    assert result.output("collect") == expected
    assert len(ran) == 2 * len(source)


@pytest.mark.case("C008")
def test_a_map_over_a_generator_fails_and_names_the_type() -> None:
    result, ran = chained_maps(i for i in range(0))

    assert (result.status, ran) == ("FAILED", [])
    assert "generator" in str(result.error)
    assert result.steps["second"].reason == "upstream_failed: first"


def failing_child(attempts: int) -> tuple[Workflow, list[str]]:
    from ares import RetryPolicy

    ran: list[str] = []
    child = Workflow("child")

    @child.step
    def s1() -> int:
        ran.append("s1")
        return 1

    @child.step
    def s2(s1: int) -> int:
        ran.append("s2")
        raise ValueError("x")

    parent = Workflow("parent")
    parent.add(StepSpec("c", workflow=child, retry=RetryPolicy(max_attempts=attempts, initial_delay=0.0)))
    parent.add(StepSpec("d", lambda: ran.append("d"), depends_on=["c"]))
    return parent, ran


@pytest.mark.case("C010")
def test_a_failed_child_fails_its_parent_and_the_errors_tell_the_way_down() -> None:
    parent, ran = failing_child(attempts=1)

    with Runtime() as runtime:
        result = runtime.run(parent)

    assert result.status == "FAILED"
    assert ran == ["s1", "s2"]
    above = result.steps["c"].error
    assert isinstance(above, PartFailedError)
    assert "c/s2" in str(above)
    with pytest.raises(WorkflowFailedError) as caught:
        result.raise_for_status()
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.case("C010")
def test_a_child_that_is_tried_again_repeats_only_what_failed() -> None:
    parent, ran = failing_child(attempts=2)

    with Runtime() as runtime:
        result = runtime.run(parent)

    assert result.status == "FAILED"
    assert ran == ["s1", "s2", "s2"]
