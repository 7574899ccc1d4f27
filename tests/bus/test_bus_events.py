"""Events: who gets which, in what order, and what becomes of the rest."""

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bus import BUS_STREAM, PluginBus, PluginState
from ares.bus.exchange import ENDS, Exchange
from ares.bus.subscription import BusSubscription
from ares.context import Context
from ares.errors import UsageError
from ares.events import Delivery, Event, EventFilter, EventType
from ares.plugin import EventBus, Subscription
from tests.bus.players import LONG, Gate, Listener, Log, Named, Said, event, in_thread, until

NewBus = Callable[..., PluginBus]


def drain(subscription: BusSubscription) -> list[Event]:
    """All that is pending."""
    return [delivery.event for _ in range(subscription.pending) if (delivery := subscription.get(0)) is not None]


# --- emitting --------------------------------------------------------------------------------------------


def test_a_subscriber_receives_what_was_emitted(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription: Subscription = bus.subscribe(EventFilter())

    bus.emit("e", "tool.called", "mine", {"x": 1})

    delivery = subscription.get(0)
    assert delivery is not None
    got = delivery.event
    assert (got.stream_id, got.type, got.module, got.payload, got.seq) == ("e", "tool.called", "mine", {"x": 1}, None)
    assert got.timestamp.utcoffset() is not None
    assert delivery.dropped_before == 0


def test_every_event_has_an_id_of_its_own(new_bus: NewBus) -> None:
    buses = [new_bus(), new_bus()]
    subscriptions = [bus.subscribe(EventFilter(), buffer=1_000) for bus in buses]
    for bus in buses:
        for number in range(200):
            bus.emit(f"e{number}", "a.b", "test")

    ids = [got.id for subscription in subscriptions for got in drain(subscription)]

    assert len(set(ids)) == len(ids) == 400


def test_the_payload_is_a_copy(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter())
    payload = {"x": 1}
    bus.emit("e", "a.b", "test", payload)
    payload["x"] = 2

    assert drain(subscription)[0].payload == {"x": 1}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("", "a.b", "m"), "stream_id"),
        ((5, "a.b", "m"), "stream_id"),
        (("e", "undotted", "m"), "undotted"),
        (("e", 5, "m"), "type"),
        (("e", "a.b", None), "module"),
        (("e", "a.b", "m", [1]), "payload"),
        (("e", "a.b", "m", {5: 1}), "payload"),
    ],
)
def test_what_no_event_can_be_is_refused_and_nothing_is_lost(
    new_bus: NewBus, arguments: tuple[Any, ...], named: str
) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter())

    with pytest.raises(UsageError, match=named):
        bus.emit(*arguments)

    bus.emit("e", "a.b", "test")
    assert subscription.matched == 1


def test_wants_says_whether_an_event_would_reach_anybody(new_bus: NewBus) -> None:
    bus = new_bus()
    assert not bus.wants("step.started")
    assert bus.wants("workflow.completed"), "ends of streams are remembered"
    by_type = bus.subscribe(EventFilter(types=["step.started"]))
    assert bus.wants("step.started")
    assert not bus.wants("step.failed")
    by_stream = bus.subscribe(EventFilter(stream_ids=["e"]))
    assert bus.wants("step.failed")

    by_type.close()
    by_stream.close()

    assert not bus.wants("step.started")


def test_what_was_committed_is_passed_on_as_it_is(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(types=["a.b"]))
    events = [event(number) for number in range(3)]

    bus.publish([*events, event(9, "c.d")])

    assert drain(subscription) == events


def test_nothing_passes_after_the_bus_has_stopped(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter())
    bus.stop()

    bus.emit("e", "a.b", "test")

    assert list(subscription) == []
    late = bus.subscribe(EventFilter())
    assert late.is_over
    assert list(late) == []


# --- filters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter",
    [
        EventFilter(types="step.started"),
        EventFilter(types=["started"]),
        EventFilter(types=[None]),  # type: ignore[list-item]
        EventFilter(stream_ids=[""]),
        EventFilter(stream_ids=[5]),  # type: ignore[list-item]
        None,
        "step.started",
    ],
)
def test_a_filter_that_can_select_nothing_is_refused(new_bus: NewBus, filter: Any) -> None:
    with pytest.raises(UsageError):
        new_bus().subscribe(filter)


@pytest.mark.parametrize("buffer", [0, -1, "64", None, True])
def test_a_buffer_is_a_number_from_one(new_bus: NewBus, buffer: Any) -> None:
    with pytest.raises(UsageError, match="buffer"):
        new_bus().subscribe(EventFilter(), buffer=buffer)


