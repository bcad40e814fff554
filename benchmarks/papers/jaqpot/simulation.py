"""``python -m benchmarks.papers jaqpot simulation [--json] [--seeds 100]``: figures of JAQPOT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark, run_benchmark
from benchmarks.papers.jaqpot import changes, decisions, freshness, throughput
from benchmarks.papers.jaqpot.targets import targets
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=100, help="plans of each shape")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    del home
    found: dict[str, Any] = {}
    for name, part in PARTS.items():
        tell(name)
        found[name] = part.measure(options.seeds)
    return found


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: targets first, then the figures on which they are decided."""
    grids = [targets(entry)]
    for name, part in PARTS.items():
        grids += part.tables(entry[name])
    return grids


PARTS: dict[str, Any] = {
    "throughput": throughput,
    "changes": changes,
    "freshness": freshness,
    "decisions": decisions,
}
PART = Benchmark("simulation", "limited CPU divided among probes", _options, _measure, tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print; returns the exit code."""
    return run_benchmark("papers.jaqpot", PART, arguments, lambda parser: None)


if __name__ == "__main__":
    sys.exit(main())
