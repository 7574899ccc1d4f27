"""Facts and notes as text: all of them come back as they were, and damaged text is never taken for a fact."""

import json
import subprocess
import sys
import textwrap
import traceback
import typing
from datetime import UTC
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ares.errors import SerializationError
from ares.journal.encoding import decode, encode
from ares.journal.notes import Emitted, Note, Opaque, Recorded, Remembered, ToolCalled
from ares.questions import AnswerAction, Cause, OnReject
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    ExecutionStatus,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.values import Codec
from ares.walk import facts as f
from ares.walk.judge import describe

CODEC = Codec()

# --- anything that may stand in a fact ---------------------------------------------------------------------------

texts = st.lists(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from(["\ud83d", "\ude00", "\x00", "\x1b[2J", "\u2028", "\u202e", '"', "\\", "\\ud800", '"$', "]["]),
    ),
    max_size=8,
).map("".join)
tuples_of_texts = st.lists(texts, max_size=3).map(tuple)
ints = st.one_of(st.integers(0, 5), st.integers(), st.just(2**200), st.just(-(10**700)))
seconds = st.one_of(
    st.floats(0, 1e6).map(lambda s: round(s, 6)), st.sampled_from([float("nan"), float("inf"), -0.0, 1e300])
)
floats = st.floats()
values = st.recursive(
    st.one_of(st.none(), st.booleans(), ints, floats, texts, st.binary(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(texts, st.integers(), st.sampled_from(["$tuple", "$repr"])), inner, max_size=3),
    ),
    max_leaves=6,
)
mappings = st.dictionaries(texts, values, max_size=3)
errors = st.builds(ErrorInfo, texts, texts, texts)
nodes = st.lists(st.tuples(texts, texts, tuples_of_texts), max_size=3).map(tuple)
set_backs = st.lists(st.builds(f.SetBack, texts, st.booleans(), st.booleans(), st.booleans()), max_size=3).map(tuple)
writes = st.lists(st.tuples(texts, values), max_size=3).map(tuple)
scores = st.dictionaries(texts, floats, max_size=3)
metadata = st.dictionaries(texts, texts, max_size=2)
timeouts = st.none() | floats
statuses = st.sampled_from([ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED])
place = (texts, ints, ints)
attempt = (*place, ints)

instants = st.datetimes(timezones=st.sampled_from([None, UTC, ZoneInfo("Europe/Berlin")]))
history_entries = st.one_of(
    st.builds(RouteEntry, texts, texts, tuples_of_texts, texts, texts, instants),
    st.builds(ToolEntry, texts, texts, texts, values, values, seconds, st.booleans(), texts),
    st.builds(MemoryEntry, texts, texts, texts, ints, floats, tuples_of_texts),
    st.builds(InterruptEntry, texts, texts, texts, texts, texts),
    st.builds(ErrorEntry, texts, texts, texts),
    st.builds(ScoringSignal, texts, floats, texts),
    st.builds(LoopEntry, ints, texts),
)

ENTRIES: dict[type, st.SearchStrategy[Any]] = {
    f.Created: st.builds(
        f.Created, texts, texts, texts, texts, nodes, mappings, mappings, metadata, timeouts, metadata
    ),
    f.Resumed: st.builds(
        f.Resumed,
        ints,
        tuples_of_texts,
        set_backs,
        st.booleans(),
        st.none() | tuples_of_texts,
        st.none() | nodes,
        texts,
        texts,
        texts,
        timeouts,
    ),
    f.CancelRequested: st.builds(f.CancelRequested, texts),
    f.DeadlinePassed: st.builds(f.DeadlinePassed, texts, floats, ints),
    f.Interrupted: st.builds(f.Interrupted, tuples_of_texts, texts),
    f.Waiting: st.builds(f.Waiting, tuples_of_texts),
    f.Ended: st.builds(f.Ended, statuses, st.none() | errors),
    f.RoundEnded: st.builds(f.RoundEnded, *place, st.booleans(), texts, texts, st.none() | errors),
    f.RoundStarted: st.builds(f.RoundStarted, *place),
    f.Checked: st.builds(f.Checked, *place, st.booleans()),
    f.Started: st.builds(f.Started, *attempt),
    f.Opened: st.builds(f.Opened, *attempt, st.none() | ints, set_backs),
    f.Succeeded: st.builds(f.Succeeded, *attempt, values, writes, st.none() | tuples_of_texts, seconds),
    f.Failed: st.builds(
        f.Failed,
        *attempt,
        errors,
        st.sampled_from(f.After),
        floats,
        seconds,
        st.booleans(),
        st.booleans(),
    ),
    f.Completed: st.builds(f.Completed, *attempt),
    f.Skipped: st.builds(f.Skipped, *place, st.sampled_from(f.SkipReason), texts),
    f.Routed: st.builds(f.Routed, *place, tuples_of_texts, texts, texts, scores, tuples_of_texts),
    f.Unrouted: st.builds(f.Unrouted, *place, errors),
    f.Asked: st.builds(f.Asked, *attempt, texts, texts, values, st.sampled_from(Cause), st.sampled_from(OnReject)),
    f.Answered: st.builds(f.Answered, *attempt, texts, st.sampled_from(AnswerAction), values, texts),
    f.Continued: st.builds(f.Continued, *attempt),
    Remembered: st.builds(Remembered, texts, ints, ints, texts, values),
    ToolCalled: st.builds(ToolCalled, texts, ints, ints, texts, values, values, seconds, st.booleans(), texts),
    Emitted: st.builds(Emitted, texts, ints, ints, texts, mappings, texts),
    Recorded: st.builds(Recorded, texts, texts, history_entries),
}
entries = st.one_of(*ENTRIES.values())