TYPES = ["a.b", "c.d", "e.f"]
STREAMS = ["s1", "s2", "s3"]
FILTERS = st.builds(EventFilter, types=st.sets(st.sampled_from(TYPES)), stream_ids=st.sets(st.sampled_from(STREAMS)))


@given(
    filters=st.lists(FILTERS, max_size=6),
    happenings=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(STREAMS), st.sampled_from(TYPES)), st.tuples(st.just("close"), st.integers(0, 5))
        ),
        max_size=40,
    ),
)
def test_the_index_selects_what_the_filters_do(filters: list[EventFilter], happenings: list[tuple[str, Any]]) -> None:
    """Against a naive bus that asks every filter about every event."""
    bus = PluginBus()
    subscriptions = [bus.subscribe(wanted, buffer=100) for wanted in filters]
    expected: list[list[int]] = [[] for _ in filters]
    is_open = [True] * len(filters)

    for number, (first, second) in enumerate(happenings):
        if first == "close":
            if second < len(filters):
                subscriptions[second].close()
                is_open[second] = False
                expected[second] = []
            continue
        would = [is_open[i] and f.matches(event(0, second, first)) for i, f in enumerate(filters)]
        assert bus.wants(second) or not any(would)
        bus.emit(first, second, "test", {"n": number})
        for index, matches in enumerate(would):
            if matches:
                expected[index].append(number)

    assert [[got.payload["n"] for got in drain(each)] for each in subscriptions] == expected


# --- order -----------------------------------------------------------------------------------------------


def test_all_receive_the_events_of_a_stream_in_the_same_order(new_bus: NewBus) -> None:
    """Sixteen threads emit into the same two streams."""
    bus = new_bus()
    subscriptions = [bus.subscribe(EventFilter(), buffer=100_000) for _ in range(4)]
    heard = Log()
    bus2 = new_bus(Listener("ear", lambda d: heard.add(d.event), subscribes_to=EventFilter(), buffer=100_000))
    start = threading.Barrier(16)

    def emitter(number: int) -> None:
        start.wait(LONG)
        for count in range(200):
            for each in (bus, bus2):
                each.emit(f"s{count % 2}", "a.b", "test", {"from": number, "count": count})

    for join in [in_thread(emitter, number) for number in range(16)]:
        join()

    orders = [
        [(got.stream_id, got.payload["from"], got.payload["count"]) for got in drain(each)] for each in subscriptions
    ]
    for stream in ("s0", "s1"):
        mine = [[line for line in order if line[0] == stream] for order in orders]
        assert mine[0] == mine[1] == mine[2] == mine[3]
        assert len(mine[0]) == 1_600
        for number in range(16):
            counts = [count for _, sender, count in mine[0] if sender == number]
            assert counts == sorted(counts), "what one thread emitted stays in its order"
    bus2.stop()
    assert len([got for got in heard.lines if got.type == "a.b"]) == 3_200


def test_ids_of_a_stream_tell_its_order(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(), buffer=10_000)
    joins = [in_thread(lambda: [bus.emit("s", "a.b", "test") for _ in range(300)]) for _ in range(8)]
    for join in joins:
        join()

    numbers = [int(got.id.rsplit("-", 1)[1]) for got in drain(subscription)]

    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 2_400


def test_a_finalizer_that_emits_in_the_middle_is_passed_on_after(new_bus: NewBus) -> None:
    """All receive both, in the same order."""
    bus = new_bus()
    nested = iter([True])

    class Nosy(BusSubscription):
        def offer(self, event: Event, *, keep: bool = False) -> bool:
            if next(nested, False):
                bus.emit("s", "in.ner", "test")
            return super().offer(event, keep=keep)

    first = bus.subscribe(EventFilter())
    middle = Nosy(EventFilter(), 64, lambda _: None)
    bus._exchange.attach(middle)
    last = bus.subscribe(EventFilter())

    bus.emit("s", "out.er", "test")

    for subscription in (first, middle, last):
        assert [got.type for got in drain(subscription)] == ["out.er", "in.ner"]


