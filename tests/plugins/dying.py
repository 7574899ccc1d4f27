"""A program that is killed in the middle of its workflow: ``python -m tests.plugins.dying DB EFFECTS HOW``.

HOW says how its checkpoint plugin is: there is none, it raises, or it hangs whenever it flushes.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ares import Runtime, Workflow
from ares.plugin import Context, Plugin
from ares.plugins import CheckpointPlugin

LENGTH = 12
DEADLY = 7

flushed = threading.Event()
#: Ends what hangs.
let_go = threading.Event()


class Absent(Plugin):
    """Takes the built-in plugin's place."""

    name = "checkpoint"


class Broken(CheckpointPlugin):
    """Does something else whenever it is to flush."""

    def __init__(self, instead: Callable[[], Any]) -> None:
        super().__init__(interval=0.005)
        self._instead = instead

    def flush_all(self, ctx: Context) -> None:
        flushed.set()
        self._instead()


def fail() -> None:
    raise ValueError("boom")


def plugin(how: str) -> Plugin:
    """The checkpoint plugin of the program."""
    if how == "absent":
        flushed.set()
        return Absent()
    return Broken(fail if how == "raising" else lambda: let_go.wait(20.0))


def workflow(effects: Path) -> Workflow:
    """A chain whose steps leave a line each; one of them kills the process that runs it first."""
    wf = Workflow("dying")

    def step(number: int) -> int:
        if number == DEADLY and not leave(effects, number):
            assert flushed.wait(20.0)
            os.kill(os.getpid(), signal.SIGKILL)
        elif number != DEADLY:
            leave(effects, number)
        return number

    for number in range(LENGTH):
        after = [f"s{number - 1}"] if number else []
        wf.step(id=f"s{number}", depends_on=after)(lambda number=number: step(number))
    return wf


def leave(effects: Path, number: int) -> bool:
    """Leave a line; whether there was one of this step before."""
    was_there = effects.exists() and f"{number}\n" in effects.read_text().splitlines(keepends=True)
    with effects.open("a") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())
    return was_there


def main() -> None:
    """Run it, as far as it gets."""
    db, effects, how = sys.argv[1:]
    with Runtime(db, plugins=[plugin(how)], plugin_timeout=0.2) as rt:
        rt.run(workflow(Path(effects)), execution_id="dying")


if __name__ == "__main__":
    main()
