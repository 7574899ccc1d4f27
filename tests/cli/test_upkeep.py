import signal
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ares import ExecutionStatus, Runtime, Workflow
from tests.cli.command import ares, finish, flow, forked, lines_of, start, wait_until

ONE_STEP = Workflow("one_step")


@ONE_STEP.step
def step() -> str:
    return "x" * 2_000


def finished(store: Path, count: int) -> None:
    with Runtime(store) as runtime:
        for number in range(count):
            runtime.run(ONE_STEP, execution_id=f"done-{number}")


def ids(store: Path) -> set[str]:
    return {each.execution_id for each in Runtime(store).executions()}


# --- prune ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C037")
def test_prune_removes_what_has_ended_and_nothing_else(tmp_path: Path) -> None:
    store, marks, go = tmp_path / "a.db", tmp_path / "marks", tmp_path / "go"
    finished(store, 500)
    unless = f"unless={tmp_path / 'survive'}"
    for number in range(3):
        crashed = forked(
            "run", flow("crashes"), "--store", store, "--id", f"crash-{number}", "-i", unless, cwd=tmp_path
        )
        assert crashed.code == -signal.SIGKILL
    inputs = ("-i", f"marks={marks}", "-i", f"go={go}")
    live: subprocess.Popen[str] = start("run", flow("alone"), "--store", store, "--id", "live", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(marks), "the live run to run")
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = store.stat().st_size

    pruned = forked("prune", "--older-than", "0s", "--compact", "--store", store, cwd=tmp_path)

    assert pruned.code == 0
    assert pruned.out == "500 executions deleted; the file was compacted\n"
    assert pruned.err == ""
    assert ids(store) == {"crash-0", "crash-1", "crash-2", "live"}
    go.touch()
    ended = finish(live)
    assert (ended.code, ended.out) == (0, "inline: done\n")
    assert [line.split(" in ")[0] for line in ended.said] == [
        f"ares: running 'alone' as live (store {store})",
        "ares: completed",
    ]
    assert store.stat().st_size < before / 4
    (tmp_path / "survive").touch()
    resumed = forked("resume", "crash-0", flow("crashes"), "--store", store, cwd=tmp_path)
    assert resumed.out == "crash: survived\n"


@pytest.mark.case("C037")
def test_prune_keeps_what_ended_since(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    finished(store, 3)

    pruned = forked("prune", "--older-than", "1d", "--store", store, "--json", cwd=tmp_path)

    assert pruned.document == {"pruned": 0, "compacted": False}
    assert len(ids(store)) == 3


# --- time -----------------------------------------------------------------------------------------------------

ZONES = ["UTC", "America/New_York", "Asia/Kathmandu"]
#: Noon UTC of the days on which New York changes its clocks.
CHANGE_DAYS = [datetime(2026, 3, 8, 12, tzinfo=UTC), datetime(2026, 11, 1, 12, tzinfo=UTC)]


def nanoseconds(when: datetime) -> int:
    return int((when - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1_000


def set_times(store: Path, execution_id: str, began: datetime, ended: datetime) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE executions SET created_at = ?, ended_at = ? WHERE id = ?",
            (nanoseconds(began), nanoseconds(ended), execution_id),
        )


@pytest.mark.parametrize("now", CHANGE_DAYS, ids=lambda day: f"{day:%B}")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.case("C046")
def test_a_day_is_24_hours_on_every_day_in_every_zone(tmp_path: Path, zone: str, now: datetime) -> None:
    store = tmp_path / "a.db"
    finished(store, 2)
    younger = now - timedelta(hours=23, minutes=59)
    older = now - timedelta(hours=24, minutes=1)
    # The first of the two lasts from before the change of clocks to after it.
    set_times(store, "done-0", younger - timedelta(hours=1), now - timedelta(hours=1))
    listed = forked("list", "--store", store, "--json", cwd=tmp_path, TZ=zone).document["executions"]
    set_times(store, "done-0", younger - timedelta(hours=1), younger)
    set_times(store, "done-1", older - timedelta(hours=1), older)

    shown = forked("show", "done-0", "--store", store, cwd=tmp_path, TZ=zone, now=nanoseconds(now))
    pruned = forked("prune", "--older-than", "1d", "--store", store, cwd=tmp_path, TZ=zone, now=nanoseconds(now))

    assert listed[1]["duration"] == timedelta(hours=23, minutes=59).total_seconds()
    assert "duration   1 h 00 min 00 s\n" in shown.out
    assert f"ended      {younger:%Y-%m-%d %H:%M:%S}Z\n" in shown.out
    assert pruned.out == "1 execution deleted\n"
    assert ids(store) == {"done-0"}


# --- watching while another process writes ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case("C036")
def test_polling_keeps_no_old_snapshot_of_a_file_that_grows(tmp_path: Path) -> None:
    store, wal = tmp_path / "a.db", tmp_path / "a.db-wal"
    inputs = ("-i", "count=5000", "-i", "size=10240")
    writer: subprocess.Popen[str] = start("run", flow("bulk"), "--store", store, "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: store.exists() and store.stat().st_size > 0, "the store")
    wait_until(lambda: forked("show", "x", "--store", store, cwd=tmp_path).code == 0, "the execution")
    watcher: subprocess.Popen[str] = start("watch", "x", "--store", store, "--json", cwd=tmp_path)
    largest, polls = 0, 0

    while writer.poll() is None:
        shown = forked("show", "x", "--store", store, "--json", cwd=tmp_path)
        polls += shown.code == 0
        largest = max(largest, wal.stat().st_size if wal.exists() else 0)

    assert finish(writer).code == 0
    watched = finish(watcher)
    assert watched.code == 0
    assert [event["seq"] for event in watched.document["events"]] == list(range(1, 5_005))
    assert polls > 2
    assert largest < 16 * 2**20
    assert not wal.exists() or wal.stat().st_size == 0
    assert Runtime(store).summary("x").status is ExecutionStatus.COMPLETED


def test_what_is_shown_of_a_live_run_names_its_owner(tmp_path: Path) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    inputs = ("-i", f"marks={marks}", "-i", f"go={go}")
    writer: subprocess.Popen[str] = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(marks), "the step to run")

    shown = forked("show", "x", "--store", "a.db", cwd=tmp_path)
    busy = forked("resume", "x", flow("alone"), "--store", "a.db", cwd=tmp_path)
    running = forked("list", "--status", "running", "--store", "a.db", "--json", cwd=tmp_path)
    cancelled = ares("cancel", "x", "--store", "a.db", cwd=tmp_path)
    go.touch()

    assert finish(writer).code in (0, 4)
    assert "status     RUNNING\n" in shown.out
    assert f"owner      pid {writer.pid} on " in shown.out
    assert " so far\n" in shown.out
    assert busy.code == 2
    assert f"pid {writer.pid}" in busy.err
    assert [each["execution_id"] for each in running.document["executions"]] == ["x"]
    assert f"pid {writer.pid}" in cancelled.out
