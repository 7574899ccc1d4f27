"""StrategyEvolution: which agents it recommends, and which outcomes it learns from."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares import Approve, Loop, Runtime, StepSpec, Workflow
from ares.errors import UsageError
from ares.plugin import EvolutionPlugin
from ares.plugins import EvolutionRouter, ExpressionRouter, LoopPlugin, Objectives, Rule, StrategyEvolution, Weights
from ares.plugins import strategy as module
from ares.plugins._bandit import Belief, Run, beliefs, chance, utilities
from ares.records import ExecutionStatus, RuntimeRecommendation
from benchmarks.strategies import SCENES, found, on_a_runtime, strategy
from tests.engine.helpers import Child
from tests.plugins.routing import alone
from tests.plugins.strategic import COMPLETED, FAILED, Played, asking, hint

Make = Callable[..., Runtime]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "strategy.study"


@pytest.fixture
def played(path: Path) -> Played:
    return Played(path)


def never(_: RuntimeRecommendation) -> bool:
    return False


# --- what it finds ---------------------------------------------------------------------------------------------------


def test_the_best_of_five_agents_is_found_within_60_runs_in_at_least_9_of_10_seeds() -> None:
    agents = SCENES["one stands out"]

    right = [seed for seed in range(10) if found(agents, strategy(agents, seed)) == "best"]

    assert len(right) >= 9, right


def test_the_best_of_five_agents_is_found_by_executions_of_a_runtime_whose_router_asks() -> None:
    assert on_a_runtime(SCENES["one stands out"], seed=1) == "best"


def test_an_agent_that_fails_is_soon_left_alone(played: Played) -> None:
    chosen = [played.run(lambda it: it.preferred_agent != "b").preferred_agent for _ in range(40)]

    assert chosen[-20:].count("b") <= 1


def test_of_agents_that_succeed_alike_the_faster_and_cheaper_one_is_preferred(path: Path) -> None:
    played = Played(path, ["slow", "fast"])

    for _ in range(30):
        recommended = played.ask()
        slow = recommended.preferred_agent == "slow"
        played.end(duration=9.0 if slow else 1.0, tool_count=9 if slow else 1)

    best, worst = played.plugin.standings("w", "choose")
    assert (best.agent, worst.agent) == ("fast", "slow")
    assert best.runs > 20
    assert (best.success, best.duration, best.cost) == (1.0, 1.0, 1.0)
    assert best.chance > 0.99


def test_the_parameters_of_an_agent_are_moved_to_where_it_succeeds(path: Path) -> None:
    played = Played(path, {"only": {"heat": (0.0, 1.0), "tone": ["flat", "warm", "wild"]}})

    def wins(recommended: RuntimeRecommendation) -> bool:
        return hint(recommended)["heat"] > 0.7 and hint(recommended)["tone"] != "wild"

    came = [wins(played.run(wins)) for _ in range(60)]

    assert sum(came[:20]) < 10
    assert sum(came[-20:]) > 14


def test_only_the_newest_runs_count_so_agents_may_change(path: Path) -> None:
    played = Played(path, ["a", "b"], window=30)
    for _ in range(60):
        played.run(lambda it: it.preferred_agent == "a")
    assert played.plugin.standings("w", "choose")[0].agent == "a"

    for _ in range(90):
        played.run(lambda it: it.preferred_agent == "b")

    assert played.plugin.standings("w", "choose")[0].agent == "b"
    assert played.total() == 30


def test_when_every_agent_fails_it_goes_on_recommending_and_knows_none_as_the_best(played: Played) -> None:
    for _ in range(30):
        played.run(never)

    assert played.ask("last").preferred_agent in "abc"
    assert all(each.success == 0 and each.chance < 0.7 for each in played.plugin.standings("w", "choose"))


# --- what a recommendation says --------------------------------------------------------------------------------------


def test_at_first_every_agent_is_as_likely_to_be_the_best_and_is_followed_all_the_same(path: Path) -> None:
    recommended = Played(path, ["a", "b", "c", "d"]).ask()

    assert recommended.router_weight == pytest.approx(0.25, abs=0.01)
    assert recommended.confidence == pytest.approx(0.3 + 0.7 * recommended.router_weight)
    assert recommended.confidence >= EvolutionRouter({}).confidence_min


def test_the_weight_is_how_likely_the_agent_is_to_be_the_best(played: Played) -> None:
    for _ in range(40):
        played.run(lambda it: it.preferred_agent == "c")

    sure = {each.agent: each.chance for each in played.plugin.standings("w", "choose")}
    recommended = played.ask("last")
    assert recommended.preferred_agent == "c"
    assert recommended.router_weight == sure["c"] > 0.95


def test_the_hint_is_a_json_object_of_parameters_within_their_ranges(path: Path) -> None:
    agents = {"tuned": {"heat": (0.5, 0.75), "depth": (2, 4), "tone": ["flat", True, 7]}, "plain": {}}
    played = Played(path, agents)

    for _ in range(30):
        recommended = played.run(lambda it: True)
        if recommended.preferred_agent == "plain":
            assert recommended.mutation_hint == "{}"
            continue
        parameters = hint(recommended)
        assert list(parameters) == ["depth", "heat", "tone"]
        assert 0.5 <= parameters["heat"] <= 0.75
        assert parameters["depth"] in (2, 3, 4)
        assert isinstance(parameters["depth"], int)
        assert parameters["tone"] in ("flat", True, 7)


def test_the_body_of_a_step_can_ask_for_its_parameters_until_the_execution_ends(path: Path) -> None:
    played = Played(path, {"a": {"heat": (0.0, 1.0)}})
    first, second = played.ask(), played.ask(round=2)

    assert played.plugin.parameters_of("e", "choose") == hint(second) != hint(first)
    assert played.plugin.parameters_of("e", "elsewhere") == played.plugin.parameters_of("other", "choose") == {}
    played.end()
    assert played.plugin.parameters_of("e", "choose") == {}


def test_it_speaks_of_the_steps_that_it_is_given_and_of_no_question_without_a_step(path: Path) -> None:
    plugin = Played(path, steps=["choose"]).plugin

    assert isinstance(plugin, EvolutionPlugin)
    assert plugin.recommend(alone(), asking()) is not None
    assert plugin.recommend(alone(), asking(step_id="other")) is None
    assert plugin.recommend(alone(), asking(step_id="")) is None
    plugin.stop(alone())
    assert plugin.recommend(alone(), asking()) is None


# --- the same question, the same answer ------------------------------------------------------------------------------


def test_asked_again_in_the_same_execution_round_and_step_it_says_the_same(path: Path) -> None:
    played = Played(path, {"a": {"heat": (0.0, 1.0)}})

    assert len({played.ask() for _ in range(5)}) == 1
    assert played.ask(round=2) != played.ask() != played.ask(step_id="other")
    assert played.plugin.counts.proposed == 3


def test_within_the_ttl_other_executions_are_told_the_same(path: Path) -> None:
    played = Played(path, {"a": {"heat": (0.0, 1.0)}}, ttl=1e6)

    assert len({played.ask(f"e{number}") for number in range(5)}) == 1
    assert played.ask("f", step_id="other") != played.ask("f")
    assert (played.plugin.counts.proposed, played.plugin.counts.cached) == (2, 5)


def test_each_execution_that_was_told_the_same_counts_by_itself(path: Path) -> None:
    played = Played(path, ttl=1e6)
    agent = {played.ask(f"e{number}").preferred_agent for number in range(4)}

    for number in range(4):
        played.end(f"e{number}")

    assert played.runs()[agent.pop()] == played.total() == 4


def test_a_new_one_is_worked_out_when_the_ttl_is_over_and_when_something_was_learnt(path: Path) -> None:
    agents = {"a": {"heat": (0.0, 1.0)}}
    short = Played(path, agents, ttl=1e-9)
    assert short.ask("e1") != short.ask("e2")

    long = Played(path, agents, ttl=1e6)
    first = long.ask("e1")
    assert long.ask("e2") == first
    long.end("e1")
    assert long.ask("e3") != first
    assert long.ask("e2") == first


# --- which outcomes count --------------------------------------------------------------------------------------------


def test_an_outcome_counts_for_the_agent_that_was_recommended_in_that_execution(played: Played) -> None:
    recommended = {name: played.ask(name).preferred_agent for name in ("x", "y", "z")}

    played.end("y", FAILED, duration=4.0, tool_count=7)

    [known] = [each for each in played.plugin.standings("w", "choose") if each.runs]
    assert (known.agent, known.runs, known.success) == (recommended["y"], 1, 0.0)
    assert (known.duration, known.cost) == (4.0, 7.0)


def test_no_outcome_counts_twice_whoever_tells_of_it(played: Played) -> None:
    played.ask()
    for _ in range(3):
        played.end_round()
    for _ in range(3):
        played.end()

    assert played.total() == played.plugin.counts.learnt == 1


def test_each_round_counts_for_what_was_recommended_in_it(path: Path) -> None:
    played = Played(path, ["a", "b"])
    agents = []
    for number in range(1, 21):
        agents.append(played.ask(round=number).preferred_agent)
        played.end_round(status=ExecutionStatus.RUNNING, round=number, failed_steps=agents[-1] == "b")
    played.end()

    assert played.runs() == {name: agents.count(name) for name in "ab"}
    assert {each.agent: each.success for each in played.plugin.standings("w", "choose")} == {"a": 1.0, "b": 0.0}


def test_a_round_of_a_sub_workflow_counts_for_what_was_recommended_in_it_and_in_no_other_workflow(
    played: Played,
) -> None:
    played.ask()
    assert played.plugin.recommend(alone(), asking(workflow_id="child", step_id="inner")) is not None

    played.end_round(workflow_id="child")
    assert sum(each.runs for each in played.plugin.standings("child", "inner")) == 1
    assert played.total() == 0

    played.end()
    assert sum(each.runs for each in played.plugin.standings("child", "inner")) == 1
    assert played.total() == 1


def test_without_outcomes_of_rounds_that_of_the_execution_counts_once_for_the_last_round(played: Played) -> None:
    agents = [played.ask(round=number).preferred_agent for number in (1, 2, 3)]

    played.end(round=3)

    assert played.runs()[agents[2]] == played.total() == 1


def test_an_outcome_counts_once_for_each_step_that_was_asked_about(played: Played) -> None:
    for step_id in ("one", "two"):
        played.ask(step_id=step_id)
    played.end()

    for step_id in ("one", "two"):
        assert sum(each.runs for each in played.plugin.standings("w", step_id)) == 1


@pytest.mark.parametrize("status", [ExecutionStatus.WAITING, ExecutionStatus.INTERRUPTED, ExecutionStatus.PENDING])
def test_an_execution_that_may_go_on_counts_when_it_has_ended(played: Played, status: ExecutionStatus) -> None:
    played.ask()
    played.end(status=status)
    assert played.total() == 0

    played.end()
    assert played.total() == 1


def test_an_execution_that_was_cancelled_says_nothing_of_an_agent(played: Played) -> None:
    played.ask()
    played.end(status=ExecutionStatus.CANCELLED)

    assert played.total() == 0
    assert played.plugin.counts.unjudged == 1


def test_outcomes_of_executions_that_never_asked_are_nothing(played: Played) -> None:
    played.end("stranger")
    played.end_round("stranger")

    assert played.plugin.counts == type(played.plugin.counts)()
    assert played.plugin.standings("w", "choose") == ()


def test_an_execution_whose_end_nobody_tells_is_forgotten_when_many_have_come_after_it(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HELD", 3)
    for number in range(5):
        played.ask(f"e{number}")

    for number in range(5):
        played.end(f"e{number}")

    assert played.plugin.counts.forgotten == 2
    assert played.total() == played.plugin.counts.learnt == 3


# --- what is learnt from one -----------------------------------------------------------------------------------------


def test_success_and_cost_are_what_the_objectives_say(path: Path) -> None:
    objectives = Objectives(
        success=lambda outcome: 1 - outcome.skipped_steps / outcome.total_steps,
        cost=lambda outcome: 0.5 * outcome.error_count + outcome.tool_count,
    )
    played = Played(path, ["a"], objectives=objectives)
    played.ask()
    played.end(total_steps=4, skipped_steps=1, tool_count=3)

    [known] = played.plugin.standings("w", "choose")
    assert (known.success, known.cost) == (0.75, 3.0)


def test_an_outcome_that_the_objectives_have_no_word_on_is_not_learnt_from(path: Path) -> None:
    played = Played(path, objectives=Objectives(success=lambda outcome: None))
    played.ask()
    played.end()

    assert (played.total(), played.plugin.counts.unjudged) == (0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.1, "1", True, 10**400])
def test_a_success_that_is_no_number_from_0_to_1_is_an_error_and_is_not_learnt(path: Path, bad: Any) -> None:
    played = Played(path, objectives=Objectives(success=lambda outcome: bad))
    played.ask()

    with pytest.raises(ValueError, match="the success of an outcome must be from 0 to 1"):
        played.end()

    played.end()
    assert (played.total(), played.plugin.counts.failed) == (0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, None, "1", 10**400])
def test_a_cost_that_is_no_number_from_0_on_is_an_error_and_is_not_learnt(path: Path, bad: Any) -> None:
    played = Played(path, objectives=Objectives(cost=lambda outcome: bad))
    played.ask()

    with pytest.raises(ValueError, match="the cost of an outcome must be a finite number"):
        played.end()

    assert played.total() == 0


def test_one_step_that_cannot_be_told_does_not_keep_the_other_from_it(path: Path) -> None:
    costs = iter([math.nan, 1.0])
    played = Played(path, objectives=Objectives(cost=lambda outcome: next(costs)))
    played.ask(step_id="one")
    played.ask(step_id="two")

    with pytest.raises(ValueError, match="cost"):
        played.end()

    assert (played.plugin.counts.failed, played.plugin.counts.learnt) == (1, 1)


def test_hostile_figures_of_outcomes_are_survived(path: Path) -> None:
    played = Played(path, ["a", "b"], objectives=Objectives(cost=lambda outcome: float(outcome.tool_count)))
    for number, duration in enumerate([0.0, 5e-324, sys.float_info.max, sys.float_info.max, -1.0, 1e-300]):
        played.ask(f"e{number}")
        played.end(f"e{number}", duration=duration, tool_count=10**300 * (number % 2))

    assert played.total() == 6
    assert all(math.isfinite(each.utility) for each in played.plugin.standings("w", "choose"))
    assert played.ask("last").preferred_agent in "ab"


# --- on a Runtime ----------------------------------------------------------------------------------------------------


def shop(fails: tuple[str, ...] = ()) -> Workflow:
    """A branch point with a way for each agent."""
    wf = Workflow("w")
    wf.step(lambda: None, id="choose", branches=["one", "two"])

    def work(name: str) -> Callable[..., str]:
        def body(choose: None) -> str:
            if name in fails:
                raise ValueError(name)
            return name

        return body

    for name in ("one", "two"):
        wf.step(work(name), id=name)
    return wf


AGENTS = {"first": "one", "second": "two"}


def test_what_its_agents_did_is_learnt_when_executions_end(runtime: Make, store: str | None, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS), seed=1)
    rt = runtime(store, plugins=[plugin, EvolutionRouter(AGENTS)])

    for _ in range(30):
        rt.run(shop(fails=("one",)))

    best, worst = plugin.standings("w", "choose")
    assert (best.agent, worst.agent) == ("second", "first")
    assert (best.success, worst.success) == (1.0, 0.0)
    assert best.runs > 20
    assert plugin.counts.learnt == 30


def test_executions_beside_one_another_each_count_once(runtime: Make, store: str | None, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(store, plugins=[plugin, EvolutionRouter(AGENTS)], max_workers=8)

    for execution in [rt.submit(shop(fails=("one",))) for _ in range(40)]:
        execution.result(20)

    ran = {"first": 0, "second": 0}
    for summary in rt.executions():
        [decided] = [event for event in rt.execution(summary.execution_id).events() if event.type == "route.decided"]
        ran["first" if decided.payload["targets"] == ["one"] else "second"] += 1
    assert {each.agent: each.runs for each in plugin.standings("w", "choose")} == ran
    assert plugin.counts.learnt == 40


def test_an_outcome_does_not_count_if_somebody_else_decided(runtime: Make, store: str | None, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS))
    router = EvolutionRouter(AGENTS, [Rule("True", "two")], confidence_min=0.99)
    rt = runtime(store, plugins=[plugin, router])

    rt.run(shop()).raise_for_status()

    assert (plugin.counts.overruled, plugin.counts.learnt) == (1, 0)


def test_the_journal_of_a_very_long_execution_is_not_read_for_that(
    runtime: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ", 2)
    plugin = StrategyEvolution(path, list(AGENTS))
    router = EvolutionRouter(AGENTS, [Rule("True", "two")], confidence_min=0.99)

    runtime(plugins=[plugin, router]).run(shop()).raise_for_status()

    assert (plugin.counts.overruled, plugin.counts.learnt) == (0, 1)


def looping(rounds: int = 3) -> Workflow:
    """As ``shop``, in rounds."""
    wf = shop()
    wf.loop = Loop(rounds)
    return wf


#: Runs ``looping`` and dies when the strategy, but not yet the journal, knows how the first round went.
DIES_AT_THE_END_OF_A_ROUND = """
    import os, signal, sys
    from ares import Capability, Plugin, Runtime
    from ares.plugins import EvolutionRouter, LoopPlugin, StrategyEvolution
    from tests.plugins.test_strategy import AGENTS, looping

    class Deadly(Plugin):
        name = "deadly"
        capabilities = frozenset({Capability.LOOP})
        runs_after = ("loop",)
        def should_execute_round(self, ctx, next_round, state): return True
        def on_round_end(self, ctx, round, state): os.kill(os.getpid(), signal.SIGKILL)

    plugins = [StrategyEvolution(sys.argv[2], list(AGENTS)), EvolutionRouter(AGENTS), LoopPlugin(), Deadly()]
    with Runtime(sys.argv[1], plugins=plugins) as rt:
        rt.run(looping(), execution_id="e")
