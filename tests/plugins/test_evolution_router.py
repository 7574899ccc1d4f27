"""The evolution router: the agent that is preferred becomes a step, and rules decide where none is."""

from collections.abc import Callable
from typing import Any

import pytest

from ares import Runtime, Workflow
from ares.bus import PluginBus
from ares.errors import UsageError
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import AgentStepResolver, EvolutionRouter, Rule
from ares.records import ExecutionState, RouteState, RuntimeRecommendation, StepResult, StepStatus
from tests.bus.players import Gate
from tests.engine.helpers import events_of
from tests.plugins.routing import (
    Evolution,
    Forwarding,
    Heard,
    Transparent,
    Wrapped,
    at,
    crossing,
    decision_of,
    prefers,
    routed,
)

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]

AGENTS = {"critic": "left", "author": "middle", "stranger": "elsewhere"}
OTHERWISE = Rule("True", "right", reason="otherwise")


def raises(_state: ExecutionState) -> None:
    raise ValueError("no idea")


# --- whose step is taken -------------------------------------------------------------------------------------------


def test_the_step_of_the_preferred_agent_is_taken_and_the_journal_says_why(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[Evolution(prefers("critic", 0.62)), EvolutionRouter(AGENTS, [OTHERWISE])])

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["left"]
    found = routed(events_of(rt, "e"))
    assert (found["targets"], found["source"]) == (["left"], "evolution")
    assert found["reason"] == "'strategy' prefers agent 'critic', 0.62 sure"
    assert found["scores"] == {"left": 0.62, "middle": 0.0, "right": 0.0}


def test_a_resolver_is_shown_the_agent_and_the_branch_point(new_bus: NewBus) -> None:
    seen: list[tuple[str, RouteState]] = []

    class Resolver:
        def resolve(self, agent: str, state: RouteState) -> str | None:
            seen.append((agent, state))
            return state.candidates[1]

    resolver = Resolver()
    assert isinstance(resolver, AgentStepResolver)
    bus = new_bus(Evolution(prefers("critic")), EvolutionRouter(resolver))

    assert decision_of(bus, at("here")).targets == ("middle",)
    assert seen == [("critic", at("here"))]


def test_of_several_the_surest_is_followed_whose_agent_has_a_step(new_bus: NewBus) -> None:
    plugins = [
        Evolution(prefers("author", 0.5), "a"),
        Evolution(prefers("stranger", 0.9), "b"),
        Evolution(prefers("critic", 0.7), "c"),
        Evolution(prefers("nobody", 0.8), "d"),
    ]
    bus = new_bus(*plugins, EvolutionRouter(AGENTS))
    heard = Heard(bus, "router.agent_unresolved")

    decision = decision_of(bus, at())

    assert (decision.targets, decision.scores) == (("left",), {"left": 0.7, "middle": 0.5})
    assert [(told["agent"], told["problem"]) for _, told in heard()] == [
        ("stranger", "'elsewhere' stands for it; there are 'left', 'middle', 'right'"),
        ("nobody", "no step stands for it; there are 'left', 'middle', 'right'"),
    ]


@pytest.mark.parametrize(("sure", "target"), [(0.3, "left"), (0.29, "right"), (1, "left"), (0, "right")])
def test_a_recommendation_must_be_sure_enough_else_rules_decide(new_bus: NewBus, sure: float, target: str) -> None:
    bus = new_bus(Evolution(prefers("critic", sure)), EvolutionRouter(AGENTS, [OTHERWISE]))

    assert decision_of(bus, at()).targets == (target,)


@pytest.mark.parametrize("say", [lambda state: None, prefers(""), prefers("nobody"), prefers("stranger")])
def test_without_a_preference_that_has_a_step_rules_decide(new_bus: NewBus, say: Any) -> None:
    bus = new_bus(Evolution(say), EvolutionRouter(AGENTS, [OTHERWISE]))

    decision = decision_of(bus, at())

    assert (decision.targets, decision.source, decision.reason) == (("right",), "expression", "otherwise")


def test_without_recommendations_and_rules_there_is_no_answer(new_bus: NewBus) -> None:
    assert new_bus(EvolutionRouter(AGENTS)).route("e", at()) == (None, ("evolution-router",))


# --- what an evolution plugin is asked about -------------------------------------------------------------------------


