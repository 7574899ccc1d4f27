"""What plugins record: kept as text, shown as events, and added to the histories of the checkpoint."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ares.errors import SerializationError
from ares.events import EventType
from ares.journal.encoding import decode, encode
from ares.journal.fold import Fold
from ares.journal.notes import Opaque, Recorded, ToolCalled
from ares.journal.protocol import Entry
from ares.journal.view import decode_leniently, event_of
from ares.records import (
    ErrorEntry,
    ExecutionStatus,
    ExperienceCheckpoint,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    ToolEntry,
)
from ares.values import Codec
from ares.walk import facts as f

CODEC = Codec()
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)

ROUTE = RouteEntry("a", "c/a", ("x", "y"), "because", "memory", NOON)
TOOL = ToolEntry("a", "c/a", "http", [1], {"n": 2}, 0.25, False, "boom")
MEMORY = MemoryEntry("a", "c/a", "what now", 3, 0.75, ("m1", "m2"))
INTERRUPT = InterruptEntry("a", "c/a", "ok?", "approve", "fine")
ERROR = ErrorEntry("a", "c/a", "ValueError: boom")
SCORE = ScoringSignal("judge", 0.5, "quality")
LOOP = LoopEntry(2, "enough")
ALL = [ROUTE, TOOL, MEMORY, INTERRUPT, ERROR, SCORE, LOOP]


def note(entry: Any, writer: str = "memory") -> Recorded:
    return Recorded(getattr(entry, "path", ""), writer, entry)


def there_and_back(entry: Any) -> Any:
    given = note(entry)
    return decode("recorded", given.path, encode(given, CODEC), CODEC)


def fold(*entries: Any) -> ExperienceCheckpoint:
    folding = Fold("e")
    for seq, entry in enumerate(entries, 1):
        folding.add(seq, seq * 1_000_000_000, entry)
    return folding.checkpoint()


# --- as text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back_as_it_was_with_its_writer_and_its_path(entry: Any) -> None:
    assert there_and_back(entry) == note(entry)


def test_what_a_tool_was_given_and_cannot_be_stored_is_kept_as_its_repr() -> None:
    again = there_and_back(ToolEntry("a", "a", "http", object, [object], 0.0, True, ""))

    assert (again.entry.input, again.entry.output) == (Opaque("<class 'object'>"), Opaque("[<class 'object'>]"))


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        (MemoryEntry("a", "a", 7, 1, 0.5, ()), "the query of the MemoryEntry"),  # type: ignore[arg-type]  # the point
        (MemoryEntry("a", "a", "q", 1.5, 0.5, ()), "the hit_count of the MemoryEntry"),  # type: ignore[arg-type]
        (ScoringSignal("judge", "high", ""), "the score of the ScoringSignal"),  # type: ignore[arg-type]  # as above
        (RouteEntry("a", "a", "left", "", "", NOON), "the targets of the RouteEntry"),  # type: ignore[arg-type]
        (RouteEntry("a", "a", (), "", "", 7), "the timestamp of the RouteEntry"),  # type: ignore[arg-type]  # as above
        (f.Started("a", 1, 0, 1), "what was"),
        ("nonsense", "what was"),
    ],
)
def test_an_entry_that_cannot_be_stored_is_refused_with_its_field_and_the_plugin(entry: Any, where: str) -> None:
    with pytest.raises(SerializationError) as caught:
        encode(note(entry), CODEC)

    assert caught.value.where == f"{where} recorded by plugin 'memory'"


def test_a_journal_from_before_plugins_could_record_is_read_as_ever() -> None:
    assert decode("tool", "a", '{"tool":"http","in":[1],"out":null,"d":0.5}', CODEC) == ToolCalled(
        "a", 1, 1, "http", [1], None, 0.5, success=True
    )


def test_a_value_whose_class_is_not_there_is_shown_by_those_who_read_leniently() -> None:
    text = '{"by":"tool","entry":["tool","a","a","http",[{"$object":["x:Y",3]}],null,0.5,true,""]}'

    read = decode_leniently("recorded", "a", text, CODEC)

    assert read.entry.input == [Opaque('{"$object":["x:Y",3]}')]  # type: ignore[union-attr]  # it is a Recorded


# --- as events ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "type_"),
    [
        (ROUTE, EventType.ROUTE_DECIDED),
        (TOOL, EventType.TOOL_CALLED),
        (MEMORY, EventType.MEMORY_HIT),
        (INTERRUPT, "interrupt.recorded"),
        (ERROR, "error.recorded"),
        (SCORE, "score.recorded"),
        (LOOP, "loop.recorded"),
    ],
)
def test_an_entry_is_one_event_whose_module_is_the_plugin(entry: Any, type_: str) -> None:
    event = event_of("e", Entry(7, 0, "recorded", "", None), note(entry, "judge"))

    assert (event.seq, event.stream_id, event.type, event.module) == (7, "e", type_, "judge")
    assert type(event.type) is str


def test_the_payload_is_the_entrys_fields() -> None:
    memory = event_of("e", Entry(1, 0, "recorded", "c/a", None), note(MEMORY))
    tool = event_of("e", Entry(2, 0, "recorded", "c/a", None), note(TOOL))

    assert memory.payload == {
        "step_id": "a",
        "path": "c/a",
        "query": "what now",
        "hit_count": 3,
        "best_score": 0.75,
        "used_ids": ("m1", "m2"),
    }
    assert (tool.payload["tool"], tool.payload["output"]) == ("http", {"n": 2})
    assert tool.payload["output"] is TOOL.output


# --- in the checkpoint -------------------------------------------------------------------------------------------


def test_every_entry_is_in_the_history_of_its_kind() -> None:
    checkpoint = fold(f.Created("w", "", "", "", (), {}, {}, {}), *map(note, ALL))

    assert checkpoint.route_history == (ROUTE,)
    assert checkpoint.tool_history == (TOOL,)
    assert checkpoint.memory_hits == (MEMORY,)
    assert checkpoint.interrupt_history == (INTERRUPT,)
    assert checkpoint.error_history == (ERROR,)
    assert checkpoint.scoring_signals == (SCORE,)
    assert checkpoint.loop_history == (LOOP,)


def test_what_plugins_recorded_stands_among_what_the_walk_did_in_the_order_of_the_journal() -> None:
    checkpoint = fold(
        f.Created("w", "", "", "", (("a", "mark", ()),), {}, {}, {}),
        note(TOOL, "tool"),
        ToolCalled("a", 1, 1, "sql", [2], None, 0.1, success=True),
        note(TOOL, "tool"),
    )

    assert [entry.tool_name for entry in checkpoint.tool_history] == ["http", "sql", "http"]


def test_recording_changes_nothing_but_the_histories_and_the_version() -> None:
    created = f.Created("w", "", "", "", (("a", "mark", ()),), {}, {"n": 1}, {})

    checkpoint = fold(created, *map(note, ALL))

    assert checkpoint.status is ExecutionStatus.PENDING
    assert checkpoint.state_version == 1 + len(ALL)
    assert (checkpoint.step_states, checkpoint.variables) == (fold(created).step_states, {"n": 1})
