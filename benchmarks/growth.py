"""Whether a step costs the same however many there are: seconds and bytes a step of chains of growing length.

A peer whose cost grows is not followed to where a single run would take longer than ``_PATIENCE``: that is foreseen
from how its cost grew up to there.
"""

import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import attrs

from benchmarks.contest import say
from benchmarks.peers import Kind, Peer, Shape, UnsupportedError
from benchmarks.storage import Store

COUNTS = (100, 1_000, 10_000)
#: How far ares is followed in the first round; the others are if all of it is wanted.
LONGEST = 100_000

#: Seconds that one run of a peer may be foreseen to take.
_PATIENCE = 20.0
#: Short chains are run so often that as many steps are measured: a start and an end weigh little.
_STEPS = 1_000


@attrs.frozen
class Point:
    """One chain length. ``bytes`` is what the file grew by, 0 without a store."""

    count: int
    seconds: float
    processor: float
    bytes: float


@attrs.define(eq=False)
class Line:
    """A library's points, one round after the other; and why there are no more."""

    label: str
    is_stored: bool
    rounds: list[list[Point]] = attrs.field(factory=list)
    ended: str = ""

    def medians(self) -> list[tuple[int, float, float]]:
        """Count, seconds and bytes a step: the middle of the rounds."""
        found = []
        for each in zip_longest(*self.rounds):
            points = [point for point in each if point is not None]
            middle = sorted(p.seconds for p in points)[len(points) // 2]
            found.append((points[0].count, middle, points[-1].bytes))
        return found

    def ratios(self, large: int, small: int, of: str) -> list[float]:
        """``seconds``, ``processor`` or ``bytes`` at one count divided by those at another, round by round."""
        found = []
        for points in self.rounds:
            at = {point.count: getattr(point, of) for point in points}
            if at.get(small) and at.get(large):
                found.append(at[large] / at[small])
        return found


def measure(
    peers: Sequence[Peer], folder: Path, counts: Sequence[int], longest: Sequence[int], rounds: int, lines: list[Line]
) -> None:
    """Every peer, without a store and durable; ares, which is the first of them, in every round, the others once.

    Args:
        peers: ares first.
        folder: Where the files of runs are made.
        counts: How long the chains are.
        longest: How long they are in the first round of ares.
        rounds: How often ares is measured.
        lines: Where it is put.
    """
    for is_stored in (False, True):
        for peer in peers:
            line = Line(peer.name, is_stored)
            lines.append(line)
            is_ours = peer is peers[0]
            for number in range(rounds if is_ours else 1):
                mine = longest if is_ours and number == 0 else counts
                line.rounds.append(_points(peer, line, folder, mine, math.inf if is_ours else _PATIENCE))


def _points(peer: Peer, line: Line, folder: Path, counts: Sequence[int], patience: float) -> list[Point]:
    points: list[Point] = []
    for count in counts:
        foreseen = _foreseen(points, count)
        if foreseen > patience:
            line.ended = f"not followed to {count:,}: a run would take about {foreseen:.0f} s"
            break
        say(f"growth: {peer.name}, {'durable' if line.is_stored else 'no store'}, {count:,}")
        try:
            points.append(_point(peer, folder, count, is_stored=line.is_stored))
        except UnsupportedError as error:
            line.ended = str(error)
            break
        except Exception as error:  # whatever a library raises costs it its line
            line.ended = f"{count:,}: {type(error).__name__}: {str(error)[:100]}"
            break
    return points


def _foreseen(points: Sequence[Point], count: int) -> float:
    """Seconds that a run of so many steps would take, if a step's cost goes on growing as it did."""
    if not points:
        return 0.0
    growth = points[-1].seconds / points[-2].seconds if len(points) > 1 else 1.0
    return points[-1].seconds * max(growth, 1.0) * count


def _point(peer: Peer, folder: Path, count: int, *, is_stored: bool) -> Point:
    times = max(1, _STEPS // count)
    with tempfile.TemporaryDirectory(dir=folder) as name, contextlib.ExitStack() as stack:
        store = Store(Path(name)) if is_stored else None
        run = stack.enter_context(peer.prepare(Shape(Kind.CHAIN, count), store))
        if times > 1:
            run()
        before = 0 if store is None else store.settled_bytes()
        gc.collect()
        began, used = time.perf_counter(), time.process_time()
        for _ in range(times):
            run()
        seconds, used = time.perf_counter() - began, time.process_time() - used
        grown = 0 if store is None else store.settled_bytes() - before
    steps = times * count
    return Point(count, seconds / steps, used / steps, grown / steps)
