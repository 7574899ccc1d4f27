"""Random workflows in random weather end as section 4 says. See ``strategies``, ``driver`` and ``reference``."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.walk.driver import Driver, Weather
from tests.walk.police import Police
from tests.walk.reference import Interpreter, NotDetermined
from tests.walk.script import show
from tests.walk.strategies import Case, Features, cases

pytestmark = pytest.mark.timeout(600)
SEEDS = st.integers(0, 2**32)
#: 300 of each in CI, 6,000 with --hypothesis-profile=thorough.
many = settings(max_examples=3 * settings().max_examples)


def judged(case: Case, weather: Weather) -> Driver:
    driver = Driver(case, weather)
    status = driver.drive()
    driver.check()
    judge = driver.judge()
    judge.check(status)
    for scope in driver.walk.state.scopes.values():
        judge.check_variables(driver.variables(scope), scope.prefix, scope.graph)
    Police(driver.graph).read(driver.facts)
    return driver


@many
@given(cases(Features(fail_fast=False)), st.integers(1, 4), SEEDS, st.booleans())
def test_any_order_gives_the_outcome_of_the_reference(case: Case, workers: int, seed: int, is_sync: bool) -> None:
    driver = judged(case, Weather(seed, workers, is_sync))
    try:
        interpreter = Interpreter(case)
        status = interpreter.run()
    except NotDetermined:
        return

    assert driver.end == status
    results = driver.results()
    for path, expected in interpreter.results.items():
        if any(path.startswith(p) for p in interpreter.open_to_chance):
            continue
        found = results[path]
        assert (found.status, found.reason, found.attempts) == (expected.status, expected.reason, expected.attempts), (
            path
        )
        assert found.error.startswith(expected.error), path
        if "ItemFailure" not in repr(expected.output):
            assert show(found.output) == show(expected.output), path


WEATHER = st.builds(
    Weather,
    seed=SEEDS,
    workers=st.integers(1, 4),
    is_sync=st.booleans(),
    crashes=st.integers(0, 4),
    cancels=st.booleans(),
    deadlines=st.booleans(),
    resumes=st.integers(0, 3),
    reruns=st.booleans(),
    put_backs=st.booleans(),
)


@many
@given(cases(), WEATHER)
def test_any_weather_gives_an_outcome_that_the_rules_permit(case: Case, weather: Weather) -> None:
    judged(case, weather)
