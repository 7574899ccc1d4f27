"""Which steps may write one variable, and whether anything says in which order. Never a silent lost update.

Two writers of a variable without a reducer are fine if one lies below the other, or if they are exclusive: tied to
different branches of one branch point (``exclusion``). Exclusive writers stay exclusive only as long as no route takes
both branches; ``conflict`` finds such routes.

The check of all pairs is one pass over the graph for each 2,048 writes: every node carries, as bits of one integer,
which of them lie above it. So a chain of 100,000 steps with writers at both ends costs a pass, not a set per writer.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations, islice, product
from typing import TYPE_CHECKING

import attrs

from ares.errors import DefinitionError
from ares.workflow.exclusion import Context, Tie, contexts, ties_of
from ares.workflow.kept import kept

if TYPE_CHECKING:
    from ares.workflow.graph import Graph, Node

_BITS_PER_PASS = 2_048


@attrs.frozen
class Conflict:
    """Two branches, by id, that may both write ``variable``, which has no reducer."""

    variable: str
    branches: tuple[str, str]


@attrs.frozen(eq=False)
class _Write:
    """One step's possible write of one contested variable."""

    node: int
    variable: str


class Writers:
    """The writers of one graph's variables: their order and exclusivity."""

    def __init__(self, graph: "Graph") -> None:
        self._graph = graph

    def check(self) -> None:
        """Refuse two writers of one variable whose order nothing decides.

        Raises:
            DefinitionError: the variable and the steps.
        """
        for node in self._graph.nodes:
            if node.map_source is not None:
                self._check_map(node)
        writes = [
            _Write(i, name) for name, nodes in self._contested.items() if not self._is_chain(nodes) for i in nodes
        ]
        # By where they lie, so that a pass is over a stretch of the graph and not all of it.
        writes.sort(key=lambda w: self._graph.rank[w.node])
        for start in range(0, len(writes), _BITS_PER_PASS):
            _Pass(self._graph, writes, range(start, min(start + _BITS_PER_PASS, len(writes))), self).run()

    def _check_map(self, node: "Node") -> None:
        workflow = self._graph.workflow
        for name in node.spec.writes:
            if workflow.reducer(name) is None:
                problem = f"the elements of a map write variable {name!r}, in no order: it needs a reducer"
                raise DefinitionError(workflow.id, problem, node.id)

    def _is_chain(self, nodes: list[int]) -> bool:
        """Tell cheaply, for a variable with many writers, that each lies below the one before."""
        if len(nodes) <= _BITS_PER_PASS:
            return False
        rank, every = self._graph.rank, self._graph.nodes
        places = {index: place for place, index in enumerate(sorted(nodes, key=rank.__getitem__))}
        nearest: dict[int, int] = {}
        for index in islice(self._graph.order, min(rank[i] for i in nodes), None):
            found = max((nearest.get(d, -1) for d in every[index].deps), default=-1)
            place = places.get(index)
            if place is not None:
                if found != place - 1:
                    return False
                found = place
            nearest[index] = found
        return True

    @kept
    def _contested(self) -> dict[str, list[int]]:
        """Give the variables without a reducer that several steps may write, and those steps."""
        reducers = self._graph.workflow.reducers
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node in self._graph.nodes:
            for name in dict.fromkeys(node.spec.writes):
                if name not in reducers:
                    found[name].append(node.index)
        return {name: nodes for name, nodes in found.items() if len(nodes) > 1}

    def ties(self, index: int) -> Iterator[Tie]:
        """Give what a node is tied to, the innermost branch first."""
        return ties_of(self._contexts[index])

    @kept
    def _contexts(self) -> list[Context | None]:
        return contexts(self._graph)

    def conflict(self, point: int, targets: Collection[int]) -> Conflict | None:
        """Find two of ``targets`` with writers of one variable in no order."""
        for variable, by_branch in self._at_points.get(point, {}).items():
            taken = [branch for branch in by_branch if branch in targets]
            for one, other in combinations(taken, 2):
                pairs = product(by_branch[one], by_branch[other])
                if not all(self._ordered(writer, rival) for writer, rival in pairs):
                    return Conflict(variable, (self._graph.nodes[one].id, self._graph.nodes[other].id))
        return None

    @kept
    def _at_points(self) -> dict[int, dict[str, dict[int, list[int]]]]:
        """Give the contested writers tied to each branch point, by variable and branch."""
        found: dict[int, dict[str, dict[int, list[int]]]] = {}
        for variable, nodes in self._contested.items():
            for index in nodes:
                for tie in self.ties(index):
                    by_branch = found.setdefault(tie.point, {}).setdefault(variable, {})
                    by_branch.setdefault(tie.branch, []).append(index)
        return found

    def _ordered(self, one: int, other: int) -> bool:
        return self._graph.is_below(one, other) or self._graph.is_below(other, one)


class _Pass:
    """Compares the writes in ``window``, as the earlier ones, with all writes of the same variables behind them."""

    def __init__(self, graph: "Graph", writes: list[_Write], window: range, writers: Writers) -> None:
        self._graph = graph
        self._writers = writers
        self._window = [writes[i] for i in window]
        self._bits: defaultdict[int, int] = defaultdict(int)
        self._of_variable: defaultdict[str, int] = defaultdict(int)
        for bit, write in enumerate(self._window):
            self._bits[write.node] |= 1 << bit
            self._of_variable[write.variable] |= 1 << bit
        self._checked: defaultdict[int, list[str]] = defaultdict(list)
        for write in islice(writes, window.start, None):
            if write.variable in self._of_variable:
                self._checked[write.node].append(write.variable)
        self._tied: tuple[dict[int, int], dict[tuple[int, int], int]] | None = None

    def run(self) -> None:
        rank = self._graph.rank
        first, last = rank[self._window[0].node], max(rank[i] for i in self._checked)
        above: dict[int, int] = {}
        met = 0
        for index in islice(self._graph.order, first, last + 1):
            mask = 0
            for dep in self._graph.nodes[index].deps:
                mask |= above.get(dep, 0)
            for variable in self._checked.get(index, ()):
                unordered = self._of_variable[variable] & met & ~mask
                if unordered:
                    self._refuse_unless_exclusive(index, variable, unordered)
            own = self._bits.get(index, 0)
            met |= own
            if mask | own:
                above[index] = mask | own

    def _refuse_unless_exclusive(self, index: int, variable: str, unordered: int) -> None:
        if self._tied is None:
            self._tied = self._tied_bits()
        of_point, of_branch = self._tied
        for tie in self._writers.ties(index):
            unordered &= ~(of_point.get(tie.point, 0) & ~of_branch.get((tie.point, tie.branch), 0))
        if not unordered:
            return
        other = self._graph.nodes[self._window[(unordered & -unordered).bit_length() - 1].node].id
        problem = (
            f"variable {variable!r} may be written by {other!r} and by this step, and neither is upstream of the "
            f"other; order them with depends_on=, or give the variable a reducer"
        )
        raise DefinitionError(self._graph.workflow.id, problem, self._graph.nodes[index].id)

    def _tied_bits(self) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
        """Give the window's writes by the point they are tied to, and by the branch."""
        of_point: defaultdict[int, int] = defaultdict(int)
        of_branch: defaultdict[tuple[int, int], int] = defaultdict(int)
        for bit, write in enumerate(self._window):
            for tie in self._writers.ties(write.node):
                of_point[tie.point] |= 1 << bit
                of_branch[tie.point, tie.branch] |= 1 << bit
        return of_point, of_branch
