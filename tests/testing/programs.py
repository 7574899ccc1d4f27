"""What child processes are started with, and the workflow that they run."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ares import RetryPolicy, Runtime, Workflow
from ares.testing import Line, crash_after

#: Set by whoever imports this; a child has it from its nursery.
IMPORTED_BY = os.getpid()


def orders(effects: Path) -> Workflow:
    """pack (a map) -> charge, which fails the first time, -> send. Each body leaves a line."""
    wf = Workflow("orders")

    def leave(text: str) -> None:
        with effects.open("a") as file:
            file.write(f"{text}\n")

    wf.step(lambda: [1, 2, 3], id="goods")
    wf.step(lambda item: leave(f"pack {item}") or item, id="pack", map_over="goods", max_concurrency=1)

    @wf.step(depends_on=["pack"], retry=RetryPolicy(2, initial_delay=0.001))
    def charge(ctx: Any) -> str:
        leave("charge")
        if ctx.attempt == 1:
            raise ConnectionError("try again")
        return "charged"

    wf.step(lambda charge: leave("send") or "sent", id="send")
    return wf


def run_orders(line: Line, folder: str, crash: dict[str, Any] | None = None) -> str:
    """Run them, until the crash if there is to be one."""
    store: Any = str(Path(folder, "orders.db"))
    if crash is not None:
        store = crash_after(**crash).on(store)
    with Runtime(store, max_workers=2) as runtime:
        result = runtime.run(orders(Path(folder, "effects")), execution_id="e", if_exists="resume")
    return str(result.status)


def add(line: Line, one: int, other: int = 0) -> int:
    """Adds."""
    return one + other


def echo(line: Line) -> str:
    """Says what it hears until it hears nothing more."""
    while (heard := line.hear()) is not None:
        line.say(heard)
        if heard == "end":
            return "ended"
    return "hung up"


def fail(line: Line) -> None:
    """Raises, having printed something."""
    print("about to fail")
    raise ValueError("as it was to be")


def leave_with(line: Line, code: int) -> None:
    """Exits."""
    sys.stdout.flush()
    os._exit(code)


def hang(line: Line) -> None:
    """Says its number and never ends; SIGTERM is no reason to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line.say(os.getpid())
    threading.Event().wait()


def who(line: Line) -> dict[str, Any]:
    """What it is: who imported its module, what runs in it, where."""
    from ares.testing import is_test_process

    return {
        "imported_by": IMPORTED_BY,
        "pid": os.getpid(),
        "threads": [thread.name for thread in threading.enumerate()],
        "is_test_process": is_test_process(),
        "folder": str(Path.cwd()),
    }


def say_nonsense(line: Line) -> object:
    """Returns what JSON has no word for."""
    return object()


class Holder:
    """Has a method, which is no function of a module."""

    def method(self, line: Line) -> None:
        """Is never called."""
