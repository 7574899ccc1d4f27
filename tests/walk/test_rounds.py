"""Rounds: whether there is another one, what carries over to it, and what of the last one nothing is left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ares.errors import IllegalTransition, UntilError
from ares.questions import Reject
from ares.walk import facts as f
from ares.walk import rounds
from ares.walk.agenda import WorkKind
from ares.walk.judge import describe
from ares.workflow import Delivery, Loop, OnItemFailure, RetryPolicy, Trigger, Workflow
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import Hand
from tests.walk.snapshot import variables_before

Walking = Callable[..., Hand]


@pytest.fixture
def watched() -> Iterator[Callable[..., Hand]]:
    """Begin a walk that has loop controllers; its invariants are checked at the end of the test."""
    hands: list[Hand] = []

    def begin(workflow: Workflow) -> Hand:
        hands.append(Hand(workflow, has_controllers=True))
        return hands[-1]

    yield begin
    for hand in hands:
        hand.check()


def kinds(hand: Hand) -> list[str]:
    return [fact.kind for fact in hand.facts]


def exits(hand: Hand) -> list[tuple[str, int, str]]:
    """The rounds that ended: of what, which, and why there was no other."""
    return [(e.path, e.round, e.reason) for e in hand.facts if isinstance(e, f.RoundEnded)]


def looping(**options: Any) -> Workflow:
    return flow(step("a"), step("b", "a"), variables={"v": 0}, loop=Loop(), **options)


def raised(hand: Hand, path: str = "") -> None:
    """The until of a scope raises."""
    turn = hand.ask_for_round(path)
    fact = rounds.ended(turn.scope, f.RoundExit.UNTIL_FAILED)
    error = UntilError(path, turn.scope.graph.workflow.id, turn.scope.round, "it raised ValueError: no")
    fact.error, fact.exception = describe(error), error
    hand.drop(turn.path)
    hand.give(fact, turn)


# --- one round after another -------------------------------------------------------------------------------------


def test_without_a_loop_and_without_controllers_nothing_is_said_of_rounds(walking: Walking) -> None:
    hand = walking(flow(step("a")))

    hand.run_all("a")

    assert kinds(hand) == ["created", "started", "succeeded", "ended"]


def test_another_round_runs_all_steps_again_and_nothing_of_the_last_is_left(walking: Walking) -> None:
    hand = walking(looping())
    hand.run_all("a", "b")
    first = hand.instance("a")

    hand.turn()

    again = hand.instance("a")
    assert (again.phase, again.output, again.attempt, again.scope.round) == ("pending", None, 0, 2)
    assert again is not first
    assert again.epoch > first.epoch
    assert hand.take() == ["a"]


def test_the_last_rounds_outcome_is_the_executions(walking: Walking) -> None:
    hand = walking(looping())
    hand.run_all("a", "b")
    hand.turn()
    hand.run("a", "second")
    hand.run("b", "second")

    hand.turn("", f.RoundExit.UNTIL)

    assert (hand.end, hand.walk.state.root.round, hand.instance("b").output) == ("COMPLETED", 2, "second")
    assert exits(hand) == [("", 1, ""), ("", 2, "until")]


def test_the_last_round_needs_no_question(walking: Walking) -> None:
    hand = walking(flow(step("a"), loop=Loop(max_rounds=2)))
    hand.run_all("a")
    hand.turn()

    hand.run_all("a")

    assert (hand.end, exits(hand)) == ("COMPLETED", [("", 1, ""), ("", 2, "max_rounds")])


def test_a_round_that_failed_has_no_successor(walking: Walking) -> None:
    hand = walking(looping())

    hand.run_and_fail("a", ValueError("no"))

    assert (hand.end, exits(hand)) == ("FAILED", [("", 1, "failed")])


def test_steps_that_were_skipped_are_considered_again(walking: Walking) -> None:
    hand = walking(flow(step("a", condition=nothing), step("b", "a"), loop=Loop()))
    hand.check_condition("a", holds=False)
    hand.turn()

    hand.check_condition("a", holds=True)
    hand.run_all("a", "b")

    assert [hand.status(path) for path in ("a", "b")] == ["COMPLETED", "COMPLETED"]


def test_nothing_of_an_earlier_round_is_accepted_any_more(walking: Walking) -> None:
    hand = walking(looping())
    hand.run_all("a", "b")
    old = hand.instance("a")
    hand.turn()
    now = hand.instance("a")

    for late in (f.Started("a", 1, old.epoch, 1), f.Started("a", 1, now.epoch, 1), f.Started("a", 2, old.epoch, 1)):
        with pytest.raises(IllegalTransition):
            hand.walk.apply(late)
    with pytest.raises(IllegalTransition):
        hand.walk.apply(f.RoundEnded("", 1, old.epoch))
    hand.walk.settle(f.Started("a", 1, old.epoch, 1), old)

    assert now.phase == "pending"


def test_a_round_cannot_end_before_its_steps_nor_begin_before_somebody_said_so(walking: Walking) -> None:
    hand = walking(looping())
    epoch = hand.walk.state.root.epoch

    for early in (f.RoundEnded("", 1, epoch), f.RoundStarted("", 2, epoch), f.RoundEnded("b", 1, epoch)):
        with pytest.raises(IllegalTransition):
            hand.walk.apply(early)


# --- variables ---------------------------------------------------------------------------------------------------


def test_variables_carry_over_and_only_the_last_write_of_one_without_a_reducer_is_kept(walking: Walking) -> None:
    wf = flow(step("a", writes="v"), variables={"v": 0}, loop=Loop())
    hand = walking(wf)

    for n in range(1, 50):
        hand.run("a", writes=[("v", n)])
        hand.turn()

    root = hand.walk.state.root
    assert (root.writes, root.carried) == ([], {"v": [49]})


def test_writes_to_a_reduced_variable_are_all_kept_until_somebody_adds_them_up(walking: Walking) -> None:
    wf = flow(step("a", writes="log"), variables={"log": []}, reducers={"log": "append"}, loop=Loop())
    hand = walking(wf)
    hand.run("a", writes=[("log", 1)])
    hand.turn()
    hand.run("a", writes=[("log", 2)])
    turn = hand.ask_for_round()
    fact = rounds.ended(turn.scope, None)
    assert variables_before(turn.scope) == {"log": [1]}

    fact.variables = {"log": [1, 2]}
    hand.drop(turn.path)
    hand.give(fact, turn)

    assert hand.walk.state.root.carried == {}
    assert variables_before(hand.walk.state.root) == variables_before(hand.replayed().state.root) == {"log": [1, 2]}


# --- sub-workflows -----------------------------------------------------------------------------------------------


def nested(child_loop: Loop | None = None, loop: Loop | None = None, **options: Any) -> Workflow:
    child = flow(step("x"), id="child", loop=child_loop)
    return flow(step("in", workflow=child, **options), step("out", "in"), loop=loop)


def test_a_loop_of_a_sub_workflow_acts_inside_it(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop()))
    hand.run("in/x", 1)
    hand.turn("in")
    hand.run("in/x", 2)

    hand.turn("in", f.RoundExit.UNTIL)

    assert (hand.instance("in").output, hand.instance("in").scope.round) == ({"x": 2}, 1)
    assert hand.instance("in/x").scope.round == 2


def test_the_steps_of_a_sub_workflow_have_the_round_of_its_step_in_their_path(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), loop=Loop()))
    hand.run_all("in/x")
    hand.turn("in", f.RoundExit.UNTIL)
    hand.run_all("out")
    hand.turn()

    hand.run_all("in#2/x")
    hand.turn("in#2")
    hand.run_all("in#2/x")

    assert hand.walk.state.find("in/x") is None
    found = [(s.path, s.round) for s in hand.facts if isinstance(s, f.Started) and s.path.startswith("in")]
    assert found == [("in/x", 1), ("in#2/x", 1), ("in#2/x", 2)]
    assert list(hand.walk.state.scopes) == ["", "in#2/"]


def test_elements_that_are_sub_workflows_have_it_behind_their_index(walking: Walking) -> None:
    child = flow(step("x"), id="child")
    hand = walking(flow(step("list"), step("each", map_over="list", workflow=child), loop=Loop()))
    for prefix in ("", "#2"):
        hand.run("list", [1, 2])
        hand.run_all(f"each[0]{prefix}/x", f"each[1]{prefix}/x")
        hand.turn("")

    assert len(hand.walk.state.scopes) == 1


def test_an_until_that_raises_fails_the_sub_workflow_step_and_a_retry_asks_again(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), retry=RetryPolicy(2)))
    hand.run_all("in/x")
    raised(hand, "in")

    hand.judge("in", retryable=True)
    hand.fire()
    hand.turn("in", f.RoundExit.UNTIL)

    assert (hand.status("in"), hand.instance("in").attempt, hand.instance("in/x").attempt) == ("COMPLETED", 2, 1)


def test_a_retry_of_a_sub_workflow_goes_on_in_the_round_that_failed(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), retry=RetryPolicy(2)))
    hand.run_all("in/x")
    hand.turn("in")
    hand.run_and_fail("in/x", ValueError("no"))
    hand.judge("in", retryable=True)
    hand.fire()

    hand.run("in/x", "at last")
    hand.turn("in", f.RoundExit.UNTIL)

    assert (hand.instance("in").output, hand.instance("in/x").scope.round) == ({"x": "at last"}, 2)


def test_a_sub_workflow_that_is_done_again_begins_with_its_first_round(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop()))
    hand.run_all("in/x")
    hand.turn("in")
    hand.run_all("in/x")
    hand.turn("in", f.RoundExit.UNTIL)
    hand.run_all("out")
    hand.crash()

    hand.resume("in")

    assert hand.instance("in/x").scope.round == 1


# --- what outlives a set-back does not outlive a round ---------------------------------------------------------------


def test_an_outcome_that_stayed_unknown_says_nothing_of_the_next_round(walking: Walking) -> None:
    hand = walking(
        flow(
            step("list"),
            step("each", map_over="list", delivery=Delivery.AT_MOST_ONCE, on_item_failure=OnItemFailure.COLLECT),
            loop=Loop(),
        )
    )
    hand.run("list", [1])
    hand.run_and_fail("each[0]", ValueError("perhaps"))
    hand.reply("each[0]", Reject("who knows"))
    assert hand.walk.state.unsure == {"each[0]"}
    hand.turn()

    hand.run("list", [1])
    hand.run("each[0]", "done")

    assert (hand.walk.state.unsure, hand.instance("each").output) == (set(), ["done"])


def test_what_was_made_fresh_is_so_in_its_round_alone(walking: Walking) -> None:
    hand = walking(flow(step("a"), loop=Loop(max_rounds=2)))
    hand.run_all("a")
    hand.turn()
    hand.run_all("a")
    hand.crash()
    hand.resume("a")
    assert hand.instance("a").born > 0

    hand.run_all("a")

    assert (hand.end, hand.walk.state.root.round) == ("COMPLETED", 2)


# --- stops -------------------------------------------------------------------------------------------------------


def asked(walking: Walking) -> Hand:
    hand = walking(looping())
    hand.run_all("a", "b")
    hand.ask_for_round()
    return hand


def test_a_cancel_while_it_is_asked_keeps_the_next_round_from_beginning(walking: Walking) -> None:
    hand = asked(walking)

    hand.cancel("enough")

    (cut,) = hand.cuts
    assert cut.instance is hand.walk.state.root.turn
    with pytest.raises(IllegalTransition):
        hand.walk.apply(rounds.ended(hand.walk.state.root, None))
    hand.turn("", f.RoundExit.CANCELLED)
    assert (hand.end, exits(hand)) == ("CANCELLED", [("", 1, "cancelled")])


def test_a_cancel_after_the_answer_keeps_it_from_beginning_and_a_reopening_goes_on_with_the_answer(
    walking: Walking,
) -> None:
    hand = asked(walking)
    hand.holds_back = True
    hand.turn()
    hand.cancel()
    hand.settle_all()
    hand.holds_back = False
    assert (hand.end, kinds(hand)[-3:]) == ("CANCELLED", ["round_ended", "cancelling", "ended"])

    hand.crash()
    hand.resume(reopen=True)

    assert (hand.walk.state.root.round, hand.take()) == (2, ["a"])


def test_an_execution_that_was_cancelled_while_it_was_asked_is_asked_again_when_it_is_reopened(
    walking: Walking,
) -> None:
    hand = asked(walking)
    hand.cancel()
    hand.turn("", f.RoundExit.CANCELLED)
    hand.crash()

    hand.resume(reopen=True)
    hand.turn()

    assert hand.walk.state.root.round == 2


def test_a_deadline_while_it_is_asked_fails_the_execution_and_a_resume_asks_again(walking: Walking) -> None:
    hand = asked(walking)
    hand.deadline()
    hand.turn("", f.RoundExit.TIMEOUT)
    assert hand.end == "FAILED"
    hand.crash()

    hand.resume()

    assert hand.work(rounds.UNTIL).kind is WorkKind.ROUND


def test_a_sub_workflow_whose_time_is_up_while_it_is_asked_fails_for_it(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), timeout=5.0))
    hand.run_all("in/x")
    hand.ask_for_round("in")

    hand.deadline("in")
    hand.turn("in", f.RoundExit.TIMEOUT)

    error = hand.instance("in").error
    assert error is not None
    assert error.type_name == "StepTimeoutError"


def test_the_timer_of_a_sub_workflow_covers_all_its_rounds(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), timeout=5.0))
    (timer,) = hand.timers

    hand.run_all("in/x")
    hand.turn("in")

    assert hand.timers == [timer]
    assert timer.epoch == timer.instance.epoch


def test_a_failure_beside_it_under_fail_fast_lets_a_loop_come_to_no_other_round(walking: Walking) -> None:
    child = flow(step("x"), id="child", loop=Loop())
    hand = walking(flow(step("in", workflow=child), step("bad"), fail_fast=True))
    hand.run_all("in/x")
    hand.ask_for_round("in")

    hand.run_and_fail("bad", ValueError("no"))
    hand.turn("in", f.RoundExit.FAIL_FAST)

    error = hand.instance("in").error
    assert error is not None
    assert (hand.end, error.type_name) == ("FAILED", "StepCancelledError")


def test_a_loop_inside_an_always_step_goes_on_under_a_cancel(walking: Walking) -> None:
    hand = walking(nested(child_loop=Loop(), trigger=Trigger.ALWAYS))
    hand.run_all("in/x")

    hand.cancel()
    hand.turn("in")
    hand.run_all("in/x")
    hand.turn("in", f.RoundExit.UNTIL)

    assert (hand.status("in"), hand.end) == ("COMPLETED", "CANCELLED")


# --- until fails -------------------------------------------------------------------------------------------------


def test_an_until_that_raises_fails_the_execution_and_a_resume_asks_it_again(walking: Walking) -> None:
    hand = asked(walking)
    raised(hand)
    assert hand.error is not None
    assert (hand.end, hand.error.type_name) == ("FAILED", "UntilError")
    hand.crash()

    hand.resume()
    hand.turn("", f.RoundExit.UNTIL)

    assert (hand.end, kinds(hand).count("started")) == ("COMPLETED", 2)


# --- controllers -------------------------------------------------------------------------------------------------


def test_controllers_are_told_of_the_only_round_of_an_execution_without_a_loop(watched: Walking) -> None:
    hand = watched(flow(step("a")))
    hand.run_all("a")

    hand.turn("", rounds.exit_of(hand.walk.state.root))

    assert (hand.end, exits(hand)) == ("COMPLETED", [("", 1, "no_loop")])


def test_controllers_are_told_of_a_round_that_failed(watched: Walking) -> None:
    hand = watched(looping())
    hand.run_and_fail("a", ValueError("no"))

    hand.turn("", f.RoundExit.FAILED)

    assert hand.end == "FAILED"


def test_controllers_are_not_told_of_a_round_that_was_cancelled(watched: Walking) -> None:
    hand = watched(looping())

    hand.cancel()

    assert (hand.end, exits(hand)) == ("CANCELLED", [("", 1, "cancelled")])


def test_a_sub_workflow_without_a_loop_has_no_rounds_of_its_own(watched: Walking) -> None:
    hand = watched(nested(loop=Loop()))

    hand.run_all("in/x", "out")
    hand.turn("", f.RoundExit.CONTROLLER, by="loop")

    assert exits(hand) == [("", 1, "controller")]


# --- what was not answered is asked again ------------------------------------------------------------------------


def test_what_was_asked_when_the_process_died_is_asked_again(walking: Walking) -> None:
    hand = asked(walking)
    hand.crash()

    hand.resume()

    assert hand.take() == [rounds.UNTIL]


def test_an_answer_that_was_committed_stands_and_nobody_is_asked_again(walking: Walking) -> None:
    for reason, round_, end in ((f.RoundExit.UNTIL, 1, "COMPLETED"), (None, 2, "")):
        hand = asked(walking)
        hand.turn("", reason)
        answer = kinds(hand).index("round_ended")
        hand.crash(answer + 1)

        hand.resume()

        assert (hand.walk.state.root.round, hand.end) == (round_, end)


def test_a_resume_in_a_later_round_sets_back_steps_of_that_round_alone(walking: Walking) -> None:
    hand = walking(flow(step("a", writes="v"), step("b", "a"), variables={"v": 0}, loop=Loop()))
    hand.run("a", writes=[("v", 1)])
    hand.run_all("b")
    hand.turn()
    hand.run("a", writes=[("v", 2)])
    hand.run_and_fail("b", ValueError("no"))
    hand.crash()

    hand.resume("a")

    root = hand.walk.state.root
    assert (root.round, root.writes, root.carried) == (2, [], {"v": [1]})
    hand.run("a", writes=[("v", 3)])
    hand.run_all("b")
    hand.turn("", f.RoundExit.UNTIL)
    assert hand.end == "COMPLETED"


def test_a_rerun_after_the_end_asks_anew_whether_there_is_another_round(walking: Walking) -> None:
    hand = asked(walking)
    hand.turn("", f.RoundExit.UNTIL)
    hand.crash()
    hand.resume("b")

    hand.run_all("b")
    hand.turn()

    assert hand.walk.state.root.round == 2


def test_a_step_that_came_with_another_definition_runs_in_the_present_round_alone(walking: Walking) -> None:
    hand = walking(looping())
    for _ in range(3):
        hand.run_all("a", "b")
        hand.turn()
    hand.run_all("a", "b")
    hand.ask_for_round()

    hand.move_to(flow(step("a"), step("b", "a"), step("c", "b"), variables={"v": 0}, loop=Loop()))

    assert (hand.walk.state.root.round, hand.take()) == (4, ["c"])


# --- size --------------------------------------------------------------------------------------------------------


def test_the_state_of_a_walk_does_not_grow_with_its_rounds(walking: Walking) -> None:
    child = flow(step("x", writes="v"), id="child", variables={"v": 0}, loop=Loop())
    hand = walking(flow(step("in", workflow=child), step("list"), step("each", map_over="list"), loop=Loop()))

    def size() -> list[int]:
        state = hand.walk.state
        per_scope = [len(s.writes) + len(s.carried) + len(s.inside) + len(s.failures) for s in state.root.all()]
        return [len(state.scopes), len(state.reborn), len(state.unsure), *per_scope]

    def one_round(number: int) -> None:
        inside = "in" if number == 1 else f"in#{number}"
        hand.run(f"{inside}/x", writes=[("v", number)])
        hand.turn(inside)
        hand.run(f"{inside}/x", writes=[("v", -number)])
        hand.turn(inside, f.RoundExit.UNTIL)
        hand.run("list", [1, 2])
        hand.run_all("each[0]", "each[1]")
        hand.turn()

    one_round(1)
    first = size()
    for number in range(2, 60):
        one_round(number)

    assert size() == first
