import os
import re
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ares.cli import display
from ares.cli.display import running_steps, watching
from ares.cli.screen import Screen
from ares.cli.session import Session
from ares.records import Progress
from tests.cli.command import DEADLINE, ares, environment, flow, forked, lines_of, wait_until

# --- going on -------------------------------------------------------------------------------------------------


def test_resume_of_a_completed_run_prints_the_stored_result_and_runs_nothing(tmp_path: Path) -> None:
    first = forked("run", flow("completes"), "--store", "a.db", "--id", "x", cwd=tmp_path)

    again = forked("resume", "x", flow("completes"), "--store", "a.db", cwd=tmp_path)
    machine = forked("resume", "x", flow("completes"), "--store", "a.db", "--json", cwd=tmp_path)

    assert first.code == again.code == machine.code == 0
    assert "a step prints this" in first.out
    assert again.out == f"report: {Path('/reports/4.md')}\n"
    assert machine.document["outputs"]["report"] == str(Path("/reports/4.md"))


def test_a_failed_run_goes_on_where_it_failed(tmp_path: Path) -> None:
    words = (flow("fails"), "--store", "a.db")
    assert forked("run", *words, "--id", "x", "-i", "mended=mended", cwd=tmp_path).code == 1
    (tmp_path / "mended").touch()

    ended = forked("resume", "x", *words, "--json", cwd=tmp_path)

    assert ended.code == 0
    assert ended.document["outputs"] == {"good": 1, "bad": 2, "after": 2}
    steps = forked("show", "x", "--store", "a.db", "--json", cwd=tmp_path).document["steps"]
    assert {step["path"]: step["attempts"] for step in steps} == {"good": 1, "bad": 1, "after": 1}


def test_an_id_that_exists_may_be_gone_on_with(tmp_path: Path) -> None:
    words = ("run", flow("fails"), "--store", "a.db", "--id", "x", "--if-exists", "resume")

    assert forked(*words, "-i", "mended=mended", cwd=tmp_path).code == 1
    (tmp_path / "mended").touch()
    assert forked(*words, "-i", "mended=mended", cwd=tmp_path).code == 0
    other = forked(*words, "-i", "mended=other", cwd=tmp_path)
    assert other.code == 2
    assert other.err == "ares: execution 'x' exists with other inputs\n"


def test_steps_run_again_when_they_are_named(tmp_path: Path) -> None:
    words = (flow("completes"), "--store", "a.db")
    forked("run", *words, "--id", "x", cwd=tmp_path)

    by_name = forked("resume", "x", *words, "--rerun", "first", cwd=tmp_path)
    failures = forked("resume", "x", *words, "--rerun", "item_failures", "--json", cwd=tmp_path)
    unknown = forked("resume", "x", *words, "--rerun", "nothing", cwd=tmp_path)

    assert by_name.out.startswith("a step prints this\n")
    assert failures.code == 0
    assert failures.err == "", "only the failed element runs again"
    assert unknown.code == 2
    assert "nothing" in unknown.err


def test_a_changed_workflow_is_refused_unless_the_change_is_accepted(tmp_path: Path) -> None:
    source = "from ares import Workflow\nworkflow = Workflow('w')\n@workflow.step\ndef one():\n    return 1\n"
    (tmp_path / "changing.py").write_text(source + "@workflow.step\ndef fail(one):\n    raise ValueError('no')\n")
    forked("run", "changing.py", "--store", "a.db", "--id", "x", cwd=tmp_path)
    (tmp_path / "changing.py").write_text(source + "@workflow.step\ndef two(one):\n    return one + 1\n")

    refused = forked("resume", "x", "changing.py", "--store", "a.db", cwd=tmp_path)
    accepted = forked("resume", "x", "changing.py", "--store", "a.db", "--accept-changes", cwd=tmp_path)

    assert refused.code == 2
    assert "added 'two'; removed 'fail'; resume with the old one, or pass --accept-changes" in refused.err
    assert accepted.code == 0
    assert accepted.out == "two: 2\n"


# --- the store and the Runtime --------------------------------------------------------------------------------


