"""How long a counter was seen to stand still, held against a model that keeps every look."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.journal.owner import this_process
from ares.journal.protocol import Lease
from ares.journal.sightings import Sightings

TIMEOUT = 6.0
INTERVAL = 1.0


def lease(number: int, counter: object, beats_every: object = INTERVAL) -> Lease:
    return Lease(number, counter, attrs.evolve(this_process(), beats_every=beats_every))  # type: ignore[arg-type]


def seen_for(looks: int, *, apart: float = INTERVAL, **more: object) -> Sightings:
    """Lease 1 at counter 5, seen so many times."""
    sightings = Sightings(TIMEOUT, INTERVAL)
    for number in range(looks):
        sightings.look([lease(1, 5, **more)], 100.0 + number * apart)  # type: ignore[arg-type]
    return sightings


# --- against a model -------------------------------------------------------------------------------------------------

#: Seconds since what came before, and the counters by lease that were seen, or None when the store was not there.
LOOKS = st.lists(
    st.tuples(
        st.floats(0.0, 40.0) | st.sampled_from([0.0, 1.0, 2.0]),
        st.none() | st.dictionaries(st.integers(1, 3), st.integers(0, 2)),
    ),
    max_size=40,
)


def stood(history: list[tuple[float, dict[int, int] | None]], number: int) -> tuple[int, float] | None:
    """A lease's counter, and the seconds for which it was seen to stand there, by going through every look again."""
    if not history:
        return None
    looks = [look for look in history if look[1] is not None]
    if not looks or looks[-1][1] is None or number not in looks[-1][1]:
        return None
    counter = looks[-1][1][number]
    seconds = 0.0
    later: float | None = None
    for at, counters in reversed(history):
        if counters is None:
            later = None
            continue
        if counters.get(number) != counter:
            break
        if later is not None:
            seconds += min(later - at, 2 * INTERVAL)
        later = at
    return counter, seconds


@given(LOOKS)
def test_a_lease_is_silent_when_the_looks_add_up_to_the_timeout(
    looks: list[tuple[float, dict[int, int] | None]],
) -> None:
    sightings = Sightings(TIMEOUT, INTERVAL)
    history: list[tuple[float, dict[int, int] | None]] = []
    now = 1_000.0
    for since, counters in looks:
        now += since
        history.append((now, counters))
        if counters is None:
            sightings.miss()
        else:
            sightings.look([lease(*pair) for pair in counters.items()], now)
        for number in (1, 2, 3):
            found = stood(history, number)
            for counter in (None, 0, 1, 2):
                fits = found is not None and counter in (None, found[0])
                seconds = 0.0 if found is None else found[1]
                if abs(seconds - TIMEOUT) > 1e-6:  # the sums are made in another order
                    assert sightings.is_silent(number, counter) == (fits and seconds >= TIMEOUT)


# --- what it must not conclude ---------------------------------------------------------------------------------------


def test_a_counter_that_moved_since_it_was_seen_says_that_its_owner_lives() -> None:
    sightings = seen_for(7)

    assert sightings.is_silent(1)
    assert sightings.is_silent(1, 5)
    assert not sightings.is_silent(1, 6)
    assert not sightings.is_silent(2)


def test_whoever_was_put_aside_itself_concludes_nothing_from_that() -> None:
    sightings = seen_for(2, apart=3_600.0)

    assert not sightings.is_silent(1)


def test_a_clock_that_seems_to_go_back_counts_for_nothing() -> None:
    sightings = Sightings(TIMEOUT, INTERVAL)
    for now in (100.0, 50.0, 0.0) * 10:
        sightings.look([lease(1, 5)], now)

    assert not sightings.is_silent(1, times=10)


def test_while_the_store_is_away_nobody_is_silent() -> None:
    sightings = Sightings(TIMEOUT, INTERVAL)
    for number in range(20):
        sightings.look([lease(1, 5)], 100.0 + 2 * number)
        sightings.miss()

    assert not sightings.is_silent(1)


def test_a_lease_that_was_away_is_seen_for_the_first_time() -> None:
    sightings = seen_for(7)
    sightings.look([], 107.0)
    sightings.look([lease(1, 5)], 108.0)

    assert not sightings.is_silent(1)


def test_an_owner_that_means_to_beat_rarely_is_given_the_time_for_it() -> None:
    for looks, is_silent in ((15, False), (16, True)):
        assert seen_for(looks, beats_every=5.0).is_silent(1) is is_silent


@pytest.mark.parametrize("beats_every", [1e9, -1.0, float("nan"), "often", None])
def test_an_interval_that_makes_no_sense_is_taken_for_the_longest(beats_every: object) -> None:
    for looks, is_silent in ((15, False), (16, True)):
        assert seen_for(looks, beats_every=beats_every).is_silent(1) is is_silent


@pytest.mark.parametrize("counter", [-5, "many", None, 1.5, b"\x00"])
def test_a_counter_that_somebody_wrote_by_hand_stands_still_like_any_other(counter: object) -> None:
    sightings = Sightings(TIMEOUT, INTERVAL)
    for number in range(7):
        sightings.look([lease(1, counter)], 100.0 + number)

    assert sightings.is_silent(1, counter)  # type: ignore[arg-type]
    assert not sightings.is_silent(1, 7)
