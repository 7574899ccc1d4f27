"""What an arena can do to others, by which draw it does so, and what it reports. Nothing here does anything."""

import math
from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

import attrs

from ares.errors import UsageError
from ares.plugin import Capability

#: Faults that are reported one by one; more are counted.
_TOLD: Final = 10_000


class FaultKind(StrEnum):
    """What goes wrong.

    ERROR: an ``InjectedError`` is raised. PANIC: an ``InjectedPanic``, which is no ``Exception``. TIMEOUT: it hangs
    until it is given up, and then raises an ``InjectedError``. DELAY: it takes so many seconds longer.
    """

    ERROR = "error"
    PANIC = "panic"
    TIMEOUT = "timeout"
    DELAY = "delay"


class FaultTargetKind(StrEnum):
    """Whom a fault strikes."""

    PLUGIN = "plugin"
    STEP = "step"
    STORE = "store"


@attrs.frozen
class Place:
    """One moment at which a fault may strike: all that its draw depends on, besides the seed and the kind.

    ``name`` is the plugin's or step's; ``event_type`` is that of ``on_event``, or the kind of a store's entry.
    """

    target: FaultTargetKind
    name: str
    call: str
    event_type: str = ""
    path: str = ""
    round: int = 0
    attempt: int = 0


def draw(seed: int, kind: FaultKind, place: Place) -> float:
    """A number from 0 to 1, without 1: the first 53 bits of the BLAKE2b hash of the arguments, and of nothing else."""
    words = (seed, kind, *attrs.astuple(place))
    text = "\x1f".join(map(str, words)).encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) * 2.0**-53


@attrs.frozen(eq=False)
class Fault:
    """A fault that was scheduled. Two are the same only if they are one.

    Attributes:
        number: In the order in which they were scheduled, from 1.
        kind: What goes wrong.
        target: Whether it strikes plugins, steps or the store.
        name: Of the plugin; of the step, its id or path; "" for any.
        capability: Instead of a name, any plugin that has it.
        call: The plugin's or store's method; "" for any.
        path: Only what is about this step, by its path; "" for any.
        times: How often it strikes at most; None for no limit.
        probability: With which it strikes where it may.
        seconds: Of a delay.
        is_late: Whether what is struck has done its work before.
    """

    number: int
    kind: FaultKind
    target: FaultTargetKind
    name: str = ""
    capability: Capability | None = None
    call: str = ""
    path: str = ""
    times: int | None = 1
    probability: float = 1.0
    seconds: float = 0.0
    is_late: bool = False

    def __str__(self) -> str:
        whom = f"{self.target} {self.name!r}" if self.name else f"any {self.target}"
        if self.capability is not None:
            whom = f"any {self.capability.value} plugin"
        words = [
            f"{self.kind} {'after' if self.is_late else 'in'} {self.call or 'any call'} of {whom}",
            f"at {self.path!r}" if self.path else "",
            f"of {self.seconds:g} s" if self.kind is FaultKind.DELAY else "",
            f"with probability {self.probability:g}" if self.probability < 1 else "",
            "" if self.times is None else "once" if self.times == 1 else f"{self.times} times at most",
        ]
        return ", ".join(word for word in words if word)

    def may_strike(self, place: Place, capabilities: frozenset[Capability]) -> bool:
        """Whether it is meant for this place, whatever the draw says."""
        if self.target is not place.target or (self.call and self.call != place.call):
            return False
        if self.capability is not None and self.capability not in capabilities:
            return False
        if self.path and self.path != place.path:
            return False
        is_path = self.target is FaultTargetKind.STEP and self.name == place.path
        return not self.name or self.name == place.name or is_path


@attrs.frozen(order=True)
class FiredFault:
    """A fault that struck. Comparing two leaves the execution aside: the replay of a run has another."""

    kind: FaultKind
    target: FaultTargetKind
    name: str
    call: str
    event_type: str
    path: str
    round: int
    attempt: int
    execution_id: str = attrs.field(eq=False)
    fault: Fault = attrs.field(eq=False, repr=False)

    def __str__(self) -> str:
        where = {"at": self.path, "round": self.round, "attempt": self.attempt, "on": self.event_type}
        known = " ".join(f"{word} {value}" for word, value in where.items() if value)
        return f"{self.kind} in {self.call} of {self.target} {self.name!r} {known}".strip()


