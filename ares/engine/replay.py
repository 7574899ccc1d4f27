"""From a journal back to a walk: the facts applied in order, the results of ``once``, and what changed since."""

import contextlib
import functools
import importlib
import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from ares.errors import StoreError, WorkflowChangedError
from ares.journal.encoding import decode
from ares.journal.fold import Fold
from ares.journal.notes import Note, Remembered
from ares.journal.protocol import Entry
from ares.questions import Answer
from ares.records import ExperienceCheckpoint
from ares.values import Codec, types_in
from ares.walk import facts as f
from ares.walk.state import Instance
from ares.walk.table import Phase
from ares.walk.walk import Walk
from ares.workflow import Call, Graph, WorkflowFingerprint, compare

#: The steps of a definition as facts keep them: path, digest, dependencies.
Nodes = tuple[tuple[str, str, tuple[str, ...]], ...]

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_UNNEEDED = ("tool", "emitted", "recorded")


@attrs.define
class Replay:
    """What the journal of an execution adds up to."""

    walk: Walk
    created: f.Created
    #: By path, round, epoch of birth and key.
    remembered: dict[tuple[str, int, int, str], Any]
    #: The definition that it went on with last.
    fingerprint: WorkflowFingerprint
    last_seq: int
    #: When each open question was asked, by path, in nanoseconds since the epoch.
    asked_at: Mapping[str, int] = attrs.field(factory=dict)

    def in_flight(self) -> tuple[str, ...]:
        """What was running when its process died."""
        return tuple(i.path for i in self.walk.state.instances() if i.phase is Phase.RUNNING)


def codec_for(graph: Graph, agents: Iterable[Call] = ()) -> Codec:
    """The codec that knows the classes a workflow names: its ``types``, and those in its inputs' types and in the
    annotations of its steps' functions and of the ``agents`` that stand for functions."""
    known: set[type] = {Answer}  # a body may return what it was told
    calls: list[Call | None] = [*agents]
    waiting = [graph]
    while waiting:
        each = waiting.pop()
        known.update(each.workflow.types)
        for declared in each.workflow.inputs.values():
            known |= types_in(declared.type)
        for node in each.nodes:
            calls += (node.run, node.reconcile)
        calls.append(each.until)
        waiting.extend(each.children)
    for fn in {id(call.fn): call.fn for call in calls if call is not None}.values():
        for annotation in _annotations(fn):
            known |= types_in(annotation)
    return Codec(known)


