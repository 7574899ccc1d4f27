"""Named pools: how many steps are under way at once, whichever executions they belong to, and who comes next."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ares import (
    Delivery,
    ExecutionStatus,
    HookPolicy,
    HookResult,
    Plugin,
    RetryPolicy,
    Runtime,
    StepContext,
    StepSpec,
    Workflow,
)
from ares.engine import cutting
from ares.engine.places import Places
from ares.errors import DefinitionError, ExecutionTimeoutError, RuntimeClosedError, UsageError
from tests.engine.helpers import Barrier, Child, Gate, Task, eventually, last, seconds_since, single

Make = Callable[..., Runtime]
MODES = pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])


@pytest.fixture
def stuck() -> Iterator[Gate]:
    """What hanging bodies wait for; opened when the test is over, so that their threads end."""
    gate = Gate()
    yield gate
    gate.open()


class Gauge:
    """Counts who is in a body."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0
        self.most = 0
        self.times = 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.times += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1

    def body(self, seconds: float = 0.002) -> None:
        with self.inside():
            last(seconds)


class Held:
    """A slot that one execution holds until it may end."""

    def __init__(self, rt: Runtime, pool: str = "api") -> None:
        self.begun, self.may_end = Gate(), Gate()
        self.run = Task(rt.run, single(self._body, name="holder", pool=pool))
        self.begun.wait()

    def _body(self) -> None:
        self.begun.open()
        self.may_end.wait()

    def end(self) -> None:
        self.may_end.open()
        self.run.result().raise_for_status()


def pool_of(rt: Runtime, name: str = "api") -> Places:
    return rt._life.engine().pools[name]


def in_line(rt: Runtime, name: str = "api") -> int:
    pool = pool_of(rt, name)
    with pool._lock:
        return len(pool._line)


def is_free(rt: Runtime) -> bool:
    return not any(pool.busy for pool in rt._life.engine().pools.values())


def mapped(body: Callable[..., Any], count: int, name: str = "mapped", **options: Any) -> Workflow:
    wf = Workflow(name)
    wf.step(lambda: list(range(count)), id="source")
    wf.add(StepSpec("each", body, map_over="source", **options))
    return wf


# --- how many ------------------------------------------------------------------------------------------


@MODES
def test_no_more_than_the_size_are_under_way_whichever_executions_they_belong_to(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    rt = runtime(store, pools={"api": 2}, steps_on=steps_on, max_workers=8)
    gauge = Gauge()
    wf = mapped(lambda item: gauge.body(), 6, pool="api")
    wf.add(StepSpec("sub", workflow=single(gauge.body, name="inner", pool="api")))
    wf.step(gauge.body, id="plain", pool="api")
    wf.step(lambda: None, id="free")

    runs = [Task(rt.run, wf) for _ in range(3)] + [Task(lambda: rt.submit(wf).result(20)) for _ in range(3)]
    for run in runs:
        run.result().raise_for_status()

    assert gauge.most == 2
    assert gauge.times == 6 * 8
    assert is_free(rt)


def test_each_pool_is_counted_by_itself_and_each_runtime_has_its_own(runtime: Make) -> None:
    rt, other = runtime(pools={"api": 1, "db": 1}), runtime(pools={"api": 1})
    first, second, third = Held(rt), Held(rt, "db"), Held(other)

    for held in (third, second, first):
        held.end()


def test_max_concurrency_and_a_pool_both_hold(runtime: Make) -> None:
    rt = runtime(pools={"api": 3}, max_workers=8)
    gauge = Gauge()

    rt.run(mapped(lambda item: gauge.body(), 12, pool="api", max_concurrency=2)).raise_for_status()

    assert gauge.most == 2


def test_a_reconciliation_takes_a_slot_as_the_body_does(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=8)
    gauge = Gauge()

    def body() -> None:
        gauge.body()
        raise ConnectionError

    wf = single(body, pool="api", delivery=Delivery.AT_MOST_ONCE, reconcile=gauge.body)
    for run in [Task(rt.run, wf) for _ in range(6)]:
        run.result().raise_for_status()

    assert gauge.most == 1
    assert gauge.times == 12


def test_a_condition_takes_no_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1})
    held = Held(rt)

    result = rt.run(single(lambda: 1, condition=lambda: False, pool="api"))

    assert result.steps["body"].reason == "condition"
    held.end()


