"""The loop plugin: at the end of a round what waits is stored, memories are asked, outcomes are learned from."""

import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from ares import Approve, Loop, Reject, Runtime, StepContext, StepSpec, Workflow
from ares.bus import PluginBus
from ares.context import Context
from ares.errors import UsageError
from ares.plugin import Capability, LoopController
from ares.plugin.engine_bus import Stages
from ares.plugins import CheckpointPlugin, LoopPlugin
from ares.plugins.loop import PEER_FAILED, outcome_of
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    RouteAdvice,
    ScoringSignal,
    StepResult,
    StepStatus,
)
from tests.bus.players import Gate, Log, Named
from tests.plugins.pupil import Pupil
from tests.plugins.routing import Forwarding, Heard, Memory, Transparent, Wrapped

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]


class Keeper(Named):
    """A checkpoint plugin of somebody else's."""

    capabilities = frozenset({Capability.CHECKPOINT})

    def __init__(self, name: str = "keeper", **more: Any) -> None:
        super().__init__(name, **more)
        self.log = Log()

    def flush(self, ctx: Context, execution_id: str) -> None:
        self.log.add((ctx.execution_id, execution_id))


class Label(Named):
    """Has the capability and keeps nothing back."""

    capabilities = frozenset({Capability.CHECKPOINT})


def advises(*confidences: float) -> Callable[[Any], Any]:
    return lambda _state: [RouteAdvice("", confidence) for confidence in confidences]


