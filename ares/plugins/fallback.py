"""A chain of routers in one plugin: the first answer wins, and where there is none, all branches are taken.

The routers of the chain live in no actor of their own, so what a bus does for plugins is done for them here. Each has
a thread, which is its own, and does one thing after another on it; what one raises, and what one takes too long for,
goes on to the next. A router that hangs costs its share of the time once: until it has come back, it is passed over at
once. So there is never more than one thread a router, and none before the first question.
"""

import inspect
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from ares.errors import PluginError, UsageError
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.plugins._rules import words
from ares.plugins._seats import Seat, Turn
from ares.records import RouteDecision, RouteState

#: What is told of a router of the chain that failed, hung, or named a stranger.
ROUTER_FAILED: Final = "router.failed"

#: Hooks that are passed on to the routers that have them. Nobody waits for what they do.
_HOOKS: Final = ("before_execution", "before_step", "after_step", "after_execution")
#: The part of its own time that the chain gives to its routers.
_PATIENCE: Final = 0.9
#: Seconds that a decision may take if nobody says.
_ALONE: Final = 30.0


class Router(Protocol):
    """What a chain is made of. With ``name``, ``timeout``, ``start``, ``stop`` and hooks of a plugin if it has them."""

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        """Which of ``state.candidates`` to take; None to abstain."""


@attrs.frozen
class RouterTally:
    """What became of the questions to one router of a chain, since the chain was made.

    Attributes:
        answers: Decisions that counted.
        abstained: Questions that it had no answer to.
        errors: Those in which it raised, did not start, or gave an answer that cannot be followed.
        timeouts: Those that it did not answer in time, or could not be asked, mostly since it hung in an earlier one.
        last_error: What the last of the errors and timeouts was, hooks included; "" for none.
    """

    answers: int = 0
    abstained: int = 0
    errors: int = 0
    timeouts: int = 0
    last_error: str = ""


class FallbackRouter(Plugin):
    """Asks several routers, one after another, and never abstains.

    The first decision counts that names only branches of the step. Where no router has one, the decision has the source
    ``fallback`` and no target, which means default traversal: all branches; its reason says why each had none. So it
    belongs behind all other routers of a bus. Of each router that failed, hung or named a stranger, an event
    ``router.failed`` tells ``path``, ``router`` and ``problem``.

    A router of the chain is no plugin of the bus, and must not be registered. It is started and stopped with the chain,
    and told of steps and executions, if it has the methods for that; events do not reach it. What it records belongs to
    the chain. Its share of the time of a decision is what is left of it, divided by those still to be asked; less, if
    it has a ``timeout`` of its own (seconds). The bus does not know its thread: peers that it asks while it routes are
    asked for no execution, and a circle of such questions is not found out, but ends when the time of one is up.

    Args:
        routers: In the order in which they are asked.
        name: Of the plugin.
        timeout: Seconds that one decision may take; None for the bus's own. The routers get 0.9 of it.

    Raises:
        UsageError: there is no router, or one of them has no ``route(ctx, state)`` that can be called.
    """

    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, routers: Sequence[Router], name: str = "fallback", *, timeout: float | None = None) -> None:
        self.name = name
        self.timeout = timeout
        self._bus: EventBus | None = None
        self._routers = _labelled(routers, name)
        self._dismissal: weakref.finalize[..., FallbackRouter] | None = None
        self._seats = self._new_seats()
        self._pid = os.getpid()
        #: Replaced by the plugin's own thread, never changed.
        self._tallies: Mapping[str, RouterTally] = MappingProxyType(dict.fromkeys(self._routers, RouterTally()))
        for hook in _HOOKS:
            if any(callable(getattr(router, hook, None)) for router in self._routers.values()):
                # Only then: a hook that is not there costs a step nothing.
                setattr(self, hook, self._passing_on(hook))

    @property
    def tallies(self) -> Mapping[str, RouterTally]:
        """What became of the questions, by the names of the routers. Any thread."""
        return self._tallies

    def _new_seats(self) -> tuple[Seat, ...]:
        seats = tuple(
            Seat(label, router, f"ares-plugin-router {self.name}/{label}") for label, router in self._routers.items()
        )
        # Nobody may come to stop them: a chain that hangs, or fails before it has begun to stop, is left as it is.
        if self._dismissal is not None:
            self._dismissal.detach()
        self._dismissal = weakref.finalize(self, _dismiss, seats)
        self._dismissal.atexit = False
        return seats

    # --- its life -------------------------------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Start the routers, in order. One that does not start is passed over, and the others do without it."""
        self._bus = bus
        if self._pid == os.getpid():
            for seat in self._seats:
                seat.end()
        # Those of a parent process have no thread any more, and locks that may be held by nobody.
        self._seats, self._pid = self._new_seats(), os.getpid()
        end = self._end(ctx)
        for left, seat in _countdown(self._seats):
            turn = Turn(ctx, seat.label, "start", (bus,), _share(end, left))
            problem = self._done(seat, turn)
            # One that takes too long may have started after all, by the time that it is to stop.
            seat.is_to_stop = turn.error is None
            if problem:
                seat.problem = f"did not start: {problem}"
                self._tally(seat, errors=1, error=seat.problem)

    def stop(self, ctx: Context) -> None:
        """Stop the routers, in reverse, each after what it was told before; and end their threads. One that hangs is
        left alone, and its thread ends when it can."""
        end = self._end(ctx)
        problems = []
        for left, seat in _countdown(tuple(reversed(self._seats))):
            if seat.is_to_stop:
                problem = self._done(seat, Turn(ctx, seat.label, "stop", (), _share(end, left)))
                if problem:
                    problems.append(f"router {seat.label!r} did not stop: {problem}")
            seat.end()
        self._bus = None
        if problems:
            raise PluginError(self.name, "stop", "; ".join(problems))

    def _done(self, seat: Seat, turn: Turn) -> str:
        """Have a router do something, if it can. Returns why it did not."""
        if not callable(getattr(seat.router, turn.method, None)):
            return ""
        problem = seat.take(turn) or seat.wait(turn)
        return problem or ("" if turn.error is None else words(turn.error))

    # --- deciding -------------------------------------------------------------------------------------------------

    def route(self, ctx: Context, state: RouteState) -> RouteDecision:
        """What the first router says that has an answer; else ``fallback`` with no target."""
        end = self._end(ctx)
        missed = []
        for left, seat in _countdown(self._seats):
            decision, problem = self._ask(seat, ctx, state, _share(end, left))
            if decision is not None:
                self._tally(seat, answers=1)
                return decision
            missed.append(f"{seat.label} {problem or 'abstained'}")
            if problem:
                self._tell(ctx, state, seat, problem)
            else:
                self._tally(seat, abstained=1)
        return RouteDecision((), f"no router had an answer: {'; '.join(missed)}", "fallback")

    def _ask(self, seat: Seat, ctx: Context, state: RouteState, end: float) -> tuple[RouteDecision | None, str]:
        """What a router decides; or, if that is nothing, why, and "" if it abstained."""
        if seat.problem:
            self._tally(seat, errors=1, error=seat.problem)
            return None, seat.problem
        turn = Turn(ctx, seat.label, "route", (state,), end)
        problem = seat.take(turn) or seat.wait(turn)
        if problem:
            self._tally(seat, timeouts=1, error=problem)
            return None, problem
        problem = _unfollowable(turn.value, state) if turn.error is None else f"raised {words(turn.error)}"
        if problem:
            self._tally(seat, errors=1, error=problem)
            return None, problem
        return turn.value, ""

    def _end(self, ctx: Context) -> float:
        """Until when the routers can be waited for, in seconds of the monotonic clock."""
        now = time.monotonic()
        return now + _PATIENCE * ((self.timeout or _ALONE) if ctx.deadline is None else ctx.deadline - now)

    def _tell(self, ctx: Context, state: RouteState, seat: Seat, problem: str) -> None:
        if self._bus is not None:
            with suppress(Exception):  # whatever is wrong with the bus, a route is wanted
                payload = {"path": state.path, "router": seat.label, "problem": problem}
                self._bus.emit(ctx.execution_id or state.execution_id, ROUTER_FAILED, self.name, payload)

    def _tally(self, seat: Seat, *, error: str = "", **more: int) -> None:
        now = self._tallies[seat.label]
        counts = {name: getattr(now, name) + count for name, count in more.items()}
        new = attrs.evolve(now, last_error=error or now.last_error, **counts)
        self._tallies = MappingProxyType({**self._tallies, seat.label: new})

    # --- passing on -----------------------------------------------------------------------------------------------

    def _passing_on(self, hook: str) -> Callable[..., None]:
        """A hook that has the routers told that have it, each on its own thread, before it is asked for a route."""

        def tell(ctx: Context, *args: Any) -> None:
            end = self._end(ctx)
            for seat in self._seats:
                if not seat.problem and callable(getattr(seat.router, hook, None)):
                    problem = seat.take(Turn(ctx, seat.label, hook, args, end, is_awaited=False)) or seat.complaint()
                    if problem:
                        self._tally(seat, error=f"{hook} {problem}")

        return tell


