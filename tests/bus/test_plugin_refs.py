"""Plugins call each other through their actors, and nobody comes to wait for itself."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bus import PluginBus, PluginState
from ares.bus.call import Call, Latch
from ares.bus.waits import WaitGraph
from ares.context import Context, NoExecution, NoJournal
from ares.errors import (
    PluginBusyError,
    PluginDeadlockError,
    PluginError,
    PluginNotRunningError,
    PluginTimeoutError,
    UsageError,
)
from ares.plugin import Capability, EventBus, PluginDirectory, PluginRef
from tests.bus.players import LONG, Gate, Log, Named, Servant, in_thread, refs, step, until

NewBus = Callable[..., PluginBus]


def test_a_ref_calls_a_method_in_the_plugins_own_thread(new_bus: NewBus) -> None:
    bus = new_bus(Servant("servant"))

    name = refs(bus)["servant"].call("do", lambda: threading.current_thread().name)

    assert name == "ares-plugin servant test"


def test_arguments_and_keywords_go_through(new_bus: NewBus) -> None:
    ref = refs(new_bus(Servant("servant")))["servant"]

    assert ref.call("do", dict, [("a", 1)], b=2) == {"a": 1, "b": 2}
    assert ref.ask("do", max, 3, 5).result() == 5


def test_what_the_method_raises_is_the_cause_of_what_the_caller_gets(new_bus: NewBus) -> None:
    ref = refs(new_bus(Servant("servant")))["servant"]

    with pytest.raises(PluginError) as caught:
        ref.call("do", int, "x")

    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("method", ["start", "stop", "_secret", "__init__", "", "no such"])
def test_what_is_not_for_others_cannot_be_called(new_bus: NewBus, method: str) -> None:
    bus = new_bus(Servant("servant"))

    with pytest.raises(UsageError):
        refs(bus)["servant"].call(method)

    assert bus.health()["servant"].calls == 1


def test_a_ref_says_who_it_is(new_bus: NewBus) -> None:
    ref: PluginRef = new_bus(Servant("servant")).plugins_by_cap(Capability.TOOL)[0]

    assert (ref.name, ref.capabilities) == ("servant", frozenset({Capability.TOOL}))
    assert "servant" in repr(ref)


def test_the_directory_is_in_order_of_registration_and_takes_strings(new_bus: NewBus) -> None:
    bus = new_bus(Servant("b"), Named("other"), Servant("a"))

    assert [ref.name for ref in bus.plugins_by_cap("tool")] == ["b", "a"]  # type: ignore[arg-type]  # strings will do
    assert bus.plugins_by_cap(Capability.MEMORY) == ()


def test_a_plugin_that_was_stopped_fails_at_once_and_is_out_of_the_directory(new_bus: NewBus) -> None:
    bus = new_bus(Servant("servant"))
    ref = refs(bus)["servant"]
    bus.stop()

    with pytest.raises(PluginNotRunningError) as caught:
        ref.call("do", print)

    assert caught.value.state == "stopped"
    assert bus.plugins_by_cap(Capability.TOOL) == ()


def test_a_call_made_for_an_execution_belongs_to_it(new_bus: NewBus) -> None:
    seen = Log()

    class Router(Servant):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            seen.add(refs(bus)["memory"].call("context", lambda inner: (inner.execution_id, dict(inner.metadata))))

    class Port:
        metadata = {"user": "ann"}  # noqa: RUF012 - a test's

        def record(self, writer: str, entry: Any) -> None: ...

    bus = new_bus(Router("router"), Servant("memory"))
    bus.open_execution("e5", Port())

    bus.before_step("e5", step())

    assert seen.lines == [("e5", {"user": "ann"})]


def test_a_wrapper_of_the_bus_can_pass_the_directory_on(new_bus: NewBus) -> None:
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def emit(self, stream_id: str, event_type: str, module: str, payload: Any = None) -> None:
            self.inner.emit(stream_id, event_type, module, payload)

        def subscribe(self, filter: Any, *, buffer: int = 64) -> Any:
            return self.inner.subscribe(filter, buffer=buffer)

        def plugins_by_cap(self, cap: Capability) -> Any:
            return self.inner.plugins_by_cap(cap)

    class Finder(Named):
        """Knows protocols only."""

        def start(self, ctx: Context, bus: EventBus) -> None:
            assert isinstance(bus, PluginDirectory)
            self.found = bus.plugins_by_cap(Capability.TOOL)[0].call("do", lambda: "found")

    bus = new_bus(Servant("servant"))
    finder = Finder("finder")

    finder.start(Context("", NoExecution(), NoJournal(), "finder", threading.RLock()), Wrapper(bus))

    assert finder.found == "found"


# --- deadlocks -------------------------------------------------------------------------------------------


@pytest.mark.case("C025")
def test_a_plugin_that_calls_itself_is_told_at_once(new_bus: NewBus) -> None:
    bus = new_bus(Servant("narcissus"))
    ref = refs(bus)["narcissus"]
    ran = Log()
    began = time.monotonic()

    with pytest.raises(PluginError) as caught:
        ref.call("do", ref.call, "do", ran.add, "inner")

    assert time.monotonic() - began < 5
    deadlock = caught.value.__cause__
    assert isinstance(deadlock, PluginDeadlockError)
    assert deadlock.chain == ("narcissus", "narcissus")
    assert ref.call("do", lambda: "fine") == "fine"
    assert ran.lines == [], "the call that would have waited is not made later either"


@pytest.mark.case("C025")
def test_a_hook_that_calls_itself_lets_the_step_go_on_at_once(new_bus: NewBus) -> None:
    class Narcissus(Servant):
        def before_step(self, ctx: Context, execution_id: str, step: Any) -> None:
            refs(bus)[self.name].call("do", print)

    bus = new_bus(Narcissus("narcissus", timeout=LONG))
    began = time.monotonic()

    for _ in range(3):
        bus.before_step("e", step())

    assert time.monotonic() - began < 1.2
    health = bus.health()["narcissus"]
    assert (health.errors, health.timeouts, health.state) == (3, 0, PluginState.RUNNING)
    assert "PluginDeadlockError" in health.last_error


def test_asking_oneself_without_waiting_is_no_deadlock(new_bus: NewBus) -> None:
    bus = new_bus(Servant("patient"))
    ref = refs(bus)["patient"]

    answer = ref.call("do", ref.ask, "do", lambda: "later")

    assert answer.result() == "later"


def test_waiting_for_what_one_asked_of_oneself_is(new_bus: NewBus) -> None:
    ref = refs(new_bus(Servant("a")))["a"]

    with pytest.raises(PluginError) as caught:
        ref.call("do", lambda: ref.ask("do", print).result())

    assert isinstance(caught.value.__cause__, PluginDeadlockError)


def test_two_plugins_that_call_each_other_from_two_executions(new_bus: NewBus) -> None:
    """Both are inside a call before either calls the other; one of them is told at once, the other is served."""
    bus = new_bus(Servant("a", timeout=LONG), Servant("b", timeout=LONG))
    found = refs(bus)
    both_inside = threading.Barrier(2)
    began = time.monotonic()

    def call_other(other: str) -> Any:
        both_inside.wait(LONG)
        return found[other].call("do", lambda: f"{other} served")

    first = in_thread(found["a"].call, "do", call_other, "b")
    second = in_thread(found["b"].call, "do", call_other, "a")
    outcomes = []
    for join in (first, second):
        try:
            outcomes.append(join())
        except PluginError as error:
            outcomes.append(error.__cause__)

    assert time.monotonic() - began < 5
    deadlocks = [each for each in outcomes if isinstance(each, PluginDeadlockError)]
    assert len(deadlocks) == 1
    assert deadlocks[0].chain in (("a", "b", "a"), ("b", "a", "b"))
    assert [each for each in outcomes if isinstance(each, str)] in (["a served"], ["b served"])


def test_a_longer_chain_is_named_in_full_also_across_buses(new_bus: NewBus) -> None:
    first, second = new_bus(Servant("a"), Servant("c")), new_bus(Servant("b"))
    found = {**refs(first), **refs(second)}

    def via(*names: str) -> Any:
        if not names:
            return "end"
        return found[names[0]].call("do", via, *names[1:])

    assert via("a", "b", "c") == "end"
    with pytest.raises(PluginError) as caught:
        via("a", "b", "c", "a")

    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, PluginDeadlockError):
        error = error.__cause__
    assert error is not None
    assert error.chain == ("c", "a", "b", "c")


def test_a_call_that_was_answered_is_no_edge_any_more(new_bus: NewBus) -> None:
    """b has answered a and goes on to serve somebody else, who calls a; a may not have woken up yet."""
    bus = new_bus(Servant("a"), Servant("b"))
    a, b = refs(bus)["a"], refs(bus)["b"]

    for _ in range(300):
        first = a.ask("do", b.call, "do", lambda: 1)
        second = b.ask("do", a.call, "do", lambda: 2)
        for answer in (first, second):
            with suppress(PluginError):  # here they may really have met
                answer.result()
        assert a.call("do", b.call, "do", lambda: 3) == 3
        assert b.call("do", a.call, "do", lambda: 4) == 4


def test_a_hung_plugin_is_to_blame_and_not_the_one_that_waits_for_it(new_bus: NewBus, gate: Gate) -> None:
    """The router gives up a little before its own time is over, so that it can still answer."""
    bus = new_bus(Servant("router", timeout=3.0), Servant("memory", timeout=3.0))
    router, memory = refs(bus)["router"], refs(bus)["memory"]

    def ask_memory() -> str:
        try:
            memory.call("do", gate.pass_through)
        except PluginTimeoutError as error:
            return f"without {error.plugin}"
        return "with it"

    assert router.call("do", ask_memory) == "without memory"
    assert bus.health()["router"].state is PluginState.RUNNING
    until(lambda: bus.health()["memory"].state is PluginState.UNRESPONSIVE)
    began = time.monotonic()
    assert router.call("do", ask_memory) == "without memory"
    assert time.monotonic() - began < 1.5


def test_the_same_for_one_that_is_only_busy(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Servant("router", timeout=2.0), Servant("memory", timeout=LONG))
    router, memory = refs(bus)["router"], refs(bus)["memory"]
    memory.ask("do", gate.pass_through)
    gate.await_entry()

    def ask_memory() -> Any:
        with pytest.raises(PluginBusyError):
            memory.call("do", print)
        return "told"

    assert router.call("do", ask_memory) == "told"
    assert bus.health()["memory"].state is PluginState.RUNNING


# --- the graph against a naive one -----------------------------------------------------------------------


class Node:
    def __init__(self, name: str) -> None:
        self.name = name


def some_call() -> Call:
    return Call("do", (), Context("", NoExecution(), NoJournal(), "x", threading.RLock()), 1.0, Latch(1))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("enter"), st.integers(0, 5), st.integers(0, 5)),
            st.tuples(st.just("leave"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("answer"), st.integers(0, 5), st.just(0)),
        ),
        max_size=60,
    )
)
def test_an_edge_is_refused_exactly_when_it_would_close_a_cycle(moves: list[tuple[str, int, int]]) -> None:
    graph = WaitGraph()
    nodes = [Node(str(number)) for number in range(6)]
    edges: dict[int, int] = {}
    calls: dict[int, Call] = {}

    def reaches(start: int, goal: int) -> bool:
        while start != goal and start in edges and not calls[start].is_done:
            start = edges[start]
        return start == goal

    for move, waiter, target in moves:
        if move == "enter" and waiter not in edges:
            call = some_call()
            if reaches(target, waiter):
                with pytest.raises(PluginDeadlockError) as caught:
                    graph.enter(nodes[waiter], nodes[target], call)
                chain = caught.value.chain
                assert chain[0] == chain[-1] == str(waiter)
                assert len(set(chain)) == len(chain) - 1
            else:
                graph.enter(nodes[waiter], nodes[target], call)
                edges[waiter], calls[waiter] = target, call
        elif move == "leave":
            graph.leave(nodes[waiter])
            edges.pop(waiter, None)
        elif move == "answer" and waiter in edges:
            calls[waiter].settle(None, None)
