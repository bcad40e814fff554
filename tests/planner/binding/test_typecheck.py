"""Tests of Spark's functions that have other names here."""

from __future__ import annotations

import pytest

from tests.support.cases.refusals import refusal


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("round(r.x, -1)", "unsupported-sql", "from 0 to 18"),
        ("round(r.x, r.x)", "unsupported-sql", "from 0 to 18"),
        ("round(r.s)", "type-mismatch", "CAST"),
        ("concat_ws(r.s, r.s)", "unsupported-sql", "into the query"),
        ("concat_ws(r.x, r.s)", "unsupported-sql", "into the query"),
        ("greatest(r.x, r.s)", "type-mismatch", "make them agree"),
        ("greatest(r.x)", "bad-arguments", "with 2 to 8 arguments"),
        ("least(true, false)", "type-mismatch", "another type"),
        (f"least({', '.join(['r.x'] * 9)})", "bad-arguments", "with 2 to 8 arguments"),
    ],
)
def test_calls_that_are_refused_say_how_to_write_them(call: str, code: str, says: str) -> None:
    error = refusal(f"SELECT {call} AS x FROM R r")
    assert error.code == code
    assert says in error.remedy
