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
of a lock that they share, and they are in order again if they are given back in the order in which they were taken,
which is that of the commits.

*Finalizers.* The garbage collector may run one in here, and it may record: the locks are reentrant.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ares.errors import UsageError
from ares.journal.notes import HistoryEntry, Recorded
from ares.records import ErrorEntry, InterruptEntry, LoopEntry, MemoryEntry, RouteEntry, ScoringSignal, ToolEntry

#: A note, and the body that the journal keeps.
Taken = tuple[Recorded, Any]

_TYPES: Final = frozenset(
    {RouteEntry, ToolEntry, MemoryEntry, InterruptEntry, ErrorEntry, ScoringSignal, LoopEntry}
)  # exactly these: a subclass would come back as its base


class _Buffer:
    """What one writer has recorded and nobody has taken."""

    __slots__ = ("is_closed", "lock", "notes")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.notes: list[Taken] = []
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
        #: What is handed out next: what was given back, then what has left its buffer.
        self._returned: list[Taken] = []
        self._ready: list[Taken] = []

    def __repr__(self) -> str:
        return f"<ExecutionCollector of {', '.join(self._buffers) or 'nobody'}: {self.pending} pending>"

    @property
    def pending(self) -> int:
        """How many notes wait to be taken. Costs next to nothing when there are none."""
        if not self._is_waiting:
            return 0
        with self._lock:
            waiting = sum(len(buffer.notes) for buffer in self._buffers.values())
            return len(self._returned) + len(self._ready) + waiting

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
        kept = (note, self._encode(note))
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
        taken: list[Taken] = []
        try:
            with self._lock:
                self._is_waiting = False
                for buffer in self._buffers.values():
                    if buffer.notes:
                        with buffer.lock:
                            # No call is made in between: an interruption finds each note in one place.
                            fresh, buffer.notes = buffer.notes, []
                            self._ready += fresh
                taken, self._returned, self._ready = self._returned + self._ready, [], []
        except BaseException:  # of an interruption; nobody else gets to know of these
            self.give_back(taken)
            raise
        return taken

    def give_back(self, taken: Iterable[Taken]) -> None:
        """Have handed out again, and first, what was taken and will never be stored: all of it or some, once, and what
        was taken first first. What the journal itself tries again must not be given back."""
        with self._lock:
            self._returned += taken
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
