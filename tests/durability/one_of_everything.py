"""The workflow whose every boundary between two facts is a place to die at."""

from typing import Any

import ares
from ares import Goto, Loop, RetryPolicy, Workflow
from ares.errors import NotDone
from tests.durability.traces import leave, traces


def rich() -> Workflow:  # noqa: C901 - one of everything
    """Small, and has one of everything."""
    child = Workflow("child", inputs={"base": int, "effects": str}, variables={"seen": 0})

    @child.step(writes="seen")
    def first(ctx: ares.StepContext, base: int, effects: str) -> int:
        leave(effects, "inside/first")
        ctx.set("seen", base)
        return base + 1

    @child.step
    def second(first: int, seen: int, effects: str) -> int:
        leave(effects, "inside/second")
        return first + seen

    wf = Workflow(
        "rich", inputs={"effects": str}, variables={"log": [], "total": 0}, reducers={"log": "append", "total": "add"}
    )

    @wf.step(writes=("log", "total"))
    def begin(ctx: ares.StepContext, effects: str) -> list[int]:
        leave(effects, "begin")
        ctx.set("log", "begin")
        ctx.set("total", 1)
        return [1, 2, 3]

    @wf.step
    def token(ctx: ares.StepContext, begin: list[int], effects: str) -> str:
        leave(effects, "token")

        def make() -> str:
            leave(effects, "token.once")
            return f"{sum(begin)}-{ctx.idempotency_key_for('make')}"

        return ctx.once("make", make)

    @wf.step(map_over=begin, writes=("total", "log"), retry=RetryPolicy(max_attempts=3, initial_delay=0.001))
    def each(ctx: ares.StepContext, item: int, effects: str) -> int:
        leave(effects, f"each[{item - 1}]")
        ctx.emit("each.seen", item=item)
        ctx.set("total", item)
        ctx.set("log", f"each {item}")
        if item == 2 and ctx.attempt == 1:
            raise ConnectionError("the first attempt never works")
        return item * item

    wf.add(ares.StepSpec("inside", workflow=child, inputs={"base": "size"}))

    @wf.step(id="size")
    def size(each: list[int], effects: str) -> int:
        leave(effects, "size")
        return len(each)

    @wf.step(branches=("left", "right"), router=lambda: "right", depends_on=["inside"])
    def fork(effects: str) -> str:
        leave(effects, "fork")
        return "fork"

    @wf.step
    def left(fork: str, effects: str) -> str:
        leave(effects, "left")
        return "left"

    @wf.step(branches=("near", "far"))
    def right(ctx: ares.StepContext, fork: str, effects: str) -> Goto:
        leave(effects, "right")
        return Goto("near", value=ctx.tool("upper", str.upper, fork))

    @wf.step
    def near(right: str, effects: str) -> str:
        leave(effects, "near")
        return right

    @wf.step
    def far(right: str, effects: str) -> str:
        leave(effects, "far")
        return right

    @wf.step(condition=lambda: False)
    def never(begin: list[int]) -> None:
        raise AssertionError("a condition said no")

    def was_charged(ctx: ares.StepContext, effects: str) -> str:
        if f"charge {ctx.idempotency_key}" not in traces(effects):
            raise NotDone
        return "charged"

    @wf.step(delivery="at_most_once", reconcile=was_charged, retry=RetryPolicy(initial_delay=0.001))
    def charge(ctx: ares.StepContext, token: str, effects: str) -> str:
        leave(effects, f"charge {ctx.idempotency_key}")
        return "charged"

    @wf.step(writes="log")
    def join(  # noqa: PLR0917 - a step's parameters are what it depends on
        ctx: ares.StepContext, left: Any, near: Any, far: Any, inside: Any, token: str, charge: str, effects: str
    ) -> dict[str, Any]:
        leave(effects, "join")
        ctx.set("log", "join")
        return {"left": left, "near": near, "far": far, "inside": inside, "total": ctx.variables["total"]}

    @wf.step
    def broken(join: Any, effects: str) -> None:
        leave(effects, "broken")
        raise ValueError("it always breaks")

    @wf.step
    def behind(broken: None) -> None:
        raise AssertionError("what it depends on failed")

    @wf.step(trigger="always", depends_on=[behind])
    def tidy(ctx: ares.StepContext, effects: str) -> str:
        leave(effects, "tidy")
        return f"{ctx.upstream['behind'].status}: {ctx.upstream['behind'].reason}"

    return wf


def loops() -> Workflow:
    """Loops three times around a loop of two rounds."""
    child = Workflow("child", inputs={"base": int, "effects": str}, variables={"sum": 0}, loop=Loop(max_rounds=2))

    @child.step(writes="sum")
    def inner(ctx: ares.StepContext, base: int, effects: str) -> int:
        leave(effects, f"inner {ctx.step.path} {ctx.round}")
        ctx.set("sum", base)
        return base * ctx.round

    wf = Workflow(
        "loops",
        inputs={"effects": str},
        variables={"n": 0, "log": [], "total": 0},
        reducers={"log": "append", "total": "add"},
        loop=Loop(until=_enough),
    )

    @wf.step(writes=("n", "log"))
    def begin(ctx: ares.StepContext, n: int, effects: str) -> int:
        leave(effects, f"begin {ctx.round}")
        ctx.set("n", n + 1)
        ctx.set("log", f"begin {ctx.round}")
        return n + 1

    @wf.step
    def token(ctx: ares.StepContext, begin: int, effects: str) -> str:
        leave(effects, f"token {ctx.round}")

        def make() -> str:
            leave(effects, f"token.once {ctx.round}")
            return f"{begin}-{ctx.idempotency_key_for('make')}"

        return ctx.once("make", make)

    wf.add(ares.StepSpec("inside", workflow=child, inputs={"base": "begin"}))

    @wf.step(writes="total")
    def end(ctx: ares.StepContext, inside: dict[str, int], token: str, effects: str) -> int:
        leave(effects, f"end {ctx.round}")
        ctx.set("total", inside["inner"])
        return inside["inner"]

    return wf


def _enough(ctx: ares.StepContext, end: int, n: int) -> bool:
    return ctx.round == n == 3
