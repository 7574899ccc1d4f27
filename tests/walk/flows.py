"""Workflows in a line or two, for tests that answer for their steps by hand."""

from typing import Any

from ares.workflow import StepSpec, Workflow


def nothing() -> None:
    """Stands for a body, a condition, a router or a reconcile: the test says how it ends."""


def step(id: str, *after: str, **options: Any) -> StepSpec:
    """A step that depends on others; ``workflow=`` makes it a sub-workflow."""
    run = {} if "workflow" in options else {"run": nothing}
    return StepSpec(id, depends_on=after, **run, **options)


def flow(*steps: StepSpec, id: str = "flow", **options: Any) -> Workflow:
    """A workflow of these steps."""
    workflow = Workflow(id, **options)
    for spec in steps:
        workflow.add(spec)
    return workflow
