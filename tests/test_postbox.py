"""The queue that every thread of ares waits on."""

import gc
import threading
import time
from queue import Empty

import pytest

from ares.postbox import Postbox

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
