"""Tests of functions' arguments: implicit casts, and refusals with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding import typecheck
from anabranch_planner.binding.functions.rewrites import REWRITINGS
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql import functions
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression

COLUMNS = {
    "s": "string", "k": "bigint", "i": "int", "x": "double", "d": "decimal(10,2)", "w": "date",
    "m": "timestamp", "n": "timestamp_ntz", "p": "boolean", "h": "binary",
}  # fmt: skip
SCOPE = Scope.of_stream(
    "r",
    Stream(StreamName("r"), tuple((name, parse_type(kind)) for name, kind in COLUMNS.items())),
)


def expression(text: str) -> Expr:
    return typed(parse_expression(text), SCOPE)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("replace(k, 1, i)", "replace(cast(r.k as string), '1', cast(r.i as string))"),
        ("replace(s, 'a')", "replace(r.s, 'a', '')"),
        ("date_trunc('MON', w)", "date_trunc('month', cast(r.w as timestamp))"),
        ("date_add('2024-01-31', 1)", "date_add(date'19753', 1)"),
        ("date_sub(m, i)", "date_add(cast(r.m as date), - (r.i))"),
        ("datediff(DAY, w, m)", "timestampdiff('day', cast(r.w as timestamp), r.m)"),
        ("timestampadd(hours, 1, n)", "timestampadd('hour', 1, r.n)"),
        ("ceil(i)", "cast(r.i as bigint)"),
        ("sqrt(d)", "sqrt(cast(r.d as double))"),
        ("lpad(s, NULL)", "NULL"),
        ("regexp_extract(s, '(a)')", "regexp_extract(r.s, '(a)', 1)"),
        ("TRY_CAST(s AS INT)", "try_cast(r.s as int)"),
        ("try_add(i, 1)", "try((r.i + 1))"),
        ("split(s, ',')[0]", "split(r.s, ',')[0]"),
        ("s IS DISTINCT FROM 'a'", "NOT((r.s <=> 'a'))"),
        ("i & 3 | 4", "((r.i & 3) | 4)"),
    ],
)
def test_arguments_are_cast_as_spark_casts_them(text: str, made: str) -> None:
    assert str(expression(text)).replace("neg", "-") in (made, made.replace("- (r.i)", "-(r.i)"))


@pytest.mark.parametrize(
    ("text", "code", "message", "remedy"),
    [
        ("date_trunc('fortnight', m)", "bad-literal", "no such unit", "'year'"),
        ("date_trunc(s, m)", "unsupported-sql", "not a literal", "write it out"),
        ("date_trunc('day', s)", "type-mismatch", "takes a timestamp", "CAST(r.s AS TIMESTAMP)"),
        ("trunc(w, 'day')", "bad-literal", "no such unit", "'month'"),
        ("date_format(m, 'YYYY')", "bad-literal", "YYYY is not supported", "yyyy-MM-dd"),
        ("to_timestamp(s, 'hh')", "bad-literal", "AM or PM", "to_timestamp(x"),
        ("to_timestamp(k)", "type-mismatch", "takes a text", "timestamp_seconds"),
        ("date_add(w, k)", "type-mismatch", "takes an integer", "CAST(r.k AS INT)"),
        ("date_add(s, 1)", "type-mismatch", "takes a date", "CAST(r.s AS DATE)"),
        ("from_utc_timestamp(m, 'Mars/Base')", "bad-literal", "time zone", "Europe/Berlin"),
        ("next_day(w, 'noday')", "bad-literal", "no such day", "MON"),
        ("s RLIKE '(?=a)'", "bad-literal", "groups are", "without lookaround"),
        ("s RLIKE s", "unsupported-sql", "not a literal", "write it out"),
        ("regexp_extract(s, 'a', 1)", "bad-literal", "0 groups", "write 0"),
        ("regexp_extract(s, 'a', i)", "unsupported-sql", "not a literal", "number"),
        ("regexp_replace(s, 'a', '$1')", "bad-literal", "no group", "$1"),
        ("regexp_replace(s, 'a*', 'x')", "bad-literal", "empty text", "+ instead"),
        ("split(s, '')[0]", "bad-literal", "empty text", "+ instead"),
        ("element_at(s, 1)", "type-mismatch", "takes an array", "split("),
        ("get_json_object(s, 'a')", "bad-literal", "begin with $", "'$.a.b[0]'"),
        ("parse_url(s, 'host')", "bad-literal", "no such part", "HOST"),
        ("replace(h, 'a', 'b')", "type-mismatch", "takes a text", "CAST(r.h AS STRING)"),
        ("floor(s)", "type-mismatch", "takes a number", "CAST(r.s AS DOUBLE)"),
        ("i & x", "type-mismatch", "takes an integer", "CAST(r.x AS BIGINT)"),
        ("greatest(p, p)", "type-mismatch", "no order", "cast"),
        ("lpad(s)", "bad-arguments", "2 to 3", "write lpad() with 2 to 3 arguments"),
        ("uuid()", "unsupported-sql", "another value each time", "key"),
        ("nosuch(s)", "unknown-function", "nosuch()", "docs/sql.md"),
        ("initcp(s)", "unknown-function", "initcp()", "'initcap'"),
    ],
)
def test_refusals_name_the_remedy(text: str, code: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as caught:
        expression(text)
    error = caught.value
    assert error.code == code, error
    assert message in error.message, error
    assert remedy in error.remedy, error


def test_the_documentation_lists_every_function() -> None:
    text = (Path(__file__).parents[4] / "docs" / "sql.md").read_text()
    section = text.split("### Functions")[1].split("Values are Spark")[0]
    listed = {
        n for part in re.findall("`([^`]*)`", section) for n in re.findall(r"\b[a-z_0-9]+\b", part)
    }
    known = {*REWRITINGS, *functions._FUNCTIONS, *functions.MEETING, *typecheck.BY_MEETING, "if"}
    assert known - listed == set()
    words = {"x", "s"}
    assert {n for n in listed if not n.isdigit()} - known == words
