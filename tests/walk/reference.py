"""A naive interpreter of DESIGN section 4: what must become of a workflow whose steps behave as scripted.

Slow, recursive and written from the page alone; it shares no code with ``ares.walk``. ``interpret`` gives the one
outcome of a case where there is only one. ``Judge`` looks at any outcome, step by step: given how the dependencies of a
step ended, could it have ended like this? That covers races too (which steps a failure under ``fail_fast`` still
caught, what a cancel cut short), because what only a race decides is permitted by rule, and nothing else is.

Both see an outcome as ``Result``s by path, so that a shell's result can be judged as well as a walk's.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ares.errors import NotDone
from ares.workflow import (
    BindingKind,
    Delivery,
    Graph,
    ItemFailure,
    Node,
    OnItemFailure,
    OnNoRoute,
    Trigger,
)
from tests.walk.script import Boom, Fatal, Returned, show
from tests.walk.strategies import Case

COMPLETED, FAILED, SKIPPED, PENDING = "COMPLETED", "FAILED", "SKIPPED", "PENDING"
BLOCKING = ("upstream_failed", "no_route", "fail_fast", "timeout", "cancelled", "rejected")
CUTTING = frozenset({"cancelled", "timeout"})
BOOM = f"{Boom.__module__}.{Boom.__qualname__}"
FATAL = f"{Fatal.__module__}.{Fatal.__qualname__}"


@attrs.define
class Result:
    """How one instance ended. ``reason`` is the kind of a skip, ``error`` what is shown of a failure or of no route."""

    status: str
    reason: str = ""
    origin: str = ""
    output: Any = None
    attempts: int = 0
    error: str = ""

    @property
    def is_broken(self) -> bool:
        return self.status == FAILED or (self.status == COMPLETED and bool(self.error))

    @property
    def blocks(self) -> bool:
        return self.status == FAILED or (self.status == SKIPPED and self.reason in BLOCKING)

    @property
    def value(self) -> Any:
        return self.output if self.status == COMPLETED else None


# --- the rules of section 4 -------------------------------------------------------------------------------------


def lies_below(graph: Graph, step: int, point: int) -> bool:
    """Whether a step depends on another, directly or not."""
    return any(dep == point or lies_below(graph, dep, point) for dep in graph.nodes[step].deps)


def why_skipped(case: Case, graph: Graph, node: Node, results: Mapping[str, Result]) -> tuple[str, str] | None:  # noqa: C901, PLR0912  # told in one go
    """The reason for which a step whose dependencies ended like this does not run, and the step behind it."""
    deps = {d: results[graph.nodes[d].id] for d in node.deps}
    if node.spec.trigger is not Trigger.ALWAYS:
        for d, dep in deps.items():
            if dep.status == FAILED:
                return "upstream_failed", graph.nodes[d].id
            if dep.blocks:
                is_first = dep.reason == "rejected" and not dep.origin
                return dep.reason, graph.nodes[d].id if is_first else dep.origin
        if node.branch_of is not None:
            point = graph.nodes[node.branch_of]
            chosen = results[point.id]
            if chosen.status == SKIPPED:
                return "not_taken", chosen.origin if chosen.reason == "not_taken" else point.id
            targets = route_of(case, graph, point, chosen)
            if isinstance(targets, str):
                return "no_route", point.id
            if node.id not in targets:
                return "not_taken", point.id
        for dep in deps.values():
            if dep.reason == "not_taken":
                point_index = graph.by_id[dep.origin]
                saved = [o for o in deps if deps[o].status == COMPLETED and lies_below(graph, o, point_index)]
                if not saved:
                    return "not_taken", dep.origin
        undone = [d for d, dep in deps.items() if dep.status != COMPLETED]
        if deps and (len(undone) == len(deps) or (undone and node.spec.trigger is Trigger.ALL_SUCCEEDED)):
            return "upstream_skipped", graph.nodes[undone[0]].id
    if node.map_source is not None:
        source = deps[node.map_source]
        if source.status == FAILED:
            return "upstream_failed", graph.nodes[node.map_source].id
        if source.status == SKIPPED:
            if not source.blocks:
                return "upstream_skipped", ""
            is_first = source.reason == "rejected" and not source.origin
            return source.reason, graph.nodes[node.map_source].id if is_first else source.origin
    return None


def refusal(graph: Graph, point: Node, targets: tuple[str, ...]) -> str:
    """Why a route cannot be followed; empty if it can."""
    branches = {graph.nodes[b].id: b for b in point.branches}
    for name in targets:
        if name not in branches:
            return f"stranger {name}"
    conflict = graph.route_conflict(point.index, {branches[t] for t in targets})
    return "" if conflict is None else f"conflict {conflict.variable}"


def is_reconciled(result: Result) -> bool:
    """Whether the body did not return: its output was found out, or a human said so."""
    return isinstance(result.output, str) and result.output.startswith(("reconciled ", "told "))


def rejected(path: str, attempts: int) -> Result:
    """What becomes of what a human says No to: a step is skipped, an element fails."""
    if path.endswith("]"):
        return Result(FAILED, error="StepRejectedError", attempts=attempts)
    return Result(SKIPPED, "rejected", attempts=attempts)


def route_of(case: Case, graph: Graph, point: Node, result: Result) -> tuple[str, ...] | str:
    """The branches that a branch point that completed like this takes, or why it got no route."""
    plan = case.script.plans[f"{graph.workflow.id}/{point.id}"]
    if plan.goto is not None and not is_reconciled(result):
        return plan.goto
    answer = plan.answer
    if point.router is not None and plan.router_raises:
        return "raised"
    if point.router is None or answer is None:
        on_no_route = point.spec.on_no_route
        if on_no_route is OnNoRoute.FAIL:
            return "nobody decided"
        return graph.ids(point.branches) if on_no_route is OnNoRoute.ALL else ()
    if not isinstance(answer, str | list):
        return f"not a route: {answer}"
    targets = (answer,) if isinstance(answer, str) else tuple(answer)
    return refusal(graph, point, targets) or tuple(dict.fromkeys(targets))


def limit_of(node: Node) -> int:
    """How many attempts a step has."""
    return 1 if node.spec.retry is None else node.spec.retry.max_attempts


def given_to(case: Case, node: Node, results: Mapping[str, Result], graph: Graph, item: Any) -> dict[str, Any]:
    """What the parameters of a step take."""
    assert node.run is not None
    given: dict[str, Any] = {}
    for binding in node.run.bindings:
        if binding.kind is BindingKind.STEP:
            given[binding.parameter] = results[graph.nodes[binding.index].id].value
        elif binding.kind is BindingKind.ITEM:
            given[binding.parameter] = item
        elif binding.kind is BindingKind.INPUT:
            given[binding.parameter] = case.inputs[binding.name]
    return given


def exit_after(case: Case, graph: Graph, round: int) -> str | None:
    """After a round that completed: None if there is another, what ``until`` fails with, or nothing."""
    loop, key = graph.workflow.loop, graph.workflow.id
    if loop is None or (loop.max_rounds is not None and round >= loop.max_rounds):
        return ""
    if key in case.script.untils and round >= case.script.untils[key]:
        return "UntilError" if key in case.script.raising else ""
    return None


def inside(path: str, rounds: Mapping[str, int]) -> str:
    """The prefix of what lies in a sub-workflow step or element."""
    round_ = rounds.get(path[: path.rfind("/") + 1], 1)
    return f"{path}/" if round_ == 1 else f"{path}#{round_}/"


# --- the one outcome ----------------------------------------------------------------------------------------------


class NotDetermined(Exception):
    """More than one outcome is right."""


class Wrong(AssertionError):
    """An outcome that section 4 does not permit."""


class Interpreter:
    """Runs a case, one step after the other, with nothing at the same time and nothing going wrong from outside."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.results: dict[str, Result] = {}
        self.ran: Counter[str] = Counter()
        #: How often a human was asked whether a body took effect.
        self.outcomes: Counter[str] = Counter()
        #: Elements of which only a race says whether they began.
        self.open_to_chance: set[str] = set()
        #: What sub-workflow steps that failed had finished inside, by path.
        self.kept: dict[str, dict[str, Result]] = {}
        #: The present round of each scope, by prefix.
        self.rounds: dict[str, int] = {}

    def run(self) -> str:
        """The status of the execution."""
        graph = self.case.workflow.graph()
        results, error = self.all_rounds(graph, "", {}, retried=False)
        return FAILED if error or any(r.is_broken for r in results.values()) else COMPLETED

    def all_rounds(
        self, graph: Graph, prefix: str, kept: Mapping[str, Result], *, retried: bool
    ) -> tuple[dict[str, Result], str]:
        """The results of the last round of a scope, and what its ``until`` failed with. It goes on with the round that
        it is in."""
        self.rounds.setdefault(prefix, 1)
        while True:
            results = self.scope(graph, prefix, kept, retried=retried)
            if any(r.is_broken for r in results.values()):
                return results, ""
            error = exit_after(self.case, graph, self.rounds[prefix])
            if error is not None:
                return results, error
            past = self.rounds[prefix]
            self.results = {p: r for p, r in self.results.items() if not p.startswith(prefix)}
            self.kept = {p: k for p, k in self.kept.items() if not p.startswith(prefix)}
            self.open_to_chance = {p for p in self.open_to_chance if not p.startswith(prefix)}
            self.rounds = {p: r for p, r in self.rounds.items() if not p.startswith(prefix)}
            self.rounds[prefix] = past + 1
            kept = {}

    def compare(self, found: Mapping[str, Result]) -> None:
        """Raise ``Wrong`` if an outcome is another one, as far as there is only one."""
        for path, expected in self.results.items():
            if any(path.startswith(p) for p in self.open_to_chance):
                continue
            result = found[path]
            same = (result.status, result.reason, result.attempts) == (
                expected.status,
                expected.reason,
                expected.attempts,
            )
            outputs = show(result.output), show(expected.output)
            collected = "ItemFailure" in repr(expected.output)
            if not same or not result.error.startswith(expected.error) or not (collected or outputs[0] == outputs[1]):
                raise Wrong(f"{path} is {result}, not {expected}")

    def scope(self, graph: Graph, prefix: str, kept: Mapping[str, Result], *, retried: bool) -> dict[str, Result]:
        if graph.workflow.fail_fast:
            raise NotDetermined
        results = dict(kept)
        for index in graph.order:
            node = graph.nodes[index]
            if node.id not in results:
                results[node.id] = self.step(graph, node, prefix, results, retried=retried)
            self.results[prefix + node.id] = results[node.id]
        return results

    def step(self, graph: Graph, node: Node, prefix: str, results: Mapping[str, Result], *, retried: bool) -> Result:
        skip = why_skipped(self.case, graph, node, results)
        if skip is not None:
            return Result(SKIPPED, *skip)
        plan = self.case.script.plans[f"{graph.workflow.id}/{node.id}"]
        if node.condition is not None and not plan.holds:
            return Result(SKIPPED, "condition") if plan.holds is False else Result(FAILED, error=FATAL)
        path = prefix + node.id
        if plan.before is False:
            return rejected(path, 0)
        if node.map_source is None:
            result = self.one(graph, node, path, results, None, retried=retried)
        else:
            result = self.map(graph, node, path, results, retried=retried)
        if node.branches and result.status == COMPLETED and isinstance(route_of(self.case, graph, node, result), str):
            result.error = "RouteError"
        return result

    def map(self, graph: Graph, node: Node, path: str, results: Mapping[str, Result], *, retried: bool) -> Result:
        assert node.map_source is not None
        items = results[graph.nodes[node.map_source].id].output
        if not isinstance(items, list):
            return Result(FAILED, error="MapSourceError", attempts=0)
        made = []
        for i, item in enumerate(items):
            self.results[f"{path}[{i}]"] = self.one(graph, node, f"{path}[{i}]", results, item, retried=retried)
            made.append(self.results[f"{path}[{i}]"])
        failed = [i for i, r in enumerate(made) if r.status == FAILED]
        if failed and node.spec.on_item_failure is OnItemFailure.FAIL:
            if retried:
                raise NotDetermined
            self.open_to_chance.update(p for p in self.results if p.startswith(f"{path}["))
            return Result(FAILED, error="PartFailedError", attempts=1)
        return Result(COMPLETED, output=[output_of(r, i, items[i]) for i, r in enumerate(made)], attempts=1)

    def one(
        self, graph: Graph, node: Node, path: str, results: Mapping[str, Result], item: Any, *, retried: bool
    ) -> Result:
        if node.child is not None:
            return self.child(node, path, retried=retried)
        if node.spec.delivery is Delivery.AT_MOST_ONCE and retried:
            raise NotDetermined
        given = given_to(self.case, node, results, graph, item)
        key = f"{graph.workflow.id}/{node.id}"
        if self.case.script.plans[key].is_rejected(path):
            return rejected(path, 1)
        results_of = (self.attempt(graph, node, path, given, attempt) for attempt in itertools.count(1))
        return next(result for result in results_of if result is not None)

    def attempt(self, graph: Graph, node: Node, path: str, given: Mapping[str, Any], attempt: int) -> Result | None:
        """How the step ends by one attempt, or None if there is another one."""
        key = f"{graph.workflow.id}/{node.id}"
        self.ran[path] += 1
        try:
            returned = self.case.script.run(key, path, self.ran[path] - 1, given)
        except (Boom, Fatal) as error:
            return self.failed(node, key, path, error, attempt)
        if not (node.branches and returned.goto is not None and refusal(graph, node, returned.goto)):
            return Result(COMPLETED, output=returned.value, attempts=attempt)
        if node.spec.delivery is not Delivery.AT_MOST_ONCE:
            return Result(FAILED, error="RouteError", attempts=attempt)
        if node.reconcile is not None:
            raise NotDetermined
        return self.asked_about(key, path, attempt)

    def asked_about(self, key: str, path: str, attempt: int) -> Result | None:
        """What a human makes of an outcome that is unknown, or None if the body runs again."""
        said = self.case.script.plans[key].outcomes[self.outcomes[path] :][:1]
        self.outcomes[path] += 1
        if said == ("again",):
            return None
        return rejected(path, attempt) if said == ("no",) else Result(COMPLETED, "", "", f"told {path}", attempt)

    def failed(self, node: Node, key: str, path: str, error: Exception, attempt: int) -> Result | None:
        """How the step ends, or None if it is tried again."""
        is_last = attempt == limit_of(node) or isinstance(error, Fatal)
        name = FATAL if isinstance(error, Fatal) else BOOM
        if node.spec.delivery is not Delivery.AT_MOST_ONCE:
            return Result(FAILED, error=name, attempts=attempt) if is_last else None
        if node.reconcile is None:
            return self.asked_about(key, path, attempt)
        try:
            return Result(COMPLETED, output=self.case.script.reconcile(key, path), attempts=attempt)
        except NotDone:
            return Result(FAILED, error=name, attempts=attempt) if is_last else None
        except Fatal:
            return Result(FAILED, error="OutcomeUnknownError", attempts=attempt)

    def child(self, node: Node, path: str, *, retried: bool) -> Result:
        graph, prefix = node.child, inside(path, self.rounds)
        assert graph is not None
        limit = limit_of(node)
        for attempt in range(1, limit + 1):
            given = self.kept.pop(path, {})
            results, error = self.all_rounds(graph, prefix, given, retried=retried or limit > 1)
            if error:
                return Result(FAILED, error=error, attempts=attempt)
            broken = [i for i in graph.ids(range(len(graph.nodes))) if results[i].is_broken]
            if not broken:
                if any(r.reason == "rejected" for r in results.values()):
                    return rejected(path, attempt)
                output = {i: results[i].value for i in graph.ids(graph.sinks)}
                return Result(COMPLETED, output=output, attempts=attempt)
            if len(broken) > 1 and limit > 1:
                raise NotDetermined  # which one failed first says whether it is tried again
            cause = self.innermost(prefix + broken[0])
            again = {n.index for n in graph.nodes if results[n.id].blocks and results[n.id].reason != "rejected"}
            below = {n.index for n in graph.nodes if any(lies_below(graph, n.index, a) for a in again)}
            self.kept[path] = {n.id: results[n.id] for n in graph.nodes if n.index not in again | below}
            for index in below:
                start = prefix + graph.nodes[index].id
                lies_in = start + "/", start + "[", start + "#"
                self.kept = {p: k for p, k in self.kept.items() if p != start and not p.startswith(lies_in)}
                self.rounds = {p: r for p, r in self.rounds.items() if not p.startswith(lies_in)}
            if attempt == limit or cause != BOOM:
                return Result(FAILED, error="PartFailedError", attempts=attempt)
        raise AssertionError("a sub-workflow neither completed nor failed")

    def innermost(self, path: str) -> str:
        """What the failure at a path began with."""
        result = self.results[path]
        if result.error != "PartFailedError":
            return result.error
        lies_in = path + "/", path + "[", path + "#"
        parts = [p for p, r in self.results.items() if p.startswith(lies_in) and r.is_broken]
        causes = {self.results[p].error for p in parts} - {"PartFailedError"}
        if len(causes) > 1:
            raise NotDetermined
        return causes.pop()


