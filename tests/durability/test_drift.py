"""A definition, inputs, or values that are not what they were: refused before anything runs, and nothing is changed."""

import sqlite3
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import ares
from ares import ExecutionStatus, Input, Runtime, StepSpec, StepStatus, Workflow
from ares.errors import ExecutionConflictError, InputError, SerializationError, UsageError, WorkflowChangedError
from tests.durability.flows import deadly
from tests.durability.nursery import Nursery
from tests.durability.traces import Ran, counted

New = Callable[..., Runtime]

#: How a chain A -> B -> C may have been changed, and what is to be said about it.
CHANGES: dict[str, tuple[list[str], dict[str, tuple[str, ...]]]] = {
    "a step between finished ones": (["A", "Z", "B", "C"], {"added": ("Z",), "rewired": ("B",)}),
    "a step renamed": (["A", "B2", "C"], {"added": ("B2",), "removed": ("B",), "rewired": ("C",)}),
    "the last step gone": (["A", "B"], {"removed": ("C",)}),
    "a step added at the end": (["A", "B", "C", "D"], {"added": ("D",)}),
    "two steps in another order": (["B", "A", "C"], {"rewired": ("B", "A", "C")}),
}


def letters(names: list[str], ran: Ran, breaks: str = "", **options: Any) -> Workflow:
    """A chain of steps that return the path to themselves."""
    wf = Workflow("letters", **options)

    def body(name: str, before: str) -> Callable[..., str]:
        def run(ctx: ares.StepContext) -> str:
            ran.append(name)
            if name == breaks:
                raise ValueError(name)
            return f"{ctx.upstream[before].output if before else ''}{name}"

        return run

    before = ""
    for name in names:
        wf.add(StepSpec(name, body(name, before), depends_on=[before] if before else ()))
        before = name
    return wf


def dump(db: str) -> list[tuple[Any, ...]]:
    """All that a file says of executions: every row, every column."""
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        tables = ("executions", "entries", "requests", "pruned")
        rows = [row for table in tables for row in connection.execute(f"SELECT '{table}', * FROM {table}")]
    connection.close()
    return sorted(rows)


# --- the structure ---------------------------------------------------------------------------------------------------


@pytest.mark.case("C030")
@pytest.mark.parametrize("change", CHANGES)
def test_another_structure_is_refused_by_name_and_the_old_one_still_resumes(
    db: str, ran: Ran, again: New, change: str
) -> None:
    names, difference = CHANGES[change]
    again().run(letters(["A", "B", "C"], ran, breaks="C"), execution_id="e")
    again()
    before = dump(db)
    ran.since()

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", letters(names, ran))
    after = dump(db)
    result = again().resume("e", letters(["A", "B", "C"], ran))

    expected = {"added": (), "removed": (), "rewired": (), "other": ()} | difference
    said = {name: sorted(getattr(refused.value, name)) for name in expected}
    assert said == {name: sorted(steps) for name, steps in expected.items()}
    assert refused.value.execution_id == "e"
    assert after == before
    assert ran == ["C"]
    assert result.outputs == {"A": "A", "B": "AB", "C": "ABC"}


@pytest.mark.case("C030")
def test_after_a_kill_another_structure_is_refused_and_the_crash_is_not_forgotten(
    nursery: Nursery, db: str, effects: str, again: New
) -> None:
    assert nursery.start("run", workflow="deadly", db=db, inputs={"effects": effects}).wait() == 7
    before = dump(db)
    changed = Workflow("deadly", inputs={"effects": str})
    changed.step(lambda: 1, id="another")

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", changed)
    with pytest.raises(UsageError):
        again().resume("e", deadly(), rerun=["nobody"])

    assert refused.value.added == ("another",)
    assert dump(db) == before
    deaths = 1
    while nursery.start("resume", workflow="deadly", db=db).wait() == 7:
        deaths += 1
    assert deaths in (3, 4)
    assert counted(effects)["kills in attempt 1"] == deaths


