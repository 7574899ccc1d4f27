"""Which writes a step sees."""

from ares.workflow import RetryPolicy
from tests.walk.flows import flow, nothing, step

NO = ValueError("no")


def seen(hand, path):
    """The values that an instance sees written."""
    instance = hand.instance(path)
    return [value for _, value, _ in instance.scope.writes[: instance.snapshot]]


def logging(*steps):
    return flow(*steps, variables={"log": []}, reducers={"log": "append"})


def test_a_step_sees_what_was_written_when_it_became_ready(walking):
    hand = walking(logging(step("a", writes=["log"]), step("b", writes=["log"]), step("c", "a")))
    hand.run("a", writes=[("log", 1)])
    assert hand.take() == ["c"]

    hand.run("b", writes=[("log", 2)])

    assert seen(hand, "c") == [1]
    hand.run("c")


def test_a_retry_sees_the_same(walking):
    wf = logging(step("a", writes=["log"]), step("b", retry=RetryPolicy(2, initial_delay=0.0)))
    hand = walking(wf)
    hand.take()
    hand.run_and_fail("b", NO)
    hand.run("a", writes=[("log", 1)])

    hand.fire()
    hand.start("b")

    assert seen(hand, "b") == []
    hand.succeed("b")


def test_all_elements_see_the_same(walking):
    hand = walking(logging(step("a", writes=["log"]), step("list"), step("m", map_over="list")))
    hand.take()
    hand.run("list", ["x", "y"])
    hand.run("m[0]")

    hand.run("a", writes=[("log", 1)])
    hand.start("m[1]")

    assert seen(hand, "m[1]") == []
    hand.succeed("m[1]")


def test_writes_of_a_failed_attempt_are_none(walking):
    hand = walking(logging(step("a", writes=["log"])))

    hand.run_and_fail("a", NO)

    assert hand.walk.state.root.writes == []


def test_after_a_resume_a_step_sees_all_that_its_dependencies_wrote(walking):
    wf = logging(step("a", writes=["log"]), step("b", "a", retry=RetryPolicy(2, initial_delay=1.0)))
    hand = walking(wf)
    hand.run("a", writes=[("log", 1)])
    hand.run_and_fail("b", NO)

    hand.crash()
    hand.resume()
    hand.fire()

    assert seen(hand, "b") == [1]


def test_a_router_sees_what_its_own_step_wrote(walking):
    wf = logging(step("p", writes=["log"], branches=["a"]), step("a", "p"))
    hand = walking(wf)

    hand.run("p", writes=[("log", 1)])
    hand.take()

    assert seen(hand, "p") == [1]


def test_a_condition_sees_what_its_step_would(walking):
    hand = walking(logging(step("a", writes=["log"]), step("b", "a", condition=nothing)))

    hand.run("a", writes=[("log", 1)])
    hand.take()

    assert seen(hand, "b") == [1]
