"""Tests of sources: Redis Streams and files through kills, and streams that are added, removed and
changed.

The queries are over full history and active before anything arrives, so whatever the batches were,
their results must be what DuckDB computes over everything that was sent.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from anabranch_contract.protocol.keys import Keys
from anabranch_runtime.faults import Point
from tests.support.surroundings.arrow_ipc import ipc_stream
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline, wait_until

COLUMNS = (("k", "bigint"), ("v", "int"))
RST = "SELECT r.v AS rv, s.v AS sv, t.v AS tv FROM r JOIN s ON r.k = s.k JOIN t ON s.v = t.v"


@dataclass
class Streams:
    """A live pipeline, and the rows sent to each of its streams."""

    live: LivePipeline
    home: Path
    server: redis.Redis
    sent: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    files: int = 0

    def add(self, name: str, format: str, path: str | None = None, **options: str) -> None:
        """Register a stream."""
        source = {"format": format, "path": path, "options": options}
        self.live.client.create_stream(name, COLUMNS, source=source)
        self.sent.setdefault(name, [])

    def entries(self, name: str, rows: list[tuple[int, int]], payload: str, key: str = "") -> None:
        """Append rows as entries of a Redis Stream."""
        self.sent[name] += rows
        at = key or Keys("test").stream(name)
        with self.server.pipeline(transaction=False) as pipe:
            if payload == "arrow":
                block = {"arrow": ipc_stream(table(rows)), "rows": len(rows)}
                pipe.xadd(at, block)  # type: ignore[arg-type]
            for k, v in rows if payload != "arrow" else ():
                pipe.xadd(at, {"k": k, "v": v} if payload == "fields" else {"data": line(k, v)})
            pipe.execute()

    def file(self, name: str, rows: list[tuple[int, int]], kind: str) -> None:
        """Write a file into a stream's directory."""
        self.sent[name] += rows
        self.files += 1
        folder = self.home / name
        partial = folder / f".{self.files}"
        if kind == "json":
            partial.write_text("".join(line(k, v) + "\n" for k, v in rows))
        else:
            pq.write_table(pa.Table.from_batches([table(rows)]), partial)
        partial.rename(folder / f"{self.files:04d}.{kind}")

    def wait_for_input(self) -> None:
        """Wait until all rows have been read."""

        def done() -> bool:
            streams = self.live.progress().streams
            return all(
                streams.get(name, {}).get("input", 0) >= len(rows)
                for name, rows in self.sent.items()
            )

        self.live.wait("everything to be read", done)

    def check(self, name: str, sql: str) -> int:
        """Compare a query's results with DuckDB's; return their number."""
        db = duckdb.connect()
        for stream, rows in self.sent.items():
            db.execute(f"CREATE TABLE {stream} (k BIGINT, v INT)")
            if rows:
                db.register("rows", pa.Table.from_batches([table(rows)]))
                db.execute(f"INSERT INTO {stream} SELECT * FROM rows")
        expected = sorted(db.execute(sql).fetchall())
        found = sorted(map(str, (self.live.results / name).glob("*.parquet")))
        assert sorted(duckdb.read_parquet(found).fetchall() if found else []) == expected
        return len(expected)

    def activate(self, name: str, sql: str) -> None:
        """Register a query and wait until it is active."""
        self.live.client.create_query(sql, name=name)
        self.live.wait(name, lambda: self.live.client.query(name).status == "active")


