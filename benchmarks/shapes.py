"""The workflows that are measured."""

from ares import StepSpec, Workflow


def _one(x: int = 0) -> int:
    return x + 1


def _zero() -> int:
    return 0


def chain(length: int) -> Workflow:
    """Steps that each take the output of the one before."""
    workflow = Workflow("chain")
    workflow.add(StepSpec("s0", _zero))
    for i in range(1, length):
        workflow.add(StepSpec(f"s{i}", lambda x: x + 1, params={"x": f"s{i - 1}"}))
    return workflow


def fan_out(width: int) -> Workflow:
    """Steps beside each other, and one that joins them."""
    workflow = Workflow("fan")
    workflow.add(StepSpec("source", _zero))
    for i in range(width):
        workflow.add(StepSpec(f"b{i}", _one, params={"x": "source"}))
    workflow.add(StepSpec("join", lambda: 0, depends_on=[f"b{i}" for i in range(width)]))
    return workflow


def mapped(length: int) -> Workflow:
    """One map over so many elements, and a step that sums them."""
    workflow = Workflow("mapped")
    workflow.add(StepSpec("source", lambda: list(range(length))))
    workflow.add(StepSpec("each", lambda item: item, map_over="source"))
    workflow.add(StepSpec("total", sum_of, params={"values": "each"}))
    return workflow


def sum_of(values: list[int]) -> int:
    """The sum of a map's output."""
    return sum(values)
