"""What SQLite's errors mean to somebody who only knows the file's name."""

import sqlite3

#: What a value of one row can do wrong. The statement has no effect then, and its transaction goes on.
ROW_FAULTS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_MAY_BE_ONE_ROWS = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT}
)
_MEANINGS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file, or one that belongs to it, cannot be opened",
    sqlite3.SQLITE_IOERR: "reading or writing failed",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can store",
}


def code(error: BaseException) -> int:
    """SQLite's primary result code; 0 when the error did not come from SQLite."""
    extended: int = getattr(error, "sqlite_errorcode", 0) or 0
    return extended & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection's lock is in the way."""
    return code(error) in _BUSY


def may_be_one_rows(error: BaseException | None) -> bool:
    """Whether a transaction may have failed for the sake of one of its rows: the others are worth another try."""
    return error is not None and code(error) in _MAY_BE_ONE_ROWS


def meaning(error: Exception, waited: float) -> str:
    """The error in words; ``waited`` is how many seconds a lock was waited for."""
    if is_busy(error):
        return f"locked by another connection for more than {waited:g} s"
    if isinstance(error, UnicodeEncodeError):
        return f"a lone surrogate cannot be stored, in {error.object[:80]!r}"
    known = _MEANINGS.get(code(error))
    if known is None:
        return str(error)
    return f"{known} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
