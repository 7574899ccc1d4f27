"""How far an execution is, counted fact by fact: steps and map elements that ended, and how many there are so far."""

import threading

from ares.walk import facts as f
from ares.walk.state import Instance, State
from ares.walk.table import FINAL, Phase


class Tally:
    """Counted by the walk's owner, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._total = 0
        self._round = 1

    def start(self, state: State) -> None:
        """Count what is there already."""
        self._round = state.root.round
        for scope in state.scopes.values():
            self._total += len(scope.instances)
            for instance in scope.instances:
                self._done += instance.phase in FINAL
                if instance.parts is not None:
                    self._total += instance.parts.length
                    self._done += instance.parts.ended

    def add(self, fact: f.Fact, instance: Instance | None) -> None:
        """Count what a fact changed."""
        if instance is None:
            return
        with self._lock:
            if isinstance(fact, f.Opened):
                child = instance.node.child
                self._total += fact.length or 0 if child is None else len(child.nodes)
            elif instance.phase in FINAL or instance.phase is Phase.ROUTING:
                self._done += not isinstance(fact, f.Routed | f.Unrouted)

    def turn(self, round: int, steps: int, *, is_execution: bool) -> None:
        """Another round begins, of so many steps: of the execution, whose last one is not counted any more, or of a
        sub-workflow."""
        with self._lock:
            if is_execution:
                self._done = self._total = 0
                self._round = round
            self._total += steps

    def read(self) -> tuple[int, int, int]:
        """What ended, how much there is, and the execution's round."""
        with self._lock:
            return self._done, self._total, self._round
