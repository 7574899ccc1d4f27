"""What every store must do."""

import threading
from collections.abc import Callable

import attrs
import pytest

from ares.errors import ExecutionExistsError, ExecutionNotFoundError, LeaseLostError
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Store
from ares.testing.contracts._store_base import add, alive, new, rows, seqs
from ares.testing.contracts._store_claims import ClaimsContract
from ares.testing.contracts._store_entries import EntriesContract
from ares.testing.contracts._store_requests import RequestsContract


class StoreContract(EntriesContract, ClaimsContract, RequestsContract):
    """The suite for stores.

    Subclass it with a fixture ``make_store``; every call of what that returns makes another store, on a place of its
    own, that was not opened yet::

        class TestRedisStore(StoreContract):
            @pytest.fixture
            def make_store(self):
                return lambda: RedisStore(fresh_url())
    """

    # --- executions ---

    def test_an_execution_is_there_with_its_first_entries_once_created(self, store: Store, lease: int) -> None:
        made = new(metadata={"customer": "7", "länge": "3"}, parent_id="p")

        claim = store.create(made, lease, "RUNNING", rows(1, 2))

        row = store.execution("e1")
        assert (claim.execution_id, claim.lease, claim.last_seq) == ("e1", lease, 2)
        assert attrs.asdict(row) | {"age": 0.0, "updated_at": 0} == {
            "execution_id": "e1",
            "workflow_id": "wf",
            "workflow_version": "1",
            "status": "RUNNING",
            "parent_id": "p",
            "metadata": {"customer": "7", "länge": "3"},
            "created_at": made.created_at,
            "updated_at": 0,
            "ended_at": None,
            "error": "",
            "last_seq": 2,
            "live": True,
            "owner": row.owner,
            "age": 0.0,
            "requests": 0,
            "lease": lease,
        }
        assert f"pid {this_process().pid} on host" in row.owner
        assert 0 <= row.age < 60
        assert seqs(store) == [1, 2]

    def test_an_id_that_is_taken_is_refused_and_nothing_changes(self, store: Store, lease: int) -> None:
        store.create(new(), lease, "RUNNING", rows(1))

        with pytest.raises(ExecutionExistsError) as caught:
            store.create(new(), lease, "RUNNING", rows(1, 3))

        assert (caught.value.execution_id, caught.value.status) == ("e1", "RUNNING")
        assert seqs(store) == [1]

    def test_creating_the_very_same_execution_twice_is_refused_too(self, store: Store, lease: int) -> None:
        made = new()
        store.create(made, lease, "RUNNING", rows(1))

        with pytest.raises(ExecutionExistsError):
            store.create(made, lease, "RUNNING", rows(1))

    def test_an_execution_created_without_a_lease_belongs_to_nobody(self, store: Store, lease: int) -> None:
        claim = store.create(new(), None, "PENDING", rows(1))

        assert not store.execution("e1").live
        assert isinstance(add(store, claim, 2), LeaseLostError)
        assert store.claim("e1", lease, is_gone=alive).last_seq == 1

    def test_an_unknown_execution_is_named(self, store: Store, lease: int) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.execution("no"),
            lambda: list(store.entries("no")),
            lambda: store.claim("no", lease, is_gone=alive),
            lambda: store.request("no", "cancel", "{}"),
        ]
        for call in calls:
            with pytest.raises(ExecutionNotFoundError) as caught:
                call()
            assert caught.value.execution_id == "no"

    def test_executions_are_listed_newest_first_and_filtered(self, store: Store, lease: int) -> None:
        for number in range(6):
            store.create(
                new(f"e{number}", workflow_id=f"w{number % 2}", metadata={"n": str(number % 3), "all": "1"}),
                lease,
                "RUNNING" if number < 4 else "PENDING",
                rows(1),
            )

        def ids(**filters: object) -> list[str]:
            return [row.execution_id for row in store.executions(**filters)]  # type: ignore[arg-type]

        assert ids() == ["e5", "e4", "e3", "e2", "e1", "e0"]
        assert ids(limit=2) == ["e5", "e4"]
        assert ids(limit=0) == []
        assert ids(statuses=["PENDING"]) == ["e5", "e4"]
        assert ids(statuses=iter(("PENDING", "RUNNING")), limit=3) == ["e5", "e4", "e3"]
        assert ids(statuses=[]) == []
        assert ids(workflow_id="w1") == ["e5", "e3", "e1"]
        assert ids(metadata={"n": "0"}) == ["e3", "e0"]
        assert ids(metadata={"n": "0", "all": "1"}, limit=1) == ["e3"]
        assert ids(metadata={"n": "9"}) == []

    def test_many_executions_are_listed_over_pages(self, store: Store, lease: int) -> None:
        for number in range(1_203):
            store.create(new(f"e{number}", metadata={"last": str(number % 10)}), lease, "RUNNING", [])

        assert len(store.executions()) == 1_203
        assert [row.execution_id for row in store.executions(metadata={"last": "2"}, limit=121)][-1] == "e2"

    def test_strange_ids_are_kept_as_they_are(self, store: Store, lease: int) -> None:
        strange = [
            "../../x",
            "/etc/x",
            "..",
            " ",
            "a\0b",
            "CON",
            "x" * 300,
            "-x",
            "ä\u202e\U0001f600",
            "%s' OR 1=1; --",
        ]
        for id_ in strange:
            claim = store.create(new(id_, workflow_id=id_), lease, "RUNNING", rows(1, path=id_))
            assert add(store, claim, 2) is None
            assert store.execution(id_).workflow_id == id_
            assert [entry.path for entry in store.entries(id_)] == [id_, "step"]

        assert {row.execution_id for row in store.executions()} == set(strange)

    # --- upkeep ---

    def test_prune_takes_what_ended_before_and_nothing_else(self, store: Store, lease: int) -> None:
        for id_, status, at in [
            ("old", "COMPLETED", 100),
            ("older", "FAILED", 50),
            ("child", "CANCELLED", 60),
            ("young", "COMPLETED", 200),
            ("waiting", "WAITING", 50),
            ("cut short", "RUNNING", 50),
            ("held", "COMPLETED", 50),
        ]:
            parent = "old" if id_ == "child" else None
            claim = store.create(new(id_, parent_id=parent), lease, "RUNNING", rows(1, 40, at=1))
            store.request(id_, "cancel", "{}")
            store.append([Append(claim, rows(41, at=at), status=status)], sync=True)
            if id_ != "held":
                store.release(claim)

        assert store.prune(200) == 3
        assert store.prune(200) == 0

        left = {row.execution_id for row in store.executions()}
        assert left == {"young", "waiting", "cut short", "held"}
        assert all(len(seqs(store, id_)) == 41 for id_ in left)
        with pytest.raises(ExecutionNotFoundError):
            list(store.entries("old"))

    def test_an_id_that_was_pruned_can_be_used_again_and_old_claims_mean_nothing(
        self, store: Store, lease: int
    ) -> None:
        old = store.create(new(), lease, "RUNNING", [])
        store.append([Append(old, rows(1, at=1), status="COMPLETED")], sync=True)
        store.release(old)
        assert store.prune(2) == 1

        claim = store.create(new(), lease, "RUNNING", rows(1))

        assert isinstance(add(store, old, 2), LeaseLostError)
        assert add(store, claim, 2) is None
        assert seqs(store) == [1, 2]

    def test_compacting_changes_nothing_that_can_be_read(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1, 10))

        store.compact()

        assert seqs(store) == list(range(1, 11))
        assert add(store, claim, 11) is None

    # --- threads ---

    def test_any_thread_may_call(self, store: Store, lease: int) -> None:
        barrier = threading.Barrier(6)
        failures: list[object] = []

        def work(number: int) -> None:
            barrier.wait()
            claim = store.create(new(f"e{number}"), lease, "RUNNING", [])
            for seq in range(1, 40):
                failures.append(add(store, claim, seq))
                failures.append(None if seqs(store, f"e{number}")[-1] == seq else "unread")
            store.release(claim)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [failure for failure in failures if failure] == []
        assert sum(row.last_seq for row in store.executions()) == 6 * 39

    def test_opening_and_closing_may_be_repeated(self, make_store: Callable[[], Store]) -> None:
        store = make_store()
        store.inspect()
        store.close()
        for _ in range(3):
            store.open()
            store.open()
            store.start_lease(this_process())
            store.close()
            store.close()
        store.inspect()
        assert store.name
