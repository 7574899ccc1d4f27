"""What ares relies on in pykka, seam by seam: each test fails when pykka changes what it holds."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pykka
import pytest

from ares.bus.call import Call
from ares.bus.host import PluginActor
from ares.bus.mailbox import EVENTS_WAIT, Mailbox
from ares.context import Context, NoExecution, NoJournal
from tests.bus.players import LONG, Log, event, in_thread, until

VALUE: ContextVar[str] = ContextVar("value", default="unset")


class Lodger:
    """A tenant that writes down what it is told to do, and does what ``then`` says."""

    def __init__(self) -> None:
        self.log = Log()
        self.then: Any = lambda _message: None
        self.ended = threading.Event()
        self.actor: PluginActor

    def settle_in(self) -> None:
        self.log.add(("settled", threading.current_thread().name))

    def execute(self, call: Call) -> None:
        self.log.add(("call", call.method))
        self.then(call)

    def deliver(self) -> None:
        while (delivery := self.actor.mailbox.take_event()) is not None:
            self.log.add(("event", delivery.event.seq))

    def turn_away(self, call: Call) -> None:
        self.log.add(("away", call.method))

    def gone(self) -> None:
        self.log.add(("gone", ""))
        self.ended.set()


def call(method: str) -> Call:
    return Call(method, (), Context("e", NoExecution(), NoJournal(), "p", threading.RLock()), 1.0, None)


@pytest.fixture
def lodger() -> Iterator[Lodger]:
    made = Lodger()
    made.actor = PluginActor(made, "ares-plugin lodger", threading.RLock(), 4)
    yield made
    made.actor.end()
    assert made.actor.join(LONG)


class Stranger(pykka.ThreadingActor):
    """An actor of the host program."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


@pytest.fixture
def stranger() -> Iterator[Any]:
    ref = Stranger.start()
    yield ref
    ref.stop()


def test_pykka_asks_the_instance_for_its_inbox(lodger: Lodger) -> None:
    assert lodger.actor.actor_inbox is lodger.actor.mailbox
    assert isinstance(lodger.actor.actor_inbox, Mailbox)
    assert lodger.actor.actor_ref.actor_inbox is lodger.actor.mailbox


def test_nothing_runs_before_the_loop_is_started_and_the_loop_runs_on_the_named_daemon_thread(lodger: Lodger) -> None:
    lodger.actor.mailbox.put(call("first"))
    assert lodger.log.lines == []

    lodger.actor.begin()
    lodger.actor.end()
    assert lodger.actor.join(LONG)

    assert lodger.log.lines == [("settled", "ares-plugin lodger"), ("call", "first"), ("gone", "")]
    assert lodger.actor._thread.daemon


def test_pykka_runs_our_loop_and_our_teardown(lodger: Lodger, monkeypatch: pytest.MonkeyPatch) -> None:
    """``_actor_loop`` is what calls them."""
    order = Log()
    monkeypatch.setattr(PluginActor, "_actor_loop_running", lambda _self: order.add("running"))
    monkeypatch.setattr(PluginActor, "_actor_loop_teardown", lambda _self: order.add("teardown"))

    lodger.actor._actor_loop()

    assert order.lines == ["running", "teardown"]


def test_a_hosted_actor_is_in_no_registry(lodger: Lodger, stranger: Any) -> None:
    lodger.actor.begin()

    assert lodger.actor.actor_ref not in pykka.ActorRegistry.get_all()
    assert stranger in pykka.ActorRegistry.get_all()


def test_stopping_all_actors_of_the_program_stops_none_of_ours(lodger: Lodger, stranger: Any) -> None:
    lodger.actor.begin()
    done = threading.Event()
    lodger.then = lambda _call: done.set()

    pykka.ActorRegistry.stop_all()
    lodger.actor.mailbox.put(call("after"))

    assert done.wait(LONG)
    assert not stranger.is_alive()
    assert lodger.actor.actor_ref.is_alive()


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_what_a_tenant_raises_ends_neither_it_nor_others(
    lodger: Lodger, stranger: Any, kind: type[BaseException]
) -> None:
    """It never raises; if it did, pykka's answer would be to stop this actor, or all of the process."""

    def explode(message: Call) -> None:
        if message.method == "bad":
            raise kind

    lodger.then = explode
    lodger.actor.begin()
    for method in ("bad", "good"):
        lodger.actor.mailbox.put(call(method))
    lodger.actor.end()
    assert lodger.ended.wait(LONG)

    assert lodger.log.lines[1:] == [("call", "bad"), ("away", "bad"), ("call", "good"), ("gone", "")]
    assert stranger.ask("alive?") == "alive?"


