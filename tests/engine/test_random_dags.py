"""Random workflows on real threads end as the reference interpreter says: the cases of the pure walk, for real."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares import Runtime, WorkflowResult
from tests.walk.human import Human
from tests.walk.reference import Interpreter, NotDetermined
from tests.walk.script import show
from tests.walk.strategies import POOLS, Case, Features, cases

WORKERS = st.integers(1, 6)


def check_against_reference(case: Case, result: WorkflowResult) -> None:
    try:
        interpreter = Interpreter(case)
        status = interpreter.run()
    except NotDetermined:
        assert result.status in ("COMPLETED", "FAILED")
        return
    assert result.status == status
    for path, expected in interpreter.results.items():
        if any(path.startswith(p) for p in interpreter.open_to_chance):
            continue
        found = result.steps[path]
        reason = found.reason.partition(":")[0]
        assert (found.status, reason, found.attempts) == (expected.status, expected.reason, expected.attempts), path
        if found.status == "COMPLETED":
            assert show(found.output) == show(expected.output), path


@given(cases(Features(fail_fast=False)), WORKERS, st.sampled_from(["auto", "workers", "caller"]))
def test_a_run_on_threads_ends_as_the_reference_says(case: Case, workers: int, steps_on: str) -> None:
    with Runtime(
        max_workers=workers, pools=POOLS, steps_on=steps_on, check_values=True, interrupt_handler=Human(case)
    ) as runtime:
        result = runtime.run(case.workflow, case.inputs)

    check_against_reference(case, result)


@given(cases(Features(fail_fast=False)), WORKERS)
def test_a_submitted_run_ends_as_the_reference_says(case: Case, workers: int) -> None:
    with Runtime(max_workers=workers, pools=POOLS, interrupt_handler=Human(case)) as runtime:
        result = runtime.submit(case.workflow, case.inputs).result(timeout=30)

    check_against_reference(case, result)


@pytest.mark.slow
@settings(max_examples=60)
@given(cases(Features(fail_fast=False)), WORKERS, st.sampled_from(["sync", "async", "best_effort"]))
def test_a_durable_run_ends_as_the_reference_says_and_reads_back_the_same(
    case: Case, workers: int, durability: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "ares.db"
        with Runtime(
            store, max_workers=workers, pools=POOLS, durability=durability, interrupt_handler=Human(case)
        ) as runtime:
            result = runtime.run(case.workflow, case.inputs, execution_id="x")
        check_against_reference(case, result)

        with Runtime(store, workflows=[case.workflow], pools=POOLS) as runtime:
            again = runtime.execution("x").result(timeout=30)
            checkpoint = runtime.checkpoint("x")

    assert again.status == result.status == checkpoint.status
    for path, found in again.steps.items():
        first = result.steps[path]
        assert (found.status, found.reason, found.attempts) == (first.status, first.reason, first.attempts), path
        assert show(found.output) == show(first.output), path
        if found.status != "PENDING":
            assert checkpoint.step_states[path].status == found.status, path
