"""What the command's exit codes mean, and the one line that is said about an error.

The table is part of the contract of scripts that call ``ares``; ``ares --help`` and ``docs/cli.md`` repeat it.
"""

from enum import IntEnum
from typing import Any

import typer

from ares.errors import AresError, ExecutionExistsError, RecordedError, StoreError, UsageError, WorkflowChangedError
from ares.records import ErrorInfo, ExecutionStatus
from ares.workflow.checks import listed


class ExitCode(IntEnum):
    """How the process ends."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    CANCELLED = 4
    INTERRUPTED = 130


#: The end of the help. ``\b`` keeps the lines of the paragraph that it begins.
EPILOGUE = """\b
Exit codes:
  0    completed; of commands other than run, resume, recover and
       watch: done
  1    failed, timed out included; the store failed
  2    usage or definition error: an unknown target, a bad input,
       a missing store, an id that is not there
  3    waiting
  4    cancelled
  130  interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)

With --json, stdout is exactly one JSON document, errors included; what steps print goes to stderr.
"""

_OF_STATUS = {
    ExecutionStatus.COMPLETED: ExitCode.COMPLETED,
    ExecutionStatus.WAITING: ExitCode.WAITING,
    ExecutionStatus.CANCELLED: ExitCode.CANCELLED,
    ExecutionStatus.INTERRUPTED: ExitCode.INTERRUPTED,
}

#: The base of what typer says about a command line; where its class comes from differs between versions of typer.
BadCommandLine: Any = next(c for c in reversed(typer.BadParameter.__mro__) if hasattr(c, "format_message"))


def code_of_status(status: ExecutionStatus) -> int:
    """The exit code for an execution that stands like this when its walk is over."""
    return _OF_STATUS.get(status, ExitCode.FAILED)


def code_of_error(error: BaseException) -> int:
    """The exit code for an error that ends a command."""
    return ExitCode.USAGE if isinstance(error, UsageError | BadCommandLine) else ExitCode.FAILED


def message_of(error: BaseException) -> str:
    """What to say about an error that ends a command: in the command's words where they differ from the library's."""
    match error:
        case ExecutionExistsError():
            state = f" ({error.status})" if error.status else ""
            return f"execution {error.execution_id!r} exists already{state}; --if-exists resume goes on with it"
        case WorkflowChangedError():
            kinds = (
                ("added", error.added),
                ("removed", error.removed),
                ("rewired", error.rewired),
                ("changed", error.other),
            )
            changes = "; ".join(f"{kind} {listed(ids)}" for kind, ids in kinds if ids)
            return (
                f"execution {error.execution_id!r} was started by another definition: {changes}; "
                "resume with the old one, or pass --accept-changes"
            )
        case StoreError() if error.execution_id:
            return f"{error}; it can be resumed"
        case AresError():
            return str(error)
        case BadCommandLine():
            return _of_command_line(error)
        case _:
            return f"unexpected {said(error)} (--debug shows where)"


def _of_command_line(error: Any) -> str:
    message = str(error.format_message()).replace("Value error, ", "", 1)
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message.rstrip('.')}; see: {context.command_path} --help"


def said(error: BaseException | ErrorInfo) -> str:
    """``Type: message`` of a failure, of this process or an earlier one."""
    type_name, message = name_and_message(error)
    return f"{type_name}: {message}" if message else type_name


def name_and_message(error: BaseException | ErrorInfo) -> tuple[str, str]:
    """The type's name and the message of a failure; one whose message cannot be made says so."""
    if isinstance(error, ErrorInfo | RecordedError):
        return error.type_name, error.message
    try:
        message = str(error)
    except Exception as inner:
        message = f"<its message raised {type(inner).__name__}>"
    return type(error).__name__, message
