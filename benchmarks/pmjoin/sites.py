"""Streams that arrive at different hosts: partitions placed by arrivals, compared with placement by
hash.

`python -m benchmarks.pmjoin.sites [--json] [--rows 2000] [--exponents 0.6 0.9 1.2]`

Three hosts of two tasks each are simulated by threads that see only their own partitions and send
each other copies of Arrow batches. Each of the streams R, S and T arrives at a separate host. They
are joined by one key (*one key*), or R with S by one and S with T by another (*chain*), within the
time of two batches. Keys follow a Zipf distribution over 20,000 values; each stream has different
frequent values (*different*), or all have the same (*equal*), so that no host is a better place for
a partition than another. Every epoch of two batches is planned with the statistics of the previous
epoch, without and with spreading of hot values (*hot*). The table has the number of partitions per
store. Both placements get the same rows; DuckDB counts the expected results.

*Sent* are the bytes between hosts in the second half of the batches, *work* is the number of rows,
probes and matches; both are ratios of placement by arrivals to placement by hash. *Local* is the
share of the bytes of arriving tuples whose partitions are on the host where they arrive. *Busiest*
is the greatest work of a host over the mean of the hosts, and *moved* the number of partitions that
changed hosts during the run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from anabranch_runtime.placement.moves import locality
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.pmjoin.hot_keys import HOSTS, on_hosts, over_mean, watched, workload
from benchmarks.pmjoin.workloads import Workload
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

#: Cases: shape, whether streams have the same frequent values, and whether hot values are spread.
CASES = (
    ("one key", False, False),
    ("chain", False, False),
    ("one key", True, False),
    ("one key", False, True),
)


class AtSites(Workload):
    """A workload in which each stream is read on a separate host."""

    def blocks(self, batch: int, task: int, tasks: int) -> list[Block]:
        """Return a task's share of a batch: rows of the stream that arrives at the task's host."""
        stream = sorted(self.batches[batch])[task % HOSTS]
        found = super().blocks(batch, task // HOSTS, tasks // HOSTS)
        return [block for block in found if block.stream == stream]


def run(made: Workload, home: Path, partitions: int, *, near: bool, hot: bool) -> dict[str, Any]:
    """Run a workload; return the bytes sent in the second half of the batches, and hosts' loads."""
    with on_hosts(made, home, partitions, hot_keys=hot, near=near) as engine:
        seen = watched(engine, made)
        local = locality(engine.driver.state)
    return {
        "sent": seen.sent,
        "work": sum(seen.totals),
        "local": local,
        "busiest": over_mean(seen.totals),
        "moved": sum(seen.moved),
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--exponents", type=float, nargs="*", default=[0.6, 0.9, 1.2])
    parser.add_argument("--partitions", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all cases, the first one with all exponents; return the figures."""
    found = []
    for shape, equal, hot in CASES:
        # Values that are frequent in all three streams have too many results with a great exponent.
        exponents = [min(options.exponents) if equal else max(options.exponents)]
        for exponent in options.exponents if (shape, equal, hot) == CASES[0] else exponents:
            for partitions in options.partitions:
                for seed in options.seeds:
                    plain = workload(
                        shape, exponent, options.rows, options.batches, seed, equal=equal
                    )
                    made = AtSites(plain.name, plain.batches, plain.queries, plain.results)
                    sides = {}
                    for near in (False, True):
                        side = "placed" if near else "hashed"
                        tell(f"{shape}, {exponent}, {partitions} partitions, seed {seed}, {side}")
                        sides[side] = run(made, home / "run", partitions, near=near, hot=hot)
                    case = {
                        "workload": shape,
                        "values": "equal" if equal else "different",
                        "hot": hot,
                        "exponent": exponent,
                        "partitions": partitions,
                        "seed": seed,
                        "results": made.results[shape],
                    }
                    found.append(case | sides)
    return {"runs": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: placement by arrivals and by hash, for each run."""
    rows = []
    for one in entry["runs"]:
        placed, hashed = one["placed"], one["hashed"]
        rows.append(
            (
                one["workload"],
                one["values"] + (", hot" if one["hot"] else ""),
                f"{one['exponent']:g}",
                str(one["partitions"]),
                str(one["seed"]),
                f"{one['results']:,}",
                f"{hashed['sent'] / 1e6:.1f}",
                f"{placed['sent'] / hashed['sent']:.2f}",
                f"{placed['work'] / hashed['work']:.2f}",
                f"{placed['local']:.2f}",
                *(f"{side['busiest']:.2f}" for side in (hashed, placed)),
                str(placed["moved"]),
            )
        )
    head = (
        *("workload", "frequent values", "Zipf", "partitions", "seed", "results", "sent, MB"),
        *("sent ×", "work ×", "local", "busiest, hashed", "placed", "moved"),
    )
    return [Grid("partitions where tuples arrive", head, tuple(rows), texts=2)]


BENCHMARK = Benchmark("sites", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))
