"""Rows of an ares schema: the statements that read and write them.

Those that write are a transaction each, in one round trip to the server, unless they say otherwise. What each of them
decides by is in the row that it locks, so that it decides by what was last committed: PostgreSQL looks again at a row
that it had to wait for. A lease is looked up only: whoever takes an execution over changes that one's own row.
"""
# ruff: noqa: S608 - statements are put together from this module's own constants; every value is a bound variable

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from psycopg.rows import TupleRow

from ares.journal.protocol import Claim, Entry, Lease, NewExecution, Owner, Request
from ares.stores._rules import ENDED
from ares.stores.postgres._server import Connection
from ares.stores.postgres._values import Numbers, Texts

#: What owners are notified by of requests; what is told is the number of the lease.
CHANNEL = "ares_requests"

_OWNER = "l.machine, l.boot, l.pid_namespace, l.pid, l.started, l.host, l.beats_every"
ENDED_TEXT = "('" + "', '".join(sorted(ENDED)) + "')"
#: A condition that always holds, and has the transaction not wait for the disk: for what does no harm when the server
#: forgets it in a crash that this process outlives.
_UNSYNCED = "(SELECT set_config('synchronous_commit', 'off', true)) = 'off'"


@attrs.define
class Held:
    """Where an execution stands in the database: its key, its newest entry, and who may write it.

    ``lease`` is that of the newest claim, None for none; ``holder`` is None unless that lease still stands.
    """

    key: int
    last_seq: int
    lease: int | None
    number: int
    holder: Lease | None


