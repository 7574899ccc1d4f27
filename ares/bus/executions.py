"""What a bus knows of the executions under way: the port behind the contexts of their calls, and what went wrong.

A plugin that fails does so at every step. So a complaint is kept once and counted, and told to the log when its count
is a power of ten: neither a result nor a log is flooded by a plugin.
"""

import threading
from typing import Any, Final, Protocol

from ares.context import ExecutionPort, NoExecution

_NO_EXECUTION: Final = NoExecution()


class Say(Protocol):
    """Takes what there is to log. Neither blocks nor raises."""

    def __call__(self, level: str, message: str, *args: Any, error: BaseException | None = None) -> None:
        """``level`` is loguru's; ``message`` and ``args`` are as for ``str.format``."""


def silent(*_args: object, **_kwargs: object) -> None:
    """Says nothing."""


#: Who is complained of, and what for: not in words, which may differ each time.
_Subject = tuple[str, str]


class _Execution:
    __slots__ = ("complaints", "port", "told")

    def __init__(self, port: ExecutionPort) -> None:
        self.port = port
        #: Since the last time they were told: the first of each subject in words, and how many there were.
        self.complaints: dict[_Subject, tuple[str, int]] = {}
        #: How many of the standing complaints it was told.
        self.told = 0


class Executions:
    """See above. Any thread."""

    def __init__(self, say: Say = silent) -> None:
        self._say = say
        # Reentrant: a finalizer that the garbage collector runs in here may emit an event, and that may be dropped.
        # Nobody waits for another lock while he holds this one.
        self._lock = threading.RLock()
        self._open: dict[str, _Execution] = {}
        #: What every execution is to hear.
        self._standing: list[str] = []
        self._totals: dict[_Subject, int] = {}

    def open(self, execution_id: str, port: ExecutionPort) -> None:
        """An execution begins."""
        with self._lock:
            self._open[execution_id] = _Execution(port)

    def is_open(self, execution_id: str) -> bool:
        """Whether an execution has begun and is not over."""
        with self._lock:
            return execution_id in self._open

    def close(self, execution_id: str) -> tuple[str, ...]:
        """An execution is over. Returns what it was not told yet."""
        with self._lock:
            last = self.drain(execution_id)
            self._open.pop(execution_id, None)
            return last

    def port(self, execution_id: str) -> ExecutionPort:
        """What is behind a context of this execution."""
        with self._lock:
            execution = self._open.get(execution_id)
        return _NO_EXECUTION if execution is None else execution.port

    def complain(self, execution_id: str, subject: _Subject, text: str, error: BaseException | None = None) -> bool:
        """Something went wrong in a call for an execution, or for none that is known. Returns whether it was told to
        the log, too."""
        with self._lock:
            total = self._totals[subject] = self._totals.get(subject, 0) + 1
            execution = self._open.get(execution_id)
            if execution is not None:
                first, count = execution.complaints.get(subject, (text, 0))
                execution.complaints[subject] = (first, count + 1)
        is_told = _is_power_of_ten(total)
        if is_told:
            self.say("WARNING", text if total == 1 else f"{text} ({total} times so far)", error)
        return is_told

    def complain_to_all(self, text: str, error: BaseException | None = None) -> None:
        """Something is wrong for as long as the bus lives."""
        with self._lock:
            self._standing.append(text)
        self.say("ERROR", text, error)

    def say(self, level: str, text: str, error: BaseException | None = None) -> None:
        """Have something logged, and no more than that."""
        try:
            self._say(level, "{}", text, error=error)
        except Exception:
            return  # there is nobody left to tell

    def drain(self, execution_id: str) -> tuple[str, ...]:
        """The complaints that an execution was not told yet; it now is."""
        with self._lock:
            execution = self._open.get(execution_id)
            if execution is None:
                return ()
            complaints, execution.complaints = execution.complaints, {}
            standing = self._standing[execution.told :]
            execution.told = len(self._standing)
        mine = (text if count == 1 else f"{text} ({count} times)" for text, count in complaints.values())
        return (*standing, *mine)


def _is_power_of_ten(count: int) -> bool:
    while count % 10 == 0:
        count //= 10
    return count == 1
