"""Forks and SQLite: no child process inherits an open connection.

SQLite keeps account of its locks in the memory of the process, by file. A child that inherits a connection believes
that it holds that connection's locks; its own connections to the same file then take none, and nobody else knows of
them: the parent, closing as if it were the last, takes the write-ahead log away under the child, and what the child
commits is lost. So a fork waits for the transactions of the moment, which are short, and closes the connections; the
parent makes new ones when it needs them.

Only a thread that waits for somebody else's lock can keep a fork from it for longer than is reasonable. The child is
then refused that file.
"""

import contextlib
import os
import threading
import time
import weakref
from typing import Protocol

#: Seconds that a fork waits at most.
_PATIENCE = 1.0


class Guarded(Protocol):
    """Something with connections, which it uses only while one of its locks is held."""

    @property
    def locks(self) -> tuple[threading.Lock, ...]:
        """The locks, in the order in which they are taken."""

    @property
    def open_file(self) -> tuple[int, int] | None:
        """Device and inode of the file that it has open."""

    def let_go(self) -> None:
        """With all locks held: close the connections, to open them again when they are needed."""

    def renew_locks(self) -> None:
        """In a child: have locks that nobody holds."""


_guarded: "weakref.WeakSet[Guarded]" = weakref.WeakSet()
_registry = threading.Lock()
#: What the thread that forks holds meanwhile, and the files that it could not close.
_held: list[threading.Lock] = []
_left_open: set[tuple[int, int]] = set()
#: In a child: files whose connections it inherited all the same.
_inherited: set[tuple[int, int]] = set()


def guard(guarded: Guarded) -> None:
    """Have forks close the connections of ``guarded``."""
    with _registry:
        _guarded.add(guarded)


def is_inherited(file: tuple[int, int]) -> bool:
    """Whether this process inherited an open connection to a file, so that it must not open another."""
    return file in _inherited


def _before() -> None:
    _registry.acquire(timeout=_PATIENCE)
    deadline = time.monotonic() + _PATIENCE
    for guarded in list(_guarded):
        if _take(guarded.locks, deadline):
            guarded.let_go()
        elif guarded.open_file is not None:
            _left_open.add(guarded.open_file)


def _take(locks: tuple[threading.Lock, ...], deadline: float) -> bool:
    for lock in locks:
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        _held.append(lock)
    return True


def _after_in_parent() -> None:
    _left_open.clear()
    _release()


def _after_in_child() -> None:
    _inherited.update(_left_open)
    _left_open.clear()
    _release()
    for guarded in list(_guarded):
        guarded.renew_locks()


def _release() -> None:
    while _held:
        _held.pop().release()
    with contextlib.suppress(RuntimeError):  # it could not be had in time
        _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
