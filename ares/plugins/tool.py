"""Knows the tools of a program, and says when a step calls one that is not among them.

The calls themselves are in the journal without it: ``ctx.tool`` leaves a record of its own, and a step whose metadata
have a ``tool_name`` is recorded with its outcome. This plugin hears of them like any listener, some time later, so no
step waits for it, and none is kept from a tool that nobody has registered: that is a warning.
"""

import os
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ares.errors import UsageError
from ares.events import Delivery, EventFilter, EventType
from ares.plugin import Capability, Context, EventBus, Plugin

#: What is told of a tool that nobody registered.
UNREGISTERED: Final = "tool.unregistered"

#: Unregistered tools that are remembered by name: a program may make up names.
_REMEMBERED: Final = 1_000


class ToolPlugin(Plugin):
    """A registry of tools.

    Of each tool that is called and was not registered by then it emits one event ``tool.unregistered``, in the stream
    named after the plugin, since it concerns the program and no single execution. Its payload tells ``tool``, and
    ``execution_id`` and ``path`` of the first call.

    Args:
        name: Of the plugin.
        buffer: How many calls can wait to be looked at; more are dropped and counted.
    """

    capabilities = frozenset({Capability.TOOL})
    subscribes_to = EventFilter(types={EventType.TOOL_CALLED}, journaled=True)

    def __init__(self, name: str = "tool", *, buffer: int = 4096) -> None:
        self.name = name
        self.buffer = buffer
        self._lock = threading.Lock()
        self._pid = os.getpid()
        #: Description by name; replaced under the lock, never changed.
        self._tools: Mapping[str, str] = MappingProxyType({})
        self._bus: EventBus | None = None
        # Of the plugin's own thread, and what others may read is replaced, never changed:
        self._unregistered: Mapping[str, int] = MappingProxyType({})
        self._missed = 0

    # --- the registry: any thread, at any time ---------------------------------------------------------

    def register_tool(self, name: str, description: str = "") -> None:
        """Make a tool known. One that is known already gets the new description.

        Args:
            name: As steps call it.
            description: What it is good for, for people to read.

        Raises:
            UsageError: the name is no text, or empty.
        """
        _check_name(name)
        with self._lock:
            self._tools = MappingProxyType({**self._tools, name: description})

    def is_registered(self, name: str) -> bool:
        """Whether a tool of this name was registered."""
        return name in self._tools

    @property
    def tools(self) -> Mapping[str, str]:
        """What is known: descriptions by name."""
        return self._tools

    @property
    def unregistered(self) -> Mapping[str, int]:
        """The tools that steps have called and nobody had registered by then, and how often; 1,000 names at most."""
        return self._unregistered

    @property
    def missed(self) -> int:
        """How many calls were not looked at, because the buffer was full."""
        return self._missed

    # --- the plugin's own thread -------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Begin to listen. The child of a fork makes a lock of its own: the one it has may be held by nobody."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        self._bus = bus

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Listen no more. What is known stays known."""
        self._bus = None

    def on_event(self, ctx: Context, delivery: Delivery) -> None:  # noqa: ARG002 - a contract's word
        """A tool was called."""
        self._missed += delivery.dropped_before
        event = delivery.event
        tool = event.payload.get("tool")
        if not isinstance(tool, str) or self.is_registered(tool):
            return
        calls = self._unregistered.get(tool, 0)
        if calls or len(self._unregistered) < _REMEMBERED:
            self._unregistered = MappingProxyType({**self._unregistered, tool: calls + 1})
            if not calls and self._bus is not None:
                payload = {"tool": tool, "execution_id": event.stream_id, "path": event.payload.get("path", "")}
                self._bus.emit(self.name, UNREGISTERED, self.name, payload)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"a tool's name must be a non-empty str, not {name!r}")
