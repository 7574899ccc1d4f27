"""Values to text and back.

Knows JSON, tags and the way through nested values. Refuses to know any type beyond what its form says.
"""

import itertools
import json
import math
import re
import types
from collections.abc import Callable, Iterable
from typing import Any

from ares.errors import SerializationError
from ares.values._classes import form_of, has_structure, registered_form, registry
from ares.values._natives import Form, at_index, at_key, name_of, native_tags, natives

#: How deep values may be nested. Fixed, and far from the interpreter's own limit, because what was written in one
#: process is read in another, by a caller that may be deeper in its stack.
MAX_DEPTH = 200

#: Ints from here on are written in hexadecimal: a host may forbid `str` of an int of more than 640 digits.
_BIG = 10**600
_BIG_RUN = "0" * 601
_TO_ZEROS = str.maketrans("123456789", "0" * 9)

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT = frozenset({str})
_SCALARS = frozenset({types.NoneType, bool, int, float, str})
_JSON = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))

_HOW = "ares.register() it, or name it in types= or in the step's annotations"


class Codec:
    """Encodes values as text and makes the same values again. It never changes, so any thread may use it.

    Args:
        types: Classes that may be stored and loaded in addition to the registered ones, which are looked up at each
            call. They need structure, or must have been registered.

    Raises:
        UsageError: One of the classes is neither.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._own: dict[str, Form] = {}
        for cls in types:
            form = registered_form(cls) or form_of(cls)
            self._own[form.name] = form

    def encode(self, value: object, *, where: str = "") -> str:
        """The text of a value.

        Args:
            value: What is to be stored. It is not changed and not kept.
            where: Whose value it is, for the error.

        Returns:
            One line of ASCII JSON.

        Raises:
            SerializationError: The value, or one inside it, cannot be stored; ``path`` and ``type_name`` say which.
        """
        if type(value) is int and -_BIG < value < _BIG:
            return str(value)
        try:
            if _is_plain(value, MAX_DEPTH):
                text = _plain_text(value)
                if text:
                    return text
            return _JSON.encode(self._pack(value, set()))
        except SerializationError as error:
            error.path, error.where = error.path.removeprefix("."), where
            raise error.with_traceback(None)  # noqa: B904  # the same error: its path says more than a frame per level
        except RecursionError as error:
            raise SerializationError("is nested too deep for the stack that is left", where=where) from error
        except Exception as error:
            raise SerializationError(f"could not be encoded: {type(error).__name__}", where=where) from error

    def decode(self, text: str, *, where: str = "") -> Any:
        """The value of a text that `encode` made: the same as ``unpack(json.loads(text))``.

        Args:
            text: What `encode` returned.
            where: Whose value it is, for the error.

        Returns:
            An equal value of the same type, that shares nothing with any other.

        Raises:
            SerializationError: A class in it is gone, not named by the program or changed, or the text is damaged.
        """
        try:
            tree = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"is not readable as JSON: {type(error).__name__}", where=where) from error
        return self.unpack(tree, where=where) if '"$' in text else tree

    def unpack(self, tree: object, *, where: str = "") -> Any:
        """The value of a text that was already parsed, as part of a larger one perhaps.

        Args:
            tree: What ``json.loads`` made of the text. It is not changed and shares nothing with the result.
            where: Whose value it is, for the error.

        Returns:
            An equal value of the same type.

        Raises:
            SerializationError: As for `decode`.
        """
        try:
            return self._unpack(tree)
        except SerializationError as error:
            error.where = where
            raise
        except RecursionError as error:
            raise SerializationError("is nested too deep for the stack that is left", where=where) from error

    # -- packing: from a value to what JSON has

    def _pack(self, value: Any, above: set[int]) -> Any:
        kind = type(value)
        if kind in _SCALARS and _is_exact(value):
            return value
        if id(value) in above:
            raise SerializationError("contains itself", type_name=_type_name(kind))
        if len(above) == MAX_DEPTH:
            raise SerializationError(f"is nested deeper than {MAX_DEPTH} levels", type_name=_type_name(kind))
        above.add(id(value))
        packed: object
        if kind is list:
            packed = self._pack_all(value, above, at_index)
        elif kind is dict and _has_plain_keys(value) and all(map(_is_exact, value)):
            pairs = self._pack_all(list(itertools.chain.from_iterable(value.items())), above, at_key)
            packed = dict(zip(pairs[::2], pairs[1::2], strict=True))
        else:
            packed = self._pack_tagged(value, kind, above)
        above.remove(id(value))
        return packed

    def _pack_tagged(self, value: Any, kind: type, above: set[int]) -> dict[str, list[Any]]:
        form = natives().get(kind) or self._form(kind)
        parts = _guard(form.take, value, kind, "be taken apart")
        packed = self._pack_all(parts, above, form.at)
        if kind is set or kind is frozenset:
            packed.sort(key=_JSON.encode)  # equal sets have equal texts
        return {form.tag: [form.name, *packed] if form.name else packed}

    def _pack_all(self, parts: list[Any], above: set[int], at: Callable[[list[Any], int], str]) -> list[Any]:
        packed: list[Any] = []
        try:
            for part in parts:
                packed.append(self._pack(part, above))  # noqa: PERF401  # if it fails, the length says where
        except SerializationError as error:
            error.path = at(parts, len(packed)) + error.path
            raise
        return packed

    def _form(self, kind: type) -> Form:
        form = self._form_named(name_of(kind))
        if form is None or form.cls is not kind:
            raise SerializationError(_why_not(kind, form), type_name=_type_name(kind))
        if form.problem:
            raise SerializationError(f"cannot be made again: {form.problem}", type_name=_type_name(kind))
        return form

    def _form_named(self, name: str) -> Form | None:
        own, registered = self._own.get(name), registry.get(name)
        if own is None or (registered is not None and registered.cls is own.cls):
            return registered  # of the same class: it may bring functions, and the annotation that named it cannot
        return own

    # -- unpacking: from what JSON has to a value

    def _unpack(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is list:
            return list(tree) if _SCALARS.issuperset(map(type, tree)) else list(map(self._unpack, tree))
        if kind is dict:
            if _looks_tagged(tree):
                ((tag, parts),) = tree.items()
                return self._make(tag, parts)
            if _SCALARS.issuperset(map(type, tree.values())):
                return dict(tree)
            return dict(zip(tree, map(self._unpack, tree.values()), strict=True))
        return tree

    def _make(self, tag: str, parts: Any) -> Any:
        form = native_tags().get(tag)
        if type(parts) is not list or (form is None and not (parts and type(parts[0]) is str)):
            raise SerializationError(f"the stored text is damaged at {tag[:50]!r}")
        if form is None:
            name, *parts = parts
            form = self._form_stored(name, tag)
        made = _guard(form.make, list(map(self._unpack, parts)), form.cls, "be made again")
        if type(made) is not form.cls:
            raise SerializationError(
                f"came back as a value of {_type_name(type(made))}", type_name=_type_name(form.cls)
            )
        return made

    def _form_stored(self, name: str, tag: str) -> Form:
        form = self._form_named(name)
        if form is None:
            raise SerializationError(f"the stored class is unknown: {_HOW}", type_name=name)
        if form.tag != tag:
            changed = f"the class has changed since it was stored as {tag[1:]!r}: it is now {form.tag[1:]!r}"
            raise SerializationError(changed, type_name=name)
        return form


def _is_plain(value: object, levels: int) -> bool:
    """Whether JSON has this value as far as types, keys and nesting go; what its scalars hold is not looked at."""
    if type(value) is list:
        items: Iterable[object] = value
    elif type(value) is dict and _has_plain_keys(value):
        items = value.values()
    else:
        return type(value) in _SCALARS
    if levels == 0:
        return False
    if _SCALARS.issuperset(map(type, items)):
        return True
    return all(type(item) in _SCALARS or _is_plain(item, levels - 1) for item in items)


def _plain_text(value: object) -> str | None:
    """The text of a plain value, unless JSON would lose what one of its scalars holds."""
    try:
        text = _JSON.encode(value)
    except ValueError:  # NaN, an infinity, or an int of more digits than this process may print
        return None
    if "\\ud" in text or (len(text) > len(_BIG_RUN) and _BIG_RUN in text.translate(_TO_ZEROS)):
        return None  # perhaps a lone surrogate or a big int; packing looks closely
    return text


def _is_exact(value: object) -> bool:
    """Whether JSON keeps this scalar as it is. Two lone surrogates side by side would be read as one character."""
    if type(value) is str:
        return value.isascii() or _SURROGATE.search(value) is None
    if type(value) is int:
        return -_BIG < value < _BIG
    return type(value) is not float or math.isfinite(value)


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    return _TEXT.issuperset(map(type, value)) and not _looks_tagged(value)


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value))[:1] == "$"


def _type_name(kind: type) -> str:
    return name_of(kind).removeprefix("builtins:")


def _why_not(kind: type, other: Form | None) -> str:
    if other is not None:
        return "belongs to a class that is not the one registered under its name"
    if has_structure(kind):
        return f"belongs to a class that is not registered: {_HOW}"
    return "cannot be stored; ares.register() its class with encode= and decode="


def _guard(function: Callable[[Any], Any], argument: object, kind: type, deed: str) -> Any:
    """Call what may run code of the user, and name the class in whatever comes of it."""
    try:
        return function(argument)
    except RecursionError:
        raise
    except SerializationError as error:
        error.type_name = error.type_name or _type_name(kind)
        raise
    except Exception as error:
        problem = f"could not {deed}: {type(error).__name__}"
        raise SerializationError(problem, type_name=_type_name(kind)) from error
