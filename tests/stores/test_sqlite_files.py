"""The SQLite store and its file: what it makes and refuses, and what happens when disk or others are in the way."""

import contextlib
import gc
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares.errors import ExecutionBusyError, LeaseLostError, StoreError, UsageError
from ares.journal.owner import is_gone, this_process
from ares.journal.protocol import Append, Claim
from ares.stores.sqlite import SqliteStore, _forking, _rows, _schema
from tests.stores.children import as_nobody, finish, in_child, open_files, start
from tests.stores.store_contract import add, alive, gone, new, rows, seqs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path)
    made.open()
    yield made
    made.close()


def raise_(error: Exception | None) -> None:
    if error is not None:
        raise error


def begin(store: SqliteStore, execution_id: str = "e1") -> Claim:
    return store.create(new(execution_id), store.start_lease(this_process()), "RUNNING", [])


def filled(path: Path, executions: int = 1, entries: int = 1) -> None:
    """A closed file with something in it."""
    store = SqliteStore(path)
    store.open()
    lease = store.start_lease(this_process())
    for number in range(1, executions + 1):
        store.create(new(f"e{number}"), lease, "RUNNING", rows(1, entries))
    store.close()


def beside(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


def refused(call: Callable[[], object], *words: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return caught.value


@contextlib.contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else holds the write lock."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        if other.in_transaction:
            other.execute("ROLLBACK")
        other.close()


# --- what can be no store ---


def test_looking_creates_nothing(path: Path) -> None:
    SqliteStore(path).inspect()
    SqliteStore(path.parent / "no" / "a.db").inspect()
    filled(path)
    before = path.read_bytes()

    SqliteStore(path).inspect()

    assert beside(path) == ["a.db"]
    assert path.read_bytes() == before


@pytest.mark.case("C039")
def test_a_missing_folder_is_named(path: Path) -> None:
    store = SqliteStore(path.parent / "no" / "a.db")

    refused(store.open, str(store.name), "there is no folder")
    refused(store.executions, "there is no such file")


@pytest.mark.case("C039")
def test_a_folder_or_a_pipe_is_no_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, word in ((tmp_path, "a folder"), (tmp_path / "pipe", "no regular file"), (Path("a\0b"), "looked at")):
        store = SqliteStore(place)
        for call in (store.inspect, store.open, store.executions):
            refused(call, word)


def make_text(path: Path) -> None:
    path.write_text("no database, and long enough to be mistaken for one. " * 40)


def make_foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE people (name TEXT)")


def make_foreign_in_wal(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE people (name TEXT)")


def make_newer(path: Path) -> None:
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {len(_schema.MIGRATIONS) + 7}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_text, ("not an SQLite database",)),
        (make_foreign, ("another program",)),
        (make_foreign_in_wal, ("another program",)),
        (make_newer, ("newer ares", f"format {len(_schema.MIGRATIONS) + 7}")),
    ],
)
def test_what_is_not_ours_is_refused_and_left_as_it_was(
    path: Path, make: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    make(path)
    before = path.read_bytes()
    store = SqliteStore(path)

    for call in (store.inspect, store.open, store.executions, store.open):
        refused(call, str(path), *words)

    assert path.read_bytes() == before
    assert beside(path) == ["a.db"]


def test_an_empty_file_or_database_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with contextlib.closing(sqlite3.connect(tmp_path / "tables.db")) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("DROP TABLE t")
    for name in ("empty.db", "tables.db"):
        store = SqliteStore(tmp_path / name)
        store.inspect()
        refused(store.executions, "no ares store yet")
        store.open()
        begin(store)
        store.close()
        assert len(store.executions()) == 1


def test_an_unknown_level_is_refused(path: Path) -> None:
    with pytest.raises(UsageError):
        SqliteStore(path, synchronous="OFF")


@pytest.mark.parametrize("name", ["what? is #1 %20 & so.db", "länge \U0001f600.db", "-x", ":memory:"])
def test_any_file_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(name)
    store.open()
    monkeypatch.chdir("/")
    claim = begin(store)
    assert add(store, claim, 1) is None
    store.close()

    assert [found.name for found in tmp_path.iterdir()] == [name]
    assert seqs(store) == [1]
    assert store.name == name


# --- formats ---


def test_an_older_file_is_migrated_forward_once_and_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, entries=3)
    bad = (*_schema.MIGRATIONS, ("CREATE TABLE later (x)", "INSERT INTO nowhere VALUES (1)"))
    good = (*_schema.MIGRATIONS, ("CREATE TABLE later (x)", "INSERT INTO later VALUES (1)"))
    before = path.read_bytes()
    store = SqliteStore(path)

    monkeypatch.setattr(_schema, "MIGRATIONS", good)
    refused(store.executions, f"older format {len(good) - 1}")
    monkeypatch.setattr(_schema, "MIGRATIONS", bad)
    refused(store.open)
    assert path.read_bytes() == before

    monkeypatch.setattr(_schema, "MIGRATIONS", good)
    for _ in range(2):
        store.open()
        assert seqs(store) == [1, 2, 3]
        store.close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT * FROM later").fetchall() == [(1,)]
        assert other.execute("PRAGMA user_version").fetchone() == (len(good),)

    monkeypatch.undo()
    refused(store.open, "newer ares")


