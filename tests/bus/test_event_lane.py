"""The books of a lane are exact, and what it drops is known."""

import threading
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bus.lane import EventLane
from tests.bus.players import LONG, event, in_thread

MOVES = st.lists(st.one_of(st.just("offer"), st.just("keep"), st.just("take"), st.just("close")), max_size=60)


def test_a_full_lane_drops_the_new_event_and_counts_it() -> None:
    lane = EventLane(2)

    kept = [lane.offer(event(n)) for n in range(4)]

    assert kept == [True, True, False, False]
    counts = lane.counts()
    assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (4, 0, 2, 2)


def test_the_next_delivery_says_how_many_were_lost_before_it() -> None:
    lane = EventLane(1)
    lane.offer(event(0))
    lane.offer(event(1))
    lane.offer(event(2))
    first = lane.take()
    lane.offer(event(3))

    second = lane.take()

    assert [(each.event.seq, each.dropped_before) for each in (first, second) if each] == [(0, 0), (3, 2)]


def test_an_event_that_must_be_kept_is_kept_beyond_the_capacity() -> None:
    lane = EventLane(1)
    lane.offer(event(0))

    assert lane.offer(event(1), keep=True)
    assert lane.counts().pending == 2


def test_what_waits_when_it_is_closed_counts_as_dropped_and_so_does_what_is_on_its_way() -> None:
    lane = EventLane(3)
    for n in range(3):
        lane.offer(event(n))
    lane.take()

    lane.close()
    lane.offer(event(3))

    assert lane.take() is None
    counts = lane.counts()
    assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (4, 1, 3, 0)


@given(capacity=st.integers(1, 5), moves=MOVES)
def test_it_does_what_a_naive_lane_does(capacity: int, moves: list[str]) -> None:
    lane = EventLane(capacity)
    waiting: list[tuple[int, int]] = []
    matched = delivered = lost = 0
    is_closed = False

    for move in moves:
        if move in ("offer", "keep"):
            is_kept = len(waiting) < capacity or move == "keep"
            answer = lane.offer(event(matched), keep=move == "keep")
            if not is_closed:
                assert answer is is_kept
            if is_kept and not is_closed:
                waiting.append((matched, lost))
                lost = 0
            else:
                lost += 1
            matched += 1
        elif move == "take":
            delivery = lane.take()
            if waiting:
                assert delivery is not None
                assert (delivery.event.seq, delivery.dropped_before) == waiting.pop(0)
                delivered += 1
            else:
                assert delivery is None
        else:
            lane.close()
            waiting.clear()
            is_closed = True
        counts = lane.counts()
        assert (counts.matched, counts.delivered, counts.pending) == (matched, delivered, len(waiting))
        assert counts.matched == counts.delivered + counts.dropped + counts.pending


def test_the_books_are_exact_at_every_moment_while_one_offers_and_one_takes() -> None:
    lane = EventLane(16)
    start = threading.Barrier(4)
    stop = threading.Event()
    wrong: list[Any] = []

    def offer() -> None:
        start.wait(LONG)
        for number in range(20_000):
            lane.offer(event(number))

    def take() -> int:
        start.wait(LONG)
        taken = 0
        while not (stop.is_set() and not len(lane)):
            taken += lane.take() is not None
        return taken

    def audit() -> None:
        start.wait(LONG)
        while not stop.wait(0.000_1):  # a pause: one that spins keeps the others from the interpreter
            counts = lane.counts()
            if counts.matched != counts.delivered + counts.dropped + counts.pending or min(attrs.astuple(counts)) < 0:
                wrong.append(counts)

    offering, taking, auditing = in_thread(offer), in_thread(take), in_thread(audit)
    start.wait(LONG)
    offering()
    stop.set()
    auditing()

    taken = taking()
    assert wrong == []
    counts = lane.counts()
    assert (counts.matched, counts.delivered, counts.pending) == (20_000, taken, 0)


class Interrupting:
    """The queue of a lane; when it is armed, Ctrl-C hits the next call, just before it does anything or just after."""

    def __init__(self, lane: EventLane, *, comes_before: bool) -> None:
        self.inner = lane._waiting
        self.comes_before = comes_before
        self.is_armed = False
        lane._waiting = self  # type: ignore[assignment]

    def _call(self, method: Any, *args: Any) -> Any:
        is_armed, self.is_armed = self.is_armed, False
        if is_armed and self.comes_before:
            raise KeyboardInterrupt
        done = method(*args)
        if is_armed:
            raise KeyboardInterrupt
        return done

    def put(self, item: Any) -> None:
        self._call(self.inner.put, item)

    def get_nowait(self) -> Any:
        return self._call(self.inner.get_nowait)

    def qsize(self) -> int:
        return self.inner.qsize()


@pytest.mark.parametrize("comes_before", [True, False])
@pytest.mark.parametrize("side", ["offer", "take"])
def test_the_books_of_a_lane_that_was_interrupted_are_right_again(side: str, comes_before: bool) -> None:
    lane = EventLane(4)
    for number in range(3):
        lane.offer(event(number))
    interrupting = Interrupting(lane, comes_before=comes_before)
    act = lane.take if side == "take" else partial(lane.offer, event(3))

    interrupting.is_armed = True
    with pytest.raises(KeyboardInterrupt):
        act()

    while len(lane):
        counts = lane.counts()
        assert counts.pending == len(lane)
        assert counts.matched == counts.delivered + counts.dropped + counts.pending
        lane.take()
    assert lane.counts().pending == 0
