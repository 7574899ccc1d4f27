"""Appends of many executions in one transaction: which of them still have the right, what of them is new, what is bad.

Runs within a transaction that somebody else holds. A chain pays for this at every step, which is why it is written for
one append of one entry first, and for many by the way.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence

from ares.errors import StoreError
from ares.journal.protocol import Append, Entry
from ares.stores._rules import ENDED, lost, unstored
from ares.stores.sqlite import _faults, _rows


def write_at_once(connection: sqlite3.Connection, appends: Sequence[Append]) -> bool:
    """Write what one execution has to say, if it is little and changes nothing else, by one statement, which is a
    transaction of its own. That lets go of the interpreter lock once where ``write`` does four times, and beside a busy
    thread each time costs a switch.

    Returns:
        False, and nothing was written, where that will not do: ``write`` then finds out why.
    """
    claim = appends[0].claim
    entries: list[Entry] = []
    for append in appends:
        if append.claim is not claim or append.status is not None:
            return False
        entries += append.entries
    count = len(entries)
    if not 0 < count <= _rows.AT_ONCE or entries[-1].seq - entries[0].seq != count - 1:
        return False
    return _rows.insert_at_once(connection, claim, entries)


def write(connection: sqlite3.Connection, store: str, appends: Sequence[Append]) -> list[Exception | None]:
    """Write all that have the right to be; one result each. A bad row raises what SQLite makes of it."""
    results, fresh = _admit(connection, store, appends)
    _rows.insert_entries(connection, zip(appends, fresh, strict=True))
    for append, result in zip(appends, results, strict=True):
        if append.status is not None and result is None:
            set_status(connection, append)
    return results


def write_carefully(connection: sqlite3.Connection, store: str, appends: Sequence[Append]) -> list[Exception | None]:
    """The same, but a bad row is refused alone, with what follows it in its execution and would leave a hole."""
    results, fresh = _admit(connection, store, appends)
    bad: dict[int, StoreError] = {}
    for index, (append, entries) in enumerate(zip(appends, fresh, strict=True)):
        if results[index] is not None:
            continue
        if append.claim.key in bad:
            results[index] = bad[append.claim.key]
            continue
        connection.execute("SAVEPOINT one")
        try:
            _rows.insert_entries(connection, [(append, entries)])
            if append.status is not None:
                set_status(connection, append)
        except _faults.ROW_FAULTS as error:
            connection.execute("ROLLBACK TO one")
            refused = StoreError(store, _faults.meaning(error, 0.0), append.claim.execution_id)
            refused.__cause__ = error
            results[index] = bad[append.claim.key] = refused
        connection.execute("RELEASE one")
    return results


def set_status(connection: sqlite3.Connection, append: Append) -> None:
    """Note what an execution comes to by an append; what is asked of one that has ended is moot."""
    status = append.status or ""
    ended_at = None
    if status in ENDED:
        ended_at = append.entries[-1].at if append.entries else time.time_ns()
        _rows.delete_requests_of(connection, append.claim.key)
    _rows.set_status(connection, append.claim.key, status, append.error, ended_at)


def _admit(
    connection: sqlite3.Connection, store: str, appends: Sequence[Append]
) -> tuple[list[Exception | None], list[Sequence[Entry]]]:
    """Of each append: why it is refused, and what of it is not stored yet."""
    keys = [append.claim.key for append in appends]
    held = _rows.held(connection, keys if len(keys) == 1 else list(dict.fromkeys(keys)))
    results: list[Exception | None] = []
    fresh: list[Sequence[Entry]] = []
    for append in appends:
        claim = append.claim
        found = held.get(claim.key)
        result: Exception | None = None
        entries: Sequence[Entry] = ()
        if found is None or not found.lease or found.number != claim.number or found.lease != claim.lease:
            result = lost(store, claim.execution_id)
        else:
            entries, last_seq = append.entries, found.last_seq
            found.last_seq += len(entries)
            if entries and (entries[0].seq != last_seq + 1 or entries[-1].seq != found.last_seq):
                try:
                    entries = unstored(store, append, last_seq, _stored(connection, claim.key))
                except StoreError as refused:
                    result, entries = refused, ()
                found.last_seq = last_seq + len(entries)
        results.append(result)
        fresh.append(entries)
    return results, fresh


def _stored(connection: sqlite3.Connection, key: int) -> Callable[[int, int], Iterable[Entry]]:
    return lambda first, last: _rows.entries_after(connection, key, first - 1, last - first + 1)
