from typing import Any

import pytest

from ares import Runtime, StepSpec, Workflow
from ares.cli.outcome import failures_of

INNER = Workflow("inner", inputs={"number": int})


@INNER.step
def elements(number: int) -> list[int]:
    return list(range(number))


@INNER.step(map_over=elements, on_item_failure="collect")
def check(item: int) -> int:
    if item == 1:
        raise ValueError("one")
    return item


@INNER.step
def whole(check: list[Any], number: int) -> int:
    if number == 3:
        raise KeyError("three")
    return number


def outer(on_item_failure: str) -> Workflow:
    made = Workflow("outer")
    made.step(lambda: [1, 2, 3], id="numbers")
    made.add(
        StepSpec(
            "inside", workflow=INNER, map_over="numbers", inputs={"number": "item"}, on_item_failure=on_item_failure
        )
    )
    return made


def paths(workflow: Workflow, inputs: dict[str, Any]) -> tuple[list[str], dict[str, int]]:
    with Runtime(steps_on="caller") as runtime:
        found = failures_of(runtime.run(workflow, inputs))
    return [step.path for step in found.fatal], dict(found.collected)


@pytest.mark.parametrize(
    ("number", "fatal", "collected"), [(1, [], {}), (2, [], {"check": 1}), (3, ["whole"], {"check": 1})]
)
def test_what_a_map_collected_is_not_what_a_run_failed_of(
    number: int, fatal: list[str], collected: dict[str, int]
) -> None:
    assert paths(INNER, {"number": number}) == (fatal, collected)


def test_what_failed_inside_a_collected_element_went_with_it() -> None:
    fatal, collected = paths(outer("collect"), {})

    assert fatal == []
    assert collected == {"inside": 1}


def test_what_failed_inside_an_element_that_fails_its_map_is_named() -> None:
    fatal, collected = paths(outer("fail"), {})

    assert fatal == ["inside", "inside[2]", "inside[2]/whole"]
    assert collected == {"inside[1]/check": 1, "inside[2]/check": 1}
