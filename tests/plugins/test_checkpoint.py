"""The checkpoint plugin: what others recorded is committed in time, and it hurts nobody when that fails."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus
from ares.bus.health import PluginState
from ares.context import NoJournal
from ares.errors import ExecutionNotFoundError, PluginError, StoreError, UsageError
from ares.events import EventFilter, EventType
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import CheckpointPlugin
from ares.records import ScoringSignal
from tests.bus.players import LONG, Gate, Log, Servant, refs, until
from tests.plugins.keeper import Keeper

NewBus = Callable[..., PluginBus]

SCORE = ScoringSignal("judge", 0.5, "quality")
NEVER = 3600.0
SOON = 0.005


def timers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ares-plugin-timer")]


def record(bus: PluginBus, keeper: Keeper, execution_id: str = "e") -> None:
    """As a plugin does that serves an execution."""
    keeper.kept[execution_id].collector.record("judge", SCORE)


# --- flushing ----------------------------------------------------------------------------------------------------


def test_what_plugins_recorded_is_committed_at_the_interval_without_anybody_asking(
    new_bus: NewBus, keeper: Keeper
) -> None:
    bus = new_bus(CheckpointPlugin(interval=SOON), Servant("judge"), journal=keeper)
    bus.open_execution("e", keeper.open())

    record(bus, keeper)

    until(lambda: keeper.recorded() == [SCORE])


def test_a_flush_commits_one_execution_and_says_so(new_bus: NewBus, keeper: Keeper) -> None:
    bus = new_bus(CheckpointPlugin(interval=NEVER), journal=keeper)
    for execution_id in ("e", "other"):
        bus.open_execution(execution_id, keeper.open(execution_id))
        record(bus, keeper, execution_id)
    saved = bus.subscribe(EventFilter(types={EventType.CHECKPOINT_SAVED}))

    refs(bus)["checkpoint"].call("flush", "e")

    assert (keeper.recorded("e"), keeper.recorded("other")) == ([SCORE], [])
    delivery = saved.get(LONG)
    assert delivery is not None
    event = delivery.event
    assert (event.stream_id, event.module, event.payload) == ("e", "checkpoint", {"execution_id": "e"})
    assert saved.pending == 0


def test_the_flushes_at_the_interval_tell_nobody(new_bus: NewBus, keeper: Keeper) -> None:
    flushes = threading.Semaphore(0)
    keeper.on_flush = lambda execution_id: flushes.release()
    bus = new_bus(CheckpointPlugin(interval=SOON), journal=keeper)
    saved = bus.subscribe(EventFilter(types={EventType.CHECKPOINT_SAVED}))

    for _ in range(3):
        assert flushes.acquire(timeout=LONG)

    assert saved.matched == 0


def test_a_flush_that_fails_is_the_callers_to_hear_of_and_saves_nothing(new_bus: NewBus, keeper: Keeper) -> None:
    def fail(execution_id: str | None) -> None:
        raise StoreError("ares.db", "disk full", "e")

    keeper.on_flush = fail
    bus = new_bus(CheckpointPlugin(interval=NEVER), journal=keeper)
    saved = bus.subscribe(EventFilter(types={EventType.CHECKPOINT_SAVED}))

    with pytest.raises(PluginError, match="disk full"):
        refs(bus)["checkpoint"].call("flush", "e")

    assert saved.matched == 0


def test_a_store_that_fails_shows_in_the_plugins_health_and_is_tried_again(new_bus: NewBus, keeper: Keeper) -> None:
    failing = threading.Event()
    failing.set()

    def fail_at_first(execution_id: str | None) -> None:
        if failing.is_set():
            raise StoreError("ares.db", "disk full")

    keeper.on_flush = fail_at_first
    bus = new_bus(CheckpointPlugin(interval=SOON), journal=keeper)
    bus.open_execution("e", keeper.open())
    record(bus, keeper)
    until(lambda: bus.health()["checkpoint"].errors > 1)
    assert "disk full" in bus.health()["checkpoint"].last_error

    failing.clear()

    until(lambda: keeper.recorded() == [SCORE])


def test_while_a_flush_hangs_no_other_is_asked_for_and_the_plugin_is_found_unresponsive(
    new_bus: NewBus, keeper: Keeper, gate: Gate
) -> None:
    flushes = Log()

    def hang(execution_id: str | None) -> None:
        flushes.add(execution_id)
        gate.pass_through()

    keeper.on_flush = hang
    bus = new_bus(CheckpointPlugin(interval=SOON), journal=keeper, timeout=0.05)
    gate.await_entry()

    until(lambda: bus.health()["checkpoint"].state is PluginState.UNRESPONSIVE)
    until(lambda: bus.health()["checkpoint"].mailbox_depth == 0)

    assert flushes.lines == [None]
    assert bus.stop(timeout=0.2)  # it says why the plugin did not stop
    until(lambda: not timers())
    assert not gate.opened.is_set()


# --- its life ----------------------------------------------------------------------------------------------------


def test_it_is_found_by_its_capability_and_hooks_no_step(new_bus: NewBus) -> None:
    bus = new_bus(CheckpointPlugin())

    assert [ref.name for ref in bus.plugins_by_cap(Capability.CHECKPOINT)] == ["checkpoint"]
    assert bus.stages == Stages()


def test_its_timer_ends_with_it_at_once_however_long_the_interval(new_bus: NewBus) -> None:
    bus = new_bus(CheckpointPlugin(interval=NEVER), CheckpointPlugin("second", interval=NEVER))
    assert sorted(timers()) == ["ares-plugin-timer checkpoint", "ares-plugin-timer second"]

    assert bus.stop() == ()

    assert timers() == []


def test_each_plugin_of_several_flushes_by_itself(new_bus: NewBus, keeper: Keeper) -> None:
    bus = new_bus(CheckpointPlugin("slow", interval=NEVER), CheckpointPlugin("fast", interval=SOON), journal=keeper)

    until(lambda: bus.health()["fast"].calls > 2)

    assert bus.health()["slow"].calls == 1  # to start


def test_the_same_plugin_can_start_anew_on_another_bus(new_bus: NewBus, keeper: Keeper) -> None:
    plugin = CheckpointPlugin(interval=SOON)
    new_bus(plugin).stop()
    bus = new_bus(plugin, journal=keeper)
    bus.open_execution("e", keeper.open())

    record(bus, keeper)

    until(lambda: keeper.recorded() == [SCORE])


def test_a_bus_in_which_nobody_can_be_found_gets_no_timer() -> None:
    class OnlyEvents:
        def emit(self, *args: Any) -> None:
            """Nobody listens."""

        def subscribe(self, *args: Any, **kwargs: Any) -> Any:
            """Nobody comes."""

    from ares.context import Context, NoExecution

    ctx = Context("", NoExecution(), NoJournal(), "checkpoint", threading.Lock())
    plugin = CheckpointPlugin(interval=SOON)

    plugin.start(ctx, OnlyEvents())

    assert timers() == []
    plugin.stop(ctx)


@pytest.mark.parametrize("interval", [0, -1, True, None, "1", float("nan"), float("inf"), 1e300])
def test_an_interval_that_is_none_is_refused_with_the_plugin(interval: Any) -> None:
    with pytest.raises(UsageError, match="the interval of plugin 'mine' must be a number of seconds above 0, not"):
        CheckpointPlugin("mine", interval=interval)


# --- reading -----------------------------------------------------------------------------------------------------


def test_a_snapshot_is_what_is_committed(new_bus: NewBus, keeper: Keeper) -> None:
    plugin = CheckpointPlugin(interval=NEVER)
    bus = new_bus(plugin, journal=keeper)
    bus.open_execution("e", keeper.open())
    record(bus, keeper)
    assert plugin.snapshot("e").scoring_signals == ()

    refs(bus)["checkpoint"].call("flush", "e")

    assert plugin.snapshot("e").scoring_signals == (SCORE,)
    assert plugin.snapshot("e") == keeper.snapshot("e")


def test_a_snapshot_of_what_does_not_exist_says_so(new_bus: NewBus, keeper: Keeper) -> None:
    plugin = CheckpointPlugin(interval=NEVER)
    new_bus(plugin, journal=keeper)

    with pytest.raises(ExecutionNotFoundError):
        plugin.snapshot("nobody")


def test_there_is_no_snapshot_before_its_start_and_after_its_end(new_bus: NewBus, keeper: Keeper) -> None:
    plugin = CheckpointPlugin(interval=NEVER)
    with pytest.raises(UsageError, match="plugin 'checkpoint' is not running"):
        plugin.snapshot("e")

    new_bus(plugin, journal=keeper).stop()

    with pytest.raises(UsageError, match="plugin 'checkpoint' is not running"):
        plugin.snapshot("e")
