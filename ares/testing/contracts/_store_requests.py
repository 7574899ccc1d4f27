"""What a store must do with requests from outside: cancels, and answers, of which the first counts."""

import threading

import pytest

from ares.errors import ExecutionNotFoundError
from ares.journal.owner import this_process
from ares.journal.protocol import Append, Claim, Store
from ares.testing.contracts._store_base import StoreFixtures, add, alive, new, rows

#: Threads that want to be first.
_RACERS = 8


def _begin(store: Store, lease: int | None, execution_id: str = "e1", status: str = "RUNNING") -> Claim | None:
    return store.create(new(execution_id), lease, status, rows(1))


class RequestsContract(StoreFixtures):
    """A part of ``StoreContract``."""

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

    # --- those with a name, which are left once ---

    def test_a_named_request_is_left_once_and_keeps_what_came_first(self, store: Store, lease: int) -> None:
        _begin(store, lease)

        left = [store.request("e1", "answer", body, "q") for body in ("first", "second", "first")]

        assert left == [True, False, False]
        assert [(r.execution_id, r.kind, r.body, r.name) for r in store.requests(lease)] == [
            ("e1", "answer", "first", "q")
        ]
        assert store.execution("e1").requests == 1

    def test_it_is_refused_still_when_it_was_carried_out(self, store: Store, lease: int) -> None:
        _begin(store, lease)
        store.request("e1", "answer", "first", "q")
        (found,) = store.requests(lease)
        for _ in range(2):
            store.close_request(found.number)

        assert store.requests(lease) == []
        assert store.execution("e1").requests == 0
        assert not store.request("e1", "answer", "second", "q")
        assert store.named_requests("e1") == {"q"}
        assert store.requests(lease) == []

    def test_names_are_of_one_execution_and_of_each_kind_together(self, store: Store, lease: int) -> None:
        _begin(store, lease)
        _begin(store, lease, "e2")

        assert store.request("e1", "answer", "", "q")
        assert store.request("e2", "answer", "", "q")
        assert not store.request("e2", "cancel", "", "q")
        assert [store.named_requests(name) for name in ("e1", "e2")] == [{"q"}, {"q"}]

    @pytest.mark.parametrize("name", ["länge \U0001f600", "a'b\"; --", "x" * 10_000, '["a/b[0]", 1, 0, 1, "\\ud800"]'])
    def test_any_text_is_a_name(self, store: Store, lease: int, name: str) -> None:
        _begin(store, lease)

        assert store.request("e1", "answer", "body", name)
        assert not store.request("e1", "answer", "body", name)
        assert store.named_requests("e1") == {name}

    def test_requests_without_a_name_are_left_as_often_as_one_likes(self, store: Store, lease: int) -> None:
        _begin(store, lease)

        assert [store.request("e1", "cancel", body) for body in ("one", "one", "two")] == [True] * 3
        assert store.named_requests("e1") == frozenset()
        found = store.requests(lease)
        assert [(r.body, r.name) for r in found] == [("one", ""), ("one", ""), ("two", "")]
        for request in found:
            store.close_request(request.number)
        assert store.requests(lease) == []
        assert store.request("e1", "cancel", "three")

    def test_one_is_left_for_an_execution_that_nobody_walks(self, store: Store) -> None:
        _begin(store, None, status="WAITING")

        assert store.request("e1", "answer", "yes", "q")
        assert not store.request("e1", "answer", "no", "q")
        assert store.execution("e1").requests == 1
        lease = store.start_lease(this_process())
        store.claim("e1", lease, is_gone=alive)
        assert [r.body for r in store.requests(lease)] == ["yes"]

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
    def test_names_are_gone_with_the_end_and_none_comes_after_it(self, store: Store, lease: int, status: str) -> None:
        claim = _begin(store, lease)
        assert claim is not None
        store.request("e1", "answer", "open", "q")
        store.request("e1", "answer", "done", "r")
        store.close_request(store.requests(lease)[1].number)
        store.append([Append(claim, rows(2), status)], sync=True)

        assert store.named_requests("e1") == frozenset()
        assert store.requests(lease) == []
        assert store.execution("e1").requests == 0
        assert not store.request("e1", "answer", "late", "s")

    def test_an_execution_that_was_ended_and_goes_on_takes_the_name_again(self, store: Store, lease: int) -> None:
        claim = _begin(store, lease)
        assert claim is not None
        store.request("e1", "answer", "first", "q")
        store.append([Append(claim, rows(2), "FAILED")], sync=True)
        store.append([Append(claim, rows(3), "RUNNING")], sync=True)

        assert store.request("e1", "answer", "second", "q")
        assert [r.body for r in store.requests(lease)] == ["second"]

    def test_a_pruned_execution_takes_its_names_along(self, store: Store, lease: int) -> None:
        claim = _begin(store, lease)
        assert claim is not None
        store.request("e1", "answer", "first", "q")
        store.append([Append(claim, rows(2, at=5), "COMPLETED")], sync=True)
        store.release(claim)
        assert store.prune(10) == 1

        with pytest.raises(ExecutionNotFoundError):
            store.named_requests("e1")
        _begin(store, lease)
        assert store.request("e1", "answer", "first", "q")

    def test_nobody_leaves_one_for_what_is_not_there(self, store: Store) -> None:
        with pytest.raises(ExecutionNotFoundError):
            store.request("nobody", "answer", "", "q")
        with pytest.raises(ExecutionNotFoundError):
            store.named_requests("nobody")

    def test_of_many_threads_exactly_one_leaves_it(self, store: Store, lease: int) -> None:
        _begin(store, lease)
        barrier = threading.Barrier(_RACERS, timeout=30.0)
        left: list[str] = []

        def race(number: int) -> None:
            barrier.wait()
            if store.request("e1", "answer", str(number), "q"):
                left.append(str(number))

        racers = [threading.Thread(target=race, args=(number,), daemon=True) for number in range(_RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(30.0)

        assert [r.body for r in store.requests(lease)] == left
        assert len(left) == 1
