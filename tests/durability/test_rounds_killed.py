"""Loops killed between any two facts, between rounds and within them, end as if nothing had happened."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import Loop, Runtime, StepContext, StepSpec, Workflow
from ares.walk.rounds import UNTIL
from tests.durability.nursery import Child, Nursery
from tests.durability.traces import Ran, counted
from tests.sampling import some

#: How many children live at once.
AT_ONCE = 6


class Scene:
    """One execution of ``loops``: its files, its first process, the one that goes on with it."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        folder.mkdir()
        self.nursery = nursery
        self.db = str(folder / "ares.db")
        self.effects = str(folder / "effects")

    def run(self, **options: Any) -> Child:
        return self.nursery.start("run", workflow="loops", db=self.db, inputs={"effects": self.effects}, **options)

    def resume(self) -> dict[str, Any]:
        outcome: dict[str, Any] = self.nursery.call("resume", workflow="loops", db=self.db)
        return outcome

    def done(self) -> Counter[tuple[str, str, int]]:
        """How often each instance, each ``once`` and each round is in the journal as done."""
        with Runtime(self.db) as rt:
            return Counter(
                (event.type, event.payload.get("path", ""), event.payload["round"])
                for event in rt.execution("e").events()
                if event.type in ("step.completed", "step.remembered", "round.completed", "round.started")
            )


