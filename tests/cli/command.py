"""The command in processes of its own, as a shell would start it."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from ares.cli import main

ROOT = Path(__file__).resolve().parents[2]
FLOWS = Path(__file__).with_name("flows.py")
#: Seconds after which a test gives up on something that should come at once.
DEADLINE = 40.0


def flow(name: str) -> str:
    """The target that is one of the workflows in ``flows``."""
    return f"{FLOWS}:{name}"


@attrs.frozen
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it wrote on stdout, which is one JSON document."""
        return json.loads(self.out)

    @property
    def said(self) -> list[str]:
        """The lines of stderr."""
        return self.err.splitlines()


def environment(**more: str) -> dict[str, str]:
    """The environment of a child: this one's, without what would change the outcome."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ARES_STORE", "COLUMNS", "NO_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", **more}


def start(*arguments: str | Path, cwd: Path, program: Sequence[str] = ("-m", "ares"), **more: str) -> Any:
    """Start a command; ``more`` goes into its environment."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def finish(process: "subprocess.Popen[str]") -> Ended:
    """Wait for a command to end."""
    with process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Ended(process.returncode, out, err)


def ares(*arguments: str | Path, cwd: Path, **more: str) -> Ended:
    """Run a command to its end."""
    return finish(start(*arguments, cwd=cwd, **more))


def ares_each(commands: Mapping[str, Sequence[str | Path]], *, cwd: Path, **more: str) -> dict[str, Ended]:
    """Run several commands, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        ended = pool.map(lambda arguments: ares(*arguments, cwd=cwd, **more), commands.values())
        return dict(zip(commands, ended, strict=True))


def forked(*arguments: str | Path, cwd: Path, now: int | None = None, **more: str) -> Ended:
    """As ``ares``, in a process that was forked from one that has imported everything: ten times as quick.

    Such a process leaves without the interpreter's own clean-up. Where the end matters, use ``ares``.

    Args:
        arguments: the words after the program's name.
        cwd: the folder to run in.
        now: what the wall clock shows all the time, in nanoseconds since the epoch.
        more: goes into the environment.
    """
    with tempfile.TemporaryDirectory(prefix="ares-said-") as said:
        out, err = Path(said, "out"), Path(said, "err")
        job = ([str(word) for word in arguments], cwd, (out, err), environment(**more), now)
        process = _FORKED.Process(target=_run_forked, args=job)
        process.start()
        process.join(DEADLINE)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"{arguments}: {err.read_text()}")
        code = process.exitcode or 0
        process.close()
        return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _run_forked(
    arguments: list[str], cwd: Path, streams: tuple[Path, Path], env: Mapping[str, str], now: int | None
) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    if now is not None:
        time.time_ns = lambda: now
    for number, file in enumerate(streams, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(arguments))


_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["ares.cli", "ares.stores.sqlite", "typer._adapters"])


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds that another process brings about."""
    deadline = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"gave up waiting: {what}"
        pause.wait(0.01)


def lines_of(file: Path) -> list[str]:
    """The lines that steps left; none if there is no file yet."""
    return file.read_text().splitlines() if file.exists() else []
