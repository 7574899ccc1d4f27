"""The journal that the engine uses, over any store: what it keeps, whom it belongs to, and what comes in from outside.

Puts the parts together: ``group_commit`` writes, ``own_lease`` says under which lease and whether a former owner is
gone, ``heartbeat`` has it beaten and looks into the inbox. Over a store that keeps references only the lease is needed:
there everything happens on the calling thread and no thread is started.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.errors import ExecutionBusyError, LeaseLostError, StoreError, UsageError
from ares.journal.group_commit import GroupCommit
from ares.journal.heartbeat import Heartbeat
from ares.journal.inbox import Inbox
from ares.journal.inline import InlineLog
from ares.journal.own_lease import OwnLease
from ares.journal.owner import describe, this_process
from ares.journal.protocol import AttentiveStore, Claim, Entry, ExecutionLog, ExecutionRow, NewExecution, Request, Store
from ares.journal.queued import QueuedLog

_DURABILITIES = ("sync", "async", "best_effort")


def _ignore(_: Any) -> None:
    """Nobody wants to be told."""


def _guarded(on_warning: Callable[[str], None]) -> Callable[[str], None]:
    def warn(message: str) -> None:
        # It runs on threads that everybody else depends on.
        with contextlib.suppress(Exception):
            on_warning(message)

    return warn


class StoreJournal:
    """A journal over a store, for one process. Any thread may use it.

    Args:
        store: Where it is kept; opened by ``start``, closed by ``close``.
        durability: ``"sync"``: an entry is written when somebody waits for it, or asks to be called back, and within
            20 ms otherwise. ``"async"``: every entry that is not lazy is written at once, whoever waits.
            ``"best_effort"``: the same, and entries that the store fails to take are kept and tried again.
        lease_timeout: Seconds for which another owner's lease has to give no sign before that owner counts as gone. The
            own one is beaten six times in that, and every 5 seconds at least.
        poll_interval: Seconds between two looks for requests from other processes, while any execution is watched.
        on_warning: Told in words what was survived: a store that fails in ``best_effort``, a lease that could not be
            beaten, a watcher or callback that raised. Called on a thread of the journal's, with no lock held.
        on_lost: Told which claims were lost with the lease, once nothing is taken any more under them. On any thread.
    """

    def __init__(
        self,
        store: Store,
        *,
        durability: str = "sync",
        lease_timeout: float = 30.0,
        poll_interval: float = 0.25,
        on_warning: Callable[[str], None] = _ignore,
        on_lost: Callable[[Mapping[Claim, LeaseLostError]], None] = _ignore,
    ) -> None:
        if durability not in _DURABILITIES:
            raise UsageError(f"durability={durability!r}: it is one of {', '.join(_DURABILITIES)}")
        self._store = store
        self._durability = durability
        self._poll_interval = poll_interval
        self._on_warning = _guarded(on_warning)
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._lease = OwnLease(store, lease_timeout, self._lose)
        self._has_started = self._is_closed = False
        #: The logs of what is claimed, by execution, so that a claim is given back behind its last entry.
        self._logs: dict[str, QueuedLog | InlineLog] = {}
        #: Claims that the store failed to take back.
        self._kept: list[Claim] = []
        self._inbox = Inbox(self._fetch_requests, self._on_warning)
        self._group: GroupCommit | None = None
        self._heartbeat: Heartbeat | None = None

    @property
    def name(self) -> str:
        """As ``Journal.name``."""
        return self._store.name

    @property
    def keeps_references(self) -> bool:
        """As ``Journal.keeps_references``."""
        return self._store.keeps_references

    # --- its life ---

    def start(self) -> None:
        """Open the store and begin the lease. Idempotent.

        Raises:
            StoreError: The store cannot be opened or written; nothing is left open.
        """
        self._check_process()
        with self._lock:
            if self._is_closed:
                raise StoreError(self.name, "the journal is closed")
            if self._has_started:
                return
            self._store.open()
            try:
                self._lease.begin()
                if not self.keeps_references:
                    with contextlib.suppress(StoreError):
                        self._lease.clear_away()
                    self._start_threads()
                self._has_started = True
            finally:
                if not self._has_started:
                    if self._heartbeat is not None:
                        self._heartbeat.stop(0.0)
                    self._group = self._heartbeat = None
                    self._store.close()

    def close(self, timeout: float = 10.0) -> None:
        """Write what waits, give back the lease with all its claims, and close the store.

        Idempotent, and back after ``timeout`` seconds at the latest: when the store does not answer in time, that is
        a warning, and a thread goes on with it for as long as the process lives. Called from a callback of the
        journal's it only sees to it that all this happens. In a child process that inherited the journal it does
        nothing.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            heartbeat = self._heartbeat
        if heartbeat is None:
            self._rest()
        elif self._is_own_thread():
            heartbeat.stop(0.0)
        elif not heartbeat.stop(timeout):
            self._on_warning(f"{self.name}: the store could not be closed within {timeout:g} s")

    def _start_threads(self) -> None:
        self._group = GroupCommit(
            self._store,
            prompt=self._durability != "sync",
            persistent=self._durability == "best_effort",
            on_warning=self._on_warning,
            name=f"ares-journal-writer {self.name}",
        )
        self._heartbeat = Heartbeat(
            self._beat,
            self._lease.look_around,
            self._store.changed,
            self._inbox,
            beat_interval=self._lease.beats_every,
            poll_interval=self._poll_interval,
            farewell=self._rest,
            on_warning=self._on_warning,
            name=f"ares-journal-heartbeat {self.name}",
        )
        self._heartbeat.start()
        if isinstance(self._store, AttentiveStore):
            self._store.attend(on_request=self._heartbeat.look, on_warning=self._on_warning)

    def _rest(self) -> None:
        """Write, give back, close; on the heartbeat's thread where there is one."""
        with self._lock:
            logs = list(self._logs.values())
            self._logs.clear()
        if self._group is not None:
            self._group.close()
        for log in logs:
            log.shut("the journal is closed")
        try:
            self._lease.end()
        except StoreError as error:
            self._on_warning(f"the lease could not be given back: {error}")
        finally:
            self._store.close()

    def _is_own_thread(self) -> bool:
        heartbeat, group = self._heartbeat, self._group
        return (heartbeat is not None and heartbeat.is_current()) or (group is not None and group.is_current())

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(self.name, "the journal was made before a fork: make a new one in the child process")

    def _current_lease(self) -> int:
        self._check_process()
        lease = self._lease.number
        if lease is None or self._is_closed:
            raise StoreError(self.name, "the journal is closed" if self._is_closed else "the journal was not started")
        return lease

    # --- claims and what is written under them ---

    def create(self, new: NewExecution, status: str, drafts: Sequence[tuple[str, str, Any]], *, claimed: bool) -> Claim:
        """As ``Journal.create``."""
        at = time.time_ns()
        entries = [Entry(number, at, *draft) for number, draft in enumerate(drafts, 1)]
        return self._under_lease(lambda lease: self._store.create(new, lease if claimed else None, status, entries))

    def claim(self, execution_id: str) -> Claim:
        """As ``Journal.claim``."""
        self._check_process()
        self._release_kept()
        with self._lock:
            is_held = execution_id in self._logs
        if is_held:  # perhaps under a lease that was lost: what it walks there comes to its end first
            raise ExecutionBusyError(execution_id, describe(this_process()))
        return self._under_lease(
            lambda lease: self._store.claim(execution_id, lease, is_gone=self._lease.is_gone),
        )

    def _under_lease(self, take: Callable[[int], Claim]) -> Claim:
        """Take a claim; under another lease, if the present one turns out to be gone."""
        lease = self._current_lease()
        try:
            return take(lease)
        except LeaseLostError:
            return take(self._lease.renew(lease))

    def release(self, claim: Claim) -> None:
        """As ``Journal.release``. What was handed over under the claim is written first."""
        if self._pid != os.getpid():
            return
        with self._lock:
            log = self._logs.get(claim.execution_id)
            if log is not None and log.claim == claim:
                del self._logs[claim.execution_id]
            else:
                log = None
        if log is not None:
            log.shut("the claim was given back")
        try:
            self._store.release(claim)
        except StoreError as error:
            with self._lock:
                self._kept.append(claim)
            self._on_warning(f"the claim of execution {claim.execution_id!r} could not be given back: {error}")

    def _release_kept(self) -> None:
        """Try again to give back what the store would not take."""
        if not self._kept:
            return
        with self._lock:
            kept, self._kept = self._kept, []
        for claim in kept:
            try:
                self._store.release(claim)
            except StoreError:
                with self._lock:
                    self._kept.append(claim)

    def _beat(self) -> None:
        self._lease.beat()
        # The store takes something again: what it would not take before is tried again.
        if self._group is not None:
            self._group.nudge()
        self._release_kept()

    def _lose(self) -> None:
        """There is another lease: nothing more is written under an earlier one."""
        problem = "the lease was lost: this process gave no sign for too long, or somebody removed it"
        with self._lock:
            logs = [log for log in self._logs.values() if log.claim.lease != self._lease.number]
        lost = {log.claim: LeaseLostError(self.name, problem, log.claim.execution_id) for log in logs}
        for log in logs:
            log.refuse(lost[log.claim])
        self._on_warning(f"{self.name}: {problem}")
        self._on_lost(lost)

    def log(self, claim: Claim) -> ExecutionLog:
        """As ``Journal.log``; the same one for the same claim."""
        self._current_lease()
        with self._lock:
            log = self._logs.get(claim.execution_id)
            if log is None or log.claim != claim:
                group, make_sure = self._group, self._lease.make_sure
                log = InlineLog(self._store, claim) if group is None else QueuedLog(group, claim, make_sure)
                self._logs[claim.execution_id] = log
        return log

    # --- what comes in from outside ---

    def watch(self, execution_id: str, on_request: Callable[[Request], None]) -> Callable[[], None]:
        """As ``Journal.watch``, but that old requests are told by the thread that calls ``watch``, before it returns.
        Over a store that keeps references new ones are told by the thread that calls ``request``."""
        self._current_lease()
        end = self._inbox.watch(execution_id, on_request)
        # What was left before anybody walked it is heard before anything of it begins. Nobody else's: this thread may
        # be interrupted.
        try:
            try:
                self._inbox.deliver(execution_id)
            except StoreError:
                self._look()  # it is told as a warning there, and tried again
            if self._heartbeat is not None:
                self._heartbeat.wake()  # it looks for new ones only while somebody wants to hear of them
        except BaseException:
            end()  # the caller does not get to know how
            raise
        return end

    def named_requests(self, execution_id: str) -> frozenset[str]:
        """As ``Store.named_requests``."""
        return self._store.named_requests(execution_id)

    def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
        """As ``Journal.request``."""
        self._check_process()
        taken = self._store.request(execution_id, kind, body, name)
        if taken:
            self._look()
        return taken

    def close_request(self, number: int) -> None:
        """As ``Journal.close_request``."""
        self._check_process()
        self._store.close_request(number)

    def _look(self) -> None:
        if self._heartbeat is None:
            self._inbox.deliver()
        else:
            self._heartbeat.look()

    def _fetch_requests(self) -> Sequence[Request]:
        lease = self._lease.number
        return [] if lease is None else self._store.requests(lease)

    # --- reading and upkeep: the store's own, started or not ---

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """As ``Journal.entries``."""
        return self._store.entries(execution_id, after)

    def execution(self, execution_id: str) -> ExecutionRow:
        """As ``Journal.execution``."""
        return self._seen(self._store.execution(execution_id))

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """As ``Journal.executions``."""
        rows = self._store.executions(statuses=statuses, workflow_id=workflow_id, metadata=metadata, limit=limit)
        return [self._seen(row) for row in rows]

    def _seen(self, row: ExecutionRow) -> ExecutionRow:
        """What the store would say had it taken back what was given back, and seen what was seen here."""
        is_kept = self._kept and any(claim.execution_id == row.execution_id for claim in self._kept)
        is_live = not is_kept and self._lease.is_live(row)
        return row if is_live == row.live else attrs.evolve(row, live=is_live)

    def prune(self, before: int) -> int:
        """As ``Journal.prune``."""
        return self._store.prune(before)

    def compact(self) -> None:
        """As ``Journal.compact``."""
        self._store.compact()
