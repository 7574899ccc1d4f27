"""A reader's own buffer: exact books, no hanging reader, and an end that can come at any moment."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ares.bus import PluginBus
from ares.bus import subscription as subscriptions
from ares.bus.subscription import BusSubscription
from ares.events import EventFilter
from tests.bus.players import LONG, event, in_thread, until

NewBus = Callable[..., PluginBus]


def new_subscription(buffer: int = 64) -> BusSubscription:
    return BusSubscription(EventFilter(), buffer, lambda _: None)


def test_get_waits_for_the_next_event() -> None:
    subscription = new_subscription()
    getting = in_thread(subscription.get)
    until(lambda: subscription._rings_at == 1)

    subscription.offer(event(7))

    assert getting().event.seq == 7


def test_get_gives_up_after_its_timeout() -> None:
    subscription = new_subscription()
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        subscription.get(timeout=0.05)

    assert 0.04 < time.monotonic() - began < 5


def test_get_without_patience_takes_what_is_there() -> None:
    subscription = new_subscription()
    subscription.offer(event(1))

    assert subscription.get(timeout=0) is not None
    with pytest.raises(TimeoutError):
        subscription.get(timeout=0)


def test_a_reader_in_a_steady_flow_is_not_woken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "REST", LONG)
    subscription = new_subscription(8)
    subscription.offer(event(0))
    assert subscription.get() is not None
    getting = in_thread(subscription.get)
    until(lambda: subscription._rings_at == 4)

    for number in range(1, 4):
        subscription.offer(event(number))
    assert subscription._sleepers == 1
    assert subscription._bell.locked()
    subscription.offer(event(4))

    assert getting().event.seq == 1


def test_a_reader_that_rests_looks_for_itself_in_the_end() -> None:
    subscription = new_subscription(64)
    subscription.offer(event(0))
    assert subscription.get() is not None
    getting = in_thread(subscription.get)

    subscription.offer(event(1))

    assert getting().event.seq == 1


@pytest.mark.parametrize("end", ["close", "end"])
def test_a_reader_that_sleeps_is_woken_by_the_end(end: str) -> None:
    subscription = new_subscription()
    readings = [in_thread(lambda: list(subscription)) for _ in range(3)]
    until(lambda: subscription._sleepers == 3)

    getattr(subscription, end)()

    assert [reading() for reading in readings] == [[], [], []]


def test_what_waits_can_be_read_after_the_end_but_not_after_closing() -> None:
    ended, closed = new_subscription(), new_subscription()
    for subscription in (ended, closed):
        subscription.offer(event(1))

    ended.end()
    closed.close()

    assert len(list(ended)) == 1
    assert list(closed) == []
    assert (closed.matched, closed.delivered, closed.dropped, closed.pending) == (1, 0, 1, 0)
    assert closed.get() is None


def test_closing_twice_closes_once() -> None:
    subscription = new_subscription()

    subscription.close()
    subscription.close()

    assert subscription.offer(event())
    assert subscription.matched == 0


def test_a_with_block_closes(new_bus: NewBus) -> None:
    bus = new_bus()
    with bus.subscribe(EventFilter()) as subscription:
        bus.emit("e", "a.b", "test")

    bus.emit("e", "a.b", "test")

    assert (subscription.matched, subscription.pending) == (1, 0)


@pytest.mark.case("C023")
def test_a_subscriber_may_close_itself_and_others_during_delivery(new_bus: NewBus) -> None:
    """A closes itself and C while it handles event 1; C's copy of event 1 is dropped."""
    bus = new_bus()
    a, b, c = (bus.subscribe(EventFilter()) for _ in range(3))
    seen: dict[str, list[Any]] = {"a": [], "b": [], "c": []}

    def read(name: str, subscription: BusSubscription) -> None:
        for delivery in subscription:
            seen[name].append(delivery.event.payload["n"])
            if name == "a":
                a.close()
                c.close()

    bus.emit("e", "a.b", "test", {"n": 1})
    read("a", a)
    bus.emit("e", "a.b", "test", {"n": 2})
    bus.stop()
    read("b", b)
    read("c", c)

    assert seen == {"a": [1], "b": [1, 2], "c": []}
    assert (c.matched, c.dropped, c.pending) == (1, 1, 0)
    a.close()


@pytest.mark.case("C023")
def test_closing_while_many_emit_breaks_nothing(new_bus: NewBus) -> None:
    bus = new_bus()
    start = threading.Barrier(6)
    stop = threading.Event()

    def emit() -> None:
        start.wait(LONG)
        while not stop.is_set():
            bus.emit("e", "a.b", "test")

    def come_and_go() -> None:
        start.wait(LONG)
        for _ in range(300):
            subscription = bus.subscribe(EventFilter(), buffer=2)
            subscription.close()
            counts = subscription.counts()
            assert counts.pending == 0
            assert counts.matched == counts.delivered + counts.dropped

    joins = [in_thread(emit) for _ in range(3)]
    goers = [in_thread(come_and_go) for _ in range(3)]
    for join in goers:
        join()
    stop.set()
    for join in joins:
        join()

    assert not bus.wants("a.b")


