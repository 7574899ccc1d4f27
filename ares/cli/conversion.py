"""Values of declared types, from the text of a command line or from JSON.

A text is read as its type reads it, and as JSON where the type has parts. Nothing is guessed, rounded or cut: ``1.5``
is no int, ``"abc"`` is no list of letters, a key too many is refused. Knows types; refuses to know what a value is for.
"""

import collections
import enum
import json
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final
from uuid import UUID

import attrs

from ares.cli.durations import span
from ares.cli.text import cut
from ares.errors import UsageError

_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0"})
_NONE = frozenset({"null", "none"})


class Misfit(Exception):
    """A value that is not what was declared: which ``rule`` it breaks, and ``where`` inside the value."""

    def __init__(self, rule: str = "", where: str = "") -> None:
        self.rule = rule
        self.where = where
        super().__init__(rule, where)

    @property
    def why(self) -> str:
        """The end of the sentence that says it."""
        place = f" at {self.where}" if self.where else ""
        return f" ({self.rule}{place})" if self.rule else ""


def type_name(kind: Any) -> str:
    """A type as an annotation is written, without the modules."""
    if kind is None or kind is type(None):
        return "None"
    if is_union(kind):
        return " | ".join(type_name(arm) for arm in typing.get_args(kind))
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(kind)))}]"
    if origin is typing.Annotated:
        return type_name(kind.__origin__)
    if origin is not None:
        parts = ", ".join("..." if arg is ... else type_name(arg) for arg in typing.get_args(kind))
        return f"{type_name(origin)}[{parts}]"
    return str(getattr(kind, "__name__", None) or repr(kind))


def is_union(kind: Any) -> bool:
    """Whether a type is ``A | B`` or ``Optional[A]``."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _bare(kind: Any) -> Any:
    """A type without what only annotates or names it."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = kind.__origin__
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return type(None) if kind is None else kind


def _is_kind(kind: Any, of: type | tuple[type, ...]) -> bool:
    return isinstance(kind, type) and typing.get_origin(kind) is None and issubclass(kind, of)


# --- from a text ----------------------------------------------------------------------------------------------


def from_text(text: str, kind: Any) -> Any:
    """The value of type ``kind`` that ``text`` says.

    Raises:
        Misfit: it says none.
    """
    kind = _bare(kind)
    if kind is object or kind is Any:
        return _json_or_text(text)
    if is_union(kind):
        return _arm_from_text(text, typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal and text in typing.get_args(kind):
        return text
    read = _reader(kind)
    return from_json(_json(text), kind) if read is None else read(text)


def _reader(kind: Any) -> Callable[[str], Any] | None:
    """What reads a text as a type without parts."""
    if _is_kind(kind, enum.Enum):
        return lambda text: _member(text, kind)
    plain = _READERS.get(kind) if isinstance(kind, abc.Hashable) else None
    if plain is None and _is_kind(kind, (str, PurePath)):
        plain = kind
    return None if plain is None else lambda text: _read(plain, text)


def _arm_from_text(text: str, arms: tuple[Any, ...]) -> Any:
    """Of a union: None for ``null`` where that is one; else the first that the text says; what takes any text last."""
    if type(None) in arms and text.lower() in _NONE:
        return None
    greedy = [arm for arm in arms if _is_kind(_bare(arm), (str, PurePath))]
    for arm in [*(a for a in arms if a not in greedy and a is not type(None)), *greedy]:
        try:
            return from_text(text, arm)
        except Misfit:
            continue
    raise Misfit


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON: {error}") from error


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read(read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except UsageError as error:
        raise Misfit(str(error)) from error
    except (ValueError, ArithmeticError) as error:
        raise Misfit from error


def _bool(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE and word not in _FALSE:
        raise Misfit("write true, yes, 1, false, no or 0")
    return word in _TRUE


def _timedelta(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except ValueError:
        return span(text)


def _none(text: str) -> None:
    if text.lower() not in _NONE:
        raise Misfit("write null")


def _no_bytes(_text: str) -> bytes:
    raise Misfit("bytes cannot be given on a command line; let the workflow take a Path")


def _member(text: str, kind: type[enum.Enum]) -> enum.Enum:
    """A member by its name; by its value too where that is a text."""
    if text in kind.__members__:
        return kind[text]
    for member in kind:
        if isinstance(member.value, str) and member.value == text:
            return member
    raise Misfit(f"it is one of {', '.join(list(kind.__members__)[:20])}")


#: How a text is read as each type that has a form of its own.
_READERS: Final[Mapping[Any, Callable[[str], Any]]] = {
    str: str,
    int: int,
    float: float,
    complex: complex,
    bool: _bool,
    bytes: _no_bytes,
    Path: Path,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    timedelta: _timedelta,
    Decimal: Decimal,
    UUID: UUID,
    type(None): _none,
}

# --- from JSON ------------------------------------------------------------------------------------------------

_LISTS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: frozenset,
    abc.MutableSet: set,
}
_MAPPINGS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping})
_OF_NUMBERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    float: float,
    Decimal: lambda number: Decimal(str(number)),
    timedelta: lambda number: timedelta(seconds=number),
}


