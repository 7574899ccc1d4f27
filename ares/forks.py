"""What becomes of a child process that comes out of a user's function: one that a step or a plugin has forked.

It is a copy of its parent with one thread, the one that forked. Whoever would take what the function returns is a
thread of the parent's, and locks that others held are held for ever. So it ends where it would come out, with the exit
code that a program would have had; what it inherited, it leaves alone.
"""

import contextlib
import os
import sys


def end_child_of(process: int, error: BaseException | None = None) -> None:
    """End this process, unless it is the one in which the user's function was called.

    Args:
        process: that one's number.
        error: what the function raised, which is told on stderr as that of a program is.
    """
    if os.getpid() == process:
        return
    code = 0 if error is None else 1
    with contextlib.suppress(BaseException):
        code = _code_of(error)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _code_of(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    sys.stderr.write(f"{error.code}\n")
    return 1
