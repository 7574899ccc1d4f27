"""Which parameter of a function takes which value, found out once, before anything runs.

A parameter is resolved as, in this order: its entry in ``params``; ``ctx``; ``item`` in a map step; a step; an input;
a variable; its own default. What remains is a ``DefinitionError``, and so are ``*args`` and ``**kwargs``: a function
says by its parameters what it depends on, and those say nothing.

This module knows signatures and names. It refuses to know values: a ``Call`` turns values that others fetched into
arguments.
"""

import enum
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ares.errors import DefinitionError
from ares.workflow.checks import did_you_mean

if sys.version_info >= (3, 14):
    import annotationlib

if TYPE_CHECKING:
    from ares.workflow.graph import Graph, Node

CTX = "ctx"
ITEM = "item"


class BindingKind(enum.Enum):
    """Where a parameter's value comes from."""

    CTX = "ctx"
    #: The element of a map step.
    ITEM = "item"
    #: The output of a step that this one depends on.
    STEP = "step"
    INPUT = "input"
    VARIABLE = "variable"
    #: The step's own output; in its router only.
    OWN = "own"


@attrs.frozen
class Binding:
    """One parameter and what it takes.

    Attributes:
        parameter: the parameter of the function, or the input of a sub-workflow.
        kind: what kind of thing it takes.
        name: the name of that thing.
        index: the position of a STEP in the graph's nodes, of an OWN that of the step itself; -1 otherwise.
    """

    parameter: str
    kind: BindingKind
    name: str
    index: int = -1


