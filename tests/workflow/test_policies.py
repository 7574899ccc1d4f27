"""Policies: their numbers, what they refuse, and the delays that they give."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import RecordedError, UsageError
from ares.workflow import (
    Delivery,
    Goto,
    Input,
    ItemFailure,
    Loop,
    RecoveryPolicy,
    RecoveryStrategy,
    RetryPolicy,
    StepDefaults,
    StepSpec,
)

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NO_NUMBERS = [True, "1", None, math.nan, [1]]


@pytest.mark.case("C013")
def test_delays_of_five_thousand_attempts_stay_within_the_cap() -> None:
    policy = RetryPolicy(max_attempts=5_000, initial_delay=0.5, multiplier=2, max_delay=3)

    delays = [policy.delay(attempt, draw) for attempt in range(1, 5_001) for draw in (0.0, 0.5, 0.999)]

    assert all(0 <= d <= 3 for d in delays)


@patient
@given(
    attempt=st.integers(1, 10**9),
    draw=st.floats(0, 1, exclude_max=True),
    initial=st.floats(0, 1e9),
    cap=st.floats(0, 1e9),
    multiplier=st.floats(1, 1e9),
    jitter=st.floats(0, 1),
)
def test_no_delay_is_negative_or_above_the_cap(
    attempt: int, draw: float, initial: float, cap: float, multiplier: float, jitter: float
) -> None:
    policy = RetryPolicy(initial_delay=initial, max_delay=cap, multiplier=multiplier, jitter=jitter)

    delay = policy.delay(attempt, draw)

    assert type(delay) is float
    assert 0 <= delay <= cap


def test_a_delay_grows_by_the_multiplier() -> None:
    policy = RetryPolicy(initial_delay=1, multiplier=3, max_delay=100, jitter=0)

    assert [policy.delay(n, 0.9) for n in (1, 2, 3)] == [1, 3, 9]


def test_jitter_makes_a_delay_longer_and_never_shorter() -> None:
    policy = RetryPolicy(initial_delay=1, multiplier=1, jitter=0.5)

    assert policy.delay(1, 0.0) == 1
    assert policy.delay(1, 0.5) == pytest.approx(1.25)


def test_delays_at_the_cap_are_spread_by_jitter_too() -> None:
    policy = RetryPolicy(initial_delay=10, max_delay=10, jitter=0.5)

    assert policy.delay(9, 0.1) < policy.delay(9, 0.9) <= 10


def test_no_initial_delay_means_no_delay_ever() -> None:
    assert RetryPolicy(initial_delay=0).delay(100_000, 0.5) == 0


@pytest.mark.parametrize("field", ["max_attempts", "initial_delay", "max_delay", "multiplier", "jitter"])
@pytest.mark.parametrize("value", [*NO_NUMBERS, -1, math.inf])
def test_a_retry_policy_refuses_a_number_that_makes_no_sense(field: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        RetryPolicy(**{field: value})

    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("max_attempts", 0), ("max_attempts", 1.5), ("multiplier", 0.5), ("jitter", 1.1)]
)
def test_a_retry_policy_refuses_a_number_out_of_range(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=field):
        RetryPolicy(**{field: value})


def test_a_retry_policy_matches_a_type_and_its_subclasses() -> None:
    policy = RetryPolicy(retry_on=OSError)

    assert policy.matches(FileNotFoundError())
    assert not policy.matches(ValueError())


@pytest.mark.parametrize("types", [(OSError, KeyError), [OSError, KeyError], {OSError, KeyError}])
def test_a_retry_policy_matches_any_of_several_types(types: object) -> None:
    policy = RetryPolicy(retry_on=types)

    assert policy.matches(KeyError())
    assert not policy.matches(ValueError())


def test_a_retry_policy_matches_by_predicate() -> None:
    policy = RetryPolicy(retry_on=lambda error: "busy" in str(error))

    assert policy.matches(ValueError("busy"))
    assert not policy.matches(ValueError("gone"))


def test_only_exceptions_are_retried_unless_told_otherwise() -> None:
    assert RetryPolicy().matches(ValueError())
    assert not RetryPolicy().matches(SystemExit())


def test_no_types_means_that_nothing_is_retried() -> None:
    assert not RetryPolicy(retry_on=()).matches(ValueError())


@pytest.mark.parametrize("value", [int, (OSError, int), (OSError, "x"), "OSError", 3, None])
def test_a_retry_policy_refuses_what_is_no_exception_type(value: object) -> None:
    with pytest.raises(UsageError, match="retry_on"):
        RetryPolicy(retry_on=value)


def test_a_recovery_strategy_may_be_given_by_its_string() -> None:
    assert RecoveryPolicy("skip").strategy is RecoveryStrategy.SKIP


def test_an_unknown_recovery_strategy_is_refused_with_the_permitted_ones() -> None:
    with pytest.raises(UsageError, match="'skpi'") as caught:
        RecoveryPolicy("skpi")

    assert all(repr(s.value) in str(caught.value) for s in RecoveryStrategy)


def test_replacing_needs_an_agent_and_nothing_else_takes_one() -> None:
    with pytest.raises(UsageError, match="replacement_agent"):
        RecoveryPolicy("replace")
    with pytest.raises(UsageError, match="replacement_agent"):
        RecoveryPolicy("retry", replacement_agent="other")

    assert RecoveryPolicy("replace", replacement_agent="other").replacement_agent == "other"


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "2"])
def test_recovery_and_loop_refuse_a_count_that_is_none(value: object) -> None:
    with pytest.raises(UsageError, match="max_attempts"):
        RecoveryPolicy("retry", max_attempts=value)
    with pytest.raises(UsageError, match="max_rounds"):
        Loop(max_rounds=value)


def test_a_loop_refuses_an_until_that_cannot_be_called() -> None:
    with pytest.raises(UsageError, match="until"):
        Loop(until="done")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("timeout", math.inf),
        ("timeout", True),
        ("timeout", "5"),
        ("timeout", 1e300),
        ("retry", 3),
        ("recovery", "skip"),
        ("delivery", "once"),
        ("max_crashes", 0),
        ("max_crashes", 2.0),
    ],
)
def test_defaults_are_checked_when_they_are_made(field: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        StepDefaults(**{field: value})

    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


def test_defaults_take_the_string_of_an_option() -> None:
    assert StepDefaults(delivery="at_most_once").delivery is Delivery.AT_MOST_ONCE


def test_goto_keeps_its_targets_in_order() -> None:
    def fix() -> None: ...

    assert Goto("a", fix, value=3).targets == ("a", fix)
    assert Goto("a", value=3).value == 3
    assert Goto().targets == ()


def test_goto_takes_the_id_of_a_spec() -> None:
    assert Goto(StepSpec("a", agent_type="x")).targets == ("a",)


@pytest.mark.parametrize("target", [["a", "b"], None, 3])
def test_goto_refuses_a_target_that_names_nothing(target: object) -> None:
    with pytest.raises(UsageError, match="Goto"):
        Goto(target)


def test_an_input_without_a_default_is_required() -> None:
    assert Input(int).is_required
    assert not Input(int, None).is_required


def test_item_failures_compare_by_what_they_hold() -> None:
    error = RecordedError("ValueError", "no")

    assert ItemFailure(2, "x", error) == ItemFailure(2, "x", error)
