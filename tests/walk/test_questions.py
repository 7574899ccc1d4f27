"""Questions to a human: when a step asks, and what follows from each answer."""

import attrs
import pytest

from ares.errors import IllegalTransition, NotDone
from ares.questions import Approve, Cause, Interrupt, Reject, RunAgain
from ares.walk import facts as f
from ares.workflow import Delivery, OnItemFailure, OnNoRoute, RetryPolicy, Trigger
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import answered
from tests.walk.snapshot import snapshot

ONCE = Delivery.AT_MOST_ONCE
NO = ValueError("no")
YES = Approve()


def reply(path: str, hand):
    """The answer Yes to what a path asks now, or asked last."""
    return answered(hand.instance(path).question, YES)


# --- before a step ---------------------------------------------------------------------------------------------


def test_a_step_asks_before_anything_of_it_begins(walking):
    hand = walking(flow(step("a", interrupt="Really?")))

    assert hand.take() == []
    assert hand.status("a") == "WAITING"
    assert hand.instance("a").attempt == 0
    hand.reply("a", YES)
    hand.run("a")
    assert hand.end == "COMPLETED"


def test_a_question_has_the_words_and_the_payload_of_the_step(walking):
    hand = walking(flow(step("a", interrupt=Interrupt("Really?", {"sum": "7"})), step("b", interrupt="Sure?")))

    asked, plain = hand.instance("a").question, hand.instance("b").question
    assert (asked.message, asked.payload, asked.key, asked.cause) == ("Really?", {"sum": "7"}, "", Cause.BEFORE)
    assert (plain.message, plain.payload) == ("Sure?", None)


def test_a_step_asks_once_its_dependencies_have_ended_and_its_condition_holds(walking):
    hand = walking(flow(step("a"), step("b", "a", interrupt="?", condition=nothing)))

    assert hand.asks == []
    hand.run("a")
    assert hand.asks == []
    hand.check_condition("b", True)
    assert hand.asks == [("b", "")]


def test_a_step_whose_condition_is_false_asks_nobody(walking):
    hand = walking(flow(step("a", interrupt="?", condition=nothing)))

    hand.check_condition("a", False)

    assert (hand.asks, hand.reason("a")) == ([], "condition")


def test_a_map_asks_once_and_its_elements_do_not(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", interrupt="?")))
    hand.run("list", ["x", "y"])

    assert hand.asks == [("m", "")]
    hand.reply("m", YES)
    hand.run_all("m[0]", "m[1]")
    assert [fact.path for fact in hand.facts if isinstance(fact, f.Asked)] == ["m"]
    assert hand.end == "COMPLETED"


def test_a_sub_workflow_asks_before_it_opens_and_its_steps_for_themselves(walking):
    child = flow(step("x", interrupt="?"), id="child")
    hand = walking(flow(step("c", workflow=child, interrupt="?")))

    assert hand.asks == [("c", "")]
    hand.reply("c", YES)
    assert hand.asks == [("c/x", "")]
    hand.reply("c/x", YES)
    hand.run("c/x")
    assert hand.end == "COMPLETED"


def test_each_step_inside_the_elements_of_a_map_asks(walking):
    child = flow(step("x", interrupt="?"), id="child")
    hand = walking(flow(step("list"), step("m", map_over="list", workflow=child)))
    hand.run("list", [1, 2])
    hand.take()

    assert hand.asks == [("m[0]/x", ""), ("m[1]/x", "")]
    hand.reply("m[1]/x", YES)
    hand.reply("m[0]/x", YES)
    hand.run_all("m[0]/x", "m[1]/x")
    assert hand.end == "COMPLETED"


def test_a_step_that_is_retried_does_not_ask_again(walking):
    hand = walking(flow(step("a", interrupt="?", retry=RetryPolicy(2, initial_delay=0.0))))
    hand.reply("a", YES)

    hand.run_and_fail("a", NO)
    hand.fire()
    hand.run("a")

    assert hand.end == "COMPLETED"


def test_the_rest_goes_on_while_a_step_waits(walking):
    hand = walking(flow(step("a", interrupt="?"), step("b"), step("c", "b"), step("d", "a", "c")))

    hand.run_all("b", "c")

    assert hand.rests
    assert hand.end == ""
    hand.reply("a", YES)
    hand.run_all("a", "d")
    assert hand.end == "COMPLETED"


# --- in a body -------------------------------------------------------------------------------------------------


def test_a_body_that_asks_is_parked_and_runs_again_with_the_answer_in_the_same_attempt(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(3))))
    hand.start("a")

    hand.ask("a", "price")
    assert (hand.status("a"), hand.take()) == ("WAITING", [])
    hand.reply("a", Approve(7))
    assert hand.status("a") == "WAITING"
    instance = hand.go_on("a")

    assert hand.status("a") == "RUNNING"
    assert instance.attempt == 1
    assert {key: answer.value for key, answer in instance.answers.items()} == {"price": 7}
    hand.succeed("a")
    assert hand.end == "COMPLETED"


