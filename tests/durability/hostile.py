"""Values that get lost easily, and a workflow that hands them on."""

import enum
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs

from ares import Workflow
from tests.durability.traces import die, leave, traces


class Color(enum.Enum):
    """Stands in an annotation below."""

    RED = "red"


@attrs.define
class Point:
    """Stands in an annotation below."""

    x: int
    names: tuple[str, ...] = ()


class Pair(NamedTuple):
    """Stands in an annotation below."""

    left: Any
    right: Any


Known = Color | Point | Pair

HOSTILE: dict[str, Any] = {
    "aware, in the fold": datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    "aware, before it": datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
    "utc": datetime(2024, 1, 1, tzinfo=UTC),
    "fixed offset": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    "naive": datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001 - it is one
    "date": date(2024, 2, 29),
    "time": time(1, 2, 3, 4, fold=1),
    "timedelta": timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.10"),
    "decimal, odd": [Decimal("-0"), Decimal("Infinity"), Decimal("1E+500")],
    "bytes": b"\x00\xff$",
    "set": {1, (2, 3), "4"},
    "frozenset": frozenset({frozenset({1})}),
    "uuid": UUID(int=7),
    "path": Path("/tmp/../x y"),
    "int and text keys": {1: "a", "1": "b"},
    "tuple key": {(1, 2): "t"},
    "none key": {None: 1},
    "true key": {True: 1},
    "false and zero": [{False: 1}, {0: 1}],
    "tuple": (1, 2),
    "nested": {"nested": {2: (3,)}},
    "order": {"b": 1, "a": 2},
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "2**200": 2**200,
    "10**5000": 10**5000,
    "bools": [True, False, 1, 0],
    "complex": complex(-0.0, 2),
    "floats": [0.1, -0.0, 1e308, 5e-324, math.inf, -math.inf],
    "surrogates": ["\ud800", "\ud83d\ude00", "\x00", "\u2028"],
    "like a tag": [{"$tuple": [1]}, {"$": 1}, "$tuple"],
    "empty": [[], (), {}, set(), "", b"", None],
    "enum": Color.RED,
    "attrs": Point(1, ("a",)),
    "named tuple": Pair((1,), {2: 3}),
}


def anatomy(value: Any) -> Any:
    """What a value is, down to its types, as text that is the same only for the same."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return [kind, [[anatomy(k), anatomy(v)] for k, v in value.items()]]
    if isinstance(value, set | frozenset):
        return [kind, sorted((anatomy(item) for item in value), key=repr)]
    if isinstance(value, list | tuple):
        return [kind, [anatomy(item) for item in value]]
    if attrs.has(type(value)):
        return [kind, [anatomy(item) for item in attrs.astuple(value, recurse=False)]]
    if isinstance(value, int):
        return [kind, hex(value)]
    if isinstance(value, datetime):
        zone = getattr(value.tzinfo, "key", repr(value.tzinfo))
        return [kind, repr(value.replace(tzinfo=None)), value.fold, zone]
    return [kind, ascii(value)]


def hostile() -> Workflow:
    """Makes every hostile value, looks at them in the next step, and fails the first time; the input is one, too."""
    wf = Workflow("hostile", inputs={"effects": str, "big": int})
    wf.step(lambda: list(HOSTILE), id="names")

    @wf.step(map_over="names")
    def make(item: str) -> Known | Any:
        return HOSTILE[item]

    @wf.step
    def look(make: list[Any], names: list[str], big: int) -> list[Any]:
        return [*([name, anatomy(value)] for name, value in zip(names, make, strict=True)), ["big", anatomy(big)]]

    @wf.step(depends_on=["look"])
    def dies(effects: str) -> None:
        leave(effects, "dies")
        if len(traces(effects)) == 1:
            die()

    return wf
