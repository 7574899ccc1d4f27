"""Executions in one SQLite file, shared by any number of threads and processes of one machine.

Journal, claims and inbox are rows of the same file; every call that writes is one transaction, begun with the file's
write lock. How the file is opened and locked is ``_database``'s knowledge, how rows look is ``_rows``'s; here is what
the calls of a store mean.

While the store is not open, or the file cannot be written, everything that only reads works all the same.
"""

import functools
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.errors import (
    ExecutionBusyError,
    ExecutionExistsError,
    ExecutionNotFoundError,
    LeaseLostError,
    StoreError,
    UsageError,
)
from ares.journal.owner import is_gone as process_is_gone
from ares.journal.protocol import Append, Claim, Entry, ExecutionRow, Lease, NewExecution, Owner, Request
from ares.stores._listing import PAGE, Listing, list_rows
from ares.stores._rules import ENDED, lost, unstored
from ares.stores.sqlite import _appending, _faults, _rows
from ares.stores.sqlite._database import Database

#: Executions and entries that one transaction of ``prune`` deletes at most: a few milliseconds' worth.
_PRUNED_EXECUTIONS = 100
_PRUNED_ENTRIES = 2_000
_LEVELS = ("NORMAL", "FULL", "EXTRA")


class SqliteStore:
    """Keeps executions in an SQLite file in write-ahead mode.

    Any thread may use it. A process forked from this one needs a store object of its own.

    Args:
        path: The file; made by ``open`` if it is not there, its folder is not.
        synchronous: SQLite's ``synchronous`` level for commits that have to survive a power failure: ``"FULL"``,
            ``"EXTRA"``, or ``"NORMAL"`` where losing the last moments to one is acceptable.
    """

    keeps_references = False

    def __init__(self, path: str | os.PathLike[str], *, synchronous: str = "FULL") -> None:
        if synchronous not in _LEVELS:
            raise UsageError(f"synchronous={synchronous!r}: it is one of {', '.join(_LEVELS)}")
        self._database = Database(path, synchronous, patience=10.0)

    @property
    def name(self) -> str:
        """The file, as it was given."""
        return self._database.name

    # --- the store itself ---

    def inspect(self) -> None:
        """As ``Store.inspect``. A file that is not there yet is none of its worries."""
        self._database.inspect()

    def open(self) -> None:
        """As ``Store.open``. Raises StoreError, and leaves the file as it was, if it is of another program, of a newer
        ares, damaged, or cannot be written."""
        self._database.open()

    def close(self) -> None:
        """As ``Store.close``. The write-ahead log is empty or gone afterwards unless another process is reading it."""
        self._database.close()

    def start_lease(self, owner: Owner) -> int:
        """As ``Store.start_lease``."""
        return self._database.write(functools.partial(_rows.insert_lease, owner=owner))

    def beat(self, lease: int) -> bool:
        """As ``Store.beat``. Beside busy threads each statement costs a switch to all of them, so there is only one."""
        beat = functools.partial(_rows.beat, lease=lease)
        return self._database.write_at_once(beat, sync=None) or self._database.write(beat, sync=False)

    def end_lease(self, lease: int) -> None:
        """As ``Store.end_lease``."""
        self._database.write(functools.partial(_rows.end_lease, lease=lease), sync=False)

    def forget_lease(self, lease: Lease) -> None:
        """As ``Store.forget_lease``."""
        self._database.write(functools.partial(_rows.forget_lease_at, lease=lease), sync=False)

    def leases(self) -> Sequence[Lease]:
        """As ``Store.leases``."""
        return self._database.read(_rows.leases)

    # --- writing ---

    def create(self, new: NewExecution, lease: int | None, status: str, entries: Sequence[Entry]) -> Claim:
        """As ``Store.create``."""

        def insert(connection: sqlite3.Connection) -> Claim:
            there = _rows.status_of(connection, new.execution_id)
            if there is not None:
                raise ExecutionExistsError(new.execution_id, there[0])
            if lease is not None and not _rows.has_lease(connection, lease):
                raise lost(self.name, new.execution_id)
            claim = Claim(
                new.execution_id,
                _rows.insert_execution(connection, new, lease),
                lease or 0,
                0 if lease is None else 1,
                0,
            )
            append = Append(claim, entries, status)
            fresh = unstored(self.name, append, 0, lambda _first, _last: ())
            _rows.insert_entries(connection, [(append, fresh)])
            _appending.set_status(connection, append)
            return attrs.evolve(claim, last_seq=len(fresh))

        def look(connection: sqlite3.Connection) -> Claim:
            # No other call can have made an execution of this id at this very nanosecond.
            there = _rows.status_of(connection, new.execution_id)
            if there is None or there[1] != new.created_at:
                return insert(connection)
            return _claim(new.execution_id, self._held(connection, new.execution_id))

        return self._take(insert, look)

    def claim(self, execution_id: str, lease: int, *, is_gone: Callable[[Lease], bool]) -> Claim:
        """As ``Store.claim``. A lease whose owner is gone ends here, with every claim under it."""
        taken: list[int] = []
        orphans: list[int] = []

        def take(connection: sqlite3.Connection) -> Claim:
            held = self._held(connection, execution_id)
            if not _rows.has_lease(connection, lease):
                raise lost(self.name, execution_id)
            # A second look, after a COMMIT that failed, finds its own claim if it took effect after all.
            if held.lease != lease or held.number not in taken:
                if held.holder is not None:
                    if not is_gone(held.holder):
                        row = self._row(connection, execution_id)
                        raise ExecutionBusyError(execution_id, row.owner, row.age)
                    _rows.forget_lease(connection, held.lease)
                    held.is_orphan = True
                held.lease, held.number = lease, held.number + 1
                _rows.set_claim(connection, held)
                taken.append(held.number)
                if held.is_orphan:
                    orphans.append(held.number)
            return attrs.evolve(_claim(execution_id, held), was_abandoned=held.number in orphans)

        return self._take(take, take)

    def _take(self, work: Callable[[sqlite3.Connection], Claim], again: Callable[[sqlite3.Connection], Claim]) -> Claim:
        """Run a transaction that takes a claim.

        A Ctrl-C that comes while it is committed is raised in place of the claim, of which nobody would know then: so
        it is given back.
        """
        taken: list[Claim] = []

        def noted(take: Callable[[sqlite3.Connection], Claim], connection: sqlite3.Connection) -> Claim:
            taken.append(take(connection))
            return taken[-1]

        try:
            return self._database.write(functools.partial(noted, work), again=functools.partial(noted, again))
        except BaseException as error:
            if not isinstance(error, Exception):
                for claim in taken:
                    self.release(claim)
            raise

    def release(self, claim: Claim) -> None:
        """As ``Store.release``."""
        self._database.write(lambda connection: _rows.release_claim(connection, claim), sync=False)

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        """As ``Store.append``. What is raised is for good: other processes' locks have been waited for up to ten
        seconds; after a commit that failed it has been looked up what is stored, and the rest tried once more; where a
        full disk, a damaged page or the like may be the fault of one append's rows, each has been tried by itself."""
        if not appends:
            return []
        try:
            return self._write(appends, sync=sync)
        except StoreError as error:
            if len(appends) == 1 or not _faults.may_be_one_rows(error.__cause__):
                raise
            results = self._append_each(appends, sync=sync)
            if all(isinstance(result, StoreError) and not isinstance(result, LeaseLostError) for result in results):
                raise
            return results

    def _append_each(self, appends: Sequence[Append], *, sync: bool) -> list[Exception | None]:
        """One transaction each; what follows a refused append in its execution shares its fate."""
        results: list[Exception | None] = []
        refused: dict[int, Exception] = {}
        for append in appends:
            result = refused.get(append.claim.key)
            if result is None:
                try:
                    (result,) = self._write([append], sync=sync)
                except StoreError as error:
                    result = StoreError(self.name, error.problem, append.claim.execution_id)
                    result.__cause__ = error.__cause__
            if result is not None:
                refused[append.claim.key] = result
            results.append(result)
        return results

    def _write(self, appends: Sequence[Append], *, sync: bool) -> list[Exception | None]:
        """One transaction for all; another one if a row of them is bad."""
        at_once = functools.partial(_appending.write_at_once, appends=appends)
        if self._database.write_at_once(at_once, sync=sync):
            return [None] * len(appends)
        write = functools.partial(_appending.write, store=self.name, appends=appends)
        try:
            return self._database.write(write, sync=sync, again=write)
        except StoreError as error:
            if not isinstance(error.__cause__, _faults.ROW_FAULTS):
                raise
        write = functools.partial(_appending.write_carefully, store=self.name, appends=appends)
        return self._database.write(write, sync=sync, again=write)

    # --- reading ---

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """As ``Store.entries``."""
        key = self._database.read(lambda connection: self._held(connection, execution_id)).key
        return self._pages(key, after)

    def execution(self, execution_id: str) -> ExecutionRow:
        """As ``Store.execution``."""
        return self._database.read(lambda connection: self._row(connection, execution_id))

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """As ``Store.executions``."""
        wanted = None if statuses is None else list(statuses)

        def fetch(before: int | None, size: int) -> list[tuple[Any, ...]]:
            select = functools.partial(
                _rows.executions_before, before=before, statuses=wanted, workflow_id=workflow_id, limit=size
            )
            return self._database.read(select)

        return list_rows(fetch, metadata, limit)

    # --- the inbox ---

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """As ``Store.request``."""

        def leave(connection: sqlite3.Connection) -> bool:
            if self._row(connection, execution_id).status in ENDED:
                return False
            return _rows.insert_request(connection, self._held(connection, execution_id).key, kind, body, name)

        return self._database.write(leave)

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """As ``Store.named_requests``."""
        return self._database.read(
            lambda connection: _rows.names_of_requests(connection, self._held(connection, execution_id).key)
        )

    def requests(self, lease: int, after: int = 0) -> Sequence[Request]:
        """As ``Store.requests``."""
        return self._database.read(functools.partial(_rows.requests_of, lease=lease, after=after))

    def close_request(self, number: int) -> None:
        """As ``Store.close_request``."""
        self._database.write(functools.partial(_rows.close_request, number=number), sync=False)

    def changed(self) -> bool:
        """As ``Store.changed``."""
        return self._database.changed()

    # --- upkeep ---

    def prune(self, before: int) -> int:
        """As ``Store.prune``. Only what has ended goes: an execution that was cut short, or waits, stays however old it
        is, and so does one that a live owner still holds. Deletes in short transactions with pauses, so that others can
        write meanwhile. Cut short itself, it leaves no half execution; the next one finishes its work."""
        removed, above = 0, 0
        while True:
            begun = time.monotonic()
            count, above = self._database.write(functools.partial(self._doom, before, above))
            if above == 0:
                break
            removed += count
            self._database.pause(time.monotonic() - begun)
        more = True
        while more:
            begun = time.monotonic()
            more = self._database.write(functools.partial(_rows.delete_entries, limit=_PRUNED_ENTRIES), sync=False)
            self._database.pause(time.monotonic() - begun)
        return removed

    def compact(self) -> None:
        """As ``Store.compact``. Needs as much free disk as the file has content, and others cannot write while it runs:
        do it in a quiet hour. Raises StoreError when another process keeps the file locked. A process that is reading
        just then delays the gain until the next checkpoint."""
        self._database.vacuum()

    # --- within a transaction ---

    def _held(self, connection: sqlite3.Connection, execution_id: str) -> _rows.Held:
        held = _rows.held_by_id(connection, execution_id)
        if held is None:
            raise ExecutionNotFoundError(execution_id, self.name)
        if not isinstance(held.number, int):
            raise StoreError(self.name, f"its row is damaged: {held.number!r} is no number of a claim", execution_id)
        return held

    def _row(self, connection: sqlite3.Connection, execution_id: str) -> ExecutionRow:
        raw = _rows.execution_by_id(connection, execution_id)
        if raw is None:
            raise ExecutionNotFoundError(execution_id, self.name)
        return Listing().row(raw)

    def _doom(self, before: int, above: int, connection: sqlite3.Connection) -> tuple[int, int]:
        """Delete some ended executions with keys above one; how many, and the last key looked at (0: there is none)."""
        ended = _rows.ended_before(connection, before, ENDED, above, _PRUNED_EXECUTIONS)
        old = [key for key, owner in ended if owner is None or process_is_gone(owner)]
        _rows.doom(connection, old)
        return len(old), ended[-1][0] if ended else 0

    def _pages(self, key: int, after: int) -> Iterator[Entry]:
        while True:
            page = self._database.read(functools.partial(_rows.entries_after, key=key, after=after, limit=PAGE))
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq


def _claim(execution_id: str, held: _rows.Held) -> Claim:
    return Claim(execution_id, held.key, held.lease, held.number, held.last_seq)
