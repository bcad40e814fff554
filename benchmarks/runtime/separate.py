"""Cost of one pipeline for all queries, compared with one pipeline per query.

In the benchmark ``sharing``, plans without sharing still share a pipeline: the input is read once,
and one Spark schedules one job per batch. Here each query has a separate pipeline over the streams
that it reads, and the pipelines run one after the other, each with the whole machine. Their seconds
and CPU seconds are added; their throughput is the input of all streams divided by the sum of
seconds, so a tuple counts once however many pipelines read it. Pipelines that run at the same time
would take less time in total, since each leaves cores idle some of the time, but not less CPU time:
so the ratio of CPU times is more reliable.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch_client.replay import tpch
from benchmarks.command import Benchmark, made, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import run
from benchmarks.runtime.sharing import WORKLOADS, run_once
from benchmarks.session import WrongResultError
from benchmarks.system_run import Configuration, SystemRun

_MEBI = 2**20


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's")
    parser.add_argument("--queries", type=int, choices=list(WORKLOADS), default=5)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--epoch-batches", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="rounds")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all rounds: the joint pipeline, then the separate ones in turn."""
    streams = tpch.generate(made(home / "input"), options.scale, options.batches)
    queries = WORKLOADS[options.queries]
    one = Configuration("step", options.batches, options.epoch_batches)
    rounds = []
    for number in range(options.runs):
        joint = run_once(options, one, streams, queries, home / "run")
        apart = [
            run_once(options, one, [s for s in streams if s.name in q.tables], [q], home / "run")
            for q in queries
        ]
        found = {name: count for one in apart for name, count in one.results.items()}
        if found != joint.results:
            raise WrongResultError("the pipelines' results differ")
        rounds.append((joint, apart))
        seconds = sum(one.seconds - one.enter_seconds for one in apart)
        tell(
            f"round {number + 1}: {joint.seconds - joint.enter_seconds:.1f} s together, "
            f"{seconds:.1f} s one after the other"
        )
    return {
        "scale": options.scale,
        "queries": options.queries,
        "joint": _figures([_sum([joint], joint.tuples) for joint, _ in rounds]),
        "separate": _figures([_sum(apart, joint.tuples) for joint, apart in rounds]),
        "ratios": _ratios(rounds),
        "runs": [[one.to_json() for one in (joint, *apart)] for joint, apart in rounds],
    }


def _sum(runs: Sequence[SystemRun], tuples: int) -> dict[str, float]:
    """Return the total cost of pipelines for an input of ``tuples``, without planning waits."""
    seconds = sum(one.seconds - one.enter_seconds for one in runs)
    return {
        "seconds": seconds,
        "tuples_per_s": tuples / seconds,
        "cpu_seconds": sum(one.cpu_seconds for one in runs),
        "state_bytes": sum(one.state_bytes for one in runs),
        "probes": sum(one.probes for one in runs),
        "tuples_read": sum(one.total_tuples for one in runs),
    }


def _figures(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {name: spread((one[name] for one in rounds), 2) for name in rounds[0]}


def _ratios(rounds: Sequence[tuple[SystemRun, Sequence[SystemRun]]]) -> dict[str, Any]:
    """Return the ratios of separate pipelines to the joint one, within rounds."""
    pairs = [(_sum([joint], joint.tuples), _sum(apart, joint.tuples)) for joint, apart in rounds]
    return {
        "throughput": spread((b["seconds"] / a["seconds"] for a, b in pairs), 3),
        "cpu": spread((b["cpu_seconds"] / a["cpu_seconds"] for a, b in pairs), 3),
        "state": spread((b["state_bytes"] / a["state_bytes"] for a, b in pairs), 3),
        "probes": spread((b["probes"] / a["probes"] for a, b in pairs), 3),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: cost of both, and the gain of the joint pipeline."""
    name = f"{entry['queries']} queries, SF {entry['scale']:g}: "
    sides = (("one pipeline", "joint"), ("one for each query", "separate"))
    rows = [
        (
            title,
            shown(one["tuples_per_s"]),
            shown(one["seconds"], 1),
            shown(one["cpu_seconds"], 1),
            shown(one["tuples_read"]),
            shown(one["probes"]),
            shown(one["state_bytes"], 1, _MEBI),
        )
        for title, one in ((title, entry[side]) for title, side in sides)
    ]
    ratios = entry["ratios"]
    gains = [shown(ratios[k], 2) for k in ("throughput", "cpu", "probes", "state")]
    head = ("", "input tuples/s", "seconds", "CPU s", "tuples read", "probes", "state MiB")
    return [
        Grid(name + "together and apart", head, tuple(rows)),
        Grid(
            name + "one pipeline for all against one for each",
            ("", "times its throughput", "its CPU, times", "its probes, times", "its state, times"),
            (("joint", *gains),),
        ),
    ]


BENCHMARK = Benchmark(
    "separate", "one pipeline for all queries against one for each", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
