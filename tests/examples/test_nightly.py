"""The script for cron: started twice, killed, and started again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.examples.partner import Partner
from tests.examples.programs import ROOT, Program, eventually, steps_done

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)

STATIONS = ["east", "north", "south", "west"]

Start = Callable[[str], Program]


@pytest.fixture
def night(tmp_path: Path, partner: Partner) -> Iterator[Start]:
    """Starts the script for a day; killed in the end."""
    with ExitStack() as started:

        def start(day: str) -> Program:
            words = [ROOT / "examples" / "nightly.py", partner.url, tmp_path, day]
            return started.enter_context(Program(words, tmp_path))

        yield start


def heard_by(partner: Partner) -> list[str]:
    """Which stations were asked, each time."""
    return sorted(station for station in STATIONS for _ in partner.heard(station))


def test_a_second_start_while_the_first_runs_says_so_and_ends(night: Start, partner: Partner) -> None:
    with partner.holding("south"):
        first = night("2026-11-29")
        partner.wait_for("south")
        second, next_night = night("2026-11-29"), night("2026-11-30")
        assert (second.finish(), next_night.finish()) == (75, 75)
    assert first.finish() == 0, first.said

    assert second.said.startswith("another start is at it: execution 'nightly-2026-11-29'")
    assert first.said == "2026-11-29: 64\n"
    again = night("2026-11-29")
    assert (again.finish(), again.said) == (0, first.said)
    assert heard_by(partner) == STATIONS
    assert partner.heard("total") == ["2026-11-29 64"]


def test_after_a_crash_the_next_start_finishes_that_night_and_then_its_own(
    night: Start, partner: Partner, tmp_path: Path
) -> None:
    with partner.holding("west"):
        first = night("2026-11-29")
        partner.wait_for("west")
        eventually(lambda: steps_done(tmp_path / "nightly.db", "nightly-2026-11-29") == 4)
        first.kill()

    second = night("2026-11-30")

    assert second.finish() == 0, second.said
    assert partner.heard("total") == ["2026-11-29 64", "2026-11-30 64"]
    assert [partner.heard(each) for each in STATIONS[:3]] == [["2026-11-29", "2026-11-30"]] * 3
    assert partner.heard("west") == ["2026-11-29", "2026-11-29", "2026-11-30"]
