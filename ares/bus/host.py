"""Everything that ares knows about pykka: how an actor of it is hosted so that it can hurt nobody.

What is done here, against what pykka 4.5 does:

- An actor is built and its loop started by hand, not by ``Actor.start()``. So it is in no registry: another part of the
  program that calls ``ActorRegistry.stop_all()`` stops none of ares's actors.
- Nothing that is raised ever leaves ``on_receive``. pykka answers a ``BaseException`` there by stopping every actor of
  the process, and an ``Exception`` by ending the actor.
- The inbox is a ``Mailbox``: bounded for events, and a message that would land behind the actor's end is refused.
- The thread is a daemon, has a name, and runs in an empty ``contextvars`` context of its own, whoever starts it.
- An actor's end closes the mailbox first and turns away what is left in it after, however the loop ended.

The seams this relies on are private to pykka, hence the bound on its version; ``tests/bus/test_pykka_seams.py`` holds
each: ``_create_actor_inbox``, ``_start_actor_loop``, ``_actor_loop``, ``_actor_loop_teardown``, and the two attributes
of an envelope.
"""

import sys
import threading
from contextvars import Context as ContextVars
from typing import Any, ClassVar, Final, Protocol

import pykka

from ares.bus.call import Call
from ares.bus.mailbox import Mailbox, MailboxClosedError


class Tenant(Protocol):
    """Who lives in an actor. Nothing in here raises."""

    def execute(self, call: Call) -> None:
        """Carry a call out and answer it."""

    def deliver(self) -> None:
        """Take events, until none waits or a call does."""

    def turn_away(self, call: Call) -> None:
        """Answer a call that will never be carried out."""


class _Letter:
    """Carries a call through pykka, whose loop keeps the last message until the next one comes: it keeps an empty
    letter, and nothing of what the call was about."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def open(self) -> Call | None:
        """The call, once."""
        call, self.call = self.call, None
        return call


class _EventsWait:
    """A message, in the form of pykka's envelopes, that says it is time to take events."""

    message: Final = None
    reply_to: Final = None


class _Inbox(Mailbox):
    """A mailbox that says in pykka's words that it is closed."""

    def put(self, message: Any) -> None:
        try:
            super().put(message)
        except MailboxClosedError:
            raise pykka.ActorDeadError("the actor has ended") from None


class PluginActor(pykka.ThreadingActor):
    """One tenant's thread and mailbox."""

    use_daemon_thread: ClassVar[bool] = True

    def __init__(self, tenant: Tenant, thread_name: str, event_capacity: int = 0) -> None:
        self.mailbox = _Inbox(_EventsWait, event_capacity)
        self._tenant = tenant
        self._thread = threading.Thread(
            target=ContextVars().run, args=(self._live,), name=thread_name, daemon=self.use_daemon_thread
        )
        super().__init__()

    def begin(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        self._start_actor_loop()

    def post(self, call: Call) -> bool:
        """Have the tenant execute a call, after those that were posted before. False if the actor has ended."""
        try:
            self.actor_ref.tell(_Letter(call))
        except pykka.ActorDeadError:
            return False
        return True

    def end(self) -> None:
        """Have the thread end after what was posted before. Any thread; never blocks."""
        try:
            self.stop()
        except pykka.ActorDeadError:
            return

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end. Returns whether it has."""
        if self._thread.ident is not None:
            self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is this actor's."""
        return self._thread is threading.current_thread()

    # --- what pykka calls --------------------------------------------------------------------------

    def _create_actor_inbox(self) -> Any:  # type: ignore[override]  # pykka calls it on the instance, at any rate
        return self.mailbox

    def _start_actor_loop(self) -> None:
        self._thread.start()

    def _live(self) -> None:
        try:
            self._actor_loop()
        finally:
            self._actor_loop_teardown()

    def _actor_loop_teardown(self) -> None:
        for envelope in self.mailbox.close():
            self._turn_away(envelope)

    def on_receive(self, message: Any) -> None:
        """A tenant raises nothing. Should one all the same, it is a defect of ares, and still ends no actor."""
        call = message.open() if isinstance(message, _Letter) else None
        try:
            if call is not None:
                self._tenant.execute(call)
            elif message is None:
                self._tenant.deliver()
        except BaseException:
            if call is not None:
                self._tenant.turn_away(call)

    def _turn_away(self, envelope: Any) -> None:
        if isinstance(envelope.message, _Letter):
            if (call := envelope.message.open()) is not None:
                self._tenant.turn_away(call)
        elif envelope.reply_to is not None:
            try:
                raise pykka.ActorDeadError(f"{self} has ended")
            except pykka.ActorDeadError:
                envelope.reply_to.set_exception(sys.exc_info())
