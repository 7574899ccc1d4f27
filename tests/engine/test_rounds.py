"""Rounds on real threads and stores: until, variables, once, cancels, timeouts, controllers."""

import gc
import random
import threading
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from ares import Loop, RetryPolicy, Runtime, StepContext, StepDefaults, StepSpec, Workflow, WorkflowResult
from ares.engine import cutting
from ares.engine.replay import read
from ares.errors import RecordedError, ReducerError, StepTimeoutError, UntilError, WorkflowFailedError
from ares.plugin import Capability, Plugin
from ares.plugins import LoopPlugin
from ares.records import ExecutionState, LoopEntry
from ares.values import Codec
from ares.walk import facts as f
from tests.engine.helpers import Gate, Task, events_of, eventually, hang
from tests.walk.police import Police

Make = Callable[..., Runtime]


def counting(loop: Loop, **options: Any) -> Workflow:
    """A step that adds one to a variable in each round."""
    wf = Workflow("counting", variables={"n": 0}, loop=loop, **options)

    @wf.step(writes="n")
    def add(ctx: StepContext, n: int) -> int:
        ctx.set("n", n + 1)
        return n + 1

    return wf


class Controller(Plugin):
    """Says what it is told to, and keeps what it is told."""

    capabilities = frozenset({Capability.LOOP})

    def __init__(self, say: Callable[[int, ExecutionState], Any] = lambda *_: True, name: str = "controller") -> None:
        self.name = name
        self.say = say
        self.ends: list[ExecutionState] = []
        self.steps: list[dict[str, Any]] = []
        self.calls: list[str] = []

    def should_execute_round(self, ctx: Any, next_round: int, state: ExecutionState) -> Any:
        self.calls.append(f"{next_round}?")
        return self.say(next_round, state)

    def on_round_end(self, ctx: Any, round: int, state: ExecutionState) -> None:
        assert round == state.round
        self.calls.append(f"{round}.")
        self.ends.append(state)
        self.steps.append({path: step.output for path, step in state.steps.items()})


# --- the case ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C005")
def test_a_round_sees_what_the_round_before_returned_and_not_what_the_run_was_given(
    runtime: Make, store: str | None
) -> None:
    seen: list[int] = []
    wf = Workflow("loop", inputs={"first": int}, variables={"n": None}, loop=Loop(max_rounds=5))

    @wf.step(writes="n")
    def body(ctx: StepContext, first: int, n: int | None) -> int:
        now = first if n is None else n
        seen.append(now)
        ctx.set("n", now + 1)
        return now + 1

    @wf.step(params={"n": "body"})
    def later(n: int) -> int:
        return n

    result = runtime(store).run(wf, {"first": 1}).raise_for_status()

    assert seen == [1, 2, 3, 4, 5]
    assert (result.output("body"), result.output("later"), result.variables["n"]) == (6, 6, 6)


@pytest.mark.case("C005")
def test_the_input_of_a_sub_workflow_in_a_later_round_is_what_its_step_is_given_then(runtime: Make) -> None:
    child = Workflow("child", inputs={"n": int})
    child.step(lambda n: n, id="seen")
    wf = Workflow("outer", inputs={"start": int}, variables={"n": 1}, loop=Loop(max_rounds=3))

    @wf.step(writes="n")
    def grow(ctx: StepContext, start: int, n: int) -> int:
        ctx.set("n", n + start)
        return n + start

    wf.add(StepSpec("inside", workflow=child, inputs={"n": "grow"}))

    result = runtime().run(wf, {"start": 10}).raise_for_status()

    assert result.outputs == {"grow": 31, "inside": {"seen": 31}}
    assert result.steps["inside#3/seen"].output == 31


