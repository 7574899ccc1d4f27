"""Each journal entry as one event, and values read without the classes that they were."""

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from ares.errors import SerializationError
from ares.events import EventType
from ares.journal.encoding import decode, encode
from ares.journal.notes import Emitted, Opaque, Recorded, Remembered, ToolCalled
from ares.journal.protocol import Entry
from ares.journal.view import decode_leniently, event_of
from ares.questions import AnswerAction, Cause
from ares.records import ErrorInfo, ExecutionStatus, MemoryEntry
from ares.values import Codec
from ares.walk import facts as f

BOOM = ErrorInfo("ValueError", "boom", "Traceback ...")
AT = 1_700_000_000_123_456_000


def view(fact: Any, seq: int = 3) -> Any:
    path = getattr(fact, "path", "")
    return event_of("audit-1", Entry(seq, AT, fact.kind, path, None), fact)


@pytest.mark.parametrize(
    ("fact", "type_"),
    [
        (f.Created("w", "1", "", "", (), {}, {}, {}), EventType.WORKFLOW_STARTED),
        (f.Resumed(1), EventType.WORKFLOW_RESUMED),
        (f.CancelRequested("enough"), EventType.WORKFLOW_CANCELLING),
        (f.DeadlinePassed("", 5.0), EventType.WORKFLOW_OVERDUE),
        (f.Interrupted(("a",), "closing"), EventType.WORKFLOW_INTERRUPTED),
        (f.Waiting(("a",)), EventType.WORKFLOW_WAITING),
        (f.Ended(ExecutionStatus.COMPLETED), EventType.WORKFLOW_COMPLETED),
        (f.Ended(ExecutionStatus.FAILED, BOOM), EventType.WORKFLOW_FAILED),
        (f.Ended(ExecutionStatus.CANCELLED, ErrorInfo("", "enough")), EventType.WORKFLOW_CANCELLED),
        (f.RoundEnded("", 1, 0), EventType.ROUND_COMPLETED),
        (f.RoundEnded("a#2", 3, 0, False, "until"), EventType.ROUND_COMPLETED),
        (f.RoundStarted("", 2, 0), EventType.ROUND_STARTED),
        (f.Checked("a", 1, 0, True), EventType.STEP_CHECKED),
        (f.Started("a", 1, 0, 1), EventType.STEP_STARTED),
        (f.Opened("a", 1, 0, 1, 5), EventType.STEP_STARTED),
        (f.Succeeded("a", 1, 0, 1, 7), EventType.STEP_COMPLETED),
        (f.Completed("a", 1, 0, 1), EventType.STEP_COMPLETED),
        (f.Failed("a", 1, 0, 1, BOOM), EventType.STEP_FAILED),
        (f.Failed("a", 1, 0, 1, BOOM, f.After.RETRY, 2.0), EventType.STEP_RETRYING),
        (f.Failed("a", 1, 0, 1, BOOM, f.After.RECONCILE), EventType.STEP_RECONCILING),
        (f.Skipped("a", 1, 0, f.SkipReason.CONDITION), EventType.STEP_SKIPPED),
        (f.Routed("a", 1, 0, ("b",), "router"), EventType.ROUTE_DECIDED),
        (f.Unrouted("a", 1, 0, BOOM), EventType.ROUTE_FAILED),
        (f.Asked("a", 1, 0, 1, "price", "How much?"), EventType.INTERRUPT_CREATED),
        (f.Answered("a", 1, 0, 1, "price", AnswerAction.APPROVE, 7), EventType.INTERRUPT_RESOLVED),
        (f.Continued("a", 1, 0, 1), EventType.STEP_CONTINUED),
        (Remembered("a", 1, 0, "charge", 7), EventType.STEP_REMEMBERED),
        (ToolCalled("a", 1, 1, "http", [1], 2, 0.5, success=True), EventType.TOOL_CALLED),
        (Emitted("a", 1, 1, "file.parsed", {"lines": 3}), "file.parsed"),
        (Recorded("a", "memory", MemoryEntry("a", "a", "q", 2, 0.5, ("m1",))), EventType.MEMORY_HIT),
    ],
)
def test_each_kind_of_entry_is_one_type_of_event(fact: Any, type_: str) -> None:
    event = view(fact)

    assert event.type == type_
    assert type(event.type) is str  # so that it can be stored, whoever stores it


def test_an_event_has_the_number_and_the_time_of_its_entry() -> None:
    event = view(f.Started("a", 1, 0, 1), seq=42)

    assert (event.id, event.seq, event.stream_id) == ("audit-1:42", 42, "audit-1")
    assert event.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)


