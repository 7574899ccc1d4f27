"""ares and its peers at the same work, a round after the other, with the machine's limits before and after.

All figures of a round are taken within the same minute, in an order that turns round from one round to the next, and
only figures of one round are divided by each other: what the machine does besides hits both.
"""

import contextlib
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from benchmarks.limits import bare_commit, busy_thread, hand_off, lock_pass
from benchmarks.peers import Kind, Peer, Shape, UnsupportedError
from benchmarks.storage import Store

#: The names of the limits among the contestants of a cell.
LOCK = "two threads pass a lock"
COMMIT = "bare SQLite commit"
HAND_OFF = "a thread has the interpreter back"
LIMITS = (LOCK, COMMIT, HAND_OFF)

#: How often a commit is taken at a time: alone, and beside a busy thread, where it takes ten times as long; and for how
#: many seconds a lock is passed.
_COMMITS = (100, 40)
_PASSING = (0.3, 1.0)


@attrs.frozen
class Cell:
    """What one row of the table is about."""

    shape: Shape
    is_stored: bool
    is_beside: bool

    @property
    def limit(self) -> str:
        """What nobody can beat."""
        return COMMIT if self.is_stored else LOCK

    def __str__(self) -> str:
        beside = ", beside a busy thread" if self.is_beside else ""
        return f"{self.shape}, {'durable' if self.is_stored else 'no store'}{beside}"


@attrs.frozen
class Contestant:
    """A library in one way of using it."""

    label: str
    peer: Peer
    keeps_outputs: bool = False
    #: Whether its connections are set to what all have, or stay as the library makes them.
    is_tuned: bool = True


#: What is to be measured, and the file it writes to.
Prepared = tuple[Callable[[], None], Store | None]


@attrs.define(eq=False)
class Outcome:
    """What came out for one cell: seconds a step (of a limit: an operation), one figure a round; why there is none."""

    cell: Cell
    seconds: dict[str, list[float]] = attrs.field(factory=dict)
    #: The same of processor: what others did meanwhile changes little of it.
    processor: dict[str, list[float]] = attrs.field(factory=dict)
    missing: dict[str, str] = attrs.field(factory=dict)

    def ratios(self, above: str, below: str) -> list[float]:
        """One figure divided by the other, round by round."""
        return _divided(self.seconds, above, below)

    def processor_ratios(self, above: str, below: str) -> list[float]:
        """The same of the processor time."""
        return _divided(self.processor, above, below)


def _divided(figures: dict[str, list[float]], above: str, below: str) -> list[float]:
    return [a / b for a, b in zip(figures.get(above, ()), figures.get(below, ()), strict=False)]


@attrs.frozen
class Habit:
    """How one contestant uses SQLite for one shape: commits that wrote something, a step."""

    label: str
    shape: Shape
    settings: str
    commits: dict[str, float]


def contestants(peers: Sequence[Peer], cell: Cell) -> list[Contestant]:
    """Who takes part in a cell.

    A chain is run in two more ways: with every output kept, where a library's steps share one state; and, durable, with
    the connections as the library itself makes them, where that is not what all are compared at.
    """
    found = [Contestant(peer.name, peer) for peer in peers]
    if cell.shape.kind is Kind.CHAIN and not cell.is_beside:
        found += [Contestant(f"{p.name}, outputs kept", p, keeps_outputs=True) for p in peers if not p.keeps_outputs]
        if cell.is_stored:
            found += [Contestant(f"{p.name}, as it comes", p, is_tuned=False) for p in peers if p.comes_otherwise]
    return found


def once(contestant: Contestant, cell: Cell, folder: Path) -> tuple[float, float]:
    """Seconds a step, by the clock and of processor (the busy thread's included), in a folder of its own."""
    with _prepared(contestant, cell, folder, counts=False) as (run, store), contextlib.ExitStack() as beside:
        gc.collect()
        if cell.is_beside:
            beside.enter_context(busy_thread())
        began, used = time.perf_counter(), time.process_time()
        run()
        seconds, used = time.perf_counter() - began, time.process_time() - used
        if store is not None:
            store.check()
    return seconds / cell.shape.steps, used / cell.shape.steps


