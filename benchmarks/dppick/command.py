"""Common options of the benchmarks of dpPick."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Benchmark, run_benchmark
from benchmarks.state.command import CACHE
from benchmarks.umjoin.backends.opening import warm

#: A file system in memory, if there is one, so that no run is slowed down by a disk.
MEMORY = Path("/dev/shm")


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark as a command; returns the exit code."""
    warm()
    return run_benchmark("dppick", benchmark, arguments, _options)


def stream_options(parser: argparse.ArgumentParser) -> None:
    """Add the common options of the benchmarks over TPC-DS."""
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-DS scale factor")
    parser.add_argument("--batch", type=int, default=10_000, help="tuples per batch")
    parser.add_argument("--seed", type=int, default=7, help="of the arrival order")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for generated data")
    period_options(parser, 6)


def period_options(parser: argparse.ArgumentParser, period: int) -> None:
    """Add the options for the period T and the length L of series."""
    parser.add_argument("--period", type=int, default=period, help="T, in batches")
    parser.add_argument("--length", type=int, default=60, help="L, in periods")


def _options(parser: argparse.ArgumentParser) -> None:
    below = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--folder", type=Path, default=below, help="where the operator's log is")
