"""What a call is handed besides its arguments: how long it has, whether it is still wanted, and whom to tell.

``StepContext`` is a step's side of its attempt; what it does with a call (who keeps it, who waits for it) is the
business of the ``AttemptPort`` behind it. ``Context`` is a plugin's side of one call to it.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar

from ares.errors import UsageError
from ares.events import Event
from ares.records import ExperienceCheckpoint, Step, StepResult

P = ParamSpec("P")
T = TypeVar("T")


class AttemptPort(Protocol):
    """What a StepContext needs of whoever runs the attempt. Every method but ``deadline``, ``is_cancelled`` and
    ``logger`` raises ``AttemptEnded`` once the attempt is over."""

    def deadline(self) -> float | None:
        """The monotonic time, in seconds, at which the attempt ends; None for never."""

    def is_cancelled(self) -> bool:
        """Whether the attempt is asked to end."""

    def variables(self) -> Mapping[str, Any]:
        """The variables as they were when the step became ready."""

    def upstream(self) -> Mapping[str, StepResult]:
        """The dependencies' results by step id."""

    def idempotency_key(self, key: str | None) -> str:
        """A key of the instance, or of one effect of it, that stays the same however often it runs."""

    def set(self, name: str, value: Any) -> None:
        """Keep a variable write for the attempt's success."""

    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """The result of ``fn``, committed; of an earlier run, if there is one."""

    def tool(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``fn``, the call recorded."""

    def interrupt(self, key: str, message: str, payload: Any, on_reject: str) -> Any:
        """The answer to a question, once a human has given it."""

    def emit(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """Record an event."""

    def progress(self, done: float, total: float | None) -> None:
        """Say how far the body is."""

    def logger(self) -> Any:
        """A logger bound to the execution and the step."""


def idempotency_key(execution_id: str, path: str, round: int, born: int, key: str | None) -> str:
    """What ``ctx.idempotency_key`` is, or, with a key, ``ctx.idempotency_key_for(key)``; ``born`` counts how often the
    step forgot what it had done."""
    parts = (execution_id, path, str(round), str(born), key or "")
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class StepContext:
    """A step's view of its own attempt, passed to a parameter named ``ctx``.

    Attributes:
        execution_id: the execution it belongs to.
        step: what runs: ids, path, attempt, inputs.
        metadata: the metadata that the run was given.
    """

    __slots__ = ("_port", "execution_id", "metadata", "step")

    def __init__(self, execution_id: str, step: Step, metadata: Mapping[str, str], port: AttemptPort) -> None:
        self.execution_id = execution_id
        self.step = step
        self.metadata = metadata
        self._port = port

    def __repr__(self) -> str:
        return f"<StepContext {self.execution_id} {self.step.path} attempt {self.step.attempt}>"

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.step.attempt

    @property
    def round(self) -> int:
        """Which round this is, from 1."""
        return self.step.round

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The values its parameters took, by parameter."""
        return self.step.inputs

    @property
    def variables(self) -> Mapping[str, Any]:
        """A read-only snapshot of the variables from when the step became ready."""
        return self._port.variables()

    @property
    def upstream(self) -> Mapping[str, StepResult]:
        """The results of the steps it depends on, by step id: status, reason, output."""
        return self._port.upstream()

    @property
    def deadline(self) -> float | None:
        """When the attempt ends, in seconds of ``time.monotonic()``; None when it has no timeout."""
        return self._port.deadline()

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should end: its execution was cancelled or is closing, or its time is up."""
        return self._port.is_cancelled()

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt, resume and process that runs this step of this execution."""
        return self._port.idempotency_key(None)

    def idempotency_key_for(self, key: str) -> str:
        """As ``idempotency_key``, for one of several effects of the step: the one done under ``once(key, ...)``."""
        return self._port.idempotency_key(key)

    def set(self, name: str, value: Any) -> None:
        """Write a variable, if and when the step succeeds.

        Raises:
            WriteError: the step does not declare ``name`` in its ``writes``.
        """
        self._port.set(name, value)

    def once(self, key: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` once for this step, whatever happens: its result is committed before this returns, and a later
        attempt or resume is given that result instead of a call.

        If the process dies between the effect and the commit, ``fn`` runs again: give it ``idempotency_key_for(key)``.

        Raises:
            SerializationError: the result cannot be stored.
            StoreError: the result could not be committed.
        """
        result: T = self._port.once(key, lambda: fn(*args, **kwargs))
        return result

    def tool(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` and record the call under ``name``: input, output, seconds, success. The outcome is ``fn``'s."""
        result: T = self._port.tool(name, fn, args, kwargs)
        return result

    def interrupt(self, key: str, message: str, payload: Any = None, *, on_reject: str = "skip") -> Any:
        """Ask a human, and return what ``Approve`` brought.

        Without an answer the body is unwound by a ``StepParked``, which it must let pass, and its worker is free. Once
        the answer is in, be it in another process, the body runs again from its first line, as the same attempt: put
        what must not happen twice under ``once``. What it has written by ``set`` until then is dropped.

        Args:
            key: tells the questions of the step apart; the answer is matched by it, not by the order of calls.
            message: the question, in words.
            payload: what else there is to know; any value that may cross a boundary.
            on_reject: what a No does: ``"skip"`` the step (reason ``rejected``, which blocks; a map element fails), or
                ``"return"``: then this returns an ``Answer`` (approved, value, feedback), for Yes and No.

        Raises:
            UsageError: in an ``at_most_once`` step, whose body must not run again, or outside a body.
            SerializationError: the payload cannot be stored; fails the attempt.
        """
        return self._port.interrupt(key, message, payload, on_reject)

    def emit(self, event_type: str, /, **payload: Any) -> None:
        """Record an event of the step's own; ``event_type`` is any dotted name.

        Raises:
            SerializationError: the payload cannot be stored.
        """
        self._port.emit(event_type, payload)

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far the body is, for those who watch. Not kept."""
        self._port.progress(done, total)

    @property
    def logger(self) -> Any:
        """A loguru logger bound to ``execution_id`` and ``step``."""
        return self._port.logger()


def replace_port(ctx: StepContext, port: AttemptPort) -> None:
    """Give a context another attempt to speak to: one that is over has nothing behind it."""
    ctx._port = port  # noqa: SLF001 - of its own module


# --- a plugin's side of a call ---------------------------------------------------------------------


class PluginJournal(Protocol):
    """What a plugin may ask of the journal. Every method blocks until the store has answered."""

    def flush(self, execution_id: str | None = None) -> None:
        """Commit what waits to be written, of one execution or of all."""

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        """All that the execution is, by what is committed."""

    def append(self, event: Event) -> None:
        """Keep an event that is in no journal yet."""


class ExecutionPort(Protocol):
    """What a Context needs of whoever walks the execution that a call belongs to."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata that the run was given."""

    def record(self, writer: str, entry: Any) -> None:
        """Keep an entry of a history; ``writer`` is the plugin. Never blocks."""


class NoExecution:
    """Stands where a call belongs to no execution: at start, at stop, on an event of some other stream."""

    metadata: Mapping[str, str] = MappingProxyType({})

    def record(self, writer: str, entry: Any) -> None:
        """There is nothing to record it with."""
        raise UsageError(f"plugin {writer!r} records a {type(entry).__name__} in a call that belongs to no execution")


class NoJournal:
    """Stands where a bus was given no journal."""

    def flush(self, execution_id: str | None = None) -> None:
        """Nothing waits."""

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        """Nothing is known."""
        raise UsageError(f"this bus has no journal to read execution {execution_id!r} from")

    def append(self, event: Event) -> None:
        """Nothing is kept."""
        raise UsageError(f"this bus has no journal to keep {event.type!r} in")


class Context:
    """What a plugin is handed with every call.

    Attributes:
        execution_id: the execution that the call belongs to, "" if to none.
        journal: the Runtime's journal, as far as plugins may use it.
    """

    __slots__ = ("_alarm", "_deadline", "_is_cancelled", "_lock", "_port", "_writer", "execution_id", "journal")

    def __init__(
        self,
        execution_id: str,
        port: ExecutionPort,
        journal: PluginJournal,
        writer: str,
        lock: AbstractContextManager[Any],
    ) -> None:
        self.execution_id = execution_id
        self.journal = journal
        self._port = port
        self._writer = writer
        self._deadline: float | None = None
        self._is_cancelled = False
        #: Guards the two around it.
        self._lock = lock
        #: Held until the call is cancelled; there once somebody waits for that.
        self._alarm: threading.Lock | None = None

    def __repr__(self) -> str:
        return f"<Context of {self._writer!r} {self.execution_id}>"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata that the run was given."""
        return self._port.metadata

    @property
    def deadline(self) -> float | None:
        """Until when an answer is waited for, in seconds of ``time.monotonic()``."""
        return self._deadline

    @property
    def cancelled(self) -> bool:
        """Whether the call should end: nobody waits for its answer any more, or its time is up."""
        return self._is_cancelled or (self._deadline is not None and time.monotonic() >= self._deadline)

    def wait(self, seconds: float) -> bool:
        """Sleep for so many seconds, or until the call is cancelled or its time is up. Returns ``cancelled``."""
        outlast(self, min(seconds, seconds_left(self)))
        return self.cancelled

    def record(self, entry: Any) -> None:
        """Add an entry (RouteEntry, ToolEntry, MemoryEntry, InterruptEntry, LoopEntry, ErrorEntry, ScoringSignal) to
        the execution's histories. Never blocks.

        Raises:
            UsageError: the call belongs to no execution.
        """
        self._port.record(self._writer, entry)


def grant(ctx: Context, until: float) -> None:
    """The call begins; an answer is waited for until then, in seconds of the monotonic clock."""
    ctx._deadline = until  # noqa: SLF001 - of its own module


def seconds_left(ctx: Context) -> float:
    """Until its time is up; infinity if it has none."""
    deadline = ctx.deadline
    return math.inf if deadline is None else deadline - time.monotonic()


def outlast(ctx: Context, seconds: float) -> None:
    """Sleep for so many seconds, also when the call's time is up, but no longer than until it is cancelled."""
    with ctx._lock:  # noqa: SLF001 - of its own module
        if ctx._is_cancelled:  # noqa: SLF001
            return
        if ctx._alarm is None:  # noqa: SLF001
            ctx._alarm = threading.Lock()  # noqa: SLF001
            ctx._alarm.acquire()  # noqa: SLF001
        alarm = ctx._alarm  # noqa: SLF001
    if seconds > 0 and alarm.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
        alarm.release()  # for others that wait


def cancel(ctx: Context) -> None:
    """Nobody waits for the call any more. Any thread."""
    with ctx._lock:  # noqa: SLF001 - of its own module
        if ctx._is_cancelled:  # noqa: SLF001
            return
        ctx._is_cancelled = True  # noqa: SLF001
        alarm = ctx._alarm  # noqa: SLF001
    if alarm is not None:
        alarm.release()
