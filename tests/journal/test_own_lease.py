"""The lease of one journal, and what it does about the others'."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from ares.errors import StoreError
from ares.journal.own_lease import OwnLease
from ares.journal.owner import this_process
from ares.journal.protocol import Owner
from ares.stores.volatile import VolatileStore
from tests.journal.spy_store import join_all, new, run_all

TIMEOUT = 0.06
ELSEWHERE = attrs.evolve(this_process(), machine="elsewhere", boot="another", host="elsewhere", beats_every=0.01)


@pytest.fixture
def store() -> VolatileStore:
    return VolatileStore()


@pytest.fixture
def lost() -> list[int]:
    return []


@pytest.fixture
def own(store: VolatileStore, lost: list[int]) -> Iterator[OwnLease]:
    made = OwnLease(store, TIMEOUT, lambda: lost.append(1))
    made.begin()
    yield made
    made.end()


def beat_until(own: OwnLease, condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        own.beat()
        own.look_around()
        threading.Event().wait(own.beats_every)


def test_an_owner_elsewhere_that_gives_no_sign_is_taken_for_gone_and_in_the_end_forgotten(
    store: VolatileStore, own: OwnLease
) -> None:
    silent = store.start_lease(ELSEWHERE)
    store.create(new(), silent, "RUNNING", [])
    (held,) = (each for each in store.leases() if each.number == silent)
    assert not own.is_gone(held)
    assert own.is_live(store.execution("e1"))

    beat_until(own, lambda: own.is_gone(held))
    assert not own.is_live(store.execution("e1"))
    assert held in store.leases()
    beat_until(own, lambda: held not in store.leases())

    assert own.number is not None
    assert store.claim("e1", own.number, is_gone=own.is_gone).was_abandoned


def test_an_owner_elsewhere_that_beats_is_never_gone(store: VolatileStore, own: OwnLease) -> None:
    live = store.start_lease(ELSEWHERE)
    looks: list[bool] = []

    def beats() -> bool:
        assert store.beat(live)
        looks.append(any(own.is_gone(each) for each in store.leases()))
        return len(looks) == 100

    beat_until(own, beats)

    assert not any(looks)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_dead_process_of_this_machine_is_forgotten(store: VolatileStore, own: OwnLease, at_once: bool) -> None:
    dead: Owner = attrs.evolve(this_process(), started="1")  # the pid was somebody else's
    number = store.start_lease(dead)
    store.create(new(), number, "RUNNING", [])

    if at_once:
        own.clear_away()
    else:
        beat_until(own, lambda: len(store.leases()) == 1)

    assert [each.number for each in store.leases()] == [own.number]
    assert own.number is not None
    assert store.claim("e1", own.number, is_gone=own.is_gone).was_abandoned


class Away(VolatileStore):
    """Takes no beats while it is told not to; reads go on."""

    is_away = False

    def beat(self, lease: int) -> bool:
        if self.is_away:
            raise StoreError(self.name, "somebody holds the lock")
        return super().beat(lease)


def test_while_nobody_can_beat_nobody_is_taken_for_gone() -> None:
    store = Away()
    own = OwnLease(store, TIMEOUT, lambda: None)
    own.begin()
    live = store.start_lease(ELSEWHERE)
    own.beat()
    own.look_around()
    store.is_away = True
    for _ in range(20):
        with pytest.raises(StoreError):
            own.beat()
        threading.Event().wait(own.beats_every)
    store.is_away = False
    own.beat()
    own.look_around()

    assert not any(own.is_gone(each) for each in store.leases() if each.number == live)
    own.end()


def test_of_many_threads_that_find_the_lease_gone_one_takes_another(
    store: VolatileStore, own: OwnLease, lost: list[int]
) -> None:
    for _ in range(20):
        before = own.number
        assert before is not None
        store.end_lease(before)
        barrier, got = threading.Barrier(8), list[int]()

        def renew(before: int = before, barrier: threading.Barrier = barrier, got: list[int] = got) -> None:
            barrier.wait(10)
            got.append(own.renew(before))

        join_all(run_all(*[renew] * 8))

        assert set(got) == {own.number}
        assert [each.number for each in store.leases()] == [own.number]
    assert len(lost) == 20


def test_a_lease_that_was_ended_is_not_taken_anew(store: VolatileStore, own: OwnLease, lost: list[int]) -> None:
    before = own.number
    assert before is not None
    own.end()
    own.end()

    own.beat()
    with pytest.raises(StoreError, match="closed"):
        own.renew(before)

    assert store.leases() == []
    assert lost == []


@pytest.mark.parametrize(("timeout", "beats_every"), [(0.6, 0.1), (6.0, 1.0), (30.0, 5.0), (3_600.0, 5.0)])
def test_there_are_six_beats_in_the_timeout_and_one_in_five_seconds(timeout: float, beats_every: float) -> None:
    store: Any = VolatileStore()
    own = OwnLease(store, timeout, lambda: None)
    own.begin()

    assert own.beats_every == pytest.approx(beats_every)
    assert store.leases()[0].owner.beats_every == own.beats_every
