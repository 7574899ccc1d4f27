"""A Runtime that is started and stopped again, to see how its plugins do."""

from collections.abc import Mapping

import attrs

from ares.bus.health import PluginHealth
from ares.bus.hooks import HookOrder
from ares.runtime import Runtime

#: Seconds that the plugins have to stop.
_STOP_SECONDS = 5.0


@attrs.frozen
class Trial:
    """How it went: of each plugin once all were started, of each after the stop, and in which order they are called."""

    health: Mapping[str, PluginHealth]
    stopped: Mapping[str, PluginHealth]
    order: HookOrder
    #: Why the Runtime does not start; empty if it does.
    problem: str


def try_out(runtime: Runtime) -> Trial:
    """Start a Runtime and stop it.

    Raises:
        StoreError: its store cannot be opened or written.
        HookOrderError: the order that plugins ask for cannot be.
    """
    problem = ""
    try:
        try:
            runtime.start()
        except ExceptionGroup as error:
            problem = str(error)
        health, order = runtime.health(), runtime.bus.hook_order()
    finally:
        runtime.close(_STOP_SECONDS)
    return Trial(health, runtime.health(), order, problem)
