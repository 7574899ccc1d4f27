"""Processes that die while they go on with what others left, and what is under way besides bodies when they die."""

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime
from tests.durability.flows import patient
from tests.durability.nursery import Nursery
from tests.durability.stores import ON_BOTH
from tests.durability.test_crash_points import Scene, settled
from tests.durability.traces import counted, traces

New = Callable[..., Runtime]


def finish(scene: Scene) -> dict[str, Any]:
    """Resume until nobody dies; what it came to."""
    while True:
        child = scene.resume()
        if child.wait() == 0:
            return child.result()


def known_lines(scene: Scene) -> dict[str, int]:
    """How often each step began that is journaled as done."""
    lines = scene.lines()
    return {path: lines[path] for path in scene.committed()}


@pytest.mark.timeout(120)
def test_a_resume_that_is_killed_is_resumed(nursery: Nursery, tmp_path: Path) -> None:
    whole = Scene(nursery, tmp_path / "whole")
    usual = whole.run(max_workers=2).result()
    dice = random.Random()
    for number in range(6):
        scene = Scene(nursery, tmp_path / str(number))
        first, second = dice.randint(2, 45), dice.randint(1, 25)
        how = f"killed at {first}, then at {second}"
        assert scene.run(at=first, before=dice.random() < 0.5, max_workers=2).wait() == -9
        kept = known_lines(scene)
        scene.resume(at=second, before=dice.random() < 0.5).wait()
        later = known_lines(scene)
        assert {path: later[path] for path in kept} == kept, how

        if scene.status() is not ExecutionStatus.FAILED:
            outcome = finish(scene)
            assert settled(outcome) == settled(usual), how
        lines = scene.lines()
        assert {path: lines[path] for path in later} == later, how
        assert set(scene.committed().values()) == {1}, how


@pytest.mark.timeout(120)
@pytest.mark.parametrize("before", [True, False])
def test_a_rerun_that_is_killed_anywhere_goes_on_as_that_rerun(nursery: Nursery, tmp_path: Path, before: bool) -> None:
    rerun = ["each[1]", "right", "inside/second"]
    whole = Scene(nursery, tmp_path / "whole")
    whole.run(max_workers=1).result()
    usual = whole.resume(rerun=rerun).result()
    once = whole.lines()
    for at in itertools.count(random.randint(1, 8), 8):  # evenly, from a random one on
        scene = Scene(nursery, tmp_path / str(at))
        scene.run(max_workers=1).result()
        child = scene.resume(rerun=rerun, at=at, before=before)
        if child.wait() == 0:
            break
        if before and at == 1:
            continue  # the resume itself is not committed: nothing of it was promised
        outcome = scene.resume().result() if scene.status() is not ExecutionStatus.FAILED else usual
        assert settled(outcome) == settled(usual), at
        extra = {name: times - once[name] for name, times in scene.lines().items() if times > once[name]}
        assert sum(extra.values()) <= 2, at  # what was in flight: a body, and the once in it

    assert at > 12


@ON_BOTH
def test_a_run_nested_in_a_step_goes_on_where_it_was(nursery: Nursery, db: str, effects: str) -> None:
    assert nursery.start("run_nesting", db=db, effects=effects).wait() == -9

    result = nursery.call("run_nesting", db=db, effects=effects)

    assert result["outputs"] == {"outer": "[2, 2]"}
    assert counted(effects) == Counter({"outer": 2, "inner one": 2, "inner two": 3})
    with Runtime(db) as rt:
        assert [summary.status for summary in rt.executions()] == [ExecutionStatus.COMPLETED] * 3


def test_a_retry_that_was_waited_for_is_waited_for_anew(nursery: Nursery, db: str, effects: str, again: New) -> None:
    child = nursery.start("run", workflow="patient", db=db, inputs={"effects": effects})
    assert child.hear() == "beside"
    rt = again()
    while "step.retrying" not in [event.type for event in rt._reader().events("e", 0)]:
        threading.Event().wait(0.005)
    child.kill()
    child.wait()
    attempts = traces(effects)

    began = time.monotonic()
    result = again().resume("e", patient())
    seconds = time.monotonic() - began

    assert attempts == ["attempt 1"]
    assert traces(effects) == ["attempt 1", "attempt 2", "attempt 3"]
    assert result.steps["step"].attempts == 3
    assert seconds >= 1.0 + 1.0


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
def test_a_kill_in_the_clean_up_does_not_bring_back_what_was_ended(
    nursery: Nursery, db: str, effects: str, again: New, how: str
) -> None:
    child = nursery.start("run_ending", db=db, effects=effects, timeout=0.3 if how == "out of time" else None)
    assert child.hear() == "works"
    if how == "cancelled":
        assert again().cancel("e", "enough")
    assert child.wait() == -9

    result = nursery.call("resume", workflow="ending_plainly", db=db)

    assert result["status"] == ("CANCELLED" if how == "cancelled" else "FAILED")
    assert result["steps"]["never"][1] == ("cancelled" if how == "cancelled" else "timeout")
    assert result["outputs"] == {"tidy": "'tidied'"}
    assert counted(effects) == Counter(works=1, tidy=2)


@pytest.mark.timeout(120)
def test_ctrl_c_at_any_moment_leaves_something_to_go_on_with(nursery: Nursery, tmp_path: Path) -> None:
    whole = Scene(nursery, tmp_path / "whole")
    usual = whole.run(max_workers=2).result()
    dice = random.Random()
    interrupts = 0
    for number in range(6):
        scene = Scene(nursery, tmp_path / str(number))
        arguments = {"workflow": "rich", "db": scene.db, "inputs": {"effects": scene.effects}}
        kept: dict[str, int] = {}
        for _ in range(3):
            child = nursery.start("interruptible", **arguments)
            assert child.hear() == "begins"
            threading.Event().wait(dice.uniform(0.0, 0.06))
            child.kill(signal.SIGINT)
            child.wait()
            if not Path(scene.db).exists() or not Runtime(scene.db).executions():
                continue
            interrupts += scene.status() is ExecutionStatus.INTERRUPTED
            later = known_lines(scene)
            assert {path: later[path] for path in kept} == kept
            kept = later
            if scene.status() is ExecutionStatus.FAILED:
                break
        if not Path(scene.db).exists() or not Runtime(scene.db).executions():
            continue
        if scene.status() is not ExecutionStatus.FAILED:
            outcome = finish(scene)
            assert settled(outcome) == settled(usual)
            assert set(scene.committed().values()) == {1}
        assert scene.lines().keys() == whole.lines().keys()

    assert interrupts > 0
