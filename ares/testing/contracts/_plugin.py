"""What every plugin must do, whatever it is for."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ares.bus import PluginBus
from ares.bus.health import PluginState
from ares.errors import HookOrderError
from ares.plugin import Capability, RuntimePlugin
from ares.records import ExecutionStatus
from ares.runtime import Runtime
from ares.testing.contracts._stage import (
    ENDS,
    PATIENCE,
    OnDecoratedBus,
    Stage,
    at_once,
    some_results,
    some_steps,
    staged,
    tell_of_events,
)
from ares.testing.recorder import RecordingExecution, RecordingJournal
from ares.testing.samples import EXECUTION, make_execution_state, make_outcome, make_step, make_step_result
from ares.workflow import Workflow


class PluginContract:
    """The suite for plugins.

    Subclass it with a fixture ``make_plugin``; every test has a plugin of its own, on a bus of its own, and calls it as
    a walk would::

        class TestStopwatch(PluginContract):
            @pytest.fixture
            def make_plugin(self):
                return Stopwatch
    """

    #: Seconds that ``start`` may take: the Runtime waits for it.
    start_seconds: ClassVar[float] = 1.0
    #: Seconds after ``stop`` within which its threads must have ended.
    stop_seconds: ClassVar[float] = 2.0
    #: What it must be good for.
    capability: ClassVar[Capability | None] = None

    # --- what the author gives, and may change ---

    @pytest.fixture
    def make_plugin(self) -> Callable[[], RuntimePlugin]:
        """A function that makes the plugin, each time another object."""
        raise NotImplementedError("a fixture make_plugin returns a function that makes the plugin")

    @pytest.fixture
    def make_peers(self) -> Callable[[], Sequence[RuntimePlugin]]:
        """A function that makes the plugins that must live on its bus: those that it names in ``runs_after``, say."""
        return tuple

    # --- what the tests use ---

    @pytest.fixture
    def stage(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> Iterator[Stage]:
        """The plugin on a bus, started."""
        with staged(make_plugin(), make_peers()) as made:
            yield made

    # --- what it is ---

    def test_it_can_live_on_a_bus(self, make_plugin: Callable[[], RuntimePlugin]) -> None:
        plugin = make_plugin()
        bus = PluginBus()

        bus.register(plugin)

        assert list(bus.health()) == [plugin.name]

    def test_it_has_the_capability_that_it_is_for(self, make_plugin: Callable[[], RuntimePlugin]) -> None:
        if self.capability is not None:
            assert self.capability in make_plugin().capabilities

    def test_its_name_and_capabilities_stay_as_they_are(self, stage: Stage) -> None:
        plugin = stage.plugin
        before = (plugin.name, frozenset(plugin.capabilities))

        stage.tell_of_steps(EXECUTION, [make_step()], [make_step_result()])

        assert (plugin.name, frozenset(plugin.capabilities)) == before

    def test_each_one_that_is_made_is_another_of_the_same_name(self, make_plugin: Callable[[], RuntimePlugin]) -> None:
        one, other = make_plugin(), make_plugin()

        assert one is not other
        assert one.name == other.name

    # --- how it lives ---

    def test_it_starts_soon_and_stops_in_good_order(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> None:
        with staged(make_plugin(), make_peers(), timeout=self.start_seconds) as stage:
            stage.check_unhurt(PluginState.RUNNING)

            assert stage.bus.stop(PATIENCE) == ()

            stage.check_unhurt(PluginState.STOPPED)

    def test_one_that_was_stopped_can_be_started_again(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> None:
        plugin = make_plugin()

        for _ in range(3):
            with staged(plugin, make_peers()) as stage:
                stage.tell_of_steps(EXECUTION, [make_step()], [make_step_result()])
            stage.check_unhurt(PluginState.STOPPED)

    def test_one_that_was_never_stopped_can_be_started_again_as_in_the_child_of_a_fork(self, stage: Stage) -> None:
        renewed = stage.bus.renewed(RecordingJournal())
        try:
            renewed.start()
            renewed.open_execution(EXECUTION, RecordingExecution())
            renewed.before_step(EXECUTION, make_step())
            renewed.after_step(EXECUTION, make_step_result())
        finally:
            errors = renewed.stop(PATIENCE)

        assert errors == ()
        assert renewed.health()[stage.plugin.name].errors == 0

    def test_it_leaves_no_thread_behind(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> None:
        before = set(threading.enumerate())
        with staged(make_plugin(), make_peers()) as stage:
            stage.tell_of_steps(EXECUTION, some_steps()[:3], some_results()[:3])

        left = set(threading.enumerate()) - before
        for thread in left:
            thread.join(self.stop_seconds)
        assert [thread.name for thread in left if thread.is_alive()] == []

    # --- what it is told ---

    def test_it_bears_whatever_steps_there_are(self, stage: Stage) -> None:
        stage.tell_of_steps(EXECUTION, some_steps(), some_results())

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_bears_however_an_execution_ends_and_begins_again(self, stage: Stage) -> None:
        for status in ENDS:
            stage.bus.before_execution(make_execution_state(variables={"total": 1}))
            stage.tell_of_steps(EXECUTION, [make_step()], [make_step_result()])
            stage.bus.after_execution(make_outcome(status))

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_bears_an_execution_whose_beginning_it_was_not_told(self, stage: Stage) -> None:
        """It may have been started while another process walked it."""
        stage.bus.open_execution("unheard of", RecordingExecution())
        stage.tell_of_steps("unheard of", [make_step()], [make_step_result()])
        stage.bus.after_execution(make_outcome(execution_id="unheard of"))

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_bears_the_events_that_it_asked_for(self, stage: Stage) -> None:
        if getattr(stage.plugin, "on_event", None) is None:
            return
        count = tell_of_events(stage.bus, stage.plugin.subscribes_to)
        stage.bus.stop(PATIENCE)

        stage.check_unhurt(PluginState.STOPPED)
        assert stage.health.events_delivered + stage.health.events_dropped >= count

    def test_what_it_is_shown_it_leaves_as_it_was(self, stage: Stage) -> None:
        inputs: dict[str, Any] = {"order": {"lines": [1, 2]}, "limit": 3}
        output: dict[str, Any] = {"found": [{"line": 1}]}
        variables: dict[str, Any] = {"seen": [1]}
        shown = (inputs, output, variables)
        before = copy.deepcopy(shown)

        stage.bus.before_execution(make_execution_state(variables=variables))
        stage.tell_of_steps(EXECUTION, [make_step(inputs=inputs)], [make_step_result(output=output)])
        stage.bus.after_execution(make_outcome())

        assert shown == before

    def test_it_bears_many_executions_at_once(self, stage: Stage) -> None:
        def walk(number: int) -> None:
            execution_id = f"e{number}"
            stage.bus.open_execution(execution_id, RecordingExecution())
            stage.bus.before_execution(make_execution_state(execution_id=execution_id))
            for step in range(10):
                stage.tell_of_steps(execution_id, [make_step(f"s{step}")], [make_step_result(f"s{step}")])
            stage.bus.after_execution(make_outcome(execution_id=execution_id))
            stage.bus.close_execution(execution_id)

        at_once(8, walk)

        stage.check_unhurt(PluginState.RUNNING)

    # --- where it lives ---

    def test_a_bus_that_is_decorated_is_as_good_as_the_bus(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> None:
        with staged(OnDecoratedBus(make_plugin()), make_peers()) as stage:
            stage.bus.before_execution(make_execution_state())
            stage.tell_of_steps(EXECUTION, [make_step()], [make_step_result()])
            stage.bus.after_execution(make_outcome())

        stage.check_unhurt(PluginState.STOPPED)

    def test_the_order_that_it_asks_for_can_be_kept(
        self, make_plugin: Callable[[], RuntimePlugin], make_peers: Callable[[], Sequence[RuntimePlugin]]
    ) -> None:
        try:
            with staged(make_plugin(), make_peers()):
                pass
        except HookOrderError as error:
            pytest.fail(f"{error}; a fixture make_peers makes those that it needs beside it")

    def test_a_runtime_walks_with_it_as_without_it(
        self,
        make_plugin: Callable[[], RuntimePlugin],
        make_peers: Callable[[], Sequence[RuntimePlugin]],
        tmp_path: Path,
    ) -> None:
        plugin = make_plugin()
        with Runtime(tmp_path / "ares.db", plugins=[*make_peers(), plugin], durability="async") as runtime:
            results = [runtime.run(_some_workflow(), {"is_bad": is_bad}) for is_bad in (False, True)]
        health = runtime.health()[plugin.name]

        assert {str(result.status) for result in results} <= {ExecutionStatus.COMPLETED, ExecutionStatus.FAILED}
        assert [warning for result in results for warning in result.warnings] == []
        assert (health.errors, health.timeouts, health.state) == (0, 0, PluginState.STOPPED), health.last_error


def _some_workflow() -> Workflow:
    """A bit of everything that plugins are told of: a map, a branch, a variable, a tool, an event, and a failure."""
    wf = Workflow("contract", inputs={"is_bad": bool}, variables={"total": 0})
    wf.step(lambda: [1, 2, 3], id="source")
    wf.step(lambda item: item * 2, id="double", map_over="source")

    @wf.step(writes=("total",), branches=("left", "right"), on_no_route="all")
    def choose(ctx: Any, double: list[int]) -> int:
        total = ctx.tool("sum", sum, double)
        ctx.set("total", total)
        ctx.emit("contract.chosen", total=total)
        return int(total)

    wf.step(lambda choose: choose, id="left")
    wf.step(lambda choose: choose, id="right")

    @wf.step
    def join(is_bad: bool, left: int | None, right: int | None) -> list[int | None]:
        if is_bad:
            raise ValueError("as bad as it was to be")
        return [left, right]

    return wf
