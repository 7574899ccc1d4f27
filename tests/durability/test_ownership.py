"""Who may walk an execution: one live owner, told by name to everybody else, and nobody after it died."""

import os
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, Runtime, Workflow
from ares.errors import ExecutionBusyError, StoreError
from ares.stores.sqlite import SqliteStore
from tests.durability.flows import gated
from tests.durability.nursery import DEADLINE, Child, Nursery
from tests.durability.stores import ON_BOTH, StoreWrapper
from tests.durability.traces import Ran, counted, traces

New = Callable[..., Runtime]


def at_the_gate(nursery: Nursery, db: str, effects: str, workflow: str = "gated") -> Child:
    """A process that walks execution "e", whose second step waits."""
    child = nursery.start("run", workflow=workflow, db=db, inputs={"effects": effects})
    assert child.hear() == "at the gate"
    return child


# --- a live owner ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C032")
@pytest.mark.parametrize("repeat", range(20))
def test_a_live_execution_is_taken_by_nobody_else(nursery: Nursery, db: str, effects: str, repeat: int) -> None:
    owner = at_the_gate(nursery, db, effects)

    refused = nursery.call("try_to_take", db=db)
    owner.say("go")
    result = owner.result()

    assert refused["taken"] == 0
    assert refused["owner"] == f"pid {owner.pid} on host {socket.gethostname()}"
    assert refused["owner"] in refused["left"]["e"]
    assert refused["seconds"] < 2.0
    assert result["status"] == "COMPLETED"
    assert result["warnings"] == []
    assert traces(effects) == ["step 1", "step 2", "through the gate", "step 3"]


def hold(rt: Runtime) -> tuple[threading.Event, ares.Execution]:
    """Execution "e" of a Runtime, and the event that lets it end."""
    begun, go_on = threading.Event(), threading.Event()
    wf = Workflow("held")

    @wf.step
    def step() -> None:
        begun.set()
        assert go_on.wait(DEADLINE)

    handle = rt.submit(wf, execution_id="e")
    assert begun.wait(DEADLINE)
    return go_on, handle


def test_a_second_runtime_of_the_same_process_is_refused(db: str, again: New) -> None:
    go_on, handle = hold(again())
    with Runtime(db) as other:
        wf = Workflow("held")
        wf.step(lambda: None, id="step")

        for call in (
            lambda: other.resume("e", wf),
            lambda: other.run(wf, execution_id="e", if_exists="resume"),
            lambda: other.submit(wf, execution_id="e", if_exists="resume"),
        ):
            with pytest.raises(ExecutionBusyError) as refused:
                call()
            assert refused.value.owner == f"pid {os.getpid()} on host {socket.gethostname()}"
        go_on.set()

    assert handle.result(DEADLINE).status is ExecutionStatus.COMPLETED


def test_the_same_runtime_is_refused_too(again: New) -> None:
    rt = again()
    go_on, handle = hold(rt)

    with pytest.raises(ExecutionBusyError):
        rt.resume("e")
    go_on.set()

    assert handle.result(DEADLINE).status is ExecutionStatus.COMPLETED


def test_of_two_threads_that_resume_at_once_one_walks(ran: Ran, broken: set[str], again: New) -> None:
    wf = Workflow("race")

    def step() -> str:
        ran.append("step")
        if broken:
            raise ValueError
        return "done"

    wf.step(step, id="step")
    rt = again()
    for number in range(25):
        broken.add("step")
        rt.run(wf, execution_id=f"e{number}")
        broken.clear()
        barrier, got = threading.Barrier(2), []

        def resume(number: int = number, barrier: threading.Barrier = barrier, got: list[Any] = got) -> None:
            barrier.wait(DEADLINE)
            try:
                got.append(rt.resume(f"e{number}").status)
            except ExecutionBusyError as error:
                got.append(error)

        threads = [threading.Thread(target=resume) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)

        assert got.count(ExecutionStatus.COMPLETED) >= 1
        assert len(got) == 2
        assert ran.since() == ["step", "step"]
        events = [event.type for event in rt.execution(f"e{number}").events()]
        assert events.count("workflow.completed") == 1


