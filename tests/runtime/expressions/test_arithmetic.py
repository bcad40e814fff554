"""Compare arithmetic of intervals with Spark: values, types and texts on random rows, extremes,
failures.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import INTERVALS, DataType, parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.casts import cast
from anabranch_runtime.expressions.evaluate import Fetch, evaluate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2000
_DAY = 86_400_000_000
_FIRST, _LAST = date(1900, 1, 1).toordinal(), date(2100, 12, 31).toordinal()
_TYPES = {
    name: parse_type(kind)
    for name, kind in {
        "m": "timestamp", "p": "timestamp", "n": "timestamp_ntz", "w": "date", "v": "date",
        "i": "interval day to second", "j": "interval day to second", "h": "interval hour",
        "d": "interval day", "y": "interval year to month", "z": "interval year to month",
        "k": "int", "b": "bigint", "x": "double", "f": "float", "e": "decimal(10,3)",
        "s": "string", "t": "string",
    }.items()
}  # fmt: skip
_SCOPE = Scope.of_stream("r", Stream(StreamName("r"), tuple(_TYPES.items())))

#: Operands of moderate size, whose results are in range.
_EXPRESSIONS = [
    "m - p", "n - m", "m - w", "w - n", "w - v", "m + i", "i + n", "n - h", "w + i", "w - h",
    "w + d", "d + w", "w - d", "m + y", "n - z", "w + y", "w - y", "y + w",
    "m + INTERVAL '1' MONTH",
    "m - INTERVAL '1-1' YEAR TO MONTH", "w + INTERVAL 3 MONTHS", "w - INTERVAL '2' YEAR",
    "n + INTERVAL '1 02:03:04.5' DAY TO SECOND", "w + INTERVAL '1' DAY", "w + INTERVAL '36' HOUR",
    "m + INTERVAL '3' WEEK", "m + INTERVAL '1 day 2 hours'", "m - INTERVAL '-1' HOUR",
    "i + j", "i - j", "i + h", "h - d", "h + INTERVAL '5' MINUTE", "d + d", "y + z", "y - z",
    "y + INTERVAL '1' YEAR", "i * 2", "k * i", "i * x", "i * f", "i * e", "h * k", "y * k", "z * x",
    "y * e", "y * f", "i / 7", "i / CAST(-2 AS TINYINT)", "i / x", "i / e", "i / f", "d / k",
    "y / 5", "y / x", "y / e", "z / k", "i / b", "-i", "-y", "-h", "abs(i)", "abs(y)", "sign(i)",
    "sign(y)", "signum(h)", "i DIV j", "i DIV INTERVAL '1' MINUTE", "y DIV INTERVAL '5' MONTH",
    "i > j", "i <= h", "h = d", "y < z", "i <=> j", "y IN (INTERVAL '1' YEAR, INTERVAL '7' MONTH)",
    "i BETWEEN INTERVAL '-1' DAY AND INTERVAL '5' HOUR", "greatest(i, h)", "least(y, z)",
    "coalesce(h, d)", "coalesce(y, INTERVAL '1' MONTH)", "nullif(i, j)", "if(i > j, h, d)",
    "CASE WHEN k > 0 THEN i ELSE INTERVAL '1' HOUR END", "EXTRACT(DAY FROM i)",
    "EXTRACT(HOUR FROM i)", "EXTRACT(MINUTE FROM i)", "EXTRACT(SECOND FROM i)",
    "EXTRACT(SECONDS FROM m - p)", "EXTRACT(YEAR FROM y)", "EXTRACT(MONTHS FROM y)",
    "date_part('hour', h)", "EXTRACT(DAY FROM d)", "CAST(i AS INTERVAL DAY)",
    "CAST(i AS INTERVAL HOUR TO MINUTE)", "CAST(i AS INTERVAL SECOND)", "CAST(y AS INTERVAL YEAR)",
    "CAST(y AS INTERVAL MONTH)", "CAST(h AS INTERVAL DAY TO SECOND)", "CAST(d AS INTERVAL HOUR)",
    "CAST(d AS INT)", "CAST(h AS BIGINT)", "CAST(i AS BIGINT)", "CAST(y AS INT)",
    "CAST(CAST(y AS INTERVAL YEAR) AS SMALLINT)", "CAST(k AS INTERVAL HOUR)",
    "CAST(k AS INTERVAL MONTH)", "CAST(k AS INTERVAL SECOND)", "CAST(s AS INTERVAL DAY TO SECOND)",
    "CAST(t AS INTERVAL YEAR TO MONTH)", "TRY_CAST(t AS INTERVAL DAY TO SECOND)",
    *(f"CAST(CAST(i AS INTERVAL {unit}) AS STRING)" for unit in
      ("DAY", "DAY TO HOUR", "DAY TO MINUTE", "HOUR", "HOUR TO SECOND", "MINUTE",
       "MINUTE TO SECOND", "SECOND")),
    "concat(i, '/', y)", "concat_ws('-', h, d)", "make_dt_interval(k, k, k, e)",
    "make_dt_interval(k, 25)", "make_dt_interval()", "make_ym_interval(k, k)",
    "make_ym_interval(k)", "hash(i, y)", "xxhash64(h, y, i)", "typeof(i - h)", "typeof(w - v)",
    "to_json(named_struct('a', i, 'b', y))", "try_add(i, j)", "try_subtract(y, z)",
    "try_multiply(i, k)", "try_divide(i, k)", "try_add(m, i)", "NULL + i", "m - NULL",
    "CAST(NULL AS INTERVAL HOUR)", "timestampdiff(SECOND, m, m + i)", "m + i * 2 - h",
]  # fmt: skip

#: Operations that overflow on some extremes.
_EXTREMES = [
    "i + j", "i - j", "-i", "abs(i)", "i * 2", "i / k", "i * k", "i * x", "i / x", "i / e", "i * e",
    "y + z", "-y", "abs(y)", "y * k", "y * b", "y / k", "y * x", "y / x", "y / e", "y * e",
    "CAST(i AS STRING)", "CAST(y AS STRING)", "m + i", "m + y", "CAST(i AS INTERVAL DAY)",
    "CAST(i AS INTERVAL MINUTE TO SECOND)", "CAST(i AS INT)", "CAST(k AS INTERVAL YEAR)",
    "CAST(b AS INTERVAL SECOND)", "CAST(k AS INTERVAL DAY)", "i DIV j", "EXTRACT(DAY FROM i)",
    "EXTRACT(SECOND FROM i)", "make_dt_interval(k, k, k, e)", "make_ym_interval(k, k)", "m - p",
    "EXTRACT(MONTH FROM y)", "sign(i)", "i < j",
]  # fmt: skip

_TEXTS = [
    "1 02:03:04", "-1 2:3:4.123456789", "INTERVAL '1 02:03:04' DAY TO SECOND", " 0 0:0:0 ",
    "interval -'1 02:03:04' day  to second", "INTERVAL -'-1 02:03:04.5' DAY TO SECOND", "1",
    "1 24:00:00", "1 23:60:00", "1 23:59:60", "+1 23:59:59", "1-2", "-1-11", "1-12", "+0-5", "x",
    "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL 1 DAY", "1 02:03", "106751991 04:00:54.775807",
    "-106751991 04:00:54.775808", "106751991 04:00:54.775808", "178956970-7", "178956970-8",
    "-178956970-8", "1.5", "", "INTERVAL '1' DAY", "99:99", "100:00:00", "12:34.5",
    "INTERVAL'1'DAY",
    "INTERVAL '+1' HOUR", "9223372036854775807",
]  # fmt: skip


def _table(rng: Random) -> pa.Table:
    def column(name: str, make: Any) -> pa.Array:
        values = [None if rng.random() < 0.05 else make() for _ in range(ROWS)]
        return pa.array(values, arrow_type(_TYPES[name]))

    def length() -> int:
        return rng.randrange(-(10 ** rng.randrange(1, 15)), 10 ** rng.randrange(1, 15))

    def text() -> str:
        days, rest = rng.randrange(999), rng.randrange(24 * 3600)
        clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        return f"{rng.choice('+- ').strip()}{days} {clock}.{rng.randrange(1, 10**6)}"

    def other() -> str:
        return f"{rng.choice('+- ').strip()}{rng.randrange(9999)}-{rng.randrange(12)}"

    def number(most: int) -> Any:
        return lambda: rng.choice([-1, 1]) * rng.randrange(1, most)

    makers = {
        "m": lambda: rng.randrange(-(10**15), 4 * 10**15),
        "p": lambda: rng.randrange(-(10**15), 4 * 10**15),
        "n": lambda: rng.randrange(-(10**15), 4 * 10**15),
        "w": lambda: date.fromordinal(rng.randrange(_FIRST, _LAST)),
        "v": lambda: date.fromordinal(rng.randrange(_FIRST, _LAST)),
        "i": length,
        "j": number(10**13),
        "h": lambda: rng.randrange(-10_000, 10_000) * 3_600_000_000,
        "d": lambda: rng.randrange(-1000, 1000) * _DAY,
        "y": lambda: rng.randrange(-(10 ** rng.randrange(1, 4)), 10 ** rng.randrange(1, 4)),
        "z": lambda: rng.randrange(-100, 100),
        "k": number(40),
        "b": number(10**15),
        "x": lambda: rng.choice([-1, 1]) * rng.choice([0.5, 1.5, 2.5, 3.0, rng.uniform(0.1, 99)]),
        "f": lambda: rng.choice([-1, 1]) * rng.choice([0.5, 1.5, 0.1, rng.uniform(0.1, 99)]),
        "e": lambda: Decimal(rng.choice([-1, 1]) * rng.choice([500, 2500, rng.randrange(1, 10**5)]))
        .scaleb(-3),
        "s": text,
        "t": other,
    }  # fmt: skip
    return pa.table({name: column(name, make) for name, make in makers.items()})


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows in Spark; intervals of months, which Arrow can't transfer, are made of numbers."""
    kinds = {n: "int" if n in "yz" else str(kind) for n, kind in _TYPES.items()}
    kinds |= dict.fromkeys("hd", "interval day to second")
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    frame = spark.createDataFrame(table, schema=schema).coalesce(1)
    shown = [f"CAST({n} AS {_TYPES[n]}) AS {n}" if n in "hd" else
             f"make_ym_interval(0, {n}) AS {n}" if n in "yz" else n for n in kinds]  # fmt: skip
    return frame.selectExpr(*shown)


