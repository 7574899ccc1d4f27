"""The command ``doctor``: whether a host, a store and a target are fit to run on one another.

Each check is a function that yields what it finds; the table says what it is called and what it looks at. None changes
anything: no store is made or migrated. The plugins of a target are started on a store that is thrown away.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from ares.cli.doctor import host, programs, stores
from ares.cli.doctor.finding import Finding, Level, fail
from ares.cli.exits import ExitCode, said
from ares.cli.session import Session
from ares.errors import AresError
from ares.runtime.checks import worker_count

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}

_Check = Callable[[], Iterable[Finding]]


def doctor(session: Session, target: str | None, store: str | None) -> int:
    """Look at the host, at a store if one is named, and at a target if there is one.

    Returns:
        The exit code: 1 if something fails; a warning is none.
    """
    findings = [(name, each) for name, check in _checks(target, store or "").items() for each in _found(check)]
    session.document = {
        "findings": [
            {"check": name, "level": str(each.level), "what": each.what, "todo": each.todo or None}
            for name, each in findings
        ]
    }
    if not session.as_json:
        _say(session, findings)
    return ExitCode.FAILED if any(each.level is Level.FAIL for _, each in findings) else ExitCode.COMPLETED


def _checks(target: str | None, store: str) -> Mapping[str, _Check]:
    """What is looked at, by name, in the order in which it is shown."""
    imported = None if target is None else programs.import_target(target)
    reader, stored = stores.reached(store)
    file = stores.file_of(store)
    checks: dict[str, _Check] = {"versions": host.versions, "store": lambda: [stored]}
    if file is not None:
        checks["writable"] = partial(stores.look_at_file, file)
        checks["disk"] = partial(host.look_at_disk, file)
        checks["space"] = partial(host.look_at_space, file)
    if reader is not None:
        checks["stuck"] = partial(stores.look_for_stuck, reader)
        checks["owners"] = partial(stores.look_for_silent, reader)
    workers, plugins = worker_count(None), 0
    if imported is not None:
        checks["workflow"] = partial(programs.look_at_workflow, imported)
        checks["import"] = partial(programs.look_at_import, imported)
        checks["patched"] = partial(programs.look_at_patches, imported)
        if not imported.patched_by:  # its Runtime would hang
            workers, plugins, checks["plugins"] = _tried(imported)
    checks["threads"] = partial(host.look_at_threads, workers, plugins)
    return checks


def _tried(imported: programs.Imported) -> tuple[int, int, _Check]:
    """How many workers and plugins the Runtime of a target has, and the check that says how these do."""
    try:
        workers, trial = programs.try_plugins(imported)
    except AresError as error:
        problem = fail(str(error), "the Runtime of the target cannot be made or started like this")
        return worker_count(None), 0, lambda: [problem]
    return workers, len(trial.health), partial(programs.look_at_plugins, trial)


def _found(check: _Check) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # a host is what nobody thought of; the other checks are worth as much
        yield fail(f"it could not be looked at: {said(error)}", "if this is no fault of the host, it is one of ares")


def _say(session: Session, findings: Iterable[tuple[str, Finding]]) -> None:
    for name, finding in findings:
        session.out.line((f"{finding.level:<5}", _STYLES[finding.level]), (f"{name:<10}", "bold"), finding.what)
        if finding.todo:
            session.out.line(" " * 15, finding.todo)
