"""What a store must do with entries, and with the status that goes with them."""

import pytest

from ares.errors import LeaseLostError, StoreError
from ares.journal.protocol import Append, Entry, Store
from ares.testing.contracts._store_base import StoreFixtures, add, alive, new, rows, seqs


class EntriesContract(StoreFixtures):
    """A part of ``StoreContract``."""

    # --- entries ---

    def test_entries_come_back_in_order_from_any_number(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1, 3))
        assert add(store, claim, 4, 1_500) is None

        assert seqs(store) == list(range(1, 1_504))
        assert seqs(store, after=1_500) == [1_501, 1_502, 1_503]
        assert seqs(store, after=1_503) == []
        assert store.execution("e1").last_seq == 1_503

    def test_a_reader_sees_what_is_appended_while_it_reads(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1, 2_000))
        reader = store.entries("e1")
        next(reader)

        assert add(store, claim, 2_001, 10) is None

        assert [entry.seq for entry in reader] == list(range(2, 2_011))

    def test_one_call_takes_appends_of_many_executions_and_several_of_one(self, store: Store, lease: int) -> None:
        one, two = (store.create(new(id_), lease, "RUNNING", []) for id_ in ("e1", "e2"))

        results = store.append(
            [Append(one, rows(1, 2)), Append(two, rows(1)), Append(one, rows(3)), Append(one, rows(4, 200))], sync=False
        )

        assert list(results) == [None] * 4
        assert (seqs(store, "e1"), seqs(store, "e2")) == (list(range(1, 204)), [1])

    def test_a_repeated_append_changes_nothing(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))
        entries = rows(2, 3)
        for part in (entries[:2], entries, entries, entries[1:]):
            assert list(store.append([Append(claim, part)], sync=True)) == [None]

        assert seqs(store) == [1, 2, 3, 4]

    def test_the_same_append_twice_in_one_call_is_stored_once(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))
        append = Append(claim, rows(2, 2))

        assert list(store.append([append, append], sync=True)) == [None, None]

        assert seqs(store) == [1, 2, 3]

    def test_an_entry_is_never_replaced_by_another_one_of_its_number(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))
        assert add(store, claim, 2) is None

        (result,) = store.append([Append(claim, rows(2, 2, body='{"other": 1}'))], sync=True)

        assert isinstance(result, StoreError)
        assert result.execution_id == "e1"
        assert seqs(store) == [1, 2]

    @pytest.mark.parametrize("entries", [rows(3), [*rows(2), *rows(4)], [*rows(2), *rows(2)]])
    def test_a_hole_is_refused(self, store: Store, lease: int, entries: list[Entry]) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))

        (result,) = store.append([Append(claim, entries)], sync=True)

        assert isinstance(result, StoreError)
        assert seqs(store) == [1]

    def test_entries_from_before_the_claim_cannot_be_repeated(self, store: Store, lease: int) -> None:
        first = rows(1)
        store.release(store.create(new(), lease, "RUNNING", first))
        claim = store.claim("e1", lease, is_gone=alive)

        (result,) = store.append([Append(claim, [*first, *rows(2)])], sync=True)

        assert isinstance(result, StoreError)
        assert seqs(store) == [1]

    def test_what_is_refused_of_one_execution_leaves_the_others_alone(self, store: Store, lease: int) -> None:
        claims = [store.create(new(f"e{n}"), lease, "RUNNING", []) for n in range(60)]
        store.release(claims[7])

        results = store.append(
            [Append(claim, rows(2 if n == 30 else 1), status="WAITING") for n, claim in enumerate(claims)], sync=True
        )

        assert {n for n, result in enumerate(results) if result is not None} == {7, 30}
        assert isinstance(results[7], LeaseLostError)
        assert isinstance(results[30], StoreError)
        assert [n for n in range(60) if seqs(store, f"e{n}") != [1]] == [7, 30]
        assert [n for n in range(60) if store.execution(f"e{n}").status != "WAITING"] == [7, 30]

    def test_no_appends_are_no_work(self, store: Store) -> None:
        assert list(store.append([], sync=True)) == []

    # --- statuses ---

    def test_the_status_goes_with_the_entries_that_lead_to_it(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "PENDING", [])
        assert add(store, claim, 1, status="RUNNING") is None
        assert add(store, claim, 2) is None
        assert store.execution("e1").status == "RUNNING"

        (result,) = store.append([Append(claim, rows(3, at=77), status="FAILED", error="boom \ud800")], sync=True)

        row = store.execution("e1")
        assert result is None
        assert (row.status, row.ended_at, row.updated_at) == ("FAILED", 77, 77)
        assert row.error.startswith("boom ")

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
    def test_an_ended_execution_can_be_reopened(self, store: Store, lease: int, status: str) -> None:
        claim = store.create(new(), lease, "RUNNING", [])
        assert add(store, claim, 1, status=status, error="why") is None
        assert store.execution("e1").ended_at is not None

        assert add(store, claim, 2, status="RUNNING") is None

        row = store.execution("e1")
        assert (row.status, row.ended_at, row.error) == ("RUNNING", None, "")

    def test_a_status_may_change_without_an_entry(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))

        assert list(store.append([Append(claim, [], status="COMPLETED")], sync=True)) == [None]

        row = store.execution("e1")
        assert (row.status, row.last_seq) == ("COMPLETED", 1)
        assert row.ended_at is not None
