"""Cancels, deadlines and fail_fast: what does not begin any more, what is cut short, what goes on."""

import pytest

from ares.errors import ExecutionTimeoutError, IllegalTransition, StepCancelledError
from ares.walk.conclude import unfinished
from ares.walk.facts import CancelRequested, DeadlinePassed, Started
from ares.workflow import OnItemFailure, RetryPolicy, Trigger
from tests.walk.flows import flow, nothing, step

NO = ValueError("no")
ALWAYS = Trigger.ALWAYS


# --- cancel ---------------------------------------------------------------------------------------


def test_a_cancel_skips_what_has_not_begun_and_asks_what_runs_to_end(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("c")))
    hand.start("a")

    hand.cancel("enough")

    assert hand.reason("c") == "cancelled"
    assert [(cut.instance.path, cut.reason) for cut in hand.cuts if cut.instance.phase == "running"] == [
        ("a", "cancelled")
    ]
    hand.succeed("a")
    assert hand.status("a") == "COMPLETED"
    assert hand.reason("b") == "cancelled"
    assert hand.end == "CANCELLED"
    assert hand.error.message == "enough"


def test_what_does_not_end_within_the_grace_fails_and_always_steps_behind_it_run(walking):
    hand = walking(flow(step("a"), step("clean", "a", trigger=ALWAYS)))
    hand.start("a")

    hand.cancel()
    assert hand.take() == []
    hand.end_grace()

    assert isinstance(hand.instance("a").exception, StepCancelledError)
    hand.run("clean")
    assert hand.end == "CANCELLED"


def test_an_always_step_that_runs_is_not_asked_to_end_and_keeps_its_retries(walking):
    wf = flow(step("clean", trigger=ALWAYS, retry=RetryPolicy(2, initial_delay=0.0)), step("b", "clean"))
    hand = walking(wf)
    hand.start("clean")

    hand.cancel()
    assert not hand.cuts
    hand.fail("clean", NO)
    hand.fire()
    hand.run("clean")

    assert hand.status("clean") == "COMPLETED"
    assert hand.end == "CANCELLED"


def test_what_is_inside_an_always_step_goes_on(walking):
    child = flow(step("a"), step("b", "a"), id="child")
    wf = flow(
        step("list"),
        step("c", workflow=child, trigger=ALWAYS),
        step("m", map_over="list", trigger=ALWAYS),
    )
    hand = walking(wf)
    hand.run("list", ["x", "y"])
    hand.start("c/a")
    hand.run("m[0]")

    hand.cancel()

    hand.succeed("c/a")
    hand.run_all("c/b", "m[1]")
    assert hand.status("c") == hand.status("m") == "COMPLETED"
    assert hand.end == "CANCELLED"


def test_a_step_that_waits_for_its_retry_is_cut_short_at_once(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(3))))
    hand.run_and_fail("a", NO)

    hand.cancel()

    error = hand.instance("a").exception
    assert isinstance(error, StepCancelledError)
    assert error.__cause__ is NO
    assert hand.end == "CANCELLED"
    hand.fire()  # too late
    assert hand.take() == []


def test_a_failure_during_the_grace_is_not_retried(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(3))))
    hand.start("a")

    hand.cancel()
    hand.fail("a", NO)

    assert isinstance(hand.instance("a").exception, StepCancelledError)
    assert "ValueError: no" in str(hand.instance("a").exception)


def test_a_last_failure_during_the_grace_is_its_own(walking):
    hand = walking(flow(step("a")))
    hand.start("a")

    hand.cancel()
    hand.fail("a", NO)

    assert hand.instance("a").exception is NO


def test_a_route_that_is_asked_for_is_left_for_the_resume(walking):
    hand = walking(flow(step("p", branches=["a"], router=nothing), step("a", "p")))
    hand.run("p", "kept")
    hand.take()

    hand.cancel()

    assert hand.status("p") == "COMPLETED"
    assert hand.reason("a") == "cancelled"
    assert hand.end == "CANCELLED"
    hand.crash()
    hand.resume(reopen=True)
    hand.route("p", "a")
    hand.run("a")
    assert hand.end == "COMPLETED"
    assert hand.instance("p").output == "kept"


def test_a_condition_that_is_being_asked_is_cut_short_and_its_answer_is_refused(walking):
    hand = walking(flow(step("a", condition=nothing)))
    hand.take()

    hand.cancel()

    assert hand.reason("a") == "cancelled"
    assert [cut.instance.path for cut in hand.cuts] == ["a"]


