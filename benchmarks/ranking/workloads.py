"""Six workloads whose plans differ: skewed and uniform keys, a chain, a star, TPC-H and TPC-DS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.pmjoin.defaults import COLUMNS, tpcds_joins
from benchmarks.pmjoin.looking_ahead import star, tpch_joins
from benchmarks.pmjoin.skew import CHAIN, KEYS, NAMES, ONE_KEY
from benchmarks.pmjoin.workloads import Workload, counted
from benchmarks.state import tpcds

#: Zipf's exponent of skewed keys; each stream has different frequent values.
EXPONENT = 1.2
#: Number of values of a skewed and of a uniform key, per tuple of a batch.
SKEWED, UNIFORM = 2, 3


def workloads(
    rows: int, batches: int, scales: tuple[float, float], cache: Path, home: Path, seed: int
) -> Iterator[Workload]:
    """Yield the workloads one by one.

    Args:
        rows: rows per batch of all streams together, except in the TPC workloads.
        scales: scale factors of TPC-H and TPC-DS; 0: the workload is left out.
    """
    each = rows // len(NAMES)
    yield keyed("one key", each, batches, seed, EXPONENT, SKEWED)
    yield keyed("chain", each, batches, seed, EXPONENT, SKEWED)
    yield star(each, batches, seed)
    yield keyed("uniform", each, batches, seed, 0.0, UNIFORM)
    of_h, of_ds = scales
    if of_h:
        yield tpch_joins(home / "tables", of_h, batches)
    if of_ds:
        yield tpcds_joins(tpcds.data(of_ds, cache, COLUMNS), batches)


def keyed(
    name: str, rows: int, batches: int, seed: int, exponent: float, values_per_row: int
) -> Workload:
    """Return four streams joined by one key, or by two in a chain; ``rows`` of each per batch."""
    values = values_per_row * len(NAMES) * rows
    shares = np.arange(1, values + 1, dtype=np.float64) ** -exponent
    ends = np.cumsum(shares / shares.sum())
    query = CHAIN if name == "chain" else ONE_KEY
    keys = KEYS.get(name, KEYS["one key"])
    made = []
    for batch in range(batches):
        tables = {}
        for at, stream in enumerate(NAMES):
            rng = np.random.default_rng((seed, batch, at))
            columns = {}
            for key in keys[at]:
                ranks = np.minimum(np.searchsorted(ends, rng.random(rows)), values - 1)
                columns[key] = (ranks + values // len(NAMES) * at) % values
            tables[stream] = pa.table(columns)
        made.append(tables)
    return counted(name, made, (query,))
