"""Forks: a Runtime made before one works after it, in the child as in the parent."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ares import ExecutionStatus, Plugin, Runtime, StepContext, Workflow
from tests.engine.helpers import Child, Gate, Task, eventually, fan, seconds_since, single

Make = Callable[..., Runtime]

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    # Python 3.12 and newer warn of what these tests are about.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(act: Callable[[], object], limit: float = 10.0) -> str:
    """What ``act`` comes to in a forked child, as text; the child is killed when it takes too long."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                said = repr(act())
            except BaseException as error:
                said = f"raised {error!r}"
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        return _heard(reader, pid, limit)
    finally:
        os.close(reader)


def _heard(reader: int, pid: int, limit: float) -> str:
    import select
    import signal

    deadline, said = time.monotonic() + limit, b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child did not answer within {limit:g} s")
        more = os.read(reader, 65536)
        if not more:
            os.waitpid(pid, 0)
            return said.decode()
        said += more


@pytest.mark.case("C020")
@pytest.mark.parametrize("was_used", [True, False], ids=["used", "unused"])
def test_a_runtime_made_before_a_fork_works_in_the_child(runtime: Make, store: str | None, was_used: bool) -> None:
    rt = runtime(store, max_workers=2)
    if was_used:
        rt.run(fan(3)).raise_for_status()
        rt.submit(fan(3)).result(10)

    started = time.monotonic()
    said = in_child(lambda: [rt.run(fan(3)).status.value, rt.submit(fan(3)).result(10).status.value])

    assert said == "['COMPLETED', 'COMPLETED']"
    assert seconds_since(started) < 2
    assert rt.run(fan(3)).status is ExecutionStatus.COMPLETED


