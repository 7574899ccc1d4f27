"""What is seen of a walk while it goes on, on stderr: a live display on a terminal, now and then a line elsewhere.

Both only ask the execution how far it is, on a thread of their own: the main thread belongs to the walk, so that Ctrl-C
finds it there. A display that fails hurts nothing.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ares.cli.session import Session
from ares.cli.text import plain, whole_seconds
from ares.engine.execution import Execution
from ares.records import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How often the live display is drawn anew, per second.
_PER_SECOND = 5
#: Seconds between two lines about a walk that gets on.
_LINE_EVERY = 5.0
#: How many of the running steps are named.
_NAMED = 3


def watching(session: Session, execution: Execution, workflow_id: str) -> AbstractContextManager[Any]:
    """Show how an execution gets on, until the context ends; nothing with ``--json``."""
    if session.as_json:
        return nullcontext()
    if session.err.is_terminal and not session.verbosity and not session.err.console.is_dumb_terminal:
        return _live(session, execution, workflow_id)
    return _lines(session, execution)


# --- a terminal -----------------------------------------------------------------------------------------------


def _live(session: Session, execution: Execution, workflow_id: str) -> AbstractContextManager[Any]:
    from rich.live import Live

    picture = _Picture(execution, workflow_id)
    return Live(
        console=session.err.console,
        get_renderable=picture.draw,
        refresh_per_second=_PER_SECOND,
        transient=True,
        # What steps print appears above the display, unless it goes elsewhere.
        redirect_stdout=session.out.is_terminal,
        redirect_stderr=True,
    )


class _Picture:
    """Draws one moment of a walk."""

    def __init__(self, execution: Execution, workflow_id: str) -> None:
        from rich.spinner import Spinner

        self._execution = execution
        self._name = plain(workflow_id)
        self._began = time.monotonic()
        # Of ASCII: not every terminal has the others.
        self._spinner = Spinner("line")
        self._last: Progress | None = None

    def draw(self) -> "RenderableType":
        """What to show now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with contextlib.suppress(Exception):  # how far it is may not be known; it is never worth an error
            self._last = self._execution.progress() or self._last
        elapsed = whole_seconds(time.monotonic() - self._began)
        progress = self._last
        grid = Table.grid(padding=(0, 1))
        if progress is None:
            grid.add_row(self._spinner, Text(self._name, "bold"), Text("starting"), Text(elapsed))
            return grid
        bar = ProgressBar(total=max(progress.total, 1), completed=progress.done, width=24)
        counts = Text(f"{progress.done:,} of {progress.total:,} steps", no_wrap=True)
        grid.add_row(self._spinner, Text(self._name, "bold", no_wrap=True, overflow="ellipsis"), bar, counts, elapsed)
        running = Text(f"  running: {running_steps(progress)}", "dim", no_wrap=True, overflow="ellipsis")
        return Group(grid, running)


# --- no terminal ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _lines(session: Session, execution: Execution) -> Iterator[None]:
    ended = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        said: tuple[object, ...] = ()
        while not ended.wait(_LINE_EVERY):
            try:
                progress = execution.progress()
                if progress is not None and said != (progress.done, progress.running):
                    said = (progress.done, progress.running)
                    counts = f"{progress.done:,} of {progress.total:,} steps done"
                    elapsed = whole_seconds(time.monotonic() - began)
                    session.note(f"{counts} after {elapsed}; running: {running_steps(progress)}")
            except Exception:
                return  # stderr is gone, say; the walk goes on

    thread = threading.Thread(target=watch, name=f"ares-display {execution.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def running_steps(progress: Progress) -> str:
    """The first of the steps that run, with how far they say they are, and how many more there are."""
    if not progress.running:
        return "none"
    named = []
    for path in progress.running[:_NAMED]:
        done, total = progress.details.get(path, (None, None))
        of = "" if done is None else f" ({done:g})" if total is None else f" ({done:g} of {total:g})"
        named.append(plain(path) + of)
    more = len(progress.running) - _NAMED
    return ", ".join(named) + (f" and {more:,} more" if more > 0 else "")
