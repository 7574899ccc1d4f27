"""A memory that learns: what it advises, what it learns from and how often, and that it holds up nobody."""

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ares import Loop, Plugin, Runtime, StepSpec, Workflow
from ares.errors import UsageError
from ares.plugin import Context
from ares.plugins import ExperienceMemory, FallbackRouter, MemoryRouter
from ares.records import ExecutionStatus, RouteDecision, RouteEntry, RouteState, ScoringSignal, StepResult
from benchmarks import learning
from tests.engine.helpers import events_of, open_files
from tests.plugins.experiences import (
    WAYS,
    advice_of,
    always,
    at,
    crossing,
    given,
    odd_ones,
    of_rounds,
    rounds,
    running,
    say,
)
from tests.plugins.routing import Heard, alone, decision_of, routed

Make = Callable[..., Runtime]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "experience.db"


def program(*args: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "error", "-m", "tests.plugins.experiences", *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)


def code_of(child: subprocess.Popen[bytes]) -> int:
    """How it ended, and that it had nothing to say."""
    _, errors = child.communicate(timeout=60)
    assert errors == b""
    return child.returncode


class Judge(Plugin):
    """Scores every execution."""

    name = "judge"

    def __init__(self, *scores: float) -> None:
        self.scores = scores

    def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
        if result.step_id == "choose":
            for score in self.scores:
                ctx.record(ScoringSignal("judge", score, ""))


# --- what it advises ---------------------------------------------------------------------------------------------


def test_what_went_well_twice_is_advised_for_the_same_and_followed(
    runtime: Make, store: str | None, path: Path
) -> None:
    memory, router = ExperienceMemory(path), always("right")
    rt = runtime(store, plugins=[memory, router])
    for _ in range(2):
        assert rt.run(crossing(), given("sunny")).output("right") == "right"

    router.add_rule(always("left").rules[0], first=True)
    result = rt.run(crossing(), given("sunny"), execution_id="e")

    assert result.output("right") == "right"
    found = routed(events_of(rt, "e"))
    assert (found["source"], found["scores"]) == ("memory", {"left": 0.0, "right": 0.75})
    assert found["reason"] == "2.0 of 2.0 similar runs went well, so that is 0.75 likely"
    [hit] = rt.checkpoint("e").memory_hits
    assert (hit.hit_count, hit.best_score, hit.used_ids) == (1, 0.75, ("experience",))
    assert hit.query == "advise_route of 'choose', asked when it had returned"
    assert (memory.counts.asked, memory.counts.advised, memory.counts.learned, memory.size()) == (3, 1, 3, 3)


def test_one_lucky_run_is_no_advice_unless_that_is_wanted(runtime: Make, path: Path) -> None:
    wary = runtime(plugins=[ExperienceMemory(path), always()])
    wary.run(crossing(), given()).raise_for_status()

    assert advice_of(wary, at()) == {}
    wary.close()
    bold = runtime(plugins=[ExperienceMemory(path, evidence_min=1), always()])
    assert advice_of(bold, at()) == {"right": pytest.approx(2 / 3)}


def test_the_confidence_is_laplaces_rule_of_succession_where_all_is_the_same(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    for number in range(4):
        rt.run(crossing(), given(bad=["right"] if number == 0 else []))

    assert advice_of(rt, at()) == {"right": pytest.approx((1 + 3) / (2 + 4))}


def test_a_branch_that_fails_is_no_longer_followed(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always("left")])
    for _ in range(2):
        rt.run(crossing(), given()).raise_for_status()
    taken = [routed(events_of(rt, rt.run(crossing(), given(bad=["left"])).execution_id)) for _ in range(4)]

    # 3/4, 3/5, 3/6, 3/7
    assert [each["source"] for each in taken] == ["memory", "memory", "memory", "expression"]


