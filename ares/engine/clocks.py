"""The deadlines of an execution and of its sub-workflow steps. Owned by the walk's thread.

They stand still while all that is left inside waits for answers.
"""

import time
from collections.abc import Callable
from typing import Any

from ares.engine.timers import Timer, Timers
from ares.walk.instance import Instance
from ares.walk.questions import rests
from ares.walk.table import Phase


class _Clock:
    """The time that a sub-workflow step, or (None) the execution, has left."""

    __slots__ = ("args", "epoch", "fn", "instance", "left", "timer")

    def __init__(
        self, instance: Instance | None, seconds: float, fn: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self.instance = instance
        self.epoch = 0 if instance is None else instance.epoch
        self.left = seconds
        self.fn = fn
        self.args = args
        self.timer: Timer | None = None

    @property
    def is_needed(self) -> bool:
        """Whether what it measures goes on."""
        instance = self.instance
        return instance is None or (instance.phase is Phase.OPEN and instance.epoch == self.epoch)


class Clocks:
    """What is due only after so many seconds of walking.

    Args:
        timers: of the walk.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._clocks: list[_Clock] = []
        #: Whether a clock of a sub-workflow stands still.
        self.has_halted = False

    @property
    def ticking(self) -> int:
        """How many of the pending timers are clocks."""
        return sum(clock.timer is not None and clock.timer.is_pending for clock in self._clocks)

    def start(self, instance: Instance | None, seconds: float, fn: Callable[..., None], *args: Any) -> None:
        """Call ``fn(*args)`` after so many seconds, in which more than waiting is left of an open step, or of the whole
        execution."""
        self._clocks = [clock for clock in self._clocks if clock.is_needed]
        clock = _Clock(instance, seconds, fn, args)
        self._clocks.append(clock)
        self._run(clock)

    def adjust(self) -> None:
        """Questions are open, or were: have the clocks of those steps stand still in which nothing else is left."""
        self.has_halted = False
        for clock in self._clocks:
            instance = clock.instance
            if instance is not None and instance.child is not None and clock.is_needed:
                if rests(instance.child):
                    self._halt(clock)
                    self.has_halted = True
                else:
                    self._run(clock)

    def stand_still(self) -> None:
        """The execution rests."""
        for clock in self._clocks:
            self._halt(clock)

    def go_on(self) -> None:
        """The execution rests no more."""
        for clock in self._clocks:
            if clock.instance is None:
                self._run(clock)
        self.adjust()

    def _run(self, clock: _Clock) -> None:
        if clock.timer is None:
            clock.timer = self._timers.after(clock.left, self._due, clock)

    def _halt(self, clock: _Clock) -> None:
        timer = clock.timer
        if timer is not None and timer.is_pending:
            clock.left = max(0.0, timer.when - time.monotonic())
            timer.stop()
            clock.timer = None

    def _due(self, clock: _Clock) -> None:
        self._clocks.remove(clock)
        clock.fn(*clock.args)
