"""One SQLite file: how it is opened, read, written and let go of. Knows no table beyond the schema's version.

Two connections, each behind its own lock, so that any thread may call: one writes, one reads and holds no transaction
between two calls. While the store is not open every read makes a connection of its own.

What holds in the face of interruption: a ``KeyboardInterrupt`` may arrive between any two lines. The locks are taken
with ``with``, which cannot lose one, and each transaction begins by putting right what an interrupted one left behind.

A connection must not be used, nor even closed, in a process that inherited it by a fork: SQLite's state would come
apart from its owner's. So each one holds a reference to itself that only ``close`` in its own process undoes.
"""

import contextlib
import functools
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ares.errors import StoreError
from ares.stores.sqlite import _faults, _forking, _schema

_T = TypeVar("_T")

#: Seconds between two looks whether somebody else's lock is gone. A writer that commits without a rest leaves it free
#: for moments only: SQLite's own waiting, which soon looks but ten times a second, would miss them for seconds. Between
#: two looks the interpreter can deliver a Ctrl-C.
_FIRST_PAUSE = 0.000_2
_LONGEST_PAUSE = 0.002
#: Milliseconds that emptying the log waits for others.
_LAST_WAIT = 500
#: Pages of 4 KiB in the write-ahead log before they are moved to the file. A longer log costs space and time to grow,
#: a shorter one more moves.
_CHECKPOINT = 1_000
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
        self.name = os.fsdecode(path)
        self.path = Path(self.name).absolute()
        self.patience = patience
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._closing = threading.Event()
        #: What the open file is to be recognised by: the process that opened it, its path, its device and inode.
        self._pid = 0
        self._real = str(self.path)
        self._place = (0, 0)
        #: The level the writing connection is at; None while it is being changed.
        self._level: str | None = None
        #: What ``PRAGMA data_version`` said last.
        self._version = 0
        _forking.guard(self)

    @property
    def locks(self) -> tuple[threading.Lock, ...]:
        """What is held in the middle of a transaction; a fork takes them all."""
        return self._lock, self._read_lock

    # --- opening and closing ---

    def inspect(self) -> None:
        """Raise StoreError if there is something at this place that can be no store. Creates nothing."""
        if self._exists():
            self._read_apart(lambda connection: _schema.version_of(connection, self.name))

    def open(self) -> None:
        """Create or migrate the file, and prove that it can be written. Idempotent."""
        self._check_process()
        with self._lock:
            if self._writer is not None:
                return
            self.inspect()
            self._check_access()
            self._closing.clear()
            self._level = None
            connection = self._connect("rwc", timeout=0.0)
            try:
                self._use_wal(connection)
                self._transact(connection, lambda opened: _schema.migrate(opened, self.name), sync=True)
                self._version = self._data_version(connection)
                found = self.path.stat()
                self._place = (found.st_dev, found.st_ino)
                self._pid = os.getpid()
                self._writer = _keep(self, connection)
            except (sqlite3.Error, OSError) as error:
                raise self.fault(error) from error
            finally:
                if self._writer is None:
                    connection.close()

    def close(self) -> None:
        """Empty the write-ahead log as far as others allow and let go of both connections. Idempotent.

        In a process that inherited the connections by a fork it does nothing.
        """
        if self._pid not in (0, os.getpid()):
            return
        self._closing.set()
        with self._lock, self._read_lock:
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
            writer = self._writer
            if writer is None:
                raise StoreError(self.name, "the store is not open")
            self._check_place()
            try:
                return self._transact(writer, work, sync=sync)
            except _CommitFailedError as failed:
                if again is None:
                    raise self.fault(failed.args[0]) from failed.args[0]
            try:
                return self._transact(writer, again, sync=sync)
            except _CommitFailedError as failed:
                raise self.fault(failed.args[0]) from failed.args[0]

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work``, which must leave no cursor half-read, on a connection that cannot write."""
        self._check_process()
        with self._read_lock:
            if self._writer is not None:
                try:
                    if self._reader is None:
                        reader = self._connect("rw", timeout=self.patience)
                        reader.execute("PRAGMA query_only = ON")
                        self._reader = _keep(self, reader)
                    return work(self._reader)
                except (sqlite3.Error, UnicodeEncodeError) as error:
                    raise self.fault(error) from error
        if not self._exists():
            raise StoreError(self.name, "there is no such file")
        return self._read_apart(functools.partial(self._read_known, work))

    def changed(self) -> bool:
        """Whether another connection has committed since the last call."""
        self._check_process()
        with self._lock:
            if self._writer is None:
                raise StoreError(self.name, "the store is not open")
            try:
                version = self._data_version(self._writer)
            except sqlite3.Error as error:
                raise self.fault(error) from error
            changed, self._version = version != self._version, version
            return changed

    def vacuum(self) -> None:
        """Rewrite the file without its free space; both locks are held meanwhile."""
        self._check_process()
        with self._lock, self._read_lock:
            if self._writer is None:
                raise StoreError(self.name, "the store is not open")
            self._check_place()
            try:
                self._settle(self._writer)
                self._set_level(self._writer, self._synchronous)
                self._patiently(self._writer, "VACUUM")
                _empty_log(self._writer)
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
        # as_uri() quotes what an address gives a meaning to: ? and # are legal in file names.
        address = f"{self.path.as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}"
        try:
            return sqlite3.connect(
                address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise self.fault(error) from error

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
            at_rest = tries <= _TRIES and self._is_at_rest()
            before = self._stamp()
            connection = self._connect("ro", timeout=self.patience, immutable=at_rest)
            try:
                result = work(connection)
            except (sqlite3.Error, UnicodeEncodeError) as error:
                if at_rest and self._stamp() != before:
                    continue
                raise self.fault(error) from error
            finally:
                connection.close()
            if not at_rest or self._stamp() == before:
                return result

    def _is_at_rest(self) -> bool:
        real = str(self.path.resolve())
        try:
            if Path(f"{real}-wal").stat().st_size:
                return False
        except OSError:
            return True
        return not Path(f"{real}-shm").exists()

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    # --- checks that name the cause before SQLite meets it ---

    def _check_process(self) -> None:
        if self._pid not in (0, os.getpid()):
            raise StoreError(self.name, "the store was opened before a fork: make a new one in the child process")

    def _check_place(self) -> None:
        # SQLite writes on into a file without a name, and everything would be lost in silence.
        try:
            found = os.stat(self._real)  # noqa: PTH116 - Path.stat costs four times as much, and each commit pays it
        except OSError as error:
            raise StoreError(self.name, f"the file was taken away while it was open ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self._place:
            raise StoreError(self.name, "the file was replaced by another one while it was open")

    def _exists(self) -> bool:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            raise StoreError(self.name, f"the file cannot be looked at ({error})") from error
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise StoreError(self.name, f"this is {kind}, not a database")
        return True

    def _check_access(self) -> None:
        if not self.path.parent.is_dir():
            raise StoreError(self.name, f"there is no folder {str(self.path.parent)!r}")
        for path, what in ((self.path, "the file"), (self.path.resolve().parent, "its folder")):
            if path.exists() and not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                raise StoreError(self.name, f"{what} is read-only for this process")


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
