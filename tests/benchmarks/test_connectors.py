"""Tests of the connector benchmarks with very little data: they check what they measure."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from deltalake import DeltaTable

from benchmarks.connectors import kafka_sinks, lake, snapshots
from benchmarks.connectors import postgres as tables_of_postgres
from benchmarks.connectors.kafka import PAYLOADS, measure, tables
from benchmarks.rivals.environment import Environment
from scripts.kafka import Broker
from scripts.postgres import Server


@pytest.mark.spark
@pytest.mark.slow
def test_topics_and_recorded_files_give_the_oracle_s_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0")
    options = argparse.Namespace(
        tasks=2, parallelism=1, scale=0.001, batches=2, partitions=2, runs=1, payloads=PAYLOADS
    )
    found = measure(options, tmp_path)
    assert set(found["sources"]) == {"recorded", "json", "avro", "protobuf", "arrow"}
    assert [len(grid.rows) for grid in tables(found)] == [5]


@pytest.mark.spark
@pytest.mark.slow
def test_both_sinks_have_the_oracle_s_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0")
    options = argparse.Namespace(
        tasks=2, parallelism=1, scale=0.001, batches=2, partitions=2, runs=1
    )
    found = kafka_sinks.measure(options, tmp_path)
    assert set(found["sinks"]) == {"parquet", "kafka", "kafka, no headers"}
    assert [len(grid.rows) for grid in kafka_sinks.tables(found)] == [3]


def test_commits_to_tables_of_a_lake_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "ENVIRONMENT", Environment("lakehouse", home=tmp_path / "none"))
    for name in ("URI", "WAREHOUSE"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", "")
    options = argparse.Namespace(rows=10, batches=3, keys=50, spark_batches=2)
    (tmp_path / "home").mkdir()
    found = lake.measure(options, tmp_path / "home")
    assert set(found["writers"]) == {"delta", "iceberg", "delta, current"}
    assert [len(grid.rows) for grid in lake.tables(found)] == [3]
    assert DeltaTable(tmp_path / "home" / "runtime-delta").count() == 30
    assert DeltaTable(tmp_path / "home" / "runtime-current").count() == 50


@pytest.mark.spark
@pytest.mark.slow
def test_a_join_of_changing_tables_has_postgresql_s_rows(tmp_path: Path, postgres: Server) -> None:
    options = argparse.Namespace(tasks=2, parallelism=1, rate=500, seconds=3, rows=1000)
    found = tables_of_postgres.measure(options, tmp_path)
    assert found["changes"] == 1500
    assert [len(grid.rows) for grid in tables_of_postgres.tables(found)] == [1]


@pytest.mark.spark
@pytest.mark.slow
def test_a_live_join_beside_a_snapshot_has_each_click_once(tmp_path: Path) -> None:
    options = argparse.Namespace(tasks=2, parallelism=1, rows=300_000, rate=50, seconds=9)
    found = snapshots.measure(options, tmp_path)
    assert set(found["latency"]) == {"before", "during", "after"}
    assert [len(grid.rows) for grid in snapshots.tables(found)] == [3]
