"""``RecordingPlugin`` and its like write down what is said to them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares import Capability, Context, ErrorEntry, Plugin, Runtime, Workflow
from ares.bus import PluginBus
from ares.errors import ExecutionNotFoundError
from ares.events import EventFilter
from ares.testing import (
    RecordingExecution,
    RecordingJournal,
    RecordingPlugin,
    make_event,
    make_execution_state,
    make_failure,
    make_outcome,
    make_route_state,
    make_step,
    make_step_result,
)

NewBus = Callable[..., PluginBus]


def flow() -> Workflow:
    wf = Workflow("w")
    wf.step(lambda: [1, 2], id="a")
    wf.step(lambda item: item, id="each", map_over="a")
    return wf


def test_a_run_is_written_down_hook_by_hook(ares_recorder: RecordingPlugin) -> None:
    with Runtime(plugins=[ares_recorder]) as runtime:
        result = runtime.run(flow())

    methods = [each.method for each in ares_recorder.told if each.method != "on_event"]
    of_steps = ["before_step", "after_step"] * 2
    assert methods == ["start", "before_execution", *of_steps, "after_execution", "stop"]
    assert ares_recorder.paths() == ares_recorder.paths("before_step") == ["a", "each"]
    (outcome,) = ares_recorder.of("after_execution", result.execution_id)
    assert str(outcome.status) == "COMPLETED"
    assert ares_recorder.of("after_execution", "another") == []
    assert [event.type for event in ares_recorder.events if event.type.startswith("workflow")] == [
        "workflow.started",
        "workflow.completed",
    ]
    assert ares_recorder.dropped == 0


def test_elements_are_told_of_when_they_are_wanted() -> None:
    recorder = RecordingPlugin(per_item=True)
    with Runtime(plugins=[recorder]) as runtime:
        runtime.run(flow())

    assert set(recorder.paths()) == {"a", "each", "each[0]", "each[1]"}


def test_an_event_is_waited_for(ares_bus: NewBus, ares_recorder: RecordingPlugin) -> None:
    bus = ares_bus(ares_recorder)
    threading.Timer(0.01, bus.emit, ("e", "late.one", "test", {"n": 1})).start()

    event = ares_recorder.wait_for("late.one")

    assert (event.payload, event.stream_id) == ({"n": 1}, "e")
    assert ares_recorder.wait_for(lambda event: event.payload.get("n") == 1) is event


def test_one_that_does_not_come_is_told_with_those_that_did(ares_bus: NewBus, ares_recorder: RecordingPlugin) -> None:
    bus = ares_bus(ares_recorder)
    bus.emit("e", "early.one", "test")
    ares_recorder.wait_for("early.one")

    with pytest.raises(
        TimeoutError, match=r"no event 'late\.one' within 0\.01 s; there were early\.one, plugin\.started"
    ):
        ares_recorder.wait_for("late.one", timeout=0.01)


def test_an_execution_without_a_walk_keeps_what_is_recorded(ares_bus: NewBus) -> None:
    class Clerk(Plugin):
        name = "clerk"

        def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
            ctx.record(ErrorEntry(result.step_id, result.path, ctx.metadata["team"]))
            ctx.journal.flush(execution_id)

    execution, journal = RecordingExecution({"team": "audit"}), RecordingJournal()
    bus = ares_bus(Clerk(), journal=journal)
    bus.open_execution("e", execution)

    bus.after_step("e", make_step_result("a"))

    assert execution.recorded == [("clerk", ErrorEntry("a", "a", "audit"))]
    assert journal.flushed == ["e"]


def test_a_journal_without_a_store_keeps_events_and_has_the_checkpoints_that_it_was_given() -> None:
    with Runtime() as runtime:
        checkpoint = runtime.checkpoint(runtime.run(flow()).execution_id)
    journal = RecordingJournal({"e": checkpoint})
    event = make_event("a.b", seq=None)

    journal.append(event)

    assert journal.appended == [event]
    assert journal.snapshot("e") is checkpoint
    with pytest.raises(ExecutionNotFoundError):
        journal.snapshot("another")


def test_a_bus_can_be_had_before_it_starts(ares_bus: NewBus) -> None:
    bus = ares_bus(RecordingPlugin(), start=False)
    heard = bus.subscribe(EventFilter(types=["plugin.started"]))

    bus.start()

    delivery = heard.get(10)
    assert delivery is not None
    assert delivery.event.payload == {"plugin": "recorder"}


def test_samples_are_harmless_and_take_any_field() -> None:
    assert make_step("a/b[2]").index == 2
    assert make_step(attempt=3).attempt == 3
    assert make_step_result(output=5).output == 5
    assert make_route_state(candidates=("x",)).candidates == ("x",)
    assert make_execution_state(round=2).round == 2
    assert (make_outcome("FAILED").failed_steps, make_outcome().failed_steps) == (1, 0)
    assert isinstance(make_failure().error, ConnectionError)
    assert make_event(stream_id="s").id == "s:1"
    with pytest.raises(TypeError, match="colour"):
        make_step(colour="red")


def test_capabilities_of_a_recorder_are_none() -> None:
    assert RecordingPlugin().capabilities == frozenset[Capability]()
