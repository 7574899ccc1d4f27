"""The compiled graph: its edges in both directions, its searches, and its size."""

import inspect
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ares.errors import DefinitionError
from ares.workflow import Graph, StepSpec, Workflow, mermaid

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def chain(count: int, **options: Any) -> Workflow:
    wf = Workflow("chain")
    for i in range(count):
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{i - 1}"] if i else [], **options))
    return wf


Edges = list[set[int]]


@st.composite
def digraphs(draw: st.DrawFn, is_acyclic: bool = True) -> Edges:
    """Draw what each of some nodes depends on; without cycles, in an order that is not the definition order."""
    count = draw(st.integers(1, 12))
    place = draw(st.permutations(range(count)))
    deps: Edges = [set() for _ in range(count)]
    for i in range(count):
        earlier = [place[j] for j in range(i if is_acyclic else count)]
        if earlier:
            deps[place[i]] = draw(st.sets(st.sampled_from(earlier), max_size=4))
    return deps


def built(deps: Edges) -> Workflow:
    wf = Workflow("w")
    for i, those in enumerate(deps):
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{d}" for d in sorted(those)]))
    return wf


def closure(deps: Edges) -> Edges:
    """Give all that each node depends on, directly or not, the slow and obvious way."""
    above: Edges = [set(those) for those in deps]
    for _ in deps:
        above = [those.union(*(above[d] for d in those)) for those in above]
    return above


# --- edges ----------------------------------------------------------------------------------------


@patient
@given(digraphs())
def test_dependencies_and_dependents_mirror_each_other(deps: Edges) -> None:
    nodes = built(deps).graph().nodes

    for node in nodes:
        assert set(node.deps) == deps[node.index]
        assert len(node.deps) == len(set(node.deps))
        assert list(node.dependents) == sorted(i for i, those in enumerate(deps) if node.index in those)


@patient
@given(digraphs())
def test_the_order_holds_each_node_once_and_behind_its_dependencies(deps: Edges) -> None:
    graph = built(deps).graph()

    assert sorted(graph.order) == list(range(len(deps)))
    assert all(graph.rank[d] < graph.rank[n.index] for n in graph.nodes for d in n.deps)
    assert [graph.order[r] for r in graph.rank] == list(range(len(deps)))


@patient
@given(digraphs())
def test_roots_depend_on_nothing_and_nothing_depends_on_sinks(deps: Edges) -> None:
    graph = built(deps).graph()

    assert list(graph.roots) == [i for i, those in enumerate(deps) if not those]
    assert list(graph.sinks) == [i for i in range(len(deps)) if not any(i in those for those in deps)]


@patient
@given(digraphs())
def test_below_is_everything_that_depends_on_a_node(deps: Edges) -> None:
    graph = built(deps).graph()
    above = closure(deps)

    for i in range(len(deps)):
        expected = {j for j, those in enumerate(above) if i in those}
        assert graph.below(i) == expected
        assert {j for j in range(len(deps)) if graph.is_below(j, i)} == expected
    assert graph.reach(graph.roots) == {i for i, those in enumerate(deps) if those}


@patient
@given(digraphs(is_acyclic=False))
def test_a_cycle_is_found_exactly_when_a_naive_search_finds_one(deps: Edges) -> None:
    has_cycle = any(i in those for i, those in enumerate(closure(deps)))

    if not has_cycle:
        built(deps).validate()
        return
    with pytest.raises(DefinitionError) as caught:
        built(deps).validate()
    way = caught.value.problem.rpartition(": ")[2].split(" -> ")
    assert way[0] == way[-1] == caught.value.step_id
    assert len(set(way)) == len(way) - 1
    assert all(int(one[1:]) in deps[int(other[1:])] for one, other in pairwise(way))


def test_dependencies_come_in_the_order_of_their_origin() -> None:
    wf = Workflow("w")
    for name in "abcdef":
        wf.step(lambda: [1], id=name)
    wf.add(
        StepSpec(
            "me",
            lambda f, x: None,
            params={"x": "e"},
            map_over="d",
            condition=lambda c: True,
            depends_on=["a", "f", "b", "d"],
        )
    )

    graph = wf.graph()

    assert graph.ids(graph.nodes[6].deps) == ("f", "e", "d", "c", "a", "b")
    assert graph.nodes[6].map_source == 3


