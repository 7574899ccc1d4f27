"""An SQLite file of a plugin's own: how it is opened, used and let go of, and what its errors mean. Knows no table.

It has one connection, behind a lock, and it is for the plugin's own thread; other processes may have the file open,
too. Every transaction is short, and somebody else's lock is waited for but a moment, because a walk waits for the
plugin.

*Forks.* SQLite keeps account of its locks in the memory of the process. A child that inherits a connection believes
that it holds that connection's locks, and its own connections to the file then take none. So a fork closes the
connections first; they are made anew when they are needed.
"""

import contextlib
import functools
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from ares.errors import StoreError

_T = TypeVar("_T")

#: What the work of a transaction is given: the one module of the plugins that imports ``sqlite3`` is this.
Connection = sqlite3.Connection

#: Seconds that somebody else's lock is waited for, while the plugin starts and while a walk waits for it.
_AT_START: Final = 2.0
_LATER: Final = 0.25
#: Seconds between two looks at a lock that SQLite does not wait for itself.
_PAUSE: Final = 0.01
#: Seconds that a fork waits at most for what is under way in the files.
_FORK: Final = 1.0
#: Bytes of a file that is looked through at the start; of a larger one, only a little.
_CHECKED: Final = 100_000_000
#: KiB of page cache that a connection may take, and pages of 4 KiB in the write-ahead log before they are moved.
_CACHE: Final = 4_096
_LOG: Final = 250

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_MEANINGS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file, or one that belongs to it, cannot be opened",
    sqlite3.SQLITE_IOERR: "reading or writing failed",
}


