"""A Runtime that recovers by itself: what it takes, what it leaves, and that it lives through what the store does."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loguru import logger

from ares import Approve, ExecutionStatus, Runtime, Workflow
from ares.errors import StoreError, UsageError
from ares.stores.sqlite import SqliteStore
from tests.durability.nursery import DEADLINE, Child, Nursery
from tests.durability.stores import StoreWrapper
from tests.durability.test_leases import edit, until
from tests.durability.traces import Ran, counted

#: The exit code of a process that ``deadly`` killed.
DEADLY = 7

New = Callable[..., Runtime]


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What the application's log gets to see of ares."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="WARNING")
    logger.enable("ares")
    yield lines
    logger.remove(sink)
    logger.disable("ares")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ares-recovery")]


# --- many processes --------------------------------------------------------------------------------------------------


def test_of_eight_processes_that_recover_by_themselves_one_takes_each_execution(
    nursery: Nursery, db: str, effects: str
) -> None:
    dead = nursery.start("submit_and_die", db=db, effects=effects, count=30)
    assert [dead.hear(), dead.hear()] == ["at the gate", "submitted"]
    dead.kill()
    dead.wait()

    children = [nursery.start("recover_all", db=db, workflow="quick") for _ in range(8)]
    assert [child.hear() for child in children] == ["recovers"] * 8
    warnings = [child.result() for child in children]

    assert warnings == [[]] * 8
    names = [f"e{number}" for number in range(30)]
    assert counted(effects) - Counter(["step 1", "step 2"]) == Counter(
        f"{name} {what}" for name in names for what in ("first", "0", "1", "2", "last")
    )
    with Runtime(db) as rt:
        statuses = {summary.execution_id: summary.status for summary in rt.executions()}
        started = [sum(event.type == "workflow.resumed" for event in rt.execution(name).events()) for name in names]
    assert statuses == {"blocks": ExecutionStatus.INTERRUPTED, **dict.fromkeys(names, ExecutionStatus.COMPLETED)}
    assert started == [1] * 30


@pytest.mark.parametrize("repeat", range(3))
def test_an_execution_that_kills_every_process_ends_by_max_crashes(
    nursery: Nursery, db: str, effects: str, repeat: int
) -> None:
    first = nursery.start("run", workflow="deadly", db=db, inputs={"effects": effects})
    assert first.wait() == DEADLY

    def restarted(child: Child) -> Child:
        if has_ended(child):
            assert child.wait() in (DEADLY, 0), child.errors()  # it may have seen the end of it just now
            return nursery.start("recover_all", db=db, workflow="deadly")
        return child

    services = [nursery.start("recover_all", db=db, workflow="deadly") for _ in range(3)]
    store = SqliteStore(db)

    def is_over() -> bool:
        if store.execution("e").status == "FAILED":
            return True
        services[:] = [restarted(child) for child in services]
        return False

    until(is_over)

    # The start of the first may have been lost with its process.
    deaths = counted(effects)["kills in attempt 1"]
    assert deaths in (3, 4)
    assert counted(effects) == Counter({"before": 1, "kills in attempt 1": deaths, "tidy": 1})
    with Runtime(db) as rt:
        assert "the process died 3 times while step 'kills' was running" in rt.summary("e").error
    # Whoever comes upon it from now on leaves it alone.
    assert nursery.call("recover_all", db=db, workflow="deadly") == []
    assert counted(effects)["kills in attempt 1"] == deaths


def has_ended(child: Child) -> bool:
    """Whether a child has come to its end."""
    try:
        child.wait(0)
    except TimeoutError:
        return False
    return True


# --- what is taken up ------------------------------------------------------------------------------------------------


def asks(ran: Ran) -> Workflow:
    wf = Workflow("asks")
    wf.step(lambda: ran.append("step"), id="step", interrupt="May it?")
    return wf


@pytest.mark.parametrize("asked", ["answer", "cancel"])
def test_what_is_asked_of_an_execution_that_nobody_walks_is_carried_out(
    db: str, ran: Ran, again: New, asked: str
) -> None:
    wf = asks(ran)
    rt = again(workflows=[wf], recover_interval=0.05)
    assert rt.run(wf, execution_id="e").status is ExecutionStatus.WAITING
    handle = rt.execution("e")

    with Runtime(db) as other:
        if asked == "answer":
            other.answer("e", Approve(), step="step")
        else:
            other.cancel("e", "enough")
    until(lambda: handle.status.is_final)

    assert handle.status is (ExecutionStatus.COMPLETED if asked == "answer" else ExecutionStatus.CANCELLED)
    assert ran == (["step"] if asked == "answer" else [])


def test_what_waits_for_an_answer_is_left_alone(db: str, ran: Ran, again: New) -> None:
    wf = asks(ran)
    looks = threading.Semaphore(0)

    class Watched(StoreWrapper):
        def executions(self, **wanted: Any) -> Any:
            looks.release()
            return self._inner.executions(**wanted)

    rt = again(Watched(SqliteStore(db)), workflows=[wf], recover_interval=0.01)
    rt.run(wf, execution_id="e")
    before = rt.summary("e")
    for _ in range(5):
        assert looks.acquire(timeout=DEADLINE)

    assert rt.live("e") is None
    assert rt.summary("e") == before


class Failing(StoreWrapper):
    """Down while it is told to be."""

    is_down = False

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return self._down if self.is_down and name in ("executions", "release", "beat", "claim") else found

    def append(self, appends: Any, *, sync: bool) -> Any:
        return self._down() if self.is_down else super().append(appends, sync=sync)

    def _down(self, *_: object, **__: object) -> Any:
        raise StoreError(self.name, "the store is down")


def test_a_walk_that_ended_because_the_store_was_down_goes_on_once_it_is_back(db: str, ran: Ran, again: New) -> None:
    store = Failing(SqliteStore(db))
    wf = Workflow("cut")

    def first() -> None:
        if not ran:
            store.is_down = True
        ran.append("first")

    wf.step(first, id="first", max_crashes=1)
    wf.step(lambda first: ran.append("second"), id="second")
    rt = again(store, workflows=[wf], recover_interval=0.02)
    handle = rt.submit(wf, execution_id="e")
    with pytest.raises(StoreError):
        handle.result(DEADLINE)
    until(lambda: [warning for warning in rt.warnings if "can be recovered" in warning])
    threading.Event().wait(0.2)  # some more tries
    store.is_down = False
    until(lambda: SqliteStore(db).execution("e").status == "COMPLETED")

    assert ran == ["first", "first", "second"]
    told = [warning for warning in rt.warnings if "can be recovered" in warning]
    assert told == [f"nothing can be recovered at present: {db}: the store is down"]
    assert handle.result(DEADLINE).status is ExecutionStatus.COMPLETED


def test_an_execution_that_cannot_be_taken_up_stops_no_other_and_is_logged_once(
    db: str, ran: Ran, again: New, logged: list[str]
) -> None:
    wf = Workflow("known")
    wf.step(lambda: ran.append("step"), id="step")
    with Runtime(db) as rt:
        for name in ("damaged", "whole"):
            rt.run(wf, execution_id=name)
    edit(db, "UPDATE executions SET status = 'RUNNING', ended_at = NULL")
    edit(db, "DELETE FROM entries WHERE kind = 'ended'")
    edit(db, "UPDATE entries SET body = '{' WHERE kind = 'created' AND execution = 1")

    rt = again(workflows=[wf], recover_interval=0.01)
    rt.start()
    until(lambda: rt.execution("whole").status is ExecutionStatus.COMPLETED)
    until(lambda: logged)
    threading.Event().wait(0.2)  # some more tries

    assert len(logged) == 1
    assert "execution damaged cannot be recovered" in logged[0]


def test_a_walk_that_came_upon_a_defect_is_not_taken_up_again_here(
    db: str, ran: Ran, again: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    wf = Workflow("defect")
    wf.step(lambda: ran.append("step"), id="step")
    rt = again(workflows=[wf])
    with monkeypatch.context() as patched:
        patched.setattr("ares.engine.driver.Driver.hand_over", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rt.submit(wf, execution_id="e").result(DEADLINE)

    recovery = rt.recover()

    assert len(recovery) == 0
    assert "ZeroDivisionError" in recovery.left["e"]
    assert rt.resume("e").status is ExecutionStatus.COMPLETED


def test_what_ended_between_the_look_and_the_claim_is_left_as_it_is(db: str, ran: Ran, again: New) -> None:
    wf = Workflow("fails")

    def step() -> None:
        ran.append("step")
        raise ValueError

    wf.step(step, id="step")

    class Slow(StoreWrapper):
        """Whose listing is overtaken by somebody who recovers, too."""

        def executions(self, **wanted: Any) -> Any:
            rows = self._inner.executions(**wanted)
            with Runtime(db, workflows=[wf]) as other:
                for execution in other.recover():
                    execution.result(DEADLINE)
            return rows

    with Runtime(db) as rt:
        rt.run(wf, execution_id="e")
    edit(db, "UPDATE executions SET status = 'RUNNING', ended_at = NULL")
    edit(db, "DELETE FROM entries WHERE kind IN ('ended', 'failed')")
    ran.since()
    rt = again(Slow(SqliteStore(db)), workflows=[wf])

    recovery = rt.recover()

    assert len(recovery) == 0
    assert dict(recovery.left) == {}
    assert ran == ["step"]


# --- its thread ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, -1, True, "often", float("nan"), float("inf")])
def test_an_interval_that_is_none_is_refused(db: str, interval: Any) -> None:
    with pytest.raises(UsageError, match="recover_interval"):
        Runtime(db, workflows=[Workflow("any")], recover_interval=interval)


def test_there_has_to_be_something_to_take_up(db: str) -> None:
    with pytest.raises(UsageError, match="workflows="):
        Runtime(db, recover_interval=1.0)


@pytest.mark.parametrize("timeout", [0, 0.5, -1, True, "long", float("nan")])
def test_a_lease_timeout_that_is_none_is_refused(db: str, timeout: Any) -> None:
    with pytest.raises(UsageError, match="lease_timeout"):
        Runtime(db, lease_timeout=timeout)


def test_the_thread_starts_with_the_runtime_and_ends_with_it(db: str, ran: Ran) -> None:
    rt = Runtime(db, workflows=[asks(ran)], recover_interval=30.0)
    before = threads()
    rt.start()
    during = threads()
    rt.close()

    assert (before, during, threads()) == ([], [f"ares-recovery {db}"], [])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_recovers_only_once_it_uses_the_runtime(db: str, ran: Ran) -> None:
    with Runtime(db, workflows=[asks(ran)], recover_interval=30.0) as rt:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                before = threads()
                rt.start()
                code = 0 if (before, threads()) == ([], [f"ares-recovery {db}"]) else 2
                rt.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
