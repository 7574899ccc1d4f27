"""Whether a workflow is still the one that an execution began with.

Covers what decides which step gets what from whom: ids, dependencies, which parameter takes which, map, branches,
trigger, delivery, that there is a condition, a router or an interrupt, the agent type, sub-workflows; inputs, reducer
keys, loop, version. Refuses to look at code, the numbers of policies, names for people and metadata: those may change
under a resume. The order in which steps, branches and dependencies are written down does not count either.

Digests are the same in every process and Python version: they are made of JSON in ASCII, never of ``hash`` or ``repr``.
"""

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import attrs

from ares.workflow.binding import Binding, BindingKind

if TYPE_CHECKING:
    from ares.workflow.graph import Graph, Node

_encode = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode
_DATA = (BindingKind.STEP, BindingKind.INPUT, BindingKind.VARIABLE)


@attrs.frozen
class WorkflowFingerprint:
    """A workflow's structure, short enough to be kept with every execution.

    Attributes:
        digest: of all that follows; equal digests mean nothing differs.
        version: the version that its author gave it.
        steps: a digest for each step, those of sub-workflows under ``parent/child``.
        shape: what belongs to no step, as JSON: inputs, reducers, loop.
    """

    digest: str
    version: str
    steps: dict[str, str]
    shape: str


@attrs.frozen
class Difference:
    """How two fingerprints differ, by the names of steps; true if they do.

    Attributes:
        added: steps that only the new one has; of a new sub-workflow, only the step that runs it.
        removed: steps that only the old one has; likewise.
        rewired: steps that both have, connected or treated in another way.
        other: which of ``inputs``, ``reducers``, ``loop`` and ``version`` differ.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewired: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.rewired or self.other)


def _digest(content: Any) -> str:
    return blake2b(_encode(content).encode("ascii"), digest_size=8).hexdigest()


def _shape(graph: "Graph") -> dict[str, Any]:
    workflow = graph.workflow
    return {
        "inputs": sorted(workflow.inputs),
        "loop": workflow.loop is not None,
        "reducers": sorted(workflow.reducers),
    }


def _wiring(bindings: tuple[Binding, ...]) -> list[list[str]]:
    return sorted([b.parameter, b.kind.value, b.name] for b in bindings if b.kind in _DATA)


def _step(graph: "Graph", node: "Node") -> str:
    nodes, spec = graph.nodes, node.spec
    if node.run is not None:
        takes = _wiring(node.run.bindings)
    else:
        takes = _wiring(node.child_inputs) + sorted([name, "params", str(ref)] for name, ref in spec.params.items())
    child = node.child
    return _digest(
        [
            node.id,
            sorted(nodes[i].id for i in node.deps),
            takes,
            nodes[node.map_source].id if node.map_source is not None else None,
            sorted(nodes[i].id for i in node.branches),
            spec.trigger.value,
            spec.delivery.value,
            [spec.condition is not None, spec.router is not None, spec.interrupt is not None],
            spec.agent_type,
            # Not the child's steps: they have digests of their own, so that a difference names the innermost step.
            [_shape(child), child.workflow.version] if child is not None else None,
        ]
    )


def fingerprint_of(graph: "Graph") -> WorkflowFingerprint:
    """Give the fingerprint of a workflow, sub-workflows included."""
    steps: dict[str, str] = {}
    # A sub-workflow that is used twice is hashed once.
    own: dict[int, list[tuple[str, str]]] = {}
    waiting = [(graph, "")]
    while waiting:
        each, prefix = waiting.pop()
        digests = own.get(id(each))
        if digests is None:
            digests = own[id(each)] = [(node.id, _step(each, node)) for node in each.nodes]
        steps.update((prefix + step_id, digest) for step_id, digest in digests)
        waiting.extend((n.child, f"{prefix}{n.id}/") for n in each.nodes if n.child is not None)
    shape = _encode(_shape(graph))
    version = graph.workflow.version
    return WorkflowFingerprint(_digest([steps, shape, version]), version, steps, shape)


def compare(old: WorkflowFingerprint, new: WorkflowFingerprint) -> Difference:
    """Find out how ``new`` differs from ``old``.

    Returns:
        The names of what differs; steps in the order of the fingerprint that has them.
    """
    if old.digest == new.digest:
        return Difference()
    before, after = json.loads(old.shape), json.loads(new.shape)
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if old.version != new.version:
        other.append("version")
    return Difference(
        added=_only(new.steps, old.steps),
        removed=_only(old.steps, new.steps),
        rewired=tuple(path for path, digest in new.steps.items() if old.steps.get(path, digest) != digest),
        other=tuple(other),
    )


def _only(these: dict[str, str], those: dict[str, str]) -> tuple[str, ...]:
    """Give the paths that only ``these`` has, without those inside one that is given."""
    only = {path for path in these if path not in those}
    return tuple(path for path in these if path in only and path.rpartition("/")[0] not in only)