def test_nothing_is_known_of_what_is_not_similar(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    for number in range(6):
        rt.run(crossing(), given({"weather": "sunny" if number % 2 else "rain"})).raise_for_status()

    assert set(advice_of(rt, at({"weather": "sunny"}))) == {"right"}
    assert advice_of(rt, at({"weather": "snow"})) == {}


def test_workflows_and_steps_of_the_same_words_know_nothing_of_each_other(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    for _ in range(3):
        rt.run(crossing(), given()).raise_for_status()

    assert advice_of(rt, at(workflow_id="crossing"))
    assert advice_of(rt, at(workflow_id="other")) == {}


def test_a_sub_workflow_learns_wherever_it_is(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    parent = Workflow("parent", inputs={"seen": object, "bad": object})
    parent.step(lambda: [1, 2], id="list")
    parent.add(StepSpec("each", map_over="list", workflow=crossing()))
    rt.run(parent, given()).raise_for_status()

    assert advice_of(rt, at()) == {"right": 0.75}


def test_the_early_question_is_not_answered_and_leaves_nothing(path: Path) -> None:
    memory = running(ExperienceMemory(path, explore=True))

    said = memory.advise_route(alone(), RouteState("e", "crossing", "choose", "choose", 1, None, {}, ()))

    assert (tuple(said), memory.counts.asked) == ((), 0)
    memory.stop(alone())


def test_what_is_compared_can_be_chosen(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path, about=lambda state: state.output["kind"]), always()])
    for number in range(3):
        rt.run(crossing(), given({"kind": "a", "noise": f"n{number}"})).raise_for_status()

    assert advice_of(rt, at({"kind": "a", "noise": "quite another"})) == {"right": 0.8}


# --- what it learns from -------------------------------------------------------------------------------------------


def test_variables_are_those_of_the_decision_not_of_the_end(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    for _ in range(2):
        assert rt.run(crossing(), given()).variables == {"colour": "painted by right"}

    assert advice_of(rt, at(variables={"colour": "red"})) == {"right": 0.75}
    assert advice_of(rt, at("x", variables={"colour": "painted by right"})) == {}


@pytest.mark.parametrize(
    ("scores", "confidence"),
    [
        ((0.25, 0.75), (1 + 2 * 0.5) / 4),
        ((0.0,), 0.25),
        ((7.0, -1.0, float("nan"), 0.5), 0.5),
        ((float("nan"),), 0.75),
    ],
)
def test_how_well_a_completed_execution_went_is_the_mean_of_its_scoring_signals(
    runtime: Make, path: Path, scores: tuple[float, ...], confidence: float
) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), Judge(*scores), always()])
    for _ in range(2):
        rt.run(crossing(), given()).raise_for_status()

    assert advice_of(rt, at()) == {"right": pytest.approx(confidence)}


def test_a_failed_execution_went_badly_whatever_its_signals_say(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), Judge(1.0), always()])
    for _ in range(2):
        rt.run(crossing(), given(bad=WAYS))

    assert advice_of(rt, at()) == {"right": 0.25}


def test_a_cancelled_execution_says_nothing_until_it_is_reopened(runtime: Make, store: str | None, path: Path) -> None:
    memory = ExperienceMemory(path)
    rt = runtime(store, plugins=[memory, always()])
    wf = crossing(after=lambda way: rt.cancel("e") if memory.size() == 0 and not cancelled else None)
    cancelled: list[str] = []

    assert rt.run(wf, given(), execution_id="e").status is ExecutionStatus.CANCELLED
    cancelled.append("once")

    assert memory.size() == 0
    rt.resume("e", wf, reopen=True).raise_for_status()
    assert memory.size() == 1


def test_a_decision_for_several_branches_says_nothing_about_any(runtime: Make, path: Path) -> None:
    memory = ExperienceMemory(path)
    both = Workflow("crossing", inputs={"seen": object})
    both.step(lambda seen: seen, id="choose", branches=WAYS, on_no_route="all")
    for way in WAYS:
        both.step(lambda choose, way=way: way, id=way)
    rt = runtime(plugins=[memory, MemoryRouter()])

    rt.run(both, {"seen": "sunny"}).raise_for_status()

    assert (memory.counts.asked, memory.size()) == (1, 0)


def test_whoever_decides_in_the_end_is_learned_from(runtime: Make, path: Path) -> None:
    class Last(Plugin):
        name = "last"
        capabilities = frozenset({"router"})  # type: ignore[arg-type]
        runs_after = ("memory-router",)

        def route(self, ctx: Context, state: RouteState) -> RouteDecision:
            return RouteDecision(("left",))

    rt = runtime(plugins=[ExperienceMemory(path), MemoryRouter(), Last()])
    for _ in range(2):
        rt.run(crossing(), given()).raise_for_status()

    assert advice_of(rt, at()) == {"left": 0.75}


