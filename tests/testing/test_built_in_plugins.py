"""The plugins of ares pass the suites that ``ares.testing`` has for those of strangers."""

from collections.abc import Callable
from pathlib import Path

import pytest

import ares.plugins
from ares.plugin import Plugin, RuntimePlugin
from ares.plugins import (
    ArenaPlugin,
    BasicRecoveryPlugin,
    CheckpointPlugin,
    EvolutionRouter,
    ExperienceMemory,
    ExpressionRouter,
    FallbackRouter,
    InterruptPlugin,
    LoopPlugin,
    MemoryRouter,
    ObserverPlugin,
    Rule,
    StrategyEvolution,
    ToolPlugin,
)
from ares.records import StepFailure
from ares.testing import (
    EvolutionContract,
    LoopContract,
    MemoryContract,
    PluginContract,
    RecordingPlugin,
    RecoveryContract,
    RouterContract,
    make_failure,
)
from tests.testing.strangers import Conductor, Historian, Trainer

Make = Callable[[], RuntimePlugin]

RULES = (
    Rule(to="left", when="output == 'text'"),
    Rule(to="right", when="variables.get('count', 0) > 5", reason="many"),
)


class TestCheckpointPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return CheckpointPlugin


class TestObserverPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return ObserverPlugin


class TestToolPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return ToolPlugin


class TestArenaPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return ArenaPlugin


class TestInterruptPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return InterruptPlugin


class TestLoopPlugin(LoopContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: LoopPlugin(lambda next_round, state: next_round < 5, enough=0.5)


class TestExperienceMemory(MemoryContract):
    @pytest.fixture
    def make_plugin(self, tmp_path: Path) -> Make:
        return lambda: ExperienceMemory(tmp_path / "experience.db")


class TestStrategyEvolution(EvolutionContract):
    @pytest.fixture
    def make_plugin(self, tmp_path: Path) -> Make:
        return lambda: StrategyEvolution(tmp_path / "study.log", ["careful", "quick"])


class TestRecordingPlugin(PluginContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: RecordingPlugin(per_item=True)


class TestBasicRecoveryPlugin(RecoveryContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: BasicRecoveryPlugin(["step"])

    @pytest.fixture
    def failures(self) -> list[StepFailure]:
        return [make_failure(path="step"), make_failure(path="other")]


class TestExpressionRouter(RouterContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: ExpressionRouter(RULES)


class TestMemoryRouter(RouterContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: MemoryRouter(RULES)


class TestEvolutionRouter(RouterContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: EvolutionRouter({"critic": "left"}, RULES)


class TestFallbackRouter(RouterContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return lambda: FallbackRouter([ExpressionRouter(RULES), MemoryRouter(RULES)])


class TestASimpleMemory(MemoryContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return Historian


class TestASimpleEvolution(EvolutionContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return Trainer


class TestASimpleLoop(LoopContract):
    @pytest.fixture
    def make_plugin(self) -> Make:
        return Conductor


def test_every_built_in_plugin_has_its_suite_here() -> None:
    named = {name: getattr(ares.plugins, name) for name in ares.plugins.__all__}
    plugins = [name for name, each in named.items() if isinstance(each, type) and issubclass(each, Plugin)]

    assert len(plugins) >= 8
    assert [name for name in plugins if f"Test{name}" not in globals()] == []
