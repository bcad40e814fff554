"""Five TPC-H joins over Kafka topics with different payloads, compared with recorded files of the
same rows.

All runs have the same batches: they limit the rows of each stream per batch in the same way, and
all messages are in their topics before the runtime starts. A broker of one node runs on the same
machine. Each run's results are compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch_client.replay.oracle import Active
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import QUERIES, generate
from anabranch_contract.protocol.progress import Progress
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.kinds import KindMeter
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import Session, session
from scripts.kafka import running
from tests.support.oracles.protobuf import compiled, message_class

#: Maximum number of messages in the producer's queue.
_UNSENT = 50_000
#: Rows per message with an Arrow payload.
_ROWS = 1000
#: Seconds between two samples of the processes.
_SAMPLING = 0.1


def common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the pipeline to ``parser``."""
    parser.add_argument("--tasks", type=int, default=os.cpu_count(), help="Spark's")
    parser.add_argument("--parallelism", type=int, default=2, help="partitions per store")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.05, help="TPC-H's scale factor")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    parser.add_argument("--payloads", nargs="+", choices=PAYLOADS, default=list(PAYLOADS))
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run the queries over recorded files and over topics in turns; return the figures."""
    # Batches are limited by their number of rows only, not by time.
    os.environ["ANABRANCH_TARGET_LATENCY"] = "0"
    streams = generate(made(home / "input"), options.scale, options.batches)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with running(home / "broker") as broker:
        sources: dict[str, dict[str, dict[str, Any]]] = {"recorded": {}}
        for payload in options.payloads:
            sources[payload] = {
                s.name: _send(s, broker.address, options.partitions, payload) for s in streams
            }
        for _ in range(options.runs):
            for name, given in sources.items():
                run = _run(streams, given, home / "run", options)
                found[name].append(run)
                tell(f"{name}: {run['tuples_per_s']:,.0f} tuples/s")
    return {
        "input_tuples": sum(s.rows for s in streams),
        "sources": {
            name: {
                "tuples_per_s": spread(run["tuples_per_s"] for run in runs),
                "cpu_seconds": spread((run["cpu_seconds"] for run in runs), 2),
                "read_seconds": spread((run["read_seconds"] for run in runs), 3),
            }
            for name, runs in found.items()
        },
    }


def _send(stream: RecordedStream, address: str, partitions: int, payload: str) -> dict[str, Any]:
    """Send the rows of a file to a new topic; return the topic as the source of a stream."""
    settings = {"bootstrap.servers": address, "linger.ms": 20, "compression.type": "lz4"}
    topic = f"{stream.name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer(settings)
    table = pq.read_table(stream.path)
    schema = _schema(table.schema)
    for number, message in enumerate(_MESSAGES[payload](table, schema)):
        producer.produce(topic, message, partition=number % partitions)
        if number % _UNSENT == 0:
            producer.flush()
    producer.flush()
    options = {"brokers": address, "topics": topic, "payload": payload}
    if payload == "avro":
        options["schema"] = json.dumps(schema)
    elif payload == "protobuf":
        options["schema"] = _proto(table.schema)
    return {"format": "kafka", "options": options, "rows_per_batch": stream.rows_per_batch}


def _in_json(table: pa.Table, _: Any) -> Iterator[str]:
    with duckdb.connect() as connection:
        connection.register("rows", table)
        for (text,) in connection.sql("SELECT to_json(t) FROM rows AS t").fetchall():
            yield text


def _in_avro(table: pa.Table, schema: Any) -> Iterator[bytes]:
    parsed = fastavro.parse_schema(schema)
    for row in table.to_pylist():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        yield out.getvalue()


def _in_protobuf(table: pa.Table, _: Any) -> Iterator[bytes]:
    cls: Any = message_class(compiled(_proto(table.schema)), "Row")
    texts = [c.name for c in table.schema if _scalar(c.type) == "string"]
    for name in texts:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.string()))
    for row in table.to_pylist():
        yield cls(**row).SerializeToString()


def _in_arrow(table: pa.Table, _: Any) -> Iterator[bytes]:
    for batch in table.to_batches(_ROWS):
        out = io.BytesIO()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield out.getvalue()


_MESSAGES = {"json": _in_json, "avro": _in_avro, "protobuf": _in_protobuf, "arrow": _in_arrow}
PAYLOADS = tuple(_MESSAGES)


def _schema(columns: pa.Schema) -> dict[str, Any]:
    """Return the Avro schema of columns."""
    fields = [{"name": c.name, "type": ["null", _avro(c.type)]} for c in columns]
    return {"type": "record", "name": "row", "fields": fields}


def _avro(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_integer(kind):
        return "long" if kind.bit_width > 32 else "int"
    return "double" if pa.types.is_floating(kind) else "string"


def _proto(columns: pa.Schema) -> str:
    """Return the Protobuf schema of columns; decimals and dates are texts."""
    fields = (f"optional {_scalar(c.type)} {c.name} = {n};" for n, c in enumerate(columns, 1))
    return f'syntax = "proto3"; message Row {{ {" ".join(fields)} }}'


def _scalar(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int64"
    return "double" if pa.types.is_floating(kind) else "string"


def metered(system: Session) -> tuple[Progress, float]:
    """Let the runtime read all input and exit; return its progress, and CPU seconds meanwhile."""
    system.start()
    rows = sum(s.rows for s in system.streams)
    meter = KindMeter(system.roots, _SAMPLING)
    meter.start()
    try:
        system.gate(None)
        progress = system.wait(lambda p: p.input_tuples >= rows)
    finally:
        meter.stop()
    system.pipeline.finish_runtime()
    return progress, meter.cpu_seconds


def _run(
    streams: Sequence[RecordedStream],
    sources: Mapping[str, dict[str, Any]],
    home: Path,
    options: argparse.Namespace,
) -> dict[str, float]:
    """Run the queries over ``streams``; return the figures of the batches after the first."""
    with session(
        home,
        streams,
        QUERIES,
        master=f"local[{options.tasks}]",
        parallelism=options.parallelism,
        sources=sources,
    ) as system:
        progress, cpu_seconds = metered(system)
        always = Active(activated=0, expired=None, visible_from={})
        system.check([(query, always) for query in QUERIES], progress.results)
        log = [batch for batch in system.log() if batch.tuples]
    shutil.rmtree(home)
    seconds = log[-1].committed_at - log[0].committed_at
    return {
        "tuples_per_s": sum(batch.tuples for batch in log[1:]) / seconds,
        "cpu_seconds": cpu_seconds,
        "read_seconds": sum(batch.tasks["read"] for batch in log),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per source, with ratios to the recorded files."""
    base = entry["sources"]["recorded"]["tuples_per_s"]["median"]
    rows = [
        (
            name,
            shown(one["tuples_per_s"]),
            f"{one['tuples_per_s']['median'] / base:.2f}",
            shown(one["cpu_seconds"], 1),
            shown(one["read_seconds"], 2),
        )
        for name, one in entry["sources"].items()
    ]
    head = ("source", "tuples/s", "of recorded", "CPU s", "reading s")
    return [Grid("connectors", head, tuple(rows), texts=1)]


BENCHMARK = Benchmark(
    "kafka", "TPC-H joins over Kafka topics and recorded files", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_benchmark("connectors", BENCHMARK, None, common_options))
