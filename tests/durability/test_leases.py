"""Whose lease gives no sign is taken over, and writes nothing more when it wakes; who lives is left alone."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import ares
from ares import Approve, ExecutionStatus, Runtime, Workflow
from ares.errors import ExecutionBusyError, LeaseLostError, StoreError
from ares.stores.opening import open_store
from tests.durability.flows import gated
from tests.durability.nursery import DEADLINE, ROOT, Nursery
from tests.durability.stores import ON_BOTH, StoreWrapper
from tests.durability.traces import Ran, counted, leave

#: What is said of a lease that was lost.
LOST = "the lease was lost: this process gave no sign for too long, or somebody removed it"

New = Callable[..., Runtime]


def until(condition: Callable[[], object]) -> None:
    """Wait for something to be so."""
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up
        threading.Event().wait(0.02)


def edit(db: str, statement: str, *values: object) -> None:
    """Change a store by hand."""
    if "://" in db:
        with psycopg.connect(db, options="-csearch_path=ares") as server:
            server.execute(statement.encode())
        return
    with closing(sqlite3.connect(db, timeout=DEADLINE)) as connection, connection:
        connection.execute(statement, values)


def read(db: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db, timeout=DEADLINE)) as connection:
        return connection.execute(statement).fetchall()


def opened(gate: str = "taken over") -> Workflow:
    """``gated`` with its gate open."""
    return gated().replace(s2=lambda effects: leave(effects, gate) or 2)


def journal(db: str, execution_id: str = "e") -> list[tuple[int, str]]:
    return [(entry.seq, entry.kind) for entry in open_store(db).entries(execution_id)]


# --- an owner that was put aside -------------------------------------------------------------------------------------


@ON_BOTH
@pytest.mark.case("C033")
@pytest.mark.parametrize("how", ["run", "submit"])
def test_an_owner_that_was_stopped_past_its_lease_is_taken_over_and_writes_nothing_when_it_wakes(
    nursery: Nursery, db: str, effects: str, again: New, how: str
) -> None:
    owner = nursery.start("lose", db=db, effects=effects, how=how, lease_timeout=1.0)
    assert owner.hear() == "at the gate"
    rt = again(workflows=[opened()], lease_timeout=1.0)
    assert rt.execution("e").status is ExecutionStatus.RUNNING
    owner.kill(signal.SIGSTOP)

    until(lambda: rt.execution("e").status is ExecutionStatus.INTERRUPTED)
    listed = rt.summary("e")
    (taken,) = rt.recover()
    result = taken.result(DEADLINE)
    written = journal(db)
    rt.close()  # nobody is there to take the next one over
    owner.kill(signal.SIGCONT)
    owner.say("go")
    told = owner.hear()

    assert (listed.status, listed.owner) == (ExecutionStatus.INTERRUPTED, "")
    assert result.status is ExecutionStatus.COMPLETED
    assert result.outputs == {"s1": 1, "s2": 2, "s3": 3}
    if how == "run":
        assert "lost" in told
        assert "'e'" in told
    else:  # a handle is on the execution, not on the walk
        assert told == {"s1": "1", "s2": "2", "s3": "3"}
    assert owner.result() == {"status": "COMPLETED", "warnings": [f"{db}: {LOST}"]}
    assert journal(db) == written
    assert counted(effects)["step 3"] == 1


def test_an_owner_that_has_not_beaten_for_long_makes_sure_before_a_body_or_an_effect(db: str, again: New) -> None:
    begun, gate, ran = threading.Barrier(3), threading.Event(), []
    wf = Workflow("paying")

    @wf.step
    def pays(ctx: ares.StepContext) -> None:
        begun.wait(DEADLINE)
        gate.wait(DEADLINE)
        ctx.once("payment", ran.append, "paid")

    @wf.step
    def frees_its_worker() -> None:
        begun.wait(DEADLINE)
        gate.wait(DEADLINE)

    @wf.step
    def comes_next() -> None:
        ran.append("begun")

    rt = again(lease_timeout=1.0, max_workers=2)
    handle = rt.submit(wf, execution_id="e")
    begun.wait(DEADLINE)
    with closing(sqlite3.connect(db, timeout=DEADLINE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # meanwhile nobody beats
        other.execute("DELETE FROM leases")
        threading.Event().wait(1.0)  # others would take it over by now: a half will do
        gate.set()
        threading.Event().wait(0.2)
        other.execute("COMMIT")
    with pytest.raises(LeaseLostError):
        handle.result(DEADLINE)

    assert ran == []


def asks_when_told_to_end(wf: Workflow, begun: threading.Event) -> Workflow:
    """With a step, one crash of which is too many, that ends when it is asked to."""

    @wf.step(max_crashes=1)
    def step(ctx: ares.StepContext) -> str:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError

    return wf


@ON_BOTH
@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_lease_that_somebody_deletes_ends_its_walks_and_they_can_be_resumed_at_once(
    db: str, again: New, durability: str
) -> None:
    begun = threading.Event()
    wf = asks_when_told_to_end(Workflow("long"), begun)
    rt = again(lease_timeout=1.0, durability=durability)
    handle = rt.submit(wf, execution_id="e")
    assert begun.wait(DEADLINE)
    until(lambda: handle.status is ExecutionStatus.RUNNING)  # what began is stored, too

    edit(db, "DELETE FROM leases")
    with pytest.raises(LeaseLostError) as lost:
        handle.result(DEADLINE)
    with Runtime(db) as other:
        seen = other.execution("e").status
    result = rt.resume("e", wf.replace(step=lambda: "done"))

    assert lost.value.execution_id == "e"
    assert seen is ExecutionStatus.INTERRUPTED
    assert result.status is ExecutionStatus.COMPLETED
    assert result.outputs == {"step": "done"}
    assert len(rt.warnings) == 1
    assert LOST in rt.warnings[0]


def test_of_what_rests_the_handle_tells_that_the_lease_was_lost_and_an_answer_is_not(
    db: str, ran: Ran, again: New
) -> None:
    wf = Workflow("asks")
    wf.step(lambda: ran.append("step"), id="step", interrupt="May it?")
    rt = again(workflows=[wf], lease_timeout=1.0)
    handle = rt.submit(wf, execution_id="e")
    assert handle.wait(DEADLINE)
    assert handle.status is ExecutionStatus.WAITING

    edit(db, "DELETE FROM leases")
    until(lambda: rt.live("e") is None)
    with pytest.raises(LeaseLostError):
        handle.result(DEADLINE)
    rt.answer("e", Approve(), step="step")
    (taken,) = rt.recover()

    assert taken.result(DEADLINE).status is ExecutionStatus.COMPLETED
    assert handle.result(DEADLINE).status is ExecutionStatus.COMPLETED
    assert ran == ["step"]


@pytest.mark.parametrize("how", ["run", "submit"])
def test_an_end_that_was_stored_before_the_lease_was_lost_is_the_end(db: str, again: New, how: str) -> None:
    class Losing(StoreWrapper):
        """Loses the lease as soon as the end is stored, and lets nobody hear of that end before the loss."""

        def append(self, appends: Any, *, sync: bool) -> Any:
            results = self._inner.append(appends, sync=sync)
            if any(append.status == "COMPLETED" for append in appends):
                edit(db, "DELETE FROM leases")
                until(lambda: rt.warnings)
                until(lambda: len(read(db, "SELECT number FROM leases WHERE counter > 1")))
            return results

    wf = Workflow("ends")
    wf.step(lambda: "done", id="step")
    rt = again(Losing(open_store(db)), lease_timeout=1.0)

    result = rt.run(wf) if how == "run" else rt.submit(wf).result(DEADLINE)

    assert (result.status, result.outputs) == (ExecutionStatus.COMPLETED, {"step": "done"})
    assert rt.run(wf.replace(step=lambda: "again")).outputs == {"step": "again"}


# --- owners whose process cannot be looked at ------------------------------------------------------------------------


@pytest.mark.case("C033")
@pytest.mark.parametrize(
    "changes",
    [{"machine": "elsewhere", "host": "elsewhere", "boot": "another"}, {"pid_namespace": "pid:[1] time:[2]"}],
    ids=["another machine", "another container"],
)
def test_a_dead_owner_that_cannot_be_looked_at_is_taken_over_once_its_lease_stood_still(
    nursery: Nursery, db: str, effects: str, again: New, changes: dict[str, Any]
) -> None:
    owner = nursery.start("run", workflow="gated", db=db, inputs={"effects": effects}, lease_timeout=1.0)
    assert owner.hear() == "at the gate"
    edit(db, f"UPDATE leases SET {', '.join(f'{name} = ?' for name in changes)}", *changes.values())
    owner.kill()
    owner.wait()
    rt = again(workflows=[opened()], lease_timeout=2.0)

    before = rt.execution("e").status
    recovery = rt.recover()
    with pytest.raises(ExecutionBusyError):
        rt.resume("e")
    until(lambda: rt.execution("e").status is ExecutionStatus.INTERRUPTED)
    result = rt.resume("e")

    assert before is ExecutionStatus.RUNNING
    assert recovery.left["e"].startswith(f"owned by pid {owner.pid} on host ")
    assert result.status is ExecutionStatus.COMPLETED


IN_A_NAMESPACE = """
import sys
from ares import Runtime
from tests.durability import flows