def habit(contestant: Contestant, cell: Cell, folder: Path) -> Habit | None:
    """How a contestant uses SQLite; None where there is no store. Also what warms it up before it is measured."""
    with _prepared(contestant, cell, folder, counts=True) as (run, store):
        if store is not None:
            store.commits.clear()
        run()
        if store is None:
            return None
        store.check()
        # Its own words where it changes the level from commit to commit: the counts say which.
        settings = ", ".join(sorted(map(str, store.settings())))
        commits = {level: count / cell.shape.steps for level, count in sorted(store.commits.items())}
        return Habit(contestant.label, cell.shape, settings, commits)


@contextlib.contextmanager
def _prepared(contestant: Contestant, cell: Cell, folder: Path, *, counts: bool) -> Iterator[Prepared]:
    shape = attrs.evolve(cell.shape, keeps_outputs=contestant.keeps_outputs)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = Store(Path(name), is_tuned=contestant.is_tuned, counts=counts) if cell.is_stored else None
        with contestant.peer.prepare(shape, store) as run:
            yield run, store


class Contest:
    """All cells, and what came out so far.

    Args:
        peers: ares first.
        folder: Where the files of runs are made.
        outcomes: Where what comes out is put, a cell each.
        habits: Where it is put how they use SQLite.
    """

    def __init__(self, peers: Sequence[Peer], folder: Path, outcomes: list[Outcome], habits: list[Habit]) -> None:
        self._peers = peers
        self._folder = folder
        self._outcomes = outcomes
        self._habits = habits

    def warm_up(self, cells: Sequence[Cell]) -> None:
        """Run everything once, find out who cannot do what, and how each uses SQLite."""
        for cell in cells:
            outcome = Outcome(cell)
            self._outcomes.append(outcome)
            for contestant in contestants(self._peers, cell):
                known = self._known(cell, contestant.label)
                if known is not None:
                    outcome.missing[contestant.label] = known
                elif not cell.is_beside:
                    self._warm_up(outcome, contestant)

    def _known(self, cell: Cell, label: str) -> str | None:
        """What a contestant cannot do alone it cannot do beside a busy thread."""
        for other in self._outcomes:
            same = (other.cell.shape.kind, other.cell.is_stored) == (cell.shape.kind, cell.is_stored)
            if same and label in other.missing:
                return other.missing[label]
        return None

    def _warm_up(self, outcome: Outcome, contestant: Contestant) -> None:
        say(f"warming up: {contestant.label}, {outcome.cell}")
        with _survived(outcome, contestant.label):
            found = habit(contestant, outcome.cell, self._folder)
            if found is not None:
                self._habits.append(found)

    def round(self, number: int, *, is_beside: bool) -> None:
        """Measure every cell once."""
        for outcome in self._outcomes:
            if outcome.cell.is_beside is is_beside:
                say(f"round {number + 1}: {outcome.cell}")
                self._measure(outcome, backwards=number % 2 == 1)

    def _measure(self, outcome: Outcome, *, backwards: bool) -> None:
        cell = outcome.cell
        before = self._limits(cell)
        taking = [c for c in contestants(self._peers, cell) if c.label not in outcome.missing]
        for contestant in reversed(taking) if backwards else taking:
            with _survived(outcome, contestant.label):
                seconds, used = once(contestant, cell, self._folder)
                outcome.seconds.setdefault(contestant.label, []).append(seconds)
                outcome.processor.setdefault(contestant.label, []).append(used)
        for name, seconds in self._limits(cell).items():
            outcome.seconds.setdefault(f"{name}, before", []).append(before[name])
            outcome.seconds.setdefault(f"{name}, after", []).append(seconds)
            outcome.seconds.setdefault(name, []).append((before[name] + seconds) / 2)

    def _limits(self, cell: Cell) -> dict[str, float]:
        with busy_thread() if cell.is_beside else contextlib.nullcontext():
            found = {LOCK: lock_pass(100_000, at_most=_PASSING[cell.is_beside]), HAND_OFF: hand_off()}
            if cell.is_stored:
                found[COMMIT] = bare_commit(self._folder, _COMMITS[cell.is_beside])
        return found


@contextlib.contextmanager
def _survived(outcome: Outcome, label: str) -> Iterator[None]:
    """Whatever a library raises costs it this cell, and nobody else anything."""
    try:
        yield
    except UnsupportedError as error:
        outcome.missing[label] = str(error)
    except Exception as error:
        outcome.missing[label] = f"{type(error).__name__}: {error}"
        for figures in (outcome.seconds, outcome.processor):
            figures.pop(label, None)


def say(message: str) -> None:
    """Tell whoever waits how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)
