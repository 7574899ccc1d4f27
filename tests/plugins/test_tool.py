"""The tool plugin: what tools there are, and calls of those that are none of them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus
from ares.errors import UsageError
from ares.events import Event, EventFilter
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import ToolPlugin
from ares.plugins import tool as tool_module
from tests.bus.players import Gate, until
from tests.journal.spy_store import join_all, run_all
from tests.plugins.keeper import Teller

NewBus = Callable[..., PluginBus]


class Bench:
    """A bus with the plugin, on which is told what executions do."""

    def __init__(self, new_bus: NewBus, plugin: ToolPlugin) -> None:
        self.plugin = plugin
        self.bus = new_bus(plugin)
        self.unregistered = self.bus.subscribe(EventFilter(types={"tool.unregistered"}))

    def call(self, tool: Any, path: str = "a", stream_id: str = "e", module: str = "step") -> None:
        Teller(self.bus, stream_id).tell("tool.called", module, path=path, round=1, attempt=1, tool=tool)

    def told(self) -> list[Event]:
        """What the plugin has said, once it has heard everything."""
        self.bus.stop()
        return [delivery.event for delivery in self.unregistered]


@pytest.fixture
def bench(new_bus: NewBus) -> Bench:
    plugin = ToolPlugin()
    plugin.register_tool("http", "fetches pages")
    return Bench(new_bus, plugin)


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


# --- calls -------------------------------------------------------------------------------------------------------


def test_a_tool_that_nobody_registered_is_told_once_with_its_first_call(bench: Bench) -> None:
    for i in range(5):
        bench.call("sqll", f"m[{i}]")
    bench.call("sqll", "b", "other")
    bench.call("ftp", "b", "other", module="gateway")

    told = bench.told()

    assert [(event.stream_id, event.module, dict(event.payload)) for event in told] == [
        ("tool", "tool", {"tool": "sqll", "execution_id": "e", "path": "m[0]"}),
        ("tool", "tool", {"tool": "ftp", "execution_id": "other", "path": "b"}),
    ]
    assert bench.plugin.unregistered == {"sqll": 6, "ftp": 1}


def test_a_tool_that_is_registered_is_no_warning(bench: Bench) -> None:
    bench.call("http")

    assert bench.told() == []
    assert bench.plugin.unregistered == {}


def test_a_call_without_a_proper_name_is_passed_over(bench: Bench) -> None:
    for tool in (None, 7, ["http"]):
        bench.call(tool)

    assert bench.told() == []
    assert bench.bus.health()["tool"].errors == 0


def test_names_that_a_program_makes_up_do_not_fill_its_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_module, "_REMEMBERED", 3)

    for number in (0, 1, 2, 3, 4, 1):
        bench.call(f"tool-{number}")

    assert len(bench.told()) == 3
    assert bench.plugin.unregistered == {"tool-0": 1, "tool-1": 2, "tool-2": 1}


def test_calls_that_its_buffer_could_not_hold_are_counted(new_bus: NewBus, gate: Gate) -> None:
    class Slow(ToolPlugin):
        def on_event(self, ctx: Any, delivery: Any) -> None:
            gate.pass_through()
            super().on_event(ctx, delivery)

    bench = Bench(new_bus, Slow(buffer=2))
    bench.call("http")
    gate.await_entry()
    for _ in range(5):
        bench.call("http")
    gate.open()
    until(lambda: bench.bus.health()["tool"].events_pending == 0)
    bench.call("http")
    bench.told()

    assert bench.plugin.missed == 3
    assert bench.plugin.unregistered == {"http": 4}


def test_it_is_found_by_its_capability_and_no_step_waits_for_it(new_bus: NewBus) -> None:
    bus = new_bus(ToolPlugin())

    assert [ref.name for ref in bus.plugins_by_cap(Capability.TOOL)] == ["tool"]
    assert bus.stages == Stages()


def test_of_what_is_journaled_it_wants_calls_of_tools_and_nothing_else(new_bus: NewBus) -> None:
    bus = new_bus(ToolPlugin())

    assert bus.wants("tool.called")
    assert not bus.wants("step.completed")


def test_the_same_plugin_starts_anew_with_the_tools_it_knows(new_bus: NewBus) -> None:
    plugin = ToolPlugin()
    plugin.register_tool("http")
    new_bus(plugin).stop()

    bench = Bench(new_bus, plugin)
    bench.call("http")
    bench.call("sql")

    assert [event.payload["tool"] for event in bench.told()] == ["sql"]
