"""The arena: what becomes of a run when plugins, steps and the store are made to go wrong.

``matrix`` has every fault in every call of every plugin, one at a time, and what must come of it. ``seeds`` has several
at once, chosen and drawn by a seed: nothing may be other than what the faults that fired explain, and after the trial
all must be as if there had been none. Each seed can be played again.
"""

import gc
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import attrs

from ares import EventFilter, WorkflowResult
from ares.bus import PluginState
from ares.errors import InjectedError, InjectedPanic, InterceptorError, RecordedError, StoreError
from ares.plugins import ArenaReport, FaultKind, FiredFault
from ares.stores.sqlite import SqliteStore
from benchmarks.ring import ALL_WAYS, EXTRA, OF_PEERS, SUBJECTS, TIMEOUT, Ring, Subject, problems_of

#: Seconds that one run may take, whatever hangs in it: each plugin hangs once at most before it is left out, and the
#: machine may be busy with other things.
LIMIT: Final = 20.0
#: Of a plugin; delays are of seeds alone.
KINDS: Final = (FaultKind.ERROR, FaultKind.PANIC, FaultKind.TIMEOUT)


@attrs.frozen
class Cell:
    """One fault in one call of one plugin."""

    subject: Subject
    call: str
    kind: FaultKind

    def __str__(self) -> str:
        return f"{self.subject.name}.{self.call} {self.kind}"

    @property
    def path(self) -> str | None:
        """Where it strikes, if that matters: where the plugin is the one who is needed."""
        if self.call in self.subject.asked:
            return self.subject.point
        if self.subject.name == "fallback" and self.call == "route":
            return "f"
        return "m" if self.call == "before_step" and self.subject.name == "guard" else None


def cells() -> Iterator[Cell]:
    """The matrix."""
    for subject in SUBJECTS:
        for call in ("start", "stop", *subject.calls):
            for kind in KINDS:
                yield Cell(subject, call, kind)


def play(cell: Cell) -> list[str]:
    """Play one cell. Returns what was not as it must be."""
    ring = Ring(hanging={cell.subject.name} if cell.kind is FaultKind.TIMEOUT else ())
    began = time.monotonic()
    # One that hangs does so once: it would be found to hang anew each time that it has come back. A memory is asked
    # twice about a branch point, early and late: what it can still say then is as good as if nothing had happened.
    times = 2 if cell.call == "advise_route" else 1
    chance: dict[str, Any] = {"times": times} if cell.kind is FaultKind.TIMEOUT else {"probability": 1.0}
    result: WorkflowResult | None = None
    problems: list[str] = []
    with ring.arena.injecting(ring.runtime.bus):
        ring.arena.schedule_fault(cell.subject.name, cell.kind, call=cell.call, path=cell.path, **chance)
        try:
            result = ring.run()
            if f"{cell.subject.name}.{cell.call}" in EXTRA:
                failed = ring.ask_extra(result.execution_id, [f"{cell.subject.name}.{cell.call}"])
                problems += [] if failed else ["the call did not fail"]
        except ExceptionGroup as refused:
            if not (cell.subject.name == "guard" and cell.call == "start" and "guard" in str(refused)):
                problems.append(f"the Runtime did not start: {refused}")
        finally:
            ring.runtime.close(2.0)
    took = time.monotonic() - began
    if took > LIMIT:
        problems.append(f"it took {took:.1f} s")
    problems += _unnamed(ring, cell, result) + ([] if result is None else _wrong(ring, cell, result))
    return [f"{cell}: {problem}" for problem in problems]


def _unnamed(ring: Ring, cell: Cell, result: WorkflowResult | None) -> list[str]:
    """Where the fault is not named that must be: in the report, in health and, while there is time, in warnings."""
    problems, name = [], cell.subject.name
    report, health = ring.arena.report(), ring.runtime.health()[name]
    fired = [fired for fired in report.fired if (fired.name, fired.call, fired.kind) == (name, cell.call, cell.kind)]
    if not fired or len(fired) != len(report.fired) or report.unfired or report.problems or ring.arena.faults:
        problems.append(f"the report is wrong: {report}")
    if health.faults != len(fired) or health.faults_on:
        problems.append(f"health says {health.faults} faults, not {len(fired)}")
    if not (health.timeouts if cell.kind is FaultKind.TIMEOUT else health.errors):
        problems.append(f"health counts no failure: {health}")
    if cell.call == "start" and health.state is not PluginState.FAILED:
        problems.append(f"it is {health.state}")
    # Peers and those who are asked besides tell their caller; events and stop may come too late for a result.
    is_told = cell.call not in {"stop", "on_event", *OF_PEERS} and f"{name}.{cell.call}" not in EXTRA
    if is_told and result is not None and not any(repr(name) in warning for warning in result.warnings):
        problems.append(f"no warning names it: {result.warnings}")
    return problems


