"""What makes a workflow one that can never run, as far as one workflow or one step by itself can show it.

Each check raises the first problem it finds as a ``DefinitionError`` that names workflow, step and culprit. What takes
the whole graph to see is found by ``compiling`` (references, cycles) and ``writers`` (variables).
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ares.errors import DefinitionError
from ares.questions import Interrupt
from ares.workflow.binding import CTX, ITEM, called
from ares.workflow.checks import did_you_mean, listed, step_id_problem, text_problem, timeout_problem, whole_problem
from ares.workflow.policies import (
    Delivery,
    Loop,
    OnItemFailure,
    OnNoRoute,
    RecoveryPolicy,
    RetryPolicy,
    Trigger,
    permitted,
)
from ares.workflow.reducers import NAMED

if TYPE_CHECKING:
    from ares.workflow.definition import Workflow
    from ares.workflow.graph import Graph, Node
    from ares.workflow.spec import StepSpec


# --- the workflow itself --------------------------------------------------------------------------


# What is checked here is declared to be what it should be: typed as Any where the declaration is in doubt.
def check_workflow(workflow: Any) -> None:
    """Refuse a workflow whose own arguments are no good.

    Raises:
        DefinitionError: the first of them.
    """
    problem = text_problem(workflow.id) or _text(workflow.version, "version") or _names_problem(workflow)
    problem = problem or _reducers_problem(workflow)
    if not problem and not isinstance(workflow.fail_fast, bool):
        problem = f"fail_fast must be True or False, not {workflow.fail_fast!r}"
    for kind in () if problem else workflow.types:
        if not isinstance(kind, type):
            problem = f"types= holds classes, not {kind!r}"
            break
    if not problem and workflow.loop is not None and not isinstance(workflow.loop, Loop):
        problem = f"loop must be a Loop or None, not {workflow.loop!r}"
    if not problem and workflow.loop is not None and not workflow.steps:
        problem = "it has a loop, but no step that would run again"
    if problem:
        raise DefinitionError(str(workflow.id), problem)


def _text(value: object, field: str) -> str:
    return "" if isinstance(value, str) else f"{field} must be a str, not {value!r}"


def _names_problem(workflow: Any) -> str:
    for field, names in (("input", workflow.inputs), ("variable", workflow.variables)):
        for name in names:
            if not isinstance(name, str) or not name:
                return f"the name of an {field} must be a str that is not empty, not {name!r}"
            if name == CTX:
                return f"no {field} can be named {name!r}, which is every step's context"
    for name in workflow.inputs:
        if name in workflow.variables:
            return f"{name!r} is an input and a variable: a parameter of that name would never see what is written"
    return ""


def _reducers_problem(workflow: Any) -> str:
    for name, reducer in workflow.reducers.items():
        if name not in workflow.variables:
            hint = did_you_mean(name, workflow.variables)
            known = listed(workflow.variables)
            return f"there is a reducer for {name!r}, which is no variable{hint}; variables: {known}"
        if isinstance(reducer, str):
            if reducer not in NAMED:
                hint = did_you_mean(reducer, NAMED)
                known = listed(NAMED)
                return f"the reducer of variable {name!r} is {reducer!r}{hint}; permitted: {known}, or a callable"
        elif not callable(reducer):
            return f"the reducer of variable {name!r} must be a callable or one of {listed(NAMED)}, not {reducer!r}"
        elif not _takes_two(reducer):
            return f"the reducer of variable {name!r}, {called(reducer)}, does not take two arguments, old and new"
    return ""


def _takes_two(reducer: Any) -> bool:
    try:
        signature = inspect.signature(reducer)
    except Exception:  # no signature to judge by: it is tried when it is needed
        return True
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


# --- one step by itself ---------------------------------------------------------------------------


def check_step(workflow: "Workflow", spec: "StepSpec") -> None:
    """Refuse a step that is no good whatever the others are.

    Raises:
        DefinitionError: its first problem.
    """
    problem = (
        _id_problem(workflow, spec)
        or _shape_problem(spec)
        or _callables_problem(spec)
        or _policy_problem(spec)
        or _kind_problem(spec)
        or _map_problem(spec)
        or _pool_problem(spec)
        or _branch_problem(spec)
        or _delivery_problem(spec)
        or _interrupt_problem(spec)
        or _executor_problem(spec)
        or _writes_problem(workflow, spec)
    )
    if problem:
        raise DefinitionError(workflow.id, problem, spec.id)


def _id_problem(workflow: "Workflow", spec: "StepSpec") -> str:
    if problem := step_id_problem(spec.id):
        return problem
    if spec.id in (CTX, ITEM):
        return f"no step can be named {spec.id!r}, which a parameter takes for something else"
    for kind, names in (("an input", workflow.inputs), ("a variable", workflow.variables)):
        if spec.id in names:
            return f"{spec.id!r} is {kind} of this workflow: a parameter of that name would mean either"
    return ""


def _shape_problem(spec: Any) -> str:
    problem = (
        _text(spec.name, "name")
        or _text(spec.agent_type, "agent_type")
        or _refs_problem("depends_on", spec.depends_on)
        or _refs_problem("branches", spec.branches)
        or _sources_problem("params", spec.params)
        or _sources_problem("inputs", spec.inputs)
    )
    if not problem and not isinstance(spec.metadata, Mapping):
        problem = f"metadata must be a mapping, not {spec.metadata!r}"
    return problem


def _refs_problem(field: str, refs: Any) -> str:
    if not isinstance(refs, tuple):
        return f"{field} must be a list, not {refs!r}"
    for ref in refs:
        if not isinstance(ref, str) and not callable(ref):
            return f"{field} holds ids or step functions, not {ref!r}"
    return ""


def _sources_problem(field: str, sources: Any) -> str:
    if not isinstance(sources, Mapping):
        return f"{field} must be a mapping, not {sources!r}"
    for name, source in sources.items():
        if not isinstance(name, str):
            return f"{field} has the key {name!r}, which is no name"
        if not isinstance(source, str) and not callable(source):
            rule = "a step, an input or a variable; for a constant use a default or functools.partial"
            return f"{field} says that {name!r} takes {source!r}, but it must name {rule}"
    return ""


def _callables_problem(spec: "StepSpec") -> str:
    for field in ("run", "condition", "router", "reconcile"):
        fn = getattr(spec, field)
        if fn is None:
            continue
        if not callable(fn):
            hint = "; a sub-workflow is given as workflow=" if field == "run" else ""
            return f"{field} must be a callable, not {fn!r}{hint}"
    return ""


def _policy_problem(spec: Any) -> str:
    if problem := timeout_problem(spec.timeout):
        return f"timeout {problem}"
    for field, kind, value in (("retry", RetryPolicy, spec.retry), ("recovery", RecoveryPolicy, spec.recovery)):
        if value is not None and not isinstance(value, kind):
            return f"{field} must be a {kind.__name__} or None, not {value!r}"
    if spec.max_crashes is not None and (problem := whole_problem(spec.max_crashes, 1)):
        return f"max_crashes {problem} (None: no limit)"
    for field, option, value in (
        ("on_item_failure", OnItemFailure, spec.on_item_failure),
        ("delivery", Delivery, spec.delivery),
        ("on_no_route", OnNoRoute, spec.on_no_route),
        ("trigger", Trigger, spec.trigger),
    ):
        if not isinstance(value, option):
            return f"{field} must be one of {permitted(option)}, not {value!r}"
    return ""


def _kind_problem(spec: "StepSpec") -> str:
    if spec.workflow is None:
        if spec.inputs:
            return "inputs= is for a sub-workflow step"
        is_something = spec.run is not None or spec.agent_type
        return "" if is_something else "it has nothing to run: give run, agent_type or workflow"
    if spec.run is not None or spec.agent_type:
        return f"it has a workflow and {'a run' if spec.run is not None else 'an agent_type'}: a step runs one thing"
    if spec.writes:
        return "writes= is for steps with a body; a sub-workflow has variables of its own"
    return ""


def _map_problem(spec: "StepSpec") -> str:
    if spec.map_over is None:
        if spec.max_concurrency is not None:
            return (
                "max_concurrency is for the elements of a step with map_over; what else runs at once is limited by pool"
            )
        if spec.on_item_failure is not OnItemFailure.FAIL:
            return "on_item_failure is for a step with map_over"
        return ""
    if not isinstance(spec.map_over, str) and not callable(spec.map_over):
        return f"map_over must be a step's id or function, not {spec.map_over!r}"
    if spec.max_concurrency is not None and (problem := whole_problem(spec.max_concurrency, 1)):
        return f"max_concurrency {problem} (None: as many as there are workers)"
    return ""


def _pool_problem(spec: Any) -> str:
    if spec.pool is None:
        return ""
    if not isinstance(spec.pool, str) or not spec.pool:
        return f"pool must be the name of one, a non-empty str, not {spec.pool!r}"
    return "a sub-workflow takes no slot of a pool; its steps can" if spec.workflow is not None else ""


def _branch_problem(spec: "StepSpec") -> str:
    if spec.branches:
        return ""
    if spec.router is not None:
        return "it has a router but no branches to choose from"
    if spec.on_no_route is not OnNoRoute.FAIL:
        return "on_no_route is for a step with branches"
    return ""


def _delivery_problem(spec: "StepSpec") -> str:
    if spec.delivery is Delivery.AT_MOST_ONCE:
        return "a sub-workflow cannot be at_most_once; its steps can" if spec.workflow is not None else ""
    return "reconcile is for at_most_once delivery" if spec.reconcile is not None else ""


def _interrupt_problem(spec: Any) -> str:
    if spec.interrupt is None:
        return ""
    asked = spec.interrupt
    message = asked.message if isinstance(asked, Interrupt) else asked
    if not isinstance(message, str) or not message:
        return f"interrupt must be a question, a str or an Interrupt, not {asked!r}"
    payload: Mapping[Any, Any] = asked.payload if isinstance(asked, Interrupt) else {}
    for name, value in payload.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"the payload of its interrupt holds strings by name, not {name!r}: {value!r}"
    return ""


def _executor_problem(spec: Any) -> str:
    if spec.executor is None:
        return ""
    if not isinstance(spec.executor, str) or not spec.executor:
        return f"executor must be the name of one that the Runtime has, a str, not {spec.executor!r}"
    return "a sub-workflow has no executor; its steps may have" if spec.workflow is not None else ""


def _writes_problem(workflow: "Workflow", spec: Any) -> str:
    if not isinstance(spec.writes, tuple):
        return f"writes must be a list, not {spec.writes!r}"
    for name in spec.writes:
        if not isinstance(name, str):
            return f"writes holds the names of variables, not {name!r}"
        if name not in workflow.variables:
            hint = did_you_mean(name, workflow.variables)
            return f"it writes {name!r}, which is no variable{hint}; variables: {listed(workflow.variables)}"
    return ""


# --- branches, on the finished graph --------------------------------------------------------------


def check_branches(graph: "Graph") -> None:
    """Refuse branch points whose branches cannot be what they are declared to be.

    Raises:
        DefinitionError: the branch point and the branch.
    """
    for point in graph.nodes:
        for index in point.branches:
            if problem := _branch_rule(graph, point, graph.nodes[index]):
                raise DefinitionError(graph.workflow.id, problem, point.id)


def _branch_rule(graph: "Graph", point: "Node", branch: "Node") -> str:
    if point.index not in branch.deps:
        return f"its branch {branch.id!r} does not depend on it directly; add it to that step's depends_on"
    if branch.branch_of != point.index and branch.branch_of is not None:
        return f"its branch {branch.id!r} is a branch of {graph.nodes[branch.branch_of].id!r} already"
    if branch.spec.trigger is Trigger.ALWAYS:
        return f"its branch {branch.id!r} has trigger 'always' and would run without being chosen"
    return ""


def check_all_routes(graph: "Graph") -> None:
    """Refuse ``on_no_route="all"`` where taking all branches could lose a write.

    Raises:
        DefinitionError: the branch point, two branches and the variable.
    """
    for point in graph.nodes:
        if point.spec.on_no_route is not OnNoRoute.ALL:
            continue
        conflict = graph.route_conflict(point.index, point.branches)
        if conflict is not None:
            one, other = conflict.branches
            problem = (
                f"on_no_route='all' takes {one!r} and {other!r}, which may both write variable {conflict.variable!r}; "
                f"give it a reducer"
            )
            raise DefinitionError(graph.workflow.id, problem, point.id)