@pytest.mark.case("C030")
def test_another_body_is_no_other_structure(ran: Ran, again: New) -> None:
    again().run(letters(["A", "B", "C"], ran, breaks="C"), execution_id="e")
    ran.since()
    wf = letters(["A", "B", "C"], ran)

    result = again().resume("e", wf.replace(B=lambda: "another B", C=lambda ctx: f"{ctx.upstream['B'].output}, new C"))

    assert ran == []
    assert result.outputs == {"A": "A", "B": "AB", "C": "AB, new C"}


@pytest.mark.case("C030")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_accepted_is_a_fact_and_what_is_done_stays_done(ran: Ran, again: New, change: str) -> None:
    names, _ = CHANGES[change]
    again().run(letters(["A", "B", "C"], ran, breaks="C"), execution_id="e")
    ran.since()

    rt = again()
    result = rt.resume("e", letters(names, ran), accept_changes=True)

    assert result.status is ExecutionStatus.COMPLETED
    assert set(result.outputs) == set(names)
    assert ran == [name for name in names if name not in ("A", "B")]
    assert (result.outputs["A"], result.outputs.get("B")) == ("A", "AB" if "B" in names else None)
    (resumed,) = [event for event in rt.execution("e").events() if event.type == "workflow.resumed"]
    assert list(resumed.payload["accepted"]) == names
    checkpoint = rt.checkpoint("e")
    assert checkpoint.dag_nodes == tuple(names)
    assert checkpoint.outputs == result.outputs


def test_after_a_change_was_accepted_the_new_definition_is_the_one(ran: Ran, again: New) -> None:
    old, new = ["A", "B", "C"], ["A", "Z", "B", "C"]
    again().run(letters(old, ran, breaks="C"), execution_id="e")
    failed = again().resume("e", letters(new, ran, breaks="C"), accept_changes=True)
    ran.since()

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", letters(old, ran))
    result = again().resume("e", letters(new, ran))
    stored = again().resume("e", letters(new, ran))

    assert failed.status is ExecutionStatus.FAILED
    assert refused.value.removed == ("Z",)
    assert ran == ["C"]
    assert result.outputs == stored.outputs == {"A": "A", "Z": "AZ", "B": "AB", "C": "ABC"}


def test_changes_may_be_accepted_one_after_another_and_back_again(ran: Ran, again: New) -> None:
    shapes = [["A", "B", "C"], ["A", "Z", "C"], ["A", "C"], ["A", "B", "C"]]
    again().run(letters(shapes[0], ran, breaks="C"), execution_id="e")
    for names in shapes[1:-1]:
        result = again().resume("e", letters(names, ran, breaks="C"), accept_changes=True)
        assert result.status is ExecutionStatus.FAILED
    ran.since()

    result = again().resume("e", letters(shapes[-1], ran), accept_changes=True)

    assert result.status is ExecutionStatus.COMPLETED
    assert set(result.outputs) == {"A", "B", "C"}
    assert ran[-1] == "C"
    assert "A" not in ran


