"""What a store says of executions, whoever walks them: listings, statuses, events, checkpoints. Reads only."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from ares.engine.decisions import Decision, decisions
from ares.engine.definitions import Definition
from ares.errors import ExecutionConflictError
from ares.events import Event, instant
from ares.journal.fold import Fold
from ares.journal.notes import Emitted, Recorded, Remembered, ToolCalled
from ares.journal.protocol import Entry, ExecutionRow
from ares.journal.view import decode_leniently, event_of
from ares.records import ExecutionStatus, ExecutionSummary, ExperienceCheckpoint
from ares.values import Codec
from ares.walk import facts as f

#: What opens and closes no question, and may be large: a step that asks is answered before it succeeds.
_PASSED_OVER: Final = frozenset(each.kind for each in (f.Succeeded, Emitted, Recorded, Remembered, ToolCalled))
_NOTHING: Final = f.CancelRequested("")
_ASKED_OR_ANSWERED: Final = (f.Asked.kind, f.Answered.kind)


class Source(Protocol):
    """What can be read from: a store, or the journal in front of it."""

    @property
    def name(self) -> str:
        """See ``Store``."""

    def entries(self, execution_id: str, after: int = 0) -> Iterator[Entry]:
        """See ``Store``."""

    def execution(self, execution_id: str) -> ExecutionRow:
        """See ``Store``."""

    def executions(
        self,
        *,
        statuses: Iterable[str] | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[ExecutionRow]:
        """See ``Store``."""


class Reader:
    """Reads executions. Values are loaded with what is known of their workflow, if anything is."""

    def __init__(self, source: Source, known: Callable[[str], Definition | None]) -> None:
        self._source = source
        self._known = known

    def executions(
        self,
        status: ExecutionStatus | None,
        workflow_id: str | None,
        metadata: Mapping[str, str] | None,
        limit: int | None,
    ) -> list[ExecutionSummary]:
        """Summaries, newest first."""
        # An interrupted execution is stored as running: which of the two it is shows only in its owner.
        is_derived = status in (ExecutionStatus.INTERRUPTED, ExecutionStatus.RUNNING)
        stored = None if status is None else [ExecutionStatus.RUNNING if is_derived else status]
        rows = self._source.executions(
            statuses=stored, workflow_id=workflow_id, metadata=metadata, limit=None if is_derived else limit
        )
        found = [summary for row in rows if status in (None, (summary := _summary(row)).status)]
        return found if limit is None else found[:limit]

    def summary(self, execution_id: str) -> ExecutionSummary:
        """One, as the listing has it."""
        return _summary(self._source.execution(execution_id))

    def status(self, execution_id: str) -> ExecutionStatus:
        """Where one stands."""
        return status_of(self._source.execution(execution_id))

    def checkpoint(self, execution_id: str) -> ExperienceCheckpoint:
        """The fold of its journal."""
        row = self._source.execution(execution_id)
        known = self._known(row.workflow_id)
        workflow = None if known is None else known.graph.workflow
        reducers = {} if workflow is None else {n: r for n in workflow.reducers if (r := workflow.reducer(n))}
        fold = Fold(execution_id, reducers=reducers)
        for entry, body in self._bodies(row, 0):
            fold.add(entry.seq, entry.at, body)
        return attrs.evolve(fold.checkpoint(), status=status_of(row))

    def questions(self, row: ExecutionRow) -> list[tuple[f.Asked, int]]:
        """The open questions of an execution, and when each was asked, in nanoseconds since the epoch."""
        if ExecutionStatus(row.status).is_final or not self._asks(row.execution_id):
            return []
        known = self._known(row.workflow_id)
        fold = Fold(row.execution_id)
        follow(fold, self._source, Codec() if known is None else known.codec)
        return fold.questions()

    def last_word(self, row: ExecutionRow, path: str, key: str | None, in_round: int | None) -> f.Fact | None:
        """The last that was asked or answered at a step, under a key and in a round if these are given; in the present
        round if that is not."""
        known = self._known(row.workflow_id)
        codec = Codec() if known is None else known.codec
        last = None
        for entry in self._source.entries(row.execution_id):
            if entry.kind == f.RoundStarted.kind and in_round is None:
                is_over = not entry.path or path.startswith(entry.path + "/")
                last = None if is_over else last
            elif entry.path == path and entry.kind in _ASKED_OR_ANSWERED:
                fact = _body(entry, codec)
                if key in (None, fact.key) and in_round in (None, fact.round):
                    last = fact
        return last

    def _asks(self, execution_id: str) -> bool:
        """Whether more was asked than answered: most executions ask nothing, and need not be read in full."""
        open_ = 0
        for entry in self._source.entries(execution_id):
            open_ += (entry.kind == f.Asked.kind) - (entry.kind == f.Answered.kind)
        return open_ > 0

    def events(self, execution_id: str, after: int) -> Iterator[Event]:
        """Its events so far, from ``seq > after``."""
        row = self._source.execution(execution_id)
        for entry, body in self._bodies(row, after):
            yield event_of(execution_id, entry, body)

    def decisions(self, execution_id: str, definition: Definition) -> Iterator[Decision]:
        """What was decided at its branch points, as ``definition`` has them.

        Raises:
            ExecutionConflictError: it is of another workflow.
        """
        row = self._source.execution(execution_id)
        if row.workflow_id != definition.id:
            raise ExecutionConflictError(execution_id, f"another workflow, {row.workflow_id!r}")
        return decisions(definition, execution_id, self._source.entries(execution_id), self._source.name)

    def _bodies(self, row: ExecutionRow, after: int) -> Iterator[tuple[Entry, Any]]:
        known = self._known(row.workflow_id)
        codec = Codec() if known is None else known.codec
        for entry in self._source.entries(row.execution_id, after):
            yield entry, _body(entry, codec)


def follow(fold: Fold, source: Source, codec: Codec) -> None:
    """Take in what a journal has more than its fold, as far as it says something of questions.

    Raises:
        StoreError: the journal cannot be read.
    """
    for entry in source.entries(fold.execution_id, fold.seq):
        fold.add(entry.seq, entry.at, _NOTHING if entry.kind in _PASSED_OVER else _body(entry, codec))


def _body(entry: Entry, codec: Codec) -> Any:
    body = entry.body
    return decode_leniently(entry.kind, entry.path, body, codec) if isinstance(body, str) else body


def status_of(row: ExecutionRow) -> ExecutionStatus:
    """The status of an execution: INTERRUPTED is running by the journal, and claimed by nobody who lives."""
    status = ExecutionStatus(row.status)
    if status is ExecutionStatus.RUNNING and not row.live:
        return ExecutionStatus.INTERRUPTED
    return status


def _summary(row: ExecutionRow) -> ExecutionSummary:
    return ExecutionSummary(
        execution_id=row.execution_id,
        workflow_id=row.workflow_id,
        workflow_version=row.workflow_version,
        status=status_of(row),
        parent_id=row.parent_id,
        metadata=row.metadata,
        created_at=instant(row.created_at),
        updated_at=instant(row.updated_at),
        ended_at=None if row.ended_at is None else instant(row.ended_at),
        error=row.error,
        owner=row.owner if row.live else "",
        silent_for=row.age if row.live else 0.0,
        requests=row.requests,
    )
