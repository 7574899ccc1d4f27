"""What validate refuses: one test for each rule, and that the error names workflow, step and culprit."""

import math
import string
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import DefinitionError
from ares.workflow import (
    Delivery,
    Input,
    Loop,
    OnItemFailure,
    OnNoRoute,
    RetryPolicy,
    StepSpec,
    Trigger,
    Workflow,
)

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def refused(wf: Workflow, step_id: str = "") -> str:
    """Validate ``wf`` and give what the error says."""
    with pytest.raises(DefinitionError) as caught:
        wf.validate()

    assert caught.value.workflow_id == wf.id
    assert caught.value.step_id == step_id
    return caught.value.problem


def only(step: StepSpec, **arguments: Any) -> Workflow:
    """Make a workflow of ``step`` behind a step ``source``."""
    wf = Workflow("w", **arguments)
    wf.step(lambda: [1], id="source")
    wf.add(step)
    return wf


# --- ids ------------------------------------------------------------------------------------------

HOSTILE = [
    "../../x",
    "/etc/x",
    "a/b",
    "",
    " ",
    "\t",
    "\u2003",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "x" * 300,
    "\ud800",
    "a\x85b",
]
LEGAL = [
    "..",
    "CON",
    "-x",
    "--",
    "a b",
    "größe",
    "日本",
    "🙂",
    "<script>",
    "a.b",
    "x" * 200,
    "\u202e",
    "100%",
    '"',
    "\\",
]


@pytest.mark.case("C047")
@pytest.mark.parametrize("step_id", [*HOSTILE, "a[1]", "b#2", "[", "]", "#"])
def test_a_step_id_that_cannot_be_part_of_a_path_is_refused(step_id: str) -> None:
    wf = Workflow("w")
    wf.add(StepSpec(step_id, nothing))

    problem = refused(wf, step_id)

    assert "id" in problem


@pytest.mark.case("C047")
@pytest.mark.parametrize("step_id", LEGAL)
def test_any_other_step_id_is_legal(step_id: str) -> None:
    wf = Workflow("w")
    wf.add(StepSpec(step_id, nothing))

    assert wf.validate().by_id == {step_id: 0}


@pytest.mark.case("C047")
@pytest.mark.parametrize("workflow_id", ["", " ", "a\0b", "x" * 201, "\n", "\ud800", None, 3])
def test_a_workflow_id_that_names_nothing_is_refused(workflow_id: Any) -> None:
    with pytest.raises(DefinitionError, match="id"):
        Workflow(workflow_id).validate()


@pytest.mark.case("C047")
@pytest.mark.parametrize("workflow_id", ["../../x", "/etc/x", "a/b", "..", "CON", "-x", "x" * 200])
def test_a_workflow_id_is_no_path_and_may_look_like_one(workflow_id: str) -> None:
    assert Workflow(workflow_id).validate().workflow.id == workflow_id


@pytest.mark.parametrize("step_id", ["ctx", "item", "root", "total"])
def test_a_step_id_that_a_parameter_takes_for_something_else_is_refused(step_id: str) -> None:
    wf = Workflow("w", inputs={"root": str}, variables={"total": 0})
    wf.add(StepSpec(step_id, nothing))

    assert repr(step_id) in refused(wf, step_id)


def test_an_error_about_a_hostile_id_stays_in_one_line() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("a\n\x1b[31mb", nothing))

    with pytest.raises(DefinitionError) as caught:
        wf.validate()

    assert str(caught.value).isprintable()


