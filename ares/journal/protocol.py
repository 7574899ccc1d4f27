"""What a store owes the journal, and what the journal owes the engine.

The engine sees ``Journal``, ``ExecutionLog`` and ``Ticket``. An author of a store writes ``Store``: plain,
blocking, one transaction a call; batching, ordering, retries and waiting are the journal's work
(``ares.journal.writer``), once for every store. Nothing here knows what an entry says.

Ownership. A *lease* is one Runtime's life on a store, with a counter that its heartbeat raises. A *claim* is
the right to write one execution: (lease, number). Taking a claim raises the number, so that whoever held it
before can write nothing more. Every append checks both in its own transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs


@attrs.define(eq=False)
class Entry:
    """One row of an execution's journal.

    ``body`` is JSON text, or the living fact or record itself where the store keeps references.
    ``at`` is wall-clock nanoseconds since the epoch and orders nothing; ``seq`` does, from 1, without a hole.
    """

    seq: int
    at: int
    kind: str
    path: str
    body: Any


@attrs.frozen
class Owner:
    """The process behind a lease: enough to tell, on the same machine, that it is gone.

    ``beats_every`` are the seconds in which it means to raise its counter: others give it the time for several.
    """

    machine: str
    boot: str
    pid_namespace: str
    pid: int
    started: str
    host: str
    beats_every: float = 5.0


@attrs.frozen
class Lease:
    """A lease as a store shows it: the counter that its heartbeat raises, and the process behind it.

    A counter that stands still is the only sign of a death that can be seen from another machine.
    """

    number: int
    counter: int
    owner: Owner


@attrs.frozen
class Claim:
    """The right to write one execution. ``key`` is the store's own short name of the execution.

    ``was_abandoned``: whoever had the claim before never gave it back, because its process died.
    """

    execution_id: str
    key: int
    lease: int
    number: int
    last_seq: int
    was_abandoned: bool = False


@attrs.frozen
class NewExecution:
    """What a store keeps of an execution beside its journal."""

    execution_id: str
    workflow_id: str
    workflow_version: str
    parent_id: str | None
    metadata: Mapping[str, str]
    created_at: int


@attrs.frozen
class ExecutionRow:
    """An execution as a listing shows it.

    ``status`` is the stored one; ``owner`` is the owner whose lease claims it, ``lease`` the number of that (0: nobody
    claims it), ``age`` the seconds since its last heartbeat was stored (by the wall clock: to be shown, never to decide
    by), and ``live`` whether that lease still stands and its process is not known to be gone; from a journal, nor its
    counter to stand still. Times in nanoseconds since the epoch.
    """

    execution_id: str
    workflow_id: str
    workflow_version: str
    status: str
    parent_id: str | None
    metadata: Mapping[str, str]
    created_at: int
    updated_at: int
    ended_at: int | None
    error: str
    last_seq: int
    live: bool
    owner: str
    age: float
    requests: int
    lease: int = 0


@attrs.define(eq=False)
class Append:
    """Entries of one execution that go into one transaction, with the status they lead to (None: unchanged)."""

    claim: Claim
    entries: Sequence[Entry]
    status: str | None = None
    error: str = ""


@attrs.frozen
class Request:
    """Something asked of a walk from outside (``kind`` is "cancel" or "answer"); ``body`` is text, or a living object
    where the store keeps references. One with a ``name`` is left once."""

    number: int
    execution_id: str
    kind: str
    body: Any
    name: str = ""


class Store(Protocol):
    """Where executions are kept. One transaction a call; may be called from any thread, writes one at a time.

    Every method may raise ``StoreError`` naming the store and the cause.
    """

    @property
    def name(self) -> str:
        """The file or server, as messages name it."""

    @property
    def keeps_references(self) -> bool:
        """Whether entries keep living objects (nothing is encoded) and calls return at once."""

    def inspect(self) -> None:
        """Look, read-only and without creating anything, whether this can be a store (format, version)."""

    def open(self) -> None:
        """Create or migrate what is missing and check that writing works."""

    def close(self) -> None:
        """Let go of every connection. Idempotent."""

    def start_lease(self, owner: Owner) -> int:
        """Begin a lease and return its number."""

    def beat(self, lease: int) -> bool:
        """Raise the lease's counter; False when the lease is no longer there."""

    def end_lease(self, lease: int) -> None:
        """Give back the lease and every claim that still stands under it."""

    def forget_lease(self, lease: Lease) -> None:
        """Delete a lease whose owner is gone, if its counter is still that of ``lease``. The claims under it stand for
        nothing from here on, but nobody gave them back: whoever takes one is told that it was abandoned."""

    def leases(self) -> Sequence[Lease]:
        """Every lease that stands, in the order of their numbers."""

    def create(self, new: NewExecution, lease: int | None, status: str, entries: Sequence[Entry]) -> Claim:
        """Insert an execution with its first entries; claimed by ``lease``, or by nobody when None.

        Raises ``ExecutionExistsError`` when the id is taken.
        """

    def claim(self, execution_id: str, lease: int, *, is_gone: Callable[[Lease], bool]) -> Claim:
        """Take the claim for ``lease``. Raises ``ExecutionNotFoundError``, or ``ExecutionBusyError`` while another
        claim stands whose lease, as this transaction sees it, ``is_gone`` does not say is gone (the same lease
        included). A lease that is gone ends with that."""

    def release(self, claim: Claim) -> None:
        """Give the claim back if it still stands. Idempotent."""

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        """Write all in one transaction; one result each. Several may be of one execution, in order.

        An append whose claim or lease no longer stands is refused alone (``LeaseLostError``), one with a bad row, or
        that would leave a hole, alone (``StoreError``); entries already stored under the same claim and seq are a
        no-op, so that a call whose outcome is not known may be repeated. ``sync=False`` may leave the last moments to
        the operating system. A failure of the whole transaction is raised, once the store has waited and tried again
        for as long as it thinks worth it: whoever calls takes it for final.
        """

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """The entries with ``seq > after`` in order, holding no transaction between pages."""

    def execution(self, execution_id: str) -> ExecutionRow:
        """One execution. Raises ``ExecutionNotFoundError``."""

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """Executions, newest first."""

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """Leave a request for whoever walks the execution; False when that has ended, or a request of this name (other
        than the empty one) was left before, carried out or not. Raises if there is no such execution.

        What is open when an execution ends goes with that append, names included: it must not meet the execution when
        it is reopened.
        """

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """The names of all that was left for an execution that has not ended. Raises if there is none."""

    def requests(self, lease: int, after: int = 0) -> Sequence[Request]:
        """The open requests of the executions that ``lease`` claims, oldest first, numbered above ``after``."""

    def close_request(self, number: int) -> None:
        """Mark a request as carried out; its name, if it has one, stays taken."""

    def changed(self) -> bool:
        """Whether another process may have left a request, or taken one away, since the last call. Cheap; holds no
        transaction."""

    def prune(self, before: int) -> int:
        """Delete ended executions whose end is before ``before`` (nanoseconds); returns how many."""

    def compact(self) -> None:
        """Give freed space back to the file system."""