def test_a_router_takes_no_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1})
    routing, may_end = Gate(), Gate()
    wf = Workflow("w")
    wf.step(
        lambda: 1, id="point", branches=["branch"], router=lambda: routing.open() or may_end.wait() or [], pool="api"
    )
    wf.step(lambda point: point, id="branch")
    run = Task(rt.run, wf)
    routing.wait()

    rt.run(single(lambda: None, pool="api")).raise_for_status()

    may_end.open()
    run.result().raise_for_status()


# --- what goes on meanwhile ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_step_that_waits_for_its_pool_holds_no_worker_and_keeps_nobody_waiting(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    rt = runtime(store, pools={"api": 1}, max_workers=2, steps_on=steps_on)
    held = Held(rt)
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: ran.append("limited"), id="limited", pool="api")
    for name in "abc":
        wf.step(lambda name=name: ran.append(name), id=name)
    wf.step(lambda c: ran.append("after c"), id="d")
    waiting = Task(rt.run, wf)
    eventually(lambda: len(ran) == 4)

    rt.run(single(lambda: ran.append("another execution"))).raise_for_status()
    rt.submit(single(lambda: ran.append("one more"))).result(20).raise_for_status()

    assert sorted(ran[:4]) == ["a", "after c", "b", "c"]
    assert ran[4:] == ["another execution", "one more"]
    held.end()
    waiting.result().raise_for_status()
    assert ran[-1] == "limited"


def test_a_walk_waits_for_a_worker_or_for_a_slot_and_keeps_only_the_slot_meanwhile(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=1, steps_on="workers")
    rt.start()
    workers, pool = rt._life.engine().pool, pool_of(rt)
    assert workers.try_hold("test")
    assert pool.try_hold("test")
    handle = rt.submit(single(lambda: "done", pool="api"))

    eventually(lambda: len(workers._line) == 1)
    workers.release("test")
    eventually(lambda: in_line(rt) == 1)
    eventually(lambda: workers.try_hold("test"))  # it waits for the slot alone, and holds no worker
    assert not workers._line
    pool.release("test")
    eventually(lambda: len(workers._line) == 1)
    assert not pool.try_hold("other")  # it waits for a worker alone, and has the slot that it will need
    workers.release("test")

    assert handle.result(20).outputs == {"body": "done"}
    assert is_free(rt)


def test_with_one_worker_what_can_go_goes_in_definition_order(runtime: Make) -> None:
    rt = runtime(pools={"api": 1, "db": 1}, max_workers=1)
    pool = pool_of(rt)
    assert pool.try_hold("test")
    ran: list[str] = []
    wf = Workflow("w")
    for name, named in (("a", "api"), ("b", None), ("c", "db"), ("d", "api"), ("e", None)):
        wf.step(lambda name=name: ran.append(name), id=name, pool=named)
    run = Task(rt.run, wf)
    eventually(lambda: len(ran) == 3)

    pool.release("test")
    run.result().raise_for_status()

    assert ran == ["b", "c", "e", "a", "d"]


def test_what_waits_for_a_pool_and_is_not_wanted_any_more_waits_no_longer(runtime: Make, store: str | None) -> None:
    rt = runtime(store, pools={"api": 1})
    held = Held(rt)
    inner = Workflow("inner", fail_fast=True)
    inner.step(lambda: eventually(lambda: in_line(rt) == 1) or 1 / 0, id="fails")
    inner.step(lambda: None, id="limited", pool="api")
    wf = Workflow("w")
    wf.add(StepSpec("sub", workflow=inner))
    wf.step(lambda ctx: ctx.interrupt("ask", "Go on?"), id="asks")

    result = rt.run(wf)

    assert result.status is ExecutionStatus.WAITING
    assert result.steps["sub/limited"].reason == "fail_fast"
    assert in_line(rt) == 0
    held.end()


def test_the_only_step_runs_inline_once_there_is_a_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1})
    held = Held(rt)
    seen: list[threading.Thread] = []
    run = Task(rt.run, single(lambda: seen.append(threading.current_thread()), pool="api"))
    eventually(lambda: in_line(rt) == 1)

    held.end()
    run.result().raise_for_status()

    assert seen == [run.thread]


