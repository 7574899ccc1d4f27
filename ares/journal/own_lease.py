"""The lease of one journal: begun, beaten, ended, and begun anew when it was lost; and which other owners are gone.

Whoever looks at the others does so after its own beat was stored: while nobody can write, nobody's silence means
anything.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import attrs

from ares.errors import StoreError
from ares.journal.owner import is_gone as process_is_gone
from ares.journal.owner import this_process
from ares.journal.protocol import ExecutionRow, Lease, Store
from ares.journal.sightings import Sightings

#: Seconds between two beats, and how many of them there are at least in what others wait for.
_INTERVAL = 5.0
_BEATS = 6
#: For how many beats nobody takes this owner for gone, counted from one that was stored: as many have to be missed.
_SURE_FOR = 3
#: How many times as long as for a takeover a lease is silent before it is forgotten, if nobody wants what it holds.
_FORGOTTEN_AFTER = 10


class OwnLease:
    """A process's lease on a store. Any thread may use it.

    Args:
        store: The opened store.
        timeout: Seconds for which another owner's counter has to stand still before that counts as gone.
        on_lost: Called when a lease was lost and there is another one; must not use this.
    """

    def __init__(self, store: Store, timeout: float, on_lost: Callable[[], None]) -> None:
        self._store = store
        self._on_lost = on_lost
        #: Seconds between two beats.
        self.beats_every = min(_INTERVAL, timeout / _BEATS)
        #: Held while a lease begins or ends, however long the store takes for it.
        self._changing = threading.Lock()
        self._number: int | None = None
        self._is_told = True
        #: Until when nobody else can have taken it for lost, on the monotonic clock; and held by who finds out.
        self._sure_until = 0.0
        self._doubting = threading.Lock()
        #: Held for moments, also within a store's transaction.
        self._looking = threading.Lock()
        self._sightings = Sightings(timeout, self.beats_every)

    @property
    def number(self) -> int | None:
        """The present lease; None before it began and after it has ended."""
        return self._number

    def begin(self) -> None:
        """Take a lease.

        Raises:
            StoreError: The store did not take it.
        """
        with self._changing:
            self._number = self._start()

    def renew(self, lost: int) -> int:
        """Take another lease, unless somebody has done it already; what was claimed under the old one stays lost.

        Returns:
            The present one.

        Raises:
            StoreError: The store did not take it, or the lease was ended.
        """
        with self._changing:
            if self._number == lost:
                self._is_told = False
                self._number = self._start()
            self._tell()
            if self._number is None:
                raise StoreError(self._store.name, "the journal is closed")
            return self._number

    def end(self) -> None:
        """Give the lease back with every claim that still stands under it."""
        with self._changing:
            number, self._number = self._number, None
        if number is not None:
            self._store.end_lease(number)

    def _start(self) -> int:
        began = time.monotonic()
        number = self._store.start_lease(attrs.evolve(this_process(), beats_every=self.beats_every))
        self._sure_until = began + _SURE_FOR * self.beats_every
        return number

    def _tell(self) -> None:
        """Under the lock: tell of what was lost. A Ctrl-C may have come between the loss and this."""
        if not self._is_told:
            self._on_lost()
            self._is_told = True

    def beat(self) -> None:
        """Raise the counter, or take another lease if this one is gone.

        Raises:
            StoreError: The store failed.
        """
        number = self._number
        if number is None:
            return
        with self._changing:
            self._tell()
        began = time.monotonic()
        try:
            stands = self._store.beat(number)
        except BaseException:
            with self._looking:
                self._sightings.miss()
            raise
        if stands:
            self._sure_until = began + _SURE_FOR * self.beats_every
        else:
            self.renew(number)

    def make_sure(self) -> None:
        """Beat now, if the last beat is so long ago that somebody may have taken this owner for gone: it was stopped
        perhaps, and goes on this very moment. If the lease is lost it is told before this returns; a store that gives
        no answer leaves it open."""
        if time.monotonic() < self._sure_until:
            return
        with self._doubting, suppress(StoreError):
            if time.monotonic() >= self._sure_until:
                self.beat()

    # --- the others ---

    def look_around(self) -> None:
        """See how far the others are, and forget those of whom nothing is to be expected. To be called after a beat
        that was stored.

        Raises:
            StoreError: The store failed.
        """
        try:
            leases = self._store.leases()
        except BaseException:
            with self._looking:
                self._sightings.miss()
            raise
        with self._looking:
            self._sightings.look(leases, time.monotonic())
            standing = [lease for lease in leases if self._sightings.stands(lease.number)]
        self._forget(standing)

    def clear_away(self) -> None:
        """Forget those whose process is gone, though nothing was seen of them yet.

        Raises:
            StoreError: The store failed.
        """
        self._forget(self._store.leases())

    def _forget(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if self.is_gone(lease, _FORGOTTEN_AFTER):
                self._store.forget_lease(lease)

    def is_gone(self, lease: Lease, times: int = 1) -> bool:
        """Whether the owner of a lease is gone: its process certainly is, or it gave no sign for long enough (``times``
        as long as that)."""
        if lease.number == self._number:
            return False
        with self._looking:
            is_silent = self._sightings.is_silent(lease.number, lease.counter, times)
        return is_silent or process_is_gone(lease.owner)

    def is_live(self, row: ExecutionRow) -> bool:
        """Whether an execution has a live owner, as far as is known here."""
        if not row.live or row.lease == self._number:
            return row.live
        with self._looking:
            return not self._sightings.is_silent(row.lease)
