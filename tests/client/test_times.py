"""Tests of times and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from anabranch_client.times import away, moment, took

NOW = datetime(2026, 11, 24, 7, 26, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-24T07:22:56.123456Z", "2026-11-24 07:22:56Z (3 min ago)"),
        ("2026-11-24T09:30:00+01:00", "2026-11-24 08:30:00Z (in 64 min)"),
        ("2026-11-24T09:30:00Z", "2026-11-24 09:30:00Z (in 2 h)"),
        ("2026-11-24T07:26:10Z", "2026-11-24 07:26:10Z (just now)"),
        ("2026-11-01T00:00:00Z", "2026-11-01 00:00:00Z (23 days ago)"),
        (None, "–"),
        ("", "–"),
        ("2026-11-24T07:22:56", "2026-11-24T07:22:56"),
        ("soon", "soon"),
    ],
)
def test_moments(text: str | None, shown: str) -> None:
    assert moment(text, NOW) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "just now"), (-0.4, "just now"), (119, "119 s ago"), (120, "2 min ago"),
     (-7200, "in 2 h"), (47 * 3600, "47 h ago"), (-48 * 3600, "in 2 days")],
)  # fmt: skip
def test_how_far_away(seconds: float, shown: str) -> None:
    assert away(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0.00 s"), (59.94, "59.94 s"), (60, "1 min 0 s"), (3599.7, "1 h 0 min"),
     (7325, "2 h 2 min")],
)  # fmt: skip
def test_measured_durations(seconds: float, shown: str) -> None:
    assert took(seconds) == shown
