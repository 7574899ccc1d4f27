"""Where a plugin is put to be looked at: a bus, its peers, an execution; and what a walk might show it there."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from ares.bus import PluginBus
from ares.bus.health import PluginHealth, PluginState
from ares.context import Context
from ares.events import EventFilter, EventType
from ares.plugin import Capability, EventBus, PluginRef
from ares.records import ExecutionStatus, Step, StepResult, StepStatus
from ares.testing.recorder import RecordingExecution, RecordingJournal
from ares.testing.samples import EXECUTION, make_checkpoint, make_event, make_step, make_step_result

#: Seconds that something may take which takes next to none, on a machine that is busy with other things.
PATIENCE: Final = 10.0


class Unspeakable(Exception):
    """What a step may raise as well."""

    def __str__(self) -> str:
        raise ZeroDivisionError("an error without a message")


@attrs.frozen
class Stage:
    """A plugin that was started on a bus, in the execution ``execution``."""

    plugin: Any
    bus: PluginBus
    execution: RecordingExecution

    @property
    def health(self) -> PluginHealth:
        """How it is, or was when the bus was stopped."""
        return self.bus.health()[self.plugin.name]

    def ref(self, capability: Capability) -> PluginRef:
        """The plugin as others call it."""
        return next(ref for ref in self.bus.plugins_by_cap(capability) if ref.name == self.plugin.name)

    def check_unhurt(self, *states: PluginState) -> None:
        """Fail if a call to it raised or hung."""
        health = self.health
        assert (health.errors, health.timeouts) == (0, 0), f"{self.plugin!r}: {health.last_error}"
        assert health.state in (states or (PluginState.RUNNING, PluginState.STOPPED)), health.last_error

    def tell_of_steps(self, execution_id: str, steps: Iterable[Step], results: Iterable[StepResult]) -> None:
        """Call the hooks of the step, as a walk would: the interceptors of it, then the observers."""
        for step in steps:
            self.bus.intercept(execution_id, step)
            self.bus.before_step(execution_id, step)
        for result in results:
            self.bus.after_step(execution_id, result)


@contextmanager
def staged(plugin: Any, peers: Sequence[Any] = (), *, timeout: float = PATIENCE) -> Iterator[Stage]:
    """Start a plugin beside its peers."""
    bus = PluginBus(name="contract", timeout=timeout, journal=RecordingJournal({EXECUTION: make_checkpoint()}))
    bus.register(*peers, plugin)
    execution = RecordingExecution({"team": "audit"})
    bus.open_execution(EXECUTION, execution)
    try:
        bus.start()
        yield Stage(plugin, bus, execution)
    finally:
        bus.stop(PATIENCE)


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Call ``work(0)``, ``work(1)``, ... on threads of their own, which begin together. Raises what one of them did."""
    barrier = threading.Barrier(count, timeout=PATIENCE)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), f"not done within {PATIENCE:g} s"
    if errors:
        raise errors[0]


# --- what a walk might show ---------------------------------------------------------------------------------------


#: Values as steps hand them over.
VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, -(2**70), 0.5, float("nan"), float("-inf"), "", "text", "ä\u202e\x00\ud800", b"\xff", (), [1, [2]],
    {"nested": {"deep": [1]}}, {1: "a", "1": "b"}, {1, 2}, object(), lambda: None, ValueError("a value"),
)  # fmt: skip

#: Paths as walks make them.
PATHS: Final = (
    "step",
    "measure[0]",
    "measure[99999]",
    "audit/parse",
    "audit[3]/parse",
    "child#2/step",
    "é\u202e \U0001f600",
    "x" * 200,
)


def some_steps() -> list[Step]:
    """Steps about to run, ordinary and odd."""
    steps = [make_step(path, inputs={"value": VALUES[-1 - n]}) for n, path in enumerate(PATHS)]
    odd = make_step("late", attempt=1_000, round=1_000, agent_type="critic", started_at=None, metadata={"cost": 1})
    return [*steps, odd, *(make_step("value", inputs={"value": value}) for value in VALUES)]


