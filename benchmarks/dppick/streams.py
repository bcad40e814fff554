"""TPC-DS's four tables as one stream of join keys in random order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.dppick.bound import Size
from benchmarks.dppick.engine import Workload
from benchmarks.state import tpcds
from benchmarks.umjoin.operators.joins import Equality, Input, Join

#: The paper's short names of the tables, in the order of ``tpcds.TABLES``.
SHORT = ("Cu", "Cr", "Sr", "Wr")


def tpcds_stream(scale: float, batch: int, seed: int, cache: Path) -> Workload:
    """Shuffle the rows of all four tables together, and cut them into batches of ``batch`` rows."""
    folder = tpcds.data(scale, cache)
    keys = {
        table: pq.read_table(folder / f"{table}.parquet", columns=[key])[key].combine_chunks()
        for table, key in tpcds.TABLES.items()
    }
    # The rows of each table are in random order already, so only the table of each next row is
    # drawn.
    which = np.repeat(np.arange(len(keys)), [len(column) for column in keys.values()])
    np.random.default_rng(seed).shuffle(which)
    batches, begin = [], np.zeros(len(keys), np.int64)
    for at in range(0, len(which), batch):
        counts = np.bincount(which[at : at + batch], minlength=len(keys))
        batches.append(
            {
                table: pa.RecordBatch.from_arrays(
                    [column.slice(int(begin[n]), int(counts[n]))], names=[tpcds.TABLES[table]]
                )
                for n, (table, column) in enumerate(keys.items())
            }
        )
        begin += counts
    inputs = tuple(
        Input(table, pa.schema([(tpcds.TABLES[table], column.type)]))
        for table, column in keys.items()
    )
    first, *others = tpcds.TABLES.items()
    join = Join(inputs, tuple(Equality(first, other) for other in others))
    return Workload(f"TPC-DS {scale:g}", join, tuple(batches), tpcds.expected(folder))


def sizes_of(workload: Workload) -> tuple[dict[str, Size], int]:
    """Return the rows, and rows with a key, of each input, and the most distinct keys of
    an input.
    """
    sizes, most = {}, 0
    for name in workload.join.by_name:
        column = pa.chunked_array([batch[name].column(0) for batch in workload.batches])
        sizes[name] = Size(len(column), len(column) - column.null_count)
        most = max(most, int(pc.count_distinct(column, mode="only_valid").as_py()))
    return sizes, most
