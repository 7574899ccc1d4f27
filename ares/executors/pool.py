"""One executor of ``concurrent.futures``, from when it is there until it is broken or closed, and the calls under way
on it.

A call that has not begun is *revoked*: nobody begins it any more. One that has can be stopped on a process pool alone,
by killing its process. That breaks the pool, as the death of a process always does: so all its processes are killed,
whose calls are lost anyway, and whoever waits for one of those is told that it was ares.
"""

import os
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess

from ares.remote.marks import Folder, Mark
from ares.remote.protocol import Watch
from ares.remote.there import perform

#: Seconds that the processes of a pool have to end by themselves when it is closed.
_END_SECONDS = 0.5
#: Seconds that a pool's own thread then has to take note of it.
_MANAGER_SECONDS = 2.0


class Trip:
    """One call under way."""

    def __init__(self, pool: "Pool", future: "Future[bytes]", mark: Mark | None) -> None:
        self.pool = pool
        self.future = future
        self._mark = mark
        self._is_revoked = False

    def begun_at(self) -> float | None:
        """When the body began, in seconds of the monotonic clock, as far as can be told; None if it has not."""
        if self._mark is not None:
            return self._mark.begun_at()
        return time.monotonic() if self.future.running() else None

    def revoke(self) -> bool:
        """See that the body never begins. False if it may have begun."""
        # On a process pool the mark is enough. A future that is cancelled there kills the pool's own thread when the
        # pool breaks (CPython 3.11), and then nobody hears of the others.
        if not self._is_revoked:
            self._is_revoked = self.future.cancel() if self._mark is None else self._mark.revoke()
        return self._is_revoked

    def stop(self) -> bool:
        """Have the body end, or never begin. False if it may still run."""
        return self.future.done() or self.revoke() or self.pool.kill()

    def is_forsaken(self) -> bool:
        """Whether nobody is left who would say what became of it."""
        return self.pool.has_no_manager and not self.future.done()

    def over(self) -> None:
        """It came back."""
        if self._mark is not None:
            self._mark.clear()


class Pool:
    """An executor. Thread-safe.

    Args:
        executor: it.
        folder: makes the marks of its calls.
        is_ours: it was made here, and is to be shut down here.
    """

    def __init__(self, executor: Executor, folder: Folder, *, is_ours: bool) -> None:
        self._executor = executor
        self._folder = folder
        self.is_ours = is_ours
        kinds = {kind.__name__ for kind in type(executor).__mro__}
        #: That of the standard library or another of its make, whose futures say RUNNING before a process has the call.
        #: Whether a body that has begun can be stopped.
        self.can_stop = "ProcessPoolExecutor" in kinds
        #: Whether what ``__main__`` defines is known there by its name.
        self.knows_main = type(executor).__module__.startswith("concurrent.futures.")
        self.was_killed = False
        self._processes: Mapping[int, BaseProcess] = {}
        self._manager: threading.Thread | None = None

    @property
    def kind(self) -> type[Executor]:
        """The class of the executor."""
        return type(self._executor)

    def send(self, load: bytes, watch: Watch) -> Trip:
        """Have a body run.

        Raises:
            Exception: whatever the executor has against it.
        """
        mark = self._folder.new() if self.can_stop else None
        watch.sent()
        place = () if mark is None else (mark.place,)
        future = self._executor.submit(perform, load, *place)
        if self.can_stop:
            # Shutting it down makes it forget them. There is no public name for either before Python 3.14.
            self._processes = getattr(self._executor, "_processes", None) or self._processes
            self._manager = getattr(self._executor, "_executor_manager_thread", None) or self._manager
        future.add_done_callback(lambda _: watch.bell.set())
        return Trip(self, future, mark)

    def kill(self) -> bool:
        """Kill its processes. False if it has none."""
        if not self.can_stop:
            return False
        self.was_killed = True
        self.sweep()
        return True

    def sweep(self) -> None:
        """Kill the processes of one that is broken. It waits for them itself, for ever if one hangs that minds no
        SIGTERM."""
        for process in self._children():
            _kill(process)

    def shut_down(self, *, wait: bool = False) -> None:
        """Begin nothing more. Of one that is not ours: nothing."""
        if self.is_ours:
            with suppress(Exception):  # whatever a stranger's executor has against its end
                self._executor.shutdown(wait=wait)

    def end(self) -> None:
        """Shut it down, and see that its processes are gone."""
        self.shut_down(wait=getattr(self._executor, "is_bounded", False))
        if not self.is_ours:
            return
        until = time.monotonic() + _END_SECONDS
        for process in self._children():
            with suppress(OSError, ValueError):  # it is gone, and so is its sentinel
                wait_for_any([process.sentinel], max(0.0, until - time.monotonic()))
                _kill(process)
        if self._manager is not None:
            self._manager.join(_MANAGER_SECONDS)

    @property
    def has_no_manager(self) -> bool:
        """Whether the thread has died that hears of its processes."""
        return self._manager is not None and not self._manager.is_alive()

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        is_managed = self._manager is not None and self._manager.is_alive()
        return not is_managed and not any(child.is_alive() for child in self._children())

    def _children(self) -> list[BaseProcess]:
        return list(dict(self._processes).values())


def _kill(process: BaseProcess) -> None:
    """Kill a child of this process, if it is still one."""
    with suppress(OSError, ValueError):  # it was reaped just now
        try:
            process.kill()
        except AttributeError:  # loky's cannot
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
