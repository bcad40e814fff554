"""Functions of Spark that are called otherwise here."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        ("unix_timestamp(r.ts)", "unix_seconds(r.ts)"),
        ("to_unix_timestamp(r.s)", "unix_seconds(CAST(r.s AS TIMESTAMP))"),
        ("unix_timestamp(r.day)", "unix_seconds(CAST(r.day AS TIMESTAMP))"),
    ],
)
@pytest.mark.parametrize("wrapped", ["{} AS u", "max({}) AS u"])
def test_unix_timestamp(call: str, instead: str, wrapped: str) -> None:
    error = refusal(f"SELECT\n{wrapped.format(call)} FROM R r")
    name = call.partition("(")[0]
    assert error.code == "unsupported-sql"
    assert error.position == (2, wrapped.index("{") + 1)
    assert error.message == f"{name}() is not supported"
    assert error.remedy == f"write {instead}"
    parse_sql("q", f"SELECT {wrapped.format(instead)} FROM R r", sample_streams())


def test_unix_timestamp_with_a_format_and_without_an_argument() -> None:
    error = refusal("SELECT unix_timestamp(s, 'yyyy') AS u FROM R")
    assert error.remedy == (
        "write unix_seconds(CAST(R.s AS TIMESTAMP)) for ISO 8601; read other formats before the "
        "rows enter the stream"
    )
    assert "gives another value each time" in refusal("SELECT unix_timestamp() AS u FROM R").message


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("round(r.x, -1)", "unsupported-sql", "from 0 to 18"),
        ("round(r.x, r.x)", "unsupported-sql", "from 0 to 18"),
        ("round(r.s)", "type-mismatch", "CAST"),
        ("concat_ws(r.s, r.s)", "unsupported-sql", "into the query"),
        ("concat_ws('-', r.x)", "type-mismatch", "CAST"),
        ("greatest(r.x, r.s)", "type-mismatch", "one type"),
        ("greatest(r.x)", "bad-arguments", "check"),
        ("least(true, false)", "type-mismatch", "one type"),
        (f"least({', '.join(['r.x'] * 9)})", "bad-arguments", "check"),
    ],
)
def test_calls_that_are_refused_say_how_to_write_them(call: str, code: str, says: str) -> None:
    error = refusal(f"SELECT {call} AS x FROM R r")
    assert error.code == code
    assert says in error.remedy
