"""The pytest plugin, which every session loads where ares is installed, and the front door of ``ares.testing``."""

import configparser
import inspect
import json
import os
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

from ares import testing

ROOT = Path(__file__).parents[2]


def child(folder: Path, *arguments: str) -> str:
    """What a Python process says, which must end well."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


SESSION = """
    import json, sys, threading

    import pytest

    RECORDERS = []

    def test_something_else():
        roots = ("ares", "loguru", "pykka", "sqlite3", "typer")
        ours = sorted(name for name in sys.modules if name.split(".")[0] in roots)
        with open("found.json", "w") as file:
            json.dump({"modules": ours, "threads": len(threading.enumerate())}, file)

    def test_a_started_bus(ares_bus, ares_recorder):
        ares_bus(ares_recorder)
        RECORDERS.append(ares_recorder)

    def test_that_it_was_stopped():
        (recorder,) = RECORDERS
        assert [each.method for each in recorder.told if each.method != "on_event"] == ["start", "stop"]

    def test_crash_after(crash_after, tmp_path):
        with pytest.raises(Exception, match="would kill the process that runs the tests"):
            crash_after("charge").on(tmp_path / "ares.db")
"""


def test_a_session_that_uses_none_of_it_pays_for_none_of_it(tmp_path: Path) -> None:
    tmp_path.joinpath("test_other.py").write_text(textwrap.dedent(SESSION))

    child(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_ares_pytest")

    found = json.loads(tmp_path.joinpath("found.json").read_text())
    assert found == {"modules": [], "threads": 1}


def test_the_entry_point_of_the_distribution_names_it() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    name, _, module = setup["options.entry_points"]["pytest11"].strip().partition(" = ")

    assert name == "ares"
    assert Path(str(import_module(module).__file__)).is_file()


def test_the_front_door_brings_nothing_that_was_not_asked_for(tmp_path: Path) -> None:
    program = """
        import sys
        import ares.testing
        assert not [name for name in sys.modules if name.startswith("ares.") and name != "ares.testing"], sys.modules
        assert set(ares.testing.__all__) <= set(dir(ares.testing))
        ares.testing.step_context, ares.testing.crash_after, ares.testing.RecordingPlugin, ares.testing.Nursery
        assert "pytest" not in sys.modules
        ares.testing.PluginContract
        assert "pytest" in sys.modules
    """
    child(tmp_path, "-c", textwrap.dedent(program))


def test_every_name_is_there_and_says_what_it_is_for() -> None:
    assert testing.__all__ == sorted(set(testing.__all__))
    assert [name for name in testing.__all__ if not inspect.getdoc(getattr(testing, name))] == []
    with pytest.raises(AttributeError, match=r"module 'ares\.testing' has no attribute 'nothing'"):
        testing.nothing  # type: ignore[attr-defined]  # noqa: B018
