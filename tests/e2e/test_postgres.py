"""Tests of PostgreSQL tables as streams: results are exact through kills of the runtime and
restarts of the database.

A join of two tables, to which random transactions are written meanwhile, must be what PostgreSQL
itself computes.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import psycopg2
import pytest

from scripts.postgres import Server
from tests.support.surroundings.postgres import rows, run, session
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline, meanwhile

JOIN = "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON o.customer = c.id"
TABLES = {
    "customers": {"id": "bigint", "name": "string"},
    "orders": {"id": "bigint", "customer": "bigint", "amount": "decimal(10,2)"},
}


def write(server: Server, seed: int, over: threading.Event) -> None:
    """Commit random transactions on both tables until the end, through restarts."""
    chance = random.Random(seed)
    while not over.is_set():
        try:
            with session(server) as cursor:
                while not over.is_set():
                    transaction(cursor, chance)
                    time.sleep(0.005)
        except psycopg2.Error:
            time.sleep(0.1)


def transaction(cursor: Any, chance: random.Random) -> None:
    """Execute a random transaction; some are rolled back."""
    cursor.execute("BEGIN")
    for _ in range(chance.randrange(1, 4)):
        first, other = chance.randrange(1, 300), chance.randrange(1, 40)
        cursor.execute(
            chance.choice(
                (
                    f"INSERT INTO orders SELECT i, i % 40, i FROM generate_series({first},"
                    f" {first + 9}) i ON CONFLICT (id) DO UPDATE SET amount = orders.amount + 0.25",
                    f"UPDATE orders SET customer = {other} WHERE id % 50 = {other}",
                    f"DELETE FROM orders WHERE id BETWEEN {first} AND {first + 4}",
                    f"UPDATE orders SET id = id + 1000 WHERE id = {first}"
                    f" AND NOT EXISTS (SELECT 1 FROM orders WHERE id = {first + 1000})",
                    f"UPDATE customers SET name = name || '.' WHERE id = {other}",
                    f"DELETE FROM customers WHERE id = {other}",
                    f"INSERT INTO customers VALUES ({other}, 'new') ON CONFLICT DO NOTHING",
                )
            )
        )
    cursor.execute("COMMIT" if chance.random() < 0.9 else "ROLLBACK")


def current(live: LivePipeline, query: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that result from a query's changes."""
    found = sorted(map(str, (live.results / query).glob("*.parquet")))
    if not found:
        return Counter()
    changes = duckdb.read_parquet(found).fetchall()
    total: Counter[tuple[Any, ...]] = Counter()
    for *row, change in changes:
        total[tuple(row)] += 1 if change == "insert" else -1
    return Counter({row: count for row, count in total.items() if count})


@pytest.mark.spark
@pytest.mark.slow
def test_a_join_of_tables_through_kills_of_runtime_and_database_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Server
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    monkeypatch.setenv("ANABRANCH_SOURCE_DATABASE", postgres.url)
    run(
        postgres,
        "CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(40) NOT NULL)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(10,2))",
        "ALTER TABLE customers REPLICA IDENTITY FULL",
        "INSERT INTO customers SELECT i, 'c' || i FROM generate_series(1, 40) i",
        "INSERT INTO orders SELECT i, i % 45, i FROM generate_series(1, 200) i",
    )
    with live_pipeline(tmp_path) as live:
        for name, columns in TABLES.items():
            options = {"url": "${ANABRANCH_SOURCE_DATABASE}", "table": name}
            source = {"format": "postgres", "options": options}
            live.client.create_stream(
                name, list(columns.items()), source=source, kind="upsert", key=["id"]
            )
        live.client.create_query(JOIN, name="joined")
        with meanwhile(lambda over: write(postgres, 3, over)):
            for step in range(6):
                time.sleep(2.0)
                if step in (1, 4):
                    kill(live.pipeline, "runtime")
                    live.start_runtime()
                elif step == 3:
                    postgres.kill()
                    time.sleep(0.5)
                    postgres.start()
        expected = Counter(rows(postgres, JOIN))
        live.wait("the last changes", lambda: current(live, "joined") == expected)
        time.sleep(2.0)
        assert current(live, "joined") == expected
        assert not any(stream.source_error for stream in live.client.streams())
        names = "SELECT count(*)::int FROM pg_replication_slots WHERE slot_name LIKE '%_orders_%'"
        assert rows(postgres, names) == [(1,)]
        live.client.delete_query("joined")
        live.wait("the query's end", lambda: live.client.query("joined").status == "expired")
        live.client.delete_stream("orders")
        live.wait("the slot's end", lambda: rows(postgres, names) == [(0,)])


