"""What follows a failed attempt: a retry, its delay, the end; and how crashes are counted."""

import pytest

from ares.errors import StepCrashedError
from ares.walk.judge import Failure, describe, judge
from ares.workflow import RetryPolicy
from tests.walk.flows import flow, step

NO = ValueError("no")


@pytest.mark.case("C013")
def test_delays_of_thousands_of_attempts_are_capped_and_never_overflow(walking):
    policy = RetryPolicy(10_000, initial_delay=0.5, multiplier=2.0, max_delay=3.0)
    hand = walking(flow(step("a", retry=policy)))
    instance = hand.start("a")

    delays = []
    for attempt in range(1, 5_001):
        instance.attempt = attempt
        failures = [Failure(describe(NO), NO, retryable=True, draw=draw) for draw in (0.0, 0.999)]
        delays.extend([judge(instance, failure).delay for failure in failures])
    instance.attempt = 1

    assert all(0 <= delay <= 3 for delay in delays)
    assert delays[0] == 0.5


@pytest.mark.case("C013")
def test_a_step_that_always_fails_runs_as_often_as_it_may_and_fails_with_its_last_error(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(4, initial_delay=0.5, max_delay=3.0))))

    for number in range(4):
        hand.run_and_fail("a", ValueError(number))
        hand.fire()

    assert sum(fact.kind == "started" for fact in hand.facts) == 4
    assert hand.instance("a").attempt == 4
    assert hand.error.message == "3"
    assert hand.end == "FAILED"


@pytest.mark.case("C014")
def test_a_waiting_retry_counts_its_attempts_and_holds_no_worker(walking):
    policy = RetryPolicy(6, initial_delay=0.2, multiplier=1.0, jitter=0.0)
    hand = walking(flow(step("a", retry=policy), step("b")))

    for attempt in range(1, 4):
        assert hand.take(1) == ["a"]
        hand.run_and_fail("a", NO)
        assert [(r.delay, r.attempt) for r in hand.retries] == [(0.2, attempt)]
        assert "a" not in hand.held
        if attempt == 1:
            assert hand.take(1) == ["b"]  # with the only worker
            hand.run("b")
        hand.fire()
    hand.run("a", 7)

    assert hand.instance("a").output == 7
    assert hand.instance("a").attempt == 4
    assert hand.end == "COMPLETED"


@pytest.mark.case("C014")
def test_what_is_not_to_be_retried_runs_once(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(6))))

    hand.run_and_fail("a", NO, retryable=False)

    assert hand.end == "FAILED"
    assert hand.instance("a").attempt == 1


def test_without_a_policy_there_is_one_attempt(walking):
    hand = walking(flow(step("a")))

    hand.run_and_fail("a", NO)

    assert hand.end == "FAILED"


def test_retry_after_sets_the_delay(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2, initial_delay=1.0))))
    instance = hand.start("a")

    hand.drop("a")
    hand.give(judge(instance, Failure(describe(NO), NO, retryable=True, retry_after=77.0)), instance)

    assert hand.retries[0].delay == 77.0


def test_a_delay_that_is_over_too_late_or_twice_is_no_harm(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(3))))
    hand.run_and_fail("a", NO)
    retry = hand.retries[0]
    hand.fire()
    hand.start("a")

    hand.walk.due(retry.instance, retry.epoch, retry.attempt)

    assert hand.take() == []
    hand.succeed("a")


def test_a_retry_waits_anew_after_a_resume(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2, initial_delay=5.0))))
    hand.run_and_fail("a", NO)

    hand.crash()
    hand.resume()

    assert hand.take() == []
    assert [r.delay for r in hand.retries] == [5.0]
    hand.fire()
    hand.run("a")
    assert hand.end == "COMPLETED"


def test_an_attempt_cut_short_by_a_crash_uses_up_no_attempt(walking):
    hand = walking(flow(step("a", retry=RetryPolicy(2, initial_delay=0.0), max_crashes=None)))

    for _ in range(10):
        hand.start("a")
        hand.crash()
        hand.resume()
    hand.run_and_fail("a", NO)
    hand.fire()
    hand.run("a")

    assert hand.instance("a").attempt == 2
    assert hand.end == "COMPLETED"


def test_a_step_that_killed_its_process_too_often_fails(walking):
    hand = walking(flow(step("a", max_crashes=2), step("b", "a")))

    for _ in range(2):
        hand.start("a")
        hand.crash()
        hand.resume()

    assert hand.status("a") == "FAILED"
    error = hand.instance("a").exception
    assert isinstance(error, StepCrashedError)
    assert (error.path, error.crashes) == ("a", 2)
    assert hand.reason("b") == "upstream_failed: a"


def test_crashes_of_a_map_element_are_counted_too(walking):
    hand = walking(flow(step("list"), step("m", map_over="list", max_crashes=1)))
    hand.run("list", ["x", "y"])
    hand.start("m[1]")

    hand.crash()
    hand.resume()
    hand.take()

    assert hand.status("m[1]") == "FAILED"
    assert hand.error.type_name == "StepCrashedError"


def test_crashes_between_retries_add_up(walking):
    hand = walking(flow(step("a", max_crashes=2, retry=RetryPolicy(5, initial_delay=0.0))))
    hand.start("a")
    hand.crash()
    hand.resume()
    hand.run_and_fail("a", NO)
    hand.fire()
    hand.start("a")

    hand.crash()
    hand.resume()

    assert hand.error.type_name == "StepCrashedError"


def test_a_stop_in_good_order_is_no_crash(walking):
    hand = walking(flow(step("a", max_crashes=1)))

    for _ in range(3):
        hand.start("a")
        hand.crash(quietly=True)
        hand.resume()
    hand.run("a")

    assert hand.end == "COMPLETED"


def test_a_resume_of_what_crashed_too_often_counts_anew(walking):
    hand = walking(flow(step("a", max_crashes=1)))
    hand.start("a")
    hand.crash()
    hand.resume()
    assert hand.end == "FAILED"

    hand.crash()
    hand.resume()

    assert hand.take() == ["a"]


def test_what_an_exception_says_is_kept_even_if_it_cannot_speak():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe(ValueError("v")).type_name == "ValueError"
    assert describe(MuteError()).type_name.endswith("MuteError")
    assert "RuntimeError" in describe(MuteError()).message
