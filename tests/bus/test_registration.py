"""Who is let in, and what is said to those who are not."""

from collections.abc import Callable
from typing import Any

import pytest

from ares.bus import PluginBus
from ares.errors import RegistrationError
from ares.events import EventFilter
from ares.plugin import Capability, HookPolicy, Plugin
from tests.bus.players import Guard, Listener, Log, Named, Servant, Watcher

NewBus = Callable[..., PluginBus]


class Bare:
    """A plugin by structure alone."""

    name = "bare"
    capabilities: frozenset[Capability] = frozenset()

    def start(self, ctx: Any, bus: Any) -> None: ...

    def stop(self, ctx: Any) -> None: ...


def refused(bus: PluginBus, *plugins: Any) -> RegistrationError:
    before = list(bus.health())
    with pytest.raises(RegistrationError) as caught:
        bus.register(*plugins)
    assert list(bus.health()) == before, "all or nothing"
    return caught.value


def test_whatever_has_the_four_members_is_a_plugin(new_bus: NewBus) -> None:
    bus = new_bus(Bare())

    assert list(bus.health()) == ["bare"]


def test_none_is_refused(new_bus: NewBus) -> None:
    assert "None" in str(refused(new_bus(start=False), None))


def test_a_class_is_refused_where_an_instance_was_meant(new_bus: NewBus) -> None:
    error = refused(new_bus(start=False), Bare)

    assert error.plugin == "Bare"
    assert "instance" in error.problem


@pytest.mark.parametrize("name", ["", "  ", None, 7, "a\nb", "a\x00b", "n" * 201])
def test_a_plugin_without_a_proper_name_is_refused(new_bus: NewBus, name: Any) -> None:
    assert "name" in refused(new_bus(start=False), Named(name)).problem


def test_a_plugin_that_has_no_name_at_all_is_refused(new_bus: NewBus) -> None:
    class Nameless:
        capabilities: frozenset[Capability] = frozenset()

    assert refused(new_bus(start=False), Nameless()).plugin == "Nameless"


def test_a_second_plugin_of_the_same_name_is_refused(new_bus: NewBus) -> None:
    bus = new_bus(Named("twin"), start=False)

    assert refused(bus, Named("twin")).plugin == "twin"


def test_twins_that_come_together_are_refused_together(new_bus: NewBus) -> None:
    refused(new_bus(start=False), Named("first"), Named("twin"), Named("twin"))


def test_a_plugin_that_comes_after_start_is_refused(new_bus: NewBus) -> None:
    error = refused(new_bus(), Named("late"))

    assert error.plugin == "late"
    assert "late" in error.problem


@pytest.mark.parametrize(
    ("capability", "method"),
    [
        (Capability.ROUTER, "route"),
        (Capability.MEMORY, "advise_route"),
        (Capability.EVOLUTION, "recommend"),
        (Capability.RECOVERY, "should_recover"),
        (Capability.LOOP, "should_execute_round"),
    ],
)
def test_a_capability_without_its_protocol_is_refused_naming_the_method(
    new_bus: NewBus, capability: Capability, method: str
) -> None:
    error = refused(new_bus(start=False), Named("hollow", capabilities=frozenset({capability})))

    assert capability.value in error.problem
    assert method in error.problem


def test_half_a_protocol_is_refused_naming_the_other_half(new_bus: NewBus) -> None:
    class Half(Named):
        capabilities = frozenset({Capability.EVOLUTION})

        def recommend(self, ctx: Any, state: Any) -> None: ...

    assert "record_outcome" in refused(new_bus(start=False), Half()).problem


@pytest.mark.parametrize("label", [Capability.OBSERVER, Capability.CHECKPOINT, Capability.TOOL])
def test_labels_promise_nothing(new_bus: NewBus, label: Capability) -> None:
    new_bus(Named("labelled", capabilities=frozenset({label})))


def test_capabilities_take_their_strings_too(new_bus: NewBus) -> None:
    bus = new_bus(Named("stringy", capabilities={"tool"}))

    assert [ref.name for ref in bus.plugins_by_cap(Capability.TOOL)] == ["stringy"]


@pytest.mark.parametrize("capabilities", [{"telepathy"}, "tool", None, 5])
def test_capabilities_that_are_none_are_refused(new_bus: NewBus, capabilities: Any) -> None:
    assert "capabilit" in refused(new_bus(start=False), Named("odd", capabilities=capabilities)).problem


@pytest.mark.parametrize(
    ("method", "function"),
    [
        ("before_step", lambda _ctx, _execution_id: None),
        ("after_step", lambda _result: None),
        ("before_execution", lambda: None),
        ("after_execution", lambda _ctx, _outcome, _more: None),
        ("start", lambda _ctx: None),
        ("stop", lambda _ctx, _more: None),
        ("before_step", 5),
    ],
)
def test_a_hook_with_a_wrong_signature_is_refused_naming_it(new_bus: NewBus, method: str, function: Any) -> None:
    error = refused(new_bus(start=False), Named("crooked", **{method: function}))

    assert error.plugin == "crooked"
    assert f"{method}(ctx" in error.problem


