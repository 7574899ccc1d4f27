"""Where a PostgreSQL store is: what its URL means, and what is said of one that leads nowhere."""

import secrets

import pytest

from ares.errors import UsageError
from ares.stores.opening import open_store
from ares.stores.postgres import PostgresStore
from tests.postgres import Server
from tests.stores.children import run
from tests.stores.on_postgres import query, refused


def test_a_wrong_address_is_an_error_that_names_it_and_not_the_password(own_postgres: Server, postgres: str) -> None:
    secret, name = "hush-hush", f"asked_{secrets.token_hex(4)}"
    hba = own_postgres.folder / "data" / "pg_hba.conf"
    hba.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
    query(postgres, f"CREATE ROLE {name} LOGIN PASSWORD 'another one'; SELECT pg_reload_conf()")
    here = f"127.0.0.1:{own_postgres.port}"
    expected = {
        f"postgresql://{name}:{secret}@{here}/postgres": "password authentication failed",
        f"postgresql://ares:{secret}@{here}/nowhere": 'database "nowhere" does not exist',
        f"postgresql://nobody:{secret}@{here}/postgres": 'role "nobody" does not exist',
        f"postgresql://ares:{secret}@{here}/postgres?sslmode=require": "server does not support SSL",
        f"postgresql://ares:{secret}@127.0.0.1:1/postgres": "Connection refused",
        f"postgresql://ares:{secret}@no-such-host.invalid/postgres": "no-such-host.invalid",
        f"postgresql://ares:{secret}@/postgres?host=/nowhere": "No such file",
    }
    try:
        for address, cause in expected.items():
            store = PostgresStore(address)
            for call in (store.open, store.executions):
                error = refused(call, cause, store.name)
                chain = f"{error!r} {error} {error.__cause__!r}"
                assert secret not in chain
    finally:
        query(postgres, f"DROP ROLE {name}")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from ares import Runtime
from ares.errors import UsageError
try:
    Runtime("postgresql://me:secret@host/db")
except UsageError as error:
    print(error)
"""
    told = run(code)

    assert "pip install 'ares-workflow[postgres]'" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:secret@host:5433/db?sslmode=disable", "postgresql://me@host:5433/db"),
        ("postgres://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://host/db?password=secret&user=me", "postgresql://me@host/db"),
        ("postgresql://m%40e:secret%2F@[::1]:5/d%20b?schema=x", "postgresql://m%40e@[::1]:5/d%20b?schema=x"),
        ("postgresql://me:secret@a:1,b:2/db", "postgresql://me@a:1,b:2/db"),
        ("postgresql://me:secret@/db?host=/tmp/x", "postgresql://me@/db?host=/tmp/x"),
    ],
)
def test_the_name_of_a_store_is_its_url_without_the_password(url: str, name: str) -> None:
    store = open_store(url)

    assert isinstance(store, PostgresStore)
    assert store.name == name
    assert "secret" not in repr(vars(store))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sec?ret@host/db",
        "postgresql://me:sec%zzret@host/db",
        "postgresql://me:sec#ret@host/db",
        "postgresql://me:sec/ret@host/db",
        "postgresql://me:12/ret@host/db",
        "postgresql://me:12?ret=3@host/db",
        "postgresql://me:secret@host:port/db",
        "postgresql://me:secret@[::1/db",
        "postgresql://me:secret@host/db?sslmode",
        "postgresql://me:secret@host/db?no_such_thing=1",
        "postgresql://me:secret@host/db?schema=",
        "postgresql://me:secret@host/db?schema=pg_mine",
        "postgresql://me:secret@host/db?schema=" + "x" * 64,
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_a_word_of_its_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)

    story = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert not any(part in story for part in ("secret", "sec?", "ret@", "sec%", "sec#", "sec/", "12"))


def test_a_parameter_that_there_is_not_is_named() -> None:
    with pytest.raises(UsageError, match="no such parameter: 'no_such_thing'"):
        PostgresStore("postgresql://host/db?no_such_thing=1")