def test_without_a_store_nothing_is_kept_and_that_is_said(tmp_path: Path) -> None:
    ended = forked("run", flow("fails"), cwd=tmp_path)

    assert ended.code == 1
    assert "(nothing is kept: there is no --store and no ARES_STORE)" in ended.said[0]
    assert "resume" not in ended.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_names_no_store(tmp_path: Path) -> None:
    assert "nothing is kept" in forked("run", flow("completes"), cwd=tmp_path, ARES_STORE="").err
    assert "which store?" in forked("list", cwd=tmp_path, ARES_STORE="").err


OWN_RUNTIME = """
import contextlib
from ares import Runtime, Workflow

workflow = Workflow("own")
workflow.step(lambda: None, id="nothing")
workflow.add(__import__("ares").StepSpec("criticise", agent_type="critic", depends_on=["nothing"]))

@contextlib.contextmanager
def around(ctx):
    print("around", ctx.step.path)
    yield

def runtime(store):
    print("made for", store)
    return Runtime(store, agents={"critic": lambda: "not bad"}, around_step=around)
"""


def test_a_target_brings_its_own_runtime(tmp_path: Path) -> None:
    (tmp_path / "own_flow.py").write_text(OWN_RUNTIME)

    run = forked("run", "own_flow.py", "--store", "a.db", "--id", "x", cwd=tmp_path)
    resumed = forked("resume", "x", "own_flow.py", "--store", "a.db", "--rerun", "criticise", cwd=tmp_path)
    refused = forked("run", "own_flow.py", "--store", "a.db", "--workers", "2", cwd=tmp_path)

    assert run.out == "made for a.db\naround nothing\naround criticise\ncriticise: not bad\n"
    assert resumed.out == "made for a.db\naround criticise\ncriticise: not bad\n"
    assert refused.code == 2
    assert "--workers: own_flow.py decides that itself" in refused.err


def test_durability_and_workers_reach_the_runtime(tmp_path: Path) -> None:
    words = ("--durability", "best_effort", "--workers", "1", "--json")

    ended = forked("run", flow("completes"), "--store", "a.db", *words, cwd=tmp_path)

    assert ended.code == 0
    refused = forked("run", flow("completes"), "--workers", "0", cwd=tmp_path)
    assert refused.code == 2
    assert "--workers" in refused.err


