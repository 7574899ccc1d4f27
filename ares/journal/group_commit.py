"""Many threads' entries, one transaction: who writes, when, and who hears of it.

There is one writer at a time, but no thread that is it: whoever waits for an entry while nobody writes becomes the
*leader* and commits everything that is queued, whoever queued it. So a chain that is walked on one thread pays for no
hand-off between threads, and sixty threads that wait at the same moment share one commit. Entries that nobody waits for
are written by the journal's own thread: at once where a callback asks to hear of them or the mode wants no waiting,
otherwise when 20 ms have passed and no commit has taken them along.

Two locks. ``_mutex`` guards the queue and everything else in here; it is held for moments, never while the store or
foreign code runs. ``_leading`` is held by the leader for one transaction. A thread that finds it held leaves a *gate*
with its ticket and sleeps. The leader opens the gates of what it has stored, and one more of somebody who still waits
and leads next. That thread looked at ``_leading`` after it had left its gate and the leader looks for gates after it
has given ``_leading`` back, so one of them sees the other.

Interruption. A ``KeyboardInterrupt`` may hit the main thread while it leads. What it was writing has kept its place in
the queue, so the next leader takes it again, and the store finds what the interrupted transaction wrote and does not
write it twice. The locks are taken with ``with``, which cannot lose one; a gate that nobody opened costs its owner a
moment, because no wait in here is without a bound.

A store that fails. The store has done its own waiting and trying when it raises; here a failure is final, and closes
the logs of the executions concerned. Only in ``best_effort`` do the entries stay in the queue, and are tried again with
what comes after them.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ares.errors import StoreError
from ares.journal.clerk import Clerk
from ares.journal.commit_queue import CommitQueue
from ares.journal.protocol import Append, Claim, Entry, Store, Ticket
from ares.journal.queued import QueuedLog, QueuedTicket
from ares.postbox import new_bell, ring

#: Seconds after which a thread that waits looks for itself whether somebody leads.
_RECHECK = 0.25
#: Seconds from which on a thread that waits may lead: a transaction of which it cannot let go may take as long, when a
#: store waits for somebody else's lock. With a shorter timeout the journal's own thread does it.
_LEADS = 30.0
#: Seconds that a leader waits for the others who waited for the last commit: so much for each, and so much at most.
_GATHER_EACH = 0.000_05
_GATHER = 0.003


class GroupCommit:
    """The queue of one store and everybody's way through it.

    Args:
        store: An opened store that does not keep references.
        prompt: Whether entries are written at once although nobody waits for them.
        persistent: Whether entries that the store fails to take are kept and tried again.
        on_warning: Told, in words, what persistence has survived; on the journal's thread.
        name: What that thread is called.
    """

    def __init__(
        self, store: Store, *, prompt: bool, persistent: bool, on_warning: Callable[[str], None], name: str
    ) -> None:
        self._store = store
        self._prompt = prompt
        self._on_warning = on_warning
        self._clerk = Clerk(self._turn, name)
        #: In a child process the locks may stay held for ever, by threads that it does not have.
        self._pid = os.getpid()
        self._leading = threading.Lock()
        self._mutex = threading.Lock()
        self._queue = CommitQueue(store.name, persistent=persistent, on_done=self._tell)
        #: Gates of threads that lead when theirs is opened, first come first served; and gates to be opened.
        self._waiting: dict[threading.Lock, QueuedTicket] = {}
        self._to_open: list[threading.Lock] = []
        #: How many threads waited for the last commit beside the one who led, and what rings when as many do again.
        self._others = 0
        self._all_there = new_bell()
        #: Calls for the journal's thread to make, in order.
        self._outbox: list[tuple[Callable[[Any], None], Any]] = []
        #: Set once, with the mutex: nothing is taken any more.
        self.closing = False

    # --- from any thread ---

    def hand_over(
        self, log: QueuedLog, drafts: Sequence[tuple[str, str, Any]], status: str | None, error: str, *, lazy: bool
    ) -> QueuedTicket:
        """Number the drafts behind the log's last entry and queue them, in one step."""
        if os.getpid() != self._pid:
            return QueuedTicket(self, log, Append(log.claim, ()), refusal=self._is_inherited(log.claim))
        at = time.time_ns()
        with self._mutex:
            refusal = log.refusal or (self._is_closed(log.claim) if self.closing else None)
            if refusal is not None:
                return QueuedTicket(self, log, Append(log.claim, ()), lazy=lazy, refusal=refusal)
            entries = [Entry(seq, at, *draft) for seq, draft in enumerate(drafts, log.last_seq + 1)]
            ticket = QueuedTicket(self, log, Append(log.claim, entries, status, error), lazy=lazy)
            self._queue.put(ticket)
            if self._prompt and not lazy:
                self._queue.is_urgent = True
            wake = self._clerk.must_wake(urgent=self._queue.is_urgent)
        if wake:
            self._clerk.wake()
        return ticket

    def wait_for(self, ticket: QueuedTicket, timeout: float | None) -> None:
        """Block until ``ticket`` is done. Leads, unless the timeout (seconds) is one that a commit might exceed."""
        if os.getpid() != self._pid:
            raise self._is_inherited(ticket.log.claim)
        leads = timeout is None or timeout >= _LEADS
        deadline = None if timeout is None else time.monotonic() + timeout
        if not leads and not self._want(ticket):
            leads = True  # the journal's thread has ended or cannot start: nobody else would do it
        while not ticket.done:
            if leads and not self._leading.locked():
                self._lead(ticket)
                continue
            pause = _RECHECK if deadline is None else min(_RECHECK, deadline - time.monotonic())
            if pause <= 0:
                raise TimeoutError(f"not stored after {timeout:g} s")
            self._sleep_on(ticket, pause, leads=leads)

    def call_back(self, ticket: QueuedTicket, fn: Callable[[Ticket], None]) -> None:
        """Have ``fn(ticket)`` called once it is done."""
        if os.getpid() != self._pid:
            raise self._is_inherited(ticket.log.claim)
        with self._mutex:
            if ticket.done:
                self._outbox.append((fn, ticket))
            elif ticket.callbacks is None:
                ticket.callbacks = [fn]
            else:
                ticket.callbacks.append(fn)
        if not self._want(ticket):
            if not ticket.done:
                self._lead(ticket)
            self._deliver()

    def refuse(self, log: QueuedLog, refusal: StoreError) -> None:
        """Have nothing more handed over to ``log``."""
        with self._mutex:
            log.refusal = log.refusal or refusal

    def shut(self, log: QueuedLog, reason: str) -> None:
        """The same, and wait for what was."""
        self.refuse(log, StoreError(self._store.name, reason, log.claim.execution_id))
        with self._mutex:
            newest = log.newest
        if newest is not None and not newest.done:
            self.wait_for(newest, None)

    def nudge(self) -> None:
        """Try again what the store failed to take, if there is any."""
        with self._mutex:
            if not self._queue.has_backlog() or self.closing:
                return
            self._queue.is_urgent = True
            wake = self._clerk.must_wake(urgent=True)
        if wake:
            self._clerk.wake()

    def close(self) -> None:
        """Write what waits and take nothing more. Blocks for as long as the store does."""
        with self._mutex:
            self.closing = True
            self._queue.is_urgent = True
        self._clerk.finish()
        with self._mutex:
            rest = self._queue.give_up(lambda ticket: self._is_closed(ticket.log.claim))
            if rest:
                count = sum(len(ticket.append.entries) for ticket in rest)
                runs = len({ticket.log for ticket in rest})
                self._outbox.append((self._on_warning, f"{count} entries of {runs} executions could not be stored"))
        self._hand_on()
        self._deliver()

    def is_current(self) -> bool:
        """Whether the calling thread is the journal's own."""
        return self._clerk.is_current()

    # --- waiting ---

    def _want(self, ticket: QueuedTicket) -> bool:
        """Have the journal's thread see to a ticket without delay; False when there is no such thread any more."""
        with self._mutex:
            if not ticket.done and not ticket.lazy:
                self._queue.is_urgent = True
            wake = self._clerk.must_wake(urgent=self._queue.is_urgent or bool(self._outbox))
        return not wake or self._clerk.wake()

    def _sleep_on(self, ticket: QueuedTicket, pause: float, *, leads: bool) -> None:
        """Sleep until the ticket is done, this thread is to lead, or ``pause`` seconds have passed."""
        gate = threading.Lock()
        gate.acquire()
        with self._mutex:
            if ticket.done:
                return
            ticket.gates = [*(ticket.gates or ()), gate]
            if leads:
                self._waiting[gate] = ticket
                if len(self._waiting) == self._others:
                    ring(self._all_there)
        try:
            # Only now, with the gate in its place: a leader that leaves after this look will find it.
            if not leads or self._leading.locked():
                gate.acquire(timeout=pause)
        except BaseException:
            self._forget(gate, ticket)
            self._hand_on()  # this may have been the one that was to lead next
            raise
        self._forget(gate, ticket)

    def _forget(self, gate: threading.Lock, ticket: QueuedTicket) -> None:
        with self._mutex:
            self._waiting.pop(gate, None)
            if ticket.gates is not None and gate in ticket.gates:
                ticket.gates.remove(gate)

    # --- leading ---

    def _lead(self, ticket: QueuedTicket | None) -> None:
        """Commit one batch, unless ``ticket`` is done by then; wake those who waited and one who leads next."""
        try:
            with self._leading:
                if ticket is not None:
                    self._gather()
                if ticket is None or not ticket.done:
                    self._commit()
        finally:
            self._hand_on()

    def _gather(self) -> None:
        """Let those who waited for the last commit come with what they have next: all of it costs one commit, too.

        Whoever walks alone waits for nobody. The others are at work meanwhile, and one commit less gives them more time
        than this takes.
        """
        with self._mutex:
            others = self._others
            if others <= len(self._waiting):
                return
            self._all_there.acquire(blocking=False)  # it may have been rung after the last one had gone
        self._all_there.acquire(timeout=min(_GATHER, _GATHER_EACH * others))

    def _commit(self) -> None:
        with self._mutex:
            batch, appends, sync = self._queue.take()
            self._others = sum(1 for ticket in batch if ticket.gates)
        if not batch:
            return
        results: Sequence[BaseException | None]
        try:
            results = self._store.append(appends, sync=sync)
            if len(results) != len(batch):
                raise ValueError(f"{len(results)} answers to {len(batch)} appends")
        except KeyboardInterrupt:
            raise  # not the store's; whoever leads next takes the same batch
        except BaseException as error:  # whatever it is, somebody waits for an answer
            results = [error] * len(batch)
        with self._mutex:
            warning = self._queue.settle(batch, results)
            if warning:
                self._outbox.append((self._on_warning, warning))

    def _tell(self, ticket: QueuedTicket) -> None:
        """Under the mutex: have everybody hear who waits for a ticket that is done in this moment."""
        gates, callbacks = ticket.gates or (), ticket.callbacks or ()
        calls = [(fn, ticket) for fn in callbacks]
        # No call is made from here on: an interruption finds all of it handed over, or nothing.
        self._to_open += gates
        self._outbox += calls
        ticket.gates = ticket.callbacks = None
        for gate in gates:
            self._waiting.pop(gate, None)

    def _hand_on(self) -> None:
        """Open the gates of whoever has an answer, and of one who leads next; wake the journal's thread if need be."""
        with self._mutex:
            gates, self._to_open = self._to_open, []
            if self._waiting and not self._leading.locked():
                gate, ticket = next(iter(self._waiting.items()))
                del self._waiting[gate]
                if ticket.gates is not None:
                    ticket.gates.remove(gate)
                gates.append(gate)
            urgent = bool(self._outbox) or (self._queue.is_urgent and self._queue.is_waiting())
            wake = urgent and self._clerk.must_wake(urgent=True)
        for gate in gates:
            with contextlib.suppress(RuntimeError):  # it was open, because an interruption came between two lines
                gate.release()
        if wake:
            self._clerk.wake()

    # --- the journal's thread ---

    def _turn(self) -> float | None:
        """What is due now; then how many seconds the thread may sleep, or None when it has nothing to live for."""
        self._deliver()
        with self._mutex:
            self._clerk.awake()
            now = time.monotonic()
            due = self._queue.due(now, closing=self.closing)
            if self._outbox:
                return 0.0
            if due is None or due > now:
                if self.closing:
                    return None
                return self._clerk.sleep(None if due is None else due - now)
        self._lead(None)
        return 0.0

    def _deliver(self) -> None:
        while True:
            with self._mutex:
                calls, self._outbox = self._outbox, []
            if not calls:
                return
            for fn, argument in calls:
                try:
                    fn(argument)
                except BaseException as error:  # a callback's own failure must not silence the journal
                    if fn is not self._on_warning:
                        self._outbox.append((self._on_warning, f"a callback of the journal failed: {error!r}"))

    def _is_inherited(self, claim: Claim) -> StoreError:
        return StoreError(self._store.name, "the journal was made before a fork", claim.execution_id)

    def _is_closed(self, claim: Claim) -> StoreError:
        return StoreError(self._store.name, "the journal is closed", claim.execution_id)
