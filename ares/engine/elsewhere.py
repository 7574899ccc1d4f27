"""A body that runs on an executor, while the thread of its attempt waits for it at home.

Only the body goes there. What it is called with is taken here, what it comes to is judged here, and whoever ends the
attempt meanwhile wakes the thread that waits, which sees to the end of the body.
"""

from typing import Any

import attrs

from ares.context import StepContext
from ares.engine.attempt import Attempt
from ares.postbox import Latch
from ares.remote.errand import ContextHere, Errand, Load, View
from ares.remote.there import perform_here
from ares.walk.walk import Work, WorkKind
from ares.workflow import Call, Delivery


def goes_elsewhere(work: Work) -> bool:
    """Whether a piece of work is a body that names an executor."""
    return work.kind is WorkKind.BODY and work.instance.node.spec.executor is not None


def elsewhere(attempt: Attempt, call: Call) -> Call:
    """What calls the function of ``call`` on the executor of its step, and returns what it returns."""
    name = attempt.instance.node.spec.executor
    assert name is not None

    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(attempt, Load(attempt.path, name, call.fn, args, kwargs, None))

    return Call(run, call.bindings, call.positional)


def left_running(attempt: Attempt) -> str:
    """The executor on which the body of an attempt that was ended may go on, as it cannot be stopped there; or ""."""
    name, executors = attempt.instance.node.spec.executor, attempt.driver.options.executors
    if not attempt.is_there or name is None or executors is None or executors.can_stop(name):
        return ""
    return name


def _run(attempt: Attempt, load: Load) -> Any:
    """Send a body there, and wait for it."""
    attempt.is_held_back = True
    options, spec = attempt.driver.options, attempt.instance.node.spec
    errand = Errand(_with_context(attempt, load), attempt.timeout, spec.delivery is not Delivery.AT_MOST_ONCE)
    if options.on_caller:
        packed = errand.packed(knows_main=True)  # what could not go there is refused here, too
        attempt.is_held_back = False
        returned = perform_here(packed)
    else:
        assert options.executors is not None
        attempt.bell = Latch()
        returned = options.executors.run(errand, _Waiting(attempt, attempt.bell))
    value, writes = returned.open(load.path, load.executor)
    for name, written in writes.items():
        attempt.set(name, written)
    return value


def _with_context(attempt: Attempt, load: Load) -> Load:
    """The load, with what its context is to show there, if its function takes one."""
    found = [each for each in (*load.args, *load.kwargs.values()) if isinstance(each, StepContext)]
    if not found:
        return load
    ctx, instance = found[0], attempt.instance
    step = attrs.evolve(ctx.step, inputs=dict(ctx.inputs), metadata=dict(ctx.step.metadata))
    view = View(
        ctx.execution_id,
        step,
        dict(ctx.metadata),
        dict(ctx.variables),
        instance.node.spec.writes,
        attempt.timeout,
        instance.born,
    )
    args = tuple(ContextHere() if each is ctx else each for each in load.args)
    kwargs = {name: ContextHere() if each is ctx else each for name, each in load.kwargs.items()}
    return attrs.evolve(load, args=args, kwargs=kwargs, view=view)


@attrs.frozen(eq=False)
class _Waiting:
    """The attempt, as ``Watch`` says."""

    _attempt: Attempt
    bell: Latch

    def is_over(self) -> bool:
        return self._attempt.is_over

    def is_cancelled(self) -> bool:
        return self._attempt.cancelled

    def sent(self) -> None:
        self._attempt.is_held_back = False

    def begun(self, at: float) -> None:
        self._attempt.is_there = True
        self._attempt.start_clock(at)

    def held_back(self) -> None:
        self._attempt.is_held_back, self._attempt.is_there = True, False
        self._attempt.stop_clock()
