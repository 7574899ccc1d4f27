"""``crash_after``: a process that dies right after a step's body, before its commit or after it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime
from ares.errors import UsageError
from ares.testing import ChildProcess, crash_after
from tests.testing import programs

Start = Callable[..., ChildProcess]


def effects(folder: Path) -> Counter[str]:
    return Counter(folder.joinpath("effects").read_text().splitlines())


def completed(folder: Path) -> set[str]:
    """The steps that are in the journal as done."""
    steps = Runtime(folder / "orders.db").checkpoint("e").step_states
    return {path for path, state in steps.items() if state.status == "COMPLETED"}


def test_without_a_crash_everything_is_done_once(ares_child: Start, tmp_path: Path) -> None:
    assert ares_child(programs.run_orders, tmp_path).result() == "COMPLETED"

    assert effects(tmp_path) == {"pack 1": 1, "pack 2": 1, "pack 3": 1, "charge": 2, "send": 1}


def test_before_the_commit_the_body_has_run_and_nothing_is_known_of_it(ares_child: Start, tmp_path: Path) -> None:
    crash = {"step": "send", "before_commit": True}
    assert ares_child(programs.run_orders, tmp_path, crash).wait() == -9

    assert effects(tmp_path)["send"] == 1
    assert "send" not in completed(tmp_path)

    assert ares_child(programs.run_orders, tmp_path).result() == "COMPLETED"
    assert effects(tmp_path)["send"] == 2


def test_after_the_commit_the_step_is_done_and_never_runs_again(ares_child: Start, tmp_path: Path) -> None:
    assert ares_child(programs.run_orders, tmp_path, {"step": "send"}).wait() == -9

    assert "send" in completed(tmp_path)

    assert ares_child(programs.run_orders, tmp_path).result() == "COMPLETED"
    assert effects(tmp_path)["send"] == 1


def test_a_body_that_raised_counts_too_and_attempts_are_counted(ares_child: Start, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for nth, folder in ((1, first), (2, second)):
        folder.mkdir()
        crash = {"step": "charge", "before_commit": True, "nth": nth}
        assert ares_child(programs.run_orders, folder, crash).wait() == -9

    assert (effects(first)["charge"], effects(second)["charge"]) == (1, 2)


@pytest.mark.parametrize(("step", "nth", "packed"), [("pack[1]", 1, 2), ("pack", 3, 3)])
def test_an_element_of_a_map_is_named_by_its_path_or_counted(
    ares_child: Start, tmp_path: Path, step: str, nth: int, packed: int
) -> None:
    crash = {"step": step, "before_commit": True, "nth": nth}
    assert ares_child(programs.run_orders, tmp_path, crash).wait() == -9

    assert sum(effects(tmp_path).values()) == packed
    assert f"pack[{packed - 1}]" not in completed(tmp_path)


def test_a_step_that_never_runs_kills_nobody(ares_child: Start, tmp_path: Path) -> None:
    assert ares_child(programs.run_orders, tmp_path, {"step": "no such step"}).result() == "COMPLETED"


def test_the_process_that_runs_the_tests_is_spared(tmp_path: Path, crash_after: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="would kill the process that runs the tests"):
        crash_after("send").on(tmp_path / "orders.db")


@pytest.mark.parametrize("step", ["", None, 7])
def test_a_step_is_named_by_text(step: Any) -> None:
    with pytest.raises(UsageError, match="named by its id or path"):
        crash_after(step)


@pytest.mark.parametrize("nth", [0, -1, True, "1", 1.5])
def test_outcomes_are_counted_from_one(nth: Any) -> None:
    with pytest.raises(UsageError, match="counts outcomes"):
        crash_after("send", nth=nth)
