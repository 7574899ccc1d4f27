"""The attempts under way in one walk: who does what, and until when.

Joined, left and sent out by the walk's owner; looked at by any thread.
"""

import threading
from collections.abc import Callable
from typing import Any

from ares.engine.attempt import Attempt
from ares.engine.pool import WorkerPool
from ares.engine.timers import Timer, Timers
from ares.walk.state import Instance


class Crew:
    """Attempts by the instance that they work for."""

    def __init__(self, pool: WorkerPool, timers: Timers) -> None:
        self._pool = pool
        self._timers = timers
        self._lock = threading.Lock()
        self._attempts: dict[Instance, Attempt] = {}
        #: What is to happen to whom if they do not leave in time.
        self._clocks: dict[Attempt, list[Timer]] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def all(self) -> list[Attempt]:
        """Any thread. Those under way."""
        with self._lock:
            return list(self._attempts.values())

    def has_news(self) -> bool:
        """Whether somebody has ended, and the owner has not taken note of it."""
        with self._lock:
            return any(attempt.is_over for attempt in self._attempts.values())

    def of(self, instance: Instance) -> Attempt | None:
        """The one that works for an instance."""
        return self._attempts.get(instance)

    def join(self, attempt: Attempt) -> None:
        """An attempt is under way."""
        with self._lock:
            self._attempts[attempt.instance] = attempt

    def leave(self, attempt: Attempt) -> None:
        """An attempt is over."""
        with self._lock:
            if self._attempts.get(attempt.instance) is attempt:
                del self._attempts[attempt.instance]
        if attempt.slot is not None:
            attempt.slot.give_back()
        for clock in self._clocks.pop(attempt, ()):
            clock.stop()
        attempt.detach()

    def time(self, attempt: Attempt, overdue: Callable[[Attempt], None]) -> None:
        """Watch the time of an attempt that has a worker now."""
        if attempt.timeout is not None:
            self.watch(attempt, attempt.timeout, self._look, attempt, overdue)

    def watch(self, attempt: Attempt, seconds: float, fn: Callable[..., None], *args: Any) -> None:
        """Call ``fn(*args)`` in so many seconds, unless the attempt leaves before."""
        self._clocks.setdefault(attempt, []).append(self._timers.after(seconds, fn, *args))

    def _look(self, attempt: Attempt, overdue: Callable[[Attempt], None]) -> None:
        """The attempt's time may be up. It counts from when its body began, after the hooks."""
        left = attempt.time_left()
        if left > 0:
            self.watch(attempt, left, self._look, attempt, overdue)
        elif attempt.close():
            overdue(attempt)

    def abandon(self, attempt: Attempt, reason: str) -> bool:
        """Give up an attempt that was closed, and the thread that is stuck in it. Returns whether there is one."""
        attempt.cancel(reason, grace=0.0)
        self.leave(attempt)
        return attempt.seat is not None and self._pool.abandon(attempt.seat)
