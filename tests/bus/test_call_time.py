"""How long a call may take, what is found out when, and what it costs everybody else. The clock is the test's."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ares.bus import resident as residents
from ares.bus.awaiting import PendingAnswer, send_all
from ares.bus.call import Latch
from ares.bus.health import PluginState
from ares.bus.resident import Resident
from ares.context import Context, NoExecution
from ares.errors import (
    PluginBusyError,
    PluginCrashError,
    PluginError,
    PluginNotRunningError,
    PluginTimeoutError,
    PluginUnresponsiveError,
)
from tests.bus.players import LONG, Gate, Servant, asked, in_thread, residing, sent, until


class Clock:
    """The monotonic clock of the residents."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(residents, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def resident(gate: Gate) -> Iterator[Resident]:
    """A servant with 10 seconds for a call."""
    with residing(Servant("servant", timeout=10.0)) as made:
        yield made
        gate.open()


def nothing() -> None:
    """Takes no time."""


def test_a_call_is_answered_with_what_the_method_returns(resident: Resident) -> None:
    call = asked(resident, "do", lambda: 42)

    assert (call.value, call.error) == (42, None)


def test_what_it_raises_becomes_a_plugin_error_with_the_cause(resident: Resident) -> None:
    boom = ValueError("boom")

    def explode() -> None:
        raise boom

    call = asked(resident, "do", explode)

    assert type(call.error) is PluginError
    assert (call.error.plugin, call.error.call, call.error.__cause__) == ("servant", "do", boom)
    assert "boom" in str(call.error)
    assert asked(resident, "do", lambda: 1).value == 1


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_what_is_meant_to_end_a_thread_becomes_a_crash_and_ends_nothing(
    resident: Resident, kind: type[BaseException]
) -> None:
    def explode() -> None:
        raise kind

    call = asked(resident, "do", explode)

    assert isinstance(call.error, PluginCrashError)
    assert type(call.error.__cause__) is kind
    assert asked(resident, "do", lambda: 1).value == 1


def test_an_exception_that_cannot_be_shown_is_an_error_like_others(resident: Resident) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit

    def explode() -> None:
        raise Hostile

    call = asked(resident, "do", explode)

    assert call.error is not None
    assert "Hostile" in str(call.error)
    assert resident.state is PluginState.RUNNING


def test_a_method_that_is_not_there_is_an_error(resident: Resident) -> None:
    call = asked(resident, "dream")

    assert call.error is not None
    assert isinstance(call.error.__cause__, AttributeError)


def test_what_executes_past_its_timeout_hangs_and_its_context_is_cancelled(
    resident: Resident, clock: Clock, gate: Gate
) -> None:
    contexts: list[Context] = []

    def hang(ctx: Context) -> None:
        contexts.append(ctx)
        gate.pass_through()

    call = sent(resident, "context", hang)
    gate.await_entry()
    assert resident.state is PluginState.RUNNING
    clock.pass_by(9.9)
    resident.check(call)
    assert not call.is_done
    clock.pass_by(0.2)

    resident.check(call)

    assert type(call.error) is PluginTimeoutError
    assert (call.error.plugin, call.error.call, call.error.seconds) == ("servant", "context", 10.0)
    assert contexts[0].cancelled
    assert resident.state is PluginState.UNRESPONSIVE


def test_while_it_hangs_what_is_queued_and_what_comes_later_fails_at_once(
    resident: Resident, clock: Clock, gate: Gate
) -> None:
    hung = sent(resident, "do", gate.pass_through)
    gate.await_entry()
    queued = [sent(resident, "do", nothing) for _ in range(3)]
    patient = sent(resident, "do", nothing, patient=True)
    clock.pass_by(10)
    resident.check(hung)

    later = sent(resident, "do", nothing)

    for call in (*queued, patient, later):
        assert isinstance(call.error, PluginUnresponsiveError)
        assert call.error.hung_call == "do"
    assert resident.health().timeouts == 1
    assert resident.health().mailbox_depth == 0