def _wrong(ring: Ring, cell: Cell, result: WorkflowResult) -> list[str]:
    """What is not as the fault has it."""
    name, call, point = cell.subject.name, cell.call, cell.subject.point
    is_lost = bool(point) and (call in cell.subject.asked or call == "start")
    # One that hangs in another call may still do so when it is asked.
    may_lose = is_lost or (bool(point) and cell.kind is FaultKind.TIMEOUT)
    refuses = name == "guard" and call == "before_step"
    denies = name == "recovery" and call == "should_recover"
    lost = frozenset({point} if may_lose else ())
    problems = problems_of(result, lost=lost, is_recovered=not denies, may_refuse=refuses)
    if is_lost and result.outputs.get(f"{point}_join") != ALL_WAYS[point]:
        problems.append(f"the decision at {point} is not the fallback: {result.outputs.get(f'{point}_join')}")
    if denies and result.steps["flaky"].status != "FAILED":
        problems.append("flaky was recovered")
    if refuses:
        problems += _not_refused(ring, result)
    elif not denies and result.status != "COMPLETED":
        problems.append(f"it is {result.status}: {result.error!r}")
    return problems


def _not_refused(ring: Ring, result: WorkflowResult) -> list[str]:
    problems = [] if "m" not in ring.bodies.ran and result.steps["m"].status == "FAILED" else ["m ran"]
    for path, step in result.steps.items():
        if step.status == "FAILED" and isinstance(step.error, InterceptorError) and path in ring.bodies.ran:
            problems.append(f"{path} was refused and ran")
    return problems


def matrix(chosen: list[Cell] | None = None, at_once: int = 8) -> list[str]:
    """Play cells, all unless told which, so many at the same time. Returns what was not as it must be."""
    with NothingLeft() as problems, ThreadPoolExecutor(at_once) as pool:
        for found in pool.map(play, list(cells()) if chosen is None else chosen):
            problems.extend(found)
    return problems


# --- seeds -----------------------------------------------------------------------------------------------------------


def plan(seed: int) -> list[tuple[str, dict[str, Any]]]:
    """What a seed chooses: methods of an arena that schedule faults, and their arguments."""
    dice = random.Random(seed)
    planned: list[tuple[str, dict[str, Any]]] = []
    for _ in range(dice.randint(2, 6)):
        subject = dice.choice(SUBJECTS)
        kind = dice.choice((*FaultKind,))
        chance: dict[str, Any] = dice.choice(
            ({"times": 1}, {"times": 3}, {"probability": 0.1}, {"probability": 0.5}, {"probability": 1.0})
        )
        call = dice.choice((None, "start", "stop", *subject.calls, *subject.calls))
        seconds = dice.choice((0.002, 0.02)) if kind is FaultKind.DELAY else None
        more = {"call": call, "seconds": seconds, "late": dice.random() < 0.3}
        planned.append(("schedule_fault", {"plugin": subject.name, "kind": kind, **more, **chance}))
    if dice.random() < 0.3:
        kind = dice.choice((FaultKind.ERROR, FaultKind.PANIC, FaultKind.DELAY))
        more = {"seconds": 0.01 if kind is FaultKind.DELAY else None, "late": dice.random() < 0.5}
        planned.append(("schedule_step_fault", {"step": "square", "kind": kind, "probability": 0.2, **more}))
    if dice.random() < 0.3:
        kind = dice.choice((FaultKind.ERROR, FaultKind.DELAY))
        more = {"seconds": 0.005 if kind is FaultKind.DELAY else None, "late": dice.random() < 0.5}
        planned.append(("schedule_store_fault", {"kind": kind, "probability": 0.03, **more}))
    return planned


