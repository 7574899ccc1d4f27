"""Values as JSON for machines: always valid JSON, at any cost to the types.

What JSON has no word for becomes the nearest thing a reader can use (a path its text, a set a list, an instant its ISO
form); nothing raises. The journal's own encoding, which loses nothing, is elsewhere.
"""

import base64
import dataclasses
import enum
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import attrs

from ares.cli.exits import name_and_message
from ares.cli.text import shown
from ares.records import ErrorInfo

#: Values may nest so deep; what lies deeper, or contains itself, is shown as text. JSON's own writer calls itself.
_DEEPEST = 100


def jsonable(value: Any, depth: int = 0) -> Any:
    """``value`` made of dicts, lists, strings, numbers, booleans and None."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _DEEPEST:
        return shown(value)
    if isinstance(value, enum.Enum):
        return value.name
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, BaseException | ErrorInfo):
        return error_document(value)
    return _composed(value, depth + 1)


def _scalar(value: Any) -> Any:
    """A value without parts, or None."""
    match value:
        case bool() | int():
            return int(value)
        case str() | PurePath() | Decimal() | UUID():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case _:
            return None


def _composed(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_key(name): jsonable(part, depth) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: jsonable(part, depth) for name, part in zip(value._fields, value, strict=False)}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(part, depth) for part in value]
    if isinstance(value, type):
        return shown(value)
    if attrs.has(type(value)):
        names = [a.name for a in attrs.fields(type(value))]
    elif dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
    else:
        return shown(value)
    return {name: jsonable(getattr(value, name, None), depth) for name in names}


def _key(name: Any) -> str:
    if isinstance(name, str):
        return str(name)
    return name.name if isinstance(name, enum.Enum) else shown(name)


def error_document(error: BaseException | ErrorInfo) -> dict[str, Any]:
    """A failure as JSON."""
    type_name, message = name_and_message(error)
    return {"type": type_name, "message": message}
