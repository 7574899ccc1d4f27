"""What every thread of ares waits on."""

import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty

import pytest

from ares.postbox import Latch, Postbox
from tests.engine.helpers import eventually
from tests.engine.torn import Moment, interrupt

LONG = 20.0


def test_what_was_left_first_is_taken_first() -> None:
    box = Postbox[int]()
    for number in range(3):
        box.put(number)

    assert [box.get(), box.get(), box.get()] == [0, 1, 2]


def test_nothing_is_waited_for_unless_it_is_asked_for() -> None:
    with pytest.raises(Empty):
        Postbox[int]().get()


def test_a_wait_ends_when_something_comes() -> None:
    box = Postbox[str]()
    taken: list[str] = []
    reader = threading.Thread(target=lambda: taken.append(box.get(LONG)))
    reader.start()

    box.put("it")
    reader.join(LONG)

    assert taken == ["it"]


def test_a_wait_has_its_end_although_it_was_rung_for_what_is_gone() -> None:
    box = Postbox[int]()
    for _ in range(3):
        box.put(1)
        box.get()
    began = time.monotonic()

    with pytest.raises(Empty):
        box.get(0.05)

    assert 0.04 < time.monotonic() - began < LONG


def test_a_reader_with_short_waits_misses_nothing_of_many_writers() -> None:
    box = Postbox[int]()
    writers, each = 8, 5_000
    start = threading.Barrier(writers + 1)

    def write() -> None:
        start.wait(LONG)
        for number in range(each):
            box.put(number)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    start.wait(LONG)
    taken, give_up = 0, time.monotonic() + LONG
    while taken < writers * each and time.monotonic() < give_up:
        try:
            box.get(0.000_05)
        except Empty:
            continue
        taken += 1
    for thread in threads:
        thread.join(LONG)

    assert taken == writers * each


def test_a_finalizer_may_put_while_its_thread_takes() -> None:
    box = Postbox[str]()

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            box.put("from a finalizer")

    Last()
    gc.collect()

    assert box.get(LONG) == "from a finalizer"


# --- latches ----------------------------------------------------------------------------------------------------------


def test_whoever_waits_for_a_latch_goes_on_when_it_is_set_and_not_before() -> None:
    latch = Latch()
    assert not latch.wait(0.0)
    assert not latch.wait(0.01)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(latch.wait(LONG))) for _ in range(4)]
    for thread in threads:
        thread.start()

    latch.set()
    for thread in threads:
        thread.join(LONG)

    assert found == [True] * 4
    assert latch.is_set()
    assert latch.wait(0.0)


def test_a_latch_can_be_taken_back() -> None:
    latch = Latch()
    latch.set()
    latch.clear()

    assert not latch.is_set()
    assert not latch.wait(0.0)


def test_no_set_of_a_latch_is_missed() -> None:
    for _ in range(300):
        latch = Latch()
        thread = threading.Thread(target=latch.wait, args=(LONG,))
        thread.start()
        latch.set()
        thread.join(LONG / 2)
        assert not thread.is_alive()


def moments(fn: Callable[[], object]) -> list[tuple[Moment, int]]:
    return [(moment, n + 1) for moment, count in interrupt(fn).items() for n in range(count)]


def test_a_latch_whose_set_was_interrupted_anywhere_can_be_set_again() -> None:
    def waited(latch: Latch) -> threading.Thread:
        thread = threading.Thread(target=latch.wait, args=(LONG,), daemon=True)
        thread.start()
        eventually(lambda: latch._bells)
        return thread

    first = Latch()
    waited(first)
    for moment, count in moments(first.set):
        latch = Latch()
        thread = waited(latch)
        with suppress(KeyboardInterrupt):
            interrupt(latch.set, moment, count)
        latch.set()
        thread.join(LONG / 2)
        assert not thread.is_alive(), moment


def test_a_wait_for_a_latch_that_was_interrupted_anywhere_leaves_nothing() -> None:
    for moment, count in moments(lambda: Latch().wait(0.001)):
        latch = Latch()
        with suppress(KeyboardInterrupt):
            interrupt(lambda latch=latch: latch.wait(0.001), moment, count)  # type: ignore[misc]
        assert not latch._bells, moment
        latch.set()
        assert latch.wait(0.0)


def test_what_an_interrupted_put_left_is_taken_at_once() -> None:
    for moment, count in moments(lambda: Postbox[str]().put("first")):
        box = Postbox[str]()
        taken: list[str] = []
        reader = threading.Thread(target=_take, args=(box, taken), daemon=True)
        reader.start()
        with suppress(KeyboardInterrupt):
            interrupt(lambda box=box: box.put("it"), moment, count)  # type: ignore[misc]
        eventually(lambda box=box: not box._items, LONG / 2)  # type: ignore[misc]  # nobody rings again for what is there
        box.put("end")
        reader.join(LONG / 2)
        assert not reader.is_alive(), moment


def _take(box: Postbox[str], taken: list[str]) -> None:
    while "end" not in taken:
        taken.append(box.get(LONG))
