"""Values on their way through a journal: the next step sees the same, whether it runs now or in another process."""

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import ares
from ares import ExecutionStatus, Runtime, StepStatus, Workflow
from ares.errors import SerializationError
from tests.durability.hostile import HOSTILE, anatomy
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.traces import Ran

if TYPE_CHECKING:
    from nowhere import Unseen  # type: ignore[import-not-found]

New = Callable[..., Runtime]


# --- straight and resumed --------------------------------------------------------------------------------------------


@pytest.mark.case("C042")
@pytest.mark.case("C043")
@pytest.mark.case("C044")
def test_a_resumed_run_sees_what_a_straight_one_saw(nursery: Nursery, db: str, effects: str) -> None:
    inputs = {"effects": effects, "big": 2**64}
    assert nursery.start("run", workflow="hostile", db=db, inputs=inputs).wait() == -9

    looks = nursery.call("look_again", db=db)

    expected = {name: anatomy(value) for name, value in HOSTILE.items()} | {"big": anatomy(2**64)}
    assert dict(looks["first"]) == expected  # what a step saw that ran in the process that made the values
    assert dict(looks["second"]) == expected  # and what one sees that has them from the journal


@pytest.mark.case("C042")
@pytest.mark.parametrize("value", [object(), lambda: None, open, sys, (i for i in ()), range(3)])
def test_what_cannot_come_back_as_it_was_is_refused_when_it_is_returned(again: New, value: Any) -> None:
    wf = Workflow("refused")
    wf.step(lambda: {"at": [0, value]}, id="makes")

    result = again().run(wf)

    error = result.steps["makes"].error
    assert isinstance(error, SerializationError)
    assert error.path == "at[1]"
    assert error.type_name.endswith(type(value).__name__)
    assert "the output of step 'makes'" in str(error)


@pytest.mark.case("C044")
def test_ints_beyond_the_digit_limit_of_the_process_pass(again: New) -> None:
    limit = sys.get_int_max_str_digits()
    wf = Workflow("digits", inputs={"n": int}, variables={"v": 0})
    wf.step(lambda ctx, n: ctx.set("v", n) or {n: -n}, id="makes", writes="v")
    wf.step(lambda makes: 1 / 0 if sys.get_int_max_str_digits() == limit else makes, id="takes")
    sys.set_int_max_str_digits(640)
    try:
        again().run(wf, {"n": 7 * 10**5000}, execution_id="e")
        sys.set_int_max_str_digits(limit)
        again().run(wf, {"n": 7 * 10**5000}, execution_id="e2")
        sys.set_int_max_str_digits(640)
        result = again().resume("e", wf)
    finally:
        sys.set_int_max_str_digits(limit)

    assert result.outputs["takes"] == {7 * 10**5000: -7 * 10**5000}
    assert result.variables["v"] == 7 * 10**5000


def test_a_write_that_cannot_be_stored_fails_the_step_and_names_the_variable(again: New) -> None:
    wf = Workflow("writes", variables={"v": None})
    wf.step(lambda ctx: ctx.set("v", [object()]), id="sets", writes="v")

    error = again().run(wf).steps["sets"].error

    assert isinstance(error, SerializationError)
    assert "variable 'v' set by step 'sets'" in str(error)


def test_an_event_that_cannot_be_stored_fails_the_step_and_names_the_event(again: New) -> None:
    wf = Workflow("emits")
    wf.step(lambda ctx: ctx.emit("my.event", what=object()), id="emits")

    error = again().run(wf).steps["emits"].error

    assert isinstance(error, SerializationError)
    assert "'my.event'" in str(error)
    assert "'emits'" in str(error)


