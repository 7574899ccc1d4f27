"""When an arena may strike, and what it does: the state that all its hands share."""

import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ares.errors import InjectedError, InjectedPanic, UsageError
from ares.plugin import Capability, FaultPoint, FaultPoints, Injection
from ares.plugins._faults import ArenaReport, Fault, FaultKind, FaultTargetKind, Place, Schedule, checked_chance

#: For the children of forks.
_everybody: "weakref.WeakSet[Trials]" = weakref.WeakSet()


class Trial:
    """One time that faults are injected: the ``Injector`` of a bus.

    Raises:
        UsageError: the bus cannot have faults injected.
    """

    def __init__(self, trials: "Trials", bus: Any) -> None:
        points: FaultPoints | None = getattr(bus, "fault_points", None)
        if points is None:
            raise UsageError(f"{bus!r} has no fault points")
        self.name = trials.name
        self.bus = bus
        self.points = points
        self.pid = os.getpid()
        #: Set at its end: whatever hangs by its orders goes on.
        self.over = threading.Event()
        self._trials = trials

    def inject(self, point: FaultPoint) -> Injection | None:
        """See ``Injector``."""
        plugin = FaultTargetKind.PLUGIN
        place = Place(plugin, point.plugin, point.call, point.event_type, point.path, point.round, point.attempt)
        struck = self._trials.strike(place, point.execution_id, point.capabilities)
        if struck is None:
            return None
        fault, _ = struck
        seconds = math.inf if fault.kind is FaultKind.TIMEOUT else fault.seconds
        error = self._trials.error_of(fault, f"{point.call} of plugin {point.plugin!r}")
        return Injection(fault.kind.value, error, seconds, fault.is_late)


class Trials:
    """The trials of one arena, one after another. Any thread.

    Args:
        name: The arena's.
        seed: On which all draws depend.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._seed = seed
        self._lock = threading.Lock()
        # Under the lock:
        self._current: Trial | None = None
        self._schedule = Schedule(seed)
        #: Whether the schedule is of a trial that is over.
        self._is_over = False
        self._numbers = 0
        #: Of entries of the store whose append was struck in this trial, how often: by execution and number.
        self._appended: dict[tuple[str, int], int] = {}
        _everybody.add(self)

    def in_child(self) -> None:
        """In the child of a fork: the lock may be held by nobody, and the trial of the parent is not here."""
        self._lock = threading.Lock()
        if self._current is not None:
            self._current, self._schedule, self._is_over = None, Schedule(self._seed), False

    # --- what is planned ------------------------------------------------------------------------------------------

    def add(self, *, chance: tuple[int | None, float | None], is_late: bool, **fields: Any) -> Fault:
        """Schedule a fault.

        Raises:
            UsageError: something in it cannot be.
        """
        if not isinstance(is_late, bool):
            raise UsageError(f"late must be True or False, not {is_late!r}")
        times, probability = checked_chance(*chance)
        with self._lock:
            fault = Fault(self._numbers + 1, times=times, probability=probability, is_late=is_late, **fields)
            if self._current is not None:
                _check_exists(fault, self._current.points)
            self._numbers += 1
            self._begin_anew()
            self._schedule.add(fault)
        return fault

    def cancel(self, fault: Fault) -> bool:
        """It strikes no more. Returns whether it still might have."""
        with self._lock:
            return self._schedule.remove(fault)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those that may still strike."""
        with self._lock:
            return self._schedule.faults

    def report(self) -> ArenaReport:
        """Of the trial under way, or the last one."""
        with self._lock:
            return self._schedule.report()

    def complain(self, problem: str) -> None:
        """Something is wrong with the arena itself."""
        with self._lock:
            self._schedule.complain(problem)

    # --- when it happens ------------------------------------------------------------------------------------------

    def begin(self, trial: Trial) -> None:
        """From now on faults strike.

        Raises:
            UsageError: they cannot, on this bus or now.
        """
        with self._lock:
            if self._current is not None:
                raise UsageError(f"arena {self.name!r} is injecting already")
            self._begin_anew()
            for fault in self._schedule.faults:
                _check_exists(fault, trial.points)
            trial.points.open(trial)
            self._current = trial

    def end(self, trial: Trial) -> None:
        """Nothing strikes any more; every fault is taken back, and what hangs goes on. Nothing, if it did not begin."""
        with self._lock:
            if self._current is trial:
                self._current, self._is_over = None, True
                self._schedule.clear()
                self._appended.clear()
        if trial.pid == os.getpid():
            trial.over.set()
            trial.points.close(trial)

    def _begin_anew(self) -> None:
        """Under the lock: what is scheduled now is not of the last trial."""
        if self._is_over:
            self._schedule, self._is_over = Schedule(self._seed), False

    @property
    def is_under_way(self) -> bool:
        """Whether anything can strike now. Takes no lock."""
        return self._current is not None

    def strike(
        self, place: Place, execution_id: str, capabilities: frozenset[Capability] = frozenset()
    ) -> tuple[Fault, Trial] | None:
        """The fault that strikes at a place, and in which trial; None if none does."""
        with self._lock:
            if self._current is None:
                return None
            fault = self._schedule.strike(place, capabilities, execution_id)
            return None if fault is None else (fault, self._current)

    def strike_entry(self, execution_id: str, seq: int, place: Callable[[int], Place]) -> tuple[Fault, Trial] | None:
        """As ``strike``, for an entry that a store is to take. What is appended again after it was struck is drawn for
        anew: ``place`` is given the attempt, from 1."""
        with self._lock:
            attempt = 1 + self._appended.get((execution_id, seq), 0)
        struck = self.strike(place(attempt), execution_id)
        if struck is not None:
            with self._lock:
                self._appended[execution_id, seq] = attempt
        return struck

    def error_of(self, fault: Fault, into: str) -> BaseException | None:
        """What is raised in the end."""
        if fault.kind is FaultKind.DELAY:
            return None
        return (InjectedPanic if fault.kind is FaultKind.PANIC else InjectedError)(self.name, into)


def _check_exists(fault: Fault, points: FaultPoints) -> None:
    """Raise UsageError if a fault can strike nobody on a bus."""
    if fault.target is not FaultTargetKind.PLUGIN:
        return
    targets = points.targets
    if fault.capability is not None:
        chosen = [target for target in targets.values() if fault.capability in target.capabilities]
        whom = f"no plugin with capability {fault.capability.value!r}"
        known = sorted({capability.value for target in targets.values() for capability in target.capabilities})
    else:
        chosen = [targets[fault.name]] if fault.name in targets else []
        whom = f"no plugin {fault.name!r}"
        known = list(targets)
    if not chosen:
        raise UsageError(f"there is {whom} on this bus to inject a fault into; there are {', '.join(known) or 'none'}")
    calls = {call for target in chosen for call in target.calls}
    if fault.call and fault.call not in calls:
        names = ", ".join(target.name for target in chosen)
        raise UsageError(f"{names} has no call {fault.call!r}; there are {', '.join(sorted(calls))}")


def _in_child() -> None:
    for trials in list(_everybody):
        trials.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
