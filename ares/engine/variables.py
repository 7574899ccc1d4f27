"""The values that a call takes: outputs, inputs, and variables as they were at one moment.

The walk keeps variables as the list of their writes; a snapshot is made by whoever needs it, on the thread that needs
it, because a reducer is the user's code. The newest snapshot of each scope is kept, so that the next one only adds
what was written since.
"""

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ares.errors import ReducerError
from ares.walk.facts import Created
from ares.walk.parts import source_item
from ares.walk.state import Instance, Scope
from ares.walk.table import Phase
from ares.workflow.binding import Binding, BindingKind, Call
from ares.workflow.reducers import combine

_Snapshot = tuple[list[Any], int, dict[str, Any]]


class Values:
    """Finds the values of one execution. Thread-safe: it reads what no longer changes.

    Args:
        created: how the execution began. Its variables begin with what they began with then, whatever the present
            definition says.
    """

    #: Stands for the context, which is made with the values of the others.
    CTX: Final = object()

    def __init__(self, created: Created | None) -> None:
        self._initial = {} if created is None else created.variables
        self._lock = threading.Lock()

    def of(self, call: Call, instance: Instance) -> list[Any]:
        """A value for each of a call's bindings; ``Values.CTX`` where it takes the context."""
        return [self.value(binding, instance) for binding in call.bindings]

    def value(self, binding: Binding, instance: Instance) -> Any:
        """What one parameter takes."""
        match binding.kind:
            case BindingKind.STEP:
                return output_of(instance.scope.instances[binding.index])
            case BindingKind.CTX:
                return self.CTX
            case BindingKind.ITEM:
                owner = instance.scope.instances[instance.node.index]
                return source_item(owner, instance.index or 0)
            case BindingKind.OWN:
                return instance.output
            case BindingKind.INPUT:
                return self.inputs(instance.scope)[binding.name]
            case _:
                return self.snapshot(instance.scope, instance.snapshot)[binding.name]

    def inputs(self, scope: Scope) -> dict[str, Any]:
        """The inputs of a scope; a sub-workflow's are found where its step takes them from, however deep."""
        missing: list[Scope] = []
        at = scope
        while at.inputs is None:
            missing.append(at)
            assert at.owner is not None
            at = at.owner.scope
        for each in reversed(missing):
            owner = each.owner
            assert owner is not None
            given = {b.parameter: self.value(b, owner) for b in owner.node.child_inputs}
            each.inputs = each.graph.workflow.bind_inputs(given)
        assert scope.inputs is not None
        return scope.inputs

    def snapshot(self, scope: Scope, count: int) -> Mapping[str, Any]:
        """The variables of a scope after its first ``count`` writes, read-only.

        Raises:
            ReducerError: a reducer raised.
        """
        writes = scope.writes
        with self._lock:
            newest: _Snapshot | None = scope.newest
        if newest is not None and newest[0] is writes and newest[1] == count:
            return MappingProxyType(newest[2])
        written: dict[str, list[Any]] = {}
        if newest is not None and newest[0] is writes and newest[1] < count:
            start, values = newest[1], dict(newest[2])
        else:
            start, values = 0, dict(scope.graph.workflow.variables if scope.start is None else scope.start)
            if scope.owner is None and scope.start is None:
                values.update((name, value) for name, value in self._initial.items() if name in values)
            written = {name: list(past) for name, past in scope.carried.items() if name in values}
        for name, value, _ in writes[start:count]:
            if name in values:  # the definition may have lost it meanwhile
                written.setdefault(name, []).append(value)
        reducers = scope.graph.workflow.reducers
        for name, new in written.items():
            try:
                values[name] = combine(reducers.get(name), values[name], new)
            except Exception as error:
                raise ReducerError(name, f"{type(error).__name__}: {error}") from error
        with self._lock:
            kept: _Snapshot | None = scope.newest
            if kept is None or kept[0] is not writes or kept[1] < count:
                scope.newest = (writes, count, values)
        return MappingProxyType(values)


def output_of(instance: Instance) -> Any:
    """What a dependency gives to those that depend on it: None unless it completed."""
    return instance.output if instance.phase is Phase.COMPLETED else None
