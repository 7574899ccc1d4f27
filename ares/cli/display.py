"""What is seen of a walk while it goes on, on stderr: a live display on a terminal, now and then a line elsewhere.

Both only ask the execution how far it is, on a thread of their own: the main thread belongs to the walk, so that Ctrl-C
finds it there. A display that fails hurts nothing.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ares.cli.session import Session
from ares.cli.text import plain, whole_seconds
from ares.records import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How often the live display is drawn anew, per second.
_PER_SECOND = 5
#: Seconds to the first look whether it has begun.
_FIRST_LOOK = 0.05
#: Seconds that a thread which writes to a terminal that takes nothing may hold up the end.
_JOIN_SECONDS = 1.0
#: Seconds between two lines about a walk that gets on.
_LINE_EVERY = 5.0
#: How many of the running steps are named.
_NAMED = 3


class Watched(Protocol):
    """What a display asks: an ``Execution``, or several as if they were one."""

    id: str

    def progress(self) -> Progress | None:
        """How far it is; None before it has begun."""


@contextlib.contextmanager
def watching(session: Session, execution: Watched, beginning: str) -> Iterator[None]:
    """Show how an execution gets on, until the context ends; nothing with ``--json``.

    Args:
        session: where to.
        execution: what is to begin, or not: that may fail.
        beginning: what to say once it has begun.
    """
    if session.as_json:
        yield
        return
    is_live = session.err.is_terminal and not session.verbosity and not session.err.console.is_dumb_terminal
    watcher = _Watcher(session, execution, beginning, says_lines=not is_live)
    with _live(session, execution) if is_live else nullcontext(), watcher:
        yield
    watcher.say_beginning()


# --- a terminal -----------------------------------------------------------------------------------------------


def _live(session: Session, execution: Watched) -> AbstractContextManager[Any]:
    from rich.live import Live

    picture = _Picture(execution)
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

    def __init__(self, execution: Watched) -> None:
        from rich.spinner import Spinner

        self._execution = execution
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
            grid.add_row(self._spinner, Text("starting"), Text(elapsed))
            return grid
        bar = ProgressBar(total=max(progress.total, 1), completed=progress.done, width=24)
        counts = Text(f"{progress.done:,} of {progress.total:,} steps{round_of(progress)}", no_wrap=True)
        grid.add_row(self._spinner, bar, counts, Text(elapsed))
        running = Text(f"  running: {running_steps(progress)}", "dim", no_wrap=True, overflow="ellipsis")
        return Group(grid, running)


# --- lines ----------------------------------------------------------------------------------------------------


class _Watcher:
    """A thread that says when an execution has begun and, where there is no live display, how it gets on."""

    def __init__(self, session: Session, execution: Watched, beginning: str, *, says_lines: bool) -> None:
        self._session = session
        self._execution = execution
        self._lock = threading.Lock()
        #: What is still to be said; whoever takes it says it.
        self._beginning: str | None = beginning
        self._says_lines = says_lines
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"ares-display {execution.id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)

    def say_beginning(self) -> None:
        """Say that it has begun, unless that was said."""
        with self._lock:
            beginning, self._beginning = self._beginning, None
        if beginning is not None:
            self._session.note(beginning)

    def _watch(self) -> None:
        said: tuple[object, ...] = ()
        pause = _FIRST_LOOK
        while not self._ended.wait(pause):
            try:
                progress = self._execution.progress()
                if progress is None:
                    continue
                self.say_beginning()
                if not self._says_lines:
                    return
                if pause == _LINE_EVERY and said != (progress.round, progress.done, progress.running):
                    said = (progress.round, progress.done, progress.running)
                    self._say(progress)
                pause = _LINE_EVERY
            except Exception:
                return  # stderr is gone, say; the walk goes on

    def _say(self, progress: Progress) -> None:
        elapsed = whole_seconds(time.monotonic() - self._began)
        counts = f"{progress.done:,} of {progress.total:,} steps{round_of(progress)} done after {elapsed}"
        self._session.note(f"{counts}; running: {running_steps(progress)}")


def round_of(progress: Progress) -> str:
    """The round that the steps are in, unless it is the first, which may be the only one."""
    return f" of round {progress.round:,}" if progress.round > 1 else ""


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
