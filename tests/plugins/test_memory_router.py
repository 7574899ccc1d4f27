"""The memory router: the best advice is followed, rules come after it, and memories think while steps run."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares import Goto, Runtime, StepSpec, Workflow
from ares.bus import PluginBus
from ares.errors import UsageError
from ares.plugin import Capability, Context
from ares.plugin.engine_bus import Stages
from ares.plugins import MemoryRouter, Rule
from ares.plugins import memory as memory_module
from ares.records import ExecutionStatus, MemoryEntry, RouteAdvice, RouteState
from tests.bus.players import LONG, Gate, Log, in_thread, refs, until
from tests.engine.helpers import Barrier, events_of
from tests.plugins.routing import (
    WAYS,
    Forwarding,
    Heard,
    Memory,
    Port,
    Transparent,
    Wrapped,
    advice,
    at,
    begun,
    crossing,
    decision_of,
    ended,
    routed,
    running,
    when_it_has_returned,
)

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]

OTHERWISE = Rule("True", "right", reason="otherwise")


def says(*pieces: tuple[str, float]) -> Callable[[RouteState], list[RouteAdvice]]:
    return lambda _state: [RouteAdvice(*piece) for piece in pieces]


def raises(_state: RouteState) -> None:
    raise ValueError("forgot")


# --- whose advice is followed ------------------------------------------------------------------------------------


def test_the_best_advice_is_followed_and_the_journal_says_why(runtime: Make, store: str | None) -> None:
    memory = Memory(says(("left", 0.6), ("middle", 0.8), ("left", 0.5)))
    rt = runtime(store, plugins=[memory, MemoryRouter([OTHERWISE])])

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["middle"]
    found = routed(events_of(rt, "e"))
    assert (found["targets"], found["source"]) == (["middle"], "memory")
    assert found["reason"] == "memory 'memory' advised it, 0.80 sure"
    assert found["scores"] == {"left": 0.6, "middle": 0.8, "right": 0.0}


def test_the_reason_of_the_advice_is_the_decisions(new_bus: NewBus) -> None:
    bus = new_bus(Memory(advice("left", reason="went well 9 times")), MemoryRouter())

    assert decision_of(bus, at()).reason == "went well 9 times"


def test_of_several_memories_the_surest_is_followed_and_of_equals_the_first(new_bus: NewBus) -> None:
    memories = [Memory(advice("left", 0.7), "a"), Memory(advice("middle", 0.9), "b"), Memory(advice("right", 0.9), "c")]
    bus = new_bus(*memories, MemoryRouter())

    decision = decision_of(bus, at())

    assert (decision.targets, decision.scores) == (("middle",), {"left": 0.7, "middle": 0.9, "right": 0.9})


@pytest.mark.parametrize(("sure", "target"), [(0.5, "left"), (0.49, "right"), (0.0, "right"), (1, "left")])
def test_advice_must_be_sure_enough_else_rules_decide(new_bus: NewBus, sure: float, target: str) -> None:
    bus = new_bus(Memory(advice("left", sure)), MemoryRouter([OTHERWISE]))

    assert decision_of(bus, at()).targets == (target,)


@pytest.mark.parametrize("said", [[], (), None, [RouteAdvice("elsewhere", 0.9)]])
def test_without_advice_for_a_branch_rules_decide(new_bus: NewBus, said: Any) -> None:
    bus = new_bus(Memory(lambda state: said), MemoryRouter([OTHERWISE]))
    heard = Heard(bus, "router.peer_failed")

    decision = decision_of(bus, at())

    assert (decision.targets, decision.source, decision.reason) == (("right",), "expression", "otherwise")
    assert heard() == []


def test_without_advice_and_rules_there_is_no_answer(new_bus: NewBus) -> None:
    assert new_bus(MemoryRouter()).route("e", at()) == (None, ("memory-router",))
    assert new_bus(Memory(says()), MemoryRouter()).route("e", at()) == (None, ("memory-router",))


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (raises, "PluginError: plugin 'bad': advise_route raised ValueError: forgot"),
        (lambda state: "left", "TypeError: advise_route must return a list of RouteAdvice, not a str"),
        (lambda state: ["left"], "TypeError: advise_route must return RouteAdvice, not a str"),
        (advice("left", 7), "ValueError: the confidence of advice must be from 0 to 1, not 7"),
        (advice("left", float("nan")), "ValueError: the confidence of advice must be from 0 to 1, not nan"),
        (advice("left", "sure"), "TypeError: "),  # type: ignore[arg-type]
    ],
)
def test_a_memory_without_a_proper_answer_is_passed_over_and_told(new_bus: NewBus, say: Any, problem: str) -> None:
    bus = new_bus(Memory(say, "bad"), Memory(advice("middle", 0.6), "good"), MemoryRouter())
    heard = Heard(bus, "router.peer_failed")

    assert decision_of(bus, at()).targets == ("middle",)

    [(stream, told)] = heard()
    assert (stream, told["path"], told["plugin"]) == ("e", "choose", "bad")
    assert told["problem"].startswith(problem)


def test_a_memory_that_hangs_costs_a_share_of_the_time_once_and_rules_decide(new_bus: NewBus, gate: Gate) -> None:
    hung = Memory(gate.pass_through, "hung", timeout=0.1)
    bus = new_bus(hung, MemoryRouter([OTHERWISE], timeout=1.0))
    heard = Heard(bus, "router.peer_failed")

    decisions = [decision_of(bus, at()) for _ in range(5)]

    assert {decision.targets for decision in decisions} == {("right",)}
    assert len(hung.states) == 1
    assert len(heard()) == 5
    assert bus.health()["memory-router"].timeouts == 0


def test_a_memory_that_takes_longer_than_the_router_has_is_not_waited_for(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Memory(gate.pass_through, "slow"), MemoryRouter([OTHERWISE], timeout=1.0))

    assert decision_of(bus, at()).targets == ("right",)

    assert bus.health()["memory-router"].timeouts == 0
    assert bus.health()["slow"].timeouts == 0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, None, "0.5"])
def test_a_least_confidence_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="confidence_min of router 'memory-router' must be a number from 0 to 1"):
        MemoryRouter(confidence_min=value)


# --- what is recorded --------------------------------------------------------------------------------------------


def test_hits_are_recorded_for_the_execution_whether_they_were_followed_or_not(new_bus: NewBus) -> None:
    memory = Memory(says(("left", 0.3), ("right", 0.4), ("elsewhere", 0.9)))
    bus = new_bus(memory, MemoryRouter([OTHERWISE]))
    port = Port()
    bus.open_execution("e", port)

    decision_of(bus, at())
    memory.say = advice("left", 0.7)
    decision_of(bus, at())
    memory.say = says()
    decision_of(bus, at())

    query = "advise_route of 'choose', asked when it had returned"
    assert port.log.lines == [
        ("memory-router", MemoryEntry("choose", "choose", query, 2, 0.4, ())),
        ("memory-router", MemoryEntry("choose", "choose", query, 1, 0.7, ("memory",))),
    ]


def test_hits_are_in_the_checkpoint_and_shown_to_the_next_router(runtime: Make, store: str | None) -> None:
    wf = Workflow("twice")
    wf.step(lambda: 1, id="first", branches=("a", "b"))
    wf.step(lambda first: 1, id="a")
    wf.step(lambda first: 1, id="b")
    wf.step(lambda a, b: 1, id="second", branches=("c", "d"))
    wf.step(lambda second: 1, id="c")
    wf.step(lambda second: 1, id="d")
    memory = Memory(lambda state: [RouteAdvice(name, 0.9) for name in state.candidates[:1]])
    rt = runtime(store, plugins=[memory, MemoryRouter()])

    rt.run(wf, execution_id="e").raise_for_status()

    assert [hit.path for hit in rt.checkpoint("e").memory_hits] == ["first", "second"]
    [second] = [state for state in memory.states if state.path == "second" and state.candidates]
    assert [hit.path for hit in second.memory_hits] == ["first"]


# --- while the step runs -----------------------------------------------------------------------------------------


def test_the_memory_is_asked_while_the_body_runs_and_its_answer_is_used_at_once(
    runtime: Make, store: str | None
) -> None:
    body_runs, has_advised = threading.Event(), threading.Event()

    def advise(state: RouteState) -> list[RouteAdvice]:
        assert body_runs.wait(LONG), "the body did not run while the memory thought"
        has_advised.set()
        return [RouteAdvice("left", 0.9)]

    def body() -> str:
        body_runs.set()
        assert has_advised.wait(LONG), "the memory was not asked while the body ran"
        return "here"

    memory, router = Memory(advise), MemoryRouter()
    rt = runtime(store, plugins=[memory, router])

    result = rt.run(crossing(body), execution_id="e").raise_for_status()

    assert result.output("join") == ["left"]
    assert [state.path for state in memory.states if state.path == "choose"] == ["choose"]
    assert router.prefetch_counts.used == 1
    [hit] = rt.checkpoint("e").memory_hits
    assert hit.query == "advise_route of 'choose', asked while it ran"


def test_an_early_question_says_what_is_known_and_has_no_candidates(new_bus: NewBus) -> None:
    memory = Memory(advice("left"))
    bus = new_bus(memory, MemoryRouter())
    bus.before_execution(begun())

    bus.before_step("e", running(round=3))
    until(lambda: len(memory.states) == 1)

    assert memory.states == [RouteState("e", "crossing", "choose", "choose", 3, None, {}, ())]


def test_an_answer_that_is_under_way_is_waited_for(new_bus: NewBus, gate: Gate) -> None:
    def advise(state: RouteState) -> list[RouteAdvice]:
        gate.pass_through()
        return [RouteAdvice("left", 0.9)]

    memory, router = Memory(advise), MemoryRouter([OTHERWISE])
    bus = new_bus(memory, router)
    bus.before_execution(begun())
    bus.before_step("e", running())
    gate.await_entry()

    routing = in_thread(decision_of, bus, at())
    until(lambda: bus.health()["memory-router"].calls == 3 and not router._held)  # it has taken it up
    gate.open()

    assert routing().targets == ("left",)
    assert len(memory.states) == 1
    assert router.prefetch_counts.used == 1


def test_a_memory_that_must_see_the_output_is_asked_again(runtime: Make, store: str | None) -> None:
    memory = Memory(lambda state: [RouteAdvice(state.output, 0.9)] if state.candidates else [])
    router = MemoryRouter()
    rt = runtime(store, plugins=[memory, router])

    result = rt.run(crossing(lambda: "middle")).raise_for_status()

    assert result.output("join") == ["middle"]
    asked = [(state.output, state.candidates) for state in memory.states if state.path == "choose"]
    assert asked == [(None, ()), ("middle", WAYS)]
    assert (router.prefetch_counts.used, router.prefetch_counts.useless) == (0, 1)


def test_an_early_answer_that_comes_too_late_leaves_the_decision_to_the_rules(new_bus: NewBus, gate: Gate) -> None:
    memory = Memory(gate.pass_through)
    bus = new_bus(memory, MemoryRouter([OTHERWISE], timeout=1.0))
    bus.before_execution(begun())
    bus.before_step("e", running())

    assert decision_of(bus, at()).targets == ("right",)

    assert len(memory.states) == 1  # there was no time to ask again
    assert bus.health()["memory-router"].timeouts == 0


def test_steps_and_executions_beside_one_another_never_see_each_others_advice(runtime: Make) -> None:
    points, executions = ("p0", "p1", "p2"), ("e0", "e1", "e2", "e3")
    all_run = Barrier(len(points) * len(executions))
    is_rehearsal = [True]

    def way(execution_id: str, path: str) -> str:
        return str((int(execution_id[-1]) + int(path[-1])) % 2)

    def advise(state: RouteState) -> list[RouteAdvice]:
        return [RouteAdvice(f"{state.step_id}-{way(state.execution_id, state.path)}", 0.9)]

    def body() -> None:
        if not is_rehearsal:
            all_run.wait()

    wf = Workflow("wide")
    for point in points:
        wf.step(body, id=point, branches=(f"{point}-0", f"{point}-1"))
        for end in "01":
            wf.step(lambda: 1, id=f"{point}-{end}", depends_on=[point])
    memory, router = Memory(advise), MemoryRouter()
    rt = runtime(plugins=[memory, router], max_workers=16)
    rt.run(wf, execution_id="rehearsal0").raise_for_status()  # so that it is known what the branch points are
    is_rehearsal.clear()
    before = router.prefetch_counts

    results = [rt.submit(wf, execution_id=each) for each in executions]

    for each in results:
        outputs = each.result(LONG).raise_for_status().outputs
        assert set(outputs) == {*points, *(f"{point}-{way(each.id, point)}" for point in points)}
    assert router.prefetch_counts.used - before.used == len(points) * len(executions)
    assert router.prefetch_counts.useless == before.useless


def test_rounds_of_one_step_have_each_their_own_advice(new_bus: NewBus) -> None:
    memory, router = Memory(lambda state: [RouteAdvice(WAYS[state.round - 1], 0.9)]), MemoryRouter()
    bus = new_bus(memory, router)
    bus.before_execution(begun())
    for number in (1, 2, 3):
        bus.before_step("e", running(round=number))

    for number in (3, 1, 2):
        state = RouteState("e", "crossing", "choose", "choose", number, None, {}, WAYS)
        assert decision_of(bus, state).targets == (WAYS[number - 1],)

    assert router.prefetch_counts.used == 3


def test_an_attempt_more_is_no_question_more(new_bus: NewBus) -> None:
    memory, router = Memory(advice("left")), MemoryRouter()
    bus = new_bus(memory, router)
    bus.before_execution(begun())

    for _ in range(3):
        bus.before_step("e", running())
    decision_of(bus, at())

    assert len(memory.states) == 1


# --- which steps are asked about -----------------------------------------------------------------------------------


def test_after_one_execution_only_branch_points_are_asked_about(runtime: Make, store: str | None) -> None:
    memory, router = Memory(advice("left")), MemoryRouter()
    rt = runtime(store, plugins=[memory, router])
    wf = crossing()

    rt.run(wf, execution_id="e1").raise_for_status()
    rt.run(wf, execution_id="e2").raise_for_status()

    assert [state.path for state in memory.states if state.execution_id == "e1"] == ["choose", "left", "join"]
    assert [state.path for state in memory.states if state.execution_id == "e2"] == ["choose"]


def test_a_step_that_often_decides_for_itself_is_asked_about_once_it_did_not(runtime: Make) -> None:
    answers = [Goto("right"), "here", "here"]
    memory, router = Memory(advice("left")), MemoryRouter()
    rt = runtime(plugins=[memory, router])
    wf = crossing(lambda: answers.pop(0))

    for execution_id in ("e1", "e2", "e3"):
        rt.run(wf, execution_id=execution_id).raise_for_status()

    early = [state.execution_id for state in memory.states if state.path == "choose" and not state.candidates]
    assert early == ["e1", "e3"]
    assert router.prefetch_counts.used == 1


def test_a_branch_point_in_a_sub_workflow_is_asked_about_once_its_workflow_is_known(runtime: Make) -> None:
    memory, router = Memory(advice("left")), MemoryRouter()
    rt = runtime(plugins=[memory, router])
    wf = Workflow("parent")
    wf.add(StepSpec("sub", workflow=crossing()))

    for execution_id in ("e1", "e2"):
        rt.run(wf, execution_id=execution_id).raise_for_status()

    asked = [(s.execution_id, s.workflow_id, bool(s.candidates)) for s in memory.states if s.path == "sub/choose"]
    assert asked == [("e1", "crossing", True), ("e2", "crossing", False)]


def test_elements_of_a_map_are_known_by_their_step_and_each_has_its_own_advice(runtime: Make) -> None:
    memory = Memory(lambda state: [RouteAdvice(WAYS[int(state.path[6])], 0.9)] if state.step_id == "choose" else [])
    router = MemoryRouter()
    rt = runtime(plugins=[memory, router])
    wf = Workflow("parent")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.add(StepSpec("audit", workflow=crossing(), map_over="source", inputs={}))

    for execution_id in ("e1", "e2"):
        result = rt.run(wf, execution_id=execution_id).raise_for_status()
        assert result.output("audit") == [{"join": [way]} for way in WAYS]

    early = [s.path for s in memory.states if s.execution_id == "e2" and not s.candidates]
    assert sorted(early) == [f"audit[{number}]/choose" for number in range(3)]


def test_of_steps_that_may_be_none_a_few_are_asked_about_at_a_time(new_bus: NewBus, gate: Gate) -> None:
    memory, router = Memory(gate.pass_through), MemoryRouter()
    bus = new_bus(memory, router)
    bus.before_execution(begun())

    for number in range(20):
        bus.before_step("e", running(f"s{number}"))

    assert router.prefetch_counts.asked == memory_module._GUESSES


def test_what_is_held_is_bounded_however_many_steps_there_are(new_bus: NewBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_HELD", 5)
    monkeypatch.setattr(memory_module, "_KNOWN", 5)
    memory, router = Memory(says()), MemoryRouter()
    bus = new_bus(memory, router)

    for run in range(10):
        bus.before_execution(begun(f"e{run}"))
        for number in range(10):
            bus.before_step(f"e{run}", running(f"s{run}-{number}"))
            until(lambda: all(not each.is_open() for each in router._recent))
            decision = bus.route(f"e{run}", at(path=f"s{run}-{number}", execution_id=f"e{run}")) if number % 2 else None
            assert decision in (None, (None, ("memory-router",)))

    assert len(router._held) <= 5
    assert len(router._places) <= 5
    assert len(router._workflows) <= 5
    assert len(router._recent) <= 10


@pytest.mark.parametrize("status", [ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED])
def test_an_execution_that_ended_is_forgotten_and_no_other(new_bus: NewBus, status: ExecutionStatus) -> None:
    memory, router = Memory(advice("left")), MemoryRouter()
    bus = new_bus(memory, router)
    for execution_id in ("e", "other"):
        bus.before_execution(begun(execution_id))
        bus.before_step(execution_id, running())

    bus.after_execution(ended("e", status))

    assert list(router._held) == [("other", "choose", 1)]
    assert list(router._workflows) == ["other"]


def test_an_execution_that_is_taken_up_again_begins_without_what_was_held(new_bus: NewBus) -> None:
    memory, router = Memory(advice("left")), MemoryRouter()
    bus = new_bus(memory, router)
    bus.before_execution(begun())
    bus.before_step("e", running())

    bus.before_execution(begun())

    assert router._held == {}
    assert decision_of(bus, at()).targets == ("left",)
    assert len(memory.states) == 2


def test_whatever_a_failed_execution_left_unrouted_may_still_be_a_branch_point(runtime: Make) -> None:
    broken = [True]

    def body() -> str:
        if broken:
            raise ValueError("not yet")
        return "here"

    memory, router = Memory(advice("left")), MemoryRouter()
    rt = runtime(plugins=[memory, router])
    wf = crossing(body)
    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    broken.clear()

    rt.resume("e", wf).raise_for_status()

    assert router.prefetch_counts.used == 1


def test_without_prefetch_it_has_no_hooks_and_asks_when_the_step_has_returned(new_bus: NewBus) -> None:
    memory, router = Memory(advice("left")), MemoryRouter(prefetch=False)
    bus = new_bus(memory, router)

    assert bus.stages == Stages(has_routers=True)
    assert decision_of(bus, at()).targets == ("left",)
    assert memory.states == [at()]


def test_a_step_waits_for_the_router_and_not_for_the_memory(new_bus: NewBus, gate: Gate) -> None:
    memory, router = Memory(gate.pass_through), MemoryRouter()
    bus = new_bus(memory, router)
    bus.before_execution(begun())

    bus.before_step("e", running())  # returns while the memory hangs

    gate.await_entry()
    assert not gate.opened.is_set()


# --- its life ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", [Forwarding, Transparent])
def test_on_a_bus_in_a_wrapper_it_finds_its_memories(new_bus: NewBus, wrapper: Any) -> None:
    router = MemoryRouter([Rule(lambda output, variables: 1 / 0, "left", "other"), OTHERWISE])
    bus = new_bus(Memory(advice("left")), Wrapped(router, wrapper))
    bus.before_execution(begun())
    heard = Heard(bus, "router.rule_failed")

    bus.before_step("e", running())

    assert decision_of(bus, at()).source == "memory"
    assert router.prefetch_counts.used == 1
    assert heard() == []


def test_a_bus_in_which_nobody_can_be_found_leaves_it_its_rules(new_bus: NewBus) -> None:
    class OnlyEvents(Forwarding):
        plugins_by_cap = None  # type: ignore[assignment]

    bus = new_bus(Memory(advice("left")), Wrapped(MemoryRouter([OTHERWISE]), OnlyEvents))

    assert decision_of(bus, at()).targets == ("right",)


def test_a_wrapper_whose_directory_raises_leaves_it_its_rules_and_is_told(new_bus: NewBus) -> None:
    class Lost(Forwarding):
        def plugins_by_cap(self, cap: Capability) -> Any:
            raise LookupError("no directory")

    bus = new_bus(Memory(advice("left")), Wrapped(MemoryRouter([OTHERWISE]), Lost))
    bus.before_execution(begun())
    heard = Heard(bus, "router.peer_failed")

    bus.before_step("e", running())

    assert decision_of(bus, at()).targets == ("right",)
    assert {told["problem"] for _, told in heard()} == {"LookupError: no directory"}


def test_memories_are_found_whatever_the_order_of_registration(new_bus: NewBus) -> None:
    bus = new_bus(MemoryRouter(), Memory(advice("left")))

    assert decision_of(bus, at()).targets == ("left",)


def test_a_memory_that_is_the_router_itself_is_not_waited_for(new_bus: NewBus) -> None:
    class Both(MemoryRouter):
        capabilities = frozenset({Capability.ROUTER, Capability.MEMORY})

        def advise_route(self, ctx: Context, state: RouteState) -> list[RouteAdvice]:
            return [RouteAdvice("left", 0.9)]

    bus = new_bus(Both([OTHERWISE], prefetch=False))
    heard = Heard(bus, "router.peer_failed")

    assert decision_of(bus, at()).targets == ("right",)
    assert "PluginDeadlockError" in heard()[0][1]["problem"]


def test_the_same_router_starts_anew_with_nothing_held(new_bus: NewBus) -> None:
    router = MemoryRouter([OTHERWISE])
    first = new_bus(Memory(advice("left")), router)
    first.before_execution(begun())
    first.before_step("e", running())
    first.stop()

    bus = new_bus(router)

    assert decision_of(bus, at()).targets == ("right",)
    assert router.prefetch_counts.used == 0


def test_it_can_be_asked_by_others_who_walk_no_execution(new_bus: NewBus) -> None:
    bus = new_bus(Memory(when_it_has_returned("middle")), MemoryRouter())

    decision = refs(bus)["memory-router"].call("route", at())

    assert decision.targets == ("middle",)


def test_routes_and_steps_of_many_executions_at_once_leave_nothing_behind(runtime: Make) -> None:
    seen = Log()

    def advise(state: RouteState) -> list[RouteAdvice]:
        seen.add(state.execution_id)
        return [RouteAdvice(WAYS[int(state.execution_id[1:]) % 3], 0.9)]

    router = MemoryRouter()
    rt = runtime(plugins=[Memory(advise), router], max_workers=8)
    wf = crossing()

    for execution in [rt.submit(wf, execution_id=f"e{number}") for number in range(60)]:
        result = execution.result(LONG).raise_for_status()
        assert result.output("join") == [WAYS[int(execution.id[1:]) % 3]]

    assert router._held == {}
    assert router._workflows == {}
