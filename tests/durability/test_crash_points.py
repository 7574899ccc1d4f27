"""A workflow with one of everything, killed at every boundary between two facts, ends as if nothing had happened."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime
from tests.durability.nursery import Child, Nursery
from tests.durability.traces import counted
from tests.sampling import some

#: How many children live at once.
AT_ONCE = 4
#: What one run may leave more often than once: the element that is retried.
RETRIED = "each[1]"


class Scene:
    """One execution of ``rich``: its files, its first process, the one that goes on with it."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        folder.mkdir()
        self.nursery = nursery
        self.db = str(folder / "ares.db")
        self.effects = str(folder / "effects")

    def run(self, **options: Any) -> Child:
        return self.nursery.start("run", workflow="rich", db=self.db, inputs={"effects": self.effects}, **options)

    def resume(self, **options: Any) -> Child:
        return self.nursery.start("resume", workflow="rich", db=self.db, **options)

    def committed(self) -> Counter[str]:
        """How often each step, and each ``once``, is in the journal as done."""
        done = Counter[str]()
        with Runtime(self.db) as rt:
            for event in rt.execution("e").events():
                if event.type in ("step.completed", "step.remembered"):
                    done[event.payload["path"] + (".once" if event.type == "step.remembered" else "")] += 1
        return done

    def status(self) -> ExecutionStatus:
        return Runtime(self.db).executions()[0].status

    def lines(self) -> Counter[str]:
        """How often each body began; ``charge`` leaves its idempotency key with its name."""
        found = Counter[str]()
        for line, times in counted(self.effects).items():
            found[line.split(" ")[0]] += times
        return found


def settled(outcome: dict[str, Any]) -> dict[str, Any]:
    """What an uninterrupted run and a resumed one must have in common. A crash uses up no attempt, so one that was
    cut short and that ``reconcile`` found to have taken effect counts as none."""
    attempts = {path: times for path, times in outcome["attempts"].items() if path != "charge"}
    return {**outcome, "attempts": attempts}


def check(scene: Scene, usual: dict[str, Any], once: Counter[str], *, is_sync: bool) -> str:
    """What is wrong with an execution that was killed; nothing, it is hoped."""
    if not Path(scene.db).exists() or not Runtime(scene.db).executions():
        return ""  # killed before there was an execution: nothing was promised yet
    done, before = scene.committed(), scene.lines()
    if scene.status() is not ExecutionStatus.FAILED:
        outcome = scene.resume().result()
        if settled(outcome) != settled(usual):
            return "\n".join(
                f"{key}: {outcome[key]} instead of {usual[key]}" for key in usual if outcome[key] != usual[key]
            )
    after = scene.lines()
    repeated = [path for path in done if after[path] != before[path]]
    if repeated:
        return f"done again: {repeated}"
    # One thing more than usual at most, and that once; in the other modes than sync an attempt may be lost, too.
    most = 1 if is_sync else max(once.values())
    too_often = {name: times for name, times in after.items() if times > once[name] + most * (name != "charge")}
    if too_often or after.keys() != once.keys():
        return f"left traces: {too_often or sorted(after)}"
    twice = [path for path, times in scene.committed().items() if times > 1]
    if twice:
        return f"journaled as done twice: {twice}"
    with Runtime(scene.db) as rt:
        checkpoint, result = rt.checkpoint("e"), rt.execution("e")
        seqs = [event.seq for event in result.events()]
        if seqs != list(range(1, len(seqs) + 1)):
            return f"numbered {seqs}"
        if {step: repr(output) for step, output in checkpoint.outputs.items()} != usual["outputs"]:
            return f"the checkpoint has {checkpoint.outputs}"
    return ""


#: Where to die, with how many workers, in which mode.
WAYS = [
    pytest.param("before", 1, "sync", id="right before a commit"),
    pytest.param("after", 3, "sync", id="right after a commit, three workers"),
    pytest.param("before", 3, "async", id="right before a commit, async", marks=pytest.mark.slow),
    pytest.param("after", 1, "best_effort", id="right after a commit, best effort", marks=pytest.mark.slow),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("place", "workers", "durability"), WAYS)
def test_a_kill_at_any_boundary_and_a_resume_change_nothing(
    nursery: Nursery, tmp_path: Path, place: str, workers: int, durability: str
) -> None:
    options = {"max_workers": workers, "durability": durability}
    whole = Scene(nursery, tmp_path / "whole")
    usual = whole.run(**options).result()
    once = whole.lines()
    entries = Runtime(whole.db).checkpoint("e").state_version
    failures: dict[int, str] = {}

    places = some(range(1, entries + 1), one_in=4)
    for first in range(0, len(places), AT_ONCE):
        scenes = {}
        for at in places[first : first + AT_ONCE]:
            scene = Scene(nursery, tmp_path / str(at))
            scenes[at] = scene, scene.run(at=at, before=place == "before", **options)
        for at, (scene, child) in scenes.items():
            assert child.wait() == -9, child.errors()
            problem = check(scene, usual, once, is_sync=durability == "sync")
            if problem:
                failures[at] = problem

    assert entries >= 50
    assert "\n".join(f"killed at {at}: {problem}" for at, problem in failures.items()) == ""
