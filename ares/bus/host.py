"""Everything that ares knows about pykka: how an actor of it is hosted so that it can hurt nobody.

What is done here, against what pykka 4.5 does:

- An actor is built and its loop started by hand, not by ``Actor.start()``. So it is in no registry: another part of the
  program that calls ``ActorRegistry.stop_all()`` stops none of ares's actors.
- The loop is one of its own, out of which nothing is ever raised. pykka's answers a ``BaseException`` by stopping every
  actor of the process, and an ``Exception`` that nobody asked for by ending the actor.
- The inbox is a ``Mailbox``: bounded for events, and a message that would land behind the actor's end is refused.
- The thread is a daemon, has a name, and runs in an empty ``contextvars`` context of its own, whoever starts it.
- An actor's end closes the mailbox first and turns away what is left in it after, however the loop ended.

A call is put into the mailbox as it is. What comes in an envelope of pykka's was sent by somebody who got hold of the
``ActorRef``; it is answered in good order.

The seams this relies on are private to pykka, hence the bound on its version. ``tests/bus/test_pykka_seams.py`` holds
each: ``_create_actor_inbox``, ``_start_actor_loop``, ``_actor_loop``, ``_actor_loop_running``,
``_actor_loop_teardown``, ``_handle_receive``, and the two attributes of an envelope.
"""

import threading
from contextlib import AbstractContextManager, suppress
from contextvars import Context as ContextVars
from typing import Any, ClassVar, Final, Protocol

import pykka

from ares.bus.call import Call
from ares.bus.mailbox import EVENTS_WAIT, Mailbox, MailboxClosedError

#: Ends an actor.
_END: Final = object()


class Tenant(Protocol):
    """Who lives in an actor. Nothing in here raises."""

    def settle_in(self) -> None:
        """Called first, on the actor's thread."""

    def execute(self, call: Call) -> None:
        """Carry a call out and answer it."""

    def deliver(self) -> None:
        """Take events, until none waits or a call does."""

    def turn_away(self, call: Call) -> None:
        """Answer a call that will never be carried out."""

    def gone(self) -> None:
        """Called last, when nothing more can be put into the mailbox."""


class _Inbox(Mailbox):
    """A mailbox that speaks to pykka."""

    def put(self, message: Any) -> None:
        try:
            super().put(message)
        except MailboxClosedError:
            raise pykka.ActorDeadError("the actor has ended") from None


class PluginActor(pykka.ThreadingActor):
    """One tenant's thread and mailbox. ``lock`` is the mailbox's, a reentrant one."""

    use_daemon_thread: ClassVar[bool] = True

    def __init__(
        self, tenant: Tenant, thread_name: str, lock: AbstractContextManager[Any], event_capacity: int = 0
    ) -> None:
        self.mailbox: Mailbox = _Inbox(lock, event_capacity)
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

    def end(self) -> None:
        """Have the thread end after what was put before. Any thread; never blocks."""
        with suppress(pykka.ActorDeadError):
            self.mailbox.put(_END)

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end. Returns whether it has."""
        if self._thread.ident is not None:
            self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    # --- instead of pykka's ------------------------------------------------------------------------

    def _create_actor_inbox(self) -> Any:  # type: ignore[override]  # pykka calls it on the instance, at any rate
        return self.mailbox

    def _start_actor_loop(self) -> None:
        self._thread.start()

    def _live(self) -> None:
        try:
            self._tenant.settle_in()
            self._actor_loop()
        finally:
            self._bury()

    def _actor_loop_running(self) -> None:
        while not self.actor_stopped.is_set():
            self._serve_one()

    def _serve_one(self) -> None:
        # A frame of its own, so that an actor that waits keeps nothing of what it did last.
        message = self.mailbox.get()
        try:
            if type(message) is Call:
                self._tenant.execute(message)
            elif message is EVENTS_WAIT:
                self._tenant.deliver()
            elif message is _END:
                # Not by pykka's stop: that takes the lock of the registry, which may have been held at a fork.
                self.actor_stopped.set()
            else:
                self._open(message)
        except BaseException:
            # A defect of ares, since a tenant raises nothing. It ends no actor, and leaves no caller waiting.
            self._turn_away(message)
        del message  # its frame may live on, see Resident._carry_out

    def _open(self, envelope: Any) -> None:
        try:
            response = self._handle_receive(envelope.message)
        except BaseException as error:
            if envelope.reply_to is not None:
                envelope.reply_to.set_exception((type(error), error, error.__traceback__))
            return
        if envelope.reply_to is not None:
            envelope.reply_to.set(response)

    def _actor_loop_teardown(self) -> None:
        """``_live`` sees to it, however the loop ended."""

    def _bury(self) -> None:
        rest = self.mailbox.close()
        self._tenant.gone()
        for message in rest:
            self._turn_away(message)

    def _turn_away(self, message: Any) -> None:
        if isinstance(message, Call):
            self._tenant.turn_away(message)
        elif message is not _END and message.reply_to is not None:
            error = pykka.ActorDeadError(f"{self} has ended")
            message.reply_to.set_exception((type(error), error, None))
