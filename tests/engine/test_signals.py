"""Ctrl-C in a real process: at whatever moment, the program ends soon and the execution can go on."""

import textwrap
import time
from pathlib import Path

import pytest

from ares import ExecutionStatus, Runtime, StepSpec, StepStatus, Workflow
from tests.engine.helpers import Child, Task, seconds_since

#: Of the moments at which Ctrl-C is pressed.
SEED = 17

PRELUDE = """
    import os, signal, sys, threading, time
    from ares import Runtime, StepSpec, Workflow

    file, kind = sys.argv[1] or None, sys.argv[2]
    rt = Runtime(file, max_workers=4)

    def say(*words):
        print(*words, flush=True)

    def interrupted(act):
        # What a program makes of a Ctrl-C, and how long it took.
        try:
            act()
        except KeyboardInterrupt:
            say("KeyboardInterrupt")
            say(rt.execution("x").status)
            sys.exit(130)
        say("no KeyboardInterrupt")
"""


def program(body: str) -> str:
    return textwrap.dedent(PRELUDE) + textwrap.dedent(body)


INLINE = """
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    wf.step(lambda a: say("ready") or time.sleep(3600), id="b")
    wf.step(lambda b: b, id="c")
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""
WORKERS = """
    wf = Workflow("w")
    together = threading.Barrier(4, action=lambda: say("ready"))
    for i in range(4):
        wf.add(StepSpec(f"s{i}", lambda: together.wait() and 0 or time.sleep(3600)))
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""
BESIDE_A_TIMEOUT = """
    wf = Workflow("w")
    wf.step(lambda: say("ready") or time.sleep(3600), id="a", timeout=3000)
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""
NESTED = """
    inner = Workflow("inner")
    inner.step(lambda: say("ready") or time.sleep(3600), id="deep")
    wf = Workflow("w")
    wf.step(lambda: rt.run(inner), id="a")
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""
NESTED_WORKERS = """
    inner = Workflow("inner")
    together = threading.Barrier(3, action=lambda: say("ready"))
    for i in range(3):
        inner.add(StepSpec(f"s{i}", lambda: together.wait() and 0 or time.sleep(3600)))
    wf = Workflow("w")
    wf.step(lambda: rt.run(inner), id="a", timeout=3000)
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""
SUBMITTED = """
    wf = Workflow("w")
    wf.step(lambda: say("ready") or time.sleep(3600), id="a")
    execution = rt.submit(wf, execution_id="x")
    try:
        execution.result()
    except KeyboardInterrupt:
        say("KeyboardInterrupt")
        rt.close(timeout=0.2)
        say(execution.status)
        sys.exit(130)
"""
RETRY = """
    from ares import RetryPolicy
    wf = Workflow("w")
    wf.step(lambda: say("ready") or 1 / 0, id="a", retry=RetryPolicy(3, initial_delay=3000, max_delay=3000))
    interrupted(lambda: rt.run(wf, execution_id="x"))
