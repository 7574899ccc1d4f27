"""How a plugin is, as it is told to others."""

from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus, PluginHealth, PluginState
from ares.errors import PluginError
from ares.events import EventFilter
from ares.plugin import Capability
from tests.bus.players import Gate, Listener, Named, Servant, in_thread, refs, until

NewBus = Callable[..., PluginBus]


def test_a_plugin_that_was_only_registered_says_so(new_bus: NewBus) -> None:
    health = new_bus(Servant("a"), start=False).health()["a"]

    assert (health.name, health.capabilities, health.state) == (
        "a",
        frozenset({Capability.TOOL}),
        PluginState.REGISTERED,
    )
    assert (health.calls, health.errors, health.timeouts, health.mailbox_depth) == (0, 0, 0, 0)
    assert (health.latency, health.slowest, health.last_error) == (0.0, 0.0, "")


def test_calls_and_errors_are_counted_and_timed(new_bus: NewBus) -> None:
    bus = new_bus(Servant("a"))
    ref = refs(bus)["a"]
    for _ in range(3):
        ref.call("do", print, end="")
    with pytest.raises(PluginError):
        ref.call("do", int, "x")

    health = bus.health()["a"]

    assert (health.calls, health.errors) == (5, 1)  # and its start
    assert "invalid literal" in health.last_error
    assert 0 < health.latency <= health.slowest < 5


def test_the_depth_of_a_mailbox_is_what_is_queued(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Servant("a"))
    ref = refs(bus)["a"]
    answers = [ref.ask("do", gate.pass_through)]
    gate.await_entry()
    answers += [ref.ask("do", print, end="") for _ in range(4)]

    assert bus.health()["a"].mailbox_depth == 4

    gate.open()
    for answer in answers:
        answer.result()
    assert bus.health()["a"].mailbox_depth == 0


def test_events_are_in_the_books(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Listener("a", gate.pass_through, subscribes_to=EventFilter(types=["a.b"]), buffer=2))
    bus.emit("e", "a.b", "test")
    gate.await_entry()
    for _ in range(5):
        bus.emit("e", "a.b", "test")

    health = bus.health()["a"]
    assert (health.events_matched, health.events_delivered, health.events_dropped, health.events_pending) == (
        6,
        1,
        3,
        2,
    )


def test_health_is_in_order_of_registration_and_does_not_wait_for_anybody(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Servant("b"), Named("a"))
    refs(bus)["b"].ask("do", gate.pass_through)
    gate.await_entry()

    assert list(in_thread(bus.health)()) == ["b", "a"]


def test_a_message_of_any_length_is_kept_in_a_few_words(new_bus: NewBus) -> None:
    bus = new_bus(Servant("a"))

    def explode() -> None:
        raise ValueError("x" * 1_000_000)

    with pytest.raises(PluginError):
        refs(bus)["a"].call("do", explode)

    assert len(bus.health()["a"].last_error) < 1_000


def test_a_wall_clock_that_jumps_changes_no_timeout(
    new_bus: NewBus, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hour ahead, then one back, in the middle of a call with a timeout."""
    import time

    jumps = iter([3_600.0, -3_600.0])
    real = time.time
    bus = new_bus(Servant("a", timeout=0.5))
    ref = refs(bus)["a"]
    answer = ref.ask("do", gate.pass_through)
    gate.await_entry()
    began = time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps, 0.0))
    monkeypatch.setattr(time, "time_ns", lambda: int((real() - 3_600) * 1e9))

    with pytest.raises(TimeoutError):
        answer.result()

    assert 0.4 < time.monotonic() - began < 5
    assert bus.health()["a"].state is PluginState.UNRESPONSIVE
    gate.open()
    until(lambda: bus.health()["a"].state is PluginState.RUNNING)
    health: Any = bus.health()["a"]
    assert isinstance(health, PluginHealth)
    assert health.slowest > 0
