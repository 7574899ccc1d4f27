"""One attempt: the fence around a piece of work, and the context that its code sees.

An attempt is over once, whoever says so first: its own thread with an outcome, or the walk's owner with a timeout or a
cancel. ``close`` decides that under the attempt's lock; everything the body asks of its context takes the same lock,
so nothing of an attempt that is over reaches the journal.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context as ContextVars
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from ares.context import StepContext, idempotency_key, replace_port
from ares.engine.ended import EndedPort, logger_for
from ares.engine.options import CANCEL_GRACE, COMMIT_TIMEOUT
from ares.engine.results import step_id_of, step_result
from ares.errors import AttemptEnded, SerializationError, StepParked, UsageError, WriteError
from ares.journal.notes import Emitted, Remembered, ToolCalled
from ares.postbox import Latch
from ares.questions import Answer, AnswerAction, Cause, OnReject, as_on_reject
from ares.records import Step, StepResult, StepStatus
from ares.walk.facts import Asked
from ares.walk.judge import describe
from ares.walk.table import Phase
from ares.walk.walk import Work, WorkKind
from ares.workflow import BindingKind, Call, Delivery

if TYPE_CHECKING:
    from ares.engine.driver import Driver
    from ares.engine.pool import Seat
    from ares.engine.slots import Slot

T = TypeVar("T")

#: The attempt whose code is running here; what makes a run nested.
current: ContextVar["Attempt | None"] = ContextVar("ares_attempt", default=None)


class Attempt:
    """A piece of work handed to a thread, and the ``AttemptPort`` of its context."""

    def __init__(self, driver: "Driver", work: Work, number: int, variables: ContextVars) -> None:
        self.driver = driver
        self.work = work
        #: What is done.
        self.kind = work.kind
        self.instance = work.instance
        self.epoch = work.epoch
        self.number = number
        #: Whether its body was parked, and runs again with the answer.
        self.goes_on = self.kind is WorkKind.BODY and work.instance.phase is Phase.ANSWERED
        #: What its body asks: it is to end now.
        self.asked: Asked | None = None
        self.timeout = work.instance.node.spec.timeout
        self._variables: ContextVars | None = variables
        #: What interceptors changed about it, in words, and the inputs they gave it instead of its own.
        self.verdict = ""
        self.replaced: Mapping[str, Any] = {}
        #: Where it runs; None while it has no worker, and inline.
        self.seat: Seat | None = None
        #: What it has taken of the pool that its step names.
        self.slot: Slot | None = None
        self.cancelled = False
        #: Whether interceptors are asked, or a place is waited for after that. Then nobody is told to end it: the owner
        #: finds out whether it may still begin.
        self.is_waiting = False
        self.writes: dict[str, Any] = {}
        #: Whether a call was recorded as a tool's.
        self._has_tools = False
        self.done: float | None = None
        self.total: float | None = None
        #: Nested runs under way, to be stopped with it.
        self.nested: list[Driver] = []
        self._ends_at: float | None = None
        self._lock = threading.Lock()
        self._over = False
        self._runs = 0
        #: How it was asked to end last.
        self._cut: _Cut | None = None
        #: Where its body is on an executor: what wakes the thread that waits for it.
        self.bell: Latch | None = None
        #: Whether its body was to go to an executor and certainly has not begun there.
        self.is_held_back = False
        #: Whether its body was seen to begin on an executor.
        self.is_there = False
        self._asking: set[str] = set()
        self._context: StepContext | None = None

    @property
    def path(self) -> str:
        """Where in the execution."""
        return self.instance.path

    # --- its life -------------------------------------------------------------------------------

    def run_in_variables(self, fn: Callable[["Attempt"], T]) -> T:
        """Call ``fn`` in the context variables of the attempt, before ``take_variables``."""
        assert self._variables is not None
        return self._variables.run(fn, self)

    def take_variables(self) -> ContextVars:
        """The context variables to run in, once: they hold the attempt, which must not hold them."""
        variables, self._variables = self._variables, None
        assert variables is not None
        return variables

    def start_clock(self, at: float | None = None) -> None:
        """The body begins now, or began at that time of the monotonic clock: its timeout counts from there."""
        if self.timeout is not None:
            self._ends_at = (time.monotonic() if at is None else at) + self.timeout

    def stop_clock(self) -> None:
        """The body is over, and what it came to takes no time of its own; or it has not begun after all."""
        self._ends_at = None

    def close(self) -> bool:
        """End the attempt. True for the one who does."""
        with self._lock:
            if self._over:
                return False
            self._over = True
            return True

    def time_left(self) -> float:
        """Seconds until its timeout; all of it while its body has not begun."""
        assert self.timeout is not None
        return self.timeout if self._ends_at is None else self._ends_at - time.monotonic()

    @property
    def is_bounded(self) -> bool:
        """Whether a timeout, its own or of something that it lies in, may end it before its body ends."""
        owner = self.instance.scope.owner
        while owner is not None and owner.node.spec.timeout is None:
            owner = owner.scope.owner
        return self.timeout is not None or owner is not None or self.driver.is_bounded

    @property
    def is_over(self) -> bool:
        """Whether somebody ended it."""
        return self._over

    def cancel(self, reason: str, *, for_good: bool = False, grace: float = CANCEL_GRACE) -> None:
        """Ask the body to end, and the runs nested in it: those are cancelled ``for_good``, or interrupted, and what
        runs in them has ``grace`` seconds."""
        self.cancelled = True
        with self._lock:
            cut = self._cut = _Cut(reason, for_good, grace)
            nested = list(self.nested)
        if self.bell is not None:
            self.bell.set()
        for driver in nested:
            cut.apply(driver)

    def detach(self) -> None:
        """It is over, and so is its context.

        The frames of a body that raised live as long as its exception, which is kept with the step. They hold the
        context; it must not hold the step.
        """
        if self._context is not None:
            replace_port(self._context, EndedPort(self.driver.execution_id, self.path, self._ends_at))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While its body waits for another execution, its worker's place is free, and its slot."""
        with self.driver.lend(), nullcontext() if self.slot is None else self.slot.lent():
            yield

    def make_sure(self) -> None:
        """Before something that only the owner may begin: raise LeaseLostError if another one took over meanwhile."""
        if self.driver.options.needs_store:
            self.driver.ledger.log.make_sure()

    def next_run(self) -> int:
        """Number the nested runs of this attempt, from 1."""
        with self._lock:
            self._check()
            self._runs += 1
            return self._runs

    def adopt(self, driver: "Driver") -> None:
        """A nested run begins: it ends with this attempt."""
        with self._lock:
            self._check()
            self.nested.append(driver)
            cut = self._cut
        if cut is not None:
            cut.apply(driver)  # it comes too late to have been told

    def disown(self, driver: "Driver") -> None:
        """A nested run is over."""
        with self._lock:
            self.nested.remove(driver)

    # --- what the body sees ----------------------------------------------------------------------

    def context(self, call: Call, values: list[Any]) -> StepContext:
        """The context of a call that takes these values."""
        inputs = {b.parameter: v for b, v in zip(call.bindings, values, strict=True) if b.kind is not BindingKind.CTX}
        made = self._context = StepContext(self.driver.execution_id, self.step(inputs), self.driver.metadata, self)
        return made

    def step(self, inputs: Mapping[str, Any]) -> Step:
        """What runs, as others see it."""
        instance = self.instance
        spec = instance.node.spec
        return Step(
            step_id=step_id_of(instance),
            path=instance.path,
            base_id=instance.node.id,
            index=instance.index,
            round=instance.scope.round,
            name=spec.name,
            agent_type=spec.agent_type,
            status=StepStatus.RUNNING,
            attempt=self.number,
            inputs=MappingProxyType(dict(inputs)),  # plugins see it, too
            metadata=MappingProxyType(spec.metadata),
            started_at=datetime.now(UTC),
        )

    def deadline(self) -> float | None:
        """See ``AttemptPort``."""
        return self._ends_at

    def is_cancelled(self) -> bool:
        """See ``AttemptPort``."""
        return self.cancelled or self._over

    def variables(self) -> Mapping[str, Any]:
        """See ``AttemptPort``."""
        self._check()
        return self.driver.values.snapshot(self.instance.scope, self.instance.snapshot)

    def upstream(self) -> Mapping[str, StepResult]:
        """See ``AttemptPort``."""
        self._check()
        scope = self.instance.scope
        return {scope.instances[i].node.id: step_result(scope.instances[i]) for i in self.instance.node.deps}

    def idempotency_key(self, key: str | None) -> str:
        """See ``AttemptPort``."""
        self._check()
        instance = self.instance
        return idempotency_key(self.driver.execution_id, instance.path, instance.scope.round, instance.born, key)

    def set(self, name: str, value: Any) -> None:
        """See ``AttemptPort``."""
        if name not in self.instance.node.spec.writes:
            raise WriteError(self.path, name)
        with self._lock:
            self._check()
            self.writes[name] = value

    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """See ``AttemptPort``."""
        _need_text("the key of once()", key)
        born = self.instance.born
        with self._lock:
            self._check()
            found, value = self.driver.ledger.recall(self.path, self.instance.scope.round, born, key)
            if found:
                return value
            if key in self._asking:
                raise UsageError(f"once({key!r}) is running in another thread of step {self.path!r} already")
            self._asking.add(key)
        try:
            self.make_sure()
            value = fn()
            note = Remembered(self.path, self.instance.scope.round, born, key, value)
            body = self.driver.ledger.encode(note)
            with self._lock:
                self._check()
                ticket = self.driver.ledger.note(note, body)
            ticket.wait(COMMIT_TIMEOUT)
            self.driver.ledger.remember(note)
            return value
        finally:
            with self._lock:
                self._asking.discard(key)

    def tool(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``AttemptPort``."""
        self._check()
        began = time.monotonic()
        shown: Any = {"args": list(args), "kwargs": kwargs} if kwargs else list(args)
        try:
            output = fn(*args, **kwargs)
        except StepParked:
            raise  # it has not failed: it is called again when the answer is in
        except BaseException as raised:
            self._record_tool(name, shown, None, time.monotonic() - began, str(describe(raised)))
            raise
        self._record_tool(name, shown, output, time.monotonic() - began, "")
        return output

    def record_as_tool(self, output: Any, seconds: float, error: str = "") -> None:
        """The body is over: if its step is a tool itself, by its metadata, and called none, record it as one call."""
        name = self.instance.node.spec.metadata.get("tool_name")
        if not isinstance(name, str) or not name or self._has_tools or self._over:
            return
        given = {} if self._context is None else dict(self._context.step.inputs)
        with suppress(AttemptEnded):  # somebody ended it just now
            self._record_tool(name, given, output, seconds, error)

    def _record_tool(self, name: str, given: Any, output: Any, seconds: float, error: str) -> None:
        shown = self.driver.options.shown
        given, output = shown(f"{name}.input", given), shown(f"{name}.output", output)
        round_ = self.instance.scope.round
        note = ToolCalled(self.path, round_, self.number, name, given, output, seconds, not error, error)
        body = self.driver.ledger.encode(note)
        with self._lock:
            self._check()
            self._has_tools = True
            self.driver.ledger.note(note, body, lazy=True)

    def interrupt(self, key: str, message: str, payload: Any, on_reject: str) -> Any:
        """See ``AttemptPort``."""
        _need_text("the key of interrupt()", key)
        _need_text("the message of interrupt()", message)
        reject, instance = as_on_reject(on_reject), self.instance
        if self.kind is not WorkKind.BODY or instance.node.spec.delivery is Delivery.AT_MOST_ONCE:
            what = f"its {self.kind}" if self.kind is not WorkKind.BODY else "its body, which is at_most_once,"
            raise UsageError(f"interrupt({key!r}) in step {self.path!r}: {what} cannot run again with the answer")
        with self._lock:
            self._check()
            found = instance.answers.get(key)
            if found is None or self.asked is not None:
                if self.asked is None:
                    head = (self.path, instance.scope.round, self.epoch, self.number)
                    self.asked = Asked(*head, key, message, payload, Cause.BODY, reject)
                raise StepParked(self.path, key)
        if reject is OnReject.RETURN:
            return Answer(found.action is AnswerAction.APPROVE, found.value, found.feedback)
        return found.value

    def emit(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """See ``AttemptPort``."""
        _need_text("an event's type", event_type)
        payload = {name: self.driver.options.shown(f"{event_type}.{name}", value) for name, value in payload.items()}
        note = Emitted(self.path, self.instance.scope.round, self.number, event_type, payload)
        try:
            body = self.driver.ledger.encode(note)
        except SerializationError as error:
            error.where = f"{error.where} of step {self.path!r}"
            raise
        with self._lock:
            self._check()
            self.driver.ledger.note(note, body, lazy=True)

    def progress(self, done: float, total: float | None) -> None:
        """See ``AttemptPort``."""
        with self._lock:
            self._check()
            self.done, self.total = done, total

    def logger(self) -> Any:
        """See ``AttemptPort``."""
        return logger_for(self.driver.execution_id, self.path)

    def _check(self) -> None:
        if self._over:
            raise AttemptEnded(self.path)


def _need_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{what} must be a non-empty str, not {value!r}")


@attrs.frozen
class _Cut:
    """How an attempt was asked to end, and what that means for a run nested in it."""

    reason: str
    for_good: bool
    grace: float

    def apply(self, driver: "Driver") -> None:
        if self.for_good:
            driver.outside.request_cancel(self.reason)
        else:
            driver.outside.request_stop(self.reason, self.grace)