def _annotations(fn: Any) -> Iterator[Any]:
    """The annotations of a function, each evaluated by itself: a name that only a type checker sees, or that is not
    there yet, hides no other."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, type):
        yield fn
        fn = inspect.getattr_static(fn, "__init__")
    elif not isinstance(fn, _FUNCTIONS):
        fn = type(fn).__call__
    target = inspect.unwrap(fn)
    scope = getattr(target, "__globals__", {})
    for written in _as_written(target).values():
        annotation = written
        if not isinstance(written, type):
            holder = types.SimpleNamespace(__annotations__={"it": written})
            with contextlib.suppress(Exception):
                annotation = typing.get_type_hints(holder, scope, include_extras=True)["it"]
        if not isinstance(annotation, str):
            yield annotation


def _as_written(target: Any) -> Mapping[str, Any]:
    try:
        return getattr(target, "__annotations__", None) or {}
    except NameError:  # Python 3.14 evaluates all of them here
        lib = importlib.import_module("annotationlib")
        found: Mapping[str, Any] = lib.get_annotations(target, format=lib.Format.FORWARDREF)
        return found


def read(kind: str, path: str, body: Any, codec: Codec | None) -> f.Fact | Note:
    """The fact or note of an entry, whichever way its store keeps it."""
    if not isinstance(body, str) or codec is None:
        fact: f.Fact | Note = body
        return fact
    return decode(kind, path, body, codec)


class Replaying:
    """A replay under way: takes in one entry after another.

    Args:
        graph: the definition that the journal is applied to, whether or not it is of that one.
        execution_id: whose journal it is.
        store: where that stands, for messages.
    """

    def __init__(self, graph: Graph, execution_id: str, store: str) -> None:
        self.walk = Walk(graph, execution_id)
        self.created: f.Created | None = None
        self._graph = graph
        self._store = store
        self._fingerprint = WorkflowFingerprint("", "", {}, "{}")
        self._remembered: dict[tuple[str, int, int, str], Any] = {}
        self._asked_at: dict[str, int] = {}
        self._seq = 0

    @property
    def is_same_workflow(self) -> bool:
        """Whether the execution went on last with the definition that the journal is applied to."""
        return self._fingerprint.digest == self._graph.fingerprint.digest

    def count(self, seq: int) -> None:
        """The entry of this number comes next.

        Raises:
            StoreError: another one should.
        """
        self._seq += 1
        if seq != self._seq:
            problem = f"the journal has a hole: {self._seq} is missing, {seq} is there"
            raise StoreError(self._store, problem, self.walk.state.execution_id)

    def add(self, fact: f.Fact | Note, at: int) -> Instance | None:
        """Take in what an entry says, which was written then, in nanoseconds since the epoch. Returns the instance that
        it was about; None also for what was passed over."""
        if isinstance(fact, Remembered):
            self._remembered[fact.path, fact.round, fact.born, fact.key] = fact.value
            return None
        if isinstance(fact, Note):
            return None
        match fact:
            case f.Asked():
                self._asked_at[fact.path] = at
            case f.Created():
                self.created = fact
                self._fingerprint = fingerprint_in(fact)
            case f.Resumed() if fact.nodes is not None:
                self._fingerprint = fingerprint_in(fact)
        if isinstance(fact, f.Created | f.Resumed):
            # Of another definition: facts about steps that are not there, or are something else, are passed over.
            state = self.walk.state
            state.lenient = state.lenient or bool(compare(self._fingerprint, self._graph.fingerprint))
        root = self.walk.state.root
        instance = self.walk.apply(fact)
        if self.walk.state.root is not root:
            self._remembered.clear()  # of a round that does not come back
        return instance

    def end(self) -> Replay:
        """That was all.

        Raises:
            StoreError: it does not begin with its beginning.
        """
        state = self.walk.state
        if self.created is None:
            raise StoreError(self._store, "the journal is empty", state.execution_id)
        if state.lenient:
            state.root.inputs = _inputs_now(self._graph, self.created)
        return Replay(self.walk, self.created, self._remembered, self._fingerprint, self._seq, self._asked_at)


def replay(graph: Graph, execution_id: str, entries: Iterator[Entry], codec: Codec, store: str) -> Replay:
    """Apply a journal.

    Raises:
        StoreError: it has a hole, or does not begin with its beginning.
        SerializationError: an entry cannot be read.
    """
    replaying = Replaying(graph, execution_id, store)
    for entry in entries:
        replaying.count(entry.seq)
        if entry.kind not in _UNNEEDED:
            replaying.add(read(entry.kind, entry.path, entry.body, codec), entry.at)
    return replaying.end()


def _inputs_now(graph: Graph, created: f.Created) -> dict[str, Any]:
    """The inputs of an execution under another definition: those that have come since have their defaults, and those
    without one keep it from going on."""
    declared = graph.workflow.inputs
    defaults = {name: each.default for name, each in declared.items() if not each.is_required}
    kept = {name: value for name, value in created.inputs.items() if name in declared}
    return {**defaults, **kept}


def fingerprint_in(fact: f.Created | f.Resumed) -> WorkflowFingerprint:
    """The fingerprint that a fact keeps."""
    nodes = fact.nodes or ()
    return WorkflowFingerprint(fact.digest, fact.version, {step: digest for step, digest, _ in nodes}, fact.shape)


def fold(execution_id: str, graph: Graph, entries: Iterator[Entry], codec: Codec) -> ExperienceCheckpoint:
    """Fold a journal, whatever definition it is of; reducers that are functions are those of ``graph``.

    Raises:
        SerializationError: an entry cannot be read.
    """
    workflow = graph.workflow
    folded = Fold(execution_id, reducers={name: r for name in workflow.reducers if (r := workflow.reducer(name))})
    for entry in entries:
        folded.add(entry.seq, entry.at, read(entry.kind, entry.path, entry.body, codec))
    return folded.checkpoint()


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


def check_inputs(found: Replay, graph: Graph) -> None:
    """Refuse to go on with a definition that needs an input which the execution was never given.

    Raises:
        InputError: naming what is missing.
    """
    graph.workflow.bind_inputs(found.walk.state.root.inputs)


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


__all__ = ["Replay", "Replaying", "check_drift", "check_inputs", "codec_for", "fold", "nodes_of", "read", "replay"]
