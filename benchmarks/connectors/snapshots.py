"""Latency of a live join while another stream reads the snapshot of a Delta table.

A thread sends clicks to a Redis Stream at a fixed rate; each joins one user at once. The latency of
a click is the time from its sending to the commit of the batch that has its result. After a while,
a stream over a Delta table of orders is registered, with a query that joins its rows with the
clicks, and latencies are measured while its snapshot is read. At the end, each click must have
joined one user and one order.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import redis
from deltalake import write_deltalake

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.keys import Keys
from benchmarks.command import Benchmark, made, run_benchmark
from benchmarks.connectors.kafka import common_options
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import PATIENCE, WrongResultError, read_log

_POLLING = 0.1
#: Number of users; seconds between two groups of clicks.
_USERS, _PAUSE = 1000, 0.02
#: Rows per commit to the Delta table.
_COMMIT = 500_000
_LIVE = "SELECT c.n FROM clicks c JOIN users u ON c.k = u.k"
_JOIN = "SELECT c.n, o.amount FROM clicks c JOIN orders o ON c.k = o.k"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table")
    parser.add_argument("--rate", type=int, default=500, help="clicks per second")
    parser.add_argument("--seconds", type=int, default=30, help="without the table")


@dataclass
class _Clicks:
    """Thread that sends clicks until it is stopped, and records the time of each."""

    server: redis.Redis
    key: str
    rate: int
    sent: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        began = time.time()
        while not self.over.wait(_PAUSE):
            now = time.time()
            numbers = range(len(self.sent), int((now - began) * self.rate))
            with self.server.pipeline(transaction=False) as pipe:
                for n in numbers:
                    pipe.xadd(self.key, {"data": json.dumps({"k": n % _USERS, "n": n})})
                pipe.execute()
            self.sent += [now] * len(numbers)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return the latencies of clicks before, during and after the reading of the snapshot."""
    table, namespace = home / "orders", f"bench-{uuid.uuid4().hex[:12]}"
    for low in range(0, options.rows, _COMMIT):
        numbers = np.arange(low, min(low + _COMMIT, options.rows))
        rows = {"k": numbers, "amount": numbers % 997, "text": (numbers * 7).astype("U12")}
        write_deltalake(str(table), pa.table(rows), mode="append")
    spec = PipelineSpec(
        home=home / "run",
        results=made(home / "run" / "results"),
        mode="live",
        optimizer="clash",
        epoch_batches=100,
        namespace=namespace,
        master=f"local[{options.tasks}]",
        parallelism=options.parallelism,
        access=Permissions((home.resolve(),)),
    )
    with running(spec) as pipeline, pipeline.start_service() as client:
        server, keys = redis.Redis.from_url(pipeline.redis_url), Keys(namespace)
        for name, column in (("users", "name"), ("clicks", "n")):
            source = {"format": "redis-stream"}
            columns = [("k", "bigint"), (column, "bigint")]
            client.create_stream(name, columns, source=source, retain="all")
        client.create_query(_LIVE, name="live")
        pipeline.start_runtime()
        _wait(pipeline, "the live query", lambda: client.query("live").status == "active")
        for k in range(_USERS):
            server.xadd(keys.stream("users"), {"data": json.dumps({"k": k, "name": k})})
        _wait(pipeline, "users", lambda: _read(client, "users") == _USERS)
        clicks = _Clicks(server, keys.stream("clicks"), options.rate)
        thread = threading.Thread(target=clicks.send, daemon=True)
        thread.start()
        time.sleep(options.seconds)
        registered = time.time()
        columns = [("k", "bigint"), ("amount", "bigint"), ("text", "string")]
        source = {"format": "delta", "path": str(table)}
        client.create_stream("orders", columns, source=source, retain="all")
        client.create_query(_JOIN, name="joined", past="stored")
        _wait(pipeline, "the snapshot", lambda: client.stream("orders").snapshot is not None)
        began = time.time()
        _wait(pipeline, "its rows", lambda: _read(client, "orders") == options.rows)
        ended = time.time()
        tell(f"snapshot: {options.rows:,} rows in {ended - began:.1f} s")
        time.sleep(options.seconds / 3)
        clicks.over.set()
        thread.join()
        total = len(clicks.sent)
        _wait(pipeline, "clicks", lambda: _read(client, "clicks") == total)
        for name in ("live", "joined"):
            _wait(pipeline, name, lambda name=name: _count(spec.results / name) >= total)
            _check(spec.results / name, total)
        log = read_log(spec.logs / "runtime.log")
        pipeline.finish_runtime()
    commits = {batch.batch: batch.committed_at for batch in log}
    found = duckdb.read_parquet(_files(spec.results / "live"), filename=True)
    rows_ = found.project("n, split_part(parse_filename(filename, true), '-', 1)::INT").fetchall()
    sent = np.array([clicks.sent[n] for n, _ in rows_])
    latency = np.array([commits[batch] for _, batch in rows_]) - sent
    parts = {
        "before": (sent > clicks.sent[0] + options.seconds / 3) & (sent < registered),
        "during": (sent >= began) & (sent < ended),
        "after": sent >= ended + 2.0,
    }
    return {
        "rows": options.rows,
        "rate": options.rate,
        "seconds": ended - began,
        "latency": {name: _quantiles(latency[part]) for name, part in parts.items()},
    }


def _quantiles(latency: np.ndarray[Any, Any]) -> dict[str, float]:
    return {
        "median": float(np.median(latency)),
        "p99": float(np.quantile(latency, 0.99)),
        "max": float(latency.max()),
    }


def _wait(pipeline: Pipeline, what: str, holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE:.0f} s")
        pipeline.check()
        time.sleep(_POLLING)


def _read(client: Client, stream: str) -> int:
    return client.stream(stream).input_tuples or 0


def _files(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("*-*.parquet")))


def _count(folder: Path) -> int:
    files = _files(folder)
    return len(duckdb.read_parquet(files)) if files else 0


def _check(folder: Path, clicks: int) -> None:
    """Check that each click has exactly one result."""
    numbers = duckdb.read_parquet(_files(folder)).project("n").fetchnumpy()["n"]
    if len(numbers) != clicks or len(np.unique(numbers)) != clicks:
        raise WrongResultError(f"{folder.name}: {len(numbers)} results of {clicks} clicks")


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row each for the times before, during and after the snapshot."""
    rows = tuple(
        (part, *(f"{entry['latency'][part][name]:.2f}" for name in ("median", "p99", "max")))
        for part in ("before", "during", "after")
    )
    title = f"{entry['rows']:,} rows in {entry['seconds']:.1f} s"
    return [Grid(title, ("snapshot", "latency s", "p99", "max"), rows)]


BENCHMARK = Benchmark(
    "snapshots", "latency of a live join beside a table's snapshot", _options, measure, tables
)


if __name__ == "__main__":
    raise SystemExit(run_benchmark("connectors", BENCHMARK, None, common_options))
