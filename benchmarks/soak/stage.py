"""Sets a soak up: the processes, and what can go wrong with them and with where their executions are kept."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import attrs

from ares.errors import UsageError
from ares.testing import Nursery
from benchmarks.soak import work
from benchmarks.soak.conductor import Soaked, soak
from benchmarks.soak.crew import Crew
from benchmarks.soak.faults import ClockJump, Fault, Kill, Pause
from benchmarks.soak.places import Place
from benchmarks.soak.plan import Plan, Timing, moments
from benchmarks.soak.wall_clock import WallClock

#: What can go wrong, and what it is to those who ask for it.
NAMES: Final = {
    "kill": "a process is killed with -9 and replaced",
    "pause": "a process stands still for LASTS",
    "outage": "the store is away for LASTS: somebody else holds the file's write lock, or the server is killed",
    "full": "the disk of the store is full for LASTS",
    "clock": "the wall clock of all processes is an hour fast or slow for LASTS",
}


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
