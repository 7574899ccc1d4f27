"""One executor by its name: makes what is behind it when it is needed, replaces it when it is broken, and waits for the
bodies that run there.
"""

import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, InvalidStateError
from contextlib import suppress

from ares.errors import AttemptEnded, ExecutorError, StepCancelledError, WorkerLostError
from ares.executors.ending import overtake
from ares.executors.pool import Pool, Trip
from ares.remote.errand import Errand
from ares.remote.marks import Folder
from ares.remote.protocol import Watch
from ares.remote.returned import Returned, read
from ares.walk.judge import describe

Factory = Callable[[], Executor]

#: To how many pools a body is sent, one after the other, that all broke before it began.
_MOST_PATIENT = 3
#: Seconds that a waiting thread sleeps at most without looking up.
_LONGEST_LOOK = 1.0
#: Seconds between two looks at whether a body with a timeout has begun: a twentieth of that, within these.
_LOOKS_IN_TIMEOUT, _SHORTEST_LOOK, _LONGEST_BEGIN = 20, 0.005, 0.1


class BodyLost(Exception):
    """What the future of an executor raises when whatever ran its call is gone, and the executor is not."""


class _Again(Exception):
    """The pool broke, which was no fault of this body: it is sent to another."""


class Place:
    """Where bodies run that name it. Thread-safe.

    Args:
        name: what steps call it.
        given: the caller's executor, or what makes one.
        folder: makes the marks of its calls.
    """

    def __init__(self, name: str, given: Executor | Factory, folder: Folder) -> None:
        self._name = name
        self._given = given
        self._folder = folder
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        #: Somebody makes one: done when there is one, or none to be had.
        self._making: Future[None] | None = None
        #: Put away; not all of it may have ended.
        self._past: list[Pool] = []
        self._trips: set[Trip] = set()
        #: Why there will be no other.
        self._problem = ""

    # --- a body -----------------------------------------------------------------------------------------

    def run(self, errand: Errand, watch: Watch) -> Returned:
        """See ``Executors``."""
        load, broken = b"", 0
        while broken < _MOST_PATIENT:
            pool = self._ready(errand, watch)
            load = load or errand.packed(knows_main=pool.knows_main)
            try:
                return self._travel(pool, load, errand, watch)
            except _Again:
                broken += not pool.was_killed
        raise ExecutorError(errand.path, self._name, f"broke before the body began, {broken} times in a row")

    def _travel(self, pool: Pool, load: bytes, errand: Errand, watch: Watch) -> Returned:
        trip = self._send(pool, load, errand, watch)
        try:
            with self._lock:
                self._trips.add(trip)
            has_begun = self._wait(trip, errand, watch)
        except BaseException:
            trip.stop()
            if pool.was_killed:
                self._put_away(pool)
            raise
        finally:
            with self._lock:
                self._trips.discard(trip)
        return self._outcome(trip, errand, watch, has_begun=has_begun)

    def _send(self, pool: Pool, load: bytes, errand: Errand, watch: Watch) -> Trip:
        try:
            trip = pool.send(load, watch)
        except (BrokenExecutor, RuntimeError) as error:  # RuntimeError: it was shut down
            watch.held_back()
            self._put_away(pool)
            if not pool.is_ours:
                raise self._refused(errand, f"takes nothing any more ({describe(error)})") from error
            raise _Again from error
        except Exception as error:
            watch.held_back()
            if pool.was_killed and isinstance(error, OSError):  # it is just being taken down: its pipe is closed
                self._put_away(pool)
                raise _Again from error
            raise self._refused(errand, f"did not take it: {describe(error)}") from error
        overtake(pool.kind)
        return trip

    def _wait(self, trip: Trip, errand: Errand, watch: Watch) -> bool:
        """Wait for a body. Returns whether it was seen to begin."""
        has_begun = False
        while not trip.future.done():
            at = None if has_begun else trip.begun_at()
            if at is not None:
                has_begun = True
                watch.begun(at)
            if watch.is_over():
                raise AttemptEnded(errand.path)
            if watch.is_cancelled() and not has_begun and trip.revoke():
                watch.held_back()
                raise StepCancelledError(errand.path, "cancelled before it began")
            if trip.is_forsaken():
                with suppress(InvalidStateError):  # it came to its end just now
                    trip.future.set_exception(BrokenExecutor("the thread of the pool that watches it has died"))
            watch.bell.wait(_look_in(errand, has_begun=has_begun))
            watch.bell.clear()
        return has_begun

    def _outcome(self, trip: Trip, errand: Errand, watch: Watch, *, has_begun: bool) -> Returned:
        try:
            error = trip.future.exception(0)
        except CancelledError as cancelled:
            error = cancelled
        if error is None:
            if trip.revoke():  # it came back and had not begun: it could not be loaded there, or the folder was gone
                watch.held_back()
            trip.over()
            returned = read(trip.future.result(0))
            if returned is not None:
                return returned
            raise self._refused(errand, "was closed before the body began")
        if isinstance(error, BrokenExecutor):
            trip.pool.sweep()
            self._put_away(trip.pool)
            if trip.revoke():
                watch.held_back()
                raise _Again from error
            if trip.pool.was_killed and errand.may_repeat:
                watch.held_back()
                raise _Again from error
        if isinstance(error, BrokenExecutor | BodyLost):
            raise WorkerLostError(errand.path, self._name, f"lost the worker of the body: {error}") from error
        if trip.future.cancelled() or (not has_begun and trip.revoke()):
            watch.held_back()
        raise self._refused(errand, f"gave no result: {describe(error)}") from error

    def _refused(self, errand: Errand, problem: str) -> ExecutorError:
        return ExecutorError(errand.path, self._name, problem)

    @property
    def can_stop(self) -> bool:
        """Whether a body that has begun is stopped when its attempt is ended."""
        pool = self._pool
        return pool is None or pool.can_stop

    # --- what is behind the name --------------------------------------------------------------------------

    def _ready(self, errand: Errand, watch: Watch) -> Pool:
        """What takes bodies now; made if there is none. One thread makes it, the others wait."""
        while True:
            with self._lock:
                if self._pool is not None:
                    return self._pool
                if self._problem:
                    raise self._refused(errand, self._problem)
                making, is_mine = self._making, self._making is None
                if making is None:
                    making = self._making = Future()
            if is_mine:
                self._make(making)
            self._await(making, errand, watch)
            error = making.exception(0)
            if error is not None:
                raise self._refused(errand, f"cannot be made: {describe(error)}") from error

    def _make(self, making: "Future[None]") -> None:
        pool: Pool | None = None
        problem: BaseException | None = None
        try:
            made = self._given if isinstance(self._given, Executor) else self._given()
            if not isinstance(made, Executor):
                raise TypeError(f"its factory returned {made!r}, which is no concurrent.futures.Executor")
            pool = Pool(made, self._folder, is_ours=made is not self._given)
        except BaseException as error:  # of the caller's factory
            problem = error
        with self._lock:
            is_late = bool(self._problem)
            self._making = None
            if pool is not None and not is_late:
                self._pool = pool
        if pool is not None and is_late:
            pool.end()
        if problem is None:
            making.set_result(None)
        else:
            making.set_exception(problem)

    @staticmethod
    def _await(making: "Future[None]", errand: Errand, watch: Watch) -> None:
        making.add_done_callback(lambda _: watch.bell.set())
        while not making.done():
            if watch.is_over():
                raise AttemptEnded(errand.path)
            if watch.is_cancelled():
                raise StepCancelledError(errand.path, "cancelled before it began")
            watch.bell.wait(_LONGEST_LOOK)
            watch.bell.clear()

    def _put_away(self, pool: Pool) -> None:
        """It is broken, or about to be: the next body gets another, if there is one to be had."""
        with self._lock:
            if self._pool is pool:
                self._pool = None
                self._past = [each for each in self._past if not each.is_gone] + [pool]
                if not pool.is_ours:
                    factory = "functools.partial(ProcessPoolExecutor, 4)"
                    self._problem = f"is broken and cannot be replaced: give a factory instead, such as {factory}"
        pool.shut_down()

    def close(self) -> None:
        """Stop what is under way, and end what was made here. Takes a few seconds at most."""
        with self._lock:
            self._problem = self._problem or "is closed"
            pools = [*self._past, *([] if self._pool is None else [self._pool])]
            trips = list(self._trips)
            self._past, self._pool = [], None
        for trip in trips:
            trip.stop()
        for pool in pools:
            pool.end()

    @property
    def was_used(self) -> bool:
        """Whether there is anything behind it, or was."""
        return self._pool is not None or bool(self._past)

    def renewed(self, folder: Folder) -> "Place":
        """In the child of a fork: a place of the same name, with nothing of the parent's behind it."""
        place = Place(self._name, self._given, folder)
        if isinstance(self._given, Executor):
            place._problem = "was made in the parent of this process: give a factory instead, which is called in each"
        return place


def _look_in(errand: Errand, *, has_begun: bool) -> float:
    """In how many seconds to look at a body that does not announce what it does."""
    if has_begun or errand.timeout is None:
        return _LONGEST_LOOK
    return min(max(errand.timeout / _LOOKS_IN_TIMEOUT, _SHORTEST_LOOK), _LONGEST_BEGIN)
