"""Says which steps may be recovered: those on a list that a program changes while it runs.

What a recovery is, a step says itself by its ``RecoveryPolicy``: another attempt, another agent, or to do without.
Where recovery plugins live on the bus the policy applies only if one of them agrees; this one agrees for the steps that
it was told of, so that an operator can switch recovery on and off without touching the workflow.
"""

import threading
from collections.abc import Iterable

from ares.context import Context
from ares.errors import UsageError
from ares.plugin import Capability, Plugin
from ares.records import ExecutionState, StepFailure


class BasicRecoveryPlugin(Plugin):
    """An allowlist of steps.

    Args:
        allow: ids of steps, or paths (``audit/parse``, ``measure[3]``) where only one of that id is meant.
        name: of the plugin.

    Raises:
        UsageError: one of them is no text, or empty.
    """

    capabilities = frozenset({Capability.RECOVERY})

    def __init__(self, allow: Iterable[str] = (), *, name: str = "recovery") -> None:
        self.name = name
        self._lock = threading.Lock()
        #: Replaced under the lock, never changed.
        self._allowed: frozenset[str] = frozenset()
        for step in (allow,) if isinstance(allow, str) else allow:
            self.allow_step(step)

    @property
    def allowed(self) -> frozenset[str]:
        """The steps that may be recovered. Any thread."""
        return self._allowed

    def allow_step(self, step: str) -> None:
        """From now on a step may be recovered. Any thread, at any time.

        Raises:
            UsageError: ``step`` is no text, or empty.
        """
        _check(step)
        with self._lock:
            self._allowed |= {step}

    def revoke_step(self, step: str) -> None:
        """From now on a step may not be recovered, if it could be. Any thread, at any time."""
        with self._lock:
            self._allowed -= {step}

    def should_recover(self, ctx: Context, failure: StepFailure, state: ExecutionState) -> bool:  # noqa: ARG002 - a contract's words
        """Whether the step, or just this instance of it, is on the list."""
        return failure.step_id in self._allowed or failure.path in self._allowed


def _check(step: object) -> None:
    if not isinstance(step, str) or not step:
        raise UsageError(f"a step to be recovered is named by its id or path, not by {step!r}")
