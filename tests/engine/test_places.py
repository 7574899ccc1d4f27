"""Places that owners hold, wait for and leave: the same, whatever they do, as a list of those in line would say."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ares.engine.places import Places
from tests.engine.helpers import Task

OWNERS = st.sampled_from("abcd")


class AsAList(RuleBasedStateMachine):
    """A few places, and what a list of those in line and a count of those who have one would say."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2
        self.places = Places(self.size)
        self.held = Counter[str]()
        self.offered = Counter[str]()
        self.line: list[str] = []
        self.told: list[str] = []
        self.expected: list[str] = []

    def busy(self) -> int:
        return self.held.total() + self.offered.total()

    @rule(owner=OWNERS)
    def hold(self, owner: str) -> None:
        gets = self.offered[owner] > 0 or self.busy() < self.size
        self.offered[owner] -= self.offered[owner] > 0
        self.held[owner] += gets
        assert self.places.try_hold(owner) == gets

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        self.held[owner] -= self.held[owner] > 0
        self.places.release(owner)
        self._offer()

    @rule(owner=OWNERS)
    def line_up(self, owner: str) -> None:
        if owner not in self.line:
            self.line.append(owner)
        self.places.line_up(owner, lambda: self.told.append(owner))
        self._offer()

    @rule(owner=OWNERS)
    def step_aside(self, owner: str) -> None:
        self.offered[owner] = 0
        self.line = [each for each in self.line if each != owner]
        self.places.step_aside(owner)
        self._offer()

    @rule(owner=OWNERS)
    def leave(self, owner: str) -> None:
        self.held[owner] = self.offered[owner] = 0
        self.line = [each for each in self.line if each != owner]
        self.places.leave(owner)
        self._offer()

    def _offer(self) -> None:
        while self.line and self.busy() < self.size:
            owner = self.line.pop(0)
            self.offered[owner] += 1
            self.expected.append(owner)

    @invariant()
    def is_as_the_list_says(self) -> None:
        assert self.places.busy == self.busy() <= self.size
        assert self.told == self.expected

    def teardown(self) -> None:
        for owner in "abcd":
            self.places.leave(owner)
        assert self.places.busy == 0


TestAsAList = AsAList.TestCase
TestAsAList.settings = settings(max_examples=100, stateful_step_count=40)


def test_who_gives_back_what_it_left_with_takes_it_from_nobody() -> None:
    places = Places(1)
    assert places.try_hold("gone")
    places.leave("gone")
    assert places.try_hold("other")

    places.release("gone")

    assert places.busy == 1
    assert not places.try_hold("third")


def test_an_offer_that_its_owner_could_not_be_told_of_is_none() -> None:
    places = Places(1)
    assert places.try_hold("holder")

    def interrupted() -> None:
        raise KeyboardInterrupt

    places.line_up("owner", interrupted)
    with pytest.raises(KeyboardInterrupt):
        places.release("holder")

    assert places.busy == 0
    places.leave("owner")
    assert places.try_hold("next")


def test_a_place_that_becomes_free_is_never_taken_by_one_who_is_not_in_line() -> None:
    places = Places(1)
    taken: list[bool] = []
    for _ in range(200):
        assert places.try_hold("holder")
        places.line_up("first", lambda: None)
        barging = Task(lambda: taken.append(places.try_hold("second")))
        places.release("holder")
        barging.result()
        places.leave("first")

    assert not any(taken)
