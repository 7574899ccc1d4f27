"""How callers wait for plugins: one for a whole batch of calls, and one who asked and may come back later."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ares.bus.call import Call, Latch
from ares.bus.resident import Resident, current_resident
from ares.bus.waits import waits
from ares.errors import PluginDeadlockError

#: A plugin that waits for another gives up after this part of its own time: then it can still answer itself, and the
#: other is to blame and not it.
_PATIENCE = 0.9


def send_all(calls: Sequence[tuple[Resident, Call]], latch: Latch, until: float = math.inf) -> None:
    """Send calls that share ``latch`` and wait until each is answered or its time is over, at most until then by the
    monotonic clock. After that look at each one's ``error`` and ``value``."""
    try:
        for resident, call in calls:
            resident.send(call)
        while not latch.wait(min(_next_look(calls), until) - time.monotonic()):
            is_over = time.monotonic() >= until
            for resident, call in calls:
                if is_over:
                    resident.give_up(call)
                elif not call.is_done:
                    resident.check(call)
    except BaseException:  # Ctrl-C on the main thread
        for resident, call in calls:
            resident.give_up(call)
        raise


def _next_look(calls: Sequence[tuple[Resident, Call]]) -> float:
    # All done, and the last one is about to open the latch: at once.
    return min((call.check_at for _, call in calls if not call.is_done), default=0.0)


class PendingAnswer:
    """An ``Answer``: a call that was sent, and its latch."""

    __slots__ = ("_call", "_latch", "_resident")

    def __init__(self, resident: Resident, call: Call) -> None:
        self._resident = resident
        self._call = call
        assert call.latch is not None
        self._latch = call.latch

    def __repr__(self) -> str:
        return f"<Answer of {self._resident.name!r} to {self._call.method}, {'done' if self.done() else 'pending'}>"

    def done(self) -> bool:
        """Whether ``result`` returns at once."""
        return self._call.is_done

    def result(self, timeout: float | None = None) -> Any:
        """What the plugin said. Waits for as long as its own timeout allows.

        Raises:
            PluginError: the call failed, or would wait for itself.
            TimeoutError: ``timeout`` seconds are over; the call goes on.
        """
        call = self._call
        if not call.is_done:
            with _as_edge(self._resident, call):
                self._wait(None if timeout is None else time.monotonic() + timeout)
        if call.error is not None:
            raise call.error
        return call.value

    def _wait(self, until: float | None) -> None:
        call = self._call
        gives_up_at = _end_of_patience()
        while not self._latch.wait(_earliest(call.check_at, until, gives_up_at) - time.monotonic()):
            now = time.monotonic()
            if until is not None and now >= until and not call.is_done:
                raise TimeoutError(f"plugin {self._resident.name!r} has not answered {call.method} yet")
            if gives_up_at is not None and now >= gives_up_at:
                self._resident.give_up(call)
            else:
                self._resident.check(call)


def _earliest(*moments: float | None) -> float:
    return min(moment for moment in moments if moment is not None)


def _end_of_patience() -> float | None:
    """Until when the plugin that the calling thread belongs to can wait for others."""
    resident = current_resident()
    mine = None if resident is None else resident.current
    if mine is None or mine.began is None:
        return None
    return mine.began + mine.timeout * _PATIENCE


@contextmanager
def _as_edge(target: Resident, call: Call) -> Iterator[None]:
    """If the calling thread is a plugin's, it waits for another from here on, unless that would be for itself."""
    waiter = current_resident()
    if waiter is None:
        yield
        return
    try:
        waits.enter(waiter, target, call)
    except PluginDeadlockError:
        target.give_up(call)
        raise
    try:
        yield
    finally:
        waits.leave(waiter)