def test_a_tool_record_that_cannot_be_stored_is_kept_as_it_shows_itself(again: New) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    wf = Workflow("tools")
    wf.step(lambda ctx: str(type(ctx.tool("look", lambda thing: Shy(), object()))), id="uses")
    rt = again()

    result = rt.run(wf, execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    (tool,) = rt.checkpoint("e").tool_history
    assert "object object" in repr(tool.input)
    assert "Shy" in repr(tool.output)


def test_initial_values_that_cannot_be_stored_are_refused_before_there_is_an_execution(again: New) -> None:
    wf = Workflow("initial", variables={"v": object()})
    wf.step(lambda: None, id="s")
    rt = again()

    with pytest.raises(SerializationError, match="initial values of the variables"):
        rt.run(wf)
    assert rt.executions() == []


# --- classes in annotations -------------------------------------------------------------------------------------------


@attrs.frozen
class Reading:
    celsius: float


def read_sensor(unseen: "Unseen | None" = None, wanted: "int | None" = None) -> "list[Reading]":
    return [Reading(20.5)]


def test_an_annotation_that_only_a_type_checker_can_read_hides_no_other(again: New) -> None:
    wf = Workflow("annotated")
    wf.step(read_sensor, id="reads")
    wf.step(lambda reads: 1 / 0, id="breaks")

    again().run(wf, execution_id="e")
    result = again().resume("e", wf.replace(breaks=lambda reads: reads[0].celsius))

    assert result.outputs == {"reads": [Reading(20.5)], "breaks": 20.5}


class Sensor:
    def __call__(self) -> Reading:
        return Reading(1.0)

    def read(self) -> Reading:
        return Reading(2.0)


def test_annotations_are_found_on_whatever_can_be_called(again: New) -> None:
    wf = Workflow("callables")
    wf.step(Sensor(), id="object")
    wf.step(Sensor().read, id="method")
    wf.step(Reading, id="class", params={"celsius": "three"})
    wf.step(lambda: 3.0, id="three")
    wf.add(ares.StepSpec("agent", agent_type="reader"))

    again(agents={"reader": Sensor().read}).run(wf, execution_id="e").raise_for_status()
    stored = again(agents={"reader": Sensor().read}).resume("e", wf)

    assert [stored.outputs[name].celsius for name in ("object", "method", "class", "agent")] == [1.0, 2.0, 3.0, 2.0]


# --- references ------------------------------------------------------------------------------------------------------


@pytest.mark.case("C055")
def test_values_pass_by_reference_and_are_stored_as_they_were_returned(again: New) -> None:
    appended = threading.Event()
    wf = Workflow("shared")
    kept: list[list[int]] = []

    def a() -> list[int]:
        kept.append([1, 2])
        return kept[-1]

    def b(a: list[int]) -> list[int]:
        a.append(3)
        appended.set()
        return a

    def c(a: list[int]) -> list[int]:
        assert appended.wait(DEADLINE)
        kept[-1].append(4)
        return list(a)

    for name, body in (("a", a), ("b", b), ("c", c)):
        wf.step(body, id=name)

    def list_of(a: list[int]) -> list[int]:
        return list(a)

    rt = again()
    straight = rt.run(wf, execution_id="e")
    checkpoint = rt.checkpoint("e")
    stored = again().resume("e", wf)
    rerun = again().resume("e", wf.replace(c=list_of), rerun=["c"])

    assert straight.outputs["c"][:3] == [1, 2, 3]  # by reference: the contract says to treat inputs as immutable
    assert checkpoint.outputs["a"] == [1, 2]
    assert checkpoint.outputs["b"][:3] == [1, 2, 3]
    assert stored.outputs["a"] == [1, 2]
    assert rerun.outputs["c"] == [1, 2]


@pytest.mark.case("C055")
def test_inputs_are_stored_as_they_were_given_and_the_callers_are_not_changed(again: New) -> None:
    begun, changed = threading.Event(), threading.Event()
    wf = Workflow("inputs", inputs={"names": list, "more": dict})

    @wf.step
    def takes(names: list[str], more: dict[str, int]) -> int:
        begun.set()
        assert changed.wait(DEADLINE)
        return len(names)

    given = {"names": ["x"], "more": {"a": 1}}
    rt = again()
    handle = rt.submit(wf, given, execution_id="e")
    assert begun.wait(DEADLINE)
    given["more"] = {}
    given["other"] = 1
    changed.set()
    handle.result(DEADLINE)
    events = list(rt.execution("e").events())

    assert events[0].payload["inputs"] == {"names": ["x"], "more": {"a": 1}}
    assert given == {"names": ["x"], "more": {}, "other": 1}


# --- without a file --------------------------------------------------------------------------------------------------


def test_without_a_file_anything_passes_and_check_values_refuses_what_a_file_would() -> None:
    wf = Workflow("volatile", inputs={"n": object})
    wf.step(lambda n: n, id="makes")
    thing = object()

    with Runtime() as rt:
        assert rt.run(wf, {"n": thing}).outputs["makes"] is thing
    with Runtime(check_values=True) as rt:
        with pytest.raises(SerializationError):
            rt.run(wf, {"n": thing})
        result = rt.run(wf.replace(makes=lambda n: thing), {"n": 1})
        shared = rt.run(wf.replace(makes=lambda n: n), {"n": [1]})

    assert result.steps["makes"].status is StepStatus.FAILED
    assert isinstance(result.steps["makes"].error, SerializationError)
    assert shared.outputs["makes"] == [1]


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: b"\x00\xff" * 25_000_000, lambda: "é" * 4_000_000, lambda: ["x" * 1000] * 50_000],
    ids=["bytes", "text", "list"],
)
def test_large_outputs_are_kept(again: New, ran: Ran, make: Callable[[], Any]) -> None:
    wf = Workflow("large")
    wf.step(make, id="makes")
    wf.step(lambda makes: ran.append("looks") or len(makes), id="looks")

    straight = again().run(wf, execution_id="e")
    resumed = again().resume("e", wf, rerun=["looks"])

    assert straight.outputs["looks"] == resumed.outputs["looks"] == len(make())
    assert resumed.outputs["makes"] == make()
