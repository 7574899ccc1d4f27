"""Small soaks, one for each thing that goes wrong, and what they are made of: see ``benchmarks.soak``."""

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ares.errors import UsageError
from ares.testing import Nursery as AnyNursery
from ares.testing.processes import Line
from benchmarks.soak.crew import Crew
from benchmarks.soak.places import FilePlace, ServerPlace
from benchmarks.soak.plan import Moment, Plan, Timing, moments
from benchmarks.soak.proof import violations
from benchmarks.soak.stage import play
from tests.durability.nursery import ROOT, Nursery
from tests.postgres import Server

# --- soaks -----------------------------------------------------------------------------------------------------------


#: Seconds that a soak may take, on a machine that is busy with other things.
LIMIT = 90.0


# So many times at most: on a machine that is busy, a process may take longer to start than another one has to live.
@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize(
    "fault", ["kill:0.3:0:4", "pause:0.3:2:2", "outage:0.3:0.5:4", "full:0.3:0.5:4", "clock:0.2:0.2"]
)
def test_nothing_is_lost_doubled_or_stuck_whatever_goes_wrong(nursery: Nursery, tmp_path: Path, fault: str) -> None:
    # Only who is stopped may lose its lease, however busy the machine is.
    lease_timeout = 1.5 if fault.startswith("pause") else 30.0
    # In a process of its own: a disk that can be full is mounted for one that has started no thread.
    child = nursery.start("soak", folder=tmp_path, fault=fault, lease_timeout=lease_timeout, limit=LIMIT)
    told = child.result(2 * LIMIT)

    if "refused" in told:
        pytest.skip(told["refused"])
    # The bodies alone take a second, so that it strikes however fast the machine is.
    assert told["struck"] >= 1
    assert told["violations"] == []


@pytest.mark.timeout(2 * LIMIT)
def test_nothing_is_lost_doubled_or_stuck_when_the_server_is_killed(
    own_postgres: Server, postgres: str, tmp_path: Path
) -> None:
    plan = Plan(postgres, str(tmp_path), processes=2, executions=18, steps=5, seconds=0.1, lease_timeout=30.0)
    timings = [Timing("kill", 0.6, times=2), Timing("outage", 0.3, 0.3, times=2)]

    soaked = play(ServerPlace(own_postgres, postgres), plan, timings, seed=0, limit=LIMIT)

    assert soaked.struck["outage"] >= 1
    assert violations(plan, soaked.evidence) == []


def test_the_command_prints_what_happened_and_what_was_wrong() -> None:
    options = ["--processes", "1", "--executions", "2", "--steps", "2", "--seconds", "0", "--fault", "kill:60"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "soak", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "1 processes, 2 executions of 2 steps: " in done.stdout
    assert done.stdout.endswith("4 effects, 0 of them again because they were not recorded yet\n0 violations\n")


def test_what_has_not_ended_in_time_is_told(tmp_path: Path) -> None:
    with closing(FilePlace(tmp_path)) as place:
        plan = Plan(place.store, str(tmp_path), processes=1, executions=1, steps=1, seconds=0.5, lease_timeout=1.0)
        soaked = play(place, plan, [], seed=0, limit=0.1)

    assert violations(plan, soaked.evidence)[0] == "not all had ended after 0.1 s"


def test_a_fault_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    plan = Plan("", str(tmp_path), processes=1, executions=1, steps=1, seconds=0.0, lease_timeout=1.0)

    with pytest.raises(UsageError, match="there is no fault 'flood': it is one of kill, "):
        play(FilePlace(tmp_path), plan, [Timing("flood", 1.0)], seed=0, limit=1.0)


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "timing"),
    [
        ("kill:1", Timing("kill", 1.0)),
        ("pause:0.5:2", Timing("pause", 0.5, 2.0)),
        ("outage:10:2.5:3", Timing("outage", 10.0, 2.5, 3)),
    ],
)
def test_a_fault_is_told_in_a_word(text: str, timing: Timing) -> None:
    assert Timing.parse(text) == timing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kill",
        "kill:",
        "kill:x",
        "kill:0",
        "kill:-1",
        "kill:nan",
        "kill:1:-1",
        "kill:1:1:x",
        "kill:1:1:0",
        "kill:1:1:1:1",
    ],
)
def test_a_fault_that_reads_otherwise_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"the fault {re.escape(repr(text))} is not NAME:EVERY"):
        Timing.parse(text)


