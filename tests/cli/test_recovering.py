"""``ares recover``: what processes left that are gone."""

import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from ares import ExecutionStatus, Runtime
from tests.cli.command import Ended, finish, flow, forked, lines_of, start, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes are killed by a signal")
FATES = flow("fates")


def leave(folder: Path, *fates: str, target: str = FATES) -> None:
    """One execution for each fate, named after it, whose process was killed in its first step."""
    for fate in fates:
        inputs = ("-i", f"marks={folder / 'marks'}", "-i", f"fate={fate.partition('-')[0]}")
        ended = forked("run", target, "--store", "a.db", "--id", fate, *inputs, cwd=folder)
        assert ended.code == -signal.SIGKILL, ended


def recover(folder: Path, *more: str, target: str = FATES) -> Ended:
    return forked("recover", target, "--store", "a.db", *more, cwd=folder)


def begin_recovering(folder: Path, *more: str) -> "subprocess.Popen[str]":
    process: subprocess.Popen[str] = start("recover", FATES, "--store", "a.db", *more, cwd=folder)
    return process


def status(folder: Path, execution_id: str) -> ExecutionStatus:
    return Runtime(folder / "a.db").summary(execution_id).status


# --- what it takes --------------------------------------------------------------------------------------------


@pytest.mark.case("C033")
def test_what_killed_processes_left_is_gone_on_with(tmp_path: Path) -> None:
    leave(tmp_path, "completes-1", "completes-2")

    ended = recover(tmp_path)

    assert ended.code == 0, ended
    assert sorted(line.split(" in ")[0] for line in ended.out.splitlines()) == [
        "completes-1: completed",
        "completes-2: completed",
    ]
    assert ended.said[-1] == "ares: 2 executions recovered: 2 completed"
    assert "ares: recovering 2 executions (store a.db)" in ended.said
    assert sorted(lines_of(tmp_path / "marks")) == sorted(["completes-1", "completes-2"] * 2)


def test_the_worst_outcome_decides_the_exit_code(tmp_path: Path) -> None:
    leave(tmp_path, "completes", "waits")
    waiting = recover(tmp_path)
    leave(tmp_path, "fails", "waits-2")
    failed = recover(tmp_path)

    assert waiting.code == 3
    assert "ares: meets asks: Go on?" in waiting.said
    assert "ares: answer with: ares answer --approve --store a.db waits STEP" in waiting.said
    assert failed.code == 1
    assert "fails: failed in " in failed.out
    assert "ValueError: no good" in failed.out
    assert f"ares: go on with: ares resume --store a.db fails {FATES}" in failed.said
    assert "ares: left waits: waits for an answer" in failed.said


def test_where_nobody_left_anything_nothing_happens(tmp_path: Path) -> None:
    forked("run", flow("completes"), "--store", "a.db", cwd=tmp_path)

    ended = recover(tmp_path)

    assert (ended.code, ended.out, ended.err) == (0, "", "ares: 0 executions recovered\n")


def test_as_json_each_outcome_is_that_of_run(tmp_path: Path) -> None:
    leave(tmp_path, "fails", "waits")

    document = recover(tmp_path, "--json").document

    found = {each["execution_id"]: each for each in document["executions"]}
    assert found["fails"]["failures"] == [{"path": "meets", "type": "ValueError", "message": "no good"}]
    assert found["fails"]["resume"] == f"ares resume --store a.db fails {FATES}"
    assert [each["path"] for each in found["waits"]["questions"]] == ["meets"]
    assert document["left"] == []


def test_what_was_answered_meanwhile_is_carried_out(tmp_path: Path) -> None:
    leave(tmp_path, "waits", "lasts")
    process = begin_recovering(tmp_path, "--json")
    wait_until(lambda: status(tmp_path, "waits") is ExecutionStatus.WAITING, "the question")

    forked("answer", "waits", "meets", "--approve", "--store", "a.db", cwd=tmp_path)
    wait_until(lambda: status(tmp_path, "waits") is ExecutionStatus.COMPLETED, "the answer to be carried out")
    (tmp_path / "go").touch()
    ended = finish(process)

    assert ended.code == 0
    assert {each["execution_id"]: each["status"] for each in ended.document["executions"]} == {
        "waits": "COMPLETED",
        "lasts": "COMPLETED",
    }


@pytest.mark.case("C032")
def test_of_two_that_recover_at_once_each_execution_is_taken_by_one(tmp_path: Path) -> None:
    ids = [f"completes-{number}" for number in range(6)]
    leave(tmp_path, *ids)

    processes = [begin_recovering(tmp_path, "--json") for _ in range(2)]
    ended = [finish(process) for process in processes]

    assert [each.code for each in ended] == [0, 0]
    taken = [each["execution_id"] for one in ended for each in one.document["executions"]]
    assert sorted(taken) == ids
    assert sorted(lines_of(tmp_path / "marks")) == sorted(ids * 2)


# --- what it leaves -------------------------------------------------------------------------------------------


