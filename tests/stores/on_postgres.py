"""What the tests of the PostgreSQL store are made with."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from ares.errors import StoreError
from ares.journal.owner import this_process
from ares.journal.protocol import Claim
from ares.stores.postgres import PostgresStore
from tests.postgres import DEADLINE
from tests.stores.store_contract import new


@contextlib.contextmanager
def opened(url: str) -> Iterator[PostgresStore]:
    """A store that is open."""
    store = PostgresStore(url)
    store.open()
    try:
        yield store
    finally:
        store.close()


def begin(store: PostgresStore, execution_id: str = "e1") -> Claim:
    """An execution under a lease of its own."""
    return store.create(new(execution_id), store.start_lease(this_process()), "RUNNING", [])


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What the server answers to an ordinary client."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def refused(call: Callable[[], object], *words: str) -> StoreError:
    """The error that a call ends with, which has these words in it."""
    with pytest.raises(StoreError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return caught.value


def connections(url: str) -> int:
    """How many connections stores have to a database."""
    ((count,),) = query(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ares' AND datname = current_database()",
    )
    return int(count)


def wait_until(holds: Callable[[], bool]) -> None:
    """Come back when something holds, which others bring about."""
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def wait_until_one_waits(url: str) -> None:
    """Come back when somebody waits for a lock in a database."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    wait_until(lambda: query(url, waiting) == [(1,)])
