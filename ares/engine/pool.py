"""The workers of one Runtime: daemon threads, started when needed, as many as may be busy at once.

A place is *reserved* first and used or given back after, so that nobody pulls work that no worker can take. A worker
whose body hangs is *abandoned*: its place is free at once and the thread ends whenever the body does. A worker that
waits for a nested run is *lent*: its place is free until the run is over.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

Job = Callable[[], None]

#: Seconds that an idle worker waits for work before its thread ends.
IDLE_SECONDS = 30.0


class Worker:
    """One thread and the job it is given next."""

    __slots__ = ("abandoned", "jobs", "lent", "thread")

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.abandoned = False
        self.lent = False
        self.thread: threading.Thread | None = None


class WorkerPool:
    """At most ``size`` busy workers. Thread-safe."""

    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._busy = 0
        self._started = 0
        self._threads: set[threading.Thread] = set()
        self._waiters: deque[Callable[[], None]] = deque()
        self._closed = False
        #: How many workers were given up because their body did not end in time.
        self.abandoned = 0
        self._local = threading.local()

    def try_reserve(self) -> bool:
        """Take a place, if one is free."""
        with self._lock:
            if self._closed or self._busy >= self.size:
                return False
            self._busy += 1
            return True

    def release(self) -> None:
        """Give back a reserved place that was not used."""
        with self._lock:
            self._busy -= 1
            waiter = self._next_waiter()
        if waiter is not None:
            waiter()

    def when_free(self, waiter: Callable[[], None]) -> None:
        """Call ``waiter`` once, from any thread, when a place may be free. It must be short."""
        with self._lock:
            if waiter not in self._waiters:
                self._waiters.append(waiter)
            if self._busy < self.size:
                waiter = self._waiters.popleft()
            else:
                return
        waiter()

    def run(self, job: Job) -> Worker:
        """Use a reserved place: run ``job`` on a worker."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = self._new_worker()
        worker.jobs.put(job)
        return worker

    def abandon(self, worker: Worker) -> None:
        """Give up a worker whose body does not end: its place is free at once."""
        with self._lock:
            if worker.abandoned:
                return
            worker.abandoned = True
            self.abandoned += 1
            if not worker.lent:
                self._busy -= 1
            waiter = self._next_waiter()
        if waiter is not None:
            waiter()

    @contextmanager
    def lend(self) -> Iterator[None]:
        """While the calling thread waits for a nested run, its place is free. No-op on other threads."""
        worker: Worker | None = getattr(self._local, "worker", None)
        if worker is None or worker.lent:
            yield
            return
        with self._lock:
            worker.lent = True
            if not worker.abandoned:
                self._busy -= 1
            waiter = self._next_waiter()
        if waiter is not None:
            waiter()
        try:
            yield
        finally:
            with self._lock:
                worker.lent = False
                if not worker.abandoned:
                    self._busy += 1  # for a moment there may be one more than ``size``

    def close(self, timeout: float) -> None:
        """End the idle workers and wait up to ``timeout`` seconds for the others; those are daemons."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads = list(self._threads)
        for worker in idle:
            worker.jobs.put(None)
        wait_for(threads, timeout)

    def _next_waiter(self) -> Callable[[], None] | None:
        return self._waiters.popleft() if self._waiters and self._busy < self.size else None

    def _new_worker(self) -> Worker:
        worker = Worker()
        self._started += 1
        name = f"ares-worker-{self._started} {self._name}"
        worker.thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        self._threads.add(worker.thread)
        worker.thread.start()
        return worker

    def _serve(self, worker: Worker) -> None:
        self._local.worker = worker
        try:
            while True:
                job = self._next_job(worker)
                if job is None:
                    return
                job()
                del job  # an idle worker keeps nothing of what it did last
                if not self._finished(worker):
                    return
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _next_job(self, worker: Worker) -> Job | None:
        while True:
            try:
                return worker.jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return None
                # It was taken just now: its job is coming.

    def _finished(self, worker: Worker) -> bool:
        """The job is done. Returns whether the worker goes on."""
        with self._lock:
            if worker.abandoned:
                return False
            self._busy -= 1
            goes_on = not self._closed
            if goes_on:
                self._idle.append(worker)
            waiter = self._next_waiter()
        if waiter is not None:
            waiter()
        return goes_on


def wait_for(threads: list[threading.Thread], timeout: float) -> None:
    """Join threads for up to ``timeout`` seconds in all; never the calling one."""
    import time

    deadline = time.monotonic() + timeout
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
