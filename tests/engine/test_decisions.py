"""The decisions of past executions: what routers were shown is rebuilt, and what cannot be is named."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares import (
    Approve,
    ExecutionStatus,
    Goto,
    Question,
    RetryPolicy,
    RouteDecision,
    RouteState,
    Runtime,
    StepContext,
    StepSpec,
    Workflow,
)
from ares.bus import PluginBus
from ares.context import Context, NoExecution
from ares.engine.decisions import Decider, Decision, decisions
from ares.engine.definitions import Definitions
from ares.errors import ExecutionConflictError, ExecutionNotFoundError, SerializationError, StoreError
from ares.events import EventFilter, EventType
from ares.records import MemoryEntry
from tests.bus.players import Listener
from tests.engine.helpers import Gate, Task
from tests.plugins.routing import crossing
from tests.plugins_on_runtime.players import Signpost

Make = Callable[..., Runtime]


def to(*targets: str, **more: Any) -> Callable[[RouteState], RouteDecision]:
    return lambda _state: RouteDecision(targets, **{"reason": "", "source": "router", **more})


def abstains(_state: RouteState) -> None:
    return None


def plain(state: RouteState | None) -> Any:
    """A state without what a journal has otherwise: instants, of when it was written; durations, to the microsecond."""
    assert state is not None
    routes = tuple((r.step_id, r.path, r.targets, r.reason, r.source) for r in state.routes)
    tools = tuple(attrs.evolve(tool, duration=0.0) for tool in state.tools)
    return attrs.evolve(state, routes=routes, tools=tools, variables=dict(state.variables))


def asked_again(found: list[Decision], *plugins: Any) -> list[Any]:
    """What the routers of a bus of their own say; None where it is not theirs to say."""
    bus = PluginBus(name="again", timeout=20.0)
    bus.register(*plugins)
    bus.start()
    try:
        for decision in found:
            bus.open_execution(decision.execution_id, NoExecution())
        return [None if each.state is None else each.ask(bus) for each in found]
    finally:
        bus.stop()


# --- what routers were shown --------------------------------------------------------------------------------------

#: The ways in which a stage of a journey may be: what comes to a decision, and what does not.
STAGES = ("write", "tool", "plugin", "own router", "abstaining router", "goto", "all", "child", "map", "question")


class Pilot(Signpost):
    """Decides by what it is shown, and remembers to have been asked."""

    def __init__(self) -> None:
        super().__init__("pilot", self.decide)

    def decide(self, state: RouteState) -> RouteDecision | None:
        if state.step_id.endswith("all"):
            return None
        seen = len(state.routes) + len(state.tools) + len(state.memory_hits) + sum(state.variables.values())
        target = state.candidates[seen % 2]
        return RouteDecision((target,), f"{seen} seen", "router", {target: seen / 10})

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        decision = super().route(ctx, state)
        try:
            ctx.record(MemoryEntry(state.step_id, state.path, "which way?", 1, 0.5, ()))
        except Exception:
            return decision  # nobody walks: there is no history
        return decision


def journey(stages: list[str]) -> Workflow:
    """A workflow that comes by these stages, one after another."""
    wf = Workflow("journey", variables={"n": 0})
    before: list[str] = []
    for number, stage in enumerate(stages):
        before = _stage(wf, f"{number}", stage, before)
    return wf


def _stage(wf: Workflow, number: str, stage: str, before: list[str]) -> list[str]:
    options: dict[str, Any] = {"id": f"{number} {stage}", "depends_on": before}
    if stage == "write":

        def write(ctx: StepContext) -> None:
            ctx.set("n", ctx.variables["n"] + 1)

        wf.step(write, writes=["n"], **options)
        return [options["id"]]
    if stage == "tool":
        wf.step(lambda ctx: ctx.tool("add", lambda a: a + 1, 1), **options)
        return [options["id"]]
    if stage == "child":
        child = Workflow("child", variables={"n": 7})
        _stage(child, "c", "plugin", [])
        wf.add(StepSpec(workflow=child, **options))
        return [options["id"]]
    ways = [f"{number} left", f"{number} right"]
    if stage == "map":
        wf.step(lambda: [1, 2], id=f"{number} list", depends_on=before)
        wf.step(lambda item: item, branches=ways, map_over=f"{number} list", id=options["id"])
    else:
        own = {"own router": lambda: ways[1], "abstaining router": lambda: None}.get(stage)
        more = {"on_no_route": "all"} if stage == "all" else {}
        bodies: dict[str, Any] = {
            "goto": lambda: Goto(ways[0], value=number),
            "question": lambda ctx: ctx.interrupt("way", "which way?"),
        }
        wf.step(bodies.get(stage, lambda: number), branches=ways, router=own, **options, **more)
    for way in ways:
        wf.step(lambda: None, id=way, depends_on=[options["id"]])
    wf.step(lambda: None, id=f"{number} joined", depends_on=ways)
    return [f"{number} joined"]


def approves(question: Question) -> Approve:
    return Approve(question.key)


def check_journey(rt: Runtime, pilot: Pilot, wf: Workflow) -> None:
    rt.run(wf, execution_id="e").raise_for_status()
    shown = [plain(state) for state in pilot.states]

    found = list(rt.decisions("e", wf))

    assert [plain(each.state) for each in found if each.decider is Decider.ROUTERS] == shown
    assert all(each.uncertain == () and each.missing == "" and each.is_same_workflow for each in found)
    again = asked_again(found, Pilot())
    assert [now for now in again if now] == [each.then for each in found if each.decider is Decider.ROUTERS]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stages=st.lists(st.sampled_from(STAGES), min_size=1, max_size=6))
def test_what_routers_were_shown_is_what_is_rebuilt_and_they_would_decide_the_same(stages: list[str]) -> None:
    pilot = Pilot()
    with Runtime(plugins=[pilot], interrupt_handler=approves) as rt:
        check_journey(rt, pilot, journey(stages))


def test_from_a_file_it_is_the_same(runtime: Make, tmp_path: Path) -> None:
    pilot = Pilot()
    rt = runtime(tmp_path / "a.db", plugins=[pilot], interrupt_handler=approves)

    check_journey(rt, pilot, journey([*STAGES, *reversed(STAGES)]))


def test_a_route_that_is_asked_for_again_is_shown_what_there_is_by_then(runtime: Make, store: str | None) -> None:
    wf = Workflow("late", variables={"n": 0})
    wf.step(lambda: "here", id="choose", branches=["left", "right"])
    wf.step(lambda: None, id="left", depends_on=["choose"])
    wf.step(lambda: None, id="right", depends_on=["choose"])
    wf.step(lambda ctx: ctx.set("n", 1), id="after", writes=["n"])
    answers: list[Any] = [None, RouteDecision(("left",))]
    post = Signpost("post", lambda _state: answers.pop(0))
    rt = runtime(store, plugins=[post], max_workers=1)
    rt.run(wf, execution_id="e")
    rt.resume("e", wf).raise_for_status()

    first, second = rt.decisions("e", wf)

    assert (first.then.targets, second.then.targets) == (None, ("left",))
    assert "no route" in first.then.error
    assert [plain(first.state), plain(second.state)] == [plain(state) for state in post.states]
    assert (first.state.variables["n"], second.state.variables["n"]) == (0, 1)  # type: ignore[union-attr]


def test_a_route_that_a_sub_workflow_asks_for_again_is_shown_what_there_is_by_then(
    runtime: Make, store: str | None
) -> None:
    child = Workflow("child")
    child.step(lambda ctx: ctx.tool("look", lambda: 1), id="choose", branches=["left"])
    child.step(lambda: None, id="left", depends_on=["choose"])
    wf = Workflow("parent")
    wf.add(StepSpec("sub", workflow=child, retry=RetryPolicy(max_attempts=2, initial_delay=0)))
    answers: list[Any] = [None, RouteDecision(("left",))]
    post = Signpost("post", lambda _state: answers.pop(0))
    rt = runtime(store, plugins=[post])
    rt.run(wf, execution_id="e").raise_for_status()

    found = list(rt.decisions("e", wf))

    assert [each.then.targets for each in found] == [None, ("left",)]
    assert [plain(each.state) for each in found] == [plain(state) for state in post.states]


def test_a_route_that_was_cut_off_is_shown_what_there_is_when_it_is_asked_for_again(
    runtime: Make, tmp_path: Path
) -> None:
    asked, let_go, written = Gate(), Gate(), Gate()

    def hang(_state: RouteState) -> None:
        asked.open()
        let_go.wait()

    def beside(ctx: StepContext) -> None:
        asked.wait()
        ctx.set("n", 1)

    wf = Workflow("cut", variables={"n": 0})
    wf.step(lambda: "here", id="choose", branches=["left"])
    wf.step(lambda: None, id="left", depends_on=["choose"])
    wf.step(beside, writes=["n"])
    ear = Listener("ear", lambda delivery: delivery.event.payload["path"] == "beside" and written.open())
    ear.subscribes_to = EventFilter(types=[EventType.STEP_COMPLETED])
    rt = runtime(tmp_path / "a.db", plugins=[Signpost("hung", hang), ear], max_workers=4)
    execution = rt.submit(wf, execution_id="e")
    written.wait()
    closing = Task(rt.close, 0.1)
    assert execution.wait(20)
    let_go.open()
    closing.result()
    post = Signpost("post", to("left"))
    rt = runtime(tmp_path / "a.db", plugins=[post])
    rt.resume("e", wf).raise_for_status()

    [decision] = rt.decisions("e", wf)

    assert plain(decision.state) == plain(post.states[0])
    assert decision.state is not None
    assert decision.state.variables["n"] == 1
    assert decision.uncertain == ()


LANES = 12


def test_what_is_certain_of_a_state_was_shown_whatever_ran_beside_it(runtime: Make, store: str | None) -> None:
    child = Workflow("child", inputs={"item": int}, variables={"seen": 0})
    child.step(lambda ctx, item: ctx.set("seen", item), id="write", writes=["seen"])
    child.step(lambda write: 1, id="choose", branches=["left", "right"])
    child.step(lambda: None, id="left", depends_on=["choose"])
    child.step(lambda: None, id="right", depends_on=["choose"])
    wf = Workflow("lanes", variables={"n": 0}, reducers={"n": "add"})
    wf.step(lambda: list(range(LANES)), id="all")
    wf.add(StepSpec("each", workflow=child, map_over="all", inputs={"item": "item"}))
    for lane in range(LANES):
        wf.step(lambda ctx: ctx.set("n", 1), id=f"write {lane}", writes=["n"])
        ways = [f"left {lane}", f"right {lane}"]
        wf.step(lambda: 1, id=f"choose {lane}", branches=ways, depends_on=[f"write {lane}"])
        for way in ways:
            wf.step(lambda ctx: ctx.tool("look", lambda: 1), id=way, depends_on=[f"choose {lane}"])
    pilot = Pilot()
    rt = runtime(store, plugins=[pilot], max_workers=8)
    rt.run(wf, execution_id="e").raise_for_status()
    shown = {state.path: plain(state) for state in pilot.states}

    found = list(rt.decisions("e", wf))

    assert len(found) == 2 * LANES
    for decision in found:
        state = plain(decision.state)
        doubtful = {each.partition(".")[0] for each in decision.uncertain}
        for name in attrs.fields_dict(RouteState):
            if name not in doubtful:
                assert getattr(state, name) == getattr(shown[decision.path], name), (decision, name)


# --- whose a decision was -----------------------------------------------------------------------------------------


def _deciders(rt: Runtime, wf: Workflow) -> list[tuple[Decider, Any]]:
    return [(each.decider, each.then.targets) for each in rt.decisions("e", wf)]


@pytest.mark.parametrize(
    ("run", "options", "expected"),
    [
        (lambda: Goto("left"), {}, (Decider.STEP, ("left",))),
        (lambda: 1, {"router": lambda: "right"}, (Decider.OWN_ROUTER, ("right",))),
        (lambda: 1, {"router": lambda: ()}, (Decider.OWN_ROUTER, ())),
        (lambda: 1, {"router": lambda: "nowhere"}, (Decider.OWN_ROUTER, None)),
        (lambda: 1, {"router": lambda: 1 / 0}, (Decider.OWN_ROUTER, None)),
        (lambda: 1, {"router": lambda: None}, (Decider.ROUTERS, None)),
        (lambda: 1, {"router": lambda: None, "on_no_route": "none"}, (Decider.ROUTERS, ())),
        (lambda: 1, {}, (Decider.ROUTERS, None)),
    ],
)
def test_it_is_known_whose_a_decision_was(
    runtime: Make, store: str | None, run: Any, options: Any, expected: Any
) -> None:
    wf = crossing(run, **options)
    rt = runtime(store)
    rt.run(wf, execution_id="e")

    assert _deciders(rt, wf) == [expected]


@pytest.mark.parametrize("name", ["router", "post"])
def test_a_plugin_is_told_from_the_steps_own_router_whatever_they_are_called(
    runtime: Make, store: str | None, name: str
) -> None:
    wf = crossing(router=lambda: None)
    rt = runtime(store, plugins=[Signpost(name, to("left"))])
    rt.run(wf, execution_id="e").raise_for_status()

    [decision] = rt.decisions("e", wf)

    assert decision.decider is Decider.ROUTERS
    assert decision.then.abstained == ("router",)


def test_where_the_walk_had_to_end_nobody_was_asked(runtime: Make, store: str | None) -> None:
    began = Gate()

    def choose(ctx: StepContext) -> None:
        began.open()
        while not ctx.cancelled:
            threading.Event().wait(0.001)

    wf = crossing(choose, router=lambda: "left")
    rt = runtime(store, plugins=[Signpost("post", to("left"))])
    execution = rt.submit(wf, execution_id="e")
    began.wait()
    rt.cancel("e")

    assert execution.result(20).status is ExecutionStatus.CANCELLED
    assert _deciders(rt, wf) == [(Decider.NOBODY, None)]


def test_who_decided_otherwise_cannot_be_asked_again(runtime: Make) -> None:
    wf = crossing(lambda: Goto("left"))
    rt = runtime()
    rt.run(wf, execution_id="e")
    [decision] = rt.decisions("e", wf)

    with pytest.raises(ValueError, match="nobody can be asked about 'choose'"):
        decision.ask(PluginBus())


# --- what cannot be rebuilt ---------------------------------------------------------------------------------------


@attrs.frozen
class Verdict:
    score: float


def judged(*, knows: bool) -> Workflow:
    wf = Workflow("judged", types=[Verdict] if knows else [], variables={"last": None})
    wf.step(lambda: Verdict(0.5), id="judge", branches=["ok", "bad"])
    wf.step(lambda ctx: ctx.set("last", [Verdict(0.7)]), id="ok", depends_on=["judge"], writes=["last"])
    wf.step(lambda: None, id="bad", depends_on=["judge"])
    wf.step(lambda ok: "fine", id="again", branches=["end"])
    wf.step(lambda: None, id="end", depends_on=["again"])
    return wf


def test_a_value_whose_class_is_gone_is_named_and_nobody_is_asked(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "a.db", plugins=[Signpost("post", lambda state: RouteDecision((state.candidates[0],)))])
    rt.run(judged(knows=True), execution_id="e").raise_for_status()

    first, second = rt.decisions("e", judged(knows=False))

    assert (first.state, second.state) == (None, None)
    assert first.missing.startswith("its output holds what cannot be loaded: ")
    assert second.missing.startswith("variable 'last' holds what cannot be loaded: ")
    assert "Verdict" in first.missing
    assert first.then.targets == ("ok",)
    assert all(each.missing == "" for each in rt.decisions("e", judged(knows=True)))


def test_a_map_over_what_cannot_be_loaded_is_an_error_that_says_so(runtime: Make, tmp_path: Path) -> None:
    def make(*, knows: bool) -> Workflow:
        wf = Workflow("judged", types=[Verdict] if knows else [])
        wf.step(lambda: (Verdict(0.5), Verdict(0.7)), id="all")
        wf.step(lambda item: 1 / 0, id="each", map_over="all", on_item_failure="collect", branches=["end"])
        wf.step(lambda: None, id="end", depends_on=["each"])
        return wf

    rt = runtime(tmp_path / "a.db", plugins=[Signpost("post", to("end"))])
    rt.run(make(knows=True), execution_id="e").raise_for_status()

    with pytest.raises(SerializationError, match="'each': it needs a value that cannot be loaded"):
        list(rt.decisions("e", make(knows=False)))


def test_a_reducer_that_raises_is_named(runtime: Make) -> None:
    broken: list[int] = []

    def combine(old: int, new: int) -> int:
        if broken:
            raise ArithmeticError("overflow")
        return old + new

    wf = Workflow("adds", variables={"n": 0}, reducers={"n": combine})
    wf.step(lambda ctx: ctx.set("n", 1), id="one", writes=["n"])
    wf.step(lambda one: 1, id="choose", branches=["left"])
    wf.step(lambda: None, id="left", depends_on=["choose"])
    rt = runtime(plugins=[Signpost("post", to("left"))])
    rt.run(wf, execution_id="e").raise_for_status()
    broken.append(1)

    [decision] = rt.decisions("e", wf)

    assert decision.state is None
    assert "'n'" in decision.missing
    assert "ArithmeticError: overflow" in decision.missing


def _crossing(*ways: str, point: str = "choose") -> Workflow:
    wf = Workflow("crossing", variables={"colour": "red"})
    wf.step(lambda: "here", id=point, branches=ways)
    for way in ways:
        wf.step(lambda: None, id=way, depends_on=[point])
    return wf


@pytest.mark.parametrize(
    ("now", "missing"),
    [
        (_crossing("left", "right", "up"), ""),
        (_crossing("right", "up"), "'left' is no branch of this step"),
        (_crossing("left", "right", point="decide"), "it has no such branch point"),
        (_crossing("left", point="right"), "it has no such branch point"),
    ],
    ids=["a branch more", "without the branch", "renamed", "gone"],
)
def test_of_a_workflow_that_has_changed_what_still_fits_is_asked_and_the_rest_is_named(
    runtime: Make, store: str | None, now: Workflow, missing: str
) -> None:
    rt = runtime(store, plugins=[Signpost("post", to("left"))])
    rt.run(_crossing("left", "right"), execution_id="e").raise_for_status()

    [decision] = rt.decisions("e", now)

    assert decision.is_same_workflow is False
    assert decision.missing == (missing and f"the workflow has changed since: {missing}")
    assert (decision.state is None) is bool(missing)
    if decision.state is not None:
        assert decision.state.candidates == ("left", "right", "up")


def test_what_steps_beside_it_did_meanwhile_is_named_as_uncertain(runtime: Make, store: str | None) -> None:
    asked, done = Gate(), Gate()

    def beside(ctx: StepContext) -> None:
        asked.wait()
        ctx.set("n", 1)
        ctx.tool("look", lambda: 1)

    wf = Workflow("beside", variables={"n": 0, "m": 0})
    wf.step(lambda: "here", id="choose", branches=["left"])
    wf.step(lambda: None, id="left", depends_on=["choose"])
    wf.step(beside, writes=["n"])

    def decide(_state: RouteState) -> RouteDecision:
        asked.open()
        done.wait()
        return RouteDecision(("left",))

    def hear(delivery: Any) -> None:
        if delivery.event.payload["path"] == "beside":
            done.open()

    listener = Listener("ear", hear, subscribes_to=EventFilter(types=[EventType.STEP_COMPLETED]))
    post = Signpost("post", decide)
    rt = runtime(store, plugins=[post, listener], max_workers=4)
    rt.run(wf, execution_id="e").raise_for_status()

    [decision] = rt.decisions("e", wf)

    assert decision.uncertain == ("variables.n", "tools")
    assert plain(decision.state) == plain(post.states[0])


# --- asking -------------------------------------------------------------------------------------------------------


def one(rt: Runtime, wf: Workflow) -> list[Decision]:
    rt.run(wf, execution_id="e")
    return list(rt.decisions("e", wf))


@pytest.mark.parametrize(
    ("say", "targets", "problem"),
    [
        (to("right", reason="nicer"), ("right",), ""),
        (to(source="fallback"), ("left", "middle", "right"), ""),
        (to(), (), ""),
        (abstains, None, ""),
        (to("nowhere"), None, "names 'nowhere'"),
        (lambda _state: 1 / 0, None, "ZeroDivisionError"),
    ],
    ids=["another", "fallback", "none", "abstains", "a stranger", "raises"],
)
def test_another_router_is_asked_as_in_a_walk(runtime: Make, say: Any, targets: Any, problem: str) -> None:
    found = one(runtime(plugins=[Signpost("post", to("left"))]), crossing())

    [now] = asked_again(found, Signpost("other", say))

    assert now.targets == targets
    assert problem in "".join(now.problems)
    assert bool(now.problems) is bool(problem)
    assert ("other abstained" in now.error) is (targets is None)


@pytest.mark.parametrize(
    ("then", "now", "is_same"),
    [
        (("left", "right"), ("right", "left"), True),
        (("left",), ("left", "right"), False),
        ((), (), True),
        ((), None, False),
        (None, None, True),
        (None, (), False),
    ],
)
def test_choices_are_the_same_if_they_take_the_same_branches(then: Any, now: Any, is_same: bool) -> None:
    from ares.engine.decisions import Choice

    assert Choice(then, "a").takes_as(Choice(now, "b", "another reason")) is is_same


def test_routers_that_ask_peers_find_them(runtime: Make) -> None:
    from ares.plugins import MemoryRouter
    from tests.plugins.routing import Memory, advice

    found = one(runtime(plugins=[Signpost("post", to("left"))]), crossing())

    [now] = asked_again(found, Memory(advice("middle")), MemoryRouter())

    assert (now.targets, now.source) == (("middle",), "memory")
    assert now.problems == ()


# --- where it reads from ------------------------------------------------------------------------------------------


def test_executions_that_are_not_there_or_of_another_workflow_are_refused(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(crossing(on_no_route="none"), execution_id="e")

    with pytest.raises(ExecutionNotFoundError):
        rt.decisions("nobody", crossing())
    with pytest.raises(ExecutionConflictError):
        rt.decisions("e", Workflow("other"))


def test_a_journal_with_a_hole_is_refused_where_the_hole_is(runtime: Make) -> None:
    rt = runtime(plugins=[Signpost("post", to("left"))])
    wf = crossing()
    rt.run(wf, execution_id="e").raise_for_status()
    entries = list(rt._life.source().entries("e"))
    del entries[-2]
    found: Iterator[Decision] = decisions(Definitions({}).define(wf), "e", entries, "the store")

    assert next(found).path == "choose"
    with pytest.raises(StoreError, match="the journal has a hole"):
        next(found)


def test_of_an_execution_that_is_still_walked_there_is_what_was_decided_so_far(runtime: Make, tmp_path: Path) -> None:
    decided, end = Gate(), Gate()

    def left(choose: str) -> None:
        decided.open()
        end.wait()

    wf = crossing().replace(left=left)
    rt = runtime(tmp_path / "a.db", plugins=[Signpost("post", to("left"))])
    execution = rt.submit(wf, execution_id="e")
    decided.wait()

    found = list(runtime(tmp_path / "a.db").decisions("e", wf))
    end.open()

    assert [each.then.targets for each in found] == [("left",)]
    assert execution.result(20).status is ExecutionStatus.COMPLETED
