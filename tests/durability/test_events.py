"""Events as the journal has them: one numbering, no hole, nothing twice, whoever reads them and when."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import ares
from ares import Event, ExecutionStatus, RetryPolicy, Runtime, StepStatus, Workflow
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.one_of_everything import rich
from tests.durability.traces import Ran

New = Callable[..., Runtime]


def check(events: Iterable[Event]) -> list[Event]:
    """The rules that every execution's events follow."""
    events = list(events)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({event.id for event in events}) == len(events)
    assert {event.stream_id for event in events} == {events[0].stream_id}
    assert events[0].type == "workflow.started"
    started: dict[str, int] = {}
    ended = Counter[str]()
    for event in events:
        path = event.payload.get("path", "")
        if event.type == "workflow.resumed":
            ended.clear()
        elif event.type == "step.started":
            assert event.seq is not None
            started[path] = event.seq
        elif event.type in ("step.completed", "step.failed", "step.skipped"):
            ended[path] += 1
            assert ended[path] == 1, f"{path} ended twice"
            assert event.type == "step.skipped" or path in started
    return events


def types_of(events: Iterable[Event], path: str) -> list[str]:
    return [event.type for event in events if event.payload.get("path") == path]


@pytest.mark.case("C022")
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_of_many_parallel_steps_no_number_is_given_twice_or_left_out(again: New, durability: str) -> None:
    wf = Workflow("wide")
    failed = set[int]()

    def body(ctx: ares.StepContext, number: int) -> int:
        ctx.emit("custom.begun", number=number)
        if number % 10 == 0 and number not in failed:
            failed.add(number)
            raise ConnectionError
        ctx.emit("custom.ended", number=number)
        return number

    for number in range(200):
        wf.step(
            lambda ctx, number=number: body(ctx, number),
            id=f"s{number}",
            retry=RetryPolicy(max_attempts=2, initial_delay=0.001),
        )
    rt = again(max_workers=16, durability=durability)
    result = rt.run(wf, execution_id="e")

    events = check(rt.execution("e").events())

    assert result.status is ExecutionStatus.COMPLETED
    assert events[-1].type == "workflow.completed"
    counts = Counter(event.type for event in events)
    assert counts == {
        "workflow.started": 1,
        "step.started": 220,
        "step.retrying": 20,
        "step.completed": 200,
        "custom.begun": 220,
        "custom.ended": 200,
        "workflow.completed": 1,
    }
    for number in range(200):
        mine = [e for e in events if e.payload.get("path") == f"s{number}" or e.payload.get("number") == number]
        expected = ["step.started", "custom.begun", "custom.ended", "step.completed"]
        if number % 10 == 0:
            expected = ["step.started", "custom.begun", "step.retrying", *expected]
        assert [event.type for event in mine] == expected


def test_after_a_resume_nothing_is_told_twice(again: New, ran: Ran, broken: set[str]) -> None:
    wf = Workflow("again")

    def body(name: str) -> Callable[[], None]:
        def run() -> None:
            if name in broken:
                raise ValueError(name)

        return run

    wf.step(body("first"), id="first")
    wf.step(body("second"), id="second", depends_on=["first"])
    wf.step(body("third"), id="third", depends_on=["second"])
    broken.add("second")
    again().run(wf, execution_id="e")
    broken.clear()
    rt = again()
    rt.resume("e", wf)

    events = check(rt.execution("e").events())

    assert types_of(events, "first") == ["step.started", "step.completed"]
    assert types_of(events, "second") == ["step.started", "step.failed", "step.started", "step.completed"]
    assert types_of(events, "third") == ["step.skipped", "step.started", "step.completed"]
    assert [e.type for e in events if e.type.startswith("workflow")] == [
        "workflow.started", "workflow.failed", "workflow.resumed", "workflow.completed",
    ]  # fmt: skip


def test_what_a_step_emits_and_its_tool_calls_stand_in_the_order_in_which_they_happened(again: New) -> None:
    wf = Workflow("orders")

    @wf.step
    def step(ctx: ares.StepContext) -> None:
        ctx.emit("one", value=1)
        ctx.tool("double", lambda value: value * 2, 21)
        ctx.emit("two", value=(2,))
        with pytest.raises(ZeroDivisionError):
            ctx.tool("divide", lambda: 1 / 0)
        ctx.once("k", lambda: 3)

    rt = again()
    rt.run(wf, execution_id="e")

    events = check(rt.execution("e").events())

    assert [event.type for event in events] == [
        "workflow.started", "step.started", "one", "tool.called", "two", "tool.called", "step.remembered",
        "step.completed", "workflow.completed",
    ]  # fmt: skip
    assert (events[2].payload, events[4].payload) == ({"value": 1}, {"value": (2,)})
    assert events[2].module == "step"
    double, divide = rt.checkpoint("e").tool_history
    assert (double.tool_name, double.input, double.output, double.success) == ("double", [21], 42, True)
    assert (divide.tool_name, divide.success, divide.error) == ("divide", False, "ZeroDivisionError: division by zero")


