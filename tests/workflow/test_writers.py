"""Variables with several writers: when their order is decided, and which routes may not be taken.

The heart is a simulation: in a workflow that was accepted, no run whatever its routes and conditions has two writers
of one variable, without a reducer, neither of which is upstream of the other.
"""

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import DefinitionError
from ares.workflow import Graph, Node, StepSpec, Workflow, writers
from ares.workflow.exclusion import contexts, ties_of

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def workflow(*steps: tuple[str, list[str], dict[str, Any]], **arguments: Any) -> Workflow:
    """Make a workflow of (id, depends_on, other fields)."""
    wf = Workflow("w", variables={"v": 0, "u": 0}, **arguments)
    for step_id, depends_on, options in steps:
        wf.add(StepSpec(step_id, nothing, depends_on=depends_on, **options))
    return wf


V: dict[str, Any] = {"writes": ["v"]}


def refused(wf: Workflow) -> DefinitionError:
    with pytest.raises(DefinitionError, match="variable 'v'") as caught:
        wf.validate()
    return caught.value


# --- order ----------------------------------------------------------------------------------------


def test_two_writers_of_which_one_is_upstream_are_fine() -> None:
    workflow(("a", [], V), ("b", ["a"], {}), ("c", ["b"], V)).validate()


def test_two_writers_in_no_order_are_refused_and_named() -> None:
    error = refused(workflow(("a", [], V), ("b", [], V)))

    assert error.step_id == "b"
    assert "'a'" in error.problem


def test_writers_in_no_order_are_fine_with_a_reducer() -> None:
    workflow(("a", [], V), ("b", [], V), reducers={"v": "add"}).validate()


def test_writers_of_different_variables_need_no_order() -> None:
    workflow(("a", [], V), ("b", [], {"writes": ["u"]})).validate()


def test_a_map_that_writes_needs_a_reducer_even_alone() -> None:
    steps = ("a", [], {}), ("b", [], {"map_over": "a", "writes": ["v"]})

    assert refused(workflow(*steps)).step_id == "b"
    workflow(*steps, reducers={"v": "append"}).validate()


def test_naming_a_variable_twice_in_one_step_is_one_writer() -> None:
    workflow(("a", [], {"writes": ["v", "v"]})).validate()


def test_three_writers_are_compared_each_with_each() -> None:
    refused(workflow(("a", [], V), ("b", ["a"], V), ("c", ["a"], V), ("d", ["b", "c"], V)))


# --- exclusion ------------------------------------------------------------------------------------

POINT: tuple[str, list[str], dict[str, Any]] = ("point", [], {"branches": ["a", "b"]})


def test_writers_in_two_branches_of_one_point_are_exclusive() -> None:
    workflow(POINT, ("a", ["point"], V), ("b", ["point"], V)).validate()


def test_writers_below_two_branches_are_exclusive() -> None:
    workflow(POINT, ("a", ["point"], {}), ("b", ["point"], {}), ("c", ["a"], V), ("d", ["b"], V)).validate()


def test_a_writer_that_also_takes_values_from_outside_still_belongs_to_its_branch() -> None:
    workflow(
        ("config", [], {}),
        ("load", ["config"], {}),
        ("point", ["load"], {"branches": ["a", "b"]}),
        ("a", ["point"], {}),
        ("b", ["point"], V),
        ("c", ["a", "config", "point", "load"], V),
    ).validate()


def test_writers_before_a_point_in_its_branches_and_behind_the_join_are_fine() -> None:
    workflow(
        ("first", [], V),
        ("point", ["first"], {"branches": ["a", "b"]}),
        ("a", ["point"], V),
        ("b", ["point"], V),
        ("join", ["a", "b"], V),
    ).validate()


def test_a_join_of_two_branches_belongs_to_neither() -> None:
    refused(
        workflow(
            POINT,
            ("a", ["point"], {}),
            ("b", ["point"], {}),
            ("join", ["a", "b"], V),
            ("below_b", ["b"], V),
        )
    )


def test_a_step_beside_the_branches_is_exclusive_with_none() -> None:
    refused(workflow(POINT, ("a", ["point"], V), ("b", ["point"], {}), ("beside", ["point"], V)))


def test_a_step_that_runs_if_another_below_the_point_completes_is_exclusive_with_none() -> None:
    refused(
        workflow(
            POINT,
            ("a", ["point"], {}),
            ("b", ["point"], V),
            ("beside", ["point"], {}),
            ("mixed", ["a", "beside"], V),
        )
    )


def test_a_step_that_runs_always_is_exclusive_with_none() -> None:
    refused(
        workflow(
            POINT,
            ("a", ["point"], {}),
            ("b", ["point"], V),
            ("clean", ["a"], {"trigger": "always", "writes": ["v"]}),
        )
    )


def test_branches_of_two_points_are_not_exclusive() -> None:
    refused(
        workflow(
            ("p", [], {"branches": ["a"]}),
            ("q", [], {"branches": ["b"]}),
            ("a", ["p"], V),
            ("b", ["q"], V),
        )
    )


