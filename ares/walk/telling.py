"""Who is to be told that a step with parts begins, or has ended, before anything follows from it.

A body is told of by whoever runs it. A map and a sub-workflow step have none: their beginning and their end follow from
other facts. So where somebody wants to know, that becomes work, and what comes next waits for it. Nothing of it is
journaled: what was told before a process died is not told again.
"""

from ares.walk.instance import Instance
from ares.walk.state import State
from ares.walk.table import Phase

_ENDED = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.ROUTING, Phase.RETRYING})


class Telling:
    """``before`` and ``after``: whether anybody wants to be told. Set before the walk begins."""

    def __init__(self) -> None:
        self.before = False
        self.after = False

    def owes_beginning(self, instance: Instance) -> bool:
        """Whether a step that is about to begin is to be told of first."""
        return self.before and _has_parts(instance) and instance.told_beginning != instance.epoch

    def owes_end(self, instance: Instance) -> bool:
        """Whether a step is to be told of before anything follows from its end."""
        is_over = self.after and instance.phase in _ENDED and _has_parts(instance) and instance.attempt > 0
        return is_over and instance.told_end != (instance.epoch, instance.attempt)

    def began(self, instance: Instance) -> None:
        """It was told that a step begins."""
        instance.told_beginning = instance.epoch

    def ended(self, instance: Instance) -> None:
        """It was told that a step has ended."""
        instance.told_end = (instance.epoch, instance.attempt)

    def forget_past(self, state: State) -> None:
        """The walk begins: what is over by now is not told of."""
        if self.after:
            for instance in state.instances():
                if instance.phase in _ENDED and _has_parts(instance):
                    self.ended(instance)


def _has_parts(instance: Instance) -> bool:
    return instance.index is None and (instance.is_map or instance.has_child)
