"""What a process has seen of other owners' counters, and for how long each stood still.

A counter that stands still is the only sign of a death that can be seen from another machine, from another container,
and of a process that lives and does nothing any more. Pure: looks and times come in, no clock is asked.

What counts is time between two looks, by the looker's own monotonic clock, and not more than two beats of it for each
look. So a looker that was itself put aside, with its clock going on, has seen nothing meanwhile and concludes nothing
from it. ``miss`` says that the store was not there: nobody could beat then.
"""

from collections.abc import Iterable

import attrs

from ares.journal.protocol import Lease

#: Beats that an owner must have missed by its own account, however short the timeout of the one who looks.
_BEATS = 3
#: The longest interval between beats that an owner is believed to mean, in seconds.
_LONGEST_INTERVAL = 5.0


@attrs.frozen
class _Seen:
    """A lease as it was seen last, and for how many seconds its counter stood still by then."""

    counter: int
    beats_every: float
    seconds: float


class Sightings:
    """The counters of one store, as one process sees them.

    Args:
        timeout: Seconds for which a counter has to stand still.
        beats_every: Seconds between two looks, as a rule.
    """

    def __init__(self, timeout: float, beats_every: float) -> None:
        self._timeout = timeout
        self._most = 2 * beats_every
        self._seen: dict[int, _Seen] = {}
        self._last_at: float | None = None

    def look(self, leases: Iterable[Lease], now: float) -> None:
        """Every lease that stands, seen at ``now`` (seconds of a clock that never goes back)."""
        gap = 0.0 if self._last_at is None else min(max(0.0, now - self._last_at), self._most)
        seen: dict[int, _Seen] = {}
        for lease in leases:
            before = self._seen.get(lease.number)
            stands = before is not None and before.counter == lease.counter
            seconds = before.seconds + gap if before is not None and stands else 0.0
            seen[lease.number] = _Seen(lease.counter, _interval(lease.owner.beats_every), seconds)
        self._seen, self._last_at = seen, now

    def miss(self) -> None:
        """The store was not there, or took no beat: what lies between the last look and the next counts for nothing."""
        self._last_at = None

    def stands(self, number: int) -> bool:
        """Whether a counter was at the same place at the last look and the one before."""
        seen = self._seen.get(number)
        return seen is not None and seen.seconds > 0.0

    def is_silent(self, number: int, counter: int | None = None, times: int = 1) -> bool:
        """Whether a lease stood still for so long that its owner counts as gone.

        Args:
            number: The lease.
            counter: Where its counter stands now; what was seen of another says nothing.
            times: How many times as long it must have been.
        """
        seen = self._seen.get(number)
        if seen is None or counter not in (None, seen.counter):
            return False
        return seen.seconds >= times * max(self._timeout, _BEATS * seen.beats_every)


def _interval(seconds: object) -> float:
    """What an owner says of its beats, unless that makes no sense: a row may have been written by hand."""
    if isinstance(seconds, int | float) and 0.0 <= seconds <= _LONGEST_INTERVAL:
        return float(seconds)
    return _LONGEST_INTERVAL
