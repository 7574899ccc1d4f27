"""``ares watch``: the events of an execution that another process walks."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest

from ares import Approve, Event, ExecutionStatus, Runtime, Workflow
from ares.cli.watching import Watch
from ares.errors import UsageError
from ares.journal.protocol import NewExecution
from ares.stores.sqlite import SqliteStore
from tests.cli.command import finish, flow, forked, lines_of, start, wait_until

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@attrs.frozen
class Held:
    """The execution "x", in the middle of its only step, in this process."""

    runtime: Runtime
    #: Lets it end.
    leave: threading.Event


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    entered, leave = threading.Semaphore(0), threading.Event()
    holds = Workflow("holds")

    @holds.step
    def hold() -> None:
        entered.release()
        leave.wait(30)

    with Runtime(tmp_path / "a.db") as runtime:
        runtime.submit(holds, execution_id="x")
        assert entered.acquire(timeout=30)
        wait_until(lambda: len(list(runtime.stored_events("x"))) == 2, "the start to be committed")
        yield Held(runtime, leave)
        leave.set()


def watching(folder: Path) -> "subprocess.Popen[str]":
    """A watcher of "x", in a process of its own."""
    watcher: subprocess.Popen[str] = start("watch", "x", "--store", "a.db", cwd=folder)
    return watcher


def first_lines(watcher: "subprocess.Popen[str]", count: int) -> list[str]:
    assert watcher.stdout is not None
    return [watcher.stdout.readline() for _ in range(count)]


def types(lines: list[str]) -> list[str]:
    return [line.split()[3] for line in lines]


# --- live -----------------------------------------------------------------------------------------------------


def test_events_of_another_process_are_shown_as_they_are_committed_until_it_ends(tmp_path: Path, held: Held) -> None:
    watcher = watching(tmp_path)
    history = first_lines(watcher, 2)

    held.leave.set()
    ended = finish(watcher)

    assert types(history) == ["workflow.started", "step.started"]
    assert types(ended.out.splitlines()) == ["step.completed", "workflow.completed"]
    assert (ended.code, ended.err) == (0, "ares: completed\n")


@posix
def test_what_was_killed_is_interrupted_and_watching_it_ends(tmp_path: Path) -> None:
    inputs = ("-i", f"marks={tmp_path / 'marks'}", "-i", f"go={tmp_path / 'go'}")
    writer: subprocess.Popen[str] = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(tmp_path / "marks"), "the step to run")
    watcher = watching(tmp_path)
    first_lines(watcher, 2)

    writer.kill()
    finish(writer)
    ended = finish(watcher)

    assert ended.code == 130
    assert ended.err == "ares: interrupted: nobody walks it any more; ares resume, or ares recover, goes on with it\n"
    assert ended.out == ""


@posix
def test_a_ctrl_c_ends_the_watcher_and_disturbs_nobody(tmp_path: Path, held: Held) -> None:
    watcher = watching(tmp_path)
    first_lines(watcher, 2)

    watcher.send_signal(signal.SIGINT)
    ended = finish(watcher)
    held.leave.set()

    assert (ended.code, ended.err) == (130, "ares: interrupted\n")
    assert held.runtime.execution("x").result(30).status is ExecutionStatus.COMPLETED


#: Watches "x" as JSON, and is hit by a Ctrl-C between two looks.
RESTING = """
import os, signal, sys, threading
from ares.cli import main

def rests():
    frame = sys._current_frames()[threading.main_thread().ident]
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return {"watch", "events", "wait"} <= names

def hit():
    while not rests():
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=hit, daemon=True).start()
sys.exit(main(["watch", "x", "--store", "a.db", "--json"]))
"""


@posix
def test_as_json_what_was_seen_before_a_ctrl_c_is_there(tmp_path: Path, held: Held) -> None:
    assert not held.leave.is_set()
    ended = finish(start(cwd=tmp_path, program=("-c", RESTING)))

    assert ended.code == 130
    assert ended.document["status"] == "RUNNING"
    assert [event["seq"] for event in ended.document["events"]] == [1, 2]
    assert ended.document["error"]["exit_code"] == 130


# --- what does not move ---------------------------------------------------------------------------------------


def test_history_comes_first_and_may_begin_behind_a_number(tmp_path: Path) -> None:
    forked("run", flow("fails"), "--store", "a.db", "--id", "x", cwd=tmp_path)

    history = forked("events", "x", "--store", "a.db", cwd=tmp_path)
    ended = forked("watch", "x", "--store", "a.db", cwd=tmp_path)
    rest = forked("watch", "x", "--after", "3", "--store", "a.db", cwd=tmp_path)

    assert (ended.code, ended.out, ended.err) == (1, history.out, "ares: failed\n")
    assert rest.out.splitlines() == history.out.splitlines()[3:]


def test_it_ends_with_what_waits_and_names_the_questions(tmp_path: Path) -> None:
    forked("run", flow("asks"), "--store", "a.db", "--id", "x", "-i", f"marks={tmp_path / 'm'}", cwd=tmp_path)

    ended = forked("watch", "x", "--store", "a.db", cwd=tmp_path)
    document = forked("watch", "x", "--store", "a.db", "--json", cwd=tmp_path).document

    assert ended.code == 3
    assert ended.said == [
        "ares: publish asks: Publish it?",
        "ares: price asks: How much?\\nIn euros.",
        "ares: waiting",
    ]
    assert (document["execution_id"], document["status"]) == ("x", "WAITING")


def test_what_was_never_begun_by_a_process_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.open()
    store.create(NewExecution("x", "w", "", None, {}, 1), None, "PENDING", [])
    store.close()

    ended = forked("watch", "x", "--store", "a.db", "--json", cwd=tmp_path)

    assert ended.code == 130
    assert ended.document == {"execution_id": "x", "status": "INTERRUPTED", "events": []}


def test_of_what_is_answered_the_watcher_sees_the_end(tmp_path: Path) -> None:
    asks = Workflow("asks")
    asks.step(lambda: 1, id="a", interrupt="Go on?")
    with Runtime(tmp_path / "a.db") as runtime:
        execution = runtime.submit(asks, execution_id="x")
        assert execution.wait(30)
        runtime.answer("x", Approve(), step="a")
        wait_until(lambda: execution.status.is_final, "the answer to be carried out")

        assert forked("watch", "x", "--store", "a.db", cwd=tmp_path).code == 0


# --- pruned meanwhile -----------------------------------------------------------------------------------------


def watched(folder: Path) -> Iterator[Event]:
    """The events of "x", of which the first two were seen."""
    reader = Runtime(folder / "a.db")
    events = Watch(reader, "x", 0, reader.summary("x")).events()
    assert [next(events).seq, next(events).seq] == [1, 2]
    return events


def let_it_end_and_prune(held: Held) -> None:
    held.leave.set()
    assert held.runtime.execution("x").wait(30)
    wait_until(lambda: held.runtime.prune(timedelta(0)) == 1, "it to be deleted")


def test_what_is_deleted_while_it_is_watched_is_said(tmp_path: Path, held: Held) -> None:
    events = watched(tmp_path)
    let_it_end_and_prune(held)

    with pytest.raises(UsageError, match="'x' was deleted while it was watched: it had ended"):
        next(events)


def test_another_execution_of_the_same_name_is_not_taken_for_it(tmp_path: Path, held: Held) -> None:
    events = watched(tmp_path)
    let_it_end_and_prune(held)
    again = Workflow("again")
    again.step(lambda: 1, id="a")
    held.runtime.run(again, execution_id="x")

    with pytest.raises(UsageError, match="deleted while it was watched"):
        next(events)
