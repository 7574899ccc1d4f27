"""The facts of an execution: everything that ever changes the state of a walk, in the past tense.

A fact names its instance by (path, round), the attempt it speaks of by (epoch, attempt). ``kind`` is the fact's name
in the journal. Facts are plain slotted objects, made in the hot path and never changed afterwards; facts that follow
from others (``Skipped``, ``Opened``, ``Completed``, ``Ended``) are journaled like all the rest, so that whoever reads
the journal needs no workflow and no walk to know what happened.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import attrs

from ares.questions import AnswerAction, Cause, OnReject
from ares.records import ErrorInfo, ExecutionStatus


class SkipReason(StrEnum):
    """Why a step was skipped. Those in ``BLOCKING`` are passed on to what depends on it."""

    NOT_TAKEN = "not_taken"
    CONDITION = "condition"
    UPSTREAM_SKIPPED = "upstream_skipped"
    UPSTREAM_FAILED = "upstream_failed"
    NO_ROUTE = "no_route"
    FAIL_FAST = "fail_fast"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    VERDICT = "verdict"
    RECOVERED = "recovered"


BLOCKING = frozenset(
    {
        SkipReason.UPSTREAM_FAILED,
        SkipReason.NO_ROUTE,
        SkipReason.FAIL_FAST,
        SkipReason.TIMEOUT,
        SkipReason.CANCELLED,
        SkipReason.REJECTED,
    }
)

#: What a resume sets back: a human's No (REJECTED) stands.
REOPENED = BLOCKING - {SkipReason.REJECTED}


class After(StrEnum):
    """What follows a failed attempt."""

    FINAL = "final"
    RETRY = "retry"
    RECONCILE = "reconcile"
    SKIP = "skip"


class RoundExit(StrEnum):
    """Why a round has no other after it. The last three are the ``SkipReason``s of the same names."""

    MAX_ROUNDS = "max_rounds"
    UNTIL = "until"
    CONTROLLER = "controller"
    NO_LOOP = "no_loop"
    FAILED = "failed"
    UNTIL_FAILED = "until_failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    FAIL_FAST = "fail_fast"


# --- of the execution ----------------------------------------------------------------------------


@attrs.define
class Created:
    """The execution exists: what it walks, and with what. ``nodes`` are (step id, fingerprint, dependencies)."""

    kind: ClassVar[str] = "created"
    workflow_id: str
    version: str
    digest: str
    shape: str
    nodes: tuple[tuple[str, str, tuple[str, ...]], ...]
    inputs: Mapping[str, Any]
    variables: Mapping[str, Any]
    reducers: Mapping[str, str]
    timeout: float | None = None
    metadata: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define
class SetBack:
    """One instance that goes back to its beginning. ``redo`` drops what it had finished inside (elements, child steps);
    without, only its elements that failed go back with it. ``fresh`` makes it forget its ``once`` results and gives it
    new idempotency keys. ``route`` has only its route asked again; what it did stands."""

    path: str
    redo: bool = False
    fresh: bool = False
    route: bool = False


@attrs.define
class Resumed:
    """Somebody took the execution up again. ``in_flight`` died with their process, which is counted; ``set_back`` go
    back. ``accepted`` are the steps of a definition that is not the one before, and what follows describes it."""

    kind: ClassVar[str] = "resumed"
    epoch: int
    in_flight: tuple[str, ...] = ()
    set_back: tuple[SetBack, ...] = ()
    reopened: bool = False
    accepted: tuple[str, ...] | None = None
    nodes: tuple[tuple[str, str, tuple[str, ...]], ...] | None = None
    digest: str = ""
    shape: str = ""
    version: str = ""
    timeout: float | None = None


@attrs.define
class CancelRequested:
    """The execution is to stop: nothing begins any more but ALWAYS steps."""

    kind: ClassVar[str] = "cancelling"
    reason: str = ""


@attrs.define
class DeadlinePassed:
    """A sub-workflow step (``path``), or the execution (an empty path), walked longer than its timeout in seconds."""

    kind: ClassVar[str] = "overdue"
    path: str
    timeout: float
    epoch: int = 0


@attrs.define
class Interrupted:
    """The walk was stopped in good order; ``in_flight`` were cut short, which counts against none of them."""

    kind: ClassVar[str] = "interrupted"
    in_flight: tuple[str, ...] = ()
    reason: str = ""


@attrs.define
class Waiting:
    """All that is left waits for answers. ``paths`` are the steps that ask, as many as are told: of a thousand that are
    answered one by one, each rest would otherwise repeat all."""

    kind: ClassVar[str] = "waiting"
    paths: tuple[str, ...] = ()


@attrs.define
class Ended:
    """The execution ended."""

    kind: ClassVar[str] = "ended"
    status: ExecutionStatus
    error: ErrorInfo | None = None


# --- of an instance ------------------------------------------------------------------------------


@attrs.define
class Checked:
    """The step's condition was evaluated."""

    kind: ClassVar[str] = "checked"
    path: str
    round: int
    epoch: int
    holds: bool


@attrs.define
class Started:
    """An attempt began. ``verdict`` is what interceptors changed about it, in words, and who."""

    kind: ClassVar[str] = "started"
    path: str
    round: int
    epoch: int
    attempt: int
    verdict: str = ""


