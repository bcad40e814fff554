"""Workload of random three-way joins over ten streams, and its generated data.

Ten streams have three key columns each, drawn from ten names. A query is a chain of three streams;
neighbours are joined by a column name that both have. Keys are uniform over ``sparsity`` times as
many values as a stream has rows, so when all rows have arrived, a row has ``1 / sparsity`` partners
in every other stream with the key. Everything is determined by the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_client.rest.types import spark_type

STREAMS = 10
_NAMES = tuple("abcdefghij")
_KEYS = 3


@dataclass(frozen=True, slots=True)
class Chain:
    """A three-way join: streams 0 and 1 by ``keys[0]``, streams 1 and 2 by ``keys[1]``."""

    streams: tuple[str, str, str]
    keys: tuple[str, str]

    def query(self, name: str, shown: str = "n") -> DemoQuery:
        """Return the join as a query with column ``shown`` of all three streams."""
        one, two, three = self.streams
        return DemoQuery(
            name,
            ", ".join(f"{s}.{shown} AS {shown}_{s}" for s in self.streams),
            f"{one} JOIN {two} ON {one}.{self.keys[0]} = {two}.{self.keys[0]} "
            f"JOIN {three} ON {two}.{self.keys[1]} = {three}.{self.keys[1]}",
            self.streams,
        )


def key_names(seed: int) -> dict[str, tuple[str, ...]]:
    """Map each stream to the names of its key columns; every name occurs in some stream."""
    draw = random.Random(seed)
    names = list(_NAMES) * _KEYS
    while True:
        draw.shuffle(names)
        found = [tuple(sorted(names[i * _KEYS : (i + 1) * _KEYS])) for i in range(STREAMS)]
        if all(len(set(keys)) == _KEYS for keys in found):
            return {f"s{i}": keys for i, keys in enumerate(found)}


def queries(count: int, seed: int = 7) -> tuple[DemoQuery, ...]:
    """Return ``count`` queries; the queries of a smaller count are a prefix. Joins may repeat."""
    keys, draw = key_names(seed), random.Random(seed + 1)
    found: list[DemoQuery] = []
    while len(found) < count:
        middle = draw.choice(sorted(keys))
        sides = [
            (other, key) for other in sorted(keys) if other != middle
            for key in sorted(set(keys[other]) & set(keys[middle]))
        ]  # fmt: skip
        if len({other for other, _ in sides}) < 2:
            continue
        (one, first), (three, second) = draw.sample(sides, 2)
        if one == three:
            continue
        if three < one:  # the mirror image is the same query
            one, first, three, second = three, second, one, first
        found.append(Chain((one, middle, three), (first, second)).query(f"q{len(found) + 1}"))
    return tuple(found)


def distinct_joins(found: tuple[DemoQuery, ...]) -> int:
    """Return the number of different joins of the queries."""
    return len({query.source for query in found})


def generate(
    folder: Path, rows: int, batches: int, sparsity: float = 1.0, seed: int = 7
) -> tuple[RecordedStream, ...]:
    """Write ten streams of ``rows`` rows, described as recordings of ``batches`` batches."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (name, keys) in enumerate(key_names(seed).items()):
        draw = np.random.default_rng(seed + 100 + number)
        values = max(int(rows * sparsity), 1)
        columns = {key: draw.integers(0, values, rows) for key in keys}
        table = pa.table({**columns, "n": np.arange(rows, dtype=np.int64)})
        path = folder / f"{name}.parquet"
        pq.write_table(table, path)
        found.append(
            RecordedStream(
                name=name,
                path=path,
                rows_per_batch=max(1, -(-rows // batches)),
                rows=rows,
                columns=tuple((c.name, str(spark_type(c.type))) for c in table.schema),
            )
        )
    return tuple(found)
