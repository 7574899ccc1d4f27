"""Workflows that ask, whose bodies leave a line for each time they begin and for each answer that they get."""

from collections.abc import Callable
from typing import Any

import ares
from ares import Approve, Question, Reject, Workflow
from tests.durability.flows import LINE
from tests.durability.traces import counted, leave

Body = Callable[[ares.StepContext, str], Any]


def _asks(key: str = "name", message: str = "what is it?") -> Body:
    def body(ctx: ares.StepContext, effects: str) -> Any:
        path = ctx.step.path
        leave(effects, f"{path} begins")
        value = ctx.interrupt(key, message)
        leave(effects, f"{path} got {value}")
        return value

    return body


def asking_three() -> Workflow:
    """Three steps beside one another ask the very same; a step that is done before them, and one behind each."""
    wf = Workflow("asking_three", inputs={"effects": str})
    wf.step(lambda effects: leave(effects, "first begins") or 1, id="first")
    for step in "abc":
        wf.step(_asks(), id=step, depends_on=["first"])
        wf.step(_behind(step), id=f"{step}2", params={"given": step})
    return wf


def _behind(step: str) -> Callable[[Any, str], Any]:
    def body(given: Any, effects: str) -> Any:
        leave(effects, f"{step}2 begins")
        if LINE:
            LINE[-1].say(f"{step} {given}")
        return given

    return body


def asking_three_beside() -> Workflow:
    """As ``asking_three``, with a step beside them that tells the test that it is there, and then waits to be killed;
    but not the second time."""
    wf = asking_three()

    @wf.step
    def beside(effects: str) -> None:
        leave(effects, "beside")
        if counted(effects)["beside"] == 1:
            LINE[-1].say("beside")
            LINE[-1].hear()

    return wf


def asking_twice() -> Workflow:
    """A sub-workflow whose two steps ask the very same, one after the other."""
    child = Workflow("child", inputs={"effects": str})
    child.step(_asks(), id="q1")
    child.step(_asks(), id="q2", depends_on=["q1"])
    child.step(lambda q1, q2: [q1, q2], id="both")
    wf = Workflow("asking_twice", inputs={"effects": str})
    wf.add(ares.StepSpec("sub", workflow=child))
    return wf


def asking_all() -> Workflow:
    """Every kind of question."""
    wf = Workflow("asking_all", inputs={"effects": str})
    wf.step(lambda effects: leave(effects, "static begins") or "ran", id="static", interrupt="may I?")
    wf.step(lambda: [0, 1], id="source")

    @wf.step
    def dynamic(ctx: ares.StepContext, effects: str) -> Any:
        leave(effects, "dynamic begins")
        ctx.once("effect", lambda: leave(effects, "dynamic once"))
        return ctx.interrupt("k", "?")

    @wf.step(map_over="source", on_item_failure="collect")
    def each(ctx: ares.StepContext, item: int, effects: str) -> Any:
        value = ctx.interrupt("k", "?")
        leave(effects, f"{ctx.step.path} got it")
        return value

    @wf.step(delivery="at_most_once")
    def pay(effects: str) -> None:
        leave(effects, "pay begins")
        raise ConnectionError

    @wf.step
    def refused(ctx: ares.StepContext, effects: str) -> None:
        ctx.interrupt("k", "?")
        leave(effects, "refused got it")

    return wf


def asking_rounds() -> Workflow:
    """Three rounds that ask in every way; a sub-workflow asks in the second round of its own, in each."""

    def ask(ctx: ares.StepContext, effects: str) -> Any:
        name = f"{ctx.step.path} {ctx.round}"
        leave(effects, f"{name} begins")
        ctx.once("effect", lambda: leave(effects, f"{name} once"))
        value = ctx.interrupt("k", f"{name}?")
        leave(effects, f"{name} got {value}")
        return value

    def note(ctx: ares.StepContext, effects: str) -> None:
        leave(effects, f"{ctx.step.path} {ctx.round} ran")

    child = Workflow("child", inputs={"effects": str}, loop=ares.Loop(2))
    child.step(lambda ctx, effects: ask(ctx, effects) if ctx.round == 2 else None, id="ask")
    wf = Workflow("asking_rounds", inputs={"effects": str}, variables={"said": ()}, loop=ares.Loop(3))
    wf.step(note, id="first")
    wf.step(note, id="static", interrupt="may I?", depends_on=["first"])
    wf.step(lambda first: [0, 1], id="source")
    wf.step(ask, id="each", map_over="source")
    wf.add(ares.StepSpec("sub", workflow=child, depends_on=["first"]))

    @wf.step(writes="said", depends_on=["first"])
    def dynamic(ctx: ares.StepContext, effects: str, said: tuple[str, ...]) -> Any:
        value = ask(ctx, effects)
        ctx.set("said", (*said, value))
        return value

    return wf


def answer_to(question: Question, by: str) -> Approve | Reject:
    """What ``by`` answers to a question of ``asking_all``."""
    if question.path in ("each[1]", "refused"):
        return Reject(by)
    return Approve(f"{by}: {question.path} {question.key}")
