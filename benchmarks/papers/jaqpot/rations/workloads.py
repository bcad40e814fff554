"""Workloads for benchmarks of rations: recorded tables, cut into batches, and queries over them.

``selective``: a chain of four streams in which every order is expensive. Tuples find many partners
in the next stream, and a condition over the first and the last stream, which only the last step of
each path can check, rejects nearly all of them. Streams have different rates, and few tuples of the
last stream are found, so the path from the first stream has a third of the results per CPU second
that the other paths have. ``tpch``: the five queries of the demo over TPC-H, whose keys are unique
on one side. ``results``: two joins with so many rows of texts that writing them is most of the
work. ``calm``: the chain with about one partner in each step and no condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch_client.replay import tpch
from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.sources.blocks import Block

WORKLOADS = ("selective", "tpch", "results")
#: Microseconds of event time in a batch of the chain, and number of batches within its windows.
SPAN, REACH = 1_000_000, 6
#: Rows per batch of the chain's streams, and number of distinct values of its keys, at size 1.
RATES = {"r": 1200, "s": 600, "t": 300, "u": 150}
KEYS = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
VALUES = {"a": 300, "b": 50, "c": 1800}
#: The chain's last condition holds for one in this many combinations.
REJECTING = 97


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams whose rows are in the order of arrival, and queries over them.

    Attributes:
        tables: stream -> its rows. ``batches``: number of equal batches into which each table is
            cut.
    """

    name: str
    streams: tuple[Stream, ...]
    tables: Mapping[str, pa.Table]
    queries: tuple[DemoQuery, ...]
    batches: int

    @property
    def tuples(self) -> int:
        """Number of rows of all streams."""
        return sum(table.num_rows for table in self.tables.values())

    def blocks(self, batch: int) -> list[Block]:
        """Return the rows of a batch, stream by stream in the order of their names.

        Without rations, a batch's tuples arrive in that order; with rations, the order of names
        decides (``semantics.md``, "The last member"): so the same member is the last in every run.
        """
        found = []
        for name in sorted(self.tables):
            first, last = self._cut(name, batch), self._cut(name, batch + 1)
            rows = self.tables[name].slice(first, last - first).combine_chunks()
            found += [Block(StreamName(name), piece) for piece in rows.to_batches()]
        return found

    def arrivals(self, stream: str) -> NDArray[np.int64]:
        """Return the batch of each row of a stream."""
        cuts = [self._cut(stream, batch) for batch in range(self.batches + 1)]
        found: NDArray[np.int64] = np.repeat(np.arange(self.batches), np.diff(cuts))
        return found

    def _cut(self, stream: str, batch: int) -> int:
        rows: int = self.tables[stream].num_rows
        return rows * batch // self.batches


def workload(name: str, size: float, batches: int, home: Path) -> Workload:
    """Return one of :data:`WORKLOADS`.

    Args:
        size: factor of the number of rows, or TPC-H's scale factor; 1 for measurements, less for
            tests.
        home: folder for generated tables.
    """
    known: dict[str, Callable[[float, int, Path], Workload]] = {
        "selective": lambda size, batches, _: selective(size, batches),
        "tpch": _tpch,
        "results": lambda size, batches, _: results(size, batches),
    }
    return known[name](size, batches, home)


def selective(size: float, batches: int) -> Workload:
    """Return the expensive chain; the number of partners in a step does not depend on ``size``."""
    return _chain("selective", size, batches, VALUES, f"AND {conflict('r', 'u')}")


def calm(size: float, batches: int) -> Workload:
    """Return the cheap chain, with the joins of its first two and of its first three streams."""
    about_one = {
        key: REACH * max(RATES[name] for name, keys in KEYS.items() if key in keys)
        for key in VALUES
    }
    whole = _chain("calm", size, batches, about_one, "")
    chain = whole.queries[0]
    first, second = (chain.source.rsplit(" JOIN ", left)[0] for left in (2, 1))
    return Workload(
        whole.name,
        whole.streams,
        whole.tables,
        (
            DemoQuery("pairs", "r.n AS rn, s.n AS sn", first, ("r", "s")),
            DemoQuery("triples", "r.n AS rn, t.n AS tn", second, ("r", "s", "t")),
            chain,
        ),
        whole.batches,
    )


