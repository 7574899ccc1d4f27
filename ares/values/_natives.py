"""What a form is, and the forms of the types that every program has.

Knows each built-in type's parts. Refuses to know JSON, and any class that a program defines.
"""

import binascii
import functools
import itertools
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import attrs

from ares.errors import SerializationError

#: In a tuple, because tools that freeze time put classes of their own in place of these two names for a while.
_DATES = (date, datetime)


def _nowhere(_parts: list[Any], _index: int) -> str:
    return ""  # parts that the user of the value never sees as such


@attrs.frozen
class Form:
    """How the values of one class are taken apart into storable parts, and made again from them."""

    cls: type
    tag: str
    take: Callable[[Any], list[Any]]
    make: Callable[[list[Any]], Any]
    #: Where a part is inside the value, as text to append to the value's own path.
    at: Callable[[list[Any], int], str] = _nowhere
    #: By what the class is found again; empty for the types that every program has.
    name: str = ""
    #: Why values of this class cannot be made again; empty if they can.
    problem: str = ""


def name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def at_index(_parts: list[Any], index: int) -> str:
    return f"[{index}]"


def at_key(parts: list[Any], index: int) -> str:
    """For keys and values in turn: ``.keys()[0]`` for a key, ``.name``, ``['a name']`` or ``[1]`` for a value."""
    if index % 2 == 0:
        return f".keys()[{index // 2}]"
    key = parts[index - 1]
    try:
        text = f".{key}" if type(key) is str and key.isidentifier() else f"[{key!r}]"
    except Exception:  # a user's __repr__, or an int with more digits than the host allows
        text = f"[{type(key).__name__}]"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _at_element(_parts: list[Any], _index: int) -> str:
    return "{}"  # the elements of a set have no place


def _distinct(parts: list[Any]) -> list[Any]:
    if len(set(parts)) != len(parts):
        raise SerializationError("has keys or elements that are equal to each other by now")
    return parts


def _take_set(value: set[Any] | frozenset[Any]) -> list[Any]:
    return _distinct(list(value))


def _take_dict(value: dict[Any, Any]) -> list[Any]:
    parts = list(itertools.chain.from_iterable(value.items()))
    _distinct(parts[::2])
    return parts


def _make_dict(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(_distinct(parts[::2]), parts[1::2], strict=True))


def _take_bytes(value: bytes) -> list[Any]:
    return [binascii.b2a_base64(value, newline=False).decode("ascii")]


def _make_bytes(parts: list[Any]) -> bytes:
    return binascii.a2b_base64(parts[0], strict_mode=True)


def _take_clock(value: Any) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, value.tzinfo]


def _make_clock(cls: Any, parts: list[Any]) -> Any:
    text, fold, zone = parts
    return cls.fromisoformat(text).replace(fold=fold, tzinfo=zone)


def _take_zone(value: Any) -> list[Any]:
    value.__reduce__()  # raises for a zone that was read from a file: its key, if any, need not lead back to it
    return [value.key]


def _take_path(value: Any) -> list[Any]:
    text = str(value)
    if type(value)(text) != value:  # a Windows path like ./c:x before Python 3.12
        raise SerializationError("is another path once it is text")
    return [text]


def _take_text(value: str) -> list[Any]:
    return [value.encode("utf-8", "surrogatepass")]


def _make_text(parts: list[Any]) -> str:
    return bytes.decode(parts[0], "utf-8", "surrogatepass")


@functools.cache
def natives() -> dict[type, Form]:
    """The forms of all native types. Built for the first value that needs one: these imports are not free."""
    from decimal import Decimal
    from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
    from uuid import UUID
    from zoneinfo import ZoneInfo

    date, datetime = _DATES

    def form(cls: Any, take: Callable[[Any], list[Any]], make: Callable[[list[Any]], Any], at: Any = _nowhere) -> Form:
        return Form(cls, f"${cls.__name__}", take, make, at)

    def by_text(cls: Any, take: Callable[[Any], list[Any]] = lambda v: [str(v)]) -> Form:
        return form(cls, take, lambda p: cls(p[0]))

    forms = [
        form(int, lambda v: [hex(v)], lambda p: int(p[0], 16)),
        by_text(float),
        form(complex, lambda v: [v.real, v.imag], lambda p: complex(*p)),
        form(str, _take_text, _make_text),
        form(bytes, _take_bytes, _make_bytes),
        form(list, list, list, at_index),
        form(tuple, list, tuple, at_index),
        form(set, _take_set, lambda p: set(_distinct(p)), _at_element),
        form(frozenset, _take_set, lambda p: frozenset(_distinct(p)), _at_element),
        form(dict, _take_dict, _make_dict, at_key),
        form(date, lambda v: [v.isoformat()], lambda p: date.fromisoformat(p[0])),
        form(datetime, _take_clock, lambda p: _make_clock(datetime, p)),
        form(time, _take_clock, lambda p: _make_clock(time, p)),
        form(timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda p: timedelta(*p)),
        form(timezone, lambda v: list(v.__getinitargs__()), lambda p: timezone(*p)),
        by_text(ZoneInfo, _take_zone),
        by_text(Decimal),
        by_text(UUID),
        *(by_text(cls, _take_path) for cls in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)),
    ]
    return {each.cls: each for each in forms}


@functools.cache
def native_tags() -> dict[str, Form]:
    """The same forms by the tag they are written with."""
    return {form.tag: form for form in natives().values()}


def prepare() -> None:
    """Import now what the first value would have imported. A process that is forked while another thread imports waits
    for that import for ever, as soon as it needs the same."""
    native_tags()