def test_a_body_asks_one_thing_after_the_other_and_keeps_every_answer(walking):
    hand = walking(flow(step("a")))
    hand.start("a")

    for number, key in enumerate(("one", "two", "three")):
        hand.ask("a", key)
        assert hand.asks == [("a", key)]
        hand.reply("a", Approve(number))
        hand.go_on("a")

    assert [answer.value for answer in hand.instance("a").answers.values()] == [0, 1, 2]
    hand.succeed("a")


def test_a_body_may_call_its_question_what_unknown_outcomes_are_called(walking):
    hand = walking(flow(step("a")))
    hand.start("a")

    hand.ask_and_hear("a", Approve(7), "outcome")

    assert hand.instance("a").answers["outcome"].value == 7


def test_answers_outlive_a_failed_attempt(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2, initial_delay=0.0))))
    hand.start("a")
    hand.ask_and_hear("a", YES)
    hand.fail("a", NO)

    hand.fire()
    hand.start("a")

    assert (hand.instance("a").attempt, list(hand.instance("a").answers)) == (2, ["k"])


def test_a_no_that_the_body_wants_to_hear_has_it_run_again(walking):
    hand = walking(flow(step("a")))
    hand.start("a")

    hand.ask("a", on_reject="return")
    hand.reply("a", Reject("too much", value=3))
    hand.go_on("a")

    assert hand.instance("a").answers["k"].feedback == "too much"
    hand.succeed("a")
    assert hand.end == "COMPLETED"


def test_writes_of_a_parked_run_are_no_part_of_its_question(walking):
    hand = walking(flow(step("a", writes=("v",)), variables={"v": 0}))
    hand.start("a")
    hand.ask_and_hear("a", YES)

    assert hand.walk.state.root.writes == []
    hand.succeed("a", writes=(("v", 1),))
    assert [write[:2] for write in hand.walk.state.root.writes] == [("v", 1)]


# --- places of a map -------------------------------------------------------------------------------------------


