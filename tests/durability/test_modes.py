"""What is waited for in each durability mode, and what becomes of a walk whose store fails."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, Runtime, StepStatus, Workflow
from ares.errors import StoreError
from ares.journal.protocol import Append
from ares.stores.sqlite import SqliteStore
from tests.durability.nursery import DEADLINE
from tests.durability.stores import StoreWrapper
from tests.durability.traces import Ran

New = Callable[..., Runtime]


class Tap(StoreWrapper):
    """Knows what is committed, and asks ``gate`` before each commit, which may wait or raise."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.committed: list[tuple[str, str]] = []
        self.gate: Callable[[set[tuple[str, str]]], None] = lambda entries: None

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        entries = [(entry.kind, entry.path) for append in appends for entry in append.entries]
        self.gate(set(entries))
        results = super().append(appends, sync=sync)
        self.committed += entries
        return results


@pytest.fixture
def tap(db: str) -> Tap:
    return Tap(SqliteStore(db))


def pair(first: Callable[..., Any], second: Callable[..., Any]) -> Workflow:
    wf = Workflow("pair")
    wf.step(first, id="first")
    wf.step(second, id="second", depends_on=["first"])
    return wf


def run_to_its_end(rt: Runtime, wf: Workflow, how: str) -> ares.WorkflowResult:
    """Execution "e", run on this thread or submitted and waited for."""
    if how == "run":
        return rt.run(wf, execution_id="e")
    return rt.submit(wf, execution_id="e").result(DEADLINE)


def seqs(db: str, execution_id: str = "e") -> list[int]:
    """The numbers of what is in the file."""
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT seq FROM entries WHERE execution = (SELECT key FROM executions WHERE id = ?) ORDER BY seq",
            (execution_id,),
        ).fetchall()
    connection.close()
    return [seq for (seq,) in rows]


# --- what is waited for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_in_sync_a_dependent_begins_after_the_commit_of_what_it_depends_on(tap: Tap, again: New, steps_on: str) -> None:
    seen: list[bool] = []
    wf = pair(lambda: 1, lambda: seen.append(("succeeded", "first") in tap.committed))

    again(tap, steps_on=steps_on).run(wf)

    assert seen == [True]


def test_in_sync_a_commit_that_takes_its_time_holds_up_its_own_dependents_only(tap: Tap, again: New) -> None:
    stranger_began = threading.Event()

    def gate(entries: set[tuple[str, str]]) -> None:
        if ("succeeded", "first") in entries:
            assert stranger_began.wait(DEADLINE)

    tap.gate = gate
    seen: list[bool] = []
    wf = pair(lambda: 1, lambda: seen.append(("succeeded", "first") in tap.committed))
    wf.step(stranger_began.set, id="stranger")

    again(tap).run(wf)

    assert seen == [True]


@pytest.mark.parametrize("durability", ["async", "best_effort"])
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_in_the_other_modes_a_commit_overlaps_what_comes_next(
    tap: Tap, again: New, durability: str, steps_on: str
) -> None:
    second_began = threading.Event()

    def gate(entries: set[tuple[str, str]]) -> None:
        if ("succeeded", "first") in entries:
            assert second_began.wait(DEADLINE)  # a commit that had to come first would wait for ever

    tap.gate = gate

    result = again(tap, durability=durability, steps_on=steps_on).run(pair(lambda: 1, second_began.set))

    assert result.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
@pytest.mark.parametrize("how", ["run", "submit"])
def test_when_a_run_returns_everything_is_committed(db: str, again: New, durability: str, how: str) -> None:
    wf = Workflow("fan")
    wf.step(lambda: list(range(50)), id="source")
    wf.step(lambda ctx, item: ctx.emit("seen", item=item), id="each", map_over="source")
    rt = again(durability=durability)

    run_to_its_end(rt, wf, how)
    stored = seqs(db)

    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) == 1 + 2 + 1 + 50 * 3 + 1 + 1
    assert SqliteStore(db).execution("e").status == "COMPLETED"


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_submit_returns_after_its_commit(db: str, again: New, durability: str) -> None:
    may_end = threading.Event()
    wf = Workflow("slow")
    wf.step(lambda: may_end.wait(DEADLINE), id="step")

    handle = again(durability=durability).submit(wf, execution_id="e")

    assert seqs(db)[:1] == [1]
    may_end.set()
    handle.result(DEADLINE)


# --- a store that fails -----------------------------------------------------------------------------------------------


