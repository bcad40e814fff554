"""Tests of the Spark data source's options, types and partitions; others are in
e2e/test_spark_source.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.spark import source
from anabranch_client.spark.source import (
    BatchRange,
    ResultStream,
    SourceOptions,
    TableScan,
    ranges,
    register,
    spark_schema,
)
from anabranch_contract.rest.normalised import OutputInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "no query is named"),
        ({"query": "q", "asofbatch": "x"}, "no whole number"),
        ({"query": "q", "asOfBatch": "-2"}, "at least -1"),
        ({"query": "q", "changes": "yes"}, "neither true nor false"),
        ({"query": "q", "numPartitions": "0"}, "at least 1"),
        ({"query": "q", "nosuch": "1"}, "no option 'nosuch'"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        SourceOptions.read(options)


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANABRANCH_URL", raising=False)
    found = SourceOptions.read({"path": "q"})
    assert (found.query, found.url, found.as_of, found.starting) == ("q", DEFAULT_URL, None, None)
    assert (found.changes, found.most, found.partitions) == (False, None, 1)
    monkeypatch.setenv("ANABRANCH_URL", "http://there:1")
    given = {"path": "q", "QUERY": "r~2", "startingbatch": "0", "changes": "TRUE"}
    found = SourceOptions.read({**given, "maxBatchesPerTrigger": "3"})
    assert (found.query, found.url, found.starting) == ("r~2", "http://there:1", 0)
    assert (found.changes, found.most) == (True, 3)
    token = tmp_path / "token"
    token.write_text("anb_1_secret\n")
    with SourceOptions.read({"path": "q", "tokenFile": str(token)}).client() as client:
        assert client.base_url == "http://there:1"


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        ("decimal(9,2)", "decimal(9,2)"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("interval day to second", "interval day to second"),
        ("interval year to month", "int"),
        ("variant", "string"),
        ("void", "void"),
        ("map<string,array<struct<`a b`:variant,c:bigint>>>",) * 2,
    ],
)
def test_types_as_spark_reads_them(kind: str, spark: str) -> None:
    text = spark_schema([OutputInfo(name="x", type=kind)])
    assert text == f"`x` {spark.replace('variant', 'string').replace(',c:', ',`c`:')}"


@pytest.mark.parametrize("parts", [1, 2, 5, 40])
@pytest.mark.parametrize(("after", "upto"), [(-2, -2), (-2, -1), (-2, 30), (3, 7), (7, 3)])
def test_ranges_have_every_batch_once(after: int, upto: int, parts: int) -> None:
    found = ranges("q", after, upto, parts)
    batches = [b for r in found if r.after is not None for b in range(r.after + 1, r.upto + 1)]
    assert batches == [*range(after + 1, upto + 1)]
    assert len(found) == max(0, min(parts, upto - after))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "chosen", "expected"),
    [
        (None, "python3", sys.executable),
        ("python3", "python3", "python3"),
        (None, "/opt/python", "/opt/python"),
    ],
)
def test_local_workers_have_the_packages_of_the_session(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    chosen: str,
    expected: str,
) -> None:
    """A virtual environment may be inactive: then Spark would take ``python3`` of ``PATH``."""
    context = spark.sparkContext
    monkeypatch.delenv("PYSPARK_PYTHON")
    if given is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    monkeypatch.setattr(context, "pythonExec", chosen)
    register(spark)
    assert context.pythonExec == expected


@pytest.mark.spark
def test_a_session_knows_the_source_once(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark would warn of each registration after the first one."""
    register(spark)
    capfd.readouterr()
    register(spark)
    assert "previously registered" not in capfd.readouterr().err


OPTIONS = SourceOptions.read({"path": "q", "url": "http://127.0.0.1:9"})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS = pa.record_batch({"k": [1, 2], "ts": pa.array([NOON, None], pa.timestamp("us", "UTC"))})
AWAY = ApiError(0, {"code": "unreachable", "detail": "the service does not answer"})


def test_rows_with_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import LongType, StructType, TimestampType

    monkeypatch.setattr(source, "table_batches", lambda *_, **__: iter([ROWS]))
    schema = StructType().add("ts", TimestampType()).add("k", LongType())
    [found] = TableScan(OPTIONS, schema).read(BatchRange("q", None, 3))
    assert found.to_pydict() == {"ts": [NOON, None], "k": [1, 2]}


def test_a_stream_waits_for_a_service_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is read at once or not at all, since somebody waits for it."""
    from pyspark.sql.types import LongType, StructType

    left = [AWAY, ApiError(503, {"detail": "Redis is away"})]

    def batches(*_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        if left:
            raise left.pop()
        yield from (ROWS, ROWS)

    monkeypatch.setattr(source, "table_batches", batches)
    monkeypatch.setattr("anabranch_client.spark.patience.time.sleep", lambda _: None)
    schema = StructType().add("k", LongType())
    found = list(ResultStream(OPTIONS, schema).read(BatchRange("q", -2, 3)))
    assert [batch.num_rows for batch in found] == [2, 2]
    assert not left
    left.append(AWAY)
    with pytest.raises(ApiError, match="does not answer"):
        list(TableScan(OPTIONS, schema).read(BatchRange("q", None, 3)))