def _fetched(table: pa.Table) -> Fetch:
    """Return the columns of ``table`` for expressions."""
    return lambda column: table.column(column.name)


def _expr(text: str) -> Expr:
    return typed(parse_expression(text), _SCOPE)


def _plain(column: pa.Array, kind: DataType) -> list[Any]:
    """Return comparable values: texts of intervals, numbers of times, texts of floats."""
    if kind.kind in INTERVALS:
        column = cast(column, kind, parse_type("string"))
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [repr(v) if isinstance(v, float) else v for v in column.to_pylist()]


def _asked(text: str, kind: DataType) -> str:
    return f"CAST({text} AS STRING)" if kind.kind in INTERVALS else text


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_intervals_are_those_of_spark_on_random_rows(spark: SparkSession, seed: int) -> None:
    table = _table(Random(seed))
    frame = _frame(spark, table)
    exprs = {text: _expr(text) for text in _EXPRESSIONS}
    types = frame.limit(1).selectExpr(*(f"typeof({t}) AS c{n}" for n, t in enumerate(_EXPRESSIONS)))
    for (text, expr), kind in zip(exprs.items(), types.collect()[0], strict=True):
        assert str(expr.type) == kind, text
    listed = [f"{_asked(t, e.type)} AS c{n}" for n, (t, e) in enumerate(exprs.items())]
    answer = frame.selectExpr(*listed).toArrow()
    wrong = list[tuple[Any, ...]]()
    for n, (text, expr) in enumerate(exprs.items()):
        found = evaluate(expr, _fetched(table), table.num_rows)
        wanted = _plain(answer.column(n).combine_chunks(), parse_type("string"))
        pairs = enumerate(zip(wanted, _plain(found, expr.type), strict=True))
        rows = [(row, want, have) for row, (want, have) in pairs if want != have]
        wrong += [(text, len(rows), table.slice(row, 1).to_pylist(), want, have)
                  for row, want, have in rows[:1]]  # fmt: skip
    assert wrong == []


