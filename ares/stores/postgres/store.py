"""Executions in a PostgreSQL database, shared by any number of threads, processes and machines.

Journal, claims and inbox are rows of a schema. How connections are made and lost is ``_server``'s knowledge, what the
statements are is ``_rows``'s; here is what the calls of a store mean.

Every call may be repeated by ``_server`` when the connection breaks off, and nobody knows then whether it took effect:
each finds out, and does not do twice what counts.
"""

import functools
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from psycopg.rows import TupleRow

from ares.errors import ExecutionBusyError, ExecutionExistsError, ExecutionNotFoundError
from ares.journal.owner import is_gone as process_is_gone
from ares.journal.protocol import Append, Claim, Entry, ExecutionRow, Lease, NewExecution, Owner, Request
from ares.stores._listing import PAGE, Listing, list_rows
from ares.stores._rules import lost, unstored
from ares.stores.postgres import _address, _appending
from ares.stores.postgres._listener import Listener
from ares.stores.postgres._rows import CHANNEL, Held, Rows
from ares.stores.postgres._server import Connection, Server

#: Seconds of an outage for which a call goes on that is made again soon anyway, or that others can do without.
_SOON = 5.0
#: Executions that one transaction of ``prune`` deletes at most.
_PRUNED = 100


class PostgresStore:
    """Keeps executions in a PostgreSQL database.

    Any thread may use it. A process forked from this one needs a store object of its own.

    Args:
        url: The database, as libpq has it: ``postgresql://user:password@host:port/database?parameter=value``. What it
            leaves out is taken from the environment (``PGPASSWORD`` and the like). A parameter ``schema`` of our own
            names the schema that the tables are in, ``ares`` if there is none.

    Raises:
        UsageError: The URL cannot be read. Its password is in no message, nor in ``name``.
    """

    keeps_references = False

    def __init__(self, url: str) -> None:
        address = _address.parse(url)
        self._server = Server(address)
        self._rows = Rows(self._server.schema)
        #: Tells requests of this object from those of others, and from each other.
        self._me = secrets.token_hex(8)
        self._left = itertools.count(1)
        #: The newest lease.
        self._lease = 0
        #: What the requests of others were when they were last looked at.
        self._seen: tuple[Any, ...] = ()
        self._listener: Listener | None = None

    @property
    def name(self) -> str:
        """The URL without the password."""
        return self._server.name

    # --- the store itself ---

    def inspect(self) -> None:
        """As ``Store.inspect``. The URL was looked at when this was made; the server is not asked before ``open``."""

    def open(self) -> None:
        """As ``Store.open``. Raises StoreError, and leaves the database as it was, if the schema is of another program
        or a newer ares, or cannot be written."""
        self._server.open()

    def close(self) -> None:
        """As ``Store.close``. Whoever waits for a server that is away is told so."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
        self._server.close()

    def attend(self, *, on_request: Callable[[], None], on_warning: Callable[[str], None]) -> None:
        """As ``AttentiveStore.attend``."""
        self._server.on_warning = on_warning

        def hear(told: str) -> None:
            # Nothing is told of what may have been missed.
            if told in ("", str(self._lease)):
                on_request()

        self._listener = Listener(self._server, CHANNEL, hear)
        self._listener.start()

    def start_lease(self, owner: Owner) -> int:
        """As ``Store.start_lease``."""
        self._lease = self._server.run(functools.partial(self._rows.insert_lease, owner=owner))
        return self._lease

    def beat(self, lease: int) -> bool:
        """As ``Store.beat``."""
        return self._server.run(functools.partial(self._rows.beat, lease=lease), patience=_SOON)

    def end_lease(self, lease: int) -> None:
        """As ``Store.end_lease``."""
        self._server.run(functools.partial(self._rows.end_lease, lease=lease), patience=_SOON)

    def forget_lease(self, lease: Lease) -> None:
        """As ``Store.forget_lease``."""
        self._server.run(functools.partial(self._rows.forget_lease_at, lease=lease), patience=_SOON)

    def leases(self) -> Sequence[Lease]:
        """As ``Store.leases``."""
        return self._server.read(self._rows.leases)

    # --- writing ---

    def create(self, new: NewExecution, lease: int | None, status: str, entries: Sequence[Entry]) -> Claim:
        """As ``Store.create``."""
        unstored(self.name, Append(Claim(new.execution_id, 0, 0, 0, 0), entries), 0, lambda _first, _last: ())
        insert = functools.partial(self._rows.insert_execution, new=new, lease=lease, status=status, entries=entries)
        calls = itertools.count()

        def make(connection: Connection) -> int:
            is_repeated = next(calls) > 0
            key = insert(connection)
            if key is not None:
                return key
            there = self._rows.status_of(connection, new.execution_id)
            if there is None:
                raise lost(self.name, new.execution_id)
            # No other call can have made an execution of this id at this very nanosecond.
            if is_repeated and there[1] == new.created_at:
                return self._key(connection, new.execution_id)
            raise ExecutionExistsError(new.execution_id, there[0])

        made: list[Claim] = []

        def note(connection: Connection) -> Claim:
            key = make(connection)
            made.append(Claim(new.execution_id, key, lease or 0, 0 if lease is None else 1, len(entries)))
            return made[-1]

        return self._take(note, made)

    def claim(self, execution_id: str, lease: int, *, is_gone: Callable[[Lease], bool]) -> Claim:
        """As ``Store.claim``. A lease whose owner is gone ends here, with every claim under it."""
        made: list[Claim] = []

        def take(connection: Connection) -> Claim:
            with connection.transaction():
                held = self._rows.lock(connection, execution_id)
                if held is None:
                    raise ExecutionNotFoundError(execution_id, self.name)
                if self._rows.lease(connection, lease) is None:
                    raise lost(self.name, execution_id)
                # When it is repeated, it finds its own claim if it took effect.
                mine = [claim for claim in made if (claim.lease, claim.number) == (held.lease, held.number)]
                if mine:
                    return mine[0]
                was_abandoned = self._vacate(connection, execution_id, held, is_gone)
                number = held.number + 1
                self._rows.set_claim(connection, held.key, lease, number)
                made.append(Claim(execution_id, held.key, lease, number, held.last_seq, was_abandoned))
            return made[-1]

        return self._take(take, made)

    def _vacate(self, connection: Connection, execution_id: str, held: Held, is_gone: Callable[[Lease], bool]) -> bool:
        """Have nobody hold the claim; whether its holder had never given it back."""
        if held.holder is None:
            return held.lease is not None
        if not is_gone(held.holder):
            row = self._row(connection, execution_id)
            raise ExecutionBusyError(execution_id, row.owner, row.age)
        self._rows.forget_lease(connection, held.holder.number)
        return True

    def _take(self, work: Callable[[Connection], Claim], made: Sequence[Claim]) -> Claim:
        """Run what takes a claim. A Ctrl-C that comes while it is committed is raised in place of the claim, of which
        nobody would know then: so it is given back."""
        try:
            return self._server.run(work)
        except BaseException as error:
            if not isinstance(error, Exception):
                for claim in made:
                    self.release(claim)
            raise

    def release(self, claim: Claim) -> None:
        """As ``Store.release``."""
        self._server.run(functools.partial(self._rows.release_claim, claim=claim), patience=_SOON)

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:  # noqa: ARG002 - a contract's word
        """As ``Store.append``, and always in step with the server's disk: what a server that crashed had left for later
        would be missing between what is stored and what this process goes on with.

        What is raised is for good: a server that was away has been waited for up to a minute, and other transactions'
        locks for ten seconds; where a full disk or the like may be the fault of one append's rows, each has been tried
        by itself."""
        return _appending.append(self._server, self._rows, appends) if appends else []

    # --- reading ---

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """As ``Store.entries``."""
        key = self._server.read(functools.partial(self._key, execution_id=execution_id))
        return self._pages(key, after)

    def execution(self, execution_id: str) -> ExecutionRow:
        """As ``Store.execution``."""
        return self._server.read(functools.partial(self._row, execution_id=execution_id))

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

        def fetch(before: int | None, size: int) -> list[TupleRow]:
            select = functools.partial(
                self._rows.executions_before, before=before, statuses=wanted, workflow_id=workflow_id, limit=size
            )
            return self._server.read(select)

        return list_rows(fetch, metadata, limit)

    # --- the inbox ---

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """As ``Store.request``. The owner of the execution is notified."""
        left = (self._me, next(self._left))
        calls = itertools.count()

        def leave(connection: Connection) -> bool:
            if next(calls) and self._rows.has_request(connection, left):
                return True
            done = self._rows.insert_request(connection, execution_id, kind, body, name, left)
            if done is None:
                raise ExecutionNotFoundError(execution_id, self.name)
            return done

        return self._server.run(leave)

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """As ``Store.named_requests``."""
        return self._server.read(
            lambda connection: self._rows.names_of_requests(connection, self._key(connection, execution_id))
        )

    def requests(self, lease: int, after: int = 0) -> Sequence[Request]:
        """As ``Store.requests``."""
        return self._server.run(functools.partial(self._rows.requests_of, lease=lease, after=after), patience=_SOON)

    def close_request(self, number: int) -> None:
        """As ``Store.close_request``."""
        self._server.run(functools.partial(self._rows.close_request, number=number), patience=_SOON)

    def changed(self) -> bool:
        """As ``Store.changed``: whether the open requests of others are not what they were."""
        look = functools.partial(self._rows.stamp_of_requests, left_by=self._me)
        seen = self._server.run(look, patience=_SOON)
        changed, self._seen = seen != self._seen, seen
        return changed

    # --- upkeep ---

    def prune(self, before: int) -> int:
        """As ``Store.prune``. Only what has ended goes: an execution that was cut short, or waits, stays however old it
        is, and so does one that a live owner still holds, or that somebody writes just then. Deletes a few executions
        at a time; cut short itself, it leaves no half execution."""
        removed, above = 0, 0
        while True:
            count, above = self._server.run(functools.partial(self._prune_some, before, above))
            if above == 0:
                return removed
            removed += count

    def compact(self) -> None:
        """As ``Store.compact``. The server does so by itself for rows to come; this gives the room back to its disk,
        needs as much free room meanwhile, and nobody can read or write: do it in a quiet hour. Raises StoreError when a
        transaction of others is in the way for ten seconds."""
        self._server.apart(self._rows.vacuum)

    # --- on a connection ---

    def _key(self, connection: Connection, execution_id: str) -> int:
        key = self._rows.key_of(connection, execution_id)
        if key is None:
            raise ExecutionNotFoundError(execution_id, self.name)
        return key

    def _row(self, connection: Connection, execution_id: str) -> ExecutionRow:
        raw = self._rows.execution(connection, execution_id)
        if raw is None:
            raise ExecutionNotFoundError(execution_id, self.name)
        return Listing().row(raw)

    def _prune_some(self, before: int, above: int, connection: Connection) -> tuple[int, int]:
        """Delete some ended executions with keys above one; how many, and the last key looked at (0: there is none)."""
        with connection.transaction():
            connection.execute(b"SET LOCAL statement_timeout = 0")
            ended = self._rows.lock_ended(connection, before, above, _PRUNED)
            old = [key for key, owner in ended if owner is None or process_is_gone(owner)]
            self._rows.delete_executions(connection, old)
        return len(old), ended[-1][0] if ended else 0

    def _pages(self, key: int, after: int) -> Iterator[Entry]:
        while True:
            page = self._server.read(functools.partial(self._rows.entries_after, key=key, after=after, limit=PAGE))
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq
