"""A workflow as the walk reads it: steps as numbered nodes, names resolved, edges in both directions.

Knows what depends on what. Refuses to know how it was written (``definition``), whether it was legal (``validation``,
``writers``) and what happens to it (``ares.walk``). A graph never changes; one graph serves any number of executions
on any number of threads. All searches are loops: a chain of 100,000 steps is ordinary.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from ares.workflow.binding import Binding, Call
from ares.workflow.fingerprint import WorkflowFingerprint, fingerprint_of
from ares.workflow.kept import kept
from ares.workflow.policies import Delivery
from ares.workflow.spec import StepSpec
from ares.workflow.writers import Conflict, Writers

if TYPE_CHECKING:
    from ares.workflow.definition import Workflow


#: How many answers of ``below`` a graph keeps: all of a chain of 100,000 would be five billion entries.
_KEPT_SETS = 64


@attrs.frozen(eq=False, repr=False)
class Node:
    """One step in a graph. Other nodes are named by their positions in ``Graph.nodes``.

    Attributes:
        index: its own position, which is the definition order.
        id: the step's id.
        spec: the step as written, with the workflow's defaults filled in and references as ids.
        deps: what it depends on directly, without duplicates: the parameters of its run, the map's source, what
            ``params`` names, the parameters of condition, router and reconcile, a sub-workflow's inputs, depends_on.
        dependents: what depends on it directly, ascending.
        map_source: the step whose list it maps over, or None.
        branch_of: the branch point that it is a branch of, or None.
        branches: its own branches, as declared.
        child: the graph of the sub-workflow it runs, or None.
        run: its function and what the parameters take; None for an agent step and for a sub-workflow.
        condition: the same of its condition.
        router: the same of its router.
        reconcile: the same of its reconcile.
        child_inputs: what the inputs of its sub-workflow take; those that keep their default are not in it.
    """

    index: int
    id: str
    spec: StepSpec
    deps: tuple[int, ...]
    dependents: tuple[int, ...]
    map_source: int | None
    branch_of: int | None
    branches: tuple[int, ...]
    child: "Graph | None"
    run: Call | None
    condition: Call | None
    router: Call | None
    reconcile: Call | None
    child_inputs: tuple[Binding, ...]

    def __repr__(self) -> str:
        return f"Node({self.index}, {self.id!r})"


@attrs.frozen(eq=False, repr=False, slots=False)
class Graph:
    """The steps of one workflow and what depends on what.

    Attributes:
        workflow: the workflow as it was when the graph was made.
        nodes: the steps, in definition order.
        by_id: their positions by id.
        order: all positions so that each comes after what it depends on.
        roots: what depends on nothing, ascending.
        sinks: what nothing depends on, ascending; a sub-workflow's output is made of theirs.
        children: the graphs of its sub-workflows, each once.
        size: how many steps there are in all, those of sub-workflows counted wherever they are used.
        until: the function that says whether its rounds are enough, and what the parameters take, or None.
    """

    workflow: "Workflow"
    nodes: tuple[Node, ...]
    by_id: dict[str, int]
    order: tuple[int, ...]
    roots: tuple[int, ...]
    sinks: tuple[int, ...]
    children: "tuple[Graph, ...]"
    size: int
    until: Call | None = None
    _below: dict[int, frozenset[int]] = attrs.field(factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<Graph of {self.workflow.id!r}, {len(self.nodes):,} steps>"

    @kept
    def rank(self) -> tuple[int, ...]:
        """The position in ``order`` of each node."""
        rank = [0] * len(self.nodes)
        for position, index in enumerate(self.order):
            rank[index] = position
        return tuple(rank)

    @kept
    def turn(self) -> Node:
        """What stands for the end of a round: no step, but ``until`` is called as if it were one's function. It sees
        the results of all steps, and has the timeout that is theirs by default."""
        spec = StepSpec(
            "until",
            name="until",
            timeout=self.workflow.defaults.timeout,
            retry=None,
            recovery=None,
            delivery=Delivery.AT_LEAST_ONCE,
            max_crashes=None,
        )
        count = len(self.nodes)
        everything = tuple(range(count))
        return Node(count, "until", spec, everything, (), None, None, (), None, self.until, None, None, None, ())

    @kept
    def fingerprint(self) -> WorkflowFingerprint:
        """What a resume compares to find out whether the workflow changed."""
        return fingerprint_of(self)

    @kept
    def _writers(self) -> Writers:
        return Writers(self)

    def below(self, index: int) -> frozenset[int]:
        """Give all that depends on ``index``, directly or not.

        It costs as much as there is below, and is kept for a while: for one pair of steps ask ``is_below``.
        """
        found = self._below.get(index)
        if found is None:
            if len(self._below) >= _KEPT_SETS:
                self._below.clear()
            found = self._below[index] = self.reach((index,))
        return found

    def reach(self, starts: Iterable[int]) -> frozenset[int]:
        """Give all that depends on any of ``starts``, directly or not; a start only if it depends on another."""
        seen: set[int] = set()
        waiting = list(starts)
        while waiting:
            new = [i for i in self.nodes[waiting.pop()].dependents if i not in seen]
            seen.update(new)
            waiting.extend(new)
        return frozenset(seen)

    def is_below(self, index: int, above: int) -> bool:
        """Tell whether ``index`` depends on ``above``, directly or not. Looks only at what lies between them."""
        rank = self.rank
        floor = rank[above]
        if rank[index] <= floor:
            return False
        seen = {index}
        waiting = [index]
        while waiting:
            for dep in self.nodes[waiting.pop()].deps:
                if dep == above:
                    return True
                if rank[dep] > floor and dep not in seen:
                    seen.add(dep)
                    waiting.append(dep)
        return False

    def route_conflict(self, point: int, targets: Collection[int]) -> Conflict | None:
        """Find two branches that must not be taken together: both may write one variable that has no reducer.

        Args:
            point: the branch point.
            targets: the branches of a route.

        Returns:
            The variable and the two branches, or None if the route may be taken.
        """
        return None if len(targets) < 2 else self._writers.conflict(point, targets)

    def check_writers(self) -> None:
        """Refuse steps that may write one variable in either order.

        Raises:
            DefinitionError: the variable and the steps.
        """
        self._writers.check()

    def is_made_of(self, steps: int, children: "Sequence[Graph]") -> bool:
        """Tell whether a workflow with so many steps and these sub-workflows is still the one of this graph."""
        same = len(children) == len(self.children) and all(a is b for a, b in zip(children, self.children, strict=True))
        return same and len(self.nodes) == steps

    def ids(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Give the ids of nodes."""
        return tuple(self.nodes[i].id for i in indices)
