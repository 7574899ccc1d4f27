"""From what a database says of an execution to the row of a listing: for stores whose rows are a database's."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ares.journal.owner import describe
from ares.journal.owner import is_gone as process_is_gone
from ares.journal.protocol import ExecutionRow, Owner

#: Rows that a reader takes at a time; it holds no transaction between two pages.
PAGE = 500


class Listing:
    """Makes rows of one listing; each owner's process is looked for once."""

    def __init__(self) -> None:
        self._live: dict[int, bool] = {}
        self._now = time.time_ns()

    def row(self, raw: Sequence[Any]) -> ExecutionRow:
        """The execution that a raw row tells of."""
        (_, id_, workflow_id, version, status, parent_id, metadata, created_at, ended_at, error, last_seq, last_at,
         requests, lease, beaten_at, *owner) = raw  # fmt: skip
        holder = None if lease is None else Owner(*owner)
        if holder is not None and lease not in self._live:
            self._live[lease] = not process_is_gone(holder)
        return ExecutionRow(
            execution_id=id_,
            workflow_id=workflow_id,
            workflow_version=version,
            status=status,
            parent_id=parent_id,
            metadata=json.loads(metadata),
            created_at=created_at,
            updated_at=created_at if last_at is None else last_at,
            ended_at=ended_at,
            error=error,
            last_seq=last_seq or 0,
            live=holder is not None and self._live[lease],
            owner="" if holder is None else describe(holder),
            age=max(0, self._now - beaten_at) / 1e9 if isinstance(beaten_at, int) else 0.0,
            requests=requests,
            lease=lease or 0,
        )


def list_rows(
    fetch: Callable[[int | None, int], Sequence[Sequence[Any]]],
    metadata: Mapping[str, str] | None,
    limit: int | None,
) -> list[ExecutionRow]:
    """A listing, page by page.

    Args:
        fetch: Gives at most so many raw rows, newest first, older than the one of a key (None: from the newest on).
        metadata: What a row's metadata has to have in it.
        limit: How many rows are wanted; None for all.
    """
    pairs = (metadata or {}).items()
    listing = Listing()
    rows: list[ExecutionRow] = []
    before: int | None = None
    while limit is None or len(rows) < limit:
        # What the metadata leaves out is not known before it is read.
        size = PAGE if limit is None or pairs else min(PAGE, limit - len(rows))
        page = fetch(before, size)
        rows += [row for row in map(listing.row, page) if pairs <= row.metadata.items()]
        if len(page) < size:
            break
        before = page[-1][0]
    return rows[:limit]
