"""How threads of ares wait: for as long as they like and not longer, and a queue with one reader who does."""

import threading
import time
from collections import deque
from contextlib import suppress
from queue import Empty
from typing import Generic, TypeVar

T = TypeVar("T")

#: The longest that a thread waits without looking up, in seconds; and the main thread, which a signal fails to wake
#: when it comes right before the wait.
LONGEST_WAIT = 30.0
LONGEST_MAIN_WAIT = 0.5


def longest_wait() -> float:
    """The longest that the calling thread may wait without looking up, in seconds."""
    return LONGEST_MAIN_WAIT if threading.current_thread() is threading.main_thread() else LONGEST_WAIT


def new_bell() -> threading.Lock:
    """What a reader sleeps on: it acquires the lock, which ``ring`` releases."""
    bell = threading.Lock()
    bell.acquire()
    return bell


def ring(bell: threading.Lock) -> None:
    """Wake one who sleeps, or the next one who would. Any thread; never blocks."""
    with suppress(RuntimeError):  # it was rung already, and nobody has heard it yet
        bell.release()


class Postbox(Generic[T]):
    """Any thread puts, one takes.

    Not a ``queue.SimpleQueue``: its ``get`` with a timeout waits for ever when the thread is put aside for longer than
    the timeout on its way to sleep (seen with CPython 3.11.7 and 3.12.1). Not a ``queue.Queue``: that one puts under a
    lock, so neither a finalizer nor a signal handler may put anything while it is held.
    """

    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._bell = new_bell()

    def put(self, item: T) -> None:
        """Leave something for the reader. Never blocks."""
        self._items.append(item)
        ring(self._bell)

    def get(self, timeout: float = 0.0) -> T:
        """Take what was left first, waiting for it up to ``timeout`` seconds.

        Raises:
            Empty: nothing came.
        """
        items = self._items
        if items:
            return items.popleft()
        until = time.monotonic() + timeout
        while timeout > 0:
            # It may have been rung for something that was taken already.
            self._bell.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
            if items:
                return items.popleft()
            timeout = until - time.monotonic()
        raise Empty
