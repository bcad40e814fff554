"""Tests of Spark and notebooks that read a live pipeline: tables as of batches, streams of results,
SQL.

All that is read is compared with what DuckDB computes over the rows that were pushed.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.spark import query as spark_query
from anabranch_client.spark import register, stream
from anabranch_runtime.sinks.merged import merge_results
from tests.support.worlds.processes import LivePipeline, live_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

DOCS = Path(__file__).resolve().parents[2] / "docs"
START = datetime(2024, 5, 1, tzinfo=UTC)
PAIRS = "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k"
SUMS = "SELECT a.k, count(*) AS n, sum(b.y) AS s FROM a JOIN b ON a.k = b.k GROUP BY a.k"
#: A stream with inserts and deletes joined with a plain one: results are added and removed.
LIVES = "SELECT c.k, c.x, b.y FROM c JOIN b ON c.k = b.k"
TIMES = "SELECT a.k, a.ts FROM a JOIN b ON a.k = b.k"
TABLES = {"pairs": PAIRS, "sums": SUMS, "lives": LIVES}
STREAMS: dict[str, list[tuple[str, str]]] = {
    "a": [("k", "bigint"), ("x", "decimal(9,2)"), ("ts", "timestamp")],
    "b": [("k", "bigint"), ("y", "bigint"), ("ts", "timestamp")],
    "c": [("k", "bigint"), ("x", "string"), ("op", "string"), ("ts", "timestamp")],
}


@dataclass
class World:
    """A live pipeline with four queries, and all rows that were pushed."""

    live: LivePipeline
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {n: [] for n in STREAMS})
    chance: random.Random = field(default_factory=lambda: random.Random(5))

    def push(self, name: str, count: int) -> None:
        """Push random rows, and wait until they are read; some rows of ``c`` delete
        earlier ones.
        """
        for _ in range(count):
            # Made one by one, so that each row is deleted only once.
            self.rows[name].append(self._row(name))
        fresh = self.rows[name][-count:]
        self.live.client.push(name, fresh)
        read = len(self.rows[name])
        self.live.wait(
            f"{read} rows of {name}",
            lambda: self.live.progress().streams.get(name, {}).get("input", 0) >= read,
        )

    def _row(self, name: str) -> dict[str, Any]:
        ts = (START + timedelta(seconds=self.chance.randint(0, 300))).isoformat()
        key = self.chance.randint(0, 5)
        if name == "a":
            return {"k": key, "x": f"{self.chance.randint(0, 99)}.50", "ts": ts}
        if name == "b":
            return {"k": key, "y": self.chance.randint(0, 9), "ts": ts}
        net: Counter[tuple[int, str, str]] = Counter()
        for row in self.rows["c"]:
            sign = -1 if row["op"] == "delete" else 1
            net[row["k"], row["x"], row["ts"]] += sign
        alive = sorted(row for row, n in net.items() if n > 0)
        if alive and self.chance.random() < 0.4:
            key, x, ts = self.chance.choice(alive)
            return {"k": key, "x": x, "op": "delete", "ts": ts}
        return {"k": key, "x": self.chance.choice("éz"), "op": "insert", "ts": ts}

    def settle(self) -> int:
        """Wait until all tables have the same batch; return it."""
        client = self.live.client

        def batches() -> set[int]:
            found = {client.table_columns(name).batch for name in (*TABLES, "times")}
            return found | {self.live.progress().committed - 1}

        self.live.wait("all tables at one batch", lambda: len(batches()) == 1)
        return batches().pop()

    def expected(self, sql: str) -> Counter[tuple[Any, ...]]:
        """Return the expected rows of a statement, by DuckDB over all pushed rows."""
        with duckdb.connect() as connection:
            for name, rows in self.rows.items():
                columns = [column for column, _ in STREAMS[name]]
                table = pa.table({c: pa.array([row[c] for row in rows]) for c in columns})
                connection.register("pushed", table)
                x = "x::DECIMAL(9,2) AS x" if name == "a" else "*"
                x = f"* REPLACE ({x})" if name == "a" else x
                connection.execute(f"CREATE TABLE {name} AS SELECT {x} FROM pushed")
            connection.execute(
                "CREATE OR REPLACE TABLE c AS SELECT k, x FROM (SELECT k, x, ts, unnest(range(n::"
                "BIGINT)) FROM (SELECT k, x, ts, sum(CASE op WHEN 'delete' THEN -1 ELSE 1 END) AS n"
                " FROM c GROUP BY ALL) WHERE n > 0)"
            )
            return Counter(connection.execute(sql).fetchall())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with live_pipeline(tmp_path_factory.mktemp("live")) as live:
        client = live.client
        for name, columns in STREAMS.items():
            more: dict[str, Any] = {"kind": "changes"} if name == "c" else {}
            client.create_stream(
                name,
                columns,
                source={"format": "redis-stream"},
                event_time="ts",
                lateness="1 hour",
                **more,
            )
        for name, sql in {**TABLES, "times": TIMES}.items():
            client.create_query(sql, name=name, window="1 day")
        live.wait(
            "the queries",
            lambda: all(client.query(n).status == "active" for n in (*TABLES, "times")),
        )
        found = World(live)
        for name in "abcab":
            found.push(name, 40)
        yield found


def load(spark: SparkSession, world: World, name: str, **options: object) -> DataFrame:
    register(spark)
    reader = spark.read.format("anabranch").option("url", world.live.client.base_url)
    return reader.options(**{k: str(v) for k, v in options.items()}).load(name)


def counted(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def test_tables_in_spark_equal_duckdb_at_every_batch(spark: SparkSession, world: World) -> None:
    batch = world.settle()
    then = {name: world.expected(sql) for name, sql in TABLES.items()}
    for name, expected in then.items():
        assert counted(load(spark, world, name, asOfBatch=batch)) == expected, name
    frame = load(spark, world, "pairs", numPartitions=3, asOfBatch=batch)
    assert frame.schema.simpleString() == "struct<k:bigint,x:decimal(9,2),y:bigint>"
    assert frame.rdd.getNumPartitions() == 3
    assert counted(frame) == then["pairs"]
    changes = load(spark, world, "lives", changes="true", asOfBatch=batch)
    net = counted(changes.where("anabranch_change = 'insert'").drop("anabranch_change"))
    net.subtract(counted(changes.where("anabranch_change = 'delete'").drop("anabranch_change")))
    assert +net == then["lives"]
    for name in ("b", "c"):
        world.push(name, 20)
    later = world.settle()
    assert later > batch
    for name, sql in TABLES.items():
        assert counted(load(spark, world, name)) == world.expected(sql)
        # The table as of the earlier batch is unchanged.
        assert counted(load(spark, world, name, asOfBatch=batch)) == then[name]


def forget_last(checkpoint: Path) -> None:
    """Make Spark repeat its last micro-batch, by removing it from the checkpoint."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.slow
