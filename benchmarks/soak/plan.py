"""What is to be done, and what goes wrong at which moment. A seed makes the moments repeatable."""

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from ares.errors import UsageError


@attrs.frozen
class Plan:
    """What the processes have to do.

    ``store`` is a file or a URL, ``folder`` where effects leave their lines. ``seconds`` is how long a step's body
    takes, ``lease_timeout`` as a Runtime has it.
    """

    store: str
    folder: str
    processes: int
    executions: int
    steps: int
    seconds: float
    lease_timeout: float

    @property
    def ids(self) -> list[str]:
        """The executions, by id."""
        return [f"e{number}" for number in range(self.executions)]

    def ids_of(self, slot: int) -> list[str]:
        """Those that one of the processes submits."""
        return self.ids[slot :: self.processes]

    def effects_of(self, pid: int) -> Path:
        """Where a process leaves its lines."""
        return Path(self.folder, f"effects-{pid}.jsonl")


@attrs.frozen
class Timing:
    """How often something goes wrong: about ``every`` so many seconds, for ``lasts`` seconds each, ``times`` at most
    (None: until all is done)."""

    name: str
    every: float
    lasts: float = 0.0
    times: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Timing":
        """From ``NAME:EVERY[:LASTS[:TIMES]]``.

        Raises:
            UsageError: it reads otherwise.
        """
        name, *figures = text.split(":")
        try:
            timing = cls(name, *map(float, figures[:2]), *map(int, figures[2:]))  # type: ignore[arg-type]
        except (ValueError, TypeError):  # no figures, or too few, or too many
            timing = cls(name, 0.0)
        if not (timing.every > 0 and timing.lasts >= 0 and (timing.times is None or timing.times > 0)):
            raise UsageError(f"the fault {text!r} is not NAME:EVERY[:LASTS[:TIMES]], in seconds")
        return timing


@attrs.frozen(order=True)
class Moment:
    """When something begins to go wrong, or stops to, in seconds from the start. ``draw`` in [0, 1) says to whom."""

    at: float
    name: str
    begins: bool
    draw: float


def moments(timings: Iterable[Timing], seed: int) -> Iterator[Moment]:
    """All that goes wrong, in order; without end, unless everything has its ``times``."""
    return heapq.merge(*(_of_one(timing, random.Random(f"{seed} {timing.name}")) for timing in timings))


def _of_one(timing: Timing, dice: random.Random) -> Iterator[Moment]:
    at = 0.0
    for _ in itertools.count() if timing.times is None else range(timing.times):
        at += timing.every * dice.uniform(0.5, 1.5)
        draw = dice.random()
        yield Moment(at, timing.name, True, draw)
        if timing.lasts:
            at += timing.lasts
            yield Moment(at, timing.name, False, draw)
