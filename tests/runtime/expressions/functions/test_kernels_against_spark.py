"""Every SQL function against Spark: values, types and failing rows, on 10,000 random rows if slow.

Spark evaluates each expression within its ``TryEval``: a row on which the expression fails is NULL
there, another row has a struct with the value. Here, rows that fail in Spark must fail one by one,
and all others together must have Spark's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch_contract.queries.expressions import Expr, dated
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate
from tests.runtime.expressions.functions.random_rows import COLUMNS, TYPES, table
from tests.runtime.expressions.functions.spark_cases import CASES, Case

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

Mask = np.ndarray[Any, np.dtype[np.bool_]]
#: Rows of slow tests, and of the others.
ROWS, FEW = 10_000, 500
#: Least share of rows with a value, and least number of values, of an expression: else it would
#: compare little.
SHARE, VALUES = 0.15, 3
#: Expressions that Spark evaluates in one statement.
TOGETHER = 40
#: Value of ``current_timestamp``.
NOW = 1_700_000_000_123_456
_NOW_TEXT = "TIMESTAMP '2023-11-14 22:13:20.123456'"
_CURRENT = re.compile(r"\b(?:now|current_timestamp)\(\)")
_TODAY = re.compile(r"\b(?:curdate|current_date)\(\)")
_NUMERAL = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?(?:E-?[0-9]+)?")
_SCOPE = Scope.of_stream("row", Stream(StreamName("row"), tuple(TYPES.items())))


def _tried(spark: SparkSession, text: str) -> SparkColumn:
    """The expression in a struct, NULL where it fails."""
    from pyspark.sql.classic.column import Column

    session, jvm = spark._jsparkSession, spark._jvm
    assert jvm is not None
    parsed = session.sessionState().sqlParser().parseExpression(f"named_struct('x', {text})")
    kept = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(kept))


def _in_spark(case: Case) -> str:
    text = _CURRENT.sub(_NOW_TEXT, case.spark or case.text)
    return _TODAY.sub("DATE '2023-11-14'", text)


@dataclass(frozen=True, slots=True)
class Answer:
    """Spark's answer to a case.

    Attributes:
        kept: the values, in structs. ``sound``: whether a row does not fail.
        but: whether a row may differ.
    """

    kept: pa.Array
    sound: Mask
    but: Mask

    def values(self, rows: Any) -> pa.Array:
        """The values on certain rows."""
        return pc.struct_field(self.kept, "x").take(pa.array(rows))


def _answers(spark: SparkSession, frame: DataFrame, cases: Sequence[Case]) -> Iterator[Answer]:
    """Spark's answer to each case."""
    for start in range(0, len(cases), TOGETHER):
        some = cases[start : start + TOGETHER]
        asked = list[Any]()
        for n, one in enumerate(some):
            text = _in_spark(one)
            text = f"if({one.fails}, NULL, {text})" if one.fails else text
            conditions = {"b": one.but, "f": one.fails}
            texts = {"c": text, **{name: held for name, held in conditions.items() if held}}
            asked += [_tried(spark, made).alias(f"{name}{n}") for name, made in texts.items()]
        answer = frame.select(*asked).toArrow().combine_chunks()

        def held(name: str, answer: pa.Table = answer) -> Mask:
            if name not in answer.column_names:
                return np.zeros(len(answer), np.bool_)
            return _mask(pc.fill_null(pc.struct_field(answer.column(name), "x"), False))

        for n in range(len(some)):
            kept = answer.column(f"c{n}").combine_chunks()
            yield Answer(kept, _mask(kept.is_valid()) & ~held(f"f{n}"), held(f"b{n}"))


