"""The pytest plugin of ares: fixtures, by the entry point ``pytest11``. ``-p no:ares`` does without it.

It is loaded in every session of whoever has ares installed, so it lies beside the package and not in it: ``import
ares`` brings loguru, and would come before a tool that measures coverage can see it. It imports nothing of ares before
a fixture is asked for, and starts nothing at all by itself.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ares.bus import PluginBus
    from ares.plugins import ArenaPlugin
    from ares.testing.crashing import CrashPoint
    from ares.testing.processes import ChildProcess, Nursery
    from ares.testing.recorder import RecordingPlugin
    from ares.testing.step import ProbedStepContext

# Failures in the suites are to show what was compared, as those of the author's own tests do. It comes too late where
# something else imported them first, and that is worth no warning.
if "ares.testing.contracts" not in sys.modules:
    pytest.register_assert_rewrite("ares.testing.contracts")

#: The process that pytest runs tests in, once it does: ``ares.testing`` kills any other, but never this one.
test_process: int | None = None

#: Seconds that a call to a plugin on a bus of a test may take.
_TIMEOUT = 10.0


def pytest_configure() -> None:
    """Called by pytest in the process that runs the tests."""
    _mark_test_process()


def _mark_test_process() -> None:
    global test_process  # noqa: PLW0603 - of the process, as what it says
    test_process = os.getpid()


@pytest.fixture
def ares_bus() -> Iterator[Callable[..., "PluginBus"]]:
    """Makes buses: ``ares_bus(MyPlugin(), Other())`` is one with these plugins, started. Further arguments are those of
    ``PluginBus`` (``timeout`` in seconds, ``journal``); with ``start=False`` it is not started yet. All are stopped at
    the end of the test.
    """
    from ares.bus import PluginBus

    made: list[PluginBus] = []

    def make(*plugins: Any, start: bool = True, **options: Any) -> PluginBus:
        bus = PluginBus(**{"name": "test", "timeout": _TIMEOUT, **options})
        bus.register(*plugins)
        made.append(bus)
        if start:
            bus.start()
        return bus

    yield make
    for bus in reversed(made):
        bus.stop(_TIMEOUT)


@pytest.fixture
def ares_recorder() -> "RecordingPlugin":
    """A plugin that writes down every hook and event: give it to a Runtime or a bus, and look at ``told``,
    ``of(method)`` and ``events``."""
    from ares.testing.recorder import RecordingPlugin

    return RecordingPlugin()


@pytest.fixture(scope="session")
def ares_nursery() -> Iterator["Nursery"]:
    """Where child processes come from; ``ares_child`` starts them."""
    from ares.testing.processes import Nursery

    _mark_test_process()
    with Nursery(["ares.runtime", "ares.stores.sqlite"]) as nursery:
        yield nursery


@pytest.fixture
def ares_child(ares_nursery: "Nursery") -> Iterator[Callable[..., "ChildProcess"]]:
    """Starts child processes: ``ares_child(function, *args)`` calls ``function(line, *args)`` in one. It can be talked
    to (``say``, ``hear``), killed (``kill``) and waited for (``wait``, ``result``); those that still run at the end of
    the test are killed."""
    yield ares_nursery.start
    ares_nursery.close_children()


@pytest.fixture
def step_context() -> Callable[..., "ProbedStepContext"]:
    """Makes a StepContext to call a step function with: ``ares.testing.step_context``."""
    from ares.testing.step import step_context

    return step_context


@pytest.fixture
def crash_after() -> Callable[..., "CrashPoint"]:
    """Says where a child process is to die: ``ares.testing.crash_after``."""
    from ares.testing.crashing import crash_after

    _mark_test_process()
    return crash_after


@pytest.fixture
def ares_arena() -> Iterator["ArenaPlugin"]:
    """An arena that makes plugins, steps or the store of a Runtime fail: schedule faults, then run inside
    ``with ares_arena.injecting(runtime.bus)``. Its seed is 0. The faults that are left are taken back at the end."""
    from ares.plugins import ArenaPlugin

    arena = ArenaPlugin()
    yield arena
    for fault in arena.faults:
        arena.cancel_fault(fault)
