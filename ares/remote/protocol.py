"""What an engine asks of executors, and what they ask of the attempt that waits for them."""

from collections.abc import Collection
from typing import Protocol

from ares.postbox import Latch
from ares.remote.errand import Errand
from ares.remote.returned import Returned


class Watch(Protocol):
    """The attempt whose body is elsewhere, as whoever waits for that body sees it."""

    @property
    def bell(self) -> Latch:
        """Set when there is news of the attempt, and for the waiting thread to be set when there is of the body."""

    def is_over(self) -> bool:
        """Whether somebody ended it: its body is to be stopped, and nobody waits for that."""

    def is_cancelled(self) -> bool:
        """Whether it is asked to end: what has not begun is not to begin."""

    def sent(self) -> None:
        """From here on the body may begin."""

    def begun(self, at: float) -> None:
        """The body began at that time of the monotonic clock."""

    def held_back(self) -> None:
        """The body certainly has not begun, or is to begin anew; its time does not run."""


class Executors(Protocol):
    """The executors of a Runtime, by name. Thread-safe."""

    @property
    def names(self) -> Collection[str]:
        """Which there are."""

    def can_stop(self, name: str) -> bool:
        """Whether a body that has begun on that executor is stopped when its attempt is ended."""

    def run(self, errand: Errand, watch: Watch) -> Returned:
        """Have a body run where it is to run, and wait for it.

        Raises:
            SerializationError: its call cannot be sent.
            WorkerLostError: the worker that ran it is gone.
            ExecutorError: the executor cannot run it.
            StepCancelledError: it was cancelled before it began.
            AttemptEnded: somebody ended the attempt.
        """
