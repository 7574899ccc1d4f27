"""The thread that keeps a lease alive and looks into the inbox, and that puts a journal to rest.

Beating and looking share one thread because both are rare and both go through the store's one writer. Closing is done
on it too: a store that somebody else has locked can keep a closing journal waiting for longer than its caller will.
"""

import math
import threading
import time
from collections.abc import Callable

from ares.journal.inbox import Inbox
from ares.postbox import new_bell, ring

#: Seconds that the thread sleeps when nothing is due any more. Only a bound: it is woken.
_LONGEST = 30.0


class Heartbeat:
    """One lease's thread, from ``start`` on.

    Args:
        beat: Called every ``beat_interval`` seconds.
        look_around: Called after a beat, unless the next one is due by then: that the others hear of this one is worth
            more than to hear of them, where busy threads leave little time for either.
        changed: Whether there may be something new in the inbox.
        inbox: What is looked into while it is watched.
        farewell: Called on the thread when it is to end; it closes the store.
        on_warning: Told of what these raise.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        look_around: Callable[[], None],
        changed: Callable[[], bool],
        inbox: Inbox,
        *,
        beat_interval: float,
        poll_interval: float,
        farewell: Callable[[], None],
        on_warning: Callable[[str], None],
        name: str,
    ) -> None:
        self._beat = beat
        self._look_around = look_around
        self._changed = changed
        self._inbox = inbox
        self._beat_interval = beat_interval
        self._poll_interval = poll_interval
        self._farewell = farewell
        self._on_warning = on_warning
        self._bell = new_bell()
        self._is_stopping = False
        #: Whether the inbox is to be read whatever the store says of changes.
        self._must_look = False
        #: What went wrong last with each of its works, until it goes well: one warning for a row of failures.
        self._troubles: dict[Callable[[], None], str] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def look(self) -> None:
        """Have the inbox read now."""
        self._must_look = True
        self.wake()

    def wake(self) -> None:
        """Something is watched that was not."""
        ring(self._bell)

    def stop(self, timeout: float) -> bool:
        """End the lease and close the store; False when that is still going on after ``timeout`` seconds."""
        self._is_stopping = True
        ring(self._bell)
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        beat_at = time.monotonic() + self._beat_interval
        look_at = time.monotonic()
        while not self._is_stopping:
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + self._beat_interval
                if self._attempt(self._beat) and time.monotonic() < beat_at:
                    self._attempt(self._look_around)
            watched = self._inbox.is_watched()
            if watched and (now >= look_at or self._must_look):
                self._attempt(self._read_inbox)
                look_at = now + self._poll_interval
            due = min(beat_at, look_at if watched else math.inf) - time.monotonic()
            self._bell.acquire(timeout=min(max(0.0, due), _LONGEST))
        self._attempt(self._farewell)

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # the thread is needed for as long as the lease is
            trouble = str(error)
            if trouble != self._troubles.get(work):
                self._on_warning(trouble)
            self._troubles[work] = trouble
            return False
        self._troubles.pop(work, None)
        return True

    def _read_inbox(self) -> None:
        if not self._must_look and not self._changed():
            return
        self._must_look = False
        try:
            self._inbox.deliver()
        except BaseException:
            self._must_look = True  # the change has been seen, but not what it was
            raise
