"""The forms of the program's own classes, and the registry of those that any codec may make.

Knows how attrs classes, dataclasses, named tuples and enums are taken apart by field or by member name. Fields are set
back directly: ``__init__``, converters, validators and ``__post_init__`` have run when the instance was new, and may
refuse, or change once more, what they were once given. Refuses to guess: an instance that holds anything besides its
fields is not stored unless its class brings an encode and a decode function.
"""

import dataclasses
import enum
import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from ares.errors import SerializationError, UsageError
from ares.values._natives import Form, name_of, natives

T = TypeVar("T")

#: What Python and attrs themselves keep beside the fields. The hash that attrs caches has to exist, as None.
_HASH = "_attrs_cached_hash"
_BOOKKEEPING = frozenset({"__orig_class__", _HASH})

_HEAP_TYPE = 1 << 9  # of a class's flags: written in Python, so that its instances hold what __dict__ and slots hold

#: The classes that any codec may make, by name. Forms never change, and each use is one store or one lookup, so no
#: thread can see half an entry. Of two classes of one name the later counts; the earlier is refused when encoded.
registry: dict[str, Form] = {}


def register(
    cls: type[T], *, encode: Callable[[T], object] | None = None, decode: Callable[[Any], T] | None = None
) -> type[T]:
    """Let every codec store and load the instances of a class. May be used as a decorator.

    Args:
        cls: An attrs class, a dataclass, a named tuple or an enum; or any class, together with both functions. It is
            found again by its module and qualified name. Its subclasses are not included.
        encode: Takes an instance and returns a value that can be stored.
        decode: Takes what ``encode`` returned and returns an equal instance of ``cls``.

    Returns:
        The class itself.

    Raises:
        UsageError: Another kind of class without the functions, one function without the other, a type that is
            supported anyway, or a class whose instances cannot be made again from their fields.
    """
    if (encode is None) != (decode is None):
        raise UsageError("encode= and decode= only work together")
    form = form_of(cls) if encode is None or decode is None else _custom_form(cls, encode, decode)
    if form.problem:
        raise UsageError(f"{form.name} cannot be made again: {form.problem}; register it with encode= and decode=")
    registry[form.name] = form
    return cls


def form_of(cls: Any) -> Form:
    """The form of a class with structure. Whether it can be made again is for the caller to see in ``problem``."""
    _refuse_natives(cls)
    if issubclass(cls, enum.Enum):
        return _enum_form(cls)
    fields = _fields_of(cls)
    if fields is None:
        raise UsageError(
            f"{name_of(cls)} is no attrs class, dataclass, named tuple or enum; register it with encode= and decode="
        )
    return _tuple_form(cls, fields) if issubclass(cls, tuple) else _field_form(cls, fields)


def registered_form(cls: Any) -> Form | None:
    """The form that a class was registered with, if it is this very class."""
    form = registry.get(name_of(cls)) if isinstance(cls, type) else None
    return form if form is not None and form.cls is cls else None


def has_structure(cls: type) -> bool:
    """Whether instances of a class can be taken apart without its help."""
    return issubclass(cls, enum.Enum) or _fields_of(cls) is not None


def _refuse_natives(cls: Any) -> None:
    if not isinstance(cls, type):
        raise UsageError(f"{cls!r} is not a class")
    if cls in natives() or cls in (bool, type(None)):
        raise UsageError(f"{cls.__qualname__} is supported as it is")


def _fields_of(cls: type) -> tuple[str, ...] | None:
    """The names of the fields. None for a class without structure."""
    if attrs.has(cls):
        return tuple(field.name for field in attrs.fields(cls))
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    names = getattr(cls, "_fields", None)
    return names if issubclass(cls, tuple) and type(names) is tuple else None


# --- the four kinds ------------------------------------------------------------------------------


