"""What the engine asks of the plugins about a step, and what it is told whatever they do."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ares.bus import PluginBus, PluginState
from ares.context import Context
from ares.errors import (
    InterceptorError,
    PluginCrashError,
    PluginError,
    PluginTimeoutError,
    PluginUnresponsiveError,
    StepError,
)
from ares.plugin import Capability, HookAction, HookResult
from ares.plugin.engine_bus import EngineBus, Stages
from ares.records import RouteDecision, Step, ToolEntry
from tests.bus.players import (
    LONG,
    Gate,
    Guard,
    Log,
    Named,
    Said,
    Servant,
    Watcher,
    choice,
    failure,
    in_thread,
    outcome,
    refs,
    result,
    state,
    step,
    until,
)

NewBus = Callable[..., PluginBus]


class Port:
    """An execution as the bus sees it."""

    def __init__(self, **metadata: str) -> None:
        self.metadata: Mapping[str, str] = metadata
        self.entries: list[tuple[str, Any]] = []

    def record(self, writer: str, entry: Any) -> None:
        self.entries.append((writer, entry))


def raising(error: BaseException) -> Callable[..., Any]:
    def explode(*_args: Any) -> Any:
        raise error

    return explode


# --- observers -----------------------------------------------------------------------------------------


@pytest.mark.case("C027")
def test_a_hook_that_raises_is_survived_counted_and_logged_and_the_others_are_called(new_bus: NewBus) -> None:
    """After-hooks run like before-hooks; only declared order is a promise."""
    log, said = Log(), Said()

    class Broken(Watcher):
        def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
            super().after_step(ctx, execution_id, result)
            raise ValueError("no")

    bus = new_bus(
        Watcher("A", log),
        Broken("B", log, runs_after=("A",)),
        Watcher("C", log, runs_after=("B",)),
        say=said,
    )
    bus.open_execution("e", Port())

    bus.before_step("e", step())
    log.add("step")
    bus.after_step("e", result())

    assert log.lines == ["A.before", "B.before", "C.before", "step", "A.after", "B.after", "C.after"]
    assert bus.health()["B"].errors == 1
    [warning] = bus.close_execution("e")
    assert warning == "plugin 'B': after_step raised ValueError: no"
    assert len(said.of("WARNING", "ERROR")) == 1


def test_undeclared_observers_run_together(new_bus: NewBus) -> None:
    """Each waits for the other, so neither would ever end if one were waited for before the other is sent."""
    meeting = threading.Barrier(3)

    class Sociable(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            meeting.wait(LONG)

    bus = new_bus(*(Sociable(name) for name in "abc"))

    bus.before_step("e", step())

    assert [health.errors for health in bus.health().values()] == [0, 0, 0]


def test_hooks_that_nobody_defines_are_known_and_cost_nothing(new_bus: NewBus) -> None:
    bus = new_bus(Named("quiet"))

    assert bus.stages == Stages()
    bus.before_step("e", step())
    bus.after_step("e", result())
    bus.before_execution(state())
    bus.after_execution(outcome())
    assert bus.intercept("e", step()) is None
    assert bus.route("e", choice("a")) == (None, ())
    assert bus.should_recover("e", failure(), state()) is False
    assert bus.health()["quiet"].calls == 1


def test_stages_say_who_would_be_reached(new_bus: NewBus) -> None:
    class Everything(Guard):
        capabilities = frozenset({Capability.ROUTER, Capability.RECOVERY})

        def after_step(self, ctx: Any, execution_id: str, result: Any) -> None: ...

        def before_execution(self, ctx: Any, execution: Any) -> None: ...

        def route(self, ctx: Any, state: Any) -> None: ...

        def should_recover(self, ctx: Any, failure: Any, state: Any) -> bool:
            return False

    stages = new_bus(Everything("all", lambda _step: None)).stages

    assert stages == Stages(
        has_interceptors=True, has_after=True, has_execution_hooks=True, has_routers=True, has_recovery=True
    )


def test_elements_of_a_map_are_told_to_those_that_ask_for_them(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(Watcher("coarse", log), Watcher("fine", log, per_item=True, runs_after=("coarse",)))
    assert bus.stages.per_item

    for index in (None, 0, 1):
        bus.before_step("e", step("m", index))
        bus.after_step("e", result("m", index))

    assert log.lines == [
        *("coarse.before", "fine.before", "coarse.after", "fine.after"),
        *("fine.before", "fine.after") * 2,
    ]


def test_executions_are_told_to_those_that_want_to_know(new_bus: NewBus) -> None:
    log = Log()

    class Curious(Named):
        def before_execution(self, ctx: Context, execution: Any) -> None:
            log.add(("before", ctx.execution_id, execution.workflow_id))

        def after_execution(self, ctx: Context, outcome: Any) -> None:
            log.add(("after", ctx.execution_id, outcome.status.value))

    bus = new_bus(Curious("curious"))

    bus.before_execution(state("e7"))
    bus.after_execution(outcome("e7"))

    assert log.lines == [("before", "e7", "w"), ("after", "e7", "COMPLETED")]


def test_an_observer_that_gives_a_verdict_is_told_that_it_cannot(new_bus: NewBus) -> None:
    bus = new_bus(Guard("guard", lambda _step: HookResult.abort("no"), hook_policy="observe"))
    bus.open_execution("e", Port())

    bus.before_step("e", step())

    [warning] = bus.warnings("e")
    assert "verdict" in warning
    assert bus.intercept("e", step()) is None


def test_a_hung_observer_costs_one_timeout_in_all(new_bus: NewBus, gate: Gate) -> None:
    import time

    class Stuck(Watcher):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            gate.pass_through()

    log = Log()
    bus = new_bus(Stuck("stuck", log, timeout=0.2), Watcher("fine", log))
    bus.open_execution("e", Port())
    began = time.monotonic()

    for number in range(100):
        bus.before_step("e", step(f"s{number}"))
        bus.after_step("e", result(f"s{number}"))

    assert time.monotonic() - began < 5
    assert log.lines.count("fine.before") == log.lines.count("fine.after") == 100
    health = bus.health()["stuck"]
    assert (health.state, health.timeouts) == (PluginState.UNRESPONSIVE, 1)
    warnings = bus.close_execution("e")
    assert any("gave no answer" in line for line in warnings)
    assert any("was not made" in line and "(99 times)" in line for line in warnings)
    assert any("hangs in before_step" in line for line in warnings)


def test_a_plugin_that_answers_late_is_back(new_bus: NewBus, gate: Gate) -> None:
    log = Log()

    class Slow(Watcher):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            if step.path == "slow":
                gate.pass_through()
            super().before_step(ctx, execution_id, step)

    bus = new_bus(Slow("slow", log, timeout=0.05))
    bus.before_step("e", step("slow"))
    bus.before_step("e", step("lost"))
    assert bus.health()["slow"].state is PluginState.UNRESPONSIVE

    gate.open()
    until(lambda: bus.health()["slow"].state is PluginState.RUNNING)
    bus.before_step("e", step("fine"))

    assert log.lines == ["slow.before", "slow.before"]


# --- interceptors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "action", "field", "value"),
    [
        (HookResult.abort("not yours"), HookAction.ABORT, "reason", "not yours"),
        (HookResult.skip("not today"), HookAction.SKIP, "reason", "not today"),
        (HookResult.complete({"from": "cache"}), HookAction.COMPLETE, "output", {"from": "cache"}),
        (HookResult.replace({"x": 2}), HookAction.REPLACE, "inputs", {"x": 2, "y": 9}),
    ],
)
def test_a_verdict_is_handed_on_with_the_name_of_who_gave_it(
    new_bus: NewBus, given: HookResult, action: HookAction, field: str, value: Any
) -> None:
    bus = new_bus(Guard("first", lambda _step: None), Guard("judge", lambda _step: given))

    verdict = bus.intercept("e", step(x=1, y=9))

    assert verdict is not None
    assert (verdict.action, verdict.plugin, getattr(verdict, field)) == (action, "judge", value)


def test_nobody_objects(new_bus: NewBus) -> None:
    assert new_bus(Guard("guard", lambda _step: None)).intercept("e", step()) is None


def test_interceptors_are_asked_one_after_another_and_the_first_refusal_ends_it(new_bus: NewBus) -> None:
    log = Log()

    def deciding(name: str, verdict: HookResult | None) -> Guard:
        return Guard(name, lambda _step: (log.add(name), verdict)[1])

    bus = new_bus(deciding("a", None), deciding("b", HookResult.skip("enough")), deciding("c", None))

    bus.intercept("e", step())

    assert log.lines == ["a", "b"]


def test_replaced_inputs_add_up_and_the_next_one_sees_them(new_bus: NewBus) -> None:
    seen = Log()

    def double(key: str) -> Callable[[Step], HookResult]:
        def decide(step: Step) -> HookResult:
            seen.add(dict(step.inputs))
            return HookResult.replace(inputs={key: step.inputs[key] * 2})

        return decide

    bus = new_bus(
        Guard("a", double("x")), Guard("b", double("y")), Guard("c", double("x")), Guard("d", lambda _step: None)
    )

    verdict = bus.intercept("e", step(x=1, y=10, z=100))

    assert seen.lines == [{"x": 1, "y": 10, "z": 100}, {"x": 2, "y": 10, "z": 100}, {"x": 2, "y": 20, "z": 100}]
    assert verdict is not None
    assert (verdict.action, verdict.inputs, verdict.plugin) == (HookAction.REPLACE, {"x": 4, "y": 20, "z": 100}, "c")


def test_a_refusal_after_a_replacement_is_a_refusal(new_bus: NewBus) -> None:
    bus = new_bus(
        Guard("a", lambda _step: HookResult.replace({"x": 2})), Guard("b", lambda _step: HookResult.abort("no"))
    )

    verdict = bus.intercept("e", step(x=1))

    assert verdict is not None
    assert (verdict.action, verdict.plugin) == (HookAction.ABORT, "b")


def test_an_input_that_the_step_does_not_take_cannot_be_replaced(new_bus: NewBus) -> None:
    bus = new_bus(Guard("guard", lambda _step: HookResult.replace({"x": 2, "typo": 3})))

    with pytest.raises(InterceptorError, match="typo"):
        bus.intercept("e", step(x=1))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_an_interceptor_that_raises_fails_closed(new_bus: NewBus, error: BaseException) -> None:
    bus = new_bus(Guard("guard", raising(error)))
    bus.open_execution("e", Port())

    with pytest.raises(InterceptorError) as caught:
        bus.intercept("e", step())

    assert caught.value.plugin == "guard"
    assert isinstance(caught.value, StepError)
    assert isinstance(caught.value.__cause__, PluginCrashError if not isinstance(error, Exception) else PluginError)
    assert caught.value.__cause__.__cause__ is error
    assert len(bus.warnings("e")) == 1


@pytest.mark.parametrize("answer", [True, False, "abort", 0, {"action": "abort"}, RouteDecision(("a",))])
def test_an_answer_that_is_none_fails_closed(new_bus: NewBus, answer: Any) -> None:
    bus = new_bus(Guard("guard", lambda _step: answer))

    with pytest.raises(InterceptorError, match="HookResult"):
        bus.intercept("e", step())


def test_a_replacement_that_is_no_mapping_fails_closed(new_bus: NewBus) -> None:
    broken = HookResult(HookAction.REPLACE, inputs=None)  # type: ignore[arg-type]  # that is what it is about

    with pytest.raises(InterceptorError, match="mapping"):
        new_bus(Guard("guard", lambda _step: broken)).intercept("e", step())


def test_an_interceptor_that_hangs_fails_closed_once_slowly_and_then_at_once(new_bus: NewBus, gate: Gate) -> None:
    import time

    bus = new_bus(Guard("guard", gate.pass_through, timeout=0.1))
    with pytest.raises(InterceptorError) as first:
        bus.intercept("e", step())
    began = time.monotonic()

    for _ in range(50):
        with pytest.raises(InterceptorError) as later:
            bus.intercept("e", step())

    assert time.monotonic() - began < 2
    assert type(first.value.__cause__) is PluginTimeoutError
    assert isinstance(later.value.__cause__, PluginUnresponsiveError)
    assert bus.health()["guard"].timeouts == 1


def test_an_interceptor_with_a_long_queue_is_not_late(new_bus: NewBus) -> None:
    """Its timeout counts executing only: the last of 50 waits longer than that."""

    def slow(ctx_step: Step) -> None:
        pause.wait(0.03)

    pause = threading.Event()
    bus = new_bus(Guard("guard", slow, timeout=1.0))

    joins = [in_thread(bus.intercept, "e", step(f"s{n}")) for n in range(50)]

    assert [join() for join in joins] == [None] * 50
    health = bus.health()["guard"]
    assert (health.state, health.timeouts, health.errors) == (PluginState.RUNNING, 0, 0)


def test_an_interceptor_may_observe_what_became_of_the_step(new_bus: NewBus) -> None:
    log = Log()

    class Auditor(Guard):
        def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
            log.add(result.path)

    bus = new_bus(Auditor("auditor", lambda _step: None))

    bus.after_step("e", result("s"))

    assert log.lines == ["s"]
    assert not bus.stages.has_before


def test_executions_that_share_a_slow_observer_find_it_busy_and_never_unresponsive(new_bus: NewBus) -> None:
    """Each call takes 20 ms; the queue is longer than the timeout."""
    pause = threading.Event()

    class Slow(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            pause.wait(0.02)

    bus = new_bus(Slow("slow", timeout=1.0))
    for number in range(100):
        bus.open_execution(f"e{number}", Port())

    joins = [in_thread(bus.before_step, f"e{number}", step()) for number in range(100)]
    for join in joins:
        join()

    health = bus.health()["slow"]
    assert (health.state, health.timeouts, health.errors) == (PluginState.RUNNING, 0, 0)
    lines = [line for number in range(100) for line in bus.close_execution(f"e{number}")]
    assert lines, "some must have been too late, or this proves nothing"
    assert all("still queued" in line for line in lines)


@pytest.mark.slow
def test_two_hundred_executions_sharing_a_plugin_of_50_ms_are_all_served(new_bus: NewBus) -> None:
    pause = threading.Event()
    log = Log()

    class Slow(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            pause.wait(0.05)
            log.add(execution_id)

    bus = new_bus(Slow("slow", timeout=30.0))
    joins = [in_thread(bus.before_step, f"e{number}", step()) for number in range(200)]
    for join in joins:
        join()

    assert len(set(log.lines)) == 200
    health = bus.health()["slow"]
    assert (health.state, health.timeouts, health.errors) == (PluginState.RUNNING, 0, 0)


# --- those who decide ----------------------------------------------------------------------------------


class Router(Named):
    """Routes by a function."""

    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, name: str, decide: Callable[[Any], Any], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.decide = decide

    def route(self, ctx: Context, state: Any) -> Any:
        return self.decide(state)


def test_the_first_router_that_does_not_abstain_decides(new_bus: NewBus) -> None:
    decision = RouteDecision(("left",), "because")
    bus = new_bus(
        Router("silent", lambda _state: None),
        Router("broken", raising(ValueError("no"))),
        Router("sure", lambda _state: decision),
        Router("never asked", raising(AssertionError())),
    )

    assert bus.route("e", choice("left", "right")) == (decision, ("silent", "broken"))
    assert bus.health()["never asked"].calls == 1


@pytest.mark.parametrize(
    "answer",
    ["left", ("left",), RouteDecision(("rigth",)), RouteDecision("left"), RouteDecision(5)],  # type: ignore[arg-type]
)
def test_a_router_that_names_a_stranger_or_nonsense_abstains_counted_and_announced(
    new_bus: NewBus, answer: Any
) -> None:
    bus = new_bus(Router("odd", lambda _state: answer))
    bus.open_execution("e", Port())

    assert bus.route("e", choice("left", "right")) == (None, ("odd",))

    [warning] = bus.warnings("e")
    assert "'odd'" in warning


def test_no_target_and_the_same_target_twice_are_decisions(new_bus: NewBus) -> None:
    none = RouteDecision((), source="fallback")
    twice = RouteDecision(("left", "left"))

    assert new_bus(Router("none", lambda _state: none)).route("e", choice("left")) == (none, ())
    assert new_bus(Router("twice", lambda _state: twice)).route("e", choice("left")) == (twice, ())


def test_a_router_that_hangs_abstains(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Router("stuck", gate.pass_through, timeout=0.05), Router("next", lambda _s: RouteDecision(("a",))))

    decision, abstained = bus.route("e", choice("a"))

    assert decision is not None
    assert abstained == ("stuck",)


def test_routers_are_asked_in_declared_order(new_bus: NewBus) -> None:
    bus = new_bus(
        Router("late", lambda _s: RouteDecision(("late",)), runs_after=("early",)),
        Router("early", lambda _s: RouteDecision(("early",))),
    )

    decision, _ = bus.route("e", choice("late", "early"))

    assert decision is not None
    assert decision.targets == ("early",)


class Medic(Named):
    """Recovers by a function."""

    capabilities = frozenset({Capability.RECOVERY})

    def __init__(self, name: str, decide: Callable[..., Any], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.decide = decide

    def should_recover(self, ctx: Context, failure: Any, state: Any) -> Any:
        return self.decide(failure, state)


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [([False], False), ([True], True), ([False, True], True), ([None, False], False), (["yes"], False)],
)
def test_a_step_is_recovered_if_any_says_so(new_bus: NewBus, answers: list[Any], verdict: bool) -> None:
    bus = new_bus(*(Medic(f"m{n}", lambda *_, a=a: a) for n, a in enumerate(answers)))

    assert bus.should_recover("e", failure(), state()) is verdict


def test_a_medic_that_fails_or_hangs_says_no(new_bus: NewBus, gate: Gate) -> None:
    bus = new_bus(Medic("broken", raising(ValueError("no"))), Medic("stuck", gate.pass_through, timeout=0.05))
    bus.open_execution("e", Port())

    assert bus.should_recover("e", failure(), state()) is False
    assert len(bus.warnings("e")) == 2


# --- loop controllers ----------------------------------------------------------------------------------


class Controller(Named):
    """Decides about rounds by a function."""

    capabilities = frozenset({Capability.LOOP})

    def __init__(self, name: str, log: Log, decide: Callable[..., Any] = lambda *_: True, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.log = log
        self.decide = decide

    def should_execute_round(self, ctx: Context, next_round: int, state: Any) -> Any:
        self.log.add(f"{self.name}: {next_round}?")
        return self.decide(next_round, state)

    def on_round_end(self, ctx: Context, round: int, state: Any) -> None:
        self.log.add(f"{self.name}: {round}.")


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [([True, True], (True, "")), ([True, False], (False, "c1")), ([None, True], (False, "c0")), ([1], (False, "c0"))],
)
def test_the_first_controller_that_does_not_say_yes_ends_the_loop(
    new_bus: NewBus, answers: list[Any], verdict: tuple[bool, str]
) -> None:
    bus = new_bus(*(Controller(f"c{n}", Log(), lambda *_, a=a: a) for n, a in enumerate(answers)))

    assert bus.stages.has_loop
    assert bus.should_execute_round("e", 2, state()) == verdict


def test_controllers_are_told_and_asked_in_the_declared_order_up_to_the_first_no(new_bus: NewBus) -> None:
    log = Log()
    bus = new_bus(
        Controller("late", log, runs_after=("no",)), Controller("yes", log), Controller("no", log, lambda *_: False)
    )

    bus.on_round_end("e", 1, state())
    bus.should_execute_round("e", 2, state())

    assert log.lines == ["yes: 1.", "no: 1.", "late: 1.", "yes: 2?", "no: 2?"]
    assert "should_execute_round: yes > no > late" in str(bus.hook_order())


def test_a_controller_that_fails_or_hangs_says_no_and_at_the_end_of_a_round_hurts_itself_alone(
    new_bus: NewBus, gate: Gate
) -> None:
    class Clumsy(Controller):
        def on_round_end(self, ctx: Context, round: int, state: Any) -> None:
            raise ValueError("dropped it")

    log = Log()
    stuck = Controller("stuck", log, lambda *_: gate.pass_through(), timeout=0.05)
    bus = new_bus(Clumsy("clumsy", log), Controller("fine", log), stuck)
    bus.open_execution("e", Port())

    bus.on_round_end("e", 1, state())
    verdict = bus.should_execute_round("e", 2, state())

    assert (verdict, log.lines[:2]) == ((False, "stuck"), ["fine: 1.", "stuck: 1."])
    assert [warning.partition(":")[0] for warning in bus.warnings("e")] == ["plugin 'clumsy'", "plugin 'stuck'"]


# --- the context ---------------------------------------------------------------------------------------


def test_a_call_has_the_metadata_and_the_records_of_its_execution(new_bus: NewBus) -> None:
    entry = ToolEntry("s", "s", "grep", None, None, 0.1, True, "")

    class Recorder(Named):
        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            assert ctx.execution_id == execution_id
            assert ctx.metadata == {"user": execution_id}
            assert ctx.deadline is not None
            assert not ctx.cancelled
            ctx.record(entry)

    bus = new_bus(Recorder("recorder"))
    ports = {name: Port(user=name) for name in ("e1", "e2")}
    for name, port in ports.items():
        bus.open_execution(name, port)

    bus.before_step("e1", step())
    bus.before_step("e2", step())
    bus.close_execution("e1")
    bus.before_step("e1", step())

    assert ports["e1"].entries == ports["e2"].entries == [("recorder", entry)]
    assert bus.health()["recorder"].errors == 1, "an execution that is over has no metadata"


def test_a_call_whose_time_is_up_is_told_so_even_if_nobody_waits(new_bus: NewBus) -> None:
    told = threading.Event()

    def wait(ctx: Context) -> None:
        assert ctx.wait(LONG)
        assert ctx.cancelled
        told.set()

    bus = new_bus(Servant("patient", timeout=0.05))

    refs(bus)["patient"].ask("context", wait)

    assert told.wait(LONG / 2)


def test_a_caller_that_gave_up_cancels_the_call(new_bus: NewBus) -> None:
    told = threading.Event()
    deaf = Servant("deaf", timeout=LONG)

    def wait(ctx: Context) -> None:
        if ctx.wait(LONG):
            told.set()

    bus = new_bus(deaf)
    refs(bus)["deaf"].ask("context", wait)

    bus.stop(timeout=0.05)

    assert told.wait(LONG / 2)


def test_the_journal_behind_a_context_is_the_one_of_the_bus(new_bus: NewBus) -> None:
    class Journal:
        def flush(self, execution_id: str | None = None) -> None: ...

        def snapshot(self, execution_id: str) -> Any:
            return f"all of {execution_id}"

        def append(self, event: Any) -> None: ...

    bus = new_bus(Servant("reader"), journal=Journal())

    assert refs(bus)["reader"].call("context", lambda ctx: ctx.journal.snapshot("e")) == "all of e"


def test_complaints_are_kept_once_and_counted(new_bus: NewBus) -> None:
    said = Said()
    number = iter(range(1_000))

    def before_step(ctx: Context, execution_id: str, step: Step) -> None:
        raise ValueError(f"number {next(number)}")

    bus = new_bus(Named("broken", before_step=before_step), say=said)
    bus.open_execution("e", Port())

    for _ in range(150):
        bus.before_step("e", step())

    [warning] = bus.warnings("e")
    assert "number 0" in warning
    assert "(150 times)" in warning
    assert len(said.of("WARNING")) == 3, "at 1, 10 and 100"
    assert bus.warnings("e") == ()


def test_a_log_that_raises_hurts_nobody(new_bus: NewBus) -> None:
    def say(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("disk full")

    bus = new_bus(Guard("broken", raising(ValueError("no")), hook_policy="observe"), say=say)

    bus.before_step("e", step())

    assert bus.health()["broken"].errors == 1


def test_the_bus_passes_through_a_wrapper(new_bus: NewBus) -> None:
    class Wrapper:
        """Counts what passes, and is an ``EngineBus`` all the same."""

        def __init__(self, inner: EngineBus) -> None:
            self.inner = inner
            self.calls = Log()

        def __getattr__(self, name: str) -> Any:
            self.calls.add(name)
            return getattr(self.inner, name)

    def walk(bus: EngineBus) -> HookResult | None:
        if bus.stages.has_interceptors:
            return bus.intercept("e", step())
        return None

    wrapper = Wrapper(new_bus(Guard("guard", lambda _step: HookResult.skip("no"))))

    verdict = walk(wrapper)  # type: ignore[arg-type]  # by __getattr__

    assert verdict is not None
    assert wrapper.calls.lines == ["stages", "intercept"]
