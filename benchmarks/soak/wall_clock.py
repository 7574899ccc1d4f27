"""A wall clock that can be set, for the processes that are started by it: the monotonic clock goes on as it does.

What asks libc what time it is gets this one, Python and C libraries alike. Needs Linux and a C compiler.
"""

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ares.errors import UsageError

_SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """One clock, for any number of processes.

    Args:
        folder: where its two files are made.

    Raises:
        UsageError: there is no compiler, or it does not do here.
    """

    def __init__(self, folder: str | Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise UsageError("a wall clock that can be set needs a C compiler, and there is none")
        self._library = Path(folder, "wall_clock.so")
        self._file = Path(folder, "wall_clock")
        self._file.write_bytes(bytes(8))
        command = [compiler, "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise UsageError(f"a wall clock that can be set cannot be made here: {made.stderr}")
        with self._file.open("r+b") as file:
            self._ahead = mmap.mmap(file.fileno(), 8)

    def set_ahead(self, seconds: float) -> None:
        """Have it say so much more than the system's does, from now on."""
        self._ahead[:] = struct.pack("=q", int(seconds * 1e9))

    @contextmanager
    def for_new_processes(self) -> Iterator[None]:
        """Programs that this one starts meanwhile, and their children, go by this clock."""
        names = {"LD_PRELOAD": str(self._library), "WALL_CLOCK": str(self._file)}
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(names)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def close(self) -> None:
        """Let go of its file."""
        self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
