"""The tool plugin: what tools there are, and the calls of steps that are tools themselves."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus
from ares.errors import UsageError
from ares.events import EventFilter
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import ToolPlugin
from ares.records import ToolEntry
from tests.bus.players import Gate, until
from tests.journal.spy_store import join_all, run_all
from tests.plugins.keeper import Keeper, Teller

NewBus = Callable[..., PluginBus]


class Bench:
    """A bus with the plugin, and an execution that tells."""

    def __init__(self, new_bus: NewBus, keeper: Keeper, plugin: ToolPlugin) -> None:
        self.keeper = keeper
        self.plugin = plugin
        self.bus = new_bus(plugin, journal=keeper)
        self.bus.open_execution("e", keeper.open())
        self.run = Teller(self.bus)
        self.unregistered = self.bus.subscribe(EventFilter(types={"tool.unregistered"}))

    def end(self) -> list[ToolEntry]:
        """Everything that was told has been heard; returns what was recorded."""
        self.bus.stop()
        for kept in self.keeper.kept.values():
            kept.flush()
        return self.keeper.recorded()


@pytest.fixture
def bench(new_bus: NewBus, keeper: Keeper) -> Bench:
    plugin = ToolPlugin()
    plugin.register_tool("http", "fetches pages")
    return Bench(new_bus, keeper, plugin)


# --- the registry ------------------------------------------------------------------------------------------------


def test_a_tool_is_known_once_it_is_registered_started_or_not(new_bus: NewBus) -> None:
    plugin = ToolPlugin()
    plugin.register_tool("http", "fetches pages")
    assert (plugin.is_registered("http"), plugin.is_registered("sql")) == (True, False)

    bus = new_bus(plugin)
    plugin.register_tool("sql")
    assert plugin.is_registered("sql")

    bus.stop()
    assert plugin.tools == {"http": "fetches pages", "sql": ""}


def test_registering_a_tool_again_replaces_its_description() -> None:
    plugin = ToolPlugin()
    plugin.register_tool("http", "old")

    plugin.register_tool("http", "new")

    assert plugin.tools == {"http": "new"}


@pytest.mark.parametrize("name", ["", "  ", None, 7, ["http"]])
def test_a_tool_without_a_name_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="a tool's name must be a non-empty str"):
        ToolPlugin().register_tool(name)


def test_tools_that_many_threads_register_at_once_are_all_known() -> None:
    plugin = ToolPlugin()
    begin = threading.Barrier(8)

    def register(number: int) -> None:
        begin.wait(30)
        for i in range(50):
            plugin.register_tool(f"tool-{number}-{i}")

    join_all(run_all(*[lambda n=n: register(n) for n in range(8)]))  # type: ignore[misc]  # a default is no argument

    assert len(plugin.tools) == 400


# --- what is recorded --------------------------------------------------------------------------------------------


def test_a_step_that_is_a_tool_is_recorded_with_what_came_of_it(bench: Bench) -> None:
    bench.run.completed("child/m[3]", tool_name="http", output={"status": 200})

    (entry,) = bench.end()

    assert entry == ToolEntry("m[3]", "child/m[3]", "http", None, {"status": 200}, 0.25, True, "")


def test_each_attempt_that_failed_is_a_call_that_failed(bench: Bench) -> None:
    outcome = {"path": "a", "round": 1, "duration": 0.5, "error": "ValueError: boom", "tool_name": "http"}
    bench.run.tell("step.retrying", attempt=1, **outcome)
    bench.run.tell("step.failed", attempt=2, **outcome)

    assert bench.end() == [ToolEntry("a", "a", "http", None, None, 0.5, False, "ValueError: boom")] * 2


def test_a_step_that_called_ctx_tool_has_its_record_already(bench: Bench) -> None:
    bench.run.tell("tool.called", path="a", round=1, attempt=1, tool="http")
    bench.run.completed("a", tool_name="http")

    assert bench.end() == []


def test_the_next_attempt_is_recorded_if_it_did_not_call_ctx_tool(bench: Bench) -> None:
    bench.run.tell("tool.called", path="a", round=1, attempt=1, tool="http")
    bench.run.tell("step.retrying", path="a", round=1, attempt=1, duration=0.5, error="boom", tool_name="http")
    bench.run.completed("a", attempt=2, tool_name="http")

    assert [entry.success for entry in bench.end()] == [True]


def test_a_call_that_another_plugin_recorded_is_none_of_the_step(bench: Bench) -> None:
    bench.run.tell("tool.called", module="gateway", path="a", tool="http")
    bench.run.completed("a", tool_name="http")

    assert len(bench.end()) == 1


def test_steps_that_are_no_tools_are_not_recorded(bench: Bench) -> None:
    bench.run.completed("a", output=1)
    bench.run.completed("b", tool_name="")
    bench.run.completed("c", tool_name=7)

    assert bench.end() == []


def test_a_map_is_no_call_but_each_of_its_elements_is(bench: Bench) -> None:
    for i in range(3):
        bench.run.completed(f"m[{i}]", tool_name="http")
    bench.run.tell("step.completed", module="walk", path="m", round=1, attempt=1, tool_name="http")

    assert [entry.path for entry in bench.end()] == ["m[0]", "m[1]", "m[2]"]


def test_what_one_execution_called_says_nothing_of_another(bench: Bench) -> None:
    bench.bus.open_execution("other", bench.keeper.open("other"))
    bench.run.tell("tool.called", path="a", round=1, attempt=1, tool="http")
    Teller(bench.bus, "other").completed("a", tool_name="http")

    assert bench.end() == []
    assert [entry.path for entry in bench.keeper.recorded("other")] == ["a"]


def test_what_was_called_is_forgotten_when_the_execution_ends(bench: Bench) -> None:
    for number in range(100):
        bench.run.tell("tool.called", path=f"m[{number}]", round=1, attempt=1, tool="http")
    until(lambda: len(bench.plugin._called.get("e", ())) == 100)

    bench.run.tell("workflow.interrupted", in_flight=[], reason="closing")

    until(lambda: not bench.plugin._called)


# --- what is told ------------------------------------------------------------------------------------------------


def test_a_tool_that_nobody_registered_is_recorded_and_told_once_for_each_execution(bench: Bench) -> None:
    bench.bus.open_execution("other", bench.keeper.open("other"))
    for i in range(5):
        bench.run.completed(f"m[{i}]", tool_name="sqll")
    Teller(bench.bus, "other").completed("b", tool_name="sqll")

    assert [entry.tool_name for entry in bench.end()] == ["sqll"] * 5
    told = [delivery.event for delivery in bench.unregistered]
    assert [(event.stream_id, event.module, dict(event.payload)) for event in told] == [
        ("e", "tool", {"tool": "sqll", "path": "m[0]"}),
        ("other", "tool", {"tool": "sqll", "path": "b"}),
    ]
    assert bench.plugin.unregistered == {"sqll": 6}


def test_a_tool_that_is_registered_is_no_warning(bench: Bench) -> None:
    bench.run.completed("a", tool_name="http")
    bench.end()

    assert list(bench.unregistered) == []
    assert bench.plugin.unregistered == {}


def test_a_call_that_is_heard_of_when_the_execution_is_over_is_counted_as_missed(bench: Bench) -> None:
    bench.bus.close_execution("e")

    bench.run.completed("a", tool_name="http")

    assert bench.end() == []
    assert bench.plugin.missed == 1
    assert bench.bus.health()["tool"].errors == 1


def test_events_that_its_buffer_could_not_hold_are_counted(new_bus: NewBus, keeper: Keeper, gate: Gate) -> None:
    class Slow(ToolPlugin):
        def on_event(self, ctx: Any, delivery: Any) -> None:
            gate.pass_through()
            super().on_event(ctx, delivery)

    bench = Bench(new_bus, keeper, Slow(buffer=2))
    bench.run.completed("a")
    gate.await_entry()
    for _ in range(5):
        bench.run.completed("a")
    gate.open()
    until(lambda: bench.bus.health()["tool"].events_pending == 0)
    bench.run.completed("a")
    bench.end()

    assert bench.plugin.missed == 3


def test_it_is_found_by_its_capability_and_no_step_waits_for_it(new_bus: NewBus) -> None:
    bus = new_bus(ToolPlugin())

    assert [ref.name for ref in bus.plugins_by_cap(Capability.TOOL)] == ["tool"]
    assert bus.stages == Stages()


def test_the_same_plugin_starts_anew_with_the_tools_it_knows(new_bus: NewBus, keeper: Keeper) -> None:
    plugin = ToolPlugin()
    plugin.register_tool("http")
    new_bus(plugin).stop()

    bench = Bench(new_bus, keeper, plugin)
    bench.run.completed("a", tool_name="http")

    assert [entry.path for entry in bench.end()] == ["a"]