class Line:
    def say(self, said): print(said, flush=True)
    def hear(self): return sys.stdin.readline()

flows.LINE.append(Line())
with Runtime(sys.argv[1], lease_timeout=1.0) as rt:
    print(rt.run(flows.gated(), {"effects": sys.argv[2]}, execution_id="e").status, flush=True)
"""


@pytest.fixture
def contained(db: str, effects: str) -> Iterator[subprocess.Popen[str]]:
    """An owner in a pid namespace of its own, at the gate of ``gated``."""
    apart = ["unshare", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    program = [*apart, sys.executable, "-c", IN_A_NAMESPACE, db, effects]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "at the gate\n"
        yield owner
        owner.kill()


def test_an_owner_in_another_pid_namespace_keeps_what_it_has(
    contained: subprocess.Popen[str], db: str, effects: str, again: New
) -> None:
    rt = again(workflows=[opened()])
    before = len(rt.recover())
    assert contained.stdin is not None
    assert contained.stdout is not None
    contained.stdin.write("go\n")
    contained.stdin.flush()

    assert before == 0
    assert contained.stdout.readline() == "COMPLETED\n"
    assert counted(effects)["step 2"] == 1


def test_a_dead_owner_in_another_pid_namespace_is_taken_over_by_its_counter_alone(
    contained: subprocess.Popen[str], db: str, effects: str, again: New
) -> None:
    (pid,) = read(db, "SELECT pid FROM leases")
    rt = again(workflows=[opened()], lease_timeout=2.0)
    rt.start()
    contained.kill()
    contained.wait()

    before = rt.execution("e").status
    until(lambda: rt.execution("e").status is ExecutionStatus.INTERRUPTED)
    (taken,) = rt.recover()

    assert pid == (1,)  # which is somebody else's here
    assert before is ExecutionStatus.RUNNING
    assert taken.result(DEADLINE).status is ExecutionStatus.COMPLETED
    assert counted(effects) == Counter({"step 1": 1, "step 2": 1, "taken over": 1, "step 3": 1})


# --- an owner that lives ---------------------------------------------------------------------------------------------


@ON_BOTH
@pytest.mark.case("C032")
def test_an_owner_that_works_hard_is_not_taken_over(nursery: Nursery, db: str, effects: str, again: New) -> None:
    owner = nursery.start("work_hard", db=db, effects=effects, lease_timeout=4.0)
    assert owner.hear() == "at the gate"
    rt = again(workflows=[opened()], lease_timeout=4.0)
    seen: Counter[str] = Counter()
    over = time.monotonic() + 5.0
    while time.monotonic() < over:
        seen[rt.execution("e").status] += 1
        with pytest.raises(ExecutionBusyError):
            rt.resume("e")
        threading.Event().wait(0.1)
    owner.say("go")
    result = owner.result()

    assert set(seen) == {"RUNNING"}
    assert (result["status"], result["warnings"]) == ("COMPLETED", [])
    assert counted(effects) == Counter(["step 1", "step 2", "through the gate", "step 3"])


# --- what somebody wrote into the file by hand -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE leases SET counter = -5",
        "UPDATE leases SET counter = 'many'",
        "UPDATE leases SET beats_every = 'often', beaten_at = 'today'",
        "UPDATE leases SET beats_every = -1, beaten_at = -1",
        "UPDATE leases SET pid = 'x'",
        "UPDATE leases SET pid = -1, started = 7, boot = x'00ff', machine = x'00ff', host = x'00ff'",
    ],
)
def test_an_owner_whose_lease_was_scribbled_on_keeps_what_it_has(
    nursery: Nursery, db: str, effects: str, again: New, statement: str
) -> None:
    owner = nursery.start("run", workflow="gated", db=db, inputs={"effects": effects}, lease_timeout=1.0)
    assert owner.hear() == "at the gate"
    edit(db, statement)
    rt = again(workflows=[opened()])

    status = rt.execution("e").status
    listed = [summary.execution_id for summary in rt.executions()]
    recovery = rt.recover()
    with pytest.raises(ExecutionBusyError):
        rt.resume("e")
    owner.say("go")

    assert (status, listed, len(recovery)) == (ExecutionStatus.RUNNING, ["e"], 0)
    assert owner.result()["status"] == "COMPLETED"
    assert counted(effects)["step 2"] == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM leases",
        "UPDATE leases SET number = 77",
        "UPDATE executions SET claim_lease = 99",
        "UPDATE executions SET claim_lease = 'mine'",
        "UPDATE executions SET claim_number = claim_number + 5, claim_lease = NULL",
    ],
)
def test_an_owner_whose_claim_was_taken_away_by_hand_writes_nothing_beside_the_next(
    nursery: Nursery, db: str, effects: str, again: New, statement: str
) -> None:
    owner = nursery.start("lose", db=db, effects=effects, how="run", lease_timeout=1.0)
    assert owner.hear() == "at the gate"
    edit(db, statement)
    rt = again(workflows=[opened()])

    result = rt.resume("e", opened())
    written = journal(db)
    owner.say("go")

    assert result.status is ExecutionStatus.COMPLETED
    assert "lost" in owner.hear()
    assert owner.result()["status"] == "COMPLETED"
    assert journal(db) == written


def test_a_claim_whose_number_is_none_is_refused_by_name(db: str, ran: Ran, again: New) -> None:
    wf = Workflow("one")
    wf.step(lambda: ran.append("step"), id="step")
    with Runtime(db) as rt:
        rt.run(wf, execution_id="e")
    edit(db, "UPDATE executions SET claim_number = 'first'")

    with pytest.raises(StoreError, match="'first'") as refused:
        again().resume("e", wf, rerun=["step"])

    assert refused.value.execution_id == "e"
