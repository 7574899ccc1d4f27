"""A workflow with branch points, and routers that are asked about it, for commands in processes of their own."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from ares import Capability, Goto, Input, Loop, Plugin, RouteAdvice, RouteDecision, Runtime, StepSpec, Workflow
from ares.plugins import ExpressionRouter, MemoryRouter, Rule

#: Seconds after which a router that hangs is let go, whatever the test does.
_PATIENCE = 30.0

workflow = Workflow("crossings", inputs={"score": float, "way": Input(str, "")}, variables={"strict": False})


@workflow.step(branches=["accept", "review", "reject"])
def judge(score: float) -> dict[str, float]:
    return {"score": score}


for _way in ("accept", "review", "reject"):
    workflow.step(lambda judge, _way=_way: _way, id=_way)


@workflow.step(branches=["left", "right"])
def choose(accept: Any, review: Any, reject: Any, way: str) -> Any:
    return Goto(way) if way in ("left", "right") else way


@workflow.step(depends_on=[choose])
def left() -> None:
    pass


@workflow.step(depends_on=[choose])
def right() -> None:
    pass


# --- rounds that ask ----------------------------------------------------------------------------------------------


def _rounds(name: str, **options: Any) -> Workflow:
    wf = Workflow(name, variables={"level": 0}, **options)
    wf.step(lambda ctx: ctx.interrupt("way", "which way?"), id="turn", branches=["up", "down"])
    for way, by in (("up", 1), ("down", -1)):

        @wf.step(id=way, depends_on=["turn"], writes="level")
        def go(ctx: Any, level: int, by: int = by) -> None:
            ctx.set("level", level + by)

    return wf


asking = _rounds("asking", loop=Loop(3))
asking.add(StepSpec("inside", workflow=_rounds("inner", loop=Loop(2)), depends_on=["up", "down"]))


def climbs(most: int) -> ExpressionRouter:
    """Goes up below a level, and where it was told to."""
    return ExpressionRouter(
        [
            Rule(lambda output, variables: output == "up" or variables["level"] < most, "up", reason="there is room"),
            Rule(lambda output, variables: True, "down"),
        ]
    )


climber, higher = climbs(1), climbs(3)


def above(least: float) -> Callable[[Any, Any], bool]:
    return lambda output, _variables: isinstance(output, dict) and output["score"] > least


LEFT = Rule(lambda output, _variables: output == "", "left", source="choose", reason="nobody said")


def scores(accept: float, review: float = 0.4) -> ExpressionRouter:
    """Accepts what is above one score, has a look at what is above the other."""
    return ExpressionRouter(
        [
            Rule(above(accept), "accept", source="judge", reason=f"above {accept}"),
            Rule(above(review), "review", source="judge"),
            Rule(lambda output, _variables: True, "reject", source="judge", reason="not\x1b[31m good"),
            LEFT,
        ]
    )


def runtime(store: str) -> Runtime:
    return Runtime(store, plugins=[scores(0.8)])


# --- routers ------------------------------------------------------------------------------------------------------

router = scores(0.8)
severe = scores(0.95)


class Diary(Plugin):
    name = "diary"
    capabilities = frozenset({Capability.MEMORY})

    def advise_route(self, ctx: Any, state: Any) -> Any:
        return [RouteAdvice(state.candidates[-1], 0.9, "it went well")]


def remembering() -> list[Plugin]:
    return [Diary(), MemoryRouter()]


class Odd(Plugin):
    """A router that does one odd thing."""

    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, deed: Callable[[], Any], **more: Any) -> None:
        self.name = "odd"
        self.deed = deed
        for name, value in more.items():
            setattr(self, name, value)

    def route(self, ctx: Any, state: Any) -> Any:
        return self.deed()


raises = Odd(lambda: 1 / 0)
hangs = Odd(lambda: threading.Event().wait(_PATIENCE))
leaves_a_mark = Odd(lambda: Path("asked").touch() or threading.Event().wait(_PATIENCE))
stray = Odd(lambda: RouteDecision(("nowhere",)))
fails_rule = ExpressionRouter([Rule(lambda output, variables: output["none"], "left", source="choose")])


class Unstarted(Odd):
    def start(self, ctx: Any, bus: Any) -> None:
        raise OSError("no disk")


unstarted = Unstarted(lambda: None)


def broken() -> Any:
    raise KeyError("no rules")


def takes_one(one: int) -> None:
    """Cannot be called without."""


number = 5
nobody = Diary()
twice = [router, router]


# --- a value of a class -------------------------------------------------------------------------------------------


@attrs.frozen
class Finding:
    text: str


def typed(*types: type) -> Workflow:
    wf = Workflow("typed", types=types)
    wf.step(lambda: Finding("odd"), id="find", branches=["go"])
    wf.step(lambda: None, id="go", depends_on=["find"])
    return wf


knows, forgot = typed(Finding), typed()
go = ExpressionRouter([Rule(lambda output, variables: True, "go")])
