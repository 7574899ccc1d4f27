"""Several processes on one store: they wait for each other, and no row is lost, whoever is killed."""

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from ares.errors import ExecutionBusyError
from ares.journal.owner import is_gone, this_process
from ares.journal.protocol import Append
from ares.stores.opening import open_store
from tests.stores.children import finish, start
from tests.stores.store_contract import add, new, rows, seqs

PRELUDE = """
import os, sys, threading, time
from ares.journal.owner import is_gone, this_process
from ares.journal.protocol import Append, Entry, NewExecution
from ares.journal.writer import StoreJournal
from ares.stores.opening import open_store

place = sys.argv[1]

def new(id):
    return NewExecution(id, "wf", "1", None, {}, time.time_ns())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def is_sound(place: str) -> bool:
    """Whether the file is; a server sees to that by itself."""
    if "://" in place:
        return True
    with contextlib.closing(sqlite3.connect(place)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_processes_open_a_new_store_at_the_same_moment(place: str) -> None:
    code = (
        PRELUDE
        + """
sys.stdin.read()
store = open_store(place)
store.open()
lease = store.start_lease(this_process())
store.create(new(str(os.getpid())), lease, "RUNNING", [])
store.close()
"""
    )
    children = [start(code, place) for _ in range(8)]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None
    for child in children:
        finish(child)

    assert len(open_store(place).executions()) == 8
    assert is_sound(place)


@pytest.mark.case("C038")
def test_two_processes_of_eight_workers_and_a_third_that_locks_meet_no_error(path: Path) -> None:
    work = (
        PRELUDE
        + """
name = sys.argv[2]
warnings = []
journal = StoreJournal(open_store(place), on_warning=warnings.append)
journal.start()
numbers = iter(range(50))
lock = threading.Lock()
failures = []

def worker():
    while True:
        with lock:
            number = next(numbers, None)
        if number is None:
            return
        try:
            claim = journal.create(new(f"{name}-{number}"), "RUNNING", [("begun", "", "{}")], claimed=True)
            log = journal.log(claim)
            for step in range(3):
                log.append([("started", f"s{step}", "{}")], lazy=True)
                log.append([("done", f"s{step}", "{}")]).wait(60)
            log.append([("ended", "", "{}")], status="COMPLETED").wait(60)
            journal.release(claim)
        except BaseException as error:
            failures.append(repr(error))

threads = [threading.Thread(target=worker) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
journal.close()
print(failures, warnings)
"""
    )
    locker = """
import random, sqlite3, sys, threading
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
for _ in range(2):
    connection.execute("BEGIN IMMEDIATE")
    threading.Event().wait(2)
    connection.execute("ROLLBACK")
    threading.Event().wait(random.random() / 2)
connection.close()
"""
    open_store(path).open()
    children = [start(locker, path), start(work, path, "a"), start(work, path, "b")]
    _, *told = [finish(child) for child in children]

    assert told == ["[] []\n"] * 2
    found = open_store(path).executions()
    assert sorted(row.execution_id for row in found) == sorted(f"{n}-{i}" for n in "ab" for i in range(50))
    assert {(row.status, row.last_seq, row.live) for row in found} == {("COMPLETED", 8, False)}
    kinds = ["begun", *["started", "done"] * 3, "ended"]
    for row in found:
        assert [entry.kind for entry in open_store(path).entries(row.execution_id)] == kinds


COMMITS = (
    PRELUDE
    + """
journal = StoreJournal(open_store(place))
journal.start()
lock = threading.Lock()

def work(number):
    id = f"{sys.argv[2]}-{number}"
    log = journal.log(journal.create(new(id), "RUNNING", [], claimed=True))
    for seq in range(1, 100_000):
        if seq % 3 == 0:
            log.append([("lazy", "p", "{}")], lazy=True)
        log.append([("fact", "p", "x" * 300)]).wait(60)
        with lock:
            os.write(1, f"{id} {log.last_seq}\\n".encode())

for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=True).start()
threading.Event().wait(60)
"""
)


@pytest.mark.case("C033")
def test_a_process_killed_while_it_commits_loses_nothing_it_was_told_of_and_holds_nothing(place: str) -> None:
    for turn in range(4 if "://" in place else 8):
        child = start(COMMITS, place, turn)
        assert child.stdout is not None
        head = child.stdout.readline()  # it is at work
        threading.Event().wait(random.random() / 10)
        child.send_signal(signal.SIGKILL)
        told = head + child.stdout.read()
        child.communicate()

        promised: dict[str, int] = {}
        for line in told.splitlines():
            id_, _, seq = line.rpartition(" ")
            promised[id_] = int(seq)
        store = open_store(place)
        store.open()
        begun = time.monotonic()
        lease = store.start_lease(this_process())
        for id_, seq in promised.items():
            assert not store.execution(id_).live
            claim = store.claim(id_, lease, is_gone=lambda held: is_gone(held.owner))
            assert claim.last_seq >= seq
            assert seqs(store, id_) == list(range(1, claim.last_seq + 1))
            assert add(store, claim, claim.last_seq + 1) is None
        assert time.monotonic() - begun < 5
        store.close()
        assert promised
        assert is_sound(place)


@pytest.mark.case("C033")
def test_a_live_owner_is_named_and_a_killed_one_is_followed_at_once(place: str) -> None:
    code = (
        PRELUDE
        + """
