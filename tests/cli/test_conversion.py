import collections
import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.cli.conversion import Misfit, from_json, from_text, type_name
from ares.cli.inputs import read_inputs
from ares.errors import InputError, UsageError
from ares.workflow import Input, Workflow


class Colour(enum.Enum):
    RED = 1
    BLUE = "sky"


class Level(enum.StrEnum):
    LOW = "low"


@attrs.frozen
class Point:
    x: int
    y: list[Colour] = attrs.field(factory=list)


@dataclasses.dataclass
class Box:
    corner: Point
    label: str | None = None


class Span(NamedTuple):
    first: int
    last: int = 9


class Options(TypedDict):
    deep: bool
    root: NotRequired[Path]


Count = NewType("Count", int)


# --- one text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (str, "", ""),
        (str, '"quoted"', '"quoted"'),
        (Path, "a b/c", Path("a b/c")),
        (int, "-5", -5),
        (float, "1e3", 1000.0),
        (bool, "Yes", True),
        (bool, "0", False),
        (Decimal, "1.50", Decimal("1.50")),
        (UUID, "00000000-0000-0000-0000-000000000005", UUID(int=5)),
        (datetime, "2026-03-29T01:00:00+05:45", datetime.fromisoformat("2026-03-29T01:00:00+05:45")),
        (date, "2026-03-29", date(2026, 3, 29)),
        (time, "01:30", time(1, 30)),
        (timedelta, "90", timedelta(seconds=90)),
        (timedelta, "1.5", timedelta(seconds=1.5)),
        (timedelta, "15m", timedelta(minutes=15)),
        (Colour, "RED", Colour.RED),
        (Colour, "sky", Colour.BLUE),
        (Level, "low", Level.LOW),
        (Count, "7", 7),
        (Annotated[int, "metadata"], "7", 7),
        (Literal["fast", 3], "fast", "fast"),
        (Literal["fast", 3], "3", 3),
        (Path | None, "null", None),
        (Path | None, "x", Path("x")),
        (Optional[int], "None", None),  # noqa: UP045 - written as older code writes it
        (int | str, "5", 5),
        (int | str, "five", "five"),
        (str | int, "5", 5),
        (list[int] | None, "[1, 2]", [1, 2]),
        (bool | Path, "yes", True),
        (list[int], "[1, 2]", [1, 2]),
        (list, '[1, "a", null]', [1, "a", None]),
        (Sequence[Path], '["a"]', [Path("a")]),
        (set[Colour], '["RED", "sky"]', {Colour.RED, Colour.BLUE}),
        (frozenset[str], '["a"]', frozenset({"a"})),
        (collections.deque[int], "[1]", collections.deque([1])),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (tuple[int, ...], "[1, 2, 3]", (1, 2, 3)),
        (tuple[()], "[]", ()),
        (tuple, "[1]", (1,)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (dict[int, Path], '{"1": "a"}', {1: Path("a")}),
        (Mapping[Colour, Any], '{"RED": [1]}', {Colour.RED: [1]}),
        (Point, '{"x": 1, "y": ["RED"]}', Point(1, [Colour.RED])),
        (Box, '{"corner": {"x": 1}}', Box(Point(1))),
        (Span, '{"first": 1}', Span(1, 9)),
        (Span, "[1, 2]", Span(1, 2)),
        (Options, '{"deep": true, "root": "a"}', {"deep": True, "root": Path("a")}),
        (Box | None, '{"corner": {"x": 1}, "label": "b"}', Box(Point(1), "b")),
        (None, "null", None),
        (object, "5", 5),
        (Any, "plain text", "plain text"),
    ],
)
def test_a_text_is_read_as_its_declared_type_reads_it(kind: Any, text: str, expected: Any) -> None:
    found = from_text(text, kind)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "1.5"),
        (int, ""),
        (int, "9" * 5_000),
        (float, "many"),
        (bool, "maybe"),
        (bytes, "abc"),
        (Decimal, "1,5"),
        (UUID, "5"),
        (datetime, "yesterday"),
        (timedelta, "nan"),
        (timedelta, "1e300"),
        (Colour, "GREEN"),
        (Colour, "1"),
        (Literal["fast", 3], "slow"),
        (Literal[1], "true"),
        (int | None, "x"),
        (list[int], "1"),
        (list[int], '"12"'),
        (list[int], "[1.0]"),
        (list[int], "[true]"),
        (list[str], "[1]"),
        (list[str], "not json"),
        (list[str], "[" * 100_000),
        (set[Any], "[[]]"),
        (tuple[int, str], "[1]"),
        (dict[int, int], '{"a": 1}'),
        (dict, "[]"),
        (Point, "[]"),
        (Point, "{}"),
        (Point, '{"x": 1, "z": 2}'),
        (Point, '{"x": "1"}'),
        (Point, '{"x": 1, "y": ["GREEN"]}'),
        (Box, '{"corner": {"x": 1.5}}'),
        (Span, '"ab"'),
        (Span, "{}"),
        (Options, '{"deep": 1}'),
        (Options, "{}"),
        (None, "nothing"),
        (complex | None, "[]"),
        (type("Lock", (), {}), "{}"),
    ],
)
def test_a_text_that_does_not_fit_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(Misfit):
        from_text(text, kind)


@given(st.integers())
def test_any_int_is_read_back(number: int) -> None:
    assert from_text(str(number), int) == number
    assert from_json(number, int) == number


@given(st.floats(allow_nan=False))
def test_any_float_is_read_back(number: float) -> None:
    assert from_text(repr(number), float) == number
    assert from_json(number, float) == number


@given(st.text())
def test_any_text_is_taken_as_it_is(text: str) -> None:
    assert from_text(text, str) == text
    assert str(from_text(text, Path)) == str(Path(text))