def test_a_step_that_becomes_a_map_or_a_child_or_a_branch_can_be_accepted(ran: Ran, again: New) -> None:
    def first_shape() -> Workflow:
        wf = Workflow("shapes")
        wf.step(lambda: [1, 2], id="source")
        wf.step(lambda source: ran.append("plain") or source, id="changes")
        wf.step(lambda changes: 1 / 0, id="breaks")
        return wf

    def second_shape() -> Workflow:
        wf = Workflow("shapes")
        wf.step(lambda: [1, 2], id="source")
        wf.step(lambda item: ran.append("element") or item, id="changes", map_over="source")
        wf.step(lambda changes: changes, id="breaks")
        return wf

    def third_shape() -> Workflow:
        child = Workflow("child")
        child.step(lambda: ran.append("child"), id="inner")
        wf = Workflow("shapes")
        wf.step(lambda: [1, 2], id="source")
        wf.add(StepSpec("changes", workflow=child, depends_on=["source"]))
        wf.step(lambda changes: 1 / 0, id="breaks")
        return wf

    again().run(first_shape(), execution_id="plain first")
    result = again().resume("plain first", second_shape(), accept_changes=True)
    assert result.outputs == {"source": [1, 2], "changes": [1, 2], "breaks": [1, 2]}
    assert again().resume("plain first", second_shape()).outputs == result.outputs

    again().run(third_shape(), execution_id="child first")
    result = again().resume("child first", second_shape(), accept_changes=True)
    assert result.status is ExecutionStatus.COMPLETED
    assert again().resume("child first", second_shape()).outputs == result.outputs


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ({"version": "1"}, {"version": "2"}, ("version",)),
        ({"inputs": {"n": int}}, {"inputs": {"n": int, "m": Input(int, default=1)}}, ("inputs",)),
        ({"variables": {"v": []}, "reducers": {"v": "append"}}, {"variables": {"v": []}}, ("reducers",)),
    ],
    ids=["version", "inputs", "reducers"],
)
def test_what_belongs_to_no_step_counts_too(
    ran: Ran, again: New, old: dict[str, Any], new: dict[str, Any], other: tuple[str, ...]
) -> None:
    inputs = {"n": 1} if "inputs" in old else None
    again().run(letters(["A", "B"], ran, breaks="B", **old), inputs, execution_id="e")

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", letters(["A", "B"], ran, **new))
    result = again().resume("e", letters(["A", "B"], ran, **new), accept_changes=True)

    assert refused.value.other == other
    assert result.status is ExecutionStatus.COMPLETED


def test_a_change_inside_a_sub_workflow_names_the_inner_step(ran: Ran, again: New) -> None:
    def outer(names: list[str], breaks: str = "") -> Workflow:
        wf = Workflow("outer")
        wf.add(StepSpec("inside", workflow=letters(names, ran, breaks)))
        return wf

    again().run(outer(["A", "B"], "B"), execution_id="e")
    ran.since()

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", outer(["A", "B", "C"]))
    result = again().resume("e", outer(["A", "B", "C"]), accept_changes=True)

    assert refused.value.added == ("inside/C",)
    assert ran == ["B", "C"]
    assert result.outputs == {"inside": {"C": "ABC"}}


def test_the_stored_result_of_a_completed_execution_is_what_it_was(ran: Ran, again: New) -> None:
    whole = again().run(letters(["A", "B"], ran), execution_id="e")
    ran.since()

    rt = again()
    result = rt.run(letters(["A", "B2"], ran), execution_id="e", if_exists="resume")

    assert ran == []
    assert result.status is ExecutionStatus.COMPLETED
    assert result.outputs == whole.outputs
    assert {path: step.status for path, step in result.steps.items()} == dict.fromkeys("AB", StepStatus.COMPLETED)
    with pytest.raises(WorkflowChangedError):
        rt.resume("e", letters(["A", "B2"], ran), rerun=["A"])


# --- inputs ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Place:
    x: int
    y: int


def located() -> Workflow:
    wf = Workflow("located", inputs={"at": Place, "names": Input(list, default=[])})
    wf.step(lambda at: (at.x, at.y), id="where")
    return wf


def test_the_same_id_with_the_same_inputs_is_the_same_execution(again: New) -> None:
    first = again().run(located(), {"at": Place(1, 2)}, execution_id="e")
    second = again().run(located(), {"at": Place(1, 2), "names": []}, execution_id="e", if_exists="resume")

    assert first.outputs == second.outputs == {"where": (1, 2)}


@pytest.mark.parametrize("other", [{"at": Place(1, 3)}, {"at": Place(1, 2), "names": ["x"]}, {"at": Place(1, True)}])
def test_the_same_id_with_other_inputs_is_refused(db: str, again: New, other: dict[str, Any]) -> None:
    again().run(located(), {"at": Place(1, 2)}, execution_id="e")
    again()
    before = dump(db)

    with pytest.raises(ExecutionConflictError, match="other inputs"):
        again().run(located(), other, execution_id="e", if_exists="resume")

    again()
    assert dump(db) == before


