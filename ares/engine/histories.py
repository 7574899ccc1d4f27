"""What an execution has decided, called and found so far, for plugins that are asked about it.

Kept only where there is one to ask: a walk without such a plugin keeps no histories. Those that are kept are the
execution's present round's; of what was before, only how much it was.
"""

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from ares.journal.notes import Note, Recorded, ToolCalled
from ares.records import (
    ErrorEntry,
    InterruptEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.walk import facts as f
from ares.walk.instance import inside_of

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
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, list[Any]] = {name: [] for name in _NAMES.values()}
        self._counts: Counter[str] = Counter()
        #: How long each history was when the present round of a sub-workflow began, by the path of its scope; and the
        #: paths of those that lie in one another.
        self._marks: dict[str, tuple[int, ...]] = {}
        self._inside: dict[str, set[str]] = {}

    def add(self, entry: f.Fact | Note, at: datetime | None = None) -> None:
        """Take in what is journaled, if it belongs to a history; ``at`` unless that is now."""
        if isinstance(entry, f.RoundStarted):
            self._turn(entry.path)
            return
        if isinstance(entry, f.Opened):
            if entry.length is None:
                self._open(inside_of(entry.path, entry.round)[:-1])
            return
        found = _entry_of(entry, at)
        name = None if found is None else _NAMES.get(type(found))
        if name is not None:
            with self._lock:
                self._entries[name].append(found)
                self._counts[name] += not isinstance(entry, f.Answered)  # its question was counted

    def _open(self, path: str) -> None:
        """A sub-workflow begins, or goes on in the round that it is in."""
        with self._lock:
            if path not in self._marks:
                self._mark(path)

    def _turn(self, path: str) -> None:
        with self._lock:
            if path:
                for inner in self._inside.pop(path, ()):
                    self._marks.pop(inner, None)
                    self._inside.pop(inner, None)
                self._mark(path)
            else:
                self._entries = {name: [] for name in self._entries}
                self._marks, self._inside = {}, {}

    def _mark(self, path: str) -> None:
        self._marks[path] = tuple(map(len, self._entries.values()))
        outer = path.rpartition("/")[0]
        while outer:
            self._inside.setdefault(outer, set()).add(path)
            outer = outer.rpartition("/")[0]

    def read(self, *names: str) -> dict[str, tuple[Any, ...]]:
        """The histories of these names, as they are now."""
        with self._lock:
            return {name: tuple(self._entries[name]) for name in names}

    def of_round(self, path: str) -> dict[str, tuple[Any, ...]]:
        """All histories of the present round of the execution, or of a sub-workflow, by the path of its scope."""
        if not path:
            return self.read(*self._entries)
        inside = path + "/"
        with self._lock:
            marks = self._marks.get(path, (0,) * len(self._entries))
            return {
                name: tuple(e for e in entries[mark:] if getattr(e, "path", "").startswith(inside))
                for mark, (name, entries) in zip(marks, self._entries.items(), strict=True)
            }

    def count(self, name: str) -> int:
        """How long a history is, earlier rounds included."""
        with self._lock:
            return self._counts[name]


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
