"""Appends of many executions in one transaction: which of them still have the right, what of them is new, what is bad.

All that is in order goes by one statement, in one round trip. What that leaves out is looked at append by append, each
in a transaction of its own: there it is found out why, and what a repeated append has stored already.
"""

# ruff: noqa: S608 - statements are put together from constants; every value is a bound variable

import functools
import time
from collections.abc import Sequence

import attrs

from ares.errors import StoreError
from ares.journal.protocol import Append, Claim, Entry
from ares.stores._rules import lost, unstored
from ares.stores.postgres import _faults
from ares.stores.postgres._rows import ENDED_TEXT, Rows, columns
from ares.stores.postgres._server import Connection, Server
from ares.stores.postgres._values import Numbers, Texts


@attrs.frozen
class Group:
    """What one execution has to say in one transaction: entries that follow each other, and the status they lead to
    ("" for none). ``at`` is the newest entry's time, or now."""

    claim: Claim
    entries: Sequence[Entry]
    status: str
    error: str
    at: int


def append(server: Server, rows: Rows, appends: Sequence[Append]) -> Sequence[Exception | None]:
    """Write all that have the right to be; one result each. Raises what is at the fault of none of them."""
    groups = _groups(appends)
    try:
        written = server.run(functools.partial(_write, rows, list(groups.values())))
    except StoreError as error:
        cause = error.__cause__
        if not _faults.may_be_one_rows(cause) or (len(appends) == 1 and not _faults.is_one_rows(cause)):
            raise
        results = _append_each(server, rows, appends)
        if all(result is not None and _faults.may_be_one_rows(result.__cause__) for result in results) and not any(
            result is not None and _faults.is_one_rows(result.__cause__) for result in results
        ):
            raise
        return results
    left_out = [one for one in appends if one.claim.key not in written]
    if not left_out:
        return [None] * len(appends)
    found = iter(_append_each(server, rows, left_out))
    return [None if one.claim.key in written else next(found) for one in appends]


def _groups(appends: Sequence[Append]) -> dict[int, Group]:
    """What can be written at once, by the keys of the executions."""
    groups: dict[int, Group] = {}
    odd: set[int] = set()
    for one in appends:
        key, entries = one.claim.key, one.entries
        before = groups.get(key)
        if entries and entries[-1].seq - entries[0].seq != len(entries) - 1:
            odd.add(key)
        elif before is None:
            groups[key] = _group(one, entries)
        elif before.claim == one.claim and not before.status and _follow(before.entries, entries):
            groups[key] = _group(one, [*before.entries, *entries])
        else:
            odd.add(key)
    for key in odd:
        groups.pop(key, None)
    return groups


def _group(last: Append, entries: Sequence[Entry]) -> Group:
    at = entries[-1].at if entries else time.time_ns()
    return Group(last.claim, entries, last.status or "", last.error, at)


def _follow(before: Sequence[Entry], entries: Sequence[Entry]) -> bool:
    return bool(before) and (not entries or entries[0].seq == before[-1].seq + 1)


def _append_each(server: Server, rows: Rows, appends: Sequence[Append]) -> list[Exception | None]:
    """One transaction each; what follows a refused append in its execution shares its fate."""
    results: list[Exception | None] = []
    refused: dict[int, Exception] = {}
    for one in appends:
        key = one.claim.key
        result = refused.get(key)
        if result is None:
            try:
                result = server.run(functools.partial(_append_one, rows, server.name, one))
            except StoreError as error:
                result = StoreError(server.name, error.problem, one.claim.execution_id)
                result.__cause__ = error.__cause__
        if result is not None:
            refused[key] = result
        results.append(result)
    return results


def _append_one(rows: Rows, store: str, one: Append, connection: Connection) -> StoreError | None:
    """Write one append if it has the right to be; why not."""
    claim = one.claim
    with connection.transaction():
        held = rows.lock_key(connection, claim.key)
        if held is None or held.holder is None or (held.lease, held.number) != (claim.lease, claim.number):
            return lost(store, claim.execution_id)

        def stored(first: int, last: int) -> Sequence[Entry]:
            return rows.entries_after(connection, claim.key, first - 1, last - first + 1)

        try:
            fresh = unstored(store, one, held.last_seq, stored)
        except StoreError as error:
            return error
        at = one.entries[-1].at if one.entries else time.time_ns()
        group = Group(claim, fresh, one.status or "", one.error, at)
        if not _write(rows, [group], connection):
            return lost(store, claim.execution_id)
    return None


def _write(rows: Rows, groups: Sequence[Group], connection: Connection) -> set[int]:
    """Write the entries and statuses of many executions, each if its claim stands and they follow its newest entry.

    Returns:
        The keys of those that were written.
    """
    values = (
        Numbers([group.claim.key for group in groups]),
        Numbers([group.claim.lease for group in groups]),
        Numbers([group.claim.number for group in groups]),
        Numbers([group.entries[0].seq if group.entries else 0 for group in groups]),
        Numbers([len(group.entries) for group in groups]),
        Numbers([group.at for group in groups]),
        Texts([group.status for group in groups]),
        Texts([group.error for group in groups]),
        *columns([(group.claim.key, entry) for group in groups for entry in group.entries]),
    )
    statement = rows.sql(_statement(is_told=any(group.status for group in groups)))
    return {key for (key,) in connection.execute(statement, values, binary=True, prepare=True).fetchall()}


@functools.lru_cache
def _statement(*, is_told: bool) -> str:
    """The statement that appends; ``is_told`` when it brings statuses, too.

    Whatever is asked of an execution goes when that ends. A request that is committed while the end waits for it is not
    seen from here: it is not shown while the execution has ended, and goes when it is reopened.
    """
    status = f""", status = CASE g.status WHEN '' THEN e.status ELSE g.status END,
            error = CASE g.status WHEN '' THEN e.error ELSE g.error END,
            ended_at = CASE WHEN g.status = '' THEN e.ended_at WHEN g.status IN {ENDED_TEXT} THEN g.at END"""
    forgotten = f""", forgotten AS (
            DELETE FROM @requests r USING held h, @executions old
            WHERE r.execution = h.key AND old.key = h.key AND h.status <> ''
                AND (h.status IN {ENDED_TEXT} OR old.status IN {ENDED_TEXT})
        )"""
    return f"""WITH held AS (
            UPDATE @executions e SET last_seq = e.last_seq + g.count,
                updated_at = CASE g.count WHEN 0 THEN e.updated_at ELSE g.at END{status if is_told else ""}
            FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
                %s::text[], %s::text[]) AS g (key, lease, number, first, count, at, status, error)
            WHERE e.key = g.key AND e.claim_lease = g.lease AND e.claim_number = g.number
                AND (g.count = 0 OR e.last_seq = g.first - 1)
                AND EXISTS (SELECT 1 FROM @leases l WHERE l.number = g.lease)
            RETURNING e.key, g.status
        ), written AS (
            INSERT INTO @entries (execution, seq, at, kind, path, body)
            SELECT n.execution, n.seq, n.at, n.kind, n.path, n.body
            FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
                AS n (execution, seq, at, kind, path, body) JOIN held h ON h.key = n.execution
        ){forgotten if is_told else ""}
        SELECT key FROM held"""
