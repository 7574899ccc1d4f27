"""Writing a workflow: the decorator, specs, defaults, references, inputs, reducers, replacing functions."""

import copy
import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import DefinitionError, InputError
from ares.workflow import (
    Delivery,
    Goto,
    Input,
    OnItemFailure,
    OnNoRoute,
    RetryPolicy,
    StepDefaults,
    StepSpec,
    Trigger,
    Workflow,
)

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


# --- the decorator --------------------------------------------------------------------------------


def test_the_decorator_returns_the_very_function_unmarked() -> None:
    wf = Workflow("w")

    def fetch() -> int:
        return 1

    before = dict(vars(fetch))

    assert wf.step(fetch) is fetch
    assert wf.step(id="again", timeout=3)(fetch) is fetch
    assert vars(fetch) == before
    assert fetch() == 1


def test_a_step_is_named_after_its_function() -> None:
    wf = Workflow("w")

    @wf.step
    def fetch() -> None: ...

    assert [s.id for s in wf.steps] == ["fetch"]
    assert wf.steps[0].name == "fetch"
    assert wf.steps[0].run is fetch


def test_a_step_may_be_given_an_id_and_a_name() -> None:
    wf = Workflow("w")

    @wf.step(id="fetch-data", name="Fetch the data")
    def fetch() -> None: ...

    assert (wf.steps[0].id, wf.steps[0].name) == ("fetch-data", "Fetch the data")


def test_the_decorator_can_be_called_with_function_and_options() -> None:
    wf = Workflow("w")

    assert wf.step(nothing, id="a", timeout=2) is nothing
    assert wf.steps[0].timeout == 2


def test_steps_keep_the_order_in_which_they_were_defined() -> None:
    wf = Workflow("w")
    for name in "cab":
        wf.step(nothing, id=name)

    assert [s.id for s in wf.steps] == ["c", "a", "b"]
    assert [n.id for n in wf.graph().nodes] == ["c", "a", "b"]


@pytest.mark.parametrize("fn", [lambda: None, functools.partial(nothing)])
def test_a_function_without_a_name_needs_an_id(fn: Callable[[], None]) -> None:
    wf = Workflow("w")

    with pytest.raises(DefinitionError, match="give id="):
        wf.step(fn)

    wf.step(fn, id="a")
    wf.validate()


def test_an_id_given_to_the_decorator_by_position_is_refused_with_the_right_way() -> None:
    with pytest.raises(DefinitionError, match=r"@wf.step\(id='fetch'\)"):
        Workflow("w").step("fetch")


def test_an_option_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="no option 'retires'; did you mean 're"):
        Workflow("w").step(retires=3)


def test_a_step_can_be_a_method() -> None:
    class Service:
        def fetch(self) -> None: ...

    service = Service()
    wf = Workflow("w")
    wf.step(service.fetch)
    wf.add(StepSpec("after", nothing, depends_on=[service.fetch]))

    assert wf.step_id(service.fetch) == "fetch"
    assert wf.graph().nodes[1].deps == (0,)


# --- specs ----------------------------------------------------------------------------------------


def test_add_gives_the_step_with_defaults_filled_in() -> None:
    retry = RetryPolicy()
    wf = Workflow("w", defaults=StepDefaults(timeout=5, retry=retry, delivery="at_most_once", max_crashes=None))

    spec = wf.add(StepSpec("a", nothing))

    assert (spec.timeout, spec.retry, spec.delivery, spec.max_crashes) == (5, retry, Delivery.AT_MOST_ONCE, None)
    assert spec is wf.steps[0]
    assert spec is wf.graph().nodes[0].spec


def test_without_defaults_a_step_has_no_timeout_one_attempt_and_three_crashes() -> None:
    spec = Workflow("w").add(StepSpec("a", nothing))

    assert (spec.timeout, spec.retry, spec.recovery) == (None, None, None)
    assert (spec.delivery, spec.max_crashes) == (Delivery.AT_LEAST_ONCE, 3)


def test_a_value_of_the_step_wins_over_the_default_even_if_it_is_none() -> None:
    wf = Workflow("w", defaults=StepDefaults(timeout=5, retry=RetryPolicy(), max_crashes=None))

    spec = wf.add(StepSpec("a", nothing, timeout=None, retry=None, max_crashes=3))

    assert (spec.timeout, spec.retry, spec.max_crashes) == (None, None, 3)


