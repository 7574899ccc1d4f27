"""How one plugin moves in and out."""

import time
from typing import Final

from ares.bus.awaiting import send_all
from ares.bus.call import Latch
from ares.bus.exchange import Exchange
from ares.bus.health import PluginState
from ares.bus.resident import Resident
from ares.bus.view import PluginView, Services
from ares.context import NoExecution
from ares.errors import PluginBusyError, PluginError, PluginNotRunningError, PluginTimeoutError
from ares.events import Event, EventFilter

#: Seconds that the thread of a plugin which has stopped is given to end, at least.
_THREAD_END: Final = 1.0
#: Seconds that a plugin has to stop when there is no time left.
_LEAST: Final = 0.05

_NO_ANSWER: Final = (PluginTimeoutError, PluginBusyError, PluginNotRunningError)


class _EventLane:
    """The ``Box`` of a plugin that listens: its actor's mailbox."""

    def __init__(self, resident: Resident, filter: EventFilter) -> None:
        self.filter = filter
        self.label = f"plugin {resident.name!r}"
        self._mailbox = resident.actor.mailbox

    def offer(self, event: Event, *, keep: bool = False) -> bool:
        """See ``Box``."""
        return self._mailbox.offer(event, keep=keep)

    def stream_ended(self, stream_id: str) -> bool:  # noqa: ARG002 - a contract's word
        """A plugin listens for as long as it lives."""
        return False

    def end(self) -> None:
        """See ``Box``."""
        self._mailbox.end_events()


class Lodging:
    """A resident, the bus as it sees it, and what it listens to."""

    def __init__(self, resident: Resident, services: Services, exchange: Exchange) -> None:
        self.resident = resident
        self._view = PluginView(services, resident.name)
        self._exchange = exchange
        wanted = resident.card.subscribes_to
        self._lane = None if wanted is None else _EventLane(resident, wanted)

    def move_in(self) -> PluginError | None:
        """Start the plugin in its actor. Returns why it did not start; then it is out, and its thread ends when it
        can."""
        resident = self.resident
        resident.move(PluginState.STARTING)
        try:
            resident.actor.begin()
        except RuntimeError as error:
            problem = PluginError(resident.name, "start", f"got no thread: {error}")
            resident.move(PluginState.FAILED, problem)
            return problem
        latch = Latch(1)
        call = resident.call("start", (self._view,), "", NoExecution(), latch)
        try:
            send_all([(resident, call)], latch)
        finally:
            is_running = call.is_done and call.error is None
            resident.move(PluginState.RUNNING if is_running else PluginState.FAILED, call.error)
            if not is_running:
                resident.abandon()
                self._view.close()
        if call.error is not None and not isinstance(call.error, _NO_ANSWER):
            resident.actor.join(_THREAD_END)
        if is_running and self._lane is not None:
            self._exchange.attach(self._lane)
        return call.error

    def move_out(self, seconds: float) -> PluginError | None:
        """Stop the plugin, after the calls and events that were sent before, within so many seconds. Returns why it did
        not stop in good order. Its thread has ended then, or ends when it can."""
        until = time.monotonic() + max(seconds, _LEAST)
        resident = self.resident
        if self._lane is not None:
            self._exchange.detach(self._lane)
            resident.actor.mailbox.end_events()
        resident.move(PluginState.STOPPING)
        latch = Latch(1)
        call = resident.call("stop", (), "", NoExecution(), latch)
        try:
            send_all([(resident, call)], latch, until)
        finally:
            # One that raised has stopped, too.
            is_out = call.is_done and not isinstance(call.error, _NO_ANSWER)
            resident.move(PluginState.STOPPED if is_out else PluginState.ABANDONED, call.error)
            resident.abandon()
            self._view.close()
        if is_out:
            resident.actor.join(max(until - time.monotonic(), _THREAD_END))
        return call.error
