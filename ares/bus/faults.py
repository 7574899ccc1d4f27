"""The fault points of a bus: who is asked about calls, and how what he orders is carried out.

A struck call is carried out by one who stands for the plugin, in the plugin's place: so whatever comes of it, comes of
it by the same code as when the plugin itself had done it.
"""

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from ares.bus.call import Call, describe
from ares.bus.card import Card
from ares.context import Context, cancel, outlast, seconds_left
from ares.errors import UsageError
from ares.events import Delivery, EventType
from ares.plugin.capabilities import PROTOCOLS
from ares.plugin.faults import FaultPoint, FaultTarget, Injection, Injector
from ares.records import ExecutionOutcome, ExecutionState, RouteState, Step, StepFailure, StepResult

#: Seconds that the end of what hung by order is waited for when the points are closed.
_PATIENCE: Final = 1.0
#: Seconds past its timeout after which a call that hangs by order ends, if nobody has found that it hangs.
_OVERTIME: Final = 30.0

_LIFE: Final = frozenset({"start", "stop"})
#: Found by ``Card``; a plugin may have something of that name that is no hook.
_HOOKS: Final = frozenset({"before_step", "after_step", "before_execution", "after_execution", "on_event"})


@attrs.frozen
class Struck:
    """A call that goes wrong: what stands for the plugin, and what others are told."""

    stand_in: "_StandIn"
    payload: Mapping[str, Any]


class BusFaultPoints:
    """``FaultPoints``. Any thread; of one process."""

    def __init__(self) -> None:
        #: Who is asked; looked at for every call, without a lock.
        self.injector: Injector | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        #: Replaced under the lock, never changed.
        self._targets: Mapping[str, FaultTarget] = MappingProxyType({})
        #: Of calls that hang by order, or have just ended to: on which thread.
        self._hanging: dict[Context, int] = {}

    @property
    def is_open(self) -> bool:
        """See ``FaultPoints``."""
        return self.injector is not None

    @property
    def targets(self) -> Mapping[str, FaultTarget]:
        """See ``FaultPoints``."""
        return self._targets

    def open(self, injector: Injector) -> None:
        """See ``FaultPoints``."""
        name = injector.name
        if not callable(injector.inject):
            raise UsageError(f"{name!r} is no injector: it has no inject(point)")
        with self._lock:
            if self.injector is not None:
                raise UsageError(f"the fault points of this bus are open already, for {self.injector.name!r}")
            self.injector = injector

    def close(self, injector: Injector) -> None:
        """See ``FaultPoints``."""
        with self._lock:
            if self.injector is not injector:
                return
            self.injector = None
            hanging = list(self._hanging)
        for context in hanging:
            cancel(context)
        me = threading.get_ident()
        with self._ended:
            # So that whoever is called next is not found to hang any more.
            self._ended.wait_for(lambda: all(thread == me for thread in self._hanging.values()), _PATIENCE)

    # --- for the bus -----------------------------------------------------------------------------------

    def admit(self, card: Card) -> None:
        """A plugin was let in."""
        target = FaultTarget(card.name, card.capabilities, _calls(card))
        with self._lock:
            self._targets = MappingProxyType({**self._targets, card.name: target})

    def handed_on(self) -> "BusFaultPoints":
        """Those of a bus that takes the place of this one: the same in this process; in the child of a fork others,
        which are closed."""
        return self if self._pid == os.getpid() else BusFaultPoints()

    def strike(self, card: Card, call: Call, complain: Callable[[str, BaseException], None]) -> Struck | None:
        """What becomes of a call; None if it is left alone. In the plugin's thread.

        Args:
            card: Who is called.
            call: What for.
            complain: Is told what is wrong with the injector.
        """
        injector = self.injector
        point = _point(card, call)
        if injector is None or point.event_type == EventType.FAULT_INJECTED:
            return None  # no fault breeds another
        try:
            injection = injector.inject(point)
            if injection is None:
                return None
            if not isinstance(injection, Injection):
                raise TypeError(f"inject must return an Injection or None, not a {type(injection).__name__}")
            stand_in = _StandIn(card.plugin, injection, partial(self._hang, injector))
            return Struck(stand_in, _payload(point, injection.fault, injector.name))
        except BaseException as error:  # whatever it is, it is nothing that the plugin did
            complain(f"the fault injector failed at {call.method} of {card.name!r}: {describe(error)}", error)
            return None

    def _hang(self, injector: Injector, context: Context, seconds: float) -> None:
        """Hang for so long, unless the call is given up or the points are closed."""
        with self._lock:
            if self.injector is not injector:
                return  # they were closed just now
            self._hanging[context] = threading.get_ident()
        outlast(context, min(seconds, seconds_left(context) + _OVERTIME))

    def ended(self, context: Context) -> None:
        """A call that was struck has ended."""
        with self._ended:
            self._hanging.pop(context, None)
            self._ended.notify_all()