def test_a_completed_step_tells_its_output_by_reference() -> None:
    output = {"lines": [1, 2]}

    event = view(f.Succeeded("measure[3]", 1, 0, 2, output, (("total", 3),), ("a",), 0.25))

    assert event.payload["output"] is output
    assert {name: event.payload[name] for name in event.payload if name != "output"} == {
        "path": "measure[3]",
        "round": 1,
        "attempt": 2,
        "duration": 0.25,
        "writes": ["total"],
        "targets": ["a"],
    }


def test_a_failed_step_tells_what_happened_without_the_traceback() -> None:
    event = view(f.Failed("a", 1, 0, 1, BOOM, f.After.RETRY, 2.0, 0.5))

    assert event.payload == {
        "path": "a",
        "round": 1,
        "attempt": 1,
        "duration": 0.5,
        "error": "ValueError: boom",
        "error_type": "ValueError",
        "delay": 2.0,
    }


def test_a_skipped_step_tells_the_step_that_is_the_reason() -> None:
    event = view(f.Skipped("report", 1, 0, f.SkipReason.UPSTREAM_FAILED, "fetch"))

    assert event.payload == {"path": "report", "round": 1, "reason": "upstream_failed: fetch"}


def test_a_question_tells_all_there_is_to_know_of_it() -> None:
    event = view(f.Asked("pay[2]", 1, 0, 3, "outcome", "Did it?", {"sum": 7}, Cause.OUTCOME))

    assert event.payload == {
        "path": "pay[2]",
        "round": 1,
        "attempt": 3,
        "key": "outcome",
        "message": "Did it?",
        "payload": {"sum": 7},
        "cause": "outcome",
    }


def test_an_answer_tells_what_was_said_to_which_question() -> None:
    event = view(f.Answered("pay", 1, 0, 1, "price", AnswerAction.REJECT, 7, "too much"))

    assert event.payload == {
        "path": "pay",
        "round": 1,
        "attempt": 1,
        "key": "price",
        "action": "reject",
        "value": 7,
        "feedback": "too much",
    }


def test_an_execution_that_waits_tells_who_asks() -> None:
    assert view(f.Waiting(("a", "c/b"))).payload == {"paths": ["a", "c/b"]}


def test_an_emitted_event_has_the_payload_that_was_given_and_the_step_as_its_module() -> None:
    event = view(Emitted("measure[3]", 1, 1, "file.parsed", {"path": "a.py"}))

    assert (event.payload, event.module) == ({"path": "a.py"}, "measure[3]")


def test_an_event_emitted_by_a_plugin_has_the_plugin_as_its_module() -> None:
    event = view(Emitted("measure[3]", 1, 1, "fault.injected", {}, "chaos"))

    assert event.module == "chaos"


# --- reading without classes -------------------------------------------------------------------------------------


@attrs.frozen
class Finding:
    line: int


FINDING = '{"$object":["' + Finding.__module__ + ':Finding","line",3]}'


def stored(entry: Any) -> str:
    return encode(entry, Codec([Finding]))


def test_a_value_whose_class_is_not_there_shows_its_json() -> None:
    text = stored(f.Succeeded("scan", 1, 0, 1, Finding(3)))

    fact = decode_leniently("succeeded", "scan", text, Codec())

    assert fact.output == Opaque(FINDING)  # type: ignore[union-attr]  # it is a Succeeded
    assert repr(fact.output) == FINDING  # type: ignore[union-attr]  # as above


def test_what_lies_around_such_a_value_is_loaded() -> None:
    text = stored(f.Succeeded("scan", 1, 0, 1, {"at": [(1, 2), Finding(3)], "n": {1}}, (("worst", Finding(3)),)))

    fact = decode_leniently("succeeded", "scan", text, Codec())

    assert fact.output == {"at": [(1, 2), Opaque(FINDING)], "n": {1}}  # type: ignore[union-attr]  # as above
    assert fact.writes == (("worst", Opaque(FINDING)),)  # type: ignore[union-attr]  # as above


def test_a_value_that_can_be_loaded_is_loaded_leniently_as_it_is_strictly() -> None:
    text = stored(f.Succeeded("scan", 1, 0, 1, [Finding(3), {(1,): {2}}]))

    assert decode_leniently("succeeded", "scan", text, Codec([Finding])) == decode(
        "succeeded", "scan", text, Codec([Finding])
    )


@pytest.mark.parametrize("text", ["", "[]", '{"o":', '{"a":"1"}', '{"why":3}', '{"d":{"$object":["x:Y"]}}'])
def test_damaged_text_is_refused_leniently_too(text: str) -> None:
    with pytest.raises(SerializationError) as caught:
        decode_leniently("succeeded", "scan", text, Codec())

    assert caught.value.where == "journal entry 'succeeded' of step 'scan'"