def test_the_end_comes_after_what_was_put_before_and_the_rest_is_turned_away(lodger: Lodger) -> None:
    for method in ("a", "b"):
        lodger.actor.mailbox.put(call(method))
    lodger.actor.end()
    lodger.actor.mailbox.put(call("late"))

    lodger.actor.begin()
    assert lodger.actor.join(LONG)

    assert lodger.log.lines[1:] == [("call", "a"), ("call", "b"), ("gone", ""), ("away", "late")]
    with pytest.raises(pykka.ActorDeadError):
        lodger.actor.mailbox.put(call("too late"))


def test_ending_does_not_block_on_a_full_event_lane_and_can_be_repeated(lodger: Lodger) -> None:
    for number in range(9):
        lodger.actor.mailbox.offer(event(number))

    lodger.actor.end()
    lodger.actor.begin()
    assert lodger.actor.join(LONG)

    lodger.actor.end()
    counts = lodger.actor.mailbox.counts()
    assert (counts.matched, counts.pending) == (9, 0)


def test_an_actor_whose_loop_breaks_turns_away_what_is_left(lodger: Lodger, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise MemoryError

    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    monkeypatch.setattr(lodger.actor.mailbox, "get", broken)
    lodger.actor.mailbox.put(call("left"))

    lodger.actor.begin()
    assert lodger.actor.join(LONG)

    assert lodger.log.lines[1:] == [("gone", ""), ("away", "left")]


def test_a_message_through_pykkas_own_ref_is_answered(lodger: Lodger) -> None:
    """Nobody has the ref; whoever digs it out hangs nothing and waits for nothing."""
    lodger.actor.begin()
    ref = lodger.actor.actor_ref

    assert ref.ask("hello", timeout=LONG) is None  # the default on_receive
    with pytest.raises(AttributeError):
        ref.ask(pykka.messages.ProxyCall(("nonsense",), (), {}), timeout=LONG)
    assert ref.is_alive()

    assert ref.stop(timeout=LONG) is True
    assert lodger.actor.join(LONG)
    assert ref.stop(timeout=LONG) is False
    with pytest.raises(pykka.ActorDeadError):
        ref.ask("hello", timeout=LONG)


def test_events_are_taken_when_no_message_waits(lodger: Lodger) -> None:
    heard = threading.Event()
    lodger.then = lambda _call: heard.set()
    lodger.actor.begin()

    lodger.actor.mailbox.offer(event(7))
    while ("event", 7) not in lodger.log.lines:
        heard.clear()
        lodger.actor.mailbox.put(call("nudge"))
        assert heard.wait(LONG)
    assert EVENTS_WAIT not in lodger.log.lines


@pytest.mark.case("C056")
def test_an_actor_has_a_context_of_its_own_whoever_starts_it(lodger: Lodger) -> None:
    VALUE.set("boot")
    seen = Log()
    lodger.then = lambda _call: seen.add(VALUE.get())

    in_thread(lodger.actor.begin)()
    lodger.actor.mailbox.put(call("look"))
    lodger.actor.end()
    assert lodger.actor.join(LONG)

    assert seen.lines == ["unset"]
    assert VALUE.get() == "boot"


def test_an_idle_actor_keeps_nothing_of_what_it_did_last(lodger: Lodger) -> None:
    import weakref

    class Heavy:
        """Something big."""

    heavy = Heavy()
    gone = weakref.ref(heavy)
    done = threading.Event()
    message = call("work")
    message.args = (heavy,)
    lodger.then = lambda _call: done.set()
    lodger.actor.begin()

    lodger.actor.mailbox.put(message)
    assert done.wait(LONG)
    del message, heavy

    until(lambda: gone() is None)
