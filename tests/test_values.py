"""The codec: whatever it accepts comes back as the type and value it was; whatever it does not, it names."""

import collections
import contextlib
import dataclasses
import enum
import functools
import json
import math
import os
import subprocess
import sys
import textwrap
import threading
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, Optional, Self, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import SerializationError, UsageError
from ares.values import MAX_DEPTH, Codec, register, types_in

T = TypeVar("T")


class Color(enum.Enum):
    RED = (1, ["a value", "that cannot be hashed"])
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3
    ADMIN = 8


class Mask(enum.IntFlag):
    A = 1
    B = 4


@attrs.frozen
class Finding:
    path: str
    line: Any = None
    _secret: Any = 0


def _twice(value: Any) -> Any:
    return value * 2


@attrs.define(kw_only=True)
class Report:
    __hidden: Any = None
    findings: Any = attrs.field(factory=list)
    total: Any = attrs.field(init=False, default=0)
    doubled: Any = attrs.field(default=0, converter=_twice)

    @functools.cached_property
    def summary(self) -> str:
        return "computed"


@dataclasses.dataclass
class Account:
    owner: Any
    balance: Any = dataclasses.field(default=0, kw_only=True)
    history: Any = dataclasses.field(init=False, default_factory=list)

    @functools.cached_property
    def label(self) -> str:
        return "computed"


@dataclasses.dataclass(frozen=True, slots=True)
class Money:
    amount: Any
    rounded: Any = dataclasses.field(init=False, default=None)


class Point(NamedTuple):
    x: Any
    y: Any = None


class Doubling(Point):
    __slots__ = ()

    def __new__(cls, x: int, y: int = 0) -> Self:
        return super().__new__(cls, x * 2, y)


class Box(typing.Generic[T]):
    """A plain class: only functions can take it apart."""

    def __init__(self, content: T) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return type(other) is Box and other.content == self.content

    def __hash__(self) -> int:
        return hash(self.content)


@attrs.frozen
class Stranger:
    """A class with structure that nothing in this file registers."""

    value: Any = None


CLASSES = (Color, Level, Mode, Access, Mask, Finding, Report, Account, Money, Point, Doubling)

CODEC = Codec(CLASSES)


@pytest.fixture
def boxes() -> Iterator[Callable[..., object]]:
    """Registers `Box` with the functions given, for one test."""
    from ares.values._classes import registry

    before = dict(registry)
    yield lambda encode, decode: register(Box, encode=encode, decode=decode)
    registry.clear()
    registry.update(before)


def back(value: Any, codec: Codec = CODEC) -> Any:
    """The value after its journey, by both ways of reading, which must agree."""
    text = codec.encode(value)
    assert text.isascii()
    assert "\n" not in text
    decoded = codec.decode(text)
    assert shape(codec.unpack(json.loads(text))) == shape(decoded)
    return decoded


def shape(value: Any) -> Any:
    """A value spelled out so that two are equal only if type and content agree everywhere; NaN is equal to NaN."""
    for cls, spell in SPELLINGS:
        if isinstance(value, cls):
            return type(value), spell(value)
    return type(value), value


def _spell_fields(value: Any) -> Any:
    fields = attrs.fields(type(value)) if attrs.has(type(value)) else dataclasses.fields(value)
    return [(field.name, shape(getattr(value, field.name))) for field in fields]


SPELLINGS: list[tuple[Any, Callable[[Any], Any]]] = [
    (enum.Enum, lambda value: (value.name, shape(value.value))),
    ((list, tuple), lambda value: [shape(item) for item in value]),
    ((set, frozenset), lambda value: sorted(repr(shape(item)) for item in value)),
    (dict, lambda value: [(shape(key), shape(item)) for key, item in value.items()]),
    (float, float.hex),
    (complex, lambda value: (value.real.hex(), value.imag.hex())),
    ((datetime, time), lambda value: (value.replace(tzinfo=None).isoformat(), value.fold, shape(value.tzinfo))),
    (ZoneInfo, lambda value: value.key),
    (timezone, lambda value: (value.utcoffset(None), value.tzname(None))),
    (Decimal, Decimal.as_tuple),
    (PurePath, str),
    ((Finding, Report, Account, Money), _spell_fields),
]


def refusal(value: object, codec: Codec = CODEC, where: str = "") -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        codec.encode(value, where=where)
    return caught.value


def damage(text: str, codec: Codec = CODEC, where: str = "") -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        codec.decode(text, where=where)
    return caught.value


