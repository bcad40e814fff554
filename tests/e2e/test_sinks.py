"""Tests of all kinds of sinks at once, through a kill of the runtime, and of a live tail."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import Redis

from anabranch_client.processes.children import session
from anabranch_client.rest.tail import TailEvent
from anabranch_runtime.faults import Point
from tests.support.scenarios.fault_grid import Component, worker_of
from tests.support.surroundings.deliveries import entries
from tests.support.surroundings.lakes import FORMATS, Lake
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SQL = "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k"
ROWS = 50


def drop(folder: Path, number: int) -> None:
    """Write a file for each stream, with ``ROWS`` keys of its own."""
    keys = range(number * ROWS, (number + 1) * ROWS)
    for stream in ("a", "b"):
        table = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{stream}{k}" for k in keys]})
        draft = folder / stream / f".{number}.parquet"
        pq.write_table(table, draft)
        draft.rename(folder / stream / f"{number}.parquet")


def expected(files: int) -> list[tuple[int, str, str]]:
    return [(k, f"a{k}", f"b{k}") for k in range(files * ROWS)]


def rows(documents: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    return sorted((d["k"], d["av"], d["bv"]) for d in documents)


def strike(live: LivePipeline, victim: Component, held: Path) -> None:
    """Kill ``victim`` while the runtime is held at a fault point, and release the runtime; restart
    it if it has ended.
    """
    runtime = next(c for c in live.pipeline.children if c.name == "runtime")
    if victim is Component.WORKER:
        os.kill(worker_of(runtime.pid), signal.SIGKILL)
        held.unlink()
        return
    if victim is Component.JVM:
        os.kill(next(p.pid for p in session(runtime.pid) if p.name() == "java"), signal.SIGKILL)
        held.unlink()
        wait_until("the runtime's end", lambda: runtime.process.poll() is not None)
    kill(live.pipeline, "runtime")
    held.unlink(missing_ok=True)
    live.start_runtime()


def test_every_sink_has_every_result_once_through_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = {form: Lake(form, tmp_path / "lake").configured(monkeypatch) for form in FORMATS}
    for stream in ("a", "b"):
        (tmp_path / stream).mkdir()
    derby = f"jdbc:derby:{tmp_path / 'derby'};create=true"
    sinks: dict[str, Any] = {
        "own": None,
        "json": {"format": "json", "path": str(tmp_path / "json")},
        "redis": {"format": "redis-stream", "options": {"stream": "out"}},
        "table": {
            "format": "jdbc",
            "options": {"url": derby, "dbtable": "t", "anabranch.batchColumn": "origin"},
        },
        "nobody": {"format": "fax"},
        "delta": {"format": "delta", "path": lakes["delta"].path},
        "iceberg": {"format": "iceberg", "options": {"table": "lake.db.table"}},
    }
    with live_pipeline(tmp_path / "pipeline") as live:
        client = live.client
        for stream in ("a", "b"):
            source = {"format": "parquet", "path": str(tmp_path / stream)}
            client.create_stream(stream, (("k", "bigint"), ("v", "string")), source=source)
        for name, sink in sinks.items():
            client.create_query(SQL, name=name, sink=sink)
        told: list[TailEvent] = []

        def listen() -> None:
            told.extend(client.tail("own", from_start=True, limit=4 * ROWS))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        drop(tmp_path, 0)
        live.wait("the first results", lambda: client.query("own").results == ROWS)
        for number in (1, 2):
            drop(tmp_path, number)
            time.sleep(1)
        kill(live.pipeline, "runtime")
        drop(tmp_path, 3)
        live.start_runtime()
        live.wait("all results", lambda: {client.query(q).results for q in sinks} == {4 * ROWS})

        def settled() -> bool:
            return all(client.query(q).sink_problem is None for q in sinks if q != "nobody")

        live.wait("the sinks to have taken them", settled)
        assert "fax" in str(client.query("nobody").sink_problem)

        results = pq.read_table(live.results / "own").to_pylist()
        assert rows(results) == expected(4)
        lines = [f.read_text().splitlines() for f in (tmp_path / "json").glob("*/*.json")]
        assert rows([json.loads(line) for part in lines for line in part]) == expected(4)
        with Redis.from_url(live.pipeline.redis_url) as connection:
            found = [json.loads(f[b"data"]) for _, f in entries(connection, "out")]
        assert rows(found) == expected(4)
        for lake in lakes.values():
            assert rows(lake.read().to_pylist()) == expected(4)
        listening.join(60)
        seen = [event.row for event in told if event.kind == "row"]
        assert rows(seen) == expected(4)
        assert not [event for event in told if event.kind == "gap"]
        parked = list((live.results / ".outbox" / "nobody").glob("*/*.parquet"))
        assert rows(pa.concat_tables(map(pq.read_table, parked)).to_pylist()) == expected(4)


@pytest.mark.parametrize("victim", [Component.DRIVER, Component.JVM, Component.WORKER])
def test_groups_come_once_though_the_runtime_or_a_part_of_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: Component
) -> None:
    faults = tmp_path / "faults"
    lakes = {form: Lake(form, tmp_path / "lake").configured(monkeypatch) for form in FORMATS}
    for folder in ("a", "b", "faults"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", str(faults))
    sinks: dict[str, dict[str, Any]] = {
        "own": {},
        "json": {"format": "json", "path": str(tmp_path / "json")},
        "redis": {"format": "redis-stream", "options": {"stream": "out"}},
        "delta": {"format": "delta", "path": lakes["delta"].path},
        "iceberg": {"format": "iceberg", "options": {"table": "lake.db.table"}},
    }
    points = (Point.GROUPING, Point.GROUPED, Point.DELIVERED)
    with live_pipeline(tmp_path / "pipeline") as live:
        client, read = live.client, Counter[tuple[int, str, str]]()
        for stream in ("a", "b"):
            source = {"format": "parquet", "path": str(tmp_path / stream)}
            client.create_stream(stream, (("k", "bigint"), ("v", "string")), source=source)
        for name, sink in sinks.items():
            client.create_query(SQL, name=name, sink=sink | {"commit_interval": "1 s"})

        def look() -> None:
            """Check that each result is in a sink at most once, and none has disappeared."""
            nonlocal read
            files = sorted((live.results / "own").glob("*.parquet"))
            found = Counter(rows([row for f in files for row in pq.read_table(f).to_pylist()]))
            assert max(found.values(), default=1) == 1
            assert read <= found
            read = found

        def seen(count: int) -> bool:
            look()
            return read.total() == count

        drop(tmp_path, 0)
        live.wait("the first group", lambda: seen(ROWS))
        for number, point in enumerate(points, 1):
            (faults / point).touch()
            drop(tmp_path, number)
            held, count = faults / f"{point}.held", (number + 1) * ROWS
            live.wait(f"the runtime at {point}", held.exists)
            look()
            strike(live, victim, held)
            live.wait("the next group", partial(seen, count))
        # No more batches run; a sink that gathers rows has no problem.
        assert {client.query(q).sink_problem for q in sinks} == {None}
        everything = expected(len(points) + 1)

        def files() -> list[tuple[int, str, str]]:
            folders = (tmp_path / "json").glob("*/*.json")
            return rows([json.loads(line) for f in folders for line in f.read_text().splitlines()])

        def appended() -> list[tuple[int, str, str]]:
            with Redis.from_url(live.pipeline.redis_url) as connection:
                return rows([json.loads(f[b"data"]) for _, f in entries(connection, "out")])

        live.wait("the files by Spark", lambda: files() == everything)
        assert sorted(read) == everything
        # Sinks get the group of rows one after the other.
        live.wait("the entries in Redis", lambda: appended() == everything)
        for lake in lakes.values():
            assert rows(lake.read().to_pylist()) == everything
        assert len(list((live.results / "own").iterdir())) <= 2 * (len(points) + 1)


def test_a_current_table_follows_its_view_and_its_changes(tmp_path: Path) -> None:
    lakes = {name: Lake("delta", tmp_path / name) for name in ("rows", "totals")}
    (tmp_path / "c").mkdir()

    def change(number: int, *lines: tuple[int, str, int, str]) -> None:
        names = ("id", "place", "x", "op")
        table = pa.table({name: [one[i] for one in lines] for i, name in enumerate(names)})
        draft = tmp_path / "c" / f".{number}.parquet"
        pq.write_table(table, draft)
        draft.rename(tmp_path / "c" / f"{number}.parquet")

    def current(name: str, **options: str) -> dict[str, Any]:
        given = {"anabranch.table": "current", **options}
        return {"format": "delta", "path": lakes[name].path, "options": given}

    with live_pipeline(tmp_path / "pipeline") as live:
        live.client.create_stream(
            "c",
            (("id", "bigint"), ("place", "string"), ("x", "bigint")),
            source={"format": "parquet", "path": str(tmp_path / "c")},
            kind="changes",
        )
        live.client.create_query(
            "SELECT id, place, x FROM c WHERE x > 0", name="rows", sink=current("rows")
        )
        live.client.create_query(
            "SELECT place, sum(x) AS total FROM c GROUP BY place",
            name="totals",
            sink=current("totals", **{"anabranch.key": "place"}),
        )

        def shown(name: str, *columns: str) -> list[tuple[Any, ...]]:
            if not Path(lakes[name].path).exists():
                return []
            return sorted(tuple(r[c] for c in columns) for r in lakes[name].read().to_pylist())

        change(0, (1, "a", 10, "insert"), (2, "a", 5, "insert"), (3, "b", 1, "insert"))
        live.wait(
            "the first totals", lambda: shown("totals", "place", "total") == [("a", 15), ("b", 1)]
        )
        change(
            1,
            (1, "a", 10, "delete"),
            (1, "b", 7, "insert"),
            (3, "b", 1, "delete"),
            (2, "a", 5, "delete"),
        )
        live.wait("the later totals", lambda: shown("totals", "place", "total") == [("b", 7)])
        live.wait("the rows", lambda: shown("rows", "id", "x", "anabranch_count") == [(1, 7, 1)])
        assert not [q for q in ("rows", "totals") if live.client.query(q).sink_problem]
