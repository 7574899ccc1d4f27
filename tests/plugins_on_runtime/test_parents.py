"""Steps that run by their parts are told of once each: before any part begins, and before what follows from the end."""

from collections.abc import Callable
from typing import Any

import pytest

from ares import Plugin, Runtime, StepSpec, Workflow

Make = Callable[..., Runtime]


class Told(Plugin):
    name = "told"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
        self.lines.append(f"before {step.path}")

    def after_step(self, ctx: Any, execution_id: str, result: Any) -> None:
        self.lines.append(f"after {result.path} {result.output}")


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_a_map_is_told_of_once_around_all_of_its_elements(runtime: Make, store: str | None, steps_on: str) -> None:
    told = Told()
    wf = Workflow("w")
    wf.step(lambda: [1, 2], id="source")
    wf.step(lambda item: told.lines.append("element") or 2 * item, id="each", map_over="source")
    wf.step(lambda each: each[0] + each[1], id="total")

    runtime(store, plugins=[told], steps_on=steps_on).run(wf).raise_for_status()

    assert told.lines == [
        "before source",
        "after source [1, 2]",
        "before each",
        "element",
        "element",
        "after each [2, 4]",
        "before total",
        "after total 6",
    ]


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_a_sub_workflow_is_told_of_around_its_steps(runtime: Make, store: str | None, steps_on: str) -> None:
    told = Told()
    child = Workflow("child")
    child.step(lambda: 5, id="x")
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=child))
    wf.step(lambda sub: sub["x"], id="last")

    runtime(store, plugins=[told], steps_on=steps_on).run(wf).raise_for_status()

    assert told.lines == [
        "before sub",
        "before sub/x",
        "after sub/x 5",
        "after sub {'x': 5}",
        "before last",
        "after last 5",
    ]
