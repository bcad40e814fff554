"""Tests of the Spark data source's options, types and partitions; others are in
e2e/test_spark_source.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.spark.source import SourceOptions, ranges, register, spark_schema
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
