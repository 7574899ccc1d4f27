"""Child processes for tests: real ones, that can be killed, a few milliseconds each.

A new interpreter costs a third of a second, a fork a few milliseconds, so children are forked off one process, the
nursery, that has imported ares and started nothing. A child calls a function of a module, with a ``Line`` first: both
sides exchange plain values over it, and wait for them with a deadline. The end of a child closes its line, so nobody
polls.

Needs Linux: a child is held by a descriptor that names it and no other, whatever becomes of its number.
"""

import contextlib
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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from ares.errors import UsageError

#: Seconds that anything a test waits for may take, on a machine that is busy with other things.
DEADLINE: Final = 30.0

_SERVE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from ares.testing._nursery import serve; serve()"
)


class Line:
    """One end of the line between a test and a child of it. Values are those of JSON; a path arrives as text."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def say(self, message: Any) -> None:
        """Tell the other side something.

        Raises:
            TypeError: JSON has no word for it.
            OSError: the other side is gone.
        """
        self.send("said", message)

    def hear(self, timeout: float = DEADLINE) -> Any:
        """The next thing that the other side says; None when it is gone.

        Raises:
            TimeoutError: nothing was said within ``timeout`` seconds.
        """
        _, message = self.receive(timeout)
        return message

    def send(self, kind: str, message: Any) -> None:
        """As ``say``, for another purpose."""
        self._connection.sendall(json.dumps([kind, message], default=os.fspath).encode() + b"\n")

    def receive(self, timeout: float) -> tuple[str, Any]:
        """As ``hear``, with the purpose; that is ``gone`` when the other side is."""
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
                return "gone", None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        kind, message = json.loads(line)
        return kind, message

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class ChildProcess:
    """A child process as its test sees it."""

    def __init__(self, nursery: "Nursery", pid: int, line: Line, errors: Path) -> None:
        self.pid = pid
        # It names this very process, whatever becomes of its number.
        self._handle = os.pidfd_open(pid)
        self._nursery = nursery
        self._line = line
        self._errors = errors
        self._code: int | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ChildProcess {self.pid}{'' if self._code is None else f', ended with {self._code}'}>"

    def say(self, message: Any) -> None:
        """Tell the child something, which hears it by ``line.hear()``."""
        self._line.say(message)

    def hear(self, timeout: float = DEADLINE) -> Any:
        """What the child says next by ``line.say(...)``.

        Raises:
            AssertionError: it ended, or returned, instead; with what it printed.
            TimeoutError: it said nothing within ``timeout`` seconds.
        """
        kind, message = self._line.receive(timeout)
        if kind == "said":
            return message
        how = f"ended with {self.wait()}" if kind == "gone" else f"returned {message!r}"
        raise AssertionError(f"the child {how} and said nothing more\n{self.errors()}")

    def result(self, timeout: float = DEADLINE) -> Any:
        """What the child's function returned, and wait for its end; all that it says before is passed over.

        Raises:
            AssertionError: it died, or raised; with what it printed.
            TimeoutError: as ``hear`` and ``wait``.
        """
        kind, message = "said", None
        while kind == "said":
            kind, message = self._line.receive(timeout)
        code = self.wait(timeout)
        if kind == "gone" or code != 0:
            raise AssertionError(f"the child ended with {code}\n{self.errors()}")
        return message

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def wait(self, timeout: float = DEADLINE) -> int:
        """Its exit code, negative for a signal: -9 when it was killed.

        Raises:
            TimeoutError: it is still running after ``timeout`` seconds.
        """
        if self._code is None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise TimeoutError(f"process {self.pid} is still running after {timeout:g} s")
            self._code = self._nursery.reap(self.pid)
        return self._code

    def errors(self) -> str:
        """All that it wrote to stdout and stderr so far."""
        return self._errors.read_text(errors="replace")

    def close(self) -> None:
        """Kill it, if it still runs, and let go of it. Idempotent; the end of its nursery does it otherwise."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._code is None:
            self.kill()
            with contextlib.suppress(AssertionError):  # with the nursery gone, nobody can tell its code
                self.wait()
        os.close(self._handle)
        self._line.close()
        self._errors.unlink()


