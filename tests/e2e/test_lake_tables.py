"""Tests of lake tables (Delta, Iceberg) as streams: a snapshot, then every commit, through kills.

Writers append, update, delete and merge meanwhile, and rearrange the files. The results must be
what DuckDB computes over the tables as they are in the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import redis
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyiceberg.table import Table

from anabranch_contract.protocol.keys import Keys
from tests.e2e.test_sources import line
from tests.support.surroundings.lakes import Lake
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline, meanwhile

JOIN = (
    "SELECT o.id, o.amount, i.part, c.v FROM orders o JOIN items i ON o.id = i.id "
    "JOIN clicks c ON o.id = c.k"
)
COLUMNS = "id, amount, part, v"
ORDERS, ITEMS = 120_000, 60_000


def orders(numbers: range, amount: int = 0) -> pa.Table:
    amounts = [amount + n % 100 for n in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "amount": pa.array(amounts, pa.int64())})


def items(numbers: range) -> pa.Table:
    days = [f"2026-01-{n % 3 + 1:02d}" for n in numbers]
    parts = pa.array([n * 7 for n in numbers], pa.int64())
    return pa.table({"id": pa.array(numbers, pa.int64()), "part": parts, "day": pa.array(days)})


def change(path: Path, chance: random.Random) -> None:
    """Commit a random change of the orders (Delta)."""
    table, low = DeltaTable(str(path)), chance.randrange(ORDERS)
    match chance.randrange(6):
        case 0:
            table.delete(f"id >= {low} AND id < {low + 40}")
        case 1:
            table.update({"amount": "amount + 1000"}, predicate=f"id % 5000 = {low % 5000}")
        case 2:
            merger = table.merge(
                orders(range(low, low + 50), 7),
                "s.id = t.id",
                source_alias="s",
                target_alias="t",
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        case 3:
            table.optimize.compact()
        case _:
            write_deltalake(table, orders(range(low, low + 20), 5), mode="append")


def write(
    home: Path, server: redis.Redis, clicks: list[Any], pause: float, over: threading.Event
) -> None:
    """Change both tables and push clicks until the end, with random pauses of at most ``pause``
    seconds.
    """
    chance, number = random.Random(5), ITEMS
    while not over.is_set():
        try:
            change(home / "orders", chance)
            rows = chance.randrange(1, 300)
            write_deltalake(str(home / "items"), items(range(number, number + rows)), mode="append")
            number += rows
            if chance.random() < 0.2:
                DeltaTable(str(home / "items")).optimize.compact()
        except DeltaError:
            continue
        found = [(chance.randrange(ORDERS), chance.randrange(100)) for _ in range(20)]
        for k, v in found:
            server.xadd(Keys("test").stream("clicks"), {"data": line(k, v)})
        clicks += found
        time.sleep(chance.random() * pause)


def current(live: LivePipeline, query: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that result from a query's changes."""
    found = sorted(map(str, (live.results / query).glob("*.parquet")))
    if not found:
        return Counter()
    net = duckdb.connect().execute(
        f"SELECT {COLUMNS}, sum(CASE anabranch_change WHEN 'insert' THEN 1 ELSE -1 END)::BIGINT "
        f"FROM read_parquet({found}) GROUP BY ALL"
    )
    return Counter({tuple(row): count for *row, count in net.fetchall() if count})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("feed", ["true", "false"], ids=["change-feed", "rewrites"])
