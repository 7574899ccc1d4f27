"""Map steps: one instance per element, none of them a node of the graph."""

import random
import threading

import pytest

from ares.errors import StepCancelledError
from ares.walk.facts import Started, Succeeded
from ares.workflow import ItemFailure, OnItemFailure, RetryPolicy, Trigger
from tests.walk.flows import flow, nothing, step

COLLECT = OnItemFailure.COLLECT
NO = ValueError("no")


def mapped(**options):
    """A source, a map over it and a step behind."""
    return flow(step("list"), step("m", map_over="list", **options), step("after", "m"))


def opened(walking, items, **options):
    """A walk in which the source has returned these items."""
    hand = walking(mapped(**options))
    hand.run("list", items)
    return hand


def test_every_element_runs_and_the_output_is_in_element_order(walking):
    hand = opened(walking, ["x", "y", "z"])

    assert hand.take() == ["m[0]", "m[1]", "m[2]"]
    for i in (2, 0, 1):
        hand.run(f"m[{i}]", i)
    hand.run_all("after")

    assert hand.instance("m").output == [0, 1, 2]
    assert hand.end == "COMPLETED"


def test_a_tuple_is_as_good_as_a_list(walking):
    hand = opened(walking, ("x",))

    assert hand.take() == ["m[0]"]


@pytest.mark.case("C008")
def test_a_map_over_nothing_completes_with_an_empty_list_and_so_does_one_over_it(walking):
    hand = walking(
        flow(step("producer"), step("m1", map_over="producer"), step("m2", map_over="m1"), step("collect", "m2"))
    )

    hand.run("producer", [])
    assert hand.take() == ["collect"]
    hand.run("collect")

    assert hand.instance("m1").output == hand.instance("m2").output == []
    assert hand.end == "COMPLETED"


@pytest.mark.case("C008")
def test_chained_maps_over_one_element_run_one_element_each(walking):
    hand = walking(
        flow(step("producer"), step("m1", map_over="producer"), step("m2", map_over="m1"), step("collect", "m2"))
    )

    hand.run("producer", ["only"])
    hand.run_all("m1[0]", "m2[0]", "collect")

    assert hand.instance("m2").output == ["m2[0]"]
    assert hand.end == "COMPLETED"


@pytest.mark.case("C008")
@pytest.mark.parametrize("source", [iter([1]), (i for i in [1]), {1}, "text", None, 7, {"a": 1}])
def test_what_is_no_list_or_tuple_fails_the_map_and_names_its_type(walking, source):
    hand = walking(flow(step("list"), step("m", map_over="list")))
    hand.start("list")
    instance = hand.drop("list")
    # Not by hand: a generator could never be journaled, and the body would fail for that.
    fact = Succeeded("list", 1, 0, 1, source)
    hand.walk.apply(fact, instance)
    hand.walk.settle(fact, instance)
    hand.collect()

    assert hand.end == "FAILED"
    assert hand.error.type_name == "MapSourceError"
    assert type(source).__qualname__ in hand.error.message


def test_at_most_so_many_elements_run_at_once(walking):
    hand = opened(walking, list("abcd"), max_concurrency=2)

    assert hand.take() == ["m[0]", "m[1]"]
    hand.run("m[1]")
    assert hand.take() == ["m[2]"]
    hand.run("m[0]")
    hand.run("m[2]")
    assert hand.take() == ["m[3]"]


def test_an_element_that_waits_for_its_retry_takes_no_place(walking):
    hand = opened(walking, list("ab"), max_concurrency=1, retry=RetryPolicy(2, initial_delay=9.0, jitter=0))

    hand.run_and_fail("m[0]", NO)
    assert hand.take() == ["m[1]"]
    hand.fire()
    assert hand.take() == []  # the other one has the place now
    hand.run("m[1]", 1)
    hand.run("m[0]", 0)

    assert hand.instance("m").output == [0, 1]