class Nursery:
    """The process that forks, seen from the test's side. One thread at a time.

    Args:
        preload: modules that it imports before it forks, so that no child has to. None of them may start a thread.
        options: of the interpreter, like ``("-W", "error")``.
        folder: where its processes run; the test's own current folder unless given.

    Raises:
        UsageError: there is no ``pidfd_open`` here, so no child could be held.
    """

    def __init__(
        self, preload: Iterable[str] = (), *, options: Sequence[str] = (), folder: str | Path | None = None
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise UsageError("child processes for tests need Linux, and a Python built for it")
        self._folder = tempfile.TemporaryDirectory(prefix="ares-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/line")
        self._listener.listen(8)
        self._listener.settimeout(0.1)
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [
                *(sys.executable, *options, "-c", _SERVE),
                *(f"{self._folder.name}/line", json.dumps([each or str(Path.cwd()) for each in sys.path]), *preload),
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
        self._children: list[ChildProcess] = []
        self._numbers = itertools.count()
        try:
            self._line = Line(self._accept())
        except BaseException:
            self._process.kill()
            self._clear_away()
            raise

    @property
    def pid(self) -> int:
        """The number of the process that forks."""
        return self._process.pid

    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ChildProcess:
        """Have a new process call ``function(line, *args, **kwargs)``.

        Args:
            function: of a module, by a name of the module: no lambda, no method, nothing that lies in a function.
            args: plain values, as JSON has them; a path arrives as text.
            kwargs: likewise.

        Raises:
            UsageError: ``function`` cannot be named.
        """
        errors = Path(self._folder.name, f"{len(self._children)}-{time.monotonic_ns()}.err")
        pid = self._ask({"fork": _named(function), "args": args, "kwargs": kwargs, "errors": str(errors)})
        child = ChildProcess(self, pid, Line(self._accept()), errors)
        self._children.append(child)
        return child

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As ``start``; what the function returned."""
        return self.start(function, *args, **kwargs).result()

    def reap(self, pid: int) -> int:
        """The exit code of a child that has ended."""
        return self._ask({"reap": pid})

    def _accept(self) -> socket.socket:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                return self._listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise self._gone() from None

    def _gone(self) -> AssertionError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its line may close a moment before it ends
        code = self._process.poll()
        how = "does not answer" if code is None else f"ended with {code}"
        return AssertionError(f"the process that children are forked off {how}")

    def _ask(self, order: dict[str, Any]) -> int:
        number = next(self._numbers)
        try:
            self._line.say({"number": number, **order})
        except OSError as error:
            raise self._gone() from error
        while True:  # an answer that nobody waited for, because its test was out of time, is passed over
            said = self._line.hear()
            if said is None:
                raise self._gone()
            answered, answer = said
            if answered == number:
                if isinstance(answer, str):
                    raise AssertionError(answer)
                return int(answer)

    def close_children(self) -> None:
        """Kill those that still run."""
        while self._children:
            self._children.pop().close()

    def close(self) -> None:
        """Kill all, and let it end."""
        try:
            self.close_children()
        finally:
            self._line.close()
            self._clear_away()

    def _clear_away(self) -> None:
        self._process.wait(DEADLINE)
        self._listener.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _named(function: Callable[..., Any]) -> dict[str, str]:
    """How another process finds a function: its module, that one's file, and its name there."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not isinstance(module, str) or not name.isidentifier():
        raise UsageError(f"{function!r} cannot be called in a child process: only a function of a module can be found")
    found = importlib.import_module(module)
    if getattr(found, name, None) is not function:
        raise UsageError(f"{function!r} cannot be called in a child process: {module}.{name} is something else")
    return {"module": module, "file": getattr(found, "__file__", None) or "", "name": name}