def test_redact_replaces_what_is_kept_of_records_and_nothing_else(again: New) -> None:
    wf = Workflow("secrets", inputs={"secret": str})

    @wf.step
    def step(ctx: ares.StepContext, secret: str) -> str:
        ctx.emit("login", user="me", password=secret)
        return str(ctx.tool("sign", lambda text: text + "!", secret))

    seen: list[str] = []

    def redact(name: str, value: Any) -> Any:
        seen.append(name)
        return value if name == "login.user" else "***"

    rt = again(redact=redact)
    result = rt.run(wf, {"secret": "s3cret"}, execution_id="e")

    login = next(e for e in rt.execution("e").events() if e.type == "login")
    (tool,) = rt.checkpoint("e").tool_history
    assert login.payload == {"user": "me", "password": "***"}
    assert (tool.input, tool.output) == ("***", "***")
    assert result.outputs["step"] == "s3cret!"
    assert set(seen) == {"login.user", "login.password", "sign.input", "sign.output"}


def test_the_events_of_a_live_run_can_be_read_in_another_process(
    nursery: Nursery, db: str, effects: str, again: New
) -> None:
    owner = nursery.start("run", workflow="gated", db=db, inputs={"effects": effects})
    assert owner.hear() == "at the gate"
    rt = again()
    seen: list[Event] = []
    at_gate = threading.Event()

    def read() -> None:
        for event in rt.execution("e").events():
            seen.append(event)
            if event.type == "step.started" and event.payload["path"] == "s2":
                at_gate.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert at_gate.wait(DEADLINE)
    assert [event.type for event in seen] == ["workflow.started", "step.started", "step.completed", "step.started"]
    owner.say("go")
    owner.result()
    reader.join(DEADLINE)

    assert not reader.is_alive()
    events = check(seen)
    assert events[-1].type == "workflow.completed"
    assert [e.seq for e in rt.execution("e").events(after=5)] == [e.seq for e in events[5:]]


def test_reading_ends_when_the_owner_dies(nursery: Nursery, db: str, effects: str, again: New) -> None:
    owner = nursery.start("run", workflow="gated", db=db, inputs={"effects": effects})
    assert owner.hear() == "at the gate"
    rt = again()
    began, seen = threading.Event(), []

    def read() -> None:
        for event in rt.execution("e").events():
            seen.append(event.type)
            began.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert began.wait(DEADLINE)
    owner.kill()
    owner.wait()
    reader.join(DEADLINE)

    assert not reader.is_alive()
    assert seen[:3] == ["workflow.started", "step.started", "step.completed"]


# --- the checkpoint --------------------------------------------------------------------------------------------------


def agrees(rt: Runtime, result: ares.WorkflowResult) -> None:
    """The checkpoint says what the result says."""
    checkpoint = rt.checkpoint(result.execution_id)
    assert checkpoint.status is result.status
    assert checkpoint.outputs == result.outputs
    assert checkpoint.variables == result.variables
    for path, step in result.steps.items():
        state = checkpoint.step_states.get(path)
        if state is None:
            assert step.status is StepStatus.PENDING
            continue
        assert (state.status, state.reason, state.attempts) == (step.status, step.reason, step.attempts), path
        assert state.output == step.output
        assert (state.error is None) == (step.error is None)
    assert set(checkpoint.step_states) <= set(result.steps)


@pytest.mark.parametrize("store", ["file", "memory"])
def test_the_checkpoint_of_what_has_ended_says_what_the_result_says(again: New, effects: str, store: str) -> None:
    rt = again() if store == "file" else again(":memory:")
    wf = rich()
    result = rt.run(wf, {"effects": effects}, execution_id="e")
    agrees(rt, result)

    resumed = rt.resume("e", wf, rerun=["right", "each[0]"])
    agrees(rt, resumed)

    assert rt.checkpoint("e").state_version == len(list(rt.execution("e").events()))


def test_the_checkpoint_of_a_running_execution_is_where_it_stands(again: New) -> None:
    at_gate, may_go = threading.Event(), threading.Event()
    wf = Workflow("running", variables={"v": 0})
    wf.step(lambda ctx: ctx.set("v", 1) or "one", id="first", writes="v")
    wf.step(lambda first: at_gate.set() or may_go.wait(DEADLINE), id="second")
    wf.step(lambda second: None, id="third")
    rt = again()
    handle = rt.submit(wf, execution_id="e")
    assert at_gate.wait(DEADLINE)
    deadline = threading.Event()
    while rt.checkpoint("e").step_states["second"].status is not StepStatus.RUNNING:
        assert not deadline.wait(0.01)  # a start that nobody waits for is stored within 20 ms

    checkpoint = rt.checkpoint("e")
    may_go.set()
    handle.result(DEADLINE)

    assert checkpoint.status is ExecutionStatus.RUNNING
    assert checkpoint.outputs == {"first": "one"}
    assert checkpoint.variables == {"v": 1}
    states = {path: state.status for path, state in checkpoint.step_states.items()}
    assert states == {"first": StepStatus.COMPLETED, "second": StepStatus.RUNNING, "third": StepStatus.PENDING}
    assert checkpoint.dag_edges == (("first", "second"), ("second", "third"))