@pytest.mark.case("C020")
def test_the_parent_is_not_disturbed(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    begun, may_end = Gate(), Gate()
    running = rt.submit(single(lambda: begun.open() or may_end.wait() or "parent"))
    begun.wait()

    said = in_child(lambda: [rt.run(fan(2)).status.value, rt.close()])
    more = rt.submit(fan(2))
    may_end.open()

    assert said == "['COMPLETED', None]"
    assert running.result(10).outputs == {"body": "parent"}
    assert more.result(10).status is ExecutionStatus.COMPLETED


@pytest.mark.case("C020")
def test_ares_imported_before_a_fork_works_fully_in_the_child(tmp_path: Path) -> None:
    file = str(tmp_path / "ares.db")

    def act() -> list[str]:
        with Runtime(file, max_workers=2) as rt:
            first = rt.run(fan(3), execution_id="x").status.value
            return [first, rt.execution("x").status.value]

    assert in_child(act) == "['COMPLETED', 'COMPLETED']"
    with Runtime(file) as rt:
        assert rt.execution("x").status is ExecutionStatus.COMPLETED


@pytest.mark.case("C020")
def test_forks_in_the_middle_of_many_runs_hang_nobody(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=3)
    stop = Gate()

    def busy() -> int:
        count = 0
        while not stop.is_open():
            rt.run(fan(3)).raise_for_status()
            count += 1
        return count

    runs = [Task(busy) for _ in range(3)]
    try:
        for _ in range(15):
            assert in_child(lambda: rt.run(fan(3)).status.value) == "'COMPLETED'"
    finally:
        stop.open()

    assert all(run.result() > 0 for run in runs)


def test_a_child_reads_what_its_parent_kept(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db")
    rt.run(single(lambda: 1), execution_id="x")

    assert in_child(lambda: [e.execution_id for e in rt.executions()]) == "['x']"
    assert in_child(lambda: rt.checkpoint("x").outputs) == "{'body': 1}"


def test_a_child_does_not_take_over_what_its_parent_walks(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db")
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait())
    running = rt.submit(wf, execution_id="x")
    begun.wait()

    said = in_child(lambda: rt.resume("x", wf))
    may_end.open()

    assert "ExecutionBusyError" in said
    assert running.result(10).status is ExecutionStatus.COMPLETED


def test_a_child_waits_for_what_its_parent_walks_and_hears_of_its_end(runtime: Make, tmp_path: Path) -> None:
    begun, may_end = Gate(), Gate()
    wf = single(lambda: begun.open() or may_end.wait() or "parent")
    rt = runtime(tmp_path / "ares.db", workflows=[wf])
    execution = rt.submit(wf)
    begun.wait()
    assert in_child(lambda: [execution.done(), execution.wait(0.05), execution.progress()]) == "[False, False, None]"
    reader, writer = os.pipe()

    def in_a_child() -> object:
        os.write(writer, b"waits")
        return execution.result(10).outputs

    child = Task(in_child, in_a_child)
    assert os.read(reader, 5) == b"waits"
    may_end.open()

    assert child.result() == "{'body': 'parent'}"
    assert in_child(lambda: execution.result(0).outputs) == "{'body': 'parent'}"
    os.close(reader)
    os.close(writer)


def test_a_handle_that_was_in_use_at_the_fork_is_of_use_in_the_child(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db")
    execution = rt.submit(fan(2))
    execution.wait(10)

    with execution._lock:
        said = in_child(lambda: execution.result(5).status.value)

    assert said == "'COMPLETED'"


def test_a_close_before_the_fork_holds_in_the_child(store: str | None) -> None:
    rt = Runtime(store)
    rt.run(fan(2))
    rt.close()

    assert "RuntimeClosedError" in in_child(lambda: rt.run(fan(2)))


def test_a_close_in_the_child_holds_there_alone(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(fan(2))

    def act() -> object:
        rt.close()
        return rt.run(fan(2))

    assert "RuntimeClosedError" in in_child(act)
    assert rt.run(fan(2)).status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
def test_a_step_may_fork_and_its_child_may_run_workflows(runtime: Make, store: str | None, steps_on: str) -> None:
    rt = runtime(store, steps_on=steps_on, max_workers=2)

    def body(ctx: StepContext) -> str:
        ctx.emit("forking")
        return in_child(lambda: [rt.run(fan(3)).status.value, Runtime().run(fan(2)).status.value])

    result = rt.run(single(body))

    assert result.raise_for_status().outputs == {"body": "['COMPLETED', 'COMPLETED']"}


def left_by(way: str) -> int:
    """Fork, have the child leave its caller in some way, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        if way == "raise":
            raise ValueError("in the child")
        if way == "exit":
            raise SystemExit(3)
        return -1
    eventually(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
@pytest.mark.parametrize(("way", "code"), [("return", 0), ("exit", 3), ("raise", 1)])
def test_a_child_that_comes_out_of_its_step_ends_there(
    runtime: Make, store: str | None, steps_on: str, way: str, code: int
) -> None:
    left: list[int] = []

    @contextmanager
    def around(_: StepContext) -> Iterator[None]:
        yield
        left.append(os.getpid())

    rt = runtime(store, steps_on=steps_on, around_step=around)

    result = rt.run(single(lambda: left_by(way)))

    assert result.raise_for_status().outputs == {"body": code}
    assert left == [os.getpid()]


def test_a_child_that_comes_out_of_a_plugin_ends_there(runtime: Make, store: str | None) -> None:
    class Forker(Plugin):
        name = "forker"
        codes: ClassVar[list[int]] = []

        def after_step(self, ctx: object, execution_id: str, result: object) -> None:
            self.codes.extend(left_by(way) for way in ("return", "exit", "raise"))

    result = runtime(store, plugins=[Forker()]).run(single(lambda: 1))

    assert Forker.codes == [0, 3, 1]
    assert result.warnings == ()


def test_a_fork_while_locks_are_held_does_not_hang_the_child(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(fan(2))
    engine = rt._life.engine()
    locked, release = Gate(), Gate()

    def hold() -> None:
        with rt._life._lock, engine._lock, engine.pool._lock:
            locked.open()
            release.wait()

    holder = Task(hold)
    locked.wait()
    try:
        said = in_child(lambda: rt.run(fan(2)).status.value)
    finally:
        release.open()
    holder.result()

    assert said == "'COMPLETED'"


def test_a_child_of_a_child_works_too(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    rt.run(fan(2))

    def grandchild() -> str:
        return in_child(lambda: rt.run(fan(2)).status.value)

    def child() -> list[Any]:
        return [rt.run(fan(2)).status.value, grandchild(), rt.run(fan(2)).status.value]

    assert in_child(child) == repr(["COMPLETED", "'COMPLETED'", "COMPLETED"])


def test_a_child_that_ends_like_a_program_leaves_the_parents_store_alone(tmp_path: Path) -> None:
    program = """
        import os, sys
        from ares import Runtime, Workflow
        wf = Workflow("w")
        wf.step(lambda: 1, id="a")
        rt = Runtime(sys.argv[1])
        rt.run(wf, execution_id="parent").raise_for_status()
        execution = rt.submit(wf)
        pid = os.fork()
        if pid == 0:
            rt.run(wf, execution_id="child").raise_for_status()
            sys.exit(0)  # atexit and all
        assert os.waitpid(pid, 0)[1] == 0
        execution.result().raise_for_status()
        rt.run(wf, execution_id="after").raise_for_status()
        print(sorted(e.execution_id for e in rt.executions() if len(e.execution_id) < 10), flush=True)
    """
    with Child(program, str(tmp_path / "ares.db"), warnings="default") as child:
        code, out, err = child.finish()

    assert code == 0, err
    assert out.strip() == "['after', 'child', 'parent']"
    with Runtime(tmp_path / "ares.db") as rt:
        assert {e.status for e in rt.executions()} == {ExecutionStatus.COMPLETED}


def test_a_forked_server_with_a_runtime_in_every_child(tmp_path: Path) -> None:
    """As pre-forking servers do it: made once, used in each worker process."""
    program = """
        import os, sys
        from ares import Runtime, Workflow
        wf = Workflow("w", inputs={"n": int})
        wf.step(lambda n: n, id="a")
        wf.step(lambda a: a + 1, id="b")
        wf.step(lambda a: a + 2, id="c")
        rt = Runtime(sys.argv[1], max_workers=2)
        pids = []
        for n in range(6):
            pid = os.fork()
            if pid == 0:
                for i in range(10):
                    rt.run(wf, {"n": n}, execution_id=f"{n}-{i}").raise_for_status()
                rt.close()
                os._exit(0)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 6
        print(len(rt.executions()), {str(e.status) for e in rt.executions()}, flush=True)
    """
    with Child(program, str(tmp_path / "ares.db"), warnings="default") as child:
        code, out, err = child.finish(timeout=40)

    assert code == 0, err
    assert out.strip() == "60 {'COMPLETED'}"


def test_threads_of_the_parent_do_not_exist_in_the_child(runtime: Make, store: str | None) -> None:
    rt = runtime(store, max_workers=2)
    rt.submit(fan(4)).result(10)
    wf = Workflow("w")
    wf.step(lambda: [t.name for t in threading.enumerate() if t.name.startswith("ares-w")], id="a", timeout=30)

    said = in_child(lambda: len(rt.run(wf).outputs["a"]))

    assert said == "1"
    eventually(lambda: rt._life.engine().pool.busy == 0)


def test_a_runtime_that_was_made_imports_nothing_more(tmp_path: Path) -> None:
    """The child of a fork that comes while a thread imports waits for ever, as soon as it needs the same module."""
    program = """
        import sys
        from ares import Runtime, Workflow
        from tests.durability.one_of_everything import rich
        wf = rich()
        runtimes = [Runtime(sys.argv[1]), Runtime()]
        before = set(sys.modules)
        for rt in runtimes:
            rt.submit(wf, {"effects": sys.argv[2]}, execution_id="x").result(20)
            rt.checkpoint("x"), rt.questions(), rt.recover(), rt.cancel("x"), list(rt.execution("x").events())
            rt.close()
        print(sorted(set(sys.modules) - before), flush=True)
    """
    with Child(program, str(tmp_path / "ares.db"), str(tmp_path / "effects")) as child:
        assert child.result() == "[]\n"
