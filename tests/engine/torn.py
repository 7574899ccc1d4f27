"""A Ctrl-C that comes at a chosen moment.

CPython raises it where a Python function begins, or behind the call of a C function; a profiler is called in the same
places, and what it raises comes out there. So any thread can be interrupted like the main one, wherever a test likes.
"""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

#: A file, a line, and whether a function begins there or one of C has ended.
Moment = tuple[str, int, str]


class _Watch:
    """Sees the moments of a call in the files of ares, and those of the standard library's ``threading``."""

    def __init__(self, at: Moment | None, count: int) -> None:
        self.seen = Counter[Moment]()
        self._at = at
        self._count = count

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if event not in ("call", "c_return") or not ("/ares/" in file or file.endswith("/threading.py")):
            return
        if _is_finalized(frame):
            return  # what is raised there goes nowhere
        moment = (file.rpartition("/ares/")[2], frame.f_lineno, event)
        self.seen[moment] += 1
        if moment == self._at and self.seen[moment] == self._count:
            sys.setprofile(None)
            raise KeyboardInterrupt


def _is_finalized(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupt(fn: Callable[[], Any], at: Moment | None = None, count: int = 1) -> Counter[Moment]:
    """Call ``fn()`` and interrupt it when it is ``at`` a moment for the ``count``-th time. Returns the moments that it
    came by; raises what it raises."""
    watch = _Watch(at, count)
    sys.setprofile(watch)
    try:
        fn()
    finally:
        sys.setprofile(None)
    return watch.seen