@patient
@given(st.text(st.characters(exclude_characters="/[]#", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=200))
def test_legal_ids_are_legal(step_id: str) -> None:
    wf = Workflow("w")
    wf.add(StepSpec(step_id, nothing))

    if step_id.isspace() or step_id in ("ctx", "item"):
        refused(wf, step_id)
    else:
        wf.validate()


# --- references -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["depends_on", "branches", "map_over"])
def test_a_reference_to_no_step_is_refused_with_field_culprit_and_the_nearest(field: str) -> None:
    problem = refused(only(StepSpec("me", nothing, **{field: "sourze"})), "me")

    assert field in problem
    assert "'sourze'" in problem
    assert "did you mean 'source'" in problem


def test_the_nearest_is_found_among_many() -> None:
    wf = Workflow("w")
    for i in range(20_000):
        wf.add(StepSpec(f"s{i}", nothing))
    wf.add(StepSpec("me", nothing, depends_on=["s19999x"]))

    assert "did you mean" in refused(wf, "me")


def test_mapping_over_an_input_is_refused_as_that() -> None:
    problem = refused(only(StepSpec("me", nothing, map_over="root"), inputs={"root": list}), "me")

    assert "'root' is an input" in problem


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depends_on": 5}, "depends_on must be a list"),
        ({"depends_on": [5]}, "depends_on holds ids or step functions, not 5"),
        ({"branches": [None]}, "branches holds"),
        ({"params": ["a"]}, "params must be a mapping"),
        ({"params": {1: "a"}}, "key 1"),
        ({"writes": [3]}, "names of variables, not 3"),
        ({"writes": [nothing]}, "names of variables"),
        ({"metadata": [1]}, "metadata must be a mapping"),
        ({"name": 3}, "name must be a str, not 3"),
        ({"agent_type": 3}, "agent_type must be a str"),
        ({"map_over": 3}, "map_over must be"),
        ({"condition": "x > 1"}, "condition must be a callable, not 'x > 1'"),
        ({"router": "a"}, "router must be a callable"),
        ({"reconcile": 1}, "reconcile must be a callable"),
    ],
)
def test_a_field_of_another_form_is_refused(options: dict[str, Any], words: str) -> None:
    assert words in refused(only(StepSpec("me", nothing, **options)), "me")


# --- cycles ---------------------------------------------------------------------------------------


def test_a_cycle_is_named_in_full_in_the_direction_of_the_data() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("before", nothing))
    wf.add(StepSpec("a", lambda c, before: None))
    wf.add(StepSpec("b", lambda a: None))
    wf.add(StepSpec("c", lambda b: None))
    wf.add(StepSpec("after", lambda c: None))

    assert "a -> b -> c -> a" in refused(wf, "a")


@pytest.mark.parametrize(
    "options", [{"depends_on": ["me"]}, {"map_over": "me"}, {"agent_type": "x", "params": {"p": "me"}}]
)
def test_a_step_that_depends_on_itself_is_a_cycle(options: dict[str, Any]) -> None:
    run = None if "agent_type" in options else nothing

    with pytest.raises(DefinitionError, match="me -> me"):
        only(StepSpec("me", run, **options)).validate()


@pytest.mark.slow
def test_a_cycle_of_a_hundred_thousand_steps_is_found() -> None:
    wf = Workflow("w")
    count = 100_000
    for i in range(count):
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{(i - 1) % count}"]))

    problem = refused(wf, "s0")

    assert problem.startswith("the steps form a cycle: s0 -> s1 -> s2 -> ")
    assert problem.endswith(" -> s99999 -> s0")


# --- what a step runs -----------------------------------------------------------------------------


def test_a_step_with_nothing_to_run_is_refused() -> None:
    assert "nothing to run" in refused(only(StepSpec("me")), "me")


@pytest.mark.parametrize("options", [{"run": nothing}, {"agent_type": "critic"}])
def test_a_step_that_runs_a_workflow_runs_nothing_else(options: dict[str, Any]) -> None:
    assert "a step runs one thing" in refused(only(StepSpec("me", workflow=Workflow("child"), **options)), "me")


def test_an_agent_type_beside_a_function_is_a_label() -> None:
    node = only(StepSpec("me", nothing, agent_type="critic")).validate().nodes[1]

    assert node.run is not None
    assert node.spec.agent_type == "critic"


def test_a_workflow_given_as_a_function_is_refused_with_the_right_way() -> None:
    assert "workflow=" in refused(only(StepSpec("me", Workflow("child"))), "me")


def test_inputs_are_for_sub_workflows() -> None:
    assert "inputs=" in refused(only(StepSpec("me", nothing, inputs={"x": "source"})), "me")