def from_json(value: Any, kind: Any) -> Any:
    """The value of type ``kind`` that a JSON value stands for.

    Raises:
        Misfit: it stands for none.
    """
    kind = _bare(kind)
    if kind is object or kind is Any:
        return value
    if is_union(kind):
        return _arm_from_json(value, typing.get_args(kind))
    origin = _origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Literal:
        return _literal(value, arguments)
    if origin in _LISTS:
        return _list(value, _LISTS[origin], arguments[0] if arguments else Any)
    if origin is tuple:
        return _tuple(value, arguments)
    if origin in _MAPPINGS:
        return _mapping(value, arguments or (Any, Any))
    if _has_fields(origin):
        return _object(value, kind)
    return _scalar(value, kind)


def _scalar(value: Any, kind: Any) -> Any:
    """A value without parts: numbers, booleans and null as they are, everything else by its text."""
    if kind in (bool, int, type(None)):
        if type(value) is not kind:
            raise Misfit
        return value
    if kind in _OF_NUMBERS and type(value) in (int, float):
        return _read(_OF_NUMBERS[kind], value)
    read = _reader(kind)
    if read is None:
        if isinstance(kind, type) and isinstance(value, kind):
            return value
        raise Misfit("such a value cannot be given on a command line")
    if not isinstance(value, str) or kind is float:
        raise Misfit
    return read(value)


def _arm_from_json(value: Any, arms: tuple[Any, ...]) -> Any:
    """Of a union: the arm that is the value's own type, else the first that it fits."""
    own = [arm for arm in arms if _bare(arm) is type(value)]
    for arm in [*own, *arms]:
        try:
            return from_json(value, arm)
        except Misfit:
            continue
    raise Misfit


def _literal(value: Any, permitted: tuple[Any, ...]) -> Any:
    for each in permitted:
        if type(each) is type(value) and each == value:
            return each
        if isinstance(each, enum.Enum) and isinstance(value, str) and value == each.name:
            return each
    raise Misfit


def _part(value: Any, kind: Any, where: str, convert: Callable[[Any, Any], Any] = from_json) -> Any:
    try:
        return convert(value, kind)
    except Misfit as misfit:
        rule = misfit.rule or f"{cut(repr(value), 80)} is no {type_name(kind)}"
        raise Misfit(rule, where + misfit.where) from misfit


def _list(value: Any, make: Callable[[Any], Any], kind: Any) -> Any:
    if not isinstance(value, list):
        raise Misfit
    try:
        return make([_part(each, kind, f"[{index}]") for index, each in enumerate(value)])
    except TypeError as error:
        raise Misfit("its elements cannot be those of a set") from error


def _tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Misfit
    if not kinds or (len(kinds) == 2 and kinds[1] is ...):
        kinds = (kinds[0] if kinds else Any,) * len(value)
    if kinds == ((),):
        kinds = ()
    if len(value) != len(kinds):
        raise Misfit(f"it has {len(value)} elements, not {len(kinds)}")
    return tuple(_part(each, kind, f"[{i}]") for i, (each, kind) in enumerate(zip(value, kinds, strict=True)))


def _mapping(value: Any, kinds: tuple[Any, ...]) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Misfit
    key_kind, kind = kinds
    keep_keys = _bare(key_kind) in (Any, object)
    return {
        name if keep_keys else _part(name, key_kind, f"[{name!r}]", from_text): _part(each, kind, f"[{name!r}]")
        for name, each in value.items()
    }


def _origin(kind: Any) -> Any:
    """``list`` of ``list[int]``; a class without arguments itself."""
    origin = typing.get_origin(kind)
    return kind if origin is None else origin


def _has_fields(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return attrs.has(kind) or hasattr(kind, "__dataclass_fields__") or typing.is_typeddict(kind) or is_named_tuple


def _object(value: Any, kind: Any) -> Any:
    """A class with fields, from a JSON object; a named tuple also from a list."""
    import cattrs

    is_tuple = isinstance(kind, type) and issubclass(kind, tuple)
    if is_tuple and isinstance(value, dict) and set(value) <= set(kind._fields):
        required = [name for name in kind._fields if name not in kind._field_defaults]
        if missing := [name for name in required if name not in value]:
            raise Misfit(f"{', '.join(missing)}: missing")
        value = [value.get(name, kind._field_defaults.get(name)) for name in kind._fields]
    if not isinstance(value, list if is_tuple else dict):
        raise Misfit
    try:
        return _converter().structure(value, kind)
    except Exception as error:  # whatever a class of the user's raises when it is made of this
        raise Misfit("; ".join(cattrs.transform_error(error, format_exception=_problem)[:3])) from error


def _problem(error: BaseException, kind: type | None) -> str:
    if isinstance(error, Misfit):
        return f"it is no {type_name(kind)}{error.why}" if kind is not None else error.rule
    if isinstance(error, KeyError):
        return "missing"
    return str(error) or type(error).__name__


@cache
def _converter() -> Any:
    """A converter for classes with fields; whatever is in the fields comes back here."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(lambda kind: not _has_fields(_origin(kind)), from_json)
    for kind in (bool, int, float, str, bytes):
        converter.register_structure_hook(kind, from_json)
    return converter
