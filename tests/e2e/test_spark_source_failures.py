"""Tests of Spark's sources that fail or are killed: only their streams stop, and each row counts
exactly once.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from anabranch_client.processes.children import session
from anabranch_contract.protocol.keys import Keys
from tests.e2e.test_sources import COLUMNS, Streams, some, table
from tests.support.surroundings.fault_points import OF_INGEST
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PR = "SELECT p.v AS pv, r.v AS rv FROM p JOIN r ON p.k = r.k"
PD = "SELECT p.v AS pv, d.v AS dv FROM p JOIN d ON p.k = d.k"


def joined(live: LivePipeline, folder: Path) -> Streams:
    """Register two directories that Spark reads and a Redis Stream, and their joins."""
    streams = Streams(live, folder, redis.Redis.from_url(live.pipeline.redis_url))
    for name in ("p", "d"):
        (folder / name).mkdir()
        streams.add(name, "parquet", str(folder / name))
    streams.add("r", "redis-stream")
    streams.activate("pr", PR)
    streams.activate("pd", PD)
    return streams


def test_a_source_that_fails_while_it_runs_ends_its_stream_only(tmp_path: Path) -> None:
    chance = random.Random(4)
    with live_pipeline(tmp_path) as live:
        streams = joined(live, tmp_path)
        server = streams.server
        (tmp_path / "plain").write_text("1\n2\n")
        source = {"format": "text", "path": str(tmp_path / "plain"), "options": {"payload": "json"}}
        live.client.create_stream("plain", COLUMNS, source=source)

        def feed(*names: str) -> None:
            for name in names:
                if name == "r":
                    streams.entries("r", some(chance, 40, 30), "json")
                else:
                    streams.file(name, some(chance, 40, 30), "parquet")

        def failed() -> set[str]:
            intake = json.loads(server.get(Keys("test").runtime) or "{}")["intake"]
            return {name for name, found in intake.items() if found["error"]}

        feed("p", "d", "r")
        streams.wait_for_input()
        live.wait("the plain file to be reported", lambda: failed() == {"plain"})
        # Damage a file that Spark reads, in the directory of a stream that has been read.
        rows = some(chance, 40, 30)
        whole = tmp_path / "whole"
        pq.write_table(pa.Table.from_batches([table(rows)]), whole)
        (tmp_path / "d" / "damaged.parquet").write_bytes(whole.read_bytes()[:-40])
        live.wait("the damaged file to be reported", lambda: failed() == {"plain", "d"})
        began = time.monotonic()
        for _ in range(5):
            feed("p", "r")
        streams.sent["d"], sent = [], streams.sent["d"]
        streams.wait_for_input()
        assert time.monotonic() - began < 20
        assert live.progress().streams["d"]["input"] == len(sent)
        # The error remains through a restart; when the file is repaired, the stream continues.
        kill(live.pipeline, "runtime")
        live.start_runtime()
        live.wait("both to be reported again", lambda: failed() == {"plain", "d"})
        streams.sent["d"] = sent
        feed("p", "r")
        streams.sent["d"] += rows
        whole.rename(tmp_path / "d" / "damaged.parquet")
        feed("d")
        streams.wait_for_input()
        live.wait("the stream to be read again", lambda: failed() == {"plain"})
        live.pipeline.finish_runtime()
        assert streams.check("pr", PR) > 100
        assert streams.check("pd", PD) > 100


def test_kills_where_landed_batches_change_hands_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(9)
    faults = tmp_path / "faults"
    faults.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANABRANCH_FAULTS", str(faults))
        with live_pipeline(tmp_path) as live:
            streams = joined(live, tmp_path)

            def feed() -> None:
                for name in ("p", "d"):
                    streams.file(name, some(chance, chance.randrange(1, 60), 300), "parquet")
                streams.entries("r", some(chance, 30, 300), "json")

            points = [*sorted(OF_INGEST), "chosen", "committed"]
            for point in points:
                for victim in ("runtime", "java"):
                    (faults / point).touch()
                    held = faults / f"{point}.held"
                    deadline = time.monotonic() + 60
                    while not held.exists() and time.monotonic() < deadline:
                        feed()
                        time.sleep(0.2)
                    assert held.exists(), point
                    runtime = next(c for c in live.pipeline.children if c.name == "runtime")
                    if victim == "java":
                        next(p for p in session(runtime.pid) if p.name() == "java").kill()
                        held.unlink()
                        assert runtime.wait(60) is not None
                    kill(live.pipeline, "runtime")
                    held.unlink(missing_ok=True)
                    streams.server.delete(Keys("test").runtime)
                    feed()
                    live.start_runtime()
            # The state's newest version is deleted: the batch before it is the newest.
            streams.wait_for_input()
            kill(live.pipeline, "runtime")
            newest = max((tmp_path / "state" / "manifest").glob("*.json"))
            newest.write_bytes(newest.read_bytes()[:-5])
            feed()
            live.start_runtime()
            streams.wait_for_input()
            for name, rows in streams.sent.items():
                assert live.progress().streams[name]["input"] == len(rows), name
            live.pipeline.finish_runtime()
            assert streams.check("pr", PR) > 100
            assert streams.check("pd", PD) > 100
            # Landed rows are removed after they have been read.
            for home in (tmp_path / "state" / "ingest").iterdir():
                assert 0 < len(list((home / "landed").iterdir())) < 12