def test_the_same_id_of_another_workflow_is_refused(ran: Ran, again: New) -> None:
    again().run(letters(["A"], ran), execution_id="e")

    with pytest.raises(ExecutionConflictError, match="'letters'"):
        again().run(located(), {"at": Place(1, 2)}, execution_id="e", if_exists="resume")


@pytest.mark.case("C031")
def test_an_input_that_cannot_be_stored_is_refused_before_there_is_an_execution(ran: Ran, again: New) -> None:
    wf = letters(["A"], ran, inputs={"a": dict})

    rt = again()
    for call in (rt.run, rt.submit):
        with pytest.raises(SerializationError) as refused:
            call(wf, {"a": {"b": [object()]}}, execution_id="e")
        assert refused.value.type_name == "object"
        assert refused.value.path == "a.b[0]"
        assert "inputs" in str(refused.value)

    assert ran == []
    assert rt.executions() == []


@pytest.mark.case("C031")
def test_an_output_that_cannot_be_stored_fails_its_step(ran: Ran, again: New) -> None:
    wf = Workflow("lambda")
    wf.step(lambda: {"ok": 1, "bad": [lambda: None]}, id="makes")
    wf.step(lambda makes: ran.append("behind"), id="behind")

    rt = again()
    result = rt.run(wf, execution_id="e")

    error = result.steps["makes"].error
    assert isinstance(error, SerializationError)
    assert "'makes'" in str(error)
    assert error.path == "bad[0]"
    assert "function" in error.type_name
    assert result.steps["behind"].reason == "upstream_failed: makes"
    assert ran == []
    stored = rt.checkpoint("e")
    assert stored.outputs == {}
    assert "'makes'" in stored.step_states["makes"].error.message


# --- values whose class is not what it was ----------------------------------------------------------------------------


def test_a_class_that_is_gone_is_loud_and_the_execution_resumes_once_it_is_back(db: str, ran: Ran, again: New) -> None:
    def placed(*, knows: bool) -> Workflow:
        wf = Workflow("placed", types=[Place] if knows else [])
        wf.step(lambda: ran.append("makes") or Place(1, 2), id="makes")
        wf.step(lambda makes: makes.x if len(ran) > 1 else 1 / 0, id="takes")
        return wf

    again().run(placed(knows=True), execution_id="e")
    again()
    before = dump(db)
    ran.since()

    with pytest.raises(SerializationError) as refused:
        again().resume("e", placed(knows=False))
    again()
    assert dump(db) == before
    ran.extend(["", ""])
    result = again().resume("e", placed(knows=True))

    assert "Place" in str(refused.value)
    assert "'makes'" in str(refused.value)
    assert result.outputs == {"makes": Place(1, 2), "takes": 1}
    assert ran == ["", ""]


def test_a_class_whose_fields_changed_is_loud(again: New, monkeypatch: pytest.MonkeyPatch) -> None:
    @attrs.frozen
    class Shape:
        sides: int

    def shaped(cls: type, *, breaks: bool) -> Workflow:
        wf = Workflow("shaped", types=[cls])
        wf.step(lambda: cls(3), id="makes")
        wf.step(lambda makes: 1 / 0 if breaks else makes, id="takes")
        return wf

    old = Shape
    again().run(shaped(old, breaks=True), execution_id="e")

    @attrs.frozen
    class Shape:  # type: ignore[no-redef]
        sides: int
        color: str

    with pytest.raises(SerializationError, match="changed") as refused:
        again().resume("e", shaped(Shape, breaks=False))
    result = again().resume("e", shaped(old, breaks=False))

    assert "Shape" in str(refused.value)
    assert result.outputs["takes"] == old(3)


