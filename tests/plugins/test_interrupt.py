"""The interrupt plugin: the open questions, and somebody who is told of each."""

import threading
from collections.abc import Callable
from pathlib import Path

from ares import Approve, Runtime, StepContext, Workflow
from ares.bus import PluginBus
from ares.plugins import InterruptPlugin, OpenQuestion
from tests.plugins.keeper import Teller

NewBus = Callable[..., PluginBus]


def told(bus: PluginBus, event_type: str, stream_id: str = "e", **payload: object) -> None:
    Teller(bus, stream_id).tell(event_type, "step", **payload)


def ask(bus: PluginBus, path: str, stream_id: str = "e", key: str = "k") -> None:
    told(bus, "interrupt.created", stream_id, path=path, round=1, key=key, message=f"{path}?", payload=None)


def test_a_question_is_open_until_it_is_answered_or_its_execution_has_ended(new_bus: NewBus) -> None:
    plugin = InterruptPlugin()
    bus = new_bus(plugin)
    for stream_id in ("e", "f"):
        ask(bus, "a", stream_id)
        ask(bus, "b", stream_id)
    told(bus, "interrupt.resolved", "e", path="a", round=1, key="k", action="approve", value=1, feedback="")
    told(bus, "workflow.completed", "f")

    bus.stop()

    assert plugin.questions() == (OpenQuestion("e", "b", 1, "k", "b?", None),)
    assert plugin.questions("f") == ()


def test_whoever_wants_to_know_is_told_of_each_question_once(tmp_path: Path) -> None:
    wf = Workflow("asks")

    @wf.step(interrupt="First?")
    def first() -> int:
        return 1

    @wf.step
    def second(ctx: StepContext) -> object:
        return ctx.interrupt("k", "Second?")

    heard: list[str] = []
    plugin = InterruptPlugin(notify=lambda question: heard.append(question.message))
    with Runtime(tmp_path / "a.db", plugins=[plugin]) as runtime:
        for question in runtime.run(wf, execution_id="x").interrupts:
            runtime.answer(question, Approve(question.key))
        assert runtime.resume("x", wf).status == "COMPLETED"

    assert sorted(heard) == ["First?", "Second?"]
    assert plugin.questions() == ()


def test_it_takes_the_place_of_the_built_in_one(tmp_path: Path) -> None:
    mine = InterruptPlugin()
    with Runtime(tmp_path / "a.db", plugins=[mine]) as runtime:
        assert sorted(runtime.health()) == ["checkpoint", "interrupt", "observer", "tool"]


def test_one_who_raises_when_told_is_counted_and_hurts_nobody(new_bus: NewBus) -> None:
    raised = threading.Event()

    def notify(question: OpenQuestion) -> None:
        raised.set()
        raise RuntimeError(question.path)

    plugin = InterruptPlugin(notify)
    bus = new_bus(plugin)
    ask(bus, "a")
    assert raised.wait(10)
    ask(bus, "b")

    bus.stop()

    assert [question.path for question in plugin.questions()] == ["a", "b"]
    assert bus.health()["interrupt"].errors == 2
