"""A Dask cluster as an executor, a real one on this machine: its workers die, and nothing runs twice unasked."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, RetryPolicy, Runtime, Workflow
from ares.errors import ExecutorError, RemoteError, SerializationError, StepTimeoutError, UsageError, WorkerLostError
from tests.engine.helpers import Task, eventually, open_files, seconds_since
from tests.executors import bodies
from tests.executors.conftest import lines, run

distributed = pytest.importorskip("distributed")

from ares.executors.dask import DaskExecutor  # noqa: E402 - there may be none

Make = Callable[..., Runtime]

pytestmark = [
    pytest.mark.timeout(180),  # a worker takes a few seconds to come up, longer on a busy machine
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    # Of distributed's own connections, when a worker was killed.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0", silence_logs=60) as made:
        yield made


@pytest.fixture(scope="module")
def rt(cluster: Any) -> Iterator[Runtime]:
    """For tests that end what they begin."""
    with Runtime(executors={"cpu": partial(DaskExecutor, cluster.scheduler_address)}, max_workers=8) as made:
        yield made


@pytest.fixture(scope="module")
def lonely() -> Iterator[Any]:
    """One worker."""
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as made:
        yield made


def in_this_process(**options: Any) -> Any:
    """One worker on a thread: it is there in no time, and cannot die."""
    return distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=":0",
        silence_logs=60,
        **options,
    )


# --- a body there ------------------------------------------------------------------------------------------------


def test_a_body_runs_on_a_worker_of_the_cluster(rt: Runtime) -> None:
    assert run(rt, bodies.pid).raise_for_status().outputs["body"] != os.getpid()


def test_a_map_over_the_cluster_keeps_the_order_of_its_elements(rt: Runtime) -> None:
    wf = Workflow("w")
    wf.step(lambda: list(range(60)), id="source")
    wf.step(bodies.double, id="twice", map_over="source", executor="cpu")

    assert rt.run(wf).raise_for_status().outputs["twice"] == [2 * i for i in range(60)]


def test_the_context_there_is_a_value(rt: Runtime) -> None:
    found = run(rt, bodies.look_around, {"n": 3}, timeout=30).raise_for_status().outputs["body"]

    assert 29 < found["left"] <= 30
    assert run(rt, bodies.write, writes=["total"]).variables["total"] == 3
    assert isinstance(run(rt, bodies.ask_for, {"what": "once"}).error, UsageError)


def test_an_exception_keeps_its_type_and_the_frames_it_had_there(rt: Runtime) -> None:
    error = run(rt, bodies.be_unhappy).error

    assert isinstance(error, bodies.Unhappy)
    assert "in _deep_down" in str(error.__cause__)


def test_what_cannot_be_pickled_names_the_step(rt: Runtime) -> None:
    there = run(rt, bodies.add, {"a": threading.Lock()}).error
    back = run(rt, bodies.return_a_lock).error

    assert isinstance(there, SerializationError)
    assert "argument 'a' of step 'body' on its way to executor 'cpu'" in str(there)
    assert isinstance(back, SerializationError)
    assert "step 'body' on executor 'cpu': its output" in str(back)
    assert isinstance(run(rt, bodies.hold).error, RemoteError)


@pytest.mark.parametrize(("body", "kind"), [(bodies.exit_by_exception, SystemExit), (bodies.raise_base, bodies.Base)])
def test_what_is_no_exception_does_not_hurt_the_worker(rt: Runtime, body: Any, kind: type[BaseException]) -> None:
    assert type(run(rt, body).error) is kind
    assert run(rt, bodies.one).raise_for_status().outputs["body"] == 1


# --- timeouts and cancels ------------------------------------------------------------------------------------------


def test_a_body_that_outlasts_its_timeout_is_left_and_that_is_said(rt: Runtime, tmp_path: Path) -> None:
    go = tmp_path / "go"

    result = run(rt, bodies.wait_for, {"file": str(go)}, timeout=0.3)
    go.touch()

    assert isinstance(result.error, StepTimeoutError)
    assert result.warnings == ("step 'body' may still run on executor 'cpu', which cannot stop it",)


def test_what_has_not_begun_is_cancelled_at_once_and_never_begins(rt: Runtime, tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    wf = Workflow("w", inputs={"notes": str, "file": str})
    wf.step(lambda: list(range(8)), id="source")
    wf.step(bodies.note_and_wait, id="waits", map_over="source", executor="cpu")
    handle = rt.submit(wf, {"notes": str(notes), "file": str(go)})
    eventually(lambda: len(lines(notes)) == 4)  # two workers with two threads each

    rt.cancel(handle.id)
    eventually(lambda: len([s for s in rt.checkpoint(handle.id).step_states.values() if s.error is not None]) >= 4)
    go.touch()

    assert handle.result(20).status is ExecutionStatus.CANCELLED
    assert run(rt, bodies.one).raise_for_status().outputs["body"] == 1
    assert len(lines(notes)) == 4


# --- lost workers ----------------------------------------------------------------------------------------------------


@pytest.mark.case("C057")
def test_a_worker_that_dies_fails_the_step_after_the_attempts_it_had(lonely: Any, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    with Runtime(executors={"cpu": partial(DaskExecutor, lonely.scheduler_address)}) as rt:
        began = time.monotonic()
        retry = RetryPolicy(2, initial_delay=0)
        result = run(rt, bodies.note_and_die, {"file": str(effects)}, timeout=10.0, retry=retry)
        took, closing = seconds_since(began), time.monotonic()
        rt.close()
        closed_in = seconds_since(closing)

    assert result.status is ExecutionStatus.FAILED
    assert isinstance(result.error, WorkerLostError)
    assert str(result.error).startswith("step 'body': executor 'cpu' lost the worker of the body: the Dask worker ")
    assert lines(effects) == ["x", "x"]  # once each attempt, though Dask would try again by itself
    assert took < 4 * 12  # most of it is the start of the next worker, a process
    assert closed_in < 5


@pytest.mark.case("C057")
def test_a_scheduler_that_does_not_answer_is_an_error_that_names_its_address(runtime: Make) -> None:
    nowhere = "tcp://127.0.0.1:9"
    rt = runtime(executors={"cpu": partial(DaskExecutor, nowhere, timeout=1.0)})
    wf = Workflow("w")
    wf.step(bodies.one, id="there", executor="cpu")
    wf.step(bodies.one, id="here")

    began = time.monotonic()
    result = rt.run(wf)

    assert seconds_since(began) < 10
    assert isinstance(result.error, ExecutorError)
    assert "step 'there': executor 'cpu' cannot be made: ConnectionError: no Dask scheduler answers at " in str(
        result.error
    )
    assert nowhere in str(result.error)
    assert result.outputs == {"here": 1}


def test_many_who_wait_for_a_scheduler_that_does_not_answer_wait_once(runtime: Make) -> None:
    rt = runtime(executors={"cpu": partial(DaskExecutor, "tcp://127.0.0.1:9", timeout=1.0)}, max_workers=6)
    wf = Workflow("w")
    wf.step(lambda: list(range(6)), id="source")
    wf.step(bodies.double, id="twice", map_over="source", executor="cpu", on_item_failure="collect")

    began = time.monotonic()
    rt.run(wf).raise_for_status()

    assert seconds_since(began) < 5


def test_a_worker_that_was_the_last_is_missed(lonely: Any, tmp_path: Path) -> None:
    """No other comes to find the ticket gone."""
    effects, go = tmp_path / "effects", tmp_path / "go"
    with Runtime(executors={"cpu": partial(DaskExecutor, lonely.scheduler_address)}) as rt:
        walk = Task(run, rt, bodies.note_and_wait, {"notes": str(effects), "file": str(go)})
        eventually(lambda: lines(effects))
        lonely.scale(0)

        error = walk.result().error

    go.touch()
    lonely.scale(1)
    assert isinstance(error, WorkerLostError)
    assert f"is gone (scheduler: {lonely.scheduler_address})" in str(error)


def test_an_at_most_once_body_on_a_lost_worker_is_not_run_again(rt: Runtime, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    retry = RetryPolicy(5, initial_delay=0)

    result = run(rt, bodies.note_and_die, {"file": str(effects)}, delivery="at_most_once", retry=retry)

    assert result.status is ExecutionStatus.WAITING
    assert lines(effects) == ["x"]


def test_a_cluster_that_is_gone_in_the_middle_is_named_and_used_again_once_it_is_back(
    runtime: Make, tmp_path: Path
) -> None:
    effects, go = tmp_path / "effects", tmp_path / "go"
    cluster = in_this_process()
    address = cluster.scheduler_address
    rt = runtime(executors={"cpu": partial(DaskExecutor, address, timeout=1.0)})
    walk = Task(run, rt, bodies.note_and_wait, {"notes": str(effects), "file": str(go)})
    eventually(lambda: lines(effects))
    closing = Task(cluster.close)
    error = walk.result().error
    go.touch()
    closing.result()
    then = run(rt, bodies.one).error
    with in_this_process(scheduler_port=int(address.rpartition(":")[2])):
        result = run(rt, bodies.one, retry=RetryPolicy(20, initial_delay=0.1, multiplier=1.0))

    assert isinstance(error, WorkerLostError)
    assert address in str(error)
    assert isinstance(then, ExecutorError)
    assert address in str(then)
    assert result.raise_for_status().outputs["body"] == 1


# --- the executor by itself --------------------------------------------------------------------------------------


def test_a_client_of_the_callers_is_not_closed(cluster: Any) -> None:
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        with Runtime(executors={"cpu": DaskExecutor(client)}) as rt:
            run(rt, bodies.one).raise_for_status()
        with DaskExecutor(client) as executor:
            assert executor.submit(bodies.by_position, 1, b=2).result(20) == (1, 2, 3)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(bodies.one)

        assert client.submit(bodies.double, 4).result(20) == 8


def test_what_a_call_raises_is_what_its_future_raises(cluster: Any) -> None:
    with DaskExecutor(cluster.scheduler_address) as executor, pytest.raises(bodies.Unhappy):
        executor.submit(bodies.be_unhappy).result(20)


def test_a_future_runs_from_when_its_call_has_begun_and_cannot_be_cancelled_then(cluster: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with DaskExecutor(cluster.scheduler_address) as executor:
        futures = [executor.submit(bodies.wait_for, str(go), item) for item in range(6)]
        eventually(lambda: sum(future.running() for future in futures) == 4)
        waiting = [future for future in futures if not future.running()]

        assert all(future.cancel() for future in waiting)
        assert all(future.cancelled() for future in waiting)
        go.touch()


def test_nothing_is_left_at_the_scheduler(cluster: Any) -> None:
    def queues() -> set[str]:
        return set(cluster.scheduler.extensions["queues"].queues)

    before = queues()
    with DaskExecutor(cluster.scheduler_address) as executor:
        assert [executor.submit(bodies.double, i).result(20) for i in range(5)] == [0, 2, 4, 6, 8]
        eventually(lambda: len(queues() - before) == 1)  # the one for news

    eventually(lambda: not queues() - before)
    eventually(lambda: not [key for key in cluster.scheduler.tasks if str(key).startswith("ares-")])


def test_opening_and_closing_again_and_again_leaves_no_thread_and_no_descriptor(cluster: Any) -> None:
    def one_round() -> None:
        with Runtime(executors={"cpu": partial(DaskExecutor, cluster.scheduler_address)}) as rt:
            run(rt, bodies.one).raise_for_status()

    one_round()
    threads, before = threading.active_count(), open_files()
    for _ in range(5):
        one_round()

    eventually(lambda: threading.active_count() <= threads)
    eventually(lambda: open_files() <= before + 2)


def test_an_executor_whose_cluster_is_gone_takes_nothing() -> None:
    cluster = in_this_process()
    executor = DaskExecutor(cluster.scheduler_address, timeout=1.0)
    assert executor.submit(bodies.one).result(20) == 1
    cluster.close()

    def is_refused() -> bool:
        try:
            executor.submit(bodies.one).result(20)
        except BrokenExecutor as error:
            return executor.address in str(error)
        except Exception:
            return False
        return False

    eventually(is_refused)
    executor.shutdown()
