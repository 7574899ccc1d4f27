"""The figures as tables that are Markdown as they stand, and as JSON."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from benchmarks.bus import Comparison
from benchmarks.contest import COMMIT, Habit, Outcome
from benchmarks.growth import Line
from benchmarks.imports import Imports
from benchmarks.imports import line as imports_line
from benchmarks.memory import Peak
from benchmarks.memory import line as peak_line
from benchmarks.peers import Peer, Shape
from benchmarks.resume import Resumed
from benchmarks.resume import line as resume_line
from benchmarks.targets import Verdict, bus_verdicts, single_verdicts, verdicts

_READING = (
    "Ratios are ares divided by the other, in the same round: the median, and the lowest and the highest round."
    " Microseconds are those of a step; of a limit, those of one operation."
)


@attrs.define(eq=False)
class Report:
    """Everything that one run found out."""

    machine: dict[str, str]
    peers: Sequence[Peer]
    versions: dict[str, str]
    absent: dict[str, str]
    outcomes: list[Outcome] = attrs.field(factory=list)
    habits: list[Habit] = attrs.field(factory=list)
    lines: list[Line] = attrs.field(factory=list)
    resumed: Resumed | None = None
    imports: Imports | None = None
    peak: Peak | None = None
    bus: list[Comparison] = attrs.field(factory=list)
    usage: dict[str, float] = attrs.field(factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        """The targets."""
        return [
            *(verdicts(self.outcomes, self.lines) if self.outcomes or self.lines else ()),
            *bus_verdicts(self.bus),
            *single_verdicts(self.resumed, self.imports, self.peak),
        ]

    def text(self) -> str:
        """All of it, to read."""
        parts = [
            _facts(self),
            _READING,
            _ratios(self.outcomes, list(self.versions)),
            *_missing(self.outcomes),
            _processor(self.outcomes, list(self.versions)),
            _habits(self.habits, self.peers),
            _growth(self.lines),
            _bus(self.bus),
            "\n".join(_single(self)),
            _targets(self.verdicts),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def figures(self) -> dict[str, Any]:
        """Every figure of every round, as JSON has it."""
        return {
            "machine": self.machine,
            "usage": self.usage,
            "versions": self.versions,
            "absent": self.absent,
            "cells": [{**attrs.asdict(outcome), "what": str(outcome.cell)} for outcome in self.outcomes],
            "sqlite": [attrs.asdict(habit) for habit in self.habits],
            "growth": [attrs.asdict(line) for line in self.lines],
            "resume": None if self.resumed is None else attrs.asdict(self.resumed),
            "imports": None if self.imports is None else attrs.asdict(self.imports),
            "map": None if self.peak is None else attrs.asdict(self.peak),
            "bus": [attrs.asdict(comparison) for comparison in self.bus],
            "targets": [{**attrs.asdict(verdict), "verdict": verdict.word} for verdict in self.verdicts],
        }


def _facts(report: Report) -> str:
    usage = report.usage
    shares = {name: f"{usage[name]:.0%}" for name in ("own", "others", "stolen")}
    lines = [f"- {name}: {value}" for name, value in report.machine.items()]
    lines.append("- versions: " + ", ".join(f"{name} {number}" for name, number in report.versions.items()))
    lines += [f"- left out: {name}: {reason}" for name, reason in report.absent.items()]
    lines.append(
        f"- how busy: {usage['minutes']:.0f} minutes, in which this run used {shares['own']} of the processors, others"
        f" {shares['others']}, the host's other guests {shares['stolen']}; load average"
        f" {usage['load before']:.1f} before, {usage['load after']:.1f} after"
    )
    return "\n".join(lines)


# --- the table of ratios -----------------------------------------------------------------------------


def _ratios(outcomes: Sequence[Outcome], order: Sequence[str]) -> str:
    if not outcomes:
        return ""
    peers = _labels(outcomes, order)
    rows = [["", "ares, us", "limit, us (before, after)", "of limit", *(f"of {peer}" for peer in peers)]]
    rows += [_row(outcome, peers) for outcome in outcomes]
    return markdown(rows)


def _labels(outcomes: Sequence[Outcome], order: Sequence[str]) -> list[str]:
    return sorted(
        {label for outcome in outcomes for label in outcome.processor if label != "ares"},
        key=lambda label: (label.count(","), order.index(label.partition(",")[0]), label),
    )


def _processor(outcomes: Sequence[Outcome], order: Sequence[str]) -> str:
    alone = [outcome for outcome in outcomes if not outcome.cell.is_beside]
    if not alone:
        return ""
    peers = _labels(alone, order)
    rows = [["of processor time", "ares, us", *(f"of {peer}" for peer in peers)]]
    for outcome in alone:
        ratios = (_spread(outcome.processor_ratios("ares", peer)) for peer in peers)
        rows.append([str(outcome.cell), _spread_us(outcome.processor.get("ares", [])), *ratios])
    return markdown(rows)


def _row(outcome: Outcome, peers: Iterable[str]) -> list[str]:
    limit = outcome.cell.limit
    sides = [outcome.seconds.get(f"{limit}, {side}", []) for side in ("before", "after")]
    around = " ".join(_us(seconds) for seconds in sides)
    name = "commit" if limit == COMMIT else "lock"
    cells = [str(outcome.cell), _spread_us(outcome.seconds.get("ares", [])), f"{name} {around}"]
    cells.append(_spread(outcome.ratios("ares", limit)))
    return cells + [_spread(outcome.ratios("ares", peer)) for peer in peers]


def _missing(outcomes: Sequence[Outcome]) -> list[str]:
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for label, reason in outcome.missing.items():
            how = "durable" if outcome.cell.is_stored else "no store"
            where = f"{outcome.cell.shape.kind}, {how}"
            found.setdefault(f"{label}: {reason}", []).append(where)
    return (
        ["\n".join(f"- not measured: {why} ({'; '.join(dict.fromkeys(w))})" for why, w in found.items())]
        if found
        else []
    )


# --- the other tables ----------------------------------------------------------------------------------


def _habits(habits: Sequence[Habit], peers: Sequence[Peer]) -> str:
    if not habits:
        return ""
    shapes: list[Shape] = list(dict.fromkeys(habit.shape for habit in habits))
    rows = [["SQLite, read from each one's own connection", "at the end", *(f"commits a step, {s}" for s in shapes)]]
    for label in dict.fromkeys(habit.label for habit in habits):
        own = {habit.shape: habit for habit in habits if habit.label == label}
        rows.append([label, next(iter(own.values())).settings, *(_commits(own.get(shape)) for shape in shapes)])
    said = "\n".join(f"- {peer.name}: {peer.store}" for peer in peers)
    return f"{markdown(rows)}\n\n{said}"


def _commits(habit: Habit | None) -> str:
    return "" if habit is None else ", ".join(f"{count:.2f} {level}" for level, count in habit.commits.items())


def _growth(lines: Sequence[Line]) -> str:
    counts = list(dict.fromkeys(point.count for line in lines for points in line.rounds for point in points))
    if not counts:
        return ""
    rows = [["us a step (bytes of file a step)", *(f"{count:,}" for count in counts), ""]]
    for line in lines:
        at = {count: (seconds, size) for count, seconds, size in line.medians()}
        if at:
            name = f"{line.label}, {'durable' if line.is_stored else 'no store'}"
            rows.append([name, *(_point(at.get(count)) for count in counts), line.ended])
    return markdown(rows)


def _point(found: tuple[float, float] | None) -> str:
    if found is None:
        return ""
    seconds, size = found
    return f"{seconds * 1e6:.0f}" + (f" ({size:,.0f})" if size else "")


def _bus(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return ""
    rows = [["plugins", "ares, us", "beside", "us", "ratio"]]
    for each in comparisons:
        theirs = each.missing or _spread_us(each.theirs, digits=2)
        rows.append([each.what, _spread_us(each.ours, digits=2), each.beside, theirs, _spread(each.ratios)])
    return markdown(rows)


def _single(report: Report) -> list[str]:
    found = []
    if report.resumed is not None:
        found.append(f"- {resume_line(report.resumed)}")
    if report.imports is not None:
        found.append(f"- {imports_line(report.imports)}")
    if report.peak is not None:
        found.append(f"- {peak_line(report.peak)}")
    return found


def _targets(found: Sequence[Verdict]) -> str:
    rows = [["target", "at most", "measured", "verdict"]]
    for verdict in found:
        figure = (
            ""
            if verdict.figure is None
            else f"{verdict.figure:.2f}{verdict.unit} ({verdict.low:.2f}-{verdict.high:.2f})"
        )
        rows.append([verdict.what, f"{verdict.target:g}{verdict.unit}", figure, verdict.word])
    return markdown(rows)


# --- how it is written ------------------------------------------------------------------------------------


def _us(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:,.0f}" if seconds else ""


def _spread_us(seconds: Sequence[float], digits: int = 0) -> str:
    if not seconds:
        return ""
    middle, low, high = (
        f"{each * 1e6:,.{digits}f}" for each in (statistics.median(seconds), min(seconds), max(seconds))
    )
    return f"{middle} ({low}-{high})"


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)
