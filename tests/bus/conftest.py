"""Every bus of a test is stopped after it, and has left no thread behind."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ares.bus import PluginBus
from tests.bus.players import LONG, Gate, until


def plugin_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ares-plugin")]


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Where plugins hang for as long as the test lasts."""
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def new_bus(gate: Gate) -> Iterator[Callable[..., PluginBus]]:
    """Makes a bus with plugins, started unless told otherwise."""
    before = len(plugin_threads())
    buses: list[PluginBus] = []

    def make(*plugins: Any, start: bool = True, **options: Any) -> PluginBus:
        bus = PluginBus(**{"name": "test", "timeout": LONG, **options})
        buses.append(bus)
        bus.register(*plugins)
        if start:
            bus.start()
        return bus

    yield make
    gate.open()
    for bus in buses:
        bus.stop()
    until(lambda: len(plugin_threads()) <= before)