def test_branches_within_branches_are_exclusive_across_all_levels() -> None:
    workflow(
        POINT,
        ("a", ["point"], {"branches": ["a1", "a2"]}),
        ("b", ["point"], V),
        ("a1", ["a"], V),
        ("a2", ["a"], {}),
        ("a2b", ["a2"], V),
    ).validate()


def test_branches_behind_a_join_of_branches_are_exclusive() -> None:
    workflow(
        POINT,
        ("a", ["point"], {}),
        ("b", ["point"], {}),
        ("join", ["a", "b"], {"branches": ["c", "d"]}),
        ("c", ["join"], {}),
        ("d", ["join"], V),
        ("e", ["c", "join", "point"], V),
    ).validate()


# --- routes that take two -------------------------------------------------------------------------


def test_on_no_route_all_is_refused_where_two_branches_write_one_variable() -> None:
    steps = ("point", [], {"branches": ["a", "b"], "on_no_route": "all"}), ("a", ["point"], V), ("b", ["point"], V)

    error = refused(workflow(*steps))

    assert error.step_id == "point"
    assert "'a' and 'b'" in error.problem
    workflow(*steps, reducers={"v": max}).validate()


def test_a_route_of_two_branches_that_write_one_variable_is_a_conflict() -> None:
    graph = workflow(
        ("point", [], {"branches": ["a", "b", "c"]}),
        ("a", ["point"], {}),
        ("b", ["point"], V),
        ("c", ["point"], {"writes": ["u"]}),
        ("below", ["a"], V),
    ).graph()

    conflict = graph.route_conflict(0, (1, 2))

    assert conflict is not None
    assert (conflict.variable, set(conflict.branches)) == ("v", {"a", "b"})
    assert graph.route_conflict(0, (1, 2, 3)) is not None
    assert graph.route_conflict(0, (1, 3)) is None
    assert graph.route_conflict(0, (2, 3)) is None
    assert graph.route_conflict(0, (1,)) is None
    assert graph.route_conflict(0, ()) is None


def test_a_route_of_two_branches_in_an_order_is_no_conflict() -> None:
    graph = workflow(POINT, ("a", ["point"], V), ("b", ["point", "a"], V)).graph()

    assert graph.route_conflict(0, (1, 2)) is None


def test_a_route_of_two_branches_with_a_reducer_is_no_conflict() -> None:
    graph = workflow(POINT, ("a", ["point"], V), ("b", ["point"], V), reducers={"v": "add"}).graph()

    assert graph.route_conflict(0, (1, 2)) is None


# --- against a simulation -------------------------------------------------------------------------


@st.composite
def branching(draw: st.DrawFn) -> Workflow:
    """Draw a workflow of steps with dependencies, branches, triggers and writes, in any definition order."""
    count = draw(st.integers(3, 11))
    below_all = [draw(st.sets(st.sampled_from(range(i)), max_size=3)) if i else set() for i in range(count)]
    is_point = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    branch_of: list[int | None] = []
    for deps in below_all:
        points = [d for d in sorted(deps) if is_point[d]]
        branch_of.append(draw(st.sampled_from([*points, None])) if points else None)
    wf = Workflow("w", variables={"v": 0, "u": 0})
    for i in draw(st.permutations(range(count))):
        triggers = ["none_failed", "none_failed", "all_succeeded"] + (["always"] if branch_of[i] is None else [])
        wf.add(
            StepSpec(
                f"s{i}",
                nothing,
                depends_on=draw(st.permutations([f"s{d}" for d in sorted(below_all[i])])),
                branches=[f"s{j}" for j in range(count) if branch_of[j] == i],
                trigger=draw(st.sampled_from(triggers)),
                writes=draw(st.sets(st.sampled_from("vu"))),
            )
        )
    return wf


class Simulation:
    """One run by the rules of DESIGN.md: which steps completed, with routes and conditions drawn."""

    def __init__(self, graph: Graph, chance: random.Random, is_checked: bool) -> None:
        self.graph = graph
        self.completed: set[int] = set()
        self.origin: dict[int, int] = {}
        self.taken: dict[int, list[int]] = {}
        for index in graph.order:
            node = graph.nodes[index]
            if not self.runs(node) or chance.random() < 0.15:
                continue
            self.completed.add(index)
            targets = [b for b in node.branches if chance.random() < 0.5]
            if is_checked and graph.route_conflict(index, targets) is not None:
                targets = targets[:1]
            self.taken[index] = targets

    def runs(self, node: Node) -> bool:
        if node.spec.trigger == "always" or not node.deps:
            return True
        point = node.branch_of
        if point is not None and (point not in self.completed or node.index not in self.taken[point]):
            self.origin[node.index] = self.origin.get(point, point)
            return False
        completed = [d for d in node.deps if d in self.completed]
        for dep in node.deps:
            origin = self.origin.get(dep)
            if origin is not None and not any(self.graph.is_below(c, origin) for c in completed):
                self.origin[node.index] = origin
                return False
        return len(completed) == len(node.deps) if node.spec.trigger == "all_succeeded" else bool(completed)


