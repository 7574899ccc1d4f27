"""The PostgreSQL store while its server goes away and comes back."""

import contextlib
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from ares.errors import ExecutionExistsError, StoreError
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Claim
from ares.stores.postgres import PostgresStore, _server
from tests.postgres import DEADLINE, Server
from tests.stores.on_postgres import begin, opened, query, refused
from tests.stores.store_contract import add, alive, gone, new, rows, seqs


@pytest.fixture
def store(postgres: str) -> Iterator[PostgresStore]:
    with opened(postgres) as made:
        yield made


TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'ares' AND datname = current_database()"
)


def restart(server: Server, postgres: str) -> None:
    server.restart()


def kill(server: Server, postgres: str) -> None:
    server.kill()
    server.start()


def terminate(server: Server, postgres: str) -> None:
    query(postgres, TERMINATE)


# --- outages ---


@pytest.mark.case("C041")
@pytest.mark.parametrize("strike", [restart, kill, terminate])
def test_a_server_that_went_away_while_nobody_asked_is_no_error_and_one_warning(
    own_postgres: Server, postgres: str, store: PostgresStore, strike: Callable[[Server, str], None]
) -> None:
    warnings: list[str] = []
    claim = begin(store)
    store.attend(on_request=lambda: None, on_warning=warnings.append)
    assert add(store, claim, 1) is None
    # Several connections are open by now, and all of them are lost.
    readers = [threading.Thread(target=lambda: [store.execution("e1") for _ in range(20)]) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()

    strike(own_postgres, postgres)

    assert add(store, claim, 2) is None
    assert store.beat(claim.lease)
    assert seqs(store) == [1, 2]
    assert len(warnings) == 1
    assert "the connection was lost" in warnings[0]
    assert "connected again after" in warnings[0]
    assert warnings[0].startswith(store.name)


@pytest.mark.case("C041")
def test_whoever_writes_while_the_server_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    own_postgres: Server, store: PostgresStore
) -> None:
    lease = store.start_lease(this_process())
    claims = [store.create(new(f"e{number}"), lease, "RUNNING", []) for number in range(4)]
    ending = threading.Event()
    written = [0] * len(claims)
    failures: list[object] = []

    def work(number: int) -> None:
        try:
            while not ending.is_set():
                failures.extend(filter(None, [add(store, claims[number], written[number] + 1, 2)]))
                written[number] += 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(claims))]
    for thread in threads:
        thread.start()
    for _ in range(5):
        before = sum(written)
        own_postgres.kill()
        own_postgres.start()
        deadline = time.monotonic() + DEADLINE
        while sum(written) <= before + 20 and not failures and time.monotonic() < deadline:
            ending.wait(0.01)
    ending.set()
    for thread in threads:
        thread.join()

    assert failures == []
    assert [seqs(store, f"e{number}") for number in range(4)] == [list(range(1, count + 1)) for count in written]


def test_a_server_that_stays_away_is_an_error_after_a_while_and_then_at_once(
    own_postgres: Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_server, "_PATIENCE", 0.5)
    claim = begin(store)
    own_postgres.stop()
    try:
        begun = time.monotonic()
        refused(lambda: add(store, claim, 1), store.name, "onnection")
        assert 0.4 < time.monotonic() - begun < 30
        begun = time.monotonic()
        refused(lambda: store.execution("e1"), store.name)
        refused(PostgresStore(own_postgres.url()).open, "onnection")
        assert time.monotonic() - begun < 30
    finally:
        own_postgres.start()

    assert add(store, claim, 1) is None


def test_closing_ends_the_wait_for_a_server(own_postgres: Server, store: PostgresStore) -> None:
    claim = begin(store)
    own_postgres.stop()
    try:
        errors: list[StoreError] = []
        waiter = threading.Thread(target=lambda: errors.append(refused(lambda: add(store, claim, 1))))
        waiter.start()
        while store._server._down_since is None:
            threading.Event().wait(0.01)
        begun = time.monotonic()
        store.close()
        waiter.join()
        assert time.monotonic() - begun < 30
        assert "closed while it waited for the server" in str(errors[0])
    finally:
        own_postgres.start()


class Cutter:
    """Stands between stores and their server, and can cut a line behind a statement, before its answer is through."""

    def __init__(self, server: Server) -> None:
        self._target = str(server.folder / f".s.PGSQL.{server.port}")
        #: What the statement has in it, None while none is to be cut off; and how many were.
        self.trigger: bytes | None = None
        self.cuts = 0
        self._folder = tempfile.TemporaryDirectory(prefix="ares-cut-", dir="/tmp")
        self.host = self._folder.name
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{self.host}/.s.PGSQL.5432")
        self._listening.listen()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._threads.append(threading.Thread(target=self._pass_on, args=(client, server)))
            self._threads[-1].start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        cutting = False
        with client, server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client:
                        cutting = cutting or (self.trigger is not None and self.trigger in data)
                        server.sendall(data)
                    elif cutting:
                        self.trigger = None  # the answer has come, so that it is done
                        self.cuts += 1
                        return
                    else:
                        client.sendall(data)


@pytest.fixture
def cutter(own_postgres: Server) -> Iterator[Cutter]:
    made = Cutter(own_postgres)
    yield made
    made.close()


def test_whatever_took_effect_before_the_line_was_cut_is_not_done_twice(postgres: str, cutter: Cutter) -> None:
    store = PostgresStore(f"postgresql://ares@{urlsplit(postgres).path}?host={cutter.host}")
    store.open()
    lease = store.start_lease(this_process())

    def cut(call: Callable[[], Any], trigger: bytes) -> Any:
        cuts, cutter.trigger = cutter.cuts, trigger
        result = call()
        assert cutter.cuts == cuts + 1
        return result

    claim = cut(lambda: store.create(new(), lease, "RUNNING", rows(1)), b"INSERT INTO")
    assert claim == Claim("e1", claim.key, lease, 1, 1)
    with pytest.raises(ExecutionExistsError):
        store.create(new(), lease, "RUNNING", rows(1))
    entries = rows(2, 3)
    assert cut(lambda: store.append([Append(claim, entries, status="WAITING")], sync=True), b"fact") == [None]
    assert seqs(store) == [1, 2, 3, 4]
    assert cut(lambda: store.request("e1", "answer", "first", "name"), b"first") is True
    assert not store.request("e1", "answer", "second", "name")
    assert cut(lambda: store.request("e1", "cancel", "once"), b"once") is True
    assert [request.body for request in store.requests(lease)] == ["first", "once"]
    store.release(claim)
    taken = cut(lambda: store.claim("e1", lease, is_gone=alive), b"COMMIT")
    assert (taken.number, taken.was_abandoned) == (2, False)
    assert add(store, taken, 5) is None
    dead = store.start_lease(this_process())
    store.release(taken)
    store.claim("e1", dead, is_gone=alive)
    over = cut(lambda: store.claim("e1", lease, is_gone=gone), b"COMMIT")
    assert (over.number, over.was_abandoned) == (4, True)
    store.close()
