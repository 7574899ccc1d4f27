"""What goes wrong: each fault strikes, and may be lifted again. What each needs is its own knowledge."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ares.testing import ChildProcess, Nursery
from ares.testing.processes import Line
from benchmarks.soak.crew import Crew
from benchmarks.soak.wall_clock import WallClock

#: Seconds that a wall clock jumps.
HOUR = 3600.0


class Fault(Protocol):
    """Something that goes wrong. ``lift`` may come without a ``strike``, and more than once."""

    def strike(self, draw: float) -> None:
        """Begin. ``draw`` in [0, 1) chooses whom, where there is a choice. Must not wait for what another fault may
        hold up."""

    def lift(self) -> None:
        """All is well again."""


class Kill:
    """A process is killed, and another takes its place."""

    def __init__(self, crew: Crew, count: int) -> None:
        self._crew = crew
        self._count = count

    def strike(self, draw: float) -> None:
        """See ``Fault``."""
        self._crew.kill(int(draw * self._count))

    def lift(self) -> None:
        """There is nothing to lift."""


class Pause:
    """A process stands still, and goes on."""

    def __init__(self, crew: Crew, count: int) -> None:
        self._crew = crew
        self._count = count
        self._go_on: Callable[[], None] | None = None

    def strike(self, draw: float) -> None:
        """See ``Fault``."""
        self._go_on = self._crew.stop(int(draw * self._count))

    def lift(self) -> None:
        """See ``Fault``."""
        if self._go_on is not None:
            self._go_on()


class FileLock:
    """Another process holds the write lock of an SQLite file."""

    def __init__(self, nursery: Nursery, file: str) -> None:
        self._nursery = nursery
        self._file = file
        self._holder: ChildProcess | None = None

    def strike(self, draw: float) -> None:  # noqa: ARG002 - there is no choice
        """See ``Fault``. Not waited for: a process that stands still may have the lock."""
        self._holder = self._nursery.start(hold_lock, file=self._file)

    def lift(self) -> None:
        """See ``Fault``."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None


def hold_lock(line: Line, file: str) -> None:
    """Hold the lock until killed."""
    connection = sqlite3.connect(file, timeout=60.0, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    line.say("locked")
    line.hear(3600.0)


class FullDisk:
    """The file system of the store is full."""

    def __init__(self, folder: str | Path) -> None:
        self._ballast = Path(folder, "ballast")

    def strike(self, draw: float) -> None:  # noqa: ARG002 - there is no choice
        """See ``Fault``."""
        with self._ballast.open("ab", buffering=0) as out:
            for size in (1 << 20, 1 << 12, 1):  # coarse, then to the last byte
                with contextlib.suppress(OSError):
                    while out.write(bytes(size)):
                        pass

    def lift(self) -> None:
        """See ``Fault``."""
        self._ballast.unlink(missing_ok=True)


class ClockJump:
    """The wall clock that the processes go by is an hour fast, or slow, and then right again."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock

    def strike(self, draw: float) -> None:
        """See ``Fault``."""
        self._clock.set_ahead(HOUR if draw < 0.5 else -HOUR)

    def lift(self) -> None:
        """See ``Fault``."""
        self._clock.set_ahead(0.0)


class Outage:
    """A server is away: it is stopped hard, and started again.

    Args:
        stop: takes it away at once, however much it has to do.
        start: brings it back.
    """

    def __init__(self, stop: Callable[[], Any], start: Callable[[], Any]) -> None:
        self._stop = stop
        self._start = start
        self._is_away = False

    def strike(self, draw: float) -> None:  # noqa: ARG002 - there is no choice
        """See ``Fault``."""
        self._stop()
        self._is_away = True

    def lift(self) -> None:
        """See ``Fault``."""
        if self._is_away:
            self._start()
            self._is_away = False
