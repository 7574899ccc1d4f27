"""What has to happen at the end of the process before executors are waited for.

``concurrent.futures`` and loky wait, when the main thread has ended, for all that their executors still run, be it for
ever; functions of ``atexit`` come after that. What is registered here comes before.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

_callbacks: list[Callable[[], None]] = []
_lock = threading.Lock()
#: Classes of executors whose modules have registered by now, and been overtaken.
_overtaken: set[type] = set()


def before_executors_end(callback: Callable[[], None]) -> None:
    """Have ``callback()`` called then, on the main thread."""
    _callbacks.append(callback)


def overtake(kind: type) -> None:
    """An executor of this class is in use. The last one to register is called first."""
    with _lock:
        if kind in _overtaken:
            return
        _overtaken.add(kind)
    register = getattr(threading, "_register_atexit", None)  # there is no public way to come before them
    if register is not None:
        with suppress(RuntimeError):  # the process ends already
            register(_call)


def _call() -> None:
    for callback in _callbacks:
        callback()
