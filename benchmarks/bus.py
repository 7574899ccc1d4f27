"""What plugins cost: hooks, events, records; each beside the least that the same could cost, in the same round.

*Hooks* stand beside bare threads (``limits.BareThreads``): as many as there are plugins, woken by the same caller and
awaited by it at once, with nothing but locks. No way of asking threads is faster than that. Both where the scheduler
puts them, and all on one processor, where it is certain that both are in the same place.
*Events* stand beside blinker's ``send`` to four receivers, where blinker is installed. *Records* stand beside one list
under one lock that all writers share.

Within a round the two take turns, a short block each, so that what the machine does besides hits both.
"""

import importlib.util
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import attrs

from ares import Runtime
from ares.bus.bus import PluginBus
from ares.context import Context
from ares.events import EventFilter
from ares.journal.collector import ExecutionCollector
from ares.plugin.contracts import Plugin
from ares.records import ScoringSignal, Step, StepStatus
from benchmarks.contest import say
from benchmarks.limits import BareThreads, busy_thread, one_processor
from benchmarks.peers import beside_each_other
from benchmarks.shapes import chain

#: The name of what it is compared with where that is a library.
BLINKER = "blinker's send to 4 receivers"

_PLUGINS = (0, 1, 5, 10)
_SUBSCRIBERS = (0, 1, 4, 16)
_WRITERS = (1, 16)
#: Plugins of a Runtime.
_OBSERVERS = 5

_ID = "bench"
_TYPE = "bench.event"
_STEP = Step("s0", "s0", "s0", None, 1, "s0", "", StepStatus.RUNNING, 1, {}, {}, None)

#: What does something so many times. Returns the seconds that one took.
Block = Callable[[int], float]


@attrs.frozen
class Amount:
    """How much is measured a round: ``turns`` times a block of each, of so many operations.

    Beside a busy thread most calls take microseconds and a few take many milliseconds, so that only a mean over a long
    time says anything: ``beside`` is the seconds of a block there.
    """

    turns: int
    calls: int
    beside: float
    events: int
    records: int
    steps: int


WHOLE = Amount(turns=5, calls=200, beside=0.5, events=2_000, records=4_000, steps=200)
#: To see that everything works.
QUICK = Amount(turns=2, calls=20, beside=0.05, events=100, records=160, steps=20)


@attrs.define(eq=False)
class Comparison:
    """Something of ares beside something else: seconds an operation, one figure a round each.

    ``most`` is what the ratio may be at most, None where nobody has said. ``missing`` says why there is nothing to
    compare with.
    """

    what: str
    beside: str
    most: float | None = None
    ours: list[float] = attrs.field(factory=list)
    theirs: list[float] = attrs.field(factory=list)
    missing: str = ""

    @property
    def ratios(self) -> list[float]:
        """One divided by the other, round by round."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=False)]


def measure(rounds: int, amount: Amount, found: list[Comparison]) -> None:
    """Measure everything so many times.

    Args:
        rounds: How often each figure is taken.
        amount: How much a round is.
        found: Where it is put.
    """
    known: dict[tuple[str, str], Comparison] = {}
    for number in range(rounds):
        for part in (_hooks, _hooks_beside, _events, _records, _takes, _chains):
            say(f"round {number + 1}: bus: {part.__name__.strip('_').replace('_', ' ')}")
            for comparison in part(amount):
                first = known.setdefault((comparison.what, comparison.beside), comparison)
                if first is comparison:
                    found.append(comparison)
                else:
                    first.ours += comparison.ours
                    first.theirs += comparison.theirs


def _in_turn(comparison: Comparison, ours: Block, theirs: Block, turns: int, count: int) -> Comparison:
    """Have both do it ``count`` times a turn, and keep the median of the turns. The first turn does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    blocks = list(zip(taken, (ours, theirs), strict=True))
    for turn in range(turns + 1):
        for seconds, block in blocks if turn % 2 == 0 else reversed(blocks):
            seconds.append(block(count))
    comparison.ours.append(statistics.median(taken[0][1:]))
    comparison.theirs.append(statistics.median(taken[1][1:]))
    return comparison


def _repeated(call: Callable[[], object]) -> Block:
    def block(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - began) / count

    return block


def _for_seconds(call: Callable[[], object], seconds: float) -> Block:
    def block(_count: int) -> float:
        calls = 0
        began = time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds:
            call()
            calls += 1
        return taken / calls

    return block


# --- hooks ---------------------------------------------------------------------------------------------------


