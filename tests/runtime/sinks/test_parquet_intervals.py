"""Tests of Parquet result files with intervals, read by Spark, DuckDB and streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrays import conform, interval_texts
from anabranch_runtime.columns.arrow_types import field_type, schema_of
from anabranch_runtime.sinks.parquet import ResultWriter
from anabranch_runtime.sinks.rows import json_rows
from anabranch_runtime.sources.decode import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TYPES = {
    "k": "int",
    "i": "interval day to second",
    "h": "interval hour",
    "y": "interval year to month",
    "m": "interval month",
    "n": "timestamp_ntz",
    "d": "decimal(12,2)",
    "a": "array<struct<x:bigint,y:map<string,smallint>>>",
}
_TEXTS = {
    "i": "INTERVAL '-1 00:00:00.000001' DAY TO SECOND",
    "h": "INTERVAL '26' HOUR",
    "y": "INTERVAL '1-2' YEAR TO MONTH",
    "m": "INTERVAL '-14' MONTH",
}


def _rows() -> pa.RecordBatch:
    schema = schema_of(Output(n, Column("", n, parse_type(kind))) for n, kind in _TYPES.items())
    values = {
        "k": [1, None],
        "i": [-86_400_000_001, None],
        "h": [26 * 3_600_000_000, None],
        "y": [14, None],
        "m": [-14, None],
        "n": [0, None],
        "d": [None, None],
        "a": [[{"x": 1, "y": [("z", 2)]}], None],
    }
    arrays = [pa.array(values[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _written(folder: Path) -> Path:
    file, rows = folder / "0000000000-00000.parquet", _rows()
    writer = ResultWriter(file, rows.schema, 1 << 20)
    writer.add(rows)
    writer.close()
    return file


@pytest.mark.spark
def test_spark_reads_intervals_from_result_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(_written(tmp_path)))
    assert {f.name: f.dataType.simpleString() for f in frame.schema.fields} == _TYPES
    texts = frame.where("k = 1").selectExpr(*(f"CAST({n} AS STRING) AS {n}" for n in _TEXTS))
    assert texts.collect()[0].asDict() == _TEXTS
    # A stream reads what Spark writes.
    frame.write.parquet(str(tmp_path / "spark"))
    table = pq.read_table(tmp_path / "spark")
    for name, text in _TEXTS.items():
        column = conform(table.column(name), parse_type(_TYPES[name]))
        assert interval_texts(column, parse_type(_TYPES[name])).to_pylist() == [text, None]


def test_result_files_keep_types(tmp_path: Path) -> None:
    file = _written(tmp_path)
    table = pq.read_table(file)
    assert {f.name: str(field_type(f)) for f in table.schema} == _TYPES
    assert table.column("i").type == pa.duration("us")
    numbers = duckdb.execute(f"SELECT i, h, y, m FROM '{file}'").fetchall()
    assert numbers == [(-86_400_000_001, 26 * 3_600_000_000, 14, -14), (None,) * 4]


def test_json_has_sparks_texts_and_streams_read_them() -> None:
    rows = _rows().select(list(_TEXTS))
    lines = json_rows(rows).to_pylist()
    assert json.loads(lines[0]) == _TEXTS
    assert json.loads(lines[1]) == dict.fromkeys(_TEXTS)
    columns = [(name, _TYPES[name]) for name in _TEXTS]
    wrong = b'{"i": "1 day", "h": "INTERVAL \'1\' HOUR"}'
    data = "\n".join(lines).encode() + b"\n" + wrong
    decoded = list(from_json(data, columns))
    read = pa.concat_batches([tuples for tuples, _ in decoded])
    assert read.to_pydict() == rows.to_pydict()
    assert [len(invalid) for _, invalid in decoded if invalid is not None] == [1]
