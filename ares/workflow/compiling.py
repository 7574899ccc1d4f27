"""How a workflow becomes a graph: references resolved, parameters bound, edges collected, cycles found.

Knows the order of these and the problems that only show between steps. Everything is a loop over lists: neither the
length of a chain nor the depth of sub-workflows meets the interpreter's recursion limit.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ares.errors import DefinitionError
from ares.workflow.binding import (
    Binding,
    BindingKind,
    Call,
    Names,
    Role,
    Scope,
    Signatures,
    bind,
    unused_params,
)
from ares.workflow.checks import did_you_mean, listed
from ares.workflow.graph import Graph, Node
from ares.workflow.validation import check_all_routes, check_branches, check_step, check_workflow

if TYPE_CHECKING:
    from ares.workflow.definition import Workflow
    from ares.workflow.spec import StepRef, StepSpec

#: Two uses of a sub-workflow on each of thirty levels are a billion steps: an error, not a wait for memory to end.
MAX_STEPS = 10_000_000


def nesting(workflow: "Workflow") -> "list[Workflow]":
    """Give a workflow and all it contains, each once, the innermost first.

    Raises:
        DefinitionError: one that contains itself.
    """
    done: dict[int, Workflow] = {}
    path = {id(workflow): workflow}
    rest = [iter(workflow.nested)]
    while rest:
        child = next(rest[-1], None)
        if child is None:
            rest.pop()
            key, finished = path.popitem()
            done[key] = finished
        elif id(child) in path:
            around = [*path.values()][list(path).index(id(child)) :]
            chain = " -> ".join(repr(w.id) for w in (*around, child))
            raise DefinitionError(child.id, f"it contains itself: {chain}")
        elif id(child) not in done:
            path[id(child)] = child
            rest.append(iter(child.nested))
    return list(done.values())


@attrs.define(eq=False)
class _Draft:
    """A node as far as it is known before the others are."""

    index: int
    spec: "StepSpec"
    run: Call | None = None
    condition: Call | None = None
    router: Call | None = None
    reconcile: Call | None = None
    child_inputs: tuple[Binding, ...] = ()
    map_source: int | None = None
    branches: tuple[int, ...] = ()
    deps: tuple[int, ...] = ()


def compile_graph(workflow: "Workflow", children: "Mapping[int, Graph]") -> Graph:
    """Validate a workflow and make its graph.

    Args:
        workflow: the definition.
        children: the graphs of its sub-workflows, by the identity of the workflow.

    Raises:
        DefinitionError: the first problem found, naming step and culprit.
    """
    check_workflow(workflow)
    steps = workflow.steps
    for spec in steps:
        check_step(workflow, spec)
    names = Names(workflow.id, {spec.id: i for i, spec in enumerate(steps)}, workflow.inputs, workflow.variables)
    drafting = _Drafting(workflow, names)
    drafts = [drafting.draft(index, spec) for index, spec in enumerate(steps)]
    graph = _assemble(workflow, names, drafts, children)
    if workflow.loop is not None and workflow.loop.until is not None:
        until = bind(workflow.loop.until, Scope(names, "", {}), Role.UNTIL, Signatures())
        graph = attrs.evolve(graph, until=until)
    check_branches(graph)
    graph.check_writers()
    check_all_routes(graph)
    return graph


class _Drafting:
    """Resolves what one step after the other names."""

    def __init__(self, workflow: "Workflow", names: Names) -> None:
        self._workflow = workflow
        self._names = names
        self._signatures = Signatures()

    def draft(self, index: int, written: "StepSpec") -> _Draft:
        spec = self._with_ids(written)
        draft = _Draft(index, spec)
        params: Any = spec.params
        is_map = spec.map_over is not None
        scope = Scope(self._names, spec.id, params, has_item=is_map)
        outside = Scope(self._names, spec.id, params) if is_map else scope
        draft.run = self._call(spec.run, scope, Role.RUN)
        draft.condition = self._call(spec.condition, outside, Role.CONDITION)
        if spec.router is not None:
            draft.router = self._call(spec.router, Scope(self._names, spec.id, params, has_own=True), Role.ROUTER)
        draft.reconcile = self._call(spec.reconcile, scope, Role.RECONCILE)
        if spec.params:
            self._check_params(draft, scope)
        if spec.workflow is not None:
            draft.child_inputs = self._child_inputs(spec, spec.workflow, is_map)
        if spec.map_over is not None:
            draft.map_source = self._names.steps[str(spec.map_over)]
        draft.branches = tuple(self._names.steps[str(b)] for b in spec.branches)
        if len(set(draft.branches)) < len(draft.branches):
            raise self._error(spec, f"a step is named twice in branches: {listed([str(b) for b in spec.branches])}")
        draft.deps = self._deps(draft)
        return draft

    def _error(self, spec: "StepSpec", problem: str) -> DefinitionError:
        return DefinitionError(self._workflow.id, problem, spec.id)

    def _with_ids(self, spec: "StepSpec") -> "StepSpec":
        """Give the spec with ids for functions, refusing references to no step."""
        if not (spec.depends_on or spec.branches or spec.params or spec.inputs or spec.map_over is not None):
            return spec
        depends_on = self._ids(spec, "depends_on", spec.depends_on)
        branches = self._ids(spec, "branches", spec.branches)
        map_over = None if spec.map_over is None else self._id(spec, "map_over", spec.map_over)
        params, inputs = self._sources(spec, "params", spec.params), self._sources(spec, "inputs", spec.inputs)
        refs = (*spec.depends_on, *spec.branches, *spec.params.values(), *spec.inputs.values(), spec.map_over or "")
        if all(isinstance(ref, str) for ref in refs):
            return spec
        return attrs.evolve(
            spec, depends_on=depends_on, branches=branches, map_over=map_over, params=params, inputs=inputs
        )

    def _ids(self, spec: "StepSpec", field: str, refs: "Sequence[StepRef]") -> tuple[str, ...]:
        return tuple(self._id(spec, field, ref) for ref in refs)

    def _id(self, spec: "StepSpec", field: str, ref: "StepRef") -> str:
        found, problem = self._workflow.find(ref)
        if problem:
            if field == "map_over" and isinstance(ref, str) and ref in self._workflow.inputs:
                problem = f"{ref!r} is an input; a map is over the list that a step returns"
            raise self._error(spec, f"{field}: {problem}")
        return found

    def _sources(self, spec: "StepSpec", field: str, sources: "Mapping[str, StepRef]") -> Mapping[str, str]:
        # A string may also name an input or a variable: what it means is found out by the parameter that takes it.
        return {
            name: ref if isinstance(ref, str) else self._id(spec, f"{field} of {name!r}", ref)
            for name, ref in sources.items()
        }

    def _call(self, fn: Any, scope: Scope, role: Role) -> Call | None:
        return None if fn is None else bind(fn, scope, role, self._signatures)

    def _check_params(self, draft: _Draft, scope: Scope) -> None:
        spec = draft.spec
        if spec.run is None and spec.workflow is None:
            # An agent's parameters are not known yet. What they are to take still has to exist.
            for parameter, source in scope.params.items():
                scope.source(parameter, source)
            return
        calls = (draft.run, draft.condition, draft.router, draft.reconcile)
        used = {p.name for call in calls if call is not None for p in self._signatures.parameters(call.fn)}
        unused_params(scope, used)

    def _child_inputs(self, spec: "StepSpec", child: "Workflow", is_map: bool) -> tuple[Binding, ...]:
        given: Any = spec.inputs
        scope = Scope(self._names, spec.id, given, has_ctx=False, has_item=is_map)
        for name in given:
            if name not in child.inputs:
                hint = did_you_mean(name, child.inputs)
                problem = f"workflow {child.id!r} has no input {name!r}{hint}; inputs: {listed(child.inputs)}"
                raise scope.error(name, problem)
        bindings = []
        for name, declared in child.inputs.items():
            if name in given:
                bindings.append(scope.source(name, given[name]))
                continue
            binding = scope.find(name, name)
            if binding is not None:
                bindings.append(binding)
            elif declared.is_required:
                hint = did_you_mean(name, self._names.all())
                problem = f"workflow {child.id!r} needs this input, and it is no step, input or variable here{hint}"
                raise scope.error(name, problem)
        return tuple(bindings)

    def _deps(self, draft: _Draft) -> tuple[int, ...]:
        spec, steps = draft.spec, self._names.steps
        found: dict[int | None, None] = dict.fromkeys(_steps_of(draft.run))
        if draft.map_source is not None:
            found[draft.map_source] = None
        if spec.params and spec.run is None:
            found.update((steps.get(str(source)), None) for source in spec.params.values())
        for call in (draft.condition, draft.router, draft.reconcile):
            found.update(dict.fromkeys(_steps_of(call)))
        found.update((b.index, None) for b in draft.child_inputs if b.kind is BindingKind.STEP)
        found.update((steps[str(ref)], None) for ref in spec.depends_on)
        return tuple(i for i in found if i is not None)


def _steps_of(call: Call | None) -> Iterator[int]:
    return iter(()) if call is None else (b.index for b in call.bindings if b.kind is BindingKind.STEP)


def _assemble(workflow: "Workflow", names: Names, drafts: list[_Draft], children: Mapping[int, Graph]) -> Graph:
    dependents: list[list[int]] = [[] for _ in drafts]
    branch_of: list[int | None] = [None] * len(drafts)
    for draft in drafts:
        for dep in draft.deps:
            dependents[dep].append(draft.index)
        for branch in draft.branches:
            if branch_of[branch] is None:
                branch_of[branch] = draft.index
    order = _order(workflow, drafts, dependents)
    nested = (children[id(d.spec.workflow)].size for d in drafts if d.spec.workflow is not None)
    size = len(drafts) + sum(nested)
    if size > MAX_STEPS:
        raise DefinitionError(workflow.id, f"with its sub-workflows it has {size:,} steps, more than {MAX_STEPS:,}")
    nodes = tuple(
        Node(
            index=d.index,
            id=d.spec.id,
            spec=d.spec,
            deps=d.deps,
            dependents=tuple(dependents[d.index]),
            map_source=d.map_source,
            branch_of=branch_of[d.index],
            branches=d.branches,
            child=None if d.spec.workflow is None else children[id(d.spec.workflow)],
            run=d.run,
            condition=d.condition,
            router=d.router,
            reconcile=d.reconcile,
            child_inputs=d.child_inputs,
        )
        for d in drafts
    )
    return Graph(
        workflow,
        nodes,
        dict(names.steps),
        order,
        roots=tuple(n.index for n in nodes if not n.deps),
        sinks=tuple(n.index for n in nodes if not n.dependents),
        children=tuple(children[id(w)] for w in workflow.nested),
        size=size,
    )


def _order(workflow: "Workflow", drafts: list[_Draft], dependents: list[list[int]]) -> tuple[int, ...]:
    """Order the steps so that each comes after what it depends on.

    Raises:
        DefinitionError: they cannot be; the cycle, step by step.
    """
    missing = [len(d.deps) for d in drafts]
    ready = deque(i for i, count in enumerate(missing) if not count)
    order: list[int] = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for dependent in dependents[index]:
            missing[dependent] -= 1
            if not missing[dependent]:
                ready.append(dependent)
    if len(order) < len(drafts):
        cycle = _cycle(drafts, {i for i, count in enumerate(missing) if count})
        ids = [drafts[i].spec.id for i in cycle]
        raise DefinitionError(workflow.id, f"the steps form a cycle: {' -> '.join(ids)}", ids[0])
    return tuple(order)


def _cycle(drafts: list[_Draft], left: set[int]) -> list[int]:
    """Find a cycle among steps each of which depends on another of them, in the direction of the data."""
    path: dict[int, None] = {}
    index = min(left)
    while index not in path:
        path[index] = None
        index = next(d for d in drafts[index].deps if d in left)
    cycle = [*path][[*path].index(index) :]
    cycle.reverse()
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[: first + 1]]
