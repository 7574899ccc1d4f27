"""Keeps in the journal the events that are in no journal: those that only passed over the bus.

What the engine and the steps do stands in the journal without it. A plugin's own ``emit`` does not: this plugin appends
such events to the history of their execution. It sees them as any listener does, through a buffer that may be full and
after the fact, so its history has gaps at times. They are counted and shown, never hidden.
"""

import attrs

from ares.errors import UsageError
from ares.events import Delivery, EventFilter
from ares.plugin import Capability, Context, Plugin

_ALL = EventFilter()


@attrs.frozen
class Gaps:
    """What an observer kept, and what it did not.

    Attributes:
        persisted: Events that it appended to a journal.
        dropped: Events that it never saw, because its buffer was full.
        failed: Events that the journal did not take: the store failed, or the payload cannot be stored.
        homeless: Events of a stream that is no execution, or of one that was over: no history misses them.
        last_error: Of those that failed, what the last one failed with; "" for none.
    """

    persisted: int = 0
    dropped: int = 0
    failed: int = 0
    homeless: int = 0
    last_error: str = ""

    @property
    def lost(self) -> int:
        """How many events are missing in histories."""
        return self.dropped + self.failed


class ObserverPlugin(Plugin):
    """Appends events without a ``seq`` to the journal.

    Args:
        name: Of the plugin.
        filter: Which events, of those that are in no journal.
        buffer: How many events can wait; more are dropped and counted.

    Raises:
        UsageError: ``filter`` is no EventFilter.
    """

    capabilities = frozenset({Capability.OBSERVER})

    def __init__(self, name: str = "observer", *, filter: EventFilter = _ALL, buffer: int = 4096) -> None:
        if not isinstance(filter, EventFilter):
            raise UsageError(f"the filter of plugin {name!r} must be an EventFilter, not {filter!r}")
        self.name = name
        # What is journaled need not even be made an event for it.
        self.subscribes_to = attrs.evolve(filter, journaled=False)
        self.buffer = buffer
        #: Replaced by the plugin's own thread, never changed.
        self._gaps = Gaps()

    @property
    def gaps(self) -> Gaps:
        """What was kept and what was not, since the plugin was made. Any thread."""
        return self._gaps

    def on_event(self, ctx: Context, delivery: Delivery) -> None:
        """Keep one event.

        Raises:
            AresError: the journal did not take it. It is counted, and the next one is tried; raised so that the bus
                names it in the plugin's health and in the warnings of the execution.
        """
        event = delivery.event
        gaps = self._gaps
        if delivery.dropped_before:
            self._gaps = gaps = attrs.evolve(gaps, dropped=gaps.dropped + delivery.dropped_before)
        if event.seq is not None:
            return
        try:
            ctx.journal.append(event)
        except UsageError:
            self._gaps = attrs.evolve(gaps, homeless=gaps.homeless + 1)
        except Exception as error:
            self._gaps = attrs.evolve(gaps, failed=gaps.failed + 1, last_error=f"{type(error).__name__}: {error}")
            raise
        else:
            self._gaps = attrs.evolve(gaps, persisted=gaps.persisted + 1)