@pytest.mark.spark
@pytest.mark.slow
def test_an_altered_table_is_followed_through_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Server
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    monkeypatch.setenv("ANABRANCH_SOURCE_DATABASE", postgres.url)
    run(
        postgres,
        "CREATE TABLE clients (id int PRIMARY KEY, name varchar(40))",
        "CREATE TABLE bills (id int PRIMARY KEY, client int, amount numeric(6,2))",
        "ALTER TABLE clients REPLICA IDENTITY FULL",
        "INSERT INTO clients SELECT i, 'c' || i FROM generate_series(1, 40) i",
        "INSERT INTO bills SELECT i, i % 45, i FROM generate_series(1, 200) i",
    )
    early = (
        "SELECT CAST(b.id AS bigint) AS id, CAST(b.amount AS decimal(12,2)) AS amount, c.name"
        " FROM bills b JOIN clients c ON b.client = c.id"
    )
    late = "SELECT b.id, b.coupon, c.name FROM bills b JOIN clients c ON b.client = c.id"
    with live_pipeline(tmp_path) as live:
        client = live.client
        for name in ("clients", "bills"):
            options = {"url": "${ANABRANCH_SOURCE_DATABASE}", "table": name}
            client.create_stream(
                name, [], source={"format": "postgres", "options": options}, kind="upsert"
            )
        client.create_query(early, name="early")
        live.wait("the copy", lambda: client.stream("bills").input_tuples == 200)
        run(
            postgres,
            "ALTER TABLE bills ADD coupon varchar(9) DEFAULT 'none'",
            "ALTER TABLE bills REPLICA IDENTITY FULL",
            "UPDATE bills SET coupon = 'ten', amount = 1 WHERE id < 20",
        )
        live.wait("a notice", lambda: bool(client.stream("bills").source_status.new_columns))
        client.add_column("bills", name="coupon", type="string", default="none")
        run(
            postgres,
            "DELETE FROM bills WHERE id BETWEEN 10 AND 30",
            "ALTER TABLE bills ALTER id TYPE bigint, ALTER amount TYPE numeric(12,2)",
            "UPDATE bills SET coupon = NULL, amount = 9876543210 WHERE id > 150",
            "INSERT INTO bills VALUES (5000000000, 7, 7, 'big')",
        )
        live.wait("an error", lambda: bool(client.stream("bills").source_error))
        assert "widen-column bills id" in str(client.stream("bills").source_error)
        client.widen_column("bills", "id", "bigint")
        client.widen_column("bills", "amount", "decimal(12,2)")
        client.create_query(late, name="late")
        kill(live.pipeline, "runtime")
        live.start_runtime()
        run(postgres, "UPDATE bills SET coupon = coupon", "DELETE FROM clients WHERE id = 3")
        wanted = {
            name: Counter(rows(postgres, sql)) for name, sql in (("early", early), ("late", late))
        }
        live.wait("all rows", lambda: {name: current(live, name) for name in wanted} == wanted)
        assert not client.stream("bills").source_error
        # The table was not copied a second time.
        assert (client.stream("bills").input_tuples or 0) < 1000


@pytest.mark.spark
@pytest.mark.slow
def test_a_lost_slot_stops_its_stream_until_the_loss_is_skipped(
    tmp_path: Path, postgres: Server
) -> None:
    run(
        postgres,
        "CREATE TABLE parts (id int PRIMARY KEY, price numeric(8,2))",
        "INSERT INTO parts SELECT i, i FROM generate_series(1, 100) i",
    )
    options = {"url": postgres.url, "table": "parts", "slot": "parts_slot"}
    with live_pipeline(tmp_path) as live:
        source = {"format": "postgres", "options": options}
        stream = live.client.create_stream("parts", [], source=source, kind="upsert")
        assert [(c.name, c.type) for c in stream.columns][:2] == [
            ("id", "int"),
            ("price", "decimal(8,2)"),
        ]
        live.client.create_query("SELECT sum(price) AS s, count(*) AS n FROM parts", name="total")

        def is_total() -> bool:
            (wanted,) = rows(postgres, "SELECT sum(price)::text, count(*) FROM parts")
            found = live.client.rows("total").rows
            return [(str(row["s"]), row["n"]) for row in found] == [wanted]

        live.wait("the copy", is_total)
        kill(live.pipeline, "runtime")
        run(
            postgres,
            "UPDATE parts SET price = price + 0.5 WHERE id < 50",
            "SELECT pg_drop_replication_slot('parts_slot')",
        )
        live.start_runtime()

        def error() -> str:
            return live.client.stream("parts").source_error or ""

        live.wait("the loss", lambda: "changes-lost" in error() or "parts_slot" in error())
        assert "on_loss" in error()
        live.client.update_stream("parts", on_loss="skip")
        live.wait("the second copy", is_total)
        run(postgres, "DELETE FROM parts WHERE id > 90")
        live.wait("changes after it", is_total)
        found = live.client.stream("parts")
        assert found.unread is not None
        assert [piece.code for piece in found.unread.last] == ["changes-lost"]
        live.wait("health", lambda: not error())
        status = live.client.stream("parts").source_status
        assert status.behind_bytes is not None