def _custom_form(cls: Any, encode: Callable[[Any], object], decode: Callable[[Any], object]) -> Form:
    _refuse_natives(cls)
    return Form(cls, "$custom", lambda v: [encode(v)], lambda p: decode(p[0]), name=name_of(cls))


def _enum_form(cls: Any) -> Form:
    def take(member: Any) -> list[Any]:
        if cls.__members__.get(member._name_) is member:
            return [member._name_]
        names, rest = [], member._value_  # flags: those that have a name, and the bits that have none
        for flag in member:
            names.append(flag._name_)
            rest &= ~flag._value_
        return [*names, rest]

    def find(name: str) -> Any:
        if name not in cls.__members__:
            raise SerializationError(f"the stored enum member {name!r} is gone")
        return cls.__members__[name]

    def make(parts: list[Any]) -> Any:
        *names, value = parts
        if type(value) is str:
            return find(value)
        for name in names:
            value |= find(name)._value_
        member = cls(value)
        if member._value_ != value:  # a Flag may be told to drop the bits that it does not know
            raise SerializationError("the stored combination of flags does not exist any more")
        return member

    return Form(cls, "$enum", take, make, name=name_of(cls))


def _tuple_form(cls: type, fields: tuple[str, ...]) -> Form:
    def take(value: Any) -> list[Any]:
        _refuse_hidden(value, ())
        return list(itertools.chain.from_iterable(zip(fields, tuple.__iter__(value), strict=True)))

    def make(parts: list[Any]) -> Any:
        stored = _by_field(fields, parts)
        return tuple.__new__(cls, [stored[field] for field in fields])

    return Form(cls, "$object", take, make, _at_field, name_of(cls))


def _field_form(cls: type, fields: tuple[str, ...]) -> Form:
    caches_hash = _HASH in getattr(getattr(cls.__hash__, "__code__", None), "co_names", ())

    def take(value: Any) -> list[Any]:
        _refuse_hidden(value, fields)
        return list(itertools.chain.from_iterable((field, getattr(value, field)) for field in fields))

    def make(parts: list[Any]) -> Any:
        made: Any = object.__new__(cls)
        for field, value in _by_field(fields, parts).items():
            object.__setattr__(made, field, value)
        if caches_hash:
            object.__setattr__(made, _HASH, None)
        return made

    return Form(cls, "$object", take, make, _at_field, name_of(cls), _why_not_made(cls, fields))


def _at_field(parts: list[Any], index: int) -> str:
    return f".{parts[index - 1]}"


def _by_field(fields: tuple[str, ...], parts: list[Any]) -> dict[str, Any]:
    stored = dict(zip(parts[::2], parts[1::2], strict=True))
    if tuple(stored) != fields and stored.keys() != set(fields):
        lost, gained = sorted(stored.keys() - set(fields)), sorted(set(fields) - stored.keys())
        raise SerializationError(f"the class has changed since: it lost fields {lost} and gained {gained}")
    return stored


def _refuse_hidden(value: Any, fields: tuple[str, ...]) -> None:
    """Attributes that are no fields would be lost, except what the class computes itself, as a cached property does."""
    for name in getattr(value, "__dict__", {}).keys() - {*fields, *_BOOKKEEPING}:
        if not hasattr(getattr(type(value), name, None), "__get__"):
            raise SerializationError(f"has an attribute {name!r} beside its fields; register its class with functions")


def _why_not_made(cls: type, fields: tuple[str, ...]) -> str:
    for base in cls.__mro__:
        if base not in (object, Generic) and not base.__flags__ & _HEAP_TYPE:
            return f"it is also a {base.__name__}, whose content is in no field"
        slots = () if "__attrs_attrs__" in vars(base) else vars(base).get("__slots__", ())  # attrs has its own reasons
        hidden = {slots} if isinstance(slots, str) else set(slots)
        if hidden := hidden - {*fields, "__dict__", "__weakref__"}:
            return f"its slots {sorted(hidden)} are not among its fields"
    return ""
