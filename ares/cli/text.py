"""How things read on a terminal: one line each, whatever they hold.

Ids, inputs, outputs and messages come from anywhere. Here they become text that moves no cursor, changes no colour,
hides nothing and stays on its line; how wide a line may be is the business of whoever prints it.
"""

import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from ares.records import ErrorInfo
from ares.workflow import ItemFailure

#: Characters of a value that is shown in short.
SHORT = 200
#: The same of a text or a path, which is of no use when cut.
LONG = 2_000


def plain(text: str) -> str:
    """``text`` on one line, with every character that is not printable as its escape.

    Control characters, line breaks, lone surrogates and what reorders or hides other characters are not printable.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def cut(text: str, limit: int) -> str:
    """``text``, or its beginning and ``...`` when it has more than ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."


def long(text: str) -> str:
    """A text that is shown whole, within reason."""
    return cut(plain(text[: LONG + 1]), LONG)


def shown(value: Any) -> str:
    """A value in short: texts and paths as they are, other values as Python writes them, only their first elements."""
    if isinstance(value, str | PurePath):
        return long(str(value))
    return cut(plain(_SHORT.repr(value)), SHORT)


class _Short(reprlib.Repr):
    """``repr`` whose cost does not grow with the value, and which no value can make raise."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = self.maxdict = 8
        self.maxstring = self.maxother = SHORT
        self.maxlong = 60

    def repr_instance(self, x: Any, level: int) -> str:
        """Anything that is none of Python's own types."""
        if isinstance(x, ItemFailure):
            return f"ItemFailure({x.index}, {self.repr1(x.item, level - 1)})"
        if isinstance(x, PurePath):
            return self.repr_str(str(x), level)
        if isinstance(x, ErrorInfo):
            return str(x)
        return super().repr_instance(x, level)

    def repr_int(self, x: Any, level: int) -> str:
        """An int; those with more digits than Python converts are named by their size."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"<int of {x.bit_length():,} bits>"


_SHORT = _Short()


def pairs(values: Mapping[str, Any]) -> str:
    """``name=value`` for each of ``values``, in short."""
    return cut(" ".join(f"{plain(str(name))}={shown(value)}" for name, value in values.items()), LONG)


def seconds(number: float) -> str:
    """A duration, given in seconds, to the figures that matter."""
    if number < 0:
        return f"-{seconds(-number)}"
    if number < 10:
        return f"{number:.3f} s"
    return f"{number:.1f} s" if number < 60 else whole_seconds(number)


def whole_seconds(number: float) -> str:
    """A duration without fractions of a second."""
    minutes, rest = divmod(int(number), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min {rest:02} s" if hours else f"{minutes} min {rest:02} s"


def instant(when: datetime) -> str:
    """An instant in UTC, to the second."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def counted(number: int, noun: str) -> str:
    """``1 step``, ``1,830 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
