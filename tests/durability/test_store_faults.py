"""Files that cannot be written, for the reasons that files have: what is said, what stands, and what goes on after."""

import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime, Workflow
from ares.errors import StoreError
from ares.stores.sqlite import SqliteStore
from tests.durability.flows import growing
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.one_of_everything import rich
from tests.durability.traces import Ran

New = Callable[..., Runtime]


def chain(*bodies: Callable[[], Any]) -> Workflow:
    wf = Workflow("chain")
    for number, body in enumerate(bodies):
        wf.step(body, id=f"s{number}", depends_on=[f"s{number - 1}"] if number else ())
    return wf


# --- a disk that is full ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_full_disk_ends_the_walk_and_it_goes_on_when_there_is_room(
    nursery: Nursery, tmp_path: Path, durability: str
) -> None:
    told = nursery.call("run_on_a_small_disk", folder=tmp_path, durability=durability)

    if "refused" in told:
        pytest.skip(told["refused"])
    assert told["execution_id"] == "e"
    assert str(tmp_path / "ares.db") in told["text"]
    assert "full" in told["text"]
    assert told["begun"][:2] == ["first", "fill"]
    assert durability == "async" or "last" not in told["begun"]
    assert told["status"] == ExecutionStatus.INTERRUPTED
    assert told["events"][0] == "workflow.started"
    assert told["resumed"] == ExecutionStatus.COMPLETED
    assert told["integrity"] == ["ok"]
    again = told["begun in the end"][len(told["begun"]) :]
    assert again[-2:] == ["large", "last"]
    assert durability == "async" or "first" not in again  # in async it may have been full before that was committed


def test_a_file_that_may_not_grow_ends_the_walk(nursery: Nursery, db: str, again: New) -> None:
    said = nursery.call("run_in_a_small_file", db=db)

    assert said["error"] == "StoreError"
    assert db in said["text"]
    assert said["execution_id"] == "e"
    result = again().resume("e", growing([]))
    assert result.status is ExecutionStatus.COMPLETED
    assert said["begun"] < 200


# --- a file that is locked, replaced, taken away -----------------------------------------------------------------


def test_a_lock_of_two_seconds_is_waited_for(db: str, ran: Ran, again: New) -> None:
    rt = again()
    rt.start()
    locked, may_go = threading.Event(), threading.Event()

    def lock() -> None:
        connection = sqlite3.connect(db, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        locked.set()
        may_go.wait(2.0)
        connection.execute("COMMIT")
        connection.close()

    locker = threading.Thread(target=lock)
    locker.start()
    assert locked.wait(DEADLINE)

    result = rt.run(chain(lambda: ran.append("s0"), lambda: ran.append("s1")))
    locker.join(DEADLINE)

    assert result.status is ExecutionStatus.COMPLETED
    assert result.warnings == ()
    assert ran == ["s0", "s1"]


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_lock_that_lasts_longer_than_the_patience_ends_the_walk(
    db: str, ran: Ran, again: New, durability: str
) -> None:
    store = SqliteStore(db)
    store._database.patience = 0.2
    rt = again(store, durability=durability)
    connection = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    gave_up = threading.Event()

    def lock() -> None:
        connection.execute("BEGIN IMMEDIATE")

    wf = chain(lock, lambda: ran.append("s1") or gave_up.wait(1.0), lambda: ran.append("s2"))
    if durability == "best_effort":
        result = rt.run(wf, execution_id="e")
        assert result.status is ExecutionStatus.COMPLETED
        said = " ".join(result.warnings)
    else:
        with pytest.raises(StoreError) as failed:
            rt.run(wf, execution_id="e")
        said = str(failed.value)
    connection.execute("ROLLBACK")
    connection.close()
    ran.since()
    result = rt.resume("e", wf.replace(s0=lambda: ran.append("s0")))

    assert db in said
    assert "locked by another connection" in said
    assert result.status is ExecutionStatus.COMPLETED
    assert ran == ["s0", "s1", "s2"]


@pytest.mark.parametrize("becomes", ["replaced", "taken away"])
def test_a_file_that_is_not_the_one_that_was_opened_ends_the_walk(
    db: str, tmp_path: Path, ran: Ran, again: New, becomes: str
) -> None:
    kept = tmp_path / "kept.db"

    def exchange() -> None:
        Path(db).rename(kept)
        if becomes == "replaced":
            with sqlite3.connect(db) as other:
                other.execute("CREATE TABLE t (x)")
            other.close()

    wf = chain(exchange, lambda: ran.append("s1"))
    rt = again()
    with pytest.raises(StoreError) as failed:
        rt.run(wf, execution_id="e")

    assert becomes in str(failed.value)
    assert ran == []
    assert failed.value.execution_id == "e"


# --- a file that cannot be written from the start ----------------------------------------------------------------


@pytest.mark.case("C039")
@pytest.mark.parametrize("what", ["the file", "the folder", "a folder in its place", "no folder"])
def test_what_cannot_be_written_is_refused_before_anything_runs(
    nursery: Nursery, tmp_path: Path, effects: str, what: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    db = home / "ares.db"
    with Runtime(db) as rt:
        rt.run(chain(lambda: 1), execution_id="old")
    said_by = {
        "the file": "read-only",
        "the folder": "read-only",
        "a folder in its place": "this is a folder",
        "no folder": "there is no folder",
    }
    if what == "the file":
        db.chmod(0o444)
    elif what == "the folder":
        home.chmod(0o555)
    elif what == "a folder in its place":
        db.unlink()
        db.mkdir()
    else:
        db = home / "missing" / "ares.db"
    before = sorted(home.iterdir())

    said = nursery.call("run_as_nobody", db=str(db), effects=effects)

    assert said["error"] == "StoreError"
    assert str(db) in said["text"]
    assert said_by[what] in said["text"]
    assert not Path(effects).exists()
    assert said["listed"] == (["old"] if what in ("the file", "the folder") else [])
    assert sorted(home.iterdir()) == before
    home.chmod(0o755)


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    for content in (b"no database at all, but long enough to be looked at" * 50, b"\x00" * 4096):
        path = tmp_path / "other.db"
        path.write_bytes(content)
        with pytest.raises(StoreError, match=re.escape(str(path))):
            Runtime(path).run(rich())
        assert path.read_bytes() == content
    with sqlite3.connect(tmp_path / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    with pytest.raises(StoreError, match="another program"):
        Runtime(tmp_path / "theirs.db")


def test_a_journal_with_a_hole_is_refused_and_nothing_runs(db: str, ran: Ran, again: New) -> None:
    wf = chain(lambda: ran.append("s0"), lambda: 1 / 0)
    again().run(wf, execution_id="e")
    again()
    with sqlite3.connect(db) as connection:
        connection.execute("DELETE FROM entries WHERE seq = 3")
    connection.close()
    ran.since()

    with pytest.raises(StoreError, match="hole"):
        again().resume("e", wf)
    assert ran == []
