"""The journal's own thread: one of it, whatever interrupts its start, and none after its end."""

import contextlib
import threading

import pytest

from ares.journal.clerk import Clerk


class Work:
    """A turn that counts, and ends when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads: set[int] = set()
        self.turns = 0
        self.is_over = False
        self.due: float | None = None
        self.turned = threading.Event()
        self.clerk = Clerk(self.turn, "clerk")

    def turn(self) -> float | None:
        with self.lock:
            self.threads.add(threading.get_ident())
            self.turns += 1
            self.turned.set()
            self.clerk.awake()
            return None if self.is_over else self.clerk.sleep(self.due)

    def end(self) -> None:
        with self.lock:
            self.is_over = True
        self.clerk.finish()


def clerks() -> int:
    return sum(thread.name == "clerk" for thread in threading.enumerate())


def test_it_sleeps_briefly_once_and_then_long() -> None:
    work = Work()
    assert work.clerk.must_wake(urgent=False)
    assert work.clerk.wake()
    assert work.turned.wait(10)
    while not work.clerk._long:
        threading.Event().wait(0.005)

    with work.lock:
        assert work.clerk.must_wake(urgent=False)  # anything wakes a long sleeper
        assert work.clerk.must_wake(urgent=True)  # whoever asked before may be interrupted before it wakes it
        work.due = 30.0
        work.turned.clear()
    work.clerk.wake()
    assert work.turned.wait(10)
    with work.lock:
        assert not work.clerk.must_wake(urgent=False)  # a brief sleeper only by what is urgent
        assert work.clerk.must_wake(urgent=True)
        work.due = None
    work.clerk.wake()

    work.end()
    assert clerks() == 0
    assert not work.clerk.wake()
    assert len(work.threads) == 1


def test_an_interruption_while_it_is_started_leaves_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        work.clerk.wake()
    for _ in range(5):
        assert work.clerk.wake()
    assert work.turned.wait(10)
    work.end()

    assert clerks() == 0
    assert len(work.threads) == 1


def test_a_turn_that_raises_is_not_the_end_of_it() -> None:
    raised = threading.Event()
    again = threading.Event()

    def turn() -> float | None:
        if raised.is_set():
            again.set()
            return None
        raised.set()
        raise SystemExit(1)

    clerk = Clerk(turn, "clerk")
    clerk.wake()

    assert again.wait(10)
    clerk.finish()


def test_it_never_starts_if_it_is_finished_before_it_was_needed() -> None:
    work = Work()
    work.end()

    assert work.threads == {threading.get_ident()}
    assert not work.clerk.wake()
    assert clerks() == 0