def test_its_late_answer_makes_it_run_again_and_is_thrown_away(resident: Resident, clock: Clock, gate: Gate) -> None:
    ran = threading.Event()
    hung = sent(resident, "do", gate.pass_through)
    gate.await_entry()
    queued = sent(resident, "do", ran.set)
    clock.pass_by(10)
    resident.check(hung)

    gate.open()
    until(lambda: resident.state is PluginState.RUNNING)

    assert asked(resident, "do", lambda: "again").value == "again"
    assert hung.value is None
    assert isinstance(hung.error, PluginTimeoutError)
    assert isinstance(queued.error, PluginUnresponsiveError)
    assert not ran.is_set(), "a call whose caller has gone is discarded unexecuted"


def test_what_is_queued_too_long_is_given_up_unexecuted_and_nothing_else_happens(
    resident: Resident, clock: Clock, gate: Gate
) -> None:
    """Each call that executes is in time; the queue is what is long."""
    ran = threading.Event()
    gates = [Gate(), Gate()]
    first = sent(resident, "do", gates[0].pass_through)
    gates[0].await_entry()
    second = sent(resident, "do", gates[1].pass_through)
    third = sent(resident, "do", ran.set)
    clock.pass_by(9)
    gates[0].open()
    gates[1].await_entry()
    clock.pass_by(1)

    resident.check(third)

    assert type(third.error) is PluginBusyError
    assert third.error.seconds == 10
    assert resident.state is PluginState.RUNNING
    assert resident.health().timeouts == 0
    gates[1].open()
    assert asked(resident, "do", lambda: "alive").value == "alive"
    assert not ran.is_set()
    assert (first.error, second.error) == (None, None)


def test_a_patient_call_waits_in_the_queue_for_as_long_as_others_are_served(resident: Resident, clock: Clock) -> None:
    gates = [Gate() for _ in range(5)]
    calls = [sent(resident, "do", gate.pass_through) for gate in gates]
    patient = sent(resident, "do", lambda: "served", patient=True)
    for gate in gates:
        gate.await_entry()
        clock.pass_by(9)
        resident.check(patient)
        assert not patient.is_done
        gate.open()

    until(lambda: patient.is_done)

    assert patient.value == "served"
    assert all(call.error is None for call in calls)


def test_whoever_waits_behind_a_call_that_nobody_waits_for_finds_that_it_hangs(
    resident: Resident, clock: Clock, gate: Gate
) -> None:
    unwatched = resident.call("do", (gate.pass_through,), "", NoExecution(), None)
    resident.send(unwatched)
    gate.await_entry()
    clock.pass_by(4)
    call = sent(resident, "do", nothing)
    assert call.check_at == pytest.approx(clock.now + 6)
    clock.pass_by(6)

    resident.check(call)

    assert isinstance(call.error, PluginUnresponsiveError)
    assert resident.state is PluginState.UNRESPONSIVE


def test_the_next_one_who_sends_finds_that_it_hangs(resident: Resident, clock: Clock, gate: Gate) -> None:
    resident.send(resident.call("do", (gate.pass_through,), "", NoExecution(), None))
    gate.await_entry()
    clock.pass_by(10)

    call = sent(resident, "do", nothing)

    assert isinstance(call.error, PluginUnresponsiveError)


def test_whoever_asks_for_its_health_finds_that_it_hangs(resident: Resident, clock: Clock, gate: Gate) -> None:
    resident.send(resident.call("do", (gate.pass_through,), "", NoExecution(), None))
    gate.await_entry()
    clock.pass_by(10)

    health = resident.health()

    assert (health.state, health.timeouts) == (PluginState.UNRESPONSIVE, 1)
    assert "do" in health.last_error


def test_a_call_whose_caller_gave_up_is_discarded_unexecuted(resident: Resident, gate: Gate) -> None:
    ran = threading.Event()
    sent(resident, "do", gate.pass_through)
    gate.await_entry()
    call = sent(resident, "do", ran.set)

    resident.give_up(call)
    gate.open()

    assert asked(resident, "do", lambda: 1).value == 1
    assert not ran.is_set()
    assert isinstance(call.error, PluginBusyError)


