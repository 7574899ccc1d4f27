"""The physical limits that figures stand beside: one bare commit, two threads passing a lock, and what either costs
beside a thread that never lets go of the interpreter."""

import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
