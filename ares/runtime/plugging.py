"""Which plugins live on a Runtime's bus: those of the caller, and the built-in ones that come with a store."""

from collections.abc import Iterable

from ares.plugin.contracts import RuntimePlugin


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
