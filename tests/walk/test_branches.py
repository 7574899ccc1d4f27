"""Branch points: who decides, what a decision does, how far "not taken" reaches."""

import random

import pytest

from ares.errors import RouteError
from ares.walk.route import check_route, decide_route
from ares.workflow import OnNoRoute, Trigger, Workflow
from tests.walk.flows import flow, nothing, step


def fork(**options):
    """A branch point with two branches, a join behind them and a step behind that."""
    return flow(
        step("point", branches=["left", "right"], router=nothing, **options),
        step("left", "point"),
        step("right", "point"),
        step("join", "left", "right"),
        step("after", "join"),
    )


@pytest.mark.case("C001")
def test_a_join_behind_a_branch_that_was_not_chosen_runs_once(walking):
    hand = walking(fork())

    hand.run("point")
    hand.route("point", "right")
    hand.run("right", 2)
    hand.run_all("join", "after")

    assert hand.reason("left") == "not_taken: point"
    assert hand.instance("left").output is None
    assert [fact.path for fact in hand.facts if fact.kind == "started"] == ["point", "right", "join", "after"]
    assert hand.end == "COMPLETED"


@pytest.mark.case("C003")
@pytest.mark.parametrize("seed", range(50))
def test_a_join_is_never_skipped_while_the_chosen_branch_runs(walking, seed):
    names = ["slow", "fast"]
    random.Random(seed).shuffle(names)
    hand = walking(
        flow(step("r", branches=["slow", "fast"]), *(step(n, "r") for n in names), step("join", "slow", "fast"))
    )

    hand.run("r", goto=["slow"])
    hand.start("slow")
    assert hand.take() == []
    assert hand.status("join") == "PENDING"
    hand.succeed("slow")
    hand.run("join")

    assert hand.reason("fast") == "not_taken: r"
    assert not [fact for fact in hand.facts if fact.kind == "skipped" and fact.path == "join"]
    assert hand.end == "COMPLETED"


@pytest.mark.case("C007")
def test_a_router_that_names_a_stranger_fails_the_execution_and_names_all_there_is_to_know(walking):
    hand = walking(fork())

    hand.run("point")
    hand.route("point", "rigth")

    assert hand.status("point") == "COMPLETED"
    assert hand.reason("left") == hand.reason("right") == "no_route: point"
    assert hand.reason("after") == "no_route: point"
    assert hand.end == "FAILED"
    error = hand.instance("point").exception
    assert isinstance(error, RouteError)
    assert error.path == "point"
    assert "'rigth'" in error.problem
    assert error.permitted == ("left", "right")
    assert hand.error.type_name == "RouteError"


@pytest.mark.case("C007")
@pytest.mark.parametrize("answer", [[], ()])
def test_a_router_may_take_no_branch(walking, answer):
    hand = walking(fork())

    hand.run("point")
    hand.route("point", answer)

    assert hand.reason("join") == "not_taken: point"
    assert hand.reason("after") == "not_taken: point"
    assert hand.end == "COMPLETED"


@pytest.mark.case("C007")
def test_a_branch_that_is_named_twice_runs_once(walking):
    hand = walking(fork())

    hand.run("point")
    hand.route("point", ["left", "left"])
    hand.run_all("left", "join", "after")

    assert hand.instance("point").targets == {"left"}
    assert hand.end == "COMPLETED"


@pytest.mark.case("C007")
@pytest.mark.parametrize(
    ("on_no_route", "taken", "end"),
    [(OnNoRoute.FAIL, set(), "FAILED"), (OnNoRoute.NONE, set(), "COMPLETED"), (OnNoRoute.ALL, {"left", "right"}, "")],
)
def test_on_no_route_decides_when_the_router_abstains(walking, on_no_route, taken, end):
    hand = walking(fork(on_no_route=on_no_route))

    hand.run("point")
    hand.route("point", None)

    assert hand.instance("point").targets == taken
    assert hand.end == end


def test_a_decision_by_on_no_route_names_who_abstained(walking):
    hand = walking(fork(on_no_route=OnNoRoute.ALL))

    decision = decide_route(hand.instance("point"), None)

    assert (decision.source, decision.abstained) == ("fallback", ("router",))


@pytest.mark.parametrize("answer", [7, ["left", 7], {"left"}, object()])
def test_an_answer_that_is_no_route_is_refused_like_a_stranger(walking, answer):
    hand = walking(fork())

    hand.run("point")
    hand.route("point", answer)

    assert hand.end == "FAILED"
    assert repr(answer) in hand.instance("point").exception.problem


def test_a_router_may_answer_with_the_functions_of_steps(walking):
    wf = Workflow("functions")

    def left(): ...

    wf.add(step("point", branches=["left"]))
    wf.step(left, depends_on=["point"])
    hand = walking(wf)
    hand.run("point")

    hand.route("point", left)

    assert hand.instance("point").targets == {"left"}


def test_a_body_chooses_for_itself(walking):
    hand = walking(fork())

    hand.run("point", "value", goto=["left"])

    assert hand.take() == ["left"]
    assert hand.instance("point").output == "value"


def test_a_body_may_choose_nothing(walking):
    hand = walking(fork())

    hand.run("point", goto=[])

    assert hand.end == "COMPLETED"


def test_a_body_that_chooses_a_stranger_fails_its_attempt_for_good(walking):
    hand = walking(fork())

    hand.run("point", goto=["nowhere"])

    assert hand.status("point") == "FAILED"
    assert hand.reason("left") == "upstream_failed: point"
    assert hand.error.type_name == "RouteError"