def test_nothing_begins_after_a_cancel_even_before_its_consequences(walking):
    hand = walking(flow(step("a"), step("b", retry=RetryPolicy(2, initial_delay=0.0))))
    hand.take()
    hand.run_and_fail("b", NO)
    hand.holds_back = True

    hand.cancel()

    work = hand.held["a"]
    assert not hand.walk.state.accepts(Started("a", 1, work.epoch, 1), work.instance)
    hand.fire()
    assert hand.take() == []
    hand.settle_all()


def test_no_condition_is_asked_after_a_cancel_even_before_its_consequences(walking):
    hand = walking(flow(step("a", condition=nothing), step("b", condition=nothing)))
    assert hand.take(1) == ["a"]
    hand.holds_back = True

    hand.cancel()

    assert hand.take() == []
    hand.settle_all()


def test_only_the_first_cancel_counts_and_none_after_the_end(walking):
    hand = walking(flow(step("a")))
    hand.cancel("first")
    hand.cuts.clear()

    with pytest.raises(IllegalTransition):
        hand.walk.apply(CancelRequested("second"))

    assert hand.walk.state.cancelled == "first"


def test_a_cancelled_child_is_cut_short_and_its_completed_steps_stay_when_reopened(walking):
    child = flow(step("s1"), step("s2", "s1"), step("s3", "s2"), id="child")
    hand = walking(flow(step("c", workflow=child), step("d", "c")))
    hand.run("c/s1")
    hand.start("c/s2")
    hand.cancel()
    hand.succeed("c/s2")

    assert isinstance(hand.instance("c").exception, StepCancelledError)
    assert hand.end == "CANCELLED"

    hand.crash()
    hand.resume(reopen=True)
    assert hand.take() == ["c/s3"]
    hand.run_all("c/s3", "d")
    assert hand.end == "COMPLETED"


def test_a_child_that_failed_before_a_cancel_failed_of_itself(walking):
    hand = walking(flow(step("c", workflow=flow(step("a"), step("b"), id="child"))))
    hand.take()
    hand.start("c/b")
    hand.run_and_fail("c/a", NO)

    hand.cancel()
    hand.end_grace()

    assert hand.instance("c").exception.part == "c/a"


def test_a_cancelled_execution_that_crashed_goes_on_being_cancelled(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("clean", "b", trigger=ALWAYS)))
    hand.start("a")
    hand.cancel()

    hand.crash()
    hand.resume()

    assert hand.reason("a") == hand.reason("b") == "cancelled"
    hand.run("clean")
    assert hand.end == "CANCELLED"


def test_a_cancel_that_was_not_finished_can_be_reopened(walking):
    child = flow(step("s1"), step("s2"), step("s3", "s2"), id="child")
    wf = flow(step("c", workflow=child), step("list"), step("m", map_over="list"), step("z", "c", "m"))
    hand = walking(wf)
    hand.run("list", ["x", "y"])
    hand.run("c/s1")
    hand.start("c/s2")
    hand.start("m[0]")
    hand.cancel()

    hand.crash()
    hand.resume(reopen=True)

    assert hand.take() == ["c/s2", "m[0]", "m[1]"]
    hand.run_all("c/s2", "c/s3", "m[0]", "m[1]", "z")
    assert hand.end == "COMPLETED"


# --- deadlines --------------------------------------------------------------------------------------


def test_at_its_deadline_an_execution_skips_cuts_and_names_what_it_did_not_get_done(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "b"), step("clean", "b", trigger=ALWAYS)))
    hand.run("a")
    hand.start("b")

    hand.deadline(seconds=3.0)
    hand.end_grace()
    hand.run("clean")

    assert hand.reason("c") == "timeout"
    assert hand.end == "FAILED"
    assert hand.error.type_name == ExecutionTimeoutError.__name__
    assert "'b', 'c'" in hand.error.message
    assert unfinished(hand.walk.state) == ("b", "c")


def test_what_was_not_done_is_known_after_a_replay_too(walking):
    hand = walking(flow(step("a"), step("b", "a")))
    hand.start("a")
    hand.deadline()
    hand.end_grace()

    hand.crash()

    assert unfinished(hand.walk.state) == ("a", "b")
    hand.resume()


def test_a_deadline_that_passed_before_a_crash_still_ends_the_execution(walking):
    hand = walking(flow(step("a"), step("b", "a")))
    hand.start("a")
    hand.deadline()

    hand.crash()
    hand.resume()

    assert hand.end == "FAILED"
    assert hand.error.type_name == "ExecutionTimeoutError"
    hand.crash()
    hand.resume()  # and only then does it go on
    hand.run_all("a", "b")
    assert hand.end == "COMPLETED"


def test_a_childs_deadline_that_passed_before_a_crash_still_ends_the_child(walking):
    child = flow(step("a"), step("b", "a"), id="child")
    hand = walking(flow(step("c", workflow=child, timeout=5.0)))
    hand.start("c/a")
    hand.deadline("c")

    hand.crash()
    hand.resume()

    assert hand.instance("c").error.type_name == "StepTimeoutError"