def test_no_element_begins_after_the_first_that_failed_and_the_rest_ends(walking):
    hand = opened(walking, list("abcd"), max_concurrency=3)
    assert hand.take() == ["m[0]", "m[1]", "m[2]"]
    for i in range(3):
        hand.start(f"m[{i}]")

    hand.fail("m[2]", NO)
    assert hand.take() == []
    assert hand.status("m") == "RUNNING"
    hand.fail("m[1]", KeyError("one"))
    hand.succeed("m[0]")

    assert hand.status("m") == "FAILED"
    assert "'m[1]'" in hand.instance("m").error.message  # the lowest index that failed, not the first in time
    assert hand.reason("after") == "upstream_failed: m"


def test_elements_under_way_may_use_their_retries_after_another_failed(walking):
    hand = opened(walking, list("ab"), retry=RetryPolicy(2, initial_delay=1.0))
    hand.take()
    for i in range(2):
        hand.start(f"m[{i}]")

    hand.fail("m[1]", NO, retryable=False)
    hand.fail("m[0]", NO)
    hand.fire()
    hand.run("m[0]")

    assert "'m[1]'" in hand.instance("m").error.message


def test_failures_can_be_collected_in_the_place_of_their_outputs(walking):
    hand = opened(walking, ["x", "y"], on_item_failure=COLLECT)

    hand.run_and_fail("m[0]", NO)
    hand.run("m[1]", "fine")
    hand.run("after")

    assert hand.instance("m").output == [ItemFailure(0, "x", NO), "fine"]
    assert hand.end == "COMPLETED"


def test_each_element_has_its_own_attempts(walking):
    hand = opened(walking, list("ab"), retry=RetryPolicy(3, initial_delay=0.0))

    hand.run_and_fail("m[0]", NO)
    hand.fire()
    hand.run_and_fail("m[0]", NO)
    hand.fire()
    hand.run("m[0]")
    hand.run("m[1]")

    assert hand.instance("m").parts.attempts == {0: 3}


def test_a_map_whose_source_was_skipped_is_skipped(walking):
    hand = walking(
        flow(
            step("other"), step("list", condition=nothing), step("m", "other", map_over="list"), step("z", "other", "m")
        )
    )

    hand.check_condition("list", False)
    hand.run_all("other", "z")

    assert hand.reason("m") == "upstream_skipped: list"


@pytest.mark.parametrize(
    ("source", "reason"), [("fails", "upstream_failed: list"), ("skips", "upstream_skipped: list")]
)
def test_even_an_always_map_needs_its_list(walking, source, reason):
    hand = walking(flow(step("list", condition=nothing), step("m", map_over="list", trigger=Trigger.ALWAYS)))

    hand.check_condition("list", source == "fails")
    if source == "fails":
        hand.run_and_fail("list", NO)

    assert hand.reason("m") == reason


def test_work_is_made_when_it_is_asked_for(walking):
    hand = opened(walking, list(range(100_000)))

    assert hand.take(3) == ["m[0]", "m[1]", "m[2]"]
    assert len(hand.instance("m").parts.active) == 0  # nothing began
    for path in list(hand.held):
        hand.run(path)
    assert hand.instance("m").parts.ended == 3


def test_work_that_was_put_back_comes_again_first(walking):
    hand = opened(walking, list("abc"), max_concurrency=2)
    assert hand.take() == ["m[0]", "m[1]"]

    for path in ("m[1]", "m[0]"):
        hand.walk.put_back(hand.held.pop(path))

    assert hand.take(1) == ["m[0]"]
    hand.run("m[0]")
    assert hand.take() == ["m[1]", "m[2]"]


def test_elements_older_than_their_map_can_be_put_back(walking):
    hand = opened(walking, list("ab"))
    for path in ("m[0]", "m[1]"):
        hand.start(path)
    hand.crash()
    hand.resume()
    hand.crash()
    hand.resume(reopen=True)
    assert hand.take() == ["m[0]", "m[1]"]

    for path in ("m[0]", "m[1]"):
        hand.walk.put_back(hand.held.pop(path))

    assert hand.take() == ["m[0]", "m[1]"]
    hand.run_all("m[0]", "m[1]", "after")
    assert hand.end == "COMPLETED"


