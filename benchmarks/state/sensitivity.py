"""Run time of the multi-way join by batch size, and by memory for reading.

``python -m benchmarks.state.sensitivity [--json]``

UMJoin's paper varies the capacities of its skip list and its block cache. Their counterparts here
are the open batch in memory and the kernel's page cache, so these are varied: tuples per batch with
ample memory, and the limit of the process's memory with a fixed batch and a fixed limit for the
backend's own memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state import tpcds
from benchmarks.state.command import mebi, run, tpcds_options
from benchmarks.state.worker import AMPLE, PROGRAMS, Run, base
from benchmarks.state.worker import run as run_worker

BATCHES = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
CACHES = (0.25, 0.5, 1.0, 2.0)
#: Share of the state's size that is the backend's own memory limit.
_OWN = 0.25


def _options(parser: argparse.ArgumentParser) -> None:
    tpcds_options(parser)
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--caches", type=float, nargs="+", default=list(CACHES))


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    folder = tpcds.data(options.scale, options.cache)
    wanted = tpcds.expected(folder)
    bare = base(folder, home, options.batch)

    def measured(one: Run) -> dict[str, Any]:
        found = run_worker(one, wanted)
        names = ("state", "segments", "write_amplification")
        return {
            "seconds": found.seconds,
            "ended": found.ended,
            **{name: found.last.get(name) for name in names},
        }

    by_batch = []
    for batch in options.batches:
        tell(f"batches of {batch:,}")
        by_batch.append(
            {"batch": batch, **measured(Run(folder, home / "run", "lsm", AMPLE, batch))}
        )
    state = by_batch[-1]["state"]
    by_cache = []
    for share in options.caches:
        cap = bare + int((_OWN + share) * state) + PROGRAMS
        tell(f"cache of {share:g} of the state")
        limit = max(1 << 20, int(_OWN * state))
        one = Run(folder, home / "run", "lsm", limit, options.batch, cap=cap)
        by_cache.append({"share": share, "cap": cap, **measured(one)})
    return {"state": state, "by_batch": by_batch, "by_cache": by_cache}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: by batch size, and by memory."""
    batches = tuple(
        (
            f"{one['batch']:,}",
            f"{one['seconds']:.1f}",
            str(one["segments"]),
            f"{one['write_amplification']:.2f}",
        )
        for one in entry["by_batch"]
    )
    caches = tuple(
        (f"{one['share']:g}", mebi(one["cap"]), one["ended"], f"{one['seconds']:.1f}")
        for one in entry["by_cache"]
    )
    return [
        Grid("by batch", ("tuples", "s", "segments", "write amplification"), batches),
        Grid("by memory for reading", ("of the state", "cap, MiB", "ended", "s"), caches),
    ]


def note(entry: dict[str, Any]) -> str:
    """Return a note with the paper's figures, for comparison."""
    sizes, caches = entry["by_batch"], [one for one in entry["by_cache"] if one["ended"] == "done"]
    told = [_slower(sizes, lambda one: f"batches of {one['batch']:,}")] if sizes else []
    told += [_slower(caches, lambda one: f"{one['share']:g} of the state cached")] if caches else []
    return (
        "*Beside the paper's figures.* The paper prints no run times: its charts (7a, 7b) have"
        " shorter ones with a larger skip list and with a larger block cache. Here the join takes "
        + ", and ".join(told)
        + "."
    )


def _slower(found: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> str:
    times = found[0]["seconds"] / found[-1]["seconds"]
    return f"{times:.1f} times as long with {name(found[0])} as with {name(found[-1])}"


PART = Benchmark("sensitivity", "batch and cache sizes", _options, _measure, tables)


if __name__ == "__main__":
    sys.exit(run(PART, None))