@attrs.frozen
class ArenaReport:
    """What became of the faults of one trial.

    Attributes:
        seed: With which it can be replayed.
        fired: The faults that struck, sorted; 10,000 at most.
        more: How many struck besides.
        counts: Each fault that was scheduled, and how often it struck.
        problems: What went wrong in the arena itself.
    """

    seed: int
    fired: tuple[FiredFault, ...] = ()
    more: int = 0
    counts: tuple[tuple[Fault, int], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def unfired(self) -> tuple[Fault, ...]:
        """The faults that never struck."""
        return tuple(fault for fault, count in self.counts if not count)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {len(self.fired) + self.more} faults fired, {len(self.unfired)} did not"]
        lines += [f"  fired: {fired}" for fired in self.fired]
        lines += [f"  and {self.more} more"] if self.more else []
        lines += [f"  unfired: {fault}" for fault in self.unfired]
        lines += [f"  problem: {problem}" for problem in self.problems]
        return "\n".join(lines)


class Schedule:
    """The faults of one trial and what became of them. Not thread-safe: whoever has it has a lock."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._counts: dict[Fault, int] = {}
        self._open: dict[Fault, None] = {}
        self._fired: list[FiredFault] = []
        self._more = 0
        self._problems: list[str] = []

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those that may still strike."""
        return tuple(self._open)

    def add(self, fault: Fault) -> None:
        """It may strike from now on."""
        self._counts[fault] = 0
        self._open[fault] = None

    def remove(self, fault: Fault) -> bool:
        """It strikes no more. Returns whether it still might have."""
        return fault in self._open and self._open.pop(fault, True) is None

    def clear(self) -> None:
        """None strikes any more."""
        self._open.clear()

    def strike(self, place: Place, capabilities: frozenset[Capability], execution_id: str) -> Fault | None:
        """The first fault that strikes here, which is on record then; None if none does."""
        for fault in self._open:
            if fault.may_strike(place, capabilities) and self._is_drawn(fault, place):
                self._counts[fault] += 1
                if self._counts[fault] == fault.times:
                    del self._open[fault]
                self._record(_fired(fault, place, execution_id))
                return fault
        return None

    def _is_drawn(self, fault: Fault, place: Place) -> bool:
        return fault.probability >= 1 or draw(self._seed, fault.kind, place) < fault.probability

    def _record(self, fired: FiredFault) -> None:
        if len(self._fired) < _TOLD:
            self._fired.append(fired)
        else:
            self._more += 1

    def complain(self, problem: str) -> None:
        """Something is wrong with the arena itself."""
        if len(self._problems) < _TOLD:
            self._problems.append(problem)

    def report(self) -> ArenaReport:
        """What became of them, so far."""
        fired = tuple(sorted(self._fired))
        return ArenaReport(self._seed, fired, self._more, tuple(self._counts.items()), tuple(self._problems))


def _fired(fault: Fault, place: Place, execution_id: str) -> FiredFault:
    where: dict[str, Any] = attrs.asdict(place)
    return FiredFault(kind=fault.kind, execution_id=execution_id, fault=fault, **where)


# --- what one can get wrong ------------------------------------------------------------------------------------------


def checked_kind(kind: object, allowed: Iterable[FaultKind] = FaultKind) -> FaultKind:
    """A kind of fault.

    Raises:
        UsageError: it is none of those that are allowed.
    """
    choice = tuple(allowed)
    if kind not in choice:
        raise UsageError(f"a fault is one of {', '.join(choice)} here, not {kind!r}")
    return FaultKind(str(kind))


def checked_chance(times: object, probability: object) -> tuple[int | None, float]:
    """How often at most, and with which probability. Without either, once; without a number, as often as it is drawn.

    Raises:
        UsageError: there can be no such number, or probability.
    """
    if probability is not None and not 0 < _number(probability) <= 1:
        raise UsageError(f"the probability of a fault must be a number above 0 and up to 1, not {probability!r}")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
        raise UsageError(f"a fault strikes a number of times from 1, not {times!r}")
    if times is None and probability is None:
        times = 1
    return times, 1.0 if probability is None else _number(probability)


def checked_seconds(kind: FaultKind, seconds: Any) -> float:
    """Of a delay.

    Raises:
        UsageError: a delay without them, them without a delay, or no number above 0.
    """
    if kind is not FaultKind.DELAY:
        if seconds is not None:
            raise UsageError(f"only a delay takes seconds, not a fault of kind {kind.value!r}")
        return 0.0
    if not 0 < _number(seconds) < math.inf:
        raise UsageError(f"a delay takes seconds, a number above 0, not {seconds!r}")
    return float(seconds)


def checked_text(what: str, value: object) -> str:
    """A name; "" if there is none.

    Raises:
        UsageError: it is no text, or empty.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{what} must be a non-empty str, not {value!r}")
    return str(value)


def _number(value: object) -> float:
    """``value``; NaN if it is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