LEARNED = [{"left": pytest.approx(2 / 3)}, {"right": pytest.approx(2 / 3)}, {"left": pytest.approx(2 / 3)}]


def learned(rt: Runtime, workflow_id: str = "crossing") -> list[dict[str, float]]:
    return [advice_of(rt, at(n, workflow_id=workflow_id)) for n in (1, 2, 3)]


def test_each_round_of_a_loop_is_an_experience_of_its_own(runtime: Make, store: str | None, path: Path) -> None:
    memory = of_rounds(path)
    rt = runtime(store, plugins=[memory, odd_ones()])

    rt.run(rounds("crossing")).raise_for_status()

    assert (memory.size(), memory.counts.learned, learned(rt)) == (3, 3, LEARNED)


@pytest.mark.parametrize("timestamp", [None, datetime(2999, 1, 1), "noon"])  # noqa: DTZ001 - that is the point
def test_what_other_plugins_record_of_routes_without_an_instant_is_no_decision_of_an_earlier_round(
    runtime: Make, path: Path, timestamp: Any
) -> None:
    class Gossip(Plugin):
        name = "gossip"

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            if result.step_id == "choose" and result.round < 3:
                ctx.record(RouteEntry("choose", "choose", ("nowhere",), "", "gossip", timestamp))

    memory = of_rounds(path)
    rt = runtime(plugins=[memory, odd_ones(), Gossip()])

    result = rt.run(rounds("crossing")).raise_for_status()

    assert (memory.size(), learned(rt), result.warnings) == (3, LEARNED, ())


def test_so_is_each_round_of_a_sub_workflow_in_each_round_around_it(runtime: Make, path: Path) -> None:
    memory = of_rounds(path)
    rt = runtime(plugins=[memory, odd_ones()])
    wf = Workflow("outer", loop=Loop(2))
    wf.add(StepSpec("child", workflow=rounds("inner")))

    rt.run(wf).raise_for_status()

    assert memory.size() == 6
    assert learned(rt, "inner") == [dict.fromkeys(each, 0.75) for each in LEARNED]


