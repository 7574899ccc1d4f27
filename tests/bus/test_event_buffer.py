"""The books of a buffer are exact, and what it drops is known."""

from hypothesis import given
from hypothesis import strategies as st

from ares.bus.buffer import EventBuffer
from tests.bus.players import event

MOVES = st.lists(st.one_of(st.just("offer"), st.just("keep"), st.just("take"), st.just("discard")), max_size=60)


def test_a_full_buffer_drops_the_new_event_and_counts_it() -> None:
    buffer = EventBuffer(2)

    kept = [buffer.offer(event(n)) for n in range(4)]

    assert kept == [True, True, False, False]
    counts = buffer.counts()
    assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (4, 0, 2, 2)


def test_the_next_delivery_says_how_many_were_lost_before_it() -> None:
    buffer = EventBuffer(1)
    buffer.offer(event(0))
    buffer.offer(event(1))
    buffer.offer(event(2))
    first = buffer.take()
    buffer.offer(event(3))

    second = buffer.take()

    assert [(each.event.seq, each.dropped_before) for each in (first, second) if each] == [(0, 0), (3, 2)]


def test_an_event_that_must_be_kept_is_kept_beyond_the_capacity() -> None:
    buffer = EventBuffer(1)
    buffer.offer(event(0))

    assert buffer.offer(event(1), keep=True)
    assert buffer.counts().pending == 2


def test_what_is_discarded_counts_as_dropped() -> None:
    buffer = EventBuffer(3)
    for n in range(3):
        buffer.offer(event(n))

    assert buffer.discard() == 3

    counts = buffer.counts()
    assert (counts.matched, counts.dropped, counts.pending) == (3, 3, 0)


@given(capacity=st.integers(1, 5), moves=MOVES)
def test_it_does_what_a_naive_buffer_does(capacity: int, moves: list[str]) -> None:
    buffer = EventBuffer(capacity)
    waiting: list[tuple[int, int]] = []
    matched = delivered = dropped = lost = 0

    for move in moves:
        if move in ("offer", "keep"):
            is_kept = len(waiting) < capacity or move == "keep"
            assert buffer.offer(event(matched), keep=move == "keep") is is_kept
            if is_kept:
                waiting.append((matched, lost))
                lost = 0
            else:
                dropped += 1
                lost += 1
            matched += 1
        elif move == "take":
            delivery = buffer.take()
            if waiting:
                assert delivery is not None
                assert (delivery.event.seq, delivery.dropped_before) == waiting.pop(0)
                delivered += 1
            else:
                assert delivery is None
        else:
            dropped += len(waiting)
            assert buffer.discard() == len(waiting)
            waiting.clear()
        counts = buffer.counts()
        assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (
            matched,
            delivered,
            dropped,
            len(waiting),
        )
        assert counts.matched == counts.delivered + counts.dropped + counts.pending
