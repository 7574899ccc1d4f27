"""Recommends agents, and learns from how executions went which of them does well.

At a branch point each execution is a trial: it is run with an agent, and parameters for it, that are likely to be the
best by what is known so far. What came of it is known when it, or a round of it, ends. How agents are drawn, and what a
run is worth, stands in ``_bandit``; how it is kept by Optuna, in a file, in ``_study``.

*Which outcome belongs to which recommendation.* What was recommended is held for one execution, round and step, and is
the same however often it is asked for. An outcome of a round (``record_outcome``, as a ``LoopPlugin`` calls it) counts
for what was recommended in that round of that workflow. The outcome of the execution (``after_execution``) counts for
what was recommended last, at steps of which no round was told; then the execution is forgotten. So each outcome is
counted once for a step, whoever tells of it. It does not count at all if the journal says that somebody else decided at
the step, if the execution was cancelled, or if it ends in another process than it asked in.
"""

import importlib.util
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from ares.errors import AresError, UsageError
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.plugins._bandit import Run, Weights
from ares.plugins._choices import Agents, Proposal, Range, Setting, Value, checked_agents
from ares.plugins._objectives import AgentStanding, Objectives, is_number, standings
from ares.records import ExecutionOutcome, ExecutionState, ExecutionStatus, RuntimeRecommendation

if TYPE_CHECKING:
    from ares.plugins._study import Studies

__all__ = ["AgentStanding", "Objectives", "Range", "StrategyCounts", "StrategyEvolution", "Weights"]

#: Executions of which it is held what was recommended. The oldest is forgotten first; its outcome will not count.
_HELD: Final = 10_000
#: How sure a recommendation is at least. It is the least that an ``EvolutionRouter`` follows by default, because what
#: nobody tries nobody learns of.
_SURE: Final = 0.3

#: Steps of an execution, in all rounds, up to which its journal is read for who decided. Of 10,000 that takes 0.15 s.
_READ: Final = 10_000

#: What an outcome comes to after which the execution may go on.
_OPEN: Final = frozenset({ExecutionStatus.PENDING, ExecutionStatus.WAITING, ExecutionStatus.INTERRUPTED})

#: A workflow and a step.
_Place = tuple[str, str]


@attrs.frozen
class StrategyCounts:
    """What became of recommendations, since the plugin was made.

    Attributes:
        proposed: Recommendations that were worked out.
        cached: Those that were given again, to another execution.
        learnt: Outcomes that counted.
        overruled: Outcomes that did not, because somebody else had decided at the step.
        unjudged: Those that did not because they say nothing of the agent, as of a cancelled execution.
        forgotten: Executions that were held for so long that others took their place.
        failed: Outcomes that were lost to this process or to the file, each with an error.
    """

    proposed: int = 0
    cached: int = 0
    learnt: int = 0
    overruled: int = 0
    unjudged: int = 0
    forgotten: int = 0
    failed: int = 0


@attrs.define(eq=False)
class _Held:
    """What was recommended in an execution, by step and round, and the steps of which a round was told."""

    asked: dict[tuple[_Place, int], Proposal] = attrs.field(factory=dict)
    told: set[_Place] = attrs.field(factory=set)