def problem(scene: Scene, usual: dict[str, Any], once: Counter[str], everything: Counter[Any]) -> str:
    """What is wrong with an execution that was killed; nothing, it is hoped."""
    if not Path(scene.db).exists() or not Runtime(scene.db).executions():
        return ""  # killed before there was an execution: nothing was promised yet
    before, lines = scene.done(), counted(scene.effects)
    outcome = scene.resume()
    if outcome != usual:
        return f"{outcome} instead of {usual}"
    after = scene.done()
    if after != everything:
        return f"journaled as done: {after - everything}, missing {everything - after}"
    committed = {f"{path} {r}" for kind, path, r in before if kind == "step.completed"}
    now = counted(scene.effects)
    again = [line for line in now if now[line] > once[line] and line.removeprefix("inner ") in committed]
    if again or now.keys() != once.keys() or (now - once).total() > 3:
        return f"ran again: {now - once}, of which {again} were committed; before {lines}"
    with Runtime(scene.db) as rt:
        checkpoint = rt.checkpoint("e")
    if {name: repr(value) for name, value in checkpoint.variables.items()} != usual["variables"]:
        return f"the checkpoint has {checkpoint.variables}"
    return ""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("place", "workers", "is_everywhere"),
    [
        pytest.param("after", 2, False, id="at the facts about rounds"),
        pytest.param("after", 2, True, id="right after any commit", marks=pytest.mark.slow),
        pytest.param("before", 1, True, id="right before any commit", marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_boundary_of_a_loop_and_a_resume_change_nothing(
    nursery: Nursery, tmp_path: Path, place: str, workers: int, is_everywhere: bool
) -> None:
    whole = Scene(nursery, tmp_path / "whole")
    usual = whole.run(max_workers=workers).result()
    once, everything = counted(whole.effects), whole.done()
    with Runtime(whole.db) as rt:
        events = list(rt.execution("e").events())
    rounds = [e for e in events if e.type.startswith("round.") and e.payload.get("path") in (None, "inside#2")]
    places = [e.seq or 0 for e in (some(events[:-1], one_in=4) if is_everywhere else rounds)]
    failures: dict[int, str] = {}

    for first in range(0, len(places), AT_ONCE):
        scenes = {}
        for at in places[first : first + AT_ONCE]:
            scene = Scene(nursery, tmp_path / str(at))
            scenes[at] = scene, scene.run(at=at, before=place == "before", max_workers=workers)
        for at, (scene, child) in scenes.items():
            assert child.wait() == -9, child.errors()
            found = problem(scene, usual, once, everything)
            if found:
                failures[at] = found

    assert usual["variables"] == {"n": "3", "log": "['begin 1', 'begin 2', 'begin 3']", "total": "12"}
    assert {path for _, path, _ in everything if "#" in path} == {
        "inside#2",
        "inside#2/inner",
        "inside#3",
        "inside#3/inner",
    }
    assert "\n".join(f"killed at {at}: {what}" for at, what in failures.items()) == ""


def test_a_long_loop_goes_on_where_it_was_with_what_its_variables_came_to(
    again: Callable[..., Runtime], ran: Ran, broken: set[str]
) -> None:
    wf = Workflow("w", variables={"n": 0, "total": 0}, reducers={"total": "add"}, loop=Loop(until=lambda n: n == 400))

    @wf.step(writes=("n", "total"))
    def add(ctx: StepContext, n: int) -> int:
        if n == 300 and broken:
            raise ValueError("broken")
        ran.append(str(ctx.round))
        ctx.set("n", n + 1)
        ctx.set("total", n)
        return n

    broken.add("add")
    rt = again(durability="async")
    assert rt.run(wf, execution_id="e").status == "FAILED"
    broken.clear()
    ran.since()

    result = again().resume("e", wf).raise_for_status()

    assert ran == [str(n) for n in range(301, 401)]
    assert result.variables == {"n": 400, "total": sum(range(400))}
    assert again(workflows=[wf]).execution("e").result().variables == result.variables
    assert again().checkpoint("e").variables == result.variables


def test_once_in_until_is_committed_and_kept_for_the_round(again: Callable[..., Runtime], ran: Ran) -> None:
    def until(ctx: StepContext) -> bool:
        ctx.once("ask", lambda: ran.append(f"asked {ctx.round}"))
        if ctx.round == 2 and ran.count("raised") == 0:
            ran.append("raised")
            raise ValueError("after it")
        return ctx.round == 3

    wf = Workflow("w", loop=Loop(until=until))
    wf.step(lambda: 1, id="step")
    rt = again()
    assert rt.run(wf, execution_id="e").status == "FAILED"

    again().resume("e", wf).raise_for_status()

    assert ran == ["asked 1", "asked 2", "raised", "asked 3"]
    remembered = [e.payload["path"] for e in again().execution("e").events() if e.type == "step.remembered"]
    assert remembered == [UNTIL] * 3


def changing(loop: Loop | None, broken: set[str], *, has_more: bool) -> Workflow:
    child = Workflow("child", loop=Loop(2))
    child.step(lambda ctx: ctx.round, id="x")
    wf = Workflow("w", variables={"log": []}, reducers={"log": "append"}, loop=loop)
    wf.add(StepSpec("inside", workflow=child))

    @wf.step(writes="log", depends_on=["inside"])
    def step(ctx: StepContext) -> int:
        if ctx.round == 3 and broken:
            raise ValueError("broken")
        ctx.set("log", ctx.round)
        return ctx.round

    if has_more:
        child.step(lambda x: x * 10, id="y")
        wf.step(lambda step: step * 10, id="more")
    return wf


@pytest.mark.parametrize(("loop", "rounds"), [(Loop(4), 4), (None, 3)])
def test_another_definition_goes_on_in_the_round_that_the_execution_is_in(
    again: Callable[..., Runtime], broken: set[str], loop: Loop | None, rounds: int
) -> None:
    broken.add("step")
    assert again().run(changing(Loop(9), broken, has_more=False), execution_id="e").status == "FAILED"
    broken.clear()
    wf = changing(loop, broken, has_more=True)
    rt = again()

    result = rt.resume("e", wf, accept_changes=True).raise_for_status()

    assert result.variables == {"log": list(range(1, rounds + 1))}
    assert (result.outputs["step"], result.outputs["more"]) == (rounds, rounds * 10)
    states = rt.checkpoint("e").step_states
    assert {path: (s.round, s.status) for path, s in states.items()} == {
        path: (s.round, s.status) for path, s in result.steps.items()
    }
    assert rt.execution("e").result().outputs == result.outputs
