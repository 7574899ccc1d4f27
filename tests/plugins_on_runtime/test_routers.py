"""Router plugins on a Runtime: who is asked, what counts, and what is kept of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import (
    Event,
    ExecutionStatus,
    Goto,
    HookResult,
    RouteDecision,
    RouteState,
    Runtime,
    StepContext,
    StepSpec,
    Workflow,
)
from ares.errors import RouteError
from tests.bus.players import Gate, Named
from tests.engine.helpers import Child, events_of, statuses
from tests.plugins_on_runtime.players import SOON, Asked, Signpost, naming, of

Make = Callable[..., Runtime]


@pytest.fixture(params=["auto", "workers", "caller"])
def steps_on(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def crossing(run: Callable[..., Any] = lambda: "here", **options: Any) -> Workflow:
    """A branch point with three ways, joined again."""
    wf = Workflow("crossing", variables={"colour": "red"})
    wf.step(run, id="choose", branches=("left", "middle", "right"), **options)
    for way in ("left", "middle", "right"):
        wf.step(_going(way), id=way)
    wf.step(lambda left, middle, right: [w for w in (left, middle, right) if w], id="join")
    return wf


def _going(way: str) -> Callable[[Any], str]:
    return lambda choose: f"{way} from {choose}"


def to(*targets: str, **more: Any) -> Callable[[RouteState], RouteDecision]:
    return lambda _state: RouteDecision(targets, **{"reason": "", "source": "router", **more})


def abstains(_state: RouteState) -> None:
    return None


def routed(events: list[Event]) -> dict[str, Any]:
    [event] = [event for event in events if event.type == "route.decided"]
    return dict(event.payload)


# --- who decides ---------------------------------------------------------------------------------------


def test_a_router_plugin_decides_where_nobody_else_does(runtime: Make, store: str | None, steps_on: str) -> None:
    post = Signpost("post", to("left", reason="it is shorter", scores={"left": 0.9, "right": 0.1}))
    rt = runtime(store, plugins=[post], steps_on=steps_on)

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["left from here"]
    assert result.steps["right"].reason == "not_taken: choose"
    found = routed(events_of(rt, "e"))
    assert (found["targets"], found["source"], found["reason"]) == (["left"], "router", "it is shorter")
    assert found["scores"] == {"left": 0.9, "middle": 0.0, "right": 0.1}
    assert found["abstained"] == []


def test_a_router_plugin_is_shown_what_there_is_to_choose_from(runtime: Make, store: str | None) -> None:
    post = Signpost("post", to("left"))
    wf = crossing()
    rt = runtime(store, plugins=[post])

    rt.run(wf, execution_id="e").raise_for_status()

    [state] = post.states
    assert (state.execution_id, state.workflow_id, state.path, state.round) == ("e", "crossing", "choose", 1)
    assert (state.output, dict(state.variables)) == ("here", {"colour": "red"})
    assert state.candidates == ("left", "middle", "right")
    assert state.routes == ()


def test_routers_are_asked_in_order_until_one_decides(runtime: Make, store: str | None, steps_on: str) -> None:
    silent, decides, late = (Signpost(n, s) for n, s in (("a", abstains), ("b", to("right")), ("c", to("left"))))
    late.runs_after = ("b",)  # type: ignore[misc]
    ordered = runtime(store, plugins=[late, silent, decides], steps_on=steps_on)
    result = ordered.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["right from here"]
    assert late.states == []
    assert routed(events_of(ordered, "e"))["abstained"] == ["a"]


@pytest.mark.parametrize("by", ["step", "router"])
def test_no_plugin_is_asked_where_the_step_or_its_router_decides(
    runtime: Make, store: str | None, steps_on: str, by: str
) -> None:
    post = Signpost("post", to("left"))
    wf = crossing(lambda: Goto("right", value=1)) if by == "step" else crossing(router=lambda: "right")

    result = runtime(store, plugins=[post], steps_on=steps_on).run(wf).raise_for_status()

    assert post.states == []
    assert result.steps["left"].reason == "not_taken: choose"


def test_plugins_are_asked_where_the_steps_own_router_abstains(runtime: Make, store: str | None) -> None:
    post = Signpost("post", to("middle", source="memory"))
    rt = runtime(store, plugins=[post])

    result = rt.run(crossing(router=lambda: None), execution_id="e").raise_for_status()

    assert result.output("join") == ["middle from here"]
    found = routed(events_of(rt, "e"))
    assert (found["source"], found["abstained"]) == ("memory", ["router"])


def test_several_targets_are_all_taken_and_none_is_none(runtime: Make, store: str | None) -> None:
    both = runtime(store, plugins=[Signpost("post", to("left", "right"))]).run(crossing())
    none = runtime(plugins=[Signpost("post", to())]).run(crossing())

    assert both.output("join") == ["left from here", "right from here"]
    assert none.status is ExecutionStatus.COMPLETED
    assert statuses(none)["left"] == statuses(none)["right"] == "SKIPPED"


def test_a_fallback_without_a_target_means_all(runtime: Make, store: str | None) -> None:
    post = Signpost("post", to(source="fallback"))

    result = runtime(store, plugins=[post]).run(crossing()).raise_for_status()

    assert len(result.output("join")) == 3


@pytest.mark.parametrize(("on_no_route", "taken"), [("all", 3), ("none", 0)])
def test_where_all_abstain_the_step_says_what_happens(
    runtime: Make, store: str | None, on_no_route: str, taken: int
) -> None:
    posts = [Signpost(name, abstains) for name in "ab"]

    result = runtime(store, plugins=posts).run(crossing(on_no_route=on_no_route), execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    assert [statuses(result)[way] for way in ("left", "middle", "right")].count("COMPLETED") == taken


def test_where_all_abstain_and_nothing_else_is_said_the_execution_fails(runtime: Make, store: str | None) -> None:
    result = runtime(store, plugins=[Signpost("post", abstains)]).run(crossing())

    assert isinstance(result.error, RouteError)
    assert statuses(result)["choose"] == "COMPLETED"


# --- who is broken -------------------------------------------------------------------------------------


def raises(_state: RouteState) -> None:
    raise RuntimeError("lost")


def exits(_state: RouteState) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "say",
    [raises, exits, to("nowhere"), lambda _state: "left", lambda _state: RouteDecision("left", "", "router")],
    ids=["raises", "exits", "names a stranger", "answers a str", "targets a str"],
)
def test_a_router_whose_answer_is_none_abstains_and_is_named(
    runtime: Make, store: str | None, steps_on: str, say: Any
) -> None:
    rt = runtime(store, plugins=[Signpost("lost", say), Signpost("post", to("left"))], steps_on=steps_on)

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["left from here"]
    assert naming(result, "lost")
    assert routed(events_of(rt, "e"))["abstained"] == ["lost"]


def test_a_router_that_hangs_abstains_and_costs_one_timeout(runtime: Make, store: str | None, gate: Gate) -> None:
    hung = Signpost("hung", gate.pass_through, timeout=SOON)
    rt = runtime(store, plugins=[hung, Signpost("post", to("left"))])

    results = [rt.run(crossing()) for _ in range(5)]

    assert all(result.output("join") == ["left from here"] for result in results)
    assert all(naming(result, "hung") for result in results)
    assert rt.health()["hung"].timeouts == 1
    assert len(hung.states) == 1


def test_a_router_that_takes_two_ways_which_write_one_name_counts_as_no_answer(
    runtime: Make, store: str | None
) -> None:
    wf = Workflow("w", variables={"x": 0})
    wf.step(lambda: 1, id="choose", branches=("left", "right"), on_no_route="none")
    wf.step(lambda ctx, choose: ctx.set("x", 1), id="left", writes=["x"])
    wf.step(lambda ctx, choose: ctx.set("x", 2), id="right", writes=["x"])

    result = runtime(store, plugins=[Signpost("greedy", to("left", "right"))]).run(wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert statuses(result) == {"choose": "COMPLETED", "left": "SKIPPED", "right": "SKIPPED"}
    assert any("no answer" in warning for warning in result.warnings)


# --- and interceptors, and resumes ------------------------------------------------------------------------


def test_a_branch_point_that_an_interceptor_completed_is_routed_by_plugins(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    ran: list[str] = []
    post = Signpost("post", to("middle"))
    guard = Asked(of({"choose": HookResult.complete("given")}))
    rt = runtime(store, plugins=[post, guard], steps_on=steps_on)

    result = rt.run(crossing(lambda: ran.append("ran"))).raise_for_status()

    assert ran == []
    assert [state.output for state in post.states] == ["given"]
    assert result.output("join") == ["middle from given"]


def test_earlier_decisions_are_shown_to_the_next_router(runtime: Make, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="first", branches=("a", "b"))
    wf.step(lambda first: 1, id="a")
    wf.step(lambda first: 1, id="b")
    wf.step(lambda a, b: 1, id="second", branches=("c", "d"))
    wf.step(lambda second: 1, id="c")
    wf.step(lambda second: 1, id="d")
    post = Signpost("post", lambda state: RouteDecision((state.candidates[0],), "first", "router"))

    runtime(store, plugins=[post]).run(wf).raise_for_status()

    assert [(route.path, route.targets) for route in post.states[1].routes] == [("first", ("a",))]


def test_a_route_that_was_decided_is_not_asked_for_again(runtime: Make, store: str | None) -> None:
    broken = [True]

    def left(choose: str) -> str:
        if broken:
            raise ValueError("no")
        return choose

    post = Signpost("post", to("left"))
    rt = runtime(store, plugins=[post])
    wf = Workflow("w")
    wf.step(lambda: "here", id="choose", branches=("left", "right"))
    wf.step(left)
    wf.step(lambda choose: 1, id="right")

    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    broken.clear()
    post.say = to("right")
    result = rt.resume("e", wf).raise_for_status()

    assert result.outputs == {"choose": "here", "left": "here"}
    assert len(post.states) == 1


def test_a_route_that_nobody_decided_is_asked_for_at_the_resume_and_the_body_does_not_run(
    runtime: Make, store: str | None
) -> None:
    ran: list[int] = []
    post = Signpost("post", abstains)
    rt = runtime(store, plugins=[post])
    wf = crossing(lambda: ran.append(1) or "here")

    assert rt.run(wf, execution_id="e").status is ExecutionStatus.FAILED
    post.say = to("right")
    result = rt.resume("e", wf).raise_for_status()

    assert ran == [1]
    assert result.output("join") == ["right from here"]


def test_a_killed_process_follows_the_route_that_it_had_decided(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from ares import Capability, Plugin, RouteDecision, Runtime, Workflow

        class Post(Plugin):
            name = "post"
            capabilities = frozenset({Capability.ROUTER})
            def route(self, ctx, state):
                print("asked", flush=True)
                return RouteDecision((sys.argv[2],), "", "router")

        def go(choose):
            if sys.argv[3] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            return "went"

        wf = Workflow("w")
        wf.step(lambda: 1, id="choose", branches=("left", "right"))
        wf.step(go, id="left")
        wf.step(go, id="right")
        with Runtime(sys.argv[1], plugins=[Post()]) as rt:
            result = rt.run(wf, execution_id="e", if_exists="resume")
        print(sorted(result.outputs), flush=True)
    """
    file = str(tmp_path / "ares.db")
    with Child(program, file, "left", "kill") as child:
        code, said, _ = child.finish()
    with Child(program, file, "right", "live") as child:
        again = child.result()

    assert (code, said) == (-9, "asked\n")
    assert again == "['choose', 'left']\n"