def test_an_element_that_waits_frees_its_place_and_needs_one_again(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", max_concurrency=1)))
    hand.run("list", [0, 1, 2])
    hand.start("m[0]")
    assert hand.take() == []

    hand.ask("m[0]")
    assert not hand.rests
    hand.start("m[1]")
    hand.reply("m[0]", YES)
    assert hand.take() == []
    hand.succeed("m[1]")

    assert hand.take() == ["m[0]"]
    hand.go_on("m[0]")
    hand.succeed("m[0]")
    hand.run("m[2]")
    assert hand.end == "COMPLETED"


def test_a_parked_element_that_was_taken_can_be_put_back(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", max_concurrency=1)))
    hand.run("list", [0])
    hand.start("m[0]")
    hand.ask("m[0]")
    hand.reply("m[0]", YES)
    assert hand.take() == ["m[0]"]

    hand.walk.put_back(hand.held.pop("m[0]"))

    hand.go_on("m[0]")
    hand.succeed("m[0]")
    assert hand.end == "COMPLETED"


def test_what_a_human_said_of_an_elements_outcome_needs_no_place(walking):
    wf = flow(step("list"), step("m", map_over="list", max_concurrency=1, delivery=ONCE))
    hand = walking(wf)
    hand.run("list", [0, 1])
    hand.run_and_fail("m[0]", NO)
    hand.run_and_fail("m[1]", NO)
    hand.reply("m[0]", Approve("a"))
    hand.reply("m[1]", Approve("b"))

    hand.crash()
    hand.resume()

    hand.check()
    hand.take_the_word("m[1]")
    hand.take_the_word("m[0]")
    assert hand.instance("m").output == ["a", "b"]


# --- No --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks_in_body", [False, True])
def test_a_no_skips_the_step_and_what_depends_on_it_but_fails_nothing(walking, asks_in_body):
    hand = walking(flow(step("a", interrupt=None if asks_in_body else "?"), step("b", "a"), step("c", "b"), step("x")))
    if asks_in_body:
        hand.start("a")
        hand.ask("a")

    hand.reply("a", Reject("never"))

    assert (hand.status("a"), hand.reason("a")) == ("SKIPPED", "rejected")
    assert hand.reason("b") == "rejected: a"
    assert hand.reason("c") == "rejected: a"
    hand.run("x")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize(
    ("trigger", "becomes"),
    [(Trigger.NONE_FAILED, "SKIPPED"), (Trigger.ALL_SUCCEEDED, "SKIPPED"), (Trigger.ALWAYS, "COMPLETED")],
)
def test_a_no_blocks_every_join_but_one_that_always_runs(walking, trigger, becomes):
    hand = walking(flow(step("a", interrupt="?"), step("b"), step("join", "b", "a", trigger=trigger)))
    hand.run("b")

    hand.reply("a", Reject())
    if becomes == "COMPLETED":
        hand.run("join")

    assert hand.status("join") == becomes
    assert hand.end == "COMPLETED"


def test_a_map_whose_source_was_rejected_names_it_even_if_it_always_runs(walking):
    wf = flow(step("a", interrupt="?"), step("m", map_over="a", trigger=Trigger.ALWAYS))
    hand = walking(wf)

    hand.reply("a", Reject())

    assert hand.reason("m") == "rejected: a"


def test_a_no_at_a_branch_point_skips_its_branches_and_asks_for_no_route(walking):
    wf = flow(step("p", interrupt="?", branches=("l", "r"), router=nothing), step("l", "p"), step("r", "p"))
    hand = walking(wf)

    hand.reply("p", Reject())

    assert (hand.take(), hand.reason("l"), hand.reason("r")) == ([], "rejected: p", "rejected: p")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize(("on_item_failure", "ends"), [("fail", "FAILED"), ("collect", "COMPLETED")])
def test_a_no_fails_an_element(walking, on_item_failure, ends):
    wf = flow(step("list"), step("m", map_over="list", on_item_failure=OnItemFailure(on_item_failure)))
    hand = walking(wf)
    hand.run("list", [0, 1])
    hand.start("m[0]")
    hand.run("m[1]", "fine")
    hand.ask("m[0]")

    hand.reply("m[0]", Reject("never"))

    assert (hand.status("m[0]"), hand.status("m"), hand.end) == ("FAILED", ends, ends)
    assert hand.instance("m[0]").error.type_name == "StepRejectedError"
    assert "never" in hand.instance("m[0]").error.message


def test_a_rejected_step_rejects_the_sub_workflow_and_what_follows_that(walking):
    child = flow(step("x", interrupt="?"), step("y"), id="child")
    hand = walking(flow(step("c", workflow=child), step("after", "c")))

    hand.reply("c/x", Reject())
    assert hand.status("c") == "RUNNING"
    hand.run("c/y")

    assert (hand.reason("c"), hand.reason("after"), hand.end) == ("rejected", "rejected: c", "COMPLETED")


def test_a_failure_in_a_sub_workflow_counts_for_more_than_a_no(walking):
    child = flow(step("x", interrupt="?"), step("y"), id="child")
    hand = walking(flow(step("c", workflow=child)))
    hand.reply("c/x", Reject())

    hand.run_and_fail("c/y", NO)

    assert (hand.status("c"), hand.end) == ("FAILED", "FAILED")


def test_an_element_that_is_a_sub_workflow_fails_by_a_no_inside_and_is_not_retried(walking):
    child = flow(step("x", interrupt="?"), id="child")
    hand = walking(flow(step("list"), step("m", map_over="list", workflow=child, retry=RetryPolicy(3))))
    hand.run("list", [0])
    hand.take()

    hand.reply("m[0]/x", Reject())

    assert (hand.take(), hand.retries) == ([], [])
    assert hand.instance("m[0]").error.type_name == "StepRejectedError"
    assert hand.end == "FAILED"


def test_a_no_is_not_retried(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(5))))
    hand.start("a")
    hand.ask("a")

    hand.reply("a", Reject())

    assert (hand.retries, hand.reason("a")) == ([], "rejected")


# --- unknown outcomes ------------------------------------------------------------------------------------------


def test_a_yes_to_an_unknown_outcome_is_the_steps_output(walking):
    hand = walking(flow(step("pay", delivery=ONCE), step("b", "pay")))
    hand.run_and_fail("pay", NO)

    hand.reply("pay", Approve("paid"))
    assert hand.status("pay") == "RUNNING"
    hand.take_the_word("pay")

    assert (hand.instance("pay").output, hand.instance("pay").unknown) == ("paid", False)
    hand.run("b")
    assert hand.end == "COMPLETED"


def test_a_yes_to_the_unknown_outcome_of_a_branch_point_has_its_route_asked(walking):
    wf = flow(step("p", delivery=ONCE, branches=("l", "r"), router=nothing), step("l", "p"), step("r", "p"))
    hand = walking(wf)
    hand.run_and_fail("p", NO)

    hand.reply("p", Approve("paid"))
    hand.take_the_word("p")
    hand.route("p", "r")

    assert hand.reason("l") == "not_taken: p"
    hand.run("r")
    assert hand.end == "COMPLETED"