# --- a dead owner ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C033")
def test_a_dead_owner_is_taken_over_at_once(nursery: Nursery, db: str, effects: str) -> None:
    owner = at_the_gate(nursery, db, effects)
    owner.kill()
    assert owner.wait() == -9
    began = time.monotonic()

    taker = nursery.start("resume", workflow="gated", db=db)
    assert taker.hear() == "at the gate"
    seconds = time.monotonic() - began
    taker.say("go")

    assert taker.result()["status"] == "COMPLETED"
    assert seconds < 2.0
    assert traces(effects) == ["step 1", "step 2", "step 2", "through the gate", "step 3"]


def owner_becomes(db: str, **changes: Any) -> None:
    """Change what the file says of the one process that holds a lease."""
    columns = ", ".join(f"{name} = ?" for name in changes)
    with sqlite3.connect(db) as connection:
        connection.execute(f"UPDATE leases SET {columns}", list(changes.values()))
    connection.close()


@pytest.mark.case("C033")
@pytest.mark.parametrize(
    "changes",
    [{"pid": os.getpid()}, {"pid": 1}, {"boot": "another boot", "pid": os.getpid()}],
    ids=["the pid is now this process", "the pid is now init", "the machine was restarted"],
)
def test_a_pid_that_is_somebody_elses_now_is_no_owner(
    nursery: Nursery, db: str, effects: str, changes: dict[str, Any]
) -> None:
    owner = at_the_gate(nursery, db, effects)
    owner.kill()
    owner.wait()
    owner_becomes(db, **changes)

    taker = nursery.start("resume", workflow="gated", db=db)

    assert taker.hear() == "at the gate"
    taker.say("go")
    assert taker.result()["status"] == "COMPLETED"


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "elsewhere", "host": "elsewhere", "boot": "another"},
        {"pid_namespace": "pid:[1] time:[2]"},
    ],
    ids=["another machine", "another container"],
)
def test_an_owner_that_cannot_be_looked_at_keeps_what_it_has(
    nursery: Nursery, db: str, effects: str, changes: dict[str, Any]
) -> None:
    owner = at_the_gate(nursery, db, effects)
    owner.kill()
    owner.wait()
    owner_becomes(db, **changes)

    refused = nursery.call("try_to_take", db=db)

    assert refused["taken"] == 0
    assert refused["owner"].startswith(f"pid {owner.pid} on host ")
    assert refused["age"] >= 0.0


def test_an_owner_that_is_stopped_still_owns(nursery: Nursery, db: str, effects: str) -> None:
    owner = at_the_gate(nursery, db, effects)
    owner.kill(signal.SIGSTOP)

    refused = nursery.call("try_to_take", db=db)
    owner.kill(signal.SIGCONT)
    owner.say("go")

    assert refused["taken"] == 0
    assert owner.result()["status"] == "COMPLETED"


# --- what is given back ----------------------------------------------------------------------------------------------


def test_what_has_ended_is_nobodys(ran: Ran, again: New, db: str) -> None:
    wf = Workflow("ends")
    wf.step(lambda: ran.append("step"), id="step")
    first = again()
    first.run(wf, execution_id="e")

    with Runtime(db) as second:
        second.resume("e", wf, rerun=["step"])
    first.resume("e", wf, rerun=["step"])

    assert ran == ["step"] * 3


def test_who_hears_of_the_end_finds_it_free(db: str, ran: Ran, again: New) -> None:
    wf = Workflow("ends")
    wf.step(lambda: ran.append("step"), id="step")
    rt, free = again(), []
    with Runtime(db) as other:
        other.start()
        for number in range(20):
            heard = threading.Event()

            def try_to_take(handle: ares.Execution, heard: threading.Event = heard) -> None:
                free.append(other.resume(handle.id, wf, rerun=["step"]).status)
                heard.set()

            handle = rt.submit(wf, execution_id=f"e{number}")
            handle.add_done_callback(try_to_take)
            handle.result(DEADLINE)
            assert heard.wait(DEADLINE)

    assert free == [ExecutionStatus.COMPLETED] * 20


