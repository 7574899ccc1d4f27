"""What ares says to the application's log, from a thread of its own.

A sink of the application's may raise, block for ever, or log and run workflows itself. So nobody who walks, keeps a
journal or waits for either calls the logger; they leave a notice here. The thread starts with the first notice and ends
when there has been none for a while; when it is stuck in a sink, what comes on top of a bounded number is lost.
"""

import atexit
import contextlib
import os
import threading
import time
from queue import Empty
from typing import Any, Final

from loguru import logger

from ares.postbox import Postbox

#: Notices that wait for a sink. More than that, and somebody is flooding a log that nobody can read.
_BOUND: Final = 1_000
#: Seconds that the thread waits for another notice, and that the end of the process waits for the last ones.
_IDLE_SECONDS: Final = 1.0
_EXIT_SECONDS: Final = 0.5

_Notice = tuple[str, str, tuple[Any, ...], BaseException | None]


class Notices:
    """A queue in front of the logger. Any thread may use it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, in the child of a fork: the lock may have been held, and the thread is gone."""
        self._lock = threading.Lock()
        self._queue: Postbox[_Notice] = Postbox()
        #: Notices that are not logged yet.
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def say(self, level: str, message: str, *args: Any, error: BaseException | None = None) -> None:
        """Have something logged; ``message`` and ``args`` as for ``str.format``. Never blocks, never raises."""
        with self._lock:
            if self._waiting >= _BOUND:
                return
            if self._thread is None and not self._start():
                return
            self._waiting += 1
            self._queue.put((level, message, args, error))

    def end(self) -> None:
        """The process is about to end: start no thread any more."""
        with self._lock:
            self._is_ending = True

    def flush(self, timeout: float) -> bool:
        """Wait until all is logged, at most ``timeout`` seconds. Returns whether it is."""
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while True:
            with self._lock:
                if not self._waiting:
                    return True
            if time.monotonic() >= deadline:
                return False
            pause.wait(0.005)

    def _start(self) -> bool:
        if self._is_ending:
            return False
        thread = threading.Thread(target=self._serve, name="ares-notices", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter starts no threads any more
            return False
        self._thread = thread
        return True

    def _serve(self) -> None:
        while True:
            try:
                notice = self._queue.get(_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._waiting:
                        continue
                    self._thread = None
                    return
            self._log(*notice)
            del notice
            with self._lock:
                self._waiting -= 1

    @staticmethod
    def _log(level: str, message: str, args: tuple[Any, ...], error: BaseException | None) -> None:
        with contextlib.suppress(BaseException):
            logger.opt(exception=error).log(level, message, *args)


notices = Notices()


def _at_exit() -> None:
    notices.end()
    notices.flush(_EXIT_SECONDS)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=notices.renew)
