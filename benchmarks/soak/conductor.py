"""Has all of it happen: the processes at work, what goes wrong at its moments, and the collecting of what is left."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from ares import Runtime
from ares.errors import StoreError
from benchmarks.soak.crew import Crew
from benchmarks.soak.evidence import Evidence, Seen, effects_in, seen
from benchmarks.soak.faults import Fault
from benchmarks.soak.plan import Moment, Plan

#: Seconds between two looks at processes and executions.
_LOOK = 0.25
#: Seconds that claims may outlive the last of what was claimed.
_GRACE = 10.0


@attrs.frozen
class Soaked:
    """How it went. ``struck`` is how often each fault did."""

    evidence: Evidence
    seconds: float
    struck: Mapping[str, int]


def soak(plan: Plan, crew: Crew, faults: Mapping[str, Fault], moments: Iterator[Moment], limit: float) -> Soaked:
    """Wait until all executions have ended, while everything goes wrong.

    Args:
        plan: what the crew does.
        crew: at work already.
        faults: by name.
        moments: when which strikes and is lifted.
        limit: seconds after which what has not ended is stuck.
    """
    began = time.monotonic()
    struck: Counter[str] = Counter()
    reader = Runtime(plan.store)
    try:
        upcoming = next(moments, None)
        while not (has_ended := _have_ended(reader, plan)) and time.monotonic() < began + limit:
            crew.look()
            look_again = time.monotonic() + _LOOK
            while upcoming is not None and began + upcoming.at <= look_again:
                _wait(began + upcoming.at)
                if upcoming.begins:
                    faults[upcoming.name].strike(upcoming.draw)
                    struck[upcoming.name] += 1
                else:
                    faults[upcoming.name].lift()
                upcoming = next(moments, None)
            _wait(look_again)
    finally:
        reader.close()
        for fault in faults.values():
            fault.lift()
    seconds = time.monotonic() - began
    executions = _at_rest(plan)
    crew.dismiss()
    effects, damaged = effects_in(plan.folder)
    late = [] if has_ended else [f"not all had ended after {limit:g} s"]
    evidence = Evidence(tuple(executions), tuple(effects), tuple(crew.stops), (*late, *crew.troubles, *damaged))
    return Soaked(evidence, seconds, struck)


def _wait(until: float) -> None:
    threading.Event().wait(max(0.0, until - time.monotonic()))


def _have_ended(reader: Runtime, plan: Plan) -> bool:
    try:
        return sum(each.status.is_final for each in reader.executions()) >= plan.executions
    except StoreError:
        return False  # it is away, or not there yet


def _at_rest(plan: Plan) -> list[Seen]:
    """The executions, with the crew still there: what it claims must be given back by itself."""
    with Runtime(plan.store) as rt:
        until = time.monotonic() + _GRACE
        while any(each.owner for each in rt.executions()) and time.monotonic() < until:
            _wait(time.monotonic() + _LOOK)
        return list(seen(rt))
