"""One call of the command: where its words go, what stopped it, and how it ends.

With ``--json``, stdout carries one document and nothing else: from the moment a command begins, whatever anybody in
the process or below it writes to stdout goes to stderr, and the document is written at the very end.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

from ares.cli.concealing import Concealed
from ares.cli.exits import ExitCode, code_of_error, message_of
from ares.cli.screen import Part, Screen

#: What ends a run in the same good order as Ctrl-C does, where the platform has it and nobody asked to ignore it.
_STOPS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if getattr(signal, name, None) is not None
)
#: Seconds that threads of the program may hold up the exit of an interrupted command.
_EXIT_SECONDS = 0.3


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command line, perhaps one that cannot be parsed, wants JSON."""
    return "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)


class Session:
    """What the commands and ``main`` share.

    Args:
        as_json: whether the command line asks for JSON.
        concealed: what nothing that is said may hold.
    """

    def __init__(self, as_json: bool, concealed: Concealed | None = None) -> None:
        self.as_json = as_json
        self._concealed = concealed or Concealed()
        self.debug = False
        #: 0: silent, 1: INFO, 2: DEBUG.
        self.verbosity = 0
        #: What goes to stdout in the end, with ``--json``.
        self.document: Mapping[str, Any] | None = None
        self._stopped_by = signal.SIGINT
        self._machine: TextIO | None = None
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self.out = Screen(sys.stdout or _nowhere(), concealed)
        self.err = Screen(sys.stderr or _nowhere(), concealed)

    def begin(self, *, as_json: bool) -> None:
        """A command starts. Before it runs anything of the user's, stdout is set apart for the document."""
        self.as_json = as_json
        if not as_json or sys.stdout is None:
            return
        sys.stdout.flush()
        try:
            kept = os.dup(sys.stdout.fileno())
            os.dup2(self.err.stream.fileno(), sys.stdout.fileno())
        except (OSError, ValueError):  # not a file of the operating system's
            self._machine, sys.stdout = sys.stdout, self.err.stream
        else:
            self._machine = os.fdopen(kept, "w", encoding="utf-8", newline="\n")

    def note(self, *parts: Part) -> None:
        """Say something beside the results, on stderr; nothing with ``--json``."""
        if not self.as_json:
            self.err.line("ares: ", *parts)

    def log_to_stderr(self) -> None:
        """Let ares's own log be seen, as far as ``--verbose`` asks for it."""
        if self.verbosity:
            from loguru import logger

            level = "INFO" if self.verbosity == 1 else "DEBUG"
            logger.remove()
            if self._concealed:
                logger.add(self._log, level=level, colorize=self.err.is_terminal)
            else:
                logger.add(self.err.stream, level=level)
            logger.enable("ares")

    def _log(self, line: str) -> None:
        print(self._concealed.text(line), end="", file=self.err.stream, flush=True)

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """Meanwhile SIGTERM and its like reach the main thread as Ctrl-C does."""

        def stop(number: int, _frame: FrameType | None) -> None:
            self._stopped_by = signal.Signals(number)
            raise KeyboardInterrupt

        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {each: signal.signal(each, stop) for each in _STOPS if signal.getsignal(each) is signal.SIG_DFL}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def hear_no_more(self) -> None:
        """Ctrl-C was heard, and what it asks for is under way: another one changes nothing."""
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    @property
    def stop_code(self) -> int:
        """The exit code of a command that was interrupted: 130 by Ctrl-C."""
        return 128 + self._stopped_by

    def interrupted(self) -> int:
        """Ctrl-C, or what counts as one, ended the command before it could say so itself."""
        self.note("interrupted")
        self.document = {"error": {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": self.stop_code}}
        return self.stop_code

    def fail(self, error: BaseException) -> int:
        """Say why the command ends, in one line, and give the exit code."""
        if self.debug:
            self._log("".join(traceback.format_exception(error)))
        code, message = code_of_error(error), message_of(error)
        self.document = {"error": {"type": type(error).__name__, "message": message, "exit_code": int(code)}}
        self.note(message)
        return code

    def finish(self, code: int) -> int:
        """Write what is left to be written. Returns the exit code."""
        if code == ExitCode.INTERRUPTED and self.document is None:
            # typer makes an exit code of a KeyboardInterrupt.
            code = self.interrupted()
        with contextlib.suppress(OSError):  # nobody listens any more
            if self.as_json and self.document is not None:
                print(json.dumps(self._concealed.document(self.document)), file=self._machine or sys.stdout, flush=True)
            if self._machine is not None:
                self._machine.close()
        if code > 128:
            _exit_soon(code)
        return code


def _exit_soon(code: int) -> None:
    """Threads that the program started and forgot must not keep alive what was told to stop."""
    timer = threading.Timer(_EXIT_SECONDS, os._exit, (code,))
    timer.name = "ares-exit"
    timer.daemon = True
    timer.start()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - stands for a closed stream till the end
