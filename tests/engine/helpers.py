"""What the tests of the threaded shell share: bounded waits, threads whose errors are not lost, and child processes."""

import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import ares
from ares import Runtime, Workflow

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that anything a test waits for may take, on a machine that is busy with other things.
LIMIT = 20.0


# --- waiting -------------------------------------------------------------------------------------


class Gate:
    """An event that a test waits for, but never for ever."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def is_open(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float = LIMIT) -> None:
        assert self._event.wait(timeout), f"not opened within {timeout:g} s"


class Barrier(threading.Barrier):
    """A barrier that breaks instead of hanging."""

    def __init__(self, parties: int) -> None:
        super().__init__(parties, timeout=LIMIT)


class Task(Generic[T]):
    """A function on a thread of its own; what it returns or raises comes out of ``result``."""

    def __init__(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> None:
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(fn, args, kwargs), daemon=True)
        self.thread.start()

    def _run(self, fn: Callable[..., T], args: Any, kwargs: Any) -> None:
        try:
            self._outcome.append(fn(*args, **kwargs))
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = LIMIT) -> T:
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"not done within {timeout:g} s"
        if self._error is not None:
            raise self._error
        return self._outcome[0]


def eventually(holds: Callable[[], object], timeout: float = LIMIT) -> None:
    """Wait for something that nobody announces."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {timeout:g} s"
        pause.wait(0.002)


def hang() -> None:
    """What a step does that never ends: it blocks where nothing can reach it."""
    time.sleep(3600)  # noqa: TID251 - the body of a step that hangs


def last(seconds: float) -> None:
    """What a step does that takes its time."""
    time.sleep(seconds)  # noqa: TID251 - the body of a step that takes so long


def seconds_since(begun: float) -> float:
    return time.monotonic() - begun


# --- threads -------------------------------------------------------------------------------------


class Threads:
    """The threads of ares that were started since this was made; other tests may have left hanging ones."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def all(self, *prefixes: str) -> list[threading.Thread]:
        started = set(threading.enumerate()) - self._before
        return [t for t in started if t.name.startswith(prefixes or ("ares-",)) and t.name != "ares-notices"]

    def names(self, *prefixes: str) -> list[str]:
        return sorted(t.name for t in self.all(*prefixes))

    def are_gone(self, *prefixes: str) -> bool:
        return not self.all(*prefixes)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- workflows -----------------------------------------------------------------------------------


def chain(length: int, body: Callable[[int], Any] | None = None, name: str = "chain") -> Workflow:
    """Steps one after another; step i calls ``body(i)``."""
    wf = Workflow(name)
    for i in range(length):
        wf.add(ares.StepSpec(f"s{i}", _bound(body, i), depends_on=[f"s{i - 1}"] if i else []))
    return wf


def fan(width: int, body: Callable[[int], Any] | None = None, name: str = "fan") -> Workflow:
    """Steps beside one another, and one that joins them; step i calls ``body(i)``."""
    wf = Workflow(name)
    ids = [f"s{i}" for i in range(width)]
    for i, step in enumerate(ids):
        wf.add(ares.StepSpec(step, _bound(body, i)))
    wf.add(ares.StepSpec("join", lambda: "joined", depends_on=ids))
    return wf


def _bound(body: Callable[[int], Any] | None, i: int) -> Callable[[], Any]:
    return (lambda: i) if body is None else (lambda: body(i))


def single(body: Callable[..., Any], name: str = "single", **options: Any) -> Workflow:
    """One step, ``body``."""
    wf = Workflow(name)
    wf.step(body, id="body", **options)
    return wf


def statuses(result: ares.WorkflowResult) -> dict[str, str]:
    return {path: str(step.status) for path, step in result.steps.items()}


def types_of(events: Iterable[ares.Event]) -> list[str]:
    return [event.type for event in events]


def events_of(rt: Runtime, execution_id: str) -> list[ares.Event]:
    return list(rt.execution(execution_id).events())


# --- stores --------------------------------------------------------------------------------------


class GatedStore:
    """A SQLite store whose commits of some entries wait until they may."""

    def __init__(self, file: str | Path, *, holds: Callable[[str, str], bool]) -> None:
        from ares.stores.sqlite import SqliteStore

        self._inner = SqliteStore(file)
        self._holds = holds
        self.reached = Gate()
        self.gate = Gate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, appends: Any, *, sync: bool) -> Any:
        if any(self._holds(entry.kind, entry.path) for append in appends for entry in append.entries):
            self.reached.open()
            self.gate.wait()
        return self._inner.append(appends, sync=sync)


# --- child processes -----------------------------------------------------------------------------


class Child:
    """A Python program in a process of its own, told line by line what it says."""

    def __init__(self, program: str, *args: str, warnings: str = "error") -> None:
        source = textwrap.dedent(program)
        self.begun = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-W", warnings, "-c", source, *args],
            cwd=ROOT,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self, timeout: float = LIMIT) -> str:
        """The next line it prints (it must flush)."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        assert ready, f"nothing was said within {timeout:g} s"
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self._process.stdout.read(1)
            if not byte:
                break
            line += byte
        return line.decode().strip()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def finish(self, timeout: float = LIMIT) -> tuple[int, str, str]:
        """Its exit code and all else that it said; killed if it does not end in time, and then the test fails."""
        try:
            out, err = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs
            out, err = self._process.communicate()
            raise AssertionError(f"the child did not end within {timeout:g} s\n{err.decode()}") from None
        return self._process.returncode, out.decode(), err.decode()

    def result(self, timeout: float = LIMIT) -> str:
        """What else it says, if it ends well."""
        code, out, err = self.finish(timeout)
        assert code == 0, f"exit code {code}\n{out}\n{err}"
        assert err == "", err
        return out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
