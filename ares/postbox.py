"""How threads of ares wait: for as long as they like and not longer, for something to be so or for what others leave.

A Ctrl-C may hit the main thread between any two lines of what it does here, and nothing of it stays locked. That is why
there is no ``threading.Event`` and no ``threading.Condition``: both lock in Python code, and a ``KeyboardInterrupt``
between two lines of it (``Condition.__enter__`` and ``__exit__`` of CPython 3.11) leaves them locked for ever."""

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


class Latch:
    """As ``threading.Event``, and may be interrupted by a Ctrl-C."""

    __slots__ = ("_bells", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        #: What those sleep on who wait.
        self._bells: dict[threading.Lock, None] = {}

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it and wake all who wait. Never blocks. Of an interruption they wake when it is set once more, or a
        little later."""
        self._is_set = True
        for bell in tuple(self._bells):
            ring(bell)

    def clear(self) -> None:
        """Take it back."""
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for it to be set; returns whether it is."""
        if self._is_set:
            return True
        until = time.monotonic() + timeout
        longest = longest_wait()
        bell = new_bell()
        try:
            self._bells[bell] = None
            while timeout > 0 and not self.is_set():
                if bell.acquire(timeout=min(timeout, longest)):
                    break  # it was set, and perhaps taken back since
                timeout = until - time.monotonic()
        finally:
            self._bells.pop(bell, None)
        return self._is_set


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
        """Leave something for the reader. Never blocks. What an interruption leaves in it is seen at once, too."""
        try:
            self._items.append(item)
            ring(self._bell)
        except BaseException:  # of a Ctrl-C, before or after
            ring(self._bell)
            raise

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
