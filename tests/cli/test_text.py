from datetime import UTC, datetime, timedelta, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.cli.screen import Screen
from ares.cli.text import cut, instant, pairs, plain, seconds, shown, whole_seconds
from ares.workflow import ItemFailure


@given(st.text())
def test_no_text_leaves_its_line_or_moves_the_cursor(text: str) -> None:
    made = plain(text)

    assert made.isprintable()
    assert len((made + "|").splitlines()) == 1


@given(st.text())
def test_a_printable_text_stays_as_it_is(text: str) -> None:
    printable = "".join(c for c in text if c.isprintable())

    assert plain(printable) == printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("one\ntwo\r\n", "one\\ntwo\\r\\n"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb", "a\\u202eb"),
        ("\udc80", "\\udc80"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("größe 日本", "größe 日本"),
    ],
)
@pytest.mark.case("C048")
def test_what_a_terminal_would_obey_is_escaped(text: str, expected: str) -> None:
    assert plain(text) == expected


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Loud:
    def __repr__(self) -> str:
        return "loud\n" * 10_000


def test_any_value_is_shown_on_one_short_line() -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    for value in (Rude(), Loud(), holds_itself, ["x" * 10_000] * 10_000, {i: i for i in range(10_000)}, 10**10_000):
        assert len(shown(value)) <= 200
        assert shown(value).isprintable()


def test_texts_and_paths_are_shown_whole() -> None:
    path = Path("/") / ("folder/" * 100) / "report.md"

    assert shown(path) == str(path)
    assert shown("x" * 1_999) == "x" * 1_999
    assert len(shown("x" * 3_000)) == 2_000


def test_a_failed_element_is_shown_by_its_index_and_item() -> None:
    assert shown([ItemFailure(3, "a.py", ValueError("no"))]) == "[ItemFailure(3, 'a.py')]"


def test_pairs_are_shown_as_names_and_values() -> None:
    assert pairs({"a": 1, "b\n": "x y"}) == "a=1 b\\n=x y"


def test_a_long_text_ends_with_dots() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abc..."


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0.000 s"),
        (9.9994, "9.999 s"),
        (59.94, "59.9 s"),
        (60, "1 min 00 s"),
        (3_599.9, "59 min 59 s"),
        (3_600, "1 h 00 min 00 s"),
        (360_000, "100 h 00 min 00 s"),
        (-1.5, "-1.500 s"),
    ],
)
def test_a_duration_is_shown_to_the_figures_that_matter(number: float, expected: str) -> None:
    assert seconds(number) == expected


def test_a_duration_under_way_has_no_fractions() -> None:
    assert whole_seconds(3.9) == "3 s"


def test_an_instant_is_shown_in_utc() -> None:
    kathmandu = timezone(timedelta(hours=5, minutes=45))

    assert instant(datetime(2026, 3, 29, 7, 0, tzinfo=kathmandu)) == "2026-03-29 01:15:00Z"
    assert instant(datetime(2026, 3, 29, 1, 15, tzinfo=UTC)) == "2026-03-29 01:15:00Z"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_in_a_file_is_never_cut() -> None:
    stream = StringIO()

    Screen(stream).table(("ID", "NOTE"), [("a", "x" * 500), ("b\n", ("日本", "green"))])

    assert stream.getvalue() == f"ID   NOTE\na    {'x' * 500}\nb\\n  日本\n"


def test_a_table_on_a_terminal_has_a_line_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    Screen(stream).table(("ID", "NOTE"), [("a", "x" * 500), ("日本", "y" * 500)])

    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1] == "a     " + "x" * 13 + "…"


def test_markup_in_data_is_text_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    Screen(stream).line("[bold]", ("[/nonsense] :smile:", "red"), " \x1b]0;title\x07")

    assert stream.getvalue().endswith(" \\x1b]0;title\\x07\n")
    assert "[bold]" in stream.getvalue()
    assert "[/nonsense] :smile:" in stream.getvalue()
