"""The bus as one plugin sees it: what it is handed at ``start``."""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from ares.bus.subscription import BusSubscription
from ares.events import EventFilter
from ares.plugin.capabilities import Capability
from ares.plugin.faults import FaultPoints
from ares.plugin.services import PluginRef


class Services(Protocol):
    """What there is to be seen."""

    def emit(self, stream_id: str, event_type: str, module: str, payload: Mapping[str, Any] | None = None) -> None:
        """See ``EventBus``."""

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> BusSubscription:
        """See ``EventBus``."""

    def plugins_by_cap(self, cap: Capability) -> tuple[PluginRef, ...]:
        """See ``PluginDirectory``."""

    @property
    def fault_points(self) -> FaultPoints:
        """See ``HasFaultPoints``."""


class PluginView:
    """An ``EventBus``, ``PluginDirectory`` and ``HasFaultPoints``. What the plugin subscribes to ends with it."""

    def __init__(self, services: Services, plugin: str) -> None:
        self._services = services
        self._plugin = plugin
        self._lock = threading.Lock()
        self._subscriptions: list[BusSubscription] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<the bus of plugin {self._plugin!r}>"

    def emit(self, stream_id: str, event_type: str, module: str, payload: Mapping[str, Any] | None = None) -> None:
        """See ``EventBus``."""
        self._services.emit(stream_id, event_type, module, payload)

    def subscribe(self, filter: EventFilter, *, buffer: int = 64) -> BusSubscription:
        """See ``EventBus``."""
        subscription = self._services.subscribe(filter, buffer=buffer)
        with self._lock:
            self._subscriptions = [*(mine for mine in self._subscriptions if not mine.is_over), subscription]
            is_late = self._is_closed
        if is_late:
            subscription.close()
        return subscription

    def plugins_by_cap(self, cap: Capability) -> tuple[PluginRef, ...]:
        """See ``PluginDirectory``."""
        return self._services.plugins_by_cap(cap)

    @property
    def fault_points(self) -> FaultPoints:
        """See ``HasFaultPoints``."""
        return self._services.fault_points

    def close(self) -> None:
        """The plugin is gone."""
        with self._lock:
            self._is_closed = True
            subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.close()
