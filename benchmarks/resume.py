"""How long it takes to go on with a chain of which so many steps are done, in a process that did not begin it.

A child process walks the chain and dies in its last step, as a killed process does.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import attrs

from ares import Runtime, StepSpec, Workflow
from ares.stores.sqlite import SqliteStore
from benchmarks.shapes import chain

_ID = "cut-short"


@attrs.frozen
class Resumed:
    """Seconds, one figure a round: of ``resume`` alone, by the clock and of processor, and with opening the store."""

    steps: int
    resume: list[float] = attrs.field(factory=list)
    processor: list[float] = attrs.field(factory=list)
    whole: list[float] = attrs.field(factory=list)


def measure(steps: int, folder: Path, rounds: int) -> Resumed:
    """Have a chain cut short before its last step, and go on with it."""
    found = Resumed(steps)
    workflow = _workflow(steps)
    workflow.validate()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            store = Path(name) / "ares.db"
            child = multiprocessing.get_context("spawn").Process(target=_die, args=(steps, store), daemon=True)
            child.start()
            child.join()
            began = time.perf_counter()
            with Runtime(store) as runtime:
                runtime.start()
                opened, used = time.perf_counter(), time.process_time()
                result = runtime.resume(_ID, workflow).raise_for_status()
                found.resume.append(time.perf_counter() - opened)
                found.processor.append(time.process_time() - used)
                found.whole.append(time.perf_counter() - began)
        if result.outputs["last"] != steps:
            raise RuntimeError(f"not a resume of {steps} steps: {result}")
    return found


def line(found: Resumed) -> str:
    """What to print of it."""
    resume, processor, whole = (statistics.median(t) * 1e3 for t in (found.resume, found.processor, found.whole))
    return (
        f"resume after {found.steps:,} steps: {resume:.0f} ms ({min(found.resume) * 1e3:.0f} to"
        f" {max(found.resume) * 1e3:.0f}), of processor {processor:.0f} ms; with opening the store {whole:.0f} ms"
    )


def _workflow(steps: int, last: object = None) -> Workflow:
    workflow = chain(steps)
    workflow.add(StepSpec("last", last or _go_on, params={"x": f"s{steps - 1}"}))
    return workflow


def _go_on(x: int) -> int:
    return x + 1


def _die(steps: int, store: Path) -> None:
    def last(x: int) -> int:  # noqa: ARG001 - the parameter is the dependency
        os._exit(1)

    # Every step is committed before the next; that the commits reach the disk does not matter here.
    with Runtime(SqliteStore(store, synchronous="NORMAL")) as runtime:
        runtime.run(_workflow(steps, last), execution_id=_ID)
