"""ares and the application's log: silent until asked, and at nobody's mercy."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loguru import logger

from ares import Execution, Runtime, StepContext, Workflow
from ares.engine.notices import Notices, notices
from tests.engine.helpers import Child, Gate, Task, chain, eventually, fan, seconds_since, single

Make = Callable[..., Runtime]


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What a sink of the application's got to see, while it wants to see ares."""
    seen: list[Any] = []
    sink = logger.add(lambda message: seen.append(message.record), level=0)
    logger.enable("ares")
    yield seen
    logger.remove(sink)
    logger.disable("ares")


@pytest.fixture
def stuck() -> Iterator[Gate]:
    """What hanging bodies and sinks wait for; opened when the test is over."""
    gate = Gate()
    yield gate
    gate.open()
    assert notices.flush(10)


def noisy(rt: Runtime, stuck: Gate) -> None:
    """Do what ares has something to say about."""
    rt.run(single(lambda: stuck.wait(60), timeout=0.02))

    def bad(_: Execution) -> None:
        raise ValueError("in a callback")

    execution = rt.submit(single(lambda: 1))
    execution.add_done_callback(bad)
    execution.wait(10)


def test_nothing_is_logged_unless_the_application_enables_it(runtime: Make, stuck: Gate) -> None:
    seen: list[Any] = []
    sink = logger.add(lambda message: seen.append(message.record), level=0)
    try:
        noisy(runtime(), stuck)
        notices.flush(10)
    finally:
        logger.remove(sink)

    assert seen == []


def test_what_was_survived_is_logged_when_it_is_enabled(runtime: Make, lines: list[Any], stuck: Gate) -> None:
    noisy(runtime(), stuck)

    eventually(lambda: len(lines) >= 2)

    told = {(line["level"].name, line["message"].partition(" ")[0]) for line in lines}
    assert ("WARNING", "execution") in told
    assert ("ERROR", "a") in told
    assert all(line["name"].startswith("ares.") for line in lines)


def test_the_logger_of_a_context_is_bound_to_execution_and_step(runtime: Make) -> None:
    seen: list[Any] = []
    sink = logger.add(lambda message: seen.append(message.record), level=0)
    try:
        result = runtime().run(single(lambda ctx: ctx.logger.info("from the body")))
    finally:
        logger.remove(sink)

    (record,) = seen
    assert record["extra"] == {"execution_id": result.execution_id, "step": "body"}
    assert record["message"] == "from the body"


@pytest.mark.case("C051")
def test_a_sink_that_raises_hurts_nothing(runtime: Make, stuck: Gate) -> None:
    def raising(_: Any) -> None:
        raise SystemExit("a sink")

    sink = logger.add(raising, level=0, catch=False)
    logger.enable("ares")
    try:
        rt = runtime()
        noisy(rt, stuck)
        assert rt.run(chain(5)).status == "COMPLETED"
        assert notices.flush(10)
    finally:
        logger.remove(sink)
        logger.disable("ares")


@pytest.mark.case("C051")
def test_a_sink_that_blocks_hurts_nothing(runtime: Make, stuck: Gate) -> None:
    begun = Gate()
    sink = logger.add(lambda _: begun.open() or stuck.wait(60), level=0)
    logger.enable("ares")
    try:
        rt = runtime()
        started = time.monotonic()
        noisy(rt, stuck)
        begun.wait()
        noisy(rt, stuck)
        assert rt.submit(fan(5)).result(10).status == "COMPLETED"
        rt.close()
        assert seconds_since(started) < 10
    finally:
        stuck.open()
        notices.flush(10)
        logger.remove(sink)
        logger.disable("ares")


