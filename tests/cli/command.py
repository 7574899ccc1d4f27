"""The command in processes of its own, as a shell would start it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

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
    """Run several commands, two at a time: most of each is the interpreter starting."""
    with ThreadPoolExecutor(2) as pool:
        return dict(
            zip(commands, pool.map(lambda arguments: ares(*arguments, cwd=cwd, **more), commands.values()), strict=True)
        )


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
