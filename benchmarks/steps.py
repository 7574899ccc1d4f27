"""What one step costs: a chain and a fan-out, without a store and with SQLite, beside the limits of the machine.

All figures of a round are taken one after another, so that a ratio compares what the machine was like at that moment;
printed are the medians of the rounds, and how far the rounds lie apart.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ares import Runtime, Workflow
from benchmarks.limits import bare_commit, lock_pass
from benchmarks.shapes import chain, fan_out

STEPS = 400


def _per_step(store: Path | None, workflow: Workflow) -> float:
    with Runtime(store) as runtime:
        workflow.validate()
        began = time.perf_counter()
        runtime.run(workflow).raise_for_status()
        return (time.perf_counter() - began) / len(workflow.steps)


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds per step or operation, one figure a round."""
    line, fan = chain(STEPS), fan_out(STEPS)
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "ares.db"
        cases: dict[str, Callable[[], float]] = {
            "bare SQLite commit": lambda: bare_commit(folder),
            "two threads pass a lock": lock_pass,
            "chain, no store": lambda: _per_step(None, line),
            "fan-out, no store": lambda: _per_step(None, fan),
            "chain, SQLite sync": lambda: _per_step(store, line),
            "fan-out, SQLite sync": lambda: _per_step(store, fan),
        }
        for _ in range(rounds):
            for label, case in cases.items():
                figures.setdefault(label, []).append(case())
    return figures


def report(figures: dict[str, list[float]]) -> str:
    """A table: microseconds, spread, and the ratio to the limit that each figure stands beside."""
    beside = {
        "chain, SQLite sync": "bare SQLite commit",
        "fan-out, SQLite sync": "bare SQLite commit",
        "fan-out, no store": "two threads pass a lock",
    }
    lines = [f"{'':28} {'us':>9} {'min':>9} {'max':>9}   ratio in the same round"]
    for label, values in figures.items():
        us = [v * 1e6 for v in values]
        ratio = ""
        if label in beside:
            ratios = [a / b for a, b in zip(values, figures[beside[label]], strict=True)]
            ratio = f"{statistics.median(ratios):.2f} of {beside[label]}"
        lines.append(f"{label:28} {statistics.median(us):9.1f} {min(us):9.1f} {max(us):9.1f}   {ratio}")
    return "\n".join(lines)
