import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.cli.target import Program, load, split
from ares.errors import UsageError
from ares.runtime import Runtime
from ares.workflow import Workflow

FLOW = "from ares import Workflow\nworkflow = Workflow('flow')\nother = Workflow('other')\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what loading changes in the interpreter is put back."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def problem(target: str) -> str:
    with pytest.raises(UsageError) as raised:
        load(target)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# --- splitting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("flow.py", ("flow.py", "workflow")),
        ("flow.py:other", ("flow.py", "other")),
        ("package.module", ("package.module", "workflow")),
        ("package.module:other", ("package.module", "other")),
        (r"C:\jobs\flow.py", (r"C:\jobs\flow.py", "workflow")),
        (r"C:\jobs\flow.py:other", (r"C:\jobs\flow.py", "other")),
        ("C:/jobs/flow.py", ("C:/jobs/flow.py", "workflow")),
        ("a:b/flow.py", ("a:b/flow.py", "workflow")),
        ("flow.py:not-a-name", ("flow.py:not-a-name", "workflow")),
        ("flow.py:", ("flow.py:", "workflow")),
        (":name", (":name", "workflow")),
    ],
)
def test_a_name_is_split_off_at_the_last_colon_if_it_is_one(target: str, expected: tuple[str, str]) -> None:
    assert split(target) == expected


def test_a_colon_in_the_name_of_a_file_that_is_there_splits_nothing(here: Path) -> None:
    (here / "odd:name").touch()

    assert split("odd:name") == ("odd:name", "workflow")


# --- loading --------------------------------------------------------------------------------------------------


def test_a_file_is_loaded_and_its_workflow_found_by_name(here: Path) -> None:
    (here / "some_flow.py").write_text(FLOW)

    assert load("some_flow.py").workflow.id == "flow"
    assert load(f"{here / 'some_flow.py'}:other").workflow.id == "other"


def test_a_module_is_imported_from_the_current_folder(here: Path) -> None:
    (here / "some_package").mkdir()
    (here / "some_package" / "jobs.py").write_text(FLOW)
    (here / "some_package" / "__init__.py").write_text(FLOW)

    assert load("some_package.jobs:other").workflow.id == "other"
    assert load("some_package").workflow.id == "flow"


def test_a_file_imports_its_neighbours_first(here: Path) -> None:
    folder = here / "deeper"
    folder.mkdir()
    (folder / "some_neighbour.py").write_text("name = 'neighbour'\n")
    (folder / "some_job.py").write_text(
        "import sys\nfrom ares import Workflow\nimport some_neighbour\n"
        "workflow = Workflow(some_neighbour.name)\nfirst = sys.path[0]\n"
    )

    assert load("deeper/some_job.py").workflow.id == "neighbour"
    assert sys.modules["some_job"].first == str(folder)


def test_a_file_named_like_a_module_that_is_loaded_replaces_nothing(here: Path) -> None:
    (here / "json.py").write_text(FLOW)
    module = sys.modules["json"]

    assert load("json.py").workflow.id == "flow"
    assert sys.modules["json"] is module


def test_a_dataclass_in_a_target_finds_its_module(here: Path) -> None:
    (here / "some_classes.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import ClassVar\n@dataclass\nclass A:\n    x: ClassVar[int] = 1\n" + FLOW
    )

    assert load("some_classes.py").workflow.id == "flow"


def test_what_is_missing_is_named(here: Path) -> None:
    (here / "some_flow.py").write_text(FLOW + "wf = Workflow('wf')\nnumber = 3\n")
    (here / "empty.py").touch()

    assert problem("nowhere/flow.py") == "there is no file nowhere/flow.py"
    assert problem("nowhere") == f"there is no module 'nowhere' in {here} or where Python looks for modules"
    assert problem("nowhere.deeper").startswith("there is no module 'nowhere.deeper'")
    assert problem("no module") == "'no module' is neither the path of a .py file nor the name of a module"
    assert problem("some_flow.py:othr").startswith("some_flow.py has no 'othr'; did you mean 'other'?; name one of")
    assert problem("some_flow.py:number") == "'number' in some_flow.py is an int, not a Workflow"
    assert problem("empty.py") == "there is no workflow in empty.py: it defines no Workflow"
    assert problem(f"{here}/") == f"{here}/ is a folder; name a .py file in it"


def test_a_file_that_is_no_python_is_named(here: Path) -> None:
    (here / "notes.txt").write_text("x")

    assert problem("./notes.txt") == "./notes.txt is no Python file: its name has to end with .py"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("\nx = = 1\n", "broken_flow.py:2: SyntaxError: invalid syntax"),
        ("if 1:\nx\n", "broken_flow.py:2: IndentationError: expected an indented block after 'if' statement on line 1"),
        ("\nimport no_such_thing\n", "broken_flow.py:2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def f():\n    raise ValueError('bad\\nthing')\nf()\n", "broken_flow.py:2: ValueError: bad\\nthing"),
        (
            "import sys\nsys.exit(3)\n",
            "broken_flow.py:2: it exits while it is loaded; guard it by: if __name__ == '__main__'",
        ),
        (
            (
                "from ares import Workflow\nworkflow = Workflow('w')\n"
                "@workflow.step\ndef a(): ...\n@workflow.step\ndef a(): ...\n"
            ),
            "broken_flow.py:5: DefinitionError: workflow 'w', step 'a': there is a step 'a' already",
        ),
    ],
)
def test_why_a_file_cannot_be_loaded_is_said_with_its_line(here: Path, source: str, expected: str) -> None:
    (here / "broken_flow.py").write_text(source)

    with pytest.raises(UsageError) as raised:
        load("broken_flow.py")

    assert str(raised.value).replace("\n", "\\n") == expected


def test_a_module_that_fails_to_import_another_is_not_called_missing(here: Path) -> None:
    (here / "broken_module.py").write_text("import no_such_thing\n")
    (here / "broken_package").mkdir()
    (here / "broken_package" / "__init__.py").write_text("1 / 0\n")

    assert problem("broken_module") == "broken_module.py:1: ModuleNotFoundError: No module named 'no_such_thing'"
    assert problem("broken_package.deeper") == "broken_package/__init__.py:1: ZeroDivisionError: division by zero"


# --- the target's own Runtime ---------------------------------------------------------------------------------


def program(make: object) -> Program:
    return Program("flow.py", Workflow("w"), make)  # type: ignore[arg-type]  # what a module may hold


def test_a_target_may_make_the_runtime_itself(tmp_path: Path) -> None:
    asked = []

    def make(store: str) -> Runtime:
        asked.append(store)
        return Runtime(store)

    with program(make).runtime(":memory:", max_workers=None) as made:
        assert isinstance(made, Runtime)
    assert asked == [":memory:"]


def test_options_that_only_a_runtime_takes_are_refused_beside_the_targets_own() -> None:
    with pytest.raises(UsageError, match=r"--durability and --workers: flow.py decides that itself"):
        program(Runtime).runtime(":memory:", durability="async", max_workers=2)


def test_a_runtime_function_that_fails_or_gives_something_else_is_named() -> None:
    with pytest.raises(UsageError, match=r"runtime\(':memory:'\) of flow.py raised ZeroDivisionError"):
        program(lambda store: 1 / 0).runtime(":memory:")
    with pytest.raises(UsageError, match=r"runtime\(store\) of flow.py gives a str, not a Runtime"):
        program(lambda store: store).runtime(":memory:")


def test_a_store_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="mysql"):
        program(None).runtime("mysql://x")
