"""The journal over a real file, where processes come into it: signals, forks, exits, full disks, locks, leaks."""

import contextlib
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.errors import ExecutionBusyError, StoreError
from ares.journal.protocol import ExecutionLog
from ares.journal.writer import StoreJournal
from ares.stores.sqlite import SqliteStore
from tests.journal.spy_store import draft, join_all, new, run_all
from tests.stores.children import finish, open_files, run, start

PRELUDE = """
import os, signal, sys, threading, time
from ares.errors import *
from ares.journal.protocol import NewExecution
from ares.journal.writer import StoreJournal
from ares.postbox import Latch
from ares.stores.sqlite import SqliteStore

path = sys.argv[1]

def begin(journal, id):
    new = NewExecution(id, "wf", "1", None, {}, time.time_ns())
    return journal.log(journal.create(new, "RUNNING", [], claimed=True))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def journal(path: Path) -> Iterator[StoreJournal]:
    made = StoreJournal(SqliteStore(path))
    made.start()
    yield made
    made.close()


def begin(journal: StoreJournal, execution_id: str = "e1") -> ExecutionLog:
    return journal.log(journal.create(new(execution_id), "RUNNING", [], claimed=True))


def seqs(path: Path, execution_id: str = "e1") -> list[int]:
    return [entry.seq for entry in SqliteStore(path).entries(execution_id)]


def test_a_hail_of_ctrl_c_on_the_main_thread_stops_nobody_and_loses_nothing(path: Path) -> None:
    told = run(
        PRELUDE
        + """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
journal = StoreJournal(SqliteStore(path, synchronous="NORMAL"))
journal.start()
logs = [begin(journal, f"e{n}") for n in range(4)]
mine = begin(journal, "main")
stop, ready = threading.Event(), Latch()  # the latch is set where a Ctrl-C strikes
counts = [0] * 4
handed = []

def work(number):
    while not stop.is_set():
        logs[number].append([("fact", "p", "{}")]).wait(60)
        counts[number] += 1

def hail():
    main = threading.main_thread().ident
    ready.wait(60)
    for _ in range(400):
        signal.pthread_kill(main, signal.SIGINT)
        stop.wait(0.003)

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
hailing = threading.Thread(target=hail)
interrupted = 0
for thread in (*threads, hailing):
    thread.start()
while True:
    try:
        ready.set()
        if not hailing.is_alive():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            break
        mine.append([("fact", "p", "{}")]).wait()
    except KeyboardInterrupt:
        interrupted += 1
before = list(counts)
stop.wait(0.5)
assert all(now > then for now, then in zip(counts, before)), "somebody stands still"
mine.append([("fact", "p", "{}")]).wait(60)
stop.set()
for thread in threads:
    thread.join(10)
    assert not thread.is_alive()
journal.close()
store = SqliteStore(path)
for number, log in [*enumerate(logs), (None, mine)]:
    stored = [entry.seq for entry in store.entries(log.claim.execution_id)]
    assert stored == list(range(1, log.last_seq + 1)), (log.claim, log.last_seq, stored[-3:])
    assert number is None or log.last_seq == counts[number]
print(interrupted)
""",
        path,
    )

    assert int(told) > 5


def test_a_child_makes_its_own_and_leaves_what_it_inherited_alone(journal: StoreJournal, path: Path) -> None:
    log = begin(journal)
    log.append(draft()).wait()
    early = log.append(draft(), lazy=True)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            begun = time.monotonic()
            journal.release(log.claim)
            journal.close()
            for call in (journal.start, lambda: journal.claim("e1"), lambda: begin(journal, "e2")):
                with contextlib.suppress(StoreError):
                    call()
                    os._exit(2)
            group = journal._group
            assert group is not None
            group._mutex.acquire()  # as if a thread had held it at the moment of the fork
            assert isinstance(log.append(draft()).error, StoreError)
            for late in (early.wait, lambda: early.add_callback(print)):
                with contextlib.suppress(StoreError):
                    late()
                    os._exit(4)
            assert time.monotonic() - begun < 1
            own = StoreJournal(SqliteStore(path))
            own.start()
            with contextlib.suppress(ExecutionBusyError):
                own.claim("e1")
                os._exit(3)
            begin(own, "child").append(draft()).wait()
            own.close()
            code = 0
        except BaseException:
            import traceback

            os.write(writer, traceback.format_exc().encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as story:
        told = story.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, told

    log.append(draft()).wait()
    assert (seqs(path), seqs(path, "child")) == ([1, 2, 3], [1])
    assert journal.execution("e1").live


def test_a_process_that_forgets_to_close_exits_by_itself_and_has_kept_its_word(path: Path) -> None:
    begun = time.monotonic()
    run(
        PRELUDE
        + """
