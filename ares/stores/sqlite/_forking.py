"""Forks and SQLite: no process is forked in the middle of a transaction.

SQLite keeps account of its locks in the memory of the process. A child that was forked while another thread was in a
transaction would find the file locked for ever, by a connection that nobody in it will ever let go of, even though it
opens one of its own. So a fork waits for the transactions of the moment, which are short.
"""

import os
import threading
import time
import weakref
from typing import Protocol

#: Seconds that a fork waits at most. What takes longer waits for another process's lock, and has none itself.
_PATIENCE = 1.0


class Guarded(Protocol):
    """What is in a transaction only while one of its locks is held."""

    @property
    def locks(self) -> tuple[threading.Lock, ...]:
        """The locks, in the order in which they are taken."""


_guarded: "weakref.WeakSet[Guarded]" = weakref.WeakSet()
_registry = threading.Lock()
#: What the thread that forks holds meanwhile.
_held: list[threading.Lock] = []


def guard(database: Guarded) -> None:
    """Have forks wait for the transactions of a database."""
    with _registry:
        _guarded.add(database)


def _before() -> None:
    _registry.acquire()
    deadline = time.monotonic() + _PATIENCE
    for database in list(_guarded):
        for lock in database.locks:
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                _held.append(lock)


def _after() -> None:
    while _held:
        _held.pop().release()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
