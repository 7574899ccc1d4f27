"""The volatile store: the contract, and that it keeps references."""

from collections.abc import Callable

import pytest

from ares.journal.owner import this_process
from ares.journal.protocol import Append, Entry, Store
from ares.stores.volatile import VolatileStore
from tests.stores.store_contract import StoreContract, new


class TestVolatileStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], Store]:
        return VolatileStore


def test_bodies_are_the_living_objects() -> None:
    store = VolatileStore()
    lease = store.start_lease(this_process())
    body = object()
    entry = Entry(1, 0, "fact", "p", body)
    claim = store.create(new(), lease, "RUNNING", [])

    store.append([Append(claim, [entry])], sync=True)

    (read,) = store.entries("e1")
    assert store.keeps_references
    assert (read.seq, read.at, read.kind, read.path) == (1, 0, "fact", "p")
    assert read.body is body
