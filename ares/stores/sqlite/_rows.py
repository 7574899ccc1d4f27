"""Rows of an ares file: the statements that read and write them, within a transaction that somebody else holds.

Batches are written with one INSERT for many rows: a statement lets go of the interpreter lock once, and beside a busy
thread each time costs a switch.
"""
# ruff: noqa: S608 - statements are put together from this module's own constants; every value is a bound variable

import functools
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ares.journal.protocol import Append, Claim, Entry, Lease, NewExecution, Owner, Request
from ares.stores._rules import ENDED

#: Rows of one INSERT: 6 values each, within the 999 variables that every build of SQLite allows. More rows at once save
#: nothing any more.
_ROWS = 128
_WIDTH = 6 * _ROWS
#: Entries of one execution that are checked and written by one statement.
AT_ONCE = 8
#: Executions asked for in one SELECT.
_KEYS = 256

_OWNER = "l.machine, l.boot, l.pid_namespace, l.pid, l.started, l.host, l.beats_every"
_LAST = "(SELECT seq FROM entries WHERE execution = e.key ORDER BY seq DESC LIMIT 1)"
_EXECUTION = f"""SELECT e.key, e.id, e.workflow_id, e.workflow_version, e.status, e.parent_id, e.metadata, e.created_at,
    e.ended_at, e.error, {_LAST}, (SELECT at FROM entries WHERE execution = e.key ORDER BY seq DESC LIMIT 1),
    (SELECT count(*) FROM requests WHERE execution = e.key AND NOT is_done), l.number, l.beaten_at, {_OWNER}
    FROM executions e LEFT JOIN leases l ON l.number = e.claim_lease"""


class Held:
    """Where an execution stands in the database: its key, its newest entry, and who may write it."""

    __slots__ = ("holder", "is_orphan", "key", "last_seq", "lease", "number")

    def __init__(self, key: int, last_seq: int, lease: int, number: int, holder: Lease | None) -> None:
        self.key = key
        self.last_seq = last_seq
        #: The lease of the newest claim, 0 for none; ``holder`` is None unless that lease still stands.
        self.lease = lease
        self.number = number
        self.holder = holder
        #: Whether its newest claim was never given back, and its lease is gone with its process.
        self.is_orphan = False


# --- entries ---


@functools.lru_cache(maxsize=_ROWS)
def _insert(rows: int) -> str:
    return "INSERT INTO entries (execution, seq, at, kind, path, body) VALUES " + ",".join(["(?,?,?,?,?,?)"] * rows)


@functools.lru_cache(maxsize=AT_ONCE)
def _insert_at_once(rows: int) -> str:
    return f"""INSERT INTO entries (execution, seq, at, kind, path, body)
        SELECT * FROM (VALUES {",".join(["(?,?,?,?,?,?)"] * rows)}) WHERE EXISTS (
            SELECT 1 FROM executions e JOIN leases l ON l.number = e.claim_lease
            WHERE e.key = ? AND e.claim_lease = ? AND e.claim_number = ? AND coalesce({_LAST}, 0) = ?)"""


def insert_at_once(connection: sqlite3.Connection, claim: Claim, entries: Sequence[Entry]) -> bool:
    """Insert entries of one execution if its claim stands and they follow its newest one; all, or none and False."""
    values: list[Any] = []
    key = claim.key
    for entry in entries:
        values += (key, entry.seq, entry.at, entry.kind, entry.path, entry.body)
    values += (key, claim.lease, claim.number, entries[0].seq - 1)
    return connection.execute(_insert_at_once(len(entries)), values).rowcount == len(entries)


