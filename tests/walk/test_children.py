"""Sub-workflows: their steps join the walk, at any depth, and no worker waits for them."""

import pytest

from ares.errors import IllegalTransition, PartFailedError, StepTimeoutError
from ares.walk.facts import DeadlinePassed
from ares.workflow import Delivery, OnItemFailure, RetryPolicy, StepSpec, Trigger, Workflow
from tests.walk.flows import flow, step
from tests.walk.hand import Hand

NO = ValueError("x")
AGAIN = RetryPolicy(2, initial_delay=0.0)


def parent(child, **options):
    """A sub-workflow step with a step behind it."""
    return flow(step("c", workflow=child, **options), step("d", "c"), id="parent")


def chain():
    return flow(step("s1"), step("s2", "s1"), id="child")


def test_a_child_runs_under_its_parents_path_and_gives_the_outputs_of_its_sinks(walking):
    hand = walking(parent(flow(step("a"), step("b", "a"), step("c", "a"), id="child")))

    hand.run("c/a", 1)
    hand.run("c/b", 2)
    hand.run("c/c", 3)

    assert hand.instance("c").output == {"b": 2, "c": 3}
    assert hand.take() == ["d"]


def test_a_sink_that_was_skipped_gives_none(walking):
    hand = walking(parent(flow(step("p", branches=["a"]), step("a", "p"), step("b"), id="child")))

    hand.run("c/p", goto=[])
    hand.run("c/b", 1)

    assert hand.instance("c").output == {"a": None, "b": 1}


def test_an_empty_child_completes_at_once(walking):
    hand = walking(parent(flow(id="child")))

    assert hand.instance("c").output == {}
    assert hand.take() == ["d"]


@pytest.mark.case("C004")
def test_one_id_in_two_children_is_two_steps(walking):
    hand = walking(flow(step("one", workflow=flow(step("s"), id="x")), step("two", workflow=flow(step("s"), id="y"))))

    hand.run("one/s", 1)
    hand.run("two/s", 2)

    assert hand.instance("one").output == {"s": 1}
    assert hand.instance("two").output == {"s": 2}


@pytest.mark.case("C009")
@pytest.mark.parametrize("depth", [2, 10, 100])
def test_a_child_of_any_depth_completes_with_one_worker(walking, depth):
    inner = flow(step("a"), step("b"), step("join", "a", "b"), id="w0")
    for i in range(depth):
        inner = flow(step("sub", workflow=inner), id=f"w{i + 1}")
    hand = walking(inner)
    path = "sub/" * depth

    for name in ("a", "b", "join"):
        assert hand.take(1) == [path + name]
        hand.run(path + name, name)

    assert hand.end == "COMPLETED"
    output = hand.instance("sub").output
    for _ in range(depth - 1):
        output = output["sub"]
    assert output == {"join": "join"}


@pytest.mark.case("C010")
def test_a_child_that_failed_fails_its_parent_and_the_chain_names_what_it_was(walking):
    hand = walking(parent(chain()))

    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)

    assert hand.status("c") == "FAILED"
    assert hand.reason("d") == "upstream_failed: c"
    assert hand.end == "FAILED"
    error = hand.instance("c").exception
    assert isinstance(error, PartFailedError)
    assert error.part == "c/s2"
    assert error.__cause__ is NO
    assert "ValueError: x" in str(error)
    assert hand.error.type_name == "ValueError"