def test_a_reader_that_is_woken_wakes_the_next_if_there_is_more() -> None:
    """Three readers of one event each; the bell is rung once for all that came while nobody was awake."""
    subscription = new_subscription(8)
    getting = [in_thread(subscription.get) for _ in range(3)]
    until(lambda: subscription._sleepers == 3)

    with subscription._lock:  # so that none that is woken gets on before all events are there
        for number in range(3):
            subscription.offer(event(number))

    assert sorted(get().event.seq for get in getting) == [0, 1, 2]


def test_no_reader_is_left_asleep_while_events_wait(new_bus: NewBus) -> None:
    """Readers that come, wait a little and go, or take one event only."""
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(), buffer=100_000)
    stop = threading.Event()

    def nibble(number: int) -> int:
        taken = 0
        while not stop.is_set() or subscription.pending:
            try:
                taken += subscription.get(timeout=0.001 * number) is not None
            except TimeoutError:
                continue
        return taken

    nibbling = [in_thread(nibble, number) for number in range(1, 5)]
    emitting = [in_thread(lambda: [bus.emit("e", "a.b", "test") for _ in range(1_000)]) for _ in range(2)]
    for join in emitting:
        join()
    stop.set()

    assert sum(join() for join in nibbling) == 2_000


def test_the_books_are_exact_at_every_moment_while_many_read_and_emit(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(), buffer=16)
    start = threading.Barrier(9)
    wrong: list[Any] = []
    stop = threading.Event()

    def emit() -> None:
        start.wait(LONG)
        for _ in range(3_000):
            bus.emit("e", "a.b", "test")

    def read() -> int:
        start.wait(LONG)
        return sum(1 for _ in subscription)

    def audit() -> None:
        start.wait(LONG)
        while not stop.wait(0.000_1):  # a pause: one that spins keeps the others from the interpreter
            counts = subscription.counts()
            if counts.matched != counts.delivered + counts.dropped + counts.pending:
                wrong.append(counts)

    emitting = [in_thread(emit) for _ in range(4)]
    reading = [in_thread(read) for _ in range(3)]
    auditing = [in_thread(audit) for _ in range(2)]
    for join in emitting:
        join()
    subscription.end()
    read_in_all = sum(join() for join in reading)
    stop.set()
    for join in auditing:
        join()

    assert wrong == []
    counts = subscription.counts()
    assert (counts.matched, counts.delivered, counts.pending) == (12_000, read_in_all, 0)


class Books(RuleBasedStateMachine):
    """A subscription on a bus against a naive one."""

    @initialize(buffer=st.integers(1, 4), streams=st.sets(st.sampled_from(["s1", "s2"])))
    def begin(self, buffer: int, streams: set[str]) -> None:
        self.bus = PluginBus()
        self.filter = EventFilter(stream_ids=streams)
        self.subscription = self.bus.subscribe(self.filter, buffer=buffer)
        self.buffer = buffer
        self.open_streams = set(streams)
        self.waiting: list[tuple[int, int]] = []
        self.matched = self.delivered = self.dropped = self.lost = self.number = 0
        self.is_over = False

    def arrives(self, stream: str, *, keep: bool) -> None:
        self.number += 1
        if self.is_over or not self.filter.matches(event(0, "a.b", stream)):
            return
        self.matched += 1
        if len(self.waiting) < self.buffer or keep:
            self.waiting.append((self.number, self.lost))
            self.lost = 0
        else:
            self.dropped += 1
            self.lost += 1

    @rule(stream=st.sampled_from(["s1", "s2"]))
    def emit(self, stream: str) -> None:
        self.arrives(stream, keep=False)
        self.bus.emit(stream, "a.b", "test", {"n": self.number})

    @rule(stream=st.sampled_from(["s1", "s2"]))
    def end_stream(self, stream: str) -> None:
        self.arrives(stream, keep=True)
        self.bus.emit(stream, "workflow.completed", "test", {"n": self.number})
        if self.filter.stream_ids:
            self.open_streams.discard(stream)
            self.is_over = self.is_over or not self.open_streams

    @rule()
    def get(self) -> None:
        if self.waiting:
            delivery = self.subscription.get(0)
            assert delivery is not None
            assert (delivery.event.payload["n"], delivery.dropped_before) == self.waiting.pop(0)
            self.delivered += 1
        elif self.is_over:
            assert self.subscription.get(0) is None
        else:
            with pytest.raises(TimeoutError):
                self.subscription.get(0)

    @rule()
    def close(self) -> None:
        self.subscription.close()
        self.dropped += len(self.waiting)
        self.waiting.clear()
        self.is_over = True

    @rule()
    def stop(self) -> None:
        self.bus.stop()
        self.is_over = True

    @invariant()
    def books_are_exact(self) -> None:
        counts = self.subscription.counts()
        assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (
            self.matched,
            self.delivered,
            self.dropped,
            len(self.waiting),
        )
        assert counts.matched == counts.delivered + counts.dropped + counts.pending
        assert self.subscription.is_over is self.is_over


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = Books.TestCase