class _StandIn:
    """Stands for a plugin in one call, once.

    What it raises must not be found from the frames that it is raised through: all would live until the garbage
    collector comes.
    """

    def __init__(self, plugin: Any, injection: Injection, hang: Callable[[Context, float], None]) -> None:
        self._plugin = plugin
        self._error = injection.error
        self._seconds = injection.seconds
        self._is_late = injection.is_late
        self._hang = hang

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._carry_out, method)

    def _carry_out(self, method: str, ctx: Context, *args: Any, **kwargs: Any) -> Any:
        value = getattr(self._plugin, method)(ctx, *args, **kwargs) if self._is_late else None
        if self._seconds > 0:
            self._hang(ctx, self._seconds)
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return value if self._is_late else getattr(self._plugin, method)(ctx, *args, **kwargs)


def _calls(card: Card) -> frozenset[str]:
    """The methods of a plugin that somebody may call: its life, its hooks, its promises and whatever else is public."""
    kind = type(card.plugin)
    public = {
        name for name in dir(kind) if not name.startswith("_") and callable(inspect.getattr_static(kind, name, None))
    }
    promised = {method for capability in card.capabilities for method in PROTOCOLS.get(capability, ())}
    return frozenset((public - _HOOKS) | _LIFE | card.hooks | promised)


def _point(card: Card, call: Call) -> FaultPoint:
    path, round_, attempt, event_type = _place((*call.args, *(call.kwargs or {}).values()))
    return FaultPoint(
        card.name, card.capabilities, call.method, call.context.execution_id, path, round_, attempt, event_type
    )


def _place(args: tuple[Any, ...]) -> tuple[str, int, int, str]:
    """What a call is about, by its arguments: path, round, attempt and event type."""
    for arg in args:
        match arg:
            case Step():
                return arg.path, arg.round, arg.attempt, ""
            case StepResult() | StepFailure():
                return arg.path, arg.round, arg.attempts, ""
            case RouteState():
                return arg.path, arg.round, 0, ""
            case ExecutionState():
                return arg.step_id, arg.round, 0, ""
            case ExecutionOutcome():
                return "", arg.round, 0, ""
            case Delivery():
                told = arg.event.payload
                return (
                    _as(str, told.get("path"), ""),
                    _as(int, told.get("round"), 0),
                    _as(int, told.get("attempt"), 0),
                    str(arg.event.type),
                )
    return "", 0, 0, ""


def _as(kind: type[Any], value: object, otherwise: Any) -> Any:
    return value if type(value) is kind else otherwise


def _payload(point: FaultPoint, fault: str, by: str) -> dict[str, Any]:
    told = {"plugin": point.plugin, "call": point.call, "fault": fault, "by": by}
    more = {"path": point.path, "round": point.round, "attempt": point.attempt, "event_type": point.event_type}
    return told | {name: value for name, value in more.items() if value}