def test_a_walk_that_runs_a_step_inline_is_in_nobody_s_way(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, steps_on="caller")
    held = Held(rt)
    begun, may_end = Gate(), Gate()
    wf = Workflow("w")
    wf.step(lambda: None, id="limited", pool="api")
    wf.step(lambda: begun.open() or may_end.wait(), id="long")
    slow = Task(rt.run, wf)
    begun.wait()  # it waited for the pool before, and is busy now

    held.end()
    rt.run(single(lambda: None, pool="api")).raise_for_status()

    may_end.open()
    slow.result().raise_for_status()


# --- who comes next -----------------------------------------------------------------------------------


def test_executions_are_served_in_the_order_in_which_they_came(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=4)
    held = Held(rt)
    ran: list[int] = []
    handles = []
    for i in range(5):
        handles.append(rt.submit(single(lambda i=i: ran.append(i), name=f"w{i}", pool="api")))
        eventually(lambda i=i: in_line(rt) == i + 1)

    held.end()
    for handle in handles:
        handle.result(20).raise_for_status()

    assert ran == [0, 1, 2, 3, 4]


def test_an_execution_with_much_to_do_lets_others_have_their_turn(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=4)
    ran: list[str] = []
    turn = threading.Semaphore(0)

    def element(item: int) -> None:
        assert turn.acquire(timeout=20)
        ran.append("many")

    many = Task(rt.run, mapped(element, 60, pool="api"))
    eventually(lambda: in_line(rt) == 1)
    one = rt.submit(single(lambda: ran.append("one"), name="one", pool="api"))
    eventually(lambda: in_line(rt) == 2)

    turn.release(60)
    one.result(20).raise_for_status()
    many.result().raise_for_status()

    assert ran.index("one") <= 2


# --- when a slot is free again -------------------------------------------------------------------------


def raises() -> None:
    raise ConnectionError


@pytest.mark.parametrize(
    "options",
    [
        {"run": raises},
        {"run": raises, "retry": RetryPolicy(3, initial_delay=0)},
        {"run": lambda ctx: ctx.interrupt("ask", "Go on?")},
        {"run": lambda: None, "condition": lambda: 1 / 0},
        {"agent_type": "unstorable"},
    ],
)
def test_an_attempt_that_ends_in_any_way_gives_its_slot_back(
    runtime: Make, store: str | None, options: dict[str, Any]
) -> None:
    rt = runtime(store, pools={"api": 1}, agents={"unstorable": object})
    wf = Workflow("w")
    wf.add(StepSpec("body", pool="api", **options))

    assert rt.run(wf).status is not ExecutionStatus.RUNNING
    rt.submit(wf).result(20)

    assert is_free(rt)
    rt.run(single(lambda: None, pool="api")).raise_for_status()


def test_an_attempt_that_is_too_late_gives_its_slot_back_though_its_thread_hangs(runtime: Make, stuck: Gate) -> None:
    rt = runtime(pools={"api": 1})

    rt.run(single(lambda: stuck.wait(60), pool="api", timeout=0.05))

    assert is_free(rt)
    rt.run(single(lambda: None, pool="api")).raise_for_status()


def test_a_cancelled_attempt_that_does_not_end_gives_its_slot_back(
    runtime: Make, stuck: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.1)
    rt = runtime(pools={"api": 1}, steps_on="workers")
    begun = Gate()
    handle = rt.submit(single(lambda: begun.open() or stuck.wait(60), pool="api"))
    begun.wait()
    waiting = rt.submit(single(lambda: "done", pool="api"))

    handle.cancel()

    assert waiting.result(20).outputs == {"body": "done"}


def test_a_retry_that_waits_for_its_delay_holds_no_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1})
    failed = Gate()
    wf = single(lambda: failed.open() or 1 / 0, pool="api", retry=RetryPolicy(2, initial_delay=600.0))
    waits = rt.submit(wf)
    failed.wait()

    rt.run(single(lambda: None, pool="api")).raise_for_status()

    waits.cancel()
    assert waits.result(20).status is ExecutionStatus.CANCELLED


def test_a_parked_body_holds_no_slot(runtime: Make, store: str | None) -> None:
    rt = runtime(store, pools={"api": 1})
    handle = rt.submit(single(lambda ctx: ctx.interrupt("ask", "Go on?"), pool="api"))
    handle.wait(20)

    rt.run(single(lambda: None, pool="api")).raise_for_status()

    assert handle.status is ExecutionStatus.WAITING


class Guard(Plugin):
    """Lets nothing of some workflows begin."""

    name = "guard"
    hook_policy = HookPolicy.INTERCEPT

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> HookResult | None:
        return HookResult.abort("no") if step.metadata.get("guarded") else None