def test_only_a_branch_point_chooses_branches(walking):
    hand = walking(
        flow(step("a"), step("b", "a"), step("list"), step("m", map_over="list", branches=["c"]), step("c", "m"))
    )
    element = hand.walk.state.new_element(hand.instance("m"), 0)

    assert "has no branches" in check_route(hand.instance("a"), ["b"]).problem
    assert "element" in check_route(element, ["c"]).problem
    assert check_route(hand.instance("m"), ["c", "c"]) is None


def test_two_branches_that_write_one_variable_are_not_taken_together(walking):
    writer = {"writes": ["v"]}
    wf = flow(
        step("point", branches=["left", "right"], router=nothing),
        step("left", "point", **writer),
        step("right", "point", **writer),
        variables={"v": 0},
    )
    hand = walking(wf)

    problem = check_route(hand.instance("point"), ["left", "right"]).problem
    assert all(name in problem for name in ("'v'", "'left'", "'right'"))
    assert check_route(hand.instance("point"), ["right"]) is None

    hand.run("point")
    hand.route("point", ["left", "right"])
    assert hand.end == "FAILED"


def test_a_decision_says_who_made_it(walking):
    hand = walking(fork())

    assert decide_route(hand.instance("point"), "left", source="step").source == "step"
    assert "its body chose" in decide_route(hand.instance("point"), "no", source="step").exception.problem


def test_not_taken_goes_with_what_belongs_to_the_branch_and_ends_at_a_join(walking):
    hand = walking(
        flow(
            step("p", branches=["a", "b"]),
            step("a", "p"),
            step("b", "p"),
            step("b2", "b"),
            step("b3", "b2", "p"),  # the point itself is not below the point
            step("join", "a", "b3"),
        )
    )

    hand.run("p", goto=["a"])
    hand.run_all("a", "join")

    assert hand.reason("b2") == hand.reason("b3") == "not_taken: p"
    assert hand.end == "COMPLETED"


def test_a_step_with_another_dependency_outside_still_belongs_to_the_branch(walking):
    hand = walking(flow(step("other"), step("p", branches=["a"]), step("a", "p"), step("z", "a", "other")))

    hand.run_all("other")
    hand.run("p", goto=[])

    assert hand.reason("z") == "not_taken: p"


def test_every_branch_point_of_a_join_is_looked_at_by_itself(walking):
    hand = walking(
        flow(
            step("p", branches=["a", "b"]),
            step("q", branches=["c", "d"]),
            *(step(n, "p") for n in "ab"),
            *(step(n, "q") for n in "cd"),
            step("z", "a", "b", "c"),
        )
    )

    hand.run("p", goto=["a"])
    hand.run("q", goto=["d"])
    hand.run_all("a", "d")

    assert hand.reason("z") == "not_taken: q"


def test_a_branch_within_a_branch_not_taken_names_the_outer_point(walking):
    hand = walking(
        flow(
            step("p", branches=["q", "other"]),
            step("q", "p", branches=["a"]),
            step("a", "q"),
            step("other", "p"),
            step("join", "a", "other"),
        )
    )

    hand.run("p", goto=["other"])
    hand.run_all("other", "join")

    assert hand.reason("q") == hand.reason("a") == "not_taken: p"
    assert hand.end == "COMPLETED"


def test_a_branch_point_that_was_skipped_takes_no_branch(walking):
    hand = walking(
        flow(
            step("src"),
            step("p", "src", condition=nothing, branches=["a"]),
            step("a", "p", "src"),
            step("b", "p", "src"),
        )
    )
    hand.run_all("src")
    hand.check_condition("p", False)

    assert hand.reason("a") == "not_taken: p"
    assert hand.take() == ["b"]  # no branch: it has another dependency


def test_a_failure_in_the_chosen_branch_reaches_the_join(walking):
    hand = walking(fork())

    hand.run("point", goto=["left"])
    hand.run_and_fail("left", ValueError("no"))

    assert hand.reason("join") == "upstream_failed: left"
    assert hand.end == "FAILED"


def test_dependents_wait_for_the_route_and_those_that_are_no_branch_run_without_one(walking):
    hand = walking(flow(step("p", branches=["a"]), step("a", "p"), step("b", "p")))

    hand.run("p")
    assert hand.take() == ["p"]  # the question, nothing else
    hand.route("p", "nowhere")

    assert hand.take() == ["b"]


def test_an_always_step_behind_a_branch_not_taken_runs(walking):
    hand = walking(flow(step("p", branches=["a"]), step("a", "p"), step("clean", "a", trigger=Trigger.ALWAYS)))

    hand.run("p", goto=[])

    assert hand.take() == ["clean"]


def test_a_resume_asks_again_for_a_route_and_never_runs_the_body(walking):
    hand = walking(fork())
    hand.run("point", "kept")
    hand.route("point", "nowhere")
    hand.crash()
    hand.resume()

    assert hand.work("point").kind == "route"
    hand.route("point", "right")
    hand.run_all("right", "join", "after")

    assert hand.instance("point").output == "kept"
    assert hand.end == "COMPLETED"


def test_a_route_that_was_being_asked_for_at_a_crash_is_asked_for_again(walking):
    hand = walking(fork())
    hand.run("point")
    assert hand.take() == ["point"]

    hand.crash()
    hand.resume()

    assert hand.work("point").kind == "route"