# --- until -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_until_is_asked_after_each_round_with_what_the_round_came_to(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    asked: list[tuple[Any, ...]] = []

    def until(ctx: StepContext, add: int, n: int, limit: int) -> bool:
        asked.append((ctx.round, add, n, ctx.upstream["add"].output, dict(ctx.variables), ctx.step.step_id))
        return n >= limit

    rt = runtime(store, steps_on=steps_on)

    result = rt.run(counting(Loop(until=until), inputs={"limit": int}), {"limit": 3}, execution_id="e")

    assert result.raise_for_status().variables == {"n": 3}
    assert asked == [(n, n, n, n, {"n": n}, "until") for n in (1, 2, 3)]
    checkpoint = rt.checkpoint("e")
    assert (checkpoint.round, checkpoint.outputs, checkpoint.variables) == (3, {"add": 3}, {"n": 3})
    assert checkpoint.loop_history == (LoopEntry(1, ""), LoopEntry(2, ""), LoopEntry(3, "until"))
    assert [(r.round, r.attempts) for r in result.steps.values()] == [(3, 1)]
    rounds = [(e.type, e.payload["round"]) for e in events_of(rt, "e") if e.type.startswith("round.")]
    assert rounds[:3] == [("round.completed", 1), ("round.started", 2), ("round.completed", 2)]


def test_until_runs_inside_around_step_on_a_thread_that_runs_steps(runtime: Make) -> None:
    entered: list[tuple[str, int, bool]] = []
    walking = threading.get_ident()

    @contextmanager
    def around(ctx: StepContext) -> Any:
        entered.append((ctx.step.step_id, ctx.round, threading.get_ident() == walking))
        yield

    wf = counting(Loop(2, until=lambda n: False))
    rt = runtime(around_step=around, steps_on="workers", max_workers=1)

    rt.submit(wf).result(20).raise_for_status()

    assert entered == [("add", 1, False), ("until", 1, False), ("add", 2, False)]


@attrs.define(weakref_slot=True)
class Large:
    """Something that a round makes."""

    round: int


class Untrue:
    def __bool__(self) -> bool:
        raise ValueError("neither")


def no(*_: Any) -> Any:
    raise ValueError("no idea")


@pytest.mark.parametrize(("until", "says"), [(lambda n: no(), "no idea"), (lambda n: Untrue(), "neither")])
def test_an_until_that_raises_fails_the_execution_by_name_and_a_resume_asks_again(
    runtime: Make, store: str | None, until: Any, says: str
) -> None:
    broken = [True]
    wf = counting(Loop(2, until=lambda n: until(n) if broken else False))
    rt = runtime(store)

    result = rt.run(wf, execution_id="e")

    assert (result.status, result.outputs) == ("FAILED", {"add": 1})
    assert isinstance(result.error, UntilError)
    assert isinstance(result.error.__cause__, ValueError)
    assert f"until of workflow 'counting', asked after round 1: it raised ValueError: {says}" in str(result.error)
    with pytest.raises(WorkflowFailedError):
        result.raise_for_status()
    assert str(rt.checkpoint("e").error).startswith("UntilError")
    broken.clear()
    assert rt.resume("e", wf).raise_for_status().variables == {"n": 2}


def test_an_until_that_hangs_is_given_up_after_the_timeout_that_steps_have_by_default(runtime: Make) -> None:
    wf = counting(Loop(until=lambda n: hang()), defaults=StepDefaults(timeout=0.05))

    result = runtime().run(wf)

    assert isinstance(result.error, UntilError)
    assert isinstance(result.error.__cause__, StepTimeoutError)
    assert any("abandoned" in warning for warning in result.warnings)


def test_the_until_of_a_sub_workflow_that_raises_fails_its_step_which_may_be_retried(runtime: Make) -> None:
    calls: list[int] = []

    def until(n: int) -> bool:
        calls.append(n)
        if len(calls) == 1:
            raise ConnectionError("not now")
        return n == 2

    child = counting(Loop(until=until))
    wf = Workflow("outer")
    retry = RetryPolicy(2, initial_delay=0.0, retry_on=ConnectionError)
    wf.add(StepSpec("inside", workflow=child, retry=retry))

    result = runtime().run(wf).raise_for_status()

    assert (calls, result.outputs, result.steps["inside"].attempts) == ([1, 1, 2], {"inside": {"add": 2}}, 2)


def test_a_reducer_that_raises_does_so_where_its_variable_is_wanted(runtime: Make) -> None:
    wf = Workflow("w", variables={"n": 0, "m": 0}, reducers={"n": no}, loop=Loop(3))
    wf.step(lambda ctx: ctx.set("n", 1), id="write", writes="n")

    with pytest.raises(ReducerError, match="'n'"):
        runtime().run(wf)


