"""One SQLite file: how it is opened, read, written and let go of. Knows no table beyond the schema's version.

Two connections, each behind its own lock, so that any thread may call: one writes, one reads and holds no transaction
between two calls. While the store is not open every read makes a connection of its own.

What holds in the face of interruption: a ``KeyboardInterrupt`` may arrive between any two lines. The locks are taken
with ``with``, which cannot lose one, and each transaction begins by putting right what an interrupted one left behind.

No connection is to be inherited by a fork: ``_forking`` closes them first, and the next call makes them anew. Where
that failed, it must not be used in the child, nor even closed: SQLite's state would come apart from its owner's. So
each one holds a reference to itself that only ``close`` in its own process undoes.
"""

import contextlib
import functools
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from ares.errors import StoreError
from ares.postbox import Latch
from ares.stores.sqlite import _faults, _forking, _schema
from ares.stores.sqlite._place import Place

_T = TypeVar("_T")

#: Seconds between two looks whether somebody else's lock is gone. A writer that commits without a rest leaves it free
#: for moments only: SQLite's own waiting, which soon looks but ten times a second, would miss them for seconds. Between
#: two looks the interpreter can deliver a Ctrl-C.
_FIRST_PAUSE = 0.000_2
_LONGEST_PAUSE = 0.002
#: Milliseconds that emptying the log waits for others.
_LAST_WAIT = 500
#: Pages of 4 KiB in the write-ahead log before they are moved to the file. What costs is a log that grows: the file
#: system has books of its own to sync then. A short one is soon written over from its start.
_CHECKPOINT = 200
#: How often a reader takes a file for unused and is proved wrong before it reads in the ordinary way.
_TRIES = 3


class _CommitFailedError(Exception):
    """A COMMIT raised: whether it took effect has to be looked up."""


