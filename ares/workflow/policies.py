"""How steps are to be treated: options, policies, and the small values that a workflow's author writes or gets.

Knows numbers and their rules. Refuses to know when anything happens: no clock, no randomness (jitter is given as a
drawn number), and it never sleeps, retries or calls a predicate on its own.
"""

import enum
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import attrs

from ares.errors import UsageError
from ares.workflow.checks import MAX_SECONDS, number_problem, timeout_problem, whole_problem


class Trigger(StrEnum):
    """When a step whose dependencies are final runs."""

    #: No dependency failed or blocks, and at least one completed.
    NONE_FAILED = "none_failed"
    #: Every dependency completed.
    ALL_SUCCEEDED = "all_succeeded"
    #: Whatever happened: clean-up.
    ALWAYS = "always"


class OnItemFailure(StrEnum):
    """What a failed element means for its map step: it fails too, or keeps an ``ItemFailure`` in that place."""

    FAIL = "fail"
    COLLECT = "collect"


class OnNoRoute(StrEnum):
    """What happens at a branch point when nobody decided: a failure, all branches, or none."""

    FAIL = "fail"
    ALL = "all"
    NONE = "none"


class Delivery(StrEnum):
    """What is promised about a body that was cut short: it runs again, or never without being told to."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class RecoveryStrategy(StrEnum):
    """What recovery does with a step whose retries are spent."""

    RETRY = "retry"
    REPLACE = "replace"
    SKIP = "skip"


class Missing(enum.Enum):
    """The type of ``MISSING``."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name


class Unset(enum.Enum):
    """The type of ``UNSET``."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


#: An input without a default.
MISSING: Final = Missing.MISSING
#: A field of a ``StepSpec`` that was not given and takes the workflow's default. ``Any``: it stands for any type there.
UNSET: Final[Any] = Unset.UNSET


def _require(instance: object, name: str, problem: str) -> None:
    if problem:
        raise UsageError(f"{type(instance).__name__}.{name} {problem}")


def _whole(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    _require(instance, attribute.name, whole_problem(value, 1))


def _whole_or_none(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None:
        _require(instance, attribute.name, whole_problem(value, 1) and f"{whole_problem(value, 1)} (None: no limit)")


def _seconds(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    _require(instance, attribute.name, number_problem(value, 0.0, MAX_SECONDS))


def _time_limit(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    _require(instance, attribute.name, timeout_problem(value))


def _instance_or_none(kind: type) -> Callable[[object, "attrs.Attribute[Any]", object], None]:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None and not isinstance(value, kind):
            _require(instance, attribute.name, f"must be a {kind.__name__} or None, not {value!r}")

    return check


def permitted(kind: type[StrEnum]) -> str:
    """Give the strings of an option for a message."""
    return ", ".join(repr(member.value) for member in kind)


def _option(instance: object, name: str, kind: type[StrEnum], value: object) -> None:
    if not isinstance(value, kind):
        _require(instance, name, f"must be one of {permitted(kind)}, not {value!r}")


def as_option(kind: type[StrEnum], value: Any) -> Any:
    """Turn an option's string into its member; leave alone what is none, for whoever can say where it stood."""
    if type(value) is kind or value is UNSET:
        return value
    try:
        return kind(value)
    except ValueError:
        return value


def as_delivery(value: Delivery | str) -> Delivery:
    """Convert the string of a delivery."""
    return as_option(Delivery, value)  # type: ignore[no-any-return]  # a stranger is left to the validator


def _as_strategy(value: RecoveryStrategy | str) -> RecoveryStrategy:
    return as_option(RecoveryStrategy, value)  # type: ignore[no-any-return]  # a stranger is left to the validator


#: Which exceptions are retried: a type, a tuple of types, or a predicate, which is the user's code.
RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Any], object]


