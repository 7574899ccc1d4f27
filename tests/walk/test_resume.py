"""What a resume sets back, what stays, and what is forgotten."""

import random

import pytest

from ares.errors import IllegalTransition, UsageError
from ares.walk import facts as f
from ares.walk.facts import SetBack
from ares.walk.setback import plan
from ares.walk.walk import Walk
from ares.workflow import OnItemFailure, Trigger
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import Hand, created
from tests.walk.snapshot import snapshot

NO = ValueError("no")
ALWAYS = Trigger.ALWAYS


def test_a_failed_execution_runs_again_what_failed_and_what_follows(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("c", "b"), step("x"), step("y", "x")))
    hand.run_all("a", "x", "y")
    hand.run_and_fail("b", NO)
    assert hand.end == "FAILED"
    hand.crash()

    hand.resume()

    assert hand.take() == ["b"]
    hand.run_all("b", "c")
    assert hand.end == "COMPLETED"
    started = [fact.path for fact in hand.facts if fact.kind == "started"]
    assert [started.count(p) for p in "abcxy"] == [1, 2, 1, 1, 1]


def test_always_steps_behind_what_failed_run_again_and_forget(walking):
    hand = walking(flow(step("a"), step("b"), step("clean", "a", trigger=ALWAYS), step("other", "b", trigger=ALWAYS)))
    hand.run_and_fail("a", NO)
    hand.run_all("b", "clean", "other")
    hand.crash()

    hand.resume()

    assert hand.take() == ["a"]
    assert hand.instance("clean").born > 0 == hand.instance("a").born
    assert hand.status("other") == "COMPLETED"


def test_what_was_rejected_by_a_human_stays(walking):
    hand = walking(flow(step("a"), step("b")))
    hand.run_and_fail("a", NO)
    instance = hand.work("b").instance
    hand.drop("b")
    hand.give(f.Skipped("b", 1, 0, f.SkipReason.REJECTED), instance)
    hand.crash()

    hand.resume()

    assert hand.take() == ["a"]
    assert hand.reason("b") == "rejected"


@pytest.mark.parametrize("rerun", ["b", ["b"], ("b",)])
def test_a_rerun_sets_back_what_it_names_and_what_follows(walking, rerun):
    hand = walking(flow(step("a"), step("b", "a"), step("c", "b"), step("d", "a")))
    hand.run_all("a", "b", "c", "d")
    hand.crash()

    hand.resume(rerun)

    assert hand.take() == ["b"]
    assert hand.instance("b").born > 0 == hand.instance("c").born
    hand.run_all("b", "c")
    assert hand.end == "COMPLETED"


@pytest.mark.parametrize("name", ["nothing", "a/b", "a[0]", "list[7]", "list[x]", "", "list[0]"])
def test_a_rerun_of_what_is_not_there_is_refused(walking, name):
    hand = walking(flow(step("a"), step("list"), step("m", map_over="list")))
    hand.run_all("a")

    with pytest.raises(UsageError, match="rerun names"):
        plan(hand.walk.state, [name], failed=False)


def test_a_rerun_may_name_an_element_and_keeps_the_others(walking):
    hand = walking(flow(step("list"), step("m", map_over="list"), step("z", "m")))
    hand.run("list", ["x", "y", "z"])
    for i in range(3):
        hand.run(f"m[{i}]", i)
    hand.run("z")
    hand.crash()

    hand.resume("m[1]")

    assert hand.take() == ["m[1]"]
    hand.run("m[1]", "new")
    hand.run("z")
    assert hand.instance("m").output == [0, "new", 2]


def test_a_rerun_may_name_a_step_of_a_child_and_keeps_the_others(walking):
    child = flow(step("s1"), step("s2", "s1"), step("s3"), id="child")
    hand = walking(flow(step("c", workflow=child), step("z", "c")))
    hand.run_all("c/s1", "c/s2", "c/s3", "z")
    hand.crash()

    hand.resume("c/s2")

    assert hand.take() == ["c/s2"]
    hand.run_all("c/s2", "z")
    assert hand.end == "COMPLETED"


def test_a_rerun_may_name_a_step_of_an_elements_child(walking):
    child = flow(step("parse"), step("check", "parse"), id="child")
    hand = walking(flow(step("list"), step("audit", map_over="list", workflow=child)))
    hand.run("list", ["x", "y"])
    for i in range(2):
        hand.run_all(f"audit[{i}]/parse", f"audit[{i}]/check")
    hand.crash()

    hand.resume("audit[1]/check")

    assert hand.take() == ["audit[1]/check"]
    hand.run("audit[1]/check", "new")
    assert hand.instance("audit").output == [{"check": "audit[0]/check"}, {"check": "new"}]


