"""Values pass between steps by reference, and the journal keeps them as they were returned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime, Workflow
from tests.engine.helpers import Gate, single

Make = Callable[..., Runtime]


@pytest.mark.case("C055")
def test_a_value_is_journaled_as_it_was_returned_whoever_changes_it_later(tmp_path: Path) -> None:
    b_is_done, kept = Gate(), []
    fails = [True]

    def a() -> list[int]:
        made = [1, 2]
        kept.append(made)
        return made

    def b(a: list[int]) -> list[int]:
        a.append(3)
        b_is_done.open()
        return list(a)

    def c(a: list[int]) -> list[int]:
        b_is_done.wait()
        if fails:
            fails.clear()
            raise ValueError("not this time")
        return list(a)

    wf = Workflow("w")
    wf.step(a)
    wf.step(b)
    wf.step(c)
    with Runtime(tmp_path / "ares.db") as first:
        result = first.run(wf, execution_id="x")
        kept[0].append(99)
        shared = result.outputs["a"]
        stored = first.checkpoint("x").outputs["a"]

    with Runtime(tmp_path / "ares.db") as second:
        resumed = second.resume("x", wf)

    assert shared is kept[0]  # by reference, in the process where it was made
    assert stored == [1, 2]
    assert resumed.outputs == {"a": [1, 2], "b": [1, 2, 3], "c": [1, 2]}


@pytest.mark.case("C055")
def test_what_the_caller_does_with_its_inputs_after_the_start_does_not_matter(runtime: Make, store: str | None) -> None:
    begun, may_end = Gate(), Gate()
    wf = Workflow("w", inputs={"n": int, "m": int})
    wf.step(lambda n: begun.open() or may_end.wait() or n, id="a")
    wf.step(lambda a, m: (a, m), id="b")
    inputs: dict[str, Any] = {"n": 1, "m": 2}

    execution = runtime(store).submit(wf, inputs)
    begun.wait()
    inputs.clear()
    may_end.open()

    assert execution.result(10).outputs["b"] == (1, 2)
    assert inputs == {}


@pytest.mark.case("C055")
def test_a_run_does_not_change_the_callers_inputs(runtime: Make, store: str | None) -> None:
    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda ctx, n: ctx.inputs and None, id="a")
    inputs = {"n": 1}

    runtime(store).run(wf, inputs).raise_for_status()

    assert inputs == {"n": 1}


def test_the_initial_value_of_a_variable_is_not_shared_between_executions_by_a_reducer(
    runtime: Make, store: str | None
) -> None:
    initial: list[int] = []
    wf = Workflow("w", variables={"v": initial}, reducers={"v": "append"})
    for i in range(3):
        wf.step(lambda ctx, i=i: ctx.set("v", i), id=f"s{i}", writes=["v"], params={})
    rt = runtime(store, max_workers=1)

    results = [rt.run(wf).variables["v"] for _ in range(2)]

    assert results == [[0, 1, 2], [0, 1, 2]]
    assert initial == []


def test_the_outputs_of_a_result_are_of_its_run(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    wf = single(lambda: {"made": []})

    first, second = rt.run(wf), rt.run(wf)
    first.outputs["body"]["made"].append(1)

    assert second.outputs == {"body": {"made": []}}
