"""What the runtime keeps of the results, and what it saves, at stated capacities.

``python -m benchmarks.jaqpot.capacities [--json] [--shares 0.1 0.3 0.5]``

The chain of :mod:`.overload` at a rate that the machine manages, with one order of probes all the
time: no intermediate results, no revisions. Once without rations; then under each allocation with
each share of the rationed probes' CPU time. Results and probing time of the last half of a run are
compared with those of the run without rations, per tuple.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.command import Benchmark, run_benchmark
from benchmarks.jaqpot.overload import run_load
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--allocations", nargs="+", default=["results", "fair"])
    parser.add_argument("--optimizer", default="shared", help="shared: no intermediate results")
    parser.add_argument("--rate", type=float, default=20_000.0, help="rows/s")
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that are promised")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """All allocations at all shares, and the run without rations."""
    load = [(options.rate, options.seconds)]
    full = run_load(options, home, "wait", load, revision_gain=None)
    found = []
    for allocation in options.allocations:
        for share in options.shares:
            one = run_load(options, home, allocation, load, revision_gain=None, capacity=share)
            row = {
                "allocation": allocation,
                "share": share,
                "kept": _ratio(one, full, "found"),
                "probing": _ratio(one, full, "probed"),
            }
            found.append(row)
            tell(f"{allocation} at {share}: {row['kept']} of results, {row['probing']} of time")
    return {"full": full, "runs": found}


def _ratio(one: dict[str, Any], full: dict[str, Any], what: str) -> float:
    """Of what there is per tuple."""
    return float(round((one[what] / one["tuples"]) / (full[what] / full["tuples"]), 4))


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One row per allocation and share."""
    rows = [
        (
            one["allocation"],
            f"{100 * one['share']:.0f} %",
            f"{100 * one['probing']:.1f} %",
            f"{100 * one['kept']:.1f} %",
        )
        for one in entry["runs"]
    ]
    head = ("allocation", "capacity", "probing time", "results kept")
    return [Grid("capacities", head, tuple(rows))]


BENCHMARK = Benchmark(
    "capacities", "results and probing time at stated capacities", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_benchmark("jaqpot", BENCHMARK, None, _common))
