"""Size: long chains, many elements, and what of it all is kept."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest

from ares import Runtime, Workflow
from tests.engine.helpers import chain, eventually, fan, seconds_since

Make = Callable[..., Runtime]


@pytest.mark.case("C006")
def test_a_chain_of_five_thousand_steps_runs_and_is_resumed_without_a_step(runtime: Make, store: str | None) -> None:
    limit = sys.getrecursionlimit()
    ran: list[int] = []
    wf = chain(5_000, ran.append)
    rt = runtime()
    started = time.monotonic()

    wf.validate()
    result = rt.run(wf).raise_for_status()
    assert len(result.outputs) == len(ran) == 5_000
    again = rt.resume(result.execution_id, wf)

    assert again.outputs == result.outputs
    assert len(ran) == 5_000
    assert len(rt.checkpoint(result.execution_id).step_states) == 5_000
    assert len(list(rt.execution(result.execution_id).events())) == 10_002
    assert sys.getrecursionlimit() == limit == 1000
    assert seconds_since(started) < 60


def test_a_chain_of_five_thousand_steps_may_be_submitted(runtime: Make) -> None:
    result = runtime(max_workers=1).submit(chain(5_000)).result(50)

    assert len(result.raise_for_status().outputs) == 5_000


def test_a_fan_of_two_thousand_steps_runs(runtime: Make, store: str | None) -> None:
    result = runtime(store, max_workers=4).run(fan(2_000)).raise_for_status()

    assert len(result.outputs) == 2_001


def test_a_map_of_three_thousand_elements_keeps_no_more_than_their_outputs(runtime: Make) -> None:
    rt = runtime(max_workers=2)
    wf = Workflow("w")
    wf.step(lambda: list(range(3_000)), id="source")
    wf.step(lambda item: item, id="each", map_over="source")
    rt.run(fan(2))
    gc.collect()

    tracemalloc.start()
    try:
        result = rt.run(wf).raise_for_status()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert result.outputs["each"] == list(range(3_000))
    assert held / 3_000 < 3_000  # bytes per element: its two journal entries, in memory


def test_what_a_run_took_is_given_back_once_its_result_is_gone(runtime: Make, tmp_path: object) -> None:
    rt = runtime(f"{tmp_path}/ares.db", max_workers=2)
    wf = chain(50, lambda i: "x" * 1_000 + str(i))
    for _ in range(3):
        rt.run(wf).raise_for_status()
    gc.collect()

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(8):
            rt.run(wf).raise_for_status()
            rt.submit(wf).result(20)
        eventually(lambda: rt._life.engine().pool.busy == 0)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 150_000


def test_the_time_of_a_step_does_not_grow_with_the_length_of_the_run(runtime: Make) -> None:
    rt = runtime()

    def seconds(length: int) -> float:
        wf = chain(length)
        rt.run(wf)
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            rt.run(wf).raise_for_status()
            best = min(best, (time.process_time() - started) / length)
        return best

    assert seconds(4_000) < 2.5 * seconds(400)
