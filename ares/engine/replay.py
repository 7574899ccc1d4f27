"""From a journal back to a walk: the facts applied in order, the results of ``once``, and what changed since."""

from collections.abc import Iterator
from typing import Any

import attrs

from ares.errors import StoreError, WorkflowChangedError
from ares.journal.encoding import decode
from ares.journal.notes import Note, Remembered
from ares.journal.protocol import Entry
from ares.values import Codec, types_in
from ares.walk import facts as f
from ares.walk.table import Phase
from ares.walk.walk import Walk
from ares.workflow import Graph, WorkflowFingerprint, compare

#: The steps of a definition as facts keep them: path, digest, dependencies.
Nodes = tuple[tuple[str, str, tuple[str, ...]], ...]

_UNNEEDED = ("tool", "emitted")


@attrs.define
class Replay:
    """What the journal of an execution adds up to."""

    walk: Walk
    created: f.Created
    remembered: dict[tuple[str, int, str], Any]
    #: The definition that it went on with last.
    fingerprint: WorkflowFingerprint
    last_seq: int

    def in_flight(self) -> tuple[str, ...]:
        """What was running when its process died."""
        return tuple(i.path for i in self.walk.state.instances() if i.phase is Phase.RUNNING)


def codec_for(graph: Graph) -> Codec:
    """The codec that knows the classes a workflow names: its ``types``, and those in its steps' annotations."""
    types: set[type] = set()
    waiting = [graph]
    while waiting:
        each = waiting.pop()
        types.update(each.workflow.types)
        for declared in each.workflow.inputs.values():
            types |= types_in(declared.type)
        for node in each.nodes:
            for call in (node.run, node.reconcile):
                if call is not None:
                    for annotation in _annotations(call.fn):
                        types |= types_in(annotation)
        waiting.extend(each.children)
    return Codec(types)


def _annotations(fn: Any) -> Iterator[Any]:
    """The annotations of a function; those that cannot be evaluated name nothing."""
    import typing

    target = fn
    while hasattr(target, "func"):
        target = target.func
    if not getattr(target, "__annotations__", None):
        return
    try:
        yield from typing.get_type_hints(target, include_extras=True).values()
    except Exception:
        yield from (a for a in target.__annotations__.values() if not isinstance(a, str))


def read(kind: str, path: str, body: Any, codec: Codec | None) -> f.Fact | Note:
    """The fact or note of an entry, whichever way its store keeps it."""
    if not isinstance(body, str) or codec is None:
        fact: f.Fact | Note = body
        return fact
    return decode(kind, path, body, codec)


def replay(graph: Graph, execution_id: str, entries: Iterator[Entry], codec: Codec, store: str) -> Replay:
    """Apply a journal.

    Raises:
        StoreError: it has a hole, or does not begin with its beginning.
        SerializationError: an entry cannot be read.
    """
    walk = Walk(graph, execution_id)
    remembered: dict[tuple[str, int, str], Any] = {}
    created: f.Created | None = None
    fingerprint = WorkflowFingerprint("", "", {}, "{}")
    seq = 0
    for entry in entries:
        seq += 1
        if entry.seq != seq:
            raise StoreError(store, f"the journal has a hole: {seq} is missing, {entry.seq} is there", execution_id)
        if entry.kind in _UNNEEDED:
            continue
        fact = read(entry.kind, entry.path, entry.body, codec)
        if isinstance(fact, Remembered):
            remembered[fact.path, fact.born, fact.key] = fact.value
            continue
        if isinstance(fact, f.Created):
            created = fact
            fingerprint = fingerprint_in(fact)
            # Of another definition: facts about steps that are no more, or are something else now, are passed over.
            walk.state.lenient = bool(compare(fingerprint, graph.fingerprint))
        elif isinstance(fact, f.Resumed) and fact.nodes is not None:
            fingerprint = fingerprint_in(fact)
        walk.apply(fact)  # type: ignore[arg-type] # every other note was passed over above
    if created is None:
        raise StoreError(store, "the journal is empty", execution_id)
    return Replay(walk, created, remembered, fingerprint, seq)


def fingerprint_in(fact: f.Created | f.Resumed) -> WorkflowFingerprint:
    """The fingerprint that a fact keeps."""
    nodes = fact.nodes or ()
    return WorkflowFingerprint(fact.digest, fact.version, {step: digest for step, digest, _ in nodes}, fact.shape)


def nodes_of(graph: Graph) -> Nodes:
    """The steps of a graph."""
    deps: dict[str, tuple[str, ...]] = {}
    waiting = [(graph, "")]
    while waiting:
        each, prefix = waiting.pop()
        for node in each.nodes:
            deps[prefix + node.id] = tuple(prefix + each.nodes[d].id for d in node.deps)
            if node.child is not None:
                waiting.append((node.child, f"{prefix}{node.id}/"))
    return tuple((path, digest, deps[path]) for path, digest in graph.fingerprint.steps.items())


def check_drift(found: Replay, graph: Graph) -> None:
    """Compare the definition that an execution went on with last with the present one.

    Raises:
        WorkflowChangedError: naming what differs.
    """
    difference = compare(found.fingerprint, graph.fingerprint)
    if difference:
        raise WorkflowChangedError(
            found.walk.state.execution_id,
            difference.added,
            difference.removed,
            difference.rewired,
            difference.other,
        )


__all__ = ["Replay", "check_drift", "codec_for", "nodes_of", "read", "replay"]
