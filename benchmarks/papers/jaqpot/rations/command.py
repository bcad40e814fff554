"""Common options of the benchmarks of rations."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Benchmark, run_benchmark
from tests.support.surroundings.redis import redis_url

__all__ = ["redis_url", "run_part"]

#: A file system in memory, if there is one, so that no run is slowed down by a disk.
MEMORY = Path("/dev/shm")


def run_part(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark as the main program of its module; returns the exit code."""
    return run_benchmark("papers.jaqpot.rations", benchmark, arguments, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    below = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--folder", type=Path, default=below, help="where state and results are")
