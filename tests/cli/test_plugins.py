"""``ares plugins``: who lives on the bus."""

from pathlib import Path

from tests.cli.command import ares, forked

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
        ["PLUGIN", "CAPABILITIES", "STATE"],
        ["checkpoint", "checkpoint", "running"],
        ["observer", "observer", "running"],
        ["tool", "tool", "running"],
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
