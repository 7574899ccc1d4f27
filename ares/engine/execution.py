"""A handle on one execution, walked here, elsewhere, or by nobody."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol

from ares.engine.attempt import current
from ares.engine.driver import Driver
from ares.engine.notices import notices
from ares.engine.results import WorkflowResult
from ares.events import Event
from ares.postbox import longest_wait
from ares.records import ExecutionStatus, Progress

#: Seconds between two looks at an execution that another process walks.
_POLL = 0.1


class Host(Protocol):
    """What a handle needs of its Runtime."""

    def status_of(self, execution_id: str) -> ExecutionStatus:
        """Where an execution stands."""

    def result_of(self, execution_id: str, driver: Driver | None) -> WorkflowResult:
        """The result of one whose walk is over."""

    def cancel(self, execution_id: str, reason: str = "") -> bool:
        """Record a cancel."""

    def stored_events(self, execution_id: str, after: int) -> Iterator[Event]:
        """Its events so far."""

    def live(self, execution_id: str) -> Driver | None:
        """Its walk in this process."""

    def has_gone_on(self, driver: Driver) -> bool:
        """Whether an execution is not what it was when this walk of it was over."""

    def check_may_wait(self) -> None:
        """Raise UsageError where waiting for an execution would be waiting for oneself."""


class Execution:
    """One execution. Made by ``Runtime.submit`` and ``Runtime.execution``; usable from any thread.

    Attributes:
        id: the execution's id.
    """

    def __init__(self, host: Host, execution_id: str, driver: Driver | None) -> None:
        self.id = execution_id
        self._host = host
        self._driver = driver
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._result: WorkflowResult | None = None

    def __repr__(self) -> str:
        return f"<Execution {self.id}>"

    @property
    def status(self) -> ExecutionStatus:
        """Where it stands, by the journal."""
        driver = self._walk()
        if driver is not None and driver.over.is_set():
            return driver.status
        return self._host.status_of(self.id)

    def done(self) -> bool:
        """Whether nothing happens any more: it ended, waits for answers, or was interrupted."""
        driver = self._walk()
        if driver is not None:
            return driver.outside.idle.is_set()
        return self._host.status_of(self.id) not in (ExecutionStatus.RUNNING, ExecutionStatus.PENDING)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is done, at most ``timeout`` seconds. Returns whether it is.

        Raises:
            UsageError: called by a plugin of its Runtime, whose hooks it would wait for.
        """
        self._host.check_may_wait()
        deadline = None if timeout is None else time.monotonic() + timeout
        with _lent():
            while not self.done():
                left = longest_wait() if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                driver = self._walk()
                if driver is None:
                    threading.Event().wait(min(left, _POLL))
                else:
                    driver.outside.idle.wait(min(left, longest_wait()))
        return True

    def result(self, timeout: float | None = None) -> WorkflowResult:
        """Block until it is done, and give its result. One that waits for answers is done for now: ask again once they
        are in.

        Raises:
            TimeoutError: it was not done within ``timeout`` seconds.
            StoreError: its walk ended because the store failed.
            UsageError: it was walked elsewhere, and its workflow is not known to this Runtime.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"execution {self.id!r} is still {self.status.lower()} after {timeout:g} s")
        with self._lock:
            found = self._result
        if found is None:
            found = self._host.result_of(self.id, self._walk())  # reducers run here, which are the user's
        with self._lock:
            if found.status.is_final:
                found = self._result = self._result or found
        return found

    def add_done_callback(self, fn: Callable[["Execution"], object]) -> None:
        """Call ``fn(execution)`` once it is done, on a thread of its own; at once if it is done. What it raises is
        logged.

        That of an execution which another process walks is watched for by that thread.
        """
        name = f"ares-callback {self.id}"
        thread = threading.Thread(target=self._call_back, args=(fn,), name=name, daemon=True)
        driver = self._walk()
        if driver is None:
            thread.start()
        else:
            driver.outside.when_idle(lambda: _start(thread))

    def _call_back(self, fn: Callable[["Execution"], object]) -> None:
        try:
            self.wait()
            fn(self)
        except BaseException as error:
            notices.say("ERROR", "a done-callback of execution {} raised", self.id, error=error)

    def cancel(self, reason: str = "") -> bool:
        """Ask it to stop; see ``Runtime.cancel``."""
        return self._host.cancel(self.id, reason)

    def progress(self) -> Progress | None:
        """How far it is; None when it is not walked in this process."""
        driver = self._walk()
        if driver is None:
            return None
        done, total, round_ = driver.tally.read()
        running = driver.crew.all()
        details = {a.path: (a.done, a.total) for a in running if a.done is not None}
        return Progress(done, total, tuple(a.path for a in running), details, round_)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Its events in order, from ``seq > after``, as the journal has them: gapless. The iteration ends when the
        execution ends or waits."""
        while True:
            is_over = self.done()
            for event in self._host.stored_events(self.id, after):
                assert event.seq is not None
                after = event.seq
                yield event
            if is_over:
                return
            driver = self._walk()
            if driver is None:
                threading.Event().wait(_POLL)
            else:
                driver.outside.idle.wait(_POLL)

    def _walk(self) -> Driver | None:
        """The walk in this process: the present one, or the last, unless the execution has gone on without it."""
        if self._pid != os.getpid():
            self._leave_parent()
        with self._lock:
            driver = self._driver
        if driver is None or (driver.over.is_set() and not driver.status.is_final):
            driver = self._host.live(self.id) or (None if driver is None or self._host.has_gone_on(driver) else driver)
            with self._lock:
                self._driver = driver
        return driver

    def _leave_parent(self) -> None:
        """In the child of a fork: another thread may have held the lock, and none goes on with the walk."""
        self._lock = threading.Lock()
        if self._driver is not None and not self._driver.over.is_set():
            self._driver = None
        self._pid = os.getpid()


def _start(thread: threading.Thread) -> None:
    with suppress(RuntimeError):  # the process is ending: no thread starts any more
        thread.start()


def _lent() -> AbstractContextManager[None]:
    """A step that waits for an execution frees its worker and its slot meanwhile."""
    attempt = current.get()
    return nullcontext() if attempt is None else attempt.lent()
