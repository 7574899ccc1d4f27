"""Random workflows whose steps behave as scripted, small enough to shrink to something readable.

``cases()`` draws a ``Case``: a workflow that validates, the script of its steps and its inputs. Everything the walk
knows is in them: triggers, conditions, branches chosen by a body, a router or nobody, maps that fail or collect,
sub-workflows (mapped, too) with retries, fail_fast, variables with and without a reducer, retries, at_most_once, and
questions to a human: before a step, in its body, and after an at_most_once body whose outcome is unknown.
"""

import itertools
import re
from typing import Any

import attrs
from hypothesis import strategies as st

from ares.errors import DefinitionError
from ares.workflow import Delivery, Loop, OnItemFailure, OnNoRoute, RetryPolicy, StepSpec, Trigger, Workflow
from tests.walk.script import ALWAYS_FAILS, Body, Boom, Condition, Plan, Reconcile, Router, Script, Until

VARIABLES = {"v": "start", "log": [], "total": 0}
REDUCERS = {"log": "extend", "total": "add"}
#: The pools that steps name, with how many slots a Runtime that walks them gives each.
POOLS = {"p": 1, "q": 2}


@attrs.frozen(eq=False)
class Case:
    """A workflow, what its steps do, and what a run of it is given."""

    workflow: Workflow
    script: Script
    inputs: dict[str, Any] = attrs.field(factory=dict)

    def key_of(self, path: str) -> str:
        """What the script calls the step at a path."""
        workflow = self.workflow
        *outer, last = [re.split(r"[\[#]", segment)[0] for segment in path.split("/")]
        for step_id in outer:
            child = next(spec.workflow for spec in workflow.steps if spec.id == step_id)
            assert child is not None
            workflow = child
        return f"{workflow.id}/{last}"

    def __repr__(self) -> str:
        return "\n".join(_told(self.workflow, self.script))

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """What hypothesis shows of a case that fails."""
        printer.text(repr(self))


@attrs.frozen
class Features:
    """What may be drawn, so that a test can ask for less."""

    fail_fast: bool = True
    branches: bool = True
    maps: bool = True
    children: bool = True
    failures: bool = True
    at_most_once: bool = True
    max_crashes: bool = True
    retries: bool = True
    loops: bool = True
    writes: bool = True
    asks: bool = True
    pools: bool = True
    max_steps: int = 8
    depth: int = 2


def cases(features: Features = Features()) -> st.SearchStrategy[Case]:
    """Draw a case."""
    return _case(features)


@st.composite
def _case(draw: st.DrawFn, features: Features) -> Case:
    script = Script({})
    ids = itertools.count()
    workflow = _workflow(draw, features, script, ids, features.depth)
    return Case(workflow, script, {"n": 1})


def _workflow(draw: st.DrawFn, features: Features, script: Script, ids: "itertools.count[int]", depth: int) -> Workflow:
    fail_fast = features.fail_fast and draw(_rarely)
    name = f"w{next(ids)}"
    loop = _loop(draw, features, script, name) if features.loops and draw(_loops) else None
    workflow = Workflow(name, inputs={"n": int}, variables=VARIABLES, reducers=REDUCERS, fail_fast=fail_fast, loop=loop)
    drafts: list[dict[str, Any]] = []
    lists: list[str] = []
    points: dict[str, list[str]] = {}
    most = features.max_steps if depth == features.depth else 3
    for i in range(draw(st.integers(min(2, most), most))):
        draft = _step(draw, features, f"s{i}", [d["id"] for d in drafts], points)
        _give_form(draw, features, draft, lists, script, ids, depth)
        drafts.append(draft)
        if features.branches and draw(_rarely):
            points[draft["id"]] = []
    for draft in drafts:
        branches = points.get(draft["id"], [])
        plan = _plan(draw, features, draft, branches)
        _add(workflow, script, draft, branches, plan)
    if features.writes:
        workflow = _writing(draw, workflow, script)
    return workflow


def _loop(draw: st.DrawFn, features: Features, script: Script, name: str) -> Loop:
    """A loop that comes to an end."""
    until = draw(st.sampled_from([None, 1, 2, 3]))
    most = draw(st.integers(1, 3) if until is None else st.sampled_from([None, 1, 2, 3]))
    if until is None:
        return Loop(most)
    script.untils[name] = until
    if features.failures and draw(_rarely):
        script.raising.add(name)
    return Loop(most, Until(script, name, ["n"]))


_rarely = st.sampled_from([False, False, False, True])
_half = st.booleans()
_loops = _rarely


