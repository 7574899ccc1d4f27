"""One PostgreSQL database: how connections to it are made, used, lost and made anew. Knows no table of it.

There are a few *seats*, each with a connection of its own behind its own lock; a call takes the first seat that is
free, so that a quiet program has one connection. Seats and not ``psycopg_pool``: that waits in ``threading.Condition``,
where a Ctrl-C on the main thread loses a connection of the pool for good; here a lock taken by ``with`` is all there
is, and a seat begins by putting right what an interrupted call left behind.

An *outage* begins when a connection turns out to be lost, and ends with the next call that works. Meanwhile calls are
repeated, for so long after its beginning; every call has to bear being repeated, because nobody knows whether it took
effect. What was connected before an outage is not used after it.
"""

import functools
import itertools
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from ares.errors import StoreError
from ares.postbox import Latch
from ares.stores.postgres import _faults, _schema
from ares.stores.postgres._address import Address
from ares.stores.postgres._values import ADAPTERS

Connection = psycopg.Connection[Any]
_T = TypeVar("_T")

_SEATS = 4
#: Seconds after the beginning of an outage for which a call goes on trying, and between two tries.
_PATIENCE = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
#: How often a transaction that met another one is tried.
_TRIES = 20

# No call waits for ever, and nobody who was stopped within a transaction holds up the others. What is told to have been
# stored has to be, whatever the server's own setting. Compiling statements as short as these costs more than it saves.
_SESSION = b"""SELECT set_config('lock_timeout', '10s', false), set_config('statement_timeout', '60s', false),
    set_config('jit', 'off', false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)"""


class _Seat:
    """A place for one connection."""

    __slots__ = ("connection", "lock", "since")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        #: How many outages there had been when it was made.
        self.since = 0


