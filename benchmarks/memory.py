"""What a long map holds in memory at its peak, an element."""

import gc
import tracemalloc

import attrs

from ares import Runtime
from benchmarks.shapes import mapped


@attrs.frozen
class Peak:
    """Bytes an element of a map over so many, the list and the results included."""

    elements: int
    bytes: float


def measure(elements: int) -> Peak:
    """Run such a map once, without a store; tracing slows it, so it is not timed."""
    workflow = mapped(elements)
    workflow.validate()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with Runtime() as runtime:
            result = runtime.run(workflow).raise_for_status()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    if result.outputs["total"] != sum(range(elements)):
        raise RuntimeError(f"not the sum: {result}")
    return Peak(elements, peak / elements)


def line(found: Peak) -> str:
    """What to print of it."""
    return f"a map over {found.elements:,}: {found.bytes:.0f} B of peak memory an element"
