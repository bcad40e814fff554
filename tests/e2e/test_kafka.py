"""Tests of Kafka topics as streams and sinks: results are exact through kills of runtime, workers
and broker, with transactions, and messages in JSON, Avro and Protobuf while the registry is down.

The query is active before anything arrives, so its results must be what DuckDB computes over the
committed messages.
"""

from __future__ import annotations

import io
import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import psutil
import pytest
import redis
from confluent_kafka import Producer

from anabranch_client.processes.children import session
from anabranch_client.processes.pipeline import Pipeline
from anabranch_runtime.faults import Point
from scripts.kafka import Broker
from tests.e2e.test_sinks import ROWS, SQL, drop
from tests.e2e.test_sources import RST, Streams, line, some
from tests.support.oracles.protobuf import compiled, message_class
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.kafka_reader import Reader
from tests.support.surroundings.registry import Registry, framed
from tests.support.worlds.processes import kill, live_pipeline

#: Protobuf schema of stream ``t``, and its id in the registry.
PROTO, PROTO_ID = 'syntax = "proto3"; message Row { int32 k = 1; sint64 v = 2; }', 9


@dataclass
class Load:
    """A Kafka producer that commits most of its transactions, and aborts the others."""

    topics: Topics
    streams: Streams
    names: dict[str, str]
    chance: random.Random
    #: Avro schemas of stream ``s`` in the registry.
    schemas: list[Any]
    producer: Producer = field(init=False)
    message: Any = field(init=False)

    def __post_init__(self) -> None:
        self.message = message_class(compiled(PROTO), "Row")
        transaction = {"transactional.id": self.names["r"], "transaction.timeout.ms": 60_000}
        self.producer = self.topics.producer(**transaction)
        self.producer.init_transactions()
        self.partitions = dict.fromkeys(self.names, 2)

    def avro(self, k: int, v: int) -> bytes:
        """Return a row in Avro, by a random one of the schemas."""
        number, out = self.chance.randrange(len(self.schemas)), io.BytesIO()
        fastavro.schemaless_writer(out, self.schemas[number], {"k": k, "v": v, "more": "x"})
        return framed(number + 1, out.getvalue())

    def protobuf(self, k: int, v: int) -> bytes:
        """Return a row in Protobuf."""
        message: Any = self.message(k=k, v=v)
        return framed(PROTO_ID, b"\0" + message.SerializeToString())

    def send(self, rows: int) -> None:
        """Send a transaction of rows to all topics; every fourth one is aborted."""
        self.producer.begin_transaction()
        sent = {name: some(self.chance, rows, 2000) for name in self.names}
        for name, values in sent.items():
            for k, v in values:
                partition = self.chance.randrange(self.partitions[name])
                message = {"r": line, "s": self.avro, "t": self.protobuf}[name](k, v)
                self.producer.produce(self.names[name], message, partition=partition)
                self.producer.poll(0)
        self.producer.flush()
        if self.chance.random() < 0.25:
            self.producer.abort_transaction()
            return
        self.producer.commit_transaction()
        for name, values in sent.items():
            self.streams.sent[name] += values


@pytest.mark.spark
@pytest.mark.slow
def test_topics_through_kills_of_runtime_worker_and_broker_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    chance = random.Random(11)
    topics = Topics(kafka.address)
    with live_pipeline(tmp_path) as live:
        streams = Streams(live, tmp_path, redis.Redis.from_url(live.pipeline.redis_url))
        names = {name: topics.make(2) for name in "rst"}
        schemas = [_schema("int", "long"), _schema(["null", "long"], "int", "string")]
        registry = Registry(dict(enumerate(schemas, 1)))
        registry.add_protobuf(PROTO_ID, PROTO)
        payloads = {"s": "avro", "t": "protobuf"}
        for name, topic in names.items():
            registered = {"payload": payloads.get(name, ""), "registry": registry.address}
            given = registered if name in payloads else {}
            streams.add(name, "kafka", brokers=kafka.address, topics=topic, **given)
        streams.activate("rst", RST)
        load = Load(topics, streams, names, chance, schemas[:1])
        poison = 0
        for number in range(16):
            load.send(chance.randrange(100, 800))
            if number == 3:
                topics.push(names["r"], [b"no json", None, b"{}x"], 1)
                poison = 3
            if number == 7:
                topics.grow(names["s"], 4)
                load.producer = topics.producer(**{"transactional.id": "grown"})
                load.producer.init_transactions()
                load.partitions["s"] = 4
            time.sleep(chance.random() / 2)
            if number in (2, 9):
                kill(live.pipeline, "runtime")
                live.start_runtime()
            elif number in (4, 12):
                _kill_worker(live.pipeline)
            elif number == 5:
                registry.login = "another"
                load.schemas = schemas
            elif number == 10:
                live.wait(
                    "the stream to wait for its registry",
                    lambda: "schema registry" in str(live.client.stream("s").source_error),
                )
                registry.login = None
            elif number == 6:
                kafka.kill()
                time.sleep(1.0)
                kafka.start()
        expected = {name: len(rows) for name, rows in streams.sent.items()}
        expected["r"] += poison
        live.wait(
            "everything to be read",
            lambda: (
                {name: live.progress().streams.get(name, {}).get("input", 0) for name in expected}
                == expected
            ),
        )
        time.sleep(1.0)
        counts = live.progress().streams
        assert {name: found["input"] for name, found in counts.items()} == expected
        assert [counts[name]["invalid"] for name in "rst"] == [poison, 0, 0]
        assert not any(stream.source_error for stream in live.client.streams())
        live.pipeline.finish_runtime()
        registry.close()
        assert streams.check("rst", RST) > 50


