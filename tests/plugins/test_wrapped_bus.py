"""A bus in a decorator that forwards the two protocols is as good as the bus: whoever asks peers finds them.

One line a plugin in ``SEEKERS``: what it is, who its peers are, and what it decides only if it found them.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from ares import Runtime
from ares.bus import PluginBus
from ares.plugin import Capability, EventBus, PluginDirectory
from ares.plugins import EvolutionRouter, ExpressionRouter, FallbackRouter, LoopPlugin, MemoryRouter, Rule
from tests.bus.players import LONG, Log
from tests.engine.helpers import events_of
from tests.plugins.pupil import Pupil
from tests.plugins.routing import (
    Evolution,
    Forwarding,
    Heard,
    Memory,
    Transparent,
    Wrapped,
    advice,
    at,
    crossing,
    decision_of,
    prefers,
    routed,
)

NewBus = Callable[..., PluginBus]
Make = Callable[..., Runtime]

OTHERWISE = Rule("True", "right")


@attrs.frozen
class Seeker:
    """A plugin that uses the bus it was handed."""

    plugin: Callable[[], Any]
    peers: Callable[[], list[Any]]
    #: Of the decision that it comes to with the help of its peers.
    source: str
    target: str
    #: How many capabilities it looks for.
    looks_for: tuple[Capability, ...] = ()


def recalls() -> list[Any]:
    return [Memory(advice("left"))]


def recommends() -> list[Any]:
    return [Evolution(prefers("critic"))]


SEEKERS = {
    # It has no peers, and tells of a rule that fails.
    "expression": Seeker(lambda: ExpressionRouter([OTHERWISE]), list, "expression", "right"),
    "memory": Seeker(lambda: MemoryRouter([OTHERWISE]), recalls, "memory", "left", (Capability.MEMORY,)),
    "evolution": Seeker(
        lambda: EvolutionRouter({"critic": "middle"}, [OTHERWISE]),
        recommends,
        "evolution",
        "middle",
        (Capability.EVOLUTION,),
    ),
    "fallback of memory": Seeker(
        lambda: FallbackRouter([ExpressionRouter(), MemoryRouter()]), recalls, "memory", "left", (Capability.MEMORY,)
    ),
    "fallback of evolution": Seeker(
        lambda: FallbackRouter([MemoryRouter(), EvolutionRouter({"critic": "middle"})]),
        recommends,
        "evolution",
        "middle",
        (Capability.MEMORY, Capability.EVOLUTION),
    ),
}


class Counting(Forwarding):
    """Forwards the protocols, and writes down what passed."""

    passed = Log()

    def emit(self, stream_id: str, event_type: str, module: str, payload: Any = None) -> None:
        self.passed.add(event_type)
        super().emit(stream_id, event_type, module, payload)

    def plugins_by_cap(self, cap: Capability) -> Any:
        self.passed.add(cap)
        return super().plugins_by_cap(cap)


WRAPPERS = [Forwarding, Transparent, lambda bus: Forwarding(Transparent(Forwarding(bus)))]

each_seeker = pytest.mark.parametrize("seeker", SEEKERS.values(), ids=SEEKERS)
each_wrapper = pytest.mark.parametrize("wrapper", WRAPPERS, ids=["forwarding", "transparent", "three deep"])


@each_seeker
@each_wrapper
def test_a_router_on_a_bus_in_a_wrapper_finds_its_peers(new_bus: NewBus, seeker: Seeker, wrapper: Any) -> None:
    bus = new_bus(*seeker.peers(), Wrapped(seeker.plugin(), wrapper))

    decision = decision_of(bus, at("here"))

    assert (decision.source, decision.targets) == (seeker.source, (seeker.target,))


@each_seeker
def test_a_router_looks_for_its_peers_in_the_wrapper_and_nowhere_else(new_bus: NewBus, seeker: Seeker) -> None:
    class Here(Counting):
        passed = Log()

    bus = new_bus(*seeker.peers(), Wrapped(seeker.plugin(), Here))

    decision_of(bus, at("here"))

    assert tuple(dict.fromkeys(Here.passed.lines)) == seeker.looks_for


@each_seeker
def test_without_a_directory_in_its_wrapper_a_router_decides_alone(new_bus: NewBus, seeker: Seeker) -> None:
    class OnlyEvents:
        def __init__(self, inner: Any) -> None:
            self.emit, self.subscribe = inner.emit, inner.subscribe

    bus = new_bus(*seeker.peers(), Wrapped(seeker.plugin(), OnlyEvents))

    decision = decision_of(bus, at("here"))

    assert decision.source in ("expression", "fallback")


@pytest.mark.parametrize(
    "make",
    [lambda rule: ExpressionRouter([rule, OTHERWISE]), lambda rule: FallbackRouter([ExpressionRouter([rule])])],
    ids=["expression", "fallback"],
)
def test_what_a_router_tells_passes_through_the_wrapper(new_bus: NewBus, make: Any) -> None:
    class Here(Counting):
        passed = Log()

    broken = Rule(lambda output, variables: 1 / 0, "left")
    bus = new_bus(Wrapped(make(broken), Here))
    heard = Heard(bus, "router.rule_failed")

    decision_of(bus, at("here"))

    assert Here.passed.lines == ["router.rule_failed"]
    assert [told["problem"] for _, told in heard()] == ["ZeroDivisionError: division by zero"]


@each_seeker
def test_in_a_runtime_it_is_the_same(runtime: Make, seeker: Seeker) -> None:
    rt = runtime(plugins=[*seeker.peers(), Wrapped(seeker.plugin(), Forwarding)])

    result = rt.submit(crossing(), execution_id="e").result(LONG).raise_for_status()

    assert result.output("join") == [seeker.target]
    assert routed(events_of(rt, "e"))["source"] == seeker.source


@each_wrapper
def test_the_end_of_a_round_reaches_the_peers_of_a_loop_plugin_through_its_wrapper_alone(
    runtime: Make, wrapper: Any
) -> None:
    class Here(Counting):
        passed = Log()

    memory, pupil = Memory(advice("left")), Pupil()
    rt = runtime(plugins=[memory, pupil, Wrapped(LoopPlugin(), lambda bus: Here(wrapper(bus)))])

    rt.run(crossing(on_no_route="all"), execution_id="e").raise_for_status()

    assert tuple(dict.fromkeys(Here.passed.lines)) == (Capability.CHECKPOINT, Capability.MEMORY, Capability.EVOLUTION)
    assert ([state.path for state in memory.states], [each.round for each in pupil.outcomes]) == ([""], [1])


@pytest.mark.parametrize("wrapper", WRAPPERS[:1])
def test_a_wrapper_that_forwards_is_what_the_protocols_ask_for(new_bus: NewBus, wrapper: Any) -> None:
    wrapped = wrapper(new_bus())

    assert isinstance(wrapped, EventBus)
    assert isinstance(wrapped, PluginDirectory)
