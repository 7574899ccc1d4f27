"""What child processes are started with. Each function takes a ``Voice`` first and plain values after it, and returns
plain values.
"""

import os
import resource
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from loguru import logger

from ares import Approve, ExecutionStatus, Reject, RunAgain, Runtime, Workflow
from ares.errors import AresError, ExecutionBusyError, LeaseLostError, StoreError, UsageError
from ares.postbox import Latch
from ares.stores.opening import open_store
from benchmarks.soak.disk import mount_small_disk
from benchmarks.soak.faults import FullDisk
from benchmarks.soak.places import FilePlace
from benchmarks.soak.plan import Plan, Timing
from benchmarks.soak.proof import violations
from benchmarks.soak.stage import play
from examples import code_audit
from tests.durability import asking, flows, hostile, one_of_everything
from tests.durability.hostile import hostile as hostile_flow
from tests.durability.nursery import DEADLINE, Voice
from tests.durability.stores import CrashingInbox, CrashingStore
from tests.durability.traces import leave, said, told


def begin(voice: Voice) -> None:
    """The first thing that happens in a child."""
    flows.LINE.append(voice)


def named(workflow: str) -> Workflow:
    """A workflow by the name of the function that makes it."""
    for module in (flows, one_of_everything, hostile, asking):
        if hasattr(module, workflow):
            made: Workflow = getattr(module, workflow)()
            return made
    raise LookupError(workflow)