def test_a_default_delivery_is_for_bodies_and_not_for_sub_workflows() -> None:
    wf = Workflow("w", defaults=StepDefaults(delivery="at_most_once"))
    wf.add(StepSpec("a", nothing))
    wf.add(StepSpec("child", workflow=Workflow("c")))

    assert [n.spec.delivery for n in wf.graph().nodes] == [Delivery.AT_MOST_ONCE, Delivery.AT_LEAST_ONCE]


def test_options_take_their_strings_and_sequences_their_lists() -> None:
    spec = StepSpec(
        "a",
        nothing,
        depends_on=["b"],
        branches=["c"],
        writes=["v"],
        on_item_failure="collect",
        on_no_route="all",
        trigger="always",
        delivery="at_most_once",
    )

    assert (spec.depends_on, spec.branches, spec.writes) == (("b",), ("c",), ("v",))
    assert spec.on_item_failure is OnItemFailure.COLLECT
    assert spec.on_no_route is OnNoRoute.ALL
    assert spec.trigger is Trigger.ALWAYS
    assert spec.delivery is Delivery.AT_MOST_ONCE


def test_a_single_reference_counts_as_one_and_not_as_its_letters() -> None:
    spec = StepSpec("a", nothing, depends_on="fetch", branches="fix", writes="total")

    assert (spec.depends_on, spec.branches, spec.writes) == (("fetch",), ("fix",), ("total",))


def test_a_set_of_references_has_one_order_in_every_process() -> None:
    assert StepSpec("a", nothing, depends_on={"c", "a", "b"}).depends_on == ("a", "b", "c")


def test_a_spec_is_independent_of_the_mappings_it_was_made_of() -> None:
    params, metadata = {"x": "b"}, {"team": "core"}
    spec = StepSpec("a", nothing, params=params, metadata=metadata)

    params["y"] = metadata["y"] = "c"

    assert spec.params == {"x": "b"}
    assert spec.metadata == {"team": "core"}


def test_an_id_that_is_an_enum_member_counts_as_its_string() -> None:
    class Step(str, enum.Enum):  # noqa: UP042  # whose str() is "Step.FETCH"
        FETCH = "fetch"

    wf = Workflow("w")
    spec = wf.add(StepSpec(Step.FETCH, nothing))

    assert type(spec.id) is str
    assert spec.id == "fetch"
    assert wf.step_id(Step.FETCH) == "fetch"


def test_add_refuses_what_it_cannot_keep() -> None:
    wf = Workflow("w")

    with pytest.raises(DefinitionError, match="StepSpec"):
        wf.add(nothing)
    with pytest.raises(DefinitionError, match="str"):
        wf.add(StepSpec(["a"], nothing))
    with pytest.raises(DefinitionError, match="Workflow"):
        wf.add(StepSpec("a", workflow="child"))
    assert wf.steps == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {"inputs": ["root"]},
        {"variables": ["total"]},
        {"reducers": ["total"]},
        {"defaults": {"timeout": 3}},
        {"types": int},
        {"types": 3},
    ],
)
def test_a_workflow_refuses_arguments_of_another_form(arguments: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(arguments))):
        Workflow("w", **arguments)


# --- duplicate ids --------------------------------------------------------------------------------


@pytest.mark.case("C004")
def test_an_id_that_is_taken_is_refused_where_the_second_step_stands() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("a", nothing))

    with pytest.raises(DefinitionError) as caught:
        wf.add(StepSpec("a", lambda: 1))

    assert (caught.value.workflow_id, caught.value.step_id) == ("w", "a")
    assert wf.steps[0].run is nothing
    with pytest.raises(DefinitionError):
        wf.step(id="a")(nothing)
    with pytest.raises(DefinitionError):
        wf.step(nothing, id="a")


@pytest.mark.case("C004")
def test_an_id_that_is_taken_inside_a_sub_workflow_is_refused_there() -> None:
    child = Workflow("child")
    wf = Workflow("w")
    wf.add(StepSpec("nested", workflow=child))
    child.add(StepSpec("a", nothing))

    with pytest.raises(DefinitionError) as caught:
        child.add(StepSpec("a", nothing))

    assert (caught.value.workflow_id, caught.value.step_id) == ("child", "a")


