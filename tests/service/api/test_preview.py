"""Compare previews of statements over the latest rows of streams with DuckDB over these rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import TypeKind, whole_interval
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.measure.statistics import LatestTuples
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.measured import TaskMeasures
from anabranch_runtime.state.measures import SIZE, Bounds
from anabranch_runtime.task.meters import Collector
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

EVENTS = {
    "name": "events",
    "columns": {
        "id": "bigint",
        "kind": "string",
        "price": "decimal(9,2)",
        "took": "interval day to second",
        "tags": "array<string>",
        "at": "timestamp",
    },
    "event_time": "at",
    "lateness": "1 hour",
    "source": {"format": "redis-stream"},
}
LABELS = {"name": "labels", "columns": {"id": "bigint", "label": "string"}}
START = datetime(2026, 1, 1, tzinfo=UTC)
#: Statements in Spark's SQL and DuckDB's.
STATEMENTS = [
    (
        "SELECT e.id, l.label, e.price * 2 AS p FROM events e JOIN labels l ON l.id = e.id",
        "SELECT e.id, l.label, e.price * 2 AS p FROM events e JOIN labels l ON l.id = e.id",
    ),
    (
        "CREATE VIEW v AS SELECT kind, count(*) AS n, max(at) AS last FROM shop.events "
        "WHERE at > TIMESTAMP '2026-01-01 00:01:00' GROUP BY kind HAVING count(*) > 1",
        'SELECT kind, count(*), max("at") FROM events '
        "WHERE \"at\" > TIMESTAMPTZ '2026-01-01 00:01:00+00' GROUP BY kind HAVING count(*) > 1",
    ),
    (
        "SELECT e.\"id\" AS i, date_trunc('HOUR', e.at) AS h FROM events e "
        "LEFT ANTI JOIN labels l ON l.id = e.id",
        "SELECT e.id, date_trunc('hour', e.\"at\") FROM events e ANTI JOIN labels l ON l.id = e.id",
    ),
    (
        "SELECT a.id, b.id AS later FROM events a JOIN events b ON a.kind = b.kind "
        "WHERE b.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND AND a.id < b.id",
        "SELECT a.id, b.id FROM events a JOIN events b ON a.kind = b.kind "
        'WHERE b."at" BETWEEN a."at" AND a."at" + INTERVAL 10 SECOND AND a.id < b.id',
    ),
]


def events(seed: int, count: int) -> pa.RecordBatch:
    drawn = random.Random(seed)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([drawn.choice([None, *range(400)]) for _ in range(count)], pa.int64()),
            "kind": [drawn.choice(["a", "b", None]) for _ in range(count)],
            "price": pa.array(["1.25"] * count).cast(pa.decimal128(9, 2)),
            "took": pa.array([drawn.randrange(10**9) for _ in range(count)], pa.duration("us")),
            "tags": [["x"]] * count,
            "at": pa.array(
                [START + timedelta(seconds=drawn.randrange(300)) for _ in range(count)],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


def publish(service: Service, rows: dict[str, pa.RecordBatch]) -> None:
    """Publish latest rows as the runtime does after a batch with ``rows``."""
    latest, collector = LatestTuples(), Collector(Bounds())
    for stream, one in rows.items():
        collector.block(Block(stream, one), 7, Layout(Ruleset(0, (), (), (), (), (), (), ()), {}))
    latest.add([TaskMeasures(latest=collector.latest())])
    for stream, found in latest.changed(rows)[0].items():
        service.redis.hset(service.keys.latest, stream, found.dumps())
    counts = {stream: {"input": one.num_rows} for stream, one in rows.items()}
    service.progress(Progress("running", committed=1, streams=counts, results_home="/nowhere"))


@pytest.fixture
def read(shop: Service) -> tuple[Service, dict[str, pa.RecordBatch]]:
    """A service with two additional streams, and their latest rows."""
    for stream in (EVENTS, LABELS):
        shop.post("/v1/streams", stream)
    ids = list(range(0, 400, 3))
    labels = pa.RecordBatch.from_pydict({"id": ids, "label": [f"<b>{n}" for n in ids]})
    rows = {"events": events(1, 1_000), "labels": labels}
    publish(shop, rows)
    return shop, {"events": rows["events"].slice(1_000 - SIZE), "labels": labels}


def preview(service: Service, sql: str, status: int = 200, **more: Any) -> Any:
    return service.post("/v1/queries:preview", {"sql": sql, "limit": 10_000, **more}, status)


def test_statements_have_the_rows_of_duckdb_over_the_same_rows(
    read: tuple[Service, dict[str, pa.RecordBatch]],
) -> None:
    service, rows = read
    with duckdb.connect() as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        for name, one in rows.items():
            oracle.register(name, pa.table(one))
        for sql, meant in STATEMENTS:
            found = preview(service, sql)
            wanted = oracle.execute(meant).fetchall()
            assert wanted, sql
            assert sorted(map(_plain, found["rows"])) == sorted(map(_plain, wanted)), sql
            assert not found["truncated"]
            for one in found["samples"]:
                whole = {"events": 1_000, "labels": 134}[one["stream"]]
                assert (one["rows"], one["seen"]) == (min(whole, SIZE), whole)
    few = preview(service, "SELECT id FROM labels", limit=2)
    assert (len(few["rows"]), few["truncated"]) == (2, True)


def _plain(row: Any) -> list[str]:
    return [f"{v:%Y-%m-%dT%H:%M:%SZ}" if isinstance(v, datetime) else str(v) for v in row]


def test_columns_are_those_that_the_stream_has_now(
    read: tuple[Service, dict[str, pa.RecordBatch]],
) -> None:
    service, rows = read
    found = preview(service, "SELECT * FROM events")
    assert found["columns"] == ["id", "kind", "price", "took", "at"], "no nested ones"
    assert [row[0] for row in found["rows"]] == rows["events"]["id"].to_pylist()[::-1]
    # Another stream of the same name, before its first row.
    other = pa.RecordBatch.from_pydict({"id": ["x"], "else": [1]})
    publish(service, {"labels": other})
    found = preview(service, "SELECT * FROM labels")
    assert (found["columns"], found["rows"]) == (["id", "label"], [])
    assert found["samples"][0]["rows"] == 0


def test_intervals_read_as_those_of_results(shop: Service) -> None:
    """Also intervals of months, which the runtime has as numbers."""
    columns = {
        "took": "interval day to second",
        "term": "interval year to month",
        "at": "timestamp",
    }
    shop.post("/v1/streams", {**EVENTS, "name": "spans", "columns": columns})
    sql = (
        "SELECT took, term, took * 2 AS twice, at + term AS due, at + took - at AS again FROM spans"
    )
    assert preview(shop, sql)["rows"] == []
    rows = pa.RecordBatch.from_pydict(
        {
            "took": pa.array([5_400_500_000, -86_400_000_000, None], pa.duration("us")),
            "term": pa.array([14, -1, None], pa.int32()),
            "at": pa.array([START] * 3, pa.timestamp("us", tz="UTC")),
        }
    )
    publish(shop, {"spans": rows})

    found = preview(shop, sql)["rows"][::-1]

    seconds, months = (whole_interval(kind) for kind in (TypeKind.INTERVAL, TypeKind.MONTHS))
    took = [interval_text(micros, seconds) for micros in (5_400_500_000, -86_400_000_000)]
    assert took == [
        "INTERVAL '0 01:30:00.5' DAY TO SECOND",
        "INTERVAL '-1 00:00:00' DAY TO SECOND",
    ]
    twice = [interval_text(2 * micros, seconds) for micros in (5_400_500_000, -86_400_000_000)]
    assert found == [
        [took[0], interval_text(14, months), twice[0], "2027-03-01T00:00:00Z", took[0]],
        [took[1], interval_text(-1, months), twice[1], "2025-12-01T00:00:00Z", took[1]],
        [None, None, None, None, None],
    ]


def test_what_is_not_previewed_says_why(read: tuple[Service, dict[str, pa.RecordBatch]]) -> None:
    service, _ = read
    for sql, code in (
        ("SELECT id FROM nobody", "unknown-query"),
        ("SELECT id FROM", "not-previewed"),
        ("DELETE FROM events", "not-previewed"),
        ("SELECT nothing FROM events", "bad-sql"),
        ("SELECT * FROM read_text('/etc/passwd')", "sql-refused"),
        ("SELECT * FROM parquet.`/etc/passwd`", "unknown-query"),
    ):
        found = preview(service, sql, 404 if code == "unknown-query" else 422)
        assert found["code"] == code, (sql, found)
        assert "remedy" in found, found
    refused = preview(service, "SELECT 1", 422, dialect="klingon")
    assert refused["code"] == "unknown-dialect"
    shop = preview(service, PAIR)
    assert [one["rows"] for one in shop["samples"]] == [0, 0]