@ON_BOTH
def test_a_ctrl_c_gives_back_what_it_stops(nursery: Nursery, db: str, effects: str) -> None:
    owner = nursery.start("interrupted_by_signal", db=db, effects=effects)
    assert owner.hear() == "at the gate"

    owner.kill(signal.SIGINT)
    said = owner.hear()
    taker = nursery.start("resume", workflow="gated_once", db=db)  # a Ctrl-C is no crash: one would be too many
    assert taker.hear() == "at the gate"
    taker.say("go")

    assert said == {"status": "INTERRUPTED"}
    assert taker.result()["status"] == "COMPLETED"
    owner.say("go")
    assert owner.result() == "interrupted"
    assert traces(effects) == ["step 1", "step 2", "step 2", "through the gate", "step 3"]


class Failing(StoreWrapper):
    """Fails while it is told to: to append, and perhaps to give claims back."""

    fails = False
    keeps_claims = False

    def append(self, appends: Any, *, sync: bool) -> Any:
        if self.fails:
            raise StoreError(self.name, "the disk is full")
        return super().append(appends, sync=sync)

    def release(self, claim: Any) -> None:
        if self.fails and self.keeps_claims:
            raise StoreError(self.name, "the disk is full")
        self._inner.release(claim)


@pytest.mark.parametrize("keeps_claims", [False, True])
def test_a_store_that_failed_leaves_nothing_claimed(db: str, ran: Ran, again: New, keeps_claims: bool) -> None:
    store = Failing(SqliteStore(db))
    store.keeps_claims = keeps_claims
    wf = Workflow("full")

    def first() -> None:
        ran.append("first")
        store.fails = True

    wf.step(first, id="first")
    wf.step(lambda first: ran.append("second"), id="second")
    rt = again(store)
    with pytest.raises(StoreError) as failed:
        rt.run(wf, execution_id="e")
    assert failed.value.execution_id == "e"
    store.fails = False

    result = rt.resume("e", wf.replace(first=lambda: ran.append("first again")))

    assert ran == ["first", "first again", "second"]
    assert result.status is ExecutionStatus.COMPLETED


def test_what_a_closed_runtime_left_is_free(db: str, again: New) -> None:
    begun = threading.Event()
    wf = Workflow("left")

    @wf.step
    def step(ctx: ares.StepContext) -> str:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError

    rt = again()
    rt.submit(wf, execution_id="e")
    assert begun.wait(DEADLINE)
    rt.close(1.0)

    with Runtime(db) as other:
        assert other.execution("e").status is ExecutionStatus.INTERRUPTED
        assert other.resume("e", wf.replace(step=lambda: "done")).status is ExecutionStatus.COMPLETED


# --- recover ---------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_recover_takes_what_a_dead_process_left_and_what_it_never_began(
    nursery: Nursery, db: str, effects: str, again: New
) -> None:
    owner = nursery.start("submit_two_and_hang", db=db, effects=effects)
    assert [owner.hear(), owner.hear()] == ["at the gate", "submitted"]
    owner.kill()
    owner.wait()
    wf = gated().replace(s2=lambda effects: 2)
    rt = again(workflows=[wf])
    before = {summary.execution_id: summary.status for summary in rt.executions()}

    recovery = rt.recover()
    results = {execution.id: execution.result(DEADLINE).status for execution in recovery}

    assert before == {"at the gate": ExecutionStatus.INTERRUPTED, "not begun": ExecutionStatus.PENDING}
    assert results == dict.fromkeys(("at the gate", "not begun"), ExecutionStatus.COMPLETED)
    assert dict(recovery.left) == {}
    assert counted(effects) == Counter({"step 1": 2, "step 2": 1, "step 3": 2})
    assert len(rt.recover()) == 0


