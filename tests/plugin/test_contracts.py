"""What a plugin is, by structure, and the small things that are handed to it."""

import threading
import time
from typing import Any

import attrs
import pytest

from ares import errors
from ares.context import Context, NoExecution, NoJournal, cancel, grant
from ares.errors import InterceptorError, PluginError, StepError, UsageError
from ares.events import Event, EventFilter, instant
from ares.plugin import (
    Capability,
    EventListener,
    EvolutionPlugin,
    ExecutionHook,
    Flusher,
    HookAction,
    HookPolicy,
    HookResult,
    LoopController,
    MemoryPlugin,
    Plugin,
    RecoveryPlugin,
    RouterPlugin,
    RuntimePlugin,
    WorkflowHook,
)
from ares.plugin.capabilities import PROTOCOLS


class Everything(Plugin):
    """Has every method there is."""

    name = "everything"
    capabilities = frozenset(Capability)
    subscribes_to = EventFilter()
    buffer = 64

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> None: ...

    def after_step(self, ctx: Any, execution_id: str, result: Any) -> None: ...

    def before_execution(self, ctx: Any, execution: Any) -> None: ...

    def after_execution(self, ctx: Any, outcome: Any) -> None: ...

    def on_event(self, ctx: Any, delivery: Any) -> None: ...

    def route(self, ctx: Any, state: Any) -> None: ...

    def advise_route(self, ctx: Any, state: Any) -> tuple[Any, ...]:
        return ()

    def recommend(self, ctx: Any, state: Any) -> None: ...

    def record_outcome(self, ctx: Any, outcome: Any) -> None: ...

    def should_recover(self, ctx: Any, failure: Any, state: Any) -> bool:
        return False

    def should_execute_round(self, ctx: Any, next_round: int, state: Any) -> bool:
        return False

    def on_round_end(self, ctx: Any, round: int, state: Any) -> None: ...

    def flush(self, ctx: Any, execution_id: str) -> None: ...


OPTIONAL = [
    WorkflowHook,
    ExecutionHook,
    EventListener,
    RouterPlugin,
    MemoryPlugin,
    EvolutionPlugin,
    RecoveryPlugin,
    LoopController,
    Flusher,
]


def new_context(port: Any = None, execution_id: str = "e") -> Context:
    return Context(execution_id, port or NoExecution(), NoJournal(), "me", threading.RLock())


@pytest.mark.parametrize("protocol", OPTIONAL)
def test_a_plugin_is_what_its_methods_say(protocol: Any) -> None:
    assert isinstance(Everything(), protocol)
    assert not isinstance(Plugin(), protocol)


def test_the_base_class_is_a_plugin_and_harmless() -> None:
    plugin: RuntimePlugin = Plugin()

    assert isinstance(plugin, RuntimePlugin)
    assert plugin.start(new_context(), None) is None  # type: ignore[arg-type, func-returns-value]
    assert plugin.stop(new_context()) is None  # type: ignore[func-returns-value]
    assert Plugin.hook_policy is HookPolicy.OBSERVE


def test_capabilities_are_the_eight_of_the_design() -> None:
    assert {str(capability) for capability in Capability} == {
        *("observer", "checkpoint", "router", "loop", "memory", "evolution", "tool", "recovery")
    }
    assert set(PROTOCOLS) == set(Capability) - {Capability.OBSERVER, Capability.CHECKPOINT, Capability.TOOL}


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (HookResult.abort("a"), (HookAction.ABORT, "a", None, {})),
        (HookResult.skip("s"), (HookAction.SKIP, "s", None, {})),
        (HookResult.complete(5), (HookAction.COMPLETE, "", 5, {})),
        (HookResult.replace(inputs={"x": 1}), (HookAction.REPLACE, "", None, {"x": 1})),
    ],
)
def test_a_verdict_is_plain_data(verdict: HookResult, expected: Any) -> None:
    assert (verdict.action, verdict.reason, verdict.output, verdict.inputs) == expected
    assert attrs.evolve(verdict, plugin="judge").plugin == "judge"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        verdict.reason = "changed"  # type: ignore[misc]


def test_replaced_inputs_are_a_copy() -> None:
    inputs = {"x": 1}
    verdict = HookResult.replace(inputs)
    inputs["x"] = 2

    assert verdict.inputs == {"x": 1}


# --- the context -----------------------------------------------------------------------------------------


def test_a_context_that_was_not_granted_any_time_has_no_deadline() -> None:
    ctx = new_context()

    assert ctx.deadline is None
    assert not ctx.cancelled
    assert ctx.wait(0.001) is False


def test_a_context_is_cancelled_when_its_time_is_up() -> None:
    ctx = new_context()
    grant(ctx, time.monotonic() + 0.01)

    assert ctx.wait(30) is True
    assert ctx.cancelled


def test_cancelling_wakes_all_who_wait() -> None:
    ctx = new_context()
    waiting = threading.Barrier(4)
    woken: list[bool] = []

    def wait() -> None:
        waiting.wait(20)
        woken.append(ctx.wait(20))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait(20)
    cancel(ctx)
    cancel(ctx)
    for thread in threads:
        thread.join(20)

    assert woken == [True, True, True]
    assert ctx.wait(20) is True


@pytest.mark.parametrize("seconds", [0, -1])
def test_waiting_for_no_time_does_not_wait(seconds: float) -> None:
    assert new_context().wait(seconds) is False


def test_a_call_that_belongs_to_no_execution_cannot_record() -> None:
    ctx = new_context(execution_id="")

    assert dict(ctx.metadata) == {}
    with pytest.raises(UsageError, match="no execution"):
        ctx.record(object())


def test_a_bus_without_a_journal_says_so() -> None:
    journal = new_context().journal

    journal.flush()
    with pytest.raises(UsageError, match="no journal"):
        journal.snapshot("e")
    with pytest.raises(UsageError, match="no journal"):
        journal.append(Event("i", None, "e", "a.b", "m", {}, instant(0)))


# --- the errors ------------------------------------------------------------------------------------------

PLUGIN_ERRORS = [
    errors.PluginError("p", "start", "broke"),
    errors.PluginCrashError("p", "start", "raised SystemExit"),
    errors.PluginTimeoutError("p", "before_step", seconds=3.0),
    errors.PluginUnresponsiveError("p", "before_step", seconds=3.0, hung_call="on_event"),
    errors.PluginBusyError("p", "before_step", seconds=3.0),
    errors.PluginDeadlockError("p", "do", chain=("p", "q", "p")),
    errors.PluginNotRunningError("p", "do", state="stopped"),
    errors.InterceptorError("p", "before_step", "could not decide"),
]


@pytest.mark.parametrize("error", PLUGIN_ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_names_plugin_and_call_and_survives_a_pickle(error: PluginError) -> None:
    import pickle  # noqa: TID251 - that exceptions pickle is a promise

    again = pickle.loads(pickle.dumps(error))

    assert isinstance(error, PluginError)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert "'p'" in str(error)
    assert error.call in str(error)


@pytest.mark.parametrize(
    "error",
    [errors.RegistrationError("p", "is odd"), errors.RegistrationError("", "None is no plugin")],
)
def test_a_refusal_is_a_usage_error(error: UsageError) -> None:
    assert isinstance(error, UsageError)
    assert str(error)


def test_what_is_late_is_a_timeout_also_for_others() -> None:
    for error in PLUGIN_ERRORS:
        is_late = isinstance(error, errors.PluginTimeoutError | errors.PluginBusyError)
        assert isinstance(error, TimeoutError) is is_late
    assert issubclass(InterceptorError, StepError)
