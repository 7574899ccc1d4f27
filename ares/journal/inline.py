"""Journals in front of a store that keeps references: everything happens on the calling thread, at once.

No queue, no thread, no waiting: an entry is stored when ``append`` returns, or never.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ares.errors import StoreError
from ares.journal.failures import afresh, failure_of
from ares.journal.protocol import Append, Claim, Entry, Store, Ticket


class SettledTicket:
    """The answer to an append that has been carried out already."""

    __slots__ = ("error",)

    done = True

    def __init__(self, error: StoreError | None = None) -> None:
        self.error = error

    def wait(self, timeout: float | None = None) -> None:  # noqa: ARG002 - a contract's word
        """As ``Ticket.wait``."""
        if self.error is not None:
            raise afresh(self.error)

    def add_callback(self, fn: Callable[[Ticket], None]) -> None:
        """As ``Ticket.add_callback``: called before this returns."""
        fn(self)


#: What every append gets that went well.
_STORED = SettledTicket()


class InlineLog:
    """The journal of one execution in a store that keeps references."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._failure: StoreError | None = None
        self.claim = claim
        self.last_seq = claim.last_seq

    def append(
        self,
        drafts: Sequence[tuple[str, str, Any]],
        *,
        status: str | None = None,
        error: str = "",
        lazy: bool = False,  # noqa: ARG002 - all of it is stored at once
    ) -> SettledTicket:
        """As ``ExecutionLog.append``."""
        at = time.time_ns()
        with self._lock:
            if self._failure is not None:
                return SettledTicket(self._failure)
            seq = self.last_seq
            entries = [Entry(seq + number, at, *draft) for number, draft in enumerate(drafts, 1)]
            try:
                (refused,) = self._store.append((Append(self.claim, entries, status, error),), sync=False)
            except Exception as failed:  # whatever it is, the walk gets an answer
                refused = failed
            except BaseException:
                # A Ctrl-C, perhaps in the middle of it: what is there already the store does not write twice.
                with suppress(Exception):
                    if self._store.append((Append(self.claim, entries, status, error),), sync=False) == [None]:
                        self.last_seq = seq + len(entries)
                raise
            if refused is None:
                self.last_seq = seq + len(entries)
                return _STORED
            self._failure = failure_of(self._store.name, self.claim.execution_id, refused)
            return SettledTicket(self._failure)

    def make_sure(self) -> None:
        """As ``ExecutionLog.make_sure``: there is no other process that could take the claim."""

    def closed(self) -> bool:
        """As ``ExecutionLog.closed``."""
        return self._failure is not None

    def refuse(self, refusal: StoreError) -> None:
        """Take nothing more."""
        with self._lock:
            self._failure = self._failure or refusal

    def shut(self, reason: str) -> None:
        """The same, for a reason in words."""
        self.refuse(StoreError(self._store.name, reason, self.claim.execution_id))
