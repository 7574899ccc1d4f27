"""What a step costs is the same among a thousand and a hundred thousand, and nothing recurses.

Processor time, not time: the machine has other things to do. Figures are in ``benchmarks``; this holds their shape.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ares.records import ErrorInfo
from ares.walk import facts as f
from ares.walk.walk import Walk, WorkKind
from ares.workflow import StepSpec, Workflow
from tests.walk.flows import flow, nothing, step
from tests.walk.hand import created

#: How many times as much a unit may cost among many as among few.
FLAT = 4.0
FEW = 1_000


def chain(size: int) -> Workflow:
    return flow(*(step(f"s{i}", *[f"s{i - 1}"][: i > 0]) for i in range(size)))


def fan(size: int) -> Workflow:
    return flow(step("a"), *(step(f"s{i}", "a") for i in range(size)), step("join", *(f"s{i}" for i in range(size))))


def layers(size: int) -> Workflow:
    """Ten wide, each step depending on all ten before it."""
    wf = Workflow("layers")
    for i in range(size):
        above = range(i // 10 * 10 - 10, i // 10 * 10) if i >= 10 else ()
        wf.add(step(f"s{i}", *(f"s{j}" for j in above)))
    return wf


def forks(size: int) -> Workflow:
    """One branch point after the other, each with a branch that is not taken, and a join."""
    wf = Workflow("forks")
    for i in range(size // 4):
        wf.add(step(f"fork{i}", *[f"join{i - 1}"][: i > 0], branches=[f"left{i}", f"right{i}"]))
        wf.add(step(f"left{i}", f"fork{i}"))
        wf.add(step(f"right{i}", f"fork{i}"))
        wf.add(step(f"join{i}", f"left{i}", f"right{i}"))
    return wf


def mapped(size: int) -> Workflow:
    return flow(step("list"), StepSpec("m", nothing, map_over="list"))


def pooled(size: int) -> Workflow:
    return flow(step("list"), StepSpec("m", nothing, map_over="list", pool="p"))


def mapped_children(size: int) -> Workflow:
    return flow(step("list"), step("m", map_over="list", workflow=flow(step("a"), step("b", "a"), id="child")))


SHAPES = [chain, fan, layers, forks, mapped, pooled, mapped_children]


def walked(workflow: Workflow, size: int, keep: list[f.Fact] | None = None) -> Walk:
    """A walk from its beginning to its end, with one worker."""
    graph = workflow.graph()
    walk = Walk(graph, "x")
    facts = [] if keep is None else keep

    def apply(fact: f.Fact) -> None:
        walk.settle(fact, walk.apply(fact))
        facts.append(fact)

    apply(created(graph))
    walk.begin()
    while (work := walk.next_work()) is not None:
        facts.extend(fact for fact, _ in walk.drain()[0])
        at = work.instance
        assert work.kind is WorkKind.BODY
        targets = (f"left{at.path[4:]}",) if at.path.startswith("fork") else None
        apply(f.Started(at.path, 1, at.epoch, 1))
        apply(f.Succeeded(at.path, 1, at.epoch, 1, list(range(size)) if at.path == "list" else None, (), targets))
        if keep is None:
            facts.clear()
    facts.extend(fact for fact, _ in walk.drain()[0])
    assert walk.state.ended is not None
    assert walk.state.ended.status == "COMPLETED"
    return walk


@contextmanager
def shallow(frames: int = 60) -> Iterator[None]:
    """Hardly any room on the stack: what recurses with the size of a workflow fails."""
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def cost(shape: Callable[[int], Workflow], size: int) -> tuple[float, float]:
    """Seconds per unit: of walking, and of replaying and taking up."""
    workflow = shape(size)
    graph = workflow.graph()
    facts: list[f.Fact] = []
    gc.collect()
    gc.disable()
    try:
        with shallow():
            began = time.process_time()
            walked(workflow, size, facts)
            middle = time.process_time()
            walk = Walk(graph, "x")
            for fact in facts:
                walk.apply(fact)
            walk.begin()
            return (middle - began) / size, (time.process_time() - middle) / size
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_costs_the_same_in_a_large_workflow(shape):
    few = [min(costs) for costs in zip(*(cost(shape, FEW) for _ in range(3)), strict=True)]

    many = [min(costs) for costs in zip(*(cost(shape, 10 * FEW) for _ in range(2)), strict=True)]

    assert many[0] < FLAT * few[0]
    assert many[1] < FLAT * few[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", [chain, mapped, pooled])
def test_a_hundred_thousand_are_ordinary(shape):
    few = [min(costs) for costs in zip(*(cost(shape, FEW) for _ in range(3)), strict=True)]

    many = cost(shape, 100_000)

    assert many[0] < FLAT * few[0]
    assert many[1] < FLAT * few[1]


@pytest.mark.parametrize(("shape", "most"), [(chain, 400), (mapped, 100), (mapped_children, 2_500)])
def test_what_is_kept_of_each_is_little_and_no_more_of_many(shape, most):
    for size in (FEW, 10 * FEW):
        workflow = shape(size)
        workflow.graph()
        gc.collect()
        tracemalloc.start()
        try:
            walk = walked(workflow, size)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] / size < most
        finally:
            tracemalloc.stop()
        del walk


def test_a_thousand_sub_workflows_inside_each_other_are_walked_without_recursion():
    workflow = flow(step("s"), id="w0")
    for i in range(1_000):
        workflow = flow(step("s", workflow=workflow, retry=None), id=f"w{i + 1}", fail_fast=True)
    graph = workflow.graph()

    with shallow():
        walk = walked(workflow, 1)
        failing = Walk(graph, "y")
        failing.apply(created(graph))
        failing.begin()
        work = failing.next_work()
        assert work is not None
        path = work.instance.path
        failing.apply(f.Started(path, 1, 0, 1))
        fact = f.Failed(path, 1, 0, 1, ErrorInfo("ValueError", "no"))
        failing.settle(fact, failing.apply(fact))

    assert walk.state.ended is not None
    assert failing.state.ended is not None
    assert failing.state.ended.error == ErrorInfo("ValueError", "no")


def cost_of_a_cancel(size: int) -> float:
    """Seconds per open element."""
    graph = mapped_children(0).graph()
    walk = Walk(graph, "x")
    walk.apply(created(graph))
    walk.begin()
    for fact in (f.Started("list", 1, 0, 1), f.Succeeded("list", 1, 0, 1, list(range(size)))):
        walk.settle(fact, walk.apply(fact))
    for _ in range(size):
        assert walk.next_work() is not None
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        fact = f.CancelRequested()
        walk.apply(fact)
        walk.settle(fact)
        seconds = time.process_time() - began
    finally:
        gc.enable()
    assert walk.state.ended is not None
    return seconds / size


def test_a_cancel_of_much_that_is_open_touches_each_once():
    few, many = (min(cost_of_a_cancel(size) for _ in range(3)) for size in (FEW, 10 * FEW))

    assert many < FLAT * few


def cost_of_going_past(size: int) -> float:
    """Seconds per step, where as many wait for a pool that is closed."""
    graph = flow(*(step(f"s{i}", pool="p" if i % 2 else None) for i in range(2 * size))).graph()
    walk = Walk(graph, "x")
    walk.apply(created(graph))
    walk.begin()
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        for _ in range(size):
            assert walk.next_work(lambda _: False) is not None
            assert walk.wants("p")
        seconds = time.process_time() - began
    finally:
        gc.enable()
    assert walk.next_work(lambda _: False) is None
    return seconds / size


def test_what_waits_for_a_pool_costs_those_nothing_that_go_past_it():
    few, many = (min(cost_of_going_past(size) for _ in range(3)) for size in (FEW // 10, FEW))

    assert many < FLAT * few
