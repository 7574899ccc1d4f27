"""Who waits for whom among the actors, so that nobody comes to wait for itself.

An actor has one thread, so at any moment it waits for one call at most: an edge to the actor that the call was sent to.
A new edge that would close a cycle is refused. An edge whose call is done is none any more, although its actor may not
have woken up to remove it.

The graph is the process's, not a bus's: a chain may lead through several.
"""

import os
import threading
from typing import Protocol

from ares.bus.call import Call
from ares.errors import PluginDeadlockError


class Actor(Protocol):
    """A node of the graph, compared by identity."""

    @property
    def name(self) -> str:
        """What an error calls it."""


class WaitGraph:
    """See above. Any thread."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, in the child of a fork: its threads are gone, and the lock may have been held."""
        self._lock = threading.Lock()
        self._edges: dict[Actor, tuple[Actor, Call]] = {}

    def enter(self, waiter: Actor, target: Actor, call: Call) -> None:
        """From now on ``waiter`` waits for ``target`` to answer ``call``.

        Raises:
            PluginDeadlockError: ``target`` waits for ``waiter``, if by way of others, or is it.
        """
        with self._lock:
            chain = [waiter.name]
            node: Actor | None = target
            while node is not None:
                chain.append(node.name)
                if node is waiter:
                    raise PluginDeadlockError(target.name, call.method, chain=tuple(chain))
                follow = self._edges.get(node)
                node = None if follow is None or follow[1].is_done else follow[0]
            self._edges[waiter] = (target, call)

    def leave(self, waiter: Actor) -> None:
        """It waits no longer."""
        with self._lock:
            self._edges.pop(waiter, None)


waits = WaitGraph()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=waits.renew)
