"""Child processes for tests, forked off one process that has imported ares and started nothing.

A new interpreter costs a third of a second, a fork a few milliseconds, so a test can afford hundreds of real processes
with real deaths. A child is a function of ``tests.durability.children``, called with a ``Voice``: both sides exchange
lines of JSON, and wait for them with a deadline. The end of a child closes its line, so nobody polls.
"""

import importlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).absolute().parents[2]
#: Seconds that anything a test waits for may take, on a machine that is busy with other things.
DEADLINE = 30.0


class Voice:
    """One end of the line between a test and a child of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def say(self, message: Any) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, timeout: float = DEADLINE) -> Any:
        """The next message; None when the other side is gone. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._connection], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing was said within {timeout:g} s")
            try:
                more = self._connection.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        self._connection.close()


class Child:
    """A child process as its test sees it."""

    def __init__(self, nursery: "Nursery", pid: int, voice: Voice, errors: Path) -> None:
        self.pid = pid
        # It names this very process, whatever becomes of its number.
        self._handle = os.pidfd_open(pid)
        self._nursery = nursery
        self._voice = voice
        self._errors = errors
        self._code: int | None = None

    def say(self, message: Any) -> None:
        self._voice.say(message)

    def hear(self, timeout: float = DEADLINE) -> Any:
        """What the child says next. Fails, with what it printed, if it dies instead."""
        message = self._voice.hear(timeout)
        if message is None:
            raise AssertionError(f"the child ended with {self.wait()} and said nothing more\n{self.errors()}")
        return message

    def result(self, timeout: float = DEADLINE) -> Any:
        """What the child's function returned; all that it says before is passed over. Fails if it died."""
        while True:
            message = self.hear(timeout)
            if isinstance(message, dict) and "returned" in message:
                code = self.wait(timeout)
                assert code == 0, f"the child ended with {code}\n{self.errors()}"
                return message["returned"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        signal.pidfd_send_signal(self._handle, number)

    def wait(self, timeout: float = DEADLINE) -> int:
        """Its exit code, negative for a signal."""
        if self._code is None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise TimeoutError(f"process {self.pid} is still running after {timeout:g} s")
            self._code = self._nursery.reap(self.pid)
        return self._code

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def close(self) -> None:
        if self._code is None:
            self.kill()
            self.wait()
        os.close(self._handle)
        self._voice.close()
        self._errors.unlink()


class Nursery:
    """The process that forks, seen from the test's side."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ares-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/line")
        self._listener.listen(8)
        self._listener.settimeout(DEADLINE)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.durability.nursery", f"{self._folder.name}/line"], cwd=ROOT
        )
        self._line = Voice(self._listener.accept()[0])
        self._children: list[Child] = []
        self._numbers = itertools.count()

    def start(self, function: str, **arguments: Any) -> Child:
        """Have a new process call ``tests.durability.children.<function>(voice, **arguments)``."""
        errors = Path(self._folder.name, f"{len(self._children)}-{time.monotonic_ns()}.err")
        pid = self._ask({"fork": function, "arguments": arguments, "errors": str(errors)})
        child = Child(self, pid, Voice(self._listener.accept()[0]), errors)
        self._children.append(child)
        return child

    def call(self, function: str, **arguments: Any) -> Any:
        """As ``start``; what the function returned."""
        return self.start(function, **arguments).result()

    def reap(self, pid: int) -> int:
        """The exit code of a child that has ended."""
        return self._ask({"reap": pid})

    def _ask(self, order: dict[str, Any]) -> int:
        number = next(self._numbers)
        self._line.say({"number": number, **order})
        while True:  # an answer that nobody waited for, because its test was out of time, is passed over
            answered, answer = self._line.hear()
            if answered == number:
                return int(answer)

    def close_children(self) -> None:
        while self._children:
            self._children.pop().close()

    def close(self) -> None:
        self.close_children()
        self._line.close()
        self._process.wait(DEADLINE)
        self._listener.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- in the nursery ------------------------------------------------------------------------------------------------


def _serve(address: str) -> None:
    children = importlib.import_module("tests.durability.children")
    line = Voice(_connected(address))
    while (order := line.hear(86_400.0)) is not None:
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            line.say([order["number"], os.waitstatus_to_exitcode(status)])
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _live(children, address, order)
            return  # and to the end of the process, as every program goes
        line.say([order["number"], pid])
    line.close()


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def _live(children: Any, address: str, order: dict[str, Any]) -> None:
    with Path(order["errors"]).open("wb") as errors:
        os.dup2(errors.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    voice = Voice(_connected(address))
    children.begin(voice)
    try:
        voice.say({"returned": getattr(children, order["fork"])(voice, **order["arguments"])})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        raise SystemExit(1) from None


if __name__ == "__main__":
    _serve(sys.argv[1])