@attrs.frozen(eq=False)
class Call:
    """A function and what its parameters take. Parameters that keep their default are not in it.

    Attributes:
        fn: the user's function.
        bindings: one for each parameter to be given, in the order of the signature.
        positional: which of ``bindings`` have to be passed by position, by their positions there.
    """

    fn: Callable[..., Any]
    bindings: tuple[Binding, ...]
    positional: tuple[int, ...] = ()

    def arguments(self, values: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give the arguments and keyword arguments for ``fn``, from one value for each of ``bindings``.

        Raises:
            ValueError: not as many values as bindings.
        """
        named = {b.parameter: value for b, value in zip(self.bindings, values, strict=True)}
        if not self.positional:
            return (), named
        return tuple(named.pop(self.bindings[i].parameter) for i in self.positional), named


class Role(enum.Enum):
    """As what a function is called: decides which names it sees."""

    RUN = "run"
    CONDITION = "condition"
    ROUTER = "router"
    RECONCILE = "reconcile"
    UNTIL = "until"


@attrs.frozen(eq=False)
class Names:
    """What the functions of one workflow may name."""

    workflow_id: str
    steps: Mapping[str, int]
    inputs: Collection[str]
    variables: Collection[str]

    def all(self) -> list[str]:
        """Give every name, for suggestions."""
        return [*self.steps, *self.inputs, *self.variables]


@attrs.frozen(eq=False)
class Scope:
    """What one callable of one step may name.

    Attributes:
        names: the workflow's.
        step_id: the step whose callable it is.
        params: the step's ``params``, with references as names.
        has_ctx: whether ``ctx`` means the context.
        has_item: whether ``item`` means the element of a map.
        has_own: whether the step's own id means its output.
        reachable: the steps that may be named, by index; None: all, as naming one makes it a dependency.
    """

    names: Names
    step_id: str
    params: Mapping[str, str]
    has_ctx: bool = True
    has_item: bool = False
    has_own: bool = False
    reachable: Container[int] | None = None

    def error(self, parameter: str, problem: str) -> DefinitionError:
        """Make the error that names this step and the parameter."""
        return DefinitionError(self.names.workflow_id, problem, self.step_id, parameter)

    def find(self, parameter: str, name: str) -> Binding | None:
        """Give what ``name`` means here for ``parameter``, or None if it means nothing.

        Raises:
            DefinitionError: it means the step itself, or a step that it cannot depend on any more.
        """
        if name == CTX and self.has_ctx:
            return Binding(parameter, BindingKind.CTX, name)
        if name == ITEM and self.has_item:
            return Binding(parameter, BindingKind.ITEM, name)
        index = self.names.steps.get(name)
        if index is not None:
            return self._step(parameter, name, index)
        if name in self.names.inputs:
            return Binding(parameter, BindingKind.INPUT, name)
        if name in self.names.variables:
            return Binding(parameter, BindingKind.VARIABLE, name)
        return None

    def _step(self, parameter: str, name: str, index: int) -> Binding:
        if name == self.step_id:
            if self.has_own:
                return Binding(parameter, BindingKind.OWN, name, index)
            raise self.error(
                parameter,
                f"it names the step itself, a cycle: {name} -> {name}; rename it, or say in params= what it takes",
            )
        if self.reachable is not None and index not in self.reachable:
            problem = f"it names the step {name!r}, on which this agent step does not depend; add it to depends_on"
            raise self.error(parameter, problem)
        return Binding(parameter, BindingKind.STEP, name, index)

    def source(self, parameter: str, name: str) -> Binding:
        """Give what the source ``name``, which the author wrote for ``parameter``, means.

        Raises:
            DefinitionError: it means nothing.
        """
        binding = self.find(parameter, name)
        if binding is None:
            hint = did_you_mean(name, self.names.all())
            raise self.error(parameter, f"it takes {name!r}, which is no step, input or variable{hint}")
        return binding

    def unresolved(self, parameter: str) -> DefinitionError:
        """Make the error for a parameter that nothing was found for."""
        if parameter == ITEM:
            problem = "'item' is the element of a map: it is for the run and reconcile of a step with map_over"
        else:
            hint = did_you_mean(parameter, self.names.all())
            problem = f"it is no step, input or variable, and has no default{hint}"
        return self.error(parameter, problem)


@attrs.frozen
class Parameter:
    """What matters here of a parameter in a signature."""

    name: str
    has_default: bool
    is_positional: bool
    #: ``*`` or ``**`` for one that collects, else empty.
    stars: str
    #: Given by ``functools.partial``.
    is_fixed: bool


_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations may name what exists for type checkers only; nothing here reads them.
        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


class Signatures:
    """Signatures, read once for each function. Serves one compilation, then goes."""

    def __init__(self) -> None:
        # The function is kept beside what is known of it so that its id cannot be given to another meanwhile.
        self._known: dict[int, tuple[Callable[..., Any], tuple[Parameter, ...], bool]] = {}

    def parameters(self, fn: Callable[..., Any]) -> tuple[Parameter, ...]:
        """Give the parameters of ``fn``, in order. Raises what ``inspect.signature`` raises."""
        return self._look(fn)[1]

    def is_coroutine(self, fn: Callable[..., Any]) -> bool:
        """Tell whether calling ``fn`` would give something to await. Raises as ``parameters`` does."""
        return self._look(fn)[2]

    def _look(self, fn: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Parameter, ...], bool]:
        known = self._known.get(id(fn))
        if known is None:
            fixed = fn.keywords if isinstance(fn, functools.partial) else ()
            parameters = tuple(
                Parameter(
                    p.name,
                    p.default is not p.empty,
                    p.kind is p.POSITIONAL_ONLY,
                    _STARS.get(p.kind, ""),
                    p.name in fixed,
                )
                for p in _signature(fn).parameters.values()
            )
            known = self._known[id(fn)] = fn, parameters, _is_coroutine_function(fn)
        return known


def _is_coroutine_function(fn: object) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    bodies = fn, getattr(type(fn), "__call__", None)  # noqa: B004  # not whether it can be called, but by what
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in bodies)


def called(fn: object) -> str:
    """Name a function for a message."""
    name = getattr(fn, "__qualname__", None)
    return repr(name) if isinstance(name, str) else repr(fn)


def parameters_of(fn: Callable[..., Any], scope: Scope, role: Role, signatures: Signatures) -> tuple[Parameter, ...]:
    """Give the parameters of one of a step's callables.

    Raises:
        DefinitionError: it has no signature, collects parameters, or is a coroutine function.
    """
    try:
        parameters = signatures.parameters(fn)
        is_coroutine = signatures.is_coroutine(fn)
    except Exception as error:  # a signature may be computed by the user's code
        problem = f"{role.value} {called(fn)} has no signature to resolve its parameters by ({error}); wrap it"
        raise scope.error("", problem) from error
    if is_coroutine:
        raise scope.error("", f"{role.value} {called(fn)} is a coroutine function, but ares is synchronous")
    for p in parameters:
        if p.stars:
            problem = f"{role.value} {called(fn)} takes {p.stars}{p.name}, but a step names each of its parameters"
            raise scope.error(p.name, problem)
    return parameters


def bind(fn: Callable[..., Any], scope: Scope, role: Role, signatures: Signatures) -> Call:
    """Resolve the parameters of ``fn``.

    Args:
        fn: the user's function, or any other callable with a signature.
        scope: what it may name.
        role: as what it is called, for messages.
        signatures: those read before.

    Raises:
        DefinitionError: a parameter that resolves to nothing, or a function that cannot be called like that.
    """
    bindings: list[Binding] = []
    positional: list[int] = []
    kept = ""
    for p in parameters_of(fn, scope, role, signatures):
        source = scope.params.get(p.name)
        if source is not None:
            binding = scope.source(p.name, source)
        elif p.is_fixed:
            continue
        else:
            found = scope.find(p.name, p.name)
            if found is None:
                if not p.has_default:
                    raise scope.unresolved(p.name)
                kept = kept or (p.name if p.is_positional else "")
                continue
            binding = found
        if p.is_positional:
            if kept:
                raise scope.error(p.name, f"it is positional-only, behind {kept!r}, which nothing is found for")
            positional.append(len(bindings))
        bindings.append(binding)
    return Call(fn, tuple(bindings), tuple(positional))


def unused_params(scope: Scope, used: Collection[str]) -> None:
    """Refuse entries of ``params`` that no callable of the step has a parameter for.

    Raises:
        DefinitionError: the first such entry.
    """
    for parameter in scope.params:
        if parameter not in used:
            hint = did_you_mean(parameter, used)
            raise scope.error(parameter, f"params= names it, but the step has no such parameter{hint}")


def bind_call(fn: Callable[..., Any], node: "Node", graph: "Graph") -> Call:
    """Resolve the parameters of a function that became known after the graph was made: an agent.

    Args:
        fn: what the agent step's ``agent_type`` is registered as.
        node: the step.
        graph: the graph that the step is in.

    Returns:
        The call, as if ``fn`` were the step's ``run``. It may name the steps in ``node.deps``, no others.

    Raises:
        DefinitionError: a parameter that resolves to nothing, or to a step that this one does not depend on; an entry
            of ``params`` that ``fn`` has no parameter for; a coroutine function.
    """
    workflow, spec = graph.workflow, node.spec
    names = Names(workflow.id, graph.by_id, workflow.inputs, workflow.variables)
    params: Any = spec.params
    scope = Scope(names, node.id, params, has_item=node.map_source is not None, reachable=node.deps)
    signatures = Signatures()
    call = bind(fn, scope, Role.RUN, signatures)
    used = {p.name for p in signatures.parameters(fn)}
    for other in (node.condition, node.router, node.reconcile):
        if other is not None:
            used.update(p.name for p in signatures.parameters(other.fn))
    unused_params(scope, used)
    return call
