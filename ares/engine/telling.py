"""What one walk tells its plugins: the feed of what is journaled, the hooks around it, and how it stands when asked.

Those who are told of an outcome hear of it once it is as safe as was asked for, and what follows from it waits for
them. All on the thread that owns the walk, except what says otherwise.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ares.engine.feed import Feed, Place
from ares.engine.histories import Histories
from ares.engine.options import COMMIT_TIMEOUT, Options
from ares.engine.results import Steps, outcome_of, step_result
from ares.errors import StoreError
from ares.journal.collector import ExecutionCollector
from ares.plugin.engine_bus import EngineBus
from ares.records import ExecutionState, ExecutionStatus, ToolEntry
from ares.walk import facts as f
from ares.walk.state import Instance

if TYPE_CHECKING:
    from ares.engine.driver import Driver

_ASKED = ("routes", "tools", "memory_hits", "scoring_signals")


class Telling:
    """The plugins' side of one walk, and the ``ExecutionPort`` of their contexts.

    Args:
        driver: the walk's owner.
        bus: where they are.
        options: how the walk is walked.
        histories: what they are told when asked; None where nobody is.
    """

    def __init__(self, driver: "Driver", bus: EngineBus, options: Options, histories: Histories | None) -> None:
        # A part of the driver, which must not keep it: what it walked is large, and gone with the last who needs it.
        self._ref = weakref.ref(driver)
        self._bus = bus
        self._stages = bus.stages
        self.histories = histories
        self.feed = Feed(driver.execution_id, bus, options)
        self.metadata = driver.metadata
        self._shown = options.shown
        self._collector = ExecutionCollector(driver.metadata, driver.ledger.encode)
        driver.ledger.connect(self.feed, histories, self._collector)
        self._is_told_of_end = False

    @property
    def _driver(self) -> "Driver":
        driver = self._ref()
        assert driver is not None
        return driver

    # --- the beginning and the end ----------------------------------------------------------------------------

    def begin(self, opening: tuple[int, Sequence[f.Fact]], then: Callable[[], None]) -> bool:
        """The walk is taken up: tell so, and go on with ``then``. Returns whether that comes later."""
        driver = self._driver
        self._bus.open_execution(driver.execution_id, self)
        first, facts = opening
        if facts:
            self.feed.add(first, facts)
        if not self._stages.has_execution_hooks:
            return False
        driver.dispatch.send(lambda: self._bus.before_execution(self.state_of()), then)
        return True

    def end(self, status: ExecutionStatus, duration: float, then: Callable[[], None]) -> None:
        """The execution has ended: tell so, once, and go on with ``then``."""
        if not self._stages.has_execution_hooks:
            then()
        elif not self._is_told_of_end:
            self._is_told_of_end = True
            driver = self._driver
            driver.dispatch.send(lambda: _tell_of_end(driver, self._bus, status, duration), then)

    def close(self) -> tuple[str, ...]:
        """The walk is over. Returns the last of the plugins' warnings."""
        self._collector.close()
        self.feed.end()
        return self._bus.close_execution(self._driver.execution_id)

    # --- outcomes -----------------------------------------------------------------------------------------------

    def wants(self, fact: f.InstanceFact | f.RoundEnded, instance: Instance) -> bool:
        """Whether anybody is told of this before anything follows from it. Of steps with parts the walk says so."""
        return self._stages.has_after and (instance.index is None or self._stages.per_item) and _is_outcome(fact)

    def conclude(
        self, fact: f.InstanceFact | f.RoundEnded, instance: Instance, held: list[Place], *, inline: bool
    ) -> None:
        """An outcome is as safe as was asked for: tell of it, then let its consequences happen."""
        driver = self._driver
        result = step_result(instance)
        driver.unsettled += 1

        def told() -> None:
            self.feed.release(held)
            driver.unsettled = max(0, driver.unsettled - 1)
            if driver.error is None and not driver.cutting.is_interrupted:
                driver.settle(fact, instance)

        driver.dispatch.send(lambda: self._bus.after_step(driver.execution_id, result), told, inline=inline)

    # --- any thread -------------------------------------------------------------------------------------------

    def record(self, writer: str, entry: Any) -> None:
        """See ``ExecutionPort``."""
        if isinstance(entry, ToolEntry):
            name = entry.tool_name
            given, output = self._shown(f"{name}.input", entry.input), self._shown(f"{name}.output", entry.output)
            entry = attrs.evolve(entry, input=given, output=output)
        self._collector.record(writer, entry)

    def state_of(self, instance: Instance | None = None) -> ExecutionState:
        """How the execution stands, as a step's body would see it, or as it is now."""
        driver = self._driver
        state = driver.walk.state
        scope = state.root if instance is None else instance.scope
        writes = len(scope.writes) if instance is None else instance.snapshot
        asked: dict[str, Any] = {} if self.histories is None else dict(self.histories.read(*_ASKED))
        return ExecutionState(
            driver.execution_id,
            state.root.graph.workflow.id,
            "" if instance is None else instance.node.id,
            scope.round,
            driver.values.snapshot(scope, writes),
            Steps(driver.kept),
            **asked,
        )


def _tell_of_end(driver: "Driver", bus: EngineBus, status: ExecutionStatus, duration: float) -> None:
    bus.after_execution(outcome_of(driver.kept, driver.telling.histories, status=status, duration=duration))
    ticket = driver.ledger.flush()
    if ticket is not None:
        try:
            ticket.wait(COMMIT_TIMEOUT)
        except (StoreError, TimeoutError) as error:
            driver.warn(f"what plugins recorded of the end is not stored: {error}")


def _is_outcome(fact: f.InstanceFact | f.RoundEnded) -> bool:
    """Whether an attempt came to something."""
    if isinstance(fact, f.Failed):
        return fact.after is not f.After.RECONCILE
    return isinstance(fact, f.Succeeded)
