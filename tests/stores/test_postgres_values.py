"""What is kept in PostgreSQL comes back as it was, whatever it is; and what is told when there is no room."""

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ares.journal.owner import this_process
from ares.journal.protocol import Append, Entry
from ares.stores.postgres import PostgresStore
from tests.postgres import Server
from tests.stores.on_postgres import begin, opened, query, refused
from tests.stores.store_contract import add, new, rows, seqs


@pytest.fixture
def store(postgres: str) -> Iterator[PostgresStore]:
    with opened(postgres) as made:
        yield made


@pytest.mark.parametrize("text", ["\0", "a\0b\x1b", "\x1b0000", "\ud800", "\udfff\ud800x", "\U0001f600", "\x1b", "\\0"])
def test_any_text_is_kept_as_it_is_wherever_it_stands(store: PostgresStore, text: str) -> None:
    lease = store.start_lease(this_process())
    made = new(text, workflow_id=text, workflow_version=text, parent_id=text, metadata={text: text})
    claim = store.create(made, lease, "RUNNING", [Entry(1, 5, text, text, text)])
    assert store.append([Append(claim, [Entry(2, 6, text, text, text)], "WAITING", text)], sync=True) == [None]
    assert store.request(text, text, text, text)
    assert not store.request(text, text, text, text)

    row = store.execution(text)
    assert (row.execution_id, row.workflow_id, row.workflow_version, row.parent_id) == (text,) * 4
    assert (dict(row.metadata), row.error) == ({text: text}, text)
    assert list(map(_cells, store.entries(text))) == [(1, 5, text, text, text), (2, 6, text, text, text)]
    (request,) = store.requests(lease)
    assert (request.execution_id, request.kind, request.body, request.name) == (text,) * 4
    assert store.named_requests(text) == {text}
    assert [found.execution_id for found in store.executions(workflow_id=text, metadata={text: text})] == [text]


def _cells(entry: Entry) -> tuple[Any, ...]:
    return entry.seq, entry.at, entry.kind, entry.path, entry.body


def test_long_names_and_bodies_that_no_index_takes_are_kept(store: PostgresStore) -> None:
    claim = begin(store)
    name, body = secrets.token_hex(20_000), secrets.token_hex(4_000_000)

    assert store.append([Append(claim, rows(1, body=body))], sync=True) == [None]
    assert store.request("e1", "answer", body, name)
    assert not store.request("e1", "answer", "", name)
    assert next(store.entries("e1")).body == body
    refused(lambda: store.create(new(name), claim.lease, "RUNNING", []), "larger than PostgreSQL can store")


def test_a_number_or_text_that_is_none_is_refused_by_name(store: PostgresStore) -> None:
    lease = store.start_lease(this_process())

    refused(lambda: store.create(new(created_at=2**63), lease, "RUNNING", []), store.name, "64 bits")
    refused(lambda: store.create(new(), lease, "RUNNING", rows(1, at=-(2**63) - 1)), "64 bits")
    refused(lambda: store.create(new(), lease, "RUNNING", [Entry(1, 1, "fact", "p", b"x")]), "a text is expected")
    claim = store.create(new(created_at=2**63 - 1), lease, "RUNNING", rows(1, at=-(2**63)))
    assert (store.execution("e1").updated_at, store.execution("e1").created_at) == (-(2**63), 2**63 - 1)
    assert add(store, claim, 2) is None


def test_a_full_disk_is_an_error_of_whoever_needs_the_room(
    own_postgres: Server, postgres: str, store: PostgresStore, tmp_path: Path
) -> None:
    place = own_postgres.folder / f"small-{secrets.token_hex(4)}"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=1m,uid={own_postgres.uid}", "tmpfs", place],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"no mount is permitted here: {mounted.stderr!r}")
    name = f"small_{secrets.token_hex(4)}"
    try:
        query(postgres, f"CREATE TABLESPACE {name} LOCATION '{place}'")
        query(postgres, f"ALTER TABLE ares.entries SET TABLESPACE {name}")
        lease = store.start_lease(this_process())
        one, two = (store.create(new(id_), lease, "RUNNING", rows(1)) for id_ in ("e1", "e2"))
        body = secrets.token_hex(1_000_000)

        refused(lambda: store.append([Append(one, rows(2, body=body))], sync=True), "disk is full", "53100", store.name)
        results = store.append([Append(one, rows(2, body=body)), Append(two, rows(2))], sync=True)

        assert [result is None for result in results] == [False, True]
        assert (seqs(store, "e1"), seqs(store, "e2")) == ([1], [1, 2])
        query(postgres, "ALTER TABLE ares.entries SET TABLESPACE pg_default")
        assert add(store, one, 2) is None
        query(postgres, f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
