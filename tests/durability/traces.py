"""What a run leaves behind to be counted: lines in files, bodies in lists, results as plain values."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from ares import WorkflowResult
from ares.errors import RecordedError


def leave(file: str, text: str) -> None:
    """Add a line that is on the disk when this returns."""
    with Path(file).open("ab", buffering=0) as out:
        out.write(text.encode() + b"\n")
        os.fsync(out.fileno())


def traces(file: str) -> list[str]:
    """The lines so far."""
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def counted(file: str) -> Counter[str]:
    """How often each line is there."""
    return Counter(traces(file))


class Ran(list[str]):
    """The bodies that began in this process, in order."""

    def since(self) -> list[str]:
        """Those since this was asked last."""
        new, self[:] = list(self), []
        return new


def die() -> None:
    """End this process as ``kill -9`` would."""
    os.kill(os.getpid(), signal.SIGKILL)


def said(error: BaseException | None) -> str:
    """What an exception says; the same for one of this process and one that an earlier process had."""
    return "" if error is None else error.message if isinstance(error, RecordedError) else str(error)


def told(result: WorkflowResult) -> dict[str, Any]:
    """A result as plain values; the same for the same outcome, whichever process it comes from."""
    return {
        "status": str(result.status),
        "outputs": {step: repr(output) for step, output in result.outputs.items()},
        "variables": {name: repr(value) for name, value in result.variables.items()},
        "steps": {
            path: [str(step.status), str(step.reason), repr(step.output), said(step.error)]
            for path, step in result.steps.items()
        },
        "attempts": {path: step.attempts for path, step in result.steps.items()},
        "error": said(result.error),
        "warnings": list(result.warnings),
    }
