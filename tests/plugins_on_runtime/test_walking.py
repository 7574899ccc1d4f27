"""What a walk promises holds with plugins beside it: order, limits, ends, and whose values are whose."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ares import (
    Context,
    ExecutionState,
    ExecutionStatus,
    HookResult,
    RetryPolicy,
    Runtime,
    Step,
    StepContext,
    StepResult,
    StepStatus,
    Workflow,
)
from ares.errors import RuntimeClosedError
from tests.bus.players import Gate, Log, Named
from tests.engine.helpers import LIMIT, Child, Task, chain, fan, seconds_since, single, statuses
from tests.plugins_on_runtime.players import Asked, Diary, Everywhere, of

Make = Callable[..., Runtime]


def jittery(log: Log) -> list[Any]:
    """An interceptor and an observer that take their time, differently each time."""
    pause = threading.Event()

    def linger(*_: Any) -> None:
        pause.wait(random.random() / 500)

    class Slow(Diary):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            linger()

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            linger()

    return [Asked(linger), Slow("slow", log)]


# --- order -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_submitted", [False, True])
@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_with_one_worker_plugins_change_nothing_about_the_order(
    runtime: Make, store: str | None, steps_on: str, is_submitted: bool
) -> None:
    """Among ready steps, in the order of their definition: what became ready by a step comes before later ones."""
    ran: list[str] = []

    def body(name: str) -> Callable[[], None]:
        return lambda: ran.append(name)

    wf = Workflow("w")
    for group in "abc":
        wf.step(body(group), id=group)
        wf.step(body(f"{group}1"), id=f"{group}1", depends_on=[group])
        wf.step(body(f"{group}2"), id=f"{group}2", depends_on=[f"{group}1"])
    rt = runtime(store, plugins=jittery(Log()), max_workers=1, steps_on=steps_on)

    for _ in range(8):
        ran.clear()
        result = rt.submit(wf).result(20) if is_submitted else rt.run(wf)
        result.raise_for_status()
        assert ran == [f"{group}{n}" for group in "abc" for n in ("", "1", "2")]


def test_a_map_runs_no_more_elements_at_once_than_it_may_while_others_are_asked_about(
    runtime: Make, store: str | None
) -> None:
    lock, now, most = threading.Lock(), [0], [0]
    pause = threading.Event()

    def body(item: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        pause.wait(0.003)
        with lock:
            now[0] -= 1
        return item

    wf = Workflow("w")
    wf.step(lambda: list(range(40)), id="source")
    wf.step(body, id="each", map_over="source", max_concurrency=2)
    rt = runtime(store, plugins=jittery(Log()), max_workers=8)

    result = rt.run(wf).raise_for_status()

    assert result.output("each") == list(range(40))
    assert most[0] <= 2


def test_after_the_first_failed_element_none_begins_that_was_only_asked_about(runtime: Make, store: str | None) -> None:
    """Two interceptors, since one is asked about one element at a time: whoever comes first, the abort gets through."""
    ran: list[int] = []
    failed = threading.Event()

    def refuse(step: Step) -> HookResult | None:
        return HookResult.abort("no") if step.path == "each[0]" else None

    def hold(step: Step) -> None:
        if step.path.startswith("each"):
            assert failed.wait(LIMIT)  # by then the abort has been heard

    class Watch(Named):
        per_item = True

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            if result.path == "each[0]":
                failed.set()

    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.step(lambda item: ran.append(item), id="each", map_over="source")  # noqa: PLW0108 - it names its parameter
    plugins = [Asked(refuse, "refuse"), Asked(hold, "hold"), Watch("watch")]

    result = Task(runtime(store, plugins=plugins, max_workers=4).run, wf).result()

    assert result.status is ExecutionStatus.FAILED
    assert ran == []


def test_many_elements_with_every_verdict_come_out_right(runtime: Make, store: str | None) -> None:
    def decide(step: Step) -> HookResult | None:
        if step.index is None:
            return None
        return [None, HookResult.skip("s"), HookResult.complete(-1), HookResult.replace({"item": 5})][step.index % 4]

    wf = Workflow("w")
    wf.step(lambda: list(range(400)), id="source")
    wf.step(lambda item: item, id="each", map_over="source", max_concurrency=8)
    rt = runtime(store, plugins=[Asked(decide)], max_workers=8)

    found = rt.run(wf).raise_for_status().output("each")

    assert found == [[i, None, -1, 5][i % 4] for i in range(400)]


@pytest.mark.parametrize("seed", range(12))
def test_a_random_walk_with_plugins_comes_to_what_it_comes_to_without(
    runtime: Make, store: str | None, seed: int
) -> None:
    """Random graphs, failures and retries; the interceptor lets everything pass, and the observers only watch."""
    dice = random.Random(seed)
    wf = Workflow("w")
    for i in range(25):
        deps = [f"s{j}" for j in range(i) if dice.random() < 0.12]
        fails, tries = dice.random() < 0.15, dice.randrange(1, 4)

        def body(ctx: StepContext, i: int = i, fails: bool = fails, tries: int = tries) -> int:
            if fails or ctx.attempt < tries:
                raise ValueError(i)
            return i

        wf.step(body, id=f"s{i}", depends_on=deps, retry=RetryPolicy(max_attempts=tries, initial_delay=0.0))
    plain = runtime(max_workers=4).run(wf)

    log = Log()
    watched = runtime(store, plugins=[*jittery(Log()), Diary("diary", log)], max_workers=4).run(wf)

    assert statuses(watched) == statuses(plain)
    assert watched.outputs == plain.outputs
    assert {p: s.attempts for p, s in watched.steps.items()} == {p: s.attempts for p, s in plain.steps.items()}
    attempts = sum(step.attempts for step in plain.steps.values())
    assert len([line for line in log.lines if line[1] == "before_step"]) == attempts
    assert len([line for line in log.lines if line[1] == "after_step"]) == attempts


# --- ends --------------------------------------------------------------------------------------------------

HOOKS = ["before_execution", "before_step", "after_step", "after_execution"]


@pytest.mark.slow
@pytest.mark.parametrize("is_submitted", [False, True])
@pytest.mark.parametrize("place", HOOKS)
def test_a_hung_hook_holds_up_no_close(runtime: Make, gate: Gate, place: str, is_submitted: bool) -> None:
    """Although the plugin's own timeout is far away."""
    rt = runtime(plugins=[Everywhere("stuck", place, gate.pass_through, timeout=60.0)])
    run = Task(lambda: rt.submit(chain(3)).result(30) if is_submitted else rt.run(chain(3)))
    gate.await_entry()
    began = time.monotonic()

    rt.close(timeout=0.3)

    assert seconds_since(began) < 5
    with suppress(RuntimeClosedError):
        run.result(3)