@pytest.mark.case("C051")
def test_a_sink_that_runs_workflows_and_logs_is_no_loop(runtime: Make, stuck: Gate) -> None:
    rt = runtime()
    ran: list[str] = []

    def sink_body(message: Any) -> None:
        if not message.record["name"].startswith("ares."):
            return
        ran.append(rt.run(chain(3)).status)

    sink = logger.add(sink_body, level=0)
    logger.enable("ares")
    try:
        noisy(rt, stuck)
        eventually(lambda: len(ran) >= 2)
        assert notices.flush(10)
    finally:
        logger.remove(sink)
        logger.disable("ares")

    assert set(ran) == {"COMPLETED"}


class LogsAtItsEnd:
    """An object in a step's locals that logs when it is collected, wherever that happens."""

    def __init__(self, ctx: StepContext) -> None:
        self.myself = self
        self.logger = ctx.logger

    def __del__(self) -> None:
        self.logger.debug("gone")


@pytest.mark.case("C051")
def test_logging_from_a_finaliser_deadlocks_nothing(runtime: Make, store: str | None, lines: list[Any]) -> None:
    import gc

    def body(ctx: StepContext) -> None:
        made = LogsAtItsEnd(ctx)
        ctx.emit("made", name=type(made).__name__)

    wf = Workflow("w")
    for i in range(100):
        wf.step(body, id=f"s{i}")
    before = gc.get_threshold()
    gc.set_threshold(20)
    try:
        started = time.monotonic()
        Task(runtime(store, max_workers=4).run, wf).result(20).raise_for_status()
    finally:
        gc.set_threshold(*before)
    gc.collect()

    assert seconds_since(started) < 10
    assert not [line for line in lines if "deadlock" in line["message"].lower()]


def test_logging_in_a_child_of_a_fork_works() -> None:
    program = """
        import os, sys
        from loguru import logger
        from ares.engine.notices import notices
        logger.remove()
        logger.add(lambda text: print(text.record["message"], flush=True), level=0)
        logger.enable("ares")
        notices.say("INFO", "in the parent")
        assert notices.flush(5)
        pid = os.fork()
        if pid == 0:
            notices.say("INFO", "in the {}", "child")
            assert notices.flush(5)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """
    with Child(program) as child:
        assert child.result().splitlines() == ["in the parent", "in the child"]


# --- notices -----------------------------------------------------------------------------------------


def test_notices_come_in_order_and_their_thread_ends(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ares.engine.notices._IDLE_SECONDS", 0.01)
    mine = Notices()

    for round_ in range(3):
        for i in range(20):
            mine.say("INFO", "{} {}", round_, i)
        assert mine.flush(10)
        eventually(lambda: mine._thread is None)

    assert [line["message"] for line in lines] == [f"{r} {i}" for r in range(3) for i in range(20)]


def test_notices_never_pile_up_behind_a_sink_that_blocks(stuck: Gate) -> None:
    mine = Notices()
    begun = Gate()
    sink = logger.add(lambda _: begun.open() or stuck.wait(60), level=0)
    logger.enable("ares")
    try:
        mine.say("INFO", "first")
        begun.wait()
        for _ in range(5_000):
            mine.say("INFO", "more")
        assert mine._waiting <= 1_000
        assert not mine.flush(0.05)
    finally:
        stuck.open()
        mine.flush(10)
        logger.remove(sink)
        logger.disable("ares")


def test_notices_of_many_threads_are_all_logged(lines: list[Any]) -> None:
    mine = Notices()

    tasks = [Task(lambda i=i: [mine.say("INFO", "{}", i) for _ in range(50)]) for i in range(8)]  # type: ignore[misc]
    for task in tasks:
        task.result()
    assert mine.flush(10)

    assert len(lines) == 400


def test_a_notice_that_cannot_be_said_is_let_go(lines: list[Any]) -> None:
    mine = Notices()

    mine.say("INFO", "{missing}")
    mine.say("NO SUCH LEVEL", "text")
    mine.say("INFO", "said")

    assert mine.flush(10)
    assert [line["message"] for line in lines][-1] == "said"


def test_once_the_process_ends_no_thread_is_started() -> None:
    mine = Notices()
    mine.end()

    mine.say("INFO", "too late")

    assert mine._thread is None
    assert mine.flush(0)