@runtime_checkable
class AttentiveStore(Protocol):
    """What a store may do beside that of ``Store``: say by itself what others would have to ask for."""

    def attend(self, *, on_request: Callable[[], None], on_warning: Callable[[str], None]) -> None:
        """Begin to tell, until ``close``; called once, when there is a lease.

        Args:
            on_request: To be called when there may be a new request to what the newest lease claims, from any thread;
                it is short and does not raise. A hint: the inbox is looked into from time to time all the same.
            on_warning: To be told in words what was survived, a lost connection for example; with no lock held.
        """


class Ticket(Protocol):
    """A promise that entries will be stored."""

    @property
    def done(self) -> bool:
        """Whether they are stored, or never will be."""

    @property
    def error(self) -> Exception | None:
        """Why they are not stored, once ``done``."""

    def wait(self, timeout: float | None = None) -> None:
        """Block until they are stored.

        Without a timeout, or with one of half a minute and more, the calling thread may do the storing itself, for all
        that wait, and then costs no switch of threads.

        Raises:
            StoreError: They could not be stored; in ``best_effort`` they may be later.
            LeaseLostError: The claim is lost.
            TimeoutError: It is not known yet after ``timeout`` seconds.
        """

    def add_callback(self, fn: Callable[["Ticket"], None]) -> None:
        """Call ``fn(ticket)`` once done; ``fn`` must be short and not raise.

        It is called on the journal's own thread, one call after another in the order of the commits; where references
        are kept, on the calling thread before this returns.
        """