def test_results_as_a_stream_each_once(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """Restart from the checkpoint, sometimes before Spark has recorded a micro-batch, and while
    result files are merged.
    """
    register(spark)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    for turn in range(3):
        results = spark.readStream.format("anabranch").option("query", "pairs")
        results = results.option("url", world.live.client.base_url).option("numPartitions", 2)
        frame = results.option("maxBatchesPerTrigger", 7 + turn).load()
        writer = frame.writeStream.format("parquet").option("path", str(out))
        run = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        run.start().awaitTermination()
        if turn == 1:
            # As if Spark had been killed before it recorded its last micro-batch.
            forget_last(checkpoint)
        world.push("ab"[turn % 2], 15)
        batch = world.settle()
        if turn in (0, 2):
            assert merge_results(world.live.results, batch).queries
    spark.readStream.format("anabranch").option("query", "pairs").option(
        "url", world.live.client.base_url
    ).load().writeStream.format("parquet").option("path", str(out)).option(
        "checkpointLocation", str(checkpoint)
    ).trigger(availableNow=True).start().awaitTermination()
    assert counted(spark.read.parquet(str(out))) == world.expected(PAIRS)
    assert counted(load(spark, world, "pairs")) == world.expected(PAIRS)


def test_times_in_a_table_and_a_stream(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.settle()
    expected = world.expected(TIMES.replace("a.ts", "epoch_us(a.ts::TIMESTAMPTZ)"))
    moments = ("k", "unix_micros(ts)")
    assert counted(load(spark, world, "times").selectExpr(*moments)) == expected
    results = spark.readStream.format("anabranch").option("url", world.live.client.base_url)
    writer = results.load("times").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("path", str(tmp_path / "out"))
    writer.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert counted(written.selectExpr(*moments)) == expected


def test_sql_over_tables_of_one_batch(world: World) -> None:
    client = world.live.client
    batch = world.settle()
    sql = "SELECT s.k, s.n, (SELECT count(*) FROM pairs p WHERE p.k = s.k) FROM sums s"
    rows = client.sql(sql)
    assert rows.schema.metadata == {b"anabranch_batch": str(batch).encode()}
    found = [tuple(row.values()) for row in rows.to_pylist()]
    assert len(found) == len(world.expected(SUMS))
    assert all(n == counted for _, n, counted in found)
    # As of any earlier batch, too, the view agrees with its joined rows.
    for earlier in (0, batch // 2, batch - 1):
        old = [tuple(row.values()) for row in client.sql(sql, batch=earlier).to_pylist()]
        assert all(n == counted for _, n, counted in old)
    assert Counter(tuple(r.values()) for r in client.query("lives").arrow().to_pylist()) == (
        world.expected(LIVES)
    )
    frame = client.query("sums").df()
    assert sorted(frame["n"]) == sorted(n for _, n, _ in world.expected(SUMS))
    with pytest.raises(ApiError, match="only SELECT"):
        client.sql(f"COPY pairs TO '{world.live.results}/pairs/x.parquet'")


@pytest.mark.slow
def test_streams_of_spark_as_streams_of_queries(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """A streaming DataFrame is pushed and joined, and its results are streamed back, each once,
    though Spark repeats micro-batches.
    """
    client = world.live.client
    folder, checkpoint = tmp_path / "in", str(tmp_path / "checkpoint")
    folder.mkdir()
    rng = random.Random(3)

    def drop(number: int) -> None:
        rows = [
            {"k": rng.randint(0, 5), "tags": [{"v": rng.randint(0, 3)}], "ts": START}
            for _ in range(30)
        ]
        pushed.extend(rows)
        schema = pa.schema(
            [
                ("k", pa.int64()),
                ("tags", pa.list_(pa.struct([("v", pa.int64())]))),
                ("ts", pa.timestamp("us", "UTC")),
            ]
        )
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{number}.parquet")

    pushed: list[dict[str, Any]] = []
    drop(0)
    schema = spark.read.parquet(str(folder)).schema

    def run() -> None:
        frame = spark.readStream.schema(schema).parquet(str(folder))
        running = stream(
            frame,
            name="visits",
            checkpoint=checkpoint,
            client=client,
            trigger={"availableNow": True},
            event_time="ts",
            lateness="1 hour",
        )
        running.awaitTermination()

    run()
    sql = "SELECT v.k, v.tags[0].v AS tag, b.y FROM visits v JOIN b ON v.k = b.k"
    results = spark_query(spark, sql, name="tagged", client=client, window="1 day")
    assert results.isStreaming
    world.live.wait("the query", lambda: client.query("tagged").status == "active")
    for number in range(1, 3):
        drop(number)
        run()
        forget_last(Path(checkpoint))
    run()
    world.live.wait(
        "all visits",
        lambda: world.live.progress().streams.get("visits", {}).get("input", 0) >= len(pushed),
    )
    world.push("b", 20)
    world.settle()
    assert world.live.progress().streams["visits"]["input"] == len(pushed)
    out = tmp_path / "out"
    writer = results.writeStream.format("parquet").option("path", str(out))
    writer = writer.option("checkpointLocation", str(tmp_path / "tagged"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert counted(spark.read.parquet(str(out))) == Counter(
        tuple(row.values()) for row in client.query("tagged").arrow().to_pylist()
    )
    # Earlier rows were not kept, since no query read them.
    visits = [(row["k"], row["tags"][0]["v"]) for row in pushed[30:]]
    later = world.rows["b"][-20:]
    expected = Counter((k, v, b["y"]) for k, v in visits for b in later if b["k"] == k)
    assert not expected - counted(spark.read.parquet(str(out)))
    with pytest.raises(UsageError, match="other columns"):
        stream(spark.readStream.format("rate").load(), name="visits", checkpoint="x", client=client)


@pytest.mark.slow
def test_the_page_and_its_notebook(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """Every code block of the page is in the notebook, whose cells are run in order, or in another
    test.
    """
    notebook = (DOCS / "examples" / "spark_notebook.py").read_text(encoding="utf-8")
    page = (DOCS / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    elsewhere = [block for block in blocks if "import table" in block or "@dp." in block]
    assert (len(blocks), len(elsewhere)) == (10, 2)
    for block in blocks:
        assert (block in notebook) is (block not in elsewhere)
    scope: dict[str, Any] = {}
    code = notebook.replace("http://127.0.0.1:8080", world.live.client.base_url)
    # Spark's JVM has another working directory.
    for folder in ("copied", "copied-checkpoint", "offers-checkpoint"):
        code = code.replace(f'"{folder}"', f'"{tmp_path / folder}"')
    for cell in re.split(r"^(?=# %%)", code, flags=re.MULTILINE):
        exec(compile(cell, "spark_notebook", "exec"), scope)
    try:
        prices = [Decimal("2.50"), Decimal("9.00")]
        bought = {(f"v{n}", n % 2, prices[n % 2]) for n in range(4)}
        assert set(map(tuple, scope["bought"].df().to_numpy())) == bought
        assert scope["before"].num_rows <= 4
        assert [*scope["totals"]["share"]] == [0.5] * 4
        assert counted(scope["revenue"]) == Counter(
            [(0, 2, Decimal("5.00")), (1, 2, Decimal("18.00"))]
        )
        assert counted(scope["then"]).total() == 4
        assert set(counted(spark.read.parquet(str(tmp_path / "copied")))) == bought
        client = scope["client"]
        world.live.wait("offers", lambda: client.stream("offers").input_tuples > 20)
        assert scope["matched"].columns == ["offer", "visitor"]
    finally:
        scope["pushing"].stop()
        scope["client"].close()


def test_changes_are_read_as_such(spark: SparkSession, world: World) -> None:
    register(spark)
    reader = spark.readStream.format("anabranch").option("url", world.live.client.base_url)
    with pytest.raises(Exception, match="are changes of its table"):
        reader.option("query", "sums").load().writeStream.format("noop").start().awaitTermination()
