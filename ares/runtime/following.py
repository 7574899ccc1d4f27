"""What is open in an execution whose questions are answered one by one.

Whoever answers a thousand questions reads a thousand times what is open. So the fold of the journal is kept for the
executions that were answered last, and goes on where it was.
"""

import threading
from collections import OrderedDict
from typing import Final

from ares.journal.fold import Fold
from ares.journal.protocol import ExecutionRow
from ares.runtime.reading import Source, follow
from ares.values import Codec
from ares.walk import facts as f

#: So many executions are followed at a time.
FOLLOWED: Final = 4


class Following:
    """Knows what the steps of a few executions ask. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The one that was asked for last is the last.
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    def question(self, source: Source, row: ExecutionRow, codec: Codec, path: str) -> f.Asked | None:
        """What a step asks by now, answered by what the journal has of it.

        Raises:
            StoreError: the journal cannot be read.
        """
        with self._lock:
            followed = self._followed.pop(row.execution_id, None)
            if followed is None or not followed.is_of(row, codec):
                followed = _Followed(row, codec)
            self._followed[row.execution_id] = followed
            while len(self._followed) > FOLLOWED:
                self._followed.popitem(last=False)
        return followed.question(source, path)

    def leave(self, execution_id: str) -> None:
        """It has ended."""
        with self._lock:
            self._followed.pop(execution_id, None)


class _Followed:
    """One execution."""

    def __init__(self, row: ExecutionRow, codec: Codec) -> None:
        self._row = row
        self._codec = codec
        self._lock = threading.Lock()
        self._fold = Fold(row.execution_id)

    def is_of(self, row: ExecutionRow, codec: Codec) -> bool:
        """Whether it is this very execution, read with these classes."""
        return self._row.created_at == row.created_at and self._codec is codec

    def question(self, source: Source, path: str) -> f.Asked | None:
        """See ``Following``."""
        with self._lock:
            follow(self._fold, source, self._codec)
            return self._fold.question(path)
