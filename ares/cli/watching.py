"""The command ``watch``: the events of one execution, as they are committed, whichever process walks it.

Reads alone: the store is not opened for writing, no lease is taken, and between two looks nothing is held, no
connection and no transaction. So a watcher keeps nobody from anything, and a write-ahead log from nothing.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from ares.cli.exits import ExitCode, code_of_status
from ares.cli.outcome import STYLES, say_questions
from ares.cli.reading import event_document, event_line
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.errors import ExecutionNotFoundError, UsageError
from ares.events import Event
from ares.postbox import Latch
from ares.records import ExecutionStatus, ExecutionSummary
from ares.runtime import Runtime
from ares.runtime.checks import check_id

#: Seconds between two looks while events come in, and at most when none do.
_QUICK = 0.05
_SLOW = 0.5
#: How much longer each wait is than the one before it while none do.
_SLOWER = 1.3


@attrs.define(eq=False)
class Watch:
    """What is seen of one execution."""

    runtime: Runtime
    execution_id: str
    #: The number of the last event that was seen.
    seq: int
    #: How it stood at the last look.
    summary: ExecutionSummary

    def events(self) -> Iterator[Event]:
        """All from ``seq`` on, each as soon as it is there, until nothing more comes by itself.

        Raises:
            UsageError: it was deleted meanwhile.
        """
        pause, rest = _QUICK, Latch()
        while True:
            # Asked before the events are read: what ends it is among them.
            self._look()
            before = self.seq
            for event in self._new_events():
                self.seq = event.seq or self.seq
                yield event
            if not self.is_moving:
                return
            pause = _QUICK if self.seq > before else min(pause * _SLOWER, _SLOW)
            rest.wait(pause)

    @property
    def is_moving(self) -> bool:
        """Whether something may happen by itself: somebody walks it, or is about to."""
        is_under_way = self.summary.status in (ExecutionStatus.RUNNING, ExecutionStatus.PENDING)
        return is_under_way and bool(self.summary.owner)

    @property
    def status(self) -> ExecutionStatus:
        """How it stands; of what was never begun by a process that is gone, INTERRUPTED."""
        is_left = self.summary.status is ExecutionStatus.PENDING and not self.summary.owner
        return ExecutionStatus.INTERRUPTED if is_left else self.summary.status

    def _look(self) -> None:
        try:
            found = self.runtime.summary(self.execution_id)
        except ExecutionNotFoundError as error:
            raise self._deleted() from error
        if found.created_at != self.summary.created_at:
            raise self._deleted()  # this is another one, of the same name
        self.summary = found

    def _new_events(self) -> Iterator[Event]:
        try:
            yield from self.runtime.stored_events(self.execution_id, self.seq)
        except ExecutionNotFoundError as error:
            raise self._deleted() from error

    def _deleted(self) -> UsageError:
        return UsageError(f"execution {self.execution_id!r} was deleted while it was watched: it had ended")


def watch(session: Session, store: str | None, execution_id: str, *, after: int) -> int:
    """Show what happened in one execution, and what happens, until it ends, waits, or nobody walks it any more.

    Returns:
        The exit code that the run itself would have.
    """
    runtime = Runtime(existing_store(store))
    check_id(execution_id)
    seen = Watch(runtime, execution_id, after, runtime.summary(execution_id))
    documents: list[dict[str, Any]] = []
    try:
        for event in seen.events():
            if session.as_json:
                documents.append(event_document(event))
            else:
                session.out.line(*event_line(event))
    except KeyboardInterrupt:
        code = session.interrupted()
        session.document = {**_document(seen, documents), **(session.document or {})}
        return code
    session.document = _document(seen, documents)
    if not session.as_json:
        _say_how_it_stands(session, seen)
    return code_of_status(seen.status)


def _document(seen: Watch, documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"execution_id": seen.execution_id, "status": str(seen.status), "events": documents}


def _say_how_it_stands(session: Session, seen: Watch) -> None:
    status = str(seen.status)
    said = (status.lower(), STYLES.get(status, ""))
    if code_of_status(seen.status) == ExitCode.INTERRUPTED:
        session.note(said, ": nobody walks it any more; ares resume, or ares recover, goes on with it")
        return
    if seen.status is ExecutionStatus.WAITING:
        say_questions(session, seen.runtime.questions(seen.execution_id))
    session.note(said)