def table(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    """Return rows as a record batch."""
    arrays = [
        pa.array([k for k, _ in rows], pa.int64()),
        pa.array([v for _, v in rows], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["k", "v"])


def line(k: int, v: int) -> str:
    """Return a row as JSON."""
    return json.dumps({"k": k, "v": v})


def some(chance: random.Random, count: int, keys: int) -> list[tuple[int, int]]:
    """Return random rows."""
    return [(chance.randrange(keys), chance.randrange(keys)) for _ in range(count)]


@pytest.mark.spark
@pytest.mark.slow
def test_redis_streams_and_files_through_kills_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Low enough that batches are limited.
    monkeypatch.setenv("ANABRANCH_TARGET_LATENCY", "0.3")
    chance = random.Random(5)
    with live_pipeline(tmp_path) as live:
        server = redis.Redis.from_url(live.pipeline.redis_url)
        (tmp_path / "t").mkdir()
        streams = Streams(live, tmp_path, server)
        streams.add("r", "redis-stream")
        streams.add("s", "redis-stream", payload="fields", keys="s0,s1")
        streams.add("t", "files", str(tmp_path / "t"), type="parquet")
        streams.add("u", "redis-stream", payload="arrow")
        rsu = RST.replace("t.v", "u.v").replace("JOIN t", "JOIN u")
        streams.activate("rst", RST)
        streams.activate("rsu", rsu)
        for number in range(12):
            streams.entries("r", some(chance, 400, 2000), "json")
            streams.entries("s", some(chance, 200, 2000), "fields", "s0")
            streams.entries("s", some(chance, 300, 2000), "fields", "s1")
            streams.file("t", some(chance, 500, 2000), "parquet")
            streams.entries("u", some(chance, 500, 2000), "arrow")
            if number in (2, 5, 8):
                time.sleep(chance.random())
                kill(live.pipeline, "runtime")
                live.start_runtime()
            else:
                time.sleep(0.3)
        streams.wait_for_input()
        progress = Keys("test").runtime
        heartbeat = json.loads(server.get(progress) or "{}")
        assert heartbeat["row_limit"] > 0
        assert set(heartbeat["intake"]) == {"r", "s", "t", "u"}
        for name, rows in streams.sent.items():
            assert live.progress().streams[name] == {
                "input": len(rows),
                "late": 0,
                "invalid": 0,
                "ahead": 0,
            }
        live.pipeline.finish_runtime()
        assert streams.check("rst", RST) > 50
        assert streams.check("rsu", rsu) > 50


@pytest.mark.spark
@pytest.mark.slow
def test_streams_that_come_go_and_change_leave_the_others_where_they_are(tmp_path: Path) -> None:
    chance = random.Random(6)
    with live_pipeline(tmp_path) as live:
        server = redis.Redis.from_url(live.pipeline.redis_url)
        for name in ("s", "t", "x", "y"):
            (tmp_path / name).mkdir()
        streams = Streams(live, tmp_path, server)
        streams.add("r", "redis-stream")
        # One stream read by Spark, with messages as Kafka's would be.
        streams.add(
            "s",
            "text",
            str(tmp_path / "s"),
            payload="json",
            **{"column.v": "data.v", "maxFilesPerTrigger": "2"},
        )
        rs = "SELECT r.v AS rv, s.v AS sv FROM r JOIN s ON r.k = s.k"
        streams.activate("rs", rs)

        def feed(*more: str) -> None:
            streams.entries("r", some(chance, 50, 60), "json")
            streams.file("s", some(chance, 50, 60), "json")
            for name in more:
                kind = "json" if name == "x" else "parquet"
                streams.file(name, some(chance, 50, 60), kind)

        feed()
        streams.wait_for_input()

        # Sources that can't be opened or read are reported, and don't delay the others.
        streams.add("bad", "fax")
        streams.add("lost", "redis-stream", url="redis://127.0.0.1:1/0")
        streams.add("t", "files", str(tmp_path / "t"))
        streams.add("x", "files", str(tmp_path / "x"), type="json")
        streams.add("y", "parquet", str(tmp_path / "y"))
        feed("t", "x", "y")
        streams.wait_for_input()

        def errors() -> dict[str, str]:
            intake = json.loads(server.get(Keys("test").runtime) or "{}")["intake"]
            return {name: i["error"] for name, i in intake.items() if i["error"]}

        live.wait("both to be reported", lambda: errors().keys() == {"bad", "lost"})
        assert "fax" in errors()["bad"]
        assert "127.0.0.1:1" in errors()["lost"]

        # A stream deleted while the runtime is down, and registered again while it is up.
        kill(live.pipeline, "runtime")
        for name in ("bad", "lost", "x", "y"):
            live.client.delete_stream(name)
        del streams.sent["bad"], streams.sent["lost"]
        # Its counts restart at 0. Files that were read are not read again, except by a Spark
        # source.
        del streams.sent["x"]
        first = streams.sent.pop("y")
        live.start_runtime()
        feed("t")
        streams.wait_for_input()
        streams.add("x", "files", str(tmp_path / "x"), type="json")
        streams.activate("xs", "SELECT x.k, x.v FROM x")
        streams.add("y", "parquet", str(tmp_path / "y"))
        streams.sent["y"] += first
        feed("t", "x", "y")
        streams.wait_for_input()

        # With another definition, a stream is read from its beginning.
        live.client.delete_stream("t")
        live.client.create_stream(
            "t", COLUMNS, source={"format": "redis-stream", "options": {"keys": "t"}}
        )
        # Its counts continue, unless an epoch without it was planned in between.
        before = len(streams.sent.pop("t"))
        streams.sent["t"] = []
        streams.entries("t", some(chance, 30, 60), "json", "t")
        feed("x", "y")
        counts = (30, before + 30)
        live.wait("t anew", lambda: live.progress().streams["t"]["input"] in counts)
        del streams.sent["t"]
        streams.wait_for_input()
        live.pipeline.finish_runtime()
        assert streams.check("rs", rs) > 100
        assert streams.check("xs", "SELECT x.k, x.v FROM x") == 100
        for name, rows in streams.sent.items():
            assert live.progress().streams[name]["input"] == len(rows), name


@pytest.mark.spark
@pytest.mark.slow
def test_bad_files_stop_or_pass_their_own_streams_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage files while batches run and while the pipeline is down, under both policies; delete a
    stream and its query while it is down, and register them again with other columns.
    """
    chance = random.Random(7)
    faults = tmp_path / "faults"
    faults.mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", str(faults))
    with live_pipeline(tmp_path) as live:
        server = redis.Redis.from_url(live.pipeline.redis_url)
        for name in "stv":
            (tmp_path / name).mkdir()
        streams = Streams(live, tmp_path, server)
        streams.add("r", "redis-stream")
        streams.add("s", "files", str(tmp_path / "s"))
        streams.add("t", "files", str(tmp_path / "t"), on_bad_file="skip")
        streams.add("v", "files", str(tmp_path / "v"))
        streams.activate("rst", RST)
        streams.activate("vr", "SELECT v.v AS vv, r.v AS rv FROM v JOIN r ON v.k = r.k")

        def feed(*names: str) -> None:
            streams.entries("r", some(chance, 50, 60), "json")
            for name in names:
                streams.file(name, some(chance, 50, 60), "parquet")

        feed("s", "t", "v")
        streams.wait_for_input()

        # Files that are damaged after they have been listed, planned or not: the runtime waits
        # where a batch has begun.
        held = faults / f"{Point.CHOSEN}.held"

        def planned() -> bool:
            logs = {p.name[0]: p.read_text() for p in (tmp_path / "state" / "files").iterdir()}
            return all(max((tmp_path / n).iterdir()).name in logs[n] for n in "stv")

        for _ in range(20):
            (faults / Point.CHOSEN).touch()
            feed("s", "t", "v")
            wait_until("a batch to be begun", held.exists)
            if planned():
                break
            held.unlink()
            streams.wait_for_input()
        assert planned()
        kill(live.pipeline, "runtime")
        held.unlink()
        newest = {name: max((tmp_path / name).iterdir()) for name in "stv"}
        kept = newest["s"].read_bytes(), newest["s"].stat()
        newest["s"].unlink()
        newest["t"].write_bytes(b"no file of ours")
        newest["v"].write_bytes(b"no file of ours")
        streams.sent["t"] = streams.sent["t"][:-50]

        # Delete the stream "v" and its query while no runtime can end the query.
        live.client.delete_query("vr")
        wait_until("the heartbeat to end", lambda: not server.exists(Keys("test").heartbeat), 30)
        live.client.delete_stream("v")
        streams.sent.pop("v")
        live.client.create_stream(
            "v",
            (("k", "string"), ("w", "double")),
            source={"format": "redis-stream", "options": {"keys": "another"}},
        )
        server.xadd("another", {"data": '{"k": "1", "w": 0.5}'})
        live.start_runtime()
        live.wait("s to be held", lambda: bool(live.client.stream("s").source_error))
        assert str(newest["s"]) in (live.client.stream("s").source_error or "")
        feed("t")
        of_s = streams.sent.pop("s")
        streams.wait_for_input()
        unread = live.client.stream("t").unread
        assert unread is not None
        assert [p.source for p in unread.last] == [str(newest["t"])]
        # When the file is restored, it is read.
        newest["s"].write_bytes(kept[0])
        os.utime(newest["s"], ns=(kept[1].st_atime_ns, kept[1].st_mtime_ns))
        streams.sent["s"] = of_s
        streams.wait_for_input()
        live.wait("s to be read", lambda: live.client.stream("s").source_error is None)
        live.pipeline.finish_runtime()
        assert streams.check("rst", RST) > 50
