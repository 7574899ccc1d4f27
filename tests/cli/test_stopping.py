import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ares import ExecutionStatus, Runtime
from tests.cli.command import Ended, ares, ares_each, finish, flow, lines_of, start, wait_until

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
SLEEPERS = ["sleep_a", "sleep_b", "sleep_c", "sleep_d"]


def begin_sleeping(folder: Path, *more: str) -> "subprocess.Popen[str]":
    """Four steps of 30 s, all of them under way."""
    marks = folder / "marks"
    store = ("--store", "a.db") if "--store" not in more else ()
    process: subprocess.Popen[str] = start(
        "run", flow("parallel"), *store, "--id", "x", "-i", f"marks={marks}", "--workers", "4", *more, cwd=folder
    )
    wait_until(lambda: len(lines_of(marks)) == 5 or process.poll() is not None, "four steps to run")
    assert process.poll() is None, process.communicate()
    return process


def stop(process: "subprocess.Popen[str]", number: int) -> tuple[Ended, float]:
    began = time.monotonic()
    process.send_signal(number)
    ended = finish(process)
    return ended, time.monotonic() - began


# --- signals --------------------------------------------------------------------------------------------------


@posix
@pytest.mark.case("C017")
def test_one_ctrl_c_ends_a_run_of_busy_threads_and_it_can_be_resumed(tmp_path: Path) -> None:
    process = begin_sleeping(tmp_path)

    ended, seconds = stop(process, signal.SIGINT)

    assert ended.code == 130
    assert seconds < 3.0
    assert ended.out == ""
    go_on = f"ares resume --store a.db x {flow('parallel')}"
    assert len(ended.said) == 2
    assert ended.said[-1] == f"ares: interrupted; go on with: {go_on}"
    summary = Runtime(tmp_path / "a.db").summary("x")
    assert summary.status is ExecutionStatus.INTERRUPTED

    process = start(*go_on.split()[1:], cwd=tmp_path)
    marks = tmp_path / "marks"
    wait_until(lambda: len(lines_of(marks)) == 9, "the four steps to run again")
    assert sorted(lines_of(marks)[5:]) == SLEEPERS
    assert stop(process, signal.SIGINT)[0].code == 130
    steps = Runtime(tmp_path / "a.db").checkpoint("x").step_states
    assert [steps[name].attempts for name in ("before", *SLEEPERS)] == [1, 0, 0, 0, 0]


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_sigterm_and_sighup_end_a_run_like_ctrl_c(tmp_path: Path, number: int, code: int) -> None:
    process = begin_sleeping(tmp_path, "--json")

    ended, seconds = stop(process, number)

    assert ended.code == code
    assert seconds < 3.0
    assert ended.err == ""
    document = ended.document
    assert document["status"] == "INTERRUPTED"
    assert document["error"] == {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": code}
    assert document["resume"] == f"ares resume --store a.db x {flow('parallel')}"
    assert Runtime(tmp_path / "a.db").summary("x").status is ExecutionStatus.INTERRUPTED


@posix
@pytest.mark.case("C017")
def test_pressing_ctrl_c_again_and_again_ends_at_once_and_in_order(tmp_path: Path) -> None:
    process = begin_sleeping(tmp_path)

    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    ended = finish(process)

    assert ended.code == 130
    assert len(ended.said) == 2
    assert ended.said[-1].startswith("ares: interrupted")
    assert Runtime(tmp_path / "a.db").summary("x").status is ExecutionStatus.INTERRUPTED


@posix
@pytest.mark.case("C017")
def test_ctrl_c_in_the_body_that_runs_on_the_main_thread_is_not_its_failure(tmp_path: Path) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    inputs = ("-i", f"marks={marks}", "-i", f"go={go}")
    process = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(marks), "the step to run")

    ended, seconds = stop(process, signal.SIGINT)

    assert ended.code == 130
    assert seconds < 3.0
    assert ended.said[-1].startswith("ares: interrupted; go on with: ")
    go.touch()
    assert ares("resume", "x", flow("alone"), "--store", "a.db", cwd=tmp_path).out == "inline: done\n"


