"""The built-in routers on one Runtime: who is asked when, in many executions at once, and in the child of a fork."""

from collections.abc import Callable
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime
from ares.plugins import EvolutionRouter, ExpressionRouter, FallbackRouter, MemoryRouter, Rule
from ares.records import RouteAdvice, RuntimeRecommendation
from tests.bus.players import LONG, Log, Named
from tests.engine.helpers import Child, events_of
from tests.plugins.routing import Evolution, Memory, crossing, routed

Make = Callable[..., Runtime]

WORDS = ("memory", "evolution", "rule", "nothing")


def everyone() -> list[Any]:
    """Each of the routers answers to one output of the branch point, and its peers to nothing else."""
    memory = Memory(lambda state: [RouteAdvice("left", 0.9)] if state.output == "memory" else [])

    def recommend(state: Any) -> Any:
        output = state.steps["choose"].output
        return RuntimeRecommendation("critic", confidence=0.9) if output == "evolution" else None

    return [
        memory,
        Evolution(recommend),
        MemoryRouter(),
        EvolutionRouter({"critic": "middle"}),
        ExpressionRouter([Rule("output == 'rule'", "right")]),
        FallbackRouter([ExpressionRouter([Rule("output == 'no such'", "left")], "last")]),
    ]


@pytest.mark.parametrize(
    ("word", "source", "taken", "abstained"),
    [
        ("memory", "memory", ["left"], []),
        ("evolution", "evolution", ["middle"], ["memory-router"]),
        ("rule", "expression", ["right"], ["memory-router", "evolution-router"]),
        (
            "nothing",
            "fallback",
            ["left", "middle", "right"],
            ["memory-router", "evolution-router", "expression"],
        ),
    ],
)
def test_the_first_of_the_routers_that_has_an_answer_decides(
    runtime: Make, store: str | None, word: str, source: str, taken: list[str], abstained: list[str]
) -> None:
    rt = runtime(store, plugins=everyone())

    result = rt.run(crossing(lambda: word), execution_id="e").raise_for_status()

    found = routed(events_of(rt, "e"))
    assert (found["source"], found["abstained"]) == (source, abstained)
    assert result.output("join") == taken
    assert result.warnings == ()


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_many_executions_at_once_are_each_routed_by_their_own_output(runtime: Make, steps_on: str) -> None:
    plugins = everyone()
    rt = runtime(plugins=plugins, max_workers=8, steps_on=steps_on)
    ways = {"memory": ["left"], "evolution": ["middle"], "rule": ["right"], "nothing": ["left", "middle", "right"]}
    workflows = {word: crossing(lambda word=word: word) for word in WORDS}

    runs = [(word, rt.submit(workflows[word])) for _ in range(10) for word in WORDS]

    for word, execution in runs:
        assert execution.result(LONG).output("join") == ways[word]
    assert all(health.errors == health.timeouts == 0 for health in rt.health().values())


def test_a_route_is_decided_once_however_often_an_execution_is_resumed(runtime: Make, store: str | None) -> None:
    broken = [True]
    asked = Log()

    def left() -> str:
        if broken:
            raise ValueError("not yet")
        return "left"

    wf = crossing().replace(left=left)
    rules = [Rule(lambda output, variables: asked.add(output) or True, "left")]
    rt = runtime(store, plugins=[ExpressionRouter(rules), Named("other")])
    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    broken.clear()

    rt.resume("e", wf).raise_for_status()

    assert asked.lines == ["here"]


def test_the_child_of_a_fork_routes_like_its_parent() -> None:
    program = """
        import os, sys
        from ares import Runtime
        from tests.plugins.routing import crossing
        from tests.plugins.test_routers_together import WORDS, everyone

        rt = Runtime(plugins=everyone())
        def go():
            return [rt.run(crossing(lambda word=word: word)).output("join") for word in WORDS]
        before = go()
        pid = os.fork()
        if pid == 0:
            ok = go() == before
            rt.close()
            os._exit(0 if ok else 1)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), before)
        rt.close()
    """
    with Child(program) as child:
        assert child.result() == "0 [['left'], ['middle'], ['right'], ['left', 'middle', 'right']]\n"
