"""Faults of steps: what an arena gives a Runtime to put around each attempt."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from ares.context import StepContext
from ares.errors import AttemptEnded, InjectedError
from ares.events import EventType
from ares.plugins._faults import Fault, FaultKind, FaultTargetKind, Place
from ares.plugins._trials import Trial, Trials

#: Makes the context manager that is entered around an attempt.
Around = Callable[[StepContext], AbstractContextManager[Any]]

#: Seconds between two looks of a step that hangs, whether its attempt is over.
_LOOK: Final = 0.01
#: Seconds that a step hangs at most whose attempt nobody ends.
_LONGEST: Final = 60.0


def faulty_steps(trials: Trials, around: Around | None) -> Around:
    """An ``around_step`` in which the trial under way strikes, inside of another one."""

    @contextmanager
    def faulty(ctx: StepContext) -> Iterator[None]:
        is_failing = False
        with nullcontext() if around is None else around(ctx):
            struck = _strike(trials, ctx)
            if struck is not None and not struck[0].is_late:
                is_failing = True
                _harm(trials, ctx, *struck)
                is_failing = False
            yield
            if struck is not None and struck[0].is_late:
                is_failing = True
                _harm(trials, ctx, *struck)
                is_failing = False
        if is_failing:  # and the one around it has swallowed that
            raise InjectedError(trials.name, f"step {ctx.step.path!r}")

    return faulty


def _strike(trials: Trials, ctx: StepContext) -> tuple[Fault, Trial] | None:
    if not trials.is_under_way:
        return None
    step = ctx.step
    place = Place(FaultTargetKind.STEP, step.base_id, "body", "", step.path, step.round, step.attempt)
    return trials.strike(place, ctx.execution_id)


def _harm(trials: Trials, ctx: StepContext, fault: Fault, trial: Trial) -> None:
    step = ctx.step
    told = {"step": step.base_id, "fault": fault.kind.value, "by": trials.name}
    try:
        ctx.emit(EventType.FAULT_INJECTED, **told, path=step.path, round=step.round, attempt=step.attempt)
    except (Exception, AttemptEnded) as error:  # it strikes all the same
        trials.complain(f"a fault of step {step.path!r} could not be told: {error}")
    if fault.kind in (FaultKind.DELAY, FaultKind.TIMEOUT):
        _hang(ctx, trial, fault.seconds if fault.kind is FaultKind.DELAY else _LONGEST)
    injected = trials.error_of(fault, f"step {step.path!r}")
    if injected is not None:
        try:
            raise injected
        finally:
            del injected  # what is raised must not be found from here


def _hang(ctx: StepContext, trial: Trial, seconds: float) -> None:
    """For so long, unless the attempt or the trial is over."""
    for _ in range(math.ceil(seconds / _LOOK)):
        if ctx.cancelled or trial.over.wait(min(seconds, _LOOK)):
            return
        seconds -= _LOOK
