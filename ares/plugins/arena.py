"""Makes plugins, steps and the store go wrong, on purpose, to see what becomes of all else.

An arena only plans. What it plans for plugins is carried out by the bus, at its fault points; for steps, by what it
gives a Runtime as ``around_step``; for the store, by a wrapper around it. All of it is off, except inside
``with arena.injecting(runtime.bus)``, and when that is left, however it is left, every fault has been taken back.

*Replaying.* Whether a fault with a probability strikes is no matter of chance: it depends on the seed, the kind of the
fault and the place (plugin, call, path of the step, round, attempt; of an event, its type), and on nothing else: not
on the order in which threads come by. So calls that are alike in all of these share a draw, and another run with one
seed and the same faults meets the same. ``times`` is different: whoever comes first is struck.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from ares.errors import UsageError
from ares.plugin import Capability, Context, EventBus, HasFaultPoints, Plugin
from ares.plugins._faults import (
    ArenaReport,
    Fault,
    FaultKind,
    FaultTargetKind,
    checked_kind,
    checked_seconds,
    checked_text,
)
from ares.plugins._faulty_steps import Around, faulty_steps
from ares.plugins._faulty_store import CALLS, FaultyStore
from ares.plugins._trials import Trial, Trials

S = TypeVar("S")

_PLUGIN, _STEP, _STORE = FaultTargetKind
#: What can go wrong with a store. It has no timeout: one that hangs is one with a long delay.
_OF_STORES: Final = (FaultKind.ERROR, FaultKind.PANIC, FaultKind.DELAY)


class ArenaPlugin(Plugin):
    """Schedules faults, and has them injected. Any thread.

    It need not be registered with a Runtime; if it is, ``injecting()`` finds the bus by itself, once that has started.

    Args:
        name: Of the plugin, and what its faults are marked with.
        seed: On which all draws depend.

    Raises:
        UsageError: ``seed`` is no int.
    """

    def __init__(self, name: str = "arena", *, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UsageError(f"the seed of an arena must be an int, not {seed!r}")
        self.name = name
        self.seed = seed
        self._trials = Trials(name, seed)
        self._bus: EventBus | None = None

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def schedule_fault(
        self,
        plugin: str | None = None,
        kind: FaultKind | str = FaultKind.ERROR,
        *,
        capability: Capability | str | None = None,
        call: str | None = None,
        path: str | None = None,
        times: int | None = None,
        probability: float | None = None,
        seconds: float | None = None,
        late: bool = False,
    ) -> Fault:
        """Have calls to plugins go wrong.

        Args:
            plugin: The name of the one that is called.
            kind: ``"error"``, ``"panic"``, ``"timeout"`` or ``"delay"``, see ``FaultKind``.
            capability: Instead of ``plugin``: any that has it.
            call: The method, as the plugin has it; any without it, ``start`` and ``stop`` among them.
            path: Only calls about this step, by its path.
            times: How often at most. Once, if there is no ``probability`` either; without limit, if there is one.
            probability: With which a call is struck, above 0 and up to 1.
            seconds: Of a delay.
            late: Whether the plugin does its work first, and then it goes wrong.

        Returns:
            The fault, for ``cancel_fault``.

        Raises:
            UsageError: something in it cannot be, such as a plugin or call that does not exist. Without a trial under
                way the plugins are not known yet, and ``injecting`` raises it.
        """
        what = checked_kind(kind)
        if (plugin is None) == (capability is None):
            raise UsageError("a fault strikes one plugin, by its name, or those of a capability: name one of the two")
        return self._trials.add(
            kind=what,
            target=_PLUGIN,
            name=checked_text("the name of a plugin", plugin),
            capability=None if capability is None else _capability(capability),
            call=checked_text("the call of a fault", call),
            path=checked_text("the path of a step", path),
            chance=(times, probability),
            seconds=checked_seconds(what, seconds),
            is_late=late,
        )

    def schedule_step_fault(
        self,
        step: str | None = None,
        kind: FaultKind | str = FaultKind.ERROR,
        *,
        times: int | None = None,
        probability: float | None = None,
        seconds: float | None = None,
        late: bool = False,
    ) -> Fault:
        """Have bodies of steps go wrong; their conditions, routers and reconciliations too, which are called alike.
        Needs a ``Runtime(around_step=arena.steps())``.

        Args:
            step: Its id or path; any without it.
            kind: As in ``schedule_fault``. One that hangs does so until its attempt is over, or for a minute.
            times: As in ``schedule_fault``.
            probability: As in ``schedule_fault``.
            seconds: As in ``schedule_fault``.
            late: Whether the body runs first.

        Raises:
            UsageError: something in it cannot be.
        """
        what = checked_kind(kind)
        name = checked_text("the id or path of a step", step)
        chance = (times, probability)
        return self._trials.add(
            kind=what,
            target=_STEP,
            name=name,
            call="body",
            chance=chance,
            seconds=checked_seconds(what, seconds),
            is_late=late,
        )

    def schedule_store_fault(
        self,
        kind: FaultKind | str = FaultKind.ERROR,
        *,
        call: str = "append",
        path: str | None = None,
        times: int | None = None,
        probability: float | None = None,
        seconds: float | None = None,
        late: bool = False,
    ) -> Fault:
        """Have calls to the store go wrong. Needs a ``Runtime(arena.store(...))``.

        Args:
            kind: ``"error"``, a ``StoreError``; ``"panic"``; or ``"delay"``.
            call: The store's method.
            path: Of ``append``: only what has an entry of this step, by its path.
            times: As in ``schedule_fault``.
            probability: With which an entry is struck, and what is appended with it; or a call of another method.
            seconds: As in ``schedule_fault``.
            late: Whether the store does its work first: it was stored, and nobody knows.

        Raises:
            UsageError: something in it cannot be, such as a method that no store has.
        """
        what = checked_kind(kind, _OF_STORES)
        if call not in sorted(CALLS):
            raise UsageError(f"a store has no call {call!r}; there are {', '.join(sorted(CALLS))}")
        return self._trials.add(
            kind=what,
            target=_STORE,
            call=call,
            path=checked_text("the path of a step", path),
            chance=(times, probability),
            seconds=checked_seconds(what, seconds),
            is_late=late,
        )

    def cancel_fault(self, fault: Fault) -> bool:
        """It strikes no more. What hangs by it already goes on hanging.

        Returns:
            Whether it still might have struck.
        """
        return self._trials.cancel(fault)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that may still strike."""
        return self._trials.faults

    def report(self) -> ArenaReport:
        """What has struck, and what has not, in the trial under way, or the last one."""
        return self._trials.report()

    # --- when it does ---------------------------------------------------------------------------------------------

    @contextmanager
    def injecting(self, bus: HasFaultPoints | None = None) -> Iterator["ArenaPlugin"]:
        """A trial: inside, what is scheduled strikes. Once it is left, by an exception too, every fault has been taken
        back and what hung by one goes on.

        To strike plugins in ``start`` and ``stop``, have the Runtime start and close inside.

        Args:
            bus: Of the Runtime, ``runtime.bus``; without it, the one that this plugin lives on.

        Raises:
            UsageError: there is no such bus, it has no fault points, they or this arena are in use already, or a fault
                was scheduled for a plugin or a call that does not exist.
        """
        on = self._bus if bus is None else bus
        if on is None:
            raise UsageError(f"plugin {self.name!r} lives on no running bus: say on which to inject, as runtime.bus")
        trial = Trial(self._trials, on)
        try:
            self._trials.begin(trial)
            yield self
        finally:
            self._trials.end(trial)

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Remember the bus."""
        self._bus = bus

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Forget it. A trial goes on: plugins that are still to stop may be struck in that."""
        self._bus = None

    # --- steps ----------------------------------------------------------------------------------------------------

    def steps(self, around: Around | None = None) -> Around:
        """What to give a Runtime as ``around_step``, so that faults of steps can strike.

        Args:
            around: What would be given otherwise; faults strike inside of it, where the body runs.
        """
        return faulty_steps(self._trials, around)

    # --- the store ------------------------------------------------------------------------------------------------

    def store(self, inner: S) -> S:
        """A store to give a Runtime instead of ``inner``, so that faults of the store can strike.

        Args:
            inner: A store object, such as ``ares.stores.sqlite.SqliteStore("ares.db")``.

        Raises:
            UsageError: it is none.
        """
        if not (hasattr(inner, "append") and hasattr(inner, "entries") and not isinstance(inner, list)):
            raise UsageError(f"arena.store() takes a store object, such as SqliteStore('ares.db'), not {inner!r}")
        return cast("S", FaultyStore(inner, self._trials))


def _capability(value: object) -> Capability:
    try:
        return Capability(str(value))
    except ValueError:
        raise UsageError(f"{value!r} is no capability; there are {', '.join(Capability)}") from None
