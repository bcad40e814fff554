"""Space and write amplification of the state backend ``lsm`` over many batches.

``python -m benchmarks.state.amplification [--json]``

*Write*: ratio of bytes written by batches and merges to bytes written by batches. *Space*: ratio of
bytes of all files to bytes of live segments, after each commit. One row of figures is for state
that is kept for ever, the other for a window of a hundred batches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU
from benchmarks.command import Benchmark, quantile, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state.command import mebi, run
from benchmarks.state.operations import SPEC
from benchmarks.umjoin.backends.lsm import LsmBackend

WINDOW = 100
#: First batch whose space amplification counts, after the first merges.
_FROM = 10


def amplification(
    folder: Path, batches: int, rows: int, limit: int, *, window: int | None
) -> dict[str, Any]:
    """Measure ``batches`` batches; ``window``: batches for which rows are needed (None:
    for ever).
    """
    draw = np.random.default_rng(3)
    space = []
    with LsmBackend(folder, {"t": SPEC}, limit) as backend:
        for batch in range(batches):
            names = SPEC.columns.names
            columns = [pa.array(draw.integers(0, 1 << 40, rows)) for _ in names]
            first = batch << OFFSET_BITS
            columns.append(pa.array(np.arange(first, first + rows)))
            columns.append(pa.array(np.full(rows, batch)))
            table = backend.tables["t"]
            table.insert(pa.RecordBatch.from_arrays(columns, names=[*names, SIGMA, TAU]))
            if window is not None:
                table.expire(batch - window)
            backend.commit(batch)
            if batch >= _FROM:
                told = backend.statistics()
                assert told.space_amplification is not None
                space.append(told.space_amplification)
        told = backend.statistics()
    needed = rows * (batches if window is None else min(window, batches))
    return {
        "window": window,
        "write": round(told.write_amplification or 0.0, 3),
        "space": spread(space, 3),
        "space_99": round(quantile(space, 0.99), 3),
        "bytes": told.bytes,
        "rows_over_needed": round(told.tables["t"].rows / needed, 3),
        "segments": told.tables["t"].segments,
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=5000, help="per batch")
    parser.add_argument("--limit", type=int, default=256 << 20, help="bytes of memory")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    found = []
    for window in (None, WINDOW):
        tell(f"{options.batches} batches, window {window}")
        folder = home / str(window)
        found.append(
            amplification(folder, options.batches, options.rows, options.limit, window=window)
        )
    return {"kept": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per kind of state."""
    rows = tuple(
        (
            "for ever" if one["window"] is None else f"{one['window']} batches",
            f"{one['write']:.2f}",
            f"{one['space']['median']:.3f}",
            f"{one['space_99']:.3f}",
            f"{one['space']['high']:.3f}",
            f"{one['rows_over_needed']:.2f}",
            str(one["segments"]),
            mebi(one["bytes"]),
        )
        for one in entry["kept"]
    )
    head = (
        *("rows are needed", "write", "space, median", "99 %", "most"),
        *("rows/needed", "segments", "MiB at the end"),
    )
    return [Grid("amplification of lsm", head, rows)]


PART = Benchmark("amplification", "space and write amplification", _options, _measure, tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run(PART, arguments)


if __name__ == "__main__":
    sys.exit(main())