journal = StoreJournal(SqliteStore(path))
journal.start()
log = begin(journal, "e1")
log.append([("fact", "p", "{}")]).wait()
log.append([("fact", "p", "{}")], lazy=True)
""",
        path,
    )

    assert time.monotonic() - begun < 20
    assert seqs(path)[:1] == [1]


@pytest.mark.case("C040")
def test_made_in_one_thread_used_in_two_closed_in_a_fourth(path: Path) -> None:
    told = run(
        PRELUDE
        + """
import gc, warnings
warnings.simplefilter("error")
made, errors = [], []

def on_thread(work):
    def guarded():
        try:
            work()
        except BaseException as error:
            errors.append(repr(error))
    thread = threading.Thread(target=guarded)
    thread.start()
    return thread

def make():
    journal = StoreJournal(SqliteStore(path))
    journal.start()
    made.append(journal)

def use(id):
    log = begin(made[0], id)
    for _ in range(20):
        log.append([("fact", "p", "{}")]).wait()
    assert [entry.seq for entry in made[0].entries(id)] == list(range(1, 21))
    made[0].release(log.claim)

on_thread(make).join()
users = [on_thread(lambda id=id: use(id)) for id in ("two", "three")]
for user in users:
    user.join()
on_thread(made[0].close).join()
del made
gc.collect()
print(errors, threading.active_count())
""",
        path,
    )

    assert told == "[] 1\n"


@pytest.mark.case("C028")
def test_a_hundred_starts_that_fail_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    before = open_files(), threading.active_count()

    for _ in range(100):
        for place in (tmp_path, tmp_path / "no" / "a.db", tmp_path / "text.db"):
            with pytest.raises(StoreError):
                StoreJournal(SqliteStore(place)).start()

    assert open_files() <= before[0]
    assert threading.active_count() <= before[1]  # one of an earlier test may have ended meanwhile


@pytest.mark.case("C050")
def test_journals_opened_used_and_closed_leave_no_thread_and_no_descriptor(path: Path) -> None:
    def once(number: int) -> None:
        journal = StoreJournal(SqliteStore(path, synchronous="NORMAL"))
        journal.start()
        log = begin(journal, f"e{number}")
        end = journal.watch(f"e{number}", lambda request: None)
        log.append(draft(), lazy=True)
        log.append(draft()).wait()
        end()
        journal.release(log.claim)
        journal.close()

    once(0)
    before = open_files(), threading.active_count()
    for number in range(1, 150):
        once(number)
        assert threading.active_count() <= before[1]

    assert open_files() == before[0]
    assert [found.name for found in path.parent.iterdir()] == ["a.db"]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_file_that_is_taken_away_ends_the_walk_by_an_error_that_names_both(path: Path, durability: str) -> None:
    journal = StoreJournal(SqliteStore(path), durability=durability)
    journal.start()
    log = begin(journal)
    log.append(draft()).wait()
    path.unlink()

    with pytest.raises(StoreError) as caught:
        log.append(draft()).wait()

    assert (caught.value.store, caught.value.execution_id) == (str(path), "e1")
    assert "taken away" in str(caught.value)
    assert log.closed()
    journal.close()


def test_somebody_elses_lock_of_a_while_reaches_nobody(journal: StoreJournal, path: Path) -> None:
    log = begin(journal)
    locker = start(
        """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
""",
        path,
    )
    assert locker.stdout is not None
    assert locker.stdin is not None
    assert locker.stdout.readline() == "locked\n"
    tickets = [log.append(draft()) for _ in range(3)]
    threads = run_all(*(ticket.wait for ticket in tickets))
    threading.Event().wait(2)
    assert not any(ticket.done for ticket in tickets)

    locker.stdin.write("\n")
    finish(locker)
    join_all(threads)

    assert not any(ticket.error for ticket in tickets)
    assert seqs(path) == [1, 2, 3]


def test_close_comes_back_in_time_though_somebody_else_holds_the_lock(path: Path) -> None:
    warnings: list[str] = []
    journal = StoreJournal(SqliteStore(path), on_warning=warnings.append)
    journal.start()
    log = begin(journal)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ticket = log.append(draft(), lazy=True)
        begun = time.monotonic()
        journal.close(0.5)
        assert time.monotonic() - begun < 2
        assert len(warnings) == 1
        other.execute("COMMIT")
    ticket.wait(20)
    heartbeat = journal._heartbeat
    assert heartbeat is not None
    assert heartbeat.stop(20)

    assert seqs(path) == [1]
    assert not SqliteStore(path).execution("e1").live


def test_best_effort_goes_on_over_a_full_disk_and_makes_up_for_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("no mount is permitted here")
    try:
        warnings: list[str] = []
        journal = StoreJournal(SqliteStore(disk / "a.db"), durability="best_effort", on_warning=warnings.append)
        journal.start()
        log = begin(journal)
        body = '"' + "x" * 2_000 + '"'
        for _ in range(600):
            ticket = log.append(draft(body))
        with pytest.raises(StoreError):
            ticket.wait()
        assert not log.closed()
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        log.append(draft(body)).wait()
        journal.close()

        assert seqs(disk / "a.db") == list(range(1, 602))
        assert "the disk is full" in warnings[0]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