def conflict(one: str, other: str) -> str:
    """Return the condition that nearly all combinations fail."""
    return f"({one}.v + {other}.v) % {REJECTING} = 0"


def near(one: str, other: str, micros: int) -> str:
    """Return the condition that the event times of two members differ by at most ``micros``."""
    reach = f"INTERVAL '{micros}' MICROSECOND"
    return f"{one}.ts BETWEEN {other}.ts - {reach} AND {other}.ts + {reach}"


def _chain(
    name: str, size: float, batches: int, values: Mapping[str, int], condition: str
) -> Workload:
    random = np.random.default_rng(11)
    tables = {}
    for stream, keys in KEYS.items():
        rows = max(round(RATES[stream] * size), 1) * batches
        times = np.arange(rows) * (SPAN * batches) // rows
        columns = {key: random.integers(0, max(round(values[key] * size), 1), rows) for key in keys}
        tables[stream] = pa.table(
            {
                "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                **columns,
                "v": random.integers(0, REJECTING, rows),
                "n": np.arange(rows),
            }
        )
    micros = REACH * SPAN
    source = (
        f"r JOIN s ON r.a = s.a AND {near('r', 's', micros)} "
        f"JOIN t ON s.b = t.b AND {near('s', 't', micros)} "
        f"JOIN u ON t.c = u.c AND {near('t', 'u', micros)} {condition}"
    )
    query = DemoQuery(
        "chain", "r.n AS rn, s.n AS sn, t.n AS tn, u.n AS un", source.strip(), tuple(KEYS)
    )
    streams = tuple(_stream(stream, table, "ts") for stream, table in tables.items())
    return Workload(name, streams, tables, (query,), batches)


def _tpch(size: float, batches: int, home: Path) -> Workload:
    folder = home / "tables"
    folder.mkdir()
    made = tpch.generate(folder, 0.1 * size, batches)
    tables = {one.name: pq.read_table(one.path) for one in made}
    streams = tuple(_stream(name, table) for name, table in tables.items())
    return Workload("tpch", streams, tables, tpch.QUERIES, batches)


def results(size: float, batches: int) -> Workload:
    """Return three streams with a common key: 40 partners in one direction, 2 in the other."""
    random = np.random.default_rng(13)
    rows = {"a": 2500, "b": 10_000, "c": 500}
    tables = {}
    for stream, per_batch in rows.items():
        count = max(round(per_batch * size), 1) * batches
        times = np.arange(count) * (SPAN * batches) // count
        tables[stream] = pa.table(
            {
                "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                "k": random.integers(0, max(round(1250 * size), 1), count),
                "text": _texts(random, count),
                "n": np.arange(count),
            }
        )
    streams = tuple(_stream(stream, table, "ts") for stream, table in tables.items())
    within = {pair: near(*pair, REACH * SPAN) for pair in (("a", "b"), ("a", "c"))}
    queries = tuple(
        DemoQuery(
            f"{one}{other}",
            f"{one}.n AS n, {one}.text AS one, {other}.text AS other, {other}.ts AS ts",
            f"{one} JOIN {other} ON {one}.k = {other}.k AND {within[one, other]}",
            (one, other),
        )
        for one, other in within
    )
    return Workload("results", streams, tables, queries, batches)


def _texts(random: np.random.Generator, count: int) -> Sequence[str]:
    numbers = random.integers(0, 1 << 62, (count, 3)).tolist()
    return [f"{a:016x}-{b:016x}-{c:016x}" for a, b, c in numbers]


def _stream(name: str, table: pa.Table, event_time: str | None = None) -> Stream:
    columns = tuple((field.name, spark_type(field.type)) for field in table.schema)
    return Stream(StreamName(name), columns, event_time, None)
