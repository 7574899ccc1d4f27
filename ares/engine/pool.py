"""The workers of one Runtime: daemon threads, started when needed, as many as may be busy at once.

A place is *reserved* first and used or given back after, so that nobody pulls work that no worker can take. Whoever
finds no place leaves a *waiter*; a place that becomes free is reserved for the waiter that came first before anybody
else can take it, so that no run starves another and no wake-up is lost. Hence the invariant: while somebody waits, no
place is free.

A used place is a *seat*: one job on one worker. A seat whose body hangs is *abandoned*: its place is free at once and
the thread ends whenever the body does. A seat that waits for a nested run is *lent*: its place is free until the run
is over. What is given back is the seat's, never the worker's, because the worker may sit on another one by then.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

Job = Callable[[], None]
#: Told that a place was reserved for it; returns False if it is not wanted any more. Called on any thread, no lock
#: held; short.
Waiter = Callable[[], bool]

#: Seconds that an idle worker waits for work before its thread ends.
IDLE_SECONDS = 30.0


class Seat:
    """One job on one worker. Its states change under the pool's lock."""

    __slots__ = ("is_abandoned", "is_lent", "is_over", "job", "worker")

    def __init__(self, job: Job, worker: "_Worker") -> None:
        self.job: Job | None = job
        self.worker = worker
        self.is_over = False
        self.is_abandoned = False
        self.is_lent = False


class _Worker:
    """One thread, and the seats that it is given."""

    __slots__ = ("seats", "thread")

    def __init__(self) -> None:
        #: None ends it.
        self.seats: SimpleQueue[Seat | None] = SimpleQueue()
        self.thread: threading.Thread | None = None


class WorkerPool:
    """At most ``size`` busy workers. Thread-safe."""

    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self._name = name
        self._lock = threading.Lock()
        #: Last in, first out: under a light load the others stay idle and end.
        self._idle: list[_Worker] = []
        #: Places that are reserved or used.
        self._busy = 0
        self._started = 0
        #: Workers that were not abandoned.
        self._workers: set[_Worker] = set()
        self._waiters: deque[Waiter] = deque()
        self._waiting: set[Waiter] = set()
        self._is_closed = False
        self._abandoned = 0
        self._local = threading.local()

    @property
    def abandoned(self) -> int:
        """How many workers were given up because their body did not end in time."""
        with self._lock:
            return self._abandoned

    @property
    def busy(self) -> int:
        """How many places are reserved or used."""
        with self._lock:
            return self._busy

    # --- places -----------------------------------------------------------------------------------------

    def try_reserve(self) -> bool:
        """Take a place, if one is free."""
        with self._lock:
            if self._is_closed or self._busy >= self.size:
                return False
            self._busy += 1
            return True

    def release(self) -> None:
        """Give back a reserved place that was not used."""
        with self._lock:
            self._busy -= 1
        self._offer()

    def when_free(self, waiter: Waiter) -> None:
        """Have a place reserved for ``waiter`` once one is free, in the order of asking; at once if one is."""
        with self._lock:
            if waiter not in self._waiting:
                self._waiting.add(waiter)
                self._waiters.append(waiter)
        self._offer()

    def forget(self, waiter: Waiter) -> None:
        """``waiter`` needs no place any more; it may still be told of one."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.discard(waiter)
                self._waiters.remove(waiter)

    def _offer(self) -> None:
        """Reserve what is free for those who wait."""
        while True:
            with self._lock:
                if not self._waiters or self._busy >= self.size or self._is_closed:
                    return
                waiter = self._waiters.popleft()
                self._waiting.discard(waiter)
                self._busy += 1
            if not waiter():
                with self._lock:
                    self._busy -= 1

    # --- seats ------------------------------------------------------------------------------------------

    def run(self, job: Job) -> Seat:
        """Use a reserved place: run ``job``, which must not raise, on a worker.

        Raises:
            RuntimeError: the system gives no more threads; the place was given back.
        """
        try:
            with self._lock:
                worker = self._idle.pop() if self._idle else self._new_worker()
        except RuntimeError:
            self.release()
            raise
        seat = Seat(job, worker)
        worker.seats.put(seat)
        return seat

    def abandon(self, seat: Seat) -> bool:
        """Give up a seat whose job does not end: its place is free at once. False if the job has just ended."""
        with self._lock:
            if seat.is_over or seat.is_abandoned:
                return False
            seat.is_abandoned = True
            self._abandoned += 1
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
            self._waiters.clear()
            self._waiting.clear()
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
        while True:
            try:
                return worker.seats.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return None
                # It was taken just now: its job is coming.

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