def test_a_workflow_that_contains_itself_is_refused_with_the_way_around() -> None:
    a, b, c = Workflow("a"), Workflow("b"), Workflow("c")
    a.add(StepSpec("x", workflow=b))
    b.add(StepSpec("x", workflow=c))
    c.add(StepSpec("x", workflow=b))

    with pytest.raises(DefinitionError, match="'b' -> 'c' -> 'b'"):
        a.validate()
    lone = Workflow("lone")
    lone.add(StepSpec("x", workflow=lone))
    with pytest.raises(DefinitionError, match="'lone' -> 'lone'"):
        lone.validate()


def test_a_mistake_inside_a_sub_workflow_names_that_workflow() -> None:
    child = Workflow("child")
    child.add(StepSpec("bad", lambda nobody: None))

    with pytest.raises(DefinitionError) as caught:
        only(StepSpec("me", workflow=child)).validate()

    assert (caught.value.workflow_id, caught.value.step_id, caught.value.parameter) == ("child", "bad", "nobody")


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, True, "3", 1e300])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any) -> None:
    problem = refused(only(StepSpec("me", nothing, timeout=timeout)), "me")

    assert "timeout" in problem
    assert repr(timeout) in problem


@pytest.mark.parametrize("crashes", [0, -1, True, 1.5, "3"])
def test_a_max_crashes_that_is_no_count_is_refused(crashes: Any) -> None:
    assert "max_crashes" in refused(only(StepSpec("me", nothing, max_crashes=crashes)), "me")


def test_a_retry_that_is_no_policy_is_refused() -> None:
    assert "retry must be a RetryPolicy" in refused(only(StepSpec("me", nothing, retry=3)), "me")


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("trigger", Trigger),
        ("delivery", Delivery),
        ("on_item_failure", OnItemFailure),
        ("on_no_route", OnNoRoute),
    ],
)
def test_an_unknown_option_is_refused_with_the_permitted_ones(field: str, option: Any) -> None:
    options: dict[str, Any] = {field: "somehow"}

    problem = refused(only(StepSpec("me", nothing, **options)), "me")

    assert field in problem
    assert "'somehow'" in problem
    assert all(repr(o.value) in problem for o in option)


def test_reconcile_is_for_at_most_once() -> None:
    assert "reconcile" in refused(only(StepSpec("me", nothing, reconcile=nothing)), "me")
    only(StepSpec("me", nothing, reconcile=nothing, delivery="at_most_once")).validate()


def test_a_sub_workflow_is_never_at_most_once() -> None:
    spec = StepSpec("me", workflow=Workflow("child"), delivery="at_most_once")

    assert "at_most_once" in refused(only(spec), "me")


# --- maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2"])
def test_a_max_concurrency_that_is_no_count_is_refused(count: Any) -> None:
    assert "max_concurrency" in refused(only(StepSpec("me", nothing, map_over="source", max_concurrency=count)), "me")


@pytest.mark.parametrize("options", [{"max_concurrency": 3}, {"on_item_failure": "collect"}])
def test_options_of_a_map_are_for_maps(options: dict[str, Any]) -> None:
    assert next(iter(options)) in refused(only(StepSpec("me", nothing, **options)), "me")


def test_who_limits_a_single_step_by_max_concurrency_is_told_of_pools() -> None:
    assert "pool" in refused(only(StepSpec("me", nothing, max_concurrency=3)), "me")


# --- pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["", 3, True, ["api"], {"api": 4}, b"api"])
def test_a_pool_is_named(pool: Any) -> None:
    assert "pool must be the name" in refused(only(StepSpec("me", nothing, pool=pool)), "me")


def test_a_sub_workflow_takes_no_slot_its_steps_do() -> None:
    child = Workflow("child")
    child.add(StepSpec("inside", nothing, pool="api"))
    child.validate()

    assert "a sub-workflow takes no slot" in refused(only(StepSpec("me", workflow=child, pool="api")), "me")


