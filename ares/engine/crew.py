"""The attempts under way in one walk: who does what, and until when.

Joined, left and sent out by the walk's owner; looked at by any thread.
"""

import threading
from collections.abc import Callable

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
        self._clocks: dict[Attempt, Timer] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def all(self) -> list[Attempt]:
        """Any thread. Those under way."""
        with self._lock:
            return list(self._attempts.values())

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
        clock = self._clocks.pop(attempt, None)
        if clock is not None:
            clock.stop()

    def send(self, attempt: Attempt, job: Callable[[Attempt], None], overdue: Callable[[Attempt], None]) -> None:
        """Use the reserved worker for an attempt, and watch its time."""
        attempt.worker = self._pool.run(lambda: job(attempt))
        if attempt.timeout is not None:
            self._watch(attempt, attempt.timeout, overdue)

    def _watch(self, attempt: Attempt, seconds: float, overdue: Callable[[Attempt], None]) -> None:
        self._clocks[attempt] = self._timers.after(seconds, self._look, attempt, overdue)

    def _look(self, attempt: Attempt, overdue: Callable[[Attempt], None]) -> None:
        """The attempt's time may be up. It counts from when its body began, after the hooks."""
        self._clocks.pop(attempt, None)
        left = attempt.time_left()
        if left > 0:
            self._watch(attempt, left, overdue)
        elif attempt.close():
            overdue(attempt)

    def abandon(self, attempt: Attempt, reason: str) -> bool:
        """Give up an attempt that was closed, and the thread that is stuck in it. Returns whether there is one."""
        attempt.cancel(reason)
        self.leave(attempt)
        if attempt.worker is None:
            return False
        self._pool.abandon(attempt.worker)
        return True