class Full:
    """A gate that fails from one entry on, until it is let go."""

    def __init__(self, at: tuple[str, str]) -> None:
        self._at = at
        self._fails = False
        self._is_over = False
        self.has_failed = threading.Event()

    def __call__(self, entries: set[tuple[str, str]]) -> None:
        if self._at in entries and not self._is_over:
            self._fails = True
        if self._fails:
            self.has_failed.set()
            raise StoreError("the disk", "is full")

    def let_go(self) -> None:
        assert self.has_failed.wait(DEADLINE)
        self._fails, self._is_over = False, True


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("how", ["run", "submit"])
def test_a_commit_that_fails_ends_the_walk_and_the_execution_can_be_resumed(  # noqa: PLR0917 - two are fixtures
    tap: Tap, db: str, ran: Ran, again: New, durability: str, steps_on: str, how: str
) -> None:
    tap.gate = full = Full(("succeeded", "first"))
    wf = pair(lambda: ran.append("first"), lambda: ran.append("second"))
    rt = again(tap, durability=durability, steps_on=steps_on)

    with pytest.raises(StoreError) as failed:
        run_to_its_end(rt, wf, how)
    begun = ran.since()
    after = rt.execution("e").status
    full.let_go()
    result = rt.resume("e", wf)

    assert failed.value.execution_id == "e"
    assert "is full" in str(failed.value)
    assert begun == ["first"] if durability == "sync" else begun[0] == "first"
    # Of what was submitted not even the first start is stored, unless its step took longer than that may wait.
    assert after in {ExecutionStatus.INTERRUPTED, *([ExecutionStatus.PENDING] if how == "submit" else [])}
    assert ran == ["first", "second"]
    assert result.status is ExecutionStatus.COMPLETED
    assert seqs(db) == list(range(1, len(seqs(db)) + 1))


def test_what_runs_while_the_store_fails_has_the_grace_and_is_not_counted_as_crashed(
    tap: Tap, db: str, ran: Ran, again: New
) -> None:
    begun = threading.Event()
    wf = Workflow("beside")

    @wf.step(max_crashes=1)
    def beside(ctx: ares.StepContext) -> str:
        ran.append("beside")
        begun.set()
        if len(ran) > 4:
            return "done"
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError

    wf.step(lambda: begun.wait(DEADLINE), id="first")
    for _ in range(4):
        begun.clear()
        tap.gate = full = Full(("succeeded", "first"))
        rt = again(tap)
        with pytest.raises(StoreError):
            rt.resume("e", wf) if seqs_or_none(db) else rt.run(wf, execution_id="e")
        full.let_go()
    result = again(tap).resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert result.steps["beside"].attempts == 1


def seqs_or_none(db: str) -> list[int]:
    try:
        return seqs(db)
    except sqlite3.OperationalError:
        return []


def test_in_best_effort_the_walk_goes_on_and_the_journal_has_no_hole(tap: Tap, db: str, again: New) -> None:
    tap.gate = full = Full(("succeeded", "s1"))
    wf = Workflow("long")
    before = None
    for number in range(6):
        wf.step(
            full.let_go if number == 4 else lambda: "done",
            id=f"s{number}",
            depends_on=[before] if before else (),
        )
        before = f"s{number}"

    rt = again(tap, durability="best_effort")
    result = rt.run(wf, execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    assert any("is full" in warning for warning in result.warnings)
    stored = seqs(db)
    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) == 1 + 6 * 2 + 1
    assert again().resume("e", wf).outputs == result.outputs


def test_in_best_effort_a_store_that_never_comes_back_is_told(tap: Tap, db: str, ran: Ran, again: New) -> None:
    tap.gate = full = Full(("succeeded", "first"))
    wf = pair(lambda: ran.append("first"), lambda: ran.append("second"))

    result = again(tap, durability="best_effort").run(wf, execution_id="e")
    told = [warning for warning in result.warnings if "is full" in warning]
    full.let_go()
    rt = again()
    after = rt.execution("e").status
    resumed = rt.resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert told
    assert any("the end is not stored" in warning for warning in result.warnings)
    assert after is ExecutionStatus.INTERRUPTED
    assert resumed.status is ExecutionStatus.COMPLETED
    assert seqs(db) == list(range(1, len(seqs(db)) + 1))


@pytest.mark.parametrize("durability", ["async", "best_effort"])
def test_a_failed_step_and_a_failed_store_are_told_apart(tap: Tap, again: New, durability: str) -> None:
    wf = Workflow("fails")
    wf.step(lambda: 1 / 0, id="fails")

    result = again(tap, durability=durability).run(wf)

    assert result.status is ExecutionStatus.FAILED
    assert result.steps["fails"].status is StepStatus.FAILED
    assert result.warnings == ()


def test_other_executions_of_the_store_go_on_when_one_cannot_be_stored(tap: Tap, ran: Ran, again: New) -> None:
    class Refusing(StoreWrapper):
        def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
            bad = [any(e.path == "bad" for e in append.entries) for append in appends]
            rest = iter(super().append([a for a, b in zip(appends, bad, strict=True) if not b], sync=sync))
            return [StoreError("the disk", "refuses this row") if b else next(rest) for b in bad]

    rt = again(Refusing(tap))
    good, worse = Workflow("good"), Workflow("worse")
    good.step(lambda: ran.append("good"), id="good")
    worse.step(lambda: ran.append("bad"), id="bad")

    handles = [rt.submit(worse if number % 3 == 0 else good, execution_id=f"e{number}") for number in range(12)]

    for number, handle in enumerate(handles):
        if number % 3 == 0:
            with pytest.raises(StoreError, match="refuses this row") as failed:
                handle.result(DEADLINE)
            assert failed.value.execution_id == f"e{number}"
        else:
            assert handle.result(DEADLINE).status is ExecutionStatus.COMPLETED
