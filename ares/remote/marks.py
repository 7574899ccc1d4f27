"""Who may begin a body, settled between processes of one machine: whoever makes the mark first, a file in a folder.

The worker makes it before it begins; the home makes it to see that nobody begins any more. The futures of a process
pool do not say: they are RUNNING while their call still waits for a process.
"""

import os
import tempfile
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import rmtree


class Mark:
    """One body's mark, seen from home."""

    def __init__(self, place: str) -> None:
        self.place = place

    def revoke(self) -> bool:
        """See that the body never begins. False if it has begun, or nobody can tell."""
        try:
            return make(self.place, "")
        except OSError:
            return False

    def begun_at(self) -> float | None:
        """When the body began, in seconds of the monotonic clock, which the processes of a machine share; None if it
        has not."""
        try:
            text = Path(self.place).read_text("ascii")
            return float(text) if text else time.monotonic()
        except OSError:
            return None

    def clear(self) -> None:
        """It is over."""
        with suppress(OSError):
            Path(self.place).unlink()


def make(place: str, text: str) -> bool:
    """Make a mark. False if somebody has, or its folder is gone, and with it whoever would hear of the body.

    Raises:
        OSError: the file system is full, say.
    """
    try:
        descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except (FileExistsError, FileNotFoundError):
        return False
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
    return True


class Folder:
    """Makes marks, in a folder that is there from the first of them until it is removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: str | None = None
        self._numbers = count(1)

    def new(self) -> Mark:
        """A mark that nobody has made."""
        with self._lock:
            if self._path is None:
                self._path = tempfile.mkdtemp(prefix="ares-marks-")
            return Mark(f"{self._path}/{next(self._numbers)}")

    def remove(self) -> None:
        """Whatever has not begun by now never will."""
        with self._lock:
            path, self._path = self._path, None
        if path is not None:
            rmtree(path, ignore_errors=True)