@pytest.mark.slow
@pytest.mark.parametrize("place", HOOKS)
def test_an_execution_that_was_closed_in_a_hung_hook_goes_on_later(
    runtime: Make, tmp_path: Path, gate: Gate, place: str
) -> None:
    file = tmp_path / "ares.db"
    ran: list[int] = []
    rt = runtime(file, plugins=[Everywhere("stuck", place, gate.pass_through, timeout=60.0)])
    wf = chain(3, ran.append)
    run = Task(rt.run, wf, execution_id="e")
    gate.await_entry()
    rt.close(timeout=0.3)
    with suppress(RuntimeClosedError):
        run.result(5)
    assert place != "before_execution" or ran == []
    gate.open()

    with Runtime(file) as again:
        result = again.resume("e", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert sorted(set(ran)) == [0, 1, 2]
    assert [ran.count(i) for i in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("place", ["before_execution", "before_step", "after_step"])
def test_a_cancel_in_the_middle_of_a_hook_ends_the_execution(
    runtime: Make, store: str | None, gate: Gate, place: str
) -> None:
    ran: list[int] = []
    rt = runtime(store, plugins=[Everywhere("busy", place, gate.pass_through, once=True)])
    run = Task(rt.run, chain(3, ran.append), execution_id="e")
    gate.await_entry()

    rt.cancel("e", "enough")
    gate.open()
    result = run.result()

    assert result.status is ExecutionStatus.CANCELLED
    assert result.steps["s2"].status is StepStatus.SKIPPED
    assert 2 not in ran


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before_execution", "before_step", "after_step", "after_execution", "interceptor"])
def test_ctrl_c_in_the_middle_of_a_hook_interrupts_and_nothing_runs_twice(tmp_path: Path, place: str) -> None:
    program = """
        import signal, sys, threading, time
        from ares import HookPolicy, Plugin, Runtime, Workflow

        signal.signal(signal.SIGINT, signal.default_int_handler)
        file, place = sys.argv[1:3]
        entered = threading.Event()

        class Stuck(Plugin):
            name = "stuck"
            timeout = 60.0
            def hang(self, where):
                if where == place:
                    print("hangs", flush=True)
                    time.sleep(3600)

        class Observer(Stuck):
            def before_execution(self, ctx, execution): self.hang("before_execution")
            def before_step(self, ctx, execution_id, step): self.hang("before_step")
            def after_step(self, ctx, execution_id, result): self.hang("after_step")
            def after_execution(self, ctx, outcome): self.hang("after_execution")

        class Guard(Stuck):
            hook_policy = HookPolicy.INTERCEPT
            def before_step(self, ctx, execution_id, step): self.hang("interceptor")

        wf = Workflow("w")
        for i in range(3):
            def body(i=i):
                with open(file + ".effects", "a") as out:
                    out.write(f"s{i}\\n")
            wf.step(body, id=f"s{i}", depends_on=[f"s{i - 1}"] if i else [])
        rt = Runtime(file, plugins=[Guard() if place == "interceptor" else Observer()])
        try:
            result = rt.run(wf, execution_id="e", if_exists="resume")
            print(result.status, flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        rt.close(0.3)
    """
    file = str(tmp_path / "ares.db")
    with Child(program, file, place, warnings="default") as child:
        assert child.hear() == "hangs"
        began = time.monotonic()
        child.interrupt()
        assert child.hear() == "interrupted"
        took = seconds_since(began)
        code, _, err = child.finish(10)
    assert code == 0, err
    assert took < 4
    assert seconds_since(began) < 8
    with Child(program, file, "nowhere", warnings="default") as child:
        assert child.hear() == "COMPLETED"
        child.finish()

    assert Path(f"{file}.effects").read_text().splitlines() == ["s0", "s1", "s2"]


def test_a_process_that_dies_while_an_interceptor_decides_has_begun_nothing(tmp_path: Path) -> None:
    """Not even where a start would leave the outcome unknown: whoever goes on asks again."""
    program = """
        import os, signal, sys
        from ares import HookPolicy, Plugin, Runtime, Workflow

        class Guard(Plugin):
            name = "guard"
            hook_policy = HookPolicy.INTERCEPT
            def before_step(self, ctx, execution_id, step):
                if sys.argv[2] == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                print("asked about", step.attempt, flush=True)

        wf = Workflow("w")
        wf.step(lambda: print("charged", flush=True), id="charge", delivery="at_most_once")
        with Runtime(sys.argv[1], plugins=[Guard()]) as rt:
            print(rt.run(wf, execution_id="e", if_exists="resume").status, flush=True)
    """
    file = str(tmp_path / "ares.db")
    for _ in range(4):  # more often than a step may crash
        with Child(program, file, "kill") as child:
            assert child.finish()[0] == -9
    with Child(program, file, "live") as child:
        assert child.result() == "asked about 1\ncharged\nCOMPLETED\n"


# --- whose values are whose ----------------------------------------------------------------------------------


def test_a_plugin_that_scribbles_in_what_it_is_shown_changes_nothing(runtime: Make, store: str | None) -> None:
    seen: list[Any] = []

    class Vandal(Named):
        def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
            for shown in (execution.variables, ctx.metadata):
                self.scribble(shown)

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            for shown in (step.inputs, step.metadata, ctx.metadata):
                self.scribble(shown)

        def scribble(self, shown: Any) -> None:
            with suppress(TypeError):  # it may be read only
                shown["n"] = "vandal was here"
                shown["vandal"] = "was here"

    class Victim(Vandal):
        """Comes after it."""

        def scribble(self, shown: Any) -> None:
            seen.append(dict(shown))

    wf = Workflow("w", inputs={"n": int}, variables={"n2": 0})

    def body(ctx: StepContext, n: int) -> int:
        seen.append((dict(ctx.inputs), dict(ctx.variables), dict(ctx.metadata)))
        return n

    wf.step(body, metadata={"n": "original"})
    plugins = [Vandal("vandal"), Victim("victim", runs_after=("vandal",))]

    result = runtime(store, plugins=plugins).run(wf, {"n": 1}, metadata={"n": "run's"}).raise_for_status()

    assert result.outputs == {"body": 1}
    assert seen[-1] == ({"n": 1}, {"n2": 0}, {"n": "run's"})
    assert "vandal" not in str(seen)


def test_an_interceptor_that_scribbles_in_inputs_instead_of_replacing_them_changes_nothing(
    runtime: Make, store: str | None
) -> None:
    def scribble(step: Step) -> None:
        with suppress(TypeError):
            step.inputs["n"] = 2  # type: ignore[index]

    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda ctx, n: (n, dict(ctx.inputs)), id="body")

    result = runtime(store, plugins=[Asked(scribble)]).run(wf, {"n": 1}).raise_for_status()

    assert result.outputs == {"body": (1, {"n": 1})}


# --- watching from outside -------------------------------------------------------------------------------------


def test_the_events_of_a_live_execution_can_be_read_while_its_plugins_are_slow(
    runtime: Make, store: str | None
) -> None:
    rt = runtime(store, plugins=jittery(Log()))
    execution = rt.submit(chain(20), execution_id="e")

    read = Task(lambda: [event.seq for event in execution.events()])
    execution.result(20).raise_for_status()

    assert read.result() == list(range(1, len(read.result()) + 1))
    assert len(read.result()) == 42


def test_steps_of_many_executions_and_their_verdicts_are_never_mixed_up(runtime: Make, store: str | None) -> None:
    """Sixteen threads, each with an execution of its own; what the interceptor says of a step is of that step."""

    def decide(step: Step) -> HookResult | None:
        number = step.inputs["n"]
        return HookResult.complete(("given", number)) if number % 2 else HookResult.replace({"n": number + 1000})

    wf = Workflow("w", inputs={"n": int})
    for i in range(5):
        wf.step(lambda n: ("ran", n), id=f"s{i}")
    rt = runtime(store, plugins=[Asked(decide), *jittery(Log())[1:]], max_workers=8)

    def work(n: int) -> bool:
        wanted = ("given", n) if n % 2 else ("ran", n + 1000)
        return set(rt.run(wf, {"n": n}).raise_for_status().outputs.values()) == {wanted}

    assert all(task.result() for task in [Task(work, n) for n in range(16)])


def test_nested_runs_are_asked_about_and_told_of_like_others(runtime: Make, store: str | None) -> None:
    log = Log()
    inner = single(lambda: "inner", "inner")
    guard = Asked(of({}))
    rt = runtime(store, plugins=[guard, Diary("diary", log)], max_workers=1, steps_on="workers")
    outer = Workflow("outer")
    outer.step(lambda: rt.run(inner).raise_for_status().outputs["body"], id="nests")

    result = rt.run(outer).raise_for_status()

    assert result.outputs == {"nests": "inner"}
    assert guard.paths == ["nests", "body"]
    assert [line[1:] for line in log.lines if line[1] == "after_step"] == [
        ("after_step", "body", "COMPLETED"),
        ("after_step", "nests", "COMPLETED"),
    ]


def test_wide_runs_with_plugins_on_one_worker_come_to_an_end(runtime: Make, store: str | None) -> None:
    """Hooks that wait for a worker and steps that do share the only one."""
    rt = runtime(store, plugins=jittery(Log()), max_workers=1)

    results = [execution.result(30) for execution in [rt.submit(fan(10)) for _ in range(5)]]

    assert all(result.status is ExecutionStatus.COMPLETED for result in results)
