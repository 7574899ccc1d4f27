"""The SQLite store fulfils the contract of a store."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ares.journal.protocol import Store
from ares.stores.sqlite import SqliteStore
from tests.stores.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], Store]:
        numbers = itertools.count()
        return lambda: SqliteStore(tmp_path / f"{next(numbers)}.db")
