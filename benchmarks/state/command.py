"""Common options of the benchmarks of stored state."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Benchmark, run_benchmark

#: Folder of TPC-DS data, which is kept between runs.
CACHE = Path(tempfile.gettempdir()) / "anabranch-tpcds"


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark as the main program of its module; returns the exit code."""
    return run_benchmark("state", benchmark, arguments, _options)


def tpcds_options(parser: argparse.ArgumentParser) -> None:
    """Add the common options of benchmarks over TPC-DS."""
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-DS scale factor")
    parser.add_argument("--batch", type=int, default=20_000, help="tuples per batch")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for generated data")


def mebi(count: float | None) -> str:
    """Return bytes as text in MiB; a dash for None.

    >>> mebi(3 * 2**19), mebi(None)
    ('1.5', '–')
    """
    return "–" if count is None else f"{count / 2**20:,.1f}"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, help="where state is written, on the disk to measure"
    )