def path_of(entry: Any) -> str:
    return getattr(entry, "path", "")


def there_and_back(entry: Any, codec: Codec = CODEC) -> Any:
    return decode(entry.kind, path_of(entry), encode(entry, codec), codec)


# --- what comes back ---------------------------------------------------------------------------------------------


def test_every_kind_of_fact_and_note_is_among_those_tried_here() -> None:
    kinds = {*typing.get_args(f.ExecutionFact), *typing.get_args(f.InstanceFact), *typing.get_args(Note)}

    assert set(ENTRIES) == kinds


@settings(deadline=None)
@given(entries)
@example(f.Failed("a", 1, 0, 1, ErrorInfo("E", "\ud83d\ude00 and \ud800")))
@example(f.Routed("a", 1, 0, (), "router", "", {"$tuple": float("nan")}))
def test_whatever_stands_in_an_entry_comes_back_as_it_was(entry: Any) -> None:
    again = there_and_back(entry)

    assert repr(again) == repr(entry)  # NaN included
    assert type(again) is type(entry)


@settings(deadline=None)
@given(entries)
def test_a_body_is_one_line_of_ascii_that_any_json_parser_reads(entry: Any) -> None:
    text = encode(entry, CODEC)

    assert text.isascii()
    assert "\n" not in text
    json.loads(text, parse_constant=pytest.fail, parse_int=str)


@pytest.mark.parametrize(
    "value",
    [{1: "a", "1": "b"}, {(1, 2): "t"}, {None: 1}, {True: 1}, (1, 2), {"nested": {2: (3,)}}],
)
def test_keys_and_tuples_of_an_output_keep_their_types(value: Any) -> None:
    again = there_and_back(f.Succeeded("a", 1, 0, 1, value))

    assert repr(again.output) == repr(value)


def test_the_usual_start_of_a_step_costs_two_characters() -> None:
    assert encode(f.Started("measure[99999]", 1, 0, 1), CODEC) == "{}"


def test_scores_in_numbers_of_the_users_own_kind_come_back_as_floats() -> None:
    scores: Any = {"b": Decimal("0.25"), "c": 1}

    again = there_and_back(f.Routed("a", 1, 0, ("b",), "router", "", scores))

    assert repr(again.scores) == "{'b': 0.25, 'c': 1.0}"


def test_a_reason_given_as_text_comes_back_as_the_reason() -> None:
    again = there_and_back(f.Skipped("a", 1, 0, "condition"))  # type: ignore[arg-type]  # a str is what it may be

    assert again.reason is f.SkipReason.CONDITION


def test_values_of_classes_that_the_program_names_come_back_as_such() -> None:
    codec = Codec([Finding])

    again = there_and_back(f.Succeeded("a", 1, 0, 1, [Finding(3)], (("worst", Finding(4)),)), codec)

    assert again.output == [Finding(3)]
    assert again.writes == (("worst", Finding(4)),)


@attrs.frozen
class Finding:
    line: int


# --- failures ----------------------------------------------------------------------------------------------------


def test_the_exception_of_a_failure_is_not_stored() -> None:
    error = ValueError("boom")

    text = encode(f.Failed("a", 1, 0, 1, describe(error), exception=error), CODEC)

    assert decode("failed", "a", text, CODEC) == f.Failed("a", 1, 0, 1, ErrorInfo("ValueError", "boom"))
    assert decode("failed", "a", text, CODEC).exception is None  # type: ignore[union-attr]  # it is a Failed


