"""Child processes that run a piece of code with ares at hand, and what tests ask about this process."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def start(code: str, *args: object) -> subprocess.Popen[str]:
    """Run ``code`` in a process of its own; ``args`` are its ``sys.argv[1:]``."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str], timeout: float = 50.0) -> str:
    """Wait until it has ended well; what it printed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def run(code: str, *args: object) -> str:
    """Start and finish."""
    return finish(start(code, *args))


def as_nobody(work: Callable[[], None]) -> None:
    """Call ``work`` in a forked child without root's rights; its failure is this process's."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
        except BaseException:
            import traceback

            os.write(writer, traceback.format_exc().encode())
            code = 1
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        story = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, story


def open_files() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def in_child(work: Callable[[], object]) -> None:
    """Run ``work`` in a forked child, where nothing of pytest must go on; its failure is this process's."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            os.write(writer, traceback.format_exc().encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        story = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, story