@pytest.mark.case("C004")
def test_one_id_in_two_sub_workflows_is_two_steps() -> None:
    wf = Workflow("w")
    for name in ("left", "right"):
        child = Workflow(name)
        child.add(StepSpec("a", nothing))
        wf.add(StepSpec(name, workflow=child))
    wf.add(StepSpec("a", nothing))

    graph = wf.validate()

    assert list(graph.fingerprint.steps) == ["left", "right", "a", "right/a", "left/a"]


# --- references -----------------------------------------------------------------------------------


def test_a_function_is_accepted_wherever_an_id_is() -> None:
    wf = Workflow("w")

    @wf.step
    def source() -> list[int]:
        return [1]

    @wf.step(branches=["left"], depends_on=[source], router=lambda: "left")
    def point() -> None: ...

    @wf.step(depends_on=[point])
    def left() -> None: ...

    @wf.step(map_over=source, params={"data": left})
    def each(item: int, data: None) -> None: ...

    child = Workflow("child", inputs={"x": int})
    wf.add(StepSpec("nested", workflow=child, inputs={"x": each}))

    nodes = wf.graph().nodes
    assert [n.deps for n in nodes] == [(), (0,), (1,), (2, 0), (3,)]
    assert nodes[1].spec.depends_on == ("source",)
    assert nodes[3].spec.map_over == "source"
    assert nodes[3].spec.params == {"data": "left"}
    assert nodes[4].spec.inputs == {"x": "each"}


def test_branches_may_be_named_by_functions_that_come_later() -> None:
    wf = Workflow("w")

    def left() -> None: ...

    wf.add(StepSpec("point", nothing, branches=[left]))
    wf.add(StepSpec("gauche", left, depends_on=["point"]))

    assert wf.graph().nodes[0].branches == (1,)
    assert wf.graph().nodes[0].spec.branches == ("gauche",)


def test_a_spec_is_accepted_wherever_an_id_is() -> None:
    wf = Workflow("w")
    first = wf.add(StepSpec("first", agent_type="critic"))
    wf.add(StepSpec("second", nothing, depends_on=[first]))

    assert wf.graph().nodes[1].deps == (0,)
    assert wf.step_id(first) == "first"


def test_a_decorator_above_the_step_does_not_hide_it() -> None:
    wf = Workflow("w")

    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @logged
    @wf.step
    def fetch() -> None: ...

    assert wf.step_id(fetch) == "fetch"


def test_a_function_that_is_two_steps_is_no_reference_and_both_are_named() -> None:
    wf = Workflow("w")
    wf.step(id="one")(nothing)
    wf.step(id="two")(nothing)

    with pytest.raises(DefinitionError, match="'one', 'two'"):
        wf.step_id(nothing)

    wf.add(StepSpec("after", lambda: None, depends_on=[nothing]))
    with pytest.raises(DefinitionError, match=r"depends_on.*'one', 'two'") as caught:
        wf.validate()
    assert caught.value.step_id == "after"


def test_a_function_may_be_a_step_of_two_workflows_under_two_ids() -> None:
    one, other = Workflow("one"), Workflow("other")
    one.step(id="a")(nothing)
    other.step(id="b")(nothing)

    assert (one.step_id(nothing), other.step_id(nothing)) == ("a", "b")


def test_a_reference_to_no_step_is_refused_with_the_nearest() -> None:
    wf = Workflow("w")
    wf.step(nothing, id="fetch")

    with pytest.raises(DefinitionError, match="'fetsch'; did you mean 'fetch'"):
        wf.step_id("fetsch")
    with pytest.raises(DefinitionError, match="no step of this workflow"):
        wf.step_id(test_a_reference_to_no_step_is_refused_with_the_nearest)


def test_targets_become_ids_each_once_and_strangers_keep_a_name() -> None:
    wf = Workflow("w")

    @wf.step(id="repair")
    def fix() -> None: ...

    targets = Goto(fix, "repair", "rigth", nothing).targets

    assert wf.target_ids(targets) == ("repair", "rigth", "'nothing'")


# --- inputs and reducers --------------------------------------------------------------------------


def test_inputs_are_bound_in_declared_order_with_defaults() -> None:
    wf = Workflow("w", inputs={"root": str, "depth": Input(int, 3)})

    assert list(wf.bind_inputs({"root": "."}).items()) == [("root", "."), ("depth", 3)]
    assert wf.bind_inputs({"depth": 1, "root": "x"}) == {"root": "x", "depth": 1}
    assert Workflow("w").bind_inputs(None) == {}