def _ends(rng: Random) -> pa.Table:
    """Return rows of extreme values."""
    long, short = (2**63 - 1, -(2**63)), (2**31 - 1, -(2**31))
    choices: dict[str, list[Any]] = {
        "i": [*long, long[0] - 1, 1, -1, 0, 500_000, -1_500_000],
        "j": [*long, 1, -1, 999, 10**15],
        "y": [*short, 1, -1, 0, 13, -30],
        "z": [*short, 1, -1, 7],
        "k": [*short, 1, -1, 2, 3, 0],
        "b": [*long, 1, -1, 2, 10**10],
        "x": [1.0, -1.0, 0.5, 1e300, -1e-300, float("nan"), float("inf"), 2.0, 0.0],
        "e": [Decimal("0.500"), Decimal("-1.000"), Decimal("9999999.999"), Decimal(0)],
        "m": [0, 10**15, *long],
        "p": [0, -(10**15), *long],
    }
    rows = 40
    return pa.table({
        name: pa.array([rng.choice(choices.get(name, [None])) for _ in range(rows)],
                       arrow_type(kind))
        for name, kind in _TYPES.items()
    })  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("text", _EXTREMES)
def test_extremes_are_sparks_or_fail_as_in_spark(spark: SparkSession, text: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    table, expr = _ends(Random(5)), _expr(text)
    found: dict[int, Any] = {}
    for row in range(table.num_rows):
        piece = table.slice(row, 1)
        try:
            values = evaluate(expr, _fetched(piece), 1)
        except ExpressionError:
            continue
        found[row] = _plain(values, expr.type)[0]

    def asked(rows: list[int]) -> list[Any]:
        named = f"{_asked(text, expr.type)} AS c"
        answer = _frame(spark, table.take(rows)).selectExpr(named).toArrow()
        return _plain(answer.column(0).combine_chunks(), parse_type("string"))

    assert asked(list(found)) == list(found.values())
    for row in [row for row in range(table.num_rows) if row not in found][:1]:
        with pytest.raises((PySparkException, Py4JJavaError)):
            asked([row])


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["interval day to second", "interval year to month",
                                  "interval day", "interval hour", "interval second",
                                  "interval hour to minute", "interval minute to second",
                                  "interval day to minute", "interval month"])  # fmt: skip
