"""The whole state of a walk as plain data, to be compared: all that facts say, nothing that only lives."""

from typing import Any

from ares.walk.instance import Instance, Scope
from ares.walk.parts import ACTIVE, NEW
from ares.walk.state import State
from ares.walk.table import Phase
from ares.workflow.reducers import combine
from tests.walk.script import show


def snapshot(state: State) -> dict[str, Any]:
    """Everything that a journal says."""
    return {
        "epoch": state.epoch,
        "cancelled": state.cancelled,
        "overdue": state.overdue,
        "timeout": state.timeout,
        "ended": state.ended,
        "reborn": dict(state.reborn),
        "unsure": sorted(state.unsure),
        "waiting": sorted(state.waiting),
        "answers": {path: (born, dict(answers)) for path, (born, answers) in sorted(state.answers.items())},
        "scopes": {prefix: _scope(scope) for prefix, scope in state.scopes.items()},
    }


def _scope(scope: Scope) -> dict[str, Any]:
    return {
        "owner": scope.owner and scope.owner.path,
        "order": scope.order,
        "round": scope.round,
        "epoch": scope.epoch,
        "over": scope.over,
        "before": variables_before(scope),
        "stop": scope.stop,
        "overdue": scope.overdue,
        "failures": [i.path for i in scope.failures],
        "writes": [(name, value, writer.path) for name, value, writer in scope.writes],
        "instances": {i.path: _instance(i) for i in scope.instances},
    }


def variables_before(scope: Scope) -> dict[str, Any]:
    """The variables when the round began."""
    workflow = scope.graph.workflow
    values = dict(workflow.variables if scope.start is None else scope.start)
    for name, written in scope.carried.items():
        values[name] = combine(workflow.reducers.get(name), values[name], written)
    return values


def _instance(instance: Instance) -> dict[str, Any]:
    kept = (
        "phase", "epoch", "born", "attempt", "crashes", "condition", "unknown", "reason", "origin", "targets",
        "unrouted", "delay", "duration", "index", "question", "answer", "granted", "recoveries", "retryable",
    )  # fmt: skip
    found = {name: getattr(instance, name) for name in kept}
    found["answers"] = dict(instance.answers)
    found["output"] = show(instance.output)
    # Of a sub-workflow whose failure is looked at, only the living know the error.
    found["error"] = None if instance.phase is Phase.OPEN else instance.error
    found["child"] = instance.child and instance.child.prefix
    found["parts"] = instance.parts and _parts(instance)
    return found


def _parts(owner: Instance) -> dict[str, Any]:
    parts = owner.parts
    assert parts is not None
    active = {i: e for i, e in parts.active.items() if e.phase is not Phase.PENDING}
    states = [NEW if s == ACTIVE and i not in active else s for i, s in enumerate(parts.states)]
    return {
        "states": states,
        "outputs": [show(o) for o in parts.outputs],
        "attempts": dict(sorted(parts.attempts.items())),
        "writes": dict(sorted(parts.writes.items())),
        "ended": parts.ended,
        "active": {i: _instance(e) for i, e in sorted(active.items())},
        "failed": {i: _instance(e) for i, e in sorted(parts.failed.items())},
    }
