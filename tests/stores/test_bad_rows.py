"""A row that cannot be stored is refused, and no other one beside it."""

from collections.abc import Iterator

import pytest

from ares.errors import StoreError
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Entry, Store
from ares.stores.opening import open_store
from tests.stores.store_contract import add, new, rows, seqs


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    made = open_store(place)
    made.open()
    yield made
    made.close()


BAD: list[Entry] = [
    Entry(1, 0, "fact", "p", object()),
    Entry(1, 0, "fact", "p", None),
    Entry(1, 2**70, "fact", "p", "{}"),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_row_is_refused_alone_and_what_follows_it_in_its_execution(store: Store, bad: Entry) -> None:
    lease = store.start_lease(this_process())
    claims = [store.create(new(f"e{n}"), lease, "RUNNING", []) for n in range(60)]
    appends = [Append(claim, rows(1, 3), status="WAITING") for claim in claims]
    appends[20] = Append(claims[20], [bad], status="WAITING")
    appends.append(Append(claims[20], rows(2), status="WAITING"))
    appends.append(Append(claims[21], rows(4)))

    results = store.append(appends, sync=True)

    assert [n for n, result in enumerate(results) if result is not None] == [20, 60]
    assert isinstance(results[20], StoreError)
    assert results[20].execution_id == "e20"
    assert [len(seqs(store, f"e{n}")) for n in range(60)] == [3] * 20 + [0, 4] + [3] * 38
    assert store.execution("e20").status == "RUNNING"
    assert add(store, claims[20], 1) is None