def test_the_failures_that_a_map_collected_can_be_rerun(walking):
    wf = flow(step("list"), step("m", map_over="list", on_item_failure=OnItemFailure.COLLECT), step("z", "m"))
    hand = walking(wf)
    hand.run("list", ["x", "y"])
    hand.run_and_fail("m[0]", NO)
    hand.run("m[1]", 1)
    hand.run("z")
    assert hand.end == "COMPLETED"
    hand.crash()

    hand.resume("item_failures")

    assert hand.take() == ["m[0]"]
    assert hand.work("m[0]").instance.born > 0
    hand.run("m[0]", 0)
    hand.run("z")
    assert hand.instance("m").output == [0, 1]


def test_the_failures_of_a_map_inside_a_child_can_be_rerun(walking):
    child = flow(step("list"), step("m", map_over="list", on_item_failure=OnItemFailure.COLLECT), id="child")
    hand = walking(flow(step("c", workflow=child)))
    hand.run("c/list", ["x"])
    hand.run_and_fail("c/m[0]", NO)
    hand.crash()

    hand.resume("item_failures")

    assert hand.take() == ["c/m[0]"]
    hand.run("c/m[0]", 0)
    assert hand.instance("c").output == {"m": [0]}


def test_an_element_of_a_failed_map_that_completed_stays(walking):
    hand = walking(flow(step("list"), step("m", map_over="list")))
    hand.run("list", ["x", "y", "z"])
    hand.run("m[0]", 0)
    hand.run_and_fail("m[1]", NO)
    hand.crash()

    hand.resume()

    assert hand.take() == ["m[1]", "m[2]"]


def test_writes_of_what_is_set_back_are_withdrawn(walking):
    wf = flow(
        step("a", writes=["v"]),
        step("b", "a", writes=["v"]),
        step("c", writes=["w"]),
        variables={"v": 0, "w": 0},
    )
    hand = walking(wf)
    hand.run("a", writes=[("v", 1)])
    hand.run("b", writes=[("v", 2)])
    hand.run("c", writes=[("w", 3)])
    before = hand.walk.state.root.writes
    hand.crash()

    hand.resume("b")

    writes = hand.walk.state.root.writes
    assert writes is not before
    assert [(name, value) for name, value, _ in writes] == [("v", 1), ("w", 3)]
    hand.run("b", writes=[("v", 4)])
    assert [value for name, value, _ in hand.walk.state.root.writes if name == "v"] == [1, 4]


def test_a_key_never_returns_to_an_older_one(walking):
    child = flow(step("s"), id="child")
    hand = walking(flow(step("a"), step("c", "a", workflow=child)))
    hand.run_all("a", "c/s")
    hand.crash()
    hand.resume("c/s")
    fresh = hand.instance("c/s").born
    hand.run("c/s")
    hand.crash()

    hand.resume("a")
    hand.run("a")

    assert hand.take() == ["c/s"]  # all of c was dropped and made anew
    assert hand.instance("c/s").born == fresh > 0


def test_what_is_inside_something_fresh_is_fresh(walking):
    child = flow(step("s"), id="child")
    wf = flow(step("list"), step("c", workflow=child), step("m", map_over="list"))
    hand = walking(wf)
    hand.run("list", ["x"])
    hand.run_all("c/s", "m[0]")
    hand.crash()

    hand.resume(("c", "m"))

    hand.take()
    assert hand.instance("c/s").born == hand.instance("c").born > 0
    assert hand.work("m[0]").instance.born == hand.instance("m").born > 0


def test_an_interrupted_execution_goes_on_and_sets_nothing_back(walking):
    hand = walking(flow(step("a"), step("b"), step("c", "b")))
    hand.run_and_fail("a", NO)
    hand.start("b")

    hand.crash(quietly=True)
    hand.resume()

    assert hand.take() == ["b"]
    hand.run_all("b", "c")
    assert hand.end == "FAILED"