class ExecutionLog(Protocol):
    """The journal of one claimed execution: numbers entries and hands them over, in one order."""

    @property
    def claim(self) -> Claim:
        """The claim it writes under."""

    @property
    def last_seq(self) -> int:
        """The number of the newest entry handed over."""

    def append(
        self,
        drafts: Sequence[tuple[str, str, Any]],
        *,
        status: str | None = None,
        error: str = "",
        lazy: bool = False,
    ) -> Ticket:
        """Number ``drafts`` (kind, path, body) and hand them over.

        Never blocks on the store, unless that keeps references. A closed log numbers nothing; the ticket has failed
        already then. What nobody waits for, nor has asked to be called back for, is written within 20 ms all the same.

        ``lazy`` entries ride along with the next commit, or are written without a sync when 20 ms pass without one.
        The ticket's ``entries`` are not exposed: seq numbers are ``last_seq - len(drafts) + 1`` onwards for the caller
        that holds the execution's own lock.
        """

    def make_sure(self) -> None:
        """Before something is done that only the owner may do: hear of a claim that was lost already. Costs nothing as
        long as the lease was beaten lately; asks the store otherwise, whose failure is no answer.

        Raises:
            LeaseLostError: It was lost.
        """

    def closed(self) -> bool:
        """Whether the log takes nothing more: its claim was lost or given back, or an append failed for good."""


class Journal(Protocol):
    """All that the engine knows about keeping executions."""

    @property
    def name(self) -> str:
        """The store's name, as messages name it."""

    @property
    def keeps_references(self) -> bool:
        """Whether bodies are living objects rather than text."""

    def create(self, new: NewExecution, status: str, drafts: Sequence[tuple[str, str, Any]], *, claimed: bool) -> Claim:
        """Insert an execution, committed when this returns."""

    def claim(self, execution_id: str) -> Claim:
        """Take over the right to write. Raises ``ExecutionBusyError`` while it belongs to an owner that is not gone, or
        to a walk in this process that lost it and has not come to its end."""

    def release(self, claim: Claim) -> None:
        """Give the claim back; never raises for a store that fails (the claim dies with the lease)."""

    def log(self, claim: Claim) -> ExecutionLog:
        """The log of a claimed execution; the same one for the same claim."""

    def watch(self, execution_id: str, on_request: Callable[[Request], None]) -> Callable[[], None]:
        """Have ``on_request`` called once for each request to a claimed execution; returns the function that ends it.

        Old ones are told by the calling thread before this returns, new ones by the journal's own thread within about
        half a second of their commit; where references are kept, by the thread that calls ``request``.
        """

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """As ``Store.entries``."""

    def execution(self, execution_id: str) -> ExecutionRow:
        """As ``Store.execution``."""

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """As ``Store.executions``."""

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """As ``Store.named_requests``."""

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """As ``Store.request``; wakes the owner at once when it is in this process."""

    def close_request(self, number: int) -> None:
        """As ``Store.close_request``."""

    def prune(self, before: int) -> int:
        """As ``Store.prune``."""

    def compact(self) -> None:
        """As ``Store.compact``."""