def test_a_caller_that_gives_up_early_makes_nobody_unresponsive(resident: Resident, gate: Gate) -> None:
    contexts: list[Context] = []

    def hang(ctx: Context) -> None:
        contexts.append(ctx)
        gate.pass_through()

    call = sent(resident, "context", hang)
    gate.await_entry()

    resident.give_up(call)

    assert type(call.error) is PluginTimeoutError
    assert contexts[0].cancelled
    assert resident.state is PluginState.RUNNING


def test_a_plugin_that_is_abandoned_answers_everybody(resident: Resident, gate: Gate) -> None:
    current = sent(resident, "do", gate.pass_through)
    gate.await_entry()
    queued = sent(resident, "do", nothing)
    resident.move(PluginState.ABANDONED)

    resident.abandon()

    assert isinstance(current.error, PluginTimeoutError)
    assert isinstance(queued.error, PluginNotRunningError)
    later = sent(resident, "do", nothing)
    assert isinstance(later.error, PluginNotRunningError)
    assert later.error.state == "abandoned"


def test_each_of_a_batch_is_waited_for_until_its_own_time_is_over(gate: Gate) -> None:
    with (
        residing(Servant("quick", timeout=LONG)) as quick,
        residing(Servant("slow", timeout=0.05)) as slow,
        residing(Servant("fine", timeout=LONG)) as fine,
    ):
        latch = Latch(3)
        fns: list[tuple[Resident, Callable[[], Any]]] = [
            (quick, lambda: 1),
            (slow, gate.pass_through),
            (fine, lambda: 3),
        ]
        calls = [(r, r.call("do", (fn,), "e", NoExecution(), latch)) for r, fn in fns]

        send_all(calls, latch)

        assert [call.value for _, call in calls] == [1, None, 3]
        assert isinstance(calls[1][1].error, PluginTimeoutError)
        gate.open()


def test_an_interrupted_caller_leaves_nothing_behind_that_would_be_executed(
    resident: Resident, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C on the main thread, while it waits for plugins."""
    ran = threading.Event()
    sent(resident, "do", gate.pass_through)
    gate.await_entry()
    latch = Latch(1)
    call = resident.call("do", (ran.set,), "e", NoExecution(), latch)

    def interrupted(_self: Latch, _seconds: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Latch, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send_all([(resident, call)], latch)
    gate.open()

    assert asked(resident, "do", lambda: 1).value == 1
    assert call.is_done
    assert not ran.is_set()


def test_an_answer_can_be_waited_for_a_while_and_fetched_later(resident: Resident, gate: Gate) -> None:
    call = resident.call("do", (gate.pass_through,), "", NoExecution(), Latch(1))
    resident.send(call)
    answer = PendingAnswer(resident, call)
    gate.await_entry()

    with pytest.raises(TimeoutError) as caught:
        answer.result(timeout=0.01)
    assert not isinstance(caught.value, PluginError)
    assert not answer.done()
    gate.open()

    assert answer.result() is None
    assert answer.result(timeout=0) is None
    assert answer.done()


def test_many_threads_can_wait_for_one_answer(resident: Resident, gate: Gate) -> None:
    def work() -> str:
        gate.pass_through()
        return "done"

    call = resident.call("do", (work,), "", NoExecution(), Latch(1))
    resident.send(call)
    answer = PendingAnswer(resident, call)
    joins = [in_thread(answer.result) for _ in range(8)]

    gate.open()

    assert [join() for join in joins] == ["done"] * 8


def test_an_error_keeps_the_plugins_frames_and_not_the_call(resident: Resident) -> None:
    """Else all that a call was about would live until the garbage collector comes."""
    import gc
    import weakref

    class Heavy:
        """Something big."""

    def explode(heavy: Heavy) -> None:
        raise ValueError("boom")

    heavy = Heavy()
    gone = weakref.ref(heavy)
    gc.disable()
    try:
        call = asked(resident, "do", explode, heavy)
        assert call.error is not None
        trace = call.error.__cause__.__traceback__  # type: ignore[union-attr]  # it has one
        assert trace is not None
        assert trace.tb_frame.f_code.co_name == "do"
        del call, trace, heavy
        until(lambda: gone() is None)
    finally:
        gc.enable()
