"""Latency and throughput of directories of files, read by our source `files` and by Spark's own
sources.

One pipeline has a stream for each source, and for each stream a query whose results are the
stream's rows. In every round each stream gets the same files: first many at once, then small ones
one at a time, each after the commit of the previous one. Time is measured from the moment when a
file gets its name until the commit of its last row is reported. Meanwhile the other streams are
idle; this favours no source, since ingest queries poll their directories all the time.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from benchmarks.command import Benchmark, made, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.session import PATIENCE, WrongResultError

_COLUMNS = (("id", "bigint"), ("k", "int"), ("price", "double"), ("name", "string"))
#: Seconds between two polls of the progress.
_POLLING = 0.005
#: Number of rows of each source before the measurement, three times.
_WARMING = 10_000
#: Types of files.
_KINDS = ("parquet", "json")


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream: its directory, and the source that reads it."""

    name: str
    kind: str
    folder: Path
    source: dict[str, Any]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of the files that come at once"
    )
    parser.add_argument("--files", type=int, default=20, help="that come at once")
    parser.add_argument("--small", type=int, default=20, help="small files, one at a time")
    parser.add_argument("--small-rows", type=int, default=1_000, help="of each")
    parser.add_argument("--runs", type=int, default=5)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure all kinds of files and sources in turns."""
    streams = [
        _Stream(f"{kind}_{who}", kind, made(home / "in" / f"{kind}-{who}"), source)
        for kind in _KINDS
        for who, source in (
            ("files", {"format": "files", "options": {"type": kind}}),
            ("spark", {"format": kind}),
        )
    ]
    spec = PipelineSpec(
        home=home / "run",
        results=home / "run" / "results",
        mode="live",
        optimizer="clash",
        epoch_batches=100,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        master=master(options),
        parallelism=options.parallelism,
        access=Permissions((home.resolve(),)),
    )
    made(spec.results)
    waiting = made(home / "waiting")
    found: dict[str, dict[str, list[float]]] = {
        s.name: {"rows_per_s": [], "latency": []} for s in streams
    }
    with running(spec) as pipeline, pipeline.start_service() as client:
        for s in streams:
            source = {**s.source, "path": str(s.folder)}
            client.create_stream(s.name, _COLUMNS, source=source)
            client.create_query(f"SELECT id, price FROM {s.name}", name=s.name, sink="count")
        pipeline.start_runtime()
        _warm_up(pipeline, streams, waiting)
        for _ in range(options.runs):
            for s in streams:
                files = _write(waiting, s.kind, options.rows, options.files)
                seconds = _arrive(pipeline, s, files, options.rows)
                found[s.name]["rows_per_s"].append(options.rows / seconds)
                for _ in range(options.small):
                    files = _write(waiting, s.kind, options.small_rows, 1)
                    found[s.name]["latency"].append(_arrive(pipeline, s, files, options.small_rows))
                tell(f"{s.name}: {options.rows / seconds:,.0f} rows/s")
        sent = 3 * _WARMING + options.runs * (options.rows + options.small * options.small_rows)
        for s in streams:
            if (read := _read(pipeline, s.name)) != sent:
                raise WrongResultError(f"{s.name}: {read} rows read, {sent} sent")
        pipeline.finish_runtime()
    return {
        "sources": [
            {
                "kind": s.kind,
                "format": s.source["format"],
                "rows_per_s": spread(found[s.name]["rows_per_s"]),
                "latency": spread(found[s.name]["latency"], 3),
            }
            for s in streams
        ]
    }


def _warm_up(pipeline: Pipeline, streams: list[_Stream], waiting: Path) -> None:
    for _ in range(3):
        for s in streams:
            _arrive(pipeline, s, _write(waiting, s.kind, _WARMING, 2), _WARMING)


def _arrive(pipeline: Pipeline, stream: _Stream, files: list[Path], rows: int) -> float:
    """Give a stream files; return the seconds until all of their rows are committed."""
    before = _read(pipeline, stream.name)
    began = time.monotonic()
    for file in files:
        file.rename(stream.folder / file.name)
    while _read(pipeline, stream.name) < before + rows:
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f"{stream.name} has not been read after {PATIENCE:.0f} s")
        pipeline.check()
        time.sleep(_POLLING)
    return time.monotonic() - began


def _read(pipeline: Pipeline, stream: str) -> int:
    """Return the number of committed rows of a stream."""
    progress = pipeline.channel.progress()
    return 0 if progress is None else progress.results.get(stream, 0)


def _write(folder: Path, kind: str, rows: int, files: int) -> list[Path]:
    """Write files of about equal size to a folder that no source reads."""
    rng, found = np.random.default_rng(rows), []
    for number in range(files):
        size = rows * (number + 1) // files - rows * number // files
        k = rng.integers(0, 1000, size)
        table = pa.table(
            {
                "id": pa.array(rng.integers(0, 1 << 40, size)),
                "k": pa.array(k, pa.int32()),
                "price": pa.array(rng.integers(0, 10**6, size) / 100),
                "name": pa.array([f"customer {n}" for n in k]),
            }
        )
        path = folder / f"{next(_NUMBERS):08d}.{kind}"
        _WRITERS[kind](table, path)
        found.append(path)
    return found


def _write_json(table: pa.Table, path: Path) -> None:
    ids, ks, prices, names = (c.to_pylist() for c in table.columns)
    lines = [
        f'{{"id": {i}, "k": {k}, "price": {p}, "name": "{n}"}}\n'
        for i, k, p, n in zip(ids, ks, prices, names, strict=True)
    ]
    path.write_text("".join(lines))


_NUMBERS = count()
_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda table, path: pq.write_table(table, path),
    "json": _write_json,
}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per source, with ratios of Spark's figures to ours."""
    rows: list[tuple[str, ...]] = []
    ours: dict[str, dict[str, Any]] = {}
    for one in entry["sources"]:
        mine = ours.setdefault(one["kind"], one)
        ratios = [one[n]["median"] / mine[n]["median"] for n in ("rows_per_s", "latency")]
        rows.append(
            (
                one["kind"],
                f"`{one['format']}`" if one is mine else f"Spark's `{one['format']}`",
                shown(one["rows_per_s"]),
                f"{ratios[0]:.2f}",
                shown(one["latency"], 2),
                f"{ratios[1]:.1f}",
            )
        )
    head = ("files", "read by", "rows/s", "of ours", "small file to commit s", "of ours")
    return [Grid("ingest", head, tuple(rows), texts=2)]


BENCHMARK = Benchmark(
    "ingest", "files read by ours and by Spark's sources", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
