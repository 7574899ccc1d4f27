"""How one field of a fact or note is written as JSON text, and read from what a JSON parser made of it.

Knows the kinds of fields that facts have, and nothing of facts. What JSON cannot hold as it is (a float that is no
number, a huge int, a lone surrogate in a message) is written as the codec writes it, in ares' own fields as in the
user's values, so that every text is plain JSON and everything comes back as it was. Reading checks the type of all that
it reads: text that ``write`` cannot have made is refused, never passed on.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

import attrs

from ares.errors import SerializationError
from ares.journal.notes import Opaque
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.values import Codec
from ares.walk.facts import SetBack

#: Makes the value of a parsed text, as ``Codec.unpack`` does.
Unpack = Callable[[Any], Any]

#: What people are shown of a value that cannot be stored ends after so many characters.
MAX_REPR = 1000

#: The codec writes no such tag, so no value of the user's looks like this one.
_REPR = "$repr"

#: Ints up to here are printed whatever the host says of long ones.
_LONG = 10**600


class Form(NamedTuple):
    """How the values of one kind of field become text, and values again."""

    write: Callable[[Any, Codec], str]
    read: Callable[[Any, Unpack], Any]


def _refuse(raw: object, expected: str) -> SerializationError:
    return SerializationError(f"the stored text is damaged: a {type(raw).__name__} stands where {expected} belongs")


# --- plain fields ------------------------------------------------------------------------------------------------


def _write_int(value: int, codec: Codec) -> str:
    if type(value) is not int:
        raise SerializationError("is no int", type_name=type(value).__name__)
    return str(value) if -_LONG < value < _LONG else codec.encode(value)


def _read_int(raw: Any, unpack: Unpack) -> int:
    value = unpack(raw) if type(raw) is dict else raw
    if type(value) is not int:
        raise _refuse(value, "an int")
    return value


def _write_float(value: float, codec: Codec) -> str:
    number = float(value)
    return repr(number) if math.isfinite(number) else codec.encode(number)


def _write_seconds(value: float, codec: Codec) -> str:
    return _write_float(round(float(value), 6), codec)


def _read_float(raw: Any, unpack: Unpack) -> float:
    value = unpack(raw) if type(raw) is dict else raw
    if type(value) is not float:
        raise _refuse(value, "a float")
    return value


def _write_bool(value: bool, _codec: Codec) -> str:
    return "true" if value else "false"


def _read_bool(raw: Any, _unpack: Unpack) -> bool:
    if type(raw) is not bool:
        raise _refuse(raw, "a bool")
    return raw


def _write_text(value: str, codec: Codec) -> str:
    text = str.__str__(value)  # of a subclass, its content
    return encode_basestring_ascii(text) if text.isascii() else codec.encode(text)


def _read_text(raw: Any, unpack: Unpack) -> str:
    value = unpack(raw) if type(raw) is dict else raw
    if type(value) is not str:
        raise _refuse(value, "a str")
    return value


def _write_texts(value: tuple[str, ...], codec: Codec) -> str:
    return "[" + ",".join([_write_text(text, codec) for text in value]) + "]"


def _read_texts(raw: Any, unpack: Unpack) -> tuple[str, ...]:
    return tuple([_read_text(text, unpack) for text in _list(raw)])


def _list(raw: Any, length: int | None = None) -> list[Any]:
    if type(raw) is not list or (length is not None and len(raw) != length):
        raise _refuse(raw, "a list" if length is None else f"a list of {length}")
    return raw


def optional(form: Form) -> Form:
    """The form of fields that may be None."""
    return Form(
        lambda value, codec: "null" if value is None else form.write(value, codec),
        lambda raw, unpack: None if raw is None else form.read(raw, unpack),
    )


def choice(options: type[StrEnum]) -> Form:
    """The form of fields that hold a member of ``options``, or its text."""
    return Form(
        lambda value, codec: _write_text(options(value).value, codec),
        lambda raw, unpack: options(_read_text(raw, unpack)),
    )


INT = Form(_write_int, _read_int)
FLOAT = Form(_write_float, _read_float)
#: Durations: to the microsecond, because nothing is measured better.
SECONDS = Form(_write_seconds, _read_float)
BOOL = Form(_write_bool, _read_bool)
TEXT = Form(_write_text, _read_text)
TEXTS = Form(_write_texts, _read_texts)


# --- records of ares -------------------------------------------------------------------------------------------------


def _write_error(info: ErrorInfo, codec: Codec) -> str:
    return _write_texts((info.type_name, info.message, info.traceback), codec)


def _read_error(raw: Any, unpack: Unpack) -> ErrorInfo:
    return ErrorInfo(*_read_texts(_list(raw, 3), unpack))


def _write_nodes(nodes: tuple[tuple[str, str, tuple[str, ...]], ...], codec: Codec) -> str:
    rows = (f"[{_write_texts((step, mark), codec)[1:-1]},{_write_texts(deps, codec)}]" for step, mark, deps in nodes)
    return "[" + ",".join(rows) + "]"


def _read_nodes(raw: Any, unpack: Unpack) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return tuple(
        (_read_text(step, unpack), _read_text(mark, unpack), _read_texts(deps, unpack))
        for step, mark, deps in (_list(row, 3) for row in _list(raw))
    )


def _write_set_back(entries: tuple[SetBack, ...], codec: Codec) -> str:
    rows = (f"[{_write_text(e.path, codec)},{e.redo + 2 * e.fresh + 4 * e.route}]" for e in entries)
    return "[" + ",".join(rows) + "]"


def _read_set_back(raw: Any, unpack: Unpack) -> tuple[SetBack, ...]:
    return tuple(_read_one_set_back(_list(row, 2), unpack) for row in _list(raw))


def _read_one_set_back(row: list[Any], unpack: Unpack) -> SetBack:
    bits = _read_int(row[1], unpack)
    if not 0 <= bits < 8:
        raise SerializationError("the stored text is damaged: a step is set back in a way that does not exist")
    return SetBack(_read_text(row[0], unpack), bool(bits & 1), bool(bits & 2), bool(bits & 4))


ERROR = Form(_write_error, _read_error)
NODES = Form(_write_nodes, _read_nodes)
SET_BACK = Form(_write_set_back, _read_set_back)


# --- values of the user's ----------------------------------------------------------------------------------------


def _write_value(value: object, codec: Codec) -> str:
    return codec.encode(value)


def _read_value(raw: Any, unpack: Unpack) -> Any:
    return unpack(raw)


def _write_mapping(value: Mapping[str, Any], codec: Codec) -> str:
    return codec.encode(dict(value))


def _read_mapping(raw: Any, unpack: Unpack) -> dict[str, Any]:
    value = unpack(raw)
    if type(value) is not dict:
        raise _refuse(value, "a dict")
    return value


def _write_scores(value: Mapping[str, float], codec: Codec) -> str:
    # Whoever scored may have counted in numbers of his own kind.
    return codec.encode({name: float(score) for name, score in value.items()})


def _read_scores(raw: Any, unpack: Unpack) -> dict[str, float]:
    return {name: _read_float(score, unpack) for name, score in _read_mapping(raw, unpack).items()}


def _write_writes(writes: tuple[tuple[str, Any], ...], codec: Codec) -> str:
    pairs = (
        f"[{_write_text(name, codec)},{codec.encode(value, where=f'variable {name!r}')}]" for name, value in writes
    )
    return "[" + ",".join(pairs) + "]"


def _read_writes(raw: Any, unpack: Unpack) -> tuple[tuple[str, Any], ...]:
    pairs = (_list(pair, 2) for pair in _list(raw))
    return tuple((_read_text(name, unpack), unpack(value)) for name, value in pairs)


def _write_shown(value: object, codec: Codec) -> str:
    if type(value) is not Opaque:
        try:
            return codec.encode(value)
        except SerializationError:
            value = Opaque(safe_repr(value))
    return f'{{"{_REPR}":{_write_text(value.text, codec)}}}'


def _read_shown(raw: Any, unpack: Unpack) -> Any:
    if type(raw) is dict and len(raw) == 1 and _REPR in raw:
        return Opaque(_read_text(raw[_REPR], unpack))
    return unpack(raw)


def safe_repr(value: object) -> str:
    """``repr`` that never raises, and never gives more than ``MAX_REPR`` characters."""
    try:
        text = repr(value)
    except BaseException as error:  # SystemExit, say: a record must not fail its step
        text = f"<{type(value).__qualname__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= MAX_REPR else text[: MAX_REPR - 1] + "…"


VALUE = Form(_write_value, _read_value)
MAPPING = Form(_write_mapping, _read_mapping)
SCORES = Form(_write_scores, _read_scores)
WRITES = Form(_write_writes, _read_writes)
SHOWN = Form(_write_shown, _read_shown)


# --- entries of histories --------------------------------------------------------------------------------------------


def _write_instant(value: datetime, codec: Codec) -> str:
    if type(value) is not datetime:
        raise SerializationError("is no datetime", type_name=type(value).__name__)
    return codec.encode(value)


def _read_instant(raw: Any, unpack: Unpack) -> datetime:
    value = unpack(raw)
    if type(value) is not datetime:
        raise _refuse(value, "a datetime")
    return value


def _write_names(value: tuple[str, ...], codec: Codec) -> str:
    if not isinstance(value, tuple | list):  # a str would be taken for its characters
        raise SerializationError("is no tuple", type_name=type(value).__name__)
    return _write_texts(tuple(value), codec)


_INSTANT = Form(_write_instant, _read_instant)
_NAMES = Form(_write_names, _read_texts)


class _EntryForm(NamedTuple):
    cls: Any
    #: Attribute and form, in the order in which the class takes them.
    fields: tuple[tuple[str, Form], ...]


def _entry_form(cls: Any, *forms: Form) -> _EntryForm:
    return _EntryForm(cls, tuple(zip((a.name for a in attrs.fields(cls)), forms, strict=True)))


#: By the mark in the text. A field that is new comes last, with a default in its class.
_ENTRIES: Final[dict[str, _EntryForm]] = {
    "route": _entry_form(RouteEntry, TEXT, TEXT, _NAMES, TEXT, TEXT, _INSTANT),
    "tool": _entry_form(ToolEntry, TEXT, TEXT, TEXT, SHOWN, SHOWN, SECONDS, BOOL, TEXT),
    "memory": _entry_form(MemoryEntry, TEXT, TEXT, TEXT, INT, FLOAT, _NAMES),
    "interrupt": _entry_form(InterruptEntry, TEXT, TEXT, TEXT, TEXT, TEXT),
    "error": _entry_form(ErrorEntry, TEXT, TEXT, TEXT),
    "score": _entry_form(ScoringSignal, TEXT, FLOAT, TEXT),
    "loop": _entry_form(LoopEntry, INT, TEXT),
}
_MARKS: Final[dict[type, str]] = {each.cls: mark for mark, each in _ENTRIES.items()}


def _write_entry(entry: object, codec: Codec) -> str:
    mark = _MARKS.get(type(entry))
    if mark is None:
        raise SerializationError("is no entry of a history", type_name=type(entry).__name__, where="what was")
    parts = [f'"{mark}"']
    for name, form in _ENTRIES[mark].fields:
        try:
            parts.append(form.write(getattr(entry, name), codec))
        except Exception as error:
            raise _unwritable(error, f"the {name} of the {type(entry).__name__}") from error
    return "[" + ",".join(parts) + "]"


def _unwritable(error: Exception, where: str) -> SerializationError:
    if not isinstance(error, SerializationError):
        error = SerializationError(f"cannot be stored: {type(error).__name__}: {error}"[:300])
    error.where = where
    return error


def _read_entry(raw: Any, unpack: Unpack) -> Any:
    row = _list(raw)
    known = _ENTRIES.get(_read_text(row[0], unpack)) if row else None
    if known is None:
        raise _refuse(raw, "an entry of a history")
    values = _list(row[1:], len(known.fields))
    return known.cls(*[form.read(value, unpack) for (_, form), value in zip(known.fields, values, strict=True)])


ENTRY = Form(_write_entry, _read_entry)