def run(
    _: Voice,
    workflow: str,
    db: str,
    execution_id: str = "e",
    inputs: dict[str, Any] | None = None,
    at: int | None = None,
    before: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run one of ``WORKFLOWS``; with ``at`` until the store kills the process."""
    store: Any = db if at is None else CrashingStore(open_store(db), at=at, before=before)
    with Runtime(store, **options) as rt:
        return told(rt.run(named(workflow), inputs, execution_id=execution_id))


def resume(
    _: Voice,
    workflow: str,
    db: str,
    execution_id: str = "e",
    at: int | None = None,
    before: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Resume an execution of one of ``WORKFLOWS``; with ``at`` until the store kills the process."""
    store: Any = db if at is None else CrashingStore(open_store(db), at=at, before=before)
    with Runtime(store) as rt:
        return told(rt.resume(execution_id, named(workflow), **options))


def answer(_: Voice, db: str, step: str, execution_id: str = "e", key: str | None = None, **given: Any) -> str:
    """Answer a question: ``approve=value``, ``reject=reason`` or ``again=True``. The name of what it raised."""
    (how,) = given
    makes = {"approve": Approve, "reject": Reject, "again": lambda _: RunAgain()}
    with Runtime(db) as rt:
        try:
            rt.answer(execution_id, makes[how](given[how]), step=step, key=key)
        except AresError as error:
            return type(error).__name__
    return ""


def answer_all(_: Voice, db: str, effects: str, at: int | None = None) -> dict[str, Any]:
    """Run ``asking_all`` to its end, answering whatever it asks; with ``at`` until the store kills the process."""
    store: Any = db if at is None else CrashingInbox(open_store(db), at=at, before=False)
    wf = asking.asking_all()
    with Runtime(store, max_workers=3) as rt:
        result = rt.run(wf, {"effects": effects}, execution_id="e")
        while result.interrupts:
            for question in result.interrupts:
                rt.answer(question, asking.answer_to(question, "first"))
            result = rt.resume("e", wf)
        return told(result)


def submit_and_rest(voice: Voice, workflow: str, db: str, effects: str, ids: list[str]) -> dict[str, Any]:
    """Submit, say when all of them rest, and the result of the first once the test says so."""
    with Runtime(db, max_workers=2) as rt:
        handles = [rt.submit(named(workflow), {"effects": effects}, execution_id=each) for each in ids]
        for handle in handles:
            assert handle.wait(DEADLINE)
        voice.say({"rests": [str(handle.status) for handle in handles]})
        voice.hear()
        return told(handles[0].result(DEADLINE))


def recover_and_wait(voice: Voice, workflow: str, db: str) -> dict[str, Any]:
    """Recover, say what is taken and what is left, and what the taken ones came to once the test says so."""
    with Runtime(db, workflows=[named(workflow)], max_workers=2) as rt:
        recovery = rt.recover()
        voice.say({"taken": [each.id for each in recovery], "left": dict(recovery.left)})
        voice.hear()
        return {each.id: told(each.result(DEADLINE)) for each in recovery}


def take_and_rest(voice: Voice, workflow: str, db: str) -> None:
    """Recover, say how it rests or has ended, and wait to be killed."""
    rt = Runtime(db, workflows=[named(workflow)], max_workers=2)
    [handle] = rt.recover()
    assert handle.wait(DEADLINE)
    voice.say(str(handle.status))
    voice.hear()


def answer_each(_: Voice, db: str, answers: list[tuple[str, Any]]) -> None:
    """Approve the questions of steps, each with its value."""
    with Runtime(db) as rt:
        for path, value in answers:
            rt.answer("e", Approve(value), step=path)


def interruptible(voice: Voice, workflow: str, db: str, inputs: dict[str, Any]) -> str:
    """Run one of ``WORKFLOWS``, or go on with it, until SIGINT comes; what became of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Runtime(db, max_workers=2) as rt:
            voice.say("begins")
            return str(rt.run(named(workflow), inputs, execution_id="e", if_exists="resume").status)
    except KeyboardInterrupt:
        return "interrupted"


def run_many(voice: Voice, db: str, effects: str, name: str, count: int) -> dict[str, Any]:
    """Many runs of ``quick`` at once on one Runtime. What they came to, and what was logged."""
    logged: list[str] = []
    logger.enable("ares")
    logger.remove()
    logger.add(lambda message: logged.append(str(message)), level="WARNING")
    wf = flows.quick()
    with Runtime(db, max_workers=8) as rt:
        voice.say("begun")
        handles = [rt.submit(wf, {"effects": effects, "name": f"{name}{i}"}) for i in range(count)]
        results = [handle.result(DEADLINE) for handle in handles]
    return {
        "statuses": Counter(str(result.status) for result in results),
        "errors": [said(result.error) for result in results if result.error],
        "warnings": [warning for result in results for warning in result.warnings],
        "logged": logged,
    }


def submit_two_and_hang(voice: Voice, db: str, effects: str) -> None:
    """One execution that is at its gate, and one that the only worker has not begun."""
    rt = Runtime(db, max_workers=1)
    rt.submit(flows.gated(), {"effects": effects}, execution_id="at the gate")
    assert flows.at_gate.wait(DEADLINE)
    rt.submit(flows.gated(), {"effects": effects}, execution_id="not begun")
    voice.say("submitted")
    voice.hear()


def interrupted_by_signal(voice: Voice, db: str, effects: str) -> str:
    """A run that is at its gate when SIGINT comes; then the Runtime, still open, is asked who has it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Runtime(db) as rt:
        try:
            rt.run(flows.gated_once(), {"effects": effects}, execution_id="e")
        except KeyboardInterrupt:
            voice.say({"status": str(rt.execution("e").status)})
            voice.hear()
            return "interrupted"
    return "not interrupted"


def try_to_take(_: Voice, db: str) -> dict[str, Any]:
    """What a process gets that tries to recover and to resume an execution that another one walks."""
    began = time.monotonic()
    with Runtime(db, workflows=[flows.gated()]) as rt:
        recovery = rt.recover()
        try:
            rt.resume("e")
        except ExecutionBusyError as error:
            return {
                "taken": len(recovery),
                "left": dict(recovery.left),
                "owner": error.owner,
                "age": error.age,
                "seconds": time.monotonic() - began,
            }
    raise AssertionError("it was taken")


def audit(_: Voice, db: str, root: str, report: str, effects: str) -> str:
    """Run the code audit, or go on with it."""
    inputs = {"root": Path(root), "report": Path(report), "effects": Path(effects)}
    with Runtime(db) as rt:
        result = rt.run(code_audit.workflow, inputs, execution_id="audit", if_exists="resume")
    return str(result.raise_for_status().status)


def run_in_a_small_file(_: Voice, db: str) -> dict[str, Any]:
    """What ``run`` raises when no file of this process may grow beyond a megabyte."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    begun: list[int] = []
    with Runtime(db) as rt:
        try:
            rt.run(flows.growing(begun), execution_id="e")
        except StoreError as error:
            return {
                "error": type(error).__name__,
                "text": str(error),
                "execution_id": error.execution_id,
                "begun": len(begun),
            }
    raise AssertionError("the file had room for everything")


def run_on_a_small_disk(_: Voice, folder: str, durability: str) -> dict[str, Any]:
    """What ``run`` raises when its disk is full in the middle, what can be read then, and what goes on once there is
    room: a disk of two megabytes, which only this process has."""
    try:
        mount_small_disk(folder, 2)
    except OSError as error:
        return {"refused": str(error)}
    db, begun, disk = f"{folder}/ares.db", list[str](), FullDisk(folder)
    wf = flows.filling(begun, lambda: disk.strike(0.0))
    told: dict[str, Any] = {}
    with Runtime(db, max_workers=2, durability=durability) as rt:
        try:
            rt.run(wf, execution_id="e")
        except StoreError as error:
            told |= {"text": str(error), "execution_id": error.execution_id, "begun": list(begun)}
        told["status"] = str(rt.execution("e").status)
        told["events"] = [event.type for event in rt.execution("e").events()]
        disk.lift()
        told["resumed"] = str(rt.resume("e", wf.replace(fill=lambda: begun.append("fill"))).status)
    return told | {"begun in the end": begun, "integrity": integrity(db)}


def integrity(db: str) -> list[str]:
    """What SQLite says of a file: "ok"."""
    with closing(sqlite3.connect(db)) as connection:
        return [row[0] for row in connection.execute("PRAGMA integrity_check")]


def run_as_nobody(_: Voice, db: str, effects: str) -> dict[str, Any]:
    """What ``run`` raises for somebody whom files say no to, and what a listing shows all the same."""
    if os.geteuid() == 0:
        for folder in list(Path(db).parents)[:-1]:
            if folder.is_dir() and folder.owner() == "root" and folder.name != "tmp" and folder != Path("/dev/shm"):
                folder.chmod(folder.stat().st_mode | 0o055)
        os.setegid(65534)
        os.seteuid(65534)
    wf = Workflow("refused")
    wf.step(lambda: leave(effects, "ran"), id="step")
    listed: list[str] = []
    try:
        rt = Runtime(db)
        with suppress(StoreError):
            listed = [summary.execution_id for summary in rt.executions()]
        rt.run(wf)
    except StoreError as error:
        return {"error": type(error).__name__, "text": str(error), "listed": listed}
    raise AssertionError("it could be written")


def run_nesting(_: Voice, db: str, effects: str) -> dict[str, Any]:
    """Run ``nesting``, or go on with it."""
    with Runtime(db) as rt:
        flows.RUNTIMES.append(rt)
        return told(rt.run(flows.nesting(), {"effects": effects}, execution_id="e", if_exists="resume"))


def run_ending(_: Voice, db: str, effects: str, timeout: float | None = None) -> dict[str, Any]:
    """Run ``ending``."""
    with Runtime(db) as rt:
        return told(rt.run(flows.ending("asked to end"), {"effects": effects}, execution_id="e", timeout=timeout))


def soak(_: Voice, folder: str, fault: str, lease_timeout: float, limit: float) -> dict[str, Any]:
    """A small soak in which one thing goes wrong: how often it did, and what was wrong in the end."""
    timing = Timing.parse(fault)
    with closing(FilePlace(folder)) as place:
        plan = Plan(place.store, folder, processes=2, executions=18, steps=5, seconds=0.1, lease_timeout=lease_timeout)
        try:
            soaked = play(place, plan, [timing], seed=0, limit=limit)
        except UsageError as error:
            return {"refused": str(error)}
    return {"struck": soaked.struck[timing.name], "violations": violations(plan, soaked.evidence)}


def look_again(_: Voice, db: str) -> dict[str, Any]:
    """The looks of ``hostile`` as they were, and of the stored values, in a process that made none of them."""
    with Runtime(db) as rt:
        first = rt.resume("e", hostile_flow()).outputs["look"]
        second = rt.resume("e", hostile_flow(), rerun=["look"]).outputs["look"]
        return {"first": first, "second": second}


def lose(voice: Voice, db: str, effects: str, how: str, **options: Any) -> dict[str, Any]:
    """Run or submit ``gated`` while the lease is lost meanwhile; what became of it, and of another run after that."""
    with Runtime(db, **options) as rt:
        try:
            if how == "run":
                result = rt.run(flows.gated(), {"effects": effects}, execution_id="e")
            else:
                result = rt.submit(flows.gated(), {"effects": effects}, execution_id="e").result(DEADLINE)
            voice.say(told(result)["outputs"])
        except LeaseLostError as error:
            voice.say(str(error))
        again = rt.run(flows.quick(), {"effects": effects, "name": "again"})
        return {"status": str(again.status), "warnings": list(rt.warnings)}


def tell_the_time(voice: Voice) -> None:
    """Say what both clocks show, twice."""
    voice.say([time.time(), time.monotonic()])
    voice.hear()
    voice.say([time.time(), time.monotonic()])


def look_and_recover(voice: Voice, workflow: str, db: str) -> None:
    """Look at others' leases and recover, each time that it is told to: what was taken, and why the rest was not."""
    with Runtime(db, workflows=[named(workflow)]) as rt:
        while voice.hear():
            parts = rt._life.here()
            assert parts is not None
            parts.journal._lease.look_around()  # as after each beat
            recovery = rt.recover()
            voice.say([[each.id for each in recovery], dict(recovery.left)])


def submit_and_die(voice: Voice, db: str, effects: str, count: int) -> None:
    """Submit ``count`` executions of ``quick``, of which none begins, and wait to be killed."""
    rt = Runtime(db, max_workers=1)
    rt.submit(flows.gated(), {"effects": effects}, execution_id="blocks")
    assert flows.at_gate.wait(DEADLINE)
    for number in range(count):
        rt.submit(flows.quick(), {"effects": effects, "name": f"e{number}"}, execution_id=f"e{number}")
    voice.say("submitted")
    voice.hear()


def recover_all(voice: Voice, db: str, workflow: str) -> list[str]:
    """Recover every tenth of a second until nothing of the workflow is left to be done; what was said meanwhile."""
    made = named(workflow)
    unfinished = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.INTERRUPTED)
    with Runtime(db, workflows=[made], max_workers=2, recover_interval=0.1) as rt:
        voice.say("recovers")
        while any(summary.status in unfinished for summary in rt.executions(workflow_id=made.id)):
            Latch().wait(0.05)
        return rt.warnings


def work_hard(voice: Voice, db: str, effects: str, **options: Any) -> dict[str, Any]:
    """Run ``gated`` among busy threads and many other executions; what it came to."""
    is_over = Latch()
    with Runtime(db, **options) as rt:

        def burn() -> None:
            while not is_over.is_set():
                sum(range(10_000))

        def run() -> None:
            while not is_over.is_set():
                rt.run(flows.quick(), {"effects": os.devnull, "name": "other"}).raise_for_status()

        threads = [threading.Thread(target=work) for work in [burn] * 2 + [run] * 2]
        for thread in threads:
            thread.start()
        try:
            result = rt.run(flows.gated(), {"effects": effects}, execution_id="e")
        finally:
            is_over.set()
            for thread in threads:
                thread.join(DEADLINE)
        return told(result)