def test_evolution_is_asked_about_the_execution_as_far_as_a_router_is_shown_it(
    runtime: Make, store: str | None
) -> None:
    wf = Workflow("twice", variables={"colour": "red"})
    wf.step(lambda: "one", id="first", branches=("left", "other"))
    wf.step(lambda first: 1, id="left")
    wf.step(lambda first: 1, id="other")
    wf.step(lambda left, other: "two", id="second", branches=("middle", "last"))
    wf.step(lambda second: 1, id="middle")
    wf.step(lambda second: 1, id="last")
    agents = iter(["critic", "author"])
    evolution = Evolution(lambda state: RuntimeRecommendation(next(agents), confidence=0.9))
    rt = runtime(store, plugins=[evolution, EvolutionRouter(AGENTS)])

    rt.run(wf, execution_id="e").raise_for_status()

    first, second = evolution.states
    assert (first.execution_id, first.workflow_id, first.step_id, first.round) == ("e", "twice", "first", 1)
    assert dict(first.variables) == {"colour": "red"}
    assert first.steps == {
        "first": StepResult("first", "first", "first", None, 1, "first", StepStatus.COMPLETED, output="one")
    }
    assert [route.targets for route in second.routes] == [("left",)]
    assert second.scoring_signals == ()


# --- who is broken ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (raises, "PluginError: plugin 'bad': recommend raised ValueError: no idea"),
        (lambda state: "critic", "TypeError: recommend must return a RuntimeRecommendation or None, not a str"),
        (prefers("critic", 7), "ValueError: the confidence of a recommendation must be from 0 to 1, not 7"),
        (prefers("critic", float("nan")), "ValueError: the confidence of a recommendation must be from 0 to 1"),
        (prefers("critic", "sure"), "TypeError: "),  # type: ignore[arg-type]
    ],
)
def test_evolution_without_a_proper_answer_is_passed_over_and_told(new_bus: NewBus, say: Any, problem: str) -> None:
    bus = new_bus(Evolution(say, "bad"), Evolution(prefers("author", 0.5), "good"), EvolutionRouter(AGENTS))
    heard = Heard(bus, "router.peer_failed")

    assert decision_of(bus, at()).targets == ("middle",)

    [(stream, told)] = heard()
    assert (stream, told["path"], told["plugin"]) == ("e", "choose", "bad")
    assert told["problem"].startswith(problem)


def test_evolution_that_hangs_leaves_the_decision_to_the_rules(new_bus: NewBus, gate: Gate) -> None:
    hung = Evolution(gate.pass_through, "hung", timeout=0.1)
    bus = new_bus(hung, EvolutionRouter(AGENTS, [OTHERWISE], timeout=1.0))

    decisions = [decision_of(bus, at()) for _ in range(5)]

    assert {decision.targets for decision in decisions} == {("right",)}
    assert len(hung.states) == 1
    assert bus.health()["evolution-router"].timeouts == 0


def test_a_resolver_that_raises_is_told_and_rules_decide(new_bus: NewBus) -> None:
    class Broken:
        def resolve(self, agent: str, state: RouteState) -> str | None:
            raise LookupError("no table")

    bus = new_bus(Evolution(prefers("critic")), EvolutionRouter(Broken(), [OTHERWISE]))
    heard = Heard(bus, "router.agent_unresolved")

    assert decision_of(bus, at()).targets == ("right",)
    assert heard() == [("e", {"path": "choose", "agent": "critic", "problem": "LookupError: no table"})]


@pytest.mark.parametrize("resolver", [None, "left", ["critic"], AgentStepResolver, lambda agent, state: "left"])
def test_a_resolver_that_is_none_is_refused(resolver: Any) -> None:
    with pytest.raises(UsageError, match="the resolver of router 'evolution-router' must have resolve"):
        EvolutionRouter(resolver)


def test_a_least_confidence_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="confidence_min of router 'mine' must be a number from 0 to 1, not 2"):
        EvolutionRouter(AGENTS, confidence_min=2, name="mine")


# --- its life --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", [Forwarding, Transparent])
def test_on_a_bus_in_a_wrapper_it_finds_its_peers(new_bus: NewBus, wrapper: Any) -> None:
    bus = new_bus(Evolution(prefers("critic")), Wrapped(EvolutionRouter(AGENTS), wrapper))

    assert decision_of(bus, at()).source == "evolution"


def test_it_is_a_router_without_hooks(new_bus: NewBus) -> None:
    bus = new_bus(EvolutionRouter(AGENTS))

    assert [ref.name for ref in bus.plugins_by_cap(Capability.ROUTER)] == ["evolution-router"]
    assert bus.stages == Stages(has_routers=True)


def test_the_table_of_agents_is_as_it_was_when_the_router_was_made(new_bus: NewBus) -> None:
    agents = {"critic": "left"}
    bus = new_bus(Evolution(prefers("critic")), EvolutionRouter(agents, [OTHERWISE]))
    agents.clear()

    assert decision_of(bus, at()).targets == ("left",)