@pytest.mark.case("C010")
def test_a_retry_of_a_child_repeats_only_what_failed(walking):
    hand = walking(parent(chain(), retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)

    assert hand.work("c").kind == "verdict"
    assert hand.work("c").instance.exception.__cause__ is NO
    hand.judge("c", retryable=True)
    hand.fire()
    assert hand.take() == ["c/s2"]
    hand.run("c/s2")
    hand.run("d")

    started = [fact.path for fact in hand.facts if fact.kind == "started"]
    assert started == ["c/s1", "c/s2", "c/s2", "d"]
    assert hand.instance("c").attempt == 2
    assert hand.end == "COMPLETED"


def test_a_retry_of_a_child_does_not_do_again_what_must_not_be_done_twice(walking):
    """Not even behind what is tried again: nobody named it."""
    clean_up = step("once", "fails", delivery=Delivery.AT_MOST_ONCE, trigger=Trigger.ALWAYS)
    hand = walking(parent(flow(step("fails"), clean_up), retry=AGAIN))
    hand.run_and_fail("c/fails", NO)
    hand.run("c/once")

    hand.judge("c", retryable=True)
    hand.fire()
    hand.check()
    hand.run("c/fails")
    hand.run("d")

    started = [fact.path for fact in hand.facts if fact.kind == "started"]
    assert started == ["c/fails", "c/once", "c/fails", "d"]
    assert hand.end == "COMPLETED"


@pytest.mark.case("C010")
def test_a_child_that_fails_again_fails_for_good(walking):
    hand = walking(parent(chain(), retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)
    hand.judge("c", retryable=True)
    hand.fire()

    hand.run_and_fail("c/s2", NO)

    assert hand.status("c") == "FAILED"
    assert sum(fact.kind == "started" and fact.path == "c/s2" for fact in hand.facts) == 2


def test_a_child_whose_failure_is_not_to_be_retried_is_not(walking):
    hand = walking(parent(chain(), retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)

    hand.judge("c", retryable=False)

    assert hand.end == "FAILED"


def test_what_is_blocked_and_what_follows_runs_again_with_what_failed(walking):
    child = flow(
        step("s1"),
        step("s2", "s1"),
        step("s3", "s2"),
        step("clean", "s2", trigger=Trigger.ALWAYS),
        step("own"),
        id="child",
    )
    hand = walking(parent(child, retry=AGAIN))
    hand.run_all("c/s1", "c/own")
    hand.run_and_fail("c/s2", NO)
    hand.run("c/clean")
    hand.judge("c", retryable=True)
    hand.fire()

    hand.run_all("c/s2", "c/s3", "c/clean")

    assert hand.status("c") == "COMPLETED"
    assert sum(fact.kind == "started" and fact.path == "c/own" for fact in hand.facts) == 1


def test_an_always_step_of_a_child_that_runs_again_has_forgotten_what_it_did_once(walking):
    child = flow(step("s"), step("clean", "s", trigger=Trigger.ALWAYS), id="child")
    hand = walking(parent(child, retry=AGAIN))
    hand.run_and_fail("c/s", NO)
    hand.run("c/clean")
    before = hand.instance("c/clean").born, hand.instance("c/s").born
    hand.judge("c", retryable=True)
    hand.fire()

    assert hand.instance("c/clean").born > before[0]
    assert hand.instance("c/s").born == before[1]


def test_a_late_message_from_before_a_retry_is_known_by_its_epoch(walking):
    hand = walking(parent(chain(), retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)
    late = hand.facts[-1]
    hand.judge("c", retryable=True)
    hand.fire()
    hand.start("c/s2")

    assert not hand.walk.state.accepts(late, hand.instance("c/s2"))


def test_a_verdict_that_was_asked_for_at_a_crash_is_asked_for_again(walking):
    hand = walking(parent(chain(), retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)

    hand.crash()
    hand.resume()

    assert hand.work("c").kind == "verdict"
    assert str(hand.work("c").instance.exception.__cause__) == "ValueError: x"


def test_a_child_has_a_deadline_that_covers_all_of_it(walking):
    child = flow(step("a"), step("b", "a"), step("clean", "b", trigger=Trigger.ALWAYS), id="child")
    hand = walking(parent(child, timeout=5.0))
    assert [(t.instance.path, t.timeout) for t in hand.timers] == [("c", 5.0)]
    hand.start("c/a")

    hand.deadline("c")
    assert [cut.instance.path for cut in hand.cuts] == ["c/a"]
    hand.end_grace()
    hand.run("c/clean")

    assert hand.reason("c/b") == "timeout"
    error = hand.instance("c").exception
    assert isinstance(error, StepTimeoutError)
    assert (error.path, error.timeout) == ("c", 5.0)
    assert hand.end == "FAILED"


def test_a_child_that_was_done_before_its_deadline_completed(walking):
    hand = walking(parent(flow(step("a"), id="child"), timeout=5.0))
    hand.start("c/a")

    hand.deadline("c")
    hand.succeed("c/a")

    assert hand.status("c") == "COMPLETED"


def test_a_child_out_of_time_is_retried_with_a_new_deadline(walking):
    hand = walking(parent(flow(step("a"), step("b", "a"), id="child"), timeout=5.0, retry=AGAIN))
    hand.start("c/a")
    hand.deadline("c")
    hand.succeed("c/a")
    hand.judge("c", retryable=True)
    hand.fire()

    assert len(hand.timers) == 2
    first, second = hand.timers
    assert second.epoch > first.epoch == 0  # so that the first one cannot end the second attempt
    hand.run_all("c/b", "d")
    assert hand.end == "COMPLETED"


def test_a_deadline_of_an_attempt_that_is_over_is_refused(walking):
    hand = walking(parent(chain(), timeout=5.0, retry=AGAIN))
    hand.run("c/s1")
    hand.run_and_fail("c/s2", NO)
    old = DeadlinePassed("c", 5.0, hand.timers[0].epoch)
    hand.judge("c", retryable=True)
    hand.fire()

    with pytest.raises(IllegalTransition, match="epoch"):
        hand.walk.apply(old)


def test_every_element_of_a_map_may_be_a_child(walking):
    child = flow(step("parse"), step("check", "parse"), id="child")
    wf = flow(step("list"), step("audit", map_over="list", workflow=child), step("after", "audit"))
    hand = walking(wf)
    hand.run("list", ["x", "y"])

    for i in range(2):
        hand.run(f"audit[{i}]/parse")
        hand.run(f"audit[{i}]/check", i)

    assert hand.instance("audit").output == [{"check": 0}, {"check": 1}]
    assert hand.take() == ["after"]


def test_an_element_with_a_child_keeps_its_place_until_the_child_is_done(walking):
    wf = flow(step("list"), step("m", map_over="list", workflow=flow(step("a"), step("b"), id="c"), max_concurrency=1))
    hand = walking(wf)
    hand.run("list", ["x", "y"])

    assert hand.take() == ["m[0]/a", "m[0]/b"]
    hand.run_all("m[0]/a", "m[0]/b")
    assert hand.take() == ["m[1]/a", "m[1]/b"]


def test_a_failed_element_with_a_child_can_be_collected(walking):
    wf = flow(
        step("list"),
        step("m", map_over="list", workflow=flow(step("a"), id="c"), on_item_failure=OnItemFailure.COLLECT),
    )
    hand = walking(wf)
    hand.run("list", ["x", "y"])

    hand.run_and_fail("m[0]/a", NO)
    hand.run("m[1]/a")

    assert hand.end == "COMPLETED"
    assert hand.instance("m").output[0].error.__cause__ is NO


def test_fail_fast_of_a_child_acts_inside_it(walking):
    child = flow(step("a"), step("b"), step("b2", "b"), id="child", fail_fast=True)
    hand = walking(flow(step("c", workflow=child), step("other"), step("more", "other")))
    hand.take()
    hand.start("c/b")
    hand.run_and_fail("c/a", NO)

    hand.succeed("c/b")

    assert hand.reason("c/b2") == "fail_fast"
    hand.run_all("other", "more")
    assert hand.status("more") == "COMPLETED"


def test_a_child_under_fail_fast_that_failed_of_itself_is_retried(walking):
    child = flow(step("a"), step("b", "a"), id="child", fail_fast=True)
    hand = walking(parent(child, retry=AGAIN))
    hand.run_and_fail("c/a", NO)
    hand.judge("c", retryable=True)
    hand.fire()

    hand.run_all("c/a", "c/b", "d")

    assert hand.end == "COMPLETED"


def test_variables_are_a_childs_own(walking):
    child = Workflow("child", variables={"v": 0})
    child.add(StepSpec("a", run=lambda: None, writes=["v"]))
    hand = walking(flow(step("c", workflow=child), variables={"v": 1}))

    hand.run("c/a", writes=[("v", 2)])

    assert hand.walk.state.root.writes == []
    assert [(n, v) for n, v, _ in hand.instance("c").child.writes] == [("v", 2)]


def test_children_go_on_where_a_crash_left_them(walking):
    inner = flow(step("s1"), step("s2", "s1"), step("s3", "s2"), id="inner")
    hand = walking(flow(step("p1"), step("sub", "p1", workflow=inner), step("p2", "sub")))
    hand.run_all("p1", "sub/s1", "sub/s2")
    hand.start("sub/s3")

    hand.crash()
    hand.resume()
    assert hand.take() == ["sub/s3"]
    hand.run("sub/s3")
    hand.start("p2")
    hand.crash()
    hand.resume()

    assert hand.take() == ["p2"]
    started = [fact.path for fact in hand.facts if isinstance(hand, Hand) and fact.kind == "started"]
    assert started.count("p1") == started.count("sub/s1") == started.count("sub/s2") == 1
