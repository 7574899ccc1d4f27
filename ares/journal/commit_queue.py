"""What has been handed over and is not stored yet, in the order of handing over.

A plain data structure with no lock of its own. A ticket stays in its place while a leader writes it and leaves the
queue only with its answer, so nothing is lost with a leader that is interrupted: the next one takes the same tickets.

In ``best_effort`` tickets that the store failed to take stay in their place as the *backlog*: answered, but not stored.
They come before everything later of their execution, and no other execution waits for them.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from ares.errors import LeaseLostError, StoreError
from ares.journal.failures import failure_of
from ares.journal.protocol import Append
from ares.journal.queued import QueuedLog, QueuedTicket

#: Seconds that an entry nobody waits for may lie in the queue while nothing is committed.
_LINGER = 0.02
#: Seconds between two tries of entries that could not be stored, unless somebody waits for one.
_RETRY = 0.25
#: Entries of one transaction: a few milliseconds' worth, so that a leader is soon done. As many again of the backlog.
_BATCH = 4_000
#: Characters of one transaction's bodies, so that large values do not make the log of the database grow without end.
_BATCH_TEXT = 2_000_000
#: Entries that the backlog may hold; then their executions are given up.
_BACKLOG = 100_000


class CommitQueue:
    """The queue.

    Args:
        store_name: As messages name it.
        persistent: Whether there is a backlog; otherwise a failure is the end of its execution's log.
        on_done: Called with each ticket that gets its answer in this moment, if somebody waits for that.
    """

    def __init__(self, store_name: str, *, persistent: bool, on_done: Callable[[QueuedTicket], None]) -> None:
        self._store_name = store_name
        self._persistent = persistent
        self._on_done = on_done
        self._tickets: list[QueuedTicket] = []
        #: How many of them have no answer yet.
        self._unanswered = 0
        #: Since when something has been queued without a commit.
        self._since = 0.0
        #: What the store failed with last, "" since it has taken everything, and when it may be troubled again.
        self._trouble = ""
        self._retry_at = 0.0
        #: Whether somebody wants what is queued written without delay.
        self.is_urgent = False

    def put(self, ticket: QueuedTicket) -> None:
        """Add a ticket, whose entries are numbered behind its log's last one, behind all others."""
        if not self._tickets:
            self._since = time.monotonic()
        log = ticket.log
        count = len(ticket.append.entries)
        # No call is made from here to the last: an interruption cannot come between the number and the place.
        log.last_seq += count
        log.newest = ticket
        self._unanswered += 1
        self._tickets.append(ticket)

    def has_backlog(self) -> bool:
        """Whether something is to be tried again."""
        return len(self._tickets) > self._unanswered

    def is_waiting(self) -> bool:
        """Whether something has no answer yet."""
        return self._unanswered > 0

    def due(self, now: float, *, closing: bool) -> float | None:
        """When to write by the monotonic clock, though nobody waits; None if there is no reason to."""
        if self._unanswered:
            due = now if self.is_urgent or closing else self._since + _LINGER
        elif self._tickets and (self.is_urgent or not self._trouble):
            due = now
        else:
            return None
        return due if closing else max(due, self._retry_at)

    def take(self) -> tuple[list[QueuedTicket], list[Append], bool]:
        """What the next transaction is to hold: tickets, which stay in the queue until they are settled, their appends,
        and whether the disk has to be in step with it."""
        batch: list[QueuedTicket] = []
        appends: list[Append] = []
        sync = False
        behind: set[QueuedLog] = set()
        fresh = old = text = 0
        for ticket in self._tickets:
            if ticket.stored or ticket.log in behind:
                continue
            entries = ticket.append.entries
            if not ticket.done:
                if fresh >= _BATCH or text >= _BATCH_TEXT:
                    return batch, appends, sync
                fresh += len(entries)
                for entry in entries:
                    if isinstance(entry.body, str):
                        text += len(entry.body)
            elif old >= _BATCH:
                behind.add(ticket.log)
                continue
            else:
                old += len(entries)
            batch.append(ticket)
            appends.append(ticket.append)
            sync = sync or not ticket.lazy
        self.is_urgent = False
        return batch, appends, sync

    def settle(self, batch: Sequence[QueuedTicket], results: Iterable[BaseException | None]) -> str:
        """Answer what was taken, as the store did; returns a warning in words, or ""."""
        failed: dict[QueuedLog, StoreError] = {}
        for ticket, result in zip(batch, results, strict=True):
            if result is None:
                ticket.stored = True
                if not ticket.done:
                    self._done(ticket, None)
            elif ticket.log not in failed:
                # Whatever follows in its execution fails for want of it, and gets the same answer.
                failed[ticket.log] = failure_of(self._store_name, ticket.log.claim.execution_id, result)
        warning = ""
        if failed:
            warning = self._fail(failed)
        elif self._trouble:
            self._trouble, self._retry_at = "", 0.0
        if not failed and self._tickets[len(batch) - 1 : len(batch)] == [batch[-1]]:
            del self._tickets[: len(batch)]
        else:
            self._tickets = [t for t in self._tickets if not t.stored and t.log.failure is None]
        if self._tickets:
            self._since = time.monotonic()
        return warning

    def give_up(self, error: Callable[[QueuedTicket], StoreError]) -> list[QueuedTicket]:
        """Answer and forget everything; returns what was not stored."""
        rest = [ticket for ticket in self._tickets if not ticket.stored]
        for ticket in rest:
            if not ticket.done:
                self._done(ticket, error(ticket))
        self._tickets = []
        return rest

    def _fail(self, failed: dict[QueuedLog, StoreError]) -> str:
        before, self._trouble, self._retry_at = self._trouble, "", 0.0
        keeps = self._persistent and sum(len(ticket.append.entries) for ticket in self._tickets) <= _BACKLOG
        for log, failure in failed.items():
            if not keeps or isinstance(failure, LeaseLostError):
                log.fail(failure)
            elif not self._trouble:
                self._trouble = failure.problem
        for ticket in self._tickets:
            if ticket.log in failed and not ticket.done:
                self._done(ticket, failed[ticket.log])
        if not self._trouble:
            return ""
        self._retry_at = time.monotonic() + _RETRY
        return "" if self._trouble == before else f"{self._store_name}: {self._trouble}; what it did not take is kept"

    def _done(self, ticket: QueuedTicket, error: StoreError | None) -> None:
        if ticket.gates or ticket.callbacks:
            self._on_done(ticket)
        ticket.error = error
        ticket.done = True
        self._unanswered -= 1