class _Observer(Plugin):
    """Is told of every step before it runs, and does nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"observer-{number}"

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
        """Nothing to do."""


def _collector() -> ExecutionCollector:
    return ExecutionCollector({}, lambda note: note)


@contextmanager
def _bus(plugins: int) -> Iterator[PluginBus]:
    bus = PluginBus(name="bench")
    bus.register(*(_Observer(number) for number in range(plugins)))
    bus.start()
    bus.open_execution(_ID, _collector())
    try:
        yield bus
    finally:
        bus.close_execution(_ID)
        bus.stop()


def _hooks(amount: Amount) -> Iterator[Comparison]:
    for place, where in (("", nullcontext), (", on one processor", one_processor)):
        for count in _PLUGINS:
            most = 2.0 if count == _OBSERVERS else None
            comparison = Comparison(f"before_step with {count} observers{place}", f"{count} bare threads", most)
            with where(), _bus(count) as bus, BareThreads(count) as bare:
                ours = _repeated(partial(bus.before_step, _ID, _STEP))
                yield _in_turn(comparison, ours, _repeated(bare.call), amount.turns * 4, amount.calls // 4)


def _hooks_beside(amount: Amount) -> Iterator[Comparison]:
    for count in filter(None, _PLUGINS):
        with _bus(count) as bus, BareThreads(count) as bare, busy_thread():
            comparison = Comparison(
                f"before_step with {count} observers, beside a busy thread", f"{count} bare threads"
            )
            ours = _for_seconds(partial(bus.before_step, _ID, _STEP), amount.beside)
            yield _in_turn(comparison, ours, _for_seconds(bare.call, amount.beside), amount.turns, 0)


def _chains(amount: Amount) -> Iterator[Comparison]:
    workflow = chain(amount.steps)
    workflow.validate()

    def block(runtime: Runtime) -> Block:
        run = _repeated(lambda: runtime.run(workflow).raise_for_status())
        return lambda _count: run(1) / amount.steps

    plugins = [_Observer(number) for number in range(_OBSERVERS)]
    with ExitStack() as stack:
        bare, told = (stack.enter_context(Runtime(plugins=each)) for each in ((), plugins))
        comparison = Comparison(f"step of a chain with {_OBSERVERS} observers", "the same with none")
        yield _in_turn(comparison, block(told), block(bare), amount.turns, 1)
        threads = stack.enter_context(BareThreads(_OBSERVERS))
        comparison = Comparison(f"step of a chain with {_OBSERVERS} observers", f"{_OBSERVERS} bare threads")
        calls = _repeated(threads.call)
        yield _in_turn(comparison, block(told), lambda _count: calls(amount.steps), amount.turns, 1)


# --- events --------------------------------------------------------------------------------------------------


def _events(amount: Amount) -> Iterator[Comparison]:
    send = _blinker()
    for count in _SUBSCRIBERS:
        comparison = Comparison(f"emit to {count} subscribers", BLINKER, 0.1 if count == 0 else None)
        bus = PluginBus(name="bench")
        emit = _emitting(bus, count)
        if send is None:
            comparison.missing = "blinker is not installed"
            comparison.ours.append(emit(amount.events))
            yield comparison
        else:
            yield _in_turn(comparison, emit, send, amount.turns, amount.events)
        bus.stop()


def _emitting(bus: PluginBus, subscribers: int) -> Block:
    """Emits to subscriptions that have room for all of it."""
    emit = _repeated(lambda: bus.emit(_ID, _TYPE, "benchmarks", {"n": 1}))

    def block(count: int) -> float:
        subscriptions = [bus.subscribe(EventFilter(types=(_TYPE,)), buffer=count) for _ in range(subscribers)]
        seconds = emit(count)
        for subscription in subscriptions:
            if subscription.pending != count:
                raise RuntimeError(f"not {count} events: {subscription}")
            subscription.close()
        return seconds

    return block


def _blinker() -> Block | None:
    if importlib.util.find_spec("blinker") is None:
        return None
    import blinker

    signal = blinker.Signal()

    def receiver() -> Callable[..., None]:
        return lambda _sender, **_payload: None

    for _ in range(4):
        signal.connect(receiver(), weak=False)
    return _repeated(lambda: signal.send(_ID, n=1))


# --- records -------------------------------------------------------------------------------------------------


class _Shared:
    """The plain way: one list under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._list: list[tuple[str, Any]] = []

    def record(self, writer: str, entry: object) -> None:
        """Keep an entry."""
        with self._lock:
            self._list.append((writer, entry))

    def take(self) -> list[tuple[str, Any]]:
        """All of them."""
        with self._lock:
            taken, self._list = self._list, []
        return taken


_Sink = ExecutionCollector | _Shared


def _writing(make: Callable[[], _Sink], writers: int) -> Block:
    """So many records, from as many threads; with one writer, from the thread that calls."""
    entry = ScoringSignal("bench", 1.0, "")

    def block(count: int) -> float:
        sink = make()

        def write(name: str) -> Callable[[], None]:
            def run() -> None:
                for _ in range(count // writers):
                    sink.record(name, entry)

            return run

        runs = [write(f"writer-{number}") for number in range(writers)]
        began = time.perf_counter()
        if writers == 1:
            runs[0]()
        else:
            beside_each_other(runs)
        seconds = time.perf_counter() - began
        if len(sink.take()) != count // writers * writers:
            raise RuntimeError("records were lost")
        return seconds / count

    return block


def _records(amount: Amount) -> Iterator[Comparison]:
    for writers in _WRITERS:
        comparison = Comparison(f"record from {writers} threads", f"one shared lock, {writers} threads")
        ours, theirs = _writing(_collector, writers), _writing(_Shared, writers)
        yield _in_turn(comparison, ours, theirs, amount.turns, amount.records)


def _takes(amount: Amount) -> Iterator[Comparison]:
    comparison = Comparison("take when nothing was recorded", "one shared lock, an empty list")
    ours, theirs = _repeated(_collector().take), _repeated(_Shared().take)
    yield _in_turn(comparison, ours, theirs, amount.turns, amount.records)