class OwnFile:
    """One file.

    Args:
        path: Where it is, or will be.
        owner: What it holds, in words: for errors.
        application_id: Says in the file's header whose it is.
        migrations: The statements that lead from format i to i + 1.
        probe: Queries of the newest format that read a little of everything.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        owner: str,
        application_id: int,
        migrations: Sequence[Sequence[str]],
        probe: Sequence[str] = (),
    ) -> None:
        self.name = os.fsdecode(path)
        self._path = Path(self.name).absolute()
        self._owner = owner
        self._application_id = application_id
        self._migrations = migrations
        self._probe = probe
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_open = False
        #: Seconds that a lock is waited for.
        self._patience = _AT_START
        #: The process that opened it, and the file that it was: device and inode.
        self._pid = 0
        self._identity = (0, 0)
        with _registry:
            _files.add(self)

    # --- opening and closing ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Create or migrate the file, and prove that it can be read and written. Idempotent.

        Raises:
            StoreError: it is locked, read-only, damaged, another program's, or of a newer ares. It was not changed.
        """
        with self._lock:
            if self._is_open and self._pid == os.getpid():
                return
            self._check_place()
            connection = self._connect("rwc", _AT_START)
            try:
                if self._check_format(connection) == len(self._migrations):
                    self._check_content(connection)
                self._use_wal(connection)
                self._transact(connection, self._migrate)
                connection.execute(f"PRAGMA busy_timeout = {int(_LATER * 1_000)}")
                self._patience = _LATER
            except sqlite3.Error as error:
                connection.close()
                raise self._fault(error) from error
            except BaseException:
                connection.close()
                raise
            self._identity = self._found()
            self._connection, self._pid, self._is_open = _keep(connection), os.getpid(), True

    def close(self) -> None:
        """Let go of the file. Idempotent; nothing in a process that only inherited it."""
        with self._lock:
            if self._pid == os.getpid():
                self._is_open = False
                self._disconnect()

    # --- using it -------------------------------------------------------------------------------------------------

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What ``work`` returns, which sees the file as it is at one moment.

        Raises:
            StoreError: naming the file and the cause.
        """
        with self._lock:
            return self._transact(self._connected(), work, "BEGIN")

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What ``work`` returns, which may change the file: all of it is committed, or nothing.

        Raises:
            StoreError: naming the file and the cause; nothing was changed.
        """
        with self._lock:
            return self._transact(self._connected(), work)

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T], begin: str = "BEGIN IMMEDIATE"
    ) -> _T:
        try:
            connection.execute(begin)
            result = work(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._fault(error) from error
        finally:
            if connection.in_transaction:
                # SQLite may have rolled back on its own account just now.
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        return result

    def _connected(self) -> sqlite3.Connection:
        if not self._is_open:
            raise StoreError(self.name, "it is not open")
        if self._pid != os.getpid():
            raise StoreError(self.name, "it was opened before a fork: the plugin has to be started in this process")
        # SQLite would write on into a file without a name, and all would be lost in silence.
        if self._found() != self._identity:
            raise StoreError(self.name, "the file was taken away or replaced while it was open")
        if self._connection is None:  # a fork has closed it
            self._connection = _keep(self._connect("rw", _LATER))
        return self._connection

    # --- connections --------------------------------------------------------------------------------------------

    def _connect(self, mode: str, patience: float) -> sqlite3.Connection:
        if self._found() in _inherited:
            raise StoreError(self.name, "this process was forked while a thread was busy with the file")
        address = f"{self._path.as_uri()}?mode={mode}"
        self._patience = patience
        connection = None
        try:
            connection = sqlite3.connect(
                address, uri=True, timeout=patience, isolation_level=None, check_same_thread=False
            )
            # A power failure may take the last of what was learned, and damages nothing.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG}")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise self._fault(error) from error
        return connection

    def _disconnect(self) -> None:
        """With the lock held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        end = time.monotonic() + _AT_START
        mode = ""
        while not mode:
            try:
                ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
            except sqlite3.OperationalError as error:
                # Of this lock SQLite does not wait for another's end.
                if not _is_busy(error) or time.monotonic() >= end:
                    raise
                threading.Event().wait(_PAUSE)
        if mode != "wal":
            raise StoreError(self.name, f"no write-ahead log is possible here (the journal mode stays {mode!r})")

    def _check_format(self, connection: sqlite3.Connection) -> int:
        """The format of the file; 0 for an empty one."""
        ((application,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        ((objects,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if application == version == objects == 0:
            return 0
        if application != self._application_id:
            raise StoreError(self.name, f"this is a database of another program, not {self._owner}; it was left alone")
        if version > len(self._migrations):
            known = len(self._migrations)
            raise StoreError(
                self.name,
                f"it was written by a newer ares (format {version}, this one knows {known}); it was left alone",
            )
        return int(version)

    def _check_content(self, connection: sqlite3.Connection) -> None:
        """Find out what is damaged, as far as that takes no time: 25 MB took 25 ms."""
        for statement in self._probe:
            connection.execute(statement).fetchall()
        if self._path.stat().st_size <= _CHECKED:
            ((said,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if said != "ok":
                raise StoreError(self.name, f"the file is damaged ({said})")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        # Looked at again under the lock: another process may be as far. Written each time, to prove that it can be.
        for statements in self._migrations[self._check_format(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self._application_id}")
        connection.execute(f"PRAGMA user_version = {len(self._migrations)}")

    # --- the place ------------------------------------------------------------------------------------------------

    def _check_place(self) -> None:
        """Name what SQLite would only call "unable to open"."""
        if not self._path.parent.is_dir():
            raise StoreError(self.name, f"there is no folder {str(self._path.parent)!r}")
        try:
            mode = self._path.stat().st_mode
        except FileNotFoundError:
            mode = None
        except (OSError, ValueError) as error:
            raise StoreError(self.name, f"the file cannot be looked at ({error})") from error
        if mode is not None and not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise StoreError(self.name, f"this is {kind}, not a database")
        for path, what in ((self._path, "the file"), (self._path.parent, "its folder")):
            if path.exists() and not os.access(path, os.W_OK):
                raise StoreError(self.name, f"{what} is read-only for this process")

    def _found(self) -> tuple[int, int]:
        """Device and inode of the file that is here now; zeros if there is none."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - each call of the plugin pays it
        except (OSError, ValueError):
            return (0, 0)
        return (found.st_dev, found.st_ino)

    def _fault(self, error: sqlite3.Error) -> StoreError:
        if _is_busy(error):
            return StoreError(self.name, f"locked by another connection for more than {self._patience:g} s")
        known = _MEANINGS.get(_code(error))
        text = str(error)
        if known is None and "no such module" in text:
            known = f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search ({text})"
            return StoreError(self.name, known)
        if known is None and text.startswith("no such table"):
            known = "the file is damaged"
        return StoreError(self.name, text if known is None else f"{known} ({text})")

    # --- forks ------------------------------------------------------------------------------------------------------

    def before_fork(self, until: float) -> bool:
        """Close the connection and keep the lock; False if what is under way does not end by then."""
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        if self._pid == os.getpid():
            self._disconnect()
        return True

    def after_fork(self) -> None:
        """In the parent: go on."""
        self._lock.release()

    def in_child(self, *, was_left_open: bool) -> None:
        """In the child: with a lock that nobody holds."""
        self._lock = threading.Lock()
        if was_left_open and self._connection is not None:
            _inherited.add(self._identity)


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in _BUSY


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 when the error did not come from SQLite."""
    extended: int = getattr(error, "sqlite_errorcode", 0) or 0
    return extended & 0xFF


def _keep(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Have only ``close`` close it: never the garbage collector of a process that inherited it."""
    # SQLite's reference to the function is out of the garbage collector's sight.
    connection.create_function("ares_kept_open", 0, functools.partial(id, connection))
    return connection


#: Guards the set below it; held for moments.
_registry = threading.Lock()
_files: Final["weakref.WeakSet[OwnFile]"] = weakref.WeakSet()
#: Those whose locks the forking thread holds, and those that it could not have.
_held: list[OwnFile] = []
_left_open: list[OwnFile] = []
#: In a child: the files whose connections it inherited all the same, so that it must not open them.
_inherited: set[tuple[int, int]] = set()


def _before() -> None:
    until = time.monotonic() + _FORK
    with _registry:
        files = list(_files)
    for file in files:
        (_held if file.before_fork(until) else _left_open).append(file)


def _in_parent() -> None:
    _left_open.clear()
    while _held:
        _held.pop().after_fork()


def _in_child() -> None:
    global _registry  # noqa: PLW0603 - the one it has may be held by a thread that is not here
    _registry = threading.Lock()
    for file in _held:
        file.in_child(was_left_open=False)
    for file in _left_open:
        file.in_child(was_left_open=True)
    _held.clear()
    _left_open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