def test_a_file_of_the_first_format_keeps_its_requests_and_takes_named_ones(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as old:
        for statement in _schema.MIGRATIONS[0]:
            old.execute(statement)
        old.execute(f"PRAGMA application_id = {_schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
        old.execute("INSERT INTO executions VALUES (7, 'e1', 'wf', '1', NULL, '{}', 1, 'RUNNING', '', NULL, NULL, 0)")
        old.execute("INSERT INTO entries VALUES (7, 1, 1, 'fact', 'step', '{}')")
        for number, body in ((3, "first"), (5, "second")):
            old.execute("INSERT INTO requests VALUES (?, 7, 'cancel', ?, 1)", (number, body))
        old.commit()
    store = SqliteStore(path)

    store.open()
    lease = store.start_lease(this_process())
    store.claim("e1", lease, is_gone=lambda held: is_gone(held.owner))
    given = (("cancel", "third", ""), ("answer", "yes", "q"), ("answer", "no", "q"))
    left = [store.request("e1", kind, body, name) for kind, body, name in given]
    found = store.requests(lease)
    store.close()

    assert left == [True, True, False]
    assert [(r.number, r.kind, r.body, r.name) for r in found] == [
        (3, "cancel", "first", ""),
        (5, "cancel", "second", ""),
        (6, "cancel", "third", ""),
        (7, "answer", "yes", "q"),
    ]
    assert seqs(store) == [1]
    assert store.execution("e1").requests == 4


def test_what_has_not_ended_is_found_without_a_look_at_what_has(store: SqliteStore, path: Path) -> None:
    looked: list[str] = []

    def plan(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(looked.append)
        _rows.executions_before(connection, before=None, statuses=["PENDING", "RUNNING"], workflow_id=None, limit=9)
        connection.set_trace_callback(None)
        looked[:] = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {looked[0]}")]

    store._database.read(plan)

    assert looked[0] == "SCAN e USING INDEX unfinished_executions"
    assert not any("TEMP B-TREE" in step for step in looked)


def test_a_file_of_the_second_format_shows_its_leases_and_what_has_not_ended(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as old:
        for statement in (*_schema.MIGRATIONS[0], *_schema.MIGRATIONS[1]):
            old.execute(statement)
        old.execute(f"PRAGMA application_id = {_schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 2")
        old.execute("INSERT INTO leases VALUES (4, 17, 1, 'm', 'b', 'ns', 99, '5', 'elsewhere')")
        for key, status, ended_at in ((1, "COMPLETED", 5), (2, "RUNNING", None), (3, "WAITING", None)):
            old.execute(
                "INSERT INTO executions VALUES (?, ?, 'wf', '1', NULL, '{}', 1, ?, '', ?, 4, 1)",
                (key, f"e{key}", status, ended_at),
            )
        old.commit()
    store = SqliteStore(path)

    store.open()
    lease = store.start_lease(this_process())
    found = store.leases()
    unfinished = store.executions(statuses=["RUNNING", "WAITING"])
    store.close()

    assert [(held.number, held.counter, held.owner.beats_every) for held in found] == [(4, 17, 5.0), (lease, 0, 5.0)]
    assert [row.execution_id for row in unfinished] == ["e3", "e2"]
    assert {row.owner for row in unfinished} == {"pid 99 on host elsewhere"}


# --- files that can only be read ---


def copy_as(path: Path, mode: int, folder_mode: int) -> None:
    for found in path.parent.iterdir():
        found.chmod(mode)
    path.parent.chmod(folder_mode)


def crashed(path: Path) -> None:
    """A file whose last writer died: the write-ahead log is still there."""
    filled(path, executions=2)
    pid = os.fork()
    if pid == 0:
        store = SqliteStore(path)
        store.open()
        begin(store, "e3")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert beside(path) == ["a.db", "a.db-shm", "a.db-wal"]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A place that other users can reach."""
    folder = Path("/tmp") / f"ares-shared-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    yield folder / "a.db"
    shutil.rmtree(folder)


@pytest.mark.case("C039")
@pytest.mark.parametrize("folder", [0o777, 0o755])
def test_a_read_only_file_is_listed_without_a_trace_and_not_opened(shared: Path, folder: int) -> None:
    filled(shared, executions=3, entries=700)
    copy_as(shared, 0o444, folder)
    before = shared.read_bytes()

    def work() -> None:
        store = SqliteStore(shared)
        store.inspect()
        assert [row.execution_id for row in store.executions()] == ["e3", "e2", "e1"]
        assert store.execution("e1").last_seq == 700
        assert len(seqs(store)) == 700
        refused(store.open, str(shared), "the file is read-only")
        assert len(store.executions()) == 3

    as_nobody(work)

    assert shared.read_bytes() == before
    assert beside(shared) == ["a.db"]


@pytest.mark.case("C039")
def test_a_folder_that_cannot_be_written_is_named(shared: Path) -> None:
    filled(shared)
    copy_as(shared, 0o666, 0o755)

    def work() -> None:
        store = SqliteStore(shared)
        refused(store.open, str(shared), "its folder is read-only")
        assert len(store.executions()) == 1
        refused(SqliteStore(shared.parent / "new.db").open, "its folder is read-only")

    as_nobody(work)
    assert beside(shared) == ["a.db"]


@pytest.mark.case("C039")
def test_a_read_only_file_of_a_writer_that_died_is_listed_with_its_last_entries(shared: Path) -> None:
    crashed(shared)
    copy_as(shared, 0o444, 0o755)

    def work() -> None:
        store = SqliteStore(shared)
        assert [row.execution_id for row in store.executions()] == ["e3", "e2", "e1"]
        refused(store.open, "the file is read-only")

    as_nobody(work)
    assert beside(shared) == ["a.db", "a.db-shm", "a.db-wal"]


def test_an_unreadable_file_is_a_clear_error(shared: Path) -> None:
    filled(shared)
    copy_as(shared, 0o600, 0o755)

    def work() -> None:
        store = SqliteStore(shared)
        refused(store.executions, str(shared), "cannot be opened")
        refused(store.open, str(shared))

    as_nobody(work)


def test_a_file_in_use_is_read_by_others_as_it_grows(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    other = SqliteStore(path)

    for seq in range(1, 20):
        assert add(store, claim, seq) is None
        assert seqs(other)[-1] == seq

    assert len(other.executions()) == 1


# --- the disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no mount is permitted here: {mounted.stderr!r}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_an_error_and_what_was_committed_stays_readable(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "a.db")
    store.open()
    claim = begin(store)
    stored = 0
    error = None
    while error is None and stored < 5_000:
        try:
            (refusal,) = store.append([Append(claim, rows(stored + 1, body='"' + "x" * 2_000 + '"'))], sync=True)
        except StoreError as caught:
            error = caught
        else:
            assert refusal is None
            stored += 1

    assert error is not None
    assert "the disk is full" in str(error)
    assert error.store == store.name
    assert len(seqs(store)) == stored
    refused(lambda: add(store, claim, stored + 1, 200), "full")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert add(store, claim, stored + 1, 200) is None
    assert seqs(store) == list(range(1, stored + 201))
    store.close()


def test_one_that_does_not_fit_on_the_disk_does_not_fail_the_others(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "a.db")
    store.open()
    lease = store.start_lease(this_process())
    claims = [store.create(new(f"e{n}"), lease, "RUNNING", []) for n in range(5)]

    results = store.append(
        [Append(claim, rows(1, body="x" * (3_000_000 if n == 2 else 10))) for n, claim in enumerate(claims)], sync=True
    )

    assert [n for n, result in enumerate(results) if result is not None] == [2]
    assert "the disk is full" in str(results[2])
    assert isinstance(results[2], StoreError)
    assert results[2].execution_id == "e2"
    assert [len(seqs(store, f"e{n}")) for n in range(5)] == [1, 1, 0, 1, 1]
    store.close()


def test_no_room_for_a_new_store_is_an_error(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (1_048_576 - 8_192))

    refused(SqliteStore(small_disk / "a.db").open, "a.db")


def test_a_damaged_file_is_an_error_that_names_it(path: Path) -> None:
    filled(path, executions=30, entries=100)
    whole = bytearray(path.read_bytes())
    whole[4096 : len(whole) - 4096 : 7] = b"\xff" * len(range(4096, len(whole) - 4096, 7))
    path.write_bytes(whole)
    store = SqliteStore(path)

    refused(lambda: [list(store.entries(row.execution_id)) for row in store.executions()], str(path), "damaged")


def test_a_truncated_file_is_an_error_that_names_it(path: Path) -> None:
    filled(path, executions=30, entries=100)
    os.truncate(path, path.stat().st_size // 2)
    store = SqliteStore(path)

    refused(lambda: [list(store.entries(row.execution_id)) for row in store.executions()], str(path), "damaged")


def test_damage_in_one_execution_leaves_the_others_their_commits(store: SqliteStore, path: Path) -> None:
    lease = store.start_lease(this_process())
    claims = [store.create(new(f"e{n}"), lease, "RUNNING", rows(1, 200, body="x" * 300)) for n in range(3)]
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        # The last page of the middle execution's rows, as the tree has them.
        pages = other.execute(
            "SELECT pageno, path FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf' ORDER BY path"
        ).fetchall()
    whole = bytearray(path.read_bytes())
    middle = pages[2 * len(pages) // 3 - 1][0]
    whole[(middle - 1) * 4096 : middle * 4096] = b"\xee" * 4096
    path.write_bytes(whole)
    store.open()
    again = [store.claim(f"e{n}", store.start_lease(this_process()), is_gone=gone) for n in (0, 2)]
    assert [claim.last_seq for claim in again] == [200, 200]
    assert len(claims) == 3

    assert list(store.append([Append(claim, rows(201)) for claim in again], sync=True)) == [None, None]


@pytest.mark.parametrize("how", ["taken away", "replaced"])
def test_a_file_that_vanishes_while_it_is_open_is_an_error_and_not_silence(
    store: SqliteStore, path: Path, how: str
) -> None:
    claim = begin(store)
    assert add(store, claim, 1) is None
    other = path.with_name("other.db")
    shutil.copy(path, other)

    if how == "replaced":
        other.rename(path)
    else:
        path.unlink()

    for call in (lambda: add(store, claim, 2), lambda: store.beat(claim.lease), lambda: begin(store, "e2")):
        refused(call, str(path), how)
    store.close()


# --- locks of others ---


def test_somebody_elses_lock_is_waited_for(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    with locked(path) as other:
        timer = threading.Timer(0.8, lambda: other.execute("ROLLBACK"))
        timer.start()
        begun = time.monotonic()
        assert add(store, claim, 1) is None
        assert time.monotonic() - begun >= 0.6
        timer.join()

    assert seqs(store) == [1]


def test_a_lock_that_lasts_is_an_error_that_says_so(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    store._database.patience = 0.3
    with locked(path):
        begun = time.monotonic()
        refused(lambda: add(store, claim, 1), str(path), "locked", "0.3 s")
        assert 0.25 < time.monotonic() - begun < 2
        assert seqs(store) == []
        refused(store.compact, "locked")
    assert add(store, claim, 1) is None
    store.compact()


def test_closing_ends_the_wait_for_a_lock(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            add(store, claim, 1)
        except StoreError as error:
            errors.append(error)

    with locked(path):
        thread = threading.Thread(target=wait)
        thread.start()
        while store._database._lock.acquire(timeout=0.001):
            store._database._lock.release()
        begun = time.monotonic()
        store.close()
        thread.join()
        assert time.monotonic() - begun < 3

    assert "closed" in str(errors[0])


def test_a_lock_is_no_obstacle_to_reading(store: SqliteStore, path: Path) -> None:
    add(store, begin(store), 1)
    with locked(path):
        assert seqs(store) == [1]
        assert len(SqliteStore(path).executions()) == 1


# --- commits whose outcome is not known ---


class Flaky:
    """A connection whose next commit raises, after it was carried out or without: of a transaction, or of a statement
    that is one by itself."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
        self.failures: list[bool] = []

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        commits = statement.startswith("INSERT") and not self._real.in_transaction
        if (statement == "COMMIT" or commits) and self.failures:
            if self.failures.pop(0):
                self._real.execute(statement, *values)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"
            raise error
        return self._real.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.fixture
def flaky(store: SqliteStore) -> Flaky:
    connection = store._database._writer
    assert connection is not None
    made = Flaky(connection)
    store._database._writer = made  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("carried_out", [True, False])
def test_after_a_commit_that_raised_it_is_looked_up_what_is_stored(
    store: SqliteStore, flaky: Flaky, carried_out: bool
) -> None:
    lease = store.start_lease(this_process())
    for number in range(3):
        flaky.failures = [carried_out]
        claim = store.create(new(f"e{number}"), lease, "RUNNING", rows(1, 2))
        assert (claim.lease, claim.number, claim.last_seq) == (lease, 1, 2)
        flaky.failures = [carried_out]
        assert add(store, claim, 3, 2, status="WAITING") is None
        store.release(claim)
        flaky.failures = [carried_out]
        taken = store.claim(f"e{number}", lease, is_gone=alive)
        assert (taken.number, taken.last_seq) == (2, 4)
        with pytest.raises(ExecutionBusyError):
            store.claim(f"e{number}", lease, is_gone=alive)
        assert add(store, taken, 5) is None
        assert seqs(store, f"e{number}") == [1, 2, 3, 4, 5]
        assert store.execution(f"e{number}").status == "WAITING"


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_that_keeps_failing_is_an_error_and_can_be_repeated_later(
    store: SqliteStore, flaky: Flaky, carried_out: bool
) -> None:
    claim = begin(store)
    append = Append(claim, rows(1, 3))
    flaky.failures = [carried_out, False, False]

    refused(lambda: store.append([append], sync=True), "failed (SQLITE_IOERR)")
    assert list(store.append([append], sync=True)) == [None]

    assert seqs(store) == [1, 2, 3]


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_append_of_one_statement_that_raised_is_looked_up_and_made_good(
    store: SqliteStore, flaky: Flaky, carried_out: bool
) -> None:
    claim = begin(store)
    flaky.failures = [carried_out]

    assert add(store, claim, 1, 2) is None
    assert add(store, claim, 3) is None
    assert seqs(store) == [1, 2, 3]


def test_what_one_execution_has_to_say_is_one_statement(store: SqliteStore) -> None:
    """Beside a busy thread each costs a switch."""
    claim = begin(store)
    add(store, claim, 1)

    assert statements(store, lambda: store.append([Append(claim, rows(2, 2))], sync=True)) == ["INSERT INTO entries"]
    assert seqs(store) == [1, 2, 3]


def test_one_statement_leaves_no_hole_and_writes_nothing_twice(store: SqliteStore) -> None:
    claim = begin(store)
    append = Append(claim, rows(1, 2))

    assert list(store.append([append], sync=True)) == [None]
    assert list(store.append([append], sync=True)) == [None]  # it is there already, under this claim
    refused(lambda: raise_(add(store, claim, 4)), "without a hole")
    assert seqs(store) == [1, 2]


def test_one_statement_checks_the_claim_and_the_lease(store: SqliteStore) -> None:
    lease = store.start_lease(this_process())
    old = store.create(new(), lease, "RUNNING", [])
    store.release(old)
    claim = store.claim("e1", lease, is_gone=alive)

    assert isinstance(add(store, old, 1), LeaseLostError)
    assert add(store, claim, 1) is None
    store.end_lease(lease)
    assert isinstance(add(store, claim, 2), LeaseLostError)
    assert seqs(store) == [1]


# --- bad rows ---


def test_a_lone_surrogate_in_an_id_is_refused_by_name(store: SqliteStore) -> None:
    lease = store.start_lease(this_process())
    claim = store.create(new("there"), lease, "RUNNING", [])
    for call in (
        lambda: store.create(new("a\ud800"), lease, "RUNNING", []),
        lambda: store.create(new("a", workflow_id="\udfff"), lease, "RUNNING", []),
        lambda: store.create(new("a"), lease, "RUNNING", rows(1, path="\ud800")),
        lambda: raise_(store.append([Append(claim, rows(1, path="\ud800"))], sync=True)[0]),
        lambda: store.execution("a\ud800"),
        lambda: store.claim("a\ud800", lease, is_gone=alive),
        lambda: store.request("a\ud800", "cancel", "{}"),
    ):
        refused(call, "lone surrogate")
    assert [(row.execution_id, row.last_seq) for row in store.executions()] == [("there", 0)]


# --- how it writes ---


def statements(store: SqliteStore, work: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    connection = store._database._writer
    assert connection is not None
    connection.set_trace_callback(seen.append)
    work()
    connection.set_trace_callback(None)
    return [statement.split("(")[0].strip() for statement in seen]


def test_a_batch_is_one_insert_and_an_append_without_a_sync_is_followed_by_one_with(store: SqliteStore) -> None:
    lease = store.start_lease(this_process())
    claims = [store.create(new(f"e{n}"), lease, "RUNNING", []) for n in range(20)]

    def append(first: int, *, sync: bool) -> None:
        results = store.append([Append(claim, rows(first, 3)) for claim in claims], sync=sync)
        assert not any(results)

    insert = "INSERT INTO entries"
    plain = statements(store, lambda: append(1, sync=True))
    assert [s for s in plain if not s.startswith("SELECT")] == ["BEGIN IMMEDIATE", insert, "COMMIT"]
    lazy = statements(store, lambda: append(4, sync=False))
    assert lazy[0] == "PRAGMA synchronous = NORMAL"
    again = statements(store, lambda: append(7, sync=True))
    assert again[0] == "PRAGMA synchronous = FULL"
    assert [store.execution(f"e{n}").last_seq for n in range(20)] == [9] * 20


def test_an_interrupted_change_of_level_is_made_good(store: SqliteStore) -> None:
    claim = begin(store)
    store._database._level = None  # as if the pragma had been interrupted
    connection = store._database._writer
    assert connection is not None
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO pruned VALUES (77)")

    assert add(store, claim, 1) is None

    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("SELECT * FROM pruned").fetchall() == []
    assert not connection.in_transaction


def test_an_append_writes_one_page(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    add(store, claim, 1)
    wal = path.with_name("a.db-wal")
    before = wal.stat().st_size

    for seq in range(2, 12):
        add(store, claim, seq)

    assert wal.stat().st_size - before == 10 * (4096 + 24)


# --- others, seen and unseen ---


def test_the_change_of_another_connection_is_seen_once(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    assert not store.changed()
    other = SqliteStore(path)
    other.open()
    store.changed()

    other.request("e1", "cancel", "{}")

    assert store.changed()
    assert not store.changed()
    assert len(store.requests(claim.lease)) == 1
    other.close()


@pytest.mark.case("C036")
def test_nobody_who_reads_or_polls_holds_a_transaction(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    add(store, claim, 1, 3_000)
    other = SqliteStore(path)
    readers = [store.entries("e1"), other.entries("e1")]
    for reader in readers:
        next(reader)
    store.changed()
    store.executions()
    add(store, claim, 3_001)

    with contextlib.closing(sqlite3.connect(path)) as third:
        busy, log, moved = third.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert (busy, log, moved) == (0, 0, 0)
    assert [len(list(reader)) for reader in readers] == [3_000, 3_000]


@pytest.mark.case("C036")
def test_after_close_the_log_is_empty_or_gone_though_somebody_else_has_the_file_open(
    store: SqliteStore, path: Path
) -> None:
    add(store, begin(store), 1, 1_000)
    other = SqliteStore(path)
    other.open()
    assert len(other.executions()) == 1

    store.close()
    assert path.with_name("a.db-wal").stat().st_size == 0
    other.close()

    assert beside(path) == ["a.db"]


def test_a_lease_whose_process_is_gone_is_not_live_and_can_be_forgotten(store: SqliteStore, path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        child = SqliteStore(path)
        child.open()
        begin(child, "orphan")
        os._exit(0)
    os.waitpid(pid, 0)

    row = store.execution("orphan")
    assert not row.live
    assert f"pid {pid} on host" in row.owner
    lease = store.start_lease(this_process())
    (found,) = (held for held in store.leases() if held.number != lease)
    store.forget_lease(found)

    assert not store.execution("orphan").owner
    claim = store.claim("orphan", lease, is_gone=alive)
    assert (claim.number, claim.was_abandoned) == (2, True)


# --- upkeep ---


def test_pruning_beside_a_writer_never_meets_a_lock(store: SqliteStore, path: Path) -> None:
    lease = store.start_lease(this_process())
    for number in range(300):
        claim = store.create(new(f"old{number}"), lease, "RUNNING", rows(1, 60, body="x" * 200))
        store.append([Append(claim, rows(61, at=1), status="COMPLETED")], sync=False)
        store.release(claim)
    other = SqliteStore(path)
    other.open()
    claim = begin(other)
    done = threading.Event()
    longest = 0.0
    written = 0

    def write() -> None:
        nonlocal longest, written
        while not done.is_set():
            begun = time.monotonic()
            assert add(other, claim, written + 1) is None
            longest = max(longest, time.monotonic() - begun)
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert store.prune(2) == 300
    finally:
        done.set()
        thread.join()

    assert written == len(seqs(other))
    assert written > 3
    assert longest < 5
    other.close()
    grown = path.stat().st_size
    store.compact()
    assert path.stat().st_size < grown / 2


def test_a_prune_that_was_cut_short_is_finished_by_the_next(store: SqliteStore) -> None:
    claim = begin(store)
    store.append([Append(claim, rows(1, 5_000, at=1), status="COMPLETED")], sync=True)
    store.release(claim)
    assert store._database.write(lambda connection: store._doom(2, 0, connection)) == (1, claim.key)
    assert store.executions() == []

    assert store.prune(2) == 0

    connection = store._database._writer
    assert connection is not None
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM pruned").fetchone() == (0,)


@pytest.mark.case("C037")
def test_prune_removes_the_finished_and_compact_shrinks_the_file(store: SqliteStore, path: Path) -> None:
    lease = store.start_lease(this_process())
    for number in range(500):
        claim = store.create(new(f"done{number}"), lease, "RUNNING", rows(1, 10, body="x" * 500))
        store.append([Append(claim, rows(11, at=1), status="COMPLETED")], sync=False)
        store.release(claim)
    for number in range(5):
        store.release(store.create(new(f"waiting{number}"), lease, "WAITING", rows(1)))
    live = store.create(new("live"), lease, "RUNNING", rows(1))
    pid = os.fork()
    if pid == 0:
        child = SqliteStore(path)
        child.open()
        for number in range(3):
            begin(child, f"crashed{number}")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    before = path.stat().st_size + path.with_name("a.db-wal").stat().st_size

    assert store.prune(time.time_ns()) == 500
    store.compact()

    kept = ["live", *(f"waiting{n}" for n in range(5)), *(f"crashed{n}" for n in range(3))]
    assert sorted(row.execution_id for row in store.executions()) == sorted(kept)
    assert add(store, live, 2) is None
    for id_ in kept[1:]:
        claim = store.claim(id_, lease, is_gone=lambda held: is_gone(held.owner))
        assert add(store, claim, claim.last_seq + 1) is None
    assert path.stat().st_size < before / 4


# --- threads, processes, descriptors ---


@pytest.mark.case("C040")
def test_made_opened_used_and_closed_by_different_threads(path: Path) -> None:
    made: list[SqliteStore] = []

    def on_thread(work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        return thread

    on_thread(lambda: made.append(SqliteStore(path))).join()
    (store,) = made
    on_thread(store.open).join()
    users = [on_thread(lambda n=n: add(store, begin(store, f"e{n}"), 1)) for n in range(4)]  # type: ignore[misc]
    for user in users:
        user.join()
    assert sorted(row.last_seq for row in store.executions()) == [1, 1, 1, 1]
    on_thread(store.close).join()

    assert beside(path) == ["a.db"]


def open_here(path: Path) -> int:
    """How many descriptors of this process belong to a file or its log."""
    links = [str(found.readlink()) for found in Path("/proc/self/fd").iterdir() if found.is_symlink()]
    return sum(link.startswith(str(path)) for link in links)


def test_a_child_inherits_no_connection_and_the_parent_goes_on(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    add(store, claim, 1)
    assert len(store.executions()) == 1
    reader = store.entries("e1")
    assert open_here(path) > 0

    def work() -> None:
        assert open_here(path) == 0
        for call in (lambda: add(store, claim, 2), store.executions, store.changed, store.open):
            refused(call, "fork")
        store.close()
        own = SqliteStore(path)
        own.open()
        assert seqs(own) == [1]
        add(own, begin(own, "child"), 1)
        own.close()

    in_child(work)

    assert store.changed()
    assert not store.changed()
    assert add(store, claim, 2) is None
    assert [entry.seq for entry in reader] == [1, 2]
    assert seqs(store, "child") == [1]
    store.compact()
    store.close()
    assert beside(path) == ["a.db"]


def test_what_a_child_commits_survives_the_parents_closing(store: SqliteStore, path: Path) -> None:
    add(store, begin(store), 1)
    child_wrote, parent_closed = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            own = SqliteStore(path)
            own.open()
            claim = begin(own, "child")
            add(own, claim, 1)
            os.write(child_wrote[1], b".")
            os.read(parent_closed[0], 1)
            add(own, claim, 2)
        os._exit(0)  # as if it were killed: its last commit is in the log alone

    os.read(child_wrote[0], 1)
    store.close()
    os.write(parent_closed[1], b".")
    os.waitpid(pid, 0)
    for end in (*child_wrote, *parent_closed):
        os.close(end)

    assert seqs(store, "child") == [1, 2]


def test_a_fork_waits_for_the_transaction_of_another_thread(store: SqliteStore, path: Path) -> None:
    claim = begin(store)
    inside, leave = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO pruned VALUES (1)")
        inside.set()
        assert leave.wait(10)

    thread = threading.Thread(target=lambda: store._database.write(hold))
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.2, leave.set).start()

    def work() -> None:
        own = SqliteStore(path)
        own.open()
        add(own, begin(own, "child"), 1)

    in_child(work)
    thread.join()

    assert add(store, claim, 1) is None
    assert seqs(store, "child") == [1]


def test_a_fork_that_cannot_wait_keeps_the_child_from_the_file(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_forking, "_PATIENCE", 0.2)
    claim = begin(store)
    unopened = SqliteStore(path)
    locker = start(
        """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
""",
        path,
    )
    assert locker.stdout is not None
    assert locker.stdin is not None
    assert locker.stdout.readline() == "locked\n"
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(add(store, claim, 1)))
    thread.start()
    while store._database._lock.acquire(timeout=0.001):
        store._database._lock.release()

    def work() -> None:
        for own in (SqliteStore(path), unopened):
            for call in (own.open, own.executions, own.inspect):
                refused(call, str(path), "forked while")
        before = open_here(path)
        store._database.__dict__.clear()  # as if everything that refers to it were forgotten
        gc.collect()
        assert open_here(path) == before > 0

    in_child(work)
    locker.stdin.write("\n")
    finish(locker)
    thread.join()

    assert results == [None]
    assert seqs(store) == [1]


def test_a_store_that_is_forgotten_lets_go_of_its_file(path: Path) -> None:
    before = open_files()
    for _ in range(5):
        store = SqliteStore(path)
        store.open()
        store.executions()
        del store

    gc.collect()
    assert open_files() == before


def test_a_thousand_openings_leak_nothing(path: Path) -> None:
    store = SqliteStore(path)
    store.open()
    store.close()
    before = open_files(), threading.active_count()

    for _ in range(1_000):
        store = SqliteStore(path)
        store.open()
        store.executions()
        store.close()

    assert open_files() <= before[0]
    assert threading.active_count() <= before[1]  # one of an earlier test may have ended meanwhile


@pytest.mark.case("C028")
def test_a_hundred_failed_openings_leak_nothing(tmp_path: Path) -> None:
    make_foreign(tmp_path / "foreign.db")
    make_text(tmp_path / "text.db")
    places = [tmp_path, tmp_path / "no" / "a.db", tmp_path / "foreign.db", tmp_path / "text.db"]
    before = open_files(), threading.active_count()

    for _ in range(100):
        for place in places:
            refused(SqliteStore(place).open)

    assert open_files() <= before[0]
    assert threading.active_count() <= before[1]  # one of an earlier test may have ended meanwhile