@MODES
def test_an_attempt_that_an_interceptor_refuses_gives_its_slot_back(runtime: Make, steps_on: str) -> None:
    rt = runtime(pools={"api": 1}, plugins=[Guard()], steps_on=steps_on)
    refused = mapped(lambda item: item, 5, name="refused", pool="api", metadata={"guarded": True})

    assert rt.run(refused).status is ExecutionStatus.FAILED
    rt.run(mapped(lambda item: item, 5, pool="api")).raise_for_status()

    assert is_free(rt)


def test_an_execution_in_line_is_cancelled_at_once(runtime: Make, store: str | None) -> None:
    rt = runtime(store, pools={"api": 1})
    held = Held(rt)
    handle = rt.submit(single(lambda: None, pool="api"))
    eventually(lambda: in_line(rt) == 1)

    handle.cancel()

    assert handle.result(20).steps["body"].reason == "cancelled"
    assert in_line(rt) == 0
    held.end()


def test_waiting_for_a_slot_counts_for_the_timeout_of_the_execution_and_not_of_the_step(runtime: Make) -> None:
    rt = runtime(pools={"api": 1})
    held = Held(rt)
    patient = rt.submit(single(lambda: "done", pool="api", timeout=0.2))

    result = rt.run(single(lambda: None, pool="api"), timeout=0.3)

    assert isinstance(result.error, ExecutionTimeoutError)
    assert result.steps["body"].reason == "timeout"
    held.end()
    assert patient.result(20).outputs == {"body": "done"}


def test_close_ends_what_is_in_line_and_it_goes_on_elsewhere(tmp_path: Path) -> None:
    rt = Runtime(tmp_path / "ares.db", pools={"api": 1})
    held = Held(rt)
    wf = single(lambda: "done", pool="api")
    run = Task(rt.run, wf, execution_id="waits")
    eventually(lambda: in_line(rt) == 1)
    begun = time.monotonic()

    closing = Task(rt.close, timeout=10)
    with pytest.raises(RuntimeClosedError):
        run.result()
    assert seconds_since(begun) < 5
    held.end()
    closing.result()

    with Runtime(tmp_path / "ares.db", pools={"api": 1}) as again:
        assert again.resume("waits", wf).outputs == {"body": "done"}


def test_a_child_of_a_fork_has_slots_of_its_own() -> None:
    child = Child(
        """
        import os
        from ares import Runtime, Workflow

        rt = Runtime(pools={"api": 1})
        inner = Workflow("inner")
        inner.step(lambda: None, id="body", pool="api")
        outer = Workflow("outer")

        @outer.step(pool="api")
        def body():
            pid = os.fork()
            if pid == 0:
                rt.run(inner).raise_for_status()
                os._exit(7)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        print(rt.run(outer).output("body"), flush=True)
        rt.close()
    """,
        warnings="ignore",
    )

    assert child.result() == "7\n"


# --- nested runs ---------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("depth", [1, 5])
def test_runs_that_need_the_slot_of_the_step_they_are_nested_in_come_to_their_end(
    runtime: Make, store: str | None, steps_on: str, depth: int
) -> None:
    rt = runtime(store, pools={"api": 1}, max_workers=1, steps_on=steps_on)

    def level(left: int) -> Workflow:
        wf = mapped(lambda item: item, 3, name=f"level{left}", pool="api")
        wf.step(
            lambda: rt.run(level(left - 1)).raise_for_status().outputs["sum"] + 1 if left else 0,
            id="nests",
            pool="api" if left % 2 else None,
        )
        wf.step(lambda each, nests: sum(each) + nests, id="sum", pool="api")
        return wf

    assert rt.run(level(depth)).raise_for_status().outputs["sum"] == 3 * (depth + 1) + depth
    assert rt.submit(level(depth)).result(20).raise_for_status().outputs["sum"] == 3 * (depth + 1) + depth
    assert is_free(rt)


