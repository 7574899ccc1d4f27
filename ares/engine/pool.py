"""The workers of one Runtime: daemon threads, started when needed, as many as there are places.

A used place is a *seat*: one job on one worker. A seat whose body hangs is *abandoned*: its place is free at once and
the thread ends whenever the body does. A seat that waits for a nested run is *lent*: its place is free until the run
is over. What is given back is the seat's, never the worker's, because the worker may sit on another one by then.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty

from ares.engine.places import Places
from ares.postbox import Postbox

Job = Callable[[], None]

#: Seconds that an idle worker waits for work before its thread ends.
IDLE_SECONDS = 30.0
#: Seconds more that a worker waits which was taken and is given no job.
_LATE_SECONDS = 60.0


class Seat:
    """One job on one worker. Its states change under the pool's lock."""

    __slots__ = ("is_abandoned", "is_lent", "is_over", "job", "worker")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.worker: _Worker | None = None
        self.is_over = False
        self.is_abandoned = False
        self.is_lent = False


class _Worker:
    """One thread, and the seats that it is given."""

    __slots__ = ("seats", "thread")

    def __init__(self) -> None:
        #: None ends it.
        self.seats: Postbox[Seat | None] = Postbox()
        self.thread: threading.Thread | None = None


class WorkerPool(Places):
    """At most ``size`` busy workers. Thread-safe."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size)
        self._name = name
        #: Last in, first out: under a light load the others stay idle and end.
        self._idle: list[_Worker] = []
        self._started = 0
        #: Workers that were not abandoned.
        self._workers: set[_Worker] = set()
        self._abandoned = 0
        self._local = threading.local()

    @property
    def abandoned(self) -> int:
        """How many workers were given up because their body did not end in time."""
        with self._lock:
            return self._abandoned

    # --- seats ------------------------------------------------------------------------------------------

    def run(self, owner: Hashable, job: Job) -> Seat:
        """Use a place that ``owner`` holds: run ``job``, which must not raise, on a worker.

        Raises:
            RuntimeError: the system gives no more threads; the place is still held.
        """
        seat = Seat(job)
        with self._lock:
            worker = seat.worker = self._idle.pop() if self._idle else self._new_worker()
            try:
                worker.seats.put(seat)
                self._held[owner] -= 1
            except BaseException:  # of a Ctrl-C: whether the worker has the seat or not, the place is still held
                seat.is_abandoned = True
                self._workers.discard(worker)
                raise
        return seat

    def abandon(self, seat: Seat) -> bool:
        """Give up a seat whose job does not end: its place is free at once. False if the job has just ended."""
        with self._lock:
            if seat.is_over or seat.is_abandoned:
                return False
            seat.is_abandoned = True
            self._abandoned += 1
            if seat.worker is not None:
                self._workers.discard(seat.worker)
            if not seat.is_lent:
                self._busy -= 1
            self._offer()
        return True

    @contextmanager
    def lend(self) -> Iterator[None]:
        """While the calling thread waits for a nested run, its place is free. No-op on other threads."""
        seat: Seat | None = getattr(self._local, "seat", None)
        if seat is None or seat.is_lent:
            yield
            return
        with self._lock:
            seat.is_lent = True
            if not seat.is_abandoned:
                self._busy -= 1
            self._offer()
        try:
            yield
        finally:
            with self._lock:
                seat.is_lent = False
                if not seat.is_abandoned:
                    self._busy += 1  # for a moment there may be one more than ``size``

    # --- workers ----------------------------------------------------------------------------------------

    def close(self, timeout: float) -> None:
        """End the idle workers, and wait up to ``timeout`` seconds for those that are busy but not abandoned."""
        with self._lock:
            self._is_closed = True
            self._line.clear()
            idle, self._idle = self._idle, []
            threads = [worker.thread for worker in self._workers if worker.thread is not None]
        for worker in idle:
            worker.seats.put(None)
        wait_for(threads, timeout)

    def _new_worker(self) -> _Worker:
        worker = _Worker()
        self._started += 1
        name = f"ares-worker-{self._started} {self._name}"
        thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        thread.start()
        worker.thread = thread
        self._workers.add(worker)
        return worker

    def _serve(self, worker: _Worker) -> None:
        try:
            while self._serve_one(worker):
                pass
        finally:
            with self._lock:
                self._workers.discard(worker)

    def _serve_one(self, worker: _Worker) -> bool:
        """Wait for a job and do it. A frame of its own, so that an idle worker keeps nothing of what it did last."""
        seat = self._next_seat(worker)
        if seat is None:
            return False
        job, seat.job = seat.job, None
        assert job is not None
        self._local.seat = seat
        is_sound = False
        try:
            job()
            is_sound = True
        finally:
            self._local.seat = None
            goes_on = self._is_finished(worker, seat, is_sound=is_sound)
        return goes_on

    def _next_seat(self, worker: _Worker) -> Seat | None:
        for _ in range(2):
            try:
                return worker.seats.get(IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return None
            # It was taken just now: its job is coming.
        return self._late_seat(worker)

    def _late_seat(self, worker: _Worker) -> Seat | None:
        """Whoever took the worker gives it no job: it was interrupted by a Ctrl-C, or is very slow."""
        try:
            return worker.seats.get(_LATE_SECONDS)
        except Empty:
            return None

    def _is_finished(self, worker: _Worker, seat: Seat, *, is_sound: bool) -> bool:
        """The job is done. Returns whether the worker goes on."""
        with self._lock:
            seat.is_over = True
            if seat.is_abandoned:
                return False
            self._busy -= 1
            goes_on = is_sound and not self._is_closed
            if goes_on:
                self._idle.append(worker)
            self._offer()
        return goes_on


def wait_for(threads: Iterable[threading.Thread], timeout: float) -> None:
    """Join threads for up to ``timeout`` seconds in all; never the calling one."""
    deadline = time.monotonic() + timeout
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
