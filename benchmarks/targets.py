"""What the figures must show, and whether they do."""

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence

import attrs

from benchmarks.bus import Comparison
from benchmarks.contest import HAND_OFF, LIMITS, Cell, Outcome
from benchmarks.growth import Line
from benchmarks.imports import Imports
from benchmarks.memory import Peak
from benchmarks.peers import Kind
from benchmarks.resume import Resumed


@attrs.frozen
class Verdict:
    """One figure beside its target. ``low`` and ``high`` are how far the rounds lie apart; None: not measured."""

    what: str
    target: float
    figure: float | None
    low: float = 0.0
    high: float = 0.0
    unit: str = ""

    @property
    def word(self) -> str:
        """Whether it is met."""
        if self.figure is None:
            return "not measured"
        return "met" if self.figure <= self.target else f"missed, {self.figure / self.target:.1f} times the target"


def verdicts(outcomes: Sequence[Outcome], lines: Sequence[Line]) -> list[Verdict]:
    """What a step costs."""
    chain = (Kind.CHAIN, True, False)
    found = [
        _of("durable chain / fastest durable peer", 0.25, _by_fastest(outcomes, chain, _same)),
        _of("the same, peers keeping every output", 0.25, _by_fastest(outcomes, chain, _keeping)),
        _of("the same, peers with SQLite as they come", 0.25, _by_fastest(outcomes, chain, _as_it_comes)),
        _of("64 threads durable / LangGraph", 0.10, _by(outcomes, (Kind.THREADS, True, False), "LangGraph")),
        _of("chain without store / Burr", 0.25, _by(outcomes, (Kind.CHAIN, False, False), "Burr")),
        _of("the same, Burr keeping outputs", 0.25, _by(outcomes, (Kind.CHAIN, False, False), "Burr, outputs kept")),
        _of("fan-out without store / Dask", 0.35, _by(outcomes, (Kind.FAN_OUT, False, False), "Dask")),
        _of("durable step beside a busy thread, in bare hand-offs", 3.0, _hand_offs(outcomes)),
        _of("the same, in switch intervals (what a hand-off costs at worst)", 3.0, _switches(outcomes)),
    ]
    for line in lines:
        if line.label == "ares":
            how = "durable" if line.is_stored else "without store"
            for of, cost in (("seconds", "cost"), ("processor", "processor time")):
                found.append(_of(f"{cost} of a step, {how}, at 10,000 / at 100", 1.2, line.ratios(10_000, 100, of)))
            if line.is_stored:
                found.append(_of("bytes of a step, at 10,000 / at 100", 1.2, line.ratios(10_000, 100, "bytes")))
    return found


def bus_verdicts(comparisons: Iterable[Comparison]) -> list[Verdict]:
    """What plugins cost, where there is a target."""
    return [
        _of(f"{each.what} / {each.beside}", each.most, each.ratios) for each in comparisons if each.most is not None
    ]


def single_verdicts(resumed: Resumed | None, imports: Imports | None, peak: Peak | None) -> list[Verdict]:
    """What is not a ratio of two figures of one round."""
    found = []
    if resumed is not None:
        found.append(_of(f"resume after {resumed.steps:,} steps", 0.3, resumed.resume, unit=" s"))
    if imports is not None:
        found.append(
            Verdict("import ares / its libraries, best of each", 1.5, imports.ratio, imports.ratio, imports.ratio)
        )
    if peak is not None:
        found.append(_of(f"peak memory of a map over {peak.elements:,}, an element", 400, [peak.bytes], unit=" B"))
    return found


def _of(what: str, target: float, figures: Sequence[float], unit: str = "") -> Verdict:
    if not figures:
        return Verdict(what, target, None, unit=unit)
    return Verdict(what, target, statistics.median(figures), min(figures), max(figures), unit)


def _find(outcomes: Iterable[Outcome], wanted: tuple[Kind, bool, bool]) -> Outcome | None:
    def key(cell: Cell) -> tuple[Kind, bool, bool]:
        return cell.shape.kind, cell.is_stored, cell.is_beside

    return next((outcome for outcome in outcomes if key(outcome.cell) == wanted), None)


def _by(outcomes: Iterable[Outcome], wanted: tuple[Kind, bool, bool], label: str) -> list[float]:
    outcome = _find(outcomes, wanted)
    return [] if outcome is None else outcome.ratios("ares", label)


def _same(label: str) -> bool:
    return "," not in label


def _keeping(label: str) -> bool:
    return label == "DBOS" or label.endswith(", outputs kept")


def _as_it_comes(label: str) -> bool:
    return label == "LangGraph" or label.endswith(", as it comes")


def _by_fastest(
    outcomes: Iterable[Outcome], wanted: tuple[Kind, bool, bool], counts: Callable[[str], bool]
) -> list[float]:
    """Divided, round by round, by whichever peer was the fastest in that round."""
    outcome = _find(outcomes, wanted)
    if outcome is None:
        return []
    peers = [
        seconds
        for label, seconds in outcome.seconds.items()
        if label != "ares" and not label.startswith(LIMITS) and counts(label)
    ]
    ours = outcome.seconds.get("ares", [])
    return [mine / min(theirs) for mine, *theirs in zip(ours, *peers, strict=False) if theirs]


def _hand_offs(outcomes: Iterable[Outcome]) -> list[float]:
    """Not those of two threads that pass a lock: they are awake, and beside a busy thread hardly ever let it in. Who
    commits lets go of the interpreter, and has to get it back."""
    return _by(outcomes, (Kind.CHAIN, True, True), HAND_OFF)


def _switches(outcomes: Iterable[Outcome]) -> list[float]:
    outcome = _find(outcomes, (Kind.CHAIN, True, True))
    return [] if outcome is None else [each / sys.getswitchinterval() for each in outcome.seconds.get("ares", [])]
