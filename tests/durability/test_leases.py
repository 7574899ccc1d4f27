"""Whose lease gives no sign is taken over, and writes nothing more when it wakes; who lives is left alone."""

import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import ares
from ares import Approve, ExecutionStatus, Runtime, Workflow
from ares.errors import LeaseLostError
from ares.stores.sqlite import SqliteStore
from tests.durability.flows import gated
from tests.durability.nursery import DEADLINE, Nursery
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
    """Change a file by hand."""
    with closing(sqlite3.connect(db, timeout=DEADLINE)) as connection, connection:
        connection.execute(statement, values)


def read(db: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db, timeout=DEADLINE)) as connection:
        return connection.execute(statement).fetchall()


def opened(gate: str = "taken over") -> Workflow:
    """``gated`` with its gate open."""
    return gated().replace(s2=lambda effects: leave(effects, gate) or 2)


def journal(db: str, execution_id: str = "e") -> list[tuple[int, str]]:
    return [(entry.seq, entry.kind) for entry in SqliteStore(db).entries(execution_id)]


# --- an owner that was put aside -------------------------------------------------------------------------------------


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


def asks_when_told_to_end(wf: Workflow, begun: threading.Event) -> Workflow:
    """With a step, one crash of which is too many, that ends when it is asked to."""

    @wf.step(max_crashes=1)
    def step(ctx: ares.StepContext) -> str:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError

    return wf


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
