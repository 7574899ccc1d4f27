"""The arguments of a Runtime's calls, looked at before anything happens."""

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any, TypeVar

from ares.engine.attempt import Attempt
from ares.engine.beginning import RunRequest, new_id
from ares.engine.definitions import Definition
from ares.errors import UsageError
from ares.workflow import Workflow
from ares.workflow.checks import text_problem, whole_problem

E = TypeVar("E", bound=StrEnum)


def check_id(execution_id: object) -> None:
    """Refuse what cannot be the id of an execution.

    Raises:
        UsageError: it is empty, too long, or holds control characters.
    """
    problem = text_problem(execution_id)
    if problem:
        raise UsageError(f"no id of an execution: {problem}")


def option(kind: type[E], name: str, value: Any) -> E:
    """The member that ``value`` means.

    Raises:
        UsageError: it means none; the permitted ones are named.
    """
    try:
        return kind(value)
    except ValueError:
        permitted = ", ".join(repr(str(member)) for member in kind)
        raise UsageError(f"{name} must be one of {permitted}, not {value!r}") from None


def worker_count(value: Any) -> int:
    """How many steps run at once.

    Raises:
        UsageError: it is no whole number from 1.
    """
    if value is None:
        return min(32, (os.cpu_count() or 1) + 4)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"max_workers must be a whole number from 1, not {value!r}")
    return value


def executors_by_name(value: Any) -> dict[str, Executor | Callable[[], Executor]]:
    """The executors that a Runtime is given.

    Raises:
        UsageError: they are no mapping of names to executors, or to what makes one; says which.
    """
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"executors must map names to executors, not be {value!r}")
    found: dict[Any, Any] = dict(value or {})
    for name, each in found.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"executors must map names to executors: {name!r} is no name")
        if not isinstance(each, Executor) and not _needs_nothing(each):
            problem = f"must be a concurrent.futures.Executor or make one without arguments, not {each!r}"
            raise UsageError(f"executors[{name!r}] {problem}")
    return found


def _needs_nothing(factory: Any) -> bool:
    if not callable(factory):
        return False
    try:
        inspect.signature(factory).bind()
    except TypeError:
        return False
    except ValueError:
        return True  # no signature to judge by
    return True


def pool_sizes(value: Any) -> dict[str, int]:
    """How many slots each pool has, by its name.

    Raises:
        UsageError: it is no mapping of names to whole numbers from 1.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"pools must map the names of pools to their sizes, not {value!r}")
    for name, size in value.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of a pool must be a non-empty str, not {name!r}")
        if problem := whole_problem(size, 1):
            raise UsageError(f"the size of pool {name!r} {problem}")
    return dict(value)


def check_timeout(value: Any) -> None:
    """Refuse what is no number of seconds above 0, unless it is None.

    Raises:
        UsageError: it is not.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise UsageError(f"timeout must be a number of seconds above 0, not {value!r}")


def lease_seconds(value: Any) -> float:
    """How long another owner has to give no sign before it counts as gone.

    Raises:
        UsageError: it is no number of seconds from 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise UsageError(f"lease_timeout must be a number of seconds from 1, not {value!r}")
    return float(value)


def recover_seconds(value: Any, workflows: Collection[Workflow]) -> float | None:
    """How often a Runtime recovers by itself; None for never.

    Raises:
        UsageError: it is no number of seconds above 0, or there is nothing that could be taken up.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"recover_interval must be a number of seconds above 0, not {value!r}")
    if not workflows:
        raise UsageError("recover_interval needs workflows=: those are what it takes up")
    return float(value)


def run_metadata(value: Mapping[str, str] | None) -> dict[str, str]:
    """A run's metadata, as a dict of its own.

    Raises:
        UsageError: something in it is no str.
    """
    found: dict[Any, Any] = dict(value or {})
    for name, text in found.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError(f"metadata must map str to str, not {name!r} to {text!r}")
    return found


def run_request(
    definition: Definition,
    inputs: Mapping[str, Any] | None,
    execution_id: str | None,
    metadata: Mapping[str, str] | None,
    timeout: float | None,
    parent: Attempt | None,
) -> RunRequest:
    """What a run asks for.

    Raises:
        UsageError: the id, the timeout or the metadata cannot be one.
        InputError: the inputs do not fit.
    """
    if execution_id is None:
        execution_id = new_id()
    check_id(execution_id)
    check_timeout(timeout)
    bound = definition.graph.workflow.bind_inputs(inputs)
    parent_id = None if parent is None else parent.driver.execution_id
    return RunRequest(execution_id, bound, run_metadata(metadata), timeout, parent_id)


def paths_of(definition: Definition, rerun: str | Iterable[Any]) -> str | tuple[str, ...]:
    """What ``rerun`` names, functions of steps as their ids."""
    if isinstance(rerun, str):
        return rerun
    return tuple(definition.graph.workflow.step_id(r) if callable(r) else r for r in rerun)
