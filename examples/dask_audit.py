"""The code audit with its measuring on a Dask cluster; one of the two workers is killed in the middle.

    python examples/dask_audit.py [ROOT]

Audits the tree, the standard library unless one is given, at home and on the cluster, and says whether both reports are
the same. Every step but ``measure`` stays at home. A file whose worker is lost is measured again, because the step's
retry policy says so; Dask by itself would do that behind the program's back, for effects that must not happen twice as
for this one.
"""

import os
import signal
import sys
import time
from difflib import unified_diff
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import attrs
from code_audit import workflow as audit  # type: ignore[import-not-found]  # beside this file, where mypy does not look
from distributed import LocalCluster

from ares import RetryPolicy, Runtime, Workflow
from ares.errors import ExecutorError
from ares.executors.dask import DaskExecutor

AGAIN = RetryPolicy(max_attempts=5, initial_delay=0.1, retry_on=ExecutorError)  # a lost worker is one

workflow = Workflow(audit.id, version=audit.version, inputs=audit.inputs)
for spec in audit.steps:
    there = {"executor": "cluster", "retry": AGAIN} if spec.id == "measure" else {}
    workflow.add(attrs.evolve(spec, **there))


def audit_at_home(root: Path, report: Path) -> None:
    """The report as the audit itself writes it."""
    with Runtime() as runtime:
        runtime.run(audit, {"root": root, "report": report}).raise_for_status()


def audit_on_dask(root: Path, report: Path, effects: Path, kill_after: int) -> int:
    """The report with the measuring on two workers, of which one is killed after so many measurings; how many there
    were in the end, those that were lost included."""
    # One thread each: CPython 3.11 refuses now and then what two threads parse at once (its issue 106905).
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60}
    with (
        LocalCluster(**options) as cluster,  # type: ignore[no-untyped-call]  # distributed has types for some of it
        Runtime(executors={"cluster": partial(DaskExecutor, cluster.scheduler_address)}) as runtime,
    ):
        handle = runtime.submit(workflow, {"root": root, "report": report, "effects": effects})
        while not handle.done() and _lines(effects) < kill_after:
            Event().wait(0.005)
        os.kill(cluster.workers[0].pid, signal.SIGKILL)
        handle.result(timeout=600).raise_for_status()
    return _lines(effects)


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def main(root: Path) -> int:
    """Do both and compare."""
    with TemporaryDirectory() as folder:
        here, there = Path(folder, "here.md"), Path(folder, "there.md")
        audit_at_home(root, here)
        began = time.monotonic()
        measured = audit_on_dask(root, there, Path(folder, "effects"), sum(1 for _ in root.rglob("*.py")) // 4)
        seconds = time.monotonic() - began
        differences = list(unified_diff(here.read_text().splitlines(), there.read_text().splitlines(), lineterm=""))
    print(f"{measured} measurings in {seconds:.1f} s; the report is {'another' if differences else 'the same'}")
    print(*differences, sep="\n", end="")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(audit.inputs["root"].default)))