"""


PROGRAMS = {
    "inline": INLINE,
    "workers": WORKERS,
    "beside a timeout": BESIDE_A_TIMEOUT,
    "nested": NESTED,
    "nested workers": NESTED_WORKERS,
    "submitted": SUBMITTED,
    "retry": RETRY,
}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_ctrl_c_ends_a_program_within_three_seconds_wherever_it_is(tmp_path: Path, store: str) -> None:
    files = {name: tmp_path / f"{name}.db" for name in PROGRAMS}
    ended: dict[str, tuple[int, list[str], str]] = {}
    took: dict[str, float] = {}

    def press(name: str) -> None:
        file = str(files[name]) if store == "sqlite" else ""
        with Child(program(PROGRAMS[name]), file, "", warnings="default") as child:
            assert child.hear() == "ready"
            pressed = time.monotonic()
            child.interrupt()
            code, out, err = child.finish(timeout=10)
            took[name] = seconds_since(pressed)
            ended[name] = (code, out.split(), err)

    for task in [Task(press, name) for name in PROGRAMS]:
        task.result(30)

    assert ended == dict.fromkeys(PROGRAMS, (130, ["KeyboardInterrupt", "INTERRUPTED"], ""))
    # A second more, for seven interpreters that end at once.
    assert {name: seconds for name, seconds in took.items() if seconds > 3.0 + 1.0} == {}
    if store == "sqlite":
        for file in files.values():
            with Runtime(file) as rt:
                assert {e.status for e in rt.executions()} == {ExecutionStatus.INTERRUPTED}


@pytest.mark.case("C017")
def test_after_a_ctrl_c_a_resume_runs_the_interrupted_steps_only(tmp_path: Path) -> None:
    source = """
    wf = Workflow("w")
    together = threading.Barrier(4, action=lambda: say("ready"))
    wf.step(lambda: "once", id="first")
    for i in range(4):
        wf.add(StepSpec(f"s{i}", lambda: together.wait() and 0 or time.sleep(30), depends_on=["first"], max_crashes=1))
    interrupted(lambda: rt.run(wf, execution_id="x"))
    """
    with Child(program(source), str(tmp_path / "ares.db"), "", warnings="default") as child:
        assert child.hear() == "ready"
        child.interrupt()
        assert child.finish(timeout=10)[0] == 130
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: ran.append("first"), id="first")
    for i in range(4):
        wf.add(StepSpec(f"s{i}", lambda i=i: ran.append(f"s{i}"), depends_on=["first"], max_crashes=1))  # type: ignore[misc]

    with Runtime(tmp_path / "ares.db") as rt:
        result = rt.resume("x", wf)

    assert result.status is ExecutionStatus.COMPLETED
    assert sorted(ran) == ["s0", "s1", "s2", "s3"]
    assert {step.attempts for step in result.steps.values()} == {1}


def test_bodies_that_see_it_may_end_in_order(tmp_path: Path) -> None:
    source = """
    def body(ctx):
        say("ready")
        while not ctx.cancelled:
            time.sleep(0.005)
        return "in order"

    wf = Workflow("w")
    wf.step(body, id="a", timeout=3000)
    wf.step(lambda a: a, id="b")
    interrupted(lambda: rt.run(wf, execution_id="x"))
    """
    with Child(program(source), str(tmp_path / "ares.db"), "", warnings="default") as child:
        assert child.hear() == "ready"
        child.interrupt()
        assert child.finish(timeout=10)[0] == 130

    with Runtime(tmp_path / "ares.db") as rt:
        states = rt.checkpoint("x").step_states

    assert states["a"].status is StepStatus.COMPLETED
    assert states["a"].output == "in order"
    assert "b" not in states or states["b"].status is StepStatus.PENDING


def test_a_second_ctrl_c_does_not_wait_for_anything(tmp_path: Path) -> None:
    source = """
    wf = Workflow("w")
    wf.step(lambda: say("ready") or time.sleep(3600), id="a", timeout=3000)
    def act():
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        rt.run(wf, execution_id="x")
    interrupted(act)
    """
    with Child(program(source), str(tmp_path / "ares.db"), "", warnings="default") as child:
        assert child.hear() == "ready"
        pressed = time.monotonic()
        child.interrupt()
        code, out, err = child.finish(timeout=10)
        took = seconds_since(pressed)

    assert out.split() == ["KeyboardInterrupt", "INTERRUPTED"], out + err
    assert code == 130
    assert took < 2.0
    with Runtime(tmp_path / "ares.db") as rt:
        assert rt.resume("x", replacement("a")).status is ExecutionStatus.COMPLETED


def test_a_ctrl_c_while_a_commit_is_waited_for(tmp_path: Path) -> None:
    source = """
    from ares.stores.sqlite import SqliteStore

    class Slow(SqliteStore):
        def append(self, appends, *, sync):
            if any(e.kind == "succeeded" for a in appends for e in a.entries):
                say("ready")
                time.sleep(0.7)
            return super().append(appends, sync=sync)

    rt = Runtime(Slow(file), max_workers=4)
    wf = Workflow("w")
    wf.step(lambda: say("ran"), id="a")
    wf.step(lambda a: a, id="b")
    interrupted(lambda: rt.run(wf, execution_id="x"))
    """
    with Child(program(source), str(tmp_path / "ares.db"), "", warnings="default") as child:
        assert child.hear() == "ran"
        assert child.hear() == "ready"
        pressed = time.monotonic()
        child.interrupt()
        code, out, err = child.finish(timeout=10)
        took = seconds_since(pressed)

    assert code == 130, out + err
    assert took < 3.5
    ran: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: ran.append("a"), id="a", max_crashes=1)
    wf.step(lambda a: ran.append("b"), id="b", max_crashes=1)
    with Runtime(tmp_path / "ares.db") as rt:
        assert rt.execution("x").status is ExecutionStatus.INTERRUPTED
        assert rt.resume("x", wf).status is ExecutionStatus.COMPLETED
    assert ran in (["b"], ["a", "b"])  # whether the commit was torn is SQLite's to say


def replacement(*steps: str) -> Workflow:
    """The same workflow, with bodies that end."""
    wf = Workflow("w")
    for step in steps:
        wf.add(StepSpec(step, lambda: None, max_crashes=1))
    return wf


@pytest.mark.parametrize("kind", ["chain", "fan"])
def test_ctrl_c_at_any_moment_leaves_an_execution_that_can_go_on(tmp_path: Path, kind: str) -> None:
    """Real signals at random moments of many short runs, commits included."""
    source = """
    import random

    kind, seed = kind.split()

    def make():
        wf = Workflow("w")
        if kind == "chain":
            for i in range(12):
                wf.add(StepSpec(f"s{i}", lambda i=i: ran.append(i), depends_on=[f"s{i-1}"] if i else []))
        else:
            for i in range(12):
                wf.add(StepSpec(f"s{i}", lambda i=i: ran.append(i)))
        return wf

    signal.signal(signal.SIGALRM, signal.default_int_handler)  # a Ctrl-C that comes by itself
    draw = random.Random(int(seed))
    wf = make()
    interrupts = 0
    rt.start()
    for trial in range(60):
        ran, took = [], 0.0
        id = f"run-{trial}"
        try:
            begun = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + draw.random() * 0.015)
            try:
                rt.run(wf, execution_id=id)
            finally:
                took = time.monotonic() - begun
            time.sleep(0.1)
        except KeyboardInterrupt:
            interrupts += 1
            assert took < 2.0, took
        found = [e.execution_id for e in rt.executions()]
        if id in found and rt.execution(id).status != "COMPLETED":
            before = len(ran)
            result = rt.resume(id, wf)
            assert result.status == "COMPLETED", result
            assert len(set(ran)) == 12 and len(ran) <= 12 + 5, (before, ran)
    assert interrupts > 10, interrupts
    pool = rt._life.engine().pool
    for _ in range(1000):
        if not pool.busy:
            break
        time.sleep(0.005)
    assert pool.busy == 0, pool.busy
    say("survived")
    rt.close()
    """
    with Child(program(source), str(tmp_path / "ares.db"), f"{kind} {SEED}", warnings="default") as child:
        code, out, err = child.finish(timeout=50)

    assert out.split() == ["survived"], out + err
    assert code == 0