def test_a_yes_to_the_unknown_outcome_of_a_branch_point_that_nobody_routes_takes_what_on_no_route_says(walking):
    wf = flow(step("p", delivery=ONCE, branches=("l",), on_no_route=OnNoRoute.ALL), step("l", "p"))
    hand = walking(wf)
    hand.run_and_fail("p", NO)

    hand.reply("p", Approve())
    hand.take_the_word("p")
    hand.route("p", None)

    hand.run("l")
    assert hand.end == "COMPLETED"


def test_a_human_may_have_a_body_run_again_more_often_than_its_retries_allow(walking):
    hand = walking(flow(step("pay", delivery=ONCE)))

    for attempt in (1, 2, 3):
        hand.start("pay")
        assert hand.instance("pay").attempt == attempt
        hand.fail("pay", NO)
        hand.reply("pay", RunAgain())
    hand.run("pay", "paid")

    assert (hand.instance("pay").output, hand.end) == ("paid", "COMPLETED")


def test_an_outcome_that_is_unknown_again_after_the_body_ran_again_is_asked_about_anew(walking):
    hand = walking(flow(step("pay", delivery=ONCE)))
    hand.run_and_fail("pay", NO)
    hand.reply("pay", RunAgain())
    hand.start("pay")

    hand.crash()
    hand.resume()

    assert (hand.take(), hand.asks) == ([], [("pay", "outcome")])


def test_what_is_known_not_to_have_been_done_after_it_ran_again_is_retried_as_ever(walking):
    hand = walking(flow(step("pay", delivery=ONCE, retry=RetryPolicy(2, initial_delay=0.0))))
    hand.run_and_fail("pay", NO)
    hand.reply("pay", RunAgain())

    hand.run_and_fail("pay", NotDone())
    hand.fire()
    hand.run("pay")

    assert hand.end == "COMPLETED"


def test_a_no_to_an_unknown_outcome_skips_the_step_and_leaves_it_unknown(walking):
    hand = walking(flow(step("a"), step("pay", "a", delivery=ONCE)))
    hand.run("a")
    hand.run_and_fail("pay", NO)

    hand.reply("pay", Reject())

    assert (hand.reason("pay"), hand.end) == ("rejected", "COMPLETED")
    hand.crash()
    hand.resume(rerun="a")
    hand.run("a")
    assert (hand.take(), hand.asks) == ([], [("pay", "outcome")])


