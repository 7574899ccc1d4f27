"""Spans of time as people write them: ``90s``, ``15m``, ``12h``, ``30d``, ``2w``.

A day here is 86,400 seconds and a week seven of them, whatever the calendar of a place does: what a span is compared
with are differences of UTC instants.
"""

import re
from datetime import timedelta
from typing import Final

from ares.errors import UsageError

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,12})([smhdw])")
#: A century. It keeps sums with instants inside what a store can compare.
_LONGEST = 36_500 * 86_400


def span(text: str) -> timedelta:
    """The span that ``text`` says.

    Raises:
        UsageError: it says none, or more than a century.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no span of time; write it like 90s, 15m, 12h, 30d or 2w")
    number, unit = match.groups()
    seconds = int(number) * _UNITS[unit]
    if seconds > _LONGEST:
        raise UsageError(f"{text!r} is too long a span; the longest is 36500d")
    return timedelta(seconds=seconds)


def time_limit(text: str | None) -> float | None:
    """The seconds of a ``--timeout``: a number, or a span with a unit.

    Raises:
        UsageError: it is neither, or nothing that could pass.
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = span(text).total_seconds()
    if not 0 < seconds <= _LONGEST:
        raise UsageError(f"--timeout {text!r} is not a time above 0")
    return seconds