def test_recover_names_what_it_leaves_and_ones_trouble_stops_no_other(db: str, ran: Ran, again: New) -> None:
    def flow(name: str, steps: int = 1) -> Workflow:
        wf = Workflow(name)
        for number in range(steps):
            wf.step(lambda: ran.append(name), id=f"s{number}")
        return wf

    rt = again()
    store = SqliteStore(db)
    store.open()
    for name in ("known", "unknown", "changed", "damaged", "known too"):
        rt.run(flow(name), execution_id=name)
    store.close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE executions SET status = 'RUNNING', ended_at = NULL")
        connection.execute("DELETE FROM entries WHERE kind = 'ended'")
        connection.execute(
            "UPDATE entries SET body = '{' WHERE kind = 'created' AND execution ="
            " (SELECT key FROM executions WHERE id = 'damaged')"
        )
    connection.close()
    ran.since()

    rt = again(workflows=[flow("known"), flow("changed", 2), flow("damaged"), flow("known too")])
    recovery = rt.recover()
    taken = {execution.id: execution.result(DEADLINE).status for execution in recovery}

    assert taken == dict.fromkeys(("known", "known too"), ExecutionStatus.COMPLETED)
    assert set(recovery.left) == {"unknown", "changed", "damaged"}
    assert "'unknown'" in recovery.left["unknown"]
    assert "'s1'" in recovery.left["changed"]
    assert "created" in recovery.left["damaged"]
    assert ran == []