@pytest.mark.case("C051")
@pytest.mark.parametrize("held", ["resident", "subscription", "exchange", "population", "house", "view"])
def test_emitting_waits_for_no_lock_that_somebody_interrupted_by_a_finalizer_may_hold(
    new_bus: NewBus, held: str
) -> None:
    """Else two threads, each of them emitting from a finalizer that struck while it held what the other waits for,
    would wait for ever."""
    heard = threading.Semaphore(0)
    bus = new_bus(Listener("ear", lambda _d: heard.release(), subscribes_to=EventFilter(types=["a.b"])))
    subscription = bus.subscribe(EventFilter(types=["a.b"]))
    population = bus._population
    locks = {
        "resident": population.residents[0]._lock,
        "subscription": subscription._lock,
        "exchange": bus._exchange._lock,
        "population": population._lock,
        "house": bus._executions._lock,
        "view": population._lodgings[0]._view._lock,
    }

    with locks[held]:
        in_thread(bus.emit, "e", "a.b", "test")()
        in_thread(bus.publish, [event()])()
        assert subscription.pending == 2

    assert heard.acquire(timeout=LONG)


@pytest.mark.case("C051")
def test_objects_that_emit_when_they_are_collected_deadlock_nothing(new_bus: NewBus) -> None:
    bus = new_bus(Listener("ear", lambda _delivery: None, buffer=8))
    subscription = bus.subscribe(EventFilter(), buffer=8)

    class Noisy:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            bus.emit("s", "gone.noisy", "test")

    def work() -> None:
        for _ in range(2_000):
            Noisy()
            bus.emit("s", "a.b", "test", {"some": {"thing": []}})
            subscription.get(0)

    threshold = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    try:
        for join in [in_thread(work) for _ in range(3)]:
            join()
    finally:
        gc.set_threshold(*threshold)

    counts = subscription.counts()
    assert counts.matched == counts.delivered + counts.dropped + counts.pending


@pytest.mark.case("C051")
def test_a_log_that_emits_and_a_subscriber_that_logs_make_no_loop(new_bus: NewBus) -> None:
    buses: list[PluginBus] = []

    def say(level: str, message: str, *args: Any, error: BaseException | None = None) -> None:
        for bus in buses:
            bus.emit("log", "log.line", "test", {"text": message.format(*args)})

    bus = new_bus(say=say)
    buses.append(bus)
    subscription = bus.subscribe(EventFilter(), buffer=1)

    for _ in range(100):
        bus.emit("e", "a.b", "test")

    assert subscription.matched < 110
    counts = subscription.counts()
    assert counts.matched == counts.delivered + counts.dropped + counts.pending


# --- drops -----------------------------------------------------------------------------------------------


@pytest.mark.case("C021")
def test_a_slow_listener_loses_events_and_everybody_knows_how_many(new_bus: NewBus) -> None:
    said = Said()
    heard, quick = Log(), Log()
    pause = threading.Event()

    def slowly(delivery: Delivery) -> None:
        pause.wait(0.01)
        heard.add(delivery)

    wanted = EventFilter(types=["a.b"])
    bus = new_bus(
        Listener("slow", slowly, subscribes_to=wanted, buffer=10),
        Listener("quick", quick.add, subscribes_to=wanted, buffer=1_000),
        say=said,
    )
    began = time.monotonic()

    for number in range(1_000):
        bus.emit("e", "a.b", "test", {"n": number})

    assert time.monotonic() - began < 0.5
    bus.stop()
    health = bus.health()["slow"]
    assert health.events_delivered + health.events_dropped == 1_000
    assert health.events_delivered == len(heard.lines)
    assert health.events_dropped > 0
    assert health.events_pending == 0
    assert len([line for line in said.of("WARNING") if "lost" in line]) <= 5
    assert [delivery.event.payload["n"] for delivery in quick.lines] == list(range(1_000))
    # What was dropped is where the deliveries say it was.
    position = 0
    for delivery in heard.lines:
        position += delivery.dropped_before
        assert delivery.event.payload["n"] == position
        position += 1


def test_losses_are_told_to_the_execution_they_concern(new_bus: NewBus) -> None:
    bus = new_bus()
    bus.subscribe(EventFilter(), buffer=1)
    for execution in ("e1", "e2"):
        bus.open_execution(execution, None)  # type: ignore[arg-type]  # nobody records
    bus.emit("e1", "a.b", "test")
    for _ in range(7):
        bus.emit("e2", "a.b", "test")

    assert bus.close_execution("e1") == ()
    [warning] = bus.close_execution("e2")
    assert "lost" in warning
    assert "7" in warning


# --- the end of a stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_reader_of_one_stream_ends_with_it(new_bus: NewBus, end: EventType) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(stream_ids=["e"]))
    reading = in_thread(lambda: [delivery.event.type for delivery in subscription])

    bus.emit("e", "step.failed", "test", {"step": "s", "error": "StepTimeoutError"})
    bus.emit("other", "workflow.completed", "test")
    bus.emit("e", end, "test")

    assert reading() == ["step.failed", end]
    bus.emit("e", "a.b", "test")
    assert subscription.matched == 2


