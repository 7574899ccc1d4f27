"""Which classes an annotation names.

Knows typing's constructs by what they hold. Refuses to judge an annotation: an odd one simply names no class.
"""

import enum
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from ares.values._classes import has_structure

#: How many annotations one look may follow: a guard against those that make new ones without end.
_MOST = 10_000


def types_in(annotation: object) -> frozenset[type]:
    """The classes with structure that stand in an annotation, and in the annotations of their fields.

    Args:
        annotation: Any annotation that was resolved: a string on its own names nothing. Strings inside a class are
            looked up in the module of that class.

    Returns:
        The attrs classes, dataclasses, named tuples and enums, at any depth.
    """
    found: set[type] = set()
    seen: dict[int, object] = {}  # holds what it has seen, so that no id is used twice
    todo = [annotation]
    while todo and len(seen) < _MOST:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        try:
            if _is_class(item) and has_structure(item):
                found.add(item)
            todo.extend(_inside(item))
        except Exception:  # an object whose attributes raise
            continue
    return frozenset(found)


def _is_class(item: object) -> typing.TypeGuard[type]:
    return isinstance(item, type) and typing.get_origin(item) is None


def _inside(item: Any) -> Iterable[object]:
    origin = typing.get_origin(item)
    if origin is typing.Annotated:
        return [item.__origin__]  # the rest is metadata
    if origin is not None:
        return [origin, *typing.get_args(item)]
    if isinstance(item, list):
        return item  # the parameters of a Callable
    if isinstance(item, enum.Enum):
        return [type(item)]  # Literal[Color.RED]
    if _is_class(item):
        return _field_annotations(item) if has_structure(item) or typing.is_typeddict(item) else []
    one = [getattr(item, name, None) for name in ("__value__", "__supertype__", "__bound__")]
    return [*one, *getattr(item, "__constraints__", ())]


def _field_annotations(cls: type) -> Iterator[object]:
    for base in cls.__mro__:
        scope = vars(sys.modules.get(base.__module__, typing))
        for annotation in inspect.get_annotations(base).values():
            # One by one: a name that only a type checker sees must not hide the other fields.
            holder = types.SimpleNamespace(__annotations__={"it": annotation})
            try:
                yield typing.get_type_hints(holder, scope, {cls.__name__: cls}, include_extras=True)["it"]
            except Exception:
                yield annotation
