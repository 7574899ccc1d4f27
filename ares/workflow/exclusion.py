"""Which steps can never run in one round, because they belong to different branches of one branch point.

A step is *tied* to a branch if it certainly does not run unless that branch is taken. This module finds ties that hold
whatever conditions, routes and skips a run brings; it may miss some, it invents none.

The rule to be outwitted: a step is skipped with a dependency whose branch was not taken, unless another of its
dependencies below the same branch point completed. So a step that belongs to a branch is still tied to it if it also
takes values from outside, but only as long as none of these can be below a branch point that the skip came from.

Each step has a *context*, a list that is read inwards to outwards and shares its outer part with others:

- ``(p, a)``: what follows inwards is tied to branch ``a`` of the point ``p``. The context of the branch itself is
  ``(p, a)`` and then the context of ``p``, whatever else it depends on: whether it was chosen is asked first.
- ``open(j)``: at ``j`` several contexts came together, or ``j`` lies below a branch point without being tied to it.
  What follows inwards is below all that ``j`` is below, and goes with ``j``.

A step whose dependencies have contexts that are outer parts of the longest one among them has that one. Otherwise it
opens a new one inside what they have in common. By induction over the graph: where a branch in a context is not taken,
or the step of an opening is skipped as not taken, all with this context are skipped as not taken, by the same origin;
for what else they depend on is further out, and is below that origin only if it is skipped itself. The tests hold this
against a simulation of the rule.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from ares.workflow.policies import Trigger

if TYPE_CHECKING:
    from ares.workflow.graph import Graph, Node


@attrs.frozen
class Tie:
    """That a step runs only if ``branch`` of ``point`` is taken; both are positions in the graph."""

    point: int
    branch: int


class Context:
    """The innermost element of a context, and the rest. Compared by identity: equal contexts are one object."""

    __slots__ = ("depth", "jump", "nearest", "outer", "tie")

    def __init__(self, tie: Tie | None, outer: "Context | None") -> None:
        #: None for an opening.
        self.tie = tie
        self.outer = outer
        self.depth: int = 1 if outer is None else outer.depth + 1
        #: The nearest element outwards, from this one on, that is a tie.
        self.nearest: Context | None = self if tie is not None else outer and outer.nearest
        #: An element further out, so that any depth is reached in a logarithmic number of moves.
        self.jump: Context | None = outer
        if outer is not None and outer.jump is not None:
            further = outer.jump.jump
            if outer.depth - outer.jump.depth == outer.jump.depth - (further.depth if further is not None else 0):
                self.jump = further


def ties_of(context: Context | None) -> Iterator[Tie]:
    """Give the ties of a context, the innermost first."""
    at = context and context.nearest
    while at is not None and at.tie is not None:
        yield at.tie
        at = at.outer and at.outer.nearest


def contexts(graph: "Graph") -> list[Context | None]:
    """Find the context of each node; None is the empty one."""
    found: list[Context | None] = [None] * len(graph.nodes)
    for index in graph.order:
        node = graph.nodes[index]
        if node.branch_of is not None:
            found[index] = Context(Tie(node.branch_of, index), found[node.branch_of])
        elif node.deps:
            found[index] = _of_step(graph, node, found)
    return found


def _of_step(graph: "Graph", node: "Node", found: list[Context | None]) -> Context | None:
    longest = max((found[d] for d in node.deps), key=_depth)
    common = longest
    for dep in node.deps:
        if not _is_outer(found[dep], longest):
            common = _common(common, found[dep])
    fits = common is longest and _is_inside(graph, node, longest, found)
    if node.spec.trigger is Trigger.ALWAYS:
        return None if fits and longest is None else Context(None, None)
    return longest if fits else Context(None, common)


def _is_inside(graph: "Graph", node: "Node", context: Context | None, found: list[Context | None]) -> bool:
    """Tell whether a step with this context is tied to each branch point that it depends on directly."""
    for dep in node.deps:
        if graph.nodes[dep].branches:
            at = _at_depth(context, _depth(found[dep]) + 1)
            if at is None or at.tie is None or at.tie.point != dep:
                return False
    return True


def _depth(context: Context | None) -> int:
    return 0 if context is None else context.depth


def _at_depth(context: Context | None, depth: int) -> Context | None:
    """Give the outer part of a context that has ``depth`` elements; None if it has not as many."""
    if _depth(context) < depth:
        return None
    while context is not None and context.depth > depth:
        context = context.jump if _depth(context.jump) >= depth else context.outer
    return context


def _is_outer(outer: Context | None, context: Context | None) -> bool:
    return outer is None or _at_depth(context, outer.depth) is outer


def _common(one: Context | None, other: Context | None) -> Context | None:
    """Give the longest outer part of both."""
    depth = min(_depth(one), _depth(other))
    one, other = _at_depth(one, depth), _at_depth(other, depth)
    while one is not other and one is not None and other is not None:
        if one.jump is not other.jump:
            one, other = one.jump, other.jump
        else:
            one, other = one.outer, other.outer
    return one
