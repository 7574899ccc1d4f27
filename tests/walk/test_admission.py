"""Which facts are refused. A fact that is refused has changed nothing."""

import pytest

from ares.errors import IllegalTransition
from ares.records import ErrorInfo, ExecutionStatus
from ares.walk import facts as f
from ares.walk.table import FINAL, STATUS, TRANSITIONS, Phase, Stimulus
from ares.workflow import RetryPolicy
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import created
from tests.walk.snapshot import snapshot

INFO = ErrorInfo("ValueError", "no")


def refused(hand, fact, instance=None):
    """Have a fact refused, and see that nothing happened."""
    before = snapshot(hand.walk.state)
    with pytest.raises(IllegalTransition) as caught:
        hand.walk.apply(fact, instance)
    assert snapshot(hand.walk.state) == before
    return caught.value


@pytest.mark.parametrize(
    "fact",
    [
        f.Succeeded("a", 1, 0, 0),
        f.Completed("a", 1, 0, 0),
        f.Routed("a", 1, 0, (), "router"),
        f.Opened("a", 1, 0, 1, 3),
        f.Opened("a", 1, 0, 1),
        f.Started("a", 1, 0, 2),
        f.Started("a", 1, 1, 1),
        f.Started("b", 1, 0, 1),
        f.Started("a[0]", 1, 0, 1),
        f.Started("a/b", 1, 0, 1),
        f.Failed("a", 1, 0, 0, INFO, f.After.RETRY),
        f.DeadlinePassed("a", 1.0),
    ],
)
def test_what_cannot_happen_to_a_step_that_has_not_begun_is_refused(walking, fact):
    hand = walking(flow(step("a")))

    assert refused(hand, fact).path == fact.path


def test_a_late_outcome_of_an_attempt_that_is_over_is_refused(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2, initial_delay=0.0))))
    hand.run_and_fail("a", TimeoutError())
    hand.fire()
    hand.start("a")

    refused(hand, f.Succeeded("a", 1, 0, 1, "late"))

    hand.succeed("a", "in time")
    refused(hand, f.Succeeded("a", 1, 0, 2, "twice"))
    assert hand.instance("a").output == "in time"


@pytest.mark.parametrize(
    "fact", [f.CancelRequested(), f.DeadlinePassed("", 1.0), f.Ended(ExecutionStatus.FAILED), f.Interrupted()]
)
def test_nothing_happens_to_an_execution_that_has_ended(walking, fact):
    hand = walking(flow(step("a")))
    hand.run("a")

    refused(hand, fact)


def test_an_execution_is_created_once(walking):
    hand = walking(flow(step("a")))

    refused(hand, created(hand.graph))


def test_a_map_or_child_has_no_attempt_and_a_body_no_parts(walking):
    hand = walking(flow(step("c", workflow=flow(step("s"), id="k")), step("a")))

    refused(hand, f.Opened("a", 1, 0, 1))
    assert hand.status("c") == "RUNNING"
    refused(hand, f.Started("c", 1, 0, 2))


def test_an_element_is_begun_once_and_only_while_its_map_is_open(walking):
    hand = walking(flow(step("list"), step("m", map_over="list")))
    refused(hand, f.Started("m[0]", 1, 0, 1))
    hand.run("list", ["x"])
    refused(hand, f.Started("m[1]", 1, 0, 1))
    hand.start("m[0]")

    twin = hand.walk.state.new_element(hand.instance("m"), 0)
    refused(hand, f.Started("m[0]", 1, 0, 1), twin)

    hand.succeed("m[0]")
    refused(hand, f.Started("m[0]", 1, 0, 1))


def test_nothing_happens_to_an_element_of_a_map_that_is_set_back(walking):
    hand = walking(flow(step("list"), step("m", map_over="list")))
    hand.run("list", ["x", "y"])
    hand.run_and_fail("m[0]", ValueError())
    hand.walk.apply(f.Resumed(1, set_back=(f.SetBack("m"),)))

    refused(hand, f.Failed("m[1]", 1, 1, 0, INFO))
    refused(hand, f.Started("m[1]", 1, 1, 1))
    hand.walk.begin()


def test_accepts_tells_what_apply_would_do(walking):
    hand = walking(flow(step("a")))

    assert hand.walk.state.accepts(f.Started("a", 1, 0, 1))
    assert not hand.walk.state.accepts(f.Started("a", 1, 0, 2))
    assert not hand.walk.state.accepts(f.Started("nowhere", 1, 0, 1))
    assert hand.status("a") == "PENDING"


def test_a_refusal_says_what_was_where(walking):
    hand = walking(flow(step("a")))

    error = refused(hand, f.Completed("a", 1, 0, 0))

    assert (error.path, error.status, error.fact) == ("a", Phase.PENDING, Stimulus.DONE)


def test_what_has_ended_only_a_resume_changes():
    leaving = {stimulus for (phase, stimulus) in TRANSITIONS if phase in FINAL}

    assert leaving == {Stimulus.SET_BACK, Stimulus.REROUTE}


def test_every_phase_can_be_reached_and_has_a_public_status():
    assert set(TRANSITIONS.values()) == set(Phase)
    assert set(STATUS) == set(Phase)
    assert {phase for phase, _ in TRANSITIONS} == set(Phase)


def test_every_phase_but_running_can_be_set_back():
    settable = {phase for phase, stimulus in TRANSITIONS if stimulus is Stimulus.SET_BACK}

    assert settable == set(Phase) - {Phase.RUNNING}


def test_a_condition_is_answered_before_the_step_begins(walking):
    hand = walking(flow(step("a", condition=nothing)))
    hand.check_condition("a", True)
    hand.start("a")

    refused(hand, f.Checked("a", 1, 0, False))
    hand.succeed("a")