def test_a_pool_may_be_named_by_a_member_of_an_enum() -> None:
    class Pool(StrEnum):
        API = "api"

    assert repr(only(StepSpec("me", nothing, pool=Pool.API)).steps[-1].pool) == "'api'"


# --- branches -------------------------------------------------------------------------------------


def branching(*branches: StepSpec, **options: Any) -> Workflow:
    wf = Workflow("w", variables={"v": 0})
    wf.add(StepSpec("point", nothing, branches=[b.id for b in branches], **options))
    for branch in branches:
        wf.add(branch)
    return wf


def test_branches_that_depend_on_their_point_are_fine() -> None:
    nodes = branching(StepSpec("a", lambda point: None), StepSpec("b", nothing, depends_on=["point"])).validate().nodes

    assert nodes[0].branches == (1, 2)
    assert nodes[1].branch_of == nodes[2].branch_of == 0


def test_a_branch_that_does_not_depend_on_its_point_is_refused() -> None:
    wf = branching(StepSpec("a", nothing, depends_on=["point"]), StepSpec("b", lambda a: None))

    assert "'b' does not depend on it directly" in refused(wf, "point")


def test_a_branch_that_runs_always_is_refused() -> None:
    wf = branching(StepSpec("a", nothing, depends_on=["point"], trigger="always"))

    assert "'a' has trigger 'always'" in refused(wf, "point")


def test_a_branch_of_two_points_is_refused() -> None:
    wf = branching(StepSpec("a", nothing, depends_on=["point", "other"]))
    wf.add(StepSpec("other", nothing, branches=["a"]))

    problem = refused(wf, "other")

    assert "'a'" in problem
    assert "'point'" in problem


def test_a_branch_named_twice_is_refused() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("point", nothing, branches=["a", "a"]))
    wf.add(StepSpec("a", nothing, depends_on=["point"]))

    assert "twice" in refused(wf, "point")


def test_a_step_that_is_its_own_branch_is_refused() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("point", nothing, branches=["point"]))

    assert "'point' does not depend on it directly" in refused(wf, "point")


@pytest.mark.parametrize("options", [{"router": nothing}, {"on_no_route": "all"}, {"on_no_route": "none"}])
def test_a_way_to_choose_needs_something_to_choose_from(options: dict[str, Any]) -> None:
    assert next(iter(options)) in refused(only(StepSpec("me", nothing, **options)), "me")


# --- variables ------------------------------------------------------------------------------------


def test_a_write_of_no_variable_is_refused_with_the_nearest() -> None:
    problem = refused(only(StepSpec("me", nothing, writes=["totl"]), variables={"total": 0}), "me")

    assert "'totl'" in problem
    assert "did you mean 'total'" in problem


def test_a_sub_workflow_step_writes_nothing_itself() -> None:
    wf = only(StepSpec("me", workflow=Workflow("child"), writes=["total"]), variables={"total": 0})

    assert "writes" in refused(wf, "me")


def test_a_reducer_of_no_variable_is_refused() -> None:
    assert "'totl'" in refused(Workflow("w", variables={"total": 0}, reducers={"totl": "add"}))


@pytest.mark.parametrize("reducer", ["sum", 3, None, lambda: 1, lambda a: a, lambda a, b, c: a])
def test_a_reducer_that_cannot_combine_two_values_is_refused(reducer: Any) -> None:
    problem = refused(Workflow("w", variables={"total": 0}, reducers={"total": reducer}))

    assert "'total'" in problem


def test_an_unknown_reducer_is_refused_with_the_permitted_ones() -> None:
    wf = Workflow("w", variables={"total": 0}, reducers={"total": "sum"})

    problem = refused(wf)

    assert all(repr(name) in problem for name in ("append", "extend", "add", "merge"))
    with pytest.raises(DefinitionError, match="'append'"):
        wf.reducer("total")


