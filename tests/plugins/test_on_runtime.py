"""The built-in plugins where they are at home: on a Runtime with a store."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime, Workflow
from ares.events import Event
from ares.plugin import Context, Plugin
from ares.plugins import CheckpointPlugin, ObserverPlugin, ToolPlugin
from ares.records import ExecutionStatus, MemoryEntry, ScoringSignal, Step, StepResult
from tests.bus.players import LONG, until
from tests.plugins import dying

MakeRuntime = Callable[..., Runtime]

ROOT = Path(__file__).absolute().parents[2]
NEVER = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ares.db")


class Judge(Plugin):
    """Records one entry at the beginning of each step, another at its end."""

    name = "judge"

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        ctx.record(MemoryEntry(step.step_id, step.path, "seen before?", 0, 0.0, ()))

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        ctx.record(ScoringSignal("judge", 1.0, result.path))


def chain(length: int = 3) -> Workflow:
    wf = Workflow("chain")
    for number in range(length):
        wf.step(id=f"s{number}", depends_on=[f"s{number - 1}"] if number else [])(lambda number=number: number)
    return wf


# --- records -----------------------------------------------------------------------------------------------------


def test_what_a_plugin_records_is_in_the_histories_of_the_checkpoint(runtime: MakeRuntime, path: str) -> None:
    rt = runtime(path, plugins=[Judge()])

    result = rt.run(chain())

    checkpoint = rt.checkpoint(result.execution_id)
    assert [entry.path for entry in checkpoint.memory_hits] == ["s0", "s1", "s2"]
    assert [signal.label for signal in checkpoint.scoring_signals] == ["s0", "s1", "s2"]


def test_an_execution_in_which_plugins_recorded_is_resumed_by_another_process(runtime: MakeRuntime, path: str) -> None:
    broken = True

    def fail_at_first() -> str:
        if broken:
            raise ValueError("boom")
        return "done"

    wf = Workflow("flaky")
    wf.step(id="first")(lambda: 1)
    wf.step(id="last", depends_on=["first"])(fail_at_first)
    with Runtime(path, plugins=[Judge()]) as rt:
        failed = rt.run(wf)
    assert failed.status is ExecutionStatus.FAILED

    broken = False
    rt = runtime(path, plugins=[Judge()])
    result = rt.resume(failed.execution_id, wf)

    assert result.status is ExecutionStatus.COMPLETED
    signals = rt.checkpoint(failed.execution_id).scoring_signals
    assert [signal.label for signal in signals] == ["first", "last", "last"]


def test_a_record_waits_for_no_outcome_longer_than_the_interval(runtime: MakeRuntime, path: str) -> None:
    is_seen = threading.Event()
    wf = Workflow("long")
    wf.step(id="long")(lambda: is_seen.wait(LONG))
    rt = runtime(path, plugins=[Judge(), CheckpointPlugin(interval=0.005)])

    execution = rt.submit(wf)
    until(lambda: bool(rt.checkpoint(execution.id).memory_hits))
    is_seen.set()

    assert execution.result(LONG).output("long") is True


@pytest.mark.parametrize("how", ["absent", "raising", "hung"])
def test_a_killed_process_has_lost_nothing_whatever_its_checkpoint_plugin_did(
    runtime: MakeRuntime, path: str, tmp_path: Path, how: str
) -> None:
    effects = tmp_path / "effects"
    command = [sys.executable, "-m", "tests.plugins.dying", path, str(effects), how]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LONG, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()

    dying.let_go.clear()
    try:
        rt = runtime(path, plugins=[dying.plugin(how)], plugin_timeout=0.2)
        result = rt.resume("dying", dying.workflow(effects))
    finally:
        dying.let_go.set()

    assert result.status is ExecutionStatus.COMPLETED
    assert list(result.outputs.values()) == list(range(dying.LENGTH))
    runs = Counter(map(int, effects.read_text().split()))
    assert runs == {number: 1 + (number == dying.DEADLY) for number in range(dying.LENGTH)}


# --- events ------------------------------------------------------------------------------------------------------


class Speaker(Plugin):
    """Emits an event of its own before each step."""

    name = "speaker"

    def start(self, ctx: Context, bus: Any) -> None:
        self.bus = bus

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        self.bus.emit(execution_id, "speaker.spoke", self.name, {"path": step.path})


def test_what_a_plugin_emits_is_in_the_history_of_the_execution(runtime: MakeRuntime, path: str) -> None:
    observer = ObserverPlugin()
    wf = Workflow("talk")
    wf.step(id="first")(lambda: 1)
    # The observer keeps it some time after it was emitted: this step gives it the time.
    wf.step(id="last", depends_on=["first"])(lambda: until(lambda: observer.gaps.persisted >= 2))
    rt = runtime(path, plugins=[Speaker(), observer])

    result = rt.run(wf)

    events: list[Event] = list(rt.execution(result.execution_id).events())
    spoken = [event for event in events if event.type == "speaker.spoke"]
    assert [(event.module, event.payload) for event in spoken] == [
        ("speaker", {"path": "first"}),
        ("speaker", {"path": "last"}),
    ]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert observer.gaps.lost == 0


# --- tools -------------------------------------------------------------------------------------------------------


def test_steps_that_are_tools_are_in_the_history_and_unknown_ones_are_told(runtime: MakeRuntime, path: str) -> None:
    tools = ToolPlugin()
    tools.register_tool("http")
    wf = Workflow("tools")
    wf.step(id="fetch", metadata={"tool_name": "http"})(lambda: "page")
    wf.step(id="ask", metadata={"tool_name": "oracle"}, depends_on=["fetch"])(lambda: 42)
    rt = runtime(path, plugins=[tools])

    result = rt.run(wf)

    history = rt.checkpoint(result.execution_id).tool_history
    assert [(entry.tool_name, entry.path, entry.output) for entry in history] == [
        ("http", "fetch", "page"),
        ("oracle", "ask", 42),
    ]
    until(lambda: tools.unregistered == {"oracle": 1})


def test_a_store_brings_them_along_and_each_is_replaced_by_one_of_its_name(runtime: MakeRuntime, path: str) -> None:
    mine = CheckpointPlugin(interval=NEVER)
    rt = runtime(path, plugins=[mine])
    rt.run(chain())

    assert sorted(rt.bus.health()) == ["checkpoint", "interrupt", "observer", "tool"]
    assert mine.snapshot(rt.executions()[0].execution_id).status is ExecutionStatus.COMPLETED
