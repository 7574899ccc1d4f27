"""Kills the code audit of the standard library at random moments, resumes it, and prints what that cost.

    python -m benchmarks.kill_audit [--times 20] [--root FOLDER] [--in-a-row]

Each time: the audit runs in a process of its own, by the command line, as a user would run it; it is killed with
``kill -9`` after a random part of the time that it takes; ``ares resume`` goes on with it. Checked each time: the report
has the same bytes as that of a run that nobody killed; no file whose figures were committed is measured again; no more
files are measured twice than there were workers on them. With ``--in-a-row`` one audit is killed so many times.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
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


def kill_after(audit: Audit, seconds: float) -> bool:
    """Let it run for so long, then kill it. False if it was done before."""
    process = audit.start()
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


def check(audit: Audit, files: list[str], report: bytes, kept: dict[str, int]) -> list[str]:
    """What is wrong with an audit that has ended."""
    problems = []
    after = audit.measured()
    again = [name for name, times in kept.items() if after[name] != times]
    if again:
        problems.append(f"{len(again)} files that were committed were measured again, such as {again[0]}")
    if audit.report.read_bytes() != report:
        problems.append("the report differs")
    extra = after.total() - len(files)
    if extra > WORKERS * audit.deaths:
        problems.append(f"{extra} files were measured twice")
    return problems


def main() -> int:
    """Kill, resume, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_audit", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often the audit is killed")
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_path("stdlib")), help="what it audits")
    parser.add_argument("--in-a-row", action="store_true", help="kill one audit so often, not one after another")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ares-kill-") as folder:
        whole = Audit(Path(folder, "whole"), arguments.root)
        seconds = finish(whole)
        report, files = whole.report.read_bytes(), sorted(whole.measured())
        print(f"{len(files)} files, {seconds:.1f} s when nobody kills it")
        audit, kept = whole, dict[str, int]()
        for number in range(1, arguments.times + 1):
            if number == 1 or not arguments.in_a_row:
                audit, kept = Audit(Path(folder, str(number)), arguments.root), {}
            moment = dice.uniform(0.0, seconds) / (arguments.times / 2 if arguments.in_a_row else 1.0)
            was_killed = kill_after(audit, moment + (0.6 if arguments.in_a_row else 0.0))
            before = audit.measured()
            kept = {files[index]: before[files[index]] for index in audit.committed()}
            is_last = not arguments.in_a_row or number == arguments.times or not was_killed
            took = finish(audit) if is_last else 0.0
            found = check(audit, files, report, kept) if is_last else []
            problems += found
            extra = audit.measured().total() - len(files) if is_last else 0
            print(
                f"{number:3}: {'killed' if was_killed else 'done'} after {moment:5.2f} s with {len(kept):5} of"
                f" {len(files)} committed; "
                + (f"resumed in {took:5.2f} s, {extra} measured twice: " if is_last else "")
                + ("; ".join(found) or "as it must be"),
                flush=True,
            )
            if is_last and arguments.in_a_row:
                break
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
