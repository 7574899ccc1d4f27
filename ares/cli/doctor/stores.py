"""What a store says, and what is told of its file. Looks and changes nothing: it neither makes nor migrates one."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ares.cli.concealing import is_url, without_password
from ares.cli.doctor.finding import Finding, fail, ok, warn
from ares.cli.store import IN_PROCESS, is_there
from ares.cli.text import counted, whole_seconds
from ares.errors import AresError
from ares.records import ExecutionStatus, ExecutionSummary
from ares.runtime import Runtime

#: Seconds without a sign after which an owner may be taken for gone: six of its heartbeats, and what
#: ``Runtime(lease_timeout=...)`` is unless it is given.
_SILENT = 30.0
#: How many executions are named.
_NAMED = 5


def reached(store: str) -> tuple[Runtime | None, Finding]:
    """What reads a store, or None if nothing can; and what there is to say of it."""
    if not store or store == IN_PROCESS:
        return None, warn("none is named, so none was looked at", "name its file or URL by --store or ARES_STORE")
    shown = without_password(store)
    if not is_url(store) and not is_there(store):
        return None, fail(f"there is no file {shown}", "ares run makes it; or is it elsewhere?")
    try:
        runtime = Runtime(store)
        runtime.executions(limit=1)
    except AresError as error:
        todo = "no command can read it like this; of an older format, ares run, resume or recover makes the present one"
        return None, fail(str(error), todo)
    return runtime, ok(f"{shown} can be read, and has the format of this ares")


def file_of(store: str) -> str | None:
    """The store's file; None where it has none, or it is not there."""
    return store if store and not is_url(store) and is_there(store) else None


def look_at_file(file: str) -> Iterator[Finding]:
    """Whether this user may write it: SQLite has to write beside it, too."""
    for path, what in ((Path(file), "the file"), (Path(os.path.realpath(file)).parent, "its folder")):
        if not os.access(path, os.W_OK):
            yield fail(f"{what} {path} cannot be written by this user", "nothing runs like this; let the user write it")
            return
    yield ok("the file and its folder can be written")


def look_for_stuck(runtime: Runtime) -> Iterator[Finding]:
    """Executions that stand still although they could go on."""
    statuses = (ExecutionStatus.INTERRUPTED, ExecutionStatus.PENDING, ExecutionStatus.WAITING)
    yield from stuck([each for status in statuses for each in runtime.executions(status)])


def stuck(found: Sequence[ExecutionSummary]) -> Iterator[Finding]:
    """``look_for_stuck`` among these."""
    still = [each for each in found if is_stuck(each)]
    answered = [each for each in still if each.status is ExecutionStatus.WAITING]
    left = [each for each in still if each.status is not ExecutionStatus.WAITING]
    todo = "ares recover TARGET goes on with all, ares resume ID TARGET with one"
    if left:
        yield warn(f"{counted(len(left), 'execution')} whose process is gone, left by it: {_ids(left)}", todo)
    if answered:
        said = f"{counted(len(answered), 'execution')} with answers or a cancel in that nobody carries out"
        yield warn(f"{said}: {_ids(answered)}", todo)
    if not still:
        yield ok("no execution stands still that could go on")


def is_stuck(summary: ExecutionSummary) -> bool:
    """Whether an execution stands still although it could go on: nobody walks it, and no answer is missing."""
    if summary.owner or summary.parent_id is not None:
        return False
    is_answered = summary.status is ExecutionStatus.WAITING and summary.requests > 0
    return is_answered or summary.status in (ExecutionStatus.PENDING, ExecutionStatus.INTERRUPTED)


def look_for_silent(runtime: Runtime) -> Iterator[Finding]:
    """Owners that give no sign any more."""
    statuses = (ExecutionStatus.RUNNING, ExecutionStatus.PENDING, ExecutionStatus.WAITING)
    yield from silent([each for status in statuses for each in runtime.executions(status)])


def silent(found: Sequence[ExecutionSummary]) -> Iterator[Finding]:
    """``look_for_silent`` among these."""
    owned = [each for each in found if each.owner]
    quiet = [each for each in owned if each.silent_for > _SILENT]
    for owner in sorted({each.owner for each in quiet}):
        theirs = [each for each in quiet if each.owner == owner]
        since = whole_seconds(min(each.silent_for for each in theirs))
        yield warn(
            f"{owner} walks {_ids(theirs)}, and has given no sign for {since}",
            "if that process is gone, ares recover TARGET takes over what it walked; if it is not, it hangs or its "
            "machine's clock is another",
        )
    if not quiet:
        yield ok(f"{counted(len(owned), 'execution')} walked now, and all owners have given a sign")


def _ids(found: Sequence[ExecutionSummary]) -> str:
    more = len(found) - _NAMED
    named = ", ".join(each.execution_id for each in found[:_NAMED])
    return named + (f" and {more:,} more" if more > 0 else "")
