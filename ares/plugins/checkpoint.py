"""Commits what other plugins recorded, at an interval and when asked, and gives the checkpoint of an execution.

What plugins give to ``ctx.record`` reaches the journal with the outcome of the next step. Between two outcomes that are
far apart it would wait; so this plugin has it written at an interval. The durability of the walk itself does not depend
on it: the engine appends every fact, whether or not this plugin is there, raises or hangs.

The interval is kept by a thread that only tells: it asks the plugin to flush, as any stranger would, and waits for
nothing. So a store that hangs shows in the plugin's health as a call that hangs, and the thread can always end. It asks
again only once the call before was answered.
"""

import threading
from contextlib import suppress
from typing import Final, cast

from ares.errors import UsageError
from ares.events import EventFilter, EventType
from ares.plugin import Answer, Capability, Context, EventBus, Plugin, PluginDirectory, PluginJournal
from ares.records import ExperienceCheckpoint

#: An event that nobody emits.
_NOTHING: Final = "checkpoint.nothing"
#: Seconds that the end of the thread is waited for; it blocks nowhere.
_THREAD_END: Final = 1.0
#: Seconds that a thread can wait.
_LONGEST: Final = threading.TIMEOUT_MAX


class CheckpointPlugin(Plugin):
    """Flushes, and reads checkpoints.

    Args:
        name: Of the plugin.
        interval: Seconds between two flushes of everything that waits.

    Raises:
        UsageError: ``interval`` is no number of seconds above 0 that a thread can wait.
    """

    capabilities = frozenset({Capability.CHECKPOINT})

    def __init__(self, name: str = "checkpoint", *, interval: float = 1.0) -> None:
        self.name = name
        self.interval = _seconds(interval, name)
        self._bus: EventBus | None = None
        self._journal: PluginJournal | None = None
        self._timer: _Timer | None = None

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Begin to flush at the interval."""
        self._bus = bus
        self._journal = ctx.journal
        if hasattr(bus, "plugins_by_cap"):  # of a wrapper that forwards what it is asked for, no type says so
            self._timer = _Timer(self.name, self.interval, bus, cast("PluginDirectory", bus))
            self._timer.start()

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Flush no more. What waits by now is written by those who end its execution."""
        timer, self._timer = self._timer, None
        self._bus = self._journal = None
        if timer is not None:
            timer.stop()

    def flush(self, ctx: Context, execution_id: str) -> None:
        """Commit what was recorded in an execution, and say so by a ``checkpoint.saved``.

        Args:
            ctx: Of the call.
            execution_id: Whose records.

        Raises:
            AresError: the journal could not commit them.
        """
        ctx.journal.flush(execution_id)
        if self._bus is not None:
            self._bus.emit(execution_id, EventType.CHECKPOINT_SAVED, self.name, {"execution_id": execution_id})

    def flush_all(self, ctx: Context) -> None:
        """Commit what was recorded in all executions. Tells nobody: it is done all the time, mostly for nothing.

        Raises:
            AresError: the journal could not commit it.
        """
        ctx.journal.flush()

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        """All that an execution is, by what is committed. Any thread.

        Raises:
            UsageError: the plugin is not running, or there is no such execution.
            StoreError: the store cannot be read.
        """
        journal = self._journal
        if journal is None:
            raise UsageError(f"plugin {self.name!r} is not running, so it has no journal to read from")
        return journal.snapshot(execution_id)


def _seconds(interval: object, plugin: str) -> float:
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval <= _LONGEST:
        raise UsageError(f"the interval of plugin {plugin!r} must be a number of seconds above 0, not {interval!r}")
    return float(interval)


class _Timer:
    """Asks the plugin of a name to flush, again and again, for as long as the plugin is on the bus.

    It waits on a subscription, which the bus ends with the plugin: also with one that hangs and never comes to stop.
    """

    def __init__(self, plugin: str, interval: float, bus: EventBus, directory: PluginDirectory) -> None:
        self._plugin = plugin
        self._interval = interval
        self._directory = directory
        self._end = bus.subscribe(EventFilter(types={_NOTHING}, journaled=False), buffer=1)
        self._thread = threading.Thread(target=self._run, name=f"ares-plugin-timer {plugin}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.close()
        self._thread.join(_THREAD_END)

    def _run(self) -> None:
        answer: Answer | None = None
        while not self._is_over():
            if answer is None or answer.done():
                with suppress(Exception):  # whatever is wrong with the bus, the next tick may find it well
                    answer = self._ask()

    def _is_over(self) -> bool:
        """Wait for the interval, or the end."""
        try:
            return self._end.get(self._interval) is None
        except TimeoutError:
            return False

    def _ask(self) -> Answer | None:
        for ref in self._directory.plugins_by_cap(Capability.CHECKPOINT):
            if ref.name == self._plugin:
                return ref.ask("flush_all")
        return None
