"""``ares plugins``: who lives on the bus."""

from pathlib import Path

import pytest

from ares import __version__
from ares.cli import main
from tests.cli.command import ROOT, ares, forked
from tests.plugins_on_runtime.strangers import install, witness

PROGRAM = """
from ares import HookPolicy, Plugin, Runtime, Workflow

workflow = Workflow("w")
workflow.step(lambda: 1, id="a")


class Audit(Plugin):
    name = "audit"
    runs_after = ("clock",)

    def before_step(self, ctx, execution_id, step):
        pass


class Clock(Plugin):
    name = "clock"

    def before_step(self, ctx, execution_id, step):
        pass


class Gate(Plugin):
    name = "gate"
    hook_policy = HookPolicy.INTERCEPT

    def before_step(self, ctx, execution_id, step):
        pass


class Bad(Plugin):
    name = "bad"
    required = False

    def start(self, ctx, bus):
        raise OSError("no disk")


def runtime(store):
    return Runtime(store, plugins=[Audit(), Clock(), Gate(), *MORE])
"""


def program(folder: Path, more: str = "") -> Path:
    file = folder / "program.py"
    file.write_text(f"{PROGRAM}\n\nMORE = [{more}]\n")
    return file


def test_without_a_target_the_built_in_ones_are_listed(tmp_path: Path) -> None:
    ended = forked("plugins", cwd=tmp_path)

    assert ended.code == 0, ended
    assert [line.split() for line in ended.out.splitlines()] == [
        ["PLUGIN", "VERSION", "CAPABILITIES", "STATE"],
        ["checkpoint", "ares-workflow", __version__, "checkpoint", "running"],
        ["observer", "ares-workflow", __version__, "observer", "running"],
        ["interrupt", "ares-workflow", __version__, "observer", "running"],
        ["tool", "ares-workflow", __version__, "tool", "running"],
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_plugins_of_a_target_are_listed_with_the_order_in_which_they_are_called(tmp_path: Path) -> None:
    ended = forked("plugins", program(tmp_path), cwd=tmp_path)

    assert ended.code == 0, ended
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["gate", "running"] in lines
    assert ["intercept", "gate"] in lines
    assert ["before_step", "clock", ">", "audit"] in lines


def test_json_has_the_same(tmp_path: Path) -> None:
    document = forked("plugins", program(tmp_path), "--json", cwd=tmp_path).document

    assert [(each["name"], each["state"]) for each in document["plugins"]][-3:] == [
        ("audit", "running"),
        ("clock", "running"),
        ("gate", "running"),
    ]
    assert document["hook_order"]["intercept"] == ["gate"]
    assert document["hook_order"]["before_step"] == [["clock"], ["audit"]]


def test_one_that_does_not_start_is_shown_and_the_exit_code_is_1(tmp_path: Path) -> None:
    ended = forked("plugins", program(tmp_path, "Bad()"), cwd=tmp_path)

    assert ended.code == 1
    assert "plugin 'bad': start raised OSError: no disk" in ended.out
    assert "Traceback" not in ended.err


def test_one_that_is_required_and_does_not_start_is_shown_too(tmp_path: Path) -> None:
    file = program(tmp_path, "Bad()")
    file.write_text(file.read_text().replace("required = False", "required = True"))

    ended = ares("plugins", file, cwd=tmp_path)

    assert ended.code == 1
    assert "required plugin 'bad' did not start" in ended.err
    assert "Traceback" not in ended.err


def test_an_order_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    file = program(tmp_path)
    file.write_text(file.read_text().replace('name = "clock"', 'name = "clock"\n    runs_after = ("audit",)'))

    ended = forked("plugins", file, cwd=tmp_path)

    assert ended.code != 0
    assert len(ended.said) == 1
    assert "'audit'" in ended.said[0]
    assert "'clock'" in ended.said[0]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    ended = forked("plugins", "--store", "none.db", cwd=tmp_path)

    assert (ended.code, ended.said) == (2, ["ares: there is no store none.db"])
    assert list(tmp_path.iterdir()) == []


# --- of distributions -------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of distributions on this process's search path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def test_installed_ones_are_listed_when_they_are_asked_for_with_version_and_order(
    site: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    witness(site, "ares-witness", "witness", "cli_witness_1", "2.5")

    assert main(["plugins", "--installed"]) == 0

    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["witness", "ares-witness", "2.5", "running"] in lines
    assert ["after_step", "witness"] in lines
    assert ["checkpoint", "ares-workflow", __version__, "checkpoint", "running"] in lines


def test_without_being_asked_for_they_are_named_and_not_imported(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "raise SystemExit('it was imported')"
    install(site, "ares-bomb", {"bomb": "cli_bomb:Bomb"}, cli_bomb=code)

    assert main(["plugins"]) == 0

    said = capfd.readouterr()
    assert "bomb" not in said.out
    assert said.err.splitlines() == ["ares: installed, and shown with --installed: bomb"]


def test_the_distribution_of_a_targets_own_plugin_is_found_by_its_module(
    site: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    witness(site, "ares-witness", "witness", "cli_witness_2", "2.5")
    site.joinpath("cli_target.py").write_text(
        "from ares import Runtime, Workflow\nfrom cli_witness_2 import Witness\nworkflow = Workflow('w')\n"
        "workflow.step(lambda: 1, id='a')\n\ndef runtime(store):\n    return Runtime(store, plugins=[Witness()])\n"
    )

    assert main(["plugins", "cli_target"]) == 0

    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["witness", "ares-witness", "2.5", "running"] in lines


def test_one_that_cannot_be_made_is_shown_beside_the_others_and_the_exit_code_is_1(tmp_path: Path) -> None:
    site = tmp_path / "site"
    witness(site, "ares-witness", "witness", "cli_witness")
    witness(site, "ares-witness-too", "witness", "cli_witness_too")
    install(site, "ares-bomb", {"bomb": "cli_bomb:Bomb"}, "0.1", cli_bomb="raise SystemExit('boom')")

    ended = ares("plugins", "--installed", "--json", cwd=tmp_path, PYTHONPATH=f"{site}:{ROOT}")

    assert ended.code == 1, ended
    shown = {(each["name"], each["state"]): each for each in ended.document["plugins"]}
    assert shown["witness", "running"]["distribution"] == "ares-witness"
    assert "which ares-witness 1.0 does, too" in shown["witness", "not loaded"]["last_error"]
    bomb = shown["bomb", "not loaded"]
    assert (bomb["distribution"], bomb["version"]) == ("ares-bomb", "0.1")
    told = "entry point 'bomb' (cli_bomb:Bomb) of ares-bomb 0.1 cannot be imported: SystemExit: boom"
    assert told in bomb["last_error"]


def test_a_target_and_installed_ones_are_not_asked_for_together(tmp_path: Path) -> None:
    ended = forked("plugins", program(tmp_path), "--installed", cwd=tmp_path)

    assert ended.code == 2
    assert "--installed" in ended.said[0]
