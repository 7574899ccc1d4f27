"""A plugin in its actor: calls to it, their time, and what becomes of them.

All that changes is under one lock, which is held for moments and never while code of a plugin runs.

*Time.* A call may be queued for its timeout, and then execute for its timeout. Whoever waits looks at it when its time
is up. What is found executing past its timeout *hangs*: its context is cancelled, and until its late answer comes in
the plugin is unresponsive, so that what is queued and what comes later fails at once. A call that is still queued when
its time is up is given up without a change of state: the plugin is only busy. Nobody watches the clock for calls that
nobody waits for; whoever comes next finds that one of them hangs. So a hung plugin costs one timeout in all, and no
thread.

*Answers.* Each call is answered once: by the plugin, by the one who gives it up, or by the end of the actor. Only the
first answer counts.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ares.bus.call import Call, Latch, describe
from ares.bus.card import Card
from ares.bus.executions import Executions, silent
from ares.bus.faults import BusFaultPoints
from ares.bus.health import PluginHealth, PluginState
from ares.bus.mailbox import MailboxClosedError
from ares.context import Context, ExecutionPort, NoExecution, PluginJournal, cancel, grant
from ares.errors import (
    PluginBusyError,
    PluginCrashError,
    PluginError,
    PluginNotRunningError,
    PluginTimeoutError,
    PluginUnresponsiveError,
)
from ares.events import EventType
from ares.forks import end_child_of

#: Of a thread that is an actor's: the ``resident`` that it serves.
_here: Final = threading.local()

#: In which state a plugin takes the calls of its life; all others it takes when it is running.
_RUNNING: Final = PluginState.RUNNING
_TAKEN_IN: Final = {"start": PluginState.STARTING, "stop": PluginState.STOPPING}


@attrs.frozen
class House:
    """What the residents of one bus share.

    ``timeout`` is seconds. ``announce`` is given the type of an event about a plugin, the plugin's name, the execution
    that it concerns or "", and what there is to say; ``tell_fault`` the execution and what is told of a call that was
    struck. Neither blocks.
    """

    name: str
    timeout: float
    executions: Executions
    journal: PluginJournal
    announce: Callable[[EventType, str, str, str], None]
    faults: BusFaultPoints = attrs.field(factory=BusFaultPoints)
    tell_fault: Callable[[str, Mapping[str, Any]], None] = silent


def current_resident() -> "Resident | None":
    """Whom the calling thread serves, if it is an actor's."""
    return getattr(_here, "resident", None)


