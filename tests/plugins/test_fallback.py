"""The fallback router: a chain of routers, in which one that is broken costs its share and no more."""

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ares import Runtime
from ares.bus import PluginBus
from ares.context import Context
from ares.errors import UsageError
from ares.plugin import Capability, EventBus
from ares.plugin.engine_bus import Stages
from ares.plugins import ArenaPlugin, ExpressionRouter, FallbackRouter, MemoryRouter, RouterTally, Rule
from ares.records import MemoryEntry, RouteDecision, RouteState, Step
from tests.bus.players import LONG, Gate, Log, Named, until
from tests.engine.helpers import Threads, events_of
from tests.plugins.routing import Heard, Memory, Port, advice, alone, at, begun, crossing, decision_of, routed, running

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]

#: Seconds that a router has which is going to hang.
SOON = 0.2


class Says:
    """A router of a chain that says what it is told to."""

    def __init__(self, say: Callable[[RouteState], Any], name: str = "says", **more: Any) -> None:
        self.say = say
        self.name = name
        self.contexts: list[Context] = []
        for attribute, value in more.items():
            setattr(self, attribute, value)

    def route(self, ctx: Context, state: RouteState) -> Any:
        self.contexts.append(ctx)
        return self.say(state)


def to(*targets: str, source: str = "router") -> Callable[[RouteState], RouteDecision]:
    return lambda _state: RouteDecision(targets, "because", source)


def abstains(_state: RouteState) -> None:
    return None


def raises(_state: RouteState) -> None:
    raise ValueError("lost")


def exits(_state: RouteState) -> None:
    raise SystemExit(3)


def chain_threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("ares-plugin-router"))


# --- who decides -----------------------------------------------------------------------------------------------------


def test_the_first_answer_wins_and_the_journal_says_whose_it_is(runtime: Make, store: str | None) -> None:
    late = Says(to("right"), "late")
    chain = FallbackRouter([Says(abstains, "a"), ExpressionRouter([Rule("output == 'here'", "left")]), late])
    rt = runtime(store, plugins=[chain])

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["left"]
    found = routed(events_of(rt, "e"))
    assert (found["targets"], found["source"]) == (["left"], "expression")
    assert late.contexts == []
    assert chain.tallies == {
        "a": RouterTally(abstained=1),
        "expression": RouterTally(answers=1),
        "late": RouterTally(),
    }


def test_where_nobody_has_an_answer_all_branches_are_taken(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[FallbackRouter([Says(abstains, "a"), Says(raises, "b")])])

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["left", "middle", "right"]
    found = routed(events_of(rt, "e"))
    assert found["source"] == "fallback"
    assert found["reason"] == "no router had an answer: a abstained; b raised ValueError: lost"


def test_the_fallback_names_no_target(new_bus: NewBus) -> None:
    decision = decision_of(new_bus(FallbackRouter([Says(abstains)])), at())

    assert (decision.targets, decision.source) == ((), "fallback")


def test_a_decision_to_take_nothing_is_an_answer(new_bus: NewBus) -> None:
    decision = decision_of(new_bus(FallbackRouter([Says(to()), Says(to("left"))])), at())

    assert (decision.targets, decision.source) == ((), "router")


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (raises, "raised ValueError: lost"),
        (exits, "raised SystemExit: 3"),
        (to("nowhere"), "named 'nowhere'; there are 'left', 'middle', 'right'"),
        (lambda state: "left", "returned a str, which is no RouteDecision"),
        (lambda state: RouteDecision("left"), "named its targets in a str, which is no tuple"),  # type: ignore[arg-type]
    ],
)
def test_a_router_without_a_proper_answer_goes_on_to_the_next_and_is_told(
    new_bus: NewBus, say: Any, problem: str
) -> None:
    chain = FallbackRouter([Says(say, "lost"), Says(to("middle"), "next")])
    bus = new_bus(chain)
    heard = Heard(bus, "router.failed")

    assert decision_of(bus, at()).targets == ("middle",)

    assert heard() == [("e", {"path": "choose", "router": "lost", "problem": problem})]
    assert chain.tallies["lost"] == RouterTally(errors=1, last_error=problem)
    assert bus.health()["fallback"].errors == 0


def test_a_chain_in_a_chain_is_a_router_like_any(new_bus: NewBus) -> None:
    inner = FallbackRouter([Says(abstains), Says(to("left"))], "inner")
    bus = new_bus(FallbackRouter([Says(abstains), inner]))

    assert decision_of(bus, at()).targets == ("left",)