def _step(
    draw: st.DrawFn, features: Features, step_id: str, earlier: list[str], points: dict[str, list[str]]
) -> dict[str, Any]:
    """A step's id, dependencies, trigger, and the point it is a branch of."""
    deps = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
    trigger = draw(st.sampled_from([Trigger.NONE_FAILED] * 5 + [Trigger.ALL_SUCCEEDED, Trigger.ALWAYS]))
    draft: dict[str, Any] = {"id": step_id, "trigger": trigger, "options": {}, "params": [], "after": []}
    open_points = [p for p in deps if p in points]
    if open_points and trigger is not Trigger.ALWAYS and draw(st.sampled_from([True, True, False])):
        points[open_points[0]].append(step_id)
    for dep in deps:
        draft["params" if draw(st.sampled_from([True, True, False])) else "after"].append(dep)
    return draft


def _give_form(  # noqa: PLR0917  # what has been drawn so far
    draw: st.DrawFn,
    features: Features,
    draft: dict[str, Any],
    lists: list[str],
    script: Script,
    ids: "itertools.count[int]",
    depth: int,
) -> None:
    """Make it a plain step, a map, a sub-workflow, or a map over sub-workflows."""
    options = draft["options"]
    if features.maps and lists and draw(_rarely):
        options["map_over"] = draw(st.sampled_from(lists))
        options["max_concurrency"] = draw(st.sampled_from([None, 1, 2]))
        options["on_item_failure"] = draw(st.sampled_from(list(OnItemFailure)))
        draft["params"] = [p for p in draft["params"] if p != options["map_over"]]
    if features.children and depth > 0 and draw(_rarely):
        options["workflow"] = _workflow(draw, features, script, ids, depth - 1)
        draft["after"] += draft.pop("params")
        draft["params"] = []
        # A deadline that only the pure driver lets pass, and only when it is told to.
        options["timeout"] = draw(st.sampled_from([None, 3600.0]))
    else:
        if features.pools:
            options["pool"] = draw(st.sampled_from([None, None, *POOLS]))
        if features.maps and draw(_half):
            draft["length"] = draw(st.sampled_from([0, 1, 2, 3]))
        if features.at_most_once and draw(_rarely):
            options["delivery"] = Delivery.AT_MOST_ONCE
            draft["reconciles"] = draw(_half)
        if features.max_crashes:
            options["max_crashes"] = draw(st.sampled_from([None, None, 3, 1]))
    if "map_over" in options or "length" in draft:
        lists.append(draft["id"])
    if features.retries and draw(_half) and ("map_over" not in options or "workflow" in options or draw(_half)):
        attempts = draw(st.integers(1, 3))
        options["retry"] = RetryPolicy(attempts, initial_delay=0.0, jitter=0.0, retry_on=Boom)


def _plan(draw: st.DrawFn, features: Features, draft: dict[str, Any], branches: list[str]) -> Plan:
    """What it does."""
    fails, fatal, fails_at = 0, False, None
    is_once = draft["options"].get("delivery") is Delivery.AT_MOST_ONCE
    if features.failures and draw(_half if is_once else _rarely):
        fails = draw(st.sampled_from([1, 1, 2, ALWAYS_FAILS]))
        fatal = draw(_rarely)
        fails_at = draw(st.sampled_from([None, None, frozenset({0}), frozenset({1, 2})]))
    goto = answer = None
    raises = False
    if branches:
        routes = st.lists(st.sampled_from(branches), max_size=3).map(tuple)
        goto = draw(st.sampled_from([None, None]) | routes)
        stranger = st.sampled_from(["stranger", ["stranger"], 7])
        answer = draw(st.sampled_from(branches) | routes.map(list) | st.none() | stranger)
        raises = draw(_rarely) and features.failures
        if not features.failures and answer in ("stranger", ["stranger"], 7):
            answer = None
        draft["options"]["on_no_route"] = draw(st.sampled_from(list(OnNoRoute)))
    holds = draw(st.sampled_from([True] * 16 + [False] * 2 + [None] * features.failures))
    done = draw(st.sampled_from([True, False, None]))
    before, asks, no_at, outcomes = _answers(draw, features, draft) if features.asks else (None, (), None, ())
    length = draft.get("length")
    return Plan(fails, fatal, fails_at, length, goto, holds, answer, raises, (), done, before, asks, no_at, outcomes)


def _answers(draw: st.DrawFn, features: Features, draft: dict[str, Any]) -> tuple[Any, ...]:
    """What it asks, and what a human says."""
    options = draft["options"]
    before, asks, no_at, outcomes = None, (), None, ()
    is_once = options.get("delivery") is Delivery.AT_MOST_ONCE
    where = draw(_where)
    if "before" in where:
        before = draw(_mostly)
    if is_once and not draft["reconciles"]:
        outcomes = draw(_outcomes)
    elif "body" in where and not is_once and "workflow" not in options:
        asks = draw(_asks)
        no_at = draw(_no_at) if "no" in asks else None
    return before, asks, no_at, outcomes


