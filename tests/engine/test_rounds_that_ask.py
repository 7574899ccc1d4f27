"""Loops whose rounds ask a human: questions, answers, plugins and decisions are each of one round."""

from collections.abc import Callable
from typing import Any

import pytest

import ares
from ares import (
    Approve,
    ExecutionStatus,
    HookPolicy,
    HookResult,
    Loop,
    Question,
    Reject,
    RouteDecision,
    RouteState,
    Runtime,
    StepContext,
    StepSpec,
    StepStatus,
    Workflow,
    WorkflowResult,
)
from ares.engine.decisions import Decider
from ares.errors import QuestionAnsweredError, QuestionNotFoundError
from tests.bus.players import Log
from tests.engine.helpers import LIMIT, events_of
from tests.plugins_on_runtime.players import Signpost

Make = Callable[..., Runtime]


def name_of(question: Question) -> str:
    return f"{question.path} {question.round} {question.key}"


def looping(rounds: int = 3, log: Log | None = None) -> Workflow:
    """Each round asks before a step and twice in the body of another; what it was told is kept."""
    log = log or Log()
    wf = Workflow("looping", variables={"told": ()}, loop=Loop(rounds))
    wf.step(lambda ctx: log.add(f"first {ctx.round}"), id="first")

    @wf.step(writes="told", depends_on=["first"])
    def body(ctx: StepContext, told: tuple[Any, ...]) -> Any:
        ctx.once("effect", lambda: log.add(f"once {ctx.round}"))
        values = (ctx.interrupt("a", "?"), ctx.interrupt("b", "?"))
        ctx.set("told", (*told, *values))
        return values

    wf.step(lambda ctx: log.add(f"gate {ctx.round}"), id="gate", interrupt="Go on?", depends_on=["body"])
    return wf


def answer_all(rt: Runtime, wf: Workflow, result: WorkflowResult, until: int = 99) -> tuple[WorkflowResult, list[str]]:
    """Answer each question with its name, one at a time, as long as they are of rounds up to ``until``."""
    asked = []
    while result.interrupts and result.interrupts[0].round <= until:
        question = result.interrupts[0]
        asked.append(name_of(question))
        rt.answer(question, Approve(name_of(question)))
        result = rt.resume(result.execution_id, wf)
    return result, asked


def names(*rounds: int) -> list[str]:
    return [f"{place}" for r in rounds for place in (f"body {r} a", f"body {r} b", f"gate {r} ")]


def told(*rounds: int) -> tuple[str, ...]:
    return tuple(f"body {r} {key}" for r in rounds for key in "ab")


# --- answers ----------------------------------------------------------------------------------------------------------


def test_each_round_asks_anew_and_is_given_its_own_answers(runtime: Make, store: str | None) -> None:
    log = Log()
    wf = looping(3, log)
    rt = runtime(store)

    result, asked = answer_all(rt, wf, rt.run(wf, execution_id="e"))

    assert asked == names(1, 2, 3)
    assert result.raise_for_status().variables == {"told": told(1, 2, 3)}
    assert log.lines == [f"{what} {r}" for r in (1, 2, 3) for what in ("first", "once", "gate")]


def test_an_answer_to_an_earlier_round_is_refused_in_the_next(runtime: Make, store: str | None) -> None:
    wf = looping()
    rt = runtime(store)
    first = rt.run(wf, execution_id="e").interrupts[0]
    result, _ = answer_all(rt, wf, rt.resume("e", wf), until=1)

    with pytest.raises(QuestionAnsweredError):
        rt.answer(first, Approve("late"))
    with pytest.raises(QuestionNotFoundError):
        rt.answer("e", Approve(), step="gate")  # not asked yet in this round

    assert [name_of(each) for each in rt.questions("e")] == [name_of(result.interrupts[0])] == ["body 2 a"]


@pytest.mark.parametrize("by_name", [False, True])
def test_an_answer_to_what_ended_unanswered_says_how_it_ended_whatever_was_answered_in_earlier_rounds(
    runtime: Make, store: str | None, by_name: bool
) -> None:
    wf = Workflow("w", loop=Loop(2))
    wf.step(lambda: [0], id="source")
    wf.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source")
    rt = runtime(store)
    result, _ = answer_all(rt, wf, rt.run(wf, execution_id="e"), until=1)
    rt.cancel("e")
    rt.resume("e", wf)

    with pytest.raises(QuestionNotFoundError, match="CANCELLED"):
        rt.answer("e" if by_name else result.interrupts[0], Approve(), step="each[0]")


