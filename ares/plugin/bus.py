"""What the engine asks of a bus. Protocols only; who lives on the bus is nobody's business here."""

from collections.abc import Mapping
from typing import Any, Protocol

from ares.records import Step, StepResult


class Bus(Protocol):
    """The engine's view of the plugins. Calls that wait are made on the step's own thread."""

    def hooks_steps(self) -> bool:
        """Whether anybody wants ``before_step`` or ``after_step``; asked once a walk, so that nobody costs nothing."""

    def before_step(self, execution_id: str, step: Step) -> None:
        """An attempt is about to run its body."""

    def after_step(self, execution_id: str, result: StepResult) -> None:
        """An attempt ended, and its outcome is committed."""

    def publish(self, execution_id: str, seq: int, kind: str, path: str, fact: Any) -> None:
        """A journal entry was committed: the live, lossy feed of the same. Never blocks."""

    def wants_facts(self) -> bool:
        """Whether ``publish`` reaches anybody."""

    def health(self) -> Mapping[str, Any]:
        """The state of each plugin by name."""


class NoBus:
    """A bus on which nobody lives."""

    def hooks_steps(self) -> bool:
        """Nobody does."""
        return False

    def before_step(self, execution_id: str, step: Step) -> None:
        """Nobody is told."""

    def after_step(self, execution_id: str, result: StepResult) -> None:
        """Nobody is told."""

    def publish(self, execution_id: str, seq: int, kind: str, path: str, fact: Any) -> None:
        """Nobody listens."""

    def wants_facts(self) -> bool:
        """Nobody does."""
        return False

    def health(self) -> Mapping[str, Any]:
        """Nobody is there."""
        return {}