@ON_BOTH
def test_of_two_that_recover_at_once_each_execution_goes_to_one(
    nursery: Nursery, db: str, tmp_path: Path, again: New
) -> None:
    owners = []
    for number in range(8):
        inputs = {"effects": str(tmp_path / str(number))}
        owners.append(nursery.start("run", workflow="gated", db=db, execution_id=str(number), inputs=inputs))
    for owner in owners:
        assert owner.hear() == "at the gate"
        owner.kill()
        owner.wait()
    wf = gated().replace(s2=lambda effects: 2)
    barrier = threading.Barrier(2)
    ends: list[ExecutionStatus] = []
    taken: list[str] = []

    def recover(rt: Runtime) -> None:
        rt.start()
        barrier.wait(DEADLINE)
        for execution in rt.recover():
            taken.append(execution.id)
            ends.append(execution.result(DEADLINE).status)

    with Runtime(db, workflows=[wf]) as other:
        threads = [threading.Thread(target=recover, args=(rt,)) for rt in (again(workflows=[wf]), other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)

    assert sorted(taken) == [str(number) for number in range(8)]
    assert ends == [ExecutionStatus.COMPLETED] * 8
    assert all(counted(str(tmp_path / str(number)))["step 3"] == 1 for number in range(8))


def test_recover_leaves_a_nested_run_to_the_one_that_it_is_nested_in(db: str, ran: Ran, again: New) -> None:
    inner = Workflow("inner")
    inner.step(lambda: ran.append("inner"), id="step")
    outer = Workflow("outer")

    @outer.step
    def runs() -> str:
        return rt.run(inner).execution_id

    rt = again()
    nested = rt.run(outer, execution_id="e").outputs["runs"]
    again()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE executions SET status = 'RUNNING', ended_at = NULL WHERE id = ?", (nested,))
        connection.execute(
            "DELETE FROM entries WHERE kind = 'ended' AND execution = (SELECT key FROM executions WHERE id = ?)",
            (nested,),
        )
    connection.close()

    rt = again(workflows=[inner, outer])
    recovery = rt.recover()

    assert len(recovery) == 0
    assert recovery.left == {nested: "nested in e, which goes on with it"}


# --- cancels from elsewhere ------------------------------------------------------------------------------------------


@pytest.mark.case("C015")
def test_a_cancel_from_another_process_lets_nothing_more_begin(
    nursery: Nursery, db: str, effects: str, again: New
) -> None:
    owner = at_the_gate(nursery, db, effects, "gated_five")
    rt = again()

    assert rt.cancel("e", "enough")
    threading.Event().wait(0.6)  # the owner sees it within about half a second
    owner.say("go")
    began = time.monotonic()
    result = owner.result()
    seconds = time.monotonic() - began

    assert result["status"] == "CANCELLED"
    assert traces(effects) == ["step 1", "step 2", "through the gate"]
    assert seconds <= 1.5
    assert rt.execution("e").status is ExecutionStatus.CANCELLED
    assert not rt.cancel("e")
    assert rt.resume("e", gated(5)).status is ExecutionStatus.CANCELLED
    assert traces(effects) == ["step 1", "step 2", "through the gate"]


@pytest.mark.parametrize("how", ["resume", "recover", "run"])
def test_a_cancel_that_nobody_heard_is_carried_out_by_the_next_owner_before_anything_begins(
    nursery: Nursery, db: str, effects: str, again: New, how: str
) -> None:
    owner = at_the_gate(nursery, db, effects)
    owner.kill()
    owner.wait()
    assert again().cancel("e", "enough")
    wf = gated().replace(s2=lambda effects: traces(effects).append("") or 2)

    rt = again(workflows=[wf])
    if how == "resume":
        result = rt.resume("e", wf)
    elif how == "recover":
        (execution,) = rt.recover()
        result = execution.result(DEADLINE)
    else:
        result = rt.run(wf, {"effects": effects}, execution_id="e", if_exists="resume")

    assert result.status is ExecutionStatus.CANCELLED
    assert traces(effects) == ["step 1", "step 2"]
    assert {result.steps[name].reason for name in ("s2", "s3")} == {"cancelled"}
    types = [event.type for event in rt.execution("e").events()]
    assert "step.started" not in types[types.index("workflow.resumed") :]
    reopened = again().resume("e", wf, reopen=True)
    assert reopened.status is ExecutionStatus.COMPLETED


def test_a_cancel_that_came_too_late_does_not_meet_the_next_resume(ran: Ran, again: New) -> None:
    wf = Workflow("late")

    def step() -> None:
        ran.append("step")
        assert rt.cancel("e")
        assert rt.cancel("e")
        raise ValueError

    wf.step(step, id="step")
    rt = again()
    first = rt.run(wf, execution_id="e")

    result = again().resume("e", wf.replace(step=lambda: "done"), reopen=True)

    assert first.status is ExecutionStatus.CANCELLED
    assert result.status is ExecutionStatus.COMPLETED


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C038")
@pytest.mark.timeout(120)
def test_two_processes_and_somebody_who_locks_the_file(nursery: Nursery, db: str, effects: str) -> None:
    runs = 50
    children = [
        nursery.start("run_many", db=db, effects=f"{effects}.{name}", name=name, count=runs) for name in ("a", "b")
    ]
    assert [child.hear() for child in children] == ["begun", "begun"]
    done = threading.Event()

    def lock_the_file() -> None:
        connection = sqlite3.connect(db, isolation_level=None, timeout=30.0)
        while not done.wait(0.1):
            connection.execute("BEGIN IMMEDIATE")
            done.wait(2.0)
            connection.execute("COMMIT")
        connection.close()

    locker = threading.Thread(target=lock_the_file)
    locker.start()
    try:
        told = [child.result(90.0) for child in children]
    finally:
        done.set()
        locker.join(DEADLINE)

    assert [each["statuses"] for each in told] == [{"COMPLETED": runs}] * 2
    assert [each["errors"] + each["warnings"] + each["logged"] for each in told] == [[], []]
    for name in ("a", "b"):
        lines = counted(f"{effects}.{name}")
        assert len(lines) == runs * 5
        assert set(lines.values()) == {1}