class Vendor(Exception):
    def __init__(self, *, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.held = object()


def test_a_failure_is_read_where_the_module_of_its_exception_cannot_be_imported() -> None:
    try:
        raise Vendor(code=7, detail="down")
    except Vendor as error:
        info = describe(error, "".join(traceback.format_exception(error)))
    body = encode(f.Failed("call", 1, 0, 1, info), CODEC)
    code = textwrap.dedent(
        """
        import sys
        from ares.journal.encoding import decode
        from ares.values import Codec
        error = decode("failed", "call", sys.argv[1], Codec()).error
        print(error.type_name, error.message, "raise Vendor(code=7" in error.traceback, sep="|")
        """
    )

    out = subprocess.run([sys.executable, "-c", code, body], capture_output=True, text=True, check=True, timeout=30)

    assert out.stdout.strip().endswith("Vendor|(7, 'down')|True")


# --- what cannot be stored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "where", "path"),
    [
        (f.Succeeded("fetch", 1, 0, 1, lambda: 1), "the output of step 'fetch'", ""),
        (f.Succeeded("fetch", 1, 0, 1, {"a": [object()]}), "the output of step 'fetch'", "a[0]"),
        (f.Succeeded("fetch", 1, 0, 1, 1, (("x", 1), ("y", [object()]))), "variable 'y' set by step 'fetch'", "[0]"),
        (f.Created("w", "", "", "", (), {"a": {"b": [object()]}}, {}, {}), "the inputs", "a.b[0]"),
        (f.Created("w", "", "", "", (), {}, {"v": object()}, {}), "the initial values of the variables", "v"),
        (Remembered("pay", 1, 0, "charge", object()), "the result of once('charge') in step 'pay'", ""),
        (Emitted("a", 1, 1, "row.done", {"x": object()}), "the payload of event 'row.done'", "x"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_place(entry: Any, where: str, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        encode(entry, CODEC)

    assert (caught.value.where, caught.value.path) == (where, path)
    assert caught.value.type_name in ("object", "function")


@pytest.mark.parametrize(
    "entry",
    [
        f.Started("a", 1, 0, "1"),  # type: ignore[arg-type]  # what is wrong is the point
        f.DeadlinePassed("a", 10**400),
        f.Failed("a", 1, 0, 1, ErrorInfo("E", None)),  # type: ignore[arg-type]  # as above
        f.Skipped("a", 1, 0, "because"),  # type: ignore[arg-type]  # as above
        f.Routed("a", 1, 0, None, "router"),  # type: ignore[arg-type]  # as above
        f.Routed("a", 1, 0, (), "router", "", {"b": "high"}),  # type: ignore[dict-item]  # as above
        f.Created("w", "", "", "", (), [1], {}, {}),  # type: ignore[arg-type]  # as above
        ErrorInfo("E", "no fact at all"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_before_it_is_stored(entry: Any) -> None:
    with pytest.raises(SerializationError):
        encode(entry, CODEC)


# --- tools -------------------------------------------------------------------------------------------------------


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (object, "<class 'object'>"),
        ([object], "[<class 'object'>]"),
        (Hostile(), "<Hostile, whose repr raised RuntimeError>"),
        ({"a": "\ud83d\ude00", "b": object}, r"{'a': '\ud83d\ude00', 'b': <class 'object'>}"),
        (Opaque("<socket>"), "<socket>"),
    ],
)
def test_what_a_tool_was_given_and_cannot_be_stored_is_kept_as_its_repr(value: Any, shown: str) -> None:
    again = there_and_back(ToolCalled("a", 1, 1, "http", value, None, 0.0, success=True))

    assert again.input == Opaque(shown)
    assert repr(again.input) == shown


def test_the_repr_of_a_huge_value_is_cut() -> None:
    again = there_and_back(ToolCalled("a", 1, 1, "http", [object] * 10_000, None, 0.0, success=True))

    assert len(again.input.text) == 1000
    assert again.input.text.endswith("…")


def test_a_value_of_a_tool_that_looks_like_a_kept_repr_stays_itself() -> None:
    again = there_and_back(ToolCalled("a", 1, 1, "http", {"$repr": "x"}, {"repr": "y"}, 0.0, success=True))

    assert (again.input, again.output) == ({"$repr": "x"}, {"repr": "y"})


# --- damaged text ------------------------------------------------------------------------------------------------


def decode_or_refuse(kind: str, path: str, text: Any) -> None:
    """Whatever the text, the only exception is one that names kind and path."""
    refusal = None
    try:
        decode(kind, path, text, CODEC)
    except SerializationError as error:
        refusal = error
    if refusal is not None:
        assert repr(kind) in refusal.where
        assert repr(path) in refusal.where or not path
        assert len(refusal.problem) <= 300


@settings(deadline=None)
@given(entries, st.data())
def test_text_that_was_tampered_with_is_read_or_refused_and_nothing_else(entry: Any, data: st.DataObject) -> None:
    text = encode(entry, CODEC)
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", "[", "]", "{", "}", '"', ",", "0", "null", '"$', "\\", "9" * 5000, "é"]))

    decode_or_refuse(entry.kind, path_of(entry), text[:at] + put + text[at + 1 :])


json_trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["r", "e", "a", "o", "w", "x", "to", "why", "d", "in", "$int", "$tuple", "$str", "$repr"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from([entry.kind for entry in ENTRIES]), json_trees)  # type: ignore[attr-defined]  # each has one
def test_json_of_another_shape_is_read_or_refused_and_nothing_else(kind: str, tree: Any) -> None:
    decode_or_refuse(kind, "some/step[1]", json.dumps(tree))


@settings(deadline=None)
@given(entries, st.data())
def test_text_that_was_cut_is_refused(entry: Any, data: st.DataObject) -> None:
    text = encode(entry, CODEC)
    end = data.draw(st.integers(0, len(text) - 1))

    with pytest.raises(SerializationError):
        decode(entry.kind, path_of(entry), text[:end], CODEC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{} {}",
        '{"a":"1"}',
        '{"a":true}',
        '{"a":1.0}',
        '{"a":null}',
        '{"a":NaN}',
        '{"new":1}',
        '{"a":{"$tuple":[1]}}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "9" * 5000 + "}",
    ],
)
def test_a_start_that_no_version_wrote_is_refused(text: str) -> None:
    with pytest.raises(SerializationError) as caught:
        decode("started", "measure[3]", text, CODEC)

    assert caught.value.where == "journal entry 'started' of step 'measure[3]'"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("created", "{}"),
        ("resumed", '{"e":1,"back":[["a",8]]}'),
        ("resumed", '{"e":1,"back":[["a"]]}'),
        ("ended", '{"status":"DONE"}'),
        ("failed", '{"x":["ValueError","boom"]}'),
        ("failed", '{"x":["ValueError","boom",null]}'),
        ("skipped", '{"why":"because"}'),
        ("skipped", "{}"),
        ("succeeded", '{"o":{"$tuple":7}}'),
        ("succeeded", '{"w":[["x"]]}'),
        ("succeeded", '{"d":1}'),
        ("emitted", '{"t":"x.y","p":[]}'),
        ("routed", '{"to":"ab","by":"router"}'),
        ("recorded", '{"by":"memory"}'),
        ("recorded", '{"by":"memory","entry":[]}'),
        ("recorded", '{"by":"memory","entry":["dream","a"]}'),
        ("recorded", '{"by":"memory","entry":[["loop"],1,"enough"]}'),
        ("recorded", '{"by":"memory","entry":["loop",1]}'),
        ("recorded", '{"by":"memory","entry":["loop","1","enough"]}'),
        ("recorded", '{"by":"router","entry":["route","a","a",["b"],"","step","2026-01-01"]}'),
    ],
)
def test_a_body_in_which_something_has_the_wrong_form_is_refused(kind: str, text: str) -> None:
    with pytest.raises(SerializationError) as caught:
        decode(kind, "a", text, CODEC)

    assert caught.value.where == f"journal entry {kind!r} of step 'a'"


@pytest.mark.parametrize("body", [None, 7, b"{}", f.Started("a", 1, 0, 1)])
def test_a_body_that_is_no_text_is_refused(body: Any) -> None:
    with pytest.raises(SerializationError):
        decode("started", "a", body, CODEC)


def test_a_kind_that_only_a_newer_version_knows_is_refused_by_name() -> None:
    with pytest.raises(SerializationError) as caught:
        decode("teleported", "a", "{}", CODEC)

    assert caught.value.where == "journal entry 'teleported' of step 'a'"


def test_a_class_that_the_program_does_not_name_is_refused_with_the_entry() -> None:
    text = encode(f.Succeeded("scan", 1, 0, 1, [Finding(3)]), Codec([Finding]))

    with pytest.raises(SerializationError) as caught:
        decode("succeeded", "scan", text, CODEC)

    assert caught.value.where == "journal entry 'succeeded' of step 'scan'"
    assert caught.value.type_name.endswith("Finding")
