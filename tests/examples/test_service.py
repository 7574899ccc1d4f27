"""The service of many threads: stopped and killed in the middle, and started again on the same store."""

import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.helpers import Task
from tests.examples.partner import Partner
from tests.examples.programs import PATIENCE, ROOT, Program, eventually

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)

CLIENTS = 40


class Client:
    """A connection. It is told nothing more when the service has gone."""

    def __init__(self, service: Program) -> None:
        port = int(re.findall(r"\d+", service.wait_until_said(r"listens on \d+\n"))[0])
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._lines = self._socket.makefile("rb")

    def ask(self, line: str) -> str:
        try:
            self._socket.sendall(f"{line}\n".encode())
            return self._lines.readline().decode().strip()
        except ConnectionError:
            return ""

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Programs and connections, ended with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(opened: ExitStack, tmp_path: Path, partner: Partner) -> Callable[[], Program]:
    words = [ROOT / "examples" / "service.py", "parcels.db", "0", partner.url]
    return lambda: opened.enter_context(Program(words, tmp_path))


def ask_all(opened: ExitStack, service: Program, names: list[str]) -> list["Task[str]"]:
    """Each by a client of its own, all at once."""
    clients = [Client(service) for _ in names]
    for client in clients:
        opened.callback(client.close)
    return [Task(client.ask, f"{name} 7") for name, client in zip(names, clients, strict=True)]


def test_a_stop_lets_steps_end_and_the_next_start_answers_all_who_come_again(
    start: Callable[[], Program], opened: ExitStack, partner: Partner
) -> None:
    names = [f"p{n}" for n in range(CLIENTS)]
    service = start()
    probe = Client(service)
    opened.callback(probe.close)

    with partner.holding("label"):
        asked = ask_all(opened, service, names)
        partner.wait_for("label", CLIENTS)
        assert probe.ask(" 7").startswith("refused: ")
        service.signal(signal.SIGTERM)
        eventually(lambda: probe.ask(" 7") in ("later", ""))
        assert service.is_running()
    assert service.finish() == 0, service.said
    assert {each.result(PATIENCE) for each in asked} <= {"later", "", *(f"done: {name} 7" for name in names)}

    service = start()
    wanted = [f"done: {name} 7" for name in names]
    eventually(lambda: [each.result(PATIENCE) for each in ask_all(opened, service, names)] == wanted)
    assert sorted(partner.heard("label")) == sorted(f"{name} 7" for name in names)
    assert partner.repeated("hand_over") == {}


def test_what_a_killed_service_was_at_is_gone_on_with_before_anybody_asks_again(
    start: Callable[[], Program], opened: ExitStack, partner: Partner
) -> None:
    names = [f"p{n}" for n in range(CLIENTS)]
    first = start()

    with partner.holding("hand_over"):
        asked = ask_all(opened, first, names)
        partner.wait_for("hand_over", CLIENTS)
        first.kill()
    assert [each.result(PATIENCE) for each in asked] == [""] * CLIENTS
    second = start()
    partner.wait_for("hand_over", 2 * CLIENTS)

    assert second.wait_until_said("goes on with [0-9]+") == f"goes on with {CLIENTS}"
    assert partner.repeated("label") == {}
    assert len(partner.keys("hand_over")) == CLIENTS
    second.signal(signal.SIGTERM)
    assert second.finish() == 0, second.said
