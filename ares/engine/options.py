"""How a Runtime wants its walks walked."""

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any

import attrs

from ares.context import StepContext
from ares.errors import LeaseLostError
from ares.remote.protocol import Executors

#: Seconds that a cancelled attempt is given to end by itself.
CANCEL_GRACE = 5.0
#: Seconds that running attempts are given after a Ctrl-C, and the commit of what they came to after that.
INTERRUPT_GRACE = 2.0
INTERRUPT_COMMIT = 3.0
#: Seconds that a walk which is closed is given beyond its timeout, for the commit of what it came to.
CLOSE_COMMIT = 2.0
#: Seconds after which a commit that was waited for counts as failed; beyond all that the journal itself tries.
COMMIT_TIMEOUT = 120.0


class StepsOn(StrEnum):
    """Which threads run steps."""

    AUTO = "auto"
    WORKERS = "workers"
    CALLER = "caller"


class Durability(StrEnum):
    """What is waited for before a step's dependents start."""

    SYNC = "sync"
    ASYNC = "async"
    BEST_EFFORT = "best_effort"


@attrs.frozen
class Limits:
    """How much a Runtime does at once: how many steps run, and how many of them have a slot of each named pool."""

    max_workers: int
    pools: Mapping[str, int]


@attrs.frozen
class Options:
    """The settings of a Runtime that its walks need."""

    steps_on: StepsOn = StepsOn.AUTO
    durability: Durability = Durability.SYNC
    around_step: Callable[[StepContext], AbstractContextManager[Any]] | None = None
    redact: Callable[[str, Any], Any] | None = None
    check_values: bool = False
    interrupt_handler: Callable[..., Any] | None = None
    executors: Executors | None = None

    @property
    def on_caller(self) -> bool:
        """Every step runs on the walk's own thread; delays are skipped and nothing times out."""
        return self.steps_on is StepsOn.CALLER

    @property
    def may_inline(self) -> bool:
        """The walk's thread may run a step itself when it could do nothing else."""
        return self.steps_on is StepsOn.AUTO

    @property
    def has_timeouts(self) -> bool:
        """Timeouts are enforced."""
        return not self.on_caller

    @property
    def is_sync(self) -> bool:
        """Consequences wait for the commit."""
        return self.durability is Durability.SYNC

    @property
    def needs_store(self) -> bool:
        """A store that gives no answer holds the walk up."""
        return self.durability is not Durability.BEST_EFFORT

    def ends_with(self, error: Exception | None) -> bool:
        """Whether a commit that came to this ends the walk. A store that fails is a warning in ``best_effort``; whoever
        lost the right to write writes nothing more in any mode."""
        survives = self.durability is Durability.BEST_EFFORT and not isinstance(error, LeaseLostError)
        return error is not None and not survives

    def shown(self, name: str, value: Any) -> Any:
        """What is journaled of a value that nothing is computed from; ``name`` is what ``redact`` is told."""
        if self.redact is None:
            return value
        try:
            return self.redact(name, value)
        except Exception as error:
            # Neither may a record fail a step, nor what was to be hidden be kept.
            return f"<redact raised {type(error).__qualname__}>"

    @staticmethod
    def draw() -> float:
        """A number in [0, 1) for a retry's jitter."""
        return random.random()