def _mask(column: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _evaluated(expr: Expr, rows: pa.Table) -> pa.Array:
    found = evaluate(expr, lambda column: rows.column(column.name).combine_chunks(), len(rows))
    found.validate(full=True)
    return found


def _comparable(value: Any) -> Any:
    """Values that compare as they look: NaN with NaN, but 0.0 not with -0.0; maps without order."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: _comparable(one) for key, one in value}
    return [_comparable(one) for one in value] if isinstance(value, list) else value


def _plain(column: pa.Array) -> list[Any]:
    """Python's values, but numbers for times, whose years Python does not all have."""
    return [_comparable(one) for one in _numbers(column).to_pylist()]


def _numbers(column: pa.Array) -> pa.Array:
    """Times as numbers, also within arrays."""
    kind = column.type
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        return column.cast(pa.list_(pa.int64()))
    return column


def _read_numbers(text: str | None, kind: type[np.floating[Any]]) -> str | None:
    """The text with the numbers in it written uniformly."""
    if text is None:
        return None
    with np.errstate(over="ignore"):
        return _NUMERAL.sub(lambda found: repr(kind(found.group().replace(",", ""))), text)


def _alike(want: str | None, have: str | None) -> bool:
    return any(_read_numbers(want, k) == _read_numbers(have, k) for k in (np.float64, np.float32))


def _near(wanted: pa.Array, found: pa.Array, bits: int) -> Mask:
    """Whether doubles are equal but for a few last bits."""
    both = pc.and_(wanted.is_valid(), found.is_valid()).to_numpy(zero_copy_only=False)
    neither = pc.and_(wanted.is_null(), found.is_null()).to_numpy(zero_copy_only=False)
    one, other = (c.fill_null(0.0).to_numpy(zero_copy_only=False) for c in (wanted, found))
    with np.errstate(all="ignore"):
        near = (one == other) | (np.isnan(one) & np.isnan(other))
        step = np.spacing(np.maximum(np.abs(one), np.abs(other)))
        near |= np.abs(one - other) <= bits * step
    return np.asarray((both & near) | neither, np.bool_)


def _has_floats(kind: pa.DataType) -> bool:
    """Whether the type has doubles within, whose zeros Arrow does not distinguish."""
    return any(text in str(kind) for text in ("double", "float"))


def _equal(wanted: pa.Array, found: pa.Array, case: Case) -> Mask:
    """Whether values are equal, row by row."""
    if case.last_bits:
        return _near(wanted, found, case.last_bits)
    one, other = _numbers(wanted), _numbers(found)
    if pa.types.is_floating(one.type) and one.type == other.type:
        valid = _mask(one.is_valid()) & _mask(other.is_valid())
        some, others = (c.fill_null(0.0).to_numpy(zero_copy_only=False) for c in (one, other))
        bits = f"i{some.dtype.itemsize}"
        alike = (some.view(bits) == others.view(bits)) | (np.isnan(some) & np.isnan(others))
        neither = ~(_mask(one.is_valid()) | _mask(other.is_valid()))
        return np.asarray((valid & alike) | neither, np.bool_)
    if one.type == other.type and one.equals(other) and not _has_floats(one.type):
        return np.ones(len(one), np.bool_)
    pairs = zip(_plain(wanted), _plain(found), strict=True)
    same = (want == have or (case.numerals and _alike(want, have)) for want, have in pairs)
    return np.fromiter(same, np.bool_, len(wanted))


def _fails(expr: Expr, rows: pa.Table) -> bool:
    try:
        _evaluated(expr, rows)
    except ExpressionError:
        return True
    return False


def _first_failure(expr: Expr, rows: pa.Table) -> int:
    """The first failing row, found by halving."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(expr, rows.slice(low, middle - low)) else (middle, high)
    return low


def _read(rows: pa.Table, expr_text: str, row: int) -> dict[str, Any]:
    """The row's columns that an expression reads."""
    words = set(re.findall(r"\w+", expr_text))
    return {name: rows.column(name)[row].as_py() for name in COLUMNS if name in words}


def _compare(case: Case, answer: Answer, rows: pa.Table) -> list[Any]:
    """Differences of a case from Spark, other than the expected."""
    expr, wrong = dated(typed(parse_expression(case.text), _SCOPE), NOW), list[Any]()
    kind = spark_type(answer.kept.type.field(0).type)
    if kind != expr.type:
        wrong.append((case.text, "types", kind, expr.type))
    held = np.flatnonzero(answer.sound & ~answer.but)
    part, wanted = rows.take(pa.array(held)), answer.values(held)
    try:
        found = _evaluated(expr, part)
    except ExpressionError as error:
        row = _first_failure(expr, part)
        read = _read(part, case.text, row)
        return [*wrong, (case.text, "only we fail", read, wanted[row].as_py(), str(error)[:90])]
    differing = np.flatnonzero(~_equal(wanted, found, case))
    for n in map(int, differing[:2]):
        values = _plain(wanted[n : n + 1]) + _plain(found[n : n + 1])
        wrong.append((case.text, len(differing), _read(part, case.text, n), *values))
    failing = np.flatnonzero(~answer.sound & ~answer.but)
    passed = [int(row) for row in failing if not _fails(expr, rows.slice(row, 1))]
    wrong += [(case.text, "only Spark fails", len(passed), _read(rows, case.text, row))
              for row in passed[:2]]  # fmt: skip
    known, kinds = len(wanted) - wanted.null_count, len(set(map(str, _plain(wanted[:1000]))))
    if known < SHARE * len(rows) or kinds < (2 if str(kind) == "boolean" else VALUES):
        wrong.append((case.text, "compares little", known, kinds))
    if case.but and not _differs(expr, case, answer, rows):
        wrong.append((case.text, "no longer differs", case.but))
    return wrong


def _differs(expr: Expr, case: Case, answer: Answer, rows: pa.Table) -> bool:
    """Whether an expected difference occurs."""
    for row in np.flatnonzero(answer.but):
        one = rows.slice(row, 1)
        if _fails(expr, one) == answer.sound[row]:
            return True
        if answer.sound[row] and not _equal(answer.values([row]), _evaluated(expr, one), case)[0]:
            return True
    return False


def _fails_in_spark(frame: DataFrame, case: Case) -> bool:
    """Whether Spark fails on a row on which both are expected to fail."""
    try:
        frame.where(case.fails).limit(1).selectExpr(_in_spark(case)).collect()
    except Exception as error:  # noqa: BLE001 (the kinds differ between Spark's clients)
        return "Exception" in type(error).__name__
    return False


@cache
def _listed() -> frozenset[str]:
    """The functions that ``docs/sql.md`` lists."""
    text = (Path(__file__).parents[4] / "docs" / "sql.md").read_text()
    section = text.split("### Functions")[1].split("Values are Spark")[0]
    rows = re.findall(r"^\| [^|]* \| (.*) \|$", section, re.M)
    return frozenset(
        name
        for row in rows
        for names in re.findall(r"`([a-z_0-9 ]+)`", row)
        for name in names.split()
    )


def test_every_function_has_expressions_that_call_it() -> None:
    assert set(CASES) == _listed()
    for name, texts in CASES.items():
        assert texts, name
        for one in texts:
            text = one if isinstance(one, str) else one.text
            assert re.search(rf"\b{name}\(", text, re.I), text


def compared(
    spark: SparkSession,
    seed: int,
    size: int,
    names: Sequence[str],
    settings: dict[str, str],
) -> list[Any]:
    """Differences from Spark of the expressions of functions, on random rows."""
    rows = table(Random(seed), size)
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    frame = spark.createDataFrame(rows, schema=schema).coalesce(1).cache()
    cases = [one if isinstance(one, Case) else Case(one) for name in names for one in CASES[name]]
    # Equal parts of expressions would be evaluated before, outside of TryEval.
    settings = {"spark.sql.subexpressionElimination.enabled": "false", **settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        pairs = zip(cases, _answers(spark, frame, cases), strict=True)
        wrong = [one for case, answer in pairs for one in _compare(case, answer, rows)]
        failing = [case for case in cases if case.fails and not _fails_in_spark(frame, case)]
        return [*wrong, *((case.text, "only we fail", case.fails) for case in failing)]
    finally:
        for name in settings:
            spark.conf.unset(name)
        frame.unpersist()


#: Settings with which Spark evaluates expressions as they are, without the time to compile them.
_INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.codegen.wholeStage": "false"}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "size"),
    [(1, FEW), *(pytest.param(seed, ROWS, marks=pytest.mark.slow) for seed in (1, 2, 3))],
)
def test_functions_are_those_of_spark_on_random_rows(
    spark: SparkSession, seed: int, size: int
) -> None:
    assert compared(spark, seed, size, sorted(CASES), _INTERPRETED) == []


@pytest.mark.spark
@pytest.mark.slow
def test_functions_are_those_of_spark_in_compiled_expressions(spark: SparkSession) -> None:
    assert compared(spark, 4, FEW, sorted(CASES), {}) == []
