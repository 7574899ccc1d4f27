"""What a PostgreSQL store keeps of its process: connections, threads, and what a fork or a Ctrl-C makes of them."""

import gc
import threading
from collections.abc import Iterator

import pytest

from ares.journal.owner import this_process
from ares.stores.postgres import PostgresStore
from tests.stores.children import finish, in_child, open_files, run, start
from tests.stores.on_postgres import begin, connections, opened, refused, wait_until
from tests.stores.store_contract import add, seqs


@pytest.fixture
def store(postgres: str) -> Iterator[PostgresStore]:
    with opened(postgres) as made:
        yield made


def test_a_child_of_a_fork_says_nothing_on_its_parents_connections(postgres: str, store: PostgresStore) -> None:
    warnings: list[str] = []
    claim = begin(store)
    store.attend(on_request=lambda: None, on_warning=warnings.append)
    assert add(store, claim, 1) is None

    def work() -> None:
        for call in (lambda: add(store, claim, 2), store.executions, store.changed, store.open):
            refused(call, "before a fork")
        store.close()
        own = PostgresStore(postgres)
        own.open()
        assert seqs(own) == [1]
        add(own, begin(own, "child"), 1)
        own.close()
        store._server._seats = ()
        gc.collect()

    in_child(work)

    assert add(store, claim, 2) is None
    assert seqs(store, "child") == [1]
    assert warnings == []


def test_a_child_that_ends_in_the_ordinary_way_says_nothing_either(postgres: str) -> None:
    told = run(
        """
import os, sys
from ares.journal.owner import this_process
from ares.stores.postgres import PostgresStore
store = PostgresStore(sys.argv[1])
store.open()
lease = store.start_lease(this_process())
store.attend(on_request=lambda: None, on_warning=print)
pid = os.fork()
if pid == 0:
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
assert store.beat(lease)
store.close()
print("well")
""",
        postgres,
    )

    assert told == "well\n"


def test_closing_and_forgetting_leave_no_connection_thread_or_file(postgres: str) -> None:
    PostgresStore(postgres).open()
    before = open_files(), threading.active_count()
    for number in range(20):
        store = PostgresStore(postgres)
        store.open()
        store.start_lease(this_process())
        if number % 2:
            store.attend(on_request=lambda: None, on_warning=lambda _text: None)
            store.close()
        del store
    gc.collect()

    assert (open_files(), threading.active_count()) == before
    wait_until(lambda: connections(postgres) == 0)


def test_a_quiet_program_has_one_connection_and_a_busy_one_a_few(postgres: str, store: PostgresStore) -> None:
    claim = begin(store)
    for seq in range(1, 10):
        add(store, claim, seq)
    assert connections(postgres) == 1

    barrier = threading.Barrier(12)

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            assert seqs(store)[-1] == 9

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connections(postgres) <= 4


def test_a_ctrl_c_leaves_the_store_fit_for_use_and_nothing_half_written(postgres: str) -> None:
    code = """
import _thread, random, sys, threading
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Entry, NewExecution
from ares.stores.postgres import PostgresStore

store = PostgresStore(sys.argv[1])
store.open()
lease = store.start_lease(this_process())
claim = store.create(NewExecution("e1", "wf", "1", None, {}, 1), lease, "RUNNING", [])
seq, hits = 1, 0
while hits < 25:
    entries = [Entry(seq, seq, "fact", "p", "{}"), Entry(seq + 1, seq, "fact", "p", "{}")]
    timer = threading.Timer(random.random() / 200, _thread.interrupt_main)
    while True:
        try:
            if not timer.is_alive() and timer.ident is None:
                timer.start()
            assert store.append([Append(claim, entries)], sync=True) == [None]
            timer.join()
            break
        except KeyboardInterrupt:
            hits += 1
    seq += 2
for hits in range(25):
    timer = threading.Timer(random.random() / 200, _thread.interrupt_main)
    try:
        timer.start()
        while timer.is_alive():
            store.release(claim)
            claim = store.claim("e1", lease, is_gone=lambda held: False)
        timer.join()
        threading.Event().wait(0.01)
    except KeyboardInterrupt:
        store.release(claim)
        claim = store.claim("e1", lease, is_gone=lambda held: False)
assert [entry.seq for entry in store.entries("e1")] == list(range(1, seq))
store.close()
"""
    finish(start(code, postgres))