def insert_entries(connection: sqlite3.Connection, batch: Iterable[tuple[Append, Sequence[Entry]]]) -> None:
    """Insert entries of many executions, each under its append's claim."""
    values: list[Any] = []
    for append, entries in batch:
        key = append.claim.key
        for entry in entries:
            values += (key, entry.seq, entry.at, entry.kind, entry.path, entry.body)
    if len(values) <= _WIDTH:
        if values:
            connection.execute(_insert(len(values) // 6), values)
        return
    for start in range(0, len(values), _WIDTH):
        chunk = values[start : start + _WIDTH]
        connection.execute(_insert(len(chunk) // 6), chunk)


def entries_after(connection: sqlite3.Connection, key: int, after: int, limit: int) -> list[Entry]:
    """At most ``limit`` entries with ``seq > after``, in order."""
    rows = connection.execute(
        "SELECT seq, at, kind, path, body FROM entries WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?",
        (key, after, limit),
    ).fetchall()
    return [Entry(*row) for row in rows]


# --- claims ---


def held(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, Held]:
    """Where the executions of these keys stand; the holder is not looked up."""
    found: dict[int, Held] = {}
    if len(keys) == 1:  # a chain's every step
        for key, lease, number, last_seq in connection.execute(_select_held(1), keys):
            found[key] = Held(key, last_seq or 0, lease or 0, number, None)
        return found
    for start in range(0, len(keys), _KEYS):
        chunk = list(keys[start : start + _KEYS])
        # A few lengths only, so that the statements stay prepared; asking for a key twice changes nothing.
        chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))
        for key, lease, number, last_seq in connection.execute(_select_held(len(chunk)), chunk).fetchall():
            found[key] = Held(key, last_seq or 0, lease or 0, number, None)
    return found


@functools.lru_cache(maxsize=16)
def _select_held(keys: int) -> str:
    # The lease counts only while it is there itself.
    marks = ",".join("?" * keys)
    return f"""SELECT e.key, l.number, e.claim_number, {_LAST}
        FROM executions e LEFT JOIN leases l ON l.number = e.claim_lease WHERE e.key IN ({marks})"""


def held_by_id(connection: sqlite3.Connection, execution_id: str) -> Held | None:
    """Where one execution stands, with the holder of its claim."""
    row = connection.execute(
        f"""SELECT e.key, {_LAST}, l.number, e.claim_number, e.claim_lease, l.counter, {_OWNER}
        FROM executions e LEFT JOIN leases l ON l.number = e.claim_lease WHERE e.id = ?""",
        (execution_id,),
    ).fetchone()
    if row is None:
        return None
    key, last_seq, lease, number, claimed_by, counter, *owner = row
    holder = None if lease is None else Lease(lease, counter, Owner(*owner))
    found = Held(key, last_seq or 0, lease or 0, number, holder)
    found.is_orphan = claimed_by is not None and lease is None
    return found


def set_claim(connection: sqlite3.Connection, held: Held) -> None:
    """Note who may write an execution."""
    connection.execute(
        "UPDATE executions SET claim_lease = ?, claim_number = ? WHERE key = ?", (held.lease, held.number, held.key)
    )


def release_claim(connection: sqlite3.Connection, claim: Claim) -> None:
    """Give a claim back, if it is still the newest one."""
    connection.execute(
        "UPDATE executions SET claim_lease = NULL WHERE key = ? AND claim_lease = ? AND claim_number = ?",
        (claim.key, claim.lease, claim.number),
    )


# --- leases ---


def insert_lease(connection: sqlite3.Connection, owner: Owner) -> int:
    """Insert a lease and return its number."""
    cursor = connection.execute(
        "INSERT INTO leases (counter, beaten_at, machine, boot, pid_namespace, pid, started, host, beats_every)"
        " VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?)",
        (time.time_ns(), *attrs.astuple(owner)),
    )
    return int(cursor.lastrowid or 0)


def beat(connection: sqlite3.Connection, lease: int) -> bool:
    """Raise the counter of a lease; False when it is not there."""
    done = connection.execute(
        "UPDATE leases SET counter = counter + 1, beaten_at = ? WHERE number = ?", (time.time_ns(), lease)
    )
    return done.rowcount == 1


def end_lease(connection: sqlite3.Connection, lease: int) -> None:
    """Delete a lease and give back every claim under it."""
    connection.execute("UPDATE executions SET claim_lease = NULL WHERE claim_lease = ?", (lease,))
    forget_lease(connection, lease)


def forget_lease(connection: sqlite3.Connection, lease: int) -> None:
    """Delete a lease whose process is gone. The claims under it stand for nothing from here on, but keep its number:
    nobody gave them back, and whoever takes one is to know it."""
    connection.execute("DELETE FROM leases WHERE number = ?", (lease,))


def forget_lease_at(connection: sqlite3.Connection, lease: Lease) -> None:
    """The same, unless its counter was raised since it was seen."""
    connection.execute("DELETE FROM leases WHERE number = ? AND counter = ?", (lease.number, lease.counter))


def has_lease(connection: sqlite3.Connection, lease: int) -> bool:
    """Whether a lease stands."""
    return connection.execute("SELECT 1 FROM leases WHERE number = ?", (lease,)).fetchone() is not None


def leases(connection: sqlite3.Connection) -> list[Lease]:
    """Every lease, in the order of their numbers."""
    rows = connection.execute(f"SELECT l.number, l.counter, {_OWNER} FROM leases l ORDER BY l.number").fetchall()
    return [Lease(number, counter, Owner(*owner)) for number, counter, *owner in rows]


# --- executions ---


def insert_execution(connection: sqlite3.Connection, new: NewExecution, lease: int | None) -> int:
    """Insert an execution without a status, claimed for the first time if there is a lease; returns its key."""
    cursor = connection.execute(
        "INSERT INTO executions (id, workflow_id, workflow_version, parent_id, metadata, created_at, status, error,"
        " ended_at, claim_lease, claim_number) VALUES (?, ?, ?, ?, ?, ?, '', '', NULL, ?, ?)",
        (
            new.execution_id,
            new.workflow_id,
            new.workflow_version,
            new.parent_id,
            json.dumps(dict(new.metadata)),
            new.created_at,
            lease,
            0 if lease is None else 1,
        ),
    )
    return int(cursor.lastrowid or 0)


def status_of(connection: sqlite3.Connection, execution_id: str) -> tuple[str, int] | None:
    """Status and creation time of an execution, if there is one."""
    row: tuple[str, int] | None = connection.execute(
        "SELECT status, created_at FROM executions WHERE id = ?", (execution_id,)
    ).fetchone()
    return row


def set_status(connection: sqlite3.Connection, key: int, status: str, error: str, ended_at: int | None) -> None:
    """Note what an execution has come to."""
    # An error's text is for reading: what UTF-8 has no form for is shown escaped rather than refused.
    text = error.encode("utf-8", "backslashreplace").decode("utf-8")
    connection.execute(
        "UPDATE executions SET status = ?, error = ?, ended_at = ? WHERE key = ?", (status, text, ended_at, key)
    )


def execution_by_id(connection: sqlite3.Connection, execution_id: str) -> tuple[Any, ...] | None:
    """The raw row of one execution, for ``Listing.row``."""
    row: tuple[Any, ...] | None = connection.execute(f"{_EXECUTION} WHERE e.id = ?", (execution_id,)).fetchone()
    return row


def executions_before(
    connection: sqlite3.Connection,
    *,
    before: int | None,
    statuses: Sequence[str] | None,
    workflow_id: str | None,
    limit: int,
) -> list[tuple[Any, ...]]:
    """At most ``limit`` raw rows, newest first, older than the one of key ``before``."""
    conditions: list[str] = ["1"]
    values: list[Any] = []
    if before is not None:
        conditions.append("e.key < ?")
        values.append(before)
    if statuses is not None:
        conditions.append(f"e.status IN ({','.join('?' * len(statuses))})")
        values += statuses
        if ENDED.isdisjoint(statuses):
            conditions.append("e.ended_at IS NULL")  # there is an index of those: most have ended
    if workflow_id is not None:
        conditions.append("e.workflow_id = ?")
        values.append(workflow_id)
    return connection.execute(
        f"{_EXECUTION} WHERE {' AND '.join(conditions)} ORDER BY e.key DESC LIMIT ?", (*values, limit)
    ).fetchall()


# --- requests ---


def requests_of(connection: sqlite3.Connection, lease: int, after: int) -> list[Request]:
    """The open requests of what a lease claims."""
    rows = connection.execute(
        """SELECT r.number, e.id, r.kind, r.body, coalesce(r.name, '') FROM requests r
        JOIN executions e ON e.key = r.execution JOIN leases l ON l.number = e.claim_lease
        WHERE e.claim_lease = ? AND r.number > ? AND NOT r.is_done ORDER BY r.number""",
        (lease, after),
    ).fetchall()
    return [Request(*row) for row in rows]


def names_of_requests(connection: sqlite3.Connection, key: int) -> frozenset[str]:
    """The names of the requests that were left for an execution, carried out or not."""
    rows = connection.execute("SELECT name FROM requests WHERE execution = ? AND name IS NOT NULL", (key,))
    return frozenset(name for (name,) in rows)


def insert_request(connection: sqlite3.Connection, key: int, kind: str, body: str, name: str) -> bool:
    """Leave a request; False if one of that name was left before."""
    done = connection.execute(
        "INSERT OR IGNORE INTO requests (execution, kind, body, at, name) VALUES (?, ?, ?, ?, ?)",
        (key, kind, body, time.time_ns(), name or None),
    )
    return done.rowcount == 1


def delete_requests_of(connection: sqlite3.Connection, key: int) -> None:
    """Forget what was asked of an execution."""
    connection.execute("DELETE FROM requests WHERE execution = ?", (key,))


def close_request(connection: sqlite3.Connection, number: int) -> None:
    """A request is carried out: forget all but the name of one that has a name. Its number is not given out again."""
    connection.execute("DELETE FROM requests WHERE number = ? AND name IS NULL", (number,))
    connection.execute("UPDATE requests SET is_done = 1, body = '' WHERE number = ?", (number,))


# --- what is pruned ---


def ended_before(
    connection: sqlite3.Connection, before: int, statuses: Iterable[str], above: int, limit: int
) -> list[tuple[int, Owner | None]]:
    """Keys above one of executions that ended before an instant, in order, with the owner of a claim that stands."""
    ended = list(statuses)
    rows = connection.execute(
        f"""SELECT e.key, l.number, {_OWNER} FROM executions e LEFT JOIN leases l ON l.number = e.claim_lease
        WHERE e.key > ? AND e.ended_at < ? AND e.status IN ({",".join("?" * len(ended))}) ORDER BY e.key LIMIT ?""",
        (above, before, *ended, limit),
    ).fetchall()
    return [(key, None if lease is None else Owner(*owner)) for key, lease, *owner in rows]


def doom(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Delete executions but for their entries, which ``delete_entries`` is told to fetch."""
    for key in keys:
        connection.execute("INSERT INTO pruned (execution) VALUES (?)", (key,))
        connection.execute("DELETE FROM requests WHERE execution = ?", (key,))
        connection.execute("DELETE FROM executions WHERE key = ?", (key,))


def delete_entries(connection: sqlite3.Connection, limit: int) -> bool:
    """Delete at most ``limit`` entries of doomed executions; False when none is left."""
    while limit > 0:
        row = connection.execute("SELECT execution FROM pruned LIMIT 1").fetchone()
        if row is None:
            return False
        (key,) = row
        seqs = connection.execute(
            "SELECT seq FROM entries WHERE execution = ? ORDER BY seq LIMIT ?", (key, limit)
        ).fetchall()
        if seqs:
            connection.execute("DELETE FROM entries WHERE execution = ? AND seq <= ?", (key, seqs[-1][0]))
        if len(seqs) < limit:
            connection.execute("DELETE FROM pruned WHERE execution = ?", (key,))
        limit -= max(1, len(seqs))
    return True