class Rows:
    """The statements, for one schema.

    Args:
        schema: Its name, quoted.
    """

    def __init__(self, schema: str) -> None:
        # Statements have values put in at %s, so that another % is written twice.
        self._schema = schema.replace("%", "%%")
        self._statements: dict[str, bytes] = {}

    def sql(self, statement: str) -> bytes:
        """A statement with its tables' schema; remembered, because psycopg knows what is prepared by its text."""
        found = self._statements.get(statement)
        if found is None:
            text = statement
            for table in ("leases", "executions", "entries", "requests"):
                text = text.replace(f"@{table}", f"{self._schema}.{table}")
            found = self._statements[statement] = text.encode()
        return found

    def _run(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> "Any":
        return connection.execute(self.sql(statement), values, binary=True)

    # --- entries ---

    def entries_after(self, connection: Connection, key: int, after: int, limit: int) -> list[Entry]:
        """At most ``limit`` entries with ``seq > after``, in order."""
        rows = self._run(
            connection,
            "SELECT seq, at, kind, path, body FROM @entries WHERE execution = %s AND seq > %s ORDER BY seq LIMIT %s",
            (key, after, limit),
        )
        return [Entry(*row) for row in rows.fetchall()]

    # --- claims ---

    def lock(self, connection: Connection, execution_id: str) -> Held | None:
        """Where one execution stands; within a transaction nobody else writes it or takes it from here on."""
        return self._held(connection, "e.id = %s", execution_id)

    def lock_key(self, connection: Connection, key: int) -> Held | None:
        """The same, by the execution's key."""
        return self._held(connection, "e.key = %s", key)

    def _held(self, connection: Connection, condition: str, value: Any) -> Held | None:
        row = self._run(
            connection,
            "SELECT e.key, e.last_seq, e.claim_lease, e.claim_number FROM @executions e"
            f" WHERE {condition} FOR NO KEY UPDATE",
            (value,),
        ).fetchone()
        if row is None:
            return None
        # Only now: what waited for the lock sees what was committed meanwhile with its next statement.
        key, last_seq, lease, number = row
        return Held(key, last_seq, lease, number, None if lease is None else self.lease(connection, lease))

    def set_claim(self, connection: Connection, key: int, lease: int, number: int) -> None:
        """Note who may write an execution."""
        self._run(
            connection,
            "UPDATE @executions SET claim_lease = %s, claim_number = %s WHERE key = %s",
            (lease, number, key),
        )

    def release_claim(self, connection: Connection, claim: Claim) -> None:
        """Give a claim back, if it is still the newest one."""
        self._run(
            connection,
            "UPDATE @executions SET claim_lease = NULL WHERE key = %s AND claim_lease = %s AND claim_number = %s",
            (claim.key, claim.lease, claim.number),
        )

    # --- leases ---

    def insert_lease(self, connection: Connection, owner: Owner) -> int:
        """Insert a lease and return its number."""
        row = self._run(
            connection,
            "INSERT INTO @leases (counter, beaten_at, machine, boot, pid_namespace, pid, started, host, beats_every)"
            " VALUES (0, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING number",
            (time.time_ns(), *attrs.astuple(owner)),
        ).fetchone()
        return int(row[0])

    def beat(self, connection: Connection, lease: int) -> bool:
        """Raise a lease's counter; False when it is not there."""
        done = self._run(
            connection,
            f"UPDATE @leases SET counter = counter + 1, beaten_at = %s WHERE number = %s AND {_UNSYNCED}",
            (time.time_ns(), lease),
        )
        return bool(done.rowcount == 1)

    def end_lease(self, connection: Connection, lease: int) -> None:
        """Delete a lease and give back every claim under it."""
        self._run(
            connection,
            "WITH freed AS (UPDATE @executions SET claim_lease = NULL WHERE claim_lease = %s)"
            f" DELETE FROM @leases WHERE number = %s AND {_UNSYNCED}",
            (lease, lease),
        )

    def forget_lease(self, connection: Connection, lease: int) -> None:
        """Delete a lease whose process is gone. The claims under it stand for nothing from here on, but keep its
        number: nobody gave them back, and whoever takes one is to know it."""
        self._run(connection, "DELETE FROM @leases WHERE number = %s", (lease,))

    def forget_lease_at(self, connection: Connection, lease: Lease) -> None:
        """The same, unless its counter was raised since it was seen."""
        self._run(connection, "DELETE FROM @leases WHERE number = %s AND counter = %s", (lease.number, lease.counter))

    def lease(self, connection: Connection, number: int) -> Lease | None:
        """A lease, if it stands."""
        found = self._leases(connection, "WHERE l.number = %s", (number,))
        return found[0] if found else None

    def leases(self, connection: Connection) -> list[Lease]:
        """Every lease, in the order of their numbers."""
        return self._leases(connection, "ORDER BY l.number", ())

    def _leases(self, connection: Connection, condition: str, values: Sequence[Any]) -> list[Lease]:
        rows = self._run(connection, f"SELECT l.number, l.counter, {_OWNER} FROM @leases l {condition}", values)
        return [Lease(number, counter, Owner(*owner)) for number, counter, *owner in rows.fetchall()]

    # --- executions ---

    def insert_execution(
        self, connection: Connection, new: NewExecution, lease: int | None, status: str, entries: Sequence[Entry]
    ) -> int | None:
        """Insert an execution with its first entries; its key, or None if its id is taken or there is no such lease."""
        last = entries[-1].at if entries else new.created_at
        row = self._run(
            connection,
            f"""WITH made AS (
                INSERT INTO @executions (last_seq, updated_at, ended_at, claim_lease, claim_number, created_at, status,
                    error, id, workflow_id, workflow_version, parent_id, metadata)
                SELECT %s, %s, CASE WHEN %s::text IN {ENDED_TEXT} THEN %s END, %s, %s, %s, %s, '', %s, %s, %s, %s, %s
                WHERE %s::bigint IS NULL OR EXISTS (SELECT 1 FROM @leases WHERE number = %s)
                ON CONFLICT (id) DO NOTHING RETURNING key
            ), written AS (
                INSERT INTO @entries (execution, seq, at, kind, path, body)
                SELECT made.key, n.seq, n.at, n.kind, n.path, n.body
                FROM made, unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
                    AS n (nothing, seq, at, kind, path, body)
            ) SELECT key FROM made""",
            (
                len(entries), last, status, last, lease, 0 if lease is None else 1, new.created_at, status,
                new.execution_id, new.workflow_id, new.workflow_version, new.parent_id, json.dumps(dict(new.metadata)),
                lease, lease, *columns([(0, entry) for entry in entries]),
            ),
        ).fetchone()  # fmt: skip
        return None if row is None else int(row[0])

    def status_of(self, connection: Connection, execution_id: str) -> tuple[str, int] | None:
        """Status and creation time of an execution, if there is one."""
        row: tuple[str, int] | None = self._run(
            connection, "SELECT status, created_at FROM @executions WHERE id = %s", (execution_id,)
        ).fetchone()
        return row

    def key_of(self, connection: Connection, execution_id: str) -> int | None:
        """The key of an execution, if there is one."""
        row = self._run(connection, "SELECT key FROM @executions WHERE id = %s", (execution_id,)).fetchone()
        return None if row is None else int(row[0])

    def execution(self, connection: Connection, execution_id: str) -> TupleRow | None:
        """The raw row of one execution, for ``Listing.row``."""
        row: TupleRow | None = self._run(connection, f"{_EXECUTION} WHERE e.id = %s", (execution_id,)).fetchone()
        return row

    def executions_before(
        self,
        connection: Connection,
        *,
        before: int | None,
        statuses: Sequence[str] | None,
        workflow_id: str | None,
        limit: int,
    ) -> list[TupleRow]:
        """At most ``limit`` raw rows, newest first, older than the one of key ``before``."""
        conditions: list[str] = ["true"]
        values: list[Any] = []
        if before is not None:
            conditions.append("e.key < %s")
            values.append(before)
        if statuses is not None:
            conditions.append("e.status = ANY(%s::text[])")
            values.append(Texts(statuses))
            if ENDED.isdisjoint(statuses):
                conditions.append("e.ended_at IS NULL")  # there is an index of those: most have ended
        if workflow_id is not None:
            conditions.append("e.workflow_id = %s")
            values.append(workflow_id)
        rows: list[TupleRow] = self._run(
            connection,
            f"{_EXECUTION} WHERE {' AND '.join(conditions)} ORDER BY e.key DESC LIMIT %s",
            (*values, limit),
        ).fetchall()
        return rows

    # --- requests ---

    def requests_of(self, connection: Connection, lease: int, after: int) -> list[Request]:
        """The open requests of what a lease claims."""
        rows = self._run(
            connection,
            f"""SELECT r.number, e.id, r.kind, r.body, coalesce(r.name, '') FROM @requests r
            JOIN @executions e ON e.key = r.execution JOIN @leases l ON l.number = e.claim_lease
            WHERE e.claim_lease = %s AND r.number > %s AND NOT r.is_done AND e.status NOT IN {ENDED_TEXT}
            ORDER BY r.number""",
            (lease, after),
        )
        return [Request(*row) for row in rows.fetchall()]

    def names_of_requests(self, connection: Connection, key: int) -> frozenset[str]:
        """The names of the requests that were left for an execution, carried out or not."""
        rows = self._run(connection, "SELECT name FROM @requests WHERE execution = %s AND name IS NOT NULL", (key,))
        return frozenset(name for (name,) in rows.fetchall())

    def insert_request(
        self, connection: Connection, execution_id: str, kind: str, body: str, name: str, left: tuple[str, int]
    ) -> bool | None:
        """Leave a request, and notify the owner of the execution. False if that has ended or one of that name was left
        before, None if there is no such execution. ``left`` tells by whom, and apart from all else they leave."""
        found, done, _ = self._run(
            connection,
            f"""WITH target AS (
                SELECT key, status, claim_lease FROM @executions WHERE id = %s FOR SHARE
            ), made AS (
                INSERT INTO @requests (execution, at, kind, body, name, name_hash, is_done, left_by, left_as)
                SELECT key, %s, %s, %s, %s, %s, false, %s, %s FROM target WHERE status NOT IN {ENDED_TEXT}
                ON CONFLICT (execution, name_hash) WHERE name_hash IS NOT NULL DO NOTHING RETURNING number
            ), told AS (
                SELECT pg_notify('{CHANNEL}', claim_lease::text) FROM target, made WHERE claim_lease IS NOT NULL
            ) SELECT (SELECT count(*) FROM target), (SELECT count(*) FROM made), (SELECT count(*) FROM told)""",
            (execution_id, time.time_ns(), kind, body, name or None, _hash(name) if name else None, *left),
        ).fetchone()
        return bool(done) if found else None

    def has_request(self, connection: Connection, left: tuple[str, int]) -> bool:
        """Whether a request was left that tells so."""
        found = self._run(connection, "SELECT 1 FROM @requests WHERE left_by = %s AND left_as = %s", left)
        return found.fetchone() is not None

    def close_request(self, connection: Connection, number: int) -> None:
        """A request is carried out: forget all but the name of one that has a name."""
        self._run(
            connection,
            "WITH gone AS (DELETE FROM @requests WHERE number = %s AND name IS NULL)"
            " UPDATE @requests SET is_done = true, body = ''"
            f" WHERE number = %s AND name IS NOT NULL AND {_UNSYNCED}",
            (number, number),
        )

    def stamp_of_requests(self, connection: Connection, left_by: str) -> tuple[Any, ...]:
        """Something that changes with the open requests of others than ``left_by``."""
        row: tuple[Any, ...] = self._run(
            connection,
            "SELECT count(*), hashtextextended(string_agg(number::text, ',' ORDER BY number), 0)"
            " FROM @requests WHERE NOT is_done AND left_by <> %s",
            (left_by,),
        ).fetchone()
        return row

    # --- upkeep ---

    def lock_ended(self, connection: Connection, before: int, above: int, limit: int) -> list[tuple[int, Owner | None]]:
        """Keys above one of executions that ended before an instant, in order, with the owner of a claim that stands;
        locked, but for those that somebody else has locked."""
        rows = self._run(
            connection,
            f"""SELECT e.key, l.number, {_OWNER} FROM @executions e LEFT JOIN @leases l ON l.number = e.claim_lease
            WHERE e.key > %s AND e.ended_at < %s AND e.status IN {ENDED_TEXT}
            ORDER BY e.key LIMIT %s FOR UPDATE OF e SKIP LOCKED""",
            (above, before, limit),
        )
        return [(key, None if lease is None else Owner(*owner)) for key, lease, *owner in rows.fetchall()]

    def delete_executions(self, connection: Connection, keys: Iterable[int]) -> None:
        """Delete executions with all that belongs to them."""
        doomed = Numbers(keys)
        for table, column in (("entries", "execution"), ("requests", "execution"), ("executions", "key")):
            self._run(connection, f"DELETE FROM @{table} WHERE {column} = ANY(%s::bigint[])", (doomed,))

    def vacuum(self, connection: Connection) -> None:
        """Rewrite the tables without their free space; not within a transaction, and on a connection of its own."""
        connection.execute(b"SET statement_timeout = 0")
        self._run(connection, "VACUUM (FULL, ANALYZE) @leases, @executions, @entries, @requests")


_EXECUTION = f"""SELECT e.key, e.id, e.workflow_id, e.workflow_version, e.status, e.parent_id, e.metadata, e.created_at,
    e.ended_at, e.error, e.last_seq, e.updated_at,
    (SELECT count(*) FROM @requests WHERE execution = e.key AND NOT is_done AND e.status NOT IN {ENDED_TEXT}),
    l.number, l.beaten_at, {_OWNER}
    FROM @executions e LEFT JOIN @leases l ON l.number = e.claim_lease"""


def columns(entries: Sequence[tuple[int, Entry]]) -> tuple[Numbers, Numbers, Numbers, Texts, Texts, Texts]:
    """Entries of executions as the columns of their table."""
    return (
        Numbers([key for key, _ in entries]),
        Numbers([entry.seq for _, entry in entries]),
        Numbers([entry.at for _, entry in entries]),
        Texts([entry.kind for _, entry in entries]),
        Texts([entry.path for _, entry in entries]),
        Texts([entry.body for _, entry in entries]),
    )


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