def test_the_plugins_of_a_capability_are_found_and_called(runtime: Make, store: str | None) -> None:
    """A step of the host's may ask them, too."""
    post = Signpost("post", to("left"))
    rt = runtime(store, plugins=[Named("other"), post])
    rt.start()

    [ref] = rt.bus.plugins_by_cap("router")  # type: ignore[arg-type]
    state = RouteState("e", "w", "s", "s", 1, None, {}, ("left",))

    assert (ref.name, ref.call("route", state).targets) == ("post", ("left",))


def test_routers_are_asked_about_branch_points_in_a_sub_workflow(runtime: Make, store: str | None) -> None:
    def choose(ctx: StepContext) -> str:
        return ctx.step.path

    child = Workflow("child")
    child.step(choose, branches=("left", "right"))
    child.step(lambda choose: "l", id="left")
    child.step(lambda choose: "r", id="right")
    wf = Workflow("w")
    wf.step(lambda: 1, id="before")
    wf.add(StepSpec("sub", workflow=child, depends_on=["before"]))
    post = Signpost("post", to("right"))

    result = runtime(store, plugins=[post]).run(wf).raise_for_status()

    assert [(state.path, state.workflow_id) for state in post.states] == [("sub/choose", "child")]
    assert result.output("sub") == {"left": None, "right": "r"}
