"""The observer: what only passed over the bus is kept, and what was not kept is known."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus
from ares.errors import StoreError, UsageError
from ares.events import Event, EventFilter
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import Gaps, ObserverPlugin
from tests.bus.players import Gate, until
from tests.plugins.keeper import Keeper, Teller, unstorable

NewBus = Callable[..., PluginBus]

#: Not what the bus says of its plugins.
ROWS = EventFilter(types={"row.done", "door.opened"})


def watching(new_bus: NewBus, keeper: Keeper, **options: Any) -> tuple[PluginBus, ObserverPlugin]:
    plugin = ObserverPlugin(**{"filter": ROWS, **options})
    bus = new_bus(plugin, journal=keeper)
    bus.open_execution("e", keeper.open())
    return bus, plugin


def test_an_event_that_a_plugin_emitted_is_in_the_journal_with_its_emitter_and_in_order(
    new_bus: NewBus, keeper: Keeper
) -> None:
    bus, plugin = watching(new_bus, keeper)

    for number in range(100):
        bus.emit("e", "row.done", "reader", {"n": number})
    bus.stop()

    assert keeper.emitted() == [("row.done", {"n": number}) for number in range(100)]
    assert plugin.gaps == Gaps(persisted=100)


def test_what_stands_in_a_journal_already_is_not_kept_again(new_bus: NewBus, keeper: Keeper) -> None:
    bus, plugin = watching(new_bus, keeper)

    Teller(bus).completed("a")
    bus.stop()

    assert (keeper.emitted(), plugin.gaps) == ([], Gaps())


def test_for_its_sake_nothing_that_is_journaled_is_made_an_event(new_bus: NewBus, keeper: Keeper) -> None:
    bus, _ = watching(new_bus, keeper, filter=EventFilter(types={"step.completed"}))

    assert not bus.is_listened_to()
    assert not bus.wants("step.completed")


def test_only_what_it_was_told_to_keep_is_kept(new_bus: NewBus, keeper: Keeper) -> None:
    bus, _ = watching(new_bus, keeper, filter=EventFilter(types={"row.done"}, stream_ids={"e"}))
    bus.open_execution("other", keeper.open("other"))

    bus.emit("e", "row.done", "reader")
    bus.emit("e", "row.begun", "reader")
    bus.emit("other", "row.done", "reader")
    bus.stop()

    assert (keeper.emitted(), keeper.emitted("other")) == ([("row.done", {})], [])


def test_what_its_buffer_could_not_hold_is_counted(new_bus: NewBus, keeper: Keeper, gate: Gate) -> None:
    keeper.on_append = gate.pass_through
    bus, plugin = watching(new_bus, keeper, buffer=4)
    bus.emit("e", "row.done", "reader", {"n": 0})
    gate.await_entry()

    for number in range(1, 11):
        bus.emit("e", "row.done", "reader", {"n": number})
    gate.open()
    until(lambda: plugin.gaps.persisted == 5)
    bus.emit("e", "row.done", "reader", {"n": 11})
    bus.stop()

    assert [payload["n"] for _, payload in keeper.emitted()] == [0, 1, 2, 3, 4, 11]
    assert plugin.gaps == Gaps(persisted=6, dropped=6)
    assert plugin.gaps.lost == 6


def test_a_store_that_fails_costs_the_events_it_did_not_take_and_no_more(new_bus: NewBus, keeper: Keeper) -> None:
    def fail_at_times(event: Event) -> None:
        if event.payload["n"] % 3 == 0:
            raise StoreError("ares.db", "disk full", "e")

    keeper.on_append = fail_at_times
    bus, plugin = watching(new_bus, keeper)

    for number in range(9):
        bus.emit("e", "row.done", "reader", {"n": number})
    bus.stop()

    assert [payload["n"] for _, payload in keeper.emitted()] == [1, 2, 4, 5, 7, 8]
    problem = "StoreError: ares.db: disk full (execution 'e')"
    assert plugin.gaps == Gaps(persisted=6, failed=3, last_error=problem)
    assert bus.health()["observer"].errors == 3
    (warning,) = bus.warnings("e")
    assert "plugin 'observer'" in warning
    assert "disk full" in warning


def test_an_event_whose_payload_cannot_be_stored_is_named(new_bus: NewBus, keeper: Keeper) -> None:
    bus, plugin = watching(new_bus, keeper)

    bus.emit("e", "row.done", "reader", {"lock": threading.Lock()})
    bus.emit("e", "row.done", "reader", {"n": 1})
    bus.stop()

    assert keeper.emitted() == [("row.done", {"n": 1})]
    assert (plugin.gaps.persisted, plugin.gaps.failed) == (1, 1)
    assert "lock of the payload of event 'row.done'" in plugin.gaps.last_error
    assert any("row.done" in warning for warning in bus.warnings("e"))


def test_events_of_no_execution_are_missed_by_nobody(new_bus: NewBus, keeper: Keeper) -> None:
    bus, plugin = watching(new_bus, keeper)

    bus.emit("garage", "door.opened", "house")
    bus.stop()

    assert plugin.gaps == Gaps(homeless=1)
    assert plugin.gaps.lost == 0
    assert bus.health()["observer"].errors == 0


def test_it_keeps_whatever_passes_if_nobody_tells_it_what(new_bus: NewBus, keeper: Keeper) -> None:
    bus, plugin = watching(new_bus, keeper, filter=EventFilter())

    bus.emit("e", "row.begun", "reader")
    bus.emit("e", "row.done", "reader")
    bus.stop()

    assert keeper.emitted() == [("row.begun", {}), ("row.done", {})]
    assert (plugin.gaps.persisted, plugin.gaps.lost) == (2, 0)


def test_what_it_lost_can_be_read_while_it_works(new_bus: NewBus, keeper: Keeper) -> None:
    keeper.on_append = unstorable
    bus, plugin = watching(new_bus, keeper)

    bus.emit("e", "row.done", "reader")

    until(lambda: plugin.gaps.failed == 1)


def test_it_is_found_by_its_capability_and_hooks_no_step(new_bus: NewBus) -> None:
    bus = new_bus(ObserverPlugin())

    assert [ref.name for ref in bus.plugins_by_cap(Capability.OBSERVER)] == ["observer"]
    assert bus.stages == Stages()


@pytest.mark.parametrize("filter", [None, "step.completed", {"types": ["a.b"]}])
def test_a_filter_that_is_none_is_refused(filter: Any) -> None:
    with pytest.raises(UsageError, match="the filter of plugin 'mine' must be an EventFilter"):
        ObserverPlugin("mine", filter=filter)
