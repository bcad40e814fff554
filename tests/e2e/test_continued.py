"""Test of a stream that reads a folder, then a topic: each row once, through kills at any time."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.kafka import Broker
from tests.support.surroundings.kafka import Topics
from tests.support.worlds.processes import kill, live_pipeline, meanwhile

FILES, ROWS = 6, 100_000


@pytest.mark.spark
@pytest.mark.slow
def test_files_and_then_topics_through_kills_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker
) -> None:
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    topics, chance = Topics(kafka.address), random.Random(3)
    topic = topics.make(2)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        keys = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        rows = pa.table({"id": keys, "v": pa.array([0] * ROWS, pa.int64())})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet")
    # The files have these messages already.
    topics.push(topic, [b'{"id": 1, "v": 0}'] * 5)
    sent = list[tuple[int, int]]()
    with live_pipeline(tmp_path) as live:
        then = {"brokers": kafka.address, "topics": topic, "start": json.dumps({topic: {"0": 5}})}
        live.client.create_stream(
            "orders",
            [("id", "bigint"), ("v", "bigint")],
            retain="all",
            source={
                "format": "files",
                "path": str(tmp_path / "in"),
                "then": {"format": "kafka", "options": then},
            },
        )
        sql = "SELECT id, v FROM orders WHERE id % 100 = 7"
        live.client.create_query(sql, name="some", past="stored")

        def push(over: threading.Event) -> None:
            while not over.is_set():
                rows = [(chance.randrange(9_000) * 100 + 7, len(sent) + n) for n in range(20)]
                values = [json.dumps({"id": k, "v": v}).encode() for k, v in rows]
                topics.push(topic, values, chance.randrange(2))
                sent.extend(rows)
                time.sleep(0.1)

        def read(*, whole: bool) -> bool:
            """Whether a part of the files has been read; ``whole``: all of them."""
            found = live.client.stream("orders")
            if whole:
                return bool(found.input_tuples) and found.snapshot is None
            return found.snapshot is not None and found.snapshot.read > 0

        with meanwhile(push):
            for whole in (False, False, True, True):
                live.wait("the files", lambda w=whole: read(whole=w))  # type: ignore[misc]
                kill(live.pipeline, "runtime")
                live.start_runtime()
                time.sleep(1.5 * whole)
        past = Counter({(id, 0): 1 for id in range(7, FILES * ROWS, 100)})
        expected = past + Counter(sent)

        def results() -> Counter[tuple[int, int]]:
            files = sorted(map(str, (live.results / "some").glob("*.parquet")))
            if not files:
                return Counter()
            found = duckdb.connect().execute(f"SELECT id, v FROM read_parquet({files})")
            return Counter(map(tuple, found.fetchall()))

        live.wait("the last messages", lambda: results().total() >= expected.total())
        assert results() == expected
        assert live.progress().streams["orders"]["input"] == FILES * ROWS + len(sent)
