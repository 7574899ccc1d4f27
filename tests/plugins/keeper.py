"""A plugin's journal over a real store, and events as the engine would pass them on."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ares.errors import SerializationError, UsageError
from ares.events import Event, instant
from ares.journal.collector import ExecutionCollector
from ares.journal.encoding import decode, encode
from ares.journal.fold import Fold
from ares.journal.notes import Emitted, Recorded
from ares.journal.writer import StoreJournal
from ares.records import ExperienceCheckpoint
from ares.stores.sqlite import SqliteStore
from ares.values import Codec
from ares.walk import facts as f
from tests.journal.spy_store import new

CODEC = Codec()


class Kept:
    """One execution."""

    def __init__(self, journal: StoreJournal, execution_id: str) -> None:
        created = f.Created("w", "", "", "", (("a", "mark", ()),), {}, {}, {})
        claim = journal.create(new(execution_id), "RUNNING", [(created.kind, "", encode(created, CODEC))], claimed=True)
        self.log = journal.log(claim)
        self.lock = threading.Lock()
        self.collector = ExecutionCollector({"team": "audit"}, lambda note: encode(note, CODEC))

    def flush(self) -> None:
        with self.lock:
            taken = self.collector.take()
            if taken:
                self.log.append([(note.kind, note.path, body) for note, body in taken]).wait(30)


class Keeper:
    """A ``PluginJournal``; ``on_flush`` and ``on_append`` run first, on the thread of the plugin that calls."""

    def __init__(self, path: Path) -> None:
        self.journal = StoreJournal(SqliteStore(path))
        self.journal.start()
        self.kept: dict[str, Kept] = {}
        self.on_flush: Callable[[str | None], None] = lambda execution_id: None
        self.on_append: Callable[[Event], None] = lambda event: None

    def close(self) -> None:
        self.journal.close()

    def open(self, execution_id: str = "e") -> ExecutionCollector:
        """An execution begins; returns the port that a bus is to be given."""
        kept = self.kept[execution_id] = Kept(self.journal, execution_id)
        return kept.collector

    def flush(self, execution_id: str | None = None) -> None:
        self.on_flush(execution_id)
        for each, kept in self.kept.items():
            if execution_id in (None, each):
                kept.flush()

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        folding = Fold(execution_id)
        for entry in self.journal.entries(execution_id):
            folding.add(entry.seq, entry.at, decode(entry.kind, entry.path, entry.body, CODEC))
        return folding.checkpoint()

    def append(self, event: Event) -> None:
        self.on_append(event)
        kept = self.kept.get(event.stream_id)
        if kept is None:
            raise UsageError(f"{event.stream_id!r} is no execution that is walked here")
        note = Emitted("", 1, 0, event.type, event.payload, event.module)
        kept.log.append([(note.kind, note.path, encode(note, CODEC))]).wait(30)

    def stored(self, kind: type, execution_id: str = "e") -> list[Any]:
        """The notes of a kind that are in the journal."""
        entries = self.journal.entries(execution_id)
        notes = [decode(entry.kind, entry.path, entry.body, CODEC) for entry in entries]
        return [note for note in notes if isinstance(note, kind)]

    def emitted(self, execution_id: str = "e") -> list[tuple[str, dict[str, Any]]]:
        return [(note.type, dict(note.payload)) for note in self.stored(Emitted, execution_id)]

    def recorded(self, execution_id: str = "e") -> list[Any]:
        return [note.entry for note in self.stored(Recorded, execution_id)]


def unstorable(event: Event) -> None:
    """As a journal refuses a payload."""
    raise SerializationError("cannot be stored", where=f"the payload of event {event.type!r}")


class Teller:
    """Passes on what would stand in the journal of an execution."""

    def __init__(self, bus: Any, stream_id: str = "e") -> None:
        self.bus = bus
        self.stream_id = stream_id
        self.seq = 0

    def tell(self, event_type: str, module: str = "step", **payload: Any) -> None:
        self.seq += 1
        event = Event(f"{self.stream_id}:{self.seq}", self.seq, self.stream_id, event_type, module, payload, instant(0))
        self.bus.publish([event])

    def completed(self, path: str, attempt: int = 1, **payload: Any) -> None:
        self.tell("step.completed", path=path, round=1, attempt=attempt, duration=0.25, **payload)