def test_the_end_is_delivered_also_when_the_buffer_is_full(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(stream_ids=["e"]), buffer=2)
    for _ in range(10):
        bus.emit("e", "a.b", "test")

    bus.emit("e", "workflow.failed", "test", {"error": "ExecutionTimeoutError"})

    deliveries = list(subscription)
    assert [delivery.event.type for delivery in deliveries] == ["a.b", "a.b", "workflow.failed"]
    assert deliveries[-1].dropped_before == 8


def test_a_reader_that_does_not_want_the_end_itself_ends_all_the_same(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(types=["step.failed"], stream_ids=["e"]))
    reading = in_thread(lambda: list(subscription))

    bus.publish([event(1, "workflow.completed", "e")])

    assert reading() == []


def test_a_reader_that_comes_too_late_ends_at_once(new_bus: NewBus) -> None:
    bus = new_bus()
    bus.emit("e", "workflow.completed", "test")

    assert list(bus.subscribe(EventFilter(stream_ids=["e"]))) == []


@pytest.mark.parametrize("beginning", ["workflow.started", "workflow.resumed", "interrupt.resolved"])
def test_a_stream_that_goes_on_can_be_read_again(new_bus: NewBus, beginning: str) -> None:
    bus = new_bus()
    bus.emit("e", "workflow.waiting", "test")
    bus.emit("e", beginning, "test")

    subscription = bus.subscribe(EventFilter(stream_ids=["e"]))
    bus.emit("e", "a.b", "test")

    assert [got.type for got in drain(subscription)] == ["a.b"]
    assert not subscription.is_over


def test_a_reader_of_several_streams_ends_with_the_last(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter(stream_ids=["e1", "e2"]))

    bus.emit("e1", "workflow.completed", "test")
    assert not subscription.is_over
    bus.emit("e2", "workflow.completed", "test")

    assert subscription.is_over
    assert len(list(subscription)) == 2


def test_a_reader_of_all_streams_ends_with_the_bus(new_bus: NewBus) -> None:
    bus = new_bus()
    subscription = bus.subscribe(EventFilter())
    reading = in_thread(lambda: [delivery.event.type for delivery in subscription])
    bus.emit("e", "workflow.completed", "test")
    bus.emit("e2", "a.b", "test")

    bus.stop()

    assert reading() == ["workflow.completed", "a.b"]


def test_ended_subscriptions_and_ended_streams_are_forgotten_in_time() -> None:
    exchange = Exchange("x", lambda _box, _event: None)
    for number in range(5_000):
        exchange.attach(BusSubscription(EventFilter(stream_ids=[f"e{number}"]), 4, exchange.detach))
        exchange.emit(f"e{number}", "workflow.completed", "test", None)

    assert len(exchange._boxes) == 0
    assert len(exchange._ended) <= 1_000


# --- plugins that listen ---------------------------------------------------------------------------------


def test_a_listener_hears_what_its_filter_selects_with_the_execution_in_its_context(new_bus: NewBus) -> None:
    heard = Log()

    class Ear(Named):
        subscribes_to = EventFilter(types=["a.b"])

        def on_event(self, ctx: Context, delivery: Delivery) -> None:
            heard.add((ctx.execution_id, delivery.event.type, threading.current_thread().name))

    bus = new_bus(Ear("ear"))
    bus.emit("e", "a.b", "test")
    bus.emit("e", "c.d", "test")

    bus.stop()

    assert heard.lines == [("e", "a.b", "ares-plugin ear test")]


def test_a_listener_is_woken_without_being_stopped(new_bus: NewBus) -> None:
    heard = threading.Semaphore(0)
    bus = new_bus(Listener("ear", lambda _d: heard.release(), subscribes_to=EventFilter(types=["a.b"])))

    for _ in range(3):
        bus.emit("e", "a.b", "test")
        assert heard.acquire(timeout=LONG)


def test_a_listener_that_raises_goes_on_and_is_complained_of(new_bus: NewBus) -> None:
    heard = Log()

    def hear(delivery: Delivery) -> None:
        heard.add(delivery.event.payload["n"])
        raise ValueError("no")

    bus = new_bus(Listener("ear", hear, subscribes_to=EventFilter(types=["a.b"])))
    bus.open_execution("e", None)  # type: ignore[arg-type]  # nobody records
    for number in range(5):
        bus.emit("e", "a.b", "test", {"n": number})

    bus.stop()

    assert heard.lines == [0, 1, 2, 3, 4]
    health = bus.health()["ear"]
    assert (health.errors, health.events_delivered) == (5, 5)
    [warning] = bus.close_execution("e")
    assert "on_event" in warning
    assert "(5 times)" in warning


