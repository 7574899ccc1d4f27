"""Questions to a human, and the answers to them.

A question parks the step that asks it and nothing else. It is known by its execution, path, round and key; the first
answer wins.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import attrs

from ares.errors import UsageError


def _frozen(given: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(given))


class AnswerAction(StrEnum):
    """What a human said."""

    APPROVE = "approve"
    REJECT = "reject"
    RUN_AGAIN = "run_again"


class OnReject(StrEnum):
    """What a No means to the step that asked: it is skipped, or told."""

    SKIP = "skip"
    RETURN = "return"


def as_on_reject(value: str) -> OnReject:
    """The option of this name.

    Raises:
        UsageError: there is none.
    """
    if value not in tuple(OnReject):
        raise UsageError(f"on_reject={value!r}: it is one of {', '.join(OnReject)}")
    return OnReject(value)


class Cause(StrEnum):
    """Why a question is asked, and so what follows from its answer."""

    #: The step's ``interrupt=``: may it begin at all?
    BEFORE = "before"
    #: ``ctx.interrupt`` in its body, which runs again with the answer.
    BODY = "body"
    #: An ``at_most_once`` body was cut short, and there is no ``reconcile``: did it take effect?
    OUTCOME = "outcome"


#: The keys of the questions that no body asks. Bodies use any text but the empty one; an ``at_most_once`` body, about
#: which the second is asked, asks nothing itself.
BEFORE_KEY: Final = ""
OUTCOME_KEY: Final = "outcome"


@attrs.frozen
class Question:
    """An open question.

    Attributes:
        execution_id: who asks: the execution.
        step_id: the step, with the index of a map element.
        path: where in the execution.
        round: in which round.
        key: tells the questions of one step apart: ``""`` for that of ``interrupt=``, ``"outcome"`` for whether an
            ``at_most_once`` body took effect, else what ``ctx.interrupt`` was given.
        message: the question, in words.
        payload: what else there is to know.
        asked_at: when, UTC.
        cause: why it is asked.
    """

    execution_id: str
    step_id: str
    path: str
    round: int
    key: str
    message: str
    payload: Any
    #: By the clock of whoever says so: the walk itself, or its journal. It makes no other question.
    asked_at: datetime = attrs.field(eq=False)
    cause: Cause = Cause.BODY


@attrs.frozen
class Approve:
    """Yes. ``ctx.interrupt`` returns ``value``; of an unknown outcome: it was done, and ``value`` is the step's output.

    Attributes:
        value: any value that may cross a boundary.
        feedback: in words, for the history.
    """

    value: Any = None
    feedback: str = ""


@attrs.frozen
class Reject:
    """No: the step is skipped with the reason ``rejected``, which blocks what depends on it; a map element fails.

    Attributes:
        reason: in words, for the history.
        value: what a body that wants to be told of a No is given besides.
    """

    reason: str = ""
    value: Any = None


@attrs.frozen
class RunAgain:
    """Of an unknown outcome only: the effect did not happen, the body is to run again.

    Attributes:
        feedback: in words, for the history.
    """

    feedback: str = ""


@attrs.frozen
class Answer:
    """What ``ctx.interrupt(..., on_reject="return")`` returns.

    Attributes:
        approved: Yes or No.
        value: what came with it.
        feedback: in words.
    """

    approved: bool
    value: Any = None
    feedback: str = ""


@attrs.frozen
class Interrupt:
    """A step's ``interrupt=``: a question to be answered before its body runs. A str alone is the message.

    Attributes:
        message: the question, in words.
        payload: what else there is to know: strings by name.
    """

    message: str
    payload: Mapping[str, str] = attrs.field(factory=dict, converter=_frozen, hash=False)
