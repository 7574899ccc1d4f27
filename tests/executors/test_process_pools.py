"""Process pools: bodies that do not return are killed, processes that die are named, and the others go on."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, RetryPolicy, Runtime, Workflow
from ares.errors import ExecutorError, OutcomeUnknownError, StepTimeoutError, WorkerLostError
from tests.engine.helpers import Task, eventually, last, open_files
from tests.executors import bodies
from tests.executors.conftest import away, forks, lines, run, single_fork

Make = Callable[..., Runtime]

# Python 3.12 and newer warn of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def of(method: str) -> Callable[[], Executor]:
    if method == "loky":
        from loky import ProcessPoolExecutor as LokyExecutor

        return partial(LokyExecutor, 2)
    return partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context(method))


# --- timeouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "loky"])
def test_native_code_that_never_returns_is_killed_at_its_timeout_and_the_walk_goes_on(
    runtime: Make, method: str, effects: Path
) -> None:
    rt = runtime(executors={"cpu": of(method)})
    wf = Workflow("w", inputs={"file": str})
    wf.step(bodies.note_and_hang, id="hangs", executor="cpu", timeout=1.0)
    wf.step(bodies.one, id="after", depends_on=["hangs"], executor="cpu", trigger="always")

    result = rt.run(wf, {"file": str(effects)})

    assert isinstance(result.error, StepTimeoutError)
    assert str(result.error) == "step 'hangs' was still running after 1 s"
    assert result.outputs == {"after": 1}
    (pid,) = lines(effects)
    eventually(lambda: not alive(int(pid)))
    assert result.warnings == ()


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_killed_step_is_tried_again_under_its_policy(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})

    result = run(rt, bodies.note_and_hang, {"file": str(effects)}, timeout=0.7, retry=RetryPolicy(2, initial_delay=0))

    assert isinstance(result.error, StepTimeoutError)
    assert len(set(lines(effects))) == 2


def test_a_timeout_counts_from_when_the_body_begins_there(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": single_fork})
    notes, go = tmp_path / "notes", tmp_path / "go"
    wf = Workflow("w", inputs={"notes": str, "file": str})
    wf.step(bodies.note_and_wait, id="first", executor="cpu")
    wf.step(lambda: eventually(lambda: lines(notes)), id="first_has_begun")
    wf.step(bodies.one, id="second", executor="cpu", timeout=1.5, depends_on=["first_has_begun"])
    handle = rt.submit(wf, {"notes": str(notes), "file": str(go)})
    eventually(lambda: rt.checkpoint(handle.id).step_states["second"].status == "RUNNING")

    last(2.0)  # it waits for the one process, longer than its timeout
    go.touch()

    assert handle.result(20).raise_for_status().outputs == {"first": 0, "first_has_begun": None, "second": 1}


def test_the_others_on_the_pool_run_again_and_that_costs_no_attempt(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": forks}, max_workers=8)
    notes, go = tmp_path / "notes", tmp_path / "go"
    wf = Workflow("w", inputs={"notes": str, "file": str, "hung": str})
    wf.step(bodies.note_and_hang, id="hangs", params={"file": "hung"}, executor="cpu", timeout=0.4)
    wf.step(lambda: list(range(4)), id="source")
    wf.step(bodies.note_and_wait, id="others", map_over="source", executor="cpu")
    walk = Task(rt.run, wf, {"notes": str(notes), "file": str(go), "hung": str(tmp_path / "hung")})
    eventually(lambda: len(lines(notes)) >= 2)  # one of them twice: its process was killed beside the one that hung
    go.touch()

    result = walk.result()

    assert isinstance(result.error, StepTimeoutError)
    assert result.outputs["others"] == [0, 1, 2, 3]
    assert {path: step.attempts for path, step in result.steps.items() if "[" in path} == {
        f"others[{i}]": 1 for i in range(4)
    }


def test_what_must_not_be_done_twice_is_not_run_again_when_its_pool_was_killed(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": forks}, max_workers=8)
    notes, hung = tmp_path / "notes", tmp_path / "hung"
    wf = Workflow("w", inputs={"notes": str, "file": str, "hung": str})
    wf.step(bodies.note_and_wait, id="once", params={"item": "first"}, executor="cpu", delivery="at_most_once")
    wf.step(lambda: 1, id="first")
    wf.step(bodies.note_and_hang, id="hangs", params={"file": "hung"}, executor="cpu", timeout=1.0)

    result = rt.run(wf, {"notes": str(notes), "file": str(tmp_path / "never"), "hung": str(hung)})

    assert result.status is ExecutionStatus.WAITING
    (question,) = result.interrupts
    assert question.path == "once"
    assert "lost the worker" in question.message
    assert lines(notes) == ["1"]


def test_what_must_not_be_done_twice_and_had_not_begun_is_sent_to_the_next_pool(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": single_fork}, max_workers=8)
    notes = tmp_path / "notes"
    wf = Workflow("w", inputs={"hung": str, "notes": str})
    wf.step(bodies.note_and_hang, id="hangs", params={"file": "hung"}, executor="cpu", timeout=0.4)
    wf.step(bodies.note, id="once", params={"file": "notes"}, executor="cpu", delivery="at_most_once")

    result = rt.run(wf, {"hung": str(tmp_path / "hung"), "notes": str(notes)})

    assert isinstance(result.error, StepTimeoutError)
    assert "once" in result.outputs
    assert lines(notes) == ["x"]


def test_an_at_most_once_body_that_is_killed_at_its_timeout_is_not_run_again(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})
    options: dict[str, Any] = {"delivery": "at_most_once", "timeout": 0.8, "retry": RetryPolicy(3, initial_delay=0)}

    result = run(rt, bodies.note_and_hang, {"file": str(effects)}, **options)

    assert result.status is ExecutionStatus.WAITING
    assert len(lines(effects)) == 1


@pytest.mark.parametrize("value", [threading.Lock(), bodies.Bomb()], ids=["cannot be sent", "cannot be loaded"])
def test_an_at_most_once_call_that_does_not_get_there_has_certainly_not_begun(runtime: Make, value: Any) -> None:
    rt = runtime(executors={"cpu": forks})

    result = run(rt, bodies.add, {"a": value}, delivery="at_most_once")

    assert result.status is ExecutionStatus.FAILED
    assert not isinstance(result.error, OutcomeUnknownError)


# --- processes that die ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "body"), [("fork", bodies.die), ("fork", bodies.be_killed), ("spawn", bodies.die), ("loky", bodies.die)]
)
def test_a_process_that_dies_is_an_error_that_names_step_and_executor(
    runtime: Make, method: str, body: Callable[..., Any]
) -> None:
    rt = runtime(executors={"cpu": of(method)})

    error = run(rt, body).error

    assert isinstance(error, WorkerLostError)
    assert str(error).startswith("step 'body': executor 'cpu' lost the worker of the body: A ")
    assert error.__cause__ is not None
    assert run(rt, bodies.one).raise_for_status().outputs["body"] == 1


def test_a_lost_worker_is_replaced_and_its_step_tried_again(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})

    result = run(rt, bodies.die_at_first, {"file": str(effects)}, retry=RetryPolicy(3, initial_delay=0))

    assert result.raise_for_status().outputs["body"] == 2
    assert len(lines(effects)) == 2


def test_the_outcome_of_an_at_most_once_body_on_a_lost_worker_is_unknown(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})
    options: dict[str, Any] = {"delivery": "at_most_once", "retry": RetryPolicy(3, initial_delay=0)}

    result = run(rt, bodies.note_and_die, {"file": str(effects)}, **options)

    assert result.status is ExecutionStatus.WAITING
    assert len(lines(effects)) == 1


def test_reconcile_is_asked_at_home_about_a_lost_worker(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})

    def was_it() -> int:
        return os.getpid()

    result = run(rt, bodies.note_and_die, {"file": str(effects)}, delivery="at_most_once", reconcile=was_it)

    assert result.raise_for_status().outputs["body"] == os.getpid()


def test_a_process_that_minds_no_signal_does_not_outlive_its_broken_pool(tmp_path: Path) -> None:
    """Its pool would send it a SIGTERM and wait for it for ever."""
    hung = tmp_path / "hung"
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # what is forked minds it no more
    try:
        with Runtime(executors={"cpu": forks}) as rt:
            wf = Workflow("w", inputs={"hung": str})
            wf.step(bodies.note_and_hang, id="hangs", params={"file": "hung"}, executor="cpu", max_crashes=1)
            wf.step(bodies.wait_and_die, id="dies", params={"file": "hung"}, executor="cpu")
            result = rt.run(wf, {"hung": str(hung)})
    finally:
        signal.signal(signal.SIGTERM, before)

    assert {type(step.error) for step in result.steps.values()} == {WorkerLostError}
    eventually(lambda: not alive(int(lines(hung)[0])))


def test_a_map_in_which_bodies_die_and_fail_by_chance_comes_to_its_end(
    runtime: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARES_TEST_FOLDER", str(tmp_path))
    rt = runtime(executors={"cpu": forks}, max_workers=6)
    wf = Workflow("w")
    wf.step(lambda: list(range(40)), id="source")
    retry = RetryPolicy(60, initial_delay=0)  # whoever ran beside one that died is lost, too
    wf.step(bodies.fail_or_not, id="all", map_over="source", executor="cpu", retry=retry)

    assert rt.run(wf).raise_for_status().outputs["all"] == list(range(40))


# --- executors of the caller's, and bad ones -------------------------------------------------------------------


def test_an_executor_of_the_caller_is_not_shut_down() -> None:
    with forks() as pool:
        with Runtime(executors={"cpu": pool}) as rt:
            run(rt, bodies.one).raise_for_status()

        assert pool.submit(bodies.one).result(20) == 1


def test_a_broken_executor_of_the_caller_is_an_error_that_says_what_to_give_instead(runtime: Make) -> None:
    with forks() as pool:
        rt = runtime(executors={"cpu": pool})
        first = run(rt, bodies.die).error
        then = run(rt, bodies.one).error

    assert isinstance(first, WorkerLostError)
    assert isinstance(then, ExecutorError)
    assert "executor 'cpu' is broken and cannot be replaced: give a factory instead" in str(then)


def test_an_executor_that_the_caller_has_shut_down_says_so(runtime: Make) -> None:
    pool = forks()
    pool.shutdown()

    error = run(runtime(executors={"cpu": pool}), bodies.one).error

    assert isinstance(error, ExecutorError)
    assert "cannot schedule new futures after shutdown" in str(error)


def test_a_factory_that_fails_is_an_error_that_names_the_executor(runtime: Make) -> None:
    def fails() -> Executor:
        raise OSError("no such machine")

    error = run(runtime(executors={"cpu": fails}), bodies.one).error

    assert isinstance(error, ExecutorError)
    assert str(error) == "step 'body': executor 'cpu' cannot be made: OSError: no such machine"


def test_a_factory_that_failed_is_asked_again(runtime: Make) -> None:
    asked = []

    def fails_at_first() -> Executor:
        asked.append(1)
        if len(asked) == 1:
            raise OSError("not yet")
        return forks()

    result = run(runtime(executors={"cpu": fails_at_first}), bodies.one, retry=RetryPolicy(2, initial_delay=0))

    assert result.raise_for_status().outputs["body"] == 1


def test_a_factory_that_makes_something_else_is_an_error(runtime: Make) -> None:
    error = run(runtime(executors={"cpu": lambda: 3}), bodies.one).error

    assert "executor 'cpu' cannot be made: TypeError: its factory returned 3" in str(error)


def test_a_factory_is_called_once_however_many_ask(runtime: Make) -> None:
    made = []

    def make() -> Executor:
        made.append(1)
        return forks()

    rt = runtime(executors={"cpu": make}, max_workers=8)
    wf = Workflow("w")
    wf.step(lambda: list(range(30)), id="source")
    wf.step(bodies.double, id="twice", map_over="source", executor="cpu")

    rt.run(wf).raise_for_status()

    assert made == [1]


def test_nothing_is_made_before_it_is_needed(runtime: Make) -> None:
    made = []
    rt = runtime(executors={"cpu": lambda: made.append(1)})
    wf = Workflow("w")
    wf.step(bodies.one, id="body")

    rt.run(wf).raise_for_status()

    assert made == []


def test_a_pool_whose_processes_never_come_up_is_given_up(runtime: Make) -> None:
    broken = partial(
        ProcessPoolExecutor, 1, mp_context=multiprocessing.get_context("fork"), initializer=os._exit, initargs=(1,)
    )

    error = run(runtime(executors={"cpu": broken}), bodies.one).error

    assert isinstance(error, ExecutorError)
    assert "executor 'cpu' broke before the body began, 3 times in a row" in str(error)


def test_a_pool_of_threads_is_an_executor_too(runtime: Make) -> None:
    rt = runtime(executors={"cpu": partial(ThreadPoolExecutor, 1, thread_name_prefix="mine")})

    _, name, is_main = run(rt, bodies.where).raise_for_status().outputs["body"]

    assert name.startswith("mine")
    assert not is_main
    assert run(rt, bodies.write, writes=["total"]).variables["total"] == 3


def test_a_thread_that_outlasts_its_timeout_is_left_and_that_is_said(runtime: Make, tmp_path: Path) -> None:
    go = tmp_path / "go"
    rt = runtime(executors={"cpu": partial(ThreadPoolExecutor, 1)})

    result = run(rt, bodies.wait_for, {"file": str(go)}, timeout=0.2)
    go.touch()

    assert isinstance(result.error, StepTimeoutError)
    assert result.warnings == ("step 'body' may still run on executor 'cpu', which cannot stop it",)


def test_a_loky_pool_sends_what_the_main_module_defines_by_value(tmp_path: Path) -> None:
    from tests.engine.helpers import Child

    program = """
        import functools, ares
        from loky import ProcessPoolExecutor

        def body():
            return helper()

        def helper():
            return "from main"

        if __name__ == "__main__":
            wf = ares.Workflow("w")
            wf.step(body, id="body", executor="cpu")
            with ares.Runtime(executors={"cpu": functools.partial(ProcessPoolExecutor, 1)}) as rt:
                print(rt.run(wf).raise_for_status().outputs["body"])
    """
    with Child(program) as child:
        assert child.result().strip() == "from main"


# --- nothing is left ------------------------------------------------------------------------------------------


def test_killing_again_and_again_leaves_no_process_no_thread_and_no_descriptor(runtime: Make) -> None:
    def one_round() -> None:
        with Runtime(executors={"cpu": forks}) as rt:
            run(rt, bodies.native, timeout=0.05)
            run(rt, bodies.die)
            run(rt, bodies.one).raise_for_status()

    one_round()
    eventually(lambda: multiprocessing.active_children() == [])
    before, threads = open_files(), threading.active_count()
    for _ in range(5):
        one_round()

    eventually(lambda: multiprocessing.active_children() == [])
    eventually(lambda: threading.active_count() <= threads)
    eventually(lambda: open_files() <= before)


def test_no_marks_are_left_in_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Runtime(executors={"cpu": forks}) as rt:
        for _ in range(3):
            run(rt, bodies.one).raise_for_status()
        (folder,) = tmp_path.glob("ares-marks-*")
        assert list(folder.iterdir()) == []

    assert list(tmp_path.iterdir()) == []


def test_a_workflow_that_names_an_executor_that_there_is_not_is_refused_before_anything_runs(runtime: Make) -> None:
    rt = runtime(executors={"cpu": forks, "cluster": forks})
    wf = away(bodies.one, executor="cluser")

    from ares.errors import DefinitionError

    for act in (lambda: rt.run(wf), lambda: rt.submit(wf)):
        with pytest.raises(DefinitionError) as raised:
            act()
        assert str(raised.value) == (
            "workflow 'away', step 'body': executor 'cluser' is not one of the Runtime's; did you mean 'cluster'? "
            "(executors: 'cpu', 'cluster')"
        )
    assert rt.executions() == []
    with pytest.raises(DefinitionError, match=r"executor 'cpu' is not one of the Runtime's \(executors: none\)"):
        runtime().run(away(bodies.one))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "executors must map names to executors, not be []"),
        ({3: forks}, "executors must map names to executors: 3 is no name"),
        ({"": forks}, "executors must map names to executors: '' is no name"),
        ({"cpu": 4}, "executors['cpu'] must be a concurrent.futures.Executor or make one without arguments, not 4"),
        ({"cpu": None}, "executors['cpu'] must be"),
        ({"cpu": bodies.double}, "executors['cpu'] must be"),
    ],
)
def test_what_can_be_no_executor_is_refused_by_its_name(given: Any, problem: str) -> None:
    from ares.errors import UsageError

    if given == []:
        given = 7
        problem = "executors must map names to executors, not be 7"
    with pytest.raises(UsageError) as raised:
        Runtime(executors=given)
    assert problem in str(raised.value)