def test_until_may_use_once_and_run_other_workflows(runtime: Make, store: str | None) -> None:
    made: list[int] = []
    rt = runtime(store)
    inner = counting(Loop(2))
    inner.id = "inner"

    def until(ctx: StepContext, n: int) -> bool:
        ctx.once("key", lambda: made.append(n))
        ctx.once("key", lambda: made.append(-n))
        return bool(rt.run(inner).output("add") == 2 and n == 2)

    rt.run(counting(Loop(until=until))).raise_for_status()

    assert made == [1, 2]


# --- an instance is (path, round) --------------------------------------------------------------------------------


def test_once_and_keys_and_nested_runs_are_each_rounds_own(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    made: list[tuple[int, str, str]] = []
    inner = Workflow("inner")
    inner.step(lambda ctx: ctx.execution_id, id="who")
    wf = Workflow("w", loop=Loop(3))

    @wf.step
    def step(ctx: StepContext) -> str:
        ctx.once("k", lambda: made.append((ctx.round, ctx.idempotency_key, ctx.idempotency_key_for("k"))))
        ctx.once("k", lambda: made.append((ctx.round, "", "")))
        return str(rt.run(inner).output("who"))

    result = rt.run(wf, execution_id="e").raise_for_status()

    assert [round_ for round_, _, _ in made] == [1, 2, 3]
    assert len({key for _, *keys in made for key in keys}) == 6
    nested = {e.payload["output"] for e in events_of(rt, "e") if e.type == "step.completed"}
    assert len(nested) == 3
    assert result.output("step") in nested


def test_a_rerun_of_a_later_round_repeats_that_round_and_keeps_what_earlier_ones_wrote(
    runtime: Make, store: str | None
) -> None:
    ran: list[int] = []
    wf = Workflow("w", variables={"log": []}, reducers={"log": "append"}, loop=Loop(3))

    @wf.step(writes="log")
    def step(ctx: StepContext) -> int:
        ran.append(ctx.round)
        ctx.set("log", ctx.round)
        return ctx.round

    rt = runtime(store)
    rt.run(wf, execution_id="e").raise_for_status()

    result = rt.resume("e", wf, rerun=["step"])

    assert ran == [1, 2, 3, 3]
    assert result.variables == rt.checkpoint("e").variables == {"log": [1, 2, 3]}


def test_a_loop_in_a_loop_gives_each_step_a_path_and_round_of_its_own(runtime: Make, store: str | None) -> None:
    seen: list[tuple[str, int]] = []
    child = Workflow("child", loop=Loop(2))
    child.step(lambda ctx: seen.append((ctx.step.path, ctx.round)), id="x")
    wf = Workflow("outer", loop=Loop(2))
    wf.step(lambda: [1, 2], id="list")
    wf.add(StepSpec("each", map_over="list", workflow=child))
    rt = runtime(store)

    result = rt.run(wf, execution_id="e").raise_for_status()

    assert sorted(seen) == [(f"each[{i}]{mark}/x", r) for i in (0, 1) for mark in ("#2", "") for r in (1, 2)]
    assert {path: step.round for path, step in result.steps.items()} == {
        "list": 2, "each": 2, "each[0]": 2, "each[1]": 2, "each[0]#2/x": 2, "each[1]#2/x": 2,
    }  # fmt: skip
    states = rt.checkpoint("e").step_states
    assert {path: state.round for path, state in states.items()} == {p: s.round for p, s in result.steps.items()}


# --- stops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("submitted", [False, True])
def test_a_cancel_while_until_runs_ends_the_loop(runtime: Make, submitted: bool) -> None:
    asked, cancelled = Gate(), Gate()

    def until(ctx: StepContext) -> bool:
        asked.open()
        eventually(lambda: ctx.cancelled)
        cancelled.open()
        return False

    rt = runtime()
    wf = counting(Loop(until=until))
    task = Task(lambda: rt.submit(wf, execution_id="e").result(20) if submitted else rt.run(wf, execution_id="e"))
    asked.wait()

    assert rt.cancel("e", "enough")

    result: WorkflowResult = task.result()
    assert cancelled.is_open()
    assert (result.status, result.variables, rt.checkpoint("e").loop_history) == (
        "CANCELLED", {"n": 1}, (LoopEntry(1, "cancelled"),),
    )  # fmt: skip


def test_an_execution_that_loops_for_ever_ends_with_its_timeout(runtime: Make) -> None:
    result = runtime().run(counting(Loop()), timeout=0.3)

    assert (result.status, result.variables["n"] > 1) == ("FAILED", True)
    assert "timeout" in str(type(result.error)).lower()


def test_a_sub_workflow_that_loops_for_ever_ends_with_the_timeout_of_its_step(runtime: Make) -> None:
    wf = Workflow("outer")
    wf.add(StepSpec("inside", workflow=counting(Loop()), timeout=0.2))

    result = runtime().run(wf)

    assert (result.status, result.steps["inside/add"].round > 1) == ("FAILED", True)
    assert isinstance(result.error, StepTimeoutError)


def test_an_until_that_does_not_heed_a_cancel_is_abandoned(runtime: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.1)
    asked = Gate()
    rt = runtime()
    execution = rt.submit(counting(Loop(until=lambda: asked.open() or hang())), execution_id="e")
    asked.wait()

    execution.cancel()

    result = execution.result(20)
    assert result.status == "CANCELLED"
    assert rt.checkpoint("e").loop_history == (LoopEntry(1, "cancelled"),)
    assert any("abandoned" in warning for warning in result.warnings)


def test_an_until_may_cancel_its_own_execution(runtime: Make) -> None:
    rt = runtime()

    result = rt.run(counting(Loop(until=lambda: not rt.cancel("e", "enough"))), execution_id="e")

    assert (result.status, result.variables) == ("CANCELLED", {"n": 1})


def test_a_ctrl_c_in_until_is_no_answer(tmp_path: Any) -> None:
    raising = [True]

    def until(n: int) -> bool:
        if raising:
            raise KeyboardInterrupt
        return n == 2

    wf = counting(Loop(until=until))
    with Runtime(tmp_path / "a.db") as rt:
        with pytest.raises(KeyboardInterrupt):
            rt.run(wf, execution_id="e")
        assert rt.execution("e").status == "INTERRUPTED"
        raising.clear()

        assert rt.resume("e", wf).raise_for_status().variables == {"n": 2}


def test_what_earlier_rounds_returned_and_wrote_is_let_go(tmp_path: Any) -> None:
    alive: list[weakref.ref[Large]] = []
    most: list[int] = []
    child = Workflow("child", types=[Large], variables={"last": None}, loop=Loop(2))

    @child.step(writes="last")
    def make(ctx: StepContext) -> Large:
        made = Large(ctx.round)
        alive.append(weakref.ref(made))
        ctx.set("last", made)
        return made

    def until(ctx: StepContext) -> bool:
        most.append(sum(ref() is not None for ref in alive))
        return ctx.round == 20

    wf = Workflow("w", types=[Large], loop=Loop(until=until))
    wf.step(lambda: [1, 2], id="list")
    wf.add(StepSpec("each", map_over="list", workflow=child))
    gc.disable()  # nothing of this is left to it
    try:
        with Runtime(tmp_path / "a.db", plugins=[LoopPlugin()], max_workers=2) as rt:
            rt.run(wf).raise_for_status()
    finally:
        gc.enable()

    assert len(alive) == 80
    assert max(most) <= 12


def test_closing_while_until_runs_leaves_the_question_to_whoever_resumes(tmp_path: Any) -> None:
    asked = Gate()
    answers = [False]

    def until(ctx: StepContext, n: int) -> bool:
        if n == 1 and answers:
            asked.open()
            eventually(lambda: ctx.cancelled)
            raise RuntimeError("the connection was closed under it")
        return n == 2

    wf = counting(Loop(until=until))
    rt = Runtime(tmp_path / "a.db")
    execution = rt.submit(wf, execution_id="e")
    asked.wait()
    rt.close(5)
    assert execution.status == "INTERRUPTED"
    answers.clear()

    with Runtime(tmp_path / "a.db") as again:
        assert again.resume("e", wf).raise_for_status().variables == {"n": 2}


# --- controllers -------------------------------------------------------------------------------------------------


def test_controllers_are_told_of_each_round_then_asked_after_until(runtime: Make, store: str | None) -> None:
    controller = Controller(lambda next_round, _: next_round < 4)
    calls = controller.calls

    def until(n: int) -> bool:
        calls.append("until")
        return False

    rt = runtime(store, plugins=[controller])

    result = rt.run(counting(Loop(10, until=until)), execution_id="e").raise_for_status()

    assert calls == ["1.", "until", "2?", "2.", "until", "3?", "3.", "until", "4?"]
    assert result.variables == {"n": 3}
    assert rt.checkpoint("e").loop_history[-1] == LoopEntry(3, "controller: controller")


def test_controllers_are_told_how_the_round_went_and_keep_that_for_ever(runtime: Make, store: str | None) -> None:
    controller = Controller()
    wf = counting(Loop(2))
    wf.step(lambda ctx, add: ctx.tool("search", len, [add]), id="tool")
    rt = runtime(store, plugins=[controller])

    rt.run(wf, execution_id="e").raise_for_status()

    assert controller.steps == [{"add": n, "tool": 1} for n in (1, 2)]
    for n, state in enumerate(controller.ends, 1):
        assert (state.execution_id, state.workflow_id, state.step_id, state.round) == ("e", "counting", "", n)
        assert (state.variables, state.status, len(state.tools)) == ({"n": n}, "COMPLETED", 1)
        assert {path: (s.output, s.round) for path, s in state.steps.items()} == {"add": (n, n), "tool": (1, n)}
        assert len(state.steps) == 2
        assert 0 < state.duration < 20


def test_a_controller_that_is_told_of_a_failed_round_is_not_asked(runtime: Make) -> None:
    controller = Controller()
    wf = Workflow("w", loop=Loop(3))
    wf.step(lambda: 1 // 0, id="fails")

    result = runtime(plugins=[controller]).run(wf)

    assert (result.status, controller.calls) == ("FAILED", ["1."])
    (state,) = controller.ends
    assert (state.status, [error.path for error in state.errors]) == ("FAILED", ["fails"])


def test_a_round_that_ran_out_of_time_has_failed_and_one_that_was_cancelled_is_not_told(runtime: Make) -> None:
    controller = Controller()
    rt = runtime(plugins=[controller])
    running = Gate()
    wf = Workflow("w", loop=Loop())
    wf.step(lambda ctx: running.open() or eventually(lambda: ctx.cancelled), id="waits")
    wf.step(lambda waits: None, id="never")

    assert rt.run(wf, timeout=0.2).status == "FAILED"
    assert (controller.calls, controller.ends[0].status) == (["1."], "FAILED")

    running = Gate()
    execution = rt.submit(wf)
    running.wait()
    execution.cancel()
    assert execution.result(20).status == "CANCELLED"
    assert controller.calls == ["1."]


@pytest.mark.parametrize("how", ["fails", "mumbles", "hangs"])
def test_a_controller_that_fails_hangs_or_mumbles_means_no_with_a_warning(runtime: Make, how: str) -> None:
    until_the_end = Gate()
    ways = {"fails": no, "mumbles": lambda *_: "yes", "hangs": lambda *_: until_the_end.wait()}
    controller = Controller(ways[how])
    controller.timeout = 0.2
    other = Controller(name="other")

    try:
        result = runtime(plugins=[controller, other]).run(counting(Loop(5))).raise_for_status()
    finally:
        until_the_end.open()  # a plugin's thread that is left would be counted by other tests

    assert (result.variables, other.calls) == ({"n": 1}, ["1."])
    assert any("'controller'" in warning for warning in result.warnings)


def test_a_controller_that_fails_at_the_end_of_a_round_is_a_warning(runtime: Make) -> None:
    class Clumsy(Controller):
        def on_round_end(self, ctx: Any, round: int, state: ExecutionState) -> None:
            raise ValueError("dropped it")

    result = runtime(plugins=[Clumsy()]).run(counting(Loop(3))).raise_for_status()

    assert result.variables == {"n": 3}
    assert any("on_round_end raised ValueError: dropped it (3 times)" in warning for warning in result.warnings)


def test_controllers_hear_of_the_rounds_of_a_sub_workflow_that_loops(runtime: Make, store: str | None) -> None:
    controller = Controller()
    child = counting(Loop(2))
    child.step(lambda ctx, add: ctx.tool("search", len, [add]), id="tool")
    wf = Workflow("outer", loop=Loop(2))
    wf.add(StepSpec("inside", workflow=child))
    wf.step(lambda ctx: ctx.tool("other", len, []), id="beside")

    runtime(store, plugins=[controller]).run(wf, execution_id="e").raise_for_status()

    told = [(s.workflow_id, s.step_id, s.round, [t.tool_name for t in s.tools]) for s in controller.ends]
    inner = [each for each in told if each[0] == "counting"]
    assert inner == [
        ("counting", "inside", 1, ["search"]),
        ("counting", "inside", 2, ["search"]),
        ("counting", "inside#2", 1, ["search"]),
        ("counting", "inside#2", 2, ["search"]),
    ]
    assert [(r, sorted(tools)) for _, _, r, tools in told if _ == ""] == [
        (1, ["other", "search", "search"]),
        (2, ["other", "search", "search"]),
    ]
    inside = [sorted(s.steps) for s in controller.ends if s.workflow_id == "counting"]
    assert inside == [["inside/add", "inside/tool"]] * 2 + [["inside#2/add", "inside#2/tool"]] * 2


def test_the_histories_of_a_round_are_whole_after_a_resume(tmp_path: Any) -> None:
    stop = [True]
    wf = counting(Loop(3))
    wf.step(lambda ctx, add: ctx.tool("search", len, [add]), id="tool")
    wf.step(lambda tool, add: no() if stop and add == 2 else add, id="fails")
    with Runtime(tmp_path / "a.db", plugins=[Controller()]) as rt:
        assert rt.run(wf, execution_id="e").status == "FAILED"
    stop.clear()
    controller = Controller()

    with Runtime(tmp_path / "a.db", plugins=[controller]) as rt:
        rt.resume("e", wf).raise_for_status()

    assert [(s.round, len(s.tools), len(s.errors)) for s in controller.ends] == [(2, 1, 1), (3, 1, 0)]


def test_progress_counts_the_steps_of_the_present_round(runtime: Make) -> None:
    at, go = Gate(), Gate()

    def until(ctx: StepContext) -> bool:
        if ctx.round == 3:
            at.open()
            go.wait()
        return ctx.round == 3

    rt = runtime()
    execution = rt.submit(counting(Loop(until=until)))
    at.wait()

    progress = execution.progress()
    go.open()

    assert progress is not None
    assert (progress.done, progress.total, progress.round) == (1, 1, 3)
    execution.result(20)


def test_a_recorded_failure_of_until_is_read_back(tmp_path: Any) -> None:
    wf = counting(Loop(until=lambda n: no()))
    with Runtime(tmp_path / "a.db") as rt:
        rt.run(wf, execution_id="e")

    with Runtime(tmp_path / "a.db", workflows=[wf]) as rt:
        error = rt.execution("e").result().error

    assert isinstance(error, RecordedError)
    assert error.type_name == "UntilError"


def test_loops_in_loops_that_are_stopped_at_any_moment_keep_to_the_rules_and_go_on_to_the_same_end(
    tmp_path: Any,
) -> None:
    child = Workflow("child", variables={"v": 0}, loop=Loop(3, until=lambda v: v >= 2))

    @child.step(writes="v")
    def inner(ctx: StepContext, v: int) -> int:
        ctx.set("v", v + 1)
        return v

    wf = Workflow("outer", variables={"n": 0}, loop=Loop(until=lambda n: n >= 3))
    wf.step(lambda ctx, n: ctx.set("n", n + 1) or [1, 2], id="begin", writes="n")
    wf.add(StepSpec("each", map_over="begin", workflow=child))
    wf.step(lambda ctx, each: ctx.once("k", lambda: ctx.round), id="end", trigger="always")
    moments = random.Random(7)

    with Runtime(tmp_path / "a.db", plugins=[LoopPlugin()], max_workers=3) as rt:
        for number in range(12):
            timeout = moments.choice([None, 0.05])
            execution = rt.submit(wf, execution_id=f"e{number}", timeout=timeout)
            if timeout is None:
                execution.wait(moments.random() * 0.2)
                execution.cancel()
            status = execution.result(20).status

            result = rt.resume(f"e{number}", wf, reopen=True, timeout=100)

            assert status in ("COMPLETED", "CANCELLED", "FAILED")
            assert (result.status, result.variables, result.outputs["end"]) == ("COMPLETED", {"n": 3}, 3)
            entries = rt._engine().journal.entries(f"e{number}")  # what is looked at here is the journal itself
            facts = [read(e.kind, e.path, e.body, Codec()) for e in entries]
            Police(wf.graph()).read(fact for fact in facts if isinstance(fact, f.Fact))