def test_a_deadline_is_for_a_child_that_is_open(walking):
    hand = walking(flow(step("a")))

    for path in ("a", "nowhere"):
        with pytest.raises(IllegalTransition):
            hand.walk.apply(DeadlinePassed(path, 1.0))


# --- fail_fast --------------------------------------------------------------------------------------


def test_fail_fast_starts_nothing_new_and_lets_what_began_end(walking):
    hand = walking(
        flow(step("a"), step("b"), step("b2", "b"), step("c"), step("clean", "b2", trigger=ALWAYS), fail_fast=True)
    )
    hand.take()
    hand.start("b")

    hand.run_and_fail("a", NO)

    assert hand.reason("c") == "fail_fast"
    assert not hand.cuts
    hand.held.pop("c")
    hand.succeed("b")
    assert hand.reason("b2") == "fail_fast"
    hand.run("clean")
    assert hand.end == "FAILED"


def test_what_depends_on_the_failure_is_skipped_because_of_it(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("c"), fail_fast=True))

    hand.run_and_fail("a", NO)

    assert hand.reason("b") == "upstream_failed: a"
    assert hand.reason("c") == "fail_fast"


def test_a_failure_bars_at_once_what_was_handed_out(walking):
    hand = walking(flow(step("a"), step("b"), fail_fast=True))
    hand.holds_back = True
    hand.take()

    hand.run_and_fail("a", NO)

    work = hand.held["b"]
    assert not hand.walk.state.accepts(Started("b", 1, work.epoch, 1), work.instance)
    hand.settle_all()


def test_a_step_that_began_may_use_its_retries_under_fail_fast(walking):
    hand = walking(flow(step("a"), step("b", retry=RetryPolicy(2, initial_delay=0.0)), fail_fast=True))
    hand.take()
    hand.start("b")
    hand.run_and_fail("a", NO)

    hand.fail("b", NO)
    hand.fire()
    hand.run("b")

    assert hand.status("b") == "COMPLETED"


def test_a_missing_route_is_a_failure_to_fail_fast(walking):
    hand = walking(flow(step("p", branches=["a"]), step("a", "p"), step("b"), fail_fast=True))
    hand.run("p")

    hand.route("p", None)

    assert hand.reason("b") == "fail_fast"


def test_fail_fast_starts_nothing_new_inside_what_is_open_and_resumes_it_later(walking):
    child = flow(step("s1"), step("s2", "s1"), id="child")
    wf = flow(
        step("list"),
        step("c", workflow=child, retry=RetryPolicy(5, initial_delay=0.0)),
        step("m", map_over="list"),
        step("x"),
        fail_fast=True,
    )
    hand = walking(wf)
    hand.run("list", ["x", "y"])
    hand.take()
    hand.start("c/s1")
    hand.start("m[0]")
    hand.run_and_fail("x", NO)
    hand.held.pop("m[1]")

    hand.succeed("c/s1")
    hand.succeed("m[0]", 0)

    assert hand.reason("c/s2") == "fail_fast"
    assert isinstance(hand.instance("c").exception, StepCancelledError)
    assert isinstance(hand.instance("m").exception, StepCancelledError)
    assert hand.end == "FAILED"
    hand.crash()
    hand.resume()
    hand.run_all("c/s2", "m[1]", "x")
    assert hand.end == "COMPLETED"


def test_fail_fast_of_a_parent_does_not_retry_a_child(walking):
    child = flow(step("s"), id="child")
    wf = flow(step("c", workflow=child, retry=RetryPolicy(2)), step("x"), fail_fast=True)
    hand = walking(wf)
    hand.run_and_fail("c/s", NO)
    hand.judge("c", retryable=True)

    hand.run_and_fail("x", NO)

    assert hand.status("c") == "FAILED"
    assert hand.end == "FAILED"


def test_fail_fast_holds_after_a_crash(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "b"), fail_fast=True))
    hand.take()
    hand.start("b")
    hand.holds_back = True
    hand.run_and_fail("a", NO)

    hand.crash()
    hand.resume()

    assert hand.reason("b") == "fail_fast"
    assert hand.end == "FAILED"


def test_a_collected_failure_is_none_to_fail_fast(walking):
    wf = flow(
        step("list"), step("m", map_over="list", on_item_failure=OnItemFailure.COLLECT), step("z", "m"), fail_fast=True
    )
    hand = walking(wf)
    hand.run("list", ["x"])

    hand.run_and_fail("m[0]", NO)
    hand.run("z")

    assert hand.end == "COMPLETED"