def test_reading_for_people_needs_no_class(again: New) -> None:
    wf = Workflow("placed", types=[Place])
    wf.step(lambda: Place(1, 2), id="makes")
    again().run(wf, execution_id="e")

    rt = again()
    checkpoint = rt.checkpoint("e")
    events = list(rt.execution("e").events())

    assert "Place" in repr(checkpoint.outputs["makes"])
    assert not isinstance(checkpoint.outputs["makes"], Place)
    assert "Place" in repr(events[2].payload["output"])


# --- what an accepted change leaves without a place ------------------------------------------------------------------


def test_an_input_that_came_later_has_its_default_or_is_asked_for_by_name(ran: Ran, again: New) -> None:
    def greeting(**inputs: Any) -> Workflow:
        wf = Workflow("greeting", inputs={"name": str, **inputs})
        wf.step(lambda name: ran.append("first") or name, id="first")
        if inputs:
            wf.step(lambda first, tone: f"{first}{tone}", id="second", params={"tone": "tone"})
        else:
            wf.step(lambda first: 1 / 0, id="second")
        return wf

    again().run(greeting(), {"name": "you"}, execution_id="e")
    again()

    with pytest.raises(InputError, match="'tone'"):
        again().resume("e", greeting(tone=str), accept_changes=True)
    result = again().resume("e", greeting(tone=Input(str, default="!")), accept_changes=True)
    stored = again().resume("e", greeting(tone=Input(str, default="!")))
    rerun = again().resume("e", greeting(tone=Input(str, default="?")), rerun=["second"])

    assert result.outputs == stored.outputs == {"first": "you", "second": "you!"}
    assert rerun.outputs["second"] == "you?"
    assert ran == ["first"]


def test_variables_keep_the_values_that_they_began_with(again: New) -> None:
    def counting(start: int, *, breaks: bool) -> Workflow:
        wf = Workflow("counting", variables={"n": start, "names": []}, reducers={"n": "add", "names": "append"})
        wf.step(lambda ctx: ctx.set("n", 1), id="adds", writes="n")
        wf.step(lambda adds, n: 1 / 0 if breaks else n, id="reads")
        return wf

    again().run(counting(10, breaks=True), execution_id="e")
    rt = again()
    result = rt.resume("e", counting(20, breaks=False))

    assert result.outputs["reads"] == 11
    assert result.variables == rt.checkpoint("e").variables == {"n": 11, "names": []}


def test_a_variable_that_is_gone_troubles_nobody(again: New) -> None:
    def logging(*, logs: bool) -> Workflow:
        more = {"log": []} if logs else {}
        wf = Workflow("logging", variables={"n": 0, **more}, reducers={"log": "append"} if logs else {})

        @wf.step(writes=["n", "log"] if logs else "n")
        def first(ctx: ares.StepContext) -> None:
            ctx.set("n", 1)
            if logs:
                ctx.set("log", "first")

        wf.step(lambda first, n: 1 / 0 if logs else n, id="second")
        return wf

    again().run(logging(logs=True), execution_id="e")
    result = again().resume("e", logging(logs=False), accept_changes=True)

    assert result.outputs["second"] == 1
    assert result.variables == {"n": 1}


def test_a_step_that_was_running_when_its_process_died_may_be_gone(
    nursery: Nursery, db: str, effects: str, again: New
) -> None:
    owner = nursery.start("run", workflow="gated", db=db, inputs={"effects": effects})
    assert owner.hear() == "at the gate"
    owner.kill()
    owner.wait()
    changed = Workflow("gated", inputs={"effects": str})
    changed.step(lambda effects: 1, id="s1")
    changed.step(lambda effects: 3, id="s3", depends_on=["s1"])

    with pytest.raises(WorkflowChangedError) as refused:
        again().resume("e", changed)
    rt = again()
    result = rt.resume("e", changed, accept_changes=True)

    assert (refused.value.removed, refused.value.rewired) == (("s2",), ("s3",))
    assert result.outputs == {"s1": 1, "s3": 3}
    assert rt.checkpoint("e").outputs == result.outputs
    assert counted(effects) == {"step 1": 1, "step 2": 1}
