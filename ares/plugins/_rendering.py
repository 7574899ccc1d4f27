"""What a value is like, as a bounded text and as a bounded set of words with the places they stand in.

Made to find similar values again, so it is deterministic, in whatever process: no address, no order of a set or a dict
comes in. And it is made of what ares did not choose, so it is bounded, however large or deep or odd the value is.

=====================  ================================================================================================
None, bool, an enum    its name
a number               itself, if it is an int of less than 1,000; and its order of magnitude, in two overlapping scales
                       of powers of 2, so that any two that differ by less than a factor of 1.4 share at least one
text                   its words: runs of letters and digits, normalised (NFKC) and casefolded; in scripts that put no
                       space between words, pairs of characters
a date, UUID or path   the words of its text
bytes                  how many there are, as a number
a mapping, a record    each entry or field, by its name (records: attrs and data classes, named tuples)
a list, tuple or set   each of its first 50 elements, not by their places; and how many there are, as a number
anything else          the name of its type
=====================  ================================================================================================

Of a text the first 10,000 characters count, of a mapping 200 entries in order of their names (of one with more than
1,000 only how many there are), of a value six levels and 500 parts. Of more than 128 words those are kept that stand
in the parts with the fewest words, so that a long text cannot crowd out a short field.
"""

import dataclasses
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import attrs

MOST_WORDS: Final = 128
#: Characters of the text that ``Rendering`` has, and of one part in it.
_LONGEST_TEXT: Final = 4_000
_LONGEST_PART: Final = 1_000
#: Characters of a text that are looked at, and of one word.
_READ: Final = 10_000
_LONGEST_WORD: Final = 64
_DEEPEST: Final = 6
_MOST_PARTS: Final = 500
_MOST_ELEMENTS: Final = 50
_MOST_ENTRIES: Final = 200
#: Entries that are put in order; those of a larger mapping or set are only counted.
_SORTED: Final = 1_000
#: Ints below this are likely to mean something, and above it to be like one another.
_EXACT: Final = 1_000

_WORD: Final = re.compile(r"\w+")
#: Han, Kana, and Thai.
_UNSPACED: Final = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]+)")


@attrs.frozen
class Rendering:
    """A value, to be compared.

    Attributes:
        text: A line for each part: where it is, and what it is. 4,000 characters at most.
        words: What it is made of, each with the part that it stands in; no two are equal, 128 at most.
    """

    text: str
    words: tuple[str, ...]


@attrs.frozen
class _Part:
    where: str
    shown: str
    words: tuple[str, ...]


def render(value: Any) -> Rendering:
    """What a value is like.

    Raises:
        Exception: whatever an odd value raises when it is looked at.
    """
    parts = list(islice(_parts("", value, 0), _MOST_PARTS))
    lines = (f"{part.where}: {part.shown[:_LONGEST_PART]}" for part in parts)
    found = (f"{part.where}={word}" for part in sorted(parts, key=lambda part: len(part.words)) for word in part.words)
    return Rendering("\n".join(lines)[:_LONGEST_TEXT], tuple(islice(dict.fromkeys(found), MOST_WORDS)))


def _parts(where: str, value: Any, depth: int) -> Iterator[_Part]:
    leaf = _leaf(value)
    if leaf is not None:
        yield _Part(where, *leaf)
    elif depth >= _DEEPEST:
        yield _Part(where, "...", (type(value).__name__,))
    else:
        yield from _inside(where, value, depth)


def _leaf(value: Any) -> tuple[str, tuple[str, ...]] | None:
    """What a value without parts is, shown and in words; None if it has parts."""
    match value:
        case None | True | False:
            return str(value), (str(value),)
        case Enum():
            return value.name, (f"{type(value).__name__}.{value.name}",)
        case int() | float() | Decimal():
            return _number(value)
        case timedelta():
            return str(value), _number(value.total_seconds())[1]
        case str():
            return value[:_LONGEST_PART], tuple(_words(value))
        case date() | datetime() | time() | UUID() | PurePath():
            return str(value), tuple(_words(str(value)))
        case bytes() | bytearray():
            return f"{len(value)} bytes", _number(len(value))[1]
        case Mapping() | Sequence() | AbstractSet():
            return None
        case _:
            return None if _fields(value) is not None else (f"a {type(value).__name__}", (type(value).__name__,))


def _inside(where: str, value: Any, depth: int) -> Iterator[_Part]:
    fields = _fields(value)
    if fields is not None:
        for name in fields:
            yield from _parts(_join(where, name), getattr(value, name, None), depth + 1)
        return
    count = len(value)
    if not isinstance(value, Mapping) or count > _SORTED or not count:
        yield _Part(f"{where}#", str(count), _number(count)[1])
    if count > _SORTED and not isinstance(value, Sequence):
        return
    if isinstance(value, Mapping):
        entries = sorted(((_name(key), each) for key, each in list(value.items())), key=lambda entry: entry[0])
        for name, each in entries[:_MOST_ENTRIES]:
            yield from _parts(_join(where, name), each, depth + 1)
        return
    elements: Iterable[Any] = value
    if isinstance(value, AbstractSet):
        elements = sorted(value, key=lambda each: (type(each).__name__, _name(each)))
    for each in islice(elements, _MOST_ELEMENTS):
        yield from _parts(f"{where}[]", each, depth + 1)


def _fields(value: Any) -> Sequence[str] | None:
    """The names of a record's fields; None if it is no record."""
    kind = type(value)
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind)]
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    return None


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _name(key: Any) -> str:
    """A key of a mapping, or an element of a set, in words that are the same in every process."""
    leaf = _leaf(key)
    if leaf is not None:
        return leaf[0][:_LONGEST_WORD]
    if isinstance(key, Sequence):
        return f"({', '.join(_name(each) for each in islice(key, 4))})"
    return type(key).__name__


def _number(value: float | Decimal) -> tuple[str, tuple[str, ...]]:
    if value.is_nan() if isinstance(value, Decimal) else value != value:  # noqa: PLR0124 - that is what NaN is
        return "nan", ("nan",)
    if not value:
        return "0", ("0",)
    sign, size = "-" if value < 0 else "", _log2(value)
    if math.isinf(size):
        return f"{sign}inf", (f"{sign}inf",)
    shown = _shown(value)
    magnitudes = (f"{sign}2^{math.floor(size)}", f"{sign}about 2^{math.floor(size + 0.5)}")
    if isinstance(value, int) and abs(value) < _EXACT:
        return shown, (shown, *magnitudes)
    return shown, magnitudes


def _log2(value: float | Decimal) -> float:
    if isinstance(value, Decimal):
        return float(abs(value).log10()) / math.log10(2) if value.is_finite() else math.inf
    return math.log2(abs(value))


def _shown(value: float | Decimal) -> str:
    if isinstance(value, int):
        # Python refuses to write out an int of more than some thousands of digits.
        return str(int(value)) if value.bit_length() <= _LONGEST_WORD else f"about 2^{value.bit_length()}"
    return f"{value:.6g}"


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text[:_READ]).casefold()):
        for number, run in enumerate(_UNSPACED.split(match.group())):
            if number % 2 and len(run) > 1:
                yield from (run[i : i + 2] for i in range(len(run) - 1))
            elif run:
                yield run[:_LONGEST_WORD]