def test_texts_are_read_as_by_spark(spark: SparkSession, kind: str) -> None:
    target = parse_type(kind)
    frame = spark.createDataFrame([(t,) for t in _TEXTS], "s string").coalesce(1)
    wanted = [r[0] for r in frame.selectExpr(f"CAST(TRY_CAST(s AS {kind}) AS STRING)").collect()]
    expr = typed(parse_expression(f"TRY_CAST(s AS {kind.upper()})"), _SCOPE)
    found = evaluate(expr, lambda _: pa.array(_TEXTS), len(_TEXTS))
    assert dict(zip(_TEXTS, _plain(found, target), strict=True)) == dict(
        zip(_TEXTS, wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("i + y", "type-mismatch"),
        ("i = y", "type-mismatch"),
        ("i * i", "type-mismatch"),
        ("i / j", "type-mismatch"),
        ("2 / i", "type-mismatch"),
        ("i % 2", "type-mismatch"),
        ("i + 1", "type-mismatch"),
        ("k - i", "type-mismatch"),
        ("hour(i)", "type-mismatch"),
        ("CAST(i AS DOUBLE)", "type-mismatch"),
        ("CAST(k AS INTERVAL DAY TO SECOND)", "type-mismatch"),
        ("CAST(y AS INTERVAL DAY)", "type-mismatch"),
        ("EXTRACT(DAY FROM h)", "unsupported-sql"),
        ("EXTRACT(WEEK FROM i)", "unsupported-sql"),
        ("INTERVAL '1 month 2 days'", "bad-interval"),
        ("INTERVAL '9223372036854775807' SECOND", "bad-interval"),
        ("INTERVAL '1.5' HOUR", "bad-interval"),
        ("INTERVAL '1-12' YEAR TO MONTH", "bad-interval"),
        ("INTERVAL '1 2' MONTH TO DAY", "bad-interval"),
        ("INTERVAL '1' DAY * 200000000", "bad-literal"),
        ("CAST('1 25:00:00' AS INTERVAL DAY TO SECOND)", "bad-literal"),
    ],
)
def test_refusals(text: str, code: str) -> None:
    with pytest.raises(QueryError) as raised:
        _expr(text)
    assert raised.value.code == code
    assert raised.value.remedy