def test_an_element_that_was_handed_out_before_another_failed_does_not_begin(walking):
    hand = opened(walking, list("ab"))
    hand.take()
    hand.start("m[0]")

    hand.fail("m[0]", NO)

    late = hand.drop("m[1]")
    assert not hand.walk.state.accepts(Started("m[1]", 1, late.epoch, 1), late)
    assert hand.status("m") == "FAILED"


def test_an_element_cut_short_by_a_crash_does_not_run_again_after_another_failed(walking):
    hand = opened(walking, list("abc"))
    hand.take()
    hand.start("m[0]")
    hand.start("m[1]")
    hand.fail("m[0]", NO)

    hand.crash()
    hand.resume()

    assert hand.take() == []
    assert hand.status("m") == "FAILED"


def test_elements_go_on_where_a_crash_cut_them_short(walking):
    hand = opened(walking, list("abcd"), max_concurrency=2, retry=RetryPolicy(2, initial_delay=1.0))
    hand.run("m[0]", 0)
    hand.start("m[1]")
    hand.run_and_fail("m[2]", NO)
    hand.start("m[3]")

    hand.crash()
    hand.resume()

    assert hand.take() == ["m[1]", "m[3]"]
    hand.run("m[1]", 1)
    hand.fire()
    hand.run("m[2]", 2)
    hand.run("m[3]", 3)
    assert hand.instance("m").output == [0, 1, 2, 3]


def test_a_map_that_was_cancelled_is_cut_short_and_goes_on_when_reopened(walking):
    hand = opened(walking, list("abc"), on_item_failure=COLLECT)
    hand.run_and_fail("m[0]", NO)
    hand.start("m[1]")
    hand.cancel()
    hand.succeed("m[1]", 1)

    assert hand.status("m") == "FAILED"
    assert isinstance(hand.instance("m").exception, StepCancelledError)

    hand.crash()
    hand.resume(reopen=True)
    assert hand.take() == ["m[0]", "m[2]"]


def test_a_map_that_collects_does_not_complete_with_what_a_cancel_cut_short(walking):
    hand = opened(walking, ["only"], on_item_failure=COLLECT)
    hand.start("m[0]")

    hand.cancel()
    hand.end_grace()

    assert hand.status("m") == "FAILED"


def test_writes_of_elements_take_effect_in_element_order_when_the_map_completes(walking):
    wf = flow(
        step("list"),
        step("m", map_over="list", writes=["log"]),
        step("after", "m"),
        variables={"log": []},
        reducers={"log": "append"},
    )
    hand = walking(wf)
    hand.run("list", list("abc"))

    for i in (1, 2, 0):
        hand.run(f"m[{i}]", writes=[("log", i)])
        assert bool(hand.walk.state.root.writes) == (i == 0)

    assert [value for _, value, _ in hand.walk.state.root.writes] == [0, 1, 2]
    hand.run("after")


def test_elements_end_in_any_order_and_settle_in_any_order(walking):
    draw = random.Random(4)
    hand = opened(walking, list(range(40)), max_concurrency=7)
    hand.holds_back = True

    while hand.status("m") == "RUNNING":
        hand.take()
        for path in draw.sample(list(hand.held), len(hand.held)):
            hand.run(path, int(path[2:-1]))
        waiting = list(range(len(hand.unsettled)))
        draw.shuffle(waiting)
        hand.settle_all(waiting)

    assert hand.instance("m").output == list(range(40))
    hand.holds_back = False
    hand.run("after")


def test_a_walk_starts_no_thread(walking):
    before = set(threading.enumerate())

    opened(walking, [1]).run("m[0]", 1)

    assert set(threading.enumerate()) <= before


def test_work_taken_for_an_element_that_was_cut_short_does_not_keep_a_failed_map_open(walking):
    hand = walking(flow(step("list"), step("m", map_over="list")))
    hand.run("list", [0, 1])
    hand.start("m[0]")
    hand.crash()
    hand.resume()
    assert hand.take() == ["m[0]", "m[1]"]

    hand.run_and_fail("m[1]", ValueError("no"))
    hand.walk.put_back(hand.held.pop("m[0]"))

    assert (hand.take(), hand.end) == ([], "FAILED")
