"""Suites that must fail: each class says which of its tests do, and only those may. Run by ``test_contracts``."""

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from ares import Capability, EventFilter, HookPolicy, Plugin
from ares.records import RouteAdvice, RouteDecision, RuntimeRecommendation
from ares.stores.volatile import VolatileStore
from ares.testing import (
    EvolutionContract,
    LoopContract,
    MemoryContract,
    PluginContract,
    RecoveryContract,
    RouterContract,
    StoreContract,
)


class Good(Plugin):
    """Does nothing wrong, and nothing else."""

    name = "good"


class Of(PluginContract):
    """A suite for ``plugin``. ``fails`` names the tests that must fail, without ``test_``."""

    plugin: ClassVar[Callable[[], Any]] = Good
    fails: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        return type(self).plugin


class TestGood(Of):
    pass


class TestSlowToStart(Of):
    class plugin(Good):  # noqa: N801 - stands for what a suite calls so
        def start(self, ctx: Any, bus: Any) -> None:
            LET_GO.wait(0.05)

    start_seconds = 0.01
    fails = frozenset({"it_starts_soon_and_stops_in_good_order"})


class TestLeavesAThread(Of):
    class plugin(Good):  # noqa: N801
        def start(self, ctx: Any, bus: Any) -> None:
            threading.Thread(target=LET_GO.wait, args=(20,), name="forgotten", daemon=True).start()

    stop_seconds = 0.1
    fails = frozenset({"it_leaves_no_thread_behind"})


LET_GO = threading.Event()


class TestChangesInputs(Of):
    class plugin(Good):  # noqa: N801
        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
            if "limit" in step.inputs:
                step.inputs["limit"] += 1

    fails = frozenset({"what_it_is_shown_it_leaves_as_it_was"})


class TestTakesEveryOutputForAList(Of):
    class plugin(Good):  # noqa: N801
        def after_step(self, ctx: Any, execution_id: str, result: Any) -> None:
            if result.output is not None:
                len(result.output)

    fails = frozenset({"it_bears_whatever_steps_there_are", "a_runtime_walks_with_it_as_without_it"})


class TestMustBeToldOfEveryBeginning(Of):
    class plugin(Good):  # noqa: N801
        def __init__(self) -> None:
            self.known: dict[str, int] = {}

        def before_execution(self, ctx: Any, execution: Any) -> None:
            self.known[execution.execution_id] = 0

        def after_execution(self, ctx: Any, outcome: Any) -> None:
            del self.known[outcome.execution_id]

    fails = frozenset({"it_bears_an_execution_whose_beginning_it_was_not_told"})


class TestOnlyOnce(Of):
    class plugin(Good):  # noqa: N801
        def __init__(self) -> None:
            self.has_started = False

        def start(self, ctx: Any, bus: Any) -> None:
            assert not self.has_started
            self.has_started = True

    fails = frozenset(
        {
            "one_that_was_stopped_can_be_started_again",
            "one_that_was_never_stopped_can_be_started_again_as_in_the_child_of_a_fork",
        }
    )


class TestNeedsTheVeryBus(Of):
    class plugin(Good):  # noqa: N801
        def start(self, ctx: Any, bus: Any) -> None:
            bus.health()

    # A plugin is handed no more than the protocols anyway.
    fails = frozenset({"*"})


class TestReadsPayloadsThatAreNot(Of):
    class plugin(Good):  # noqa: N801
        subscribes_to = EventFilter(types=["step.completed"])

        def on_event(self, ctx: Any, delivery: Any) -> None:
            assert delivery.event.payload["no such thing"]

    fails = frozenset({"it_bears_the_events_that_it_asked_for", "a_runtime_walks_with_it_as_without_it"})


class TestOneOfAKind(Of):
    ONE: ClassVar[Good] = Good()
    plugin: ClassVar[Callable[[], Any]] = lambda: TestOneOfAKind.ONE
    fails = frozenset({"each_one_that_is_made_is_another_of_the_same_name"})


class TestAsksForANeighbour(Of):
    class plugin(Good):  # noqa: N801
        runs_after = ("somebody-else",)

    fails = frozenset({"*"})


class TestBringsANeighbour(TestAsksForANeighbour):
    fails = frozenset()

    @pytest.fixture
    def make_peers(self) -> Callable[[], list[Plugin]]:
        class Neighbour(Plugin):
            name = "somebody-else"

        return lambda: [Neighbour()]


class TestInterceptorWithoutAnAnswer(Of):
    class plugin(Good):  # noqa: N801
        hook_policy = HookPolicy.INTERCEPT

        def before_step(self, ctx: Any, execution_id: str, step: Any) -> Any:
            return "no" if step.path == "late" else None

    fails = frozenset({"it_bears_whatever_steps_there_are"})