# --- the workflow's own arguments -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"version": 1}, "version must be a str"),
        ({"inputs": {"ctx": str}}, "'ctx'"),
        ({"variables": {"ctx": 1}}, "'ctx'"),
        ({"inputs": {"": str}}, "input"),
        ({"inputs": {3: str}}, "input"),
        ({"inputs": {"n": int}, "variables": {"n": 1}}, "'n' is an input and a variable"),
        ({"fail_fast": "yes"}, "fail_fast"),
        ({"types": ["int"]}, "types"),
        ({"loop": 3}, "loop must be a Loop"),
    ],
)
def test_an_argument_of_the_workflow_that_makes_no_sense_is_refused(arguments: dict[str, Any], words: str) -> None:
    assert words in refused(Workflow("w", **arguments))


def test_a_workflow_without_steps_is_legal() -> None:
    graph = Workflow("w", inputs={"root": Input(str, ".")}).validate()

    assert (graph.nodes, graph.roots, graph.sinks, graph.order) == ((), (), (), ())


# --- loops ----------------------------------------------------------------------------------------


def test_a_loop_needs_a_step_that_would_run_again() -> None:
    with pytest.raises(DefinitionError, match="a loop, but no step"):
        Workflow("w", loop=Loop(3)).validate()


@pytest.mark.parametrize(
    ("until", "problem"),
    [
        (lambda stepp: stepp, "parameter 'stepp'.*did you mean 'step'"),
        (lambda item: item, "parameter 'item'"),
        (lambda *rest: rest, "takes [*]rest"),
        (print, "until"),
    ],
)
def test_the_parameters_of_until_are_resolved_before_anything_runs(until: Any, problem: str) -> None:
    wf = Workflow("w", inputs={"n": int}, variables={"v": 0}, loop=Loop(until=until))
    wf.step(nothing, id="step")

    with pytest.raises(DefinitionError, match=problem):
        wf.validate()


def test_until_may_take_the_context_any_step_any_input_and_any_variable() -> None:
    def until(ctx: Any, last: Any, first: Any, n: int, v: int, default: int = 3) -> bool:
        return True

    wf = Workflow("w", inputs={"n": int}, variables={"v": 0}, loop=Loop(until=until))
    wf.step(nothing, id="first")
    wf.step(nothing, id="last", depends_on=["first"])

    call = wf.validate().until

    assert call is not None
    assert [b.parameter for b in call.bindings] == ["ctx", "last", "first", "n", "v"]


# --- executors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", 3, ["cpu"], nothing])
def test_an_executor_is_given_by_its_name(value: Any) -> None:
    with pytest.raises(DefinitionError, match="step 'me': executor must be the name of one"):
        only(StepSpec("me", nothing, executor=value)).validate()


def test_a_sub_workflow_has_no_executor() -> None:
    child = Workflow("child")
    child.step(nothing, id="inside", executor="cpu")

    assert only(StepSpec("me", workflow=child)).validate()
    with pytest.raises(DefinitionError, match="step 'me': a sub-workflow has no executor; its steps may have"):
        only(StepSpec("me", workflow=child, executor="cpu")).validate()


# --- in general -----------------------------------------------------------------------------------

_MISTAKES: list[Callable[[Workflow], object]] = [
    lambda wf: wf.add(StepSpec("bad", lambda nobody: None)),
    lambda wf: wf.add(StepSpec("bad", nothing, timeout=-1)),
    lambda wf: wf.add(StepSpec("bad", nothing, depends_on=["nobody"])),
    lambda wf: wf.add(StepSpec("bad", nothing, retry=RetryPolicy(), trigger="sometimes")),
]


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_nothing_is_refused_before_validate_but_everything_then_and_every_time(
    mistake: Callable[[Workflow], object],
) -> None:
    wf = Workflow("w")
    mistake(wf)

    for _ in range(2):
        refused(wf, "bad")


_ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable) | st.lists(st.integers())
)


_FIELDS = sorted(set(attrs.fields_dict(StepSpec)) - {"id", "run", "workflow"})


@patient
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(_FIELDS, _ANYTHING)))
def test_garbage_in_any_field_is_a_definition_error_or_legal_and_nothing_else(options: dict[str, Any]) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("me", nothing, **options))

    with suppress(DefinitionError):
        wf.validate()
