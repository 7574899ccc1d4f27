"""Where the calls to plugins can be made to go wrong, on purpose, to see what becomes of all else.

A bus has a *fault point* at every call to a plugin: in the plugin's own thread, where the call is carried out. They are
closed, and cost nothing, until an *injector* opens them; then it is asked about each call, and what it orders happens
there as if the plugin itself had done it. The bus tells of each by an event ``fault.injected``, and ``health()`` says
that the points are open and how many calls were struck.
"""

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import attrs

from ares.plugin.capabilities import Capability


@attrs.frozen
class FaultPoint:
    """A call that is about to be carried out.

    Attributes:
        plugin: Who is called.
        capabilities: What it is good for.
        call: The method.
        execution_id: The execution that the call belongs to; "" for none.
        path: The step that it is about, by its path; "" for none, as in the three that follow.
        round: The round, from 1; 0 for none.
        attempt: The attempt, from 1; 0 for none.
        event_type: Of ``on_event``, the type of the event.
    """

    plugin: str
    capabilities: frozenset[Capability]
    call: str
    execution_id: str = ""
    path: str = ""
    round: int = 0
    attempt: int = 0
    event_type: str = ""


@attrs.frozen(eq=False)
class Injection:
    """What is to go wrong in a call.

    Attributes:
        fault: What it is, in a word or two, for those who are told.
        error: What the call raises, in the end; None if nothing.
        seconds: For how long it hangs first, past its timeout too, unless it is told to end: by whoever gives it up,
            or when the fault points are closed. ``math.inf`` for as long as that takes, up to half a minute past its
            timeout.
        is_late: Whether the plugin's own code runs before that; otherwise it runs after, if there is no ``error``.
    """

    fault: str
    error: BaseException | None = attrs.field(default=None)
    seconds: float = attrs.field(default=0.0)
    is_late: bool = False

    @error.validator
    def _check_error(self, _attribute: object, value: object) -> None:
        if value is not None and not isinstance(value, BaseException):
            raise ValueError(f"a fault raises an exception or nothing, not {value!r}")

    @seconds.validator
    def _check_seconds(self, _attribute: object, value: object) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or math.isnan(self.seconds) or self.seconds < 0:
            raise ValueError(f"a fault lasts for seconds from 0, not {value!r}")


class Injector(Protocol):
    """Decides which calls go wrong."""

    @property
    def name(self) -> str:
        """Who it is, for those who are told."""

    def inject(self, point: FaultPoint) -> Injection | None:
        """What is to go wrong in a call; None for nothing. Called in the plugin's thread; must not block. If this
        itself raises, the call is left alone, and the executions are warned."""


@attrs.frozen
class FaultTarget:
    """A plugin on the bus: its name, what it is good for, and the calls that it can be struck in."""

    name: str
    capabilities: frozenset[Capability]
    calls: frozenset[str]


class FaultPoints(Protocol):
    """The fault points of a bus. Any thread."""

    @property
    def is_open(self) -> bool:
        """Whether anybody is asked about calls."""

    @property
    def targets(self) -> Mapping[str, FaultTarget]:
        """Who can be struck, by name, in order of registration."""

    def open(self, injector: Injector) -> None:
        """From now on ``injector`` is asked about every call.

        Raises:
            UsageError: the points are open already.
        """

    def close(self, injector: Injector) -> None:
        """It is asked no more, and what hangs by its orders ends. Nothing if it is not the one who is asked."""


@runtime_checkable
class HasFaultPoints(Protocol):
    """A bus whose calls can be made to go wrong, and what a plugin of it is handed at ``start``."""

    @property
    def fault_points(self) -> FaultPoints:
        """Where."""