def _as_types(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _retry_on(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    types = value if isinstance(value, tuple) else (value,)
    if all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
        return
    if isinstance(value, type | tuple) or not callable(value):
        problem = f"must be an exception type, a tuple of them or a predicate, not {value!r}"
        _require(instance, attribute.name, problem)


@attrs.frozen
class RetryPolicy:
    """How often and how soon a failed attempt is repeated.

    Attributes:
        max_attempts: all attempts together, the first included; at least 1.
        initial_delay: seconds before the second attempt.
        max_delay: the most seconds before any attempt, jitter included.
        multiplier: what the delay is multiplied by from one attempt to the next; at least 1.
        jitter: the largest part of a delay, from 0 to 1, that chance adds to it.
        retry_on: the exceptions to retry: a type, a tuple of types, or a predicate of the exception.

    Raises:
        UsageError: a field that is out of its range, named with its value.
    """

    max_attempts: int = attrs.field(default=3, validator=_whole)
    initial_delay: float = attrs.field(default=1.0, validator=_seconds)
    max_delay: float = attrs.field(default=60.0, validator=_seconds)
    multiplier: float = attrs.field(default=2.0)
    jitter: float = attrs.field(default=0.1)
    retry_on: RetryOn = attrs.field(default=Exception, converter=_as_types, validator=_retry_on)

    @multiplier.validator
    def _check_multiplier(self, attribute: "attrs.Attribute[float]", value: object) -> None:
        _require(self, attribute.name, number_problem(value, 1.0, MAX_SECONDS))

    @jitter.validator
    def _check_jitter(self, attribute: "attrs.Attribute[float]", value: object) -> None:
        _require(self, attribute.name, number_problem(value, 0.0, 1.0))

    def delay(self, attempt: int, draw: float) -> float:
        """Give the seconds to wait after ``attempt`` (from 1) failed.

        Args:
            attempt: the attempt that failed.
            draw: the chance in it, a number in [0, 1).

        Returns:
            At least ``initial_delay`` and never more than ``max_delay``. The cap leaves room for the jitter, so that
            delays at the cap are spread as well.
        """
        try:
            delay = float(self.initial_delay * float(self.multiplier) ** (attempt - 1))
        except OverflowError:
            delay = float(self.max_delay) if self.initial_delay else 0.0
        delay = min(delay, self.max_delay / (1.0 + self.jitter))
        return min(delay * (1.0 + self.jitter * draw), float(self.max_delay))

    def matches(self, error: BaseException) -> bool:
        """Tell whether ``error`` is one to retry. Calls the predicate, if there is one, and raises what it raises."""
        if isinstance(self.retry_on, type | tuple):
            return isinstance(error, self.retry_on)
        return bool(self.retry_on(error))


@attrs.frozen
class RecoveryPolicy:
    """What to do with a step whose retries are spent, if the recovery plugins agree.

    Attributes:
        strategy: ``retry`` it, ``replace`` its agent, or ``skip`` it.
        max_attempts: how often, at least once.
        replacement_agent: the registered agent that takes over; for ``replace``, and only there.

    Raises:
        UsageError: a field that is out of its range, named with its value.
    """

    strategy: RecoveryStrategy = attrs.field(converter=_as_strategy)
    max_attempts: int = attrs.field(default=1, validator=_whole)
    replacement_agent: str | None = attrs.field(default=None, validator=_instance_or_none(str))

    @strategy.validator
    def _check_strategy(self, attribute: "attrs.Attribute[RecoveryStrategy]", value: object) -> None:
        _option(self, attribute.name, RecoveryStrategy, value)

    def __attrs_post_init__(self) -> None:
        wanted = self.strategy is RecoveryStrategy.REPLACE
        if wanted is not bool(self.replacement_agent):
            rule = "is needed by 'replace'" if wanted else f"is for 'replace', not for {self.strategy.value!r}"
            _require(self, "replacement_agent", f"{rule}: {self.replacement_agent!r}")


@attrs.frozen
class Loop:
    """That a workflow has more than one round.

    Before each round but the first are asked ``max_rounds``, then ``until``, then the loop controllers on the bus; any
    No ends the loop. Where nobody can say No it goes on until it fails or is cancelled.

    Attributes:
        max_rounds: the last round, counted from 1; None: no limit.
        until: called like a step function after each round that completed, with the outputs of that round; true ends
            the loop. It has the timeout of the workflow's ``defaults``.

    Raises:
        UsageError: a field that is out of its range, named with its value.
    """

    max_rounds: int | None = attrs.field(default=None, validator=_whole_or_none)
    until: Callable[..., Any] | None = attrs.field(default=None)

    @until.validator
    def _check_until(self, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None and not callable(value):
            _require(self, attribute.name, f"must be a callable or None, not {value!r}")


@attrs.frozen
class StepDefaults:
    """The policies of every step of a workflow that does not set its own.

    A sub-workflow step takes ``timeout``, ``retry`` and ``recovery``; the steps inside it follow their own workflow.

    Attributes:
        timeout: seconds that an attempt may take; None: no limit.
        retry: how failed attempts are repeated; None: one attempt.
        recovery: what happens when retries are spent.
        delivery: what is promised about a body that was cut short.
        max_crashes: how often the process may die during the step; None: no limit.

    Raises:
        UsageError: a field that is out of its range, named with its value.
    """

    timeout: float | None = attrs.field(default=None, validator=_time_limit)
    retry: RetryPolicy | None = attrs.field(default=None, validator=_instance_or_none(RetryPolicy))
    recovery: RecoveryPolicy | None = attrs.field(default=None, validator=_instance_or_none(RecoveryPolicy))
    delivery: Delivery = attrs.field(default=Delivery.AT_LEAST_ONCE, converter=as_delivery)
    max_crashes: int | None = attrs.field(default=3, validator=_whole_or_none)

    @delivery.validator
    def _check_delivery(self, attribute: "attrs.Attribute[Delivery]", value: object) -> None:
        _option(self, attribute.name, Delivery, value)


@attrs.frozen
class Input:
    """One declared input of a workflow.

    Attributes:
        type: what a value should be; the command line converts to it.
        default: what an input that is not given is; MISSING: it must be given.
    """

    type: Any = object
    default: Any = MISSING

    @property
    def is_required(self) -> bool:
        """Whether a run has to give it."""
        return self.default is MISSING


@attrs.frozen
class ItemFailure:
    """Stands in a map's output where an element failed, under ``on_item_failure="collect"``.

    Attributes:
        index: the position of the element, from 0.
        item: the element itself.
        error: what it failed with, or the ``RecordedError`` of that when it happened in an earlier process.
    """

    index: int
    item: Any
    error: BaseException
