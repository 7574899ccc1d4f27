"""A plugin hurts itself alone, whatever it does and wherever it does it."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from ares.bus import PluginBus
from ares.context import Context
from ares.events import EventFilter
from ares.plugin import EventBus
from tests.bus.players import Gate, Listener, Log, Named, Said, Watcher, event, outcome, result, state, step

NewBus = Callable[..., PluginBus]

PLACES = ["start", "stop", "before_execution", "before_step", "after_step", "after_execution", "on_event"]
STEPS = 100
TIMEOUT = 0.2


class Villain(Named):
    """Does its deed in one place and is harmless in all others."""

    subscribes_to = EventFilter(types=["a.b"])
    buffer = 16
    timeout = TIMEOUT

    def __init__(self, place: str, deed: Callable[["Villain"], None]) -> None:
        super().__init__("villain")
        self.place = place
        self.deed = deed
        self.bus: EventBus

    def _at(self, place: str) -> None:
        if place == self.place:
            self.deed(self)

    def start(self, ctx: Context, bus: EventBus) -> None:
        self.bus = bus
        self._at("start")

    def stop(self, ctx: Context) -> None:
        self._at("stop")

    def before_execution(self, ctx: Context, execution: Any) -> None:
        self._at("before_execution")

    def after_execution(self, ctx: Context, outcome: Any) -> None:
        self._at("after_execution")

    def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
        self._at("before_step")

    def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
        self._at("after_step")

    def on_event(self, ctx: Context, delivery: Any) -> None:
        self._at("on_event")


def exits(_villain: Villain) -> None:
    import sys

    sys.exit(3)


def raises(_villain: Villain) -> None:
    raise RuntimeError("villainy")


def interrupts(_villain: Villain) -> None:
    raise KeyboardInterrupt


def floods(villain: Villain) -> None:
    for number in range(200):
        villain.bus.emit("flood", "flood.drop", "villain", {"n": number})


class Citizen(pykka.ThreadingActor):
    """An actor of the host program that has nothing to do with any of this."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def walk(bus: PluginBus) -> None:
    """What the engine does about an execution of a hundred steps."""
    bus.before_execution(state())
    for number in range(STEPS):
        bus.before_step("e", step(f"s{number}"))
        bus.publish([event(number)])
        bus.after_step("e", result(f"s{number}"))
    bus.after_execution(outcome())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("deed", [raises, exits, interrupts, floods, "hangs"])
def test_a_villain_hurts_itself_alone(new_bus: NewBus, gate: Gate, place: str, deed: Any) -> None:
    log, heard, said = Log(), Log(), Said()
    citizen = Citizen.start()
    villain = Villain(place, gate.pass_through if deed == "hangs" else deed)
    bus = new_bus(Watcher("neighbour", log), villain, Listener("ear", heard.add, buffer=100_000), start=False, say=said)
    began = time.monotonic()

    if place == "start" and deed != floods:
        with pytest.raises(ExceptionGroup, match="1 of 3 plugins"):
            bus.start()
    else:
        bus.start()
    bus.open_execution("e", None)  # type: ignore[arg-type]  # nobody records
    walk(bus)
    if place == "on_event" and deed == "hangs":
        # Nobody waits for on_event: it is found to hang when it has been at it for too long.
        threading.Event().wait(TIMEOUT)
    warnings = bus.close_execution("e")
    errors = bus.stop()

    # The hundred steps were walked, and the neighbours noticed nothing.
    assert log.lines == ["neighbour.before", "neighbour.after"] * STEPS
    assert len([delivery for delivery in heard.lines if delivery.event.type == "a.b"]) == STEPS
    health = bus.health()
    assert health["neighbour"].errors == health["ear"].errors == 0
    assert health["ear"].events_dropped == 0
    # All of it took about one timeout.
    assert time.monotonic() - began < 5
    if deed == "hangs":
        assert health["villain"].timeouts == 1
    # The culprit is named, unless it did nothing wrong.
    if deed != floods:
        assert health["villain"].last_error
        assert any("villain" in line for line in said.of("WARNING", "ERROR"))
        if place == "stop":
            assert [error.plugin for error in errors] == ["villain"]
        else:
            assert any("villain" in line for line in warnings)
    # Nobody else's actor was stopped.
    assert citizen.ask("alive?") == "alive?"
    citizen.stop()


def test_a_flood_of_100_000_events_is_survived_and_counted(new_bus: NewBus) -> None:
    def flood(_ctx: Context, _execution_id: str, _step: Any) -> None:
        for number in range(100_000):
            flooder.bus.emit("e", "flood.drop", "villain", {"n": number})

    class Flooder(Named):
        def start(self, ctx: Context, bus: EventBus) -> None:
            self.bus = bus

    flooder = Flooder("flooder", before_step=flood)
    heard = Log()
    bus = new_bus(flooder, Listener("ear", heard.add, subscribes_to=EventFilter(types=["flood.drop"])))
    subscription = bus.subscribe(EventFilter(types=["flood.drop"]))

    bus.before_step("e", step())
    bus.stop()

    counts = subscription.counts()
    assert (counts.matched, counts.delivered, counts.dropped, counts.pending) == (100_000, 0, 99_936, 64)
    health = bus.health()["ear"]
    assert health.events_matched == 100_000 == health.events_delivered + health.events_dropped
    assert health.events_delivered == len(heard.lines)
    assert sum(1 + delivery.dropped_before for delivery in heard.lines) <= 100_000


def test_all_villains_at_once(new_bus: NewBus, gate: Gate) -> None:
    deeds: list[Callable[[Villain], None]] = [raises, exits, interrupts, floods, gate.pass_through]
    log = Log()
    villains = []
    for place in ("before_step", "after_step", "on_event"):
        for number, deed in enumerate(deeds):
            villain = Villain(place, deed)
            villain.name = f"{place}-{number}"
            villains.append(villain)
    bus = new_bus(*villains, Watcher("neighbour", log))
    began = time.monotonic()

    walk(bus)
    bus.stop(timeout=2)

    assert log.lines == ["neighbour.before", "neighbour.after"] * STEPS
    assert time.monotonic() - began < 20
    assert all(health.timeouts <= 1 for health in bus.health().values())
