"""Compare SQL functions with Spark on 10,000 random rows, with NULL and extremes."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
_LETTERS = "aabbcxyzAB  .,-_0129é%ßΣ\n\té😀'\"{}:[]"
_FIRST, _LAST = date(1, 1, 1).toordinal(), date(9999, 12, 31).toordinal()
_JSON = ['{"a": 1}', '{"a": {"b": "x"}}', "[1, 2]", '{"a": [true, null]}', '{"a" 1}', "", '"a"']


def _table(rng: Random) -> pa.Table:
    def column(make: Any, kind: pa.DataType, extremes: list[Any]) -> pa.Array:
        values = [None, *extremes, *(make() for _ in range(ROWS - 1 - len(extremes)))]
        return pa.array([None if rng.random() < 0.03 else value for value in values], kind)

    def text() -> str:
        return "".join(rng.choice(_LETTERS) for _ in range(rng.choice([0, 1, 2, 5, 9, 20])))

    def micros() -> int:
        near = rng.random() < 0.7
        return (
            rng.randrange(-(10**16), 4 * 10**15)
            if near
            else rng.randrange(-(6 * 10**16), 2 * 10**17)
        )

    ends = [-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0]
    return pa.table(
        {
            "s": column(text, pa.string(), ["", " ", "\n"]),
            "u": column(lambda: rng.choice(["a", "ab", ".", "xy", "é", ""]), pa.string(), []),
            "g": column(lambda: rng.choice(_JSON), pa.string(), []),
            "i": column(lambda: rng.randrange(-400, 400), pa.int32(), [0]),
            "b": column(
                lambda: rng.randrange(-(10 ** rng.randrange(1, 17)), 10**15), pa.int64(), [0, -1]
            ),
            "x": column(
                lambda: rng.choice(
                    [rng.uniform(-1e3, 1e3), rng.gauss(0, 1e12), float(rng.randrange(9))]
                ),
                pa.float64(),
                [0.0, -0.0, math.nan, 1.0, -1.0],
            ),
            "d": column(
                lambda: Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2), pa.decimal128(12, 2), []
            ),
            "w": column(
                lambda: date.fromordinal(rng.randrange(_FIRST + 40_000, _LAST - 40_000)),
                pa.date32(),
                [date(2020, 2, 29), date(1900, 2, 28), date(2000, 12, 31)],
            ),
            "m": column(micros, pa.timestamp("us", "UTC"), ends),
            "n": column(micros, pa.timestamp("us"), ends),
        }
    )


_FORMATS = (
    "9", "999", "000", "S99999", "99999S", "MI9,999,999.99", "9,999,999,999.99MI",
    "$99,999,999.99PR", "$9G999G999G999D99", "000000000000.00", "0,000.000S", ".99", "9.", "99.S",
    "S$0,099.9", "999PR", "09,999,999,999.9", "9,099,999.00", "s9,9,9,9,9,9,9,9.99999",
)  # fmt: skip
_EXPRESSIONS = [
    *(f"date_trunc('{unit}', m)" for unit in ("year", "quarter", "month", "week", "day", "hour",
                                              "minute", "second", "millisecond")),
    *(f"trunc(w, '{unit}')" for unit in ("year", "quarter", "month", "week")),
    *(f"timestampdiff({unit}, m, n)" for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR",
                                                  "MINUTE", "SECOND", "MILLISECOND")),
    *(f"timestampadd({unit}, i, TIMESTAMP '2024-01-31 10:20:30.5')" for unit in
      ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "SECOND")),
    *(f"{name}(w)" for name in ("last_day", "dayofweek", "weekday", "dayofyear", "weekofyear",
                                "quarter", "dayname", "monthname", "unix_date")),
    "add_months(w, i)", "date_add(w, i)", "date_sub(w, i)", "datediff(w, m)", "unix_timestamp(m)",
    "months_between(m, n)", "months_between(w, m)", "EXTRACT(SECOND FROM m)",
    "EXTRACT(WEEK FROM m)", "EXTRACT(DOW FROM m)", "from_unixtime(i)",
    "date_format(m, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "date_format(m, 'd MMM yy, h.m a')",
    "date_format(w, 'EEEE D QQQ')", "date_format(n, 'k:K E MMMM y')",
    "to_timestamp(date_format(m, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')",
    "to_timestamp(date_format(m, 'ddMMyyyyHHmm'), 'ddMMyyyyHHmm')",
    "to_timestamp_ntz(date_format(n, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')",
    "to_timestamp_ntz(CAST(n AS STRING))", "to_timestamp_ltz(CAST(m AS STRING))",
    "to_timestamp_ntz(m)", "CAST(n AS TIMESTAMP)", "CAST(m AS TIMESTAMP_NTZ)",
    "to_timestamp(date_format(m, 'd/M/yyyy h:m:s a'), 'd/M/yyyy h:m:s a')",
    "to_date(date_format(w, 'dd MMM yyyy'), 'dd MMM yyyy')",
    "floor(x)", "ceil(x)", "floor(d)", "ceil(d)", "round(x, 2)", "round(d, 1)", "sqrt(x)",
    "sign(x)", "sign(d)", "isnan(x)", "pmod(i, 7)", "pmod(b, 1000)", "pmod(x, 3)", "b DIV 7",
    "d DIV 3", "degrees(x)", "try_divide(x, i)", "log10(100)", "power(i, 2)",
    "replace(s, 'a', 'xy')", "replace(s, u, '-')", "split_part(s, 'a', 2)", "split_part(s, ' ', 1)",
    "split_part(s, 'ab', -1)", "split_part(s, u, 1)", "lpad(s, 8, '*')", "rpad(s, 8, 'ab')",
    "lpad(s, i, 'é')", "ltrim(s)", "rtrim(s)", "btrim(s, 'a ')", "trim(LEADING 'ab' FROM s)",
    "initcap(s)", "lower(s)", "upper(s)", "instr(s, 'b')", "instr(s, u)", "locate(u, s, 3)",
    "locate('a', s, i)", "reverse(s)", "repeat(u, i)", "translate(s, 'abé', 'xy')", "ascii(s)",
    "chr(i)", "substring_index(s, 'a', 2)", "substring_index(s, 'a', -2)",
    "substring_index(s, u, i)", "md5(s)", "sha1(s)", "sha2(s, 256)", "sha2(s, i)", "crc32(s)",
    "base64(s)", "concat_ws('/', s, u, i)", "concat(s, b, d)", "left(s, 3)", "right(s, 3)",
    "substring(s, i, 4)", "length(s)", "s RLIKE '[ab]+\\\\s'", "s RLIKE '^.*$'", "s RLIKE 'a.b'",
    "s RLIKE '(?i)AB'", "s RLIKE '[^\\\\w]$'", "regexp_extract(s, '([a-z]+)([0-9]+)', 2)",
    "regexp_extract(s, '(a|ab)(.?)', 2)", "regexp_extract(s, '.+', 0)",
    "regexp_replace(s, '[ab]+', '<$0>')", "regexp_replace(s, '(\\\\w)(\\\\W)', '$2$1')",
    "regexp_replace(s, '^\\\\s+', '')", "regexp_count(s, 'a')", "get_json_object(g, '$.a')",
    "get_json_object(g, '$.a.b')", "get_json_object(g, '$[1]')", "TRY_CAST(s AS INT)",
    "bin(b)", "bin(i)", "conv(s, 16, 10)", "conv(b, 10, 36)", "conv(b, 10, -7)", "conv(i, 8, i)",
    "soundex(s)", "xxhash64(s)", "xxhash64(s, b, x, d, w, m, i)", "xxhash64(repeat(s, 5), i)",
    "hash(s, CAST(i AS STRING), u)", "overlay(s PLACING u FROM i FOR 2)", "overlay(s, 'xy', 3)",
    "overlay(s, u, i, i)", "substring(s FROM 2 FOR i)", "substr(s FROM i)",
    "format_string('%5s|%-9.3s|%s', s, u, i)", "format_string('%08d|%+,d|%x', b, b, i)",
    "format_string('%.2f|%+12.3f|%,.1f|%s', x, x, x, u)", "printf('%2$s %1$d%%', b, s)",
    "make_timestamp(2000 + i, 2, 28, 23, 59, d / d * 9.25)",
    "make_timestamp(2024 + i % 30, 3, 31, 2, 30, 0.5, 'Europe/Berlin')",
    "convert_timezone('Asia/Tokyo', make_timestamp_ntz(2000 + i % 90, 1, 2, 3, 4, 5))",
    "TRY_CAST(s AS DOUBLE)", "TRY_CAST(b AS INT)", "TRY_CAST(x AS INT)", "s IS DISTINCT FROM u",
    "greatest(i, b, d)", "least(x, i)",
    *(f"to_char({value}, '{form}')" for form in _FORMATS for value in ("i", "b", "d")),
    *(f"to_char({value} % 1000000, '{form}')" for form in _FORMATS[-6:] for value in ("d", "b")),
    "to_char(CAST(i AS DOUBLE) / 8, 'S990.99999')", "to_char(CAST(i AS FLOAT) / 8, '999.999PR')",
    "to_varchar(m, 'yyyy-MM-dd HH:mm')", "to_char(n, 'HH:mm')", "to_char(w, 'd MMM yyyy')",
    "to_char(CAST(s AS BINARY), 'hex')", "to_varchar(CAST(s AS BINARY), 'Base64')",
]  # fmt: skip


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [repr(v) if isinstance(v, float) else v for v in column.to_pylist()]


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_functions_are_those_of_spark_on_random_rows(spark: SparkSession, seed: int) -> None:
    table = _table(Random(seed))
    columns = tuple((f.name, spark_type(f.type)) for f in table.schema)
    scope = Scope.of_stream("r", Stream(StreamName("r"), columns))
    schema = ", ".join(f"{name} {kind}" for name, kind in columns)
    frame = spark.createDataFrame(table, schema=schema).coalesce(1)
    listed = [f"{text} AS c{k}" for k, text in enumerate(_EXPRESSIONS)]
    answer = frame.selectExpr(*listed).toArrow()
    wrong = list[tuple[Any, ...]]()
    for k, text in enumerate(_EXPRESSIONS):
        expr = typed(parse_expression(text), scope)
        try:
            found = evaluate(expr, lambda c: table.column(c.name), table.num_rows)
        except ExpressionError as error:
            wrong.append((text, str(error)))
            continue
        assert spark_type(answer.schema.field(k).type) == expr.type, text
        pairs = zip(_values(answer.column(k)), _values(found), strict=True)
        rows = [(n, want, have) for n, (want, have) in enumerate(pairs) if want != have]
        wrong += [(text, len(rows), table.slice(n, 1).to_pylist(), want, have)
                  for n, want, have in rows[:1]]  # fmt: skip
    assert wrong == []
