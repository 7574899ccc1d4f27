"""How plugins live together: actors, mailboxes, subscriptions, order and health. The only room that knows pykka."""

from ares.bus.bus import BUS_STREAM, PluginBus
from ares.bus.health import PluginHealth, PluginState
from ares.bus.hooks import HookOrder
from ares.bus.lane import Counts

__all__ = ["BUS_STREAM", "Counts", "HookOrder", "PluginBus", "PluginHealth", "PluginState"]
