"""A router of a chain and its thread: what an actor is to a plugin, for one that has none.

A seat does one thing after another, on a thread that it gets with the first of them. Whoever waits for one and gives up
has the seat hang, if it was at work: until it has come back, it takes no more.
"""

import math
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from ares.context import cancel, grant
from ares.errors import UsageError
from ares.plugin import Context
from ares.plugins._rules import words

#: Seconds that the end of a thread is waited for which has nothing to do.
_THREAD_END: Final = 1.0
#: Calls that can wait for a router.
_WAITING: Final = 1_000


class _Port:
    """An ``ExecutionPort``: that of the chain's own call, for as long as the turn lasts."""

    def __init__(self, outer: Context, label: str) -> None:
        self._outer = outer
        self._label = label
        self.is_closed = False

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._outer.metadata

    def record(self, writer: str, entry: Any) -> None:  # noqa: ARG002 - a contract's word
        if self.is_closed:
            raise UsageError(f"router {self._label!r} records a {type(entry).__name__} after its time was up")
        self._outer.record(entry)


class Turn:
    """One call to a router.

    Args:
        outer: The context of the chain's own call.
        label: The router's name.
        method: What it is to do.
        args: What that is given after the context.
        end: When its time is up, in seconds of the monotonic clock.
        is_awaited: Whether somebody waits for it, who learns what it raised.
    """

    def __init__(
        self, outer: Context, label: str, method: str, args: tuple[Any, ...], end: float, *, is_awaited: bool = True
    ) -> None:
        self.method = method
        self.args = args
        self.end = end
        self.is_awaited = is_awaited
        self.port = _Port(outer, label)
        self.ctx = Context(outer.execution_id, self.port, outer.journal, label, threading.RLock())
        self.done = threading.Event()
        #: Nobody waits for it any more: it need not begin.
        self.is_over = False
        self.value: Any = None
        self.error: BaseException | None = None

    def give_up(self) -> None:
        """Wait no longer: its context is cancelled, and takes no records any more."""
        self.is_over = self.port.is_closed = True
        cancel(self.ctx)


class Seat:
    """See above.

    Args:
        label: The router's name.
        router: Itself; its ``timeout``, in seconds, bounds each thing that it does.
        thread: What its thread is to be called.
    """

    def __init__(self, label: str, router: Any, thread: str) -> None:
        self.label = label
        self.router = router
        #: Why it is not asked at all; "" if it is.
        self.problem = ""
        #: Whether it has started, or may have.
        self.is_to_stop = False
        own = getattr(router, "timeout", None)
        self._timeout = float(own) if isinstance(own, int | float) and own > 0 else math.inf
        self._name = thread
        self._thread: threading.Thread | None = None
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: What it does, and what it raised last that nobody waited for. Under the lock, like what follows.
        self._current: Turn | None = None
        self._complaint = ""
        #: The turn that it was found to hang in.
        self._stuck: Turn | None = None
        self._has_ended = False

    def take(self, turn: Turn) -> str:
        """Let it do something once it has done what came before. Returns why it will not."""
        turn.end = min(turn.end, time.monotonic() + self._timeout)
        with self._lock:
            if self._has_ended:
                return "was stopped"
            if self._stuck is not None:
                return f"still hangs in {self._stuck.method}"
            if self._turns.qsize() >= _WAITING:
                return f"has {_WAITING} calls waiting"
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    return f"got no thread: {error}"
                self._thread = thread
            self._turns.put(turn)
        return ""

    def wait(self, turn: Turn) -> str:
        """Wait until it has done something. Returns why it has not; then it is not waited for again."""
        begun = time.monotonic()
        if turn.done.wait(max(0.0, turn.end - begun)):
            return ""
        with self._lock:
            if turn.done.is_set():
                return ""
            turn.give_up()
            self._stuck = self._current
            hung = "" if self._current in (turn, None) else f", because it hangs in {self._current.method}"
        return f"gave no answer in {time.monotonic() - begun:.2g} s{hung}"

    def complaint(self) -> str:
        """What it failed with that nobody waited for, once."""
        with self._lock:
            complaint, self._complaint = self._complaint, ""
        return complaint

    def end(self) -> None:
        """Have its thread end, after what it still has to do, and wait for that unless it hangs."""
        with self._lock:
            self._has_ended = True
            thread, is_stuck = self._thread, self._stuck is not None
            self._turns.put(None)
        if thread is not None and not is_stuck:
            thread.join(_THREAD_END)

    def dismiss(self) -> None:
        """Have its thread end when it has nothing more to do. Takes no lock: the garbage collector may ask for it."""
        self._turns.put(None)

    # --- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            turn = self._turns.get()
            if turn is None:
                return
            with self._lock:
                self._current = turn
            if not turn.is_over:
                self._carry_out(turn)
            with self._lock:
                self._current = self._stuck = None
                turn.done.set()
            del turn  # what it holds need not wait for the next one

    def _carry_out(self, turn: Turn) -> None:
        grant(turn.ctx, turn.end)
        try:
            turn.value = getattr(self.router, turn.method)(turn.ctx, *turn.args)
        except BaseException as error:  # it hurts itself alone
            turn.error = error
            if not turn.is_awaited:
                with self._lock:
                    self._complaint = f"raised {words(error)}"
