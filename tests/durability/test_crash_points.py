"""A workflow that has one of everything, killed at every boundary between two facts, ends as if nothing had happened."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime
from tests.durability.children import counted, rich, told
from tests.durability.nursery import Child, Nursery

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

    def resume(self) -> Child:
        return self.nursery.start("resume", workflow="rich", db=self.db)

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


def check(scene: Scene, usual: dict[str, Any], once: Counter[str]) -> str:
    """What is wrong with an execution that was killed; nothing, it is hoped."""
    if not Path(scene.db).exists() or not Runtime(scene.db).executions():
        return ""  # killed before there was an execution: nothing was promised yet
    done, before = scene.committed(), scene.lines()
    if scene.status() is not ExecutionStatus.FAILED:
        outcome = scene.resume().result()
        if settled(outcome) != settled(usual):
            return "\n".join(f"{key}: {outcome[key]} instead of {usual[key]}" for key in usual if outcome[key] != usual[key])
    after = scene.lines()
    repeated = [path for path in done if after[path] != before[path]]
    if repeated:
        return f"done again: {repeated}"
    too_often = {name: times for name, times in after.items() if times > once[name] + (name != "charge")}
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


@pytest.mark.timeout(240)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("before", [True, False], ids=["right before a commit", "right after a commit"])
def test_a_kill_at_any_boundary_and_a_resume_change_nothing(
    nursery: Nursery, tmp_path: Path, before: bool, workers: int
) -> None:
    whole = Scene(nursery, tmp_path / "whole")
    usual = whole.run(max_workers=workers).result()
    once = whole.lines()
    with Runtime(whole.db) as rt:
        entries = rt.checkpoint("e").state_version
        assert told(rt.execution("e").result()) == usual if rt.recover() is None else True
    failures: dict[int, str] = {}

    for first in range(1, entries + 1, AT_ONCE):
        scenes = {}
        for at in range(first, min(first + AT_ONCE, entries + 1)):
            scene = Scene(nursery, tmp_path / str(at))
            scenes[at] = scene, scene.run(at=at, before=before, max_workers=workers)
        for at, (scene, child) in scenes.items():
            assert child.wait() == -9, child.errors()
            problem = check(scene, usual, once)
            if problem:
                failures[at] = problem

    assert entries >= 50
    assert "\n".join(f"killed at {at}: {problem}" for at, problem in failures.items()) == ""
