"""All of the runtime's benchmarks: ``python -m benchmarks.runtime --json [--only NAME ...]``.

To set options of one benchmark, run its own module. If a benchmark fails, its line is missing, and
the others run nevertheless.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.command import Benchmark
from benchmarks.runtime import (
    adaptation,
    aggregates,
    fixed_cost,
    ingest,
    latency,
    queries,
    rewire,
    separate,
    sharing,
    state_size,
    updates,
)
from benchmarks.runtime.command import run

BENCHMARKS: tuple[Benchmark, ...] = tuple(
    module.BENCHMARK
    for module in (
        *(sharing, separate, queries, rewire, state_size, fixed_cost, latency, ingest),
        adaptation,
        aggregates,
        updates,
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit code: 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime")
    names = [one.name for one in BENCHMARKS]
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args(arguments)
    given = ["--json"] if options.json else []
    codes = [run(one, given) for one in BENCHMARKS if one.name in options.only]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
