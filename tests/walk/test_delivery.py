"""at_most_once: a body that was cut short never runs again before somebody knows."""

import pytest

from ares.errors import NotDone, OutcomeUnknownError, UsageError
from ares.workflow import Delivery, OnItemFailure, RetryPolicy, Trigger
from tests.walk.flows import flow, nothing, step

ONCE = Delivery.AT_MOST_ONCE
NO = ValueError("no")


def once(id: str, *after: str, reconciles: bool = False, **options):
    return step(id, *after, delivery=ONCE, reconcile=nothing if reconciles else None, **options)


def crashed(walking, workflow, path):
    """A walk in which the process died in the middle of a body, taken up again."""
    hand = walking(workflow)
    hand.start(path)
    hand.crash()
    hand.resume()
    return hand


def test_a_body_cut_short_without_a_reconcile_is_asked_about_and_no_resume_runs_it(walking):
    hand = crashed(walking, flow(once("pay")), "pay")
    assert hand.asks == [("pay", "outcome")]

    for _ in range(3):
        hand.crash()
        hand.resume()
        assert hand.take() == []
        assert hand.asks == [("pay", "outcome")]
        assert hand.rests


def test_a_question_for_an_outcome_that_is_stopped_leaves_it_unknown_and_is_asked_again(walking):
    hand = crashed(walking, flow(once("pay")), "pay")

    for _ in range(3):
        hand.cancel()
        assert hand.end == "CANCELLED"
        assert hand.instance("pay").error.type_name == "OutcomeUnknownError"
        hand.crash()
        hand.resume(reopen=True)
        assert hand.take() == []
        assert hand.asks == [("pay", "outcome")]


def test_naming_the_step_makes_it_run_again_with_a_new_key(walking):
    hand = crashed(walking, flow(once("pay")), "pay")
    born = hand.instance("pay").born
    hand.crash()

    hand.resume(rerun="pay")

    assert hand.instance("pay").born > born
    hand.run("pay")
    assert hand.end == "COMPLETED"


def test_an_exception_leaves_the_outcome_unknown_whatever_the_retry_policy_says(walking):
    hand = walking(flow(once("pay", retry=RetryPolicy(5))))

    hand.run_and_fail("pay", NO)

    assert hand.retries == []
    assert hand.asks == [("pay", "outcome")]
    assert "ValueError: no" in hand.instance("pay").question.message


def test_an_outcome_that_nobody_knows_in_the_end_has_what_cut_it_short_as_its_cause(walking):
    hand = walking(flow(once("pay")))
    hand.run_and_fail("pay", NO)

    hand.cancel()

    error = hand.instance("pay").exception
    assert isinstance(error, OutcomeUnknownError)
    assert error.__cause__ is NO


def test_not_done_says_that_nothing_happened_and_is_retried(walking):
    hand = walking(flow(once("pay", retry=RetryPolicy(2, initial_delay=0.0))))

    hand.run_and_fail("pay", NotDone())
    hand.fire()
    hand.run("pay")

    assert hand.end == "COMPLETED"


def test_a_reconcile_that_returns_gives_the_output(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")

    assert hand.work("pay").kind == "reconcile"
    hand.succeed("pay", "paid before")

    assert hand.instance("pay").output == "paid before"
    assert hand.end == "COMPLETED"


def test_a_reconcile_that_says_not_done_makes_the_body_run_again(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True, retry=RetryPolicy(2))), "pay")

    hand.take()
    hand.fail("pay", NotDone())
    assert [retry.delay for retry in hand.retries] == [0.0]
    hand.fire()
    assert hand.work("pay").kind == "body"
    hand.run("pay")

    assert hand.instance("pay").attempt == 1
    assert hand.end == "COMPLETED"


