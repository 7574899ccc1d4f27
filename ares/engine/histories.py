"""What an execution has decided, called and found so far, for plugins that are asked about it.

Kept only where there is one to ask: a walk without such a plugin keeps no histories.
"""

import threading
from datetime import UTC, datetime
from typing import Any

from ares.journal.notes import Note, Recorded, ToolCalled
from ares.records import (
    ErrorEntry,
    ExperienceCheckpoint,
    InterruptEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.walk import facts as f

#: How each history is called where it is handed out.
_NAMES = {
    RouteEntry: "routes",
    ToolEntry: "tools",
    MemoryEntry: "memory_hits",
    ScoringSignal: "scoring_signals",
    InterruptEntry: "interrupts",
    ErrorEntry: "errors",
}


class Histories:
    """Any thread. Begins with what an earlier process left, if one did."""

    def __init__(self, before: ExperienceCheckpoint | None = None) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, list[Any]] = {name: [] for name in _NAMES.values()}
        if before is not None:
            self._entries = {
                "routes": list(before.route_history),
                "tools": list(before.tool_history),
                "memory_hits": list(before.memory_hits),
                "scoring_signals": list(before.scoring_signals),
                "interrupts": list(before.interrupt_history),
                "errors": list(before.error_history),
            }

    def add(self, entry: f.Fact | Note, at: datetime | None = None) -> None:
        """Take in what is journaled, if it belongs to a history; it was at this instant, or is just now."""
        found = _entry_of(entry, at)
        name = None if found is None else _NAMES.get(type(found))
        if name is not None:
            with self._lock:
                self._entries[name].append(found)

    def read(self, *names: str) -> dict[str, tuple[Any, ...]]:
        """The histories of these names, as they are now."""
        with self._lock:
            return {name: tuple(self._entries[name]) for name in names}

    def count(self, name: str) -> int:
        """How long a history is."""
        with self._lock:
            return len(self._entries[name])


def _entry_of(entry: f.Fact | Note, at: datetime | None) -> Any:
    match entry:
        case Recorded():
            return entry.entry
        case f.Routed():
            return _route(entry.path, entry.targets, entry.reason, entry.source, at)
        case f.Succeeded() if entry.targets is not None:
            return _route(entry.path, entry.targets, "", "step", at)
        case f.Asked():
            return InterruptEntry(_name(entry.path), entry.path, entry.key, "ask", entry.message)
        case f.Answered():
            return InterruptEntry(_name(entry.path), entry.path, entry.key, entry.action.value, entry.feedback)
        case f.Failed() | f.Unrouted():
            return ErrorEntry(_name(entry.path), entry.path, str(entry.error))
        case ToolCalled():
            return ToolEntry(
                _name(entry.path),
                entry.path,
                entry.tool_name,
                entry.input,
                entry.output,
                entry.duration,
                entry.success,
                entry.error,
            )
        case _:
            return None


def _route(path: str, targets: tuple[str, ...], reason: str, source: str, at: datetime | None) -> RouteEntry:
    return RouteEntry(_name(path), path, targets, reason, source, at or datetime.now(UTC))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
