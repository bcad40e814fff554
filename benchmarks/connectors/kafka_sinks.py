"""Cost of sinks: a join of TPC-H with 100,000 results a batch, written to Parquet files and to a
Kafka topic, with and without message headers.

Runs alternate and have the same batches. Their results are compared with DuckDB's; of a topic, only
committed messages are read. A broker of one node runs on the same machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch_client.replay.oracle import Active, recorded_tables
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery, generate
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.connectors.kafka import common_options, metered
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import BatchLog, WrongResultError, session
from scripts.kafka import running

QUERY = DemoQuery(
    "joined",
    "l_orderkey, l_linenumber, l_quantity, l_shipmode, o_custkey, o_orderdate",
    "lineitem JOIN orders ON o_orderkey = l_orderkey",
    ("lineitem", "orders"),
)
#: Name of a sink -> options of its topic; None: Parquet files.
_SINKS: dict[str, dict[str, str] | None] = {
    "parquet": None,
    "kafka": {},
    "kafka, no headers": {"headers": "none"},
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.13, help="TPC-H's scale factor")
    parser.add_argument("--batches", type=int, default=8, help="100,000 results each by default")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic")
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run the query with each sink in turns; return the figures."""
    # Batches are limited by their number of rows only, not by time.
    os.environ["ANABRANCH_TARGET_LATENCY"] = "0"
    tables = generate(made(home / "input"), options.scale, options.batches)
    streams = [stream for stream in tables if stream.name in QUERY.tables]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in _SINKS}
    with running(home / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for _ in range(options.runs):
            for name, runs in found.items():
                topic = f"results-{uuid.uuid4().hex[:8]}"
                admin.create_topics([NewTopic(topic, options.partitions, 1)])[topic].result(30)
                sink: dict[str, Any] = {"format": "parquet"}
                more = _SINKS[name]
                if more is not None:
                    given = {"brokers": broker.address, "topic": topic, **more}
                    sink = {"format": "kafka", "options": given}
                runs.append(_run(streams, sink, home / "run", options))
                tell(f"{name}: {runs[-1]['results_per_s']:,.0f} results/s")
    return {
        "results": int(found["parquet"][0]["results"]),
        "sinks": {
            name: {
                "results_per_s": spread(run["results_per_s"] for run in runs),
                "cpu_seconds": spread((run["cpu_seconds"] for run in runs), 2),
                "commit_seconds": spread((run["commit_seconds"] for run in runs), 3),
            }
            for name, runs in found.items()
        },
    }


def _run(
    streams: Sequence[RecordedStream],
    sink: dict[str, Any],
    home: Path,
    options: argparse.Namespace,
) -> dict[str, float]:
    """Run the query with one sink; return the figures of the batches after the first."""
    with session(
        home, streams, (), master=f"local[{options.tasks}]", parallelism=options.parallelism
    ) as system:
        system.client.create_query(QUERY.sql, name=QUERY.name, sink=sink)
        progress, cpu_seconds = metered(system)
        if sink["format"] == "kafka":
            check_topic(system.streams, QUERY, **sink["options"])
        else:
            system.check([(QUERY, Active(0, None, {}))], progress.results)
        log = [batch for batch in system.log() if batch.tuples]
    ended = delivered_at(home, log)
    shutil.rmtree(home)
    return {
        "results": sum(batch.results for batch in log),
        "results_per_s": sum(batch.results for batch in log[1:]) / (ended - log[0].committed_at),
        "cpu_seconds": cpu_seconds,
        "commit_seconds": sum(batch.commit for batch in log[1:]),
    }


def delivered_at(home: Path, log: Sequence[BatchLog]) -> float:
    """Return the time (in Unix seconds) at which the sinks had all results, which may be later than
    the commit of the last batch.
    """
    outboxes = (home / "results" / ".outbox").glob("*")
    return max(log[-1].committed_at, *(outbox.stat().st_mtime for outbox in outboxes), 0.0)


def check_topic(
    streams: Sequence[RecordedStream], query: DemoQuery, *, brokers: str, topic: str, **_: str
) -> None:
    """Compare a topic's committed messages (JSON objects) with DuckDB's results of a query.

    Raises:
        WrongResultError: they differ.
    """
    messages = pa.table({"value": pa.array(_values(brokers, topic), pa.string())})
    with recorded_tables(streams) as connection:
        connection.register("messages", messages)
        found = connection.sql(query.sql)
        types = zip(found.columns, found.types, strict=True)
        columns = ", ".join(f"(value ->> '{name}')::{kind}" for name, kind in types)
        pair = f"SELECT {columns} FROM messages", query.sql
        for one, other in (pair, pair[::-1]):
            differing = len(connection.sql(f"({one}) EXCEPT ALL ({other})"))
            if differing:
                raise WrongResultError(f"{query.name}: {differing} results of the topic differ")


def _values(brokers: str, topic: str) -> list[bytes]:
    reader = Consumer({
        "bootstrap.servers": brokers, "group.id": topic, "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    partitions = reader.list_topics(topic, 10).topics[topic].partitions
    reader.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[bytes] = []
    open_partitions = set(partitions)
    while open_partitions:
        for message in reader.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
    reader.close()
    return found


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per sink, with ratios to Parquet files."""
    base = entry["sinks"]["parquet"]["results_per_s"]["median"]
    rows = [
        (
            name,
            shown(one["results_per_s"]),
            f"{one['results_per_s']['median'] / base:.2f}",
            shown(one["cpu_seconds"], 1),
            shown(one["commit_seconds"], 2),
        )
        for name, one in entry["sinks"].items()
    ]
    head = ("sink", "results/s", "of files", "CPU s", "committing s")
    return [Grid("connectors", head, tuple(rows), texts=1)]


BENCHMARK = Benchmark(
    "kafka_sinks",
    "100,000 joined rows a batch to Parquet files and a Kafka topic",
    _options,
    measure,
    tables,
)


if __name__ == "__main__":
    sys.exit(run_benchmark("connectors", BENCHMARK, None, common_options))
