"""Declared order is a promise; what cannot be promised is refused at start, with the names."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.bus import PluginBus
from ares.bus.card import Card, read
from ares.bus.ordering import Order, resolve
from ares.errors import HookOrderError
from ares.plugin import Capability
from tests.bus.players import Gate, Guard, Log, Named, Watcher, in_thread, step

NewBus = Callable[..., PluginBus]


def watcher(name: str, **attributes: Any) -> Watcher:
    return Watcher(name, Log(), **attributes)


def order_of(*plugins: Any) -> Order:
    return resolve([read(plugin) for plugin in plugins])


def waves_of(*plugins: Any, hook: str = "before_step") -> list[list[str]]:
    waves = order_of(*plugins).waves(lambda card: hook in card.hooks and not card.intercepts)
    return [[card.name for card in wave] for wave in waves]


def refused(*plugins: Any) -> HookOrderError:
    with pytest.raises(HookOrderError) as caught:
        order_of(*plugins)
    return caught.value


def test_without_a_declaration_all_go_together_in_order_of_registration() -> None:
    assert waves_of(watcher("b"), watcher("a"), watcher("c")) == [["b", "a", "c"]]


def test_whoever_runs_after_another_is_in_a_later_wave() -> None:
    assert waves_of(watcher("a", runs_after=("b",)), watcher("b"), watcher("c")) == [["b", "c"], ["a"]]


def test_whoever_runs_before_another_is_in_an_earlier_wave() -> None:
    assert waves_of(watcher("a"), watcher("b", runs_before=("a",))) == [["b"], ["a"]]


def test_one_name_may_stand_alone() -> None:
    assert waves_of(watcher("a", runs_after="b"), watcher("b")) == [["b"], ["a"]]


def test_a_capability_stands_for_all_that_have_it_and_not_for_oneself() -> None:
    tool = frozenset({Capability.TOOL})
    waves = waves_of(
        watcher("last", runs_after=(Capability.TOOL,), capabilities=tool),
        watcher("t1", capabilities=tool),
        watcher("other"),
        watcher("t2", capabilities=tool),
    )

    assert waves == [["t1", "other", "t2"], ["last"]]


def test_a_capability_that_nobody_has_asks_for_nothing() -> None:
    assert waves_of(watcher("a", runs_after=("memory",))) == [["a"]]


def test_a_name_that_is_also_a_capability_means_both() -> None:
    waves = waves_of(
        watcher("a", runs_after=("tool",)), watcher("tool"), watcher("x", capabilities=frozenset({Capability.TOOL}))
    )

    assert waves == [["tool", "x"], ["a"]]


def test_order_holds_by_way_of_a_plugin_that_does_not_have_the_hook() -> None:
    """a before b before c; b has no before_step."""
    plugins = (watcher("c", runs_after=("b",)), Named("b", runs_after=("a",)), watcher("a"))

    assert waves_of(*plugins) == [["a"], ["c"]]


def test_a_plugin_without_the_hook_costs_no_wave() -> None:
    plugins = (watcher("a", runs_after=("b",)), Named("b"))

    assert waves_of(*plugins) == [["a"]]


def test_an_unknown_name_is_refused_with_both_names() -> None:
    error = refused(watcher("a", runs_after=("nobody",)))

    assert error.plugins == ("a", "nobody")
    assert "'a'" in str(error)
    assert "'nobody'" in str(error)


def test_a_cycle_is_refused_naming_all_of_it_and_nobody_else() -> None:
    error = refused(
        watcher("outside", runs_after=("a",)),
        watcher("a", runs_after=("c",)),
        watcher("b", runs_after=("a",)),
        watcher("c", runs_after=("b",)),
    )

    assert set(error.plugins) == {"a", "b", "c"}
    assert error.plugins[0] == error.plugins[-1]
    assert " before ".join(map(repr, error.plugins)) in str(error)


def test_a_cycle_is_told_in_the_direction_of_time() -> None:
    """a before b, b before c, c before a."""
    chain = refused(
        watcher("a", runs_before=("b",)), watcher("b", runs_before=("c",)), watcher("c", runs_before=("a",))
    ).plugins

    assert "".join(chain) in ("abca", "bcab", "cabc")


def test_a_plugin_that_names_itself_is_a_cycle_of_one() -> None:
    assert refused(watcher("a", runs_before=("a",))).plugins == ("a", "a")


@pytest.mark.parametrize("through", [False, True])
def test_an_observer_declared_before_an_interceptor_is_refused_with_the_names(through: bool) -> None:
    middle = (Named("between", runs_before=("guard",)),) if through else ()
    guard = Guard("guard", lambda _step: None)

    error = refused(guard, *middle, watcher("observer", runs_before=("between" if through else "guard",)))

    assert error.plugins == ("observer", "guard")


def test_interceptors_may_be_declared_before_observers_and_each_other() -> None:
    order = order_of(
        watcher("observer", runs_after=("second",)),
        Guard("second", lambda _step: None, runs_after=("first",)),
        Guard("first", lambda _step: None),
    )

    assert [card.name for card in order.line(lambda card: card.intercepts)] == ["first", "second"]


def test_a_plugin_that_watches_no_steps_may_be_declared_before_an_interceptor() -> None:
    order_of(Named("quiet", runs_before=("guard",)), Guard("guard", lambda _step: None))


def test_a_later_hook_is_sent_only_when_the_earlier_one_has_answered(new_bus: NewBus, gate: Gate) -> None:
    log = Log()

    class Slow(Watcher):
        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
            gate.pass_through()
            self.log.add(self.name)

    class Quick(Watcher):
        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
            self.log.add(self.name)
            if self.name == "stranger":
                gate.open()  # so that strangers are not kept waiting is part of the proof

    bus = new_bus(Quick("after", log, runs_after=("slow",)), Slow("slow", log), Quick("stranger", log))

    in_thread(bus.before_step, "e", step())()

    assert log.lines == ["stranger", "slow", "after"]


def test_a_later_hook_comes_also_after_one_that_fails(new_bus: NewBus) -> None:
    log = Log()

    class Failing(Watcher):
        def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
            self.log.add(self.name)
            raise ValueError("no")

    bus = new_bus(watcher_in(log, "after", runs_after=("failing",)), Failing("failing", log))

    bus.before_step("e", step())

    assert log.lines == ["failing", "after.before"]


def watcher_in(log: Log, name: str, **attributes: Any) -> Watcher:
    return Watcher(name, log, **attributes)


def test_the_resolved_order_can_be_printed(new_bus: NewBus) -> None:
    bus = new_bus(
        Guard("guard", lambda _step: None),
        watcher("b", runs_after=("a",)),
        watcher("a"),
        watcher("c", after_step=None),
        Named("router", capabilities=frozenset({Capability.ROUTER}), route=lambda _ctx, _state: None),
    )

    assert str(bus.hook_order()).splitlines() == [
        "intercept: guard",
        "before_step: a, c > b",
        "after_step: a > b",
        "route: router",
    ]
    assert str(PluginBus().hook_order()) == ""


# --- any declarations, any order of registration ---------------------------------------------------------

NAMES = "abcdefg"


@st.composite
def towns(draw: st.DrawFn) -> list[Any]:
    """Plugins whose declarations follow a hidden order, so that there is no cycle, in random order of registration."""
    count = draw(st.integers(1, len(NAMES)))
    plugins: list[Any] = []
    for index in range(count):
        earlier, later = NAMES[:index], NAMES[index + 1 : count]
        has_hook = draw(st.booleans())
        some = {"hook": watcher, "none": Named}["hook" if has_hook else "none"]
        plugins.append(
            some(
                NAMES[index],
                runs_after=tuple(draw(st.sets(st.sampled_from(earlier)))) if earlier else (),
                runs_before=tuple(draw(st.sets(st.sampled_from(later)))) if later else (),
            )
        )
    draw(st.randoms(use_true_random=False)).shuffle(plugins)
    return plugins


def promises(plugins: Sequence[Any]) -> set[tuple[str, str]]:
    """Every pair (earlier, later) that is declared, and all that follow from them."""
    pairs = {(name, plugin.name) for plugin in plugins for name in plugin.runs_after}
    pairs |= {(plugin.name, name) for plugin in plugins for name in plugin.runs_before}
    while True:
        more = {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs
        if not more:
            return pairs
        pairs |= more


@given(plugins=towns())
def test_every_promise_is_kept_under_any_order_of_registration(plugins: list[Any]) -> None:
    waves = waves_of(*plugins)

    where = {name: number for number, wave in enumerate(waves) for name in wave}
    assert set(where) == {plugin.name for plugin in plugins if isinstance(plugin, Watcher)}
    for earlier, later in promises(plugins):
        if earlier in where and later in where:
            assert where[earlier] < where[later]


@given(plugins=towns())
def test_there_are_no_more_waves_than_the_longest_chain_of_promises(plugins: list[Any]) -> None:
    pairs = promises(plugins)
    members = [plugin.name for plugin in plugins if isinstance(plugin, Watcher)]
    longest: dict[str, int] = {}

    def length(name: str) -> int:
        if name not in longest:
            longest[name] = 1 + max((length(other) for other in members if (other, name) in pairs), default=0)
        return longest[name]

    assert len(waves_of(*plugins)) == max((length(name) for name in members), default=0)


@given(plugins=towns())
def test_what_is_not_declared_keeps_the_order_of_registration_inside_a_wave(plugins: list[Any]) -> None:
    if any(plugin.runs_after or plugin.runs_before for plugin in plugins):
        return
    assert waves_of(*plugins) in ([], [[plugin.name for plugin in plugins if isinstance(plugin, Watcher)]])


@settings(max_examples=25, deadline=None)
@given(plugins=towns())
def test_every_promise_is_kept_on_a_living_bus(plugins: list[Any]) -> None:
    log = Log()
    for plugin in plugins:
        plugin.log = log
    bus = PluginBus()
    bus.register(*plugins)
    bus.start()
    try:
        bus.before_step("e", step())
    finally:
        bus.stop()

    happened = [line.removesuffix(".before") for line in log.lines]
    for earlier, later in promises(plugins):
        if earlier in happened and later in happened:
            assert happened.index(earlier) < happened.index(later)


@given(seed=st.integers())
def test_a_cycle_of_any_length_is_found_wherever_it_lies(seed: int) -> None:
    dice = random.Random(seed)
    names = list(NAMES[: dice.randint(1, len(NAMES))])
    dice.shuffle(names)
    cycle = names[: dice.randint(1, len(names))]
    plugins = [
        watcher(name, runs_after=(cycle[cycle.index(name) - 1] if name in cycle else dice.choice(cycle),))
        for name in names
    ]

    error = refused(*plugins)

    assert set(error.plugins) == set(cycle)
    assert len(error.plugins) == len(cycle) + 1


def test_an_order_knows_only_cards() -> None:
    assert all(isinstance(card, Card) for card in order_of(watcher("a")).sequence)
