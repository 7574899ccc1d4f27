"""The threads that own walks: the one that called ``run``, and the one that all submitted walks share."""

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from queue import Empty

from ares.engine.driver import Driver
from ares.engine.notices import notices
from ares.engine.options import INTERRUPT_COMMIT, INTERRUPT_GRACE
from ares.postbox import LONGEST_WAIT, Postbox, longest_wait

Message = Callable[[], None]

#: Deadlines that are not looked through for those of walks that are over, however many of them there are.
_FEW = 64


class Mail:
    """The messages of a walk that the calling thread owns."""

    def __init__(self) -> None:
        self._queue: Postbox[Message] = Postbox()
        self._longest = longest_wait()

    def post(self, _driver: Driver, message: Message) -> None:
        """Any thread. Have the owner call ``message()``."""
        self._queue.put(message)

    def take(self, until: float | None) -> None:
        """Wait for messages, at most until a time of the monotonic clock, and carry them out."""
        timeout = self._longest if until is None else min(max(0.0, until - time.monotonic()), self._longest)
        try:
            message = self._queue.get(timeout)
            while True:
                message()
                message = self._queue.get()
        except Empty:
            return

    def drop(self) -> None:
        """Forget what came too late."""
        with suppress(Empty):
            while True:
                self._queue.get()


def walk_here(driver: Driver, mail: Mail, admit: Callable[[Driver], None]) -> None:
    """Have a walk admitted, and walk on the calling thread until it is over.

    Raises:
        KeyboardInterrupt: Ctrl-C reached this thread, the main one: the walk was stopped in good order.
    """
    driver.owner = threading.get_ident()
    try:
        admit(driver)
        driver.begin()
        _drive(driver, mail)
    except KeyboardInterrupt:
        _interrupt(driver, mail)
        raise
    except BaseException as error:
        driver.cutting.crash(error)
        raise
    finally:
        mail.drop()


def _drive(driver: Driver, mail: Mail) -> None:
    while not driver.over.is_set():
        work = driver.pump()
        if work is not None:
            driver.dispatch.run_inline(work)
            mail.take(0.0)
            continue
        if not driver.over.is_set():
            driver.check_progress()
        if not driver.over.is_set():  # it may have come to rest, and no message says so
            mail.take(driver.next_at())


def _interrupt(driver: Driver, mail: Mail) -> None:
    """Ctrl-C: the walk in memory is dead. What runs has a moment, then all is committed and given back."""
    give_up = time.monotonic() + INTERRUPT_GRACE + INTERRUPT_COMMIT
    try:
        driver.cutting.drop_inline()
        driver.cutting.stop("interrupted", INTERRUPT_GRACE)
        while not driver.over.is_set() and time.monotonic() < give_up:
            driver.pump()
            if not driver.over.is_set():
                driver.cutting.expect_no_lost_answer()
                mail.take(min(give_up, driver.next_at() or give_up))
    except Exception as error:
        # It was interrupted between two facts, perhaps: resuming sorts that out.
        notices.say("DEBUG", "execution {} was interrupted in a transition: {!r}", driver.execution_id, error)
    finally:
        if driver.over.is_set():
            driver.tell_over()  # it may have been interrupted in that
        else:
            driver.cutting.crash(KeyboardInterrupt())


class WalksThread:
    """One thread for every submitted walk. It runs no user code and waits for no plugin."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: Postbox[tuple[Driver, Message] | None] = Postbox()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # Owned by the thread:
        #: When which walk has something to do. A walk that is over is not kept for a deadline that it still had.
        self._deadlines: list[tuple[float, int, weakref.ref[Driver]]] = []
        self._serial = 0
        self._tidy_at = _FEW

    def post(self, driver: Driver, message: Message) -> None:
        """Any thread. Have ``message()`` called on the thread, then the driver pumped."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._serve, name=f"ares-walks {self._name}", daemon=True)
                thread.start()
                self._thread = thread
        self._queue.put((driver, message))

    def is_this(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float) -> None:
        """End the thread, once it has carried out what is queued."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None and not self.is_this():
            self._queue.put(None)
            thread.join(timeout)

    # --- on the thread ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._serve_once():
            pass

    def _serve_once(self) -> bool:
        """One turn. A frame of its own, so that a thread that waits keeps no walk that is over."""
        batch = self._next_batch()
        if batch is None:
            return False
        touched: dict[Driver, None] = {}
        for driver, message in batch:
            touched[driver] = None
            _guarded(driver, message)
        for driver in self._due():
            touched[driver] = None
        for driver in touched:
            if not driver.over.is_set():
                _guarded(driver, driver.turn)
            self._put_aside(driver)
        return True

    def _next_batch(self) -> list[tuple[Driver, Message]] | None:
        """Wait for messages or a deadline; None when the thread is to end."""
        timeout = LONGEST_WAIT
        if self._deadlines:
            timeout = min(max(0.0, self._deadlines[0][0] - time.monotonic()), LONGEST_WAIT)
        batch: list[tuple[Driver, Message]] = []
        try:
            item = self._queue.get(timeout)
            while item is not None:
                batch.append(item)
                item = self._queue.get()
        except Empty:
            return batch
        if not batch:
            return None
        self._queue.put(None)  # the end comes after what was queued before it
        return batch

    def _due(self) -> list[Driver]:
        found: list[Driver] = []
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            driver = heappop(self._deadlines)[2]()
            if driver is not None:
                driver.scheduled_at = None
                found.append(driver)
        return found

    def _put_aside(self, driver: Driver) -> None:
        at = None if driver.over.is_set() else driver.next_at()
        if at is None or (driver.scheduled_at is not None and driver.scheduled_at <= at):
            return
        driver.scheduled_at = at
        self._serial += 1
        heappush(self._deadlines, (at, self._serial, weakref.ref(driver)))
        if len(self._deadlines) > self._tidy_at:
            self._deadlines = [entry for entry in self._deadlines if _is_walking(entry[2]())]
            heapify(self._deadlines)
            self._tidy_at = _FEW + 2 * len(self._deadlines)


def _is_walking(driver: Driver | None) -> bool:
    return driver is not None and not driver.over.is_set()


def _guarded(driver: Driver, message: Message) -> None:
    """A defect in one walk ends that walk alone."""
    try:
        message()
    except Exception as error:
        notices.say("ERROR", "the walk of execution {} failed", driver.execution_id, error=error)
        try:
            driver.cutting.crash(error)
        except Exception as worse:
            notices.say("ERROR", "execution {} could not be given up", driver.execution_id, error=worse)
