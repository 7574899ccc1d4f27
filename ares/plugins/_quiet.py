"""Keeps Optuna from printing a line to stderr for each study that is made here.

What it prints of studies of the application's own is the application's to say, so its settings stay as they are.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Who tells which study was made.
_TALKERS: Final = ("optuna.storages._in_memory", "optuna.storages.journal._storage")


class _Mine(logging.Filter):
    """Stops what is said below a warning, on the thread that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread or record.levelno >= logging.WARNING


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is told of studies that this thread makes meanwhile; warnings are."""
    mine = _Mine()
    loggers = [logging.getLogger(name) for name in _TALKERS]
    for each in loggers:
        each.addFilter(mine)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(mine)
