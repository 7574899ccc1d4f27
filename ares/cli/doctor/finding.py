"""What a check finds."""

from enum import StrEnum

import attrs


class Level(StrEnum):
    """How it stands. WARN: it works, and there is something to know; FAIL: something does not work, or will not."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Finding:
    """One thing that was looked at: how it stands, what was seen, and what to do."""

    level: Level
    what: str
    todo: str = ""


def ok(what: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, what)


def warn(what: str, todo: str) -> Finding:
    """It works, and there is something to know."""
    return Finding(Level.WARN, what, todo)


def fail(what: str, todo: str) -> Finding:
    """Something does not work, or will not."""
    return Finding(Level.FAIL, what, todo)
