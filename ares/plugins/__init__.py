"""The built-in plugins, a file each. They use only what a stranger's plugin can use."""

from ares.plugins.checkpoint import CheckpointPlugin
from ares.plugins.observer import Gaps, ObserverPlugin
from ares.plugins.tool import ToolPlugin

__all__ = ["CheckpointPlugin", "Gaps", "ObserverPlugin", "ToolPlugin"]