# --- who hangs -------------------------------------------------------------------------------------------------------


def test_a_router_that_hangs_costs_its_share_once_and_the_next_is_asked(new_bus: NewBus, gate: Gate) -> None:
    hung, following = Says(gate.pass_through, "hung", timeout=SOON), Says(to("left"), "next")
    chain = FallbackRouter([hung, following])
    bus = new_bus(chain)

    decisions = [decision_of(bus, at()) for _ in range(5)]

    assert {decision.targets for decision in decisions} == {("left",)}
    assert len(hung.contexts) == 1
    assert chain.tallies["hung"].timeouts == 5
    assert chain.tallies["hung"].last_error == "still hangs in route"
    assert chain.tallies["next"].answers == 5
    assert bus.health()["fallback"].timeouts == 0
    assert hung.contexts[0].cancelled


def test_on_a_runtime_a_router_that_hangs_holds_up_no_execution(runtime: Make, gate: Gate) -> None:
    chain = FallbackRouter([Says(gate.pass_through, "hung", timeout=SOON), Says(to("left"), "next")])
    rt = runtime(plugins=[chain], max_workers=4)
    executions = [rt.submit(crossing()) for _ in range(8)]

    assert [execution.result(LONG).output("join") for execution in executions] == [["left"]] * 8
    gate.open()


def test_a_router_that_comes_back_is_asked_again(new_bus: NewBus, gate: Gate) -> None:
    def say(state: RouteState) -> RouteDecision:
        if not gate.opened.is_set():
            gate.pass_through()
        return RouteDecision(("right",))

    chain = FallbackRouter([Says(say, "slow", timeout=SOON), Says(to("left"), "next")])
    bus = new_bus(chain)
    assert decision_of(bus, at()).targets == ("left",)

    gate.open()
    until(lambda: decision_of(bus, at()).targets == ("right",))


def test_all_that_hang_cost_no_more_than_the_decision_may_take(new_bus: NewBus, gate: Gate) -> None:
    chain = FallbackRouter([Says(gate.pass_through, f"hung{n}") for n in range(4)], timeout=2.0)
    bus = new_bus(chain)

    decision = decision_of(bus, at())

    assert decision.source == "fallback"
    assert decision.reason.count("gave no answer in") == 4
    assert bus.health()["fallback"].timeouts == 0


def test_each_has_its_share_of_what_is_left_and_less_if_it_says_so(new_bus: NewBus) -> None:
    routers = [Says(abstains, "a"), Says(abstains, "b", timeout=0.5), Says(abstains, "c", timeout=1e6)]
    begin = time.monotonic()
    chain = FallbackRouter(routers, timeout=90.0)

    decision_of(new_bus(chain), at())

    shares = [router.contexts[0].deadline - begin for router in routers]  # type: ignore[operator]
    assert shares == pytest.approx([27.0, 0.5, 81.0], abs=5.0)
    assert shares[1] < 6.0


def test_threads_are_one_a_router_named_and_gone_with_the_chain(new_bus: NewBus) -> None:
    before = chain_threads()
    chain = FallbackRouter([Says(abstains, "a"), Says(abstains, "a"), ExpressionRouter()])
    bus = new_bus(chain)
    names = [f"ares-plugin-router fallback/{name}" for name in ("a", "a #2", "expression")]
    assert chain_threads() == sorted([*before, names[-1]])  # the others have had nothing to do yet

    for _ in range(10):
        decision_of(bus, at())
    assert chain_threads() == sorted([*before, *names])

    assert bus.stop() == ()
    assert chain_threads() == before


def test_a_router_that_hangs_keeps_neither_the_chain_nor_the_next_from_stopping(new_bus: NewBus, gate: Gate) -> None:
    log = Log()
    last = Says(to("left"), "last", start=lambda ctx, bus: None, stop=lambda ctx: log.add("stopped"))
    bus = new_bus(FallbackRouter([Says(gate.pass_through, "hung", timeout=SOON), last]))
    threads = Threads()
    decision_of(bus, at())

    bus.stop()

    assert log.lines == ["stopped"]
    assert threads.names("ares-plugin-router") == ["ares-plugin-router fallback/hung"]
    gate.open()
    until(lambda: threads.are_gone("ares-plugin-router"))


# --- what a router of the chain is given -----------------------------------------------------------------------------


