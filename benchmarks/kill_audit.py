"""Kills the code audit of the standard library at random moments, resumes it, and prints what that cost.

    python -m benchmarks.kill_audit [--times 20] [--root FOLDER] [--in-a-row]

Each time: the audit runs in a process of its own, by the command line, as a user would run it; it is killed with
``kill -9`` after a random part of the time that it takes; ``ares resume`` goes on with it. Checked each time: the
report has the same bytes as that of a run that nobody killed; no file whose figures were committed is measured again;
no more files are measured twice than there were workers on them. With ``--in-a-row`` one audit is killed so many times.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from ares.stores.sqlite import SqliteStore

AUDIT = Path(__file__).resolve().parent.parent / "examples" / "code_audit.py"
#: How many files the audit measures at once.
WORKERS = 4


class Audit:
    """One execution of the audit, in a folder of its own."""

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir()
        self.db, self.report, self.effects = folder / "audit.db", folder / "audit.md", folder / "effects.txt"
        self._root = root
        self.deaths = 0

    def start(self) -> "subprocess.Popen[bytes]":
        """Run it, or resume it."""
        command = [sys.executable, "-m", "ares"]
        if self.db.exists() and self.ids():
            command += ["resume", self.ids()[0], str(AUDIT), "--store", str(self.db)]
        else:
            inputs = {"root": self._root, "report": self.report, "effects": self.effects}
            command += ["run", str(AUDIT), "--store", str(self.db)]
            command += [word for name, value in inputs.items() for word in ("--input", f"{name}={value}")]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ids(self) -> list[str]:
        """The execution, if there is one yet."""
        return [row.execution_id for row in SqliteStore(self.db).executions()]

    def measured(self) -> Counter[str]:
        """How often each file was measured."""
        return Counter(self.effects.read_text().splitlines()) if self.effects.exists() else Counter()

    def committed(self) -> set[int]:
        """The elements whose figures, or failures, are in the journal for good."""
        if not self.db.exists():
            return set()
        done = set[int]()
        for id_ in self.ids():
            for entry in SqliteStore(self.db).entries(id_):
                is_final = entry.kind == "succeeded" or (entry.kind == "failed" and '"then"' not in entry.body)
                if is_final and entry.path.startswith("measure["):
                    done.add(int(entry.path[8:-1]))
        return done


def kill_after(audit: Audit, seconds: float, *, once_it_measures: bool = False) -> bool:
    """Let it run for so long, perhaps from when it measures, then kill it. False if it was done before."""
    process = audit.start()
    before = audit.measured().total()
    while once_it_measures and process.poll() is None and audit.measured().total() < before + WORKERS:
        threading.Event().wait(0.01)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        audit.deaths += 1
        return True
    if code:
        raise SystemExit(f"the audit ended with {code}")
    return False


def finish(audit: Audit) -> float:
    """Let it come to its end; how many seconds that took."""
    began = time.monotonic()
    code = audit.start().wait()
    if code:
        raise SystemExit(f"the audit ended with {code}")
    return time.monotonic() - began


class Witness:
    """Knows what must be, and collects what is not so."""

    def __init__(self, whole: Audit) -> None:
        self.report = whole.report.read_bytes()
        self.files = sorted(whole.measured())
        self.problems: list[str] = []

    def kept(self, audit: Audit) -> dict[str, int]:
        """How often each file was measured whose figures are committed now."""
        before = audit.measured()
        return {self.files[index]: before[self.files[index]] for index in audit.committed()}

    def compare(self, audit: Audit, kept: dict[str, int]) -> None:
        """Nothing of what was committed may have been measured again."""
        now = audit.measured()
        again = [name for name, times in kept.items() if now[name] != times]
        if again:
            self.problems.append(f"{len(again)} files that were committed were measured again, such as {again[0]}")

    def inspect(self, audit: Audit) -> int:
        """Look at an audit that came to its end; how many measurements it took too many."""
        if audit.report.read_bytes() != self.report:
            self.problems.append("the report differs")
        extra = audit.measured().total() - len(self.files)
        if extra > WORKERS * audit.deaths:
            self.problems.append(f"{extra} files were measured twice")
        return extra


def one_after_another(folder: Path, root: Path, witness: Witness, moments: list[float]) -> None:
    """An audit for each moment, killed once."""
    for number, moment in enumerate(moments, 1):
        audit = Audit(folder / str(number), root)
        was_killed = kill_after(audit, moment)
        kept = witness.kept(audit)
        took = finish(audit)
        witness.compare(audit, kept)
        extra = witness.inspect(audit)
        print(
            f"{number:3}: {'killed' if was_killed else 'done'} after {moment:5.2f} s, {len(kept):5} files committed;"
            f" resumed in {took:5.2f} s; {extra} measured twice",
            flush=True,
        )


def in_a_row(folder: Path, root: Path, witness: Witness, moments: list[float]) -> None:
    """One audit, killed at each moment that it lives to see."""
    audit = Audit(folder / "row", root)
    kept: dict[str, int] = {}
    for number, moment in enumerate(moments, 1):
        # A step that its process dies in three times is given up, and the first one has all that time to itself.
        if not kill_after(audit, moment, once_it_measures=True):
            break
        witness.compare(audit, kept)
        kept = witness.kept(audit)
        print(f"{number:3}: killed after {moment:5.2f} s with {len(kept):5} files committed", flush=True)
    finish(audit)
    witness.compare(audit, kept)
    print(f"killed {audit.deaths} times in a row: {witness.inspect(audit)} measured twice")


def main() -> int:
    """Kill, resume, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_audit", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often the audit is killed")
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_path("stdlib")), help="what it audits")
    parser.add_argument("--in-a-row", action="store_true", help="kill one audit so often, not one after another")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="ares-kill-") as name:
        folder = Path(name)
        whole = Audit(folder / "whole", arguments.root)
        seconds = finish(whole)
        witness = Witness(whole)
        print(f"{len(witness.files)} files, {seconds:.1f} s when nobody kills it", flush=True)
        if arguments.in_a_row:
            moments = [dice.uniform(0.0, seconds / arguments.times) for _ in range(arguments.times)]
            in_a_row(folder, arguments.root, witness, moments)
        else:
            moments = [dice.uniform(0.0, seconds) for _ in range(arguments.times)]
            one_after_another(folder, arguments.root, witness, moments)
    print("\n".join([f"{len(witness.problems)} problems", *witness.problems]))
    return 1 if witness.problems else 0


if __name__ == "__main__":
    sys.exit(main())
