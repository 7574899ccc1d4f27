"""The commands that change a store from outside: ``cancel`` and ``prune``."""

from datetime import timedelta

from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.text import counted
from ares.errors import UsageError
from ares.records import ExecutionStatus
from ares.runtime import Runtime
from ares.runtime.checks import check_id


def cancel(session: Session, store: str | None, execution_id: str, reason: str) -> int:
    """Leave word that an execution is to stop; whoever walks it carries it out."""
    with Runtime(existing_store(store)) as runtime:
        check_id(execution_id)
        recorded = runtime.cancel(execution_id, reason)
        summary = runtime.summary(execution_id)
    if not recorded and summary.status is not ExecutionStatus.CANCELLED:
        raise UsageError(f"execution {execution_id!r} has ended already: it is {summary.status}")
    session.document = {
        "execution_id": execution_id,
        "status": str(summary.status),
        "cancel_recorded": recorded,
        "owner": summary.owner or None,
    }
    if session.as_json:
        return 0
    if not recorded:
        session.out.line(execution_id, " was cancelled already")
    elif summary.owner:
        session.out.line(execution_id, f": cancel recorded; {summary.owner}, which walks it, is told at once")
    else:
        session.out.line(execution_id, ": cancel recorded; nobody walks it now, the next resume carries it out")
    return 0


def prune(session: Session, store: str | None, older_than: timedelta, *, compact: bool) -> int:
    """Delete what ended long ago."""
    with Runtime(existing_store(store)) as runtime:
        count = runtime.prune(older_than, compact=compact)
    session.document = {"pruned": count, "compacted": compact}
    if not session.as_json:
        session.out.line(f"{counted(count, 'execution')} deleted", "; the file was compacted" if compact else "")
    return 0
