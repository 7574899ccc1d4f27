"""``python -m benchmarks soak``: the options, and what is printed."""

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from ares.errors import UsageError
from ares.testing import Nursery
from benchmarks.soak import work
from benchmarks.soak.conductor import Soaked, soak
from benchmarks.soak.crew import Crew
from benchmarks.soak.faults import ClockJump, Fault, Kill, Pause
from benchmarks.soak.places import FilePlace, Place
from benchmarks.soak.plan import Plan, Timing, moments
from benchmarks.soak.proof import violations
from benchmarks.soak.wall_clock import WallClock

#: What can go wrong, and what it is to those who ask for it.
NAMES = {
    "kill": "a process is killed with -9 and replaced",
    "pause": "a process stands still for LASTS",
    "outage": "the store is away for LASTS: its write lock is held by somebody else",
    "full": "the disk of the store is full for LASTS",
    "clock": "the wall clock of all processes is an hour fast or slow for LASTS",
}


def add_options(group: argparse._ArgumentGroup) -> None:
    """The options of this command."""
    group.add_argument("--processes", type=int, default=4, help="how many work at once (4)")
    group.add_argument("--executions", type=int, default=500, help="how many there are to do (500)")
    group.add_argument("--steps", type=int, default=20, help="of each execution (20)")
    group.add_argument("--seconds", type=float, default=0.01, help="that the body of a step takes (0.01)")
    group.add_argument("--lease-timeout", type=float, default=30.0, help="as a Runtime has it, in seconds (30)")
    group.add_argument(
        "--fault",
        action="append",
        metavar="NAME:EVERY[:LASTS[:TIMES]]",
        help="what goes wrong, about every so many seconds (kill:1); may be given more than once: "
        + "; ".join(f"{name}: {what}" for name, what in NAMES.items()),
    )
    group.add_argument("--seed", type=int, default=0, help="of the moments and victims")
    group.add_argument("--limit", type=float, default=600.0, help="seconds after which what is not completed is stuck")


def run(arguments: argparse.Namespace) -> int:
    """Soak, judge and print. Returns how many violations there were."""
    timings = [Timing.parse(text) for text in arguments.fault or ["kill:1"]]
    with tempfile.TemporaryDirectory(prefix="ares-soak-", ignore_cleanup_errors=True) as folder:
        place = FilePlace(folder)
        plan = Plan(
            store=place.store,
            folder=folder,
            processes=arguments.processes,
            executions=arguments.executions,
            steps=arguments.steps,
            seconds=arguments.seconds,
            lease_timeout=arguments.lease_timeout,
        )
        soaked = play(place, plan, timings, arguments.seed, arguments.limit)
    found = violations(plan, soaked.evidence)
    print("\n".join([*report(plan, soaked), f"{len(found)} violations", *found]))
    return len(found)


def play(place: Place, plan: Plan, timings: Sequence[Timing], seed: int, limit: float) -> Soaked:
    """Have a plan carried out, while everything goes wrong at its moments. In a process that has started no thread, if
    the disk is to be full.

    Raises:
        UsageError: there is no such fault, or it cannot be had here.
    """
    names = {timing.name for timing in timings}
    if unknown := sorted(names - NAMES.keys()):
        raise UsageError(f"there is no fault {unknown[0]!r}: it is one of {', '.join(NAMES)}")
    faults: dict[str, Fault] = {}
    if "full" in names:
        faults["full"] = place.full()
    with ExitStack() as stack:
        if "clock" in names:
            clock = stack.enter_context(WallClock(plan.folder))
            faults["clock"] = ClockJump(clock)
            with clock.for_new_processes():
                nursery = stack.enter_context(Nursery([work.__name__]))
        else:
            nursery = stack.enter_context(Nursery([work.__name__]))
        crew = Crew(nursery, work.live, {"plan": attrs.asdict(plan)}, plan.processes)
        faults |= {
            "kill": Kill(crew, plan.processes),
            "pause": Pause(crew, plan.processes),
            "outage": place.outage(nursery),
        }
        soaked = soak(plan, crew, faults, moments(timings, seed), limit)
    troubles = (*soaked.evidence.troubles, *place.damage())
    return attrs.evolve(soaked, evidence=attrs.evolve(soaked.evidence, troubles=troubles))


def report(plan: Plan, soaked: Soaked) -> list[str]:
    """What happened, whether it was right or not."""
    evidence = soaked.evidence
    kinds = Counter(effect.kind for effect in evidence.effects)
    places = {(effect.execution_id, effect.step) for effect in evidence.effects if effect.kind == "did"}
    resumed = sum(event.type == "workflow.resumed" for each in evidence.executions for event in each.events)
    statuses = Counter(str(execution.status) for execution in evidence.executions)
    return [
        f"{plan.processes} processes, {plan.executions} executions of {plan.steps} steps: {soaked.seconds:.1f} s",
        ", ".join(f"{name} {times} times" for name, times in soaked.struck.items()) or "nothing went wrong",
        ", ".join(f"{count} {status}" for status, count in statuses.items()),
        f"{kinds['began']} bodies began, {resumed} times somebody went on with what somebody else had begun",
        f"{len(places)} effects, {kinds['did'] - len(places)} of them again because they were not recorded yet",
    ]