def some_results() -> list[StepResult]:
    """Outcomes of steps, ordinary and odd."""
    failed, skipped = StepStatus.FAILED, StepStatus.SKIPPED
    errors = (ValueError("boom"), KeyboardInterrupt(), SystemExit(3), Unspeakable(), ExceptionGroup("two", [OSError()]))
    return [
        *(make_step_result(path) for path in PATHS),
        *(make_step_result("value", output=value) for value in VALUES),
        *(make_step_result("bad", status=failed, error=error, attempts=3) for error in errors),
        make_step_result("late", status=skipped, reason="upstream_failed: fetch", attempts=0, duration=0.0),
        make_step_result("endless", duration=1e9, attempts=10**6, round=1_000),
    ]


#: How executions end, or stop for now.
ENDS: Final = (
    ExecutionStatus.COMPLETED,
    ExecutionStatus.FAILED,
    ExecutionStatus.CANCELLED,
    ExecutionStatus.WAITING,
    ExecutionStatus.INTERRUPTED,
)

#: What the events of ares carry, all in one.
_PAYLOAD: Final = {
    "path": "step",
    "round": 1,
    "attempt": 1,
    "duration": 0.25,
    "tool": "search",
    "plugin": "other",
    "problem": "",
    "status": "COMPLETED",
    "targets": ("left",),
    "key": "approve",
}


def tell_of_events(bus: PluginBus, wanted: EventFilter) -> int:
    """Pass on one event of each type that ares emits, and of those that a filter names: as one that stands in a
    journal, and as one that does not. Returns how many of them the filter selects."""
    types = sorted({*map(str, EventType), *map(str, wanted.types)} - {str(each) for each in _ENDINGS})
    count = 0
    for stream in sorted(wanted.stream_ids) or [EXECUTION]:
        for seq, event_type in enumerate(types, start=1):
            event = make_event(event_type, seq=seq, stream_id=stream, payload=_PAYLOAD)
            bus.publish([event])
            bus.emit(stream, event_type, "contract", _PAYLOAD)
            count += wanted.matches(event) + wanted.matches(attrs.evolve(event, seq=None))
    return count


#: After these a stream is over.
_ENDINGS: Final = (
    EventType.WORKFLOW_COMPLETED,
    EventType.WORKFLOW_FAILED,
    EventType.WORKFLOW_CANCELLED,
    EventType.WORKFLOW_INTERRUPTED,
    EventType.WORKFLOW_WAITING,
)


# --- other plugins, other buses -----------------------------------------------------------------------------------


class DecoratedBus:
    """A bus that forwards what the protocols ``EventBus`` and ``PluginDirectory`` have, and nothing else."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus

    def emit(self, *args: Any, **kwargs: Any) -> None:
        """See ``EventBus``."""
        self._bus.emit(*args, **kwargs)

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> Any:
        """See ``EventBus``."""
        return self._bus.subscribe(filter, buffer=buffer)

    def plugins_by_cap(self, cap: Capability) -> tuple[PluginRef, ...]:
        """See ``PluginDirectory``."""
        found: tuple[PluginRef, ...] = self._bus.plugins_by_cap(cap)
        return found


class OnDecoratedBus:
    """A plugin that is another one, but for the bus that this is handed."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Hand it a decorated bus."""
        self._plugin.start(ctx, DecoratedBus(bus))


class BrokenPeer:
    """Has every capability that others may ask for, and raises whenever it is asked."""

    name = "broken-peer"
    capabilities = frozenset({Capability.MEMORY, Capability.EVOLUTION, Capability.CHECKPOINT, Capability.TOOL})

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Starts."""

    def stop(self, ctx: Context) -> None:
        """Stops."""

    def advise_route(self, ctx: Context, state: Any) -> Any:
        """Raises."""
        raise ConnectionError("no memory")

    def recommend(self, ctx: Context, state: Any) -> Any:
        """Raises."""
        raise ConnectionError("no idea")

    def record_outcome(self, ctx: Context, outcome: Any) -> None:
        """Raises."""
        raise ConnectionError("no room")


class LyingPeer(BrokenPeer):
    """Answers what is no answer."""

    name = "lying-peer"

    def advise_route(self, ctx: Context, state: Any) -> Any:
        """Says nonsense."""
        return ["left", 7, None]

    def recommend(self, ctx: Context, state: Any) -> Any:
        """Says nonsense."""
        return {"preferred_agent": "left"}
