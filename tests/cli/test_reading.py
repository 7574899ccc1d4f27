import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares import Runtime
from tests.cli import flows
from tests.cli.command import Ended, environment, flow, forked

ROOT_USER = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of each kind."""
    made = tmp_path_factory.mktemp("reading")
    with Runtime(made / "a.db") as runtime:
        runtime.run(flows.completes, {"n": 5}, execution_id="done", metadata={"user": "me"})
        runtime.run(flows.fails, execution_id="failed")
        runtime.run(flows.fails_often, {"count": 60}, execution_id="often")
        runtime.run(
            flows.hostile,
            {"url": "http://h/?q=<script>alert(1)</script>\x1b[31m", "name": "evil\r\nname"},
            execution_id="[red]evil[/red]",
        )
    return made


@pytest.fixture
def read_from(folder: Path) -> "Reading":
    return Reading(folder)


class Reading:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str) -> Ended:
        ended = forked(*words, "--store", "a.db", cwd=self.folder)
        assert ended.code == 0, ended
        assert ended.err == ""
        return ended


# --- list -----------------------------------------------------------------------------------------------------


def test_executions_are_listed_newest_first(read_from: Reading) -> None:
    lines = read_from("list").out.splitlines()

    assert lines[0].split() == ["ID", "WORKFLOW", "STATUS", "STARTED", "DURATION", "ERROR"]
    assert [line.split()[0] for line in lines[1:]] == ["[red]evil[/red]", "often", "failed", "done"]
    assert "ValueError: no good" in lines[3]


def test_a_listing_can_be_narrowed(read_from: Reading) -> None:
    def ids(*words: str) -> list[str]:
        return [each["execution_id"] for each in read_from("list", "--json", *words).document["executions"]]

    assert ids("--status", "failed") == ["[red]evil[/red]", "failed"]
    assert ids("--status", "COMPLETED", "--limit", "1") == ["often"]
    assert ids("--workflow", "completes") == ["done"]
    assert ids("--workflow", "nobody's") == []


def test_a_listed_execution_has_its_times_and_its_duration(read_from: Reading) -> None:
    found = read_from("list", "--json", "--workflow", "completes").document["executions"][0]

    assert found["metadata"] == {"user": "me"}
    assert found["workflow_version"] == "1"
    assert found["created_at"].endswith("+00:00")
    assert 0 < found["duration"] < 60
    assert found["owner"] is None


# --- show -----------------------------------------------------------------------------------------------------


def test_show_says_what_became_of_every_step(read_from: Reading) -> None:
    lines = read_from("show", "done").out.splitlines()

    assert lines[:3] == ["execution  done", "workflow   completes (version 1)", "status     COMPLETED"]
    assert "metadata   user=me" in lines
    assert "  n = 5" in lines
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == ["STEP", "STATUS", "ATTEMPTS", "SECONDS"]
    rows = {line.split()[0]: line for line in table[1:]}
    assert list(rows) == ["first", "double", "double[1]", "numbers", "report"]
    assert "elements: 5 completed, 1 failed" in rows["double"]
    assert "ValueError: one is\\nno good" in rows["double[1]"]
    assert rows["report"].endswith(f"-> {Path('/reports/6.md')}")


def test_show_says_why_a_step_failed_or_was_skipped(read_from: Reading) -> None:
    out = read_from("show", "failed").out

    assert "error      ValueError: no good" in out
    rows = {line.split()[0]: line for line in out.splitlines()[-3:]}
    assert "ValueError: no good" in rows["bad"]
    assert rows["after"].split()[1] == "SKIPPED"
    assert rows["after"].endswith("upstream_failed: bad")


def test_failed_elements_are_listed_up_to_a_limit(read_from: Reading) -> None:
    short = read_from("show", "often").out
    full = read_from("show", "often", "--all").out

    assert "elements: 30 completed, 30 failed; 10 failed elements not listed, see --all" in short
    assert short.count("\n  odd[") == 20
    assert full.count("\n  odd[") == 60


def test_show_as_json_has_everything(read_from: Reading) -> None:
    found = read_from("show", "often", "--json").document
    full = read_from("show", "often", "--all", "--json").document

    assert found["status"] == "COMPLETED"
    assert found["inputs"] == {"count": 60}
    assert found["outputs"]["odd"][1] == {"type": "ValueError", "message": "1 is odd"}
    steps = {step["path"]: step for step in found["steps"]}
    assert steps["odd"]["elements"]["by_status"] == {"COMPLETED": 30, "FAILED": 30}
    assert len(steps["odd"]["elements"]["listed"]) == 20
    assert steps["odd"]["elements"]["are_all_listed"] is False
    assert steps["odd"]["elements"]["listed"][0]["attempts"] == 2
    elements = {step["path"]: step for step in full["steps"]}["odd"]["elements"]
    assert len(elements["listed"]) == 60
    assert elements["are_all_listed"] is True
    assert read_from("show", "failed", "--json").document["failure"]["type"] == "ValueError"


# --- events ---------------------------------------------------------------------------------------------------


def test_events_are_shown_in_order_without_a_hole(read_from: Reading) -> None:
    lines = read_from("events", "failed").out.splitlines()
    found = read_from("events", "failed", "--json").document["events"]

    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert [event["seq"] for event in found] == list(range(1, len(lines) + 1))
    assert [line.split()[3] for line in lines] == [event["type"] for event in found]
    assert found[0]["type"] == "workflow.started"
    assert found[-1]["type"] == "workflow.failed"
    assert "error=ValueError: no good" in lines[-1]


def test_events_can_be_asked_for_from_a_number_on(read_from: Reading) -> None:
    found = read_from("events", "failed", "--after", "3", "--json").document["events"]

    assert found[0]["seq"] == 4


# --- whatever the data hold -----------------------------------------------------------------------------------


@pytest.mark.case("C048")
def test_no_data_reaches_a_terminal_as_anything_but_text(read_from: Reading) -> None:
    for words in (["list"], ["show", "[red]evil[/red]"], ["events", "[red]evil[/red]"]):
        out = read_from(*words).out

        assert all(line.isprintable() for line in out.splitlines()), words
        assert "\r" not in out
        assert "[red]evil[/red]" in out or words[0] == "events"
    shown = read_from("show", "[red]evil[/red]").out
    assert "  url = http://h/?q=<script>alert(1)</script>\\x1b[31m\n" in shown
    assert "  name = evil\\r\\nname\n" in shown
    assert "\\u202estep" in shown
    assert "evil\\r\\nname\\x1b[2J\\nsecond line" in shown


@pytest.mark.case("C048")
def test_what_a_run_says_about_hostile_data_is_text_too(tmp_path: Path) -> None:
    words = ("-i", "url=\x1b[31m[bold]x", "-i", "name=a\nb", "--id", "x")

    ended = forked("run", flow("hostile"), *words, cwd=tmp_path)

    assert ended.code == 1
    assert all(line.isprintable() for line in (ended.out + ended.err).splitlines())
    assert "ares: hostile_failure: ValueError: a\\nb\\x1b[2J\\nsecond line\n" in ended.err
    assert "\\x1b[31m[bold]x" in ended.out
    assert "next [bold]line[/bold]" in ended.out


# --- the file -------------------------------------------------------------------------------------------------


def test_the_store_may_be_named_by_the_environment(folder: Path) -> None:
    ended = forked("list", "--limit", "1", "--json", cwd=folder, ARES_STORE="a.db")

    assert [each["execution_id"] for each in ended.document["executions"]] == ["[red]evil[/red]"]
    assert forked("list", "--store", "b.db", cwd=folder, ARES_STORE="a.db").code == 2


def test_reading_leaves_no_trace_in_the_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    for words in (["list"], ["show", "done"], ["events", "done"], ["watch", "done"]):
        assert forked(*words, "--store", "a.db", cwd=tmp_path).code == 0

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.fixture
def locked_folder(folder: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copy(folder / "a.db", tmp_path)
    (tmp_path / "a.db").chmod(stat.S_IRUSR)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield tmp_path
    tmp_path.chmod(stat.S_IRWXU)


def test_a_file_that_cannot_be_written_can_be_read(
    locked_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    store = str(locked_folder / "a.db")

    for words in (["list"], ["show", "done"], ["events", "done"], ["watch", "done"]):
        assert forked(*words, "--store", store, cwd=elsewhere).code == 0
    if not ROOT_USER:  # whom no mode of a file keeps from writing
        ended = forked("cancel", "failed", "--store", store, cwd=elsewhere)
        assert ended.code == 1
        assert len(ended.said) == 1


# --- ids ------------------------------------------------------------------------------------------------------

IDS = ["../../x", "/etc/x", "a/b", "..", "CON", "-x", "--store", "日本", "a b", "x" * 200]
REFUSED = ["", " ", "x" * 300, "a\nb", "\x1b[31m"]


def listing(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("a.db")}


@pytest.mark.case("C047")
def test_no_id_reaches_beyond_the_store(tmp_path: Path) -> None:
    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    before = listing(tmp_path)

    for name in IDS:
        assert forked("run", flow("completes"), "--store", "a.db", f"--id={name}", cwd=inner).code == 0, name
        shown = forked("show", "--store", "a.db", "--json", "--", name, cwd=inner)
        assert shown.document["execution_id"] == name
        resumed = forked("resume", "--store", "a.db", "--json", "--", name, flow("completes"), cwd=inner)
        assert resumed.document["status"] == "COMPLETED"
    for name in REFUSED:
        ended = forked("run", flow("completes"), "--store", "a.db", f"--id={name}", cwd=inner)
        assert ended.code == 2, name
        assert len(ended.said) == 1
        for command in ("show", "events", "watch", "cancel"):
            assert forked(command, "--store", "a.db", "--", name, cwd=inner).code == 2

    assert listing(tmp_path) == before
    listed = forked("list", "--store", "a.db", "--json", cwd=inner).document["executions"]
    assert [each["execution_id"] for each in listed] == IDS[::-1]


@pytest.mark.case("C047")
def test_an_id_that_begins_with_a_dash_is_no_option_after_two_of_them(folder: Path) -> None:
    ended = forked("show", "--store", "a.db", "--json", "--", "-x", cwd=folder)

    assert ended.code == 2
    assert "-x" in json.loads(ended.out)["error"]["message"]
    assert forked("show", "--store", "a.db", "-x", cwd=folder).err.startswith("ares: No such option: -x")


# --- output that nobody takes ---------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
def test_a_reader_that_leaves_early_is_no_error(folder: Path) -> None:
    import sys

    done = subprocess.run(
        f"'{sys.executable}' -m ares events often --store a.db | head -n 1",
        shell=True,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