def test_tables_beside_a_live_stream_through_kills_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    for low in range(0, ORDERS, 20_000):
        write_deltalake(
            str(tmp_path / "orders"),
            orders(range(low, low + 20_000)),
            mode="append",
            configuration={"delta.enableChangeDataFeed": feed},
        )
    write_deltalake(str(tmp_path / "items"), items(range(ITEMS)), partition_by=["day"])
    clicks: list[tuple[int, int]] = []
    with live_pipeline(tmp_path) as live:
        sources = {name: {"format": "delta", "path": str(tmp_path / name)} for name in
                   ("orders", "items")}  # fmt: skip
        bigints = {"orders": ("id", "amount"), "items": ("id", "part"), "clicks": ("k", "v")}
        columns = {n: [(c, "bigint") for c in names] for n, names in bigints.items()}
        live.client.create_stream("clicks", columns["clicks"], retain="all",
                                  source={"format": "redis-stream"})  # fmt: skip
        live.client.create_stream("orders", columns["orders"], source=sources["orders"],
                                  kind="changes")  # fmt: skip
        live.client.create_stream("items", columns["items"], source=sources["items"],
                                  retain="all")  # fmt: skip
        live.client.create_query(JOIN, name="joined")
        server = redis.Redis.from_url(live.pipeline.redis_url)
        # Without a change data feed, each change reads all rows of a rewritten file twice.
        pause = 0.1 if feed == "true" else 2.0

        def snapshot(name: str, *, over: bool = False) -> bool:
            """Whether a part of a table's snapshot has been read; ``over``: all of it."""
            found = live.client.stream(name)
            if over:
                return bool(found.input_tuples) and found.snapshot is None
            return found.snapshot is not None and found.snapshot.read > 0

        with meanwhile(lambda over: write(tmp_path, server, clicks, pause, over)):
            for name, whole in (("orders", False), ("items", True), ("orders", True)):
                live.wait(f"the snapshot of {name}", lambda n=name, w=whole: snapshot(n, over=w))  # type: ignore[misc]
                kill(live.pipeline, "runtime")
                live.start_runtime()
            for _ in range(3):
                time.sleep(1.5)
                kill(live.pipeline, "runtime")
                live.start_runtime()
        tables = {n: DeltaTable(str(tmp_path / n)).to_pyarrow_table() for n in ("orders", "items")}
        db = duckdb.connect()
        for name, rows in tables.items():
            db.register(name, rows)
        db.register("clicks", pa.table({"k": [k for k, _ in clicks], "v": [v for _, v in clicks]}))
        expected = Counter(map(tuple, db.execute(JOIN).fetchall()))
        assert expected
        live.wait("the last commits", lambda: current(live, "joined") == expected)
        assert live.progress().streams["items"]["input"] == tables["items"].num_rows
        assert not any(stream.source_error for stream in live.client.streams())
        assert not any(s.unread.pieces for s in live.client.streams() if s.unread)
        for name in tables:
            table = DeltaTable(str(tmp_path / name))
            table.optimize.compact()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        write_deltalake(str(tmp_path / "orders"), orders(range(10), 3), mode="append")
        kill(live.pipeline, "runtime")
        live.start_runtime()
        db.register("orders", DeltaTable(str(tmp_path / "orders")).to_pyarrow_table())
        expected = Counter(map(tuple, db.execute(JOIN).fetchall()))
        live.wait("the commit after VACUUM", lambda: current(live, "joined") == expected)


def rewrite(table: Table, chance: random.Random) -> None:
    """Commit a random change of an Iceberg table of orders."""
    low = chance.randrange(ORDERS)
    match chance.randrange(3):
        case 0:
            table.delete(f"id >= {low} AND id < {low + 40}")
        case 1:
            table.overwrite(orders(range(low, low + 30), 7), f"id >= {low} AND id < {low + 30}")
        case _:
            table.append(orders(range(low, low + 20), 5))


@pytest.mark.spark
@pytest.mark.slow
def test_iceberg_tables_beside_a_live_stream_through_kills_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    catalog = Lake("iceberg", tmp_path / "lake").configured(monkeypatch).catalog
    catalog.create_namespace("db")
    table = catalog.create_table("db.orders", orders(range(0)).schema)
    for low in range(0, ORDERS, 20_000):
        table.append(orders(range(low, low + 20_000)))
    clicks: list[tuple[int, int]] = []
    with live_pipeline(tmp_path) as live:
        live.client.create_stream("clicks", [("k", "bigint"), ("v", "bigint")], retain="all",
                                  source={"format": "redis-stream"})  # fmt: skip
        live.client.create_stream("orders", [("id", "bigint"), ("amount", "bigint")],
                                  source={"format": "iceberg",
                                          "options": {"table": "lake.db.orders"}},
                                  kind="changes")  # fmt: skip
        sql = "SELECT o.id, o.amount, 0 AS part, c.v FROM orders o JOIN clicks c ON o.id = c.k"
        live.client.create_query(sql, name="joined")
        server = redis.Redis.from_url(live.pipeline.redis_url)

        def write_on(over: threading.Event) -> None:
            chance = random.Random(6)
            while not over.is_set():
                rewrite(table, chance)
                found = [(chance.randrange(ORDERS), chance.randrange(100)) for _ in range(50)]
                for k, v in found:
                    server.xadd(Keys("test").stream("clicks"), {"data": line(k, v)})
                clicks.extend(found)
                time.sleep(chance.random())

        def read(*, over: bool) -> bool:
            """Whether a part of the snapshot has been read; ``over``: all of it."""
            found = live.client.stream("orders")
            if over:
                return bool(found.input_tuples) and found.snapshot is None
            return found.snapshot is not None and found.snapshot.read > 0

        with meanwhile(write_on):
            for whole in (False, True, True, True):
                live.wait("the snapshot", lambda w=whole: read(over=w))  # type: ignore[misc]
                kill(live.pipeline, "runtime")
                live.start_runtime()
                time.sleep(1.5 * whole)
        db = duckdb.connect()
        db.register("orders", table.refresh().scan().to_arrow())
        db.register("clicks", pa.table({"k": [k for k, _ in clicks], "v": [v for _, v in clicks]}))
        expected = Counter(map(tuple, db.execute(sql).fetchall()))
        assert expected
        live.wait("the last snapshots", lambda: current(live, "joined") == expected)
        assert not any(stream.source_error for stream in live.client.streams())
        assert not any(s.unread.pieces for s in live.client.streams() if s.unread)
