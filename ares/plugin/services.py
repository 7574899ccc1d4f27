"""What a plugin, and the application beside it, can ask of a bus.

These are protocols, so that a wrapper of a bus is as good as the bus. The bus that a plugin is handed at ``start`` is
an ``EventBus`` and a ``PluginDirectory``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from ares.events import Delivery, EventFilter
from ares.plugin.capabilities import Capability


class Subscription(Protocol):
    """One reader's share of the events. Iterating waits for the next, and ends when there will be none.

    ``matched == delivered + dropped + pending``, always. Thread-safe.
    """

    @property
    def matched(self) -> int:
        """Events that its filter selected."""

    @property
    def delivered(self) -> int:
        """Those that were taken."""

    @property
    def dropped(self) -> int:
        """Those that found the buffer full, or were still waiting when it was closed."""

    @property
    def pending(self) -> int:
        """Those that wait to be taken."""

    def __iter__(self) -> Iterator[Delivery]: ...

    def get(self, timeout: float | None = None) -> Delivery | None:
        """The next event; None when there will be none.

        Raises:
            TimeoutError: none came in ``timeout`` seconds.
        """

    def close(self) -> None:
        """Want no more. Drops what is pending; any thread, any number of times, at any moment."""


@runtime_checkable
class EventBus(Protocol):
    """Where events pass."""

    def emit(self, stream_id: str, event_type: str, module: str, payload: Mapping[str, Any] | None = None) -> None:
        """Say that something happened in a stream. Never blocks. ``payload`` is copied, its values are not."""

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> Subscription:
        """Receive what ``filter`` selects from now on; ``buffer`` events can wait to be taken."""


class Answer(Protocol):
    """What a plugin will say."""

    def done(self) -> bool:
        """Whether ``result`` returns at once."""

    def result(self, timeout: float | None = None) -> Any:
        """What it said. Waits, at most for the plugin's own timeout.

        Raises:
            PluginError: the call failed.
            TimeoutError: there is no answer after ``timeout`` seconds; the call goes on.
        """


class PluginRef(Protocol):
    """A plugin, as others call it."""

    @property
    def name(self) -> str:
        """Who it is."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it is good for."""

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Have it run ``method(ctx, *args, **kwargs)`` and wait for what it returns.

        Raises:
            PluginError: the call failed, was not answered in time, or would wait for itself.
            UsageError: the method is none that others may call.
        """

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Answer:
        """As ``call``, without waiting."""


@runtime_checkable
class PluginDirectory(Protocol):
    """Where plugins find each other."""

    def plugins_by_cap(self, cap: Capability) -> tuple[PluginRef, ...]:
        """The running plugins with a capability, in the order of registration."""
