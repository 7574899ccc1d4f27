"""The threads that own walks: the one that called ``run``, and the one that all submitted walks share."""

import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from queue import Empty, SimpleQueue

from loguru import logger

from ares.engine.driver import Driver
from ares.engine.options import INTERRUPT_GRACE, LONGEST_WAIT

Message = Callable[[], None]


class Mail:
    """The messages of a walk that the calling thread owns."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Message] = SimpleQueue()

    def post(self, message: Message) -> None:
        """Any thread. Have the owner call ``message()``."""
        self._queue.put(message)

    def take(self, until: float | None) -> None:
        """Wait for messages, at most until a time of the monotonic clock, and carry them out."""
        timeout = LONGEST_WAIT if until is None else min(max(0.0, until - time.monotonic()), LONGEST_WAIT)
        try:
            message = self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
            while True:
                message()
                message = self._queue.get_nowait()
        except Empty:
            return


def walk_here(driver: Driver, mail: Mail) -> None:
    """Walk on the calling thread until the walk is over.

    Raises:
        KeyboardInterrupt: Ctrl-C reached this thread, the main one: the walk was stopped in good order.
    """
    try:
        driver.begin()
        _drive(driver, mail)
    except KeyboardInterrupt:
        _interrupt(driver, mail)
        raise
    except BaseException as error:
        driver.cutting.crash(error)
        raise


def _drive(driver: Driver, mail: Mail) -> None:
    while not driver.over.is_set():
        work = driver.pump()
        if work is not None:
            driver.run_inline(work)
            mail.take(0.0)
            continue
        if not driver.over.is_set():
            driver.check_progress()
            mail.take(driver.next_at())


def _interrupt(driver: Driver, mail: Mail) -> None:
    """Ctrl-C: the walk in memory is dead. What runs has a moment, then all is committed and given back."""
    try:
        driver.cutting.drop_inline()
        driver.cutting.stop("interrupted", INTERRUPT_GRACE)
        give_up = time.monotonic() + INTERRUPT_GRACE + 8.0
        while not driver.over.is_set() and time.monotonic() < give_up:
            driver.pump()
            mail.take(min(give_up, driver.next_at() or give_up))
    except Exception as error:
        # It was interrupted between two facts, perhaps: resuming sorts that out.
        logger.debug("interrupted in the middle of a transition: {!r}", error)
    finally:
        if not driver.over.is_set():
            driver.cutting.crash(KeyboardInterrupt())


class WalksThread:
    """One thread for every submitted walk. It runs no user code and waits for no plugin."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[tuple[Driver, Message] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._deadlines: list[tuple[float, int, Driver]] = []
        self._serial = 0

    def post(self, driver: Driver, message: Message) -> None:
        """Any thread. Have ``message()`` called on the thread, then the driver pumped."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name=f"ares-walks {self._name}", daemon=True)
                self._thread.start()
        self._queue.put((driver, message))

    def is_this(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float) -> None:
        """End the thread, once it has carried out what is queued."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None and not self.is_this():
            self._queue.put(None)
            thread.join(timeout)

    def _serve(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            touched: dict[Driver, None] = {}
            for driver, message in batch:
                touched[driver] = None
                _guarded(driver, message)
            now = time.monotonic()
            while self._deadlines and self._deadlines[0][0] <= now:
                driver = heappop(self._deadlines)[2]
                driver.scheduled_at = None
                touched[driver] = None
            for driver in touched:
                if not driver.over.is_set():
                    _guarded(driver, driver.turn)
                    at = driver.next_at()
                    if at is not None and at != driver.scheduled_at and not driver.over.is_set():
                        driver.scheduled_at = at
                        self._serial += 1
                        heappush(self._deadlines, (at, self._serial, driver))
            del batch, touched

    def _next_batch(self) -> list[tuple[Driver, Message]] | None:
        timeout = LONGEST_WAIT
        if self._deadlines:
            timeout = min(max(0.0, self._deadlines[0][0] - time.monotonic()), LONGEST_WAIT)
        batch: list[tuple[Driver, Message]] = []
        try:
            item = self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
            while item is not None:
                batch.append(item)
                item = self._queue.get_nowait()
        except Empty:
            return batch
        if not batch:
            return None
        self._queue.put(None)  # the end comes after what was queued before it
        return batch


def _guarded(driver: Driver, message: Message) -> None:
    """A defect in one walk ends that walk alone."""
    try:
        message()
    except Exception as error:
        logger.opt(exception=error).error("the walk of execution {} failed", driver.execution_id)
        driver.cutting.crash(error)