def test_rounds_are_learned_from_once_when_the_loop_goes_on_in_another_process_or_is_asked_again(
    runtime: Make, path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "ares.db"
    assert code_of(program(store, path, "dies in round 2", "e")) == -9
    memory = of_rounds(path)
    rt = runtime(store, plugins=[memory, odd_ones()])

    rt.resume("e", rounds("crossing")).raise_for_status()

    assert (memory.size(), learned(rt)) == (3, LEARNED)
    rt.resume("e", rounds("crossing"), rerun=["choose"]).raise_for_status()
    assert (memory.size(), learned(rt)) == (3, LEARNED)


# --- exactly once ----------------------------------------------------------------------------------------------------


def test_an_execution_that_goes_on_in_another_process_is_learned_from_once(
    runtime: Make, path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "ares.db"
    assert code_of(program(store, path, "dies", "e")) == -9
    memory = ExperienceMemory(path)
    rt = runtime(store, plugins=[memory, always("left")])

    rt.resume("e", crossing()).raise_for_status()

    assert (memory.size(), advice_of(rt, at())) == (1, {})
    assert rt.resume("e", crossing()).status is ExecutionStatus.COMPLETED  # its stored result
    assert memory.size() == 1
    rt.run(crossing(), given(), execution_id="f")  # what waits to be caught up with is looked for after it
    rt.run(crossing(), given(), execution_id="g")
    assert memory.size() == 3
    assert advice_of(rt, at()) == {"left": 0.75}  # "right" went well once


def test_an_execution_whose_process_died_as_it_ended_is_caught_up_with(
    runtime: Make, path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "ares.db"
    assert code_of(program(store, path, "dies at the end", "e")) == -9
    memory = ExperienceMemory(path, evidence_min=1)
    rt = runtime(store, plugins=[memory, always("left")])
    assert rt.execution("e").status is ExecutionStatus.COMPLETED
    assert advice_of(rt, at()) == {}

    rt.run(crossing(), given()).raise_for_status()

    assert advice_of(rt, at()) == {"left": pytest.approx(2 / 3), "right": pytest.approx(2 / 3)}
    assert memory.size() == 2


def test_an_execution_that_is_resumed_and_ends_anew_is_one_experience_with_its_last_end(
    runtime: Make, store: str | None, path: Path
) -> None:
    memory = ExperienceMemory(path, evidence_min=1)
    rt = runtime(store, plugins=[memory, always()])
    bad = ["once"]
    wf = crossing(after=lambda way: bad.pop() and 1 / 0 if bad else None)

    assert rt.run(wf, given(), execution_id="e").status is ExecutionStatus.FAILED
    assert advice_of(rt, at()) == {"right": pytest.approx(1 / 3)}
    rt.resume("e", wf).raise_for_status()

    assert (memory.size(), advice_of(rt, at())) == (1, {"right": pytest.approx(2 / 3)})


def test_a_decision_that_is_made_anew_takes_the_place_of_the_old_one(runtime: Make, path: Path, tmp_path: Path) -> None:
    memory = ExperienceMemory(path, evidence_min=1)
    router = always("right")
    rt = runtime(tmp_path / "ares.db", plugins=[memory, router])
    rt.run(crossing(), given(bad=["right"]), execution_id="e")
    router.add_rule(always("left").rules[0], first=True)

    rt.resume("e", crossing(), rerun=["choose"]).raise_for_status()

    assert (memory.size(), advice_of(rt, at())) == (1, {"left": pytest.approx(2 / 3)})


def test_two_executions_of_one_name_in_two_stores_are_two_experiences(runtime: Make, path: Path) -> None:
    for _ in range(2):
        rt = runtime(plugins=[ExperienceMemory(path), always()])
        rt.run(crossing(), given(), execution_id="nightly").raise_for_status()
        said = advice_of(rt, at())
        rt.close()

    assert said == {"right": 0.75}


def test_what_was_asked_in_another_execution_of_the_same_name_is_not_taken_for_this_one(
    runtime: Make, path: Path, tmp_path: Path
) -> None:
    with Runtime(tmp_path / "ares.db", plugins=[always()]) as rt:
        rt.run(crossing(), given(), execution_id="e").raise_for_status()
    memory = running(ExperienceMemory(path))
    say(memory, at(execution_id="e"))  # and its process died with its store
    memory.stop(alone())

    rt = runtime(tmp_path / "ares.db", plugins=[memory, always()])
    rt.run(crossing(), given()).raise_for_status()

    assert advice_of(rt, at()) == {}
    assert memory.size() == 1
    assert "e" in memory._experiences.open_executions(10)


def test_several_processes_share_a_file(path: Path, tmp_path: Path) -> None:
    children = [program(tmp_path / f"{name}.db", path, "well", *(f"{name}{n}" for n in range(8))) for name in "ab"]
    assert [code_of(child) for child in children] == [0, 0]

    memory = running(ExperienceMemory(path))
    assert memory.size() == 16
    assert say(memory, at()) == {"right": pytest.approx(17 / 18)}
    memory.stop(alone())


# --- trying something new ------------------------------------------------------------------------------------------


def test_a_memory_that_explores_advises_every_branch_by_a_draw_that_can_be_repeated(path: Path) -> None:
    memory = running(ExperienceMemory(path, explore=True))
    drawn = [say(memory, at(execution_id=f"e{number}")) for number in range(40)]

    assert all(set(each) == set(WAYS) for each in drawn)
    assert len({each["left"] for each in drawn}) == 40
    assert {max(each, key=each.__getitem__) for each in drawn} == set(WAYS)
    assert say(memory, at(execution_id="e7")) == drawn[7]
    memory.stop(alone())


def test_routing_learns() -> None:
    rules, memory = (learning.measure(way, 200, seed=0).share_right(100, 200) for way in ("rules", "memory, at random"))

    assert rules <= 0.85
    assert memory >= 0.9


# --- embeddings ----------------------------------------------------------------------------------------------------


def meaning(text: str) -> list[float]:
    """As if it understood: what is warm, what is cold."""
    return [float(any(word in text for word in ("sunny", "hot"))), float(any(w in text for w in ("snow", "ice"))), 0.1]


def test_with_an_embedding_what_means_the_same_is_similar(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path, embed=meaning), always()])
    for _ in range(3):
        rt.run(crossing(), given("it is sunny")).raise_for_status()

    assert advice_of(rt, at("how hot")) == {"right": 0.8}
    assert advice_of(rt, at("ice")) == {}


@pytest.mark.parametrize("bad", [lambda text: 1 / 0, lambda text: [], lambda text: [0.0, 0.0], lambda text: ["a"]])
def test_where_an_embedding_fails_words_are_compared_and_it_is_told(path: Path, new_bus: Any, bad: Any) -> None:
    memory = ExperienceMemory(path, embed=bad)
    bus = new_bus(memory, always())
    heard = Heard(bus, "memory.embedding_failed")

    assert decision_of(bus, at()).targets == ("right",)

    [(stream, told)] = heard()
    assert (stream, told["path"], memory.counts.unembedded) == ("asked", "choose", 1)
    assert told["problem"] == memory.counts.last_error != ""


def test_embeddings_of_another_length_count_nothing(runtime: Make, path: Path) -> None:
    for embed, said in ((meaning, {"right": 0.75}), (lambda text: [1.0, 0.0], {})):
        rt = runtime(plugins=[ExperienceMemory(path, embed=embed), always()])
        for _ in range(2 if said else 1):
            rt.run(crossing(), given("sunny")).raise_for_status()
        assert advice_of(rt, at("sunny")) == said
        rt.close()


# --- what it may be given --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"embed": 3}, "embed"),
        ({"about": "output"}, "about"),
        ({"max_entries": 0}, "max_entries"),
        ({"max_entries": True}, "max_entries"),
        ({"evidence_min": -1}, "evidence_min"),
        ({"evidence_min": float("inf")}, "evidence_min"),
        ({"similarity_min": 1.5}, "similarity_min"),
        ({"similarity_min": float("nan")}, "similarity_min"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_name(path: Path, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"{named} of plugin 'experience' must be"):
        ExperienceMemory(path, **arguments)


@pytest.mark.parametrize("path", [None, 3, ":memory:"])
def test_it_needs_a_file(path: Any) -> None:
    with pytest.raises(UsageError, match="plugin 'experience' needs a path for its file"):
        ExperienceMemory(path)


def test_a_decision_that_cannot_be_looked_at_is_left_to_the_rules_and_told(path: Path, new_bus: Any) -> None:
    def about(state: RouteState) -> Any:
        return state.output["kind"]

    bus = new_bus(ExperienceMemory(path, about=about), always())
    heard = Heard(bus, "router.peer_failed")

    assert decision_of(bus, at("no mapping")).targets == ("right",)

    [(_, told)] = heard()
    assert "advise_route raised TypeError: string indices must be integers" in told["problem"]


def test_a_memory_is_found_by_a_router_within_a_chain(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), FallbackRouter([always()])])
    for _ in range(2):
        rt.run(crossing(), given()).raise_for_status()

    assert routed(events_of(rt, rt.run(crossing(), given()).execution_id))["source"] == "memory"


# --- many at once ----------------------------------------------------------------------------------------------------


def test_executions_beside_one_another_are_learned_from_each_once(runtime: Make, store: str | None, path: Path) -> None:
    memory = ExperienceMemory(path)
    rt = runtime(store, plugins=[memory, always()], durability="async")
    wf = crossing()

    runs = [rt.submit(wf, given(f"{number % 3} of them")) for number in range(30)]
    results = [run.result(30) for run in runs]

    assert {(result.status.value, result.warnings) for result in results} == {("COMPLETED", ())}
    assert (memory.size(), memory.counts.learned) == (30, 30)


def test_a_memory_that_is_started_and_stopped_often_leaves_nothing_open(path: Path) -> None:
    memory = ExperienceMemory(path)
    running(memory).stop(alone())
    before = open_files()

    for _ in range(15):
        say(running(memory), at())
        memory.stop(alone())

    assert open_files() == before
