"""Workloads of overload: streams that arrive by the clock, and queries over them.

``selective`` and ``results`` are as in :mod:`benchmarks.papers.jaqpot.rations.workloads`, with
windows of some seconds. A tuple has the same number of partners at every rate, so the CPU time per
row does not depend on the rate, and the system is overloaded for as long as the high rate lasts.
``tpch`` has the demo's five queries over TPC-H; the tables are cut into ticks so that all end at
the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch_client.replay import tpch
from anabranch_client.replay.tpch import DemoQuery
from benchmarks.papers.jaqpot.rations.workloads import RATES, REJECTING, conflict, near

#: Phases in order: (rows per second of all streams together, seconds).
Load = Sequence[tuple[float, float]]


#: Workload -> rows per second of a flood, which are more than a small machine can process.
WORKLOADS = {"selective": 100_000.0, "tpch": 500_000.0, "results": 400_000.0}
#: Seconds between two files of a stream.
TICK = 0.25
#: Key -> a stream, and the number of this stream's tuples that a partner finds within a window.
PARTNERS = {"a": ("r", 12.0), "b": ("s", 24.0), "c": ("t", 1.0), "k": ("b", 40.0)}
KEYS = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
KEYED = {"a": ("k",), "b": ("k",), "c": ("k",)}
#: Relative rates of the streams of ``results``.
KEYED_RATES = {"a": 25, "b": 100, "c": 5}
#: Number of rows of TPC-H's tables at scale 1.
TPCH_ROWS = 8_661_245
#: Number of different texts.
_TEXTS = 4096


@dataclass(frozen=True, slots=True)
class LiveWorkload:
    """A workload: streams that arrive by the clock, and queries over them.

    Attributes:
        columns: (name, type) of each stream's columns, without the event time.
        timed: whether rows have an event time ``ts``, their time of arrival.
        queries: the queries, with windows in their SQL.
        ticks: function from a load to the rows of each of its ticks, by stream.
    """

    name: str
    columns: Mapping[str, Sequence[tuple[str, str]]]
    timed: bool
    queries: tuple[DemoQuery, ...]
    ticks: Callable[[Load], Iterator[dict[str, pa.Table]]]


def ticks_of(load: Load) -> list[float]:
    """Return the rate of every tick of a load."""
    return [rate for rate, seconds in load for _ in range(round(seconds / TICK))]


def live_workload(name: str, window: float, home: Path) -> LiveWorkload:
    """Return one of :data:`WORKLOADS`.

    Args:
        window: length of windows in seconds. ``home``: folder for generated tables.
    """
    if name == "tpch":
        return _tpch(home)
    return _selective(window) if name == "selective" else _results(window)


def _selective(window: float) -> LiveWorkload:
    def rows(stream: str, rate: float, count: int, draw: np.random.Generator) -> pa.Table:
        keys = _keys(KEYS[stream], RATES, rate, window, count, draw)
        return pa.table({**keys, "v": draw.integers(0, REJECTING, count)})

    micros = round(window * 1e6)
    source = (
        f"r JOIN s ON r.a = s.a AND {near('r', 's', micros)} "
        f"JOIN t ON s.b = t.b AND {near('s', 't', micros)} "
        f"JOIN u ON t.c = u.c AND {near('t', 'u', micros)} AND {conflict('r', 'u')}"
    )
    columns = {s: [*((key, "bigint") for key in keys), ("v", "bigint")] for s, keys in KEYS.items()}
    query = DemoQuery("chain", _members(KEYS), source, tuple(KEYS))
    return LiveWorkload(
        "selective", columns, True, (query,), lambda load: _drawn(load, RATES, rows)
    )


def _results(window: float) -> LiveWorkload:
    texts = np.array([f"{n * 0x9E3779B97F4A7C15 % (1 << 64):048x}" for n in range(_TEXTS)])

    def rows(stream: str, rate: float, count: int, draw: np.random.Generator) -> pa.Table:
        keys = _keys(KEYED[stream], KEYED_RATES, rate, window, count, draw)
        return pa.table({**keys, "text": pa.array(texts[draw.integers(0, _TEXTS, count)])})

    micros = round(window * 1e6)
    queries = tuple(
        DemoQuery(
            f"a{other}",
            f"{_members(('a', other))}, a.text AS one, {other}.text AS other",
            f"a JOIN {other} ON a.k = {other}.k AND {near('a', other, micros)}",
            ("a", other),
        )
        for other in "bc"
    )
    columns = {stream: [("k", "bigint"), ("text", "string")] for stream in KEYED}
    return LiveWorkload(
        "results", columns, True, queries, lambda load: _drawn(load, KEYED_RATES, rows)
    )


def _tpch(home: Path) -> LiveWorkload:
    def ticks(load: Load) -> Iterator[dict[str, pa.Table]]:
        rates = ticks_of(load)
        folder = home / "tables"
        folder.mkdir(parents=True)
        made = tpch.generate(folder, max(sum(rates) * TICK / TPCH_ROWS, 0.001), 1)
        tables = {one.name: pq.read_table(one.path) for one in made}
        whole, done = sum(rates), 0.0
        for rate in rates:
            yield {
                name: table.slice(first, last - first)
                for name, table in tables.items()
                for first, last in [
                    (round(table.num_rows * d / whole) for d in (done, done + rate))
                ]
            }
            done += rate

    probe = home / "columns"
    probe.mkdir(parents=True)
    columns = {one.name: one.columns for one in tpch.generate(probe, 0.001, 1)}
    return LiveWorkload("tpch", columns, False, tpch.QUERIES, ticks)


def _members(tables: Sequence[str] | Mapping[str, object]) -> str:
    """Return SELECT items with the event time of every member of a result."""
    return ", ".join(f"{table}.ts AS {table}_ts" for table in tables)


def _keys(
    keys: Sequence[str],
    rates: Mapping[str, float],
    rate: float,
    window: float,
    count: int,
    draw: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    whole, found = sum(rates.values()), {}
    for key in keys:
        stream, partners = PARTNERS[key]
        values = rate * rates[stream] / whole * window / partners
        found[key] = draw.integers(0, max(round(values), 1), count)
    return found


def _drawn(
    load: Load,
    rates: Mapping[str, float],
    rows: Callable[[str, float, int, np.random.Generator], pa.Table],
) -> Iterator[dict[str, pa.Table]]:
    draw, whole = np.random.default_rng(17), sum(rates.values())
    for rate in ticks_of(load):
        yield {
            stream: rows(stream, rate, max(round(rate * TICK * part / whole), 1), draw)
            for stream, part in rates.items()
        }