def test_a_no_to_the_unknown_outcome_of_an_element_leaves_it_unknown(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", delivery=ONCE)))
    hand.run("list", [0])
    hand.run_and_fail("m[0]", NO)
    hand.reply("m[0]", Reject())
    assert hand.end == "FAILED"
    hand.crash()

    hand.resume()

    assert (hand.take(), hand.asks) == ([], [("m[0]", "outcome")])


def test_whether_a_step_took_effect_is_asked_before_whether_it_may_begin(walking):
    hand = walking(flow(step("up", trigger=Trigger.ALWAYS), step("pay", "up", delivery=ONCE, interrupt="?")))
    hand.run("up")
    hand.reply("pay", YES)
    hand.run_and_fail("pay", NO)
    hand.cancel()
    hand.crash()

    hand.resume(rerun="up", reopen=True)
    hand.run("up")

    assert (hand.take(), hand.asks) == ([], [("pay", "outcome")])


def test_whether_it_took_effect_is_asked_first_even_where_the_answer_to_the_other_is_forgotten(walking):
    clean = step("clean", delivery=ONCE, interrupt="?", trigger=Trigger.ALWAYS)
    hand = walking(flow(step("c", workflow=flow(clean, id="child"), timeout=5.0, trigger=Trigger.ALWAYS)))
    hand.reply("c/clean", YES)
    hand.start("c/clean")
    hand.crash()
    hand.resume()
    assert hand.asks == [("c/clean", "outcome")]
    hand.crash()

    hand.resume(rerun="c")

    assert (hand.take(), hand.asks) == ([], [("c/clean", "outcome")])


def test_an_element_that_is_to_run_again_does_so_unless_its_map_has_failed_meanwhile(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", delivery=ONCE)))
    hand.run("list", [0, 1])
    hand.run_and_fail("m[0]", NO)
    hand.run_and_fail("m[1]", NO)
    hand.reply("m[1]", Reject())

    hand.reply("m[0]", RunAgain())

    assert (hand.take(), hand.end) == ([], "FAILED")


# --- what stops ------------------------------------------------------------------------------------------------

STOPS = {
    "cancelled": lambda hand: hand.cancel(),
    "timeout": lambda hand: hand.deadline(),
    "fail_fast": lambda hand: hand.run_and_fail("x", NO),
}


@pytest.mark.parametrize("stop", list(STOPS))
def test_a_stop_closes_every_open_question(walking, stop):
    wf = flow(
        step("x"),
        step("before", interrupt="?"),
        step("body"),
        step("pay", delivery=ONCE),
        step("list"),
        step("m", map_over="list"),
        step("c", workflow=flow(step("in", interrupt="?"), id="child")),
        fail_fast=stop == "fail_fast",
    )
    hand = walking(wf)
    if stop != "fail_fast":
        hand.run_and_fail("pay", NO)
    hand.start("body")
    hand.ask("body")
    hand.run("list", [0])
    hand.start("m[0]")
    hand.ask("m[0]")

    STOPS[stop](hand)
    hand.end_grace()

    assert hand.asks == []
    assert hand.reason("before") == stop
    assert hand.reason("c/in") == stop
    for path in ("body", "m[0]"):
        assert hand.instance(path).error.type_name == "StepCancelledError"
    if stop != "fail_fast":
        assert hand.instance("pay").error.type_name == "OutcomeUnknownError"
        hand.take()
    assert hand.end in ("CANCELLED", "FAILED")


@pytest.mark.parametrize("stop", ["cancelled", "timeout"])
@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_an_answer_that_a_stop_comes_after_has_no_body_run_on(walking, stop, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.start("a")
    hand.start("m[0]")
    hand.ask(path)
    hand.reply(path, YES)

    STOPS[stop](hand)

    assert hand.take() == []
    assert hand.instance(path).error.type_name == "StepCancelledError"
    hand.end_grace()
    assert hand.end in ("CANCELLED", "FAILED")


def test_what_was_answered_before_a_failure_under_fail_fast_comes_to_its_own_end(walking):
    hand = walking(flow(step("x"), step("a"), fail_fast=True))
    hand.start("x")
    hand.start("a")
    hand.ask("a")
    hand.reply("a", YES)

    hand.fail("x", NO)

    hand.go_on("a")
    hand.succeed("a")
    assert (hand.status("a"), hand.end) == ("COMPLETED", "FAILED")


@pytest.mark.parametrize("path", ["a", "m[0]"])
@pytest.mark.parametrize("stop", ["cancelled", "timeout"])
def test_a_no_that_a_stop_comes_after_is_a_no(walking, stop, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.start("a")
    hand.start("m[0]")
    hand.ask(path)
    hand.holds_back = True
    hand.reply(path, Reject())
    STOPS[stop](hand)

    hand.settle_all()
    hand.holds_back = False
    hand.end_grace()

    if path == "a":
        assert hand.reason("a") == "rejected"
    else:
        assert hand.instance(path).error.type_name == "StepRejectedError"
    assert hand.end in ("CANCELLED", "FAILED")


@pytest.mark.parametrize("stop", list(STOPS))
@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_what_asks_after_a_stop_is_closed_at_once(walking, stop, path):
    hand = walking(flow(step("x"), step("list"), step("a"), step("m", map_over="list"), fail_fast=stop == "fail_fast"))
    hand.run("list", [0])
    hand.start(path)
    STOPS[stop](hand)

    hand.ask(path)

    assert hand.asks == []
    assert hand.instance(path).error.type_name == "StepCancelledError"


@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_questions_that_a_crash_left_open_after_a_stop_are_closed_by_the_next_run(walking, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.start(path)
    hand.ask(path)
    hand.holds_back = True
    hand.cancel()

    hand.crash()
    hand.holds_back = False
    hand.resume()

    assert hand.asks == []
    assert hand.end == "CANCELLED"


def test_a_body_does_not_go_on_from_the_very_fact_on_that_stops_it(walking):
    hand = walking(flow(step("a")))
    hand.start("a")
    hand.ask("a")
    hand.reply("a", YES)
    hand.take()
    hand.holds_back = True
    hand.cancel()

    with pytest.raises(IllegalTransition, match="not to begin any more"):
        hand.go_on("a")

    hand.settle_all()
    assert hand.end == "CANCELLED"


def test_an_always_step_waits_on_whatever_stops_the_rest(walking):
    hand = walking(flow(step("a"), step("clean", "a", trigger=Trigger.ALWAYS, interrupt="?")))
    hand.cancel()

    assert hand.asks == [("clean", "")]
    hand.reply("clean", YES)
    hand.run("clean")
    assert hand.end == "CANCELLED"


def test_the_deadline_of_a_sub_workflow_closes_what_is_asked_inside_and_nothing_else(walking):
    child = flow(step("x", interrupt="?"), id="child")
    hand = walking(flow(step("c", workflow=child, timeout=5.0), step("a", interrupt="?")))

    hand.deadline("c")

    assert hand.asks == [("a", "")]
    assert hand.instance("c").error.type_name == "StepTimeoutError"
    hand.reply("a", Reject())


# --- crashes ---------------------------------------------------------------------------------------------------


def test_a_question_that_was_not_committed_is_asked_again(walking):
    hand = walking(flow(step("a", interrupt="?")))

    hand.crash(committed=1)
    hand.resume()

    assert hand.asks == [("a", "")]


@pytest.mark.parametrize("path", ["a", "m[0]"])
@pytest.mark.parametrize("quietly", [False, True])
def test_an_open_question_outlives_its_process_and_so_does_its_attempt(walking, path, quietly):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.run("a" if path != "a" else "m[0]")
    hand.start(path)
    hand.ask(path)

    hand.crash(quietly=quietly)
    hand.resume()

    assert hand.take() == []
    assert hand.asks == [(path, "k")]
    if path != "a":
        assert hand.instance("m").parts.holding == {}
    assert hand.rests
    hand.reply(path, YES)
    assert hand.go_on(path).attempt == 1
    hand.succeed(path)
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_an_answer_outlives_its_process(walking, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.run("a" if path != "a" else "m[0]")
    hand.start(path)
    hand.ask(path)
    hand.reply(path, Approve(7))

    hand.crash()
    hand.resume()

    assert hand.go_on(path).answers["k"].value == 7
    hand.succeed(path)
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_a_no_whose_consequences_were_lost_has_them_in_the_next_process(walking, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.run("a" if path != "a" else "m[0]")
    hand.start(path)
    hand.ask(path)
    hand.holds_back = True
    hand.reply(path, Reject())

    hand.crash()
    hand.holds_back = False
    hand.resume()

    assert hand.take() == []
    assert hand.status(path) == ("SKIPPED" if path == "a" else "FAILED")


@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_a_body_that_went_on_and_died_begins_anew_with_its_answers(walking, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.run("a" if path != "a" else "m[0]")
    hand.start(path)
    hand.ask_and_hear(path, Approve(7))

    hand.crash()
    hand.resume()

    instance = hand.start(path)
    assert (instance.attempt, instance.crashes, instance.answers["k"].value) == (1, 1, 7)
    hand.succeed(path)
    assert hand.end == "COMPLETED"


def test_what_a_human_said_of_an_outcome_outlives_its_process(walking):
    hand = walking(flow(step("pay", delivery=ONCE)))
    hand.run_and_fail("pay", NO)
    hand.reply("pay", Approve("paid"))

    hand.crash()
    hand.resume()

    hand.take_the_word("pay")
    assert hand.instance("pay").output == "paid"


# --- set back --------------------------------------------------------------------------------------------------


def test_a_step_set_back_keeps_its_answers(walking):
    hand = walking(flow(step("up"), step("a", "up", interrupt="?")))
    hand.run("up")
    hand.reply("a", YES)
    hand.start("a")
    hand.ask_and_hear("a", Approve(7))
    hand.succeed("a")
    hand.crash()

    hand.resume(rerun="up")
    hand.run("up")

    assert hand.asks == []
    assert hand.start("a").answers["k"].value == 7
    hand.succeed("a")


def test_a_step_named_in_rerun_forgets_its_answers(walking):
    hand = walking(flow(step("a", interrupt="?")))
    hand.reply("a", YES)
    hand.start("a")
    hand.ask_and_hear("a", YES)
    hand.succeed("a")
    hand.crash()

    hand.resume(rerun="a")

    assert hand.asks == [("a", "")]
    hand.reply("a", YES)
    assert list(hand.start("a").answers) == [""]
    hand.succeed("a")


def test_what_lies_in_a_step_named_in_rerun_forgets_its_answers_too(walking):
    child = flow(step("x", interrupt="?"), id="child")
    hand = walking(flow(step("list"), step("c", workflow=child), step("m", map_over="list")))
    hand.run("list", [0])
    hand.reply("c/x", YES)
    hand.run("c/x")
    hand.start("m[0]")
    hand.ask_and_hear("m[0]", YES)
    hand.succeed("m[0]")
    hand.crash()

    hand.resume(rerun=("c", "m"))

    assert hand.asks == [("c/x", "")]
    assert hand.start("m[0]").answers == {}
    hand.succeed("m[0]")


@pytest.mark.parametrize("asks_in_body", [False, True])
def test_a_rejected_step_that_is_set_back_asks_anew(walking, asks_in_body):
    hand = walking(flow(step("up"), step("a", "up", interrupt=None if asks_in_body else "?")))
    hand.run("up")
    if asks_in_body:
        hand.start("a")
        hand.ask("a")
    hand.reply("a", Reject())
    hand.crash()

    hand.resume(rerun="up")
    hand.run("up")

    if asks_in_body:
        assert hand.start("a").answers == {}
        hand.ask("a")
    assert len(hand.asks) == 1


def test_a_no_that_the_body_heard_is_kept_like_a_yes(walking):
    hand = walking(flow(step("up"), step("a", "up")))
    hand.run("up")
    hand.start("a")
    hand.ask("a", on_reject="return")
    hand.reply("a", Reject())
    hand.go_on("a")
    hand.succeed("a")
    hand.crash()

    hand.resume(rerun="up")
    hand.run("up")

    assert list(hand.start("a").answers) == ["k"]
    hand.succeed("a")


def test_a_resume_of_what_failed_does_not_ask_again_what_was_rejected(walking):
    hand = walking(flow(step("a", interrupt="?"), step("after", "a"), step("x")))
    hand.reply("a", Reject())
    hand.run_and_fail("x", NO)
    hand.crash()

    hand.resume()

    assert (hand.asks, hand.reason("a"), hand.reason("after")) == ([], "rejected", "rejected: a")
    hand.run("x")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("path", ["a", "m[0]"])
def test_what_waits_and_is_named_in_rerun_begins_anew(walking, path):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list")))
    hand.run("list", [0])
    hand.start(path)
    hand.ask(path)
    late = reply(path, hand)
    hand.crash()

    hand.resume(rerun=path)

    assert hand.asks == []
    refused(hand, late)
    hand.run(path)


def test_a_question_inside_a_sub_workflow_stays_open_when_its_neighbour_is_set_back(walking):
    child = flow(step("x"), step("y", interrupt="?"), id="child")
    hand = walking(flow(step("c", workflow=child)))
    hand.run("c/x")
    hand.crash()

    hand.resume(rerun="c/x")

    assert hand.asks == [("c/y", "")]
    hand.run("c/x")
    hand.reply("c/y", YES)
    hand.run("c/y")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("holds", [True, False])
def test_a_question_inside_what_is_set_back_is_not_asked_before_that_opens_again(walking, holds):
    child = flow(step("x"), step("y", interrupt="?"), id="child")
    wf = flow(
        step("list"),
        step("c", workflow=child, condition=nothing),
        step("m", map_over="list", condition=nothing),
    )
    hand = walking(wf)
    hand.run("list", [0, 1])
    hand.check_condition("c", True)
    hand.check_condition("m", True)
    hand.run_all("c/x", "m[1]")
    hand.start("m[0]")
    hand.ask("m[0]")
    early = [reply(path, hand) for path in ("c/y", "m[0]")]
    hand.crash()

    hand.resume(rerun=("c/x", "m[1]"))

    assert hand.asks == []
    for fact in early:
        refused(hand, fact)
    hand.check_condition("c", holds)
    hand.check_condition("m", holds)
    if not holds:
        assert (hand.asks, hand.end) == ([], "COMPLETED")
        return
    assert hand.asks == [("c/y", ""), ("m[0]", "k")]
    hand.run_all("c/x", "m[1]")
    hand.reply("c/y", YES)
    hand.run("c/y")
    hand.reply("m[0]", YES)
    hand.go_on("m[0]")
    hand.succeed("m[0]")
    assert hand.end == "COMPLETED"


# --- what is refused -------------------------------------------------------------------------------------------


def refused(hand, fact):
    """A fact is refused, and nothing has changed."""
    before = snapshot(hand.walk.state)
    assert not hand.walk.state.accepts(fact)
    with pytest.raises(IllegalTransition):
        hand.walk.apply(fact)
    assert snapshot(hand.walk.state) == before


def test_an_answer_to_another_key_attempt_or_epoch_is_refused(walking):
    hand = walking(flow(step("a")))
    hand.start("a")
    hand.ask("a")
    right = reply("a", hand)

    for wrong in ({"key": "other"}, {"key": ""}, {"attempt": 2}, {"epoch": 7}, {"path": "b"}):
        refused(hand, attrs.evolve(right, **wrong))

    hand.reply("a", YES)
    hand.go_on("a")
    hand.succeed("a")


@pytest.mark.parametrize("asks_in_body", [False, True])
def test_only_an_unknown_outcome_can_be_answered_by_running_again(walking, asks_in_body):
    hand = walking(flow(step("a", interrupt=None if asks_in_body else "?")))
    if asks_in_body:
        hand.start("a")
        hand.ask("a")

    refused(hand, answered(hand.instance("a").question, RunAgain()))


@pytest.mark.parametrize("first", [YES, Reject()])
def test_the_first_answer_wins(walking, first):
    hand = walking(flow(step("a")))
    hand.start("a")
    hand.ask("a")
    second = reply("a", hand)

    hand.reply("a", first)

    refused(hand, second)


def test_an_answer_to_what_was_stopped_is_too_late(walking):
    hand = walking(flow(step("a", interrupt="?")))
    late = reply("a", hand)
    hand.cancel()

    refused(hand, late)


def test_an_answer_to_the_question_before_the_last_is_refused(walking):
    hand = walking(flow(step("a")))
    hand.start("a")
    hand.ask("a", "one")
    old = reply("a", hand)
    hand.reply("a", YES)
    hand.go_on("a")
    hand.ask("a", "two")

    refused(hand, old)


def test_a_body_that_does_not_run_cannot_ask_and_one_that_was_not_answered_cannot_go_on(walking):
    hand = walking(flow(step("a"), step("b", "a")))
    refused(hand, f.Asked("b", 1, 0, 0, "k", "?"))
    refused(hand, f.Continued("b", 1, 0, 0))
    hand.start("a")
    refused(hand, f.Continued("a", 1, 0, 1))
    hand.ask("a")
    refused(hand, f.Continued("a", 1, 0, 1))
    refused(hand, f.Asked("a", 1, 0, 1, "other", "?"))


def test_an_answer_that_comes_before_its_question_is_settled_has_the_body_run_on_once(walking):
    hand = walking(flow(step("list"), step("a"), step("m", map_over="list", max_concurrency=1)))
    hand.run("list", [0])
    hand.start("a")
    hand.start("m[0]")
    hand.holds_back = True
    for path in ("a", "m[0]"):
        hand.ask(path)
        hand.reply(path, YES)

    hand.settle_all(order=(0, 1, 2, 3))

    taken = hand.take()
    assert sorted(taken) == ["a", "m[0]"]


def test_what_follows_from_going_on_is_settled_with_the_end_of_the_body_alone(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2))))
    hand.start("a")
    hand.ask("a")
    hand.reply("a", YES)
    hand.holds_back = True
    hand.go_on("a")
    hand.fail("a", NO)

    hand.settle_all(order=(1, 0))

    assert len(hand.retries) == 1


# --- rest ------------------------------------------------------------------------------------------------------


def test_a_walk_rests_when_all_that_is_left_waits(walking):
    child = flow(step("x"), id="child")
    wf = flow(
        step("list"),
        step("m", map_over="list"),
        step("c", workflow=child),
        step("p", branches=("q",), router=nothing),
        step("q", "p"),
        step("last", "m", "c", "q"),
        step("r", retry=RetryPolicy(2)),
        step("pay", delivery=ONCE),
    )
    hand = walking(wf)
    assert not hand.rests
    hand.run("list", [0, 1])
    hand.start("m[0]")
    hand.ask("m[0]")
    assert not hand.rests
    hand.start("m[1]")
    hand.ask("m[1]")
    hand.start("c/x")
    hand.ask("c/x")
    hand.run("p")
    assert not hand.rests
    hand.route("p", "q")
    hand.run("q")
    hand.run_and_fail("r", NO)
    assert not hand.rests
    hand.fire()
    hand.run("r")
    hand.run_and_fail("pay", NO)

    assert hand.rests
    hand.reply("pay", Approve())
    assert not hand.rests
    hand.take_the_word("pay")
    assert hand.rests
    hand.reply("m[1]", YES)
    assert not hand.rests
    hand.go_on("m[1]")
    assert not hand.rests
    hand.succeed("m[1]")
    assert hand.rests


def test_what_waits_for_a_place_that_is_taken_by_what_waits_rests(walking):
    child = flow(step("x"), id="child")
    retry = RetryPolicy(2, initial_delay=0.0)
    wf = flow(step("list"), step("m", map_over="list", max_concurrency=1, workflow=child, retry=retry))
    hand = walking(wf)
    hand.run("list", [0, 1])
    hand.run_and_fail("m[0]/x", NO)
    hand.judge("m[0]", retryable=True)
    hand.start("m[1]/x")
    hand.ask("m[1]/x")
    assert not hand.rests

    hand.fire()

    assert (hand.take(), hand.rests) == ([], True)
    hand.reply("m[1]/x", YES)
    hand.go_on("m[1]/x")
    hand.succeed("m[1]/x")
    hand.run("m[0]/x")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("path", ["c", "m[0]"])
def test_a_sub_workflow_of_which_it_is_not_known_whether_it_is_tried_again_does_not_rest(walking, path):
    part = {"workflow": flow(step("x"), id="child"), "retry": RetryPolicy(2)}
    hand = walking(flow(step("list"), step("c", **part), step("m", map_over="list", **part), step("a", interrupt="?")))
    hand.run("list", [0] if path == "m[0]" else [])
    if path != "c":
        hand.run("c/x")

    hand.run_and_fail(f"{path}/x", NO)

    assert not hand.rests
    hand.judge(path, retryable=False)
    assert hand.rests


def test_what_ended_and_has_not_been_followed_yet_does_not_rest(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("x", interrupt="?")))
    hand.start("a")
    hand.holds_back = True

    hand.succeed("a")

    assert not hand.rests
    hand.settle_all()
    assert not hand.rests


def test_a_walk_in_which_nobody_asks_never_rests(walking):
    hand = walking(flow(step("a")))
    assert not hand.rests

    hand.run("a")

    assert not hand.rests
