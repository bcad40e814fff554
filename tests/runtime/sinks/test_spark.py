"""Tests of sinks that Spark writes: each batch once however often it is written, types kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.spark import _messages, spark_writer
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.policy import OPEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPED = pa.record_batch(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([3, None], pa.int8()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(12, 2)),
        "name": ["a,b", 'c"d'],
        "day": pa.array([date(2026, 1, 31), None], pa.date32()),
        "ts": pa.array([datetime(2026, 1, 31, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    }
)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64()), "s": [str(v) for v in values]})


@pytest.fixture
def write(spark: SparkSession, tmp_path: Path) -> Callable[[Delivery], None]:
    return spark_writer(spark, results=tmp_path / "results", namespace="test", access=OPEN)


def values(frame: DataFrame) -> list[int]:
    return sorted(row.x for row in frame.collect())


@pytest.mark.parametrize(
    "form",
    [
        "json",
        pytest.param("csv", marks=pytest.mark.slow),
        pytest.param("orc", marks=pytest.mark.slow),
        pytest.param("parquet", marks=pytest.mark.slow),
    ],
)
def test_files_of_a_batch_are_written_anew(
    form: str, spark: SparkSession, write: Callable[[Delivery], None], tmp_path: Path
) -> None:
    options = {"header": "true"} if form == "csv" else {}
    to = sink(form, str(tmp_path / "out"), compression="none", **options)
    write(staged(tmp_path, "q", to, 0, rows(1, 2), rows(3)))
    for parts in ((rows(4, 5),), (rows(5), rows(4))):
        write(staged(tmp_path, "q", to, 1, *parts))
    reader = spark.read.options(**options).schema("x bigint, s string")
    read = reader.format(form).load(str(tmp_path / "out"))
    assert sorted((r.x, r.s, r.anabranch_batch) for r in read.collect()) == [
        (x, str(x), x // 4) for x in range(1, 6)
    ]
    assert all((d / "_SUCCESS").exists() for d in (tmp_path / "out").iterdir())


def test_files_without_a_path_are_below_the_results_and_keep_their_types(
    spark: SparkSession, write: Callable[[Delivery], None], tmp_path: Path
) -> None:
    to = sink("json", anabranch__partitionBy="name", anabranch__batchColumn="origin")
    write(staged(tmp_path, "q", to, 12, TYPED))
    columns = (
        "id bigint, small tinyint, price decimal(12,2), name string, day date, ts timestamp, "
        "origin string"
    )
    read = spark.read.schema(columns).json(str(tmp_path / "results" / "q"))
    found = {row.id: row.asDict() for row in read.collect()}
    for number in (0, 1):
        expected = {name: TYPED.column(name)[number].as_py() for name in TYPED.schema.names}
        assert expected["ts"] is None or expected["ts"].replace(tzinfo=None) == found[1]["ts"]
        row = found[number + 1]
        assert {k: row[k] for k in expected if k != "ts"} == {
            k: v for k, v in expected.items() if k != "ts"
        }
        assert row["origin"] == "q/0000000012"
        assert row["anabranch_batch"] == 12


def test_a_database_has_each_batch_once_where_a_column_says_which(
    spark: SparkSession, write: Callable[[Delivery], None], tmp_path: Path
) -> None:
    url = "jdbc:derby:memory:sinks;create=true"
    to = sink("jdbc", url=url, dbtable="results", anabranch__batchColumn="origin")
    write(staged(tmp_path, "q", to, 0, rows(1), rows(2)))
    write(staged(tmp_path, "p", to, 1, rows(10)))
    for _ in range(2):
        write(staged(tmp_path, "q", to, 1, rows(3)))
    read = spark.read.format("jdbc").options(url=url, dbtable="results").load()
    assert sorted((r.x, r.origin) for r in read.collect()) == [
        (1, "q/0000000000"),
        (2, "q/0000000000"),
        (3, "q/0000000001"),
        (10, "p/0000000001"),
    ]

    plain = sink("jdbc", url=url, dbtable="plain")
    for _ in range(2):
        write(staged(tmp_path, "q", plain, 0, rows(1)))
    assert values(spark.read.format("jdbc").options(url=url, dbtable="plain").load()) == [1, 1]


def test_a_message_is_a_row_as_json_with_its_key_and_origin(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = sink("kafka", topic="t", includeHeaders="true", anabranch__key="x")
    frame = spark.createDataFrame([(1, "a")], "x bigint, s string")
    (message,) = _messages(frame, staged(tmp_path, "q", to, 3, rows(1))).collect()
    assert (message.key, message.value) == ("1", '{"x":1,"s":"a"}')
    assert [(h.key, bytes(h.value)) for h in message.headers] == [
        ("anabranch-query", b"q"),
        ("anabranch-batch", b"3"),
    ]
    made = spark.createDataFrame([("k", "v", "t")], "key string, value string, topic string")
    plain = sink("kafka")
    assert _messages(made, staged(tmp_path, "q", plain, 4, rows(1))).columns == made.columns