class Resident:
    """See above. Any thread, unless it says otherwise."""

    def __init__(self, card: Card, house: House) -> None:
        self.card = card
        self.name = card.name
        self.timeout = card.timeout or house.timeout
        self._house = house
        self._faults = house.faults
        # Also the mailbox's. Reentrant: a finalizer that the garbage collector runs in here may emit an event.
        self._lock = threading.RLock()
        from ares.bus.host import PluginActor  # and pykka with it, where there is a plugin

        self.actor = PluginActor(self, f"ares-plugin {card.name} {house.name}".strip(), self._lock, card.buffer)
        self._mailbox = self.actor.mailbox
        self._state = PluginState.REGISTERED
        self._queued: dict[Call, None] = {}
        self._current: Call | None = None
        #: The current call, once it was found to hang.
        self._hung: Call | None = None
        #: The current call, if it was made to go wrong.
        self._struck: Call | None = None
        self._strikes = 0
        self._calls = 0
        self._errors = 0
        self._timeouts = 0
        self._seconds = 0.0
        self._slowest = 0.0
        self._last_error = ""

    def __repr__(self) -> str:
        return f"<Resident {self.name!r} {self.state}>"

    # --- calling ------------------------------------------------------------------------------------

    def call(
        self, method: str, args: tuple[Any, ...], execution_id: str, port: ExecutionPort, latch: Latch | None
    ) -> Call:
        """Make a call; it is not sent yet."""
        context = Context(execution_id, port, self._house.journal, self.name, self._lock)
        return Call(method, args, context, self.timeout, latch)

    def send(self, call: Call) -> None:
        """Queue a call. One that cannot be queued is answered at once."""
        call.sent = now = time.monotonic()
        hung = None
        with self._lock:
            if self._current is not None:
                hung = self._find_hung(now)
            if self._hung is not None:
                call.settle(None, self._unresponsive(call, self._hung))
            elif self._state is not _TAKEN_IN.get(call.method, _RUNNING) or not self._put(call):
                call.settle(None, PluginNotRunningError(self.name, call.method, state=self._state.value))
            elif self._current is not None:
                self._plan(call, now)
            else:
                call.check_at = now + call.timeout
        if hung is not None:
            self._announce(hung)

    def _put(self, call: Call) -> bool:
        try:
            self._mailbox.put_held(call)
        except MailboxClosedError:
            return False
        self._queued[call] = None
        return True

    def check(self, call: Call) -> None:
        """For a caller that waits and has come to ``call.check_at``: end the call if its time is over."""
        now = time.monotonic()
        with self._lock:
            hung = self._find_hung(now)
            if call in self._queued and not call.is_patient and now >= call.sent + call.timeout:
                del self._queued[call]
                call.settle(None, PluginBusyError(self.name, call.method, seconds=call.timeout))
            self._plan(call, now)
        self._announce(hung)

    def give_up(self, call: Call) -> None:
        """Its caller waits no longer, although its time may not be over."""
        now = time.monotonic()
        with self._lock:
            if call.began is None:
                self._queued.pop(call, None)
                call.settle(None, PluginBusyError(self.name, call.method, seconds=now - call.sent))
            else:
                call.settle(None, PluginTimeoutError(self.name, call.method, seconds=now - call.began))
        cancel(call.context)

    @property
    def current(self) -> Call | None:
        """What it executes; for its own thread, for which it does not change."""
        return self._current

    def look(self) -> Call | None:
        """What the plugin hangs in, if it does."""
        with self._lock:
            hung = self._find_hung(time.monotonic())
            known = self._hung
        self._announce(hung)
        return known

    def _plan(self, call: Call, now: float) -> None:
        """Say when a caller is to look at the call again."""
        if call.began is not None:
            call.check_at = call.began + call.timeout
            return
        call.check_at = now + call.timeout if call.is_patient else call.sent + call.timeout
        current = self._current
        if current is not None and current.began is not None:
            # If that one hangs, this one need not wait for its own time.
            call.check_at = min(call.check_at, current.began + current.timeout)

    def _unresponsive(self, call: Call, hung: Call) -> PluginError:
        return PluginUnresponsiveError(self.name, call.method, seconds=hung.timeout, hung_call=hung.method)

    def _find_hung(self, now: float) -> Call | None:
        """The current call, if it has just been found to hang. Under the lock."""
        hung = self._current
        if hung is None or self._hung is not None or hung.began is None or now < hung.began + hung.timeout:
            return None
        self._hung = hung
        self._timeouts += 1
        error = self._timeout_of(hung)
        self._last_error = str(error)
        hung.settle(None, error)
        cancel(hung.context)
        for call in self._queued:
            call.settle(None, self._unresponsive(call, hung))
        self._queued.clear()
        return hung

    def _timeout_of(self, hung: Call) -> PluginTimeoutError:
        """What its caller is told. Under the lock."""
        problem = f"gave no answer in {hung.timeout:g} s, by an injected fault" if hung is self._struck else ""
        return PluginTimeoutError(self.name, hung.method, problem, hung.timeout)

    def _announce(self, hung: Call | None) -> None:
        if hung is not None:
            error = hung.error or PluginTimeoutError(self.name, hung.method, seconds=hung.timeout)
            self._house.executions.say("ERROR", str(error))
            self._house.announce(EventType.PLUGIN_FAILED, self.name, hung.context.execution_id, str(error))

    def complain(self, execution_id: str, error: PluginError) -> None:
        """Have it known that a call for an execution failed, and nobody else is told why."""
        cause = error.__cause__ or error
        subject = (self.name, f"{error.call} {type(cause).__name__}")
        is_told = self._house.executions.complain(execution_id, subject, str(error), error.__cause__)
        # Not every time: a plugin that listens to such events may crash at each of them.
        if is_told and isinstance(error, PluginCrashError):
            self._house.announce(EventType.PLUGIN_FAILED, self.name, execution_id, str(error))

    # --- the actor's thread ------------------------------------------------------------------------------

    def settle_in(self) -> None:
        """See ``Tenant``."""
        _here.resident = self

    def execute(self, call: Call) -> None:
        """See ``Tenant``. A plugin that stops is given the events first that were sent before."""
        if call.method == "stop":
            while not call.is_done and self._deliver_one():
                pass
        self._carry_out(call)
        del call  # see there

    def deliver(self) -> None:
        """See ``Tenant``."""
        while self._mailbox.empty() and self._deliver_one():
            pass

    def turn_away(self, call: Call) -> None:
        """See ``Tenant``."""
        with self._lock:
            self._queued.pop(call, None)
            call.settle(None, PluginNotRunningError(self.name, call.method, state=self._state.value))

    def gone(self) -> None:
        """See ``Tenant``."""
        with self._lock:
            if self._state in (PluginState.STARTING, PluginState.RUNNING, PluginState.STOPPING):
                self._state = PluginState.FAILED
                self._last_error = "its thread has ended"

    def _deliver_one(self) -> bool:
        delivery = self._mailbox.take_event()
        if delivery is None:
            return False
        stream = delivery.event.stream_id
        call = self.call("on_event", (delivery,), stream, self._house.executions.port(stream), None)
        self._carry_out(call)
        if call.error is not None:
            self.complain(stream, call.error)
        del call  # as above
        return True

    def _carry_out(self, call: Call) -> None:
        with self._lock:
            if call.is_done:
                return  # its caller has gone
            self._queued.pop(call, None)
            self._current = call
            call.began = began = time.monotonic()
        grant(call.context, began + call.timeout)
        plugin = self.card.plugin if self._faults.injector is None else self._perhaps_struck(call)
        value, error = _invoke(self.name, plugin, call.method, (call.context, *call.args), call.kwargs)
        seconds = time.monotonic() - began
        with self._lock:
            self._current = self._struck = None
            is_late = self._hung is call
            self._hung = None
            self._calls += 1
            self._seconds += seconds
            self._slowest = max(self._slowest, seconds)
            if error is not None:
                self._errors += 1
                self._last_error = str(error)
            call.settle(value, error)
        if plugin is not self.card.plugin:
            self._faults.ended(call.context)
        if is_late:
            self._end_late(call, error, seconds)
        # The frames of a plugin that raised live as long as what it raised, and with them the frames they were called
        # from: this one must not lead back to the error, or all of it would live until the garbage collector comes.
        del call, plugin, value, error

    def _perhaps_struck(self, call: Call) -> Any:
        """The plugin, or what stands for it in a call that is to go wrong."""
        execution_id = call.context.execution_id

        def complain(text: str, error: BaseException) -> None:
            self._house.executions.complain(execution_id, (self.name, "fault injector"), text, error)

        struck = self._faults.strike(self.card, call, complain)
        if struck is None:
            return self.card.plugin
        with self._lock:
            self._struck = call
            self._strikes += 1
        self._house.tell_fault(execution_id, struck.payload)
        return struck.stand_in

    def _end_late(self, call: Call, error: PluginError | None, seconds: float) -> None:
        self._house.executions.say("INFO", f"plugin {self.name!r}: {call.method} ended after {seconds:.3g} s")
        if call.method == "start" and error is None:
            # Nobody counts on it any more, and nobody else would have it let go of what it has just taken.
            self._carry_out(self.call("stop", (), "", NoExecution(), None))

    # --- its life ------------------------------------------------------------------------------------------

    @property
    def state(self) -> PluginState:
        """Where it stands."""
        is_hung = self.look() is not None
        with self._lock:
            if is_hung and self._state is PluginState.RUNNING:
                return PluginState.UNRESPONSIVE
            return self._state

    def move(self, state: PluginState, error: PluginError | None = None) -> None:
        """It now stands there; ``error`` is why, where that is a misfortune."""
        with self._lock:
            self._state = state
            if error is not None:
                self._last_error = str(error)

    def abandon(self) -> None:
        """Let it alone: answer all who wait for it, ask what executes to end, and its thread to end after that."""
        self.actor.end()
        self._mailbox.discard_events()
        with self._lock:
            queued, current = list(self._queued), self._current
        for call in queued:
            self.turn_away(call)
        if current is not None:
            self.give_up(current)

    def health(self) -> PluginHealth:
        """How it is."""
        state = self.state
        counts = self._mailbox.counts()
        with self._lock:
            return PluginHealth(
                name=self.name,
                capabilities=self.card.capabilities,
                state=state,
                calls=self._calls,
                errors=self._errors,
                timeouts=self._timeouts,
                mailbox_depth=len(self._queued),
                events_matched=counts.matched,
                events_delivered=counts.delivered,
                events_dropped=counts.dropped,
                events_pending=counts.pending,
                last_error=self._last_error,
                latency=self._seconds / self._calls if self._calls else 0.0,
                slowest=self._slowest,
                faults_on=self._faults.is_open,
                faults=self._strikes,
            )


def _invoke(
    name: str, plugin: Any, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> tuple[Any, PluginError | None]:
    """What the plugin answers. Nothing is raised."""
    here = os.getpid()
    try:
        value = getattr(plugin, method)(*args) if kwargs is None else getattr(plugin, method)(*args, **kwargs)
        end_child_of(here)
        return value, None
    except Exception as raised:
        end_child_of(here, raised)
        return None, _caused(PluginError(name, method, f"raised {describe(raised)}"), raised)
    except BaseException as raised:
        end_child_of(here, raised)
        return None, _caused(PluginCrashError(name, method, f"raised {describe(raised)}"), raised)


def _caused(error: PluginError, raised: BaseException) -> PluginError:
    trace = raised.__traceback__
    # Past ``_invoke``'s own frame; by the base's method, whatever the class makes of an assignment.
    BaseException.with_traceback(raised, trace and trace.tb_next)
    error.__cause__ = raised
    return error
