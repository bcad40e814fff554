"""Tests of values made to exhaust a worker: evaluation ends soon, with a value or a failing
expression.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate

#: Number of nested brackets, number of an array's elements, and maximum CPU seconds of a batch.
DEEP, MANY, SECONDS = 100_000, 1_000_000, 10.0
#: Invalid or nearly valid JSON texts.
NONE = [
    "", " ", "{", "[1,", '{"a"}', '{"a":}', '{"a":1,}', "nul", "tru", "1 2", '"', '"\\u12"', "\x00",
    '{"a":1}}', "{'a':1}", "NaN", "[1]x", '{"a":1,"a":2}', "\ufeff{}", "-", "01", "1e", ".5", None,
]  # fmt: skip


def value(text: str, kind: str, values: list[Any]) -> pa.Array:
    """Return the values of an expression over column ``x``, computed within :data:`SECONDS`."""
    stream = Stream(StreamName("r"), (("x", parse_type(kind)),))
    expr = typed(parse_expression(text), Scope.of_stream("r", stream))
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
    began = time.process_time()
    try:
        return evaluate(expr, lambda _: column, len(column))
    finally:
        assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "get_json_object(x, '$.a')",
        "get_json_object(x, '$.a.b[0]')",
        "from_json(x, 'a INT, b ARRAY<STRING>').a",
        "variant_get(try_parse_json(x), '$.a', 'int')",
        "x:a",
    ],
)
def test_texts_that_are_no_json_have_no_parts(text: str) -> None:
    found = value(text, "string", NONE).to_pylist()
    # Functions that read a part may stop there: they return the part's text or nothing.
    assert {str(one) for one in found} <= {"None", "1", "2"}
    assert found[: NONE.index("\x00")] == [None] * NONE.index("\x00")


def test_texts_that_are_no_json_fail_parse_json() -> None:
    # As in Spark, what follows the first value is not read.
    for text in {*NONE} - {None, "1 2", '{"a":1}}', "[1]x"}:
        with pytest.raises(ExpressionError) as caught:
            value("to_json(parse_json(x))", "string", [text])
        assert caught.value.code == "bad-json", text
        assert caught.value.remedy


@pytest.mark.parametrize("opened", ["[", '{"a":'])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "get_json_object(x, '$.a')",
        "get_json_object(x, '$[0][0].a')",
        "from_json(x, 'a STRING').a",
        "from_json(x, 'a ARRAY<STRING>').a",
        "to_json(try_parse_json(x))",
        "schema_of_variant(try_parse_json(x))",
        "to_json(parse_json(x))",
        "x:a.a.a",
    ],
)
def test_deep_nesting_ends_in_a_value_or_a_failure(text: str, opened: str, closed: bool) -> None:
    end = ("]" if opened == "[" else "}") * DEEP if closed else ""
    with suppress(ExpressionError):
        assert len(value(text, "string", [f"{opened * DEEP}1{end}", '{"a":1}'])) == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("size(x)", MANY),
        ("size(filter(x, e -> e % 2 = 0))", MANY // 2),
        ("size(transform(x, e -> e * 2))", MANY),
        ("size(array_distinct(x))", MANY),
        ("array_max(x)", MANY - 1),
        ("element_at(sort_array(x, false), 1)", MANY - 1),
        ("array_contains(x, 999999)", True),
        ("exists(x, e -> e < 0)", False),
        ("size(array_union(x, x))", MANY),
        ("size(array_except(x, x))", 0),
        ("size(concat(x, x))", 2 * MANY),
        ("size(map_from_arrays(x, x))", MANY),
        ("length(array_join(x, ','))", 6_888_889),
    ],
)
def test_arrays_of_a_million(text: str, wanted: object) -> None:
    column = pa.array([list(range(MANY)), None, []], pa.list_(pa.int32()))
    column = column.slice(0, 2) if "element_at" in text else column
    assert value(text, "array<int>", column)[0].as_py() == wanted


def test_longer_arrays_are_not_aggregated() -> None:
    column = pa.array([list(range(MANY))], pa.list_(pa.int32()))
    with pytest.raises(ExpressionError) as caught:
        value("aggregate(x, 0L, (a, e) -> a + e)", "array<int>", column)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "x RLIKE '^(a+)+$'",
        "x RLIKE '(a|a)*b'",
        "x RLIKE '(a*)*c'",
        "x RLIKE '^(([a-z])+.)+[A-Z]([a-z])+$'",
        "regexp_replace(x, '(a|aa)+$', 'b') = 'b'",
        "regexp_extract(x, '^(a?){30}a{30}c', 0) = 'c'",
        "regexp_count(x, '(a+)+b') > 0",
        "size(split(x, '(a+)+b')) > 1",
        "x LIKE '%a%a%a%a%a%a%a%a%b'",
    ],
)
def test_patterns_that_explode_elsewhere_are_linear(text: str) -> None:
    assert value(text, "string", ["a" * 100_000 + "!", "b", None]).to_pylist()[0] is False


@pytest.mark.parametrize("text", ["x RLIKE '((a{1000}){1000}){1000}'", "x RLIKE '(?:x{50}b){21}'"])
def test_patterns_that_are_too_large_are_refused(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        value(text, "string", ["a"])
    assert caught.value.remedy


def test_repetitions_up_to_the_limit_are_read() -> None:
    for pattern in ("(?:x{50}b){20}", "(a{9}){9}b{900}", "(x{1000}|y){0}"):
        assert value(f"x RLIKE '^{pattern}$'", "string", ["z"]).to_pylist() == [False]


def test_hours_that_occur_twice_and_hours_that_are_skipped() -> None:
    local = ["2024-10-27 02:30:00", "2024-03-31 02:30:00"]
    column = pa.array(local, pa.string())
    moments = value("to_utc_timestamp(CAST(x AS TIMESTAMP), 'Europe/Oslo')", "string", column)
    assert [one.strftime("%d %H:%M") for one in moments.to_pylist()] == ["27 00:30", "31 01:30"]
    later = value("CAST(x AS TIMESTAMP_NTZ) AT TIME ZONE 'Europe/Oslo'", "string", column)
    assert [one.strftime("%d %H:%M") for one in later.to_pylist()] == ["27 01:30", "31 01:30"]
    for zone in ("Mars/Base", "Europe/Osl", "", "+25:00", "CET+9:99"):
        with pytest.raises(QueryError) as caught:
            value(f"from_utc_timestamp(CAST(x AS TIMESTAMP), '{zone}')", "string", column)
        assert (caught.value.code, bool(caught.value.remedy)) == ("bad-literal", True), zone
