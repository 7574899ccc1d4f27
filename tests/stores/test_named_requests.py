"""Requests with a name are left once, whoever else leaves one; both stores."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.errors import ExecutionNotFoundError
from ares.journal.owner import is_gone, this_process
from ares.journal.protocol import Append, Claim, Store
from ares.stores.sqlite import SqliteStore
from ares.stores.volatile import VolatileStore
from tests.stores.children import finish, start
from tests.stores.store_contract import new, rows

RACERS = 8


@pytest.fixture(params=["volatile", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = VolatileStore() if request.param == "volatile" else SqliteStore(tmp_path / "a.db")
    made.open()
    yield made
    made.close()


@pytest.fixture
def lease(store: Store) -> int:
    return store.start_lease(this_process())


def begin(store: Store, lease: int | None, execution_id: str = "e1", status: str = "RUNNING") -> Claim | None:
    return store.create(new(execution_id), lease, status, rows(1))


def test_a_named_request_is_left_once_and_keeps_what_came_first(store: Store, lease: int) -> None:
    begin(store, lease)

    left = [store.request("e1", "answer", body, "q") for body in ("first", "second", "first")]

    assert left == [True, False, False]
    assert [(r.execution_id, r.kind, r.body, r.name) for r in store.requests(lease)] == [("e1", "answer", "first", "q")]
    assert store.execution("e1").requests == 1


def test_it_is_refused_still_when_it_was_carried_out(store: Store, lease: int) -> None:
    begin(store, lease)
    store.request("e1", "answer", "first", "q")
    (found,) = store.requests(lease)
    for _ in range(2):
        store.close_request(found.number)

    assert store.requests(lease) == []
    assert store.execution("e1").requests == 0
    assert not store.request("e1", "answer", "second", "q")
    assert store.named_requests("e1") == {"q"}
    assert store.requests(lease) == []


def test_names_are_of_one_execution_and_of_each_kind_together(store: Store, lease: int) -> None:
    begin(store, lease)
    begin(store, lease, "e2")

    assert store.request("e1", "answer", "", "q")
    assert store.request("e2", "answer", "", "q")
    assert not store.request("e2", "cancel", "", "q")
    assert [store.named_requests(name) for name in ("e1", "e2")] == [{"q"}, {"q"}]


@pytest.mark.parametrize("name", ["länge \U0001f600", "a'b\"; --", "x" * 10_000, '["a/b[0]", 1, 0, 1, "\\ud800"]'])
def test_any_text_is_a_name(store: Store, lease: int, name: str) -> None:
    begin(store, lease)

    assert store.request("e1", "answer", "body", name)
    assert not store.request("e1", "answer", "body", name)
    assert store.named_requests("e1") == {name}


def test_requests_without_a_name_are_left_as_often_as_one_likes(store: Store, lease: int) -> None:
    begin(store, lease)

    assert [store.request("e1", "cancel", body) for body in ("one", "one", "two")] == [True] * 3
    assert store.named_requests("e1") == frozenset()
    found = store.requests(lease)
    assert [(r.body, r.name) for r in found] == [("one", ""), ("one", ""), ("two", "")]
    for request in found:
        store.close_request(request.number)
    assert store.requests(lease) == []
    assert store.request("e1", "cancel", "three")


def test_one_is_left_for_an_execution_that_nobody_walks(store: Store) -> None:
    begin(store, None, status="WAITING")

    assert store.request("e1", "answer", "yes", "q")
    assert not store.request("e1", "answer", "no", "q")
    assert store.execution("e1").requests == 1
    lease = store.start_lease(this_process())
    store.claim("e1", lease, is_gone=is_gone)
    assert [r.body for r in store.requests(lease)] == ["yes"]


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_names_are_gone_with_the_end_and_none_is_taken_after_it(store: Store, lease: int, status: str) -> None:
    claim = begin(store, lease)
    assert claim is not None
    store.request("e1", "answer", "open", "q")
    store.request("e1", "answer", "done", "r")
    store.close_request(store.requests(lease)[1].number)
    store.append([Append(claim, rows(2), status)], sync=True)

    assert store.named_requests("e1") == frozenset()
    assert store.requests(lease) == []
    assert store.execution("e1").requests == 0
    assert not store.request("e1", "answer", "late", "s")


def test_an_execution_that_was_ended_and_goes_on_takes_the_name_again(store: Store, lease: int) -> None:
    claim = begin(store, lease)
    assert claim is not None
    store.request("e1", "answer", "first", "q")
    store.append([Append(claim, rows(2), "FAILED")], sync=True)
    store.append([Append(claim, rows(3), "RUNNING")], sync=True)

    assert store.request("e1", "answer", "second", "q")
    assert [r.body for r in store.requests(lease)] == ["second"]


def test_a_pruned_execution_takes_its_names_along(store: Store, lease: int) -> None:
    claim = begin(store, lease)
    assert claim is not None
    store.request("e1", "answer", "first", "q")
    store.append([Append(claim, rows(2, at=5), "COMPLETED")], sync=True)
    store.release(claim)
    assert store.prune(10) == 1

    with pytest.raises(ExecutionNotFoundError):
        store.named_requests("e1")
    begin(store, lease)
    assert store.request("e1", "answer", "first", "q")


def test_nobody_leaves_one_for_what_is_not_there(store: Store) -> None:
    with pytest.raises(ExecutionNotFoundError):
        store.request("nobody", "answer", "", "q")
    with pytest.raises(ExecutionNotFoundError):
        store.named_requests("nobody")


def test_of_many_threads_exactly_one_leaves_it(store: Store, lease: int) -> None:
    begin(store, lease)
    barrier = threading.Barrier(RACERS, timeout=30.0)
    left: list[str] = []

    def race(number: int) -> None:
        barrier.wait()
        if store.request("e1", "answer", str(number), "q"):
            left.append(str(number))

    racers = [threading.Thread(target=race, args=(number,), daemon=True) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30.0)

    assert [r.body for r in store.requests(lease)] == left
    assert len(left) == 1


def test_of_two_processes_exactly_one_leaves_each(tmp_path: Path) -> None:
    code = """
import sys
from ares.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
store.open()
print("open", flush=True)
sys.stdin.readline()
print(",".join(str(n) for n in range(100) if store.request("e1", "answer", sys.argv[2], str(n))))
store.close()
"""
    store = SqliteStore(tmp_path / "a.db")
    store.open()
    lease = store.start_lease(this_process())
    begin(store, lease)
    children = [start(code, tmp_path / "a.db", name) for name in ("left", "right")]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    left, right = ({int(n) for n in finish(child).split(",") if n.strip()} for child in children)

    assert left | right == set(range(100))
    assert not left & right
    assert {int(r.name) for r in store.requests(lease) if r.body == "left"} == left
    assert {int(r.name) for r in store.requests(lease) if r.body == "right"} == right
    store.close()