def test_what_is_left_is_named_with_the_reason(tmp_path: Path) -> None:
    inputs = ("-i", f"marks={tmp_path / 'live'}", "-i", f"go={tmp_path / 'go'}")
    live: subprocess.Popen[str] = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(tmp_path / "live"), "the live run to run")
    unless = f"unless={tmp_path / 'never'}"
    forked("run", flow("crashes"), "--store", "a.db", "--id", "crashed", "-i", unless, cwd=tmp_path)

    ended = recover(tmp_path, "--json")
    (tmp_path / "go").touch()

    assert ended.code == 0, "that is nobody's fault"
    reasons = {each["execution_id"]: each["reason"] for each in ended.document["left"]}
    assert reasons["x"].startswith(f"owned by pid {live.pid} on host ")
    assert reasons["crashed"] == "its workflow 'crashes' is not in workflows="
    assert finish(live).code == 0
    assert status(tmp_path, "crashed") is ExecutionStatus.INTERRUPTED


@pytest.mark.case("C033")
def test_an_owner_of_another_machine_that_gives_no_sign_is_waited_for_and_taken_over(tmp_path: Path) -> None:
    leave(tmp_path, "completes")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE leases SET machine = 'another', boot = 'another', host = 'far', beaten_at = 0")
        connection.execute("UPDATE leases SET beats_every = 0.1")
    program = tmp_path / "program.py"
    program.write_text(
        "from ares import Runtime\nfrom tests.cli.flows import fates as workflow\n\n\n"
        "def runtime(store):\n    return Runtime(store, lease_timeout=1.0)\n"
    )

    ended = forked("recover", program, "--store", "a.db", cwd=tmp_path)

    assert ended.code == 0, ended
    assert ended.out.startswith("completes: completed in ")
    assert ended.said[0] == (
        "ares: 1 execution left: no sign of the owner; waiting up to 20.0 s to see whether it is gone"
    )


PROGRAM = """
import os, signal
from pathlib import Path
from ares import Runtime, Workflow

workflow, other = Workflow("w"), Workflow("other")


def body():
    if not Path("alive").exists():
        os.kill(os.getpid(), signal.SIGKILL)


workflow.step(body, id="STEP")
other.step(body, id="a")


def runtime(store):
    with open("made", "a") as made:
        made.write(store + "\\n")
    return Runtime(store, workflows=[other])
"""


def test_what_cannot_be_taken_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("STEP", "a"))
    forked("run", program, "--store", "a.db", "--id", "x", cwd=tmp_path)
    program.write_text(PROGRAM.replace("STEP", "b"))

    ended = forked("recover", program, "--store", "a.db", cwd=tmp_path)

    assert ended.code == 1
    assert ended.said[-2].startswith("ares: left x: WorkflowChangedError: ")
    assert ended.said[-1] == "ares: 0 executions recovered"


def test_a_target_that_makes_its_own_runtime_decides_what_else_is_taken(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    forked("run", program, "--store", "a.db", "--id", "x", cwd=tmp_path)
    forked("run", f"{program}:other", "--store", "a.db", "--id", "y", cwd=tmp_path)
    (tmp_path / "alive").touch()

    ended = forked("recover", program, "--store", "a.db", "--json", cwd=tmp_path)

    assert ended.code == 0
    assert {each["execution_id"] for each in ended.document["executions"]} == {"x", "y"}
    assert lines_of(tmp_path / "made") == ["a.db"] * 3


RECOVERS_ITSELF = """
from ares import Runtime
from tests.cli.flows import fates as workflow


def runtime(store):
    made = Runtime(store, workflows=[workflow])
    made.recover()
    return made
"""


def test_what_a_targets_own_runtime_has_taken_up_itself_is_waited_for(tmp_path: Path) -> None:
    leave(tmp_path, "lasts")
    program = tmp_path / "program.py"
    program.write_text(RECOVERS_ITSELF)
    process: subprocess.Popen[str] = start("recover", program, "--store", "a.db", cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline() == "ares: recovering 1 execution (store a.db)\n"

    (tmp_path / "go").touch()
    ended = finish(process)

    assert ended.code == 0
    assert ended.out.startswith("lasts: completed in ")


# --- what stops it --------------------------------------------------------------------------------------------


@pytest.mark.case("C017")
def test_a_ctrl_c_ends_it_in_good_order_and_it_can_be_recovered_again(tmp_path: Path) -> None:
    leave(tmp_path, "completes", "lasts")
    process = begin_recovering(tmp_path)
    wait_until(lambda: status(tmp_path, "completes").is_final, "the short one to end")
    wait_until(lambda: lines_of(tmp_path / "marks").count("lasts") == 2, "the long one to run")

    process.send_signal(signal.SIGINT)
    ended = finish(process)

    assert ended.code == 130
    assert ended.said[-1] == f"ares: interrupted; go on with: ares recover --store a.db {FATES}"
    assert status(tmp_path, "lasts") is ExecutionStatus.INTERRUPTED
    (tmp_path / "go").touch()
    assert recover(tmp_path).code == 0


def test_a_store_that_is_taken_away_fails_what_was_under_way(tmp_path: Path) -> None:
    leave(tmp_path, "lasts")
    process = begin_recovering(tmp_path)
    wait_until(lambda: lines_of(tmp_path / "marks").count("lasts") == 2, "it to run")

    (tmp_path / "a.db").rename(tmp_path / "b.db")
    (tmp_path / "go").touch()
    ended = finish(process)

    assert ended.code == 1
    assert ended.out.startswith("lasts: failed: StoreError: a.db: the file was taken away while it was open")
    assert ended.said[-1] == "ares: 1 execution recovered: 1 failed"