def test_one_that_was_submitted_goes_on_over_all_its_rounds(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    handle = rt.submit(looping(), execution_id="e")
    asked = []

    while (result := handle.result(LIMIT)).interrupts:
        asked.append(name_of(result.interrupts[0]))
        rt.answer(result.interrupts[0], Approve(asked[-1]))

    assert asked == names(1, 2, 3)
    assert result.raise_for_status().variables == {"told": told(1, 2, 3)}


def test_a_handler_is_asked_in_every_round(runtime: Make, store: str | None) -> None:
    asked = Log()

    def handler(question: Question) -> Approve:
        asked.add(name_of(question))
        return Approve(name_of(question))

    result = runtime(store, interrupt_handler=handler).run(looping()).raise_for_status()

    assert asked.lines == names(1, 2, 3)
    assert result.variables == {"told": told(1, 2, 3)}


def test_a_no_ends_the_step_in_its_round_alone(runtime: Make, store: str | None) -> None:
    wf = looping(2)
    rt = runtime(store)
    rt.answer(rt.run(wf, execution_id="e").interrupts[0], Reject("not yet"))

    result, asked = answer_all(rt, wf, rt.resume("e", wf))

    assert asked == names(2)
    assert (result.status, result.rejected) == (ExecutionStatus.COMPLETED, ())
    assert result.variables == {"told": told(2)}


def test_a_cancel_while_a_later_round_waits_closes_its_questions_and_ends_the_loop(
    runtime: Make, store: str | None
) -> None:
    wf = looping()
    rt = runtime(store)
    result, _ = answer_all(rt, wf, rt.run(wf, execution_id="e"), until=1)
    assert result.status is ExecutionStatus.WAITING

    rt.cancel("e", "enough")
    result = rt.resume("e", wf)

    assert (result.status, rt.questions("e")) == (ExecutionStatus.CANCELLED, [])
    history = rt.checkpoint("e").loop_history
    assert [(entry.round, entry.exit_reason) for entry in history] == [(1, ""), (2, "cancelled")]
    reopened, asked = answer_all(rt, wf, rt.resume("e", wf, reopen=True))
    assert asked == names(2, 3)
    assert reopened.raise_for_status().variables == {"told": told(1, 2, 3)}


def test_a_rerun_in_a_later_round_forgets_that_rounds_answers_and_once_results_alone(
    runtime: Make, store: str | None
) -> None:
    log = Log()
    wf = looping(3, log)
    rt = runtime(store)
    answer_all(rt, wf, rt.run(wf, execution_id="e"), until=1)
    result, _ = rt.resume("e", wf), None
    rt.answer(result.interrupts[0], Approve("forgotten"))
    rt.answer(rt.resume("e", wf).interrupts[0], Approve("forgotten, too"))
    waiting = rt.resume("e", wf)  # at the gate of round 2
    assert [name_of(each) for each in waiting.interrupts] == ["gate 2 "]

    result, asked = answer_all(rt, wf, rt.resume("e", wf, rerun=["body"]))

    assert asked == names(2, 3)
    assert result.raise_for_status().variables == {"told": told(1, 2, 3)}
    assert [log.lines.count(f"once {r}") for r in (1, 2, 3)] == [1, 2, 1]
    assert [log.lines.count(f"first {r}") for r in (1, 2, 3)] == [1, 1, 1]


def test_loops_in_loops_and_elements_ask_each_for_their_own_round(runtime: Make, store: str | None) -> None:
    child = Workflow("child", loop=Loop(2))
    child.step(lambda: [0, 1], id="source")
    child.step(lambda ctx, item: ctx.interrupt("k", "?"), id="each", map_over="source")
    wf = Workflow("w", loop=Loop(2))
    wf.add(StepSpec("sub", workflow=child))
    rt = runtime(store)
    result, waves = rt.run(wf, execution_id="e"), []

    while result.interrupts:
        waves.append(sorted(map(name_of, result.interrupts)))
        for question in reversed(result.interrupts):
            rt.answer(question, Approve(name_of(question)))
        result = rt.resume("e", wf)

    assert waves == [[f"{sub}/each[{i}] {r} k" for i in (0, 1)] for sub in ("sub", "sub#2") for r in (1, 2)]
    assert result.raise_for_status().outputs["sub"] == {"each": waves[-1]}


# --- plugins ----------------------------------------------------------------------------------------------------------


class Guard(ares.Plugin):
    """Skips one step in one round, and counts what it is told."""

    name = "guard"

    def __init__(self, intercepts: bool) -> None:
        self.log = Log()
        self._intercepts = intercepts
        if intercepts:
            self.hook_policy = HookPolicy.INTERCEPT

    def before_step(self, ctx: ares.Context, execution_id: str, step: ares.Step) -> HookResult | None:
        self.log.add(f"before {step.path} {step.round}")
        is_it = self._intercepts and (step.path, step.round) == ("gate", 2)
        return HookResult.skip("not today") if is_it else None

    def after_step(self, ctx: ares.Context, execution_id: str, result: ares.StepResult) -> None:
        self.log.add(f"after {result.path} {result.round} {result.status}")


@pytest.mark.parametrize("submitted", [False, True], ids=["run", "submit"])
def test_hooks_are_called_once_for_each_step_and_round_however_often_its_body_asked(
    runtime: Make, store: str | None, submitted: bool
) -> None:
    watcher, guard = Guard(intercepts=False), Guard(intercepts=True)
    watcher.name = "watcher"
    wf = looping()
    rt = runtime(store, plugins=[guard, watcher])
    if submitted:
        handle = rt.submit(wf, execution_id="e")
        while (result := handle.result(LIMIT)).interrupts:
            rt.answer(result.interrupts[0], Approve(name_of(result.interrupts[0])))
    else:
        result, _ = answer_all(rt, wf, rt.run(wf, execution_id="e"))

    places = [(step, r) for r in (1, 2, 3) for step in ("first", "body", "gate")]
    expected = [line for step, r in places for line in (f"before {step} {r}", f"after {step} {r} COMPLETED")]
    assert watcher.log.lines == [line for line in expected if "gate 2" not in line]  # a verdict skip has no hooks
    assert guard.log.lines == [line for line in expected if line != "after gate 2 COMPLETED"]
    assert result.raise_for_status().variables == {"told": told(1, 2, 3)}
    skipped = [(e.payload["path"], e.payload["round"]) for e in events_of(rt, "e") if e.type == "step.skipped"]
    assert skipped == [("gate", 2)]
    assert result.steps["gate"].status is StepStatus.COMPLETED


# --- decisions --------------------------------------------------------------------------------------------------------


def test_decisions_of_rounds_that_waited_are_rebuilt_as_routers_were_shown_them(
    runtime: Make, store: str | None
) -> None:
    def decide(state: RouteState) -> RouteDecision:
        seen = len(state.variables["log"]) + len(state.routes) + len(state.tools)
        return RouteDecision((state.candidates[seen % 2],), f"{seen}", "router")

    child = Workflow("child", variables={"log": ()}, loop=Loop(2))
    wf = Workflow("w", variables={"log": ()}, loop=Loop(2))
    for each in (child, wf):

        @each.step(branches=["left", "right"])
        def choose(ctx: StepContext) -> Any:
            ctx.tool("look", len, [])
            return ctx.interrupt("k", "which way?")

        for way in ("left", "right"):

            @each.step(id=way, writes="log", depends_on=["choose"], interrupt="really?")
            def go(ctx: StepContext, log: tuple[Any, ...]) -> None:
                ctx.set("log", (*log, ctx.step.path))

    wf.add(StepSpec("sub", workflow=child, depends_on=["left", "right"]))
    pilot = Signpost("pilot", decide)
    rt = runtime(store, plugins=[pilot])
    answer_all(rt, wf, rt.run(wf, execution_id="e"))[0].raise_for_status()

    found = list(rt.decisions("e", wf))

    assert [(each.path, each.round) for each in found] == [
        (path, r)
        for outer, sub in ((1, "sub"), (2, "sub#2"))
        for path, r in (("choose", outer), (f"{sub}/choose", 1), (f"{sub}/choose", 2))
    ]
    shown = [(s.path, s.round, s.output, dict(s.variables), len(s.routes), len(s.tools)) for s in pilot.states]
    rebuilt = [each.state for each in found if each.state is not None]
    assert [(s.path, s.round, s.output, dict(s.variables), len(s.routes), len(s.tools)) for s in rebuilt] == shown
    assert {(each.decider, each.missing, each.uncertain) for each in found} == {(Decider.ROUTERS, "", ())}
    assert [each.then.reason for each in found] == [decide(state).reason for state in rebuilt]