def test_a_node_knows_its_sub_workflow_and_what_its_inputs_take() -> None:
    child = Workflow("child", inputs={"a": int})
    child.step(lambda a: a, id="inner")
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    wf.add(StepSpec("nested", workflow=child))

    node = wf.graph().nodes[1]

    assert node.child is child.graph()
    assert node.run is None
    assert node.deps == (0,)
    assert [(b.parameter, b.index) for b in node.child_inputs] == [("a", 0)]


def test_nodes_and_graphs_cannot_be_changed() -> None:
    graph = chain(2).graph()

    with pytest.raises(AttributeError):
        graph.nodes = ()
    with pytest.raises(AttributeError):
        graph.nodes[0].index = 3


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.case("C006")
def test_a_chain_of_five_thousand_is_validated_and_described_within_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    wf = chain(5_000)

    graph = wf.validate()

    assert graph.sinks == (4_999,)
    assert len(graph.below(0)) == 4_999
    assert graph.is_below(4_999, 0)
    assert mermaid(graph).count("-.->") == 4_999
    assert len(graph.fingerprint.steps) == 5_000
    assert sys.getrecursionlimit() == limit


@pytest.mark.slow
def test_a_chain_of_a_hundred_thousand_is_ordinary() -> None:
    wf = chain(100_000)

    graph = wf.validate()

    assert len(graph.order) == 100_000
    assert graph.is_below(99_999, 0)


def test_a_join_of_twenty_thousand_is_ordinary() -> None:
    wf = Workflow("w")
    for i in range(20_000):
        wf.add(StepSpec(f"s{i}", nothing))
    wf.add(StepSpec("join", nothing, depends_on=[f"s{i}" for i in range(20_000)]))

    assert len(wf.validate().nodes[-1].deps) == 20_000


@pytest.mark.case("C006")
def test_sub_workflows_nested_deeper_than_the_recursion_limit_are_validated_and_described() -> None:
    depth = sys.getrecursionlimit() + 500
    wf = Workflow("innermost")
    wf.step(nothing, id="s")
    for i in range(depth):
        outer = Workflow(f"w{i}")
        outer.add(StepSpec("n", workflow=wf))
        wf = outer

    graph = wf.validate()

    assert wf.graph() is graph
    assert len(graph.fingerprint.steps) == depth + 1
    assert mermaid(graph).count("subgraph") == depth


def test_sub_workflows_used_twice_on_forty_levels_are_refused_at_once() -> None:
    wf = Workflow("innermost")
    wf.step(nothing, id="s")
    for i in range(40):
        outer = Workflow(f"w{i}")
        outer.add(StepSpec("left", workflow=wf))
        outer.add(StepSpec("right", workflow=wf))
        wf = outer

    with pytest.raises(DefinitionError, match="steps, more than"):
        wf.validate()


def test_a_graph_knows_its_size_with_sub_workflows() -> None:
    child = chain(3)
    wf = Workflow("w")
    wf.add(StepSpec("left", workflow=child))
    wf.add(StepSpec("right", workflow=child))

    assert wf.graph().size == len(wf.graph().fingerprint.steps) == 8


def test_what_was_asked_before_does_not_change_what_is_below() -> None:
    graph = chain(200).graph()

    for _ in range(2):
        assert [len(graph.below(i)) for i in range(200)] == list(range(199, -1, -1))


def test_no_function_of_the_package_calls_itself() -> None:
    # Depth of user-sized things never becomes depth of the stack; the tests above show it for the shapes they have.
    for name, module in list(sys.modules.items()):
        if not name.startswith("ares.workflow."):
            continue
        for fn_name, fn in inspect.getmembers(module, inspect.isfunction):
            if fn.__module__ == name:
                assert fn_name not in fn.__code__.co_names, f"{name}.{fn_name} calls itself"


def test_compiling_many_steps_reads_the_signature_of_one_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    signature = inspect.signature

    def counted(fn: Any, **options: Any) -> inspect.Signature:
        read.append(fn)
        return signature(fn, **options)

    monkeypatch.setattr(inspect, "signature", counted)

    chain(1_000).validate()

    assert read == [nothing]


@patient
@given(digraphs())
def test_compiling_twice_gives_the_same_graph(deps: Edges) -> None:
    assume(len(deps) > 1)

    one, other = built(deps).graph(), built(deps).graph()

    assert one.order == other.order
    assert [n.deps for n in one.nodes] == [n.deps for n in other.nodes]
    assert one.fingerprint == other.fingerprint
    assert isinstance(one, Graph)
