"""What plugins record of an execution, between their threads and its journal.

A plugin records from its own thread, at any time, and must not wait for the journal; the journal takes entries from
whoever walks the execution, and from those who flush it. In between each writer has a buffer of its own, so that
writers do not contend; one that takes empties all of them.

*Nothing is lost.* A note is in one place at each moment: in its writer's buffer, among those that are ready, or with
the one who took it. What will never be stored is given back. After ``close`` nothing comes in any more, not even from a
thread that is on its way: so what the last ``take`` returns is the rest.

*Nothing is doubled.* A note is handed out once, unless it is given back.

*Order.* What one writer records is handed out in that order, and what is given back comes before all that was not
handed out yet. Of two who take at once each has a part: the journal has them in order if both append before they let go
of a lock that they share.

*Finalizers.* The garbage collector may run one in here, and it may record: the locks are reentrant.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from ares.errors import UsageError
from ares.journal.notes import HistoryEntry, Recorded
from ares.records import ErrorEntry, InterruptEntry, LoopEntry, MemoryEntry, RouteEntry, ScoringSignal, ToolEntry

#: A note, and the body that the journal keeps.
Taken = tuple[Recorded, Any]

_TYPES: Final = frozenset(
    {RouteEntry, ToolEntry, MemoryEntry, InterruptEntry, ErrorEntry, ScoringSignal, LoopEntry}
)  # exactly these: a subclass would come back as its base


class _Kept(tuple[Recorded, Any]):  # noqa: SLOT001 - Python gives a tuple no slots
    """One that knows its place among all that were handed out."""

    number: float = math.inf


_number_of = attrgetter("number")


class _Buffer:
    """What one writer has recorded and nobody has taken."""

    __slots__ = ("is_closed", "lock", "notes")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.notes: list[_Kept] = []
        self.is_closed = False


class ExecutionCollector:
    """The ``ExecutionPort`` of one execution. Any thread.

    Args:
        metadata: The metadata that the run was given.
        encode: Makes a note the body that the execution's journal keeps. What it raises goes to the one who records.
    """

    def __init__(self, metadata: Mapping[str, str], encode: Callable[[Recorded], Any]) -> None:
        self.metadata = metadata
        self._encode = encode
        #: By writer; replaced, never changed.
        self._buffers: Mapping[str, _Buffer] = {}
        #: Set by a writer after its note is in its buffer, unset by one who takes before he looks: so whoever
        #: finds it unset has missed nothing.
        self._is_waiting = False
        #: Guards what follows, and is held by one who takes. Never while anybody's code runs.
        self._lock = threading.RLock()
        self._is_closed = False
        #: What is handed out next, in order: what was given back, then what has left its buffer.
        self._ready: list[_Kept] = []
        #: How many were handed out for the first time.
        self._count = 0

    def __repr__(self) -> str:
        return f"<ExecutionCollector of {', '.join(self._buffers) or 'nobody'}: {self.pending} pending>"

    @property
    def pending(self) -> int:
        """How many notes wait to be taken. Costs next to nothing when there are none."""
        if not self._is_waiting:
            return 0
        with self._lock:
            return len(self._ready) + sum(len(buffer.notes) for buffer in self._buffers.values())

    # --- those who record --------------------------------------------------------------------------------

    def record(self, writer: str, entry: HistoryEntry) -> None:
        """Keep an entry of a history for the journal. Never waits for the store, nor for another writer.

        Args:
            writer: The plugin.
            entry: One of the entries of ``ares.records``. Encoded before this returns, where the store keeps text.

        Raises:
            UsageError: it is no such entry, or the execution is over.
            SerializationError: something in it cannot be stored.
        """
        path = getattr(entry, "path", "")
        if type(entry) not in _TYPES or not isinstance(path, str):
            raise _refusal(writer, entry)
        note = Recorded(path, writer, entry)
        kept = _Kept((note, self._encode(note)))
        buffer = self._buffers.get(writer) or self._add(writer)
        with buffer.lock:
            if buffer.is_closed:
                raise UsageError(f"plugin {writer!r} records a {type(entry).__name__}, but its execution is over")
            buffer.notes.append(kept)
        self._is_waiting = True

    def _add(self, writer: str) -> _Buffer:
        with self._lock:
            buffer = self._buffers.get(writer)
            if buffer is None:
                buffer = _Buffer()
                buffer.is_closed = self._is_closed
                self._buffers = {**self._buffers, writer: buffer}
            return buffer

    # --- those who write it to the journal ---------------------------------------------------------------

    def take(self) -> list[Taken]:
        """All that waits, notes with their bodies: the caller's now. Costs next to nothing when nothing waits."""
        if not self._is_waiting:
            return []
        taken: list[_Kept] = []
        try:
            with self._lock:
                self._is_waiting = False
                for buffer in self._buffers.values():
                    if buffer.notes:
                        with buffer.lock:
                            # No call is made in between: an interruption finds each note in one place.
                            fresh, buffer.notes = buffer.notes, []
                            self._ready += fresh
                self._number()
                taken, self._ready = self._ready, []
        except BaseException:  # of an interruption; nobody else gets to know of these
            self.give_back(taken)
            raise
        return taken  # type: ignore[return-value]  # a list of a subclass, which is nobody else's

    def _number(self) -> None:
        for kept in self._ready:
            if kept.number == math.inf:
                self._count += 1
                kept.number = self._count

    def give_back(self, taken: Iterable[Taken]) -> None:
        """Have handed out again what was taken and will never be stored, all of it or some, once each. What the journal
        itself tries again must not be given back."""
        with self._lock:
            self._ready += taken  # type: ignore[arg-type]  # they came out of ``take``
            self._ready.sort(key=_number_of)  # those of an earlier take may come back later
            self._is_waiting = True

    def close(self) -> None:
        """The execution is over: nothing can be recorded any more. What waits can still be taken. Idempotent."""
        with self._lock:
            self._is_closed = True
            for buffer in self._buffers.values():
                with buffer.lock:
                    buffer.is_closed = True
            # A thread that has just recorded may not have come to say so: the last who takes is to look.
            self._is_waiting = True


def _refusal(writer: str, entry: object) -> UsageError:
    kind = type(entry)
    if kind not in _TYPES:
        known = ", ".join(sorted(known.__name__ for known in _TYPES))
        return UsageError(f"plugin {writer!r} records a {kind.__name__}, which is none of {known}")
    return UsageError(f"plugin {writer!r} records a {kind.__name__} whose path is no str")