def _dismiss(seats: tuple[Seat, ...]) -> None:
    for seat in seats:
        seat.dismiss()


def _labelled(routers: Sequence[Router], chain: str) -> dict[str, Router]:
    """The routers by their names, which are made different if they are not."""
    found: dict[str, Router] = {}
    for number, router in enumerate(routers, 1):
        route = getattr(router, "route", None)
        if isinstance(router, type) or not callable(route) or inspect.iscoroutinefunction(route):
            raise UsageError(f"router {number} of {chain!r} must have route(ctx, state), not be {router!r}")
        try:
            inspect.signature(route).bind(None, None)
        except TypeError as error:
            raise UsageError(f"router {number} of {chain!r} must take route(ctx, state): {error}") from None
        except ValueError:
            pass  # of C: only calling it will tell
        if any(router is other for other in found.values()):
            raise UsageError(f"router {number} of {chain!r} is in the chain already; each does one thing at a time")
        label = name = str(getattr(router, "name", "") or type(router).__name__)
        while label in found:
            label = f"{label} #{number}" if label == name else f"{label}'"
        found[label] = router
    if not found:
        raise UsageError(f"the chain of router {chain!r} is empty")
    return found


def _countdown(seats: tuple[Seat, ...]) -> Iterator[tuple[int, Seat]]:
    """Each with how many are left, itself included."""
    return zip(range(len(seats), 0, -1), seats, strict=True)


def _share(end: float, left: int) -> float:
    """Until when one of those that are left can be waited for."""
    now = time.monotonic()
    return now + max(0.0, end - now) / left


def _unfollowable(said: object, state: RouteState) -> str:
    """Why an answer is none; "" if it can be followed, or there is none."""
    if said is None:
        return ""
    if not isinstance(said, RouteDecision):
        return f"returned a {type(said).__name__}, which is no RouteDecision"
    targets: object = said.targets
    if not isinstance(targets, tuple | list):
        return f"named its targets in a {type(targets).__name__}, which is no tuple"
    strange = [target for target in targets if target not in state.candidates]
    if strange:
        return f"named {', '.join(map(repr, strange))}; there are {', '.join(map(repr, state.candidates))}"
    return ""
