"""Common options of the state store's benchmarks."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Benchmark, run_benchmark

#: Where TPC-DS data is kept between runs.
CACHE = Path(tempfile.gettempdir()) / "anabranch-tpcds"


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Entry point of a benchmark's module; returns the exit code."""
    return run_benchmark("state", benchmark, arguments, _options)


def tpcds_options(parser: argparse.ArgumentParser) -> None:
    """Common options of benchmarks over TPC-DS."""
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-DS scale factor")
    parser.add_argument("--batch", type=int, default=20_000, help="tuples per batch")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for generated data")


def mebi(count: float | None) -> str:
    """Bytes, for people.

    >>> mebi(3 * 2**19), mebi(None)
    ('1.5', '–')
    """
    return "–" if count is None else f"{count / 2**20:,.1f}"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, help="where state is written, on the disk to measure"
    )
