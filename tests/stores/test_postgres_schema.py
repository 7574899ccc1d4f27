"""What the PostgreSQL store makes of a database, what it leaves alone, and what it says of one that will not do."""

import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from ares.journal.owner import this_process
from ares.stores.postgres import PostgresStore, _schema
from tests.postgres import Server
from tests.stores.on_postgres import opened, query, refused
from tests.stores.store_contract import add, gone, new, rows, seqs

FORMATS = Path(__file__).parent / "formats"


def tables(url: str) -> list[tuple[Any, ...]]:
    return query(
        url,
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
    )


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """The URL of the same database for a user who may connect and nothing else."""
    name, password = f"reader_{os.getpid()}_{secrets.token_hex(4)}", secrets.token_hex(8)
    query(postgres, f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    parts = urlsplit(postgres)
    yield parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()
    query(postgres, f"DROP OWNED BY {name}; DROP ROLE {name}")


# --- what is made, and what is left alone ---


def test_making_a_store_and_looking_at_it_asks_no_server() -> None:
    store = PostgresStore("postgresql://me@192.0.2.1:5433/db")

    store.inspect()

    assert store.name == "postgresql://me@192.0.2.1:5433/db"


def test_it_makes_one_schema_and_leaves_the_tables_of_others(postgres: str) -> None:
    query(postgres, "CREATE TABLE public.entries (mine text); INSERT INTO public.entries VALUES ('untouched')")

    with opened(postgres) as store:
        store.create(new(), store.start_lease(this_process()), "RUNNING", rows(1))

    assert tables(postgres) == [
        *(("ares", name) for name in ("entries", "executions", "format", "leases", "requests")),
        ("public", "entries"),
    ]
    assert query(postgres, "SELECT mine FROM public.entries") == [("untouched",)]


@pytest.mark.parametrize("schema", ["other", "Größe 100%s", 'a"b; --', "x" * 63])
def test_programs_share_a_database_by_schemas_of_any_name(postgres: str, schema: str) -> None:
    with opened(postgres) as one, opened(f"{postgres}&schema={quote(schema)}") as two:
        one.create(new(), one.start_lease(this_process()), "RUNNING", rows(1))
        claim = two.create(new(), two.start_lease(this_process()), "RUNNING", rows(1))

        assert add(two, claim, 2) is None
        assert (seqs(one), seqs(two)) == ([1], [1, 2])
        assert two.name.endswith(f"schema={quote(schema).replace('%20', '+')}")


def test_an_empty_schema_that_was_made_for_it_is_taken(postgres: str) -> None:
    query(postgres, "CREATE SCHEMA ares")

    with opened(postgres) as store:
        assert store.executions() == []


def test_the_schema_of_another_program_is_refused_and_left_as_it_was(postgres: str) -> None:
    for name, make in [
        ("theirs", "CREATE TABLE theirs.things (a text)"),
        ("alike", "CREATE TABLE alike.format (theirs integer)"),
        ("hollow", "CREATE TABLE hollow.format (ares integer)"),
    ]:
        query(postgres, f"CREATE SCHEMA {name}; {make}")
        before = tables(postgres)
        store = PostgresStore(f"{postgres}&schema={name}")

        refused(store.open, f"'{name}'", "another program", "schema=")
        refused(store.executions, f"'{name}'", "another program")

        assert tables(postgres) == before


def test_a_newer_schema_is_refused_and_left_as_it_was(postgres: str) -> None:
    with opened(postgres):
        pass
    query(postgres, "UPDATE ares.format SET ares = 99; ALTER TABLE ares.entries ADD COLUMN later text")
    store = PostgresStore(postgres)

    refused(store.open, "newer ares", "format 99", "left as it is")
    refused(store.executions, "newer ares")

    assert query(postgres, "SELECT ares FROM ares.format") == [(99,)]


# --- migrations ---


@pytest.mark.parametrize("version", range(1, len(_schema.MIGRATIONS) + 1))
def test_a_schema_of_every_released_format_is_read_and_goes_on(postgres: str, version: int) -> None:
    query(postgres, (FORMATS / f"postgres_{version}.sql").read_text())

    with opened(postgres) as store:
        rows_found = {row.execution_id: row for row in store.executions()}
        assert {name: (row.status, row.last_seq, row.metadata) for name, row in rows_found.items()} == {
            "ended": ("COMPLETED", 2, {"customer": "7"}),
            "cut\0short": ("RUNNING", 3, {}),
        }
        lease = store.start_lease(this_process())
        claim = store.claim("cut\0short", lease, is_gone=gone)
        assert (claim.was_abandoned, claim.number, claim.last_seq) == (True, 3, 3)
        assert [(r.kind, r.name) for r in store.requests(lease)] == [("answer", "question"), ("cancel", "")]
        assert not store.request("cut\0short", "answer", "{}", "question")
        assert add(store, claim, 4) is None
        assert [entry.body for entry in store.entries("cut\0short")] == ["{}", '"\\u00e4"', "{}", "{}"]
        assert store.create(new("next"), lease, "RUNNING", rows(1)).key == 3


def test_the_first_format_is_what_a_new_store_was_migrated_through(postgres: str) -> None:
    query(postgres, (FORMATS / "postgres_1.sql").read_text())
    shape = (
        "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
        " WHERE table_schema = '{0}' ORDER BY 1, 2"
    )
    indexes = "SELECT replace(indexdef, '{0}.', '') FROM pg_indexes WHERE schemaname = '{0}' ORDER BY 1"

    with opened(postgres), opened(f"{postgres}&schema=fresh"):
        for statement in (shape, indexes):
            assert query(postgres, statement.format("ares")) == query(postgres, statement.format("fresh"))


def test_an_older_schema_is_migrated_once_and_whole(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(postgres):
        pass
    later = (*_schema.MIGRATIONS, ("CREATE TABLE {schema}.later (a int)", "INSERT INTO {schema}.later VALUES (1)"))
    broken = (*later, ("CREATE TABLE {schema}.half (a int)", "SELECT nothing_of_this_name"))
    monkeypatch.setattr(_schema, "MIGRATIONS", broken)
    refused(PostgresStore(postgres).open, "nothing_of_this_name")
    assert ("ares", "half") not in tables(postgres)
    monkeypatch.setattr(_schema, "MIGRATIONS", later)

    refused(PostgresStore(postgres).executions, f"older format {len(later) - 1}")
    stores = [PostgresStore(postgres) for _ in range(6)]
    threads = [threading.Thread(target=store.open) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()

    assert query(postgres, "SELECT a FROM ares.later") == [(1,)]
    assert query(postgres, "SELECT ares FROM ares.format") == [(len(later),)]


# --- rights ---


def test_a_user_who_may_only_read_lists_and_cannot_open(postgres: str, role: str) -> None:
    with opened(postgres) as store:
        store.create(new(), store.start_lease(this_process()), "RUNNING", rows(1))
    refused(PostgresStore(role).executions, "permission denied")
    name = urlsplit(role).username
    query(postgres, f"GRANT USAGE ON SCHEMA ares TO {name}; GRANT SELECT ON ALL TABLES IN SCHEMA ares TO {name}")
    reader = PostgresStore(role)

    assert [row.execution_id for row in reader.executions()] == ["e1"]
    assert seqs(reader) == [1]
    refused(reader.open, "may not do that", "permission denied")


def test_a_user_who_may_not_make_a_schema_is_told_so(role: str) -> None:
    error = refused(PostgresStore(role).open, "may not do that", "permission denied for database")

    password = urlsplit(role).password
    assert password
    assert password not in f"{error!r}{error}{error.store}"


def test_a_database_that_is_read_only_is_listed_and_not_opened(postgres: str) -> None:
    with opened(postgres):
        pass
    reader = PostgresStore(f"{postgres}&options=-cdefault_transaction_read_only%3Don")

    assert reader.executions() == []
    refused(reader.open, "can only be read")


def test_a_database_without_a_store_says_so_to_who_reads(postgres: str) -> None:
    refused(PostgresStore(postgres).executions, "the schema 'ares' is not there yet")
    refused(lambda: PostgresStore(postgres).start_lease(this_process()), "not open")

    assert tables(postgres) == []


def test_a_database_of_another_encoding_is_refused(postgres: str) -> None:
    name = f"latin_{os.getpid()}_{secrets.token_hex(4)}"
    query(postgres, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        refused(PostgresStore(urlsplit(postgres)._replace(path=f"/{name}").geturl()).open, "LATIN1", "UTF8")
    finally:
        query(postgres, f"DROP DATABASE {name}")


def test_an_older_server_is_refused_by_its_number(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_schema, "OLDEST", 99)

    refused(PostgresStore(postgres).open, "ares needs 99 or newer")


def test_a_standby_is_listed_and_not_opened() -> None:
    server = Server()
    try:
        with opened(server.url()) as store:
            store.create(new(), store.start_lease(this_process()), "RUNNING", rows(1))
        server.stop(gently=True)
        server.start(standby=True)
        standby = PostgresStore(server.url())

        assert seqs(standby) == [1]
        refused(standby.open, "standby")
    finally:
        server.close()
