"""What a journal keeps beside the facts of the walk: notes, of which nothing in the walk depends.

``Remembered`` is the exception that proves it: it is read again by ``ctx.once``, never by the walk.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from ares.records import ErrorEntry, InterruptEntry, LoopEntry, MemoryEntry, RouteEntry, ScoringSignal, ToolEntry


@attrs.frozen(repr=False)
class Opaque:
    """Stands where a value cannot be: ``text`` is what there is of it to read.

    The ``repr`` of what a tool was given or returned and that could not be stored; or the stored JSON of a value whose
    class the reading program does not have, which happens only in what is read for people.
    """

    text: str

    def __repr__(self) -> str:
        return self.text


@attrs.define
class Remembered:
    """What the function given to ``ctx.once`` returned, for the instance born in epoch ``born``."""

    kind: ClassVar[str] = "remembered"
    path: str
    round: int
    born: int
    key: str
    value: Any


@attrs.define
class ToolCalled:
    """One call made through ``ctx.tool``; ``duration`` in seconds.

    ``input`` and ``output`` are for people to read: what cannot be stored comes back as an ``Opaque``.
    """

    kind: ClassVar[str] = "tool"
    path: str
    round: int
    attempt: int
    tool_name: str
    input: Any
    output: Any
    duration: float
    success: bool
    error: str = ""


@attrs.define
class Emitted:
    """An event of the user's own, made by ``ctx.emit``; ``module`` is who emitted it."""

    kind: ClassVar[str] = "emitted"
    path: str
    round: int
    attempt: int
    type: str
    payload: Mapping[str, Any]
    module: str = "step"


HistoryEntry = RouteEntry | ToolEntry | MemoryEntry | InterruptEntry | ErrorEntry | ScoringSignal | LoopEntry


@attrs.define
class Recorded:
    """An entry of a history that a plugin gave to ``ctx.record``.

    ``path`` is the entry's, "" where it has none; ``writer`` is the plugin's name. What a ``ToolEntry`` holds as
    ``input`` and ``output`` is for people to read, as in ``ToolCalled``.
    """

    kind: ClassVar[str] = "recorded"
    path: str
    writer: str
    entry: HistoryEntry


Note = Remembered | ToolCalled | Emitted | Recorded
