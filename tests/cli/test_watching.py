"""``ares watch``: the events of an execution that another process walks."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ares import Approve, Event, Runtime, Workflow
from ares.cli.watching import Watch
from ares.errors import UsageError
from ares.journal.protocol import NewExecution
from ares.stores.sqlite import SqliteStore
from tests.cli.command import ares, finish, flow, forked, lines_of, start, wait_until

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def begin(folder: Path) -> "subprocess.Popen[str]":
    """An execution "x" in the middle of its only step, which waits for the file "go"."""
    marks, go = folder / "marks", folder / "go"
    inputs = ("-i", f"marks={marks}", "-i", f"go={go}")
    writer: subprocess.Popen[str] = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=folder)
    wait_until(lambda: lines_of(marks), "the step to run")
    return writer


def watching(folder: Path, *more: str) -> "subprocess.Popen[str]":
    """A watcher of "x"."""
    watcher: subprocess.Popen[str] = start("watch", "x", "--store", "a.db", *more, cwd=folder)
    return watcher


def first_lines(watcher: "subprocess.Popen[str]", count: int) -> list[str]:
    assert watcher.stdout is not None
    return [watcher.stdout.readline() for _ in range(count)]


def types(lines: list[str]) -> list[str]:
    return [line.split()[3] for line in lines]


# --- live -----------------------------------------------------------------------------------------------------


def test_events_of_another_process_are_shown_as_they_are_committed_until_it_ends(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    watcher = watching(tmp_path)
    history = first_lines(watcher, 2)

    (tmp_path / "go").touch()
    ended = finish(watcher)

    assert types(history) == ["workflow.started", "step.started"]
    assert types(ended.out.splitlines()) == ["step.completed", "workflow.completed"]
    assert (ended.code, ended.err) == (0, "ares: completed\n")
    assert finish(writer).code == 0


@posix
def test_what_was_killed_is_interrupted_and_watching_it_ends(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    watcher = watching(tmp_path)
    first_lines(watcher, 2)

    writer.kill()
    finish(writer)
    ended = finish(watcher)

    assert ended.code == 130
    assert ended.err == ("ares: interrupted: nobody walks it any more; ares resume, or ares recover, goes on with it\n")
    assert ended.out == ""


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_watcher_and_disturbs_nobody(tmp_path: Path, number: int, code: int) -> None:
    writer = begin(tmp_path)
    watcher = watching(tmp_path)
    first_lines(watcher, 2)

    watcher.send_signal(number)
    ended = finish(watcher)
    (tmp_path / "go").touch()

    assert (ended.code, ended.err) == (code, "ares: interrupted\n")
    assert finish(writer).code == 0


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
def test_as_json_what_was_seen_before_a_ctrl_c_is_there(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    ended = finish(start(cwd=tmp_path, program=("-c", RESTING)))
    (tmp_path / "go").touch()

    assert ended.code == 130
    assert ended.document["status"] == "RUNNING"
    assert [event["seq"] for event in ended.document["events"]] == [1, 2]
    assert ended.document["error"]["exit_code"] == 130
    assert finish(writer).code == 0


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

        assert ares("watch", "x", "--store", "a.db", cwd=tmp_path).code == 0


# --- pruned meanwhile -----------------------------------------------------------------------------------------


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Runtime, threading.Event, Iterator[Event]]]:
    """A Runtime with the execution "x" in its step, what lets it end, and somebody who has seen that step start."""
    entered, leave = threading.Semaphore(0), threading.Event()
    holds = Workflow("holds")

    @holds.step
    def hold() -> None:
        entered.release()
        leave.wait(30)

    with Runtime(tmp_path / "a.db") as runtime:
        runtime.submit(holds, execution_id="x")
        assert entered.acquire(timeout=30)
        reader = Runtime(tmp_path / "a.db")
        wait_until(lambda: len(list(reader.stored_events("x"))) == 2, "the start to be committed")
        events = Watch(reader, "x", 0, reader.summary("x")).events()
        assert [next(events).seq, next(events).seq] == [1, 2]
        yield runtime, leave, events


def let_it_end_and_prune(runtime: Runtime, leave: threading.Event) -> None:
    leave.set()
    assert runtime.execution("x").wait(30)
    wait_until(lambda: runtime.prune(timedelta(0)) == 1, "it to be deleted")


def test_what_is_deleted_while_it_is_watched_is_said(
    held: tuple[Runtime, threading.Event, Iterator[Event]],
) -> None:
    runtime, leave, events = held
    let_it_end_and_prune(runtime, leave)

    with pytest.raises(UsageError, match="'x' was deleted while it was watched: it had ended"):
        next(events)


def test_another_execution_of_the_same_name_is_not_taken_for_it(
    held: tuple[Runtime, threading.Event, Iterator[Event]],
) -> None:
    runtime, leave, events = held
    let_it_end_and_prune(runtime, leave)
    again = Workflow("again")
    again.step(lambda: 1, id="a")
    runtime.run(again, execution_id="x")

    with pytest.raises(UsageError, match="deleted while it was watched"):
        next(events)