def busy(rounds: int = 2) -> Workflow:
    """A loop whose rounds differ: a tool in the first, a collected failure and a skipped step in each."""
    wf = Workflow("busy", variables={"n": 0}, loop=Loop(rounds))

    @wf.step(writes="n")
    def begin(ctx: StepContext, n: int) -> list[int]:
        ctx.set("n", n + 1)
        if ctx.round == 1:
            ctx.tool("search", len, [])
        return [0, 1]

    wf.step(lambda item: 1 // item, id="each", map_over="begin", on_item_failure="collect")
    wf.step(lambda: None, id="never", condition=lambda n: False)
    return wf


def state(**more: Any) -> ExecutionState:
    return ExecutionState("e", "w", "", 1, {}, {}, **more)


# --- it is one controller among others ---------------------------------------------------------------------------


def test_it_is_a_loop_controller_and_nothing_besides(new_bus: NewBus) -> None:
    plugin = LoopPlugin()

    bus = new_bus(plugin)

    assert isinstance(plugin, LoopController)
    assert bus.stages == Stages(has_loop=True)
    assert bus.hook_order().loop == ("loop",)


def test_by_itself_it_wants_every_round(runtime: Make) -> None:
    result = runtime(plugins=[LoopPlugin()]).run(busy(3)).raise_for_status()

    assert (result.variables, result.warnings) == ({"n": 3}, ())


def test_its_rule_is_shown_the_next_round_and_how_the_last_one_went(runtime: Make) -> None:
    shown: list[tuple[int, int, int]] = []

    def rule(next_round: int, state: ExecutionState) -> bool:
        shown.append((next_round, state.variables["n"], len(state.tools)))
        return next_round < 3

    result = runtime(plugins=[LoopPlugin(rule)]).run(busy(9)).raise_for_status()

    assert shown == [(2, 1, 1), (3, 2, 0)]
    assert result.variables == {"n": 2}


def test_a_rule_that_raises_ends_the_loop_with_a_warning(runtime: Make) -> None:
    def rule(next_round: int, state: ExecutionState) -> bool:
        raise ValueError("no idea")

    result = runtime(plugins=[LoopPlugin(rule)]).run(busy(9)).raise_for_status()

    assert result.variables == {"n": 1}
    assert any("should_execute_round raised ValueError: no idea" in warning for warning in result.warnings)


@pytest.mark.parametrize(("scores", "goes_on"), [((), True), ((0.2, 0.5), True), ((0.9, 0.1), False)])
def test_a_score_that_is_enough_ends_the_loop(new_bus: NewBus, scores: tuple[float, ...], goes_on: bool) -> None:
    bus = new_bus(LoopPlugin(enough=0.9))
    signals = [ScoringSignal("judge", score, "") for score in scores]

    assert bus.should_execute_round("e", 2, state(scoring_signals=signals)) == (goes_on, "" if goes_on else "loop")


def test_scores_that_were_recorded_in_the_round_count(runtime: Make) -> None:
    class Judge(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            if result.path == "begin":
                ctx.record(ScoringSignal("judge", 0.3 * result.round, "quality"))

    result = runtime(plugins=[Judge("judge"), LoopPlugin(enough=0.8)]).run(busy(9)).raise_for_status()

    assert result.variables == {"n": 3}


@pytest.mark.parametrize("options", [{"rule": "no"}, {"enough": "high"}, {"enough": True}, {"enough": math.nan}])
def test_what_can_be_no_rule_and_no_score_is_refused(options: Any) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        LoopPlugin(**options)


# --- the end of a round ------------------------------------------------------------------------------------------


def test_outcomes_are_those_of_each_round(runtime: Make, store: str | None) -> None:
    pupil = Pupil()

    runtime(store, plugins=[LoopPlugin(), pupil]).run(busy(), execution_id="e").raise_for_status()

    shown = [attrs.astuple(attrs.evolve(outcome, duration=0.0)) for outcome in pupil.outcomes]
    assert shown == [
        # steps, failed, skipped, routes, tools, memory hits, interrupts, errors
        ("e", "busy", "COMPLETED", 1, 0.0, 5, 1, 1, 0, 1, 0, 0, 1),
        ("e", "busy", "COMPLETED", 2, 0.0, 5, 1, 1, 0, 0, 0, 0, 1),
    ]
    assert all(0 < outcome.duration < 20 for outcome in pupil.outcomes)


def test_an_outcome_counts_questions_and_not_their_answers_of_the_round_and_of_the_execution(
    runtime: Make, store: str | None
) -> None:
    class Last(Named):
        def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
            ends.append(outcome)

    ends: list[ExecutionOutcome] = []
    pupil = Pupil()
    wf = Workflow("w", loop=Loop(3))
    wf.step(lambda ctx: [ctx.interrupt("a", "?") for _ in range(2)] + [ctx.interrupt("b", "?")], id="yes")
    wf.step(lambda: None, id="no", interrupt="Sure?", depends_on=["yes"])
    wf.step(lambda no: None, id="after")
    rt = runtime(store, plugins=[LoopPlugin(), pupil, Last("last")])

    result = rt.run(wf, execution_id="e")
    while result.interrupts:
        assert (result.status, ends) == ("WAITING", [])  # it has not ended
        assert len(pupil.outcomes) == result.interrupts[0].round - 1
        rt.answer(result.interrupts[0], Approve() if result.interrupts[0].key else Reject())
        result = rt.resume("e", wf)

    told = [(o.status, o.round, o.total_steps, o.skipped_steps, o.interrupt_count) for o in pupil.outcomes]
    assert told == [("COMPLETED", n, 3, 2, 3) for n in (1, 2, 3)]  # what a human said no to is skipped
    assert [(o.status, o.round, o.skipped_steps, o.interrupt_count) for o in ends] == [("COMPLETED", 3, 2, 9)]


def test_the_outcome_of_a_round_that_failed_says_so(runtime: Make) -> None:
    pupil = Pupil()
    wf = Workflow("w")
    wf.step(lambda: 1 // 0, id="fails")
    wf.step(lambda fails: None, id="after")

    runtime(plugins=[LoopPlugin(), pupil]).run(wf)

    (outcome,) = pupil.outcomes
    assert (outcome.status, outcome.total_steps, outcome.failed_steps, outcome.skipped_steps) == ("FAILED", 2, 1, 1)


def test_rounds_of_sub_workflows_are_learned_from_under_their_own_name(runtime: Make) -> None:
    pupil = Pupil()
    wf = Workflow("outer")
    wf.add(StepSpec("inside", workflow=busy()))

    runtime(plugins=[LoopPlugin(), pupil]).run(wf).raise_for_status()

    told = [(o.workflow_id, o.round, o.total_steps, o.tool_count) for o in pupil.outcomes]
    assert told == [("busy", 1, 5, 1), ("busy", 2, 5, 0), ("outer", 1, 6, 1)]


def test_a_state_that_does_not_say_how_the_round_ended_is_looked_at() -> None:
    def with_step(path: str, error: Exception | None) -> ExecutionOutcome:
        name = path.rpartition("/")[2]
        base = name.partition("[")[0]
        step = StepResult(name, path, base, None, 1, base, StepStatus.FAILED, error=error)
        return outcome_of(ExecutionState("e", "w", "", 1, {}, {path: step}))

    assert with_step("a", ValueError("no")).status is ExecutionStatus.FAILED
    assert with_step("each[0]", ValueError("no")).status is ExecutionStatus.COMPLETED
    assert with_step("in/a", ValueError("no")).status is ExecutionStatus.COMPLETED


def test_memories_are_asked_about_the_round_and_what_they_say_is_kept(runtime: Make, store: str | None) -> None:
    memory, silent = Memory(advises(0.3, 0.8)), Memory(advises(), "silent")
    rt = runtime(store, plugins=[LoopPlugin(), memory, silent])

    rt.run(busy(), execution_id="e").raise_for_status()

    first = memory.states[0]
    assert (first.execution_id, first.step_id, first.round, first.candidates) == ("e", "", 1, ())
    assert (first.variables, first.output["begin"], len(first.tools)) == ({"n": 1}, [0, 1], 1)
    hits = rt.checkpoint("e").memory_hits
    assert [(h.query, h.hit_count, h.best_score) for h in hits] == [
        ("end of round 1", 2, 0.8), ("end of round 1", 0, 0.0), ("end of round 2", 2, 0.8), ("end of round 2", 0, 0.0),
    ]  # fmt: skip


def test_what_was_recorded_in_the_round_is_stored_when_it_ends(runtime: Make, store: str | None) -> None:
    found: list[int] = []

    class Scribe(Named):
        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            ctx.record(ScoringSignal("scribe", 1.0, result.path))

    rt = runtime(store, plugins=[Scribe("scribe"), CheckpointPlugin(interval=3600), LoopPlugin()])
    wf = busy()
    wf.loop = Loop(until=lambda ctx: found.append(len(rt.checkpoint("e").scoring_signals)) or ctx.round == 2)

    rt.run(wf, execution_id="e").raise_for_status()

    assert found == [2, 4]


def test_every_checkpoint_plugin_that_can_is_told_to_flush(new_bus: NewBus) -> None:
    keeper, label, plugin = Keeper(), Label("label"), LoopPlugin()
    bus = new_bus(keeper, label, plugin)
    heard = Heard(bus, PEER_FAILED)

    bus.on_round_end("e", 1, state())

    assert keeper.log.lines == [("e", "e")]
    assert (heard(), dict(plugin.peer_failures)) == ([], {})


# --- peers that fail ---------------------------------------------------------------------------------------------


def raises(*_: Any) -> Any:
    raise ValueError("no idea")


def test_a_peer_that_fails_is_told_and_counted_and_keeps_no_other_from_its_part(new_bus: NewBus) -> None:
    class Sieve(Keeper):
        def flush(self, ctx: Context, execution_id: str) -> None:
            raises()

    class Dunce(Pupil):
        def record_outcome(self, ctx: Context, outcome: ExecutionOutcome) -> None:
            raises()

    memory, mumbling, pupil = Memory(raises, "memory"), Memory(lambda _: 7, "mumbling"), Pupil()
    plugin = LoopPlugin()
    bus = new_bus(Sieve("sieve"), memory, mumbling, Dunce("dunce"), pupil, plugin)
    heard = Heard(bus, PEER_FAILED)

    bus.on_round_end("e", 3, state())

    told = [(stream, said["plugin"], said["call"]) for stream, said in heard()]
    assert told == [
        ("e", "sieve", "flush"),
        ("e", "memory", "advise_route"),
        ("e", "mumbling", "advise_route"),
        ("e", "dunce", "record_outcome"),
    ]
    assert dict(plugin.peer_failures) == {"sieve": 1, "memory": 1, "mumbling": 1, "dunce": 1}
    assert len(pupil.outcomes) == 1
    assert bus.health()["loop"].errors == 0


def test_a_peer_that_hangs_costs_a_part_of_the_plugins_own_time(new_bus: NewBus, gate: Gate) -> None:
    pupil, plugin = Pupil(), LoopPlugin(timeout=1.0)
    bus = new_bus(Memory(lambda _: gate.wait(), timeout=0.1), pupil, plugin)

    bus.on_round_end("e", 1, state())

    assert (len(pupil.outcomes), dict(plugin.peer_failures)) == (1, {"memory": 1})
    assert bus.health()["loop"].timeouts == 0


# --- a bus in a wrapper ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", [Forwarding, Transparent])
def test_on_a_decorated_bus_it_finds_its_peers(new_bus: NewBus, wrapper: Callable[[Any], Any]) -> None:
    keeper, memory, pupil = Keeper(), Memory(advises(0.5)), Pupil()
    bus = new_bus(keeper, memory, pupil, Wrapped(LoopPlugin(), wrapper))

    bus.on_round_end("e", 1, state())

    assert (len(keeper.log.lines), len(memory.states), len(pupil.outcomes)) == (1, 1, 1)


def test_without_peers_and_without_a_directory_there_is_nothing_to_do(new_bus: NewBus) -> None:
    class Bare:
        def __init__(self, inner: Any) -> None:
            self.emit, self.subscribe = inner.emit, inner.subscribe

    plugin = LoopPlugin()
    bus = new_bus(Wrapped(plugin, Bare), Pupil())

    bus.on_round_end("e", 1, state())

    assert bus.health()["loop"].errors == 0
