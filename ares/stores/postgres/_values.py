"""How values go to the server and come back.

Text may have in it what PostgreSQL's type for text has no place for: the character 0, and lone surrogates. These, and
the character that marks them, are written as that mark and four digits, which nobody notices who reads with ``psql``:
JSON escapes them itself, so they come about in names alone.

Arrays are put together here: psycopg's own are for everything that there is, and each commit pays for it.
"""

import itertools
import re
import struct
from collections.abc import Iterable

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.pq import Format

_TEXT, _TEXTS, _INT8, _INT8S = 25, 1009, 20, 1016
#: Bytes of one value; the server breaks off the connection at a little more.
_LARGEST = 1_000_000_000
_MARK = "\x1b"
_TO_MARK = re.compile("[\0\x1b\ud800-\udfff]")
_MARKED = re.compile("\x1b([0-9a-f]{4})")


class Numbers(list[int]):
    """A column of numbers of 64 bits."""


class Texts(list[str]):
    """A column of texts."""


def to_bytes(text: str) -> bytes:
    """Text as it is stored.

    Raises:
        psycopg.DataError: It is no text.
    """
    if not isinstance(text, str):
        raise psycopg.DataError(f"a text is expected, not {type(text).__name__}")
    try:
        raw = text.encode()
        if b"\0" not in raw and b"\x1b" not in raw:
            return raw
    except UnicodeEncodeError:
        pass
    return _TO_MARK.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text).encode()


def to_text(raw: Buffer) -> str:
    """Text that was stored."""
    text = str(raw, "utf-8")
    return _MARKED.sub(lambda found: chr(int(found[1], 16)), text) if _MARK in text else text


class _TextDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT

    def dump(self, obj: str) -> bytes:
        return to_bytes(obj)


class _TextLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return to_text(data)


class _NumberDumper(Dumper):
    format = Format.BINARY
    oid = _INT8

    def dump(self, obj: int) -> bytes:
        return _packed(">q", obj)


class _NumbersDumper(Dumper):
    format = Format.BINARY
    oid = _INT8S

    def dump(self, obj: Numbers) -> bytes:
        cells: Iterable[int] = itertools.chain.from_iterable(zip(itertools.repeat(8), obj, strict=False))
        return _head(_INT8, len(obj)) + _packed(f">{'iq' * len(obj)}", *cells)


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = _TEXTS

    def dump(self, obj: Texts) -> bytes:
        parts = [_head(_TEXT, len(obj))]
        for text in obj:
            raw = to_bytes(text)
            parts += (struct.pack(">i", len(raw)), raw)
        if sum(map(len, parts)) > _LARGEST:
            raise psycopg.DataError("more text at once than PostgreSQL takes, a thousand million bytes")
        return b"".join(parts)


def _packed(format_: str, *numbers: int) -> bytes:
    try:
        return struct.pack(format_, *numbers)
    except struct.error as error:
        raise psycopg.DataError(f"a number of 64 bits is expected ({error})") from error


def _head(oid: int, length: int) -> bytes:
    """The beginning of an array: dimensions, whether there are NULLs, the elements' type, their number, the first's."""
    return struct.pack(">5i", 1, 0, oid, length, 1) if length else struct.pack(">3i", 0, 0, oid)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(str, _TextDumper)
    adapters.register_loader(_TEXT, _TextLoader)
    # Always of the same width: a statement is prepared once for each list of types.
    adapters.register_dumper(int, _NumberDumper)
    adapters.register_dumper(Numbers, _NumbersDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    return adapters


#: What every connection of a store converts with.
ADAPTERS = _adapters()
