"""What an interceptor may say about a step."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs


class HookPolicy(StrEnum):
    """Whether a plugin's ``before_step`` watches or decides."""

    OBSERVE = "observe"
    INTERCEPT = "intercept"


class HookAction(StrEnum):
    """What becomes of the step."""

    ABORT = "abort"
    SKIP = "skip"
    COMPLETE = "complete"
    REPLACE = "replace"


@attrs.frozen
class HookResult:
    """An interceptor's verdict, made by ``abort``, ``skip``, ``complete`` or ``replace``.

    ``plugin`` is whose verdict it is; the bus fills it in.
    """

    action: HookAction = attrs.field(converter=HookAction)
    reason: str = ""
    output: Any = None
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    plugin: str = ""

    @classmethod
    def abort(cls, reason: str) -> "HookResult":
        """The step fails for this reason, and is neither retried nor recovered."""
        return cls(HookAction.ABORT, reason)

    @classmethod
    def skip(cls, reason: str) -> "HookResult":
        """The step is skipped, which does not block what depends on it."""
        return cls(HookAction.SKIP, reason)

    @classmethod
    def complete(cls, output: Any) -> "HookResult":
        """The step completes with this output; its body does not run."""
        return cls(HookAction.COMPLETE, output=output)

    @classmethod
    def replace(cls, inputs: Mapping[str, Any]) -> "HookResult":
        """The step runs, with these values for some of its parameters."""
        return cls(HookAction.REPLACE, inputs=dict(inputs))
