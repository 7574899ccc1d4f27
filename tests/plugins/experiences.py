"""A workflow whose branches go well or not, and questions to a memory, for the tests of ``ExperienceMemory``.

Also a program: ``python -m tests.plugins.experiences STORE MEMORY HOW ID...`` runs executions of those ids; HOW is
``well``, ``dies`` (in the branch that it took), ``dies in round 2`` (of a loop) or ``dies at the end`` (when it is
committed, and not learned from yet).
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ares import Loop, Plugin, Runtime, StepContext, Workflow
from ares.plugin import Capability, Context
from ares.plugins import ExperienceMemory, MemoryRouter, Rule
from ares.records import ExecutionOutcome, RouteAdvice, RouteState
from tests.plugins.routing import alone

WAYS = ("left", "right")


def crossing(name: str = "crossing", after: Callable[[str], Any] | None = None) -> Workflow:
    """A branch point whose output is an input; the branches named in ``bad`` fail."""
    wf = Workflow(name, inputs={"seen": object, "bad": object}, variables={"colour": "red"})
    wf.step(lambda seen: seen, id="choose", branches=WAYS)
    for way in WAYS:
        wf.step(_going(way, after), id=way, depends_on=["choose"], writes=["colour"])
    return wf


def _going(way: str, after: Callable[[str], Any] | None) -> Callable[[Any, Any], str]:
    def go(ctx: Any, bad: Any) -> str:
        ctx.set("colour", f"painted by {way}")
        if after is not None:
            after(way)
        if way in bad:
            raise ValueError(f"{way} is no way")
        return way

    return go


def given(seen: Any = "sunny", bad: Sequence[str] = ()) -> dict[str, Any]:
    return {"seen": seen, "bad": list(bad)}


def always(way: str = "right") -> MemoryRouter:
    """Follows a memory, else goes one way."""
    return MemoryRouter([Rule(lambda output, variables: True, way, reason="otherwise")])


def rounds(name: str, then: Callable[[int], Any] = lambda _round: None) -> Workflow:
    """Three rounds, whose branch point returns 1, 2 and 3; ``then`` is called behind it."""
    wf = Workflow(name, variables={"n": 1}, loop=Loop(3))

    @wf.step(branches=WAYS)
    def choose(n: int) -> int:
        return n

    @wf.step(writes="n", depends_on=[choose])
    def left(ctx: StepContext, n: int) -> None:
        then(ctx.round)
        ctx.set("n", n + 1)

    @wf.step(writes="n", depends_on=[choose])
    def right(ctx: StepContext, n: int) -> None:
        then(ctx.round)
        ctx.set("n", n + 1)

    return wf


def odd_ones() -> MemoryRouter:
    return MemoryRouter([Rule(lambda output, _: output % 2 == 1, "left"), Rule("True", "right")])


def of_rounds(path: Path) -> ExperienceMemory:
    return ExperienceMemory(path, evidence_min=1, about=lambda state: f"round{state.output}")


def at(
    seen: Any = "sunny", *, execution_id: str = "asked", round: int = 1, workflow_id: str = "crossing", **more: Any
) -> RouteState:
    """What a memory is asked about."""
    variables = more.pop("variables", {"colour": "red"})
    return RouteState(execution_id, workflow_id, "choose", "choose", round, seen, variables, WAYS, **more)


def advice_of(runtime: Runtime, state: RouteState) -> dict[str, float]:
    """What the memory of a Runtime says, as confidence by branch."""
    runtime.start()
    [ref] = runtime.bus.plugins_by_cap(Capability.MEMORY)
    said: Sequence[RouteAdvice] = ref.call("advise_route", state)
    return {each.next_step_id: each.confidence for each in said}


def running(memory: ExperienceMemory) -> ExperienceMemory:
    """Started without a bus."""
    memory.start(alone(), None)  # type: ignore[arg-type]
    return memory


def say(memory: ExperienceMemory, state: RouteState) -> dict[str, float]:
    """As ``advice_of``, of a memory without a bus."""
    return {each.next_step_id: each.confidence for each in memory.advise_route(alone(), state)}


# --- the program ---------------------------------------------------------------------------------------------------


class Deadly(Plugin):
    """Kills its process when an execution has ended, before the memory hears of it."""

    name = "deadly"
    runs_before = ("experience",)

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        die("")


def die(_way: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(store: str, memory: str, how: str, *ids: str) -> None:
    if how == "dies in round 2":
        with Runtime(Path(store), plugins=[of_rounds(Path(memory)), odd_ones()]) as runtime:
            runtime.run(rounds("crossing", lambda number: die("") if number == 2 else None), execution_id=ids[0])
    deadly = [Deadly()] if how == "dies at the end" else []
    wf = crossing(after=die if how == "dies" else None)
    with Runtime(
        Path(store),
        durability="best_effort" if how == "well" else "sync",
        plugins=[*deadly, ExperienceMemory(memory), always()],
    ) as runtime:
        for each in ids:
            result = runtime.run(wf, given(), execution_id=each).raise_for_status()
            assert result.warnings == (), result.warnings


if __name__ == "__main__":
    main(*sys.argv[1:])
