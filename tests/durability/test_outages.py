"""The server of a store goes away in the middle of a run, and comes back."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from loguru import logger

from ares import ExecutionStatus, Runtime, StepSpec, Workflow
from tests.durability.nursery import DEADLINE
from tests.durability.traces import Ran
from tests.postgres import Server

STEPS = [f"s{number}" for number in range(1, 6)]


def five(ran: Ran, between: Callable[[], None]) -> Workflow:
    """Five steps one after another; the third begins with what happens between it and the second."""
    wf = Workflow("five")
    for number, name in enumerate(STEPS):

        def body(name: str = name) -> str:
            if name == "s3":
                between()
            ran.append(name)
            return name

        wf.add(StepSpec(name, body, depends_on=STEPS[number - 1 : number]))
    return wf


def restart(server: Server) -> None:
    server.restart()


def kill(server: Server) -> None:
    server.kill()
    server.start()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What ares logs."""
    seen: list[str] = []
    logger.enable("ares")
    sink = logger.add(lambda message: seen.append(message.record["message"]), level="WARNING", filter="ares")
    yield seen
    logger.remove(sink)
    logger.disable("ares")


@pytest.mark.case("C041")
@pytest.mark.parametrize("strike", [restart, kill])
def test_a_run_goes_on_after_its_server_was_away_while_nothing_was_asked_of_it(
    own_postgres: Server, postgres: str, ran: Ran, logged: list[str], strike: Callable[[Server], None]
) -> None:
    with Runtime(postgres) as rt:
        result = rt.run(five(ran, lambda: strike(own_postgres)), execution_id="e")
        kinds = [event.type for event in rt.execution("e").events()]

    assert result.status is ExecutionStatus.COMPLETED
    assert ran == STEPS
    assert kinds.count("step.completed") == len(STEPS)
    assert len([line for line in logged if "connected again after" in line]) == 1


@pytest.mark.case("C041")
def test_many_runs_go_on_though_their_server_is_killed_again_and_again(own_postgres: Server, postgres: str) -> None:
    began: Counter[str] = Counter()
    wf = Workflow("chain", inputs={"name": str})
    for number in range(20):

        def body(name: str, number: int = number) -> None:
            began[f"{name} {number}"] += 1

        wf.add(StepSpec(f"s{number}", body, depends_on=[f"s{number - 1}"] if number else []))

    with Runtime(postgres, max_workers=8) as rt:
        handles = [rt.submit(wf, {"name": f"e{number}"}) for number in range(20)]
        for share in (100, 200, 300):
            deadline = time.monotonic() + DEADLINE
            while began.total() < share:
                assert time.monotonic() < deadline
                threading.Event().wait(0.005)
            kill(own_postgres)
        results = [handle.result(DEADLINE) for handle in handles]

    assert {result.status for result in results} == {ExecutionStatus.COMPLETED}
    assert set(began.values()) == {1}
    assert len(began) == 400