def test_a_capability_method_with_a_wrong_signature_is_refused(new_bus: NewBus) -> None:
    plugin = Named("crooked", capabilities=frozenset({Capability.ROUTER}), route=lambda _ctx: None)

    assert "route(ctx, state)" in refused(new_bus(start=False), plugin).problem


def test_a_method_of_that_name_is_the_plugins_own_business_without_the_capability(new_bus: NewBus) -> None:
    new_bus(Named("free", route=lambda: None, recommend=5))


@pytest.mark.parametrize(
    "function",
    [
        lambda *_args: None,
        lambda ctx, execution_id, step, more=None: None,
        lambda ctx, /, execution_id, *rest: None,
    ],
)
def test_a_signature_that_takes_more_will_do(new_bus: NewBus, function: Any) -> None:
    new_bus(Named("broad", before_step=function))


def test_an_async_hook_is_refused(new_bus: NewBus) -> None:
    async def before_step(ctx: Any, execution_id: str, step: Any) -> None: ...

    assert "async" in refused(new_bus(start=False), Named("modern", before_step=before_step)).problem


def test_a_hook_that_is_a_generator_is_refused(new_bus: NewBus) -> None:
    def after_step(ctx: Any, execution_id: str, result: Any) -> Any:
        yield

    assert "generator" in refused(new_bus(start=False), Named("lazy", after_step=after_step)).problem


def test_a_hook_that_is_none_is_not_there(new_bus: NewBus) -> None:
    bus = new_bus(Watcher("half", Log(), before_step=None))

    assert not bus.stages.has_before
    assert bus.stages.has_after


def test_the_base_class_defines_no_hooks() -> None:
    hooks = {"before_step", "after_step", "before_execution", "after_execution", "on_event", "route", "flush"}

    assert not hooks & set(dir(Plugin))


def test_an_interceptor_must_have_something_to_intercept_with(new_bus: NewBus) -> None:
    error = refused(new_bus(start=False), Named("toothless", hook_policy=HookPolicy.INTERCEPT))

    assert "before_step" in error.problem


def test_hook_policy_takes_its_string_and_nothing_else(new_bus: NewBus) -> None:
    new_bus(Guard("stringy", lambda _step: None, hook_policy="intercept"))

    assert "hook_policy" in refused(new_bus(start=False), Named("odd", hook_policy="sometimes")).problem


def test_a_listener_must_say_what_it_listens_to(new_bus: NewBus) -> None:
    listener = Listener("deaf", lambda _delivery: None, subscribes_to=None)

    assert "subscribes_to" in refused(new_bus(start=False), listener).problem


def test_a_filter_without_a_listener_is_refused(new_bus: NewBus) -> None:
    assert "on_event" in refused(new_bus(start=False), Named("mute", subscribes_to=EventFilter())).problem


@pytest.mark.parametrize("types", ["step.completed", ["completed"], [5]])
def test_a_listener_whose_filter_matches_nothing_is_refused(new_bus: NewBus, types: Any) -> None:
    listener = Listener("deaf", lambda _delivery: None, subscribes_to=EventFilter(types=types))

    assert "event type" in refused(new_bus(start=False), listener).problem


@pytest.mark.parametrize("buffer", [0, -1, True, "64", None, 1.5])
def test_a_buffer_is_a_number_from_one(new_bus: NewBus, buffer: Any) -> None:
    assert "buffer" in refused(new_bus(start=False), Listener("odd", print, buffer=buffer)).problem


@pytest.mark.parametrize("timeout", [0, -1, True, "3", float("nan"), float("inf")])
def test_a_timeout_is_seconds(new_bus: NewBus, timeout: Any) -> None:
    assert "timeout" in refused(new_bus(start=False), Named("odd", timeout=timeout)).problem


@pytest.mark.parametrize("attribute", ["required", "per_item"])
def test_a_flag_is_true_or_false(new_bus: NewBus, attribute: str) -> None:
    assert attribute in refused(new_bus(start=False), Named("odd", **{attribute: "yes"})).problem


@pytest.mark.parametrize("attribute", ["runs_after", "runs_before"])
@pytest.mark.parametrize("value", [5, [5], None])
def test_order_is_declared_by_names(new_bus: NewBus, attribute: str, value: Any) -> None:
    assert attribute in refused(new_bus(start=False), Named("odd", **{attribute: value})).problem


@pytest.mark.parametrize("attribute", ["capabilities", "hook_policy", "timeout", "before_step", "runs_after", "start"])
def test_an_attribute_that_raises_is_named(new_bus: NewBus, attribute: str) -> None:
    def explode(_self: Any) -> Any:
        raise ZeroDivisionError("no")

    kind = type("Explosive", (Named,), {attribute: property(explode)})

    error = refused(new_bus(start=False), kind("explosive"))

    assert attribute in error.problem
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_names_are_read_once(new_bus: NewBus) -> None:
    class Chameleon(Servant):
        calls = 0

        @property  # type: ignore[override]  # that is what it is about
        def name(self) -> str:
            type(self).calls += 1
            return f"colour-{self.calls}"

        @name.setter
        def name(self, _value: str) -> None: ...

    bus = new_bus(Chameleon())

    assert list(bus.health()) == ["colour-1"]
    assert [ref.name for ref in bus.plugins_by_cap(Capability.TOOL)] == ["colour-1"]
