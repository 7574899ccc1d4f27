"""How a router asks its peers: all plugins of a capability at once, and then as long as there is time for answers."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import attrs

from ares.plugin import Answer, Capability, Context, EventBus

#: What is told of a peer that was asked and had no proper answer.
PEER_FAILED: Final = "router.peer_failed"

#: The part of its own time that a router gives to its peers: with what is left it decides without them.
_PATIENCE: Final = 0.8


@attrs.frozen
class Asked:
    """A peer that was asked. ``answer`` is what it will say; ``problem`` why it could not be asked."""

    name: str
    answer: Answer | None = None
    problem: Exception | None = None

    def is_open(self) -> bool:
        """Whether it is still to answer."""
        return self.answer is not None and not self.answer.done()


#: Is told which peer had no proper answer, and why.
Complain = Callable[[str, Exception], None]


def ask(bus: EventBus | None, capability: Capability, method: str, state: Any) -> tuple[Asked, ...]:
    """Ask all running plugins of a capability, and wait for none.

    Args:
        bus: Where they live; whatever has ``plugins_by_cap`` will do.
        capability: What they must have.
        method: What is asked; it takes the state.
        state: What they are asked about.
    """
    find = getattr(bus, "plugins_by_cap", None)
    if find is None:
        return ()
    try:
        found = find(capability)
    except Exception as error:  # a wrapper's, say
        return (Asked(f"whoever has {capability.value}", problem=error),)
    asked = []
    for ref in found:
        try:
            asked.append(Asked(ref.name, ref.ask(method, state)))
        except Exception as error:
            asked.append(Asked(ref.name, problem=error))
    return tuple(asked)


def until(ctx: Context) -> float | None:
    """Until when a call can wait for peers, in seconds of the monotonic clock; None for as long as they take."""
    if ctx.deadline is None:
        return None
    now = time.monotonic()
    return now + _PATIENCE * (ctx.deadline - now)


def answers(asked: tuple[Asked, ...], end: float | None, complain: Complain) -> list[tuple[str, Any]]:
    """What peers say by the time ``end``, by name, in the order in which they were asked."""
    said = []
    for each in asked:
        try:
            if each.answer is None:
                raise each.problem or LookupError("nobody was asked")
            seconds = None if end is None or each.answer.done() else max(0.0, end - time.monotonic())
            said.append((each.name, each.answer.result(seconds)))
        except Exception as error:
            with suppress(Exception):
                complain(each.name, error)
    return said
