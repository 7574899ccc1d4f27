"""Everything in the memory of this process: executions live as long as the store object does.

Keeps references: an entry's body is the living object that was handed over, nothing is encoded and nothing copied.
Every call returns at once; one lock guards everything and is never held while foreign code runs, except for the
``is_gone`` of a claim.
"""

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.errors import ExecutionBusyError, ExecutionExistsError, ExecutionNotFoundError, StoreError
from ares.journal.owner import describe
from ares.journal.protocol import Append, Claim, Entry, ExecutionRow, Lease, NewExecution, Owner, Request
from ares.stores._rules import ENDED, lost, unstored

#: Entries that a reader takes at a time.
_PAGE = 1_000


class _Entries:
    """The entries of one execution, in columns, which only ever grow: a row of its own would cost each one as much as
    the fact in it."""

    __slots__ = ("_bodies", "_kinds", "_names", "_paths", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        #: There are few kinds: each entry has the number of its own among them.
        self._kinds = array("H")
        self._names: dict[str, int] = {}
        self._paths: list[str] = []
        self._bodies: list[Any] = []

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def last_at(self) -> int | None:
        """When the newest was written, in nanoseconds since the epoch; None when there are none."""
        return self._times[len(self) - 1] if self._bodies else None

    def extend(self, entries: Iterable[Entry]) -> None:
        """Take in what follows. Of an interruption there are as many as there are bodies."""
        count = len(self)
        if len(self._times) > count:
            del self._times[count:], self._kinds[count:], self._paths[count:]
        for entry in entries:
            self._times.append(entry.at)
            self._kinds.append(self._names.setdefault(entry.kind, len(self._names)))
            self._paths.append(entry.path)
            self._bodies.append(entry.body)

    def between(self, first: int, last: int) -> list[Entry]:
        """Those numbered from ``first`` to ``last``, as far as they are there."""
        part = slice(first - 1, min(last, len(self)))
        names = list(self._names)
        columns = zip(self._times[part], self._kinds[part], self._paths[part], self._bodies[part], strict=True)
        return [Entry(seq, at, names[kind], path, body) for seq, (at, kind, path, body) in enumerate(columns, first)]


class _Execution:
    """One execution."""

    __slots__ = ("claims", "ended_at", "entries", "error", "key", "lease", "names", "new", "requests", "status")

    def __init__(self, key: int, new: NewExecution, status: str, lease: int | None) -> None:
        self.key = key
        self.new = new
        self.status = status
        self.error = ""
        self.ended_at: int | None = None
        self.entries = _Entries()
        #: How many requests are open.
        self.requests = 0
        #: The names of requests that were left, carried out or not.
        self.names: set[str] = set()
        #: Who holds it, None for nobody, and how many claims have been taken: only the newest one counts.
        self.lease = lease
        self.claims = 0 if lease is None else 1

    def claim(self, *, was_abandoned: bool = False) -> Claim:
        return Claim(self.new.execution_id, self.key, self.lease or 0, self.claims, len(self.entries), was_abandoned)


class VolatileStore:
    """Keeps executions in this process and nowhere else.

    Any thread may use it; several Runtimes may share one.
    """

    name = ":memory:"
    keeps_references = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, _Execution] = {}
        self._by_key: dict[int, _Execution] = {}
        self._leases: dict[int, Lease] = {}
        #: Leases that were taken for gone: nobody gave back the claims under them.
        self._gone: set[int] = set()
        #: The open ones, by their number, which is their order.
        self._requests: dict[int, tuple[_Execution, Request]] = {}
        self._numbers = {"execution": 0, "lease": 0, "request": 0}

    # --- the store itself ---

    def inspect(self) -> None:
        """There is nothing to look at."""

    def open(self) -> None:
        """There is nothing to open."""

    def close(self) -> None:
        """Nothing to let go of: what is stored stays readable while the object lives."""

    def start_lease(self, owner: Owner) -> int:
        """As ``Store.start_lease``."""
        with self._lock:
            lease = self._next("lease")
            self._leases[lease] = Lease(lease, 0, owner)
            return lease

    def beat(self, lease: int) -> bool:
        """As ``Store.beat``."""
        with self._lock:
            found = self._leases.get(lease)
            if found is not None:
                self._leases[lease] = attrs.evolve(found, counter=found.counter + 1)
            return found is not None

    def end_lease(self, lease: int) -> None:
        """As ``Store.end_lease``."""
        with self._lock:
            # The claims under it stand for nothing from here on: whether a lease is there is asked with each of them.
            self._leases.pop(lease, None)

    def forget_lease(self, lease: Lease) -> None:
        """As ``Store.forget_lease``."""
        with self._lock:
            found = self._leases.get(lease.number)
            if found is not None and found.counter == lease.counter:
                self._forget(lease.number)

    def leases(self) -> Sequence[Lease]:
        """As ``Store.leases``."""
        with self._lock:
            return list(self._leases.values())

    # --- writing ---

    def create(self, new: NewExecution, lease: int | None, status: str, entries: Sequence[Entry]) -> Claim:
        """As ``Store.create``."""
        with self._lock:
            if lease is not None and lease not in self._leases:
                raise lost(self.name, new.execution_id)
            there = self._by_id.get(new.execution_id)
            if there is not None:
                raise ExecutionExistsError(new.execution_id, there.status)
            made = _Execution(self._next("execution"), new, status, lease)
            self._write(made, Append(made.claim(), entries, status))
            self._by_id[new.execution_id] = self._by_key[made.key] = made
            return made.claim()

    def claim(self, execution_id: str, lease: int, *, is_gone: Callable[[Lease], bool]) -> Claim:
        """As ``Store.claim``."""
        with self._lock:
            found = self._found(execution_id)
            if lease not in self._leases:
                raise lost(self.name, execution_id)
            holder = self._holder(found)
            if holder is not None and not is_gone(holder):
                raise ExecutionBusyError(execution_id, describe(holder.owner))
            if holder is not None:
                self._forget(holder.number)
            was_abandoned = found.lease in self._gone
            found.lease = lease
            found.claims += 1
            return found.claim(was_abandoned=was_abandoned)

    def release(self, claim: Claim) -> None:
        """As ``Store.release``."""
        with self._lock:
            found = self._by_key.get(claim.key)
            if found is not None and (found.lease, found.claims) == (claim.lease, claim.number):
                found.lease = None

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:  # noqa: ARG002 - a contract's word
        """As ``Store.append``; there is no disk to be in step with."""
        results: list[Exception | None] = []
        with self._lock:
            for append in appends:
                claim = append.claim
                found = self._by_key.get(claim.key)
                if (
                    found is None
                    or found.claims != claim.number
                    or found.lease != claim.lease
                    or claim.lease not in self._leases
                ):
                    results.append(lost(self.name, claim.execution_id))
                    continue
                try:
                    self._write(found, append)
                except StoreError as refused:
                    results.append(refused)
                else:
                    results.append(None)
        return results

    # --- reading ---

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """As ``Store.entries``. Their bodies are the stored ones: do not change them."""
        with self._lock:
            entries = self._found(execution_id).entries
        return self._pages(entries, max(after, 0))

    def execution(self, execution_id: str) -> ExecutionRow:
        """As ``Store.execution``."""
        with self._lock:
            return self._row(self._found(execution_id))

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """As ``Store.executions``."""
        wanted = None if statuses is None else frozenset(statuses)
        pairs = (metadata or {}).items()
        rows: list[ExecutionRow] = []
        with self._lock:
            for found in reversed(self._by_id.values()):
                if limit is not None and len(rows) >= limit:
                    break
                if (
                    (wanted is None or found.status in wanted)
                    and (workflow_id is None or found.new.workflow_id == workflow_id)
                    and pairs <= found.new.metadata.items()
                ):
                    rows.append(self._row(found))
        return rows

    # --- the inbox ---

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """As ``Store.request``."""
        with self._lock:
            found = self._found(execution_id)
            if found.status in ENDED or name in found.names:
                return False
            if name:
                found.names.add(name)
            number = self._next("request")
            self._requests[number] = (found, Request(number, execution_id, kind, body, name))
            found.requests += 1
            return True

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """As ``Store.named_requests``."""
        with self._lock:
            return frozenset(self._found(execution_id).names)

    def requests(self, lease: int, after: int = 0) -> Sequence[Request]:
        """As ``Store.requests``."""
        with self._lock:
            if lease not in self._leases:
                return []
            return [
                request for found, request in self._requests.values() if found.lease == lease and request.number > after
            ]

    def close_request(self, number: int) -> None:
        """As ``Store.close_request``."""
        with self._lock:
            found, _ = self._requests.pop(number, (None, None))
            if found is not None:
                found.requests -= 1

    def changed(self) -> bool:
        """No other process can write here."""
        return False

    # --- upkeep ---

    def prune(self, before: int) -> int:
        """As ``Store.prune``."""
        with self._lock:
            old = [
                found
                for found in self._by_id.values()
                if found.ended_at is not None and found.ended_at < before and self._holder(found) is None
            ]
            for found in old:
                del self._by_id[found.new.execution_id], self._by_key[found.key]
            gone = {found.key for found in old}
            self._requests = {n: pair for n, pair in self._requests.items() if pair[0].key not in gone}
        return len(old)

    def compact(self) -> None:
        """Memory is given back as executions are pruned."""

    # --- under the lock ---

    def _next(self, what: str) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    def _found(self, execution_id: str) -> _Execution:
        found = self._by_id.get(execution_id)
        if found is None:
            raise ExecutionNotFoundError(execution_id, self.name)
        return found

    def _forget(self, lease: int) -> None:
        del self._leases[lease]
        self._gone.add(lease)

    def _holder(self, found: _Execution) -> Lease | None:
        return None if found.lease is None else self._leases.get(found.lease)

    def _write(self, found: _Execution, append: Append) -> None:
        kept = found.entries
        kept.extend(unstored(self.name, append, len(kept), kept.between))
        status = append.status
        if status is not None:
            found.status = status
            found.error = append.error
            entries = append.entries
            found.ended_at = None if status not in ENDED else entries[-1].at if entries else time.time_ns()
            if status in ENDED and found.requests:
                self._requests = {n: pair for n, pair in self._requests.items() if pair[0] is not found}
                found.requests = 0
            if status in ENDED:
                found.names.clear()

    def _row(self, found: _Execution) -> ExecutionRow:
        new = found.new
        holder = self._holder(found)
        return ExecutionRow(
            execution_id=new.execution_id,
            workflow_id=new.workflow_id,
            workflow_version=new.workflow_version,
            status=found.status,
            parent_id=new.parent_id,
            metadata=new.metadata,
            created_at=new.created_at,
            updated_at=found.entries.last_at or new.created_at,
            ended_at=found.ended_at,
            error=found.error,
            last_seq=len(found.entries),
            live=holder is not None,
            owner="" if holder is None else describe(holder.owner),
            age=0.0,
            requests=found.requests,
            lease=0 if holder is None else holder.number,
        )

    def _pages(self, entries: _Entries, start: int) -> Iterator[Entry]:
        while True:
            with self._lock:
                page = entries.between(start + 1, start + _PAGE)
            if not page:
                return
            yield from page
            start += len(page)
