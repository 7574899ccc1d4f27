"""In which order plugins are called, from what they declare. Pure: names in, names out.

``runs_after`` and ``runs_before`` name plugins, or capabilities, which stand for all plugins that have them. The
declared order is a promise for every hook, also by way of plugins that do not have the hook: with A before B before C,
A's hook comes before C's. What is not declared is no order; ties keep the order of registration.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from ares.bus.card import Card
from ares.errors import HookOrderError
from ares.plugin.capabilities import Capability

_CAPABILITIES: Final = frozenset(Capability)

Waves = tuple[tuple[Card, ...], ...]


@attrs.frozen
class Order:
    """All plugins of a bus in an order that keeps every promise, and for each those that come right before it."""

    sequence: tuple[Card, ...]
    before: dict[str, frozenset[str]]

    def waves(self, is_member: Callable[[Card], bool]) -> Waves:
        """The members in groups: whoever is declared to come later is in a later group. A group is in order of
        registration, as long as ``sequence`` allows."""
        depths: dict[str, int] = {}
        groups: dict[int, list[Card]] = {}
        for card in self.sequence:
            depth = max((depths[name] for name in self.before[card.name]), default=0)
            if is_member(card):
                groups.setdefault(depth, []).append(card)
            # What comes after a member belongs to a later group; what comes after another, to the group of that.
            depths[card.name] = depth + is_member(card)
        return tuple(tuple(groups[depth]) for depth in sorted(groups))

    def line(self, is_member: Callable[[Card], bool]) -> tuple[Card, ...]:
        """The members one after another."""
        return tuple(card for card in self.sequence if is_member(card))


def resolve(cards: Sequence[Card]) -> Order:
    """Find an order for plugins in order of registration.

    Raises:
        HookOrderError: there is none: a name is unknown, a cycle, an observer before an interceptor.
    """
    before: dict[str, set[str]] = {card.name: set() for card in cards}
    for card in cards:
        for other in _meant(card, card.runs_after, cards):
            before[card.name].add(other)
        for other in _meant(card, card.runs_before, cards):
            before[other].add(card.name)
    order = Order(_sorted(cards, before), {name: frozenset(names) for name, names in before.items()})
    _check_interceptors(order)
    return order


def _meant(card: Card, names: Iterable[str], cards: Sequence[Card]) -> Iterable[str]:
    for name in names:
        is_capability = name in _CAPABILITIES
        found = [other.name for other in cards if other.name == name]
        if not found and not is_capability:
            raise HookOrderError(
                f"plugin {card.name!r} names {name!r}, which is no plugin here and no capability", (card.name, name)
            )
        yield from found
        if is_capability:
            yield from (other.name for other in cards if name in other.capabilities and other is not card)


def _sorted(cards: Sequence[Card], before: dict[str, set[str]]) -> tuple[Card, ...]:
    left = list(cards)
    done: set[str] = set()
    sequence = []
    while left:
        ready = next((card for card in left if before[card.name] <= done), None)
        if ready is None:
            chain = _cycle(left[0].name, before, done)
            raise HookOrderError(f"a cycle: {' before '.join(map(repr, chain))}", chain)
        left.remove(ready)
        done.add(ready.name)
        sequence.append(ready)
    return tuple(sequence)


def _cycle(name: str, before: dict[str, set[str]], done: set[str]) -> tuple[str, ...]:
    """A cycle that is reached from ``name``, none of whose predecessors ever gets done."""
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = min(before[name] - done)
    return tuple(reversed([*path[path.index(name) :], name]))


def _check_interceptors(order: Order) -> None:
    #: Observers of steps that come before each plugin, if by way of others.
    observers: dict[str, tuple[str, ...]] = {}
    for card in order.sequence:
        earlier = dict.fromkeys(name for other in order.before[card.name] for name in observers[other])
        if card.intercepts and earlier:
            observer = next(iter(earlier))
            raise HookOrderError(
                f"observer {observer!r} is declared before interceptor {card.name!r}, but interceptors run first",
                (observer, card.name),
            )
        watches = not card.intercepts and card.hooks & {"before_step", "after_step"}
        observers[card.name] = (*earlier, card.name) if watches else tuple(earlier)
