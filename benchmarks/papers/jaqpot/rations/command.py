"""Common options of these benchmarks."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Benchmark, run_benchmark
from tests.support.surroundings.redis import redis_url

__all__ = ["redis_url", "run_part"]

#: A file system in memory, if there is one: no run is measured by its disk.
MEMORY = Path("/dev/shm")


def run_part(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Entry point of a benchmark's module; returns the exit code."""
    return run_benchmark("papers.jaqpot.rations", benchmark, arguments, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    below = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--folder", type=Path, default=below, help="where state and results are")
