"""Two lanes: one that never blocks, one that is bounded; and no message lost between put and close."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bus import mailbox as mailboxes
from ares.bus.mailbox import EVENTS_WAIT, Mailbox, MailboxClosedError
from tests.bus.players import LONG, event, in_thread, until


def new_mailbox(capacity: int = 0) -> Mailbox:
    return Mailbox(threading.RLock(), capacity)


def take_all(mailbox: Mailbox) -> list[int | None]:
    taken = []
    while (delivery := mailbox.take_event()) is not None:
        taken.append(delivery.event.seq)
    return taken


def test_messages_come_out_in_the_order_they_went_in() -> None:
    mailbox = new_mailbox()
    for message in "abc":
        mailbox.put(message)

    assert [mailbox.get() for _ in range(3)] == ["a", "b", "c"]


def test_a_closed_mailbox_refuses_messages_and_hands_over_the_rest() -> None:
    mailbox = new_mailbox(4)
    mailbox.put("a")
    mailbox.put("b")
    mailbox.offer(event())

    assert mailbox.close() == ["a", "b"]

    with pytest.raises(MailboxClosedError):
        mailbox.put("c")
    assert mailbox.close() == []
    counts = mailbox.counts()
    assert (counts.matched, counts.dropped, counts.pending) == (1, 1, 0)


def test_putting_does_not_block_on_a_full_event_lane() -> None:
    mailbox = new_mailbox(1)
    assert mailbox.offer(event(0))
    assert not mailbox.offer(event(1))

    mailbox.put("stop")

    assert mailbox.get() == "stop"


def test_a_message_comes_before_all_events_that_wait() -> None:
    mailbox = new_mailbox(8)
    for n in range(8):
        mailbox.offer(event(n))
    mailbox.put("call")

    assert mailbox.get() == "call"
    assert mailbox.get() is EVENTS_WAIT
    assert take_all(mailbox) == list(range(8))


def test_a_reader_in_deep_sleep_is_woken_by_one_event() -> None:
    mailbox = new_mailbox(8)
    reader = in_thread(mailbox.get)
    until(lambda: mailbox._sleep is mailboxes._DEEP)

    mailbox.offer(event())

    assert reader() is EVENTS_WAIT


def test_a_reader_that_rests_is_woken_by_a_half_full_lane_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailboxes, "REST", LONG)
    mailbox = new_mailbox(8)
    assert mailbox.take_event() is None  # the lane is empty: from now on the reader rests
    woken = threading.Event()
    reader = in_thread(lambda: (mailbox.get(), woken.set()))
    until(lambda: mailbox._sleep is mailboxes._LIGHT)

    for n in range(3):
        mailbox.offer(event(n))
    assert mailbox._control.empty()
    assert mailbox._bell.locked()
    assert not woken.is_set()
    mailbox.offer(event(3))

    assert reader()[0] is EVENTS_WAIT


def test_a_reader_that_rests_takes_a_few_events_when_it_has_rested() -> None:
    mailbox = new_mailbox(1_000)
    assert mailbox.take_event() is None
    mailbox.offer(event())

    assert mailbox.get() is EVENTS_WAIT
    assert take_all(mailbox) == [0]


def test_however_short_the_rest_the_reader_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SimpleQueue's get with such a timeout now and then does not."""
    monkeypatch.setattr(mailboxes, "REST", 2e-5)
    mailbox = new_mailbox(1_000)

    def go_round() -> int:
        for _ in range(5_000):
            assert mailbox.take_event() is None
            mailbox.offer(event())
            assert mailbox.get() is EVENTS_WAIT
            assert mailbox.take_event() is not None
        return mailbox.counts().delivered

    assert in_thread(go_round)() == 5_000


def test_a_message_wakes_a_reader_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailboxes, "REST", LONG)
    mailbox = new_mailbox(8)
    assert mailbox.take_event() is None
    reader = in_thread(mailbox.get)
    until(lambda: mailbox._sleep is mailboxes._LIGHT)

    mailbox.put("call")

    assert reader() == "call"


def test_events_that_are_ended_or_discarded_are_not_matched_any_more() -> None:
    mailbox = new_mailbox(8)
    mailbox.offer(event(0))
    mailbox.end_events()
    assert mailbox.offer(event(1))
    assert take_all(mailbox) == [0]

    mailbox.discard_events()

    assert mailbox.counts().matched == 1


def test_a_mailbox_without_an_event_lane_has_no_events() -> None:
    mailbox = new_mailbox()

    assert mailbox.offer(event())
    assert mailbox.counts().matched == 0


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)),
        st.tuples(st.just("offer"), st.booleans()),
        st.tuples(st.just("get"), st.none()),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=80,
)


@given(capacity=st.integers(1, 4), moves=MOVES)
def test_it_does_what_two_lists_do(capacity: int, moves: list[tuple[str, Any]]) -> None:
    """Sequential model: a get may answer ``EVENTS_WAIT`` only when no message waits."""
    mailbox = new_mailbox(capacity)
    control: list[int] = []
    events: list[int] = []
    is_closed = False
    number = 0

    for move, argument in moves:
        if move == "put":
            if is_closed:
                with pytest.raises(MailboxClosedError):
                    mailbox.put(argument)
            else:
                mailbox.put(argument)
                control.append(argument)
        elif move == "offer":
            is_kept = mailbox.offer(event(number), keep=argument)
            if not is_closed and (len(events) < capacity or argument):
                events.append(number)
                assert is_kept
            else:
                assert is_kept is is_closed
            number += 1
        elif move == "get" and (control or events):
            message = mailbox.get()
            if control:
                assert message == control.pop(0)
            else:
                assert message is EVENTS_WAIT
        elif move == "take":
            delivery = mailbox.take_event()
            assert (None if delivery is None else delivery.event.seq) == (events.pop(0) if events else None)
        elif move == "close":
            assert mailbox.close() == control
            control, events, is_closed = [], [], True
        counts = mailbox.counts()
        assert counts.pending == len(events)
        assert counts.matched == counts.delivered + counts.dropped + counts.pending


def test_nothing_put_is_lost_while_others_close() -> None:
    """Every message is either refused, or read, or handed over by close: 16 putters, one reader, one end."""
    mailbox = new_mailbox()
    start = threading.Barrier(17)
    accepted: list[list[int]] = [[] for _ in range(16)]

    def putter(number: int) -> None:
        start.wait(LONG)
        for message in range(number * 1_000, number * 1_000 + 1_000):
            try:
                mailbox.put(message)
            except MailboxClosedError:
                return
            accepted[number].append(message)

    joins = [in_thread(putter, number) for number in range(16)]
    start.wait(LONG)
    seen = [mailbox.get() for _ in range(300)]
    seen += mailbox.close()
    for join in joins:
        join()

    assert mailbox.empty()
    assert sorted(seen) == sorted(message for messages in accepted for message in messages)
