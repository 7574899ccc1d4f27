"""What a user writes: a ``Workflow``, and the decorator that makes its steps of functions.

Knows what was declared, in which order, and under which ids. Refuses to know whether it can run, until ``validate``
asks; only an id that is taken is refused at once, where the second step stands. Nothing here runs a step.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, overload

import attrs

from ares.errors import DefinitionError, InputError
from ares.workflow.binding import Signatures, called
from ares.workflow.checks import did_you_mean, listed
from ares.workflow.compiling import compile_graph, nesting
from ares.workflow.graph import Graph
from ares.workflow.policies import UNSET, Delivery, Input, Loop, StepDefaults
from ares.workflow.reducers import NAMED, Reducer
from ares.workflow.references import References
from ares.workflow.spec import StepOptions, StepRef, StepSpec

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = tuple(a.name for a in attrs.fields(StepSpec) if a.name not in ("id", "run"))


class Workflow:
    """A DAG of steps that a Runtime can run, any number of times.

    Build it in one place, then use it from any thread. Steps may be added until it runs; a run that has begun goes on
    with the graph it began with.
    """

    def __init__(
        self,
        id: str,
        *,
        version: str = "",
        inputs: Mapping[str, Any] = MappingProxyType({}),
        variables: Mapping[str, Any] = MappingProxyType({}),
        reducers: Mapping[str, Reducer | str] = MappingProxyType({}),
        defaults: StepDefaults | None = None,
        loop: Loop | None = None,
        fail_fast: bool = False,
        types: Sequence[type] = (),
    ) -> None:
        """Declare a workflow without steps.

        Args:
            id: names the workflow; executions are found by it.
            version: the author's; a resume under another version is refused.
            inputs: the names of what a run must be given, each with its type or an ``Input``.
            variables: names and initial values of what steps may write.
            reducers: for a variable that several steps write: a function of old and new value, or one of ``append``,
                ``extend``, ``add``, ``merge``.
            defaults: the policies of steps that do not set their own.
            loop: that it has more than one round.
            fail_fast: whether a failure keeps everything from starting, but for ``always`` steps.
            types: classes whose instances steps return, to be stored by their fields.

        Raises:
            DefinitionError: an argument that cannot be kept. What is wrong beyond that, ``validate`` says.
        """
        self.id = id
        self.version = version
        self.loop = loop
        self.fail_fast = fail_fast
        kept = {"inputs": inputs, "variables": variables, "reducers": reducers}
        for field, mapping in kept.items():
            if not isinstance(mapping, Mapping):
                raise DefinitionError(str(id), f"{field} must be a mapping, not {mapping!r}")
        self.inputs: Mapping[str, Input] = MappingProxyType(
            {name: kind if isinstance(kind, Input) else Input(kind) for name, kind in inputs.items()}
        )
        self.variables: Mapping[str, Any] = MappingProxyType(dict(variables))
        self.reducers: Mapping[str, Reducer | str] = MappingProxyType(dict(reducers))
        self.defaults = StepDefaults() if defaults is None else defaults
        if not isinstance(self.defaults, StepDefaults):
            raise DefinitionError(str(id), f"defaults must be StepDefaults, not {defaults!r}")
        if isinstance(types, type) or not isinstance(types, Iterable):
            raise DefinitionError(str(id), f"types must be a list of classes, not {types!r}")
        self.types: tuple[type, ...] = tuple(types)
        self._begin()

    def _begin(self) -> None:
        self._specs: dict[str, StepSpec] = {}
        self._nested: dict[int, Workflow] = {}
        self._references = References()
        self._graph: Graph | None = None

    def __repr__(self) -> str:
        return f"<Workflow {self.id!r}, {len(self._specs):,} steps>"

    # --- building ---------------------------------------------------------------------------------

    @overload
    def step(self, fn: F, /, *, id: str = ..., **options: Unpack[StepOptions]) -> F: ...

    @overload
    def step(self, /, *, id: str = ..., **options: Unpack[StepOptions]) -> Callable[[F], F]: ...

    def step(self, fn: Any = None, /, *, id: str | None = None, **options: Any) -> Any:
        """Make a step of a function: as ``@wf.step``, ``@wf.step(id=..., retry=...)`` or ``wf.step(fn, id=...)``.

        Args:
            fn: the function; what its parameters are named after is what it gets.
            id: the step's id; the function's name unless given.
            options: the fields of ``StepSpec``.

        Returns:
            The very function, which stays callable as it was and is accepted wherever an id is; or the decorator.

        Raises:
            DefinitionError: the id is taken, or there is none.
            TypeError: an option that does not exist.
        """
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f"step() has no option {name!r}{did_you_mean(name, _OPTIONS)}")

        def add(run: Any) -> Any:
            self.add(StepSpec(self._id_for(run, id), run, **options))
            return run

        return add if fn is None else add(fn)

    def _id_for(self, fn: Any, id: str | None) -> str:
        if not callable(fn):
            hint = f": write @wf.step(id={fn!r})" if isinstance(fn, str) else ""
            raise DefinitionError(str(self.id), f"a step is made of a function, not of {fn!r}{hint}")
        if id is not None:
            return id
        name = getattr(fn, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise DefinitionError(str(self.id), f"{called(fn)} has no name to be the step's id: give id=")
        return name

    def add(self, spec: StepSpec) -> StepSpec:
        """Add a step.

        Returns:
            The step as it stands in the workflow, defaults filled in. Accepted wherever an id is.

        Raises:
            DefinitionError: the id is taken or no str, or the workflow of a sub-workflow step is none.
        """
        if not isinstance(spec, StepSpec):
            raise DefinitionError(str(self.id), f"add takes a StepSpec, not {spec!r}")
        if not isinstance(spec.id, str):
            raise DefinitionError(str(self.id), f"the id of a step is a str, not {spec.id!r}")
        if spec.id in self._specs:
            raise DefinitionError(str(self.id), f"there is a step {spec.id!r} already", spec.id)
        child = spec.workflow
        if child is not None and not isinstance(child, Workflow):
            raise DefinitionError(str(self.id), f"workflow must be a Workflow, not {child!r}", spec.id)
        spec = self._filled(spec)
        if spec.run is not None:
            self._references.add(spec.run, spec.id)
        if child is not None:
            self._nested[id(child)] = child
        self._specs[spec.id] = spec
        return spec

    def _filled(self, spec: StepSpec) -> StepSpec:
        """Give the spec with a name, and the workflow's defaults where it has nothing of its own."""
        defaults = self.defaults
        found: dict[str, Any] = {} if spec.name != "" else {"name": spec.id}
        for field in ("timeout", "retry", "recovery", "delivery", "max_crashes"):
            if getattr(spec, field) is UNSET:
                found[field] = getattr(defaults, field)
        # A sub-workflow has no body whose start could be committed; its steps have a delivery of their own.
        if spec.workflow is not None and "delivery" in found:
            found["delivery"] = Delivery.AT_LEAST_ONCE
        return attrs.evolve(spec, **found)

    def replace(
        self, functions: Mapping[StepRef, Callable[..., Any]] | None = None, /, **by_id: Callable[..., Any]
    ) -> "Workflow":
        """Give a copy in which some steps run other functions, for tests: ``wf.replace(charge=fake)``.

        What a replaced function depended on stays a dependency, whatever parameters the new one has; entries of
        ``params`` that the new one has no parameter for go. In the copy both functions stand for the step.

        Args:
            functions: the new functions by step; ``"child/step"`` names a step of a sub-workflow.
            by_id: likewise, by ids that are Python names.

        Raises:
            DefinitionError: an unknown step, or one that runs a sub-workflow; this workflow itself is no good.
        """
        plans: dict[tuple[str, ...], dict[str, Any]] = {(): {}}
        for ref, fn in (*(functions or {}).items(), *by_id.items()):
            *outer, step = ref.split("/") if isinstance(ref, str) else (ref,)
            if not callable(fn):
                raise DefinitionError(str(self.id), f"the new function of {step!r} must be a callable, not {fn!r}")
            path = tuple(map(str, outer))
            for depth in range(len(path)):
                plans.setdefault(path[: depth + 1], {})
            plans[path][self._inside(path).step_id(step)] = fn
        self.graph()
        changed = self
        for path in sorted(plans, key=len, reverse=True):
            changed = self._inside(path)._changed(plans[path])  # noqa: SLF001  # of its own class
            if path:
                plans[path[:-1]][path[-1]] = changed
        return changed

    def _inside(self, path: tuple[str, ...]) -> "Workflow":
        workflow = self
        for step in path:
            child = workflow._specs[workflow.step_id(step)].workflow
            if child is None:
                raise DefinitionError(str(workflow.id), "it runs no sub-workflow", step)
            workflow = child
        return workflow

    def _changed(self, changes: "Mapping[str, Callable[..., Any] | Workflow]") -> "Workflow":
        """Give a copy in which the named steps run something else."""
        graph = self.graph()
        other = copy.copy(self)
        other._begin()  # noqa: SLF001  # of its own class
        other._references.include(self._references)  # noqa: SLF001  # of its own class
        for node in graph.nodes:
            spec, change = self._specs[node.id], changes.get(node.id)
            if isinstance(change, Workflow):
                spec = attrs.evolve(spec, workflow=change)
            elif change is not None:
                if spec.workflow is not None:
                    problem = f"it runs a sub-workflow, whose steps are replaced by '{node.id}/step'"
                    raise DefinitionError(str(self.id), problem, node.id)
                params = _understood(spec, change)
                spec = attrs.evolve(spec, run=change, depends_on=graph.ids(node.deps), params=params)
            other.add(spec)
        return other

    # --- reading ----------------------------------------------------------------------------------

    @property
    def steps(self) -> tuple[StepSpec, ...]:
        """The steps in definition order."""
        return tuple(self._specs.values())

    @property
    def nested(self) -> "tuple[Workflow, ...]":
        """The workflows that steps of this one run, each once."""
        return tuple(self._nested.values())

    def find(self, ref: StepRef) -> tuple[str, str]:
        """Give the id that ``ref`` means and no problem, or no id and the problem as words."""
        return self._references.resolve(ref, self._specs)

    def step_id(self, ref: StepRef) -> str:
        """Give the id that ``ref``, a step's id or function, means.

        Raises:
            DefinitionError: no step, or the function of several.
        """
        found, problem = self.find(ref)
        if problem:
            raise DefinitionError(str(self.id), problem)
        return found

    def target_ids(self, targets: Iterable[StepRef]) -> tuple[str, ...]:
        """Give the ids that a route names, each once, in order; what is no step is left as a name, for the error.

        Args:
            targets: of a ``Goto``, or what a router returned.
        """
        names = (self.find(t)[0] or (t if isinstance(t, str) else called(t)) for t in targets)
        return tuple(dict.fromkeys(names))

    def reducer(self, name: str) -> Reducer | None:
        """Give the function that combines the writes of a variable, or None if it has none.

        Raises:
            DefinitionError: a reducer of that name does not exist.
        """
        reducer = self.reducers.get(name)
        if not isinstance(reducer, str):
            return reducer
        if reducer not in NAMED:
            problem = f"the reducer of variable {name!r} is {reducer!r}; permitted: {listed(NAMED)}"
            raise DefinitionError(str(self.id), problem)
        return NAMED[reducer]

    def bind_inputs(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Match what a run is given with the declared inputs.

        Returns:
            A value for each declared input, in the order of the declaration; values pass as they are.

        Raises:
            InputError: inputs that are missing or unknown, and the permitted ones.
        """
        if given is not None and not isinstance(given, Mapping):
            raise InputError(str(self.id), f"inputs must be a mapping, not {given!r}")
        given = given or {}
        permitted = listed(self.inputs)
        unknown = [name for name in given if name not in self.inputs]
        if unknown:
            hint = did_you_mean(unknown[0], self.inputs)
            raise InputError(str(self.id), f"unknown inputs {listed(unknown)}{hint}; permitted: {permitted}")
        missing = [name for name, i in self.inputs.items() if i.is_required and name not in given]
        if missing:
            raise InputError(str(self.id), f"missing inputs {listed(missing)}; declared: {permitted}")
        return {name: given.get(name, declared.default) for name, declared in self.inputs.items()}

    def validate(self) -> Graph:
        """Find out whether the workflow can run. The same as ``graph``.

        Raises:
            DefinitionError: why it cannot.
        """
        return self.graph()

    def graph(self) -> Graph:
        """Give the graph, made at the first call and again after a step was added, here or in a sub-workflow.

        Raises:
            DefinitionError: the workflow cannot run.
        """
        made: dict[int, Graph] = {}
        for workflow in nesting(self):
            made[id(workflow)] = workflow._over(made)  # noqa: SLF001  # of its own class
        return made[id(self)]

    def _over(self, made: Mapping[int, Graph]) -> Graph:
        graph = self._graph
        if graph is None or not graph.is_made_of(len(self._specs), [made[i] for i in self._nested]):
            # Two threads may both get here; they make the same, and one assignment of the two lasts.
            graph = self._graph = compile_graph(self, made)
        return graph


def _understood(spec: StepSpec, fn: Callable[..., Any]) -> Mapping[str, StepRef]:
    """Give the entries of ``params`` that a step still has parameters for when it runs ``fn``."""
    signatures = Signatures()
    try:
        callables = (fn, spec.condition, spec.router, spec.reconcile)
        names = {p.name for c in callables if c is not None for p in signatures.parameters(c)}
    except Exception:  # no signature: binding says so, with the step's name
        return spec.params
    return {name: source for name, source in spec.params.items() if name in names}