def test_a_step_that_waits_for_a_nested_run_lends_its_slot_and_gets_one_before_it_goes_on(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=8)
    gauge, ran = Gauge(), []

    def inside() -> None:
        ran.append("nested")
        eventually(lambda: in_line(rt) == 1)  # the other is, and has its turn before the step goes on

    def body() -> None:
        rt.run(single(inside, name="inner", pool="api")).raise_for_status()
        with gauge.inside():
            ran.append("goes on")

    def other() -> None:
        with gauge.inside():
            ran.append("other")
            last(0.02)

    nests = Task(rt.run, single(body, pool="api"))
    eventually(lambda: ran)
    stranger = Task(rt.run, single(other, pool="api"))
    nests.result().raise_for_status()
    stranger.result().raise_for_status()

    assert ran == ["nested", "other", "goes on"]
    assert gauge.most == 1
    assert is_free(rt)


def test_steps_that_wait_for_runs_in_one_another_s_pools_come_to_their_end(runtime: Make, store: str | None) -> None:
    rt = runtime(store, pools={"api": 1, "db": 1}, max_workers=4)
    both = Barrier(2)

    def crossing(own: str, other: str) -> Workflow:
        inner = single(lambda: 1, name=f"inner {own}", pool=other)
        return single(lambda: [both.wait(), rt.run(inner).raise_for_status().outputs][1], name=own, pool=own)

    for run in [Task(rt.run, crossing("api", "db")), Task(rt.run, crossing("db", "api"))]:
        run.result().raise_for_status()


def test_a_step_may_wait_for_what_it_submitted_though_that_needs_its_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, max_workers=1)
    inner = single(lambda: 1, name="inner", pool="api")

    result = rt.run(single(lambda: rt.submit(inner).result(20).outputs["body"], pool="api"))

    assert result.raise_for_status().outputs == {"body": 1}


def test_a_step_that_is_given_up_while_it_waits_for_its_slot_again_takes_none(runtime: Make, stuck: Gate) -> None:
    rt = runtime(pools={"api": 1}, max_workers=4)
    taken = Gate()
    inner = single(taken.wait, name="inner")

    def waits() -> None:
        rt.run(inner).raise_for_status()

    late = Task(rt.run, single(waits, pool="api", timeout=0.3))
    eventually(lambda: len(rt.executions()) == 2)
    held = Held(rt)
    taken.open()

    assert late.result().status is ExecutionStatus.FAILED
    held.end()
    rt.run(single(lambda: None, pool="api")).raise_for_status()
    eventually(lambda: is_free(rt))


def test_runs_through_a_second_runtime_that_need_the_same_slot_come_to_their_end(runtime: Make) -> None:
    first, second = runtime(pools={"api": 1}), runtime(pools={"api": 1})
    innermost = single(lambda: 1, name="innermost", pool="api")
    middle = single(lambda: first.run(innermost).raise_for_status().outputs["body"] + 1, name="middle", pool="api")

    result = first.run(single(lambda: second.run(middle).raise_for_status().outputs["body"] + 1, pool="api"))

    assert result.raise_for_status().outputs == {"body": 3}


def test_with_steps_on_caller_a_step_may_submit_what_needs_its_slot(runtime: Make) -> None:
    rt = runtime(pools={"api": 1}, steps_on="caller")
    inner = single(lambda: 1, name="inner", pool="api")

    result = rt.run(single(lambda: rt.submit(inner).result(20).outputs["body"], pool="api"))

    assert result.raise_for_status().outputs == {"body": 1}


def test_a_step_that_is_given_up_gives_back_what_its_nested_run_has(runtime: Make, stuck: Gate) -> None:
    rt = runtime(pools={"api": 1})
    inner = single(lambda: stuck.wait(60), name="inner", pool="api")

    rt.run(single(lambda: rt.run(inner), pool="api", timeout=0.1))

    rt.run(single(lambda: None, pool="api")).raise_for_status()
    assert is_free(rt)


# --- what is refused -----------------------------------------------------------------------------------


def limited(pool: Any = "apj") -> Workflow:
    wf = Workflow("job")
    wf.step(raises, id="first")
    inner = Workflow("inner")
    inner.step(raises, id="call", pool=pool)
    wf.add(StepSpec("sub", workflow=inner))
    return wf


def test_an_unknown_pool_is_refused_before_anything_runs_naming_step_pool_and_those_there_are(runtime: Make) -> None:
    rt = runtime(pools={"api": 4, "db": 1})
    wf = limited()

    for act in (lambda: rt.run(wf), lambda: rt.submit(wf), Runtime(pools={"api": 4, "db": 1}, workflows=[wf]).start):
        with pytest.raises(DefinitionError, match=r"'call'.*pool 'apj'.*did you mean 'api'.*pools: 'api', 'db'"):
            act()
    assert rt.executions() == []


