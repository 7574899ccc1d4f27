"""A file of JSON lines that several processes append to, as a backend of Optuna's ``JournalStorage``.

Optuna brings one. This one differs in what a killed process leaves behind. Its lock is the kernel's, which ends with
the process, where Optuna's is a file that everybody else waits for; and half a line at the end, which would make the
file unreadable as soon as something was written after it, is cut off before that. Both write the same lines, so that
Optuna's own tools read the file.

No fsync: what is written outlives the process, not the machine. To lose the last runs costs a little learning.
"""

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ares.errors import UsageError

#: Seconds that another process may keep the file locked. It does so for microseconds, or a part of a second if it
#: rewrites the file.
_PATIENCE: Final = 2.0
_PAUSE: Final = 0.002


class ReplacedError(Exception):
    """The file is another one by now: somebody has rewritten or removed it. It must be read from its beginning."""


class StudyFile:
    """See above. One thread.

    Args:
        path: Of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: Which file it is, and how much of it is known: bytes, and lines.
        self._identity = (0, 0)
        self._offset = 0
        self.lines = 0

    def open(self) -> None:
        """See that there is such a file, and that it can be written.

        Raises:
            UsageError: it cannot.
        """
        try:
            # A pipe must not be waited for.
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except (OSError, ValueError) as error:
            raise UsageError(f"the study file {self.path!r} cannot be opened for writing: {error}") from error
        try:
            found = os.fstat(opened)
        finally:
            os.close(opened)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"the study file {self.path!r} is no regular file")
        self._identity = (found.st_dev, found.st_ino)
        self._offset = self.lines = 0

    # --- what Optuna asks for ---------------------------------------------------------------------------------------

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The lines from one on, numbered from 0. One that is being written is none yet.

        Raises:
            ReplacedError: it is not the file that it was.
            UsageError: it is no study file, or it is broken; the line is named.
        """
        if log_number_from != self.lines:
            self._offset = self.lines = 0
        with self._opened(os.O_RDONLY) as opened:
            self._check(opened)
            data = _read(opened, self._offset)
        end = data.rfind(b"\n") + 1
        if not self.lines and not end and data:
            raise self._broken(1, "it has no line")
        found = [self._parsed(line, self.lines + number) for number, line in enumerate(data[:end].split(b"\n")[:-1], 1)]
        skip = max(0, log_number_from - self.lines)
        self.lines += len(found)
        self._offset += end
        return found[skip:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write lines, all or none.

        Raises:
            ReplacedError: it is not the file that it was.
            TimeoutError: another process keeps it locked.
            OSError: it cannot be written.
        """
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        with self._locked() as opened:
            rest = _read(opened, self._offset)
            size = self._offset + rest.rfind(b"\n") + 1
            if size < self._offset + len(rest):
                os.ftruncate(opened, size)  # whoever wrote half a line was killed: the lock is ours
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(opened, data[written:], size + written)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(opened, size)
                raise

    def rewrite(self, write: Callable[[str], None]) -> None:
        """Replace the file by another one. Those who have it open notice.

        Args:
            write: Writes the new file to a path. Nobody appends to the old one meanwhile.

        Raises:
            ReplacedError: it is not the file that it was.
            TimeoutError: another process keeps it locked.
            OSError: it cannot be written.
        """
        with self._locked() as opened:
            beside = Path(f"{self.path}.new")
            beside.unlink(missing_ok=True)  # of one who was killed
            try:
                write(str(beside))
                beside.chmod(stat.S_IMODE(os.fstat(opened).st_mode))
                beside.replace(self.path)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise

    # --- inside -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            opened = os.open(self.path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ReplacedError(self.path) from None
        try:
            yield opened
        finally:
            os.close(opened)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with self._opened(os.O_RDWR) as opened:
            end = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise TimeoutError(f"another process keeps the study file {self.path!r} locked") from None
                    threading.Event().wait(_PAUSE)
            self._check(opened)
            yield opened

    def _check(self, opened: int) -> None:
        """It is the file that is known, and it is still the one of that name."""
        found = os.fstat(opened)
        try:
            named = Path(self.path).stat()
        except FileNotFoundError:
            raise ReplacedError(self.path) from None
        if {(found.st_dev, found.st_ino), (named.st_dev, named.st_ino)} != {self._identity}:
            raise ReplacedError(self.path)
        if found.st_size < self._offset:
            raise ReplacedError(self.path)

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            log = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._broken(number, str(error)[:100]) from error
        if not isinstance(log, dict) or not isinstance(log.get("op_code"), int):
            raise self._broken(number, "it is nothing that Optuna writes")
        return log

    def _broken(self, number: int, problem: str) -> UsageError:
        return UsageError(f"{self.path!r} is no study file, or is broken in line {number}: {problem}")


def _read(opened: int, offset: int) -> bytes:
    parts = []
    while part := os.pread(opened, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
