"""The audit with a memory: which layout of the report is approved, it learns from what humans said."""

import importlib
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ares import Approve, Reject, Runtime
from tests.cli.command import ROOT, forked


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, as the command line loads it: with what is beside it."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module("learning_audit")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.py").write_text("def f(a):\n    while a:\n        if a: return\n")
    return root


class Editor:
    """A human who wants a row for each file, and nothing else."""

    def __init__(self, learning: ModuleType, folder: Path, tree: Path) -> None:
        self._learning = learning
        self._inputs = {"root": tree, "report": folder / "report.md", "threshold": 0}
        self._folder = folder

    def run(self, number: int, *, asks: bool = True) -> Any:
        """One run in a Runtime of its own, as a process of its own would have; the decision about the layout."""
        name = f"audit-{number}"
        workflow = self._learning.workflow
        inputs = self._inputs | ({"publish_to": self._folder / "public.md"} if asks else {})
        coin = random.Random(number).random
        plugins = self._learning.plugins(self._folder / "experience", coin)
        with Runtime(self._folder / "audit.db", plugins=plugins) as runtime:
            result = runtime.run(workflow, inputs, execution_id=name)
            for question in result.interrupts:
                is_liked = "| functions |" in (self._folder / "report.md").read_text()
                runtime.answer(question, Approve() if is_liked else Reject("too long"))
                result = runtime.resume(name, workflow)
            assert result.raise_for_status().warnings == ()
            return next(each for each in runtime.checkpoint(name).route_history if each.path == "worst")


def test_after_some_runs_the_memory_advises_the_layout_that_is_approved(
    learning: ModuleType, tree: Path, tmp_path: Path
) -> None:
    editor = Editor(learning, tmp_path, tree)

    decided = [editor.run(number) for number in range(7)]

    assert {each.targets for each in decided if each.source == "expression"} == {("by_function",), ("by_file",)}
    assert [(each.targets, each.source) for each in decided[-3:]] == [(("by_file",), "memory")] * 3
    assert "similar runs went well" in decided[-1].reason


def test_runs_that_nobody_judged_advise_nothing(learning: ModuleType, tree: Path, tmp_path: Path) -> None:
    editor = Editor(learning, tmp_path, tree)

    decided = [editor.run(number, asks=False) for number in range(5)]

    assert {each.source for each in decided} == {"expression"}


def test_the_command_line_keeps_what_is_learned_beside_the_store(tree: Path, tmp_path: Path) -> None:
    target = ROOT / "examples" / "learning_audit.py"

    ran = forked("run", target, "--store", "audit.db", "-i", f"root={tree}", cwd=tmp_path)

    assert ran.code == 0, ran.err
    assert {each.name for each in tmp_path.iterdir()} >= {"audit.db", "audit.db.experience", "code_audit.md"}


def test_without_a_store_nothing_is_kept_and_the_audit_runs_all_the_same(tree: Path, tmp_path: Path) -> None:
    target = ROOT / "examples" / "learning_audit.py"

    ran = forked("run", target, "-i", f"root={tree}", cwd=tmp_path)

    assert ran.code == 0, ran.err
    assert {each.name for each in tmp_path.iterdir()} == {"tree", "code_audit.md"}