@posix
def test_a_thread_that_the_program_left_behind_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    process = start("run", flow("clinging"), "-i", f"marks={marks}", cwd=tmp_path)
    wait_until(lambda: lines_of(marks), "the step to run")

    ended, seconds = stop(process, signal.SIGINT)

    assert ended.code == 130
    assert seconds < 3.0
    assert ended.said[-1] == "ares: interrupted; nothing was kept"


@posix
def test_a_signal_while_the_target_is_loaded_is_an_interruption_too(tmp_path: Path) -> None:
    (tmp_path / "slow_flow.py").write_text(
        "import threading\nfrom pathlib import Path\nPath('loading').touch()\nthreading.Event().wait(60)\n"
    )
    for json_too, said in ((False, "ares: interrupted\n"), (True, "")):
        process = start("run", "slow_flow.py", *(["--json"] if json_too else []), cwd=tmp_path)
        wait_until((tmp_path / "loading").exists, "the target to be loaded")

        ended, seconds = stop(process, signal.SIGTERM)

        assert ended.code == 143
        assert seconds < 3.0
        assert ended.err == said
        assert bool(ended.out) is json_too
        (tmp_path / "loading").unlink()


# --- cancels --------------------------------------------------------------------------------------------------


@pytest.mark.case("C015")
def test_a_cancel_from_another_process_keeps_what_has_not_begun_from_beginning(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    process = start("run", flow("chain"), "--store", "a.db", "--id", "x", "-i", f"marks={marks}", cwd=tmp_path)
    wait_until(lambda: "link_2" in lines_of(marks), "the second step to run")

    cancelled = ares("cancel", "x", "--reason", "changed my mind", "--store", "a.db", cwd=tmp_path)
    ended = finish(process)
    ended_at = time.monotonic()

    assert cancelled.code == 0
    assert "cancel recorded" in cancelled.out
    assert ended.code == 4
    *begun, last = lines_of(marks)
    assert begun == ["link_1", "link_2"]
    assert ended_at - float(last.removeprefix("returned at ")) < 1.5
    assert Runtime(tmp_path / "a.db").summary("x").status is ExecutionStatus.CANCELLED

    again = {
        "resume": ["resume", "x", flow("chain"), "--store", "a.db"],
        "events": ["events", "x", "--store", "a.db"],
    }
    found = ares_each(again, cwd=tmp_path)
    assert found["resume"].code == 4
    assert len(lines_of(marks)) == 3, "a cancelled run goes on only if it is asked to"
    assert "reason=changed my mind" in found["events"].out

    reopened = ares("resume", "--reopen", "x", flow("chain"), "--store", "a.db", cwd=tmp_path)
    assert reopened.code == 0
    assert lines_of(marks)[3:] == ["link_3", "link_4", "link_5"]


@pytest.mark.case("C015")
def test_a_cancel_of_what_nobody_walks_is_carried_out_by_the_next_resume(tmp_path: Path) -> None:
    unless = tmp_path / "survive"
    run: Sequence[str] = ["run", flow("crashes"), "--store", "a.db", "--id", "x", "-i", f"unless={unless}"]
    assert ares(*run, cwd=tmp_path).code == -signal.SIGKILL

    cancelled = ares("cancel", "x", "--store", "a.db", "--json", cwd=tmp_path)
    resumed = ares("resume", "x", flow("crashes"), "--store", "a.db", "--json", cwd=tmp_path)

    assert cancelled.document == {
        "execution_id": "x",
        "status": "INTERRUPTED",
        "cancel_recorded": True,
        "owner": None,
    }
    assert resumed.code == 4
    assert resumed.document["status"] == "CANCELLED"
    assert json.loads(resumed.out)["outputs"] == {}
