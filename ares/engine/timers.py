"""Timers of one walk, on the monotonic clock. Owned by the walk's thread, like the walk."""

import heapq
import time
from collections.abc import Callable
from typing import Any

#: Timers that are not looked through for stopped ones, however many of them there are.
_FEW = 64


class Timer:
    """A call to be made at a time; ``stop`` is no harm at any time."""

    __slots__ = ("_timers", "args", "fn", "is_pending", "when")

    def __init__(self, timers: "Timers", when: float, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._timers = timers
        self.when = when
        self.fn = fn
        self.args = args
        self.is_pending = True

    def stop(self) -> None:
        """It will not be called any more."""
        if self.is_pending:
            self.is_pending = False
            self.args = ()
            self._timers.drop_one()


class Timers:
    """What is due later."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0
        #: How many are still to be called.
        self.pending = 0

    def after(self, seconds: float, fn: Callable[..., None], *args: Any) -> Timer:
        """Call ``fn(*args)`` in so many seconds."""
        timer = Timer(self, time.monotonic() + seconds, fn, args)
        self._serial += 1
        self.pending += 1
        heapq.heappush(self._heap, (timer.when, self._serial, timer))
        return timer

    def fire(self) -> None:
        """Make the calls that are due."""
        while self._heap and (not self._heap[0][2].is_pending or self._heap[0][0] <= time.monotonic()):
            timer = heapq.heappop(self._heap)[2]
            if timer.is_pending:
                args = timer.args
                timer.stop()
                timer.fn(*args)

    def next_at(self) -> float | None:
        """When the next one is due, in seconds of the monotonic clock."""
        while self._heap and not self._heap[0][2].is_pending:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """Nothing is due any more."""
        heap, self._heap = self._heap, []
        for _, _, timer in heap:
            timer.is_pending = False
        self.pending = 0

    def drop_one(self) -> None:
        """One was stopped. A walk of many steps with long timeouts must not keep a timer of each."""
        self.pending -= 1
        if len(self._heap) > _FEW + 2 * self.pending:
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapq.heapify(self._heap)
