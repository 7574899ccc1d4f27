"""When a step runs, given how its dependencies ended, and in which order."""

import pytest

from ares.workflow import Trigger
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import Hand

#: (trigger, how dependencies x and y end, what becomes of z)
TRIGGERS = [
    ("none_failed", "completed", "completed", "COMPLETED"),
    ("none_failed", "completed", "skipped", "COMPLETED"),
    ("none_failed", "skipped", "completed", "COMPLETED"),
    ("none_failed", "skipped", "skipped", "upstream_skipped: x"),
    ("none_failed", "failed", "completed", "upstream_failed: x"),
    ("none_failed", "completed", "failed", "upstream_failed: y"),
    ("none_failed", "skipped", "failed", "upstream_failed: y"),
    ("none_failed", "failed", "failed", "upstream_failed: x"),
    ("none_failed", "blocked", "completed", "upstream_failed: w"),
    ("all_succeeded", "completed", "completed", "COMPLETED"),
    ("all_succeeded", "completed", "skipped", "upstream_skipped: y"),
    ("all_succeeded", "skipped", "skipped", "upstream_skipped: x"),
    ("all_succeeded", "completed", "failed", "upstream_failed: y"),
    ("always", "completed", "completed", "COMPLETED"),
    ("always", "skipped", "skipped", "COMPLETED"),
    ("always", "failed", "failed", "COMPLETED"),
    ("always", "blocked", "failed", "COMPLETED"),
]


def end(hand: Hand, path: str, how: str) -> None:
    """Have a step with a condition end somehow."""
    if how == "blocked":
        hand.run_and_fail("w", ValueError("w"))
        return
    hand.check_condition(path, how != "skipped")
    if how == "completed":
        hand.run(path)
    elif how == "failed":
        hand.run_and_fail(path, ValueError(path))


@pytest.mark.parametrize(("trigger", "x", "y", "expected"), TRIGGERS)
def test_a_trigger_decides_by_how_the_dependencies_ended(walking, trigger, x, y, expected):
    blocker = [step("w")] if "blocked" in (x, y) else []
    first = step("x", *("w" for _ in blocker), condition=nothing)
    hand = walking(flow(*blocker, first, step("y", condition=nothing), step("z", "x", "y", trigger=trigger)))

    end(hand, "x", x)
    end(hand, "y", y)
    if "z" in hand.take():
        hand.run("z")

    assert expected == (hand.reason("z") if hand.status("z") == "SKIPPED" else hand.status("z"))


def test_a_step_is_ready_once_its_last_dependency_ended(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "a", "b")))

    hand.run_all("a")
    assert hand.take() == []

    hand.run_all("b")
    assert hand.take() == ["c"]


def test_a_step_waits_for_no_stranger(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("slow", "a"), step("d", "b")))
    hand.run_all("a", "b")
    hand.start("slow")

    assert hand.take() == ["d"]


def test_ready_steps_come_in_definition_order(walking):
    names = ["e", "c", "a", "d", "b"]
    hand = walking(flow(*(step(name) for name in names)))

    assert hand.take() == names


def test_what_becomes_ready_later_comes_before_what_is_defined_later(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("c"), step("d")))

    assert hand.take(1) == ["a"]
    hand.run("a")

    assert hand.take() == ["b", "c", "d"]


def test_a_dependency_named_twice_is_waited_for_once(walking):
    hand = walking(flow(step("a"), step("b", "a", "a")))

    hand.run_all("a", "b")

    assert hand.end == "COMPLETED"


def test_independent_branches_go_on_after_a_failure(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "a"), step("d", "b")))
    hand.run_and_fail("a", ValueError("no"))

    hand.run_all("b", "d")

    assert hand.reason("c") == "upstream_failed: a"
    assert hand.status("d") == "COMPLETED"
    assert hand.end == "FAILED"


def test_what_is_blocked_keeps_the_reason_of_the_origin(walking):
    hand = walking(flow(step("fetch"), step("a", "fetch"), step("b", "a"), step("c", "b")))

    hand.run_and_fail("fetch", ValueError("no"))

    assert hand.reason("c") == "upstream_failed: fetch"


def test_a_false_condition_skips_the_step_and_blocks_nothing(walking):
    hand = walking(flow(step("a"), step("b", condition=nothing), step("c", "a", "b")))

    hand.check_condition("b", False)
    hand.run_all("a", "c")

    assert hand.reason("b") == "condition"
    assert hand.end == "COMPLETED"


def test_a_condition_that_raises_fails_the_step_and_is_not_asked_again(walking):
    hand = walking(flow(step("a", condition=nothing, retry=None), step("b", "a")))

    hand.take()
    hand.fail("a", ValueError("no"))

    assert hand.status("a") == "FAILED"
    assert hand.instance("a").attempt == 0
    assert hand.reason("b") == "upstream_failed: a"


def test_a_condition_is_asked_once_for_all_attempts_and_processes(walking):
    hand = walking(flow(step("a", condition=nothing)))
    hand.check_condition("a", True)
    hand.start("a")

    hand.crash()
    hand.resume()

    assert hand.work("a").kind == "body"


def test_an_execution_without_steps_is_complete_at_once(walking):
    hand = walking(flow())

    assert hand.end == "COMPLETED"


def test_an_always_step_comes_after_all_that_runs_before_it_even_when_cancelled(walking):
    hand = walking(flow(step("work"), step("more", "work"), step("clean", "more", trigger=Trigger.ALWAYS)))
    hand.start("work")

    hand.cancel()
    assert hand.take() == []  # not while work still runs

    hand.succeed("work")
    assert hand.reason("more") == "cancelled"
    assert hand.take() == ["clean"]


def test_consequences_wait_for_settling_and_come_in_any_order(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "a"), step("d", "b"), step("e", "c", "d")))
    hand.holds_back = True
    hand.take()
    hand.run_all("a", "b")
    assert hand.take() == []

    hand.settle_all(order=[3, 2, 1, 0])

    assert hand.take() == ["c", "d"]


def test_definition_order_goes_through_what_is_inside(walking):
    child = flow(step("a"), step("b"), id="child")
    wf = flow(step("list"), step("m", map_over="list", workflow=child), step("c", workflow=child), step("z"))
    hand = walking(wf)
    assert hand.take() == ["list", "c/a", "c/b", "z"]
    for path in ("c/b", "z", "c/a"):
        hand.walk.put_back(hand.held.pop(path))

    hand.run("list", ["x", "y"])

    assert hand.take() == ["m[0]/a", "m[0]/b", "m[1]/a", "m[1]/b", "c/a", "c/b", "z"]
