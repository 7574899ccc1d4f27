from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.cli.durations import span, time_limit
from ares.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600), ("0s", 0), (" 1d ", 86_400)],
)
@pytest.mark.case("C046")
def test_a_span_is_a_number_of_exact_seconds(text: str, expected: int) -> None:
    assert span(text) == timedelta(seconds=expected)


@pytest.mark.parametrize(
    "text", ["", "30", "d", "1.5h", "-1d", "1y", "1 d", "1D", "1d1h", "\u0661d", "99999999999999d", "36501d", "1d\n2d"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        span(text)


@given(st.text(max_size=8))
def test_any_text_is_a_span_or_refused(text: str) -> None:
    try:
        found = span(text)
    except UsageError:
        return
    assert timedelta() <= found <= timedelta(days=36_500)


@pytest.mark.parametrize(("text", "expected"), [("30", 30.0), ("0.5", 0.5), ("15m", 900.0), (None, None)])
def test_a_time_limit_is_seconds_or_a_span(text: str | None, expected: float | None) -> None:
    assert time_limit(text) == expected


@pytest.mark.parametrize("text", ["0", "0s", "-1", "nan", "inf", "soon", ""])
def test_a_time_limit_that_cannot_pass_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        time_limit(text)
