"""Tests of expressions of Spark's sources: a row on which one fails is invalid, others are kept."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sources.spark_source import spark_source
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.invalid import ARRIVED

LARGEST = 2**63 - 1


def evaluated(
    columns: Mapping[str, str], options: Mapping[str, str], given: Mapping[str, list[Any]]
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the rows of the stream, and the invalid input, of a source without Spark's casts."""
    declared = [(name, parse_type(kind)) for name, kind in columns.items()]
    source = spark_source("parquet", options, declared)
    inputs = tuple(column for column, _ in source.inputs)
    own = Evaluation(inputs, tuple(columns), source.columns)
    arrays = [pa.array(given[c.name], arrow_type(c.type)) for c in inputs]
    length = len(arrays[0])
    arrays += [pa.array([False] * length), pa.nulls(length, pa.binary())]
    part = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
    found = pickle.loads(pickle.dumps(own)).rows(part)
    good = found.filter(pc.is_null(found.column(ARRIVED))).to_pylist()
    for row in good:
        del row[ARRIVED]
    return good, found.column(ARRIVED).drop_null().to_pylist()


@pytest.mark.parametrize(
    ("expression", "good", "bad"),
    [
        ("10 div (v - 3)", [-5, None, 0], [3]),
        ("v + 1", [2, 4, None], [LARGEST]),
        # Fails only if the branch is taken.
        ("CASE WHEN v > 5 THEN 0 ELSE v + 9223372036854775800 END",
         [LARGEST - 6, LARGEST - 4, None, 0], []),
        ("CASE WHEN v <> 3 THEN 10 div (v - 3) END", [-5, None, None, 0], []),
        # A missing row must not fail another one.
        ("10 div (coalesce(v, 3) - 3)", [-5, 0], [3, None]),
        ("cast(cast(v as string) as int) + 1", [2, 4, None], [LARGEST]),
        ("1 div 0", [], [1, 3, None, LARGEST]),
    ],
)  # fmt: skip
def test_a_row_that_fails_is_alone(
    expression: str, good: list[int | None], bad: list[int | None]
) -> None:
    options = {"schema": "v bigint", "column.x": expression.replace("div", "/")}
    kind = "double" if "div" in expression else "bigint"
    rows, arrived = evaluated({"x": kind}, options, {"v": [1, 3, None, LARGEST]})
    found = [None if row["x"] is None else int(row["x"]) for row in rows]
    assert found == good
    want = [f'{{"v": {"null" if v is None else v}}}'.encode() for v in bad]
    assert arrived == want


@pytest.mark.parametrize(("unit", "size"), [("seconds", 10**6), ("millis", 1000), ("micros", 1)])
def test_times_may_come_as_numbers_and_one_that_overflows_is_alone(unit: str, size: int) -> None:
    options = {"schema": "v bigint", "column.at": f"timestamp_{unit}(v)"}
    most = LARGEST // size
    given = [0, -1, None, 253_402_300_799_999_999 // size, *([most + 1] if size > 1 else [])]
    rows, arrived = evaluated({"at": "timestamp"}, options, {"v": given})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    want = [None if v is None else epoch + timedelta(microseconds=v * size) for v in given[:4]]
    assert [row["at"] for row in rows] == want
    assert arrived == [f'{{"v": {v}}}'.encode() for v in given[4:]]


def test_times_of_messages_are_read_from_the_parsed_object() -> None:
    columns = [("ts", parse_type("bigint")), ("at", parse_type("timestamp"))]
    options = {"payload": "json", "column.at": "timestamp_millis(data.ts)"}
    _, made = spark_source("kafka", options, columns).columns
    assert str(made) == "timestamp_millis(#data.ts)"


@pytest.mark.parametrize(
    ("expression", "says", "remedy"),
    [
        ("timestamp_millis(x)", "takes an integer, but", "BIGINT"),
        ("timestamp_seconds(s)", "takes an integer, but", "BIGINT"),
        ("timestamp_micros(unix_micros(n))", "takes timestamp, but", "TIMESTAMP"),
    ],
)
def test_times_as_numbers_are_of_one_type(expression: str, says: str, remedy: str) -> None:
    options = {"schema": "x double, s string, n timestamp_ntz", "column.at": expression}
    with pytest.raises(PlannerError, match=says) as caught:
        spark_source("parquet", options, [("at", parse_type("timestamp"))])
    assert caught.value.remedy == f"write CAST(... AS {remedy})"


def test_a_verdict_does_not_depend_on_other_rows() -> None:
    options = {
        "schema": "v bigint, w string",
        "column.x": "100 / (v % 97)",
        "column.y": "cast(w || '1' as int)",
    }
    v = [(i * i) % 1009 for i in range(3000)]
    w = ["x" if i % 501 == 0 else str(i) for i in range(3000)]
    kinds = {"x": "double", "y": "int"}
    rows, arrived = evaluated(kinds, options, {"v": v, "w": w})
    fails = [i for i in range(3000) if v[i] % 97 == 0 or w[i] == "x"]
    assert [row["y"] for row in rows] == [10 * i + 1 for i in range(3000) if i not in set(fails)]
    assert arrived == [f'{{"v": {v[i]}, "w": "{w[i]}"}}'.encode() for i in fails]
    alone = [evaluated(kinds, options, {"v": [v[i]], "w": [w[i]]}) for i in range(0, 3000, 7)]
    assert [len(bad) for _, bad in alone] == [int(i in fails) for i in range(0, 3000, 7)]


def test_text_that_is_no_utf_8_is_a_row() -> None:
    declared = [("t", parse_type("string"))]
    source = spark_source("parquet", {}, declared)
    inputs = tuple(column for column, _ in source.inputs)
    values = pa.array([b"a", b"\xff", None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, values.buffers())
    part = pa.RecordBatch.from_arrays(
        [text, pa.array([False] * 3), pa.nulls(3, pa.binary())], names=["a", "b", "c"]
    )
    found = Evaluation(inputs, ("t",), source.columns).rows(part)
    assert found.column("t").to_pylist() == ["a", None, None]
    assert found.column(ARRIVED).to_pylist() == [None, b'{"t": "/w=="}', None]
