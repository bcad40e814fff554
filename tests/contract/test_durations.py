"""Tests of durations: both notations, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.durations import format_duration, parse_duration
from anabranch_contract.errors import QueryError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 microsecond", 1),
        ("2 microseconds", 2),
        ("3 milliseconds", 3_000),
        ("1 second", SECOND),
        ("10 SECONDS", 10 * SECOND),
        ("5 minutes", 300 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        (" 2  days ", 172_800 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("0 seconds", 0),
        ("-5 minutes", -300 * SECOND),
        ("10s", 10 * SECOND),
        ("10 min", 600 * SECOND),
        ("1 hr", 3600 * SECOND),
        ("2hrs", 7200 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("5minutes", 300 * SECOND),
        ("1.5 hours", 5400 * SECOND),
        ("0.5 s", SECOND // 2),
        ("100 ms", SECOND // 10),
        ("7 us", 7),
        ("3 d -1h", 255_600 * SECOND),
        ("2 secs", 2 * SECOND),
        ("PT1H", 3600 * SECOND),
        ("pt1h30m", 5400 * SECOND),
        ("P1D", 86_400 * SECOND),
        ("P2W", 1_209_600 * SECOND),
        ("P1DT2H3M4.5S", 93_784 * SECOND + 500_000),
        ("-PT10S", -10 * SECOND),
        ("PT0.000001S", 1),
        ("PT0S", 0),
    ],
)
def test_durations_are_read(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("5", "not a duration"),
        ("minutes", "not a duration"),
        ("1.", "not a duration"),
        ("1h30", "not a duration"),
        ("5 minutes,", "not a duration"),
        ("0.0000001 s", "not a whole number of microseconds"),
        ("1 hour and 5 minutes", "not a duration"),
        ("1 month", "not a unit of fixed length"),
        ("3 years", "not a unit of fixed length"),
        ("2 fortnights", "not a unit of fixed length"),
        ("P1M", "years or months"),
        ("P1Y2D", "years or months"),
        ("P", "not an ISO 8601"),
        ("PT", "not an ISO 8601"),
        ("P1DT", "ends after its T"),
        ("PT1H2", "not an ISO 8601"),
        ("99999999999999 weeks", "too long"),
        ("P" + "9" * 5000 + "D", "too long"),
        ("9 s " * 5000, "too long"),
    ],
)
def test_bad_durations_are_refused(text: str, part: str) -> None:
    with pytest.raises(QueryError, match=part) as caught:
        parse_duration(text)
    assert caught.value.code == "bad-duration"
    assert caught.value.remedy


@given(st.integers(min_value=-(2**61), max_value=2**61))
def test_formatted_durations_are_read_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


def test_formatting_uses_the_largest_units() -> None:
    assert format_duration(5400 * SECOND) == "1 hour 30 minutes"
    assert format_duration(1_209_600 * SECOND + 1) == "2 weeks 1 microsecond"