class StrategyEvolution(Plugin):
    """Recommends one of several agents, with parameters, and learns from outcomes. Capability ``evolution``.

    It needs Optuna: ``pip install 'ares-workflow[evolution]'``. Its recommendations hold:

    - ``preferred_agent``: the agent to run;
    - ``mutation_hint``: its parameters, a JSON object as text; ``parameters_of`` gives them as they are;
    - ``router_weight``: how likely the agent is to be the best of all, by what was learnt, from 0 to 1;
    - ``confidence``: the same, on a scale that begins at 0.3: ``0.3 + 0.7 * router_weight``. An ``EvolutionRouter``
      follows from 0.3 on, so it also follows where something is tried out. One with a higher ``confidence_min`` leaves
      to its rules what is not yet known so well.

    Args:
        path: Of the file that is learnt into, which several processes can share; it is made if it is not there.
        agents: Their names; or a mapping of each to its parameters, by name: a tuple of the lowest and the highest
            number (both whole numbers, or a range of floats), or a list of choices.
        steps: The ids of the steps that it speaks of; all for none.
        objectives: What is learnt from an outcome.
        ttl: Seconds for which a recommendation at a step is given to other executions as well, unless something was
            learnt there in between; 0 to work out a new one each time.
        window: The runs of a step that count, the newest; with it, agents may change.
        seed: Of what is drawn, for tests; None for another one each time.
        name: Of the plugin.

    Raises:
        UsageError: Optuna is not installed, or one of the arguments cannot be.
    """

    capabilities = frozenset({Capability.EVOLUTION})

    def __init__(
        self,
        path: str | os.PathLike[str],
        agents: Iterable[str] | Agents,
        *,
        steps: Iterable[str] = (),
        objectives: Objectives | None = None,
        ttl: float = 1.0,
        window: int = 300,
        seed: int | None = None,
        name: str = "strategy",
    ) -> None:
        if importlib.util.find_spec("optuna") is None:
            raise UsageError(
                f"plugin {name!r} needs optuna, which is not installed: pip install 'ares-workflow[evolution]'"
            )
        spoken: tuple[object, ...] = (None,) if isinstance(steps, str) else tuple(steps)
        if not all(isinstance(step, str) for step in spoken):
            raise UsageError(f"plugin {name!r}: steps must be a list of step ids, not {steps!r}")
        if not is_number(ttl) or ttl < 0:
            raise UsageError(f"plugin {name!r}: ttl must be a number of seconds from 0 on, not {ttl!r}")
        if not is_number(window) or window != int(window) or window < 1:
            raise UsageError(f"plugin {name!r}: window must be a number of runs from 1 on, not {window!r}")
        if objectives is not None and not isinstance(objectives, Objectives):
            raise UsageError(f"plugin {name!r}: objectives must be Objectives, not {objectives!r}")
        self.name = name
        self.path = os.path.abspath(path)  # noqa: PTH100 - a text, wherever the process goes
        self.ttl = float(ttl)
        self._steps = frozenset(spoken)
        self._objectives = objectives or Objectives()
        self._setting = Setting(checked_agents(agents, name), self._objectives.weights, int(window), seed)
        self._pid = os.getpid()
        self._studies: Studies | None = None
        #: What was recommended last at a step, and when, in seconds of the monotonic clock.
        self._cache: dict[_Place, tuple[Proposal, float]] = {}
        #: Guards what other threads read.
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._known: dict[_Place, tuple[Run, ...]] = {}
        self._counts = StrategyCounts()

    @property
    def counts(self) -> StrategyCounts:
        """What became of recommendations. Any thread."""
        return self._counts

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Read what was learnt. The child of a fork reads it anew, and holds nothing of its parent's executions.

        Raises:
            UsageError: the file cannot be written, or is no study file; it is named.
        """
        from ares.plugins._study import Studies

        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            self._held, self._known = {}, {}
        self._cache = {}
        self._studies = Studies(self.path, self._setting)

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Let go of the file. All that was learnt is in it."""
        self._studies = None
        self._cache = {}

    # --- what it says -------------------------------------------------------------------------------------------------

    def recommend(self, ctx: Context, state: ExecutionState) -> RuntimeRecommendation | None:  # noqa: ARG002
        """The agent to run at a step, with its parameters; None at a step that it does not speak of."""
        if self._studies is None or not state.step_id or (self._steps and state.step_id not in self._steps):
            return None
        place = (state.workflow_id, state.step_id)
        proposal = self._proposed(state.execution_id, place, state.round)
        return RuntimeRecommendation(
            proposal.agent,
            proposal.chance,
            json.dumps(dict(proposal.parameters), sort_keys=True),
            _SURE + (1 - _SURE) * proposal.chance,
        )

    def parameters_of(self, execution_id: str, step_id: str) -> Mapping[str, Value]:
        """The parameters that were recommended last in an execution for a step; none if nothing was, or it has ended.
        Any thread, so also in the body of the agent's step."""
        with self._lock:
            held = self._held.get(execution_id)
            found = [] if held is None else [key for key in held.asked if key[0][1] == step_id]
            if held is None or not found:
                return {}
            return dict(held.asked[max(found, key=lambda key: key[1])].parameters)

    def standings(self, workflow_id: str, step_id: str) -> tuple[AgentStanding, ...]:
        """What is known of each agent at a step, the best first; nothing if nobody asked about the step here. Any
        thread."""
        with self._lock:
            runs = self._known.get((workflow_id, step_id))
        if runs is None:
            return ()
        return standings(list(self._setting.agents), runs, self._setting.weights)

    # --- what it learns -----------------------------------------------------------------------------------------------

    def record_outcome(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """Learn from a round of a workflow: ``outcome.round``, of ``outcome.workflow_id``.

        Raises:
            ValueError: what ``Objectives`` were given says of it is no proper number.
            UsageError, OSError, TimeoutError: the file cannot be written; the plugin knows it all the same.
        """
        with self._lock:
            held = self._held.get(outcome.execution_id)
            if held is None:
                return
            # Of a sub-workflow that loops, rounds are told of as well.
            its = [key for key in held.asked if (key[0][0], key[1]) == (outcome.workflow_id, outcome.round)]
            ended = {key: held.asked.pop(key) for key in its}
            held.told.update(place for place, _ in its)
        self._learn(ctx, outcome, {place: proposal for (place, _), proposal in ended.items()})

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """Learn from an execution what was not told of its rounds.

        Raises:
            ValueError, UsageError, OSError, TimeoutError: as ``record_outcome``.
        """
        if outcome.status in _OPEN:
            return
        with self._lock:
            held = self._held.pop(outcome.execution_id, None)
        if held is None:
            return
        last: dict[_Place, Proposal] = {}
        for (place, _), proposal in sorted(held.asked.items(), key=lambda each: each[0][1]):
            if (earlier := last.pop(place, None)) is not None:
                self._drop(earlier)
            if place in held.told:
                self._drop(proposal)
            else:
                last[place] = proposal
        self._learn(ctx, outcome, last)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _proposed(self, execution_id: str, place: _Place, round: int) -> Proposal:
        """What an execution was, or is, told in a round at a step."""
        with self._lock:
            held = self._held.setdefault(execution_id, _Held())
            known = held.asked.get((place, round))
            oldest = self._held.pop(next(iter(self._held))) if len(self._held) > _HELD else None
        if oldest is not None:
            self._count(forgotten=1)
            for each in oldest.asked.values():
                self._drop(each)
        if known is not None:
            return known
        proposal = self._cached(place)
        with self._lock:
            held.asked[place, round] = proposal
        return proposal

    def _cached(self, place: _Place) -> Proposal:
        assert self._studies is not None
        proposal, since = self._cache.get(place, (None, 0.0))
        if proposal is not None and time.monotonic() - since < self.ttl:
            self._count(cached=1)
            return proposal
        proposal = self._studies.ask(_name(place))
        self._cache[place] = (proposal, time.monotonic())
        self._count(proposed=1)
        self._show(place)
        return proposal

    def _show(self, place: _Place) -> None:
        """Let other threads see what is known of a step."""
        assert self._studies is not None
        runs = self._studies.runs(_name(place))
        with self._lock:
            self._known[place] = runs

    def _drop(self, proposal: Proposal) -> None:
        if self._studies is not None:
            self._studies.drop(proposal)

    def _learn(self, ctx: Context, outcome: ExecutionOutcome, proposals: Mapping[_Place, Proposal]) -> None:
        if not proposals or self._studies is None:
            return
        decided = _decided(ctx, outcome)
        errors = []
        for place, proposal in proposals.items():
            if decided.get(place[1], Capability.EVOLUTION) != Capability.EVOLUTION:
                self._count(overruled=1)
                self._drop(proposal)
                continue
            try:
                self._tell(place, proposal, outcome)
            except Exception as error:  # of one step; the others are to be told as well
                self._count(failed=1)
                errors.append(error)
        if errors:
            raise errors[0]

    def _tell(self, place: _Place, proposal: Proposal, outcome: ExecutionOutcome) -> None:
        assert self._studies is not None
        try:
            run = self._objectives.run(proposal.agent, outcome)
        except BaseException:
            self._drop(proposal)
            raise
        if run is None:
            self._count(unjudged=1)
            self._drop(proposal)
            return
        self._cache.pop(place, None)
        try:
            about: dict[str, Value] = {"execution": outcome.execution_id, "round": outcome.round}
            self._studies.tell(_name(place), proposal, run, about)
            self._count(learnt=1)
        finally:
            self._show(place)

    def _count(self, **more: int) -> None:
        # One thread writes; others read what is replaced, never changed.
        now = self._counts
        self._counts = attrs.evolve(now, **{name: getattr(now, name) + count for name, count in more.items()})


def _decided(ctx: Context, outcome: ExecutionOutcome) -> Mapping[str, str]:
    """By whom routes were decided, by the id of the step. Where it is not known, a recommendation is taken to have been
    followed."""
    if outcome.total_steps * outcome.round > _READ:  # the steps are those of a round, the journal has them all
        return {}
    try:
        routes = ctx.journal.snapshot(outcome.execution_id).route_history
    except AresError:
        return {}  # nobody keeps a journal here, or it cannot be read
    return {route.step_id: route.source for route in routes}


def _name(place: _Place) -> str:
    # No step id holds a slash.
    return "/".join(place)