def test_inputs_pass_as_they_are_whatever_their_type() -> None:
    value = object()

    assert Workflow("w", inputs={"root": str}).bind_inputs({"root": value})["root"] is value


def test_missing_inputs_are_named() -> None:
    wf = Workflow("w", inputs={"root": str, "other": str, "depth": Input(int, 3)})

    with pytest.raises(InputError, match="'root', 'other'") as caught:
        wf.bind_inputs({})

    assert caught.value.workflow_id == "w"


def test_unknown_inputs_are_named_with_the_permitted() -> None:
    wf = Workflow("w", inputs={"root": str, "depth": Input(int, 3)})

    with pytest.raises(InputError, match=r"'rooot'; did you mean 'root'.*permitted: 'root', 'depth'"):
        wf.bind_inputs({"root": ".", "rooot": "x"})
    with pytest.raises(InputError, match="permitted: none"):
        Workflow("w").bind_inputs({"x": 1})
    with pytest.raises(InputError, match="mapping"):
        wf.bind_inputs(["root"])


@pytest.mark.parametrize(
    ("name", "old", "new", "result"),
    [
        ("append", [1], 2, [1, 2]),
        ("append", [1], [2], [1, [2]]),
        ("extend", [1], (2, 3), [1, 2, 3]),
        ("add", 1, 2, 3),
        ("add", [1], [2], [1, 2]),
        ("merge", {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ],
)
def test_a_named_reducer_combines_and_leaves_the_old_value_alone(name: str, old: Any, new: Any, result: Any) -> None:
    wf = Workflow("w", variables={"v": old}, reducers={"v": name})
    before = copy.deepcopy(old)
    reducer = wf.reducer("v")
    assert reducer is not None

    assert reducer(old, new) == result
    assert old == before


def test_append_refuses_to_split_a_string_into_letters() -> None:
    reducer = Workflow("w", variables={"v": ""}, reducers={"v": "append"}).reducer("v")
    assert reducer is not None

    with pytest.raises(TypeError):
        reducer("text", "more")


def test_a_reducer_may_be_any_callable_of_two() -> None:
    wf = Workflow("w", variables={"v": 0, "w": 0}, reducers={"v": max})

    assert wf.reducer("v") is max
    assert wf.reducer("w") is None


# --- compiling once -------------------------------------------------------------------------------


def test_the_graph_is_made_once_and_again_after_a_step_was_added() -> None:
    wf = Workflow("w")
    wf.step(nothing, id="a")
    first = wf.validate()

    assert wf.graph() is first
    wf.step(nothing, id="b")
    assert wf.graph() is not first
    assert [n.id for n in first.nodes] == ["a"]


def test_a_step_added_to_a_sub_workflow_at_any_depth_is_seen() -> None:
    inner, middle, outer = Workflow("inner"), Workflow("middle"), Workflow("outer")
    outer.add(StepSpec("m", workflow=middle))
    middle.add(StepSpec("i", workflow=inner))
    first = outer.graph()

    inner.step(nothing, id="a")

    assert outer.graph() is not first
    assert "m/i/a" in outer.graph().fingerprint.steps
    assert outer.graph() is outer.graph()


def test_one_sub_workflow_used_twice_has_one_graph() -> None:
    child, wf = Workflow("child"), Workflow("w")
    wf.add(StepSpec("a", workflow=child))
    wf.add(StepSpec("b", workflow=child))

    nodes = wf.graph().nodes

    assert nodes[0].child is nodes[1].child is child.graph()
    assert wf.graph().children == (child.graph(),)


def test_threads_that_validate_at_once_get_equal_graphs() -> None:
    wf = Workflow("w")
    for i in range(300):
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{i - 1}"] if i else []))
    found = []
    barrier = threading.Barrier(8)

    def validate() -> None:
        barrier.wait(10)
        found.append(wf.validate().fingerprint)

    threads = [threading.Thread(target=validate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(found) == 8
    assert all(f == found[0] for f in found)


# --- replacing functions --------------------------------------------------------------------------


def shop() -> tuple[Workflow, Callable[..., Any], Callable[..., Any]]:
    wf = Workflow("shop", inputs={"order": str})

    @wf.step
    def price(order: str) -> int:
        return 3

    @wf.step
    def charge(price: int) -> int:
        return price

    @wf.step(depends_on=[charge])
    def ship() -> None: ...

    return wf, price, charge


def test_replace_gives_a_copy_and_leaves_the_original_alone() -> None:
    wf, _, charge = shop()

    def fake(price: int) -> int:
        return 0

    other = wf.replace(charge=fake)

    assert [s.run for s in wf.steps][1] is charge
    assert [s.run for s in other.steps][1] is fake
    assert [n.deps for n in other.graph().nodes] == [n.deps for n in wf.graph().nodes]
    assert other.graph().fingerprint == wf.graph().fingerprint


def test_the_steps_of_a_copy_are_still_known_by_their_old_functions() -> None:
    wf, _, charge = shop()

    def fake(price: int) -> int:
        return 0

    other = wf.replace({charge: fake})

    assert other.step_id(charge) == other.step_id(fake) == "charge"


def test_a_replacement_that_takes_nothing_still_waits_for_what_the_old_one_took() -> None:
    wf, _, _ = shop()

    other = wf.replace(charge=lambda: 0)

    assert other.graph().nodes[1].deps == (0,)


def test_a_replacement_drops_params_it_has_no_parameter_for() -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="source")
    wf.add(StepSpec("use", lambda data: data, params={"data": "source"}))

    other = wf.replace(use=lambda: 2)

    assert other.graph().nodes[1].deps == (0,)
    assert other.graph().nodes[1].spec.params == {}


def test_an_agent_step_may_be_given_a_function() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("judge", agent_type="critic"))

    other = wf.replace(judge=lambda: "fine")

    assert other.graph().nodes[0].run is not None
    assert other.steps[0].agent_type == "critic"


def test_a_step_of_a_sub_workflow_is_replaced_by_its_path() -> None:
    inner, outer = Workflow("inner"), Workflow("outer")
    inner.step(nothing, id="charge")
    middle = Workflow("middle")
    middle.add(StepSpec("i", workflow=inner))
    outer.add(StepSpec("m", workflow=middle))
    outer.add(StepSpec("also", workflow=inner))
    fake = lambda: 0  # noqa: E731  # compared by identity below

    other = outer.replace({"m/i/charge": fake})

    changed, kept = other.steps
    assert changed.workflow is not None
    assert changed.workflow.steps[0].workflow is not None
    assert changed.workflow.steps[0].workflow.steps[0].run is fake
    assert kept.workflow is inner
    assert inner.steps[0].run is nothing


@pytest.mark.parametrize("path", ["chrage", "ship/x", "nested/x/y", "nested/none", "x/y"])
def test_replacing_a_step_that_does_not_exist_is_refused(path: str) -> None:
    wf, _, _ = shop()
    child = Workflow("child")
    child.step(nothing, id="x")
    wf.add(StepSpec("nested", workflow=child))

    with pytest.raises(DefinitionError):
        wf.replace({path: nothing})


def test_a_sub_workflow_step_is_not_replaced_by_a_function() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("nested", workflow=Workflow("child")))

    with pytest.raises(DefinitionError, match="nested/step"):
        wf.replace(nested=nothing)
    with pytest.raises(DefinitionError, match="callable"):
        wf.replace(nested=3)


def test_steps_named_like_the_arguments_of_replace_can_be_replaced() -> None:
    wf = Workflow("w")
    wf.step(nothing, id="self")
    wf.step(lambda: 1, id="functions")

    other = wf.replace(self=lambda: 2, functions=lambda: 3)

    assert [s.run() for s in other.steps if s.run is not None] == [2, 3]


# --- the rest -------------------------------------------------------------------------------------


def test_defining_imports_no_threads_clock_or_storage_of_its_own() -> None:
    allowed = {"binding", "checks", "compiling", "definition", "exclusion", "fingerprint", "graph", "mermaid"}
    allowed |= {"kept", "policies", "reducers", "references", "spec", "validation", "writers"}
    modules = {name.rpartition(".")[2] for name in sys.modules if name.startswith("ares.workflow.")}

    assert modules == allowed
    for name in modules:
        source = inspect.getsource(sys.modules[f"ares.workflow.{name}"])
        assert not any(f"import {word}" in source for word in ("threading", "time", "random", "os", "io"))


@patient
@given(st.text(max_size=5), st.text(max_size=5))
def test_a_workflow_shows_its_id_and_size_in_one_line(first: str, second: str) -> None:
    shown = repr(Workflow(first + "\n" + second))

    assert "\n" not in shown
    assert "0 steps" in shown
