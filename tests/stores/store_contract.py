"""What every store must do. A store's own test module subclasses ``StoreContract`` and gives it ``make_store``."""

import threading
import time
from collections.abc import Callable, Iterator

import attrs
import pytest

from ares.errors import (
    ExecutionBusyError,
    ExecutionExistsError,
    ExecutionNotFoundError,
    LeaseLostError,
    StoreError,
)
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Claim, Entry, NewExecution, Owner, Store


def new(execution_id: str = "e1", **changes: object) -> NewExecution:
    """An execution as it might be."""
    given = {
        "workflow_id": "wf",
        "workflow_version": "1",
        "parent_id": None,
        "metadata": {},
        "created_at": time.time_ns(),
    }
    return NewExecution(execution_id, **{**given, **changes})  # type: ignore[arg-type]


def rows(first: int, count: int = 1, *, at: int | None = None, body: str = "{}", path: str = "step") -> list[Entry]:
    """``count`` entries from ``first`` onwards."""
    now = time.time_ns() if at is None else at
    return [Entry(seq, now, "fact", path, body) for seq in range(first, first + count)]


def add(store: Store, claim: Claim, first: int, count: int = 1, **more: object) -> Exception | None:
    """Append some entries under a claim; the result."""
    (result,) = store.append([Append(claim, rows(first, count), **more)], sync=True)  # type: ignore[arg-type]
    return result


def seqs(store: Store, execution_id: str = "e1", after: int = 0) -> list[int]:
    """The numbers of what is stored."""
    return [entry.seq for entry in store.entries(execution_id, after)]


def alive(_owner: Owner) -> bool:
    return False


def gone(_owner: Owner) -> bool:
    return True


