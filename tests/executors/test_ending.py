"""How bodies on executors come to an early end: cancels, closing, Ctrl-C, forks, and the death of the home."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime, Workflow
from ares.errors import ExecutionTimeoutError, StepCancelledError
from tests.engine.helpers import Child, Task, eventually, seconds_since
from tests.engine.test_fork import in_child
from tests.executors import bodies
from tests.executors.conftest import away, forks, lines, run, single_fork

Make = Callable[..., Runtime]

# Python 3.12 and newer warn of forks beside threads.
FORKS = "ignore:This process"
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# --- cancels ---------------------------------------------------------------------------------------------------


def test_what_has_not_begun_is_cancelled_at_once_and_never_begins(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": single_fork}, max_workers=8)
    notes, go = tmp_path / "notes", tmp_path / "go"
    wf = Workflow("w", inputs={"notes": str, "file": str})
    wf.step(lambda: list(range(5)), id="source")
    wf.step(bodies.note_and_wait, id="waits", map_over="source", executor="cpu")
    handle = rt.submit(wf, {"notes": str(notes), "file": str(go)})
    eventually(lambda: lines(notes))

    rt.cancel(handle.id)
    eventually(lambda: len([s for s in rt.checkpoint(handle.id).step_states.values() if s.error is not None]) >= 4)
    go.touch()
    result = handle.result(20)

    assert result.status is ExecutionStatus.CANCELLED
    assert len(lines(notes)) == 1


def test_what_runs_has_the_grace_and_then_is_killed(
    runtime: Make, effects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ares.engine import cutting

    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.3)
    rt = runtime(executors={"cpu": forks})
    handle = rt.submit(away(bodies.note_and_hang, {"file": str(effects)}), {"file": str(effects)})
    eventually(lambda: lines(effects))

    began = time.monotonic()
    rt.cancel(handle.id)
    result = handle.result(20)

    assert result.status is ExecutionStatus.CANCELLED
    assert isinstance(result.steps["body"].error, StepCancelledError)
    assert seconds_since(began) >= 0.3
    eventually(lambda: not alive(int(lines(effects)[0])))


def test_what_ends_within_the_grace_is_not_killed(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": forks})
    notes, go = tmp_path / "notes", tmp_path / "go"
    inputs = {"notes": str(notes), "file": str(go)}
    handle = rt.submit(away(bodies.note_and_wait, inputs), inputs)
    eventually(lambda: lines(notes))

    rt.cancel(handle.id)
    go.touch()
    result = handle.result(20)

    assert result.status is ExecutionStatus.CANCELLED
    assert result.outputs == {"body": 0}


def test_an_at_most_once_body_that_never_began_is_known_not_to_have(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(executors={"cpu": single_fork}, max_workers=8)
    notes, go = tmp_path / "notes", tmp_path / "go"
    wf = Workflow("w", inputs={"notes": str, "file": str})
    wf.step(bodies.note_and_wait, id="first", executor="cpu")
    wf.step(bodies.note_and_wait, id="second", executor="cpu", delivery="at_most_once")
    handle = rt.submit(wf, {"notes": str(notes), "file": str(go)})
    eventually(lambda: lines(notes))
    eventually(lambda: rt.checkpoint(handle.id).step_states["second"].status == "RUNNING")

    rt.cancel(handle.id)
    eventually(lambda: rt.checkpoint(handle.id).step_states["second"].status == "FAILED")
    go.touch()

    error = handle.result(20).steps["second"].error
    assert isinstance(error, StepCancelledError)
    assert len(lines(notes)) == 1


def test_the_timeout_of_an_execution_ends_what_runs_elsewhere(
    runtime: Make, effects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ares.engine import cutting

    monkeypatch.setattr(cutting, "CANCEL_GRACE", 0.1)
    rt = runtime(executors={"cpu": forks})

    result = rt.run(away(bodies.note_and_hang, {"file": ""}), {"file": str(effects)}, timeout=0.5)

    assert isinstance(result.error, ExecutionTimeoutError)
    eventually(lambda: all(not alive(int(pid)) for pid in lines(effects)))


def test_a_cancel_takes_effect_in_a_chain_that_would_run_inline(runtime: Make, effects: Path) -> None:
    rt = runtime(executors={"cpu": forks})
    walk = Task(rt.run, away(bodies.note_and_hang, {"file": ""}), {"file": str(effects)}, execution_id="x")
    eventually(lambda: lines(effects))

    rt.close(timeout=0.2)

    with pytest.raises(Exception, match="closed"):
        walk.result()


# --- closing -----------------------------------------------------------------------------------------------------


def test_closing_is_bounded_and_leaves_nothing_behind(tmp_path: Path) -> None:
    effects, threads = tmp_path / "effects", threading.active_count()
    rt = Runtime(tmp_path / "ares.db", executors={"cpu": forks})
    handle = rt.submit(away(bodies.note_and_hang, {"file": ""}), {"file": str(effects)})
    eventually(lambda: lines(effects))

    began = time.monotonic()
    rt.close(timeout=0.2)

    assert seconds_since(began) < 5
    eventually(lambda: not alive(int(lines(effects)[0])))
    eventually(lambda: multiprocessing.active_children() == [])
    eventually(lambda: threading.active_count() <= threads)
    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as again:
        assert again.executions()[0].status is ExecutionStatus.INTERRUPTED
        assert again.executions()[0].execution_id == handle.id


def test_an_execution_that_was_closed_is_resumed(tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    inputs = {"notes": str(notes), "file": str(go)}
    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as rt:
        handle = rt.submit(away(bodies.note_and_wait, inputs), inputs)
        eventually(lambda: lines(notes))
        rt.close(timeout=0.1)
    go.touch()

    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as rt:
        result = rt.resume(handle.id, away(bodies.note_and_wait, inputs))

    assert result.raise_for_status().outputs["body"] == 0


EXIT = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from pathlib import Path
    import ares
    from tests.engine.helpers import eventually
    from tests.executors import bodies
    from tests.executors.conftest import away

    make = partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("fork"))
    if sys.argv[3] == "loky":
        from loky import ProcessPoolExecutor as Loky
        make = partial(Loky, 1)
    elif sys.argv[3] == "callers":
        make = make()
    rt = ares.Runtime(sys.argv[1], executors={"cpu": make})
    effects = Path(sys.argv[2])
    handle = rt.submit(away(bodies.note_and_hang, {"file": ""}), {"file": str(effects)}, execution_id="x")
    eventually(lambda: effects.exists() and effects.read_text().endswith("\\n"))
    print("begun", flush=True)
"""


