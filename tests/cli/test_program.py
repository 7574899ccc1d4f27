import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ares.cli.app import app
from tests.cli.command import ROOT, ares, environment, flow, forked

DOCS = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(group: Any, prefix: str = "") -> dict[str, Any]:
    """All commands, those of groups by both names."""
    found = {}
    for name, each in group.commands.items():
        found |= commands(each, f"{prefix}{name} ") if hasattr(each, "commands") else {prefix + name: each}
    return found


COMMANDS = commands(get_command(app))


def section(command: str) -> str:
    """What the documentation says about one command."""
    begin = re.search(rf"^### `ares {command}\b", DOCS, re.MULTILINE)
    assert begin is not None, f"docs/cli.md says nothing of {command}"
    return re.split(r"^##", DOCS[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def options(command: Any) -> set[str]:
    return {
        name for each in command.params for name in each.opts if name.startswith("-") and name not in ("--help", "-h")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_documented_and_has_help(name: str) -> None:
    command = COMMANDS[name]

    assert command.help
    for option in options(command) - {"--store", "--json"}:
        assert f"`{option}" in section(name), option
    assert all(each.help for each in command.params if each.name != "help")
    assert "--json" in options(command)


def test_the_options_before_the_command_are_documented() -> None:
    for option in options(get_command(app)):
        assert f"`{option}`" in DOCS, option


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_documented_that_does_not_exist(name: str) -> None:
    documented = set(re.findall(r"`(--?[a-z][a-z-]*)", section(name)))

    assert documented <= options(COMMANDS[name])


@pytest.mark.case("C054")
def test_the_exit_codes_stand_in_the_help_and_in_the_documentation(tmp_path: Path) -> None:
    shown = ares("--help", cwd=tmp_path).out

    for code, word in {
        0: "completed",
        1: "failed",
        2: "usage",
        3: "waiting",
        4: "cancelled",
        130: "interrupted",
    }.items():
        assert re.search(rf"^ +{code} +{word}", shown, re.MULTILINE)
        assert re.search(rf"^\| {code} \| {word}", DOCS, re.MULTILINE)


# --- starting -------------------------------------------------------------------------------------------------

HEAVY = ("dask", "distributed", "psycopg", "numpy", "pandas", "django", "flask", "cattrs")


@pytest.mark.case("C052")
def test_list_imports_nothing_heavy(tmp_path: Path) -> None:
    forked("run", flow("completes"), "--store", "a.db", cwd=tmp_path)
    program = (
        "import sys, threading\nfrom ares.cli import main\nmain(['list', '--store', 'a.db'])\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], threading.active_count())"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )

    assert "COMPLETED" in done.stdout
    assert done.stdout.splitlines()[-1] == "[] 1"


@pytest.mark.skipif(os.name == "nt", reason="no account of the time of children")
@pytest.mark.case("C052")
def test_help_and_list_start_quickly(tmp_path: Path) -> None:
    import resource

    forked("run", flow("completes"), "--store", "a.db", cwd=tmp_path)

    def best(*words: str) -> float:
        """Seconds of a processor: what else the machine does is no matter."""
        found = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert ares(*words, cwd=tmp_path).code == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(found)

    assert best("--help") < 0.6
    assert best("list", "--store", "a.db") < 0.8
