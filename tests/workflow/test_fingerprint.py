"""Fingerprints: the same for what may change under a resume, different for what may not, and what is named then."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ares.workflow
from ares.workflow import Difference, Input, RetryPolicy, StepDefaults, StepSpec, Workflow, WorkflowFingerprint, compare

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def audit(change: Callable[[dict[str, StepSpec]], None] = lambda specs: None, **arguments: Any) -> WorkflowFingerprint:
    """Give the fingerprint of a workflow after a change of its specs."""
    wf = Workflow("audit", **{"inputs": {"root": str}, "variables": {"total": 0}, "version": "1", **arguments})
    specs = {
        spec.id: spec
        for spec in (
            StepSpec("discover", lambda root: [root]),
            StepSpec("measure", lambda item: item, map_over="discover"),
            StepSpec("judge", agent_type="critic", params={"text": "measure"}),
            StepSpec("point", lambda measure, judge: None, branches=["fix", "praise"]),
            StepSpec("fix", nothing, depends_on=["point"]),
            StepSpec("praise", nothing, depends_on=["point"]),
        )
    }
    change(specs)
    for spec in specs.values():
        wf.add(spec)
    return wf.graph().fingerprint


def changed(step: str, **fields: Any) -> Callable[[dict[str, StepSpec]], None]:
    def change(specs: dict[str, StepSpec]) -> None:
        specs[step] = attrs.evolve(specs[step], **fields)

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed("discover", run=lambda ctx, root: [root, root]),
        changed("discover", timeout=3, retry=RetryPolicy(), max_crashes=None),
        changed("discover", name="Discover it", metadata={"team": "core"}),
        changed("measure", max_concurrency=3, on_item_failure="collect"),
        changed("point", depends_on=["judge", "measure"], branches=["praise", "fix"], on_no_route="all"),
        lambda specs: specs.update(discover=specs.pop("discover")),
    ],
)
@pytest.mark.case("C030")
def test_code_policies_metadata_and_the_order_of_writing_do_not_count(
    change: Callable[[dict[str, StepSpec]], None],
) -> None:
    assert audit(change).digest == audit().digest
    assert not compare(audit(), audit(change))


@pytest.mark.parametrize(
    ("change", "rewired"),
    [
        (changed("fix", depends_on=["point", "judge"]), "fix"),
        (changed("fix", run=lambda root: None), "fix"),
        (changed("fix", run=lambda total: None), "fix"),
        (changed("fix", trigger="all_succeeded"), "fix"),
        (changed("fix", delivery="at_most_once"), "fix"),
        (changed("fix", condition=lambda: True), "fix"),
        (changed("fix", agent_type="fixer"), "fix"),
        (changed("measure", map_over=None, run=lambda discover: None), "measure"),
        (changed("judge", params={"other": "measure"}), "judge"),
        (changed("judge", agent_type="judge"), "judge"),
        (changed("point", router=list), "point"),
        (changed("point", branches=["fix"]), "point"),
        (changed("point", run=lambda a, b: None, params={"a": "measure", "b": "judge"}), "point"),
    ],
)
@pytest.mark.case("C030")
def test_rewiring_a_step_counts_and_names_it(change: Callable[[dict[str, StepSpec]], None], rewired: str) -> None:
    difference = compare(audit(), audit(change))

    assert difference == Difference(rewired=(rewired,))


@pytest.mark.case("C030")
def test_a_step_put_between_two_others_is_named_with_the_one_behind_it() -> None:
    def change(specs: dict[str, StepSpec]) -> None:
        specs["between"] = StepSpec("between", nothing, depends_on=["point"])
        specs["fix"] = attrs.evolve(specs["fix"], depends_on=["point", "between"])

    difference = compare(audit(), audit(change))

    assert (difference.added, difference.rewired, difference.removed) == (("between",), ("fix",), ())


@pytest.mark.case("C030")
def test_a_step_renamed_is_one_removed_and_one_added() -> None:
    def change(specs: dict[str, StepSpec]) -> None:
        specs["fixed"] = attrs.evolve(specs.pop("fix"), id="fixed", name="")
        specs["point"] = attrs.evolve(specs["point"], branches=["fixed", "praise"])

    difference = compare(audit(), audit(change))

    assert (difference.added, difference.removed, difference.rewired) == (("fixed",), ("fix",), ("point",))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"version": "2"}, "version"),
        ({"inputs": {"root": str, "depth": Input(int, 3)}}, "inputs"),
        ({"reducers": {"total": "add"}}, "reducers"),
    ],
)
def test_what_belongs_to_the_workflow_is_named_by_its_field(arguments: dict[str, Any], name: str) -> None:
    difference = compare(audit(), audit(**arguments))

    assert difference == Difference(other=(name,))
    assert difference


@pytest.mark.parametrize(
    "arguments",
    [
        {"inputs": {"root": Input(int, 3)}},
        {"variables": {"total": 5, "more": 1}},
        {"defaults": StepDefaults(timeout=3)},
        {"fail_fast": True},
    ],
)
def test_types_values_and_policies_of_the_workflow_do_not_count(arguments: dict[str, Any]) -> None:
    assert audit(**arguments).digest == audit().digest


def parent(inner: StepSpec | None = None, version: str = "", is_nested: bool = True) -> WorkflowFingerprint:
    child = Workflow("child", version=version, inputs={"x": Input(int, 1)})
    child.add(StepSpec("a", nothing))
    child.add(inner or StepSpec("b", nothing))
    wf = Workflow("parent")
    if is_nested:
        wf.add(StepSpec("nested", workflow=child))
    wf.add(StepSpec("last", nothing))
    return wf.graph().fingerprint


def test_a_change_inside_a_sub_workflow_is_named_by_its_path_alone() -> None:
    assert compare(parent(), parent(StepSpec("b", nothing, depends_on=["a"]))).rewired == ("nested/b",)
    assert compare(parent(), parent(StepSpec("c", nothing))).added == ("nested/c",)


def test_a_new_version_of_a_sub_workflow_is_a_change_of_the_step_that_runs_it() -> None:
    assert compare(parent(), parent(version="2")).rewired == ("nested",)


def test_a_sub_workflow_added_or_removed_is_named_without_its_steps() -> None:
    assert compare(parent(is_nested=False), parent()).added == ("nested",)
    assert compare(parent(), parent(is_nested=False)).removed == ("nested",)


def test_fingerprints_are_the_same_in_every_process() -> None:
    source = (
        "from ares.workflow import *\n"
        "wf = Workflow('w', inputs={'root': str, 'größe': int}, variables={'v': 0, 'u': 0}, reducers={'v': max})\n"
        "wf.step(lambda root: 1, id='a')\n"
        "wf.step(lambda: 1, id='日本')\n"
        "wf.add(StepSpec('b', lambda a, v: 1, depends_on={'日本', 'a'}, branches={'c', 'd'}))\n"
        "wf.step(lambda b: 1, id='c')\n"
        "wf.step(lambda b: 1, id='d')\n"
        "print(wf.graph().fingerprint)\n"
    )
    root = str(Path(ares.workflow.__file__).parents[2])
    shown = set()

    for seed in ("0", "1", "42"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
        command = [sys.executable, "-X", "utf8", "-c", source]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=50, check=True
        )
        shown.add(done.stdout)

    assert len(shown) == 1


def test_a_digest_is_pinned_so_that_a_change_of_the_rule_is_noticed() -> None:
    # Journals hold these: a change here makes every unfinished execution look like one of another workflow.
    wf = Workflow("w", version="1", inputs={"root": str})
    wf.step(lambda root: 1, id="a")
    wf.step(lambda a: 1, id="b", trigger="always")

    assert wf.graph().fingerprint == WorkflowFingerprint(
        digest="f2f9e52d39fe66d8",
        version="1",
        steps={"a": "8315abe9ccd313d0", "b": "0da818e12a4cd67c"},
        shape='{"inputs":["root"],"loop":false,"reducers":[]}',
    )


@patient
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))), unique_by=lambda s: s[0]))
def test_two_workflows_have_equal_digests_exactly_when_their_edges_are_equal(steps: list[tuple[str, set[str]]]) -> None:
    known = {name for name, _ in steps}
    edges = {name: {d for d in deps if d in known and d < name} for name, deps in steps}

    def made(some: dict[str, set[str]]) -> WorkflowFingerprint:
        wf = Workflow("w")
        for name, deps in some.items():
            wf.add(StepSpec(name, nothing, depends_on=deps))
        return wf.graph().fingerprint

    base = made(edges)
    assert made(dict(reversed(edges.items()))).digest == base.digest
    for name, deps in edges.items():
        for dep in known - deps:
            if dep < name:
                other = made({**edges, name: {*deps, dep}})
                assert compare(base, other).rewired == (name,)
                assert compare(other, base).rewired == (name,)
