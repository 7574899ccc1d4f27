"""The physical limits that figures stand beside: one bare commit, and two threads passing a lock."""

import sqlite3
import threading
import time
from pathlib import Path


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


def lock_pass(count: int = 2000) -> float:
    """Seconds for two threads to pass a lock there and back."""
    ping, pong = threading.Lock(), threading.Lock()
    ping.acquire()
    pong.acquire()

    def answer() -> None:
        for _ in range(count):
            ping.acquire()
            pong.release()

    thread = threading.Thread(target=answer, name="bench-pong", daemon=True)
    thread.start()
    began = time.perf_counter()
    for _ in range(count):
        ping.release()
        pong.acquire()
    seconds = time.perf_counter() - began
    thread.join(10)
    return seconds / count
