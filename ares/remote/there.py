"""What runs on the other side: unpacks a body, gives it a context that is a value, and packs what it comes to."""

import os
import pickle  # noqa: TID251 - executors take and give pickles; nothing of it is journaled
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from multiprocessing import parent_process
from types import MappingProxyType
from typing import Any, NoReturn

import attrs

from ares.context import StepContext, idempotency_key
from ares.errors import UsageError, WriteError
from ares.records import StepResult
from ares.remote.errand import ContextHere, Load, View
from ares.remote.marks import make
from ares.remote.returned import NOT_BEGUN, Returned

#: The body that runs on this thread, which is on an executor; an object of its own for each.
inside: ContextVar[object | None] = ContextVar("ares_remote_body", default=None)

#: Seconds between two looks at whether the home is still there.
_LOOK_SECONDS = 1.0


def perform(load: bytes, mark: str = "") -> bytes:
    """Run a body that came as bytes. Raises nothing that the body raises.

    Args:
        load: what ``Errand.packed`` made.
        mark: on a process pool: what to make before the body begins, which is not before all that it needs is loaded.

    Returns:
        A pickled ``Returned``; ``NOT_BEGUN`` where somebody else had made the mark.

    Raises:
        OSError: the mark could not be made.
    """
    if mark:
        end_with_home()
    found = _unpacked(load)
    if isinstance(found, Load):
        if mark and not make(mark, repr(time.monotonic())):
            return NOT_BEGUN
        found = _perform(found)
    return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)


def perform_here(load: bytes) -> Returned:
    """As ``perform``, on the walk's own thread. Raises a Ctrl-C on the main thread."""
    found = _unpacked(load)
    return _perform(found, lets_pass=_is_ctrl_c) if isinstance(found, Load) else found


def _is_ctrl_c(error: BaseException) -> bool:
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _unpacked(load: bytes) -> Load | Returned:
    """What was packed; or why it cannot be unpacked here."""
    try:
        found = pickle.loads(load)  # noqa: S301 - from the home of this worker
        assert isinstance(found, Load)
    except BaseException as error:  # a module that is imported for it may raise SystemExit
        here = f"process {os.getpid()}"
        return Returned(problem=f"its call cannot be loaded by {here}: {type(error).__name__}: {error}")
    return found


def _perform(load: Load, lets_pass: Callable[[BaseException], bool] = lambda _: False) -> Returned:
    token = inside.set(object())
    try:
        writes: dict[str, Any] = {}
        ctx = None if load.view is None else _context(load, load.view, writes)
        args = [ctx if isinstance(each, ContextHere) else each for each in load.args]
        kwargs = {name: ctx if isinstance(each, ContextHere) else each for name, each in load.kwargs.items()}
        return Returned.of_value(load.fn(*args, **kwargs), writes)
    except BaseException as error:
        if lets_pass(error):
            raise
        return Returned.of_error(error, _trace(error))
    finally:
        inside.reset(token)


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as inner:
        return f"<the traceback cannot be shown: {type(inner).__name__}>"


# --- the context ------------------------------------------------------------------------------------


def _context(load: Load, view: View, writes: dict[str, Any]) -> StepContext:
    step = attrs.evolve(
        view.step, inputs=MappingProxyType(dict(view.step.inputs)), metadata=MappingProxyType(dict(view.step.metadata))
    )
    ends_at = None if view.timeout is None else time.monotonic() + view.timeout
    port = ValuePort(load.path, load.executor, view, writes, ends_at)
    return StepContext(view.execution_id, step, MappingProxyType(dict(view.metadata)), port)


@attrs.frozen
class ValuePort:
    """What is behind a context that has no attempt behind it, because that is elsewhere: what it was sent with."""

    path: str
    executor: str
    view: View
    writes: dict[str, Any]
    ends_at: float | None

    def deadline(self) -> float | None:
        """See ``AttemptPort``."""
        return self.ends_at

    def is_cancelled(self) -> bool:
        """Whether its time is up. Of a cancel it does not hear."""
        return self.ends_at is not None and time.monotonic() >= self.ends_at

    def variables(self) -> Mapping[str, Any]:
        """See ``AttemptPort``."""
        return MappingProxyType(dict(self.view.variables))

    def idempotency_key(self, key: str | None) -> str:
        """See ``AttemptPort``."""
        return idempotency_key(self.view.execution_id, self.path, self.view.step.round, self.view.born, key)

    def set(self, name: str, value: Any) -> None:
        """Kept until the body is back home."""
        if name not in self.view.writes:
            raise WriteError(self.path, name)
        self.writes[name] = value

    def logger(self) -> Any:
        """See ``AttemptPort``. It logs where the body runs."""
        from loguru import logger

        return logger.bind(execution_id=self.view.execution_id, step=self.path)

    def upstream(self) -> Mapping[str, StepResult]:
        """Refused."""
        self._refuse("upstream", "the results of other steps are not sent along: take their values as parameters")

    def once(self, key: str, fn: Callable[[], Any]) -> Any:  # noqa: ARG002 - a contract's word
        """Refused."""
        self._refuse(f"once({key!r})", "its promise is a commit to the journal, which is at home")

    def tool(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002
        """Refused."""
        self._refuse(f"tool({name!r})", "tool calls are recorded in the journal, which is at home")

    def interrupt(self, key: str, message: str, payload: Any, on_reject: str) -> Any:  # noqa: ARG002
        """Refused."""
        self._refuse(f"interrupt({key!r})", "questions are kept in the journal, which is at home: ask in a step before")

    def emit(self, event_type: str, payload: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse(f"emit({event_type!r})", "events are kept in the journal, which is at home")

    def progress(self, done: float, total: float | None) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse("progress()", "nobody at home would see it")

    def _refuse(self, what: str, why: str) -> NoReturn:
        raise UsageError(f"ctx.{what} in step {self.path!r}, which runs on executor {self.executor!r}: {why}")


# --- a process of a pool ------------------------------------------------------------------------------

_settling = threading.Lock()
_settled: set[int] = set()


def end_with_home() -> None:
    """Make this process of a pool end when its home is dead, and leave Ctrl-C to the home.

    The processes of a pool wait for work for ever when their home was killed, and what they run goes on beside whoever
    resumes the execution. A Ctrl-C at a terminal reaches them, too; the home decides what becomes of their bodies. The
    first body of each process does this. As the ``initializer`` of a pool it is done in those, too, that have had none.
    """
    with _settling:
        if os.getpid() in _settled or parent_process() is None:
            return
        _settled.clear()  # of a parent that was forked
        _settled.add(os.getpid())
    threading.Thread(target=_end_with, args=(os.getppid(),), name="ares-orphan-watch", daemon=True).start()
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # No SIG_IGN, which programs that a body starts would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)


def _end_with(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent and _has_home():
        pause.wait(_LOOK_SECONDS)
    os._exit(1)


def _has_home() -> bool:
    """Whether the home lives that is no parent by number, as under a fork server; that one lives as long as this."""
    home = parent_process()
    try:
        return home is None or home.is_alive()
    except Exception:  # loky's does not say
        return True
