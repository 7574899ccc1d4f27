"""One step as its author wrote it: every field there is, with lists as tuples and option strings as members.

Knows the fields and their forms. Refuses to judge: a spec stands for itself, and whether it can run is found out by
its workflow (``validation``, ``compiling``), where the error can say whose step it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Union

import attrs

from ares.errors import UsageError
from ares.questions import Interrupt
from ares.workflow.policies import (
    UNSET,
    Delivery,
    OnItemFailure,
    OnNoRoute,
    RecoveryPolicy,
    RetryPolicy,
    Trigger,
    as_delivery,
    as_option,
)

if TYPE_CHECKING:
    from ares.workflow.definition import Workflow

Function = Callable[..., Any]
#: Names a step: its id, the function it runs, or its spec.
StepRef = Union[str, Function, "StepSpec"]

#: Shared by the specs that have nothing to put in a mapping: most of them, of perhaps 100,000.
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def _as_id(value: Any) -> Any:
    # The value of a str subclass, not what its __str__ makes of it: class E(str, Enum) would say "E.NAME".
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def _id(value: str) -> str:
    return _as_id(value)  # type: ignore[no-any-return]  # what is no str is left to the workflow


def _as_ref(value: Any) -> Any:
    if isinstance(value, StepSpec):
        return value.id
    return _as_id(value)


def _sort_key(value: Any) -> str:
    return value if isinstance(value, str) else str(getattr(value, "__qualname__", ""))


def _as_refs(value: Any) -> Any:
    """Make a tuple of references; a single one counts as one, so that "fetch" is not five one-letter steps."""
    if value is None or (type(value) is tuple and not value):
        return ()
    if isinstance(value, str | StepSpec) or callable(value):
        return (_as_ref(value),)
    if not isinstance(value, Iterable):
        return value
    # A set has another order in each process: dependencies and fingerprints must not.
    members = sorted(value, key=_sort_key) if isinstance(value, set | frozenset) else value
    return tuple(map(_as_ref, members))


def _as_map_source(value: Any) -> Any:
    return None if value is None else _as_ref(value)


def _as_mapping(value: Any) -> Any:
    if value is None or value is _EMPTY:
        return _EMPTY
    if not isinstance(value, Mapping):
        return value
    return MappingProxyType({_as_id(k): _as_ref(v) for k, v in value.items()}) if value else _EMPTY


def _as_metadata(value: Any) -> Any:
    # A dict of its own, unlike the mappings above: it is handed on and journaled.
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else value


def _as_trigger(value: Trigger | str) -> Trigger:
    return as_option(Trigger, value)  # type: ignore[no-any-return]  # a stranger is left to validation


def _as_on_item_failure(value: OnItemFailure | str) -> OnItemFailure:
    return as_option(OnItemFailure, value)  # type: ignore[no-any-return]  # a stranger is left to validation


def _as_on_no_route(value: OnNoRoute | str) -> OnNoRoute:
    return as_option(OnNoRoute, value)  # type: ignore[no-any-return]  # a stranger is left to validation


@attrs.frozen
class StepSpec:
    """A step of a workflow. ``Workflow.step`` and ``Workflow.add`` take the same fields.

    Attributes:
        id: names the step in its workflow and is a segment of its path.
        run: the function it runs; its parameters are resolved by name.
        name: for people; the id unless given.
        agent_type: without ``run``: the registered agent that it runs; beside ``run``: a label.
        depends_on: steps that must be final first, without taking their values.
        params: which step, input or variable a parameter takes, where names alone would not do.
        map_over: the step over whose list this one runs, once per element.
        max_concurrency: how many elements of a map run at once; None: as many as there are workers.
        on_item_failure: whether a failed element fails the map, or is collected as an ``ItemFailure``.
        timeout: seconds that an attempt may take; None: no limit.
        retry: how failed attempts are repeated; None: one attempt.
        recovery: what happens when retries are spent.
        delivery: what is promised about a body that was cut short.
        reconcile: finds out whether an ``at_most_once`` body that was cut short took effect.
        max_crashes: how often the process may die during the step, 3 unless set; None: no limit.
        interrupt: a question to a human before the body.
        condition: decides whether the step runs at all; called like a step function.
        branches: the steps of which this one chooses; both depend on it directly.
        router: chooses among them; called like a step function.
        on_no_route: what happens when nobody chose.
        trigger: when the step runs, given how its dependencies ended.
        writes: the variables it may set.
        workflow: a sub-workflow, run in place of a function.
        inputs: which step, input or variable an input of the sub-workflow takes, where names alone would not do.
        executor: the name of one of the Runtime's executors, where the body runs; None: on a worker of its own.
        pool: the pool of the Runtime, by name, of which each attempt of its body (of a map: of each element's) takes a
            slot, and each call of ``reconcile``; None: there is no limit but the workers.
        metadata: the author's own, handed to plugins.

    ``timeout``, ``retry``, ``recovery``, ``delivery`` and ``max_crashes`` are UNSET until the spec is added to a
    workflow, and then the workflow's default unless they were given, be it as None.
    """

    id: str = attrs.field(converter=_id)
    run: Function | None = None
    name: str = ""
    agent_type: str = ""
    depends_on: tuple[StepRef, ...] = attrs.field(default=(), converter=_as_refs)
    params: Mapping[str, StepRef] = attrs.field(default=_EMPTY, converter=_as_mapping, hash=False)
    map_over: StepRef | None = attrs.field(default=None, converter=_as_map_source)
    max_concurrency: int | None = None
    on_item_failure: OnItemFailure = attrs.field(default=OnItemFailure.FAIL, converter=_as_on_item_failure)
    timeout: float | None = UNSET
    retry: RetryPolicy | None = UNSET
    recovery: RecoveryPolicy | None = UNSET
    delivery: Delivery = attrs.field(default=UNSET, converter=as_delivery)
    reconcile: Function | None = None
    max_crashes: int | None = UNSET
    interrupt: Interrupt | str | None = None
    condition: Function | None = None
    branches: tuple[StepRef, ...] = attrs.field(default=(), converter=_as_refs)
    router: Function | None = None
    on_no_route: OnNoRoute = attrs.field(default=OnNoRoute.FAIL, converter=_as_on_no_route)
    trigger: Trigger = attrs.field(default=Trigger.NONE_FAILED, converter=_as_trigger)
    writes: tuple[str, ...] = attrs.field(default=(), converter=_as_refs)
    workflow: "Workflow | None" = None
    inputs: Mapping[str, StepRef] = attrs.field(default=_EMPTY, converter=_as_mapping, hash=False)
    executor: str | None = attrs.field(default=None, converter=_as_id)
    pool: str | None = attrs.field(default=None, converter=_as_id)
    metadata: Mapping[str, Any] = attrs.field(factory=dict, converter=_as_metadata, hash=False)


class StepOptions(TypedDict, total=False):
    """The keyword arguments of ``Workflow.step``: the fields of ``StepSpec`` without its id and what it runs."""

    name: str
    agent_type: str
    depends_on: StepRef | Iterable[StepRef]
    params: Mapping[str, StepRef]
    map_over: StepRef | None
    max_concurrency: int | None
    on_item_failure: OnItemFailure | str
    timeout: float | None
    retry: RetryPolicy | None
    recovery: RecoveryPolicy | None
    delivery: Delivery | str
    reconcile: Function | None
    max_crashes: int | None
    interrupt: Interrupt | str | None
    condition: Function | None
    branches: StepRef | Sequence[StepRef]
    router: Function | None
    on_no_route: OnNoRoute | str
    trigger: Trigger | str
    writes: str | Iterable[str]
    executor: str | None
    pool: str | None
    metadata: Mapping[str, Any]


@attrs.frozen(init=False)
class Goto:
    """What a branch point's body returns to choose its branches itself.

    ``Goto("a")`` takes one, ``Goto("a", "b")`` both, ``Goto()`` none. Which id a function stands for is the
    workflow's knowledge: ``Workflow.target_ids`` resolves ``targets``.

    Attributes:
        targets: the branches to take, by id or by the step's function.
        value: the step's output.
    """

    targets: tuple[StepRef, ...]
    value: Any

    def __init__(self, *targets: StepRef, value: Any = None) -> None:
        """Choose ``targets``.

        Raises:
            UsageError: a target that is neither an id nor a function, such as a list of them.
        """
        for target in targets:
            if not isinstance(target, str | StepSpec) and not callable(target):
                raise UsageError(f"Goto takes ids or step functions, one argument each, not {target!r}")
        self.__attrs_init__(tuple(map(_as_ref, targets)), value)
