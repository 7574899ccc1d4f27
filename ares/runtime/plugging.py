"""The plugins of a Runtime: which ones they are, and on which bus they live.

They are those of the caller, and the built-in ones that come with a store.
"""

import os
from collections.abc import Iterable

from ares.bus import PluginBus
from ares.context import PluginJournal
from ares.engine.notices import notices
from ares.plugin.contracts import RuntimePlugin


class Plugins:
    """Keeps the bus of a Runtime: another one in the child of a fork, and after a start that failed.

    Args:
        name: of the store.
        plugins: what lives on the bus.
        timeout: seconds that one call to a plugin may take, where the plugin does not say itself.
        journal: what is behind ``ctx.journal``.

    Raises:
        RegistrationError: a plugin that cannot be one, or two of one name.
    """

    def __init__(self, name: str, plugins: Iterable[RuntimePlugin], timeout: float, journal: PluginJournal) -> None:
        self._journal = journal
        self._bus = PluginBus(name=name, timeout=timeout, journal=journal, say=notices.say)
        self._pid = os.getpid()
        self._bus.register(*plugins)

    @property
    def bus(self) -> PluginBus:
        """The bus of this process."""
        if self._pid != os.getpid():
            self._bus, self._pid = self._bus.renewed(self._journal), os.getpid()
        return self._bus

    def is_inside(self) -> bool:
        """Whether the calling thread is the one of a plugin in here; in the child of a fork, also of its parent's."""
        return self._bus.is_inside()

    def start(self) -> PluginBus:
        """Start the plugins; who does not start is named in ``health`` and in every result, unless it is required."""
        if self.bus.has_stopped:  # an earlier start failed
            self._bus = self._bus.renewed(self._journal)
        try:
            self._bus.start()
        except ExceptionGroup:
            if self._bus.has_stopped:
                raise
        return self._bus


def with_defaults(plugins: Iterable[RuntimePlugin], *, is_stored: bool) -> list[RuntimePlugin]:
    """The caller's plugins, behind the built-in ones that none of them has the name of.

    Args:
        plugins: the caller's.
        is_stored: whether there is a store; without one there is nothing to keep.
    """
    chosen = list(plugins)
    names = {getattr(plugin, "name", None) for plugin in chosen}
    return [*(plugin for plugin in _defaults(is_stored) if plugin.name not in names), *chosen]


def _defaults(is_stored: bool) -> list[RuntimePlugin]:
    if not is_stored:
        return []
    from ares.plugins import CheckpointPlugin, InterruptPlugin, ObserverPlugin, ToolPlugin

    return [CheckpointPlugin(), ObserverPlugin(), InterruptPlugin(), ToolPlugin()]