_where = st.sampled_from([""] * 5 + ["before", "body", "before, body"])
_mostly = st.sampled_from([True, True, True, False])
_outcomes = st.sampled_from(
    [(), ("no",), *itertools.product(("again",), ("yes", "no", "again")), ("again", "again", "again", "no")]
)
_asks = st.sampled_from([each for n in (1, 2, 3) for each in itertools.product(("yes", "told", "no"), repeat=n)])
_no_at = st.sampled_from([None, frozenset({0}), frozenset({1, 2})])


def _add(workflow: Workflow, script: Script, draft: dict[str, Any], branches: list[str], plan: Plan) -> None:
    key = f"{workflow.id}/{draft['id']}"
    options = dict(draft["options"])
    is_map, is_child = "map_over" in options, "workflow" in options
    parameters = [*draft["params"], "n", *(["item"] if is_map else [])]
    if not is_child:
        options["run"] = Body(script, key, parameters)
    if draft.get("reconciles"):
        options["reconcile"] = Reconcile(script, key, ["n"])
    if is_child or is_map:
        plan = attrs.evolve(plan, goto=None)  # neither has a body that could choose for the step
    if plan.holds is not True:
        options["condition"] = Condition(script, key, ["n"])
    if plan.before is not None:
        options["interrupt"] = f"{key}?"
    if branches:
        options["branches"] = branches
        if plan.answer is not None or plan.router_raises:
            options["router"] = Router(script, key, [])
    script.plans[key] = plan
    workflow.add(StepSpec(draft["id"], depends_on=draft["after"], trigger=draft["trigger"], **options))


def _writing(draw: st.DrawFn, workflow: Workflow, script: Script) -> Workflow:
    """The same workflow with steps that write, as far as validation lets them."""
    wanted = {
        spec.id: draw(st.lists(st.sampled_from(["v", "log", "total"]), max_size=2, unique=True))
        for spec in workflow.steps
        if spec.workflow is None
    }
    for left_out in ((), ("v",), ("v", "log", "total")):
        made = Workflow(
            workflow.id,
            inputs=workflow.inputs,
            variables=VARIABLES,
            reducers=REDUCERS,
            fail_fast=workflow.fail_fast,
            loop=workflow.loop,
        )
        for spec in workflow.steps:
            writes = tuple(w for w in wanted.get(spec.id, ()) if w not in left_out)
            made.add(attrs.evolve(spec, writes=writes))
            key = f"{workflow.id}/{spec.id}"
            script.plans[key] = attrs.evolve(script.plans[key], writes=writes)
        try:
            made.validate()
        except DefinitionError as error:
            if "variable" not in str(error):
                raise
        else:
            return made
    raise AssertionError("a workflow that writes nothing is refused for what it writes")


def _told(workflow: Workflow, script: Script, indent: str = "") -> list[str]:
    loop = "" if workflow.loop is None else f" loop {workflow.loop.max_rounds} {script.untils.get(workflow.id)}"
    raises = " raises" if workflow.id in script.raising else ""
    lines = [f"{indent}{workflow.id}{' fail_fast' if workflow.fail_fast else ''}{loop}{raises}:"]
    for spec in workflow.steps:
        node = workflow.graph().nodes[workflow.graph().by_id[spec.id]]
        deps = [workflow.steps[d].id for d in node.deps]
        said = {
            "map": spec.map_over,
            "limit": spec.max_concurrency,
            "pool": spec.pool,
            "collect": spec.on_item_failure is OnItemFailure.COLLECT,
            "trigger": spec.trigger if spec.trigger is not Trigger.NONE_FAILED else "",
            "attempts": spec.retry.max_attempts if spec.retry is not None else 0,
            "branches": list(spec.branches),
            "on_no_route": spec.on_no_route if spec.branches else "",
            "crashes": spec.max_crashes if spec.max_crashes != 3 else "",
            "once": spec.delivery is Delivery.AT_MOST_ONCE,
            "reconcile": spec.reconcile is not None,
        }
        text = " ".join(f"{k}={v}" for k, v in said.items() if v)
        plan = script.plans[f"{workflow.id}/{spec.id}"]
        does = {a.name: getattr(plan, a.name) for a in attrs.fields(Plan) if getattr(plan, a.name) != a.default}
        lines.append(f"{indent}  {spec.id}({', '.join(deps)}) {text} {does}")
        if spec.workflow is not None:
            lines += _told(spec.workflow, script, indent + "    ")
    return lines
