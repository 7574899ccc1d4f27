"""Random workflows in random weather end as section 4 says. See ``strategies``, ``driver`` and ``reference``."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.walk.driver import Driver, Weather
from tests.walk.police import Police
from tests.walk.reference import Interpreter, NotDetermined
from tests.walk.snapshot import snapshot
from tests.walk.strategies import Case, Features, cases

pytestmark = pytest.mark.timeout(600)
SEEDS = st.integers(0, 2**32)
#: Drawing a case costs more than walking it: each is walked in so many orders.
ORDERS = 4
#: 200 of each in CI, 4,000 with --hypothesis-profile=thorough.
many = settings(max_examples=2 * settings().max_examples)


def judged(case: Case, weather: Weather) -> Driver:
    driver = Driver(case, weather)
    status = driver.drive()
    driver.check()
    assert snapshot(driver.replayed().state) == snapshot(driver.walk.state)
    judge = driver.judge()
    judge.check(status)
    for scope in driver.walk.state.scopes.values():
        judge.check_variables(driver.variables(scope), scope.prefix, scope.graph)
    Police(driver.graph, case.script).read(driver.facts)
    return driver


@many
@given(cases(Features(fail_fast=False)), st.integers(1, 4), SEEDS, st.booleans())
def test_any_order_gives_the_outcome_of_the_reference(case: Case, workers: int, seed: int, is_sync: bool) -> None:
    drivers = [judged(case, Weather(seed + n, workers, is_sync)) for n in range(ORDERS)]
    interpreter = Interpreter(case)
    try:
        status = interpreter.run()
    except NotDetermined:
        return
    for driver in drivers:
        assert driver.end == status
        interpreter.compare(driver.results())


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
    closes=st.booleans(),
    has_controllers=st.booleans(),
)


@many
@given(cases(), WEATHER)
def test_any_weather_gives_an_outcome_that_the_rules_permit(case: Case, weather: Weather) -> None:
    for n in range(ORDERS):
        judged(case, attrs.evolve(weather, seed=weather.seed + n))