def in_new_process(code: str, *options: str, stdin: str = "") -> str:
    """What a fresh interpreter prints; it fails the test if it fails."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        input=stdin,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def nested(layer: Callable[[Any], Any], levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = layer(value)
    return value


# --- every value comes back as it was ------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=8)
zones = st.none() | st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"]).map(ZoneInfo)
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
fixed = st.builds(timezone, offsets) | st.builds(timezone, offsets, st.text(max_size=3)) | st.just(UTC)
clocks = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.datetimes() | st.times(),
    zones | fixed,
    st.integers(0, 1),
)
decimals = st.decimals() | st.sampled_from([Decimal(text) for text in ("1.10", "-0", "0E-10", "1E+999999", "-NaN7")])
paths = st.builds(
    lambda cls, parts: cls(*parts),
    st.sampled_from([Path, PurePosixPath]),
    st.lists(any_text.filter(lambda text: "\0" not in text), max_size=3),
) | st.sampled_from([PureWindowsPath(r"\\host\share\x"), PureWindowsPath("c:/a"), PureWindowsPath("c:a")])
enums = st.sampled_from(
    [Color.RED, Color.GREEN, Level.HIGH, Mode.FAST, Access(0), Access.BOTH, Mask(64), Mask(69), ~Mask.A]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-9, 9).map(lambda number: number * 2**63 * 10**590),
    st.floats(),
    st.complex_numbers(),
    any_text,
    st.binary(max_size=8),
    clocks,
    st.dates(),
    st.timedeltas(),
    decimals.filter(lambda number: not number.is_nan()),
    st.uuids(),
    paths,
    enums,
    fixed,
    st.sampled_from(["$tuple", "$", "\ud83d\ude00", "\\ud83d"]),
)


#: On a fresh machine the first text that is drawn waits for Hypothesis to build its tables of characters.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def made_of(count: int, part: st.SearchStrategy[Any], make: Callable[..., Any]) -> st.SearchStrategy[Any]:
    """Like `st.builds`, but its repr does not grow with each part: a repr that is too long is a warning."""
    return st.lists(part, min_size=count, max_size=count).map(lambda parts: make(*parts))


keys = st.recursive(
    st.deferred(lambda: scalars),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        made_of(3, inner, Finding),
        made_of(1, inner, Money),
        made_of(2, inner, Point),
    ),
    max_leaves=5,
)
some_key = st.deferred(lambda: keys)


def _report(hidden: Any, findings: Any, total: Any, doubled: Any) -> Report:
    made = Report(findings=findings)
    made._Report__hidden = hidden  # type: ignore[attr-defined]  # mypy does not know that attrs mangles it
    made.total = total
    object.__setattr__(made, "doubled", doubled)
    return made


def _account(owner: Any, balance: Any, history: Any) -> Account:
    made = Account(owner, balance=balance)
    made.history = history
    return made


values = st.recursive(
    some_key | decimals | st.sampled_from([Decimal("sNaN1")]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(some_key, max_size=4),
        st.dictionaries(some_key, inner, max_size=4),
        st.dictionaries(any_text, inner, max_size=4),
        st.dictionaries(any_text.map(lambda text: "$" + text), inner, max_size=1),
        made_of(3, inner, Finding),
        made_of(4, inner, _report),
        made_of(3, inner, _account),
        made_of(2, inner, Point),
    ),
    max_leaves=20,
)


@patient
@given(values)
def test_any_supported_value_comes_back_as_the_type_and_value_it_was(value: Any) -> None:
    assert shape(back(value)) == shape(value)


@patient
@given(st.sets(some_key, max_size=6))
def test_equal_sets_have_equal_texts_whatever_their_order(value: set[Any]) -> None:
    other: set[Any] = set()
    for item in sorted(value, key=repr):
        other.add(item)

    assert CODEC.encode(other) == CODEC.encode(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5).filter(lambda k: k[:1] != "$"), inner, max_size=4)
    ),
)


@patient
@given(json_values)
def test_what_json_has_is_written_as_json_writes_it(value: Any) -> None:
    assert CODEC.encode(value) == json.dumps(value, separators=(",", ":"))


@pytest.mark.case("C043")
@pytest.mark.parametrize(
    "value",
    [{1: "a", "1": "b"}, {(1, 2): "t"}, {None: 1}, {True: 1}, (1, 2), {"nested": {2: (3,)}}, {1.5: 1, "1.5": 2}],
    ids=repr,
)
def test_keys_of_any_type_and_tuples_are_kept_apart_from_their_json_look_alikes(value: Any) -> None:
    assert shape(back(value)) == shape(value)


@pytest.mark.case("C044")
@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2**64, 2**200, 10**5000, True, 10**600 - 1, -(10**600)], ids=lambda n: f"{n:x}"[:20]
)
def test_an_int_of_any_size_comes_back_as_the_int_it_was(value: int) -> None:
    limit = sys.get_int_max_str_digits()

    assert shape(back([value])) == shape([value])
    assert shape(back({value: value})) == shape({value: value})
    assert sys.get_int_max_str_digits() == limit


def test_an_int_of_a_million_digits_is_ordinary() -> None:
    assert back({"n": 10**1_000_000}) == {"n": 10**1_000_000}


@pytest.mark.case("C044")
def test_big_ints_can_be_read_where_the_host_allows_the_fewest_digits() -> None:
    text = CODEC.encode([10**600 - 1, 10**640, -(10**4000)])

    printed = in_new_process(
        """
        import sys; from ares.values import Codec
        print(Codec().decode(sys.stdin.read()) == [10**600 - 1, 10**640, -(10**4000)])
        """,
        "-X",
        "int_max_str_digits=640",
        stdin=text,
    )

    assert printed == "True"


@pytest.mark.parametrize(
    "value",
    [
        "\ud83d\ude00",
        ["\ud83d\ude00", "\N{GRINNING FACE}"],
        {"\ud83d\ude00": 1, "\N{GRINNING FACE}": 2},
        "\ude00\ud83d",  # noqa: PT014  # ruff takes all lone surrogates for the same
        "\\ud83d\\ude00",
        "a\0b",
    ],
    ids=ascii,
)
def test_two_lone_surrogates_never_become_one_character(value: Any) -> None:
    assert shape(back(value)) == shape(value)


@pytest.mark.parametrize(
    "value",
    [
        {"$tuple": [1]},
        {"$": 1},
        {"$a": {"$b": {"$c": ()}}},
        {"$dict": [1, 2]},
        {"$a": 1, "$b": 2},
        {"$object": ["x:Y"]},
    ],
    ids=repr,
)
def test_a_dict_that_looks_like_a_tag_survives(value: Any) -> None:
    assert shape(back(value)) == shape(value)


def test_nan_is_kept_as_a_key_and_as_an_element() -> None:
    value = {float("nan"): 1, float("nan"): 2, math.inf: 3}

    assert shape(back(value)) == shape(value)
    assert len(back({float("nan"), float("nan")})) == 2


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(back({"b": 1, "a": (), "c": 2})) == ["b", "a", "c"]
    assert list(back({3: 1, "a": 2, 1: 3})) == [3, "a", 1]


@pytest.mark.case("C055")
def test_a_decoded_value_shares_nothing_with_the_original_or_with_the_parsed_tree() -> None:
    value = {"rows": [1, 2], "more": {"n": 3}}
    tree = json.loads(CODEC.encode(value))

    first = CODEC.unpack(tree)
    first["rows"].append(3)
    first["more"]["n"] = 4

    assert value == {"rows": [1, 2], "more": {"n": 3}}
    assert CODEC.unpack(tree) == value


def test_a_hundred_thousand_elements_are_ordinary() -> None:
    value = [{"i": i, "t": (i,)} for i in range(100_000)]

    assert CODEC.decode(CODEC.encode(value)) == value


# --- time and other processes ----------------------------------------------------------------------


@pytest.mark.case("C042")
def test_a_value_read_in_another_process_is_the_same_down_to_zone_and_fold() -> None:
    value = [
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2024, 10, 26, 12, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2024, 1, 1),  # noqa: DTZ001  # naive, as users have them
        date(2024, 2, 29),
        timedelta(-1, 2, 3),
        Decimal("1.10"),
        b"\0\xff",
        UUID(int=5),
        {1, 2},
        PurePosixPath("a/b"),
        complex(-0.0, math.inf),
    ]

    printed = in_new_process(
        """
        import sys; from datetime import timedelta; from ares.values import Codec
        value = Codec().decode(sys.stdin.read())
        print(repr(value)); print(value[1] + timedelta(days=1), (value[0] + timedelta(days=1)).utcoffset())
        """,
        stdin=CODEC.encode(value),
    )

    assert printed.splitlines() == [repr(value), "2024-10-27 12:00:00+01:00 1:00:00"]


def test_utc_and_a_cached_zone_come_back_as_the_same_objects() -> None:
    assert back(datetime(2024, 1, 1, tzinfo=UTC)).tzinfo is UTC
    assert back(ZoneInfo("Europe/Berlin")) is ZoneInfo("Europe/Berlin")


def test_a_zone_that_no_key_leads_to_is_refused() -> None:
    class Odd(tzinfo):
        def utcoffset(self, moment: datetime | None, /) -> timedelta:
            return timedelta(hours=1)

        dst = utcoffset

        def tzname(self, moment: datetime | None, /) -> str:
            return "odd"

    error = refusal({"when": datetime(2024, 1, 1, tzinfo=Odd())})

    assert (error.path, error.type_name.rpartition(".")[2]) == ("when", "Odd")


def test_a_zone_that_is_unknown_where_it_is_read_is_loud() -> None:
    error = damage('{"$ZoneInfo":["No/Where"]}', where="step 'a'")

    assert (error.type_name, error.where) == ("zoneinfo:ZoneInfo", "step 'a'")
    assert error.__cause__ is not None


def test_importing_the_codec_does_not_load_what_only_rare_values_need() -> None:
    # In place of the front door, which imports the whole house.
    printed = in_new_process(
        """
        import sys, types
        ares = sys.modules["ares"] = types.ModuleType("ares")
        ares.__path__ = [path + "/ares" for path in sys.path]
        before = set(sys.modules)  # an editable install finds packages with pathlib
        import ares.values
        print({"zoneinfo", "decimal", "uuid", "pathlib"} & (set(sys.modules) - before))
        """
    )

    assert printed == "set()"


def test_a_tool_that_freezes_time_while_the_first_value_is_encoded_changes_nothing() -> None:
    printed = in_new_process(
        """
        import datetime, ares.values, ares.values._natives as natives
        real = datetime.datetime
        class Fake(real): pass
        datetime.datetime = natives.datetime = Fake
        codec = ares.values.Codec()
        print(type(codec.decode(codec.encode(real(2024, 1, 1)))) is real)
        """
    )

    assert printed == "True"


# --- the program's own classes -----------------------------------------------------------------------


def test_fields_that_init_does_not_take_are_restored() -> None:
    account = Account("ann", balance=3)
    account.history.append("paid")
    money = Money(1)
    object.__setattr__(money, "rounded", 2)

    assert back(account) == account
    assert back(money) == money


def test_a_converter_is_not_applied_a_second_time() -> None:
    assert back(Report(doubled=4)).doubled == 8


def _as_date(text: Any) -> Any:
    return date.fromisoformat(text)


def test_loading_runs_neither_init_nor_post_init_nor_converters_nor_validators() -> None:
    @dataclasses.dataclass
    class Parsed:
        seed: dataclasses.InitVar[int]
        when: Any
        total: int = dataclasses.field(init=False)

        def __post_init__(self, seed: int) -> None:
            self.when = date.fromisoformat(self.when)
            self.total = seed

    @attrs.define
    class Checked:
        when: Any = attrs.field(converter=_as_date)
        rank: Any = attrs.field(validator=attrs.validators.in_([1]), on_setattr=attrs.setters.NO_OP)

    checked = Checked("2024-02-29", 1)
    checked.rank = 2
    codec = Codec([Parsed, Checked])

    assert back(Parsed(5, "2024-02-29"), codec).__dict__ == {"when": date(2024, 2, 29), "total": 5}
    assert back(checked, codec) == checked


@pytest.mark.parametrize("slots", [True, False])
def test_a_hash_that_attrs_caches_is_computed_anew(slots: bool) -> None:
    cls = attrs.make_class("Hashed", ["x"], frozen=True, cache_hash=True, slots=slots)
    value = {cls(1): cls(2)}

    assert back(value, Codec([cls])) == value


def test_a_subclass_that_only_adds_behaviour_has_the_fields_of_its_base() -> None:
    class Loud(Finding):
        def shout(self) -> str:
            return str(self.path).upper()

    assert back(Loud("a"), Codec([Loud])).shout() == "A"


def test_a_cached_property_that_was_read_does_not_matter() -> None:
    account, report = Account("ann"), Report()
    assert account.label == report.summary == "computed"

    assert back(account) == account
    assert back(report) == report


def test_a_parametrised_generic_comes_back() -> None:
    @attrs.define(slots=False)
    class Pair(typing.Generic[T]):
        first: T

    assert back(Pair[int](1), Codec([Pair])) == Pair(1)


def test_a_named_tuple_whose_new_changes_its_arguments_comes_back_as_it_was() -> None:
    assert shape(back(Doubling(2, 3))) == (Doubling, [(int, 4), (int, 3)])


def test_a_class_may_bring_functions_of_its_own(boxes: Callable[..., object]) -> None:
    boxes(lambda box: {"content": box.content}, lambda plain: Box(plain["content"]))

    assert back({Box((1, 2)): [Box(None)]}) == {Box((1, 2)): [Box(None)]}


def test_the_functions_of_a_registered_class_also_count_where_an_annotation_names_it() -> None:
    @attrs.define
    class Opaque:
        handle: object

    codec = Codec([Opaque])
    register(Opaque, encode=lambda opaque: "kept", decode=Opaque)

    assert back(Opaque(object()), codec) == Opaque("kept")
    assert back(Opaque(object()), Codec([Opaque])) == Opaque("kept")


def test_register_is_a_decorator_that_every_codec_sees_at_once() -> None:
    codec = Codec()

    @register
    @attrs.frozen
    class Late:
        x: int

    assert back(Late(1), codec) == Late(1)


@pytest.mark.parametrize(
    ("cls", "functions"),
    [
        (int, {}),
        (bool, {"encode": int, "decode": bool}),
        (dict, {"encode": list, "decode": dict}),
        (object, {}),
        (collections.OrderedDict, {}),
        ("Finding", {}),
        ("Finding", {"encode": str, "decode": str}),
        (Finding, {"encode": str}),
        (Finding, {"decode": str}),
    ],
    ids=repr,
)
def test_register_refuses_what_it_could_not_keep(cls: Any, functions: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        register(cls, **functions)


def test_a_class_that_holds_more_than_its_fields_is_refused() -> None:
    @dataclasses.dataclass
    class Table(dict):  # type: ignore[type-arg]  # as careless as its user
        name: str = ""

    @dataclasses.dataclass
    class Failure(Exception):
        name: str = ""

    @dataclasses.dataclass
    class Sealed:
        __slots__ = ("hidden", "name")
        name: str

    for cls, value in ((Table, Table()), (Failure, Failure()), (Sealed, Sealed("a"))):
        with pytest.raises(UsageError):
            register(cls)
        assert refusal([value], Codec([cls])).path == "[0]"


def test_a_codec_refuses_a_type_that_has_no_structure() -> None:
    with pytest.raises(UsageError):
        Codec([Box])


@pytest.mark.parametrize(
    "value", [Access(0), Access.BOTH, Access.READ | Access.ADMIN, Mask(0), Mask.A | Mask.B, Mask(65), ~Mask.A], ids=repr
)
def test_combinations_of_flags_are_kept(value: enum.Flag) -> None:
    assert shape(back(value)) == shape(value)


# --- refusals: named when encoded ----------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Moment(datetime):
    pass


@pytest.mark.case("C031")
def test_a_refusal_names_the_path_the_type_and_the_place() -> None:
    error = refusal({"a": {"b": [object()]}}, where="input 'x'")

    assert (error.path, error.type_name, error.where) == ("a.b[0]", "object", "input 'x'")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (lambda: None, ""),
        ({"my key": {1: print}}, "['my key'][1]"),
        ((1, [print]), "[1][0]"),
        ({"a": {print: 1}}, "a.keys()[0]"),
        ({"a": {print}}, "a{}"),
        ({(1, "x"): print}, "[(1, 'x')]"),
        ({10**5000: print}, "[int]"),
        ([Finding("a", line={"k": print})], "[0].line.k"),
        (Point(1, print), "y"),
        (Account("ann", balance=lambda: 1), "balance"),
    ],
    ids=["root", "key", "tuple", "dict key", "set", "tuple key", "big key", "attrs", "named tuple", "dataclass"],
)
def test_the_path_leads_to_what_is_refused(value: Any, path: str) -> None:
    error = refusal(value)

    assert (error.path, error.type_name) == (
        path,
        type(print).__name__ if path and "balance" not in path else "function",
    )


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        Number(1),
        Moment(2024, 1, 1),
        collections.OrderedDict(a=1),
        collections.defaultdict(list),
        collections.Counter("a"),
        bytearray(b"a"),
        memoryview(b"a"),
        range(3),
        Box(1),
        Stranger(1),
        iter([1]),
        int,
        SimpleNamespace(a=1),
        ValueError("x"),
        {}.keys(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_type_that_is_not_known_is_refused_and_never_taken_for_its_base(value: Any) -> None:
    for holder, path in ((value, ""), ([value], "[0]"), ({"k": value}, "k"), (("t", value), "[1]")):
        error = refusal(holder)
        assert (error.path, error.type_name.rpartition(":")[2]) == (path, type(value).__qualname__)


def test_an_enum_that_is_not_registered_is_refused_as_value_and_as_key() -> None:
    codec = Codec()

    assert refusal({"a": Level.LOW}, codec).path == "a"
    assert refusal({Mode.FAST: 1}, codec).path == "keys()[0]"


def test_a_str_subclass_as_a_key_is_refused() -> None:
    assert refusal({"a": 1, Text("b"): 2}).path == "keys()[1]"


def test_an_object_that_lies_about_its_class_is_refused() -> None:
    class Liar:
        __class__ = int  # type: ignore[assignment]  # a lie

    assert isinstance(Liar(), int)
    assert refusal([Liar()]).path == "[0]"


def test_an_attribute_that_is_no_field_is_refused_not_lost() -> None:
    account = Account("ann")
    account.nickname = "a"  # type: ignore[attr-defined]  # that is the point

    error = refusal([account])

    assert (error.path, "nickname" in error.problem) == ("[0]", True)


def test_a_field_that_was_never_set_is_refused() -> None:
    @dataclasses.dataclass
    class Half:
        there: int
        missing: int = dataclasses.field(init=False)

    assert isinstance(refusal(Half(1), Codec([Half])).__cause__, AttributeError)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="since then no path prints as another one")
def test_a_path_whose_text_means_another_path_is_refused() -> None:
    assert refusal([PureWindowsPath("./c:x")]).path == "[0]"


def test_an_instance_of_another_class_of_the_same_name_is_refused() -> None:
    old, new = (attrs.make_class("Twin", ["x"]) for _ in range(2))

    assert "not the one" in refusal([old(1)], Codec([new])).problem


def test_a_subclass_of_a_registered_class_is_refused() -> None:
    class Child(Account):
        pass

    assert refusal(Child("ann")).type_name.endswith("Child")


def _list_with_itself() -> Any:
    value: list[Any] = [1]
    value.append([value])
    return value


def _dict_with_itself() -> Any:
    value: dict[Any, Any] = {}
    value["k"] = ({"k": value},)
    return value


def _account_with_itself() -> Any:
    value = Account("a")
    value.owner = {"me": [value]}
    return value


@pytest.mark.parametrize(
    ("make", "path"),
    [(_list_with_itself, "[1][0]"), (_dict_with_itself, "k[0].k"), (_account_with_itself, "owner.me[0]")],
)
def test_a_value_that_contains_itself_is_refused_where_it_does(make: Callable[[], Any], path: str) -> None:
    error = refusal(make())

    assert ("contains itself" in error.problem, error.path) == (True, path)


LAYERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: [value],
    "dict": lambda value: {"k": value},
    "dict of ints": lambda value: {1: value},
    "tuple": lambda value: (value,),
    "class": lambda value: Finding("p", value),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_nesting_is_kept_up_to_the_limit_and_refused_beyond_it(layer: Callable[[Any], Any]) -> None:
    limit = sys.getrecursionlimit()

    assert CODEC.encode(back(nested(layer, MAX_DEPTH))) == CODEC.encode(nested(layer, MAX_DEPTH))
    assert "deeper" in refusal(nested(layer, MAX_DEPTH + 1)).problem
    assert sys.getrecursionlimit() == limit


def test_a_hundred_thousand_levels_are_refused_by_name() -> None:
    value = nested(lambda inner: [inner], 100_000)

    assert "deeper" in refusal(value).problem


def test_a_stack_that_is_nearly_used_up_is_no_recursion_error() -> None:
    deep = nested(lambda value: (value,), MAX_DEPTH)
    text = CODEC.encode(deep)

    def below(frames: int, call: Callable[[], object]) -> object:
        return below(frames - 1, call) if frames else call()

    with pytest.raises(SerializationError, match="too deep"):
        below(sys.getrecursionlimit() // 2 + 150, lambda: CODEC.encode(deep))
    with pytest.raises(SerializationError):
        below(sys.getrecursionlimit() // 2 + 300, lambda: CODEC.decode(text))


def test_keys_that_became_equal_are_refused(boxes: Callable[..., object]) -> None:
    boxes(lambda box: box.content, Box)
    first, second = Box(1), Box(2)
    value, elements = {first: "a", second: "b"}, {first, second}
    second.content = 1

    assert "equal" in refusal([value]).problem
    assert "equal" in refusal([elements]).problem


@pytest.mark.parametrize(
    ("encode", "problem"),
    [(lambda box: 1 // 0, "ZeroDivisionError"), (lambda box: box, "itself"), (lambda box: [Box(box)], "deeper")],
    ids=["raises", "returns the object", "never ends"],
)
def test_an_encode_function_that_fails_is_named(boxes: Callable[..., object], encode: Any, problem: str) -> None:
    boxes(encode, Box)

    error = refusal({"b": [Box(1)]})

    assert problem in error.problem
    assert error.path.startswith("b[0]")
    assert error.type_name.endswith("Box")
    assert isinstance(error.__cause__, ZeroDivisionError) is (problem == "ZeroDivisionError")


def test_a_metaclass_that_raises_becomes_a_refusal() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise OSError

    class Odd(metaclass=Meta):
        pass

    assert isinstance(refusal([Odd()]).__cause__, OSError)


def test_a_dict_that_another_thread_changes_meanwhile_is_encoded_or_refused() -> None:
    shared: dict[Any, Any] = {n: n for n in range(1000)}
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            shared["more"] = 1
            del shared["more"]

    changer = threading.Thread(target=change, name="changer")
    changer.start()
    try:
        for _ in range(100):
            with contextlib.suppress(SerializationError):
                assert len(CODEC.decode(CODEC.encode([shared, ()]))[0]) in {1000, 1001}
    finally:
        stop.set()
        changer.join()


# --- decoding: loud, and only classes that were named ----------------------------------------------------


def version(*fields: str) -> Any:
    """One version of a class whose name does not change."""
    return attrs.make_class("Order", list(fields))


def status(*members: str) -> Any:
    """One version of an Enum whose name does not change."""
    return enum.Enum("Status", members, module="shop")


def flags(members: dict[str, int], **options: Any) -> Any:
    """One version of a Flag whose name does not change."""
    return enum.Flag("Right", members, module="shop", **options)


def test_a_class_that_the_program_did_not_name_is_not_made() -> None:
    text = CODEC.encode([Finding("a")])

    error = damage(text, Codec(), where="output of 'scan'")

    assert (error.type_name, error.where) == (f"{__name__}:Finding", "output of 'scan'")


def test_a_name_that_could_be_imported_is_not_imported() -> None:
    assert damage('{"$object":["antigravity:Fly","f",1]}').type_name == "antigravity:Fly"
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(("then", "now"), [(["a", "b"], ["a"]), (["a"], ["a", "b"]), (["a"], ["b"])], ids=str)
def test_a_class_whose_fields_have_changed_is_loud(then: list[str], now: list[str]) -> None:
    old, new = version(*then), version(*now)
    text = Codec([old]).encode(old(*then))

    error = damage(text, Codec([new]))

    assert error.type_name == f"{__name__}:Order"
    assert all(repr(name) in error.problem for name in set(then) ^ set(now))


def test_the_order_of_fields_may_change() -> None:
    old, new = version("a", "b"), version("b", "a")

    assert Codec([new]).decode(Codec([old]).encode(old(1, 2))) == new(a=1, b=2)


def test_a_class_that_is_taken_apart_in_another_way_by_now_is_loud() -> None:
    class Thing:
        pass

    old = attrs.define(type("Thing", (), {"__module__": Thing.__module__, "__qualname__": Thing.__qualname__}))
    text = Codec([old]).encode(old())
    register(Thing, encode=lambda thing: None, decode=lambda plain: Thing())

    assert damage(text, Codec()).type_name.endswith("Thing")


def test_an_enum_member_that_is_gone_is_loud() -> None:
    then, now = (status("OPEN", "SHUT"), status("OPEN"))

    error = damage(Codec([then]).encode(then.SHUT), Codec([now]))

    assert (error.type_name, "SHUT" in error.problem) == ("shop:Status", True)


def test_flags_whose_names_are_gone_are_loud() -> None:
    then = flags({"A": 1, "B": 2}, boundary=enum.CONFORM)
    now = flags({"A": 1}, boundary=enum.CONFORM)

    assert damage(Codec([then]).encode(then.A | then.B), Codec([now])).type_name == "shop:Right"


def test_bits_without_a_name_that_the_enum_would_drop_by_now_are_loud() -> None:
    then = flags({"A": 1}, boundary=enum.KEEP)
    now = flags({"A": 1}, boundary=enum.CONFORM)

    assert damage(Codec([then]).encode(then(65)), Codec([now])).type_name == "shop:Right"


def test_a_member_keeps_its_name_when_its_value_changes() -> None:
    then = flags({"A": 1, "B": 2})
    now = flags({"B": 1, "A": 2, "C": 4})

    assert Codec([now]).decode(Codec([then]).encode([then.A, then.A | then.B])) == [now.A, now.A | now.B]


@pytest.mark.parametrize(
    ("decode", "cause"),
    [(lambda plain: 1 // 0, ZeroDivisionError), (lambda plain: plain, type(None))],
    ids=["raises", "another type"],
)
def test_a_decode_function_that_fails_or_returns_another_type_is_named(
    boxes: Callable[..., object], decode: Any, cause: type
) -> None:
    boxes(lambda box: box.content, decode)

    error = damage(CODEC.encode([Box(1)]))

    assert (error.type_name, type(error.__cause__)) == (f"{__name__}:Box", cause)


def test_an_eq_that_raises_on_loading_is_a_serialization_error(boxes: Callable[..., object]) -> None:
    class Sore(Box[int]):
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        __hash__ = Box.__hash__

    register(Sore, encode=lambda sore: sore.content, decode=Sore)
    text = CODEC.encode({Sore(1), Sore(2)})

    error = damage(text.replace(",2]", ",1]"))

    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "1" * 5000,
        '{"$tuple":1}',
        '{"$nothing":[1]}',
        '{"$object":[]}',
        '{"$object":[1]}',
        f'{{"$enum":["{__name__}:Access",[]]}}',
        '{"$bytes":["?"]}',
        '{"$bytes":["eA==eA=="]}',
        '{"$datetime":["x"]}',
        '{"$dict":[1]}',
        '{"$dict":[[1],2]}',
        '{"$set":[1,1]}',
        '{"$Decimal":["x"]}',
        '{"$WindowsPath":["a"]}' if os.name != "nt" else '{"$PosixPath":["a"]}',
    ],
    ids=lambda text: text[:30],
)
def test_a_damaged_text_is_loud(text: str) -> None:
    assert damage(text, where="row 7").where == "row 7"


# --- annotations -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Node:
    parent: "Node | None"
    leaf: "list[Leaf]"
    unseen: "OnlyForTypeCheckers"  # type: ignore[name-defined]  # noqa: F821  # as after `if TYPE_CHECKING: import`
    level: "dict[str, Level]"


class Leaf(NamedTuple):
    where: Annotated[Point, Money]


class Row(TypedDict):
    access: Access


Bound = TypeVar("Bound", bound=Finding)
Either = TypeVar("Either", Finding, Point)


@attrs.define
class Holder(typing.Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("annotation", "classes"),
    [
        (Finding, {Finding}),
        (Finding | None, {Finding}),
        (Optional[Finding], {Finding}),  # noqa: UP045  # as older programs have it
        (dict[str, list[tuple[Money, ...]]], {Money}),
        (Annotated[Money, Finding], {Money}),
        (Literal[Color.RED, "x"], {Color}),
        (Callable[[Finding], Point], {Finding, Point}),
        (Node, {Node, Leaf, Point, Level}),
        (Row, {Access}),
        (Bound, {Finding}),
        (Either, {Finding, Point}),
        (typing.NewType("Id", Finding), {Finding}),
        (Holder[Point], {Holder, Point}),
    ],
    # A set is written in another order by each process; the annotation says enough.
    ids=lambda value: None if isinstance(value, set) else str(value),
)
def test_the_classes_in_an_annotation_are_found_at_any_depth(annotation: Any, classes: set[type]) -> None:
    assert types_in(annotation) == classes


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        int,
        Any,
        "Finding",
        5,
        ...,
        [],
        (Finding,),
        Box,
        typing.Union,
        typing.Protocol,
        object(),
    ],
    ids=lambda annotation: type(annotation).__name__,
)
def test_an_annotation_that_names_no_class_has_none(annotation: Any) -> None:
    assert types_in(annotation) == frozenset()


def test_an_annotation_that_is_nested_very_deeply_is_followed() -> None:
    annotation: Any = Finding
    for _ in range(5000):
        annotation = list[annotation]

    assert types_in(annotation) == {Finding}


def test_an_annotation_whose_attributes_raise_names_no_class_and_hides_none() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise OSError(name)

        @property  # type: ignore[misc]  # hostile
        def __class__(self) -> Any:
            raise OSError

    assert types_in(list[Hostile()] | Finding) == {Finding}  # type: ignore[misc]  # an instance, not a type
