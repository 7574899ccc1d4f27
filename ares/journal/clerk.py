"""A journal's own thread: does a turn of work, sleeps, does the next. Knows nothing of what the work is.

It sleeps in one of two ways. *Briefly*, because something will soon be due: then only what is urgent wakes it. *Long*,
because there is nothing to do: then anything new does. After the last piece of work it sleeps briefly once before it
sleeps long, so that under a steady load nobody pays for waking it. The thread starts when it is first woken.
"""

import threading
from collections.abc import Callable

from ares.postbox import new_bell, ring

#: Seconds of a brief sleep when nothing is due, and of a long one, which is only a bound: it is woken.
_BRIEF = 0.02
_LONG = 30.0
#: Seconds of rest after a turn that raised.
_AFTER_TROUBLE = 0.1


class Clerk:
    """The thread.

    Its owner calls ``awake``, ``sleep`` and ``must_wake`` under one lock of its own, so that to decide to sleep and to
    ask for the sleeper to be woken exclude each other; ``wake`` and ``finish`` it calls outside. Whoever is to wake it
    may be interrupted by a Ctrl-C before it does: the thread counts as asleep until it says itself that it is not.

    Args:
        turn: Does what is due and says for how many seconds the thread may sleep (from ``sleep``), 0 to be called again
            at once, None to end.
        name: The thread's name.
    """

    def __init__(self, turn: Callable[[], float | None], name: str) -> None:
        self._turn = turn
        self._name = name
        self._bell = new_bell()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_begun = False
        self._ended = False
        self._asleep = True
        self._long = True
        self._idle = 0

    # --- under the owner's lock ---

    def awake(self) -> None:
        """The thread is at work: it will look at everything before it sleeps again."""
        self._asleep = False

    def sleep(self, seconds: float | None) -> float:
        """Decide to sleep until something is due in so many seconds, or (None) while there is nothing to do."""
        self._idle = 0 if seconds is not None else self._idle + 1
        self._long = self._idle > 1
        self._asleep = True
        self._bell.acquire(blocking=False)
        if seconds is not None:
            return seconds
        return _LONG if self._long else _BRIEF

    def must_wake(self, *, urgent: bool) -> bool:
        """Whether the caller has to call ``wake``, because of something new."""
        if self._thread is None or self._ended:
            return True  # wake() finds out whether there can be one
        return self._asleep and (urgent or self._long)

    # --- outside it ---

    def wake(self) -> bool:
        """Wake or start the thread; False when it has ended, or the interpreter starts no threads any more."""
        with self._starting:
            if self._ended:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
        ring(self._bell)
        return True

    def finish(self, timeout: float = _LONG) -> None:
        """Let the thread do turns until ``turn`` says None, or do them here if it never started; then it is over."""
        with self._starting:
            thread = self._thread
            if thread is None:
                self._ended = True
        ring(self._bell)
        if thread is None:
            while self._turn() is not None:
                pass
        elif thread is not threading.current_thread():
            thread.join(timeout)

    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        with self._starting:
            if self._has_begun:
                return  # whoever started the other one was interrupted before it could be noted
            self._has_begun = True
            self._thread = threading.current_thread()
        try:
            while (pause := self._safe_turn()) is not None:
                if pause > 0:
                    self._bell.acquire(timeout=pause)
        finally:
            with self._starting:
                self._ended = True

    def _safe_turn(self) -> float | None:
        try:
            return self._turn()
        except BaseException:  # a turn puts right itself what it can; the thread has to live, others depend on it
            return _AFTER_TROUBLE