def test_a_seed_has_all_go_wrong_at_the_same_moments() -> None:
    timings = [Timing("kill", 1.0), Timing("pause", 3.0, 2.0, times=4)]

    def some(seed: int) -> list[Moment]:
        return list(itertools.islice(moments(timings, seed), 50))

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert some(1) == sorted(some(1))


def test_what_lasts_is_lifted_before_it_strikes_again() -> None:
    told = list(moments([Timing("pause", 0.1, 2.0, times=3)], seed=0))

    assert [moment.begins for moment in told] == [True, False] * 3
    for strike, lift in zip(told[::2], told[1::2], strict=True):
        assert lift.at == strike.at + 2.0
        assert lift.draw == strike.draw


def test_every_execution_is_submitted_by_one_process() -> None:
    plan = Plan("", "", processes=3, executions=10, steps=1, seconds=0.0, lease_timeout=1.0)

    assert sorted(id_ for slot in range(3) for id_ in plan.ids_of(slot)) == sorted(plan.ids)


# --- the crew --------------------------------------------------------------------------------------------------------


def wait_for_a_word(line: Line, slot: int) -> None:
    line.hear()


def end_at_once(line: Line, slot: int) -> None:
    print(f"{slot} has enough")


def complain(line: Line, slot: int) -> None:
    print("a thread has failed", file=sys.stderr)
    line.hear()


def fail_when_told(line: Line, slot: int) -> None:
    line.hear()
    raise ValueError("no good order")


@pytest.fixture(scope="module")
def plain_nursery() -> Iterator[AnyNursery]:
    with AnyNursery() as made:
        yield made


def test_one_that_is_killed_is_replaced_in_its_slot(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, wait_for_a_word, {}, count=2)
    before = [member.pid for member in crew._members]

    crew.kill(1)
    crew.look()

    after = [member.pid for member in crew._members]
    assert after[0] == before[0]
    assert after[1] != before[1]
    crew.dismiss()
    assert crew.troubles == []


def test_one_that_ends_by_itself_is_trouble_and_replaced(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, end_at_once, {}, count=1)
    (before,) = crew._members
    before.wait()

    crew.look()

    assert crew._members != [before]
    assert crew.troubles == [
        f"process {before.pid} ended by itself with 0",
        f"process {before.pid} said:\n0 has enough",
    ]


def test_one_that_had_ended_when_it_was_to_be_killed_is_trouble(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, end_at_once, {}, count=1)
    (before,) = crew._members
    before.wait()

    crew.kill(0)

    assert crew.troubles[0] == f"process {before.pid} ended by itself with 0"


def test_what_one_prints_is_trouble(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, complain, {}, count=1)
    (member,) = crew._members

    crew.dismiss()

    assert crew.troubles == [f"process {member.pid} said:\na thread has failed"]


def test_one_that_does_not_end_in_good_order_is_trouble(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, fail_when_told, {}, count=2)

    crew.dismiss()

    assert len(crew.troubles) == 2
    assert all("ValueError: no good order" in trouble for trouble in crew.troubles)


def test_one_that_was_stopped_goes_on_unless_it_was_replaced(plain_nursery: AnyNursery) -> None:
    crew = Crew(plain_nursery, wait_for_a_word, {}, count=2)
    stopped = [member.pid for member in crew._members]
    go_on = [crew.stop(0), crew.stop(1)]

    crew.kill(1)
    for each in go_on:
        each()
    crew.dismiss()

    assert [stop.pid for stop in crew.stops] == stopped
    assert crew.troubles == []
