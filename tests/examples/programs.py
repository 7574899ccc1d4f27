"""Programs that the tests of the examples start: in a group of their own, ended with all their children."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from ares import Runtime
from tests.cli.command import ROOT, environment
from tests.engine.helpers import eventually as eventually_within

#: Seconds that anything here may take: what is started imports much, beside others that do the same.
PATIENCE = 45.0


def eventually(holds: Callable[[], object]) -> None:
    """Wait for something that nobody announces."""
    eventually_within(holds, PATIENCE)


class Program:
    """A program under test. What it says goes into a file, which a failing test can show.

    Args:
        words: what follows the name of the interpreter.
        folder: where it runs, and where what it says is kept.
        more: goes into its environment.
    """

    def __init__(self, words: Sequence[str | Path], folder: Path, **more: str) -> None:
        self.words = [str(word) for word in words]
        self._said = folder / f"said-{len(list(folder.glob('said-*')))}"
        # Warnings of the packages that the examples are for are none of ours.
        env = environment(**{"PYTHONWARNINGS": "ignore", **more})
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, *self.words],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_said(self, pattern: str) -> str:
        """What it said that fits the regular expression."""
        found: list[re.Match[str]] = []

        def is_said() -> bool:
            is_running = self.is_running()  # asked first: it may say it and end
            found.extend(re.finditer(pattern, self.said))
            assert found or is_running, "it ended"
            return bool(found)

        try:
            eventually(is_said)
        except AssertionError as error:
            raise AssertionError(f"{error}, and had not said {pattern!r}\n{self.said}") from None
        return found[0].group()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def finish(self, timeout: float = PATIENCE) -> int:
        """Its exit code, once it has ended; killed if it does not, and then the test fails."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end within {timeout:g} s\n{self.said}") from None

    def kill(self) -> None:
        """Kill it with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Site(Program):
    """A program that answers HTTP requests, and says where it listens.

    Args:
        words: see ``Program``. It is to bind to port 0: nobody else can come to the port first.
        folder: see ``Program``.
        more: see ``Program``.
    """

    def __init__(self, words: Sequence[str | Path], folder: Path, **more: str) -> None:
        super().__init__(words, folder, **more)
        try:
            self.url = self.wait_until_said(r"http://127\.0\.0\.1:\d+")
        except BaseException:
            self.kill()
            raise

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and document that a request is answered with."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                code, text = refused.code, refused.read().decode(errors="replace")
        assert code < 500, f"{method} {path}: {code}\n{text}\n{self.said}"
        return code, json.loads(text)


def steps_done(store: Path, execution_id: str) -> int:
    """How many steps and elements of steps are committed as completed."""
    states = Runtime(store).checkpoint(execution_id).step_states
    return sum(each.status == "COMPLETED" for each in states.values())


def children_of(pid: int) -> list[int]:
    """The processes that one has started and that have not ended."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in found.read_text().split()] if found.exists() else []


__all__ = ["PATIENCE", "ROOT", "Program", "Site", "children_of", "eventually", "steps_done"]