def test_inputs_come_from_texts_and_documents(tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text('{"n": 5}')

    for words, expected in ((("-i", "n=1"), "2.md"), (("--inputs-json", "@inputs.json"), "6.md")):
        ended = forked("run", flow("completes"), *words, "--json", cwd=tmp_path)
        assert Path(ended.document["outputs"]["report"]).name == expected


def test_aress_own_log_is_seen_only_when_it_is_asked_for(tmp_path: Path) -> None:
    warns = (
        "import threading\nfrom ares import Workflow\nworkflow = Workflow('w')\n@workflow.step(timeout=0.1)\n"
        "def hang():\n    threading.Event().wait(5)\n"
    )
    (tmp_path / "warning_flow.py").write_text(warns)

    silent = forked("run", "warning_flow.py", cwd=tmp_path)
    verbose = ares("-vv", "run", "warning_flow.py", "--json", cwd=tmp_path)

    assert all(line.startswith("ares: ") for line in silent.said)
    assert verbose.document["status"] == "FAILED"
    assert "its thread was abandoned" in verbose.err
    assert "ares: " not in verbose.err


# --- what is seen meanwhile -----------------------------------------------------------------------------------


def read_terminal(master: int, until: str, found: str = "") -> str:
    """What a terminal was sent, up to some text or its end."""
    deadline = time.monotonic() + DEADLINE
    while until not in found:
        assert time.monotonic() < deadline, f"gave up waiting for {until!r}: {found[-500:]!r}"
        try:
            found += os.read(master, 65_536).decode("utf-8", "replace")
        except OSError:  # Linux's way to say that the other side is closed
            break
    return found


@pytest.mark.skipif(os.name == "nt", reason="needs a terminal of POSIX")
def test_on_a_terminal_the_display_shows_what_is_done_and_what_runs(tmp_path: Path) -> None:
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    go, marks = tmp_path / "go", tmp_path / "marks"
    words = ["run", flow("shows"), "-i", f"go={go}", "-i", f"marks={marks}", "--id", "x", "--store", "a.db"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ares", *words],
        cwd=tmp_path,
        env=environment(TERM="xterm-256color"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        seen = read_terminal(master, "of 5 steps")
        seen = read_terminal(master, "running: ", seen)
        seen = read_terminal(master, "(1 of 4)", seen)
        go.touch()
        seen = read_terminal(master, "completed", seen)
        seen += read_terminal(master, "\0")
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        os.close(master)

    assert "running 'shows' as x (store a.db)" in seen
    assert "work[0]" in seen
    assert "[bold]step prints" in seen, "what steps print is text, and appears beside the display"
    assert ": ['a', 'b\\x1b[31m', 'c']" in seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h"), "the cursor is back"
    assert "\x1b]0;" not in seen
    assert len(lines_of(marks)) == 3


class Standing:
    """Stands for an execution: as far as a test says."""

    id = "x"

    def __init__(self, *stages: Progress | Exception | None) -> None:
        self.stages = list(stages)
        self.seen = threading.Event()

    def progress(self) -> Progress | None:
        stage = self.stages[0] if len(self.stages) == 1 else self.stages.pop(0)
        if len(self.stages) == 1:
            self.seen.set()
        if isinstance(stage, Exception):
            raise stage
        return stage


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(display, "_FIRST_LOOK", 0.001)
    monkeypatch.setattr(display, "_LINE_EVERY", 0.002)
    made = Session(as_json=False)
    made.err = Screen(StringIO())
    return made


def said(session: Session) -> list[str]:
    stream: Any = session.err.stream
    return [re.sub(r"after \d+ s", "after N s", line) for line in stream.getvalue().splitlines()]


def test_elsewhere_a_line_is_said_when_something_has_changed(session: Session) -> None:
    half = Progress(1, 3, ("b", "c\n"), {"b": (5.0, 10.0)})
    execution = Standing(None, Progress(0, 3, ("a",), {}), half, half, half, Progress(3, 3, (), {}))

    with watching(session, execution, "it began"):  # type: ignore[arg-type]  # stands for an execution
        wait_until(lambda: execution.seen.is_set() and "3 of 3" in said(session)[-1], "the last line")

    assert said(session) == [
        "ares: it began",
        "ares: 1 of 3 steps done after N s; running: b (5 of 10), c\\n",
        "ares: 3 of 3 steps done after N s; running: none",
    ]


def test_the_beginning_is_said_once_even_of_a_run_that_nobody_saw(session: Session) -> None:
    with watching(session, Standing(None), "it began"):  # type: ignore[arg-type]  # stands for an execution
        pass

    assert said(session) == ["ares: it began"]


def test_the_beginning_of_what_never_began_is_not_said(session: Session) -> None:
    with pytest.raises(ZeroDivisionError), watching(session, Standing(None), "it began"):  # type: ignore[arg-type]  # stands for an execution
        raise ZeroDivisionError

    assert said(session) == []


def test_a_display_that_fails_hurts_nothing(session: Session) -> None:
    execution = Standing(RuntimeError("no"))

    with watching(session, execution, "it began"):  # type: ignore[arg-type]  # stands for an execution
        wait_until(execution.seen.is_set, "the failure")

    assert said(session) == ["ares: it began"]


def test_only_the_first_of_many_running_steps_are_named() -> None:
    many = Progress(0, 100, tuple(f"m[{i}]" for i in range(50)), {"m[0]": (3.0, None)})

    assert running_steps(many) == "m[0] (3), m[1], m[2] and 47 more"
    assert running_steps(Progress(0, 1, (), {})) == "none"


def test_python_m_ares_and_the_script_are_one_program(tmp_path: Path) -> None:
    ended = ares("--version", cwd=tmp_path)

    assert ended.code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", ended.out)