journal = StoreJournal(open_store(place))
journal.start()
log = journal.log(journal.create(new("e1"), "RUNNING", [], claimed=True))
print("owns", flush=True)
for line in sys.stdin:
    log.append([("fact", "p", "{}")]).wait(60)
    print("wrote", flush=True)
"""
    )
    child = start(code, place)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "owns\n"
    store = open_store(place)
    store.open()
    lease = store.start_lease(this_process())

    for _ in range(20):
        with pytest.raises(ExecutionBusyError) as caught:
            store.claim("e1", lease, is_gone=lambda held: is_gone(held.owner))
        assert f"pid {child.pid} on host" in str(caught.value)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "wrote\n"  # it was not disturbed

    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    claim = store.claim("e1", lease, is_gone=lambda held: is_gone(held.owner))

    assert claim.last_seq == 1
    assert add(store, claim, 2) is None
    store.close()
    child.communicate()


@pytest.mark.case("C036")
def test_the_log_stays_small_while_somebody_polls_all_the_time(path: Path) -> None:
    watcher = start(
        PRELUDE
        + """
store = open_store(place)
print("polls", flush=True)
polls = 0
while not os.path.exists(place + ".done"):
    row = store.execution("e1")
    list(store.entries("e1", max(0, row.last_seq - 3)))
    polls += 1
print(polls)
""",
        path,
    )
    store = open_store(path)
    store.open()
    claim = store.create(new(), store.start_lease(this_process()), "RUNNING", [])
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "polls\n"
    body = '"' + "x" * 10_240 + '"'
    largest = 0
    log = path.with_name("a.db-wal")
    for seq in range(1, 5_001):
        (refused,) = store.append([Append(claim, rows(seq, body=body))], sync=seq % 50 == 0)
        assert refused is None
        largest = max(largest, log.stat().st_size)
    Path(f"{path}.done").touch()
    polls = int(finish(watcher))
    store.close()

    assert polls > 10
    assert largest < 16 * 2**20
    assert not log.exists() or log.stat().st_size == 0


def test_a_request_of_another_process_is_heard_soon(place: str) -> None:
    child = start(
        PRELUDE
        + """
journal = StoreJournal(open_store(place))
journal.start()
journal.create(new("e1"), "RUNNING", [], claimed=True)
heard = threading.Semaphore(0)
journal.watch("e1", lambda request: (print(request.kind, request.body, flush=True), heard.release()))
print("watches", flush=True)
for _ in range(5):
    assert heard.acquire(timeout=30)
journal.close()
""",
        place,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "watches\n"
    store = open_store(place)
    store.open()

    delays = []
    for number in range(5):
        assert store.request("e1", "cancel", str(number))
        begun = time.monotonic()
        assert child.stdout.readline() == f"cancel {number}\n"
        delays.append(time.monotonic() - begun)

    assert min(delays) < 0.5  # the others may have met a busy machine
    finish(child)
    store.close()