def test_a_flood_of_events_does_not_delay_a_call(new_bus: NewBus, gate: Gate) -> None:
    """A thousand events wait when the call comes, and one is being handled; the call is next."""
    log = Log()

    def hear(delivery: Delivery) -> None:
        log.add("event")
        if len(log.lines) == 1:
            gate.pass_through()

    class Both(Listener):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            log.add("call")

    from tests.bus.players import step

    bus = new_bus(Both("both", hear, subscribes_to=EventFilter(types=["a.b"]), buffer=2_000))
    bus.emit("e", "a.b", "test")
    gate.await_entry()
    for _ in range(1_000):
        bus.emit("e", "a.b", "test")
    calling = in_thread(bus.before_step, "e", step())
    until(lambda: bus.health()["both"].mailbox_depth == 1)

    gate.open()
    calling()

    assert log.lines.index("call") == 1


def test_a_listener_that_hangs_costs_others_one_timeout_and_itself_its_events(new_bus: NewBus, gate: Gate) -> None:
    class Both(Listener):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None: ...

    from tests.bus.players import step

    wanted = EventFilter(types=["a.b"])
    bus = new_bus(Both("stuck", gate.pass_through, subscribes_to=wanted, timeout=0.2, buffer=8))
    bus.emit("e", "a.b", "test")
    gate.await_entry()
    began = time.monotonic()
    for _ in range(100):
        bus.before_step("e", step())
        bus.emit("e", "a.b", "test")

    assert time.monotonic() - began < 5
    health = bus.health()["stuck"]
    assert (health.state, health.timeouts) == (PluginState.UNRESPONSIVE, 1)
    assert (health.events_matched, health.events_pending, health.events_dropped) == (101, 8, 92)
    bus.stop()
    health = bus.health()["stuck"]
    assert health.state is PluginState.ABANDONED
    assert health.events_pending == 0
    assert health.events_matched == health.events_delivered + health.events_dropped


def test_a_plugin_may_emit_what_it_listens_to(new_bus: NewBus) -> None:
    heard = Log()

    class Echo(Named):
        subscribes_to = EventFilter(types=["a.b"])

        def start(self, ctx: Context, bus: EventBus) -> None:
            self.bus = bus

        def on_event(self, ctx: Context, delivery: Delivery) -> None:
            heard.add(delivery.event.payload["n"])
            if delivery.event.payload["n"] < 5:
                self.bus.emit("e", "a.b", "echo", {"n": delivery.event.payload["n"] + 1})

    bus = new_bus(Echo("echo"))
    bus.emit("e", "a.b", "test", {"n": 0})
    until(lambda: len(heard.lines) == 6)

    assert heard.lines == [0, 1, 2, 3, 4, 5]


def test_the_bus_tells_of_its_plugins(new_bus: NewBus) -> None:
    class Broken(Named):
        def start(self, ctx: Context, bus: EventBus) -> None:
            raise ValueError("no")

    bus = new_bus(Named("fine"), Broken("broken"), start=False)
    subscription = bus.subscribe(EventFilter(stream_ids=[BUS_STREAM]))
    with pytest.raises(ExceptionGroup):
        bus.start()
    bus.stop()

    told = [(got.type, got.payload["plugin"]) for got in (delivery.event for delivery in subscription)]

    assert told == [("plugin.started", "fine"), ("plugin.failed", "broken"), ("plugin.stopped", "fine")]


@pytest.mark.case("C051")
def test_a_listener_that_crashes_at_the_news_of_its_own_crash_makes_no_loop(new_bus: NewBus) -> None:
    def crash(_delivery: Delivery) -> None:
        raise SystemExit

    bus = new_bus(Listener("jumpy", crash))  # it listens to everything
    for _ in range(20):
        bus.emit("e", "a.b", "test")

    bus.stop()

    health = bus.health()["jumpy"]
    assert health.events_matched <= 20 + 4  # its start, and its failures number 1, 10 and 20
    assert health.errors == health.events_delivered


def test_a_hang_and_a_crash_are_events_of_the_execution_they_concern(new_bus: NewBus, gate: Gate) -> None:
    from tests.bus.players import step

    class Crashing(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            raise SystemExit

    class Stuck(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            gate.pass_through()

    bus = new_bus(Crashing("crashing"), Stuck("stuck", timeout=0.05))
    subscription = bus.subscribe(EventFilter(types=["plugin.failed"], stream_ids=["e"]))

    bus.before_step("e", step())

    assert {got.payload["plugin"] for got in drain(subscription)} == {"crashing", "stuck"}
