"""Knows every open question of a Runtime, and tells somebody of each as it is asked.

Asking, parking and answering are the walk's and the journal's; they work without this. What a program wants besides is
to hear of a question when it comes up (to send a mail, to fill an inbox) without polling the store.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ares.context import Context
from ares.events import Delivery, EventFilter, EventType
from ares.plugin import Capability, Plugin

#: What ends questions other than their answers. Ends of steps are not among them: there are many, and few had asked.
_ENDS: Final = (EventType.WORKFLOW_COMPLETED, EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED)


@attrs.frozen
class OpenQuestion:
    """A question as its event told of it.

    Attributes:
        execution_id: who asks: the execution.
        path: the step that asks.
        round: in which round.
        key: tells the questions of the step apart.
        message: the question, in words.
        payload: what else there is to know.
    """

    execution_id: str
    path: str
    round: int
    key: str
    message: str
    payload: Any


class InterruptPlugin(Plugin):
    """Keeps the questions that are open among the executions this Runtime walks.

    Args:
        notify: ``notify(question)``, called once for each new one, on the plugin's own thread. What it raises is
            counted in ``bus.health()`` and hurts nobody.
        buffer: events that may wait for it. Of more, the newest are dropped, and ``missed`` counts them; the store's
            own ``Runtime.questions()`` misses none.
    """

    name = "interrupt"
    capabilities = frozenset({Capability.OBSERVER})

    def __init__(self, notify: Callable[[OpenQuestion], None] | None = None, *, buffer: int = 1024) -> None:
        self.buffer = buffer
        self._notify = notify
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], OpenQuestion] = {}
        self._missed = 0

    @property
    def subscribes_to(self) -> EventFilter:
        """What opens and closes questions."""
        return EventFilter(types=(EventType.INTERRUPT_CREATED, EventType.INTERRUPT_RESOLVED, *_ENDS))

    @property
    def missed(self) -> int:
        """Events that it did not get to see."""
        with self._lock:
            return self._missed

    def questions(self, execution_id: str | None = None) -> tuple[OpenQuestion, ...]:
        """Those that are open by what it has seen, oldest first; one that a timeout or a failure closed goes with the
        end of its execution. Any thread."""
        with self._lock:
            found = tuple(self._open.values())
        return tuple(q for q in found if execution_id in (None, q.execution_id))

    def on_event(self, ctx: Context, delivery: Delivery) -> None:  # noqa: ARG002 - a contract's word
        """A question came up or went away."""
        event = delivery.event
        path = str(event.payload.get("path", ""))
        asked: OpenQuestion | None = None
        with self._lock:
            self._missed += delivery.dropped_before
            if event.type == EventType.INTERRUPT_CREATED:
                asked = self._open[event.stream_id, path] = _question(event.stream_id, event.payload)
            elif event.type in _ENDS:
                self._open = {place: q for place, q in self._open.items() if place[0] != event.stream_id}
            else:
                self._open.pop((event.stream_id, path), None)
        if asked is not None and self._notify is not None:
            self._notify(asked)


def _question(execution_id: str, payload: Mapping[str, Any]) -> OpenQuestion:
    # Anybody may emit an event of this type, with whatever in it.
    head = (execution_id, str(payload.get("path", "")), payload.get("round", 1), str(payload.get("key", "")))
    return OpenQuestion(*head, str(payload.get("message", "")), payload.get("payload"))
