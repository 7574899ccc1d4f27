"""One call to a plugin: what is asked, and the place for the answer.

A call is *queued*, *executing* or done; done with a value, or with the ``PluginError`` that says why there is none. It
changes state under the lock of the resident that it was sent to, and is done exactly once: an answer that comes after
the caller was told that there would be none is thrown away.

Whoever waits, waits on a latch, which can be shared: it opens when all the calls of a batch are done, so that a batch
wakes its caller once.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from ares.context import Context
from ares.errors import PluginError
from ares.postbox import longest_wait

#: Characters of an exception's message that are kept.
_LONGEST: Final = 500


class Latch:
    """Opens, for good, when it was counted down so many times."""

    __slots__ = ("_gate", "_left", "_lock")

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        #: Held while the latch is closed.
        self._gate = threading.Lock()
        self._gate.acquire()

    def count_down(self) -> None:
        """One less to wait for."""
        with self._lock:
            self._left -= 1
            is_open = self._left == 0
        if is_open:
            self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it opens, at most so long. Returns whether it has."""
        until = time.monotonic() + seconds
        while not self._gate.acquire(timeout=min(max(seconds, 0), longest_wait())):
            seconds = until - time.monotonic()
            if seconds <= 0:
                return False
        self._gate.release()  # for others that wait
        return True


class Call:
    """See above. ``args`` and ``kwargs`` follow the context."""

    __slots__ = (
        "args",
        "began",
        "check_at",
        "context",
        "error",
        "is_done",
        "is_patient",
        "kwargs",
        "latch",
        "method",
        "sent",
        "timeout",
        "value",
    )

    def __init__(
        self, method: str, args: tuple[Any, ...], context: Context, timeout: float, latch: Latch | None
    ) -> None:
        self.method = method
        self.args = args
        self.kwargs: Mapping[str, Any] | None = None
        self.context = context
        #: Seconds that it may execute and, unless it is patient, before that be queued.
        self.timeout = timeout
        self.is_patient = False
        #: What its caller waits on; None when nobody does.
        self.latch = latch
        self.sent = 0.0
        #: When it began to execute.
        self.began: float | None = None
        #: When a caller that waits should have the resident look at it, in seconds of the monotonic clock.
        self.check_at = 0.0
        self.is_done = False
        self.value: Any = None
        self.error: PluginError | None = None

    def settle(self, value: Any, error: PluginError | None) -> bool:
        """Answer it. False if it has been. Under its resident's lock."""
        if self.is_done:
            return False
        self.value = value
        self.error = error
        self.is_done = True
        if self.latch is not None:
            self.latch.count_down()
        return True


def describe(error: BaseException) -> str:
    """An exception in a few words, whatever its own methods do."""
    try:
        message = str(error)[:_LONGEST]
    except BaseException:
        message = "<its message cannot be shown>"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
