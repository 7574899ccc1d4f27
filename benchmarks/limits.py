"""The physical limits that figures stand beside: one bare commit, two threads passing a lock, some threads woken at
once, and what they cost beside a thread that never lets go of the interpreter."""

import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

#: How many turns of its loop a busy thread makes between two looks whether it may end.
_TURNS = 10_000


def bare_commit(folder: Path, count: int = 400) -> float:
    """Seconds per commit of one journal-sized row, SQLite in WAL mode with synchronous=FULL, nothing around it."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, body TEXT)")
        row = ("x" * 100,)
        began = time.perf_counter()
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entry (body) VALUES (?)", row)
            connection.execute("COMMIT")
        return (time.perf_counter() - began) / count
    finally:
        connection.close()


def lock_pass(count: int = 2000, at_most: float = math.inf) -> float:
    """Seconds for two threads to pass a lock there and back: two hand-offs.

    Args:
        count: How often.
        at_most: Seconds after which it ends. Beside a busy thread most passes take microseconds and a few take many
            milliseconds, so that only a mean over a long time says anything.
    """
    ping, pong = threading.Lock(), threading.Lock()
    ping.acquire()
    pong.acquire()
    is_over = False

    def answer() -> None:
        while True:
            ping.acquire()
            if is_over:
                return
            pong.release()

    thread = threading.Thread(target=answer, name="bench-pong", daemon=True)
    thread.start()
    passes, seconds = 0, 0.0
    began = time.perf_counter()
    while passes < count and seconds < at_most:
        ping.release()
        pong.acquire()
        passes += 1
        seconds = time.perf_counter() - began
    is_over = True
    ping.release()
    thread.join(10)
    return seconds / passes


#: Seconds that a thread is away which then wants the interpreter back: about as long as a commit takes.
_AWAY = 0.0003


def hand_off(count: int = 50) -> float:
    """Seconds until a thread that let go of the interpreter has it again, from the moment that it could go on.

    That is what a thread waits for after each commit, and one that is woken. Alone it is what it takes to be woken;
    beside a busy thread a switch interval, unless the machine has other things to do as well.
    """
    never = _closed_lock()
    began = time.perf_counter()
    for _ in range(count):
        never.acquire(timeout=_AWAY)
    return (time.perf_counter() - began) / count - _AWAY


class BareThreads:
    """So many threads, each asleep on a lock of its own, to be woken and awaited together: the least that asking as
    many plugins at once could cost.

    They do nothing but count down. The last one wakes the caller, so that it is woken once: a lock for each answer, or
    conditions, take longer. They run where the scheduler puts them, as actors' threads do.
    """

    def __init__(self, count: int) -> None:
        self._locks = [_closed_lock() for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._work, args=(lock,), name=f"bench-bare-{i}", daemon=True)
            for i, lock in enumerate(self._locks)
        ]
        self._guard = threading.Lock()
        self._left = 0
        self._gate = _closed_lock()
        self._is_over = False

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        for lock in self._locks:
            lock.release()
        for thread in self._threads:
            thread.join(10)

    def call(self) -> None:
        """Wake all, and wait until each has counted down."""
        if not self._locks:
            return
        self._left = len(self._locks)
        for lock in self._locks:
            lock.release()
        self._gate.acquire()

    def _work(self, lock: threading.Lock) -> None:
        while True:
            lock.acquire()
            if self._is_over:
                return
            with self._guard:
                self._left -= 1
                is_last = self._left == 0
            if is_last:
                self._gate.release()


def _closed_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep the calling thread, and those that it starts meanwhile, on one processor.

    Waking a thread on another one takes several times as long, and where the scheduler puts a thread changes from one
    moment to the next: so only here are two ways of waking threads sure to be in the same place.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def busy_thread() -> Iterator[None]:
    """One CPU-bound Python thread beside what is measured: it holds the interpreter for as long as it is allowed to."""
    is_over = False

    def spin() -> None:
        while not is_over:
            for _ in range(_TURNS):
                pass

    thread = threading.Thread(target=spin, name="bench-busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over = True
        thread.join(10)
