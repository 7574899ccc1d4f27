"""What a store must do with claims and leases."""

import threading

import attrs
import pytest

from ares.errors import ExecutionBusyError, ExecutionNotFoundError, LeaseLostError
from ares.journal.owner import this_process
from ares.journal.protocol import Lease, Store
from ares.testing.contracts._store_base import StoreFixtures, add, alive, gone, new, rows


class ClaimsContract(StoreFixtures):
    """A part of ``StoreContract``."""

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
        store.beat(dead)
        asked: list[Lease] = []

        def is_gone(held: Lease) -> bool:
            asked.append(held)
            return True

        claim = store.claim("e1", lease, is_gone=is_gone)

        assert [(held.number, held.owner) for held in asked] == [(dead, this_process())]
        assert [held.number for held in store.leases()] == [lease]
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

    def test_every_beat_raises_the_counter_of_its_lease_alone(self, store: Store, lease: int) -> None:
        other = store.start_lease(this_process())
        before = {held.number: held for held in store.leases()}

        assert all(store.beat(lease) for _ in range(3))

        after = {held.number: held for held in store.leases()}
        assert list(after) == [lease, other]
        assert after[lease].counter == before[lease].counter + 3
        assert (after[lease].owner, after[other]) == (this_process(), before[other])

    def test_a_lease_is_forgotten_unless_it_was_beaten_since_it_was_seen(self, store: Store, lease: int) -> None:
        owner = attrs.evolve(this_process(), beats_every=0.25)
        dead, live = store.start_lease(owner), store.start_lease(owner)
        old = store.create(new("dead"), dead, "RUNNING", rows(1))
        store.create(new("live"), live, "RUNNING", [])
        seen = {held.number: held for held in store.leases()}
        assert store.beat(live)

        for held in (seen[dead], seen[dead], seen[live]):
            store.forget_lease(held)

        assert seen[dead].owner == owner
        assert [held.number for held in store.leases()] == [lease, live]
        assert (store.execution("dead").live, store.execution("dead").lease) == (False, 0)
        assert not store.beat(dead)
        assert isinstance(add(store, old, 2), LeaseLostError)
        assert store.claim("dead", lease, is_gone=alive).was_abandoned
        with pytest.raises(ExecutionBusyError):
            store.claim("live", lease, is_gone=alive)

    def test_an_execution_shows_the_lease_that_claims_it(self, store: Store, lease: int) -> None:
        claim = store.create(new(), lease, "RUNNING", rows(1))
        claimed = store.execution("e1").lease
        store.release(claim)

        assert (claimed, store.execution("e1").lease) == (lease, 0)

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