def test_a_crash_loses_what_was_not_committed_and_decides_it_again(walking):
    wf = flow(step("a"), step("list", "a"), step("m", map_over="list"), step("z", "m"))
    whole = Hand(wf)
    whole.run("a")
    whole.run("list", [])
    whole.run("z")

    for committed in range(1, len(whole.journal) + 1):
        hand = walking(wf)
        hand.run("a")
        hand.run("list", [])
        hand.run("z")
        hand.crash(committed)
        hand.resume()
        for path, output in (("a", None), ("list", []), ("z", None)):
            hand.take()
            if path in hand.held:
                hand.run(path, output)
        assert hand.end == "COMPLETED"
        assert hand.instance("m").output == []


def test_replaying_the_journal_gives_the_same_state(walking):
    draw = random.Random(1)
    child = flow(step("p", branches=["a", "b"]), step("a", "p"), step("b", "p"), id="child")
    wf = flow(
        step("list"),
        step("m", map_over="list", workflow=child, on_item_failure=OnItemFailure.COLLECT),
        step("z", "m", condition=nothing),
    )
    hand = walking(wf)
    hand.run("list", list(range(5)))
    while hand.take():
        path = draw.choice(list(hand.held))
        if hand.held[path].kind == "condition":
            hand.check_condition(path, True)
        elif path.endswith("p"):
            hand.run(path, goto=draw.choice([["a"], ["a", "b"], [], ["no"]]))
        else:
            hand.run(path)
        before = snapshot(hand.walk.state)
        other = Hand(wf)
        other.journal = list(hand.journal)
        other.crash()
        assert snapshot(other.walk.state) == before


def test_a_resume_may_change_the_timeout_and_otherwise_leaves_it(walking):
    hand = walking(flow(step("a")))

    hand.walk.apply(f.Resumed(1, timeout=7.0))
    assert hand.walk.state.timeout == 7.0
    hand.walk.apply(f.Resumed(2))
    assert hand.walk.state.timeout == 7.0
    hand.walk.begin()


def test_a_resume_has_to_raise_the_epoch(walking):
    hand = walking(flow(step("a")))

    with pytest.raises(IllegalTransition):
        hand.walk.apply(f.Resumed(0))


def test_what_runs_cannot_be_set_back(walking):
    hand = walking(flow(step("a")))
    hand.start("a")

    with pytest.raises(IllegalTransition):
        hand.walk.apply(f.Resumed(1, set_back=(SetBack("a"),)))

    assert hand.walk.state.epoch == 0
    hand.succeed("a")


# --- another definition ---------------------------------------------------------------------------


def test_completed_steps_that_still_exist_keep_their_outputs_when_the_definition_changes(walking):
    hand = walking(flow(step("a"), step("b", "a"), step("gone", "a"), step("c", "b")))
    hand.run_all("a", "b", "gone")
    hand.start("c")

    new = flow(step("a"), step("z", "a"), step("b", "a", "z"), step("c", "b"), step("d"))
    hand.move_to(new)

    assert hand.take() == ["z", "c", "d"]
    assert hand.instance("b").output == "b"
    hand.run_all("z", "c", "d")
    assert hand.end == "COMPLETED"


def test_a_step_that_became_a_map_a_child_or_a_branch_point_is_what_it_is_now(walking):
    hand = walking(
        flow(step("list"), step("m", map_over="list"), step("c", workflow=flow(step("s"), id="k")), step("p", "c"))
    )
    hand.run("list", ["x"])
    hand.run_all("m[0]", "c/s", "p")
    assert hand.end == "COMPLETED"

    new = flow(
        step("list"),
        step("m", "list"),
        step("c", map_over="list"),
        step("p", "c", branches=["q"]),
        step("q", "p"),
    )
    hand.move_to(new)

    assert hand.take() == ["m", "c[0]", "p"]
    assert hand.work("p").kind == "route"


def test_a_map_over_another_list_begins_anew(walking):
    hand = walking(flow(step("x"), step("y"), step("m", map_over="x")))
    hand.run("x", [1, 2, 3])
    hand.run("y", [1])
    hand.run("m[0]")
    hand.start("m[1]")

    hand.move_to(flow(step("x"), step("y"), step("m", map_over="y")))

    assert hand.take() == ["m[0]"]
    hand.run("m[0]", "new")
    assert hand.instance("m").output == ["new"]


def test_facts_that_do_not_fit_are_loud_unless_somebody_expects_them(walking):
    walk = Walk(flow(step("a")).graph(), "x")
    walk.apply(created(walk.state.graph))

    with pytest.raises(IllegalTransition):
        walk.apply(f.Started("gone", 1, 0, 1))
    walk.state.lenient = True
    assert walk.apply(f.Started("gone", 1, 0, 1)) is None