"""


def runs_of(plugin: StrategyEvolution, workflow_id: str = "w") -> int:
    return sum(each.runs for each in plugin.standings(workflow_id, "choose"))


def test_each_round_that_a_loop_plugin_tells_of_counts_once_and_the_end_of_the_execution_not_again(
    runtime: Make, store: str | None, path: Path
) -> None:
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(store, plugins=[plugin, EvolutionRouter(AGENTS), LoopPlugin()])
    wf = Workflow("outer", loop=Loop(2))
    wf.add(StepSpec("inside", workflow=looping()))

    rt.run(looping()).raise_for_status()
    rt.run(wf).raise_for_status()

    assert (plugin.counts.learnt, plugin.counts.failed, plugin.counts.overruled, runs_of(plugin)) == (9, 0, 0, 9)


def test_rounds_that_wait_for_a_human_count_when_they_have_ended(runtime: Make, store: str | None, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(store, plugins=[plugin, EvolutionRouter(AGENTS), LoopPlugin()])
    wf = shop().replace(one=lambda ctx: ctx.interrupt("k", "?"), two=lambda ctx: ctx.interrupt("k", "?"))
    wf.loop = Loop(3)
    learnt = []

    result = rt.run(wf, execution_id="e")
    while result.interrupts:
        learnt.append(plugin.counts.learnt)
        rt.answer(result.interrupts[0], Approve())
        result = rt.resume("e", wf)

    assert (learnt, plugin.counts.learnt, runs_of(plugin)) == ([0, 1, 2], 3, 3)


def test_a_round_that_was_learnt_from_when_its_process_died_is_not_learnt_from_again(
    runtime: Make, path: Path, tmp_path: Path
) -> None:
    store = str(tmp_path / "ares.db")
    with Child(DIES_AT_THE_END_OF_A_ROUND, store, str(path)) as child:
        assert child.finish() == (-9, "", "")
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(store, plugins=[plugin, EvolutionRouter(AGENTS), LoopPlugin()])

    rt.resume("e", looping()).raise_for_status()

    assert rt.checkpoint("e").round == 3
    assert (plugin.counts.learnt, runs_of(plugin)) == (2, 3)


def test_nor_is_that_of_a_long_loop_for_each_of_its_rounds(
    runtime: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ", 8)  # three steps a round
    plugin = StrategyEvolution(path, list(AGENTS))
    router = EvolutionRouter(AGENTS, [Rule("True", "two")], confidence_min=0.99)

    runtime(plugins=[plugin, router, LoopPlugin()]).run(looping(4)).raise_for_status()

    assert (plugin.counts.overruled, plugin.counts.learnt) == (2, 2)


def test_it_is_not_asked_where_a_router_before_has_decided(runtime: Make, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(plugins=[plugin, ExpressionRouter([Rule("True", "one")]), EvolutionRouter(AGENTS)])

    rt.run(shop()).raise_for_status()

    assert plugin.counts == type(plugin.counts)()


def test_bad_objectives_are_named_and_the_execution_ends_as_it_would(runtime: Make, path: Path) -> None:
    plugin = StrategyEvolution(path, list(AGENTS), objectives=Objectives(cost=lambda outcome: math.nan))
    rt = runtime(plugins=[plugin, EvolutionRouter(AGENTS)])

    assert rt.run(shop()).raise_for_status().status == COMPLETED

    assert "the cost of an outcome" in str(rt.health()["strategy"].last_error)


def test_a_runtime_goes_on_without_it_if_its_file_is_foreign_and_says_so(runtime: Make, path: Path) -> None:
    path.write_text("a letter to somebody\n")
    plugin = StrategyEvolution(path, list(AGENTS))
    rt = runtime(plugins=[plugin, EvolutionRouter(AGENTS, [Rule("True", "two")])])

    result = rt.run(shop()).raise_for_status()

    assert list(result.outputs) == ["choose", "two"]
    assert any(str(path) in warning and "no study file" in warning for warning in result.warnings)
    assert path.read_text() == "a letter to somebody\n"


def test_optuna_is_imported_at_the_start_and_a_session_prints_nothing_and_leaves_no_thread_and_no_open_file(
    path: Path,
) -> None:
    program = """
        import os, sys, threading
        import ares.plugins
        from ares import Runtime, Workflow

        def session():
            wf = Workflow("w")
            wf.step(lambda: None, id="choose", branches=["one", "two"])
            wf.step(lambda choose: 1, id="one")
            wf.step(lambda choose: 2, id="two")
            plugin = ares.plugins.StrategyEvolution(sys.argv[1], {"first": {"heat": (0.0, 1.0)}, "second": {}})
            router = ares.plugins.EvolutionRouter({"first": "one", "second": "two"})
            runtime = Runtime(plugins=[plugin, router])
            yield
            with runtime:
                for _ in range(15):
                    runtime.run(wf).raise_for_status()
            assert plugin.counts.learnt == 15, plugin.counts

        first = session()
        next(first)
        assert not {"optuna", "numpy", "sqlalchemy"} & set(sys.modules)
        list(first), list(session())
        assert "optuna" in sys.modules and "sqlalchemy" not in sys.modules
        files = [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if os.path.islink(each.path)]
        print(threading.active_count(), files.count(sys.argv[1]))
    """
    with Child(program, str(path)) as child:
        threads, files = map(int, child.result().split())

    assert files == 0
    assert threads <= 2  # the main one, and one that ares keeps for its notices


# --- how it is made --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"agents": []}, "there is no agent to propose"),
        ({"agents": "abc"}, "agents must be a list of names"),
        ({"agents": None}, "agents must be a list of names"),
        ({"agents": ["a", ""]}, "agent '': its name must be a text"),
        ({"agents": ["a", 3]}, "agent 3: its name must be a text"),
        ({"agents": ["\ud800"]}, "its name must be a text"),
        ({"agents": ["a", "a"]}, "agent 'a': it is there twice"),
        ({"agents": {"a": ["heat"]}}, "its parameters must map names to ranges"),
        ({"agents": {"a": {"heat": (1, 0)}}}, "agent 'a', 'heat': a tuple must be the lowest and the highest"),
        ({"agents": {"a": {"heat": (0, 1, 2)}}}, "a tuple must be the lowest and the highest"),
        ({"agents": {"a": {"heat": (0, math.nan)}}}, "a tuple must be the lowest and the highest"),
        ({"agents": {"a": {"heat": (False, True)}}}, "a tuple must be the lowest and the highest"),
        ({"agents": {"a": {"heat": (0, 2**60)}}}, "cannot be told apart"),
        ({"agents": {"a": {"heat": (-1.7e308, 1.7e308)}}}, "too wide"),
        ({"agents": {"a": {"heat": []}}}, "a list of choices"),
        ({"agents": {"a": {"heat": "warm"}}}, "a list of choices"),
        ({"agents": {"a": {"heat": [None]}}}, "a choice must be"),
        ({"agents": {"a": {"heat": [math.inf]}}}, "a choice must be"),
        ({"agents": {"a": {"heat": ["x", "x"]}}}, "a choice is there twice"),
        ({"agents": {"a": {"heat": [1, True]}}}, "a choice is there twice"),
        ({"steps": "choose"}, "steps must be a list of step ids"),
        ({"steps": [1]}, "steps must be a list of step ids"),
        ({"ttl": -1}, "ttl must be a number of seconds"),
        ({"ttl": math.inf}, "ttl must be a number of seconds"),
        ({"window": 0}, "window must be a number of runs"),
        ({"window": 1.5}, "window must be a number of runs"),
        ({"objectives": Weights()}, "objectives must be Objectives"),
    ],
)
def test_what_can_never_work_is_refused_by_name(path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match="plugin 'strategy'") as raised:
        StrategyEvolution(path, **{"agents": ["a"], **options})

    assert problem in str(raised.value)
    assert not path.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"success": 1},
        {"cost": "tool_count"},
        {"weights": (1, 1, 1)},
        {"weights": Weights(0, 0, 0)},
        {"weights": Weights(-1)},
        {"weights": Weights(math.nan)},
        {"weights": Weights(1e7)},
    ],
)
def test_objectives_that_can_never_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="objectives: "):
        Objectives(**options)


def test_without_optuna_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    with pytest.raises(UsageError, match=r"'strategy' needs optuna.*pip install 'ares-workflow\[evolution\]'"):
        StrategyEvolution(path, ["a"])


# --- the arithmetic --------------------------------------------------------------------------------------------------

FIGURES = st.floats(0, 1e300)
RUNS = st.lists(st.builds(Run, st.sampled_from("abcd"), st.floats(0, 1), FIGURES, FIGURES), max_size=30)
WEIGHTS = st.builds(Weights, st.floats(1e-9, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))


@given(RUNS, WEIGHTS)
def test_whatever_runs_there_were_something_is_believed_of_every_agent(runs: list[Run], weights: Weights) -> None:
    believed = beliefs("abc", runs, weights)

    assert len(believed) == 3
    for each in believed:
        assert math.isfinite(each.mean)
        assert 0 < each.deviation < math.inf


@given(st.lists(st.builds(Belief, st.floats(-10, 10), st.floats(0.05, 3)), min_size=1, max_size=5))
def test_the_chances_of_all_agents_are_about_one_and_the_highest_is_no_wider_one_with_a_lower_mean(
    believed: list[Belief],
) -> None:
    chances = [chance(believed, index) for index in range(len(believed))]

    assert all(0 <= each <= 1 for each in chances)
    assert sum(chances) == pytest.approx(1, abs=0.1)


@given(RUNS.filter(bool), st.integers(0, 29), WEIGHTS)
def test_a_run_that_succeeded_more_was_worth_more(runs: list[Run], index: int, weights: Weights) -> None:
    one = runs[index % len(runs)]
    better = [*runs, Run(one.agent, 1.0, one.duration, one.cost), Run(one.agent, 0.0, one.duration, one.cost)]

    worth = utilities(better, weights)

    assert worth[-2] >= worth[-1]


def test_durations_and_costs_are_taken_in_units_of_the_average_agent_however_often_each_was_run() -> None:
    runs = [Run("a", 1.0, 1.0, 0.0), *[Run("b", 1.0, 3.0, 0.0)] * 9]

    worth = utilities(runs, Weights(success=1.0, duration=0.1))

    assert worth == pytest.approx([1 - 0.1 * 1 / 2, *[1 - 0.1 * 3 / 2] * 9])