def _schema(*kinds: Any) -> Any:
    members = zip(("k", "v", "more"), kinds, strict=False)
    fields = [{"name": name, "type": kind} for name, kind in members]
    return fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})


@pytest.mark.spark
@pytest.mark.slow
def test_a_reader_sees_each_result_once_through_kills_of_runtime_and_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker
) -> None:
    faults = tmp_path / "faults"
    for folder in ("a", "b", "faults"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", str(faults))
    topics = Topics(kafka.address)
    names = {query: topics.make(2) for query in ("rows", "groups", "keyed")}
    sinks: dict[str, dict[str, Any]] = {
        name: {"format": "kafka", "options": {"brokers": kafka.address, "topic": topic}}
        for name, topic in names.items()
    }
    sinks["groups"]["commit_interval"] = "1 s"
    sinks["keyed"]["options"] |= {"payload": "upsert", "key": "g"}
    view = "SELECT a.k % 7 AS g, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k % 7"
    points = (Point.SENT, Point.PUBLISHED, Point.SENT, Point.STAGED, Point.SENT, Point.VIEWED)
    with (
        live_pipeline(tmp_path / "pipeline") as live,
        Reader(kafka.address, names["rows"], 2) as rows,
        Reader(kafka.address, names["groups"], 2) as groups,
        Reader(kafka.address, names["keyed"], 2) as keyed,
    ):
        for stream in ("a", "b"):
            source = {"format": "files", "path": str(tmp_path / stream)}
            live.client.create_stream(stream, (("k", "bigint"), ("v", "string")), source=source)
        for name, sink in sinks.items():
            text = view if name == "keyed" else SQL
            live.client.create_query(text, name=name, sink=sink)
        live.wait(
            "the queries to be active",
            lambda: {live.client.query(name).status for name in sinks} == {"active"},
        )

        def settle(files: int) -> None:
            keys = range(files * ROWS)
            expected = Counter(b'{"k":%d,"av":"a%d","bv":"b%d"}' % (k, k, k) for k in keys)
            for reader in (rows, groups):
                live.wait("the results", lambda r=reader: r.values().total() >= len(keys))  # type: ignore[misc]
                reader.sees(expected)
            counts = Counter(k % 7 for k in keys)
            live.wait("the view", lambda: _table(keyed) == counts)

        drop(tmp_path, 0)
        settle(1)
        for number, point in enumerate(points, 1):
            (faults / point).touch()
            drop(tmp_path, number)
            held = faults / f"{point}.held"
            live.wait(f"the runtime at {point}", held.exists)
            if number == 3:
                kafka.kill()
                kafka.start()
            kill(live.pipeline, "runtime")
            held.unlink()
            live.start_runtime()
            settle(number + 1)
        assert {live.client.query(name).sink_problem for name in sinks} == {None}
        headers = rows.headers()
        assert {h["anabranch-query"] for h in headers} == {b"rows"}
        assert all(int(h["anabranch-epoch"]) >= 0 for h in headers)


def _table(reader: Reader) -> Counter[int]:
    """Return the current rows of a topic of upserts: the last value of each key."""
    last = {message.key(): message.value() for message in list(reader.messages)}
    found = [json.loads(value) for value in last.values() if value is not None]
    return Counter({row["g"]: row["n"] for row in found})


def _kill_worker(pipeline: Pipeline) -> None:
    """Kill one of the runtime's Python workers with SIGKILL."""
    child = next(c for c in pipeline.children if c.name == "runtime")
    everybody = session(child.pid)
    workers = [p for p in everybody if _is_worker(p)]
    if workers:
        workers[-1].send_signal(signal.SIGKILL)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "python" in process.name() and "daemon" in " ".join(process.cmdline())
    except psutil.Error:
        return False