def test_it_is_given_the_execution_and_records_for_it(new_bus: NewBus) -> None:
    entry = MemoryEntry("choose", "choose", "q", 1, 0.5, ())

    class Recorder(Named):
        def route(self, ctx: Context, state: RouteState) -> RouteDecision:
            ctx.record(entry)
            return RouteDecision(("left",), f"{ctx.execution_id} {ctx.metadata['user']}")

    bus = new_bus(FallbackRouter([Recorder("recorder")]))
    port = Port()
    bus.open_execution("e", port)

    assert decision_of(bus, at()).reason == "e ann"
    assert port.log.lines == [("fallback", entry)]


def test_what_it_records_after_its_time_is_up_is_refused(new_bus: NewBus, gate: Gate) -> None:
    refused = Log()

    class Late(Named):
        def route(self, ctx: Context, state: RouteState) -> None:
            gate.pass_through()
            try:
                ctx.record(MemoryEntry("choose", "choose", "q", 1, 0.5, ()))
            except UsageError as error:
                refused.add(str(error))

    bus = new_bus(FallbackRouter([Late("late", timeout=SOON), Says(to("left"))]))
    port = Port()
    bus.open_execution("e", port)
    decision_of(bus, at())

    gate.open()

    until(lambda: refused.lines == ["router 'late' records a MemoryEntry after its time was up"])
    assert port.log.lines == []


def test_the_threads_of_a_chain_that_did_not_come_to_stop_end_with_it() -> None:
    threads, arena = Threads(), ArenaPlugin()
    for is_restarted in (False, True):
        bus = PluginBus()
        bus.register(FallbackRouter([Says(to("left"), "first"), Says(abstains, "second")]))
        bus.start()
        decision_of(bus, at())
        assert threads.names("ares-plugin-router") == ["ares-plugin-router fallback/first"]
        with arena.injecting(bus):
            arena.schedule_fault("fallback", call="stop")
            bus.stop()
        if is_restarted:
            bus = bus.renewed()
            bus.start()
            decision_of(bus, at())
            bus.stop()

        del bus
        gc.collect()
        until(lambda: threads.are_gone("ares-plugin-router"))


def test_routers_start_in_order_and_stop_in_reverse_each_in_its_own_thread(new_bus: NewBus) -> None:
    log = Log()

    class Lives(Named):
        def start(self, ctx: Context, bus: EventBus) -> None:
            log.add((f"{self.name} starts", threading.current_thread().name))

        def stop(self, ctx: Context) -> None:
            log.add((f"{self.name} stops", threading.current_thread().name))

        def route(self, ctx: Context, state: RouteState) -> None:
            log.add((f"{self.name} is asked", threading.current_thread().name))

    bus = new_bus(FallbackRouter([Lives("a"), Lives("b")]))
    decision_of(bus, at())
    bus.stop()

    a, b = "ares-plugin-router fallback/a", "ares-plugin-router fallback/b"
    assert log.lines == [
        ("a starts", a), ("b starts", b), ("a is asked", a), ("b is asked", b), ("b stops", b), ("a stops", a),
    ]  # fmt: skip


def test_a_router_that_does_not_start_is_passed_over_and_one_that_does_not_stop_is_named(new_bus: NewBus) -> None:
    def fail(*_args: Any) -> None:
        raise OSError("no file")

    dead, stubborn = Says(to("left"), "dead", start=fail), Says(to("right"), "stubborn", stop=fail)
    chain = FallbackRouter([dead, stubborn])
    bus = new_bus(chain)

    assert decision_of(bus, at()).targets == ("right",)
    assert dead.contexts == []
    assert chain.tallies["dead"].last_error == "did not start: OSError: no file"
    [error] = bus.stop()
    assert "router 'stubborn' did not stop: OSError: no file" in str(error)


def test_a_router_that_took_too_long_to_start_is_passed_over_and_stopped_all_the_same(
    new_bus: NewBus, gate: Gate
) -> None:
    log = Log()

    def start(ctx: Context, bus: EventBus) -> None:
        gate.pass_through()
        log.add("started")

    slow = Says(to("left"), "slow", start=start, stop=lambda ctx: log.add("stopped"), timeout=SOON)
    chain = FallbackRouter([slow, Says(to("right"))])
    bus = new_bus(chain)
    assert decision_of(bus, at()).targets == ("right",)

    gate.open()
    until(lambda: chain._seats[0]._stuck is None)

    assert bus.stop() == ()
    assert log.lines == ["started", "stopped"]


