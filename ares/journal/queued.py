"""What those hold who write through a group commit: the log of an execution, and a ticket for each append.

All state in here belongs to the ``GroupCommit``, and changes under its mutex only.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ares.errors import LeaseLostError, StoreError
from ares.journal.failures import afresh
from ares.journal.protocol import Append, Claim, Ticket

if TYPE_CHECKING:
    from ares.journal.group_commit import GroupCommit


class QueuedTicket:
    """The promise that one append will be stored. ``done`` is set last, and never taken back."""

    __slots__ = ("_group", "append", "callbacks", "done", "error", "gates", "lazy", "log", "stored")

    def __init__(
        self,
        group: "GroupCommit",
        log: "QueuedLog",
        append: Append,
        *,
        lazy: bool = False,
        refusal: StoreError | None = None,
    ) -> None:
        self._group = group
        self.log = log
        self.append = append
        self.lazy = lazy
        self.done = refusal is not None
        self.error = refusal
        #: Whether its entries are in the store: also later than an answer that they are not.
        self.stored = False
        self.gates: list[threading.Lock] | None = None
        self.callbacks: list[Callable[[Ticket], None]] | None = None

    def wait(self, timeout: float | None = None) -> None:
        """As ``Ticket.wait``. Unless the timeout is short the calling thread may do the storing itself."""
        if not self.done:
            self._group.wait_for(self, timeout)
        if self.error is not None:
            raise afresh(self.error)

    def add_callback(self, fn: Callable[[Ticket], None]) -> None:
        """As ``Ticket.add_callback``: called on the journal's own thread, in the order of the commits."""
        self._group.call_back(self, fn)


class QueuedLog:
    """The journal of one execution, in front of a store that writes in batches."""

    def __init__(self, group: "GroupCommit", claim: Claim, make_sure: Callable[[], None]) -> None:
        self._group = group
        self._make_sure = make_sure
        self.claim = claim
        #: What follows is guarded by the group's mutex.
        self.last_seq = claim.last_seq
        self.newest: QueuedTicket | None = None
        #: Why nothing more is taken, and why nothing of what was taken will be stored any more.
        self.refusal: StoreError | None = None
        self.failure: StoreError | None = None

    def append(
        self, drafts: Sequence[tuple[str, str, Any]], *, status: str | None = None, error: str = "", lazy: bool = False
    ) -> QueuedTicket:
        """As ``ExecutionLog.append``."""
        return self._group.hand_over(self, drafts, status, error, lazy=lazy)

    def make_sure(self) -> None:
        """As ``ExecutionLog.make_sure``."""
        self._make_sure()
        if isinstance(self.refusal, LeaseLostError):
            raise afresh(self.refusal)

    def closed(self) -> bool:
        """As ``ExecutionLog.closed``."""
        return self.refusal is not None or self._group.closing

    def fail(self, failure: StoreError) -> None:
        """Under the group's mutex: nothing more of this execution is stored."""
        self.failure = self.failure or failure
        self.refusal = self.refusal or failure

    def refuse(self, refusal: StoreError) -> None:
        """Take nothing more; what was handed over gets the store's answer."""
        self._group.refuse(self, refusal)

    def shut(self, reason: str) -> None:
        """Wait until everything that was handed over is stored, or never will be; take nothing more."""
        self._group.shut(self, reason)