@pytest.mark.parametrize("kind", ["factory", "callers", "loky"])
def test_a_process_whose_body_never_returns_comes_to_its_end(tmp_path: Path, kind: str) -> None:
    effects = tmp_path / "effects"
    with Child(EXIT, str(tmp_path / "ares.db"), str(effects), kind, warnings=FORKS) as child:
        assert child.hear() == "begun"
        child.result()

    (pid,) = lines(effects)
    eventually(lambda: not alive(int(pid)))
    with Runtime(tmp_path / "ares.db") as rt:
        assert rt.executions()[0].status is ExecutionStatus.INTERRUPTED


CTRL_C = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    import ares
    from tests.executors import bodies
    from tests.executors.conftest import away

    make = partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("fork"))
    rt = ares.Runtime(sys.argv[1], executors={"cpu": make})
    try:
        with rt:
            rt.run(away(bodies.note_and_hang, {"file": ""}), {"file": sys.argv[2]}, execution_id="x")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_a_ctrl_c_at_the_terminal_interrupts_and_is_no_failure_of_the_step(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    with Child(CTRL_C, str(tmp_path / "ares.db"), str(effects), warnings=FORKS) as child:
        eventually(lambda: lines(effects))
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: everybody of the group
        code, out, _ = child.finish()

    assert (code, out.strip()) == (0, "interrupted")
    eventually(lambda: not alive(int(lines(effects)[0])))
    with Runtime(tmp_path / "ares.db") as rt:
        assert rt.executions()[0].status is ExecutionStatus.INTERRUPTED


# --- the death of the home -------------------------------------------------------------------------------------------

HOME = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    import ares
    from ares.executors import end_with_home
    from tests.executors import bodies
    from tests.executors.conftest import away

    context = multiprocessing.get_context(sys.argv[3])
    make = partial(ProcessPoolExecutor, 2, mp_context=context, initializer=end_with_home)
    if __name__ == "__main__":
        rt = ares.Runtime(sys.argv[1], executors={"cpu": make})
        inputs = {"notes": sys.argv[2], "file": sys.argv[4]}
        rt.run(away(bodies.note_and_wait, inputs), inputs, execution_id="x")
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_the_processes_of_a_home_that_was_killed_end_and_the_execution_is_resumed(tmp_path: Path, method: str) -> None:
    effects, go = tmp_path / "effects", tmp_path / "go"
    with Child(HOME, str(tmp_path / "ares.db"), str(effects), method, str(go), warnings=FORKS) as child:
        eventually(lambda: lines(effects))
        child.signal(signal.SIGKILL)
    # Its processes held the other end of what it printed to: they are gone, too, or the child would not be over.
    go.touch()

    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as rt:
        result = rt.resume("x", away(bodies.note_and_wait, {"notes": "", "file": ""}))

    assert result.raise_for_status().outputs["body"] == 0
    assert lines(effects) == ["0", "0"]


# --- forks -------------------------------------------------------------------------------------------------------


def test_a_runtime_made_before_a_fork_makes_its_own_executors_in_the_child(runtime: Make) -> None:
    rt = runtime(executors={"cpu": forks})
    run(rt, bodies.one).raise_for_status()

    def act() -> Any:
        found = run(rt, bodies.one).raise_for_status().outputs["body"]
        rt.close()
        return found

    assert in_child(act) == "1"
    assert run(rt, bodies.one).raise_for_status().outputs["body"] == 1


def test_an_executor_of_the_caller_does_not_survive_a_fork_and_that_is_said(runtime: Make) -> None:
    with forks() as pool:
        rt = runtime(executors={"cpu": pool})
        run(rt, bodies.one).raise_for_status()

        said = in_child(lambda: run(rt, bodies.one).error)

        assert "executor 'cpu' was made in the parent of this process: give a factory instead" in said
        assert run(rt, bodies.one).raise_for_status().outputs["body"] == 1