def test_a_runtime_without_pools_says_so(runtime: Make) -> None:
    with pytest.raises(DefinitionError, match="pools: none"):
        runtime().run(limited())


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4", None, float("nan")])
def test_the_size_of_a_pool_is_a_whole_number_from_1(size: Any) -> None:
    with pytest.raises(UsageError, match="pool 'api' must be a whole number of at least 1"):
        Runtime(pools={"db": 1, "api": size})


@pytest.mark.parametrize("pools", [{"": 1}, {3: 1}, {None: 1}, ["api"], "api", 4])
def test_pools_are_named(pools: Any) -> None:
    with pytest.raises(UsageError, match="pool"):
        Runtime(pools=pools)


# --- much of it ----------------------------------------------------------------------------------------


class Crowd:
    """Counts those in a body that were not given up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[StepContext] = set()
        self.most = 0

    @contextmanager
    def inside(self, ctx: StepContext) -> Iterator[None]:
        with self._lock:
            self._inside.add(ctx)
            self.most = max(self.most, sum(not each.cancelled for each in self._inside))
        try:
            yield
        finally:
            with self._lock:
                self._inside.discard(ctx)


SIZES = {"one": 1, "two": 2, "five": 5}


def busy_workflow(rt: Runtime, crowds: dict[str, Crowd], stuck: Gate, draw: random.Random, depth: int = 1) -> Workflow:
    """Steps of all pools that end well, fail, hang, are tried again, and run others of their kind."""
    wf = Workflow(f"busy{depth}")

    def body(pool: str, how: str) -> Callable[..., Any]:
        def run(ctx: StepContext) -> list[int]:
            with crowds[pool].inside(ctx):
                last(0.001)
                if how == "fails":
                    raise ConnectionError
            if how == "nests":
                rt.run(busy_workflow(rt, crowds, stuck, random.Random(how), depth - 1))
            if how == "hangs":
                stuck.wait(60)
            with crowds[pool].inside(ctx):
                return [1, 2, 3]

        return run

    for i in range(draw.randint(2, 5)):
        pool = draw.choice([*SIZES])
        how = draw.choice(["ends", "ends", "ends", "fails", "hangs", *["nests"] * depth])
        options: dict[str, Any] = {"timeout": 0.05} if how == "hangs" else {}
        if draw.random() < 0.5:
            options["retry"] = RetryPolicy(2, initial_delay=0.002)
        wf.step(body(pool, how), id=f"s{i}", pool=pool, **options)
        if draw.random() < 0.5:
            element = body(pool, "ends")
            wf.step(lambda ctx, item, element=element: element(ctx), id=f"m{i}", map_over=f"s{i}", pool=pool)
    return wf


def test_however_many_come_at_once_no_pool_is_overfull_all_end_and_every_slot_is_free(
    runtime: Make, stuck: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.05)
    rt = runtime(pools=SIZES, max_workers=6)
    crowds = {name: Crowd() for name in SIZES}

    def customer(number: int) -> None:
        draw = random.Random(number)
        for _ in range(8):
            wf = busy_workflow(rt, crowds, stuck, draw)
            if draw.random() < 0.5:
                rt.run(wf, timeout=draw.choice([None, None, 0.05]))
                continue
            handle = rt.submit(wf)
            if draw.random() < 0.5:
                handle.wait(draw.random() * 0.05)
                handle.cancel()
            assert handle.result(60).status.is_final

    for each in [Task(customer, number) for number in range(10)]:
        each.result(60)

    assert {name: crowd.most <= SIZES[name] for name, crowd in crowds.items()} == dict.fromkeys(SIZES, True)
    assert crowds["one"].most == 1
    assert is_free(rt)
    eventually(lambda: rt._life.engine().pool.busy == 0)


def cost_of_an_element(rt: Runtime, count: int) -> float:
    """Seconds of the processor."""
    wf = mapped(lambda item: item, count, pool="api")
    begun = time.process_time()
    rt.run(wf).raise_for_status()
    return (time.process_time() - begun) / count


@pytest.mark.slow
def test_an_element_costs_the_same_among_many(runtime: Make) -> None:
    rt = runtime(pools={"api": 4}, max_workers=8)
    few = min(cost_of_an_element(rt, 1_000) for _ in range(3))

    assert cost_of_an_element(rt, 15_000) < 4.0 * few
    assert is_free(rt)