class StoreContract:
    """The contract."""

    @pytest.fixture
    def make_store(self) -> Callable[[], Store]:
        """A function that makes a store, not yet opened; each call of it another object on a place of its own."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: Callable[[], Store]) -> Iterator[Store]:
        made = make_store()
        made.open()
        yield made
        made.close()

    @pytest.fixture
    def lease(self, store: Store) -> int:
        return store.start_lease(this_process())

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
        calls = [
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

    # --- claims and leases ---

    def test_a_claim_stands_against_everybody_the_same_lease_included(self, store: Store, lease: int) -> None:
        store.create(new(), lease, "RUNNING", [])
        other = store.start_lease(this_process())

        for taker in (lease, other):
            with pytest.raises(ExecutionBusyError) as caught:
                store.claim("e1", taker, is_gone=alive)
            assert caught.value.execution_id == "e1"
            assert f"pid {this_process().pid} on host" in caught.value.owner
            assert caught.value.age >= 0

    def test_a_claim_given_back_is_free_and_the_old_one_writes_nothing_more(self, store: Store, lease: int) -> None:
        old = store.create(new(), lease, "RUNNING", rows(1))
        store.release(old)
        assert not store.execution("e1").live
        claim = store.claim("e1", lease, is_gone=alive)

        assert claim.number > old.number
        assert isinstance(add(store, old, 2), LeaseLostError)
        assert add(store, claim, 2) is None

        store.release(old)
        assert add(store, claim, 3) is None

    def test_the_claim_of_an_owner_that_is_gone_is_free(self, store: Store, lease: int) -> None:
        dead = store.start_lease(this_process())
        old = store.create(new(), dead, "RUNNING", rows(1))
        asked: list[Owner] = []

        claim = store.claim("e1", lease, is_gone=lambda owner: not asked.append(owner))

        assert asked == [this_process()]
        assert (claim.lease, claim.last_seq) == (lease, 1)
        assert isinstance(add(store, old, 2), LeaseLostError)
        assert add(store, claim, 2) is None
        with pytest.raises(ExecutionBusyError):
            store.claim("e1", lease, is_gone=alive)

    def test_a_claim_says_whether_the_one_before_was_given_back(self, store: Store, lease: int) -> None:
        store.create(new("never held"), None, "PENDING", [])
        store.release(store.create(new("released"), lease, "RUNNING", []))
        closed, dead = store.start_lease(this_process()), store.start_lease(this_process())
        store.create(new("closed"), closed, "RUNNING", [])
        store.create(new("dead"), dead, "RUNNING", [])
        store.create(new("of the dead, too"), dead, "RUNNING", [])
        store.end_lease(closed)

        claims = {id_: store.claim(id_, lease, is_gone=gone) for id_ in ("never held", "released", "closed", "dead")}
        store.release(claims["dead"])
        claims["taken over and released"] = store.claim("dead", lease, is_gone=gone)
        claims["of the dead, too"] = store.claim("of the dead, too", lease, is_gone=gone)

        assert {id_ for id_, claim in claims.items() if claim.was_abandoned} == {"dead", "of the dead, too"}

    def test_the_end_of_a_lease_gives_back_its_claims_and_no_others(self, store: Store, lease: int) -> None:
        other = store.start_lease(this_process())
        mine, theirs = store.create(new("e1"), lease, "RUNNING", []), store.create(new("e2"), other, "RUNNING", [])
        assert store.beat(lease)

        store.end_lease(lease)
        store.end_lease(lease)

        assert not store.beat(lease)
        assert isinstance(add(store, mine, 1), LeaseLostError)
        assert add(store, theirs, 1) is None
        assert (store.execution("e1").live, store.execution("e2").live) == (False, True)
        assert store.claim("e1", other, is_gone=alive).number > mine.number

    def test_a_lease_that_has_ended_takes_and_makes_nothing(self, store: Store, lease: int) -> None:
        store.create(new(), None, "PENDING", [])
        store.end_lease(lease)

        with pytest.raises(LeaseLostError):
            store.claim("e1", lease, is_gone=alive)
        with pytest.raises(LeaseLostError):
            store.create(new("e2"), lease, "RUNNING", [])
        with pytest.raises(ExecutionNotFoundError):
            store.execution("e2")

    def test_of_many_that_claim_at_once_one_gets_it(self, store: Store) -> None:
        leases = [store.start_lease(this_process()) for _ in range(8)]
        store.create(new(), None, "PENDING", [])
        barrier, won = threading.Barrier(8), []

        def take(lease: int) -> None:
            barrier.wait()
            try:
                won.append(store.claim("e1", lease, is_gone=alive))
            except ExecutionBusyError:
                return

        threads = [threading.Thread(target=take, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(won) == 1
        assert add(store, won[0], 1) is None

    # --- the inbox ---

    def test_requests_reach_the_lease_that_claims_the_execution(self, store: Store, lease: int) -> None:
        other = store.start_lease(this_process())
        claim = store.create(new("e1"), lease, "RUNNING", [])
        store.create(new("e2"), other, "RUNNING", [])
        store.create(new("e3"), None, "PENDING", [])

        assert all(store.request(id_, "cancel", f'"{id_}"') for id_ in ("e1", "e2", "e3", "e1"))

        first, second = store.requests(lease)
        assert [(r.execution_id, r.kind, r.body) for r in (first, second)] == [("e1", "cancel", '"e1"')] * 2
        assert first.number < second.number
        assert [r.number for r in store.requests(lease, after=first.number)] == [second.number]
        assert store.execution("e1").requests == 2
        store.release(claim)
        assert list(store.requests(lease)) == []

    def test_a_request_waits_for_whoever_claims_the_execution_later(self, store: Store, lease: int) -> None:
        store.create(new(), None, "PENDING", [])
        assert store.request("e1", "answer", "{}")

        store.claim("e1", lease, is_gone=alive)

        assert [r.kind for r in store.requests(lease)] == ["answer"]

    def test_a_request_that_is_carried_out_does_not_come_back(self, store: Store, lease: int) -> None:
        store.create(new(), lease, "RUNNING", [])
        store.request("e1", "cancel", "{}")
        (request,) = store.requests(lease)

        store.close_request(request.number)
        store.close_request(request.number)
        store.request("e1", "cancel", "{}")

        (later,) = store.requests(lease)
        assert later.number > request.number
        assert store.execution("e1").requests == 1

    def test_an_ended_execution_takes_no_request(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", [])
        add(store, claim, 1, status="COMPLETED")

        assert store.request("e1", "cancel", "{}") is False
        assert list(store.requests(lease)) == []

    def test_ones_own_writing_is_no_change(self, store: Store, lease: int) -> None:
        store.changed()
        claim = store.create(new(), lease, "RUNNING", [])
        add(store, claim, 1)
        store.request("e1", "cancel", "{}")

        assert not store.changed()

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
