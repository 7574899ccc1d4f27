"""The PostgreSQL store fulfils the contract of a store."""

import itertools
from collections.abc import Callable

import pytest

from ares.journal.protocol import Store
from ares.stores.postgres import PostgresStore
from tests.stores.store_contract import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def make_store(self, postgres: str) -> Callable[[], Store]:
        numbers = itertools.count()
        return lambda: PostgresStore(f"{postgres}&schema=s{next(numbers)}")