class Database:
    """One file.

    Args:
        path: Where it is, or will be.
        synchronous: SQLite's level for commits that must survive a power failure.
        patience: Seconds to wait for somebody else's lock.
    """

    def __init__(self, path: str | os.PathLike[str], synchronous: str, patience: float) -> None:
        self._place = Place(path)
        self.name = self._place.name
        self.patience = patience
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._closing = Latch()
        #: Whether it is open, and the process that opened it. The connections are made when they are needed.
        self._is_open = False
        self._pid = 0
        #: The level the writing connection is at; None while it is being changed.
        self._level: str | None = None
        #: What ``PRAGMA data_version`` said last.
        self._version = 0
        _forking.guard(self)

    # --- what a fork asks for ---

    @property
    def locks(self) -> tuple[threading.Lock, ...]:
        """As ``Guarded.locks``."""
        return self._lock, self._read_lock

    @property
    def open_file(self) -> tuple[int, int] | None:
        """As ``Guarded.open_file``."""
        return self._place.identity if self._is_open and self._pid == os.getpid() else None

    def let_go(self) -> None:
        """As ``Guarded.let_go``."""
        if self._pid == os.getpid():
            self._close_connections()

    def renew_locks(self) -> None:
        """As ``Guarded.renew_locks``."""
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()

    # --- opening and closing ---

    def inspect(self) -> None:
        """Raise StoreError if there is something at this place that can be no store. Creates nothing."""
        if self._place.exists():
            self._read_apart(lambda connection: _schema.version_of(connection, self.name))

    def open(self) -> None:
        """Create or migrate the file, and prove that it can be written. Idempotent."""
        self._check_process()
        with self._lock:
            if self._is_open:
                return
            self.inspect()
            self._place.check_access()
            self._closing.clear()
            connection = self._connect("rwc", timeout=0.0)
            try:
                self._use_wal(connection)
                self._level = None
                self._transact(connection, lambda opened: _schema.migrate(opened, self.name), sync=True)
                self._version = self._data_version(connection)
                self._place.note()
                self._pid = os.getpid()
                self._writer = _keep(self, connection)
                self._is_open = True
            except (sqlite3.Error, OSError) as error:
                raise self.fault(error) from error
            finally:
                if not self._is_open:
                    self._writer = None
                    connection.close()

    def close(self) -> None:
        """Empty the write-ahead log as far as others allow and let go of both connections. Idempotent.

        In a process that inherited the connections by a fork it does nothing.
        """
        if self._pid not in (0, os.getpid()):
            return
        self._closing.set()
        with self._lock, self._read_lock:
            self._is_open = False
            self._close_connections()

    # --- using it ---

    def write(
        self,
        work: Callable[[sqlite3.Connection], _T],
        *,
        sync: bool = True,
        again: Callable[[sqlite3.Connection], _T] | None = None,
    ) -> _T:
        """Run ``work`` in a transaction that holds the file's write lock from the start.

        Args:
            work: Reads and writes; what it raises undoes everything.
            sync: Whether the commit must survive a power failure.
            again: What to run in another transaction when COMMIT itself fails, so that it is not known whether
                ``work`` took effect: it has to look. Without it that is an error like any other.

        Raises:
            StoreError: Naming the file and the cause.
        """
        self._check_process()
        with self._lock:
            writer = self._writer or self._connect_again()
            self._place.check()
            try:
                return self._transact(writer, work, sync=sync)
            except _CommitFailedError as failed:
                if again is None:
                    raise self.fault(failed.args[0]) from failed.args[0]
            try:
                return self._transact(writer, again, sync=sync)
            except _CommitFailedError as failed:
                raise self.fault(failed.args[0]) from failed.args[0]

    def write_at_once(self, statement: Callable[[sqlite3.Connection], bool], *, sync: bool | None) -> bool:
        """Run one statement, which SQLite makes a transaction by itself. Returns what it does; ``sync`` is None where
        it is not worth another statement.

        False also where it failed: nothing was written then, unless nobody knows whether it was, so that whoever tries
        again has to look, as ``write`` with ``again`` does.

        Raises:
            StoreError: The file is not there any more.
        """
        self._check_process()
        with self._lock:
            writer = self._writer or self._connect_again()
            self._place.check()
            try:
                if writer.in_transaction:
                    self._settle(writer)
                level = self._synchronous if sync else "NORMAL"
                if level != self._level and (sync is not None or self._level is None):
                    self._set_level(writer, level)
                return statement(writer)
            except (sqlite3.Error, UnicodeEncodeError, OverflowError):
                return False
            finally:
                if writer.in_transaction:
                    self._settle(writer)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work``, which must leave no cursor half-read, on a connection that cannot write."""
        self._check_process()
        with self._read_lock:
            if self._is_open:
                try:
                    if self._reader is None:
                        reader = self._connect("rw", timeout=self.patience)
                        reader.execute("PRAGMA query_only = ON")
                        self._reader = _keep(self, reader)
                    return work(self._reader)
                except (sqlite3.Error, UnicodeEncodeError) as error:
                    raise self.fault(error) from error
        if not self._place.exists():
            raise StoreError(self.name, "there is no such file")
        return self._read_apart(functools.partial(self._read_known, work))

    def changed(self) -> bool:
        """Whether another connection has committed since the last call."""
        self._check_process()
        with self._lock:
            writer = self._writer or self._connect_again()
            try:
                version = self._data_version(writer)
            except sqlite3.Error as error:
                raise self.fault(error) from error
            changed, self._version = version != self._version, version
            return changed

    def vacuum(self) -> None:
        """Rewrite the file without its free space; both locks are held meanwhile."""
        self._check_process()
        with self._lock, self._read_lock:
            writer = self._writer or self._connect_again()
            self._place.check()
            try:
                self._settle(writer)
                self._set_level(writer, self._synchronous)
                self._patiently(writer, "VACUUM")
                _empty_log(writer)
            except sqlite3.Error as error:
                raise self.fault(error) from error

    def pause(self, seconds: float) -> None:
        """Let others have the file for a moment; ends early when the store closes."""
        self._closing.wait(seconds)

    def fault(self, error: Exception) -> StoreError:
        """What the caller gets to see of an error."""
        return StoreError(self.name, _faults.meaning(error, self.patience))

    # --- transactions ---

    def _transact(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T], *, sync: bool) -> _T:
        level = self._synchronous if sync else "NORMAL"
        try:
            if connection.in_transaction:
                self._settle(connection)
            if level != self._level:
                self._set_level(connection, level)
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                self._patiently(connection, "BEGIN IMMEDIATE")
            try:
                result = work(connection)
                try:
                    connection.execute("COMMIT")
                except sqlite3.Error as error:
                    raise _CommitFailedError(error) from error
            finally:
                if connection.in_transaction:
                    self._settle(connection)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise self.fault(error) from error
        return result

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Undo a transaction, which an error or an interruption may have left open."""
        # SQLite may have rolled back on its own account just now.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")

    def _set_level(self, connection: sqlite3.Connection, level: str) -> None:
        self._level = None
        connection.execute(f"PRAGMA synchronous = {level}")
        self._level = level

    def _patiently(self, connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """Execute a statement that may meet somebody else's lock; try again up to the patience."""
        deadline = 0.0
        pause = _FIRST_PAUSE
        while True:
            try:
                return connection.execute(statement)
            except sqlite3.OperationalError as error:
                if not _faults.is_busy(error):
                    raise
                now = time.monotonic()
                deadline = deadline or now + self.patience
                if now >= deadline:
                    raise
            if self._closing.wait(pause):
                raise StoreError(self.name, "the store was closed while it waited for a lock")
            pause = min(pause * 1.3, _LONGEST_PAUSE)

    # --- connections ---

    def _connect(self, mode: str, *, timeout: float, immutable: bool = False) -> sqlite3.Connection:
        if _forking.is_inherited(self._place.found()):
            raise StoreError(self.name, "this process was forked while a thread waited for the file's lock")
        address = self._place.address(mode, immutable=immutable)
        try:
            return sqlite3.connect(
                address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise self.fault(error) from error

    def _connect_again(self) -> sqlite3.Connection:
        """The writing connection anew, after a fork has closed it."""
        if not self._is_open:
            raise StoreError(self.name, "the store is not open")
        self._place.check()
        connection = self._connect("rw", timeout=0.0)
        try:
            self._use_wal(connection)
            self._writer = _keep(self, connection)
        except sqlite3.Error as error:
            raise self.fault(error) from error
        finally:
            if self._writer is None:
                connection.close()
        self._level = None
        self._version = 0  # nobody can tell what others did meanwhile
        return connection

    def _close_connections(self) -> None:
        """With both locks held: empty the write-ahead log as far as others allow, and let go of both connections."""
        writer, self._writer, reader, self._reader = self._writer, None, self._reader, None
        if reader is not None:
            reader.close()
        if writer is None:
            return
        try:
            self._settle(writer)
            # Closing does this too, but only for the last one to leave.
            _empty_log(writer)
        except sqlite3.Error:
            pass  # what is committed stays in the log, and the next one to open the file finds it there
        finally:
            writer.close()

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        ((mode,),) = self._patiently(connection, "PRAGMA journal_mode = WAL").fetchall()
        if mode != "wal":
            raise StoreError(self.name, f"no write-ahead log is possible here (the journal mode stays {mode!r})")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")

    def _data_version(self, connection: sqlite3.Connection) -> int:
        ((version,),) = self._patiently(connection, "PRAGMA data_version").fetchall()
        return int(version)

    def _read_known(self, work: Callable[[sqlite3.Connection], _T], connection: sqlite3.Connection) -> _T:
        version = _schema.version_of(connection, self.name)
        if version == 0:
            raise StoreError(self.name, "the file is no ares store yet")
        if version < len(_schema.MIGRATIONS):
            raise StoreError(self.name, f"the file has the older format {version}: open it for writing once")
        return work(connection)

    def _read_apart(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work`` on a connection made for it, in a way that leaves no trace in the folder.

        An ordinary connection makes a write-ahead log to read by, which fails in a folder that cannot be written and
        otherwise leaves files of the reader's that the writer may be unable to open. So a file that nobody has open is
        read as immutable; should somebody have moved pages into it meanwhile, what was read counts for nothing.
        """
        tries = 0
        while True:
            tries += 1
            at_rest = tries <= _TRIES and self._place.is_at_rest()
            before = self._place.stamp()
            with self._read_lock:  # so that no fork comes in between
                connection = self._connect("ro", timeout=self.patience, immutable=at_rest)
                try:
                    result = work(connection)
                except (sqlite3.Error, UnicodeEncodeError) as error:
                    if at_rest and self._place.stamp() != before:
                        continue
                    raise self.fault(error) from error
                finally:
                    connection.close()
            if not at_rest or self._place.stamp() == before:
                return result

    def _check_process(self) -> None:
        if self._pid not in (0, os.getpid()):
            raise StoreError(self.name, "the store was opened before a fork: make a new one in the child process")


def _empty_log(connection: sqlite3.Connection) -> None:
    """Move everything from the write-ahead log to the file, if readers and writers of the moment soon let it."""
    connection.execute(f"PRAGMA busy_timeout = {_LAST_WAIT}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute("PRAGMA busy_timeout = 0")


def _keep(owner: Database, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Have ``connection`` closed when ``owner`` is forgotten, but never in another process than this one."""
    # SQLite's reference to the function is out of the garbage collector's sight: only close() drops it.
    connection.create_function("ares_kept_open", 0, functools.partial(id, connection))
    weakref.finalize(owner, _close_forgotten, os.getpid(), connection).atexit = False
    return connection


def _close_forgotten(pid: int, connection: sqlite3.Connection) -> None:
    if os.getpid() == pid:
        connection.close()
