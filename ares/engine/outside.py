"""What others ask of a walk: to end, to expect an answer that is on its way, and to tell them when it rests.

A cancel and an answer take effect in two steps. They are announced, so that nothing begins, or the walk does not rest,
while they are being recorded; then they are a request in the store, which its owner makes a fact. All may be called by
any thread, except what says otherwise.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ares.engine.options import CANCEL_GRACE
from ares.errors import LeaseLostError
from ares.journal.protocol import Request
from ares.postbox import Latch

if TYPE_CHECKING:
    from ares.engine.driver import Driver


class Outside:
    """What other threads ask of one walk."""

    def __init__(self, driver: "Driver") -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._driver: Driver = weakref.proxy(driver)
        self._lock = threading.Lock()
        #: A stop is on its way to the owner.
        self._stop_asked = False
        #: A cancel is being recorded: nothing begins.
        self._cancel_flag = False
        #: Why it is to be cancelled, once that is recorded and until it is a fact.
        self._cancel_reason: str | None = None
        #: Whether the walk has come to its end, and it is too late for a cancel.
        self.is_too_late = False
        #: How many answers are about to come in from this process, by name.
        self._expected = Counter[str]()
        self._callbacks: list[Callable[[], None]] = []
        #: Set while it rests, and once it is over.
        self.idle = Latch()

    # --- cancels and stops ----------------------------------------------------------------------------------

    def flag_cancel(self) -> bool:
        """Start nothing more, because a cancel is about to be recorded; False when the execution has ended."""
        with self._lock:
            if self.is_too_late or self._driver.over.is_set():
                return False
            self._cancel_flag = True
            self.idle.clear()
            return True

    def unflag_cancel(self) -> None:
        """The cancel could not be recorded after all."""
        with self._lock:
            self._cancel_flag = self._cancel_reason is not None
        self._driver.post(self._driver.asking.rest_on)

    def confirm_cancel(self, reason: str) -> None:
        """The cancel is recorded: whatever ends from now on, the execution does not complete."""
        driver = self._driver
        with self._lock:
            if self._cancel_reason is not None or driver.walk.state.cancelled is not None:
                return  # what runs now is the clean-up
            self._cancel_reason = reason
        for attempt in driver.crew.all():
            if not attempt.is_waiting:
                attempt.cancel("cancelled", for_good=True)
        driver.wake()

    def cancel(self, reason: str, record: Callable[[], bool]) -> bool:
        """Have a cancel recorded, while nothing begins. Returns whether there was still something to cancel.

        Args:
            reason: why.
            record: writes it down, and returns whether the execution had not ended.
        """
        if not self.flag_cancel():
            return False
        recorded = False
        try:
            recorded = record()
        finally:
            if recorded:
                self.confirm_cancel(reason)
            else:
                self.unflag_cancel()
        return recorded

    def request_cancel(self, reason: str) -> None:
        """Cancel a nested run with its parent, whose cancel is recorded already."""
        if self.flag_cancel():
            self.confirm_cancel(reason)

    def request_stop(self, reason: str, grace: float = CANCEL_GRACE) -> None:
        """Stop in good order: nothing begins, what runs has ``grace`` seconds, the rest is cut short."""
        self._ask_to_stop(reason, grace)
        self._driver.post(self._driver.cutting.stop, reason, grace)

    def lose(self, error: LeaseLostError) -> None:
        """Stop, because nothing more of it can be written."""
        self._ask_to_stop(str(error), CANCEL_GRACE)
        self._driver.post(self._driver.cutting.lose, error)

    def _ask_to_stop(self, reason: str, grace: float) -> None:
        self._stop_asked = True
        for attempt in self._driver.crew.all():
            attempt.cancel(reason, grace=grace)  # an inline body holds up the owner; it is asked to end here and now

    def on_request(self, request: Request, done: Callable[[int], None]) -> None:
        """A request came in from outside."""
        driver = self._driver
        if request.kind == "cancel" and self.flag_cancel():
            # An inline body holds up the owner; it is asked to end here and now.
            self.confirm_cancel(request.body)
        driver.post(driver.asking.carry_out if request.kind == "answer" else driver.cutting.carry_out, request, done)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether a stop is on its way, or under way: nothing begins any more."""
        return self._stop_asked or self._driver.cutting.is_stopping

    @property
    def is_barred(self) -> bool:
        """Whether a cancel is recorded, or about to be, and is no fact yet: then nothing begins."""
        return self._cancel_flag and self._driver.walk.state.cancelled is None

    def heed(self) -> None:
        """On the owner's thread. Make a recorded cancel a fact, before anything else becomes one."""
        if self._cancel_reason is not None:
            self._driver.cutting.cancel(self._cancel_reason)

    def end(self) -> None:
        """On the owner's thread. The end is about to be handed over: from here on it is too late for a cancel."""
        with self._lock:
            self.is_too_late = True

    # --- rest -----------------------------------------------------------------------------------------------

    @property
    def is_about_to_stir(self) -> bool:
        """Whether an answer or a cancel from this process is on its way to the walk."""
        return bool(self._expected) or self.is_barred

    def expect_answer(self, name: str) -> None:
        """An answer is about to be recorded: until it was heard, or ``expect_no_answer`` says that it never will be,
        the walk does not rest, neither for those who wait for it nor for the one who called ``run``."""
        with self._lock:
            if not self._driver.over.is_set():
                self._expected[name] += 1
                self.idle.clear()

    def expect_no_answer(self, name: str) -> None:
        """It could not be recorded after all."""
        self._driver.post(self.heard_answer, name)

    def heard_answer(self, name: str) -> None:
        """On the owner's thread. What follows from an answer has begun, or nothing does."""
        with self._lock:
            self._expected[name] -= 1
            self._expected = +self._expected  # others may have answered whom nobody here expected
        self._driver.asking.rest_on()

    def when_idle(self, fn: Callable[[], None]) -> None:
        """Call ``fn`` once the walk rests or is over; at once if it is so."""
        with self._lock:
            if not self.idle.is_set():
                self._callbacks.append(fn)
                return
        fn()

    def come_to_rest(self) -> None:
        """On the owner's thread. Nothing happens until an answer comes in, or ever."""
        with self._lock:
            if not self._driver.over.is_set() and self.is_about_to_stir:
                return
            self.idle.set()
            callbacks, self._callbacks = self._callbacks, []
        for fn in callbacks:
            fn()
