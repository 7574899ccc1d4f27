"""The ``ares`` command. ``main`` is the program; the rest of the package is nobody's business.

Only this package reads the environment (``ARES_STORE``), prints, handles signals and decides about exit codes.
"""

import os
import sys
from collections.abc import Sequence

from typer import Abort
from typer.main import get_command

from ares.cli.app import app
from ares.cli.concealing import Concealed
from ares.cli.exits import ExitCode
from ares.cli.session import Session, asks_for_json

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after the program's name; those of the process unless given.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(asks_for_json(given), Concealed([*given, os.environ.get("ARES_STORE", "")]))
    # Not app(): that would put an exception hook of typer's in the place of the program's.
    command = get_command(app)
    try:
        with session.stopping():
            code = command.main(args=given or ["--help"], prog_name="ares", standalone_mode=False, obj=session)
    except (KeyboardInterrupt, Abort):  # older versions of typer make the other of the one
        code = session.interrupted()
    except Exception as error:
        code = session.fail(error)
    return session.finish((code or 0) if given else ExitCode.USAGE)
