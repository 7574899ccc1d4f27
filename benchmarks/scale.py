"""Whether a step costs the same however many there are: time and memory at growing sizes, and leaks."""

import gc
import os
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from ares import Runtime, Workflow
from benchmarks.shapes import chain


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if os.path.isdir("/proc/self/fd") else -1  # noqa: PTH112


def _cost(workflow: Workflow, steps: int, store: Path | None) -> tuple[float, float]:
    """Microseconds a step, and bytes of peak memory a step (of a run of its own: tracing slows it)."""
    workflow.validate()
    with Runtime(store) as runtime:
        began = time.perf_counter()
        runtime.run(workflow).raise_for_status()
        seconds = time.perf_counter() - began
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    with Runtime() as runtime:
        result = runtime.run(workflow).raise_for_status()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    del result
    return seconds / steps * 1e6, peak / steps


def sizes(shape: Callable[[int], Workflow], name: str, counts: tuple[int, ...]) -> list[str]:
    """A line a size."""
    lines = []
    for count in counts:
        workflow = shape(count)
        free = _cost(workflow, count, None)
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "ares.db"
            with Runtime(store, durability="async") as runtime:
                began = time.perf_counter()
                runtime.run(workflow).raise_for_status()
                kept = (time.perf_counter() - began) / count * 1e6
            bytes_kept = sum(p.stat().st_size for p in Path(folder).iterdir()) / count
        lines.append(
            f"{name:8} {count:>8,}: {free[0]:7.1f} us, {free[1]:7.0f} B of peak memory;"
            f" SQLite async {kept:7.1f} us, {bytes_kept:5.0f} B of file"
        )
    return lines


def executions(count: int) -> list[str]:
    """One execution after another on one Runtime: microseconds each, early and late."""
    workflow = chain(3)
    with Runtime() as runtime:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            runtime.run(workflow).raise_for_status()
            times.append(time.perf_counter() - began)
    tenth = count // 10
    first, last = sum(times[tenth : 2 * tenth]) / tenth, sum(times[-tenth:]) / tenth
    return [f"{count:,} executions of 3 steps: {first * 1e6:.0f} us each early, {last * 1e6:.0f} us late"]


def runtimes(count: int) -> list[str]:
    """Runtimes opened and closed: threads and descriptors after the tenth and after the last."""
    workflow = chain(3)
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            with Runtime(Path(folder) / "ares.db", steps_on="workers") as runtime:
                runtime.run(workflow).raise_for_status()
            if i in (9, count - 1):
                seen.append(f"{threading.active_count()} threads, {_descriptors()} descriptors")
    return [f"{count:,} Runtimes opened and closed: {seen[0]} after the tenth, {seen[-1]} after the last"]
