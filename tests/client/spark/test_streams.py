"""Tests of streaming DataFrames as streams that need no pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.rest.api import Client
from anabranch_client.spark import stream, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: An address where nothing listens: a request would fail with another error.
NOBODY = "http://127.0.0.1:9"


@pytest.mark.spark
def test_a_dataframe_without_a_stream_registers_nothing(spark: SparkSession) -> None:
    with Client(NOBODY) as client, pytest.raises(UsageError, match="has no stream of rows"):
        stream(spark.range(3), name="numbers", checkpoint="unused", client=client)


class _Pushed:
    """A client that only collects pushed rows."""

    def __init__(self) -> None:
        self.portions: dict[str, list[dict[str, Any]]] = {}

    def push(self, name: str, rows: Sequence[dict[str, Any]], *, idempotency_key: str) -> None:
        assert name == "readings"
        self.portions[idempotency_key] = list(rows)


@pytest.mark.spark
def test_rows_of_a_micro_batch_are_pushed_by_event_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour's rows of several devices, as after an interruption: no row may make another one
    late.
    """
    (tmp_path / "metadata").write_text('{"id": "checkpoint"}')
    monkeypatch.setattr(streams, "ROWS", 7)
    rows = spark.range(40).selectExpr("id % 4 AS device", "timestamp_seconds(1e9 + id * 90) AS ts")
    pushed = [_Pushed(), _Pushed()]
    for client, given in zip(pushed, (rows, rows.orderBy("device")), strict=True):
        pusher = streams._Pusher(cast(Client, client), "readings", str(tmp_path), "ts")
        pusher.push(given, 3)
    assert pushed[0].portions == pushed[1].portions
    assert list(pushed[0].portions) == [f"spark-checkpoint-3-{n}" for n in range(0, 40, 7)]
    times = [row["ts"] for portion in pushed[0].portions.values() for row in portion]
    assert len(set(times)) == 40
    assert times == sorted(times)