@given(st.decimals(allow_nan=False), st.uuids(), st.datetimes(), st.dates(), st.times())
def test_any_scalar_is_read_back_from_its_text(
    number: Decimal, uuid: UUID, moment: datetime, day: date, hour: time
) -> None:
    assert from_text(str(number), Decimal) == number
    assert from_text(str(uuid), UUID) == uuid
    assert from_text(moment.isoformat(), datetime) == moment
    assert from_text(day.isoformat(), date) == day
    assert from_text(hour.isoformat(), time) == hour


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KINDS = [
    int,
    float,
    bool,
    str,
    Path,
    Colour,
    timedelta,
    Decimal,
    datetime,
    list[int],
    dict[int, list[str]],
    tuple[int, ...],
    tuple[str, int],
    set[int],
    Point,
    Box | None,
    Span,
    Options,
    int | str,
    Literal[1, "a"],
    object,
]


@given(json_values, st.sampled_from(KINDS))
def test_any_json_fits_a_type_or_is_refused(value: Any, kind: Any) -> None:
    try:
        found = from_json(value, kind)
    except Misfit:
        return
    if isinstance(kind, type) and kind is not object:
        assert type(found) in (type(Path()) if kind is Path else kind, dict)


@given(st.text(), st.sampled_from(KINDS))
def test_any_text_fits_a_type_or_is_refused(text: str, kind: Any) -> None:
    try:
        from_text(text, kind)
    except Misfit:
        return


@given(st.lists(st.tuples(st.integers(), st.text())), st.dictionaries(st.integers(), st.booleans()))
def test_any_collection_is_read_back_from_its_json(rows: list[tuple[int, str]], flags: dict[int, bool]) -> None:
    assert from_text(json.dumps(rows), list[tuple[int, str]]) == rows
    assert from_text(json.dumps(flags), dict[int, bool]) == flags


def test_a_number_too_large_for_a_float_is_refused_not_made_infinite() -> None:
    with pytest.raises(Misfit):
        from_json(10**400, float)


# --- what is said ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int, "int"),
        (None, "None"),
        (Path | None, "Path | None"),
        (Optional[int], "int | None"),  # noqa: UP045 - written as older code writes it
        (list[int], "list[int]"),
        (dict[str, list[Path]], "dict[str, list[Path]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, 1], "int"),
        (Sequence[int], "Sequence[int]"),
        (Point, "Point"),
    ],
)
def test_a_type_is_named_as_it_is_written(kind: Any, expected: str) -> None:
    assert type_name(kind) == expected


def problem(inputs: Mapping[str, Any], *texts: str, document: str | None = None) -> str:
    with pytest.raises(UsageError) as raised:
        read_inputs(Workflow("w", inputs=inputs), texts, document)
    return str(raised.value)


def test_a_misfit_is_named_with_input_value_and_type() -> None:
    assert problem({"n": int}, "n=abc") == "input 'n': 'abc' is no int"
    assert problem({"p": list[int]}, 'p=[1, "a"]') == "input 'p': '[1, \"a\"]' is no list[int] ('a' is no int at [1])"
    assert problem({"b": bool}, "b=si") == "input 'b': 'si' is no bool (write true, yes, 1, false, no or 0)"
    assert problem({"c": Colour}, "c=GREEN") == "input 'c': 'GREEN' is no Colour (it is one of RED, BLUE)"
    assert problem({"c": Colour}, document='{"c": 1}') == "input 'c': 1 is no Colour"
    assert problem({"x": Point}, 'x={"x": 1, "y": ["G"]}').endswith("it is one of RED, BLUE at [0]) @ $.y)")
    assert problem({"x": Point}, "x={}").endswith(" is no Point (missing @ $.x)")


def test_unknown_and_missing_inputs_name_the_permitted_ones() -> None:
    with pytest.raises(InputError, match=r"unknown inputs 'm'.*permitted: 'n'"):
        read_inputs(Workflow("w", inputs={"n": int}), ["m=1"], None)
    with pytest.raises(InputError, match=r"missing inputs 'n'.*declared: 'n'"):
        read_inputs(Workflow("w", inputs={"n": int}), [], None)


def test_an_input_without_an_equals_sign_or_given_twice_is_refused() -> None:
    assert problem({"n": int}, "n") == "input 'n' is not of the form name=value"
    assert problem({"n": int}, "=1") == "input '=1' is not of the form name=value"
    assert problem({"n": int}, "n=1", "n=2") == "input 'n' is given twice"


def test_the_first_equals_sign_ends_the_name() -> None:
    assert read_inputs(Workflow("w", inputs={"q": str}), ["q=a=b"], None) == {"q": "a=b"}


def test_defaults_fill_in_and_texts_count_more_than_the_document() -> None:
    workflow = Workflow("w", inputs={"a": int, "b": Path, "c": Input(int, 7)})

    assert read_inputs(workflow, ["a=1"], '{"a": 5, "b": "x"}') == {"a": 1, "b": Path("x"), "c": 7}


def test_a_document_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text('{"a": 5}', encoding="utf-8-sig")

    assert read_inputs(Workflow("w", inputs={"a": int}), [], f"@{tmp_path / 'inputs.json'}") == {"a": 5}


def test_a_document_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')

    assert problem({}, document="[1]") == "--inputs-json must be a JSON object, {name: value}"
    assert problem({}, document="{").startswith("--inputs-json is not JSON: ")
    assert "the file cannot be read" in problem({}, document=f"@{tmp_path / 'none.json'}")
    assert "the file cannot be read" in problem({}, document=f"@{tmp_path / 'latin'}")