def test_a_memory_router_in_a_chain_asks_while_the_step_runs(runtime: Make, store: str | None) -> None:
    has_advised = threading.Event()
    memory = Memory(lambda state: has_advised.set() or advice("left")(state))  # type: ignore[func-returns-value]
    inner = MemoryRouter()
    rt = runtime(store, plugins=[memory, FallbackRouter([inner, Says(to("right"))])])

    result = rt.run(crossing(lambda: has_advised.wait(LONG)), execution_id="e").raise_for_status()

    assert result.output("choose") is True
    assert result.output("join") == ["left"]
    assert inner.prefetch_counts.used == 1
    assert len(rt.checkpoint("e").memory_hits) == 1
    until(lambda: not inner._held and not inner._workflows)


def test_a_chain_has_the_hooks_that_its_routers_have_and_no_others(new_bus: NewBus) -> None:
    without = new_bus(FallbackRouter([Says(abstains), ExpressionRouter()]))
    assert without.stages == Stages(has_routers=True)

    assert new_bus(FallbackRouter([Says(abstains, after_step=print)])).stages.has_after


def test_a_hook_of_the_chain_that_hangs_or_raises_holds_up_no_step(new_bus: NewBus, gate: Gate) -> None:
    class Hooked(Says):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            if self.name == "hung":
                gate.pass_through()
            raise ValueError("boom")

    chain = FallbackRouter([Hooked(to("left"), "hung", timeout=SOON), Hooked(to("right"), "broken")])
    bus = new_bus(chain)
    bus.before_execution(begun())
    for _ in range(3):
        bus.before_step("e", running())

    assert decision_of(bus, at()).targets == ("right",)

    assert "because it hangs in before_step" in chain.tallies["hung"].last_error
    bus.before_step("e", running())
    assert chain.tallies["broken"].last_error == "before_step raised ValueError: boom"
    assert bus.health()["fallback"].errors == 0


# --- making and remaking it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("routers", "problem"),
    [
        ([], "the chain of router 'fallback' is empty"),
        ([None], r"router 1 of 'fallback' must have route\(ctx, state\), not be None"),
        ([ExpressionRouter], r"router 1 of 'fallback' must have route\(ctx, state\), not be <class"),
        ([Says(abstains), Named("x")], r"router 2 of 'fallback' must have route\(ctx, state\)"),
        ([Named("x", route=lambda state: None)], r"router 1 of 'fallback' must take route\(ctx, state\)"),
    ],
)
def test_a_chain_that_could_not_be_asked_is_refused(routers: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        FallbackRouter(routers)


def test_one_router_cannot_be_in_a_chain_twice_but_names_can() -> None:
    router = Says(abstains)
    with pytest.raises(UsageError, match="router 2 of 'fallback' is in the chain already"):
        FallbackRouter([router, router])

    chain = FallbackRouter([Says(abstains, "a"), Says(abstains, "a #3"), Says(abstains, "a"), Says(abstains, "a")])

    assert list(chain.tallies) == ["a", "a #3", "a #3'", "a #4"]


def test_an_async_route_is_refused() -> None:
    async def route(ctx: Context, state: RouteState) -> None: ...

    with pytest.raises(UsageError, match="must have route"):
        FallbackRouter([Named("x", route=route)])


def test_the_same_chain_starts_anew_on_another_bus(new_bus: NewBus) -> None:
    chain = FallbackRouter([ExpressionRouter([Rule("True", "left")])])
    first = new_bus(chain)
    decision_of(first, at())
    first.stop()

    assert decision_of(new_bus(chain), at()).targets == ("left",)
    assert chain.tallies["expression"].answers == 2


def test_it_can_be_asked_without_a_bus_and_after_its_end_falls_back(new_bus: NewBus) -> None:
    chain = FallbackRouter([Says(to("left"))])
    assert chain.route(alone(), at()).targets == ("left",)

    bus = new_bus(chain)
    bus.stop()

    assert chain.route(alone(), at()).reason == "no router had an answer: says was stopped"


def test_a_router_that_gets_no_thread_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    chain = FallbackRouter([Says(to("left"))])
    monkeypatch.setattr(threading.Thread, "start", fail)

    reason = chain.route(alone(), at()).reason

    assert reason == "no router had an answer: says got no thread: can't start new thread"


def test_it_is_found_as_a_router(new_bus: NewBus) -> None:
    bus = new_bus(FallbackRouter([Says(abstains)], "last"))

    assert [ref.name for ref in bus.plugins_by_cap(Capability.ROUTER)] == ["last"]
