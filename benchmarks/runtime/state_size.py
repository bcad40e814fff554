"""Throughput of a join with millions of stored tuples.

The query is the chain ``r(a), s(a,b), t(b)``. Every key of ``s`` and ``t`` is unique, and every
arriving tuple of ``r`` finds exactly one uniformly random partner in ``s``, which has one in ``t``.
So a tuple of ``r`` makes two probes at random places of the whole state and has one result, which
is known beforehand and checked.

``engine``: the runtime without Spark (:mod:`benchmarks.engine`) stores large batches until the
state has a required size, then is measured over batches of equal composition. ``spark``: the whole
system with batches of one size, measured over the batches that end at each required size.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_client.rest.types import spark_type
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, made, spread
from benchmarks.engine import Engine
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.session import BatchLog, Session, WrongResultError, session
from tests.support.surroundings.redis import redis_url

_MEBI = 2**20
THROUGH = ("engine", "spark")
QUERY = DemoQuery(
    "chain",
    "r.n AS rn, s.n AS sn, t.n AS tn",
    "r JOIN s ON r.a = s.a JOIN t ON s.b = t.b",
    ("r", "s", "t"),
)
_COLUMNS = {"r": ("a", "n"), "s": ("a", "b", "n"), "t": ("b", "n")}
#: Odd factors, so that multiplying by them is a bijection of 64-bit integers; one per key.
_MIX = {"a": 0x9E3779B97F4A7C15, "b": 0xC2B2AE3D27D4EB4F}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--through", nargs="+", choices=THROUGH, default=list(THROUGH))
    parser.add_argument(
        "--sizes", type=float, nargs="+", default=[1, 10, 50], help="millions of stored tuples"
    )
    parser.add_argument("--batch", type=int, default=240_000, help="tuples of a measured batch")
    parser.add_argument("--fill", type=int, default=2_000_000, help="tuples of an engine's other")
    parser.add_argument("--measured", type=int, default=7, help="batches measured at each size")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure one growing state, in the engine and in the whole system."""
    found: dict[str, Any] = {}
    for through in options.through:
        one = _engine if through == "engine" else _spark
        found[through] = {"sizes": one(options, made(home / through))}
        shutil.rmtree(home / through)
        sizes = found[through]["sizes"]
        found[through]["last_over_first"] = round(
            sizes[-1]["tuples_per_s"]["median"] / sizes[0]["tuples_per_s"]["median"], 3
        )
    return found


def _mixed(numbers: NDArray[np.int64], key: str) -> NDArray[np.int64]:
    return (numbers.astype(np.uint64) * np.uint64(_MIX[key])).view(np.int64)


