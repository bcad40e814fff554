"""Tests of streaming DataFrames as streams that need no pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.rest.api import Client
from anabranch_client.spark import stream, streams
from anabranch_client.spark.streams import registered

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


@pytest.mark.spark
def test_types_that_arrow_tables_of_spark_lack_are_pushed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "metadata").write_text('{"id": "checkpoint"}')
    rows = spark.sql(
        "SELECT n AS `k``s`, make_ym_interval(n, n) AS term,"
        " array(named_struct('m', make_ym_interval(0, n))) AS terms,"
        ' CASE n WHEN 1 THEN parse_json(\'{"a": [1, "x"]}\') END AS v,'
        " CASE n WHEN 2 THEN parse_json('\"x\"') END AS w FROM VALUES 1, 2 AS t(n)"
    )
    client = _Pushed()
    streams._Pusher(cast(Client, client), "readings", str(tmp_path), None).push(rows, 0)
    [found] = client.portions.values()
    assert sorted(found, key=lambda row: row["k`s"]) == [
        {
            "k`s": n,
            "term": f"INTERVAL '{n}-{n}' YEAR TO MONTH",
            "terms": [{"m": f"INTERVAL '0-{n}' YEAR TO MONTH"}],
            "v": {"a": [1, "x"]} if n == 1 else None,
            "w": "x" if n == 2 else None,
        }
        for n in (1, 2)
    ]


@pytest.mark.spark
def test_a_variant_inside_another_type_registers_nothing(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("array(parse_json('1')) AS v")
    with Client(NOBODY) as client, pytest.raises(UsageError, match="'v' of type array<variant>"):
        stream(rows, name="numbers", checkpoint="unused", client=client)


def test_a_push_waits_for_a_service_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each portion is sent again under its name, until it is taken or refused."""
    away = ApiError(0, {"code": "unreachable", "detail": "the service does not answer"})
    refused = ApiError(422, {"code": "invalid", "detail": "k: not a number"})
    busy = ApiError(429, {"code": "too-many", "detail": "a million rows wait"})
    left, keys = [refused, busy, away, away], []

    class Restarting:
        def push(self, name: str, rows: object, *, idempotency_key: str) -> None:
            keys.append((name, idempotency_key))
            raise left.pop()

    monkeypatch.setattr("anabranch_client.spark.patience.time.sleep", lambda _: None)
    pusher = streams._Pusher(cast(Client, Restarting()), "readings", "unused", None)
    with pytest.raises(ApiError, match="not a number"):
        pusher._send([{"k": 1}], "key")
    assert keys == [("readings", "key")] * 4
    left.append(away)
    clock = iter((0.0, 301.0)).__next__
    monkeypatch.setattr("anabranch_client.spark.patience.time.monotonic", clock)
    with pytest.raises(ApiError, match="does not answer"):
        pusher._send([{"k": 1}], "key")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"event_time": "ts", "lateness": "60 min", "kind": "stream"}, None),
        ({"ttl": "2 days", "retain": "all"}, None),
        ({"event_time": "at"}, "event_time 'ts', not 'at'"),
        ({"lateness": "3 hours"}, "lateness '1 hour', not '3 hours'"),
        ({"lateness": "unbounded"}, "lateness '1 hour', not 'unbounded'"),
        ({"kind": "upsert"}, "kind 'stream', not 'upsert'"),
        ({"key": ["k"]}, "key None, not"),
    ],
)
def test_a_stream_that_is_there_has_the_terms_given(
    options: dict[str, Any], match: str | None
) -> None:
    columns = [SimpleNamespace(name="k", type="int"), SimpleNamespace(name="ts", type="timestamp")]
    there = SimpleNamespace(
        **{"name": "readings", "columns": columns, "changes": None, "event_time": "ts"},
        **{"lateness": "1 hour", "kind": "stream", "key": None},
        source=SimpleNamespace(format="redis-stream"),
    )
    client = cast(Client, SimpleNamespace(streams=lambda: [there]))
    given = ("readings", [("k", "int"), ("ts", "timestamp")], {"format": "redis-stream"}, options)
    if match is None:
        assert registered(client, *given) is cast(object, there)
        return
    with pytest.raises(UsageError, match=match):
        registered(client, *given)
