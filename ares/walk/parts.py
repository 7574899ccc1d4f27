"""The elements of a map: kept as arrays, with an ``Instance`` only for those under way, failed or skipped.

So 100,000 elements are ordinary.
"""

from array import array
from typing import Any

from ares.walk.instance import Instance, living
from ares.walk.table import Phase
from ares.workflow.policies import ItemFailure

#: What ``Parts`` keeps of each element.
NEW, ACTIVE, DONE, BROKEN = range(4)


class Parts:
    """The elements of a map step."""

    __slots__ = (
        "active",
        "attempts",
        "due",
        "durations",
        "ended",
        "failed",
        "holding",
        "length",
        "next",
        "outputs",
        "queued",
        "skipped",
        "states",
        "unsettled",
        "writes",
    )

    def __init__(self, length: int) -> None:
        self.length = length
        #: Of each element: NEW, ACTIVE, DONE or BROKEN.
        self.states = bytearray(length)
        self.outputs: list[Any] = [None] * length
        self.durations = array("d", bytes(8 * length))
        #: Attempts, of the elements that took more than one.
        self.attempts: dict[int, int] = {}
        self.writes: dict[int, tuple[tuple[str, Any], ...]] = {}
        #: Those that began and have not ended.
        self.active: dict[int, Instance] = {}
        self.failed: dict[int, Instance] = {}
        #: Those that an interceptor skipped; to their map they are done, with None.
        self.skipped: dict[int, Instance] = {}
        #: How many ended.
        self.ended = 0
        # Only valid while the walk is live:
        #: No element from here on was handed out.
        self.next = 0
        #: A heap of those below ``next`` that may run now: retried, answered, cut short, or put back.
        self.due: list[int] = []
        #: Those that take one of max_concurrency's places: under way, and waiting for neither a retry nor an answer.
        self.holding: dict[int, Instance] = {}
        #: Those that ended and whose end is not settled yet.
        self.unsettled: set[int] = set()
        #: Whether the walk's queue of ready work knows that an element may begin.
        self.queued = False

    def join(self, element: Instance) -> None:
        """Take in an element that begins."""
        assert element.index is not None
        self.active[element.index] = element
        self.states[element.index] = ACTIVE

    def keep(self, element: Instance) -> None:
        """Reduce an element that ended to what is kept of it."""
        i = element.index
        assert i is not None
        if element.phase is not Phase.FAILED:
            self.states[i] = DONE
            self.outputs[i] = element.output
            if element.phase is Phase.SKIPPED:
                self.skipped[i] = element
        else:
            self.states[i] = BROKEN
            self.failed[i] = element
        self.durations[i] = element.duration
        if element.attempt > 1:
            self.attempts[i] = element.attempt
        del self.active[i]
        self.ended += 1
        self.unsettled.add(i)

    def withdraw(self, index: int) -> None:
        """An element that was cut short does not run again: it has not begun."""
        element = self.active.pop(index)
        element.epoch = -1  # nobody's: what is still said of it is refused
        self.states[index] = NEW

    def forget(self, index: int) -> None:
        """Set an element that ended back to one that has not begun."""
        self.states[index] = NEW
        self.outputs[index] = None
        self.failed.pop(index, None)
        self.skipped.pop(index, None)
        self.attempts.pop(index, None)
        self.writes.pop(index, None)
        self.ended -= 1


def source_item(owner: Instance, index: int) -> Any:
    """The element that one instance of a map step works on."""
    assert owner.node.map_source is not None
    return owner.scope.instances[owner.node.map_source].output[index]


def gathered(owner: Instance) -> list[Any]:
    """The output of a map: its elements' in order, with an ItemFailure where one failed."""
    parts = owner.parts
    assert parts is not None
    outputs = parts.outputs
    for i, element in parts.failed.items():
        error = living(element.exception, element.error)
        assert error is not None
        outputs[i] = ItemFailure(i, source_item(owner, i), error)
    return outputs
