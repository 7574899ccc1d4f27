"""What a soak left: executions as the journal has them, lines of effects, and who was stopped when."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from ares import ExecutionStatus, Runtime
from benchmarks.soak.work import Effect


@attrs.frozen
class Told:
    """An event of an execution, as far as it matters.

    ``path`` and ``attempt`` are "" and 0 where it has none. ``paths`` are those that an interruption, or a new owner,
    found under way.
    """

    seq: int | None
    type: str
    path: str = ""
    attempt: int = 0
    paths: tuple[str, ...] = ()


@attrs.frozen
class Seen:
    """An execution. ``last_seq`` is the number of facts that its checkpoint was made of."""

    execution_id: str
    status: ExecutionStatus
    owner: str
    outputs: dict[str, Any]
    last_seq: int
    events: tuple[Told, ...]


@attrs.frozen
class Stop:
    """A process was stopped from ``since`` on, for longer than its lease perhaps, in seconds of the monotonic clock."""

    pid: int
    since: float


@attrs.frozen
class Evidence:
    """All of it. ``troubles`` are what was seen meanwhile that must not be, in words."""

    executions: tuple[Seen, ...]
    effects: tuple[Effect, ...]
    stops: tuple[Stop, ...] = ()
    troubles: tuple[str, ...] = ()


def seen(rt: Runtime) -> Iterable[Seen]:
    """All executions in a store, through what everybody reads them by."""
    for summary in rt.executions():
        id_ = summary.execution_id
        checkpoint = rt.checkpoint(id_)
        events = tuple(_told(event.seq, event.type, event.payload) for event in rt.execution(id_).events())
        yield Seen(id_, summary.status, summary.owner, dict(checkpoint.outputs), checkpoint.state_version, events)


def _told(seq: int | None, type_: str, payload: Any) -> Told:
    return Told(seq, type_, payload.get("path", ""), payload.get("attempt", 0), tuple(payload.get("in_flight", ())))


def effects_in(folder: str | Path) -> tuple[list[Effect], list[str]]:
    """The lines in all files of a folder, in the order of their moments, and what is wrong with others."""
    effects: list[Effect] = []
    troubles: list[str] = []
    for file in sorted(Path(folder).glob("effects-*.jsonl")):
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                effects.append(Effect(*json.loads(line)))
            except (ValueError, TypeError):
                troubles.append(f"{file.name}, line {number} is damaged: {line[:80]!r}")
    return sorted(effects, key=lambda effect: effect.at), troubles