def test_a_reconcile_that_raises_leaves_the_outcome_unknown(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")

    hand.take()
    hand.fail("pay", KeyError("api"))

    assert hand.error.type_name == "OutcomeUnknownError"
    assert "KeyError" in hand.error.message


def test_after_an_exception_a_reconcile_decides_between_output_retry_and_that_exception(walking):
    wf = flow(once("pay", reconciles=True, retry=RetryPolicy(2, initial_delay=0.0)))
    hand = walking(wf)

    for _ in range(2):
        hand.run_and_fail("pay", NO)
        assert hand.work("pay").kind == "reconcile"
        hand.fail("pay", NotDone())
        hand.fire()

    assert hand.end == "FAILED"
    assert hand.instance("pay").attempt == 2
    assert hand.instance("pay").exception is NO


def test_a_step_set_back_with_an_unknown_outcome_starts_with_its_reconcile(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")
    hand.take()
    hand.fail("pay", KeyError("api"))
    hand.crash()

    hand.resume()

    assert hand.work("pay").kind == "reconcile"
    hand.fail("pay", NotDone())
    hand.fire()
    assert hand.work("pay").kind == "body"


def test_a_crash_in_the_reconcile_asks_again(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")
    hand.take()

    hand.crash()
    hand.resume()

    assert hand.work("pay").kind == "reconcile"


def test_one_crash_too_many_is_found_after_it_is_known_that_nothing_happened(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True, max_crashes=1)), "pay")

    hand.take()
    hand.fail("pay", NotDone())
    hand.fire()

    assert hand.error.type_name == "StepCrashedError"


def test_the_outcome_stays_unknown_when_the_step_is_done_again_as_a_whole(walking):
    """What is upstream of it runs again, so that all of it is dropped and made anew."""
    child = flow(once("pay"), id="child")
    wf = flow(step("first"), step("c", "first", trigger=Trigger.ALWAYS, workflow=child))
    hand = walking(wf)
    hand.run_and_fail("first", NO)
    hand.start("c/pay")
    hand.crash()
    hand.resume()
    assert hand.asks == [("c/pay", "outcome")]
    hand.crash()
    hand.resume(reopen=True)
    assert hand.asks == []

    hand.run("first")

    assert hand.take() == []
    assert hand.asks == [("c/pay", "outcome")]


def test_naming_what_it_lies_in_is_not_naming_it(walking):
    child = flow(once("pay"), id="child")
    hand = crashed(walking, flow(step("c", workflow=child)), "c/pay")
    hand.crash()

    hand.resume(rerun="c")
    assert hand.take() == []
    assert hand.asks == [("c/pay", "outcome")]

    hand.crash()
    hand.resume(rerun=("c", "c/pay"))
    assert hand.take() == ["c/pay"]


@pytest.mark.parametrize("on_item_failure", list(OnItemFailure))
def test_the_outcome_of_an_element_stays_unknown_until_it_or_its_map_is_named(walking, on_item_failure):
    wf = flow(step("list"), once("pay", map_over="list", on_item_failure=on_item_failure))
    hand = walking(wf)
    hand.run("list", ["x"])
    hand.start("pay[0]")
    hand.crash()
    hand.resume()
    assert hand.asks == [("pay[0]", "outcome")]

    for rerun in ("item_failures", ()):
        hand.cancel()
        assert hand.status("pay[0]") == "FAILED"
        hand.crash()
        hand.resume(rerun, reopen=True)
        assert hand.take() == []
        assert hand.asks == [("pay[0]", "outcome")]

    for rerun in ("pay[0]", "pay"):
        hand.crash()
        hand.resume(rerun)
        assert hand.take() == ["pay[0]"]
        hand.start("pay[0]")
        hand.crash()
        hand.resume()


def test_an_always_step_keeps_its_key_while_its_outcome_is_unknown(walking):
    hand = crashed(walking, flow(once("clean", trigger=Trigger.ALWAYS, reconciles=True)), "clean")
    hand.take()
    hand.fail("clean", KeyError("api"))
    born = hand.instance("clean").born
    hand.crash()

    hand.resume()

    assert hand.instance("clean").born == born
    assert hand.work("clean").kind == "reconcile"


def test_a_completed_step_that_would_follow_has_to_be_named(walking):
    hand = walking(flow(step("a"), once("pay", "a")))
    hand.run_all("a", "pay")
    hand.crash()

    with pytest.raises(UsageError, match="'pay'"):
        hand.resume(rerun="a")
    hand.resume(rerun=("a", "pay"))

    hand.run_all("a", "pay")


def test_a_completed_always_step_that_would_follow_has_to_be_named_too(walking):
    hand = walking(flow(step("a"), once("bill", "a", trigger=Trigger.ALWAYS)))
    hand.run_and_fail("a", NO)
    hand.run("bill")
    hand.crash()

    with pytest.raises(UsageError, match="'bill'"):
        hand.resume()
    hand.resume(rerun="bill")

    hand.run_all("a", "bill")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("rerun", ["a", "c"])
def test_a_completed_step_inside_what_is_done_again_has_to_be_named(walking, rerun):
    hand = walking(flow(step("a"), step("c", "a", workflow=flow(once("pay"), id="child"))))
    hand.run_all("a", "c/pay")
    hand.crash()

    with pytest.raises(UsageError, match="'c/pay'"):
        hand.resume(rerun=rerun)
    hand.resume(rerun=(rerun, "c/pay"))


def test_a_completed_step_that_follows_inside_what_opens_again_has_to_be_named(walking):
    child = flow(step("s"), once("bill", "s", trigger=Trigger.ALWAYS), id="child")
    hand = walking(flow(step("c", workflow=child)))
    hand.run_and_fail("c/s", NO)
    hand.run("c/bill")
    hand.crash()

    with pytest.raises(UsageError, match="'c/bill'"):
        hand.resume()
    hand.resume(rerun="c/bill")

    hand.run_all("c/s", "c/bill")
    assert hand.end == "COMPLETED"


def test_the_retry_of_a_child_does_not_run_again_what_completed_at_most_once(walking):
    child = flow(step("s"), once("bill", "s", trigger=Trigger.ALWAYS), id="child")
    hand = walking(flow(step("c", workflow=child, retry=RetryPolicy(2, initial_delay=0.0))))
    hand.run_and_fail("c/s", NO)
    hand.run("c/bill")
    hand.judge("c", retryable=True)
    hand.fire()

    assert hand.take() == ["c/s"]
    hand.run("c/s")
    assert hand.end == "COMPLETED"


def test_a_cancel_leaves_what_is_not_reconciled_unknown(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")

    hand.cancel()
    hand.end_grace()

    assert hand.end == "CANCELLED"
    assert hand.instance("pay").error.type_name == "OutcomeUnknownError"
    hand.crash()
    hand.resume(reopen=True)
    assert hand.work("pay").kind == "reconcile"


def test_what_is_found_not_done_under_a_cancel_was_cut_short(walking):
    hand = crashed(walking, flow(once("pay", reconciles=True)), "pay")
    hand.take()

    hand.cancel()
    hand.fail("pay", NotDone())

    assert hand.instance("pay").error.type_name == "StepCancelledError"
    hand.crash()
    hand.resume(reopen=True)
    assert hand.work("pay").kind == "body"
