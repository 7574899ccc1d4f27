"""Who runs what: the inline rule, the workers, and what is left of them."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ares import RetryPolicy, Runtime, StepSpec, StepStatus, Workflow
from ares.engine import pool as pool_module
from ares.engine.pool import WorkerPool
from ares.errors import UsageError
from tests.engine.helpers import (
    Barrier,
    Gate,
    Task,
    Threads,
    chain,
    events_of,
    eventually,
    fan,
    last,
    open_files,
    seconds_since,
    single,
)

Make = Callable[..., Runtime]


@pytest.fixture
def threads() -> Threads:
    return Threads()


def me() -> int:
    return threading.get_ident()


# --- the inline rule -----------------------------------------------------------------------------


def test_a_chain_runs_on_the_calling_thread(runtime: Make, store: str | None) -> None:
    rt = runtime(store)

    result = rt.run(chain(20, lambda _: me()))

    assert set(result.outputs.values()) == {me()}


def test_a_chain_without_a_store_starts_no_thread(runtime: Make) -> None:
    rt = runtime()
    before = threading.active_count()

    rt.run(chain(20)).raise_for_status()

    assert threading.active_count() <= before  # one of an earlier test may have ended meanwhile


def test_steps_that_may_run_at_once_do_on_workers_and_what_follows_them_runs_inline(runtime: Make) -> None:
    rt = runtime(max_workers=3)
    together = Barrier(3)

    def body(_: int) -> int:
        together.wait()
        return me()

    wf = fan(3, body)
    wf.add(StepSpec("after", me, depends_on=["join"]))
    result = rt.run(wf)

    on = [result.outputs[f"s{i}"] for i in range(3)]
    assert len({*on, me()}) == 4
    assert result.outputs["after"] == me()


def test_a_step_with_a_timeout_never_runs_inline(runtime: Make) -> None:
    rt = runtime()
    wf = single(me, timeout=60)
    wf.add(StepSpec("next", me, depends_on=["body"]))

    result = rt.run(wf)

    assert result.outputs["body"] != me()
    assert result.outputs["next"] == me()


def test_a_run_with_a_timeout_runs_nothing_inline(runtime: Make) -> None:
    rt = runtime()

    result = rt.run(chain(3, lambda _: me()), timeout=60)

    assert me() not in result.outputs.values()


def test_a_step_beside_one_that_waits_for_its_retry_does_not_run_inline(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    calls: list[int] = []

    def fails_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    wf = Workflow("w")
    wf.step(fails_once, retry=RetryPolicy(max_attempts=2, initial_delay=0.1, jitter=0))
    wf.step(me, id="beside")

    result = rt.run(wf)

    assert result.outputs["beside"] != me()


def test_conditions_and_routers_follow_the_same_rule(runtime: Make) -> None:
    rt = runtime()
    on: dict[str, int] = {}

    def note(name: str, value: object) -> object:
        on[name] = me()
        return value

    wf = Workflow("w")
    wf.step(
        lambda: 1,
        id="point",
        condition=lambda: note("condition", True),
        router=lambda: note("router", "left"),
        branches=["left"],
    )
    wf.step(lambda: note("left", None), id="left", depends_on=["point"])

    rt.run(wf).raise_for_status()

    assert on == {"condition": me(), "router": me(), "left": me()}


def test_with_steps_on_workers_the_calling_thread_runs_none(runtime: Make) -> None:
    rt = runtime(steps_on="workers")

    result = rt.run(chain(5, lambda _: me()))

    assert me() not in result.outputs.values()


def test_with_steps_on_caller_the_calling_thread_runs_all(runtime: Make, store: str | None, threads: Threads) -> None:
    rt = runtime(store, steps_on="caller")

    result = rt.run(fan(4, lambda _: me()))

    assert [result.outputs[f"s{i}"] for i in range(4)] == [me()] * 4
    assert threads.are_gone("ares-worker")


def test_with_steps_on_caller_a_retry_is_not_waited_for(runtime: Make) -> None:
    rt = runtime(steps_on="caller")
    calls: list[int] = []

    def fails_twice() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")
        return len(calls)

    begun = time.monotonic()
    result = rt.run(single(fails_twice, retry=RetryPolicy(max_attempts=3, initial_delay=60)))

    assert result.outputs == {"body": 3}
    assert seconds_since(begun) < 10


def test_with_steps_on_caller_no_timeout_is_enforced(runtime: Make) -> None:
    rt = runtime(steps_on="caller")

    result = rt.run(single(lambda: last(0.05) or me(), timeout=0.01), timeout=0.01)

    assert result.outputs == {"body": me()}


def test_with_steps_on_caller_submit_returns_when_the_walk_is_done(runtime: Make, store: str | None) -> None:
    rt = runtime(store, steps_on="caller")

    execution = rt.submit(fan(3, lambda _: me()))

    assert execution.done()
    assert execution.result(0.0).outputs["s0"] == me()


def test_steps_on_takes_no_other_word() -> None:
    with pytest.raises(UsageError, match="steps_on"):
        Runtime(steps_on="here")


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2"])
def test_max_workers_must_be_a_whole_number_from_one(count: object) -> None:
    with pytest.raises(UsageError, match="max_workers"):
        Runtime(max_workers=count)  # type: ignore[arg-type]  # that is the point


# --- capacity and order --------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_as_many_steps_run_at_once_as_there_are_workers_and_never_more(runtime: Make, workers: int) -> None:
    rt = runtime(max_workers=workers)
    lock = threading.Lock()
    running: Counter[str] = Counter()
    together = Barrier(workers)

    def body(_: int) -> None:
        with lock:
            running["now"] += 1
            running["most"] = max(running["most"], running["now"])
        together.wait()
        with lock:
            running["now"] -= 1

    rt.run(fan(4 * workers, body)).raise_for_status()

    assert running["most"] == workers


def test_with_one_worker_ready_steps_run_in_definition_order(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    order: list[int] = []

    rt.run(fan(30, order.append)).raise_for_status()

    assert order == list(range(30))


def test_with_one_worker_what_follows_from_a_step_comes_before_what_is_defined_later(
    runtime: Make, store: str | None
) -> None:
    rt = runtime(store, max_workers=1)
    order: list[str] = []
    wf = Workflow("w")
    for i in range(10):
        wf.add(StepSpec(f"a{i}", lambda i=i: order.append(f"a{i}")))  # type: ignore[misc]  # bound now
        wf.add(StepSpec(f"b{i}", lambda i=i: order.append(f"b{i}"), depends_on=[f"a{i}"]))  # type: ignore[misc]

    rt.run(wf).raise_for_status()

    assert order == [f"{letter}{i}" for i in range(10) for letter in "ab"]


def test_with_one_worker_an_execution_is_deterministic(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=1)

    told = [[(e.type, e.payload.get("path")) for e in events_of(rt, rt.run(fan(8)).execution_id)] for _ in range(5)]

    assert all(each == told[0] for each in told)


@pytest.mark.case("C002")
def test_a_step_starts_as_soon_as_its_own_dependencies_are_done(runtime: Make) -> None:
    rt = runtime(max_workers=4)
    wf = Workflow("w")
    d_is_done = Gate()
    wf.step(lambda: None, id="a")
    wf.step(lambda: None, id="b", depends_on=["a"])
    wf.step(d_is_done.wait, id="c", depends_on=["a"])  # a slow stranger: it ends only after d
    wf.step(d_is_done.open, id="d", depends_on=["b"])

    result = rt.run(wf).raise_for_status()

    done = [e.payload["path"] for e in events_of(rt, result.execution_id) if e.type == "step.completed"]
    assert done.index("d") < done.index("c")


def test_the_worker_that_was_busy_last_is_taken_first(runtime: Make) -> None:
    rt = runtime(max_workers=4)
    together = Barrier(4)
    rt.run(fan(4, lambda _: together.wait())).raise_for_status()

    pool = rt._life.engine().pool
    seen: set[str] = set()
    for _ in range(20):
        eventually(lambda: pool.busy == 0)
        seen.add(rt.run(single(lambda: threading.current_thread().name, timeout=60)).outputs["body"])

    assert len(seen) == 1


# --- many executions -----------------------------------------------------------------------------


def test_many_threads_run_executions_on_one_runtime_at_once(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    ready = Barrier(64)

    def one(number: int) -> object:
        wf = Workflow("w", inputs={"n": int})
        wf.step(lambda n: n, id="a")
        wf.step(lambda a: a + 1, id="b")
        wf.step(lambda a: a + 2, id="c")
        wf.step(lambda b, c: b * c, id="d")
        ready.wait()
        return rt.run(wf, {"n": number}).raise_for_status().outputs["d"]

    tasks = [Task(one, n) for n in range(64)]

    assert [task.result() for task in tasks] == [(n + 1) * (n + 2) for n in range(64)]


def test_a_run_with_much_to_do_does_not_keep_the_workers_from_the_others(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    others_done = Gate()
    begun = Gate()

    def much(i: int) -> None:
        begun.open()
        if i == 400:
            others_done.wait()  # there is no end to the long one before the short ones had their turn

    long_one = Task(rt.run, fan(401, much))
    begun.wait()
    for _ in range(5):
        rt.run(fan(3)).raise_for_status()
    others_done.open()

    long_one.result().raise_for_status()


def test_a_thousand_executions_one_after_another_leave_nothing_behind(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    wf = fan(2)
    rt.run(wf)
    count, files = threading.active_count(), open_files()

    for _ in range(1000):
        rt.run(wf).raise_for_status()

    assert threading.active_count() <= count + 1
    assert open_files() <= files


def test_a_thousand_executions_on_sqlite_leave_nothing_behind(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db", max_workers=2)
    wf = chain(2)
    rt.run(wf)
    count, files = threading.active_count(), open_files()

    for _ in range(1000):
        rt.run(wf).raise_for_status()

    assert threading.active_count() <= count + 1
    assert open_files() <= files + 1


@pytest.mark.case("C040")
def test_the_same_runtime_may_be_used_from_any_thread_and_closed_from_another(runtime: Make, tmp_path: Path) -> None:
    rt = Task(lambda: runtime(tmp_path / "ares.db")).result()

    runs = [Task(rt.run, fan(3)) for _ in range(2)]
    for run in runs:
        run.result().raise_for_status()

    Task(rt.close).result()


# --- the threads themselves ----------------------------------------------------------------------


def test_every_thread_is_named_after_what_it_serves_and_is_a_daemon(
    runtime: Make, tmp_path: Path, threads: Threads
) -> None:
    rt = runtime(tmp_path / "ares.db", max_workers=2)
    together = Barrier(2)
    rt.run(fan(2, lambda _: together.wait())).raise_for_status()
    rt.submit(fan(1)).result(10)

    mine = threads.all()

    kinds = {t.name.partition(" ")[0].rstrip("-0123456789") for t in mine}
    assert kinds == {
        "ares-worker", "ares-walks", "ares-journal-writer", "ares-journal-heartbeat", "ares-plugin", "ares-plugin-timer"
    }  # fmt: skip
    assert all(t.daemon for t in mine)


def test_workers_end_with_their_runtime(store: str | None, threads: Threads) -> None:
    together = Barrier(3)
    with Runtime(store, max_workers=3) as rt:
        rt.run(fan(3, lambda _: together.wait())).raise_for_status()
        rt.submit(fan(2)).result(10)
        mine = threads.all()
        assert mine

    assert not [t.name for t in mine if t.is_alive()]


def test_an_idle_worker_ends_after_a_while(monkeypatch: pytest.MonkeyPatch, runtime: Make, threads: Threads) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.05)
    rt = runtime(max_workers=2)
    together = Barrier(2)
    rt.run(fan(2, lambda _: together.wait())).raise_for_status()

    eventually(lambda: threads.are_gone("ares-worker"))

    rt.run(fan(2, lambda _: together.wait())).raise_for_status()


def test_work_is_never_lost_to_a_worker_that_ends_just_now(monkeypatch: pytest.MonkeyPatch, runtime: Make) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.0005)
    rt = runtime(max_workers=2)

    for _ in range(150):
        rt.run(fan(2)).raise_for_status()


# --- the pool by itself --------------------------------------------------------------------------


def nothing() -> None:
    """What an owner does when it is told of an offer."""


def test_places_are_offered_to_those_in_line_in_their_order() -> None:
    pool = WorkerPool("test", 1)
    assert pool.try_hold("holder")
    told: list[str] = []
    for name in "abc":
        pool.line_up(name, functools.partial(told.append, name))

    pool.release("holder")
    for name in "ab":
        assert pool.try_hold(name)
        pool.release(name)

    assert told == ["a", "b", "c"]
    assert pool.busy == 1  # offered to c
    pool.leave("c")
    assert pool.busy == 0


def test_nobody_takes_a_place_from_those_in_line() -> None:
    pool = WorkerPool("test", 1)
    assert pool.try_hold("holder")
    pool.line_up("first", nothing)

    pool.release("holder")

    assert not pool.try_hold("second")
    assert pool.try_hold("first")


def test_who_steps_aside_gives_its_offer_to_the_next() -> None:
    pool = WorkerPool("test", 1)
    assert pool.try_hold("holder")
    told: list[str] = []
    pool.line_up("first", functools.partial(told.append, "first"))
    pool.line_up("second", functools.partial(told.append, "second"))
    pool.release("holder")

    pool.step_aside("first")

    assert told == ["first", "second"]
    assert pool.try_hold("second")


def test_who_is_out_of_the_line_is_not_told() -> None:
    pool = WorkerPool("test", 1)
    assert pool.try_hold("holder")
    told: list[str] = []
    pool.line_up("first", functools.partial(told.append, "first"))
    pool.step_aside("first")

    pool.release("holder")

    assert told == []
    assert pool.busy == 0


def test_all_that_an_owner_did_not_use_comes_back_when_it_leaves() -> None:
    pool = WorkerPool("test", 3)
    told: list[str] = []
    assert [pool.try_hold("a"), pool.try_hold("a"), pool.try_hold("b")] == [True] * 3
    pool.line_up("a", functools.partial(told.append, "a"))
    pool.line_up("c", functools.partial(told.append, "c"))
    pool.release("b")

    pool.leave("a")

    assert told == ["a", "c"]
    assert pool.busy == 1
    pool.leave("c")
    assert pool.busy == 0


def test_a_seat_that_was_given_back_cannot_be_abandoned_any_more() -> None:
    pool = WorkerPool("test", 1)
    done = Gate()
    assert pool.try_hold("me")
    seat = pool.run("me", done.open)
    done.wait()
    eventually(lambda: pool.busy == 0)
    hold = Gate()
    assert pool.try_hold("me")
    pool.run("me", hold.wait)

    abandoned = pool.abandon(seat)

    assert not abandoned
    assert pool.busy == 1
    hold.open()
    pool.close(5.0)


def test_an_abandoned_seat_frees_its_place_once(threads: Threads) -> None:
    pool = WorkerPool("test", 1)
    begun, hold = Gate(), Gate()
    assert pool.try_hold("me")
    seat = pool.run("me", lambda: begun.open() or hold.wait())
    begun.wait()

    assert [pool.abandon(seat), pool.abandon(seat)] == [True, False]

    assert pool.busy == 0
    assert pool.abandoned == 1
    hold.open()
    eventually(lambda: threads.are_gone("ares-worker"))
    assert pool.busy == 0
    pool.close(5.0)


def test_a_job_that_raises_gives_its_place_back(threads: Threads) -> None:
    pool = WorkerPool("test", 1)
    seen: list[type[BaseException]] = []
    hook, threading.excepthook = threading.excepthook, lambda args: seen.append(args.exc_type)

    def job() -> None:
        raise ZeroDivisionError

    try:
        assert pool.try_hold("me")
        pool.run("me", job)
        eventually(lambda: threads.are_gone("ares-worker"))
    finally:
        threading.excepthook = hook

    assert pool.busy == 0
    assert seen == [ZeroDivisionError]


def test_places_add_up_however_work_and_abandonment_meet() -> None:
    pool = WorkerPool("test", 2)
    for round_ in range(300):
        eventually(lambda: pool.try_hold("me"))
        begun = Gate()
        seat = pool.run("me", begun.open)
        if round_ % 2:
            begun.wait()
        pool.abandon(seat)

    eventually(lambda: pool.busy == 0)
    assert pool.try_hold("me")
    assert pool.try_hold("me")
    assert not pool.try_hold("me")
    pool.close(5.0)


def test_closing_does_not_wait_for_abandoned_workers() -> None:
    pool = WorkerPool("test", 1)
    begun, stuck = Gate(), Gate()
    assert pool.try_hold("me")
    seat = pool.run("me", lambda: begun.open() or stuck.wait(60))
    begun.wait()
    pool.abandon(seat)

    started = time.monotonic()
    pool.close(10.0)
    took = seconds_since(started)
    stuck.open()

    assert took < 2


def test_a_worker_that_was_taken_and_is_given_nothing_ends(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(pool_module, "_LATE_SECONDS", 0.01)
    pool = WorkerPool("test", 1)
    with pool._lock:
        pool._new_worker()  # and here the Ctrl-C came

    eventually(lambda: threads.are_gone("ares-worker"))


def test_an_execution_that_ends_while_it_is_in_line_for_a_worker_leaves_the_line(runtime: Make) -> None:
    rt = runtime(max_workers=1)
    rt.start()
    pool = rt._life.engine().pool
    assert pool.try_hold("test")

    rt.submit(fan(2), timeout=0.1).result(20)

    eventually(lambda: not pool._line)
    pool.release("test")
    assert pool.busy == 0


def test_a_step_that_is_never_run_has_no_thread(runtime: Make, threads: Threads) -> None:
    rt = runtime()
    wf = Workflow("w")
    wf.step(lambda: 1 / 0, id="bad")
    wf.step(lambda bad: bad, id="after")

    result = rt.run(wf)

    assert result.steps["after"].status is StepStatus.SKIPPED
    assert threads.are_gone("ares-worker")
