"""What plugins of the other capabilities must do besides what every plugin must."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from ares.bus.health import PluginState
from ares.plugin import Capability
from ares.records import (
    ExecutionState,
    RouteAdvice,
    RouteState,
    RuntimeRecommendation,
    ScoringSignal,
    StepFailure,
)
from ares.testing.contracts._plugin import PluginContract
from ares.testing.contracts._stage import ENDS, PATHS, VALUES, Stage, Unspeakable, at_once
from ares.testing.samples import (
    make_execution_state,
    make_failure,
    make_outcome,
    make_route_state,
    make_step_result,
)


def _is_confidence(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _states() -> list[ExecutionState]:
    """Executions in all sorts of states."""
    results = {"fetch": make_step_result("fetch", output=[1]), "each[3]": make_step_result("each[3]")}
    return [
        make_execution_state(),
        make_execution_state(step_id="step", round=1_000, variables={"n": 1}, steps=results),
        make_execution_state(scoring_signals=(ScoringSignal("judge", 0.5, "good"),)),
        *(make_execution_state(workflow_id=f"w{n}", variables={"value": value}) for n, value in enumerate(VALUES)),
    ]


class MemoryContract(PluginContract):
    """As ``PluginContract``. A fixture ``route_states`` may add branch points that the memory knows something of."""

    capability: ClassVar[Capability | None] = Capability.MEMORY

    @pytest.fixture
    def route_states(self) -> Sequence[RouteState]:
        """Branch points that are put to the memory beside those that are put to every memory."""
        return ()

    @pytest.fixture
    def all_states(self, route_states: Sequence[RouteState]) -> list[RouteState]:
        """All branch points that are put to it."""
        return [
            *route_states,
            make_route_state("choose", variables={"colour": "red"}, candidates=tuple(f"way {n}" for n in range(200))),
            *(make_route_state(path) for path in PATHS),
            *(make_route_state("choose", output=value, variables={"value": value}) for value in VALUES),
        ]

    def check(self, advice: object, state: RouteState) -> None:
        """Fail if an answer is no advice."""
        assert isinstance(advice, Sequence), f"advise_route() must return a sequence, not {advice!r}, for {state}"
        for each in advice:
            assert isinstance(each, RouteAdvice), f"{each!r} is no RouteAdvice, for {state}"
            assert isinstance(each.next_step_id, str), f"{each!r} names no step, for {state}"
            assert _is_confidence(each.confidence), f"{each!r} must be from 0 to 1 sure, for {state}"
            assert isinstance(each.reason, str), f"{each!r} gives no text as its reason, for {state}"

    def test_it_gives_advice_that_is_advice(self, stage: Stage, all_states: list[RouteState]) -> None:
        ref = stage.ref(Capability.MEMORY)
        for state in all_states:
            self.check(ref.call("advise_route", state), state)

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_may_be_asked_while_the_step_still_runs(self, stage: Stage) -> None:
        """Such a question has no output, no variables and no candidates."""
        early = make_route_state("choose", candidates=())

        self.check(stage.ref(Capability.MEMORY).call("advise_route", early), early)

    def test_it_may_be_asked_again_after_whatever_came_of_it(self, stage: Stage, all_states: list[RouteState]) -> None:
        ref = stage.ref(Capability.MEMORY)
        for status in ENDS:
            stage.bus.before_execution(make_execution_state())
            ref.call("advise_route", all_states[0])
            stage.bus.after_execution(make_outcome(status))
            self.check(ref.call("advise_route", all_states[0]), all_states[0])

        stage.check_unhurt(PluginState.RUNNING)

    def test_many_may_ask_at_once(self, stage: Stage, all_states: list[RouteState]) -> None:
        ref = stage.ref(Capability.MEMORY)

        def ask(number: int) -> None:
            for each in range(5):
                state = all_states[(number + each) % len(all_states)]
                self.check(ref.call("advise_route", state), state)

        at_once(8, ask)

        stage.check_unhurt(PluginState.RUNNING)


class EvolutionContract(PluginContract):
    """As ``PluginContract``."""

    capability: ClassVar[Capability | None] = Capability.EVOLUTION

    def check(self, recommendation: object) -> None:
        """Fail if an answer is no recommendation."""
        if recommendation is None:
            return
        assert isinstance(recommendation, RuntimeRecommendation), f"{recommendation!r} is no RuntimeRecommendation"
        assert isinstance(recommendation.preferred_agent, str), f"{recommendation!r} names no agent"
        assert isinstance(recommendation.mutation_hint, str), f"{recommendation!r} has a hint that is no text"
        assert isinstance(recommendation.router_weight, int | float), f"{recommendation!r} has a weight that is none"
        assert _is_confidence(recommendation.confidence), f"{recommendation!r} must be from 0 to 1 sure"

    def test_it_recommends_what_is_a_recommendation_or_nothing(self, stage: Stage) -> None:
        ref = stage.ref(Capability.EVOLUTION)
        for state in _states():
            self.check(ref.call("recommend", state))

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_takes_every_outcome_and_goes_on_recommending(self, stage: Stage) -> None:
        ref = stage.ref(Capability.EVOLUTION)
        for number, status in enumerate(ENDS):
            ref.call("record_outcome", make_outcome(status, duration=0.0, total_steps=0))
            ref.call("record_outcome", make_outcome(status, execution_id=f"e{number}", workflow_id="never heard of"))
            self.check(ref.call("recommend", make_execution_state()))

        stage.check_unhurt(PluginState.RUNNING)

    def test_many_may_ask_at_once(self, stage: Stage) -> None:
        ref = stage.ref(Capability.EVOLUTION)

        def ask(number: int) -> None:
            for _ in range(5):
                self.check(ref.call("recommend", make_execution_state(execution_id=f"e{number}")))
                ref.call("record_outcome", make_outcome(execution_id=f"e{number}"))

        at_once(8, ask)

        stage.check_unhurt(PluginState.RUNNING)


class RecoveryContract(PluginContract):
    """As ``PluginContract``. A fixture ``failures`` may add failures that the plugin has an opinion of."""

    capability: ClassVar[Capability | None] = Capability.RECOVERY

    @pytest.fixture
    def failures(self) -> Sequence[StepFailure]:
        """Failures that are put to the plugin beside those that are put to every one."""
        return ()

    def test_it_says_yes_or_no(self, stage: Stage, failures: Sequence[StepFailure]) -> None:
        errors = (
            ValueError("boom"),
            KeyboardInterrupt(),
            SystemExit(3),
            Unspeakable(),
            ExceptionGroup("", [OSError()]),
        )
        asked = [
            *failures,
            *(make_failure(error) for error in errors),
            *(make_failure(path=path, attempts=10**6, round=1_000) for path in PATHS),
        ]
        ref = stage.ref(Capability.RECOVERY)
        for failure in asked:
            for state in _states()[:3]:
                answer = ref.call("should_recover", failure, state)
                assert isinstance(answer, bool), f"should_recover() must return True or False, not {answer!r}"

        stage.check_unhurt(PluginState.RUNNING)


class LoopContract(PluginContract):
    """As ``PluginContract``."""

    capability: ClassVar[Capability | None] = Capability.LOOP

    def test_it_says_yes_or_no_to_every_round(self, stage: Stage) -> None:
        ref = stage.ref(Capability.LOOP)
        for state in _states():
            answer: Any = ref.call("should_execute_round", state.round + 1, state)
            assert isinstance(answer, bool), f"should_execute_round() must return True or False, not {answer!r}"

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_is_told_how_every_round_ended(self, stage: Stage) -> None:
        ref = stage.ref(Capability.LOOP)
        for state in _states():
            ref.call("on_round_end", state.round, state)

        stage.check_unhurt(PluginState.RUNNING)