def _rows(stream: str, numbers: NDArray[np.int64], wanted: NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a stream with the given ``numbers``; ``wanted``: numbers of the partners in
    ``s`` of rows of ``r``.
    """
    made_of = wanted if stream == "r" else numbers
    columns = {c: numbers if c == "n" else _mixed(made_of, c) for c in _COLUMNS[stream]}
    return pa.RecordBatch.from_pydict(columns)


def _wanted(first: int, last: int, there: int) -> NDArray[np.int64]:
    """Return the rows of ``s`` found by rows ``[first, last)`` of ``r``, among the
    first ``there``.
    """
    return np.random.default_rng(first).integers(0, there, last - first)


def _check(wanted: NDArray[np.int64], results: Path) -> None:
    """Compare the result files with the partners that were drawn."""
    with duckdb.connect() as connection:
        files = str(results / QUERY.name / "*.parquet")
        found = connection.sql(f"SELECT rn, sn, tn FROM read_parquet('{files}')").fetchnumpy()
    order = np.argsort(found["rn"])
    if len(order) != len(wanted) or not (
        np.array_equal(found["rn"][order], np.arange(len(wanted)))
        and np.array_equal(found["sn"][order], wanted)
        and np.array_equal(found["tn"][order], wanted)
    ):
        raise WrongResultError(f"{len(order)} results are not the {len(wanted)} that were due")


# --- without Spark -----------------------------------------------------------------------------


def _engine(options: argparse.Namespace, home: Path) -> list[dict[str, Any]]:
    streams = [
        Stream(StreamName(s), tuple((c, parse_type("bigint")) for c in columns), None, None)
        for s, columns in _COLUMNS.items()
    ]
    stored = {"r": 0, "s": 0, "t": 0}
    partners: list[NDArray[np.int64]] = []
    found = []
    with redis_url() as url:
        engine = Engine(home / "run", url, streams, [QUERY], parallelism=options.parallelism)

        def step(counts: dict[str, int]) -> float:
            """Run a batch with ``counts`` new rows of each stream."""
            there = min(stored["s"] + counts["s"], stored["t"] + counts["t"])
            wanted = _wanted(stored["r"], stored["r"] + counts["r"], there)
            blocks = [
                Block(s, _rows(s, np.arange(stored[s], stored[s] + count), wanted))
                for s, count in counts.items()
                if count
            ]
            seconds = engine.run(lambda task, tasks: _shares(blocks, task, tasks))
            partners.append(wanted)
            for stream, count in counts.items():
                stored[stream] += count
            return seconds

        third = options.batch // 3
        for size in (round(s * 1e6) for s in options.sizes):
            while (missing := size - sum(stored.values())) >= 2:
                half = min(missing, options.fill) // 2
                step({"r": 0, "s": half, "t": half})
            began = sum(stored.values())
            times = [step({"r": third, "s": third, "t": third}) for _ in range(options.measured)]
            tell(f"engine, {began:,} tuples: {3 * third / statistics.median(times):,.0f} tuples/s")
            state = engine.driver.state
            found.append(
                {
                    "stored": began,
                    "tuples_per_s": spread(3 * third / t for t in times),
                    "batch_seconds": spread(times, 3),
                    "state_bytes": state.bytes,
                    "segments": sum(len(s.segments) for s in state.stores.values()),
                }
            )
        engine.finish()
        _check(np.concatenate(partners), home / "run" / "results")
    return found


def _shares(blocks: list[Block], task: int, tasks: int) -> Iterator[Block]:
    for block in blocks:
        low, high = (block.rows.num_rows * t // tasks for t in (task, task + 1))
        yield Block(block.stream, block.rows.slice(low, high - low))


# --- the whole system --------------------------------------------------------------------------


def _spark(options: argparse.Namespace, home: Path) -> list[dict[str, Any]]:
    third = options.batch // 3
    sizes = [round(s * 1e6) for s in options.sizes]
    batches = max(-(-sizes[-1] // (3 * third)), options.measured + 1)
    wanted = np.concatenate(
        [_wanted(b * third, (b + 1) * third, (b + 1) * third) for b in range(batches)]
    )
    streams = []
    for name, columns in _COLUMNS.items():
        path = home / f"{name}.parquet"
        rows = _rows(name, np.arange(batches * third), wanted)
        pq.write_table(pa.table(rows), path, use_dictionary=False, compression="none")
        streams.append(
            RecordedStream(
                name=name,
                path=path,
                rows_per_batch=third,
                rows=rows.num_rows,
                columns=tuple((c, str(spark_type(pa.int64()))) for c in columns),
            )
        )
    with session(
        home / "run",
        streams,
        [QUERY],
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=1_000_000,
    ) as system:
        system.start()
        bytes_at = _played(system, batches)
        system.wait(lambda p: p.input.exhausted)
        system.pipeline.finish_runtime()
        log = system.log()
        _check(wanted, system.pipeline.spec.results)
    return [_at(options, log, size, bytes_at) for size in sizes]


def _played(system: Session, batches: int) -> dict[int, int]:
    """Run all batches; return number of committed batches -> sampled bytes of state."""
    system.gate(None)
    seen: dict[int, int] = {}
    while True:
        progress = system.wait(lambda p: p.committed > max(seen, default=-1))
        seen[progress.committed] = progress.resources.state_bytes
        if progress.committed >= batches:
            return seen
        time.sleep(0.2)


def _at(
    options: argparse.Namespace, log: list[BatchLog], size: int, bytes_at: dict[int, int]
) -> dict[str, Any]:
    """Return the figures of the batches that end with ``size`` stored tuples."""
    per_batch = 3 * (options.batch // 3)
    last = min(max(round(size / per_batch), options.measured + 1), len(log))
    ends = [b.committed_at for b in log[last - options.measured - 1 : last]]
    times = [later - earlier for earlier, later in itertools.pairwise(ends)]
    known = max((b for b in bytes_at if b <= last), default=None)
    found = {
        "stored": last * per_batch,
        "tuples_per_s": spread(per_batch / t for t in times),
        "batch_seconds": spread(times, 3),
        "state_bytes": None if known is None else bytes_at[known],
        "segments": None,
    }
    tell(f"spark, {last * per_batch:,} tuples: {found['tuples_per_s']['median']:,.0f} tuples/s")
    return found


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of stored tuples."""
    rows = []
    for through in THROUGH:
        if through not in entry:
            continue
        sizes = entry[through]["sizes"]
        first = sizes[0]["tuples_per_s"]["median"]
        rows += [
            (
                *(through, f"{one['stored']:,}", shown(one["tuples_per_s"])),
                f"{one['tuples_per_s']['median'] / first:.2f}",
                shown(one["batch_seconds"], 2),
                "" if one["state_bytes"] is None else f"{one['state_bytes'] / _MEBI:,.0f}",
                "" if one["segments"] is None else f"{one['segments']:,}",
            )
            for one in sizes
        ]
    return [
        Grid(
            "throughput by stored tuples",
            (
                *("", "stored tuples", "tuples/s", "of the first size's"),
                *("batch s", "state MiB", "segments"),
            ),
            tuple(rows),
        )
    ]


BENCHMARK = Benchmark(
    "state_size", "throughput with millions of stored tuples", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
