"""A store whose calls an arena can make go wrong: a wrapper of the contract that every store keeps."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from ares.errors import InjectedPanic, StoreError
from ares.events import EventType
from ares.plugins._faults import Fault, FaultKind, FaultTargetKind, Place
from ares.plugins._trials import Trial, Trials

#: What a store can be asked, besides its name.
CALLS: Final = frozenset(
    {
        "inspect", "open", "close", "start_lease", "beat", "end_lease", "create", "claim", "release", "append",
        "entries", "execution", "executions", "request", "requests", "close_request", "changed", "prune", "compact",
    }
)  # fmt: skip

#: Entries that keep an event of somebody's, among them those that tell of faults: no fault may breed another.
_TOLD: Final = "emitted"


@attrs.frozen
class _Moment:
    """A call to a store, as far as it can be told apart from others; an ``append`` has one for each of its entries."""

    call: str
    execution_id: str = ""
    entry: str = ""
    path: str = ""
    seq: int = 0


class FaultyStore:
    """See above. Whatever is not listed in ``CALLS`` is the inner store's own.

    Args:
        inner: The store.
        trials: Say what goes wrong.
    """

    def __init__(self, inner: Any, trials: Trials) -> None:
        self._inner = inner
        self._trials = trials

    def __repr__(self) -> str:
        return f"<FaultyStore around {self._inner!r}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._inner, name)
        return partial(self._call, name, value) if name in CALLS else value

    def _call(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        harm = self._struck(name, args) if self._trials.is_under_way else None
        if harm is None:
            return real(*args, **kwargs)
        if not harm.is_late:
            harm.do()
        answer = real(*args, **kwargs)
        if harm.is_late:
            harm.do()
        return answer

    def _struck(self, name: str, args: tuple[Any, ...]) -> "_Harm | None":
        for moment in _entries(args[0]) if name == "append" else _moment(name, args):
            struck = self._trials.strike_entry(moment.execution_id, moment.seq, partial(_place, moment))
            if struck is not None:
                harm = _Harm(self._inner.name, self._trials, moment, *struck)
                harm.tell()
                return harm
        return None


@attrs.frozen
class _Harm:
    """What is done to a call that was struck."""

    store: str
    trials: Trials
    moment: _Moment
    fault: Fault
    trial: Trial

    @property
    def is_late(self) -> bool:
        return self.fault.is_late

    def tell(self) -> None:
        moment, by = self.moment, self.trials.name
        told = {"call": moment.call, "fault": self.fault.kind.value, "by": by, "entry": moment.entry}
        payload = {name: value for name, value in (told | {"path": moment.path}).items() if value}
        try:
            self.trial.bus.emit(moment.execution_id or by, EventType.FAULT_INJECTED, by, payload)
        except Exception as error:  # a wrapper's, say; it strikes all the same
            self.trials.complain(f"a fault of the store could not be told: {error}")

    def do(self) -> None:
        if self.fault.kind is FaultKind.DELAY:
            self.trial.over.wait(self.fault.seconds)
        elif self.fault.kind is FaultKind.PANIC:
            raise InjectedPanic(self.trials.name, f"{self.moment.call} of the store")
        else:
            problem = f"{self.moment.call} failed, injected by {self.trials.name!r}"
            raise StoreError(self.store, problem, self.moment.execution_id)


def _place(moment: _Moment, attempt: int) -> Place:
    return Place(FaultTargetKind.STORE, "store", moment.call, moment.entry, moment.path, 0, attempt)


def _moment(name: str, args: tuple[Any, ...]) -> Iterator[_Moment]:
    first = args[0] if args else ""
    execution_id = getattr(first, "execution_id", first)
    yield _Moment(name, execution_id if isinstance(execution_id, str) else "")


def _entries(appends: Any) -> Iterator[_Moment]:
    for append in appends:
        for entry in append.entries:
            if entry.kind != _TOLD:
                yield _Moment("append", append.claim.execution_id, entry.kind, entry.path, entry.seq)