def output_of(result: Result, index: int, item: Any) -> Any:
    """What stands in a map's output for an element."""
    return result.output if result.status == COMPLETED else ItemFailure(index, item, RuntimeError(result.error))


# --- any outcome --------------------------------------------------------------------------------------------------


@attrs.define
class Judge:
    """Looks at an outcome, whatever led to it.

    Attributes:
        case: what ran.
        results: how every instance ended.
        ran: how many runs of each body ended, all attempts of all times together.
        cancelled: whether the execution was cancelled.
        overdue: prefixes of the scopes whose time was up; empty for the execution's own.
        crashes: how often the process died while a path was under way.
        outcomes: what a human said of the outcomes of a path that were unknown, in order.
        rounds: the round that each scope came to, by prefix.
        past: what earlier rounds wrote, by prefix and round.
    """

    case: Case
    results: Mapping[str, Result]
    ran: Counter[str]
    cancelled: bool = False
    overdue: frozenset[str] = frozenset()
    crashes: Counter[str] = attrs.field(factory=Counter)
    outcomes: Mapping[str, list[str]] = attrs.field(factory=dict)
    rounds: Mapping[str, int] = attrs.field(factory=dict)
    past: Mapping[tuple[str, int], list[tuple[str, Any]]] = attrs.field(factory=dict)

    def check_round(self) -> None:
        """Raise ``Wrong`` for what cannot be in a round that others follow on."""
        graph = self.case.workflow.graph()
        self._scope(graph, "", frozenset(), in_always=False)
        self._must(exit_after(self.case, graph, self.rounds[""]) is None, "execution", "has another round")

    def check(self, status: str) -> None:
        """Raise ``Wrong`` for what cannot be; ``status`` is the execution's."""
        graph = self.case.workflow.graph()
        self._scope(graph, "", frozenset(), in_always=False)
        broken = any(self.results[i].is_broken for i in graph.ids(range(len(graph.nodes))))
        error = "" if broken else exit_after(self.case, graph, self.rounds[""])
        fails = "" in self.overdue or broken or error
        expected = "CANCELLED" if self.cancelled else FAILED if fails else COMPLETED
        self._must(error is not None or self.cancelled or "" in self.overdue, "execution", "has no other round")
        self._must(status == expected, "execution", f"is {status}, not {expected}")

    def check_variables(self, variables: Mapping[str, Any], prefix: str = "", graph: Graph | None = None) -> None:
        """Raise ``Wrong`` if the variables of a scope are not what its steps wrote: ``log`` in whatever order."""
        graph = graph or self.case.workflow.graph()
        expected: dict[str, Any] = {"v": "start", "log": [], "total": 0}
        rounds = range(1, self.rounds.get(prefix, 1))
        before = [each for n in rounds for each in self.past[prefix, n]]
        for name, value in (*before, *self.written(prefix, graph)):
            expected[name] = value if name == "v" else expected[name] + value
        for name, value in expected.items():
            found = sorted(variables[name]) if name == "log" else variables[name]
            self._must(found == (sorted(value) if name == "log" else value), prefix, f"{name} is {found}, not {value}")

    def written(self, prefix: str, graph: Graph) -> list[tuple[str, Any]]:
        """What the steps of a scope wrote in the round that it is in."""
        return [
            (name, self.case.script.written(name, path, self.ran[path] - 1))
            for path, node in self._writers(graph, prefix)
            for name in self.case.script.plans[f"{graph.workflow.id}/{node.id}"].writes
        ]

    def _writers(self, graph: Graph, prefix: str) -> Iterator[tuple[str, Node]]:
        """The bodies whose writes took effect, each after those before it."""
        for index in graph.order:
            node = graph.nodes[index]
            path = prefix + node.id
            if self.results[path].status != COMPLETED or node.child is not None:
                continue
            elements = len(self.results[path].output) if node.map_source is not None else 0
            for writer in [path] if node.map_source is None else [f"{path}[{i}]" for i in range(elements)]:
                if self.results[writer].status == COMPLETED and not is_reconciled(self.results[writer]):
                    yield writer, node

    def _must(self, holds: bool, path: str, rule: str) -> None:
        if not holds:
            raise Wrong(f"{path}: {rule}; {self.results.get(path)}")

    def _scope(self, graph: Graph, prefix: str, stops: frozenset[str], *, in_always: bool) -> None:
        here = {node.id: self.results[prefix + node.id] for node in graph.nodes}
        stops = self._stops(graph, prefix, here, stops, in_always=in_always)
        for node in graph.nodes:
            result, path = here[node.id], prefix + node.id
            always = node.spec.trigger is Trigger.ALWAYS
            permitted = frozenset[str]() if always else stops
            if result.status == SKIPPED and result.reason in permitted:
                continue
            skip = why_skipped(self.case, graph, node, here)
            plan = self.case.script.plans[f"{graph.workflow.id}/{node.id}"]
            if skip is None and node.condition is not None and plan.holds is False:
                skip = "condition", ""
            if skip is None and plan.before is False and not (plan.holds is None and node.condition is not None):
                skip = "rejected", ""
            if skip is not None:
                self._must(result.status == SKIPPED and result.reason == skip[0], path, f"is not skipped by {skip}")
                self._must(skip[0] != "rejected" or result.origin == skip[1], path, f"is not skipped by {skip}")
                continue
            self._must(result.status in (COMPLETED, FAILED) or result.reason == "rejected", path, "did not run")
            self._must(not result.origin, path, "is skipped for a step that did not keep it from running")
            self._ran(graph, node, path, here, permitted)

    def _stops(
        self, graph: Graph, prefix: str, here: Mapping[str, Result], outer: frozenset[str], *, in_always: bool
    ) -> frozenset[str]:
        """What may have kept the steps of a scope from beginning."""
        stops = set[str]() if in_always else set(outer)
        if not prefix and self.cancelled:
            stops.add("cancelled")
        if prefix in self.overdue:
            stops.add("timeout")
        if graph.workflow.fail_fast and any(r.is_broken for r in here.values()):
            stops.add("fail_fast")
        return frozenset(stops)

    def _ran(self, graph: Graph, node: Node, path: str, here: Mapping[str, Result], stops: frozenset[str]) -> None:
        """A step that had to run did."""
        result = self.results[path]
        plan = self.case.script.plans[f"{graph.workflow.id}/{node.id}"]
        if node.condition is not None and plan.holds is None:
            self._must(result.status == FAILED and FATAL in result.error, path, "its condition raised")
            return
        if node.map_source is not None:
            self._map(graph, node, path, here, stops)
        elif node.child is not None:
            self._child(node, path, stops)
        else:
            self._body(graph, node, path, here, None, stops)
        if node.branches and result.status == COMPLETED:
            route = route_of(self.case, graph, node, result)
            cut = bool(result.error) and bool(stops & CUTTING)
            if not cut:
                self._must(bool(result.error) == isinstance(route, str), path, f"its route is {route}")

    def _map(self, graph: Graph, node: Node, path: str, here: Mapping[str, Result], stops: frozenset[str]) -> None:
        assert node.map_source is not None
        result, items = self.results[path], here[graph.nodes[node.map_source].id].output
        if not isinstance(items, list):
            self._must(result.status == FAILED and "MapSourceError" in result.error, path, "its source is no list")
            return
        elements = [self.results.get(f"{path}[{i}]", Result(PENDING)) for i in range(len(items))]
        for i, element in enumerate(elements):
            if element.status != PENDING:
                self._element(graph, node, f"{path}[{i}]", here, items[i], stops)
        failed = [i for i, e in enumerate(elements) if e.status == FAILED]
        fails = node.spec.on_item_failure is OnItemFailure.FAIL
        self._must(result.status != SKIPPED, path, "is a map, whose elements alone can be rejected")
        if result.status == COMPLETED:
            self._must(not any(e.status == PENDING for e in elements), path, "elements are missing")
            self._must(not (failed and fails), path, "completed with failed elements")
            expected = [output_of(e, i, items[i]) for i, e in enumerate(elements)]
            same = [
                show(a) == show(b) if not isinstance(b, ItemFailure) else isinstance(a, ItemFailure)
                for a, b in zip(result.output, expected, strict=True)
            ]
            self._must(all(same), path, "its output is not its elements'")
        elif "PartFailedError" in result.error:
            self._must(bool(failed) and fails, path, "no element failed")
            own = [i for i in failed if "StepCancelledError" not in elements[i].error.partition(":")[0]]
            first = [f"{path}[{i}]" for i in (own or failed) if f"'{path}[{i}]' failed" in result.error]
            self._must(bool(first), path, f"names none of {failed}")
            if not stops:
                self._must(first[0] == f"{path}[{failed[0]}]", path, "names not the lowest failed index")
        else:
            self._must("StepCancelledError" in result.error and bool(stops), path, "failed for no reason")

    def _element(
        self, graph: Graph, node: Node, path: str, here: Mapping[str, Result], item: Any, stops: frozenset[str]
    ) -> None:
        if node.child is not None:
            self._child(node, path, stops)
        else:
            self._body(graph, node, path, here, item, stops)

    def _child(self, node: Node, path: str, stops: frozenset[str]) -> None:
        graph, result = node.child, self.results[path]
        assert graph is not None
        prefix = inside(path, self.rounds)
        self._scope(graph, prefix, stops, in_always=node.spec.trigger is Trigger.ALWAYS)
        parts = {n.id: self.results[f"{prefix}{n.id}"] for n in graph.nodes}
        broken = [i for i, r in parts.items() if r.is_broken]
        stopped = [i for i, r in parts.items() if r.reason in ("cancelled", "timeout", "fail_fast")]
        error = exit_after(self.case, graph, self.rounds[prefix])
        self._must(1 <= result.attempts <= limit_of(node), path, "was attempted too often")
        nos = [i for i, r in parts.items() if r.reason == "rejected"]
        if result.status == COMPLETED:
            self._must(not broken and not stopped and not nos, path, f"completed, but not {broken}, {stopped}, {nos}")
            self._must(error == "", path, f"its loop has not come to its end: {error}")
            output = {i: parts[i].value for i in graph.ids(graph.sinks)}
            self._must(show(result.output) == show(output), path, "its output is not its sinks'")
        elif result.status == SKIPPED or result.error.startswith("StepRejectedError"):
            self._must((result.status == SKIPPED) != path.endswith("]"), path, "is not what a No makes of it")
            self._must(bool(nos) and not broken and not stopped, path, f"is rejected, not by {broken}, {stopped}")
        elif result.error.startswith("UntilError"):
            self._must(not broken and not stopped and error == "UntilError", path, "its until did not raise")
        elif result.error.startswith("StepTimeoutError"):
            self._must(prefix in self.overdue, path, "its time was not up")
        elif result.error.startswith("StepCancelledError"):
            self._must(bool(stops), path, "was not to stop")
        else:
            self._must(result.error.startswith("PartFailedError"), path, "failed for no reason")
            named = [i for i in broken if f"'{prefix}{i}' failed" in result.error]
            self._must(bool(named), path, f"names none of {broken}")
            cause = result.error.rpartition(" failed: ")[2]
            if cause.startswith(BOOM):
                self._must(result.attempts == limit_of(node), path, "was not tried again")

    def _body(
        self, graph: Graph, node: Node, path: str, here: Mapping[str, Result], item: Any, stops: frozenset[str]
    ) -> None:
        result, key = self.results[path], f"{graph.workflow.id}/{node.id}"
        once = node.spec.delivery is Delivery.AT_MOST_ONCE
        plan, outcomes = self.case.script.plans[key], self.outcomes.get(path, [])
        if result.status == SKIPPED or result.error.startswith("StepRejectedError"):
            self._must((result.status == SKIPPED) != path.endswith("]"), path, "is not what a No makes of it")
            self._must(outcomes[-1:] == ["no"] if once else plan.is_rejected(path), path, "nobody said No")
            return
        if once and result.output == f"told {path}":
            self._must(node.reconcile is None and outcomes[-1:] == ["yes"], path, "nobody said so")
            return
        if once and result.status == COMPLETED and result.output == f"reconciled {path}":
            self._must(node.reconcile is not None and self.case.script.plans[key].done is True, path, "nobody said so")
            return
        if result.error.startswith("StepCancelledError"):
            self._must(bool(stops), path, "was not to stop")
            return
        if result.error.startswith("OutcomeUnknownError"):
            said = plan.done is None and node.reconcile is not None
            self._must(once and (said or bool(stops)), path, "its outcome is known")
            return
        if result.error.startswith("StepCrashedError"):
            most = node.spec.max_crashes
            self._must(most is not None and self.crashes[path] >= most, path, "did not crash so often")
            return
        self._must(not plan.is_rejected(path), path, "a human said No to it")
        last = self._outcome(graph, node, path, here, item, self.ran[path] - 1)
        limit = limit_of(node) + outcomes.count("again")
        if result.status == COMPLETED:
            self._must(isinstance(last, Returned), path, f"its last run raised {last}")
            assert isinstance(last, Returned)
            # A retry of what it is inside does not run again what runs at most once, whatever it was given.
            kept = once and "/" in path
            self._must(kept or show(result.output) == show(last.value), path, f"returned {last.value}")
        else:
            self._must(isinstance(last, str) and result.error.startswith(last), path, f"its last run: {last}")
            self._must(last != BOOM or result.attempts == limit, path, "was not tried again")
        self._must(1 <= result.attempts <= limit, path, "was attempted too often")
        if outcomes:
            return  # what a human had run again had failed in any way
        for number in range(self.ran[path] - result.attempts, self.ran[path] - 1):
            tried = self._outcome(graph, node, path, here, item, number)
            self._must(tried == BOOM, path, f"its run {number} was the last: {tried}")

    def _outcome(
        self, graph: Graph, node: Node, path: str, here: Mapping[str, Result], item: Any, number: int
    ) -> Returned | str:
        """What a run returned, or the name of what it raised."""
        given = given_to(self.case, node, here, graph, item)
        try:
            returned = self.case.script.run(f"{graph.workflow.id}/{node.id}", path, number, given)
        except (Boom, Fatal) as error:
            return FATAL if isinstance(error, Fatal) else BOOM
        if node.branches and returned.goto is not None and refusal(graph, node, returned.goto):
            return "RouteError"
        return returned
