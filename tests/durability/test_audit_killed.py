"""The main job on real input: killed at random moments, again and again, it writes the report that it would have."""

import random
import sysconfig
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ares.stores.sqlite import SqliteStore
from tests.durability.nursery import DEADLINE, Child, Nursery
from tests.durability.traces import counted

FILES = 200
WORKERS = 4
KILLS = 20


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred files of the standard library, one of which nobody can parse."""
    root = tmp_path_factory.mktemp("tree")
    found = (path for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")) if path.stat().st_size < 60_000)
    sources = [path.read_bytes() for path in found]
    for number in range(FILES - 1):
        (root / f"m{number:03}.py").write_bytes(sources[number % len(sources)])
    (root / "unparsable.py").write_text("def f(:\n")
    return root


class Audit:
    """One execution of the audit, and what is known of it."""

    def __init__(self, nursery: Nursery, folder: Path, tree: Path) -> None:
        folder.mkdir()
        self._nursery = nursery
        self._tree = tree
        self.db = str(folder / "audit.db")
        self.report = folder / "audit.md"
        self.effects = str(folder / "effects.txt")

    def start(self) -> Child:
        inputs = {"root": str(self._tree), "report": str(self.report), "effects": self.effects}
        return self._nursery.start("audit", db=self.db, **inputs)

    def measured(self) -> Counter[str]:
        return counted(self.effects)

    def committed(self) -> set[str]:
        """The files whose figures, or failures, are in the journal for good."""
        if not Path(self.db).exists():
            return set()
        store = SqliteStore(self.db)
        if not store.executions():
            return set()
        names = sorted(path.name for path in self._tree.iterdir())
        return {
            names[int(entry.path[8:-1])]
            for entry in store.entries("audit")
            if entry.kind in ("succeeded", "failed") and entry.path.startswith("measure[")
        }


def kill_after(audit: Audit, lines: int) -> bool:
    """Kill a process of the audit when it has measured so many files more; False if it comes to its end before."""
    child = audit.start()
    wanted = audit.measured().total() + lines
    deadline = time.monotonic() + DEADLINE
    while audit.measured().total() < wanted:
        assert time.monotonic() < deadline
        if audit.measured().total() >= FILES and audit.report.exists():
            child.result()
            return False
        threading.Event().wait(0.001)
    child.kill()
    assert child.wait() in (-9, 0)
    return True


@pytest.mark.timeout(120)
def test_an_audit_that_is_killed_twenty_times_writes_the_same_report(
    nursery: Nursery, tmp_path: Path, tree: Path
) -> None:
    whole = Audit(nursery, tmp_path / "whole", tree)
    whole.start().result()
    expected = whole.report.read_bytes()
    dice = random.Random()
    kills, round_ = 0, 0

    while kills < KILLS:
        round_ += 1
        audit = Audit(nursery, tmp_path / f"round {round_}", tree)
        done: dict[str, int] = {}
        deaths = 0
        while kills < KILLS and kill_after(audit, dice.randint(WORKERS + 1, 30)):
            kills, deaths = kills + 1, deaths + 1
            now = audit.measured()
            assert {name: now[name] for name in done} == done
            done = {name: now[name] for name in audit.committed()}
        audit.start().result()
        after = audit.measured()

        assert {name: after[name] for name in done} == done
        assert audit.report.read_bytes() == expected
        assert len(after) == FILES
        assert after.total() - FILES <= deaths * WORKERS
