"""ares beside its peers and the limits of the machine, in one run: what ``python -m benchmarks`` does by itself.

``python -m benchmarks bus`` is the part of it that needs no peers. Every ratio is of two figures taken in one round.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from benchmarks import bus, growth, imports, machine, memory, results, resume
from benchmarks.contest import Cell, Contest, say
from benchmarks.peers import NAMES, Kind, Peer, Shape, load, version
from benchmarks.report import Report

#: Rounds beside a busy thread take longest and say least: half as many of them.
_FEWER = 2
#: Of the shapes, what is run beside a busy thread unless it is a full run: every step takes many switches there.
_PART = 4


@attrs.frozen
class Plan:
    """How much is measured."""

    shapes: tuple[Shape, ...]
    counts: tuple[int, ...]
    longest: int
    resumed: int
    mapped: int
    bus: bus.Amount

    def cells(self, part: int) -> list[Cell]:
        """All rows of the table: alone, and beside a busy thread with a part of the steps."""
        found = []
        for shape in self.shapes:
            less = attrs.evolve(shape, size=max(2, shape.size // part))
            for is_stored in (False, True):
                found += [Cell(shape, is_stored, is_beside=False), Cell(less, is_stored, is_beside=True)]
        return sorted(found, key=lambda cell: cell.is_beside)


_WHOLE = Plan(
    shapes=(Shape(Kind.CHAIN, 400), Shape(Kind.FAN_OUT, 400), Shape(Kind.THREADS, 20, threads=64)),
    counts=growth.COUNTS,
    longest=growth.LONGEST,
    resumed=10_000,
    mapped=100_000,
    bus=bus.WHOLE,
)
#: To see that everything works.
_QUICK = Plan(
    shapes=(Shape(Kind.CHAIN, 20), Shape(Kind.FAN_OUT, 20), Shape(Kind.THREADS, 4, threads=4)),
    counts=(10, 100),
    longest=200,
    resumed=100,
    mapped=1_000,
    bus=bus.QUICK,
)

#: What can be measured, in this order.
PARTS = ("imports", "resume", "map", "bus", "contest", "growth")


def add_options(group: argparse._ArgumentGroup) -> None:
    """The options of this command."""
    group.add_argument("--only", default=",".join(NAMES), help=f"peers to compare with (default: {','.join(NAMES)})")
    group.add_argument("--parts", default=",".join(PARTS), help="what to measure (default: all)")
    group.add_argument(
        "--full", action="store_true", help="all of it beside a busy thread, too, and peers' long chains"
    )
    group.add_argument("--quick", action="store_true", help="a few steps of everything, to see that it works")
    group.add_argument("--one-cpu", action="store_true", help="on one processor")
    group.add_argument("--folder", type=Path, help="where files are made (its disk is what is measured)")
    group.add_argument("--json", type=Path, help="write every figure there")
    group.add_argument("--from", type=Path, dest="earlier", help="measure nothing: take what an earlier --json wrote")
    group.add_argument("--results", type=Path, help="write the table of ratios there, to be kept (Markdown)")
    group.add_argument("--png", type=Path, help="draw cost against length there")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print, write, draw; or write down what was measured before."""
    if arguments.earlier:
        _keep(json.loads(arguments.earlier.read_text()), arguments.results)
        return
    if arguments.one_cpu:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either way what was measured is printed
    warnings.simplefilter("ignore")  # libraries' remarks about each other
    logging.disable(logging.WARNING)
    usage = machine.Usage()
    with _folder(arguments.folder) as folder:
        peers, absent = _load(arguments.only.split(","))
        report = Report(machine.describe(folder), peers, {peer.name: version(peer) for peer in peers}, absent)
        try:
            _measure(report, arguments, folder)
        except KeyboardInterrupt:
            report.machine["cut short"] = "yes: what follows was measured before"
    report.usage = usage.report()
    print(report.text())
    if arguments.json:
        arguments.json.write_text(json.dumps(report.figures(), indent=1) + "\n")
    if arguments.results:
        _keep(report.figures(), arguments.results)
    if arguments.png:
        from benchmarks import chart

        chart.draw(report.lines, arguments.png, f"{report.machine['date']}, {report.machine['processor']}")


def _keep(figures: dict[str, Any], path: Path | None) -> None:
    """Write the table that is kept; print it where no file is named."""
    if path is None:
        print(results.text(figures))
    else:
        path.write_text(results.text(figures))


@contextlib.contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=wanted) as name:
        yield Path(name)


def _measure(report: Report, arguments: argparse.Namespace, folder: Path) -> None:
    parts = arguments.parts.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    plan = _QUICK if arguments.quick else _WHOLE
    if "imports" in parts:
        say("imports")
        report.imports = imports.measure()
    if "resume" in parts:
        say("resume")
        report.resumed = resume.measure(plan.resumed, folder, arguments.rounds)
    if "map" in parts:
        say("map")
        report.peak = memory.measure(plan.mapped)
    if "bus" in parts:
        bus.measure(arguments.rounds, plan.bus, report.bus)
    if "contest" in parts:
        _contest(report, plan, arguments, folder)
    if "growth" in parts:
        longest = (*plan.counts, plan.longest)
        counts = longest if arguments.full else plan.counts
        growth.measure(report.peers, folder, counts, longest, min(3, arguments.rounds), report.lines)


def _contest(report: Report, plan: Plan, arguments: argparse.Namespace, folder: Path) -> None:
    contest = Contest(report.peers, folder, report.outcomes, report.habits)
    contest.warm_up(plan.cells(1 if arguments.full else _PART))
    for number in range(arguments.rounds):
        contest.round(number, is_beside=False)
        if number % _FEWER == 0:
            contest.round(number, is_beside=True)


def _load(names: list[str]) -> tuple[list[Peer], dict[str, str]]:
    """ares, and the peers that are installed; the others with what is missing."""
    peers, absent = [load("ares")], {}
    for each in filter(None, names):
        try:
            peers.append(load(each))
        except ImportError as error:
            absent[each] = f"not installed ({error})"
    return peers, absent
