"""Tests of patterns of dates and times (Spark's datetime patterns)."""

from __future__ import annotations

import pytest

from anabranch_contract.queries.json_paths import steps
from anabranch_contract.queries.time_patterns import check_read, check_written, fields
from anabranch_contract.queries.time_zones import fixed_offset, is_zone


def test_quotes_stand_around_text() -> None:
    assert fields("yyyy'T'HH") == (("y", 4), "T", ("H", 2))
    assert fields("'it''s' d") == ("it's ", ("d", 1))
    assert fields("d''M") == (("d", 1), "'", ("M", 1))
    assert fields("''''") == ("'",)
    assert fields("'T'''H") == ("T'", ("H", 1))
    assert fields("") == ()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("d'x", "quote is not closed"),
        ("YYYY", "YYYY is not supported"),
        ("MMMMM", "MMMMM is not supported"),
        ("d[x]", "reserved"),
        ("zzz", "zzz is not supported"),
    ],
)
def test_patterns_that_can_not_be_written(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_written(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("EEE", "not supported"),
        ("MMMM", "not supported"),
        ("y", "write yyyy"),
        ("dd dd", "occurs twice"),
        ("HH hh a", "clash"),
        ("hh:mm", "AM or PM"),
        ("a", "needs h"),
        ("dM", "nothing separates"),
        ("ddM", "nothing separates"),
    ],
)
def test_patterns_that_can_not_be_read(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_read(pattern)


def test_patterns_that_can_be_read() -> None:
    for pattern in ("yyyyMMddHHmmss", "d.M.yy", "dd MMM yyyy hh:mm a", "yyyy-MM-dd'T'HH:mm:ss.SSS"):
        check_read(pattern)
        check_written(pattern)


@pytest.mark.parametrize("path", ["a", "$a", "$.", "$..a", "$[*]", "$['a", "$[-1]", "$.a b"])
def test_paths_of_other_steps_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"\$|no step"):
        steps(path)


def test_paths() -> None:
    assert steps("$") == ()
    assert steps("$.a[10]['b.c'].d") == ("a", 10, "b.c", "d")


@pytest.mark.parametrize(
    ("name", "hours"), [("UTC", 0), ("Z", 0), ("+02:00", 2), ("GMT-3", -3), ("UTC+5", 5)]
)
def test_fixed_offsets(name: str, hours: int) -> None:
    assert fixed_offset(name) == hours * 3_600_000_000
    assert is_zone(name)


def test_zones() -> None:
    assert is_zone("Europe/Berlin")
    assert not any(map(is_zone, ["Europe/Atlantis", "", "../etc/passwd", "+19:00", "x" * 5000]))
