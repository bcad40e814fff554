"""Lag of a join over two PostgreSQL tables that change at a fixed rate.

A process commits small transactions (updates, inserts, deletes) at a fixed rate; a live pipeline
follows both tables and joins them. The lag of a batch is the time from the first commit that it
read to its own commit. At the end, the sum of the query's changes is compared with PostgreSQL's
join.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg2

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from benchmarks.command import Benchmark, made, run_benchmark
from benchmarks.connectors.kafka import common_options
from benchmarks.kinds import KindMeter
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import PATIENCE, BatchLog, WrongResultError, read_log
from scripts.postgres import running as server

_POLLING, _SAMPLING = 0.1, 0.1
#: Initial rows of each table, and changes per transaction.
_CUSTOMERS, _TOGETHER = 1000, 20
_JOIN = "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON o.customer = c.id"
_COLUMNS = "id, amount, name"
_SCHEMA = (
    "CREATE TABLE customers (id int PRIMARY KEY, name varchar(20) NOT NULL, visits int)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2))",
    f"INSERT INTO customers SELECT i, 'customer ' || i, 0 FROM generate_series(1, {_CUSTOMERS}) i",
)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=int, default=5000, help="changes per second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rows", type=int, default=100_000, help="orders at the beginning")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Let the pipeline copy both tables, then follow changes at a fixed rate; return the lags."""
    spec = PipelineSpec(
        home=home / "run",
        results=made(home / "run" / "results"),
        mode="live",
        optimizer="clash",
        epoch_batches=100,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        master=f"local[{options.tasks}]",
        parallelism=options.parallelism,
        access=Permissions((home.resolve(),)),
    )
    with (
        server() as database,
        running(spec) as pipeline,
        pipeline.start_service() as client,
        closing(psycopg2.connect(database.url)) as connection,
    ):
        connection.autocommit = True
        cursor = connection.cursor()
        orders = f"INSERT INTO orders SELECT i, i % {_CUSTOMERS} + 1, i"
        for statement in (*_SCHEMA, f"{orders} FROM generate_series(1, {options.rows}) i"):
            cursor.execute(statement)
        for name in ("customers", "orders"):
            source = {"format": "postgres", "options": {"url": database.url, "table": name}}
            client.create_stream(name, [], source=source, kind="upsert")
        client.create_query(_JOIN, name="joined")
        pipeline.start_runtime()
        began = time.time()
        first = options.rows + _CUSTOMERS
        _wait(pipeline, first)
        copied = time.time() - began
        tell(f"copy: {first:,} rows after {copied:.1f} s")
        meter = KindMeter(lambda: {c.name: c.pid for c in pipeline.children}, _SAMPLING)
        meter.start()
        try:
            commits = _changes(database.url, options)
            _wait(pipeline, first + commits[-1][1])
        finally:
            meter.stop()
        cursor.execute(_JOIN)
        _check(pipeline, sorted(cursor.fetchall()))
        log = read_log(pipeline.spec.logs / "runtime.log")
        pipeline.finish_runtime()
    lags = np.array(_lags(log, commits, first))
    steady = lags[len(lags) // 10 :]
    return {
        "changes": commits[-1][1],
        "rate": commits[-1][1] / (commits[-1][0] - commits[0][0]),
        "copied_rows": first,
        "copy_seconds": copied,
        "cpu_seconds": meter.cpu_seconds,
        "batches": len(lags),
        "lag": {
            "median": float(np.median(steady)),
            "p95": float(np.quantile(steady, 0.95)),
            "max": float(steady.max()),
        },
    }


def _changes(url: str, options: argparse.Namespace) -> list[tuple[float, int]]:
    """Let another process commit changes; return (Unix time, changes so far) of its commits."""
    given = (url, str(options.rate), str(options.seconds), str(options.rows))
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.connectors.postgres", "--write", *given],
        check=True,
        capture_output=True,
        text=True,
    )
    return [(at, count) for at, count in json.loads(run.stdout)]


