"""Tests of historical rows put into folders in any order, with default settings: none is late;
later rows that are late are counted, kept and shown.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.rest.system import ComponentOut
from tests.support.worlds.processes import LivePipeline, live_pipeline

COLUMNS = (("n", "bigint"), ("g", "bigint"), ("ts", "timestamp"))
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
#: Stream -> format of its source, options; the files' suffix says how they are written.
SOURCES = {
    "pq": ("files", {"type": "parquet"}, "parquet"),
    "arrow": ("files", {"type": "arrow"}, "arrow"),
    "lines": ("files", {"type": "json"}, "json"),
    "csv": ("files", {"type": "csv"}, "csv"),
    "spark_lines": ("json", {}, "json"),
    "spark_csv": ("csv", {"header": "true"}, "csv"),
    "sparks_own_lines": ("json", {"schema": SCHEMA}, "json"),
    "spark_orc": ("orc", {}, "orc"),
}
ROWS = 20
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)


def write(folder: Path, name: str, rows: list[tuple[int, datetime]], ending: str) -> None:
    """Write a file of history that appears at once."""
    hidden = folder / f".{name}.{ending}"
    texts = [(n, n % 7, f"{ts:%Y-%m-%dT%H:%M:%S}Z") for n, ts in rows]
    if ending == "json":
        lines = [json.dumps({"n": n, "g": g, "ts": ts}) for n, g, ts in texts]
        hidden.write_text("\n".join(lines) + "\n")
    elif ending == "csv":
        lines = [f"{g},{ts},{n}" for n, g, ts in texts]
        hidden.write_text("\n".join(["g,ts,n", *lines]) + "\n")
    else:
        columns = {"n": [n for n, _ in rows], "g": [n % 7 for n, _ in rows]}
        times = pa.array([ts for _, ts in rows], pa.timestamp("us", "UTC"))
        table = pa.table({**columns, "ts": times})
        if ending == "parquet":
            pq.write_table(table, hidden)
        elif ending == "orc":
            from pyarrow import orc

            orc.write_table(table, hidden)
        else:
            with pa.OSFile(str(hidden), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table)
    hidden.rename(folder / f"{name}.{ending}")


def history(chance: random.Random, count: int) -> list[list[tuple[int, datetime]]]:
    """Return days in random order, each with its rows in random order."""
    days = []
    for day in range(count):
        at = BEGIN + timedelta(days=day)
        seconds = [chance.randrange(86_400) for _ in range(ROWS)]
        days.append([(day * ROWS + i, at + timedelta(seconds=s)) for i, s in enumerate(seconds)])
    chance.shuffle(days)
    return days


def component(live: LivePipeline, stream: str) -> ComponentOut:
    """Return a stream's component of the health report."""
    found = live.client.health().components
    return next(one for one in found if (one.kind, one.name) == ("stream", stream))


def is_healthy(live: LivePipeline, stream: str) -> bool:
    """Whether health reports no problem of the stream."""
    return component(live, stream).state == "ok"


def is_active(live: LivePipeline, stream: str) -> bool:
    """Whether the stream's query is active."""
    return live.client.query(f"q-{stream}").status == "active"


def has_watermark(live: LivePipeline, stream: str) -> bool:
    """Whether a load of the stream has ended."""
    return live.client.stream(stream).watermark is not None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("days", [60, 360])
def test_history_in_any_order_has_no_late_rows(tmp_path: Path, days: int) -> None:
    chance = random.Random(42)
    with live_pipeline(tmp_path) as live:
        for name, (format, options, _) in SOURCES.items():
            (tmp_path / name).mkdir()
            source = {"format": format, "path": str(tmp_path / name), "options": options}
            live.client.create_stream(name, COLUMNS, event_time="ts", source=source)
            live.client.create_query(f"SELECT n, ts FROM {name}", name=f"q-{name}")
        for name in SOURCES:
            live.wait(name, partial(is_active, live, name))
        for number, day in enumerate(history(chance, days)):
            for name, (_, _, ending) in SOURCES.items():
                write(tmp_path / name, f"{number:03}", day, ending)
        everything = days * ROWS

        def read(count: int) -> bool:
            streams = live.progress().streams
            return all(streams.get(n, {}).get("input", 0) >= count for n in SOURCES)

        live.wait("the history to be read", lambda: read(everything))
        for name in SOURCES:
            assert live.progress().streams[name]["late"] == 0, name
            found = sorted(map(str, (live.results / f"q-{name}").glob("*.parquet")))
            assert duckdb.read_parquet(found).count("n").fetchall() == [(everything,)]
            # The runtime reports that it reads a source shortly after its first rows.
            live.wait(f"{name} to be healthy", partial(is_healthy, live, name))
        end = BEGIN + timedelta(days=days) - timedelta(minutes=10)
        for name in SOURCES:  # the load has ended: the watermark is near the end of the history
            live.wait(name, partial(has_watermark, live, name))
            mark = live.client.stream(name).watermark
            assert mark is not None
            assert end - timedelta(days=1) < datetime.fromisoformat(mark) < end
            late = [(everything + i, BEGIN + timedelta(hours=i)) for i in range(5)]
            write(tmp_path / name, "late", late, SOURCES[name][2])
        live.wait("the late rows to be read", lambda: read(everything + 5))
        for name in SOURCES:
            assert live.progress().streams[name]["late"] == 5, name
            part = component(live, name)
            assert (part.state, f"5 late of {everything + 5:,} tuples" in part.message) == (
                "warning",
                True,
            )
            assert "--accept-rejects" in part.remedy
            kept = list((live.results / ".late" / name).glob("*.parquet"))
            assert sum(pq.read_table(file).num_rows for file in kept) == 5
            live.client.update_stream(name, accepted_rejects=5)
            # The runtime reports that it reads a source shortly after its first rows.
            live.wait(f"{name} to be healthy", partial(is_healthy, live, name))