@attrs.frozen
class Played:
    """What came of a seed."""

    seed: int
    report: ArenaReport
    problems: tuple[str, ...]


def play_seed(seed: int, folder: str | None = None) -> Played:
    """Play a seed, once with its faults and once without, in one Runtime; a store that failed is resumed from.

    Args:
        seed: Which.
        folder: Where every other seed keeps its store; without it, all keep theirs in memory.
    """
    db = None if folder is None or seed % 2 else Path(folder) / f"{seed}.db"
    mode = ("sync", "async", "best_effort")[seed % 3]
    planned = plan(seed)
    hanging = {
        arguments["plugin"]
        for _, arguments in planned
        if arguments["kind"] is FaultKind.TIMEOUT and "plugin" in arguments
    }
    ring = Ring(seed, None if db is None else SqliteStore(db), mode, hanging)
    began = time.monotonic()
    problems: list[str] = []
    told = ring.runtime.bus.subscribe(EventFilter(types=["fault.injected"], journaled=False), buffer=100_000)
    with ring.arena.injecting(ring.runtime.bus):
        for schedule, arguments in planned:
            getattr(ring.arena, schedule)(**arguments)
        result = _attempt(ring, problems)
    report = ring.arena.report()
    took = time.monotonic() - began
    if took > LIMIT:
        problems.append(f"it took {took:.1f} s")
    problems += _untold(ring, report, told.matched)
    if result is not None:
        problems += _unexplained(result, report, hanging)
        problems += _after(ring, report)
    began = time.monotonic()
    ring.runtime.close(2.0)
    if time.monotonic() - began > LIMIT:
        problems.append(f"closing took {time.monotonic() - began:.1f} s")
    return Played(seed, report, tuple(f"seed {seed}: {problem}" for problem in problems))


def _attempt(ring: Ring, problems: list[str]) -> WorkflowResult | None:
    """The result of a run under fire; of its resumption without it, if the store failed."""
    arena = ring.arena
    try:
        result = ring.runtime.run(ring.workflow, execution_id="e")
        ring.ask_extra("e")
        return result
    except StoreError as error:
        if "injected" not in str(error):
            problems.append(f"the store failed by itself: {error!r}")
        for fault in arena.faults:
            arena.cancel_fault(fault)
        ring.settle()
        return ring.runtime.run(ring.workflow, execution_id="e", if_exists="resume")
    except ExceptionGroup as refused:
        if not any(fired.name == "guard" and fired.call == "start" for fired in arena.report().fired):
            problems.append(f"the Runtime did not start: {refused}")
        return None


def _is_of(fired: FiredFault, name: str, *calls: str) -> bool:
    return fired.target == "plugin" and fired.name == name and fired.call in calls


def _unexplained(result: WorkflowResult, report: ArenaReport, hanging: set[str]) -> list[str]:
    """What the faults that fired do not explain. Those that are to hang have so little time that they may be late by
    themselves."""
    steps = [fired for fired in report.fired if fired.target == "step"]
    refused = [fired for fired in report.fired if _is_of(fired, "guard", "before_step")]
    denied = [fired for fired in report.fired if _is_of(fired, "recovery", "should_recover")]
    may_refuse, may_deny = bool(refused) or "guard" in hanging, bool(denied) or "recovery" in hanging
    lost = _lost({fired.name for fired in report.fired if fired.target == "plugin"} | hanging)
    problems = problems_of(
        result, lost=lost, is_recovered=not may_deny, may_refuse=may_refuse or bool(steps or report.more)
    )
    for path, step in result.steps.items():
        if (
            step.status == "FAILED"
            and not (path == "flaky" and denied)
            and not _is_explained(step.error, steps, refused)
        ):
            problems.append(f"{path} failed with {step.error!r}")
    return problems


def _is_explained(error: object, steps: list[FiredFault], may_refuse: bool) -> bool:
    # Of what failed before a resumption, the error is on record.
    kind = error.type_name if isinstance(error, RecordedError) else type(error).__name__
    if kind == InterceptorError.__name__:
        return may_refuse
    if kind in (InjectedError.__name__, InjectedPanic.__name__):
        return bool(steps)
    return (bool(steps) or may_refuse) and "square" in str(error)  # a map whose element failed


