"""Decides at branch points by the agent that evolution plugins prefer; where they prefer none, by rules.

An evolution plugin knows agents, and a branch point has steps. What stands between them is the application's: an
``AgentStepResolver``, or a mapping of agents to steps.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

import attrs

from ares.errors import UsageError
from ares.plugin import Capability, Context
from ares.plugins._peers import PEER_FAILED, answers, ask, until
from ares.plugins._rules import Rule, RuledRouter, confidence, words
from ares.records import (
    ExecutionState,
    RouteDecision,
    RouteState,
    RuntimeRecommendation,
    StepResult,
    StepStatus,
)

#: What is told of an agent for which no step was found.
AGENT_UNRESOLVED: Final = "router.agent_unresolved"


@runtime_checkable
class AgentStepResolver(Protocol):
    """Knows which step stands for an agent at a branch point."""

    def resolve(self, agent: str, state: RouteState) -> str | None:
        """One of ``state.candidates``; None if none of them stands for the agent. Called in the plugin's thread."""


class EvolutionRouter(RuledRouter):
    """Asks the plugins with the capability ``evolution`` (``recommend``), and takes the step of the preferred agent.

    They are asked about an ``ExecutionState`` that holds what a router is shown: its ``steps`` are the branch point
    alone, with its output, and it has no scoring signals. Of the recommendations that are at least as sure as
    ``confidence_min`` and prefer an agent, the surest whose agent has a step among the branches is followed. Its
    decisions have the source ``evolution``, and as scores how sure the recommendation for each branch was.

    A plugin that fails, hangs or answers what is no recommendation is passed over, and told by an event
    ``router.peer_failed`` (``path``, ``plugin``, ``problem``); an agent that stands for no branch, or a resolver that
    raises, by ``router.agent_unresolved`` (``path``, ``agent``, ``problem``).

    Args:
        resolver: Has ``resolve(agent, state)``, or is a mapping of agents to step ids.
        rules: Are tried when there is no recommendation to follow, as in an ``ExpressionRouter``.
        confidence_min: How sure a recommendation must be, from 0 to 1.
        name: Of the plugin.
        timeout: Seconds that one decision may take; None for the bus's own. Evolution plugins get 0.8 of it.

    Raises:
        UsageError: ``resolver`` is neither, one of ``rules`` is no ``Rule``, or ``confidence_min`` no number from 0
            to 1.
    """

    def __init__(
        self,
        resolver: AgentStepResolver | Mapping[str, str],
        rules: Iterable[Rule] = (),
        confidence_min: float = 0.3,
        name: str = "evolution-router",
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, rules, timeout)
        self.confidence_min = confidence(confidence_min, name)
        if isinstance(resolver, Mapping):
            self._resolver: AgentStepResolver = _Table(dict(resolver))
        elif isinstance(resolver, type) or not callable(getattr(resolver, "resolve", None)):
            raise UsageError(
                f"the resolver of router {name!r} must have resolve(agent, state) or be a mapping of agents to steps, "
                f"not {resolver!r}"
            )
        else:
            self._resolver = resolver

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        """The step of the agent that is preferred, or the first rule that holds; None if there is neither."""
        found = sorted(self._recommendations(ctx, state), key=lambda each: -each[1].confidence)
        scores: dict[str, float] = {}
        decisive: tuple[str, str, RuntimeRecommendation] | None = None
        for plugin, recommended in found:
            target = self._target(recommended.preferred_agent, state)
            if target is None:
                continue
            scores.setdefault(target, float(recommended.confidence))
            decisive = decisive or (target, plugin, recommended)
        if decisive is None:
            return self.by_rules(state)
        target, plugin, recommended = decisive
        agent, sure = recommended.preferred_agent, recommended.confidence
        return RouteDecision((target,), f"{plugin!r} prefers agent {agent!r}, {sure:.2f} sure", "evolution", scores)

    def _recommendations(self, ctx: Context, state: RouteState) -> list[tuple[str, RuntimeRecommendation]]:
        """Those that are sure enough and prefer an agent, by plugin."""

        def complain(plugin: str, error: Exception) -> None:
            self.tell(state, PEER_FAILED, plugin=plugin, problem=words(error))

        asked = ask(self._bus, Capability.EVOLUTION, "recommend", execution_state(state))
        found = []
        for plugin, said in answers(asked, until(ctx), complain):
            try:
                if said is not None and _is_sure(said, self.confidence_min):
                    found.append((plugin, said))
            except Exception as error:
                complain(plugin, error)
        return found

    def _target(self, agent: str, state: RouteState) -> str | None:
        """The branch that stands for an agent."""
        try:
            target = self._resolver.resolve(agent, state)
        except Exception as error:
            self.tell(state, AGENT_UNRESOLVED, agent=agent, problem=words(error))
            return None
        if target in state.candidates:
            return target
        problem = "no step stands for it" if target is None else f"{target!r} stands for it"
        choice = ", ".join(map(repr, state.candidates))
        self.tell(state, AGENT_UNRESOLVED, agent=agent, problem=f"{problem}; there are {choice}")
        return None


@attrs.frozen
class _Table:
    """A mapping as a resolver."""

    steps: Mapping[str, str]

    def resolve(self, agent: str, state: RouteState) -> str | None:  # noqa: ARG002 - a contract's word
        return self.steps.get(agent)


def execution_state(state: RouteState) -> ExecutionState:
    """What a router is shown, as those see it who are asked about executions."""
    step = StepResult(
        step_id=state.step_id,
        path=state.path,
        base_id=state.step_id,
        index=None,
        round=state.round,
        name=state.step_id,
        status=StepStatus.COMPLETED,
        output=state.output,
    )
    return ExecutionState(
        state.execution_id,
        state.workflow_id,
        state.step_id,
        state.round,
        state.variables,
        {state.path: step},
        state.routes,
        state.tools,
        state.memory_hits,
    )


def _is_sure(said: object, least: float) -> bool:
    if not isinstance(said, RuntimeRecommendation):
        raise TypeError(f"recommend must return a RuntimeRecommendation or None, not a {type(said).__name__}")
    if not 0 <= said.confidence <= 1:
        raise ValueError(f"the confidence of a recommendation must be from 0 to 1, not {said.confidence!r}")
    return bool(said.preferred_agent) and said.confidence >= least
