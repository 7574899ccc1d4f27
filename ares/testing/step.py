"""A StepContext of one's own: to call a step function in a unit test, without a Runtime, a store or a workflow.

It does what the real one does as far as one call of one function can tell: variables are a snapshot, ``set`` takes only
declared names, ``once`` remembers, what cannot be stored is refused, and after the end of the attempt every call raises
``AttemptEnded``. What there is nobody to do for (commit, retry, resume) is not done.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import attrs

from ares.context import StepContext, replace_port
from ares.engine.ended import EndedPort, logger_for
from ares.errors import SerializationError, StepParked, UsageError, WriteError
from ares.journal.encoding import encode
from ares.journal.notes import Emitted, Remembered
from ares.questions import Answer, Approve, Cause, OnReject, Reject, as_on_reject
from ares.records import StepResult, ToolEntry
from ares.testing.samples import make_step, make_step_result
from ares.values import Codec
from ares.walk.facts import Asked
from ares.walk.judge import describe


@attrs.define
class StepProbe:
    """What a step function did with its context, and the hand that a test has on it.

    Attributes:
        writes: what it gave to ``ctx.set``: the last value of each name.
        events: what it gave to ``ctx.emit``: types and payloads, in order.
        tools: the calls it made by ``ctx.tool``, in order.
        remembered: what ``ctx.once`` keeps, by key. A later context that is given it stands for a later attempt.
        progress: what it gave to ``ctx.progress`` last: done and total.
        questions: what it asked by ``ctx.interrupt``, in order: key and message.
    """

    writes: dict[str, Any] = attrs.field(factory=dict)
    events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    tools: list[ToolEntry] = attrs.field(factory=list)
    remembered: dict[str, Any] = attrs.field(factory=dict)
    progress: tuple[float, float | None] | None = None
    questions: list[tuple[str, str]] = attrs.field(factory=list)
    _is_cancelled: bool = False
    _end: Callable[[], None] = attrs.field(default=lambda: None, repr=False)

    def cancel(self) -> None:
        """From now on ``ctx.cancelled`` holds. Any thread."""
        self._is_cancelled = True

    def end(self) -> None:
        """The attempt is over: from now on what asks the context raises ``AttemptEnded``. Any thread."""
        self._end()


class ProbedStepContext(StepContext):
    """A StepContext whose ``probe`` tells what was done with it."""

    __slots__ = ("probe",)

    probe: StepProbe


def step_context(
    path: str = "step",
    *,
    execution_id: str = "execution",
    inputs: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    upstream: Mapping[str, Any] | None = None,
    writes: Iterable[str] = (),
    metadata: Mapping[str, str] | None = None,
    timeout: float | None = None,
    remembered: Mapping[str, Any] | None = None,
    answers: Mapping[str, Approve | Reject] | None = None,
    types: Iterable[type] = (),
    **step: Any,
) -> ProbedStepContext:
    """A context to call a step function with.

    Args:
        path: where the step is: ``charge``, ``audit/parse``, ``measure[3]``.
        execution_id: the execution that it says it belongs to.
        inputs: ``ctx.inputs``.
        variables: ``ctx.variables``.
        upstream: ``ctx.upstream``, by step id: a ``StepResult``, or the output of a step that completed.
        writes: the variables that the step declares in its ``writes``; it may set no others.
        metadata: the metadata of the run.
        timeout: seconds from now until ``ctx.deadline``; the attempt does not end by itself, but is cancelled then.
        remembered: what ``ctx.once`` committed in an earlier attempt, by key.
        answers: what a human said, by key of ``ctx.interrupt``; what is not among them is asked, and ends the call with
            a ``StepParked``. So does a ``Reject``, unless the body wants to hear of it.
        types: classes that may be stored, as ``Workflow(types=...)``.
        step: further fields of ``ctx.step``: ``attempt``, ``round``, ``agent_type``, ...

    Returns:
        A ``StepContext`` with one attribute more: ``probe``, a ``StepProbe``.

    Raises:
        UsageError: a field that no step has.
    """
    if isinstance(writes, str):
        raise UsageError(f"writes takes a collection of names, not the text {writes!r}")
    try:
        made = make_step(path, inputs=MappingProxyType(dict(inputs or {})), **step)
    except TypeError as error:
        raise UsageError(f"step_context: {error}") from None
    probe = StepProbe(remembered=dict(remembered or {}))
    port = _Port(made.path, made.step_id, made.round, made.attempt, execution_id, probe, Codec(types))
    port.snapshot = MappingProxyType(dict(variables or {}))
    port.results = MappingProxyType({name: _result(name, each) for name, each in (upstream or {}).items()})
    port.writable = frozenset(writes)
    port.answers = dict(answers or {})
    port.ends_at = None if timeout is None else time.monotonic() + timeout
    ctx = ProbedStepContext(execution_id, made, MappingProxyType(dict(metadata or {})), port)
    ctx.probe = probe
    probe._end = lambda: replace_port(ctx, EndedPort(execution_id, made.path, port.ends_at))  # noqa: SLF001 - of its own module
    return ctx


def _result(step_id: str, given: Any) -> StepResult:
    return given if isinstance(given, StepResult) else make_step_result(step_id, output=given)


@attrs.define
class _Port:
    """The ``AttemptPort`` of such a context."""

    path: str
    step_id: str
    round: int
    attempt: int
    execution_id: str
    probe: StepProbe
    codec: Codec
    snapshot: Mapping[str, Any] = MappingProxyType({})
    results: Mapping[str, StepResult] = MappingProxyType({})
    writable: frozenset[str] = frozenset()
    answers: Mapping[str, Approve | Reject] = MappingProxyType({})
    ends_at: float | None = None
    #: The keys of ``once`` that are under way.
    asking: set[str] = attrs.field(factory=set)

    def deadline(self) -> float | None:
        return self.ends_at

    def is_cancelled(self) -> bool:
        is_late = self.ends_at is not None and time.monotonic() >= self.ends_at
        return is_late or self.probe._is_cancelled  # noqa: SLF001 - of its own module

    def variables(self) -> Mapping[str, Any]:
        return self.snapshot

    def upstream(self) -> Mapping[str, StepResult]:
        return self.results

    def idempotency_key(self, key: str | None) -> str:
        parts = (self.execution_id, self.path, str(self.round), key or "")
        return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def set(self, name: str, value: Any) -> None:
        if name not in self.writable:
            raise WriteError(self.path, name)
        self.probe.writes[name] = value

    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        _need_text("the key of once()", key)
        if key in self.probe.remembered:
            return self.probe.remembered[key]
        if key in self.asking:
            raise UsageError(f"once({key!r}) is running in another thread of step {self.path!r} already")
        self.asking.add(key)
        try:
            value = fn()
            encode(Remembered(self.path, self.round, 0, key, value), self.codec)
            self.probe.remembered[key] = value
            return value
        finally:
            self.asking.discard(key)

    def tool(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.monotonic()
        output, error = None, ""
        try:
            output = fn(*args, **kwargs)
            return output
        except BaseException as raised:
            error = str(describe(raised))
            raise
        finally:
            shown: Sequence[Any] | dict[str, Any] = {"args": list(args), "kwargs": kwargs} if kwargs else list(args)
            seconds = time.monotonic() - began
            entry = ToolEntry(self.step_id, self.path, name, shown, output, seconds, not error, error)
            self.probe.tools.append(entry)

    def interrupt(self, key: str, message: str, payload: Any, on_reject: str) -> Any:
        _need_text("the key of interrupt()", key)
        _need_text("the message of interrupt()", message)
        asked = Asked(
            self.path, self.round, 0, self.attempt, key, message, payload, Cause.BODY, as_on_reject(on_reject)
        )
        encode(asked, self.codec)
        answer = self.answers.get(key)
        self.probe.questions.append((key, message))
        if asked.on_reject is OnReject.RETURN and answer is not None:
            if isinstance(answer, Reject):
                return Answer(approved=False, value=answer.value, feedback=answer.reason)
            return Answer(approved=True, value=answer.value, feedback=answer.feedback)
        if isinstance(answer, Approve):
            return answer.value
        raise StepParked(self.path, key)

    def emit(self, event_type: str, payload: Mapping[str, Any]) -> None:
        _need_text("an event's type", event_type)
        try:
            encode(Emitted(self.path, self.round, self.attempt, event_type, payload), self.codec)
        except SerializationError as error:
            error.where = f"{error.where} of step {self.path!r}"
            raise
        self.probe.events.append((event_type, dict(payload)))

    def progress(self, done: float, total: float | None) -> None:
        self.probe.progress = (done, total)

    def logger(self) -> Any:
        return logger_for(self.execution_id, self.path)


def _need_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{what} must be a non-empty str, not {value!r}")