@attrs.define
class Opened:
    """A step that runs by its parts began: a map over ``length`` elements, or (None) a sub-workflow, whose
    ``set_back`` steps run again when it began before."""

    kind: ClassVar[str] = "opened"
    path: str
    round: int
    epoch: int
    attempt: int
    length: int | None = None
    set_back: tuple["SetBack", ...] = ()


@attrs.define
class Succeeded:
    """An attempt returned. ``targets`` is the ``Goto`` it returned, None without one; ``duration`` in seconds;
    ``verdict`` names the interceptor that gave the output instead, before the attempt began."""

    kind: ClassVar[str] = "succeeded"
    path: str
    round: int
    epoch: int
    attempt: int
    output: Any = None
    writes: tuple[tuple[str, Any], ...] = ()
    targets: tuple[str, ...] | None = None
    duration: float = 0.0
    verdict: str = ""


@attrs.define
class Failed:
    """An attempt, a condition or a whole step with parts failed. ``delay`` is seconds until the retry, ``unknown``
    says that an at_most_once body may or may not have taken effect, ``retryable`` whether it might be retried if not.
    ``recovery`` numbers the recovery that follows, from 1; 0 for none.

    ``exception`` is the living exception where it happened in this process; it is never stored.
    """

    kind: ClassVar[str] = "failed"
    path: str
    round: int
    epoch: int
    attempt: int
    error: ErrorInfo
    after: After = After.FINAL
    delay: float = 0.0
    duration: float = 0.0
    unknown: bool = False
    retryable: bool = True
    recovery: int = 0
    exception: BaseException | None = attrs.field(default=None, eq=False, repr=False)


@attrs.define
class Completed:
    """A map or sub-workflow completed; its output is made of its parts' and is not repeated here."""

    kind: ClassVar[str] = "completed"
    path: str
    round: int
    epoch: int
    attempt: int


@attrs.define
class Skipped:
    """The step will not run. ``origin`` is the step that is the reason, or the interceptor with its own, where there
    is one."""

    kind: ClassVar[str] = "skipped"
    path: str
    round: int
    epoch: int
    reason: SkipReason
    origin: str = ""


@attrs.define
class Routed:
    """A branch point was decided. ``scores`` has every candidate; ``abstained`` names who had no answer."""

    kind: ClassVar[str] = "routed"
    path: str
    round: int
    epoch: int
    targets: tuple[str, ...]
    source: str
    reason: str = ""
    scores: Mapping[str, float] = attrs.field(factory=dict)
    abstained: tuple[str, ...] = ()


@attrs.define
class Unrouted:
    """A branch point got no decision that can be followed: its branches are skipped, the execution fails."""

    kind: ClassVar[str] = "unrouted"
    path: str
    round: int
    epoch: int
    error: ErrorInfo
    exception: BaseException | None = attrs.field(default=None, eq=False, repr=False)


@attrs.define
class Asked:
    """A question to a human: the step waits. ``attempt`` is the one whose body asks, or the last one before."""

    kind: ClassVar[str] = "asked"
    path: str
    round: int
    epoch: int
    attempt: int
    key: str
    message: str
    payload: Any = None
    cause: Cause = Cause.BODY
    on_reject: OnReject = OnReject.SKIP


@attrs.define
class Answered:
    """A human answered. ``feedback`` is in words."""

    kind: ClassVar[str] = "answered"
    path: str
    round: int
    epoch: int
    attempt: int
    key: str
    action: AnswerAction
    value: Any = None
    feedback: str = ""


@attrs.define
class Continued:
    """The body of a parked attempt runs again, from its first line, with the answer."""

    kind: ClassVar[str] = "continued"
    path: str
    round: int
    epoch: int
    attempt: int


# --- of a round ----------------------------------------------------------------------------------


@attrs.define
class RoundEnded:
    """All steps of a round have ended, and it is known whether there is another one.

    ``path`` is that of the scope: empty for the execution, ``child`` for a sub-workflow step's, ``child#2`` where that
    step itself is in its second round. ``by`` names the loop controller that said no, ``error`` is what ``until``
    failed with. ``variables`` is what the variables add up to by then, and ``exception`` the living one, where this
    process knows them; both are never stored.
    """

    kind: ClassVar[str] = "round_ended"
    path: str
    round: int
    epoch: int
    again: bool = True
    reason: str = ""
    by: str = ""
    error: ErrorInfo | None = None
    variables: Mapping[str, Any] | None = attrs.field(default=None, eq=False, repr=False)
    exception: BaseException | None = attrs.field(default=None, eq=False, repr=False)


@attrs.define
class RoundStarted:
    """Round ``round``, the second or a later one, begins: variables carry over, outputs do not. ``epoch`` is that of
    the round before."""

    kind: ClassVar[str] = "round_started"
    path: str
    round: int
    epoch: int


RoundFact = RoundEnded | RoundStarted
ExecutionFact = (
    Created | Resumed | CancelRequested | DeadlinePassed | Interrupted | Waiting | Ended | RoundEnded | RoundStarted
)
InstanceFact = (
    Checked
    | Started
    | Opened
    | Succeeded
    | Failed
    | Completed
    | Skipped
    | Routed
    | Unrouted
    | Asked
    | Answered
    | Continued
)
Fact = ExecutionFact | InstanceFact
