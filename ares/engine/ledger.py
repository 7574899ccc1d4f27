"""What one walk writes down, and what it remembers of it: its log, its codec, and the results of ``once``."""

import threading
from typing import Any

import attrs

from ares.journal.encoding import encode
from ares.journal.notes import Note, Remembered
from ares.journal.protocol import ExecutionLog, Ticket
from ares.records import ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f

Draft = tuple[str, str, Any]


class Ledger:
    """The owner writes facts, attempts write notes. Any thread may encode and recall.

    Args:
        log: the journal of the execution.
        codec: encodes values; None where the store keeps references and nobody wants values checked.
        keeps_references: whether bodies are the facts themselves.
        remembered: what ``once`` committed before, by path, epoch of birth and key.
        is_running: whether the store has the execution as RUNNING already.
    """

    def __init__(
        self,
        log: ExecutionLog,
        codec: Codec | None,
        *,
        keeps_references: bool,
        remembered: dict[tuple[str, int, str], Any],
        is_running: bool,
    ) -> None:
        self.log = log
        self._codec = codec
        self._keeps_references = keeps_references
        self._remembered = remembered
        #: Whether it is more than submitted.
        self.is_running = is_running
        self._lock = threading.Lock()

    def encode(self, entry: f.Fact | Note) -> Any:
        """The body of an entry as the store keeps it. Raises ``SerializationError``."""
        if self._codec is not None:
            text = encode(entry, self._codec)
            if not self._keeps_references:
                return text
        if isinstance(entry, f.Failed | f.Unrouted):
            return attrs.evolve(entry, exception=None)  # its frames would live as long as the store
        return entry

    def append(self, drafts: list[Draft], *, status: str | None = None, error: str = "", lazy: bool = False) -> Ticket:
        """Hand facts to the journal; the first ones say that the execution is running now."""
        if status is None and not self.is_running:
            status = ExecutionStatus.RUNNING
        self.is_running = True
        return self.log.append(drafts, status=status, error=error, lazy=lazy)

    def note(self, note: Note, body: Any, *, lazy: bool = False) -> Ticket:
        """Journal something that is no fact of the walk. The caller holds its attempt's lock."""
        return self.log.append([(note.kind, note.path, body)], lazy=lazy)

    def recall(self, path: str, born: int, key: str) -> tuple[bool, Any]:
        """What ``once`` kept, and whether it did."""
        with self._lock:
            name = (path, born, key)
            return name in self._remembered, self._remembered.get(name)

    def remember(self, note: Remembered) -> None:
        """Keep what ``once`` committed."""
        with self._lock:
            self._remembered[note.path, note.born, note.key] = note.value