def _lost(names: set[str]) -> frozenset[str]:
    """The branch points at which somebody is needed of those names."""
    return frozenset(subject.point for subject in SUBJECTS if subject.name in names and subject.point)


def _untold(ring: Ring, report: ArenaReport, events: int) -> list[str]:
    """Where a fault that fired is not named."""
    problems = [f"the arena failed: {problem}" for problem in report.problems]
    if ring.arena.faults:
        problems.append("there are faults left")
    of_plugins = [fired for fired in report.fired if fired.target == "plugin"]
    of_stores = [fired for fired in report.fired if fired.target == "store"]
    if not report.more and events != len(of_plugins) + len(of_stores):
        problems.append(f"{events} events tell of {len(of_plugins)} faults of plugins, {len(of_stores)} of the store")
    for name, health in ring.runtime.health().items():
        count = sum(1 for fired in of_plugins if fired.name == name)
        if health.faults != count and not report.more:
            problems.append(f"health says {health.faults} faults of {name!r}, the report {count}")
    return problems


def _after(ring: Ring, report: ArenaReport) -> list[str]:
    """What is not as if nothing had ever been wrong, once the faults are taken back."""
    ring.settle()
    out = {name for name, health in ring.runtime.health().items() if health.state is PluginState.FAILED}
    problems: list[str] = []
    for _ in range(3):  # somebody who has little time may be late by himself, but not again and again
        result = ring.run()
        problems = problems_of(result, lost=_lost(out), is_recovered=True, may_refuse=False)
        events = ring.runtime.execution(result.execution_id).events()
        problems += [f"it tells of {event}" for event in events if event.type == "fault.injected"]
        if result.status != "COMPLETED":
            problems.append(f"it is {result.status}: {result.error!r}")
        if not problems:
            break
    if ring.arena.report() != report:
        problems.append(f"{len(ring.arena.report().fired)} faults have fired now")
    return [f"without faults: {problem}" for problem in problems]


def seeds(chosen: range, at_once: int = 2) -> list[Played]:
    """Play seeds, so many at the same time."""
    with (
        tempfile.TemporaryDirectory(prefix="ares-arena-") as folder,
        NothingLeft() as problems,
        ThreadPoolExecutor(at_once) as pool,
    ):
        played = list(pool.map(lambda seed: play_seed(seed, folder), chosen))
    return [*played, *([Played(-1, ArenaReport(-1), tuple(problems))] if problems else [])]


class NothingLeft:
    """Finds threads and descriptors that were left behind."""

    def __enter__(self) -> list[str]:
        self._threads = set(threading.enumerate())
        self._files = _open_files()
        self._problems: list[str] = []
        return self._problems

    def __exit__(self, *_: object) -> None:
        until = time.monotonic() + 10
        pause = threading.Event()
        while time.monotonic() < until and (self._left() or _open_files() > self._files):
            gc.collect()  # a router's thread ends with the router, if nobody stops it
            pause.wait(0.05)
        self._problems += [f"thread {name!r} is left" for name in self._left()]
        if _open_files() > self._files:
            self._problems.append(f"{_open_files() - self._files} descriptors are left")

    def _left(self) -> list[str]:
        started = set(threading.enumerate()) - self._threads
        return sorted(each.name for each in started if each.name.startswith("ares-") and each.name != "ares-notices")


def _open_files() -> int:
    folder = Path(f"/proc/{os.getpid()}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def run(count: int, first: int = 0) -> int:
    """Play the matrix and so many seeds, and print. Returns how many problems there were."""
    began = time.monotonic()
    everything = list(cells())
    problems = matrix(everything)
    print(f"matrix: {len(everything)} cells in {time.monotonic() - began:.1f} s, {len(problems)} problems", flush=True)
    began = time.monotonic()
    played = seeds(range(first, first + count))
    found = [problem for each in played for problem in each.problems]
    fired = sum(len(each.report.fired) + each.report.more for each in played)
    unfired = sum(len(each.report.unfired) for each in played)
    print(
        f"seeds {first} to {first + count - 1}: {fired} faults fired, {unfired} scheduled ones did not, "
        f"in {time.monotonic() - began:.1f} s, {len(found)} problems; a call may take {TIMEOUT:g} s"
    )
    print("\n".join([*problems, *found]))
    return len(problems) + len(found)
