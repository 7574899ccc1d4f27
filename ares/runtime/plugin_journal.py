"""The journal as plugins may use it: what is behind ``ctx.journal``.

Made before anything has started, because a bus is; there is nothing to be flushed, seen or kept by then.
"""

from collections.abc import Callable

from ares.engine.engine import Engine
from ares.engine.options import COMMIT_TIMEOUT
from ares.errors import UsageError
from ares.events import Event
from ares.journal.notes import Emitted
from ares.records import ExperienceCheckpoint


class RuntimeJournal:
    """A ``PluginJournal``. Any thread.

    Args:
        engine: the engine of this process, None while there is none.
        checkpoint: reads an execution.
    """

    def __init__(self, engine: Callable[[], Engine | None], checkpoint: Callable[[str], ExperienceCheckpoint]) -> None:
        self._engine = engine
        self._checkpoint = checkpoint

    def flush(self, execution_id: str | None = None) -> None:
        """Commit what plugins recorded of an execution that is walked here, or of all.

        Raises:
            StoreError: it cannot be stored now. What was not stored is kept for the next time.
        """
        engine = self._engine()
        if engine is None:
            return
        tickets = [driver.ledger.flush() for driver in engine.walked(execution_id)]
        for ticket in tickets:
            if ticket is not None:
                ticket.wait(COMMIT_TIMEOUT)

    def snapshot(self, execution_id: str) -> ExperienceCheckpoint:
        """All that an execution is, as far as it is committed.

        Raises:
            ExecutionNotFoundError: there is none.
        """
        return self._checkpoint(execution_id)

    def append(self, event: Event) -> None:
        """Keep an event that only passed over the bus in the journal of its stream, with the next commit.

        Raises:
            UsageError: the stream is no execution that is walked here, or has ended.
            SerializationError: the payload holds what cannot be stored.
            StoreError: the journal takes nothing any more.
        """
        engine = self._engine()
        driver = None if engine is None else engine.live(event.stream_id)
        if driver is None:
            raise UsageError(f"event {event.type!r} is of {event.stream_id!r}, no execution that is walked here")
        shown = driver.options.shown
        payload = {name: shown(f"{event.type}.{name}", value) for name, value in event.payload.items()}
        note = Emitted("", 1, 0, event.type, payload, event.module)
        ticket = driver.ledger.keep(note)
        if ticket is None:
            raise UsageError(f"event {event.type!r} is of {event.stream_id!r}, an execution that has ended")
        if ticket.done and ticket.error is not None:
            raise ticket.error
