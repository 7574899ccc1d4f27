"""Work of a pool that is closed stays where it is, and what is behind it goes on past it, in definition order."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ares.walk.walk import Work, WorkKind
from ares.workflow import Delivery
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import Hand

NAMES = ("p", "q", "r")


def open_to(*pools: str) -> Callable[[str], bool]:
    return pools.__contains__


def unasked(pool: str) -> bool:
    """Nobody is to ask."""
    raise AssertionError(f"asked for a slot of {pool!r}")


def slots(count: int) -> Callable[[str], bool]:
    """So many slots in all."""
    left = iter([True] * count)
    return lambda _: next(left, False)


def paths(hand: Hand, takes: Callable[[str], bool]) -> list[str]:
    """All work that there is for one who has slots of these pools alone."""
    found = []
    while (work := hand.walk.next_work(takes)) is not None:
        hand.held[work.instance.path] = work
        found.append(work.instance.path)
    hand.collect()
    return found


def test_what_is_ready_goes_on_past_what_waits_for_a_pool_in_definition_order(walking):
    hand = walking(flow(step("a", pool="p"), step("b"), step("c", pool="q"), step("d", pool="p"), step("e")))

    assert paths(hand, open_to("q")) == ["b", "c", "e"]
    assert paths(hand, open_to()) == []
    assert paths(hand, open_to("p", "q")) == ["a", "d"]


def test_a_pool_is_asked_for_once_until_it_is_refused(walking):
    hand = walking(flow(*(step(f"s{i}", pool="p") for i in range(5))))
    asked: list[str] = []

    def takes(pool: str) -> bool:
        asked.append(pool)
        return len(asked) <= 2

    assert paths(hand, takes) == ["s0", "s1"]
    assert asked == ["p", "p", "p"]


def test_the_elements_of_a_map_wait_for_its_pool_and_not_for_one_another(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", pool="p"), step("other", "list")))
    hand.run("list", [1, 2, 3])

    assert paths(hand, slots(2)) == ["m[0]", "m[1]", "other"]
    hand.run("m[1]")
    assert paths(hand, slots(0)) == []
    assert paths(hand, slots(1)) == ["m[2]"]


def test_only_the_body_and_the_reconciliation_take_a_slot(walking):
    once = {"delivery": Delivery.AT_MOST_ONCE, "reconcile": nothing, "pool": "p"}
    hand = walking(flow(step("a", condition=nothing, branches=["b"], router=nothing, **once), step("b", "a")))

    def kinds(takes: Callable[[str], bool]) -> list[str]:
        return [hand.held[path].kind for path in paths(hand, takes)]

    assert kinds(unasked) == [WorkKind.CONDITION]
    hand.check_condition("a", True)
    assert kinds(open_to()) == []
    assert kinds(open_to("p")) == [WorkKind.BODY]
    hand.start("a")
    hand.fail("a", ValueError("lost"))
    assert kinds(open_to()) == []
    assert kinds(open_to("p")) == [WorkKind.RECONCILE]


def test_nobody_is_asked_for_a_slot_for_what_is_not_wanted_any_more(walking):
    hand = walking(flow(step("a", pool="p"), step("b"), step("ask", interrupt="Go on?"), fail_fast=True))
    assert paths(hand, open_to()) == ["b"]
    hand.start("b")
    hand.fail("b", ValueError("no"))

    assert not hand.walk.wants("p")
    assert paths(hand, unasked) == []


def test_a_map_that_takes_no_elements_any_more_wants_no_slot(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", pool="p")))
    hand.run("list", [1, 2, 3])
    assert paths(hand, slots(1)) == ["m[0]"]
    assert hand.walk.wants("p")
    hand.start("m[0]")
    hand.fail("m[0]", ValueError("no"))

    assert not hand.walk.wants("p")
    assert hand.instance("m").phase == "failed"


def test_work_that_is_put_back_is_the_first_of_its_pool_again(walking):
    hand = walking(flow(step("a", pool="p"), step("b", pool="p"), step("c")))
    work = hand.walk.next_work(open_to("p"))
    assert work is not None

    hand.walk.put_back(work)

    assert hand.walk.next_pool(()) == "p"
    assert hand.walk.next_pool({"p"}) is None
    assert paths(hand, slots(1)) == ["a", "c"]


def test_a_walk_is_idle_for_one_who_has_no_slot(walking):
    hand = walking(flow(step("a", pool="p"), step("b", pool="q")))

    assert not hand.walk.is_idle({"p"})
    assert hand.walk.is_idle({"p", "q"})
    assert not hand.walk.is_idle()
    paths(hand, open_to("p", "q"))
    assert hand.walk.is_idle()


@given(st.lists(st.sampled_from([None, *NAMES]), min_size=1, max_size=12), st.data())
def test_the_next_is_the_first_in_definition_order_whose_pool_is_open(pools: list[str | None], data: st.DataObject):
    hand = Hand(flow(*(step(f"s{i}", pool=pool) for i, pool in enumerate(pools))))
    queued = list(enumerate(pools))
    taken: list[Work] = []
    for is_open in data.draw(st.lists(st.frozensets(st.sampled_from(NAMES)), max_size=30)):
        first = next(((i, pool) for i, pool in queued if pool is None or pool in is_open), None)

        work = hand.walk.next_work(is_open.__contains__)

        if work is None or first is None:
            assert work is first
        else:
            assert (work.instance.path, work.pool) == (f"s{first[0]}", first[1])
            queued.remove(first)
            taken.append(work)
        if taken and data.draw(st.booleans()):
            again = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            hand.walk.put_back(again)
            queued = sorted([*queued, (int(again.instance.path[1:]), again.pool)], key=lambda each: each[0])
        assert hand.walk.is_idle(is_open) == all(pool in is_open for _, pool in queued)
        assert all(hand.walk.wants(name) == any(pool == name for _, pool in queued) for name in NAMES)
