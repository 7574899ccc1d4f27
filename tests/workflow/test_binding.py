"""Which parameter takes what: every kind of callable, every kind of name, and a naive model of the rule."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import DefinitionError
from ares.workflow import Binding, BindingKind, Call, Input, StepSpec, Workflow, bind_call

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def step_with(fn: Callable[..., Any], **options: Any) -> Call:
    """Bind ``fn`` as the step ``me`` of a workflow with steps a and b, input root and variable total."""
    wf = Workflow("w", inputs={"root": str}, variables={"total": 0})
    wf.step(lambda: [1], id="a")
    wf.step(nothing, id="b")
    wf.step(fn, id="me", **options)
    call = wf.graph().nodes[2].run
    assert call is not None
    return call


def kinds(call: Call) -> dict[str, tuple[BindingKind, str, int]]:
    return {b.parameter: (b.kind, b.name, b.index) for b in call.bindings}


def called(call: Call) -> Any:
    """Call it with the name of what each parameter takes."""
    args, kwargs = call.arguments([b.name for b in call.bindings])
    return call.fn(*args, **kwargs)


# --- names ----------------------------------------------------------------------------------------


def test_parameters_take_context_steps_inputs_and_variables_by_name() -> None:
    call = step_with(lambda ctx, b, root, total: None)

    assert kinds(call) == {
        "ctx": (BindingKind.CTX, "ctx", -1),
        "b": (BindingKind.STEP, "b", 1),
        "root": (BindingKind.INPUT, "root", -1),
        "total": (BindingKind.VARIABLE, "total", -1),
    }


def test_item_is_the_element_in_a_map_step_only() -> None:
    assert kinds(step_with(lambda item: None, map_over="a")) == {"item": (BindingKind.ITEM, "item", -1)}
    with pytest.raises(DefinitionError, match="map_over") as caught:
        step_with(lambda item: None)
    assert caught.value.parameter == "item"


def test_an_input_named_item_is_taken_outside_of_maps() -> None:
    wf = Workflow("w", inputs={"item": str})
    wf.step(lambda item: [item], id="a")
    wf.step(lambda item: item, id="b", map_over="a")

    first, second = (n.run for n in wf.graph().nodes)

    assert first is not None
    assert second is not None
    assert first.bindings[0].kind is BindingKind.INPUT
    assert second.bindings[0].kind is BindingKind.ITEM


def test_params_say_what_a_parameter_takes_before_its_name_does() -> None:
    call = step_with(lambda a, ctx, root: None, params={"a": "b", "ctx": "root", "root": "total"})

    assert kinds(call) == {
        "a": (BindingKind.STEP, "b", 1),
        "ctx": (BindingKind.INPUT, "root", -1),
        "root": (BindingKind.VARIABLE, "total", -1),
    }


def test_params_may_rename_context_and_element() -> None:
    call = step_with(lambda context, element: None, params={"context": "ctx", "element": "item"}, map_over="a")

    assert [b.kind for b in call.bindings] == [BindingKind.CTX, BindingKind.ITEM]


def test_a_default_is_kept_only_when_nothing_matches() -> None:
    call = step_with(lambda a=1, unknown=2, root=3: (a, unknown, root))

    assert [b.parameter for b in call.bindings] == ["a", "root"]
    assert called(call) == ("a", 2, "root")


def test_a_parameter_that_resolves_to_nothing_names_step_and_parameter() -> None:
    with pytest.raises(DefinitionError, match="did you mean 'root'") as caught:
        step_with(lambda rooot: None)

    assert (caught.value.workflow_id, caught.value.step_id, caught.value.parameter) == ("w", "me", "rooot")


@pytest.mark.parametrize("fn", [lambda *a: None, lambda **a: None, lambda a, *, b, **rest: None])
def test_collecting_parameters_are_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        step_with(fn)

    assert caught.value.step_id == "me"
    assert caught.value.parameter in ("a", "rest")


def test_a_parameter_named_after_its_own_step_is_a_cycle() -> None:
    for fn in (lambda me: None, lambda me=1: None):
        with pytest.raises(DefinitionError, match="me -> me") as caught:
            step_with(fn)
        assert caught.value.parameter == "me"


def test_a_parameter_named_after_its_own_step_may_take_something_else_by_params() -> None:
    assert kinds(step_with(lambda me: None, params={"me": "a"}))["me"] == (BindingKind.STEP, "a", 0)


def test_params_that_name_nothing_are_refused_with_the_nearest() -> None:
    with pytest.raises(DefinitionError, match=r"'totl'.*did you mean 'total'") as caught:
        step_with(lambda x: None, params={"x": "totl"})

    assert (caught.value.step_id, caught.value.parameter) == ("me", "x")


def test_params_for_a_parameter_that_does_not_exist_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"no such parameter.*did you mean 'data'") as caught:
        step_with(lambda data=1: None, params={"date": "a"})

    assert caught.value.parameter == "date"


def test_params_name_things_and_are_no_constants() -> None:
    with pytest.raises(DefinitionError, match=r"'n' takes 5.*functools.partial"):
        step_with(lambda n: None, params={"n": 5})


def test_params_hold_for_every_callable_of_the_step() -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    wf.add(StepSpec("me", nothing, params={"x": "a"}, condition=lambda x: x))

    condition = wf.graph().nodes[1].condition

    assert condition is not None
    assert condition.bindings == (Binding("x", BindingKind.STEP, "a", 0),)


# --- callables of every kind ----------------------------------------------------------------------


def positional(a: Any, b: Any, /, root: Any, *, total: Any) -> tuple[Any, ...]:
    return a, b, root, total


def test_positional_only_and_keyword_only_parameters_are_passed_as_they_must_be() -> None:
    call = step_with(positional)

    assert call.positional == (0, 1)
    assert called(call) == ("a", "b", "root", "total")


def test_a_positional_only_parameter_behind_one_that_keeps_its_default_is_refused() -> None:
    def fn(unknown: int = 1, a: int = 2, /) -> None: ...

    with pytest.raises(DefinitionError, match="positional-only, behind 'unknown'"):
        step_with(fn)


def test_positional_only_defaults_at_the_end_are_kept() -> None:
    def fn(a: Any, unknown: Any = 2, /) -> tuple[Any, Any]:
        return a, unknown

    assert called(step_with(fn)) == ("a", 2)


def test_the_self_of_a_method_is_no_parameter() -> None:
    class Service:
        def run(self, a: Any) -> Any:
            return a

        @classmethod
        def create(cls, b: Any) -> Any:
            return b

        @staticmethod
        def plain(root: Any) -> Any:
            return root

    service = Service()

    assert [called(step_with(f)) for f in (service.run, service.create, service.plain)] == ["a", "b", "root"]


def test_a_method_of_a_class_not_yet_bound_is_refused_for_its_self() -> None:
    class Service:
        def run(self) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        step_with(Service.run)

    assert caught.value.parameter == "self"


def test_a_callable_object_is_bound_by_its_call() -> None:
    class Adder:
        def __call__(self, a: Any, ctx: Any) -> Any:
            return a, ctx

    assert called(step_with(Adder())) == ("a", "ctx")


def test_a_class_is_bound_by_its_constructor() -> None:
    class Report:
        def __init__(self, a: Any, title: str = "none") -> None:
            self.shown = a, title

    assert called(step_with(Report)).shown == ("a", "none")


def test_what_a_partial_fixes_stays_fixed_whatever_its_name() -> None:
    def fn(a: Any, root: Any, unknown: Any) -> tuple[Any, ...]:
        return a, root, unknown

    call = step_with(functools.partial(fn, root="fixed", unknown=1))

    assert [b.parameter for b in call.bindings] == ["a"]
    assert called(call) == ("a", "fixed", 1)
    assert called(step_with(functools.partial(fn, 7, unknown=1))) == (7, "root", 1)


def test_a_decorated_function_is_bound_by_what_it_wraps() -> None:
    def fn(a: Any, ctx: Any) -> Any:
        return a, ctx

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return "wrapped", fn(*args, **kwargs)

    assert called(step_with(wrapper)) == ("wrapped", ("a", "ctx"))


def test_a_builtin_with_a_signature_is_bound() -> None:
    call = step_with(operator.neg, params={"a": "b"})

    assert call.positional == (0,)
    assert kinds(call) == {"a": (BindingKind.STEP, "b", 1)}


@pytest.mark.parametrize("fn", [max, type])
def test_a_builtin_without_a_signature_is_refused_by_name(fn: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError, match="signature") as caught:
        step_with(fn)

    assert fn.__name__ in str(caught.value)
    assert caught.value.step_id == "me"


def test_a_signature_that_raises_is_the_steps_problem() -> None:
    class Hostile:
        @property
        def __signature__(self) -> inspect.Signature:
            raise RuntimeError("no")

        def __call__(self) -> None: ...

    with pytest.raises(DefinitionError):
        step_with(Hostile())


def test_coroutine_functions_are_refused_in_every_disguise() -> None:
    async def fetch() -> None: ...

    async def stream() -> Any:
        yield 1

    class Call:
        async def __call__(self) -> None: ...

    for fn in (fetch, stream, functools.partial(fetch), Call()):
        with pytest.raises(DefinitionError, match="coroutine"):
            step_with(fn)
    with pytest.raises(DefinitionError, match=r"condition .*coroutine"):
        step_with(nothing, condition=fetch)


def test_annotations_are_never_evaluated() -> None:
    def fn(a: "Missing") -> "AlsoMissing": ...  # noqa: F821  # the point

    assert kinds(step_with(fn))["a"][0] is BindingKind.STEP


def test_arguments_need_a_value_for_each_binding() -> None:
    call = step_with(lambda a, b: None)

    with pytest.raises(ValueError, match="zip"):
        call.arguments([1])
    assert call.arguments([1, 2]) == ((), {"a": 1, "b": 2})


# --- conditions, routers, reconciles --------------------------------------------------------------


def test_the_router_sees_the_output_of_its_step_by_the_steps_id() -> None:
    wf = Workflow("w")
    wf.add(StepSpec("point", nothing, branches=["left"], router=lambda point, ctx: point))
    wf.add(StepSpec("left", nothing, depends_on=["point"]))

    node = wf.graph().nodes[0]

    assert node.router is not None
    assert node.router.bindings[0] == Binding("point", BindingKind.OWN, "point", 0)
    assert node.deps == ()


@pytest.mark.parametrize("field", ["condition", "reconcile"])
def test_nothing_but_the_router_sees_the_output_of_its_own_step(field: str) -> None:
    with pytest.raises(DefinitionError, match="me -> me"):
        step_with(nothing, delivery="at_most_once", **{field: lambda me: None})


def test_the_element_of_a_map_is_seen_by_reconcile_but_not_by_condition_or_router() -> None:
    wf = Workflow("w")
    wf.step(lambda: [1], id="a")
    options: dict[str, Any] = {"map_over": "a", "delivery": "at_most_once"}
    wf.add(StepSpec("me", lambda item: item, reconcile=lambda item: item, **options))
    reconcile = wf.graph().nodes[1].reconcile
    assert reconcile is not None
    assert reconcile.bindings[0].kind is BindingKind.ITEM

    for field in ("condition", "router"):
        other = Workflow("w")
        other.step(lambda: [1], id="a")
        other.add(StepSpec("me", lambda item: item, map_over="a", branches=["b"], **{field: lambda item: item}))
        other.add(StepSpec("b", nothing, depends_on=["me"]))
        with pytest.raises(DefinitionError, match="map_over"):
            other.validate()


def test_what_a_condition_router_or_reconcile_names_is_a_dependency() -> None:
    wf = Workflow("w")
    for name in ("a", "b", "c", "d"):
        wf.step(nothing, id=name)
    wf.add(
        StepSpec(
            "me",
            lambda d: d,
            condition=lambda c: c,
            router=lambda b: b,
            reconcile=lambda a: a,
            delivery="at_most_once",
            branches=["left"],
            depends_on=["a", "b"],
        )
    )
    wf.add(StepSpec("left", nothing, depends_on=["me"]))

    assert wf.graph().nodes[4].deps == (3, 2, 1, 0)


# --- sub-workflows --------------------------------------------------------------------------------


def nested(declared: dict[str, Any], **options: Any) -> dict[str, tuple[BindingKind, str, int]]:
    wf = Workflow("w", inputs={"root": str}, variables={"total": 0})
    wf.step(lambda: [1], id="a")
    wf.add(StepSpec("me", workflow=Workflow("child", inputs=declared), **options))
    return {b.parameter: (b.kind, b.name, b.index) for b in wf.graph().nodes[1].child_inputs}


def test_the_inputs_of_a_sub_workflow_are_resolved_by_name() -> None:
    assert nested({"a": int, "root": str, "total": int}) == {
        "a": (BindingKind.STEP, "a", 0),
        "root": (BindingKind.INPUT, "root", -1),
        "total": (BindingKind.VARIABLE, "total", -1),
    }


def test_the_inputs_of_a_sub_workflow_are_given_by_the_step() -> None:
    assert nested({"x": int, "y": int}, inputs={"x": "a", "y": "root"}) == {
        "x": (BindingKind.STEP, "a", 0),
        "y": (BindingKind.INPUT, "root", -1),
    }


def test_an_input_with_a_default_keeps_it_when_nothing_matches() -> None:
    assert nested({"x": Input(int, 3), "root": Input(str, ".")}) == {"root": (BindingKind.INPUT, "root", -1)}


def test_a_mapped_sub_workflow_is_given_the_element() -> None:
    by_name = nested({"item": int}, map_over="a")
    given_to = nested({"path": str}, map_over="a", inputs={"path": "item"})

    assert by_name == {"item": (BindingKind.ITEM, "item", -1)}
    assert given_to == {"path": (BindingKind.ITEM, "item", -1)}


@pytest.mark.parametrize(
    ("inputs", "given", "parameter", "words"),
    [
        ({"x": int}, {}, "x", "needs this input"),
        ({"x": int}, {"x": "nobody"}, "x", "'nobody'"),
        ({"x": int}, {"x": "a", "z": "a"}, "z", "no input 'z'.*inputs: 'x'"),
        ({"x": int}, {"x": "ctx"}, "x", "'ctx'"),
        ({"x": int}, {"x": "item"}, "x", "'item'"),
        ({"me": int}, {}, "me", "me -> me"),
        ({"x": int}, {"x": "me"}, "x", "me -> me"),
    ],
)
def test_an_input_of_a_sub_workflow_that_cannot_be_given_is_refused(
    inputs: dict[str, Any], given: dict[str, str], parameter: str, words: str
) -> None:
    with pytest.raises(DefinitionError, match=words) as caught:
        nested(inputs, inputs=given)

    assert (caught.value.step_id, caught.value.parameter) == ("me", parameter)


# --- agents ---------------------------------------------------------------------------------------


def agent_graph(**options: Any) -> Any:
    wf = Workflow("w", inputs={"root": str})
    wf.step(lambda: [1], id="a")
    wf.step(nothing, id="b")
    wf.add(StepSpec("me", agent_type="critic", **options))
    return wf.graph()


def test_an_agent_is_bound_like_a_step_function() -> None:
    graph = agent_graph(depends_on=["a"], params={"text": "root"})

    call = bind_call(lambda ctx, a, text: None, graph.nodes[2], graph)

    assert [b.kind for b in call.bindings] == [BindingKind.CTX, BindingKind.STEP, BindingKind.INPUT]


def test_what_params_of_an_agent_step_name_is_a_dependency() -> None:
    graph = agent_graph(params={"data": "b", "text": "root"})

    assert graph.nodes[2].deps == (1,)
    assert bind_call(lambda data, text: None, graph.nodes[2], graph).bindings[0].index == 1


def test_an_agent_of_a_map_step_sees_the_element() -> None:
    graph = agent_graph(map_over="a")

    assert bind_call(lambda item: None, graph.nodes[2], graph).bindings[0].kind is BindingKind.ITEM


@pytest.mark.parametrize(
    ("fn", "options", "parameter", "words"),
    [
        (lambda nobody: None, {}, "nobody", "no step, input or variable"),
        (lambda a: None, {}, "a", "depends_on"),
        (lambda a=1: None, {}, "a", "depends_on"),
        (lambda x: None, {"params": {"y": "a"}}, "x", "no step"),
        (lambda: None, {"params": {"y": "a"}}, "y", "no such parameter"),
        (lambda **rest: None, {}, "rest", "rest"),
    ],
)
def test_an_agent_that_cannot_be_called_is_refused(
    fn: Callable[..., Any], options: dict[str, Any], parameter: str, words: str
) -> None:
    graph = agent_graph(**options)

    with pytest.raises(DefinitionError, match=words) as caught:
        bind_call(fn, graph.nodes[2], graph)

    assert (caught.value.step_id, caught.value.parameter) == ("me", parameter)


def test_params_of_an_agent_step_that_name_nothing_are_refused_before_the_agent_is_known() -> None:
    with pytest.raises(DefinitionError, match="'nobody'"):
        agent_graph(params={"x": "nobody"})


# --- the rule, against a naive model --------------------------------------------------------------

NAMES = ["ctx", "item", "me", "a", "b", "root", "total", "nobody"]


def naive(name: str, source: str | None, has_default: bool, is_map: bool) -> tuple[BindingKind, str] | str:
    """Say in the words of the contract what a parameter takes: what, "default", or "error"."""
    wanted = name if source is None else source
    if wanted == "ctx":
        return BindingKind.CTX, wanted
    if wanted == "item" and is_map:
        return BindingKind.ITEM, wanted
    if wanted == "me":
        return "error"
    if wanted in ("a", "b"):
        return BindingKind.STEP, wanted
    if wanted == "root":
        return BindingKind.INPUT, wanted
    if wanted == "total":
        return BindingKind.VARIABLE, wanted
    return "default" if source is None and has_default else "error"


def made(parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    class Made:
        __signature__ = inspect.Signature(parameters)

        def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args, kwargs

    return Made()


@patient
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.none() | st.sampled_from(NAMES), st.booleans()), unique_by=lambda p: p[0]
    ),
    st.booleans(),
    st.booleans(),
)
def test_parameters_are_resolved_as_a_naive_model_does(
    drawn: list[tuple[str, str | None, bool]], is_map: bool, is_keyword_only: bool
) -> None:
    kind = inspect.Parameter.KEYWORD_ONLY if is_keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    drawn.sort(key=lambda p: p[2])
    fn = made([inspect.Parameter(n, kind, default=0 if d else inspect.Parameter.empty) for n, _, d in drawn])
    params = {n: s for n, s, _ in drawn if s is not None}
    expected = {n: naive(n, s, d, is_map) for n, s, d in drawn}
    options = {"params": params, "map_over": "a" if is_map else None}

    if "error" in expected.values():
        with pytest.raises(DefinitionError) as caught:
            step_with(fn, **options)
        assert expected[caught.value.parameter] == "error"
    else:
        call = step_with(fn, **options)
        assert {b.parameter: (b.kind, b.name) for b in call.bindings} == {
            n: e for n, e in expected.items() if e != "default"
        }
        assert called(call) == ((), {b.parameter: b.name for b in call.bindings})
