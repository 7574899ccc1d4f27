"""The example: the audit on two Dask workers, of which one is killed, writes the report that it writes at home."""

import importlib
from pathlib import Path

import pytest

from tests.cli.command import ROOT

pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # workers take a few seconds to come up, longer on a busy machine
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def test_the_report_is_the_same_with_a_worker_killed_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("dask_audit")
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(60):
        branches = "".join(f"    if a > {j}: return {j}\n" for j in range(i % 20))
        (tree / f"m{i}.py").write_text(f"def f{i}(a):\n{branches}    return a\n")
    (tree / "broken.py").write_text("def f(:\n")

    example.audit_at_home(tree, tmp_path / "here.md")
    measured = example.audit_on_dask(tree, tmp_path / "there.md", tmp_path / "effects", 10)

    assert (tmp_path / "there.md").read_text() == (tmp_path / "here.md").read_text()
    assert measured >= 61