class Server:
    """One database.

    Args:
        address: Where it is.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.name = address.name
        self.schema = _schema.quoted(address.schema)
        #: Told of outages that are over; on the thread whose call ended one.
        self.on_warning: Callable[[str], None] = _ignore
        self._seats = tuple(_Seat() for _ in range(_SEATS))
        self._turns = itertools.count()
        self._opening = threading.Lock()
        self._closing = Latch()
        self._is_open = False
        self._pid = 0
        #: When the present outage began, None when there is none, what began it, and how many there have been.
        self._down_since: float | None = None
        self._cause = ""
        self._outages = 0
        _servers.add(self)
        weakref.finalize(self, _close_forgotten, os.getpid(), self._seats).atexit = False

    # --- opening and closing ---

    def open(self) -> None:
        """Create or migrate the schema, and prove that it can be written. Idempotent."""
        self._check_process()
        with self._opening:
            if self._is_open:
                return
            self._closing.clear()
            self.apart(self._prepare)
            self._pid = os.getpid()
            self._down_since = None
            self._is_open = True

    def close(self) -> None:
        """Let go of every connection; calls that wait for the server end with an error. Idempotent.

        In a process that inherited them by a fork it does nothing.
        """
        if self._pid not in (0, os.getpid()):
            return
        self._closing.set()
        with self._opening:
            self._is_open = False
            for seat in self._seats:
                with seat.lock:
                    self._vacate(seat)

    def connect(self) -> Connection:
        """A connection of one's own, each statement a transaction unless one says otherwise.

        Raises:
            StoreError: There is none to be had.
        """
        try:
            return self._connect()
        except psycopg.Error as error:
            raise self.fault(error) from error

    # --- using it ---

    def run(self, work: Callable[[Connection], _T], *, patience: float | None = None) -> _T:
        """Run ``work``, which may be repeated, on a connection that nobody else uses meanwhile.

        Args:
            work: Statements that are a transaction each, or begin one.
            patience: Seconds from the beginning of an outage for which it is tried again; a minute, if not given.

        Raises:
            StoreError: Naming the server and the cause.
        """
        self._check_process()
        seat = self._free_seat()
        with seat.lock:
            result, outage = self._run_on(seat, work, _PATIENCE if patience is None else patience)
        if outage:
            self.on_warning(f"{self.name}: {outage}")
        return result

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work``, which only reads; also while the store is not open, on a connection made for it."""
        self._check_process()
        return self.run(work) if self._is_open else self.apart(functools.partial(self._read_known, work))

    def apart(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` once, on a connection made for it: what takes long keeps nobody from a seat."""
        self._check_process()
        connection = self.connect()
        try:
            return work(connection)
        except psycopg.Error as error:
            raise self.fault(error) from error
        finally:
            connection.close()

    def _read_known(self, work: Callable[[Connection], _T], connection: Connection) -> _T:
        _schema.check_server(connection, self.name)
        version = _schema.version_of(connection, self.name, self._address.schema)
        if version < len(_schema.MIGRATIONS):
            problem = f"has the older format {version}: open it for writing once" if version else "is not there yet"
            raise StoreError(self.name, f"the schema {self._address.schema!r} {problem}")
        return work(connection)

    def fault(self, error: BaseException) -> StoreError:
        """What the caller gets to see of an error."""
        return StoreError(self.name, _faults.meaning(error))

    # --- one call ---

    def _run_on(self, seat: _Seat, work: Callable[[Connection], _T], patience: float) -> tuple[_T, str]:
        """The result, and in words what outage it ended."""
        pause, tries = _FIRST_PAUSE, 0
        while True:
            try:
                result = work(self._seated(seat))
            except psycopg.Error as error:
                tries += 1
                if _faults.is_lost(error, seat.connection):
                    self._note_outage(seat, error)
                    if time.monotonic() - (self._down_since or 0.0) >= patience:
                        raise self.fault(error) from error
                elif _faults.is_forgotten(error) and tries == 1:
                    self._vacate(seat)
                    continue
                elif not _faults.is_passing(error) or tries >= _TRIES:
                    raise self.fault(error) from error
                cause = error
            else:
                return result, self._end_outage() if self._down_since is not None else ""
            # Not all at the same moment.
            if self._closing.wait(pause * (0.5 + random.random())):
                problem = f"the store was closed while it waited for the server: {_faults.meaning(cause)}"
                raise StoreError(self.name, problem) from cause
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _free_seat(self) -> _Seat:
        for seat in self._seats:
            if not seat.lock.locked():
                return seat
        return self._seats[next(self._turns) % _SEATS]

    def _seated(self, seat: _Seat) -> Connection:
        """The connection of a seat whose lock is held, fit for use."""
        if not self._is_open:
            raise StoreError(self.name, "the store is not open")
        connection = seat.connection
        if connection is not None:
            if seat.since == self._outages and connection.pgconn.transaction_status == _IDLE:
                return connection
            self._vacate(seat)
        since = self._outages
        seat.connection = self._connect()
        seat.since = since
        return seat.connection

    def _vacate(self, seat: _Seat) -> None:
        connection, seat.connection = seat.connection, None
        if connection is not None:
            connection.close()

    def _note_outage(self, seat: _Seat, error: BaseException) -> None:
        began = self._down_since is None
        if began:
            self._down_since = time.monotonic()
            self._cause = _faults.meaning(error)
        if began or (seat.connection is not None and seat.since == self._outages):
            self._outages += 1
        self._vacate(seat)

    def _end_outage(self) -> str:
        began, self._down_since = self._down_since, None
        if began is None:
            return ""
        return f"the connection was lost ({self._cause}); connected again after {time.monotonic() - began:.1f} s"

    def _connect(self) -> Connection:
        connection = psycopg.connect(
            autocommit=True, context=ADAPTERS, client_encoding="UTF8", **self._address.parameters
        )
        try:
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        _schema.check_server(connection, self.name)
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if row is not None and row[0]:
            raise StoreError(self.name, "the server is a standby: it can be read but not written")
        with connection.transaction():
            _schema.migrate(connection, self.name, self._address.schema)

    def _check_process(self) -> None:
        if self._pid not in (0, os.getpid()):
            raise StoreError(self.name, "the store was opened before a fork: make a new one in the child process")

    def inherited(self) -> list[Connection]:
        """In a child process: the parent's connections, which nobody here must use or close."""
        return [seat.connection for seat in self._seats if seat.connection is not None]


_IDLE = psycopg.pq.TransactionStatus.IDLE


def _ignore(_message: str) -> None:
    """Nobody wants to be warned."""


def _close_forgotten(pid: int, seats: tuple[_Seat, ...]) -> None:
    for seat in seats:
        if os.getpid() == pid and seat.connection is not None:
            seat.connection.close()


# A child of a fork must not say goodbye on its parent's connections: psycopg does not when it frees one that another
# process made, and here they are never freed, so that nothing warns of them either.
_servers: "weakref.WeakSet[Server]" = weakref.WeakSet()
_kept: list[Connection] = []


def _after_in_child() -> None:
    for server in list(_servers):
        _kept.extend(server.inherited())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
