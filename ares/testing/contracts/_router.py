"""What a router must do besides what every plugin must."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from ares.bus.health import PluginState
from ares.errors import PluginError
from ares.plugin import Capability, RuntimePlugin
from ares.records import RouteDecision, RouteState
from ares.testing.contracts._plugin import PluginContract
from ares.testing.contracts._stage import PATHS, VALUES, BrokenPeer, LyingPeer, Stage, at_once, staged
from ares.testing.recorder import RecordingExecution
from ares.testing.samples import EXECUTION, make_outcome, make_route_state, make_step

_SOURCES = frozenset({"step", "router", "expression", "memory", "evolution", "fallback"})


class RouterContract(PluginContract):
    """As ``PluginContract``. A fixture ``route_states`` may add branch points that the router has a word to say of."""

    capability: ClassVar[Capability | None] = Capability.ROUTER

    @pytest.fixture
    def route_states(self) -> Sequence[RouteState]:
        """Branch points that are put to the router beside those that are put to every router."""
        return ()

    @pytest.fixture
    def all_states(self, route_states: Sequence[RouteState]) -> list[RouteState]:
        """All branch points that are put to it."""
        variables = {"colour": "red", "count": 7, "nested": {"a": [1]}}
        return [
            *route_states,
            make_route_state("choose", variables=variables),
            make_route_state("choose", candidates=("only",)),
            make_route_state("choose", candidates=tuple(f"way {n}" for n in range(200)), round=1_000),
            *(make_route_state(path, candidates=("ä\u202e", "b" * 200)) for path in PATHS),
            *(make_route_state("choose", output=value, variables={"value": value}) for value in VALUES),
        ]

    def test_it_decides_for_branches_of_the_step_or_abstains(self, stage: Stage, all_states: list[RouteState]) -> None:
        ref = stage.ref(Capability.ROUTER)
        for state in all_states:
            problem = problem_of(ref.call("route", state), state)
            assert not problem, f"{problem}, asked about {state}"

        stage.check_unhurt(PluginState.RUNNING)

    def test_it_decides_the_same_way_through_a_bus(self, stage: Stage, all_states: list[RouteState]) -> None:
        """Where a decision that names a stranger, or a failure, counts as an abstention, and is a warning."""
        for state in all_states:
            stage.bus.before_step(EXECUTION, make_step(state.path, round=state.round))
            stage.bus.route(EXECUTION, state)
        stage.bus.after_execution(make_outcome())

        assert stage.bus.warnings(EXECUTION) == ()
        stage.check_unhurt(PluginState.RUNNING)

    def test_peers_that_fail_or_lie_do_not_keep_it_from_its_answer(
        self,
        make_plugin: Callable[[], RuntimePlugin],
        make_peers: Callable[[], Sequence[RuntimePlugin]],
        all_states: list[RouteState],
    ) -> None:
        with staged(make_plugin(), [*make_peers(), BrokenPeer(), LyingPeer()]) as stage:
            ref = stage.ref(Capability.ROUTER)
            for state in all_states:
                try:
                    problem = problem_of(ref.call("route", state), state)
                except PluginError as error:
                    pytest.fail(f"{error}, asked about {state}")
                assert not problem, f"{problem}, asked about {state}"

    def test_it_bears_many_branch_points_at_once(self, stage: Stage, all_states: list[RouteState]) -> None:
        def walk(number: int) -> None:
            execution_id = f"e{number}"
            stage.bus.open_execution(execution_id, RecordingExecution())
            for each in range(5):
                state = all_states[(number + each) % len(all_states)]
                stage.bus.before_step(execution_id, make_step(state.path))
                stage.bus.route(execution_id, make_route_state(state.path, execution_id=execution_id))
            stage.bus.after_execution(make_outcome(execution_id=execution_id))
            stage.bus.close_execution(execution_id)

        at_once(8, walk)

        stage.check_unhurt(PluginState.RUNNING)


def problem_of(decision: object, state: RouteState) -> str:
    """Why an answer of a router is none; "" if it is one."""
    if decision is None:
        return ""
    if not isinstance(decision, RouteDecision):
        return f"route() must return a RouteDecision or None, not {decision!r}"
    strangers = [target for target in decision.targets if target not in state.candidates]
    if strangers:
        return f"its decision names {strangers}, which are no branches of the step"
    if not decision.targets and decision.source != "fallback" and not decision.reason:
        return "it takes no branch at all, and gives no reason"
    if decision.source not in _SOURCES:
        return f"source {decision.source!r} is none of {sorted(_SOURCES)}"
    if not all(isinstance(each, int | float) for each in decision.scores.values()):
        return f"its scores are {dict(decision.scores)!r}, no numbers"
    return ""
