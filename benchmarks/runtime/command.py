"""Common options of the benchmarks of the runtime."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from benchmarks.command import Benchmark, run_benchmark


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark as the main program of its module; returns the exit code."""
    return run_benchmark("runtime", benchmark, arguments, _options)


def master(options: argparse.Namespace) -> str:
    """Return the URL of Spark's master for ``--tasks`` tasks."""
    return f"local[{options.tasks}]"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=os.cpu_count(), help="Spark's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")
