"""Several at once on rows of PostgreSQL: who waits for whom, and for how long."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from ares.errors import LeaseLostError
from ares.journal.owner import this_process
from ares.journal.protocol import Claim
from ares.stores.postgres import PostgresStore, _server
from tests.stores.children import start
from tests.stores.on_postgres import begin, opened, refused, wait_until_one_waits
from tests.stores.store_contract import add, gone, new, rows, seqs


@pytest.fixture
def store(postgres: str) -> Iterator[PostgresStore]:
    with opened(postgres) as made:
        yield made


def test_an_owner_that_is_stopped_within_a_transaction_holds_nobody_up_for_long(
    postgres: str, store: PostgresStore
) -> None:
    begin(store)
    child = start(
        """
import os, signal, sys
from ares.journal.owner import this_process
from ares.stores.postgres import PostgresStore, _server

_server._SESSION = _server._SESSION.replace(b"'idle_in_transaction_session_timeout', '10s'",
    b"'idle_in_transaction_session_timeout', '300ms'")
store = PostgresStore(sys.argv[1])
store.open()
lease = store.start_lease(this_process())

def stop(held):
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return False

try:
    store.claim("e1", lease, is_gone=stop)
finally:
    store.close()
""",
        postgres,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "stopped\n"

    # It would be an error after ten seconds.
    claim = store.claim("e1", store.start_lease(this_process()), is_gone=gone)

    assert add(store, claim, 1) is None
    child.kill()
    child.communicate()


def test_a_lock_that_lasts_is_an_error_that_says_so(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _server, "_SESSION", _server._SESSION.replace(b"'lock_timeout', '10s'", b"'lock_timeout', '200ms'")
    )
    store = PostgresStore(postgres)
    store.open()
    claim = begin(store)
    with psycopg.connect(postgres) as other:
        other.execute("SELECT 1 FROM ares.executions FOR UPDATE")
        refused(lambda: add(store, claim, 1), store.name, "locked by another transaction", "10 s")
        refused(store.compact, "locked by another transaction")
        assert store.execution("e1").last_seq == 0

    assert add(store, claim, 1) is None
    store.close()


def test_a_deadlock_is_no_error(postgres: str, store: PostgresStore) -> None:
    dead = store.start_lease(this_process())
    lease = store.start_lease(this_process())
    store.create(new(), dead, "RUNNING", rows(1))
    claims: list[Claim] = []
    with psycopg.connect(postgres) as other:
        # Whoever waits the longest is not the one to be sent away.
        other.execute("SET deadlock_timeout = '60s'")
        other.execute("SELECT 1 FROM ares.leases FOR UPDATE")
        taker = threading.Thread(target=lambda: claims.append(store.claim("e1", lease, is_gone=gone)))
        taker.start()
        wait_until_one_waits(postgres)
        other.execute("SELECT 1 FROM ares.executions FOR UPDATE")
    taker.join()

    assert claims[0].was_abandoned
    assert add(store, claims[0], 2) is None


def test_an_owner_whose_claim_is_being_taken_writes_nothing_more(postgres: str, store: PostgresStore) -> None:
    old = begin(store)
    new_lease = store.start_lease(this_process())
    results: list[Exception | None] = []
    late = threading.Thread(target=lambda: results.append(add(store, old, 1)))

    def is_gone(_held: object) -> bool:
        # The other one has asked before this commits, and waits for the row.
        late.start()
        wait_until_one_waits(postgres)
        return True

    claim = store.claim("e1", new_lease, is_gone=is_gone)
    late.join()

    assert isinstance(results[0], LeaseLostError)
    assert seqs(store) == []
    assert add(store, claim, 1) is None


def test_a_request_that_meets_the_end_of_its_execution_does_not_meet_it_when_it_is_reopened(
    postgres: str, store: PostgresStore
) -> None:
    claim = begin(store)
    lease = claim.lease
    with psycopg.connect(postgres) as other:
        # As a request that was not committed yet when the end came.
        other.execute("SELECT 1 FROM ares.executions FOR SHARE")
        ender = threading.Thread(target=lambda: add(store, claim, 1, status="COMPLETED"))
        ender.start()
        wait_until_one_waits(postgres)
        other.execute(
            "INSERT INTO ares.requests (execution, at, kind, body, name, name_hash, is_done, left_by, left_as)"
            " SELECT key, 0, 'answer', '', 'q', 'h', false, 'x', 1 FROM ares.executions"
        )
    ender.join()

    assert store.requests(lease) == []
    assert store.execution("e1").requests == 0
    assert add(store, claim, 2, status="RUNNING") is None
    assert store.requests(lease) == []
    assert store.named_requests("e1") == frozenset()