class TestInterceptorThatRefuses(Of):
    class plugin(Good):  # noqa: N801
        hook_policy = HookPolicy.INTERCEPT

        def before_step(self, ctx: Any, execution_id: str, step: Any) -> Any:
            from ares import HookResult

            return HookResult.abort("not today") if step.attempt == 1 else None


class TestNoRouter(RouterContract):
    fails = frozenset({"*"})

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        return Good


class Routes(Plugin):
    """Routes by a function."""

    name = "routes"
    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, say: Callable[[Any], Any]) -> None:
        self.say = say

    def route(self, ctx: Any, state: Any) -> Any:
        return self.say(state)


class OfRouter(RouterContract):
    """A suite for a router that says ``say``."""

    say: ClassVar[Any] = None
    fails: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        return lambda: Routes(type(self).say)


class TestRouter(OfRouter):
    say = staticmethod(lambda state: RouteDecision(state.candidates[:1]))


_DIRECT = frozenset(
    {
        "it_decides_for_branches_of_the_step_or_abstains",
        "peers_that_fail_or_lie_do_not_keep_it_from_its_answer",
    }
)


class TestRouterToStrangers(OfRouter):
    say = staticmethod(lambda state: RouteDecision(("elsewhere",)))
    fails = _DIRECT | {"it_decides_the_same_way_through_a_bus", "a_runtime_walks_with_it_as_without_it"}


class TestRouterWithoutADecision(OfRouter):
    say = staticmethod(lambda state: state.candidates[0])
    fails = _DIRECT | {"it_decides_the_same_way_through_a_bus", "a_runtime_walks_with_it_as_without_it"}


class TestRouterOfUnknownSource(OfRouter):
    say = staticmethod(lambda state: RouteDecision(state.candidates[:1], source="dice"))
    fails = _DIRECT


class TestMemoryThatIsTooSure(MemoryContract):
    fails = frozenset(
        {
            "it_gives_advice_that_is_advice",
            "it_may_be_asked_while_the_step_still_runs",
            "it_may_be_asked_again_after_whatever_came_of_it",
            "many_may_ask_at_once",
        }
    )

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        class Sure(Plugin):
            name = "sure"
            capabilities = frozenset({Capability.MEMORY})

            def advise_route(self, ctx: Any, state: Any) -> Any:
                return [RouteAdvice("left", 1.5)]

        return Sure


class TestEvolutionThatCannotLose(EvolutionContract):
    fails = frozenset({"it_takes_every_outcome_and_goes_on_recommending"})

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        class Proud(Plugin):
            name = "proud"
            capabilities = frozenset({Capability.EVOLUTION})

            def recommend(self, ctx: Any, state: Any) -> Any:
                return RuntimeRecommendation("critic", confidence=0.5)

            def record_outcome(self, ctx: Any, outcome: Any) -> None:
                assert outcome.total_steps

        return Proud


class TestRecoveryThatSaysMaybe(RecoveryContract):
    fails = frozenset({"it_says_yes_or_no"})

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        class Maybe(Plugin):
            name = "maybe"
            capabilities = frozenset({Capability.RECOVERY})

            def should_recover(self, ctx: Any, failure: Any, state: Any) -> Any:
                return "maybe"

        return Maybe


class TestLoopThatSaysNothing(LoopContract):
    fails = frozenset({"it_says_yes_or_no_to_every_round"})

    @pytest.fixture
    def make_plugin(self) -> Callable[[], Any]:
        class Silent(Plugin):
            name = "silent"
            capabilities = frozenset({Capability.LOOP})

            def should_execute_round(self, ctx: Any, next_round: int, state: Any) -> Any:
                return None

            def on_round_end(self, ctx: Any, round: int, state: Any) -> None:
                pass

        return Silent


class TestStoreThatForgetsClaims(StoreContract):
    fails = frozenset({"*"})

    @pytest.fixture
    def make_store(self) -> Callable[[], Any]:
        class Forgetful(VolatileStore):
            def release(self, claim: Any) -> None:
                pass

        return Forgetful


class TestStoreThatTakesTwoAnswers(StoreContract):
    fails = frozenset(
        {
            "a_named_request_is_left_once_and_keeps_what_came_first",
            "it_is_refused_still_when_it_was_carried_out",
            "names_are_of_one_execution_and_of_each_kind_together",
            "any_text_is_a_name",
            "one_is_left_for_an_execution_that_nobody_walks",
            "of_many_threads_exactly_one_leaves_it",
        }
    )

    @pytest.fixture
    def make_store(self) -> Callable[[], Any]:
        class Careless(VolatileStore):
            def request(self, execution_id: str, kind: str, body: Any, name: str = "") -> bool:
                return super().request(execution_id, kind, body)

        return Careless


class TestNothing(PluginContract):
    """An author who forgot the fixture is told."""

    fails = frozenset({"*"})
