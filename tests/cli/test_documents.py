import dataclasses
import enum
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.cli.documents import jsonable
from ares.errors import RecordedError
from ares.workflow import ItemFailure


class Colour(enum.Enum):
    RED = 1


@attrs.frozen
class Point:
    x: int
    y: Any


@dataclasses.dataclass
class Pair:
    left: Any


class Named(NamedTuple):
    first: Any


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (10**30, 10**30),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "RED"),
        (Point(1, (2, 3)), {"x": 1, "y": [2, 3]}),
        (Pair({1}), {"left": [1]}),
        (Named(b"\x00"), {"first": "AA=="}),
        ({1: 2, "a": None, Colour.RED: 3}, {"1": 2, "a": None, "RED": 3}),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(minutes=1), 60.0),
        (Decimal("1.50"), "1.50"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (ValueError("no"), {"type": "ValueError", "message": "no"}),
        (RecordedError("KeyError", "'x'"), {"type": "KeyError", "message": "'x'"}),
        (
            ItemFailure(2, "a", ValueError("no")),
            {"index": 2, "item": "a", "error": {"type": "ValueError", "message": "no"}},
        ),
    ],
)
def test_a_value_becomes_the_nearest_that_json_has(value: Any, expected: Any) -> None:
    assert jsonable(value) == expected


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.sampled_from([Colour.RED, object, len]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner)
        | st.builds(Point, x=st.integers(), y=inner)
    ),
)


@given(anything)
def test_any_value_becomes_strict_json(value: Any) -> None:
    text = json.dumps(jsonable(value), allow_nan=False)

    assert isinstance(text.encode("ascii"), bytes)


def test_a_value_whose_repr_raises_is_named() -> None:
    assert jsonable([Rude()])[0].startswith("<Rude instance at 0x")


def test_a_value_that_holds_itself_or_nests_deep_is_cut() -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]

    for value in (holds_itself, deep):
        assert json.dumps(jsonable(value))

    # A list that deep would end the interpreter if it were let go of at once.
    while isinstance(deep, list):
        deep = deep.pop()


class Refusing(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_any_mapping_is_an_object() -> None:
    assert jsonable(Refusing()) == {"a": 1}
