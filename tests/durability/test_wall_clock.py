"""A wall clock that jumps by an hour decides nothing: not who owns, not what is due."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ares.errors import UsageError
from ares.stores.sqlite import SqliteStore
from benchmarks.soak.wall_clock import WallClock
from tests.durability.nursery import DEADLINE, Nursery
from tests.durability.traces import traces

HOUR = 3600.0


@pytest.fixture(scope="module")
def shared_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WallClock]:
    try:
        clock = WallClock(tmp_path_factory.mktemp("clock"))
    except UsageError as error:
        pytest.skip(str(error))
    with clock:
        yield clock


@pytest.fixture
def clock(shared_clock: WallClock) -> Iterator[WallClock]:
    """The wall clock of children of ``clocked``."""
    yield shared_clock
    shared_clock.set_ahead(0.0)


@pytest.fixture(scope="module")
def shared_clocked(shared_clock: WallClock) -> Iterator[Nursery]:
    with shared_clock.for_new_processes():
        made = Nursery()
    with made:
        yield made


@pytest.fixture
def clocked(shared_clocked: Nursery) -> Iterator[Nursery]:
    """Starts child processes that go by a clock of their own."""
    yield shared_clocked
    shared_clocked.close_children()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to be so."""
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up
        threading.Event().wait(0.02)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_the_clock_of_these_tests_is_no_other_than_it_is_set_to(
    clocked: Nursery, clock: WallClock, ahead: float
) -> None:
    child = clocked.start("tell_the_time")
    wall, monotonic = child.hear()
    clock.set_ahead(ahead)
    child.say("and now?")
    later_wall, later_monotonic = child.hear()

    assert later_wall - wall == pytest.approx(ahead + later_monotonic - monotonic, abs=60.0)
    assert 0.0 <= later_monotonic - monotonic < 2 * DEADLINE


def test_where_nothing_compiles_there_is_no_such_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs a C compiler, and there is none"):
        WallClock(tmp_path)

    (tmp_path / "cc").write_text("#!/bin/sh\necho 'no such target' >&2\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    with pytest.raises(UsageError, match="cannot be made here: no such target"):
        WallClock(tmp_path)


@pytest.mark.parametrize("whose", ["all", "the owner's", "the taker's"])
def test_nothing_is_taken_over_because_a_clock_jumped(
    nursery: Nursery, clocked: Nursery, clock: WallClock, db: str, effects: str, whose: str
) -> None:
    of_owner, of_taker = (
        nursery if whose == "the taker's" else clocked,
        nursery if whose == "the owner's" else clocked,
    )
    owner = of_owner.start("run", workflow="gated", db=db, inputs={"effects": effects})
    assert owner.hear() == "at the gate"
    taker = of_taker.start("look_and_recover", workflow="gated", db=db)
    for ahead in (0.0, HOUR, -HOUR) * 5:  # after one jump it is looked for once, which proves nothing to anybody
        clock.set_ahead(ahead)
        taker.say("look")
        taken, left = taker.hear()
        assert taken == []
        assert left["e"].startswith(f"owned by pid {owner.pid} ")
    owner.say("go")

    assert owner.result()["status"] == "COMPLETED"
    assert traces(effects) == ["step 1", "step 2", "through the gate", "step 3"]


@pytest.mark.case("C045")
@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_nothing_is_due_early_or_late_because_a_clock_jumped(
    clocked: Nursery, clock: WallClock, db: str, ahead: float
) -> None:
    child = clocked.start("run", workflow="timed", db=db, max_workers=3, lease_timeout=1.0)
    assert [child.hear() for _ in range(3)] == ["begun"] * 3
    until(lambda: "failed" in [entry.kind for entry in SqliteStore(db).entries("e")])  # it is to be tried again

    clock.set_ahead(ahead)
    child.say("end a step")  # who walks looks up what is due
    result = child.result()  # it does not wait for an hour

    assert result["steps"]["limited"][0] == "FAILED"
    assert result["attempts"]["retried"] == 2
    assert float(result["outputs"]["retried"]) >= 0.0
    assert float(result["outputs"]["after"]) >= 0.0


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_lease_is_beaten_on_after_a_jump(
    clocked: Nursery, clock: WallClock, db: str, effects: str, ahead: float
) -> None:
    owner = clocked.start("run", workflow="gated", db=db, inputs={"effects": effects}, lease_timeout=1.0)
    assert owner.hear() == "at the gate"
    clock.set_ahead(ahead)

    def counter() -> int:
        (lease,) = SqliteStore(db).leases()
        return lease.counter

    at_the_jump = counter()

    until(lambda: counter() >= at_the_jump + 3)
