"""Tests of unknown names: suggested similar names, and streams that have them."""

from __future__ import annotations

import pytest

from anabranch_planner.sql.scope import closest, nearest
from tests.support.cases.refusals import refusal


@pytest.mark.parametrize(
    ("sql", "code", "message", "remedy", "position"),
    [
        (
            "SELECT dayy FROM R",
            "unknown-column",
            "there is no column 'dayy' in any of the joined streams",
            "did you mean 'day'?",
            (1, 8),
        ),
        (
            "SELECT dayy\nFROM R a JOIN S b ON a.k = b.k",
            "unknown-column",
            "there is no column 'dayy' in any of the joined streams",
            "did you mean a.day or b.day?",
            (1, 8),
        ),
        (
            "SELECT p.g\nFROM plain p JOIN R r ON p.k = r.k",
            "unknown-column",
            "there is no column 'g' in stream 'plain' (alias 'p')",
            "write r.g",
            (1, 8),
        ),
        (
            "SELECT k\nFROM R WHERE sh > 5",
            "unknown-column",
            "there is no column 'sh' in any of the joined streams",
            "join a stream that has it: 't'",
            (2, 14),
        ),
        (
            "SELECT R.k FROM R x",
            "unknown-alias",
            "there is no alias 'R'",
            "stream 'R' is called 'x' here",
            (1, 8),
        ),
        (
            "SELECT k\nFROM plane",
            "unknown-stream",
            "there is no stream 'plane'",
            "did you mean 'plain'?",
            (2, 6),
        ),
    ],
)
def test_names(sql: str, code: str, message: str, remedy: str, position: tuple[int, int]) -> None:
    error = refusal(sql)
    assert (error.code, error.message, error.remedy) == (code, message, remedy)
    assert error.position == position


def test_long_lists_are_cut() -> None:
    names = [f"n{number:02}" for number in range(25)]
    assert nearest("quite another", names) == f"known: {', '.join(names[:20])} and 5 more"
    assert closest("quite another", names) is None
    assert closest("N7", ["n07", "other"]) == "n07"
