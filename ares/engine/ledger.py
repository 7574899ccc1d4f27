"""What one walk writes down, and what it remembers of it: its log, its codec, and the results of ``once``.

All that is journaled of an execution passes here, so this is where it is told: to the feed, and to the histories.
"""

import threading
from collections.abc import Sequence
from typing import Any

import attrs

from ares.engine.feed import Feed, Place
from ares.engine.histories import Histories
from ares.journal.collector import ExecutionCollector
from ares.journal.encoding import encode
from ares.journal.notes import Note, Remembered
from ares.journal.protocol import ExecutionLog, Ticket
from ares.records import ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f

Draft = tuple[str, str, Any]
#: Of what ``once`` keeps: path, round, epoch of birth, key.
OnceKey = tuple[str, int, int, str]


class Ledger:
    """The owner writes facts, attempts write notes, plugins record. Any thread may encode and recall.

    Args:
        log: the journal of the execution.
        codec: encodes values; None where the store keeps references and nobody wants values checked.
        keeps_references: whether bodies are the facts themselves.
        remembered: what ``once`` committed before, by path, round, epoch of birth and key.
        is_running: whether the store has the execution as RUNNING already.
    """

    def __init__(
        self,
        log: ExecutionLog,
        codec: Codec | None,
        *,
        keeps_references: bool,
        remembered: dict[OnceKey, Any],
        is_running: bool,
    ) -> None:
        self.log = log
        self._codec = codec
        self._keeps_references = keeps_references
        self._remembered = remembered
        #: Whether it is more than submitted.
        self.is_running = is_running
        #: Whether the store has it as WAITING.
        self._rests = False
        self._lock = threading.Lock()
        #: Held while entries are numbered, so that the feed has them in order.
        self._order = threading.Lock()
        self._feed: Feed | None = None
        self._histories: Histories | None = None
        self._collector: ExecutionCollector | None = None
        #: The number that the end of the execution comes behind, once there is one.
        self._ends_after: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the end of the execution was handed over; known also of an end whose ticket a Ctrl-C tore away."""
        return self._ends_after is not None and self.log.last_seq > self._ends_after

    def connect(self, feed: Feed, histories: Histories | None, collector: ExecutionCollector) -> None:
        """Tell the plugins. Before anything is written."""
        self._feed, self._histories, self._collector = feed, histories, collector

    def encode(self, entry: f.Fact | Note) -> Any:
        """The body of an entry as the store keeps it. Raises ``SerializationError``."""
        if self._codec is not None:
            text = encode(entry, self._codec)
            if not self._keeps_references:
                return text
        if isinstance(entry, f.Failed | f.Unrouted):
            return attrs.evolve(entry, exception=None)  # its frames would live as long as the store
        if isinstance(entry, f.RoundEnded):
            return attrs.evolve(entry, exception=None, variables=None)
        return entry

    def append(
        self,
        facts: Sequence[f.Fact],
        bodies: Sequence[Any] | None = None,
        *,
        status: str | None = None,
        error: str = "",
        lazy: bool = False,
        held: list[Place] | None = None,
    ) -> Ticket:
        """Hand facts to the journal, behind what plugins recorded; the first ones say that the execution is running.

        Args:
            facts: what happened, in order.
            bodies: of those, where they are encoded already.
            status: what the execution is then; None for no change.
            error: why it failed.
            lazy: nobody waits for their commit.
            held: takes their places in the feed, to be released by the caller.

        Raises:
            SerializationError: a fact cannot be stored.
        """
        if bodies is None:
            bodies = [self.encode(fact) for fact in facts]
        drafts: list[Draft] = [
            (fact.kind, getattr(fact, "path", ""), body) for fact, body in zip(facts, bodies, strict=True)
        ]
        if status is None and (self._rests or not self.is_running):
            status = ExecutionStatus.RUNNING
        self._rests = status == ExecutionStatus.WAITING
        self.is_running = True
        return self._hand_over(drafts, facts, status=status, error=error, lazy=lazy, held=held, takes_records=True)

    def note(self, note: Note, body: Any, *, lazy: bool = False) -> Ticket:
        """Journal something that is no fact of the walk. The caller holds its attempt's lock."""
        return self._hand_over([(note.kind, note.path, body)], (note,), lazy=lazy)

    def keep(self, note: Note) -> Ticket | None:
        """Journal what the bus has passed on already, so that plugins do not hear of it again; None when the execution
        has ended, whose last entry is its end."""
        body = self.encode(note)
        with self._order:
            return None if self.has_ended else self.log.append([(note.kind, note.path, body)], lazy=True)

    def flush(self) -> Ticket | None:
        """Journal what plugins recorded; None when that is nothing."""
        with self._order:
            return self._write_records()

    def _hand_over(
        self,
        drafts: list[Draft],
        entries: Sequence[f.Fact | Note],
        *,
        status: str | None = None,
        error: str = "",
        lazy: bool = False,
        held: list[Place] | None = None,
        takes_records: bool = False,
    ) -> Ticket:
        with self._order:
            if takes_records:
                self._write_records()
            before = self.log.last_seq
            if takes_records and not self.has_ended:
                self._ends_after = before if isinstance(entries[-1], f.Ended) else None
            ticket = self.log.append(drafts, status=status, error=error, lazy=lazy)
            if self._feed is not None and self.log.last_seq > before:  # else it takes nothing more
                self._feed.add(before + 1, entries, None if lazy else ticket, held)
        if self._histories is not None:
            for entry in entries:
                self._histories.add(entry)
        return ticket

    def _write_records(self) -> Ticket | None:
        """Under the lock that keeps the order: journal what plugins recorded."""
        collector = self._collector
        taken = [] if collector is None else collector.take()
        if collector is None or not taken:
            return None
        notes = [note for note, _ in taken]
        before = self.log.last_seq
        ticket = self.log.append([(note.kind, note.path, body) for note, body in taken])
        if self.log.last_seq == before:
            collector.give_back(taken)  # what was numbered is the journal's to store, whatever its ticket says
        elif self._feed is not None:
            self._feed.add(before + 1, notes, ticket)
        if self._histories is not None:
            for note in notes:
                self._histories.add(note)
        return ticket

    def forget(self) -> None:
        """All that ``once`` kept is of rounds that do not come back."""
        with self._lock:
            self._remembered.clear()

    def recall(self, path: str, round: int, born: int, key: str) -> tuple[bool, Any]:
        """What ``once`` kept, and whether it did."""
        with self._lock:
            name = (path, round, born, key)
            return name in self._remembered, self._remembered.get(name)

    def remember(self, note: Remembered) -> None:
        """Keep what ``once`` committed."""
        with self._lock:
            self._remembered[note.path, note.round, note.born, note.key] = note.value
