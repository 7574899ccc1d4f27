"""Child processes that call functions of ``tests.durability.children``, by ``ares.testing``."""

import importlib
from pathlib import Path
from typing import Any

from ares.testing.processes import DEADLINE, ChildProcess, Line
from ares.testing.processes import Nursery as AnyNursery

__all__ = ["DEADLINE", "Child", "Nursery", "Voice"]

ROOT = Path(__file__).absolute().parents[2]

Child = ChildProcess
Voice = Line


class Nursery(AnyNursery):
    """A nursery whose children are those functions."""

    def __init__(self) -> None:
        super().__init__(["tests.durability.children"], options=("-W", "error"), folder=ROOT)

    def start(self, function: str, /, **arguments: Any) -> Child:  # type: ignore[override]  # that is its point
        """Have a new process call ``tests.durability.children.<function>(voice, **arguments)``."""
        return super().start(live, function, arguments)


def live(voice: Voice, function: str, arguments: dict[str, Any]) -> Any:
    """What a child does."""
    children = importlib.import_module("tests.durability.children")
    children.begin(voice)
    return getattr(children, function)(voice, **arguments)