@patient
@given(branching(), st.randoms(use_true_random=False))
def test_in_an_accepted_workflow_no_two_writers_run_in_no_order(wf: Workflow, chance: random.Random) -> None:
    try:
        graph = wf.validate()
    except DefinitionError:
        return
    pairs = [
        (a.index, b.index)
        for a, b in combinations(graph.nodes, 2)
        if set(a.spec.writes) & set(b.spec.writes)
        and not graph.is_below(a.index, b.index)
        and not graph.is_below(b.index, a.index)
    ]
    for _ in range(20 if pairs else 0):
        completed = Simulation(graph, chance, is_checked=True).completed
        assert not any(a in completed and b in completed for a, b in pairs)


@patient
@given(branching(), st.randoms(use_true_random=False))
def test_what_is_tied_to_a_branch_never_runs_unless_it_is_taken(wf: Workflow, chance: random.Random) -> None:
    free = Workflow("w", variables={"v": 0, "u": 0}, reducers={"v": "add", "u": "add"})
    for spec in wf.steps:
        free.add(spec)
    graph = free.graph()
    ties = [(i, tie) for i, context in enumerate(contexts(graph)) for tie in ties_of(context)]

    for _ in range(10):
        run = Simulation(graph, chance, is_checked=False)
        for i, tie in ties:
            assert i not in run.completed or tie.branch in run.taken.get(tie.point, ())


@patient
@given(branching())
def test_writers_are_refused_only_if_some_pair_is_in_no_order(wf: Workflow) -> None:
    free = Workflow("w", variables={"v": 0, "u": 0}, reducers={"v": "add", "u": "add"})
    for spec in wf.steps:
        free.add(spec)
    graph = free.graph()
    is_ordered = all(
        graph.is_below(a.index, b.index) or graph.is_below(b.index, a.index)
        for a, b in combinations(graph.nodes, 2)
        if set(a.spec.writes) & set(b.spec.writes)
    )

    if is_ordered:
        wf.validate()


@patient
@given(branching(), st.integers(1, 3))
def test_checking_in_several_passes_finds_the_same_as_in_one(wf: Workflow, bits: int) -> None:
    def verdict() -> str:
        again = Workflow("w", variables={"v": 0, "u": 0})
        for spec in wf.steps:
            again.add(spec)
        try:
            again.validate()
        except DefinitionError:
            return "refused"
        return "accepted"

    in_one = verdict()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "_BITS_PER_PASS", bits)
        assert verdict() == in_one


# --- size -----------------------------------------------------------------------------------------


def long_chain(count: int, writers: range) -> Workflow:
    wf = Workflow("w", variables={"v": 0})
    for i in range(count):
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{i - 1}"] if i else [], writes=["v"] if i in writers else []))
    return wf


@pytest.mark.parametrize("step", [29_999, 30, 1])
def test_writers_all_along_a_long_chain_are_ordinary(step: int) -> None:
    long_chain(30_000, range(0, 30_000, step)).validate()


def test_a_writer_beside_a_chain_of_many_writers_is_found() -> None:
    wf = long_chain(5_000, range(5_000))
    wf.add(StepSpec("beside", nothing, depends_on=["s4000"], writes=["v"]))

    assert refused(wf).step_id in ("beside", "s4001")


def test_a_thousand_variables_with_writers_far_apart_are_ordinary() -> None:
    wf = Workflow("w", variables={f"v{i}": 0 for i in range(1_000)})
    for i in range(20_000):
        writes = [f"v{i % 19_000}"] if i % 19_000 < 1_000 else []
        wf.add(StepSpec(f"s{i}", nothing, depends_on=[f"s{i - 1}"] if i else [], writes=writes))

    wf.validate()


def test_a_point_with_five_thousand_branches_that_write_is_ordinary() -> None:
    names = [f"b{i}" for i in range(5_000)]
    wf = Workflow("w", variables={"v": 0})
    wf.add(StepSpec("point", nothing, branches=names))
    for name in names:
        wf.add(StepSpec(name, nothing, depends_on=["point"], writes=["v"]))
        wf.add(StepSpec(f"{name}.", nothing, depends_on=[name], writes=["v"]))

    graph = wf.validate()

    assert graph.route_conflict(0, [graph.by_id["b7"], graph.by_id["b4000"]]) is not None


def test_ten_thousand_branch_points_in_a_row_are_ordinary() -> None:
    wf = Workflow("w", variables={"v": 0})
    last: list[str] = []
    for i in range(10_000):
        wf.add(StepSpec(f"p{i}", nothing, depends_on=last, branches=[f"a{i}", f"b{i}"]))
        wf.add(StepSpec(f"a{i}", nothing, depends_on=[f"p{i}"], writes=["v"]))
        wf.add(StepSpec(f"b{i}", nothing, depends_on=[f"p{i}", *last], writes=["v"]))
        last = [f"j{i}"]
        wf.add(StepSpec(f"j{i}", nothing, depends_on=[f"a{i}", f"b{i}"]))

    wf.validate()