def write(url: str, rate: int, seconds: int, rows: int) -> None:
    """Commit ``rate`` changes per second for ``seconds`` seconds, and print the commits."""
    chance = np.random.default_rng(1)
    found, count, upto = list[tuple[float, int]](), 0, rows
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        began = time.time()
        for number in range(rate * seconds // _TOGETHER):
            pause = began + number * _TOGETHER / rate - time.time()
            if pause > 0:
                time.sleep(pause)
            some = [int(n) for n in chance.choice(upto - rows // 2, 14, replace=False)]
            some = [n + 1 + rows // 2 for n in some]
            cursor.execute(
                "WITH changed AS (UPDATE orders SET amount = amount + 1 WHERE id = ANY(%s)"
                " RETURNING 1), added AS (INSERT INTO orders SELECT i, i %% 1000 + 1, 1"
                " FROM generate_series(%s, %s) i RETURNING 1), gone AS (DELETE FROM orders"
                " WHERE id IN (%s, %s) RETURNING 1), visited AS (UPDATE customers"
                " SET visits = visits + 1 WHERE id = %s RETURNING 1)"
                " SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM added)"
                " + (SELECT count(*) FROM gone) + (SELECT count(*) FROM visited)",
                (some, upto + 1, upto + 3, 2 * number + 1, 2 * number + 2, number % 1000 + 1),
            )
            count += cursor.fetchone()[0]
            upto += 3
            found.append((time.time(), count))
    json.dump(found, sys.stdout)


def _wait(pipeline: Pipeline, rows: int) -> None:
    """Wait until the pipeline has committed ``rows`` rows."""
    deadline = time.monotonic() + PATIENCE
    while sum(one.get("input", 0) for one in _streams(pipeline)) < rows:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{rows} rows have not been read after {PATIENCE:.0f} s")
        pipeline.check()
        time.sleep(_POLLING)


def _streams(pipeline: Pipeline) -> list[dict[str, int]]:
    progress = pipeline.progress()
    return [] if progress is None else [dict(one) for one in progress.streams.values()]


def _lags(log: Sequence[BatchLog], commits: Sequence[tuple[float, int]], first: int) -> list[float]:
    """Return each batch's lag in seconds: from the first commit that it read to its own commit."""
    times, counts = (np.array(part) for part in zip(*commits, strict=True))
    found, read = list[float](), -first
    for batch in log:
        if batch.tuples and read >= 0:
            at = int(np.searchsorted(counts, read, side="right"))
            found.append(batch.committed_at - float(times[at]))
        read += batch.tuples
    if read != commits[-1][1]:
        raise WrongResultError(f"{read} changes were read, and {commits[-1][1]} committed")
    return found


def _check(pipeline: Pipeline, expected: list[tuple[Any, ...]]) -> None:
    """Compare the sum of the query's changes with the rows ``expected``."""
    files = sorted(map(str, (pipeline.spec.results / "joined").glob("*.parquet")))
    sign = "CASE anabranch_change WHEN 'insert' THEN 1 ELSE -1 END"
    found = (
        duckdb.read_parquet(files)
        .aggregate(f"{_COLUMNS}, sum({sign}) AS n", _COLUMNS)
        .filter("n <> 0")
        .fetchall()
    )
    if sorted((*row, 1) for row in expected) != sorted(found):
        raise WrongResultError(f"{len(found)} rows differ from PostgreSQL's {len(expected)}")


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table, which has one row."""
    lag = entry["lag"]
    row = (
        f"{entry['rate']:,.0f}",
        *(f"{lag[name]:.2f}" for name in ("median", "p95", "max")),
        f"{entry['cpu_seconds']:.1f}",
        f"{entry['copied_rows'] / entry['copy_seconds']:,.0f}",
    )
    head = ("changes/s", "lag s", "p95", "max", "CPU s", "copied rows/s")
    return [Grid("postgres", head, (row,), texts=0)]


BENCHMARK = Benchmark(
    "postgres", "lag of a join over changing PostgreSQL tables", _options, measure, tables
)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], *map(int, sys.argv[3:]))
        sys.exit()
    sys.exit(run_benchmark("connectors", BENCHMARK, None, common_options))
