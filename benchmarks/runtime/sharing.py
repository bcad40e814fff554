"""Five and ten TPC-H queries over shared streams: planned jointly, shared naively, or not shared.

``individual`` is called independent in the CLASH paper: every query has separate probe orders and
stores, so a tuple is stored once per query that reads its stream, and queries share no work. Only
the input is read once (the paper's independent queries read it once each), and all queries run in
one system, so the comparison favours ``individual``. ``shared`` has the same plans, but equal
stores are stored once and equal steps are executed once. ``clash`` plans all queries jointly. The
three alternate in every round. A batch's time is measured from the previous commit to its own,
without the time of entering an epoch (in step mode, the wait for the planner).

The ten queries join by foreign keys, over the relations of the paper's Figure 7a. *Random* sets of
queries are drawn as the paper describes, with half of the joins by foreign keys and half by other
columns of equal type with common values (:mod:`benchmarks.planner.type_compatible`); starting at a
seed, the first set with at most ``--most`` results is taken.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans.plan import Optimizer
from benchmarks.command import Benchmark, made, quantile, spread
from benchmarks.planner.part_mixed import SIZE
from benchmarks.planner.type_compatible import TABLES, Mixture, draw, joinable
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.runtime.overlapping import OVERLAPPING
from benchmarks.session import WrongResultError
from benchmarks.system_run import Configuration, SystemRun, run_system

_MEBI = 2**20
#: Number of queries in a random set.
RANDOM = 5
#: Number of queries -> queries.
WORKLOADS = {5: tpch.QUERIES, 10: (*tpch.QUERIES, *OVERLAPPING)}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, nargs="+", default=[0.1], help="TPC-H's, each")
    parser.add_argument("--queries", type=int, nargs="*", choices=list(WORKLOADS), default=[5, 10])
    parser.add_argument("--random", type=int, nargs="*", default=[], help="seeds of random sets")
    parser.add_argument("--random-scale", type=float, default=0.01, help="TPC-H's, for these")
    parser.add_argument("--most", type=float, default=1e6, help="results of a random set")
    parser.add_argument("--optimizers", nargs="+", choices=list(Optimizer), default=list(Optimizer))
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--epoch-batches", type=int, default=2)
    parser.add_argument("--mode", choices=["step", "live"], default="step")
    parser.add_argument(
        "--runs", type=int, nargs="+", default=[5], help="rounds, per scale; the last goes on"
    )


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads, one after the other; return the figures."""
    found = []
    for number, scale in enumerate(options.scale):
        rounds = options.runs[min(number, len(options.runs) - 1)]
        streams = tpch.generate(made(home / f"input-{scale:g}"), scale, options.batches)
        for count in options.queries:
            found.append(_workload(options, streams, scale, rounds, WORKLOADS[count], home / "run"))
        shutil.rmtree(home / f"input-{scale:g}")
    for seed in options.random:
        found.append(_random(options, seed, home))
    return {"workloads": found}


def _random(options: argparse.Namespace, seed: int, home: Path) -> dict[str, Any]:
    """Return the first set from ``seed`` on that is expected to have few enough results."""
    folder = made(home / f"random-{seed}")
    streams = tpch.generate(folder, options.random_scale, options.batches, tables=TABLES)
    joins = joinable({one.name: one.path for one in streams})
    rows = {one.name: one.rows for one in streams}
    for drawn in itertools.count(1000 * seed):
        queries = draw(joins, Mixture.HALVES, RANDOM, SIZE, drawn)
        if sum(query.results(rows) for query in queries) <= options.most:
            break
    tables = {table for query in queries for table in query.tables}
    wanted = [query.query(f"q{number}") for number, query in enumerate(queries, start=1)]
    read = [one for one in streams if one.name in tables]
    found = _workload(options, read, options.random_scale, options.runs[-1], wanted, home / "run")
    shutil.rmtree(folder)
    return found | {
        "random": drawn,
        "sql": [query.sql for query in wanted],
        "keys": round(statistics.fmean(j.is_key for q in queries for j in q.joins), 3),
    }


def _workload(
    options: argparse.Namespace,
    streams: Sequence[RecordedStream],
    scale: float,
    rounds: int,
    queries: Sequence[DemoQuery],
    home: Path,
) -> dict[str, Any]:
    runs: dict[str, list[SystemRun]] = {name: [] for name in options.optimizers}
    for number in range(rounds):
        for name in options.optimizers:
            one = Configuration(options.mode, options.batches, options.epoch_batches, name)
            done = run_once(options, one, streams, queries, home)
            runs[name].append(done)
            tell(f"round {number + 1}: {len(queries)} queries, {name}: {done.rate:,.0f} tuples/s")
    results = [one.results for done in runs.values() for one in done]
    if any(one != results[0] for one in results):
        raise WrongResultError("the optimisers' results differ")
    return {
        "scale": scale,
        "queries": len(queries),
        "input_tuples": sum(s.rows for s in streams),
        "results": results[0],
        "optimizers": {name: _summary(done) for name, done in runs.items()},
        "ratios": _ratios(runs),
        "runs": [one.to_json() for done in runs.values() for one in done],
    }


def run_once(
    options: argparse.Namespace,
    configuration: Configuration,
    streams: Sequence[RecordedStream],
    queries: Sequence[DemoQuery],
    home: Path,
) -> SystemRun:
    """Run queries once in the folder ``home``, which is then removed."""
    try:
        return run_system(
            configuration,
            streams,
            home,
            master=master(options),
            parallelism=options.parallelism,
            queries=queries,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _summary(runs: Sequence[SystemRun]) -> dict[str, Any]:
    kinds = runs[0].cpu_by_kind
    return {
        "tuples_per_s": spread(r.rate for r in runs),
        "tuples_per_s_without_enter": spread(r.rate_without_enter for r in runs),
        "probes": spread(r.probes for r in runs),
        "state_bytes": spread(r.state_bytes for r in runs),
        "peak_rss_bytes": spread(r.peak_rss_bytes for r in runs),
        "peak_pss_bytes": spread(r.peak_pss_bytes for r in runs),
        "cpu_seconds": spread((r.cpu_seconds for r in runs), 2),
        "cpu_by_kind": {k: spread((r.cpu_by_kind[k] for r in runs), 2) for k in kinds},
        "other_cpu_seconds": spread((r.other_cpu_seconds for r in runs), 2),
        "batch_p50": spread((quantile(r.cycles, 0.5) for r in runs), 3),
        "batch_p99": spread((quantile(r.cycles, 0.99) for r in runs), 3),
    }


def _ratios(runs: dict[str, list[SystemRun]]) -> dict[str, Any]:
    """Return the gain of the joint plan over each other plan, within rounds."""
    joint = runs.get(Optimizer.CLASH, [])
    found = {}
    for name, other in runs.items():
        if name == Optimizer.CLASH or not joint:
            continue
        pairs = list(zip(joint, other, strict=True))
        found[str(name)] = {
            "throughput": spread((a.rate / b.rate for a, b in pairs), 3),
            "throughput_without_enter": spread(
                (a.rate_without_enter / b.rate_without_enter for a, b in pairs), 3
            ),
            "state": spread((b.state_bytes / a.state_bytes for a, b in pairs), 3),
            "probes": spread((b.probes / a.probes for a, b in pairs), 3),
            "cpu": spread((b.cpu_seconds / a.cpu_seconds for a, b in pairs), 3),
        }
    return found


def name_of(work: dict[str, Any]) -> str:
    """Return the name of a workload in tables."""
    drawn = f"random set {work['random']}, " if "random" in work else ""
    return f"{drawn}{work['queries']} queries, SF {work['scale']:g}"


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: figures by optimiser, gains of the joint plan, CPU by kind of process."""
    figures, ratios, cpu = [], [], []
    kinds: list[str] = []
    for work in entry["workloads"]:
        name = name_of(work)
        for optimizer, one in work["optimizers"].items():
            figures.append(
                (
                    *(name, optimizer, shown(one["tuples_per_s"])),
                    shown(one["tuples_per_s_without_enter"]),
                    shown(one["probes"]),
                    shown(one["state_bytes"], 1, _MEBI),
                    shown(one["peak_rss_bytes"], unit=_MEBI),
                    shown(one["peak_pss_bytes"], unit=_MEBI),
                    shown(one["batch_p50"], 2),
                    shown(one["batch_p99"], 2),
                )
            )
            kinds = list(one["cpu_by_kind"])
            cpu.append(
                (
                    *(name, optimizer, shown(one["cpu_seconds"], 1)),
                    *(shown(one["cpu_by_kind"][k], 1) for k in kinds),
                    shown(one["other_cpu_seconds"], 1),
                )
            )
        for optimizer, one in work["ratios"].items():
            ratios.append(
                (
                    *(name, optimizer),
                    *(shown(one[k], 2) for k in ("throughput", "throughput_without_enter")),
                    *(shown(one[k], 2) for k in ("state", "probes", "cpu")),
                )
            )
    return [
        Grid(
            "figures",
            (
                *("", "plan", "sustained tuples/s", "without entering", "probes", "state MiB"),
                *("peak RSS MiB", "peak PSS MiB", "batch p50 s", "batch p99 s"),
            ),
            tuple(figures),
            texts=2,
        ),
        Grid(
            "joint plan (clash) against",
            (
                *("", "plan", "times its throughput", "without entering"),
                *("its state, times", "its probes, times", "its CPU, times"),
            ),
            tuple(ratios),
            texts=2,
        ),
        Grid("CPU seconds", ("", "plan", "all", *kinds, "others'"), tuple(cpu), texts=2),
        _phases(entry),
    ]


def _phases(entry: dict[str, Any]) -> Grid:
    """Return the table of phases between the first and the last commit."""
    rows, names = [], []
    for work in entry["workloads"]:
        for optimizer in work["optimizers"]:
            runs = [one["phases"] for one in work["runs"] if one["optimizer"] == optimizer]
            names = list(runs[0])
            middle = [spread((one[n] for one in runs), 3)["median"] for n in names]
            name = name_of(work)
            rows.append((name, optimizer, *(f"{seconds:.2f}" for seconds in middle)))
    title = "seconds by phase (median), of each batch's slowest task"
    return Grid(title, ("", "plan", *names), tuple(rows), texts=2)


BENCHMARK = Benchmark(
    "sharing", "clash, shared and individual plans of TPC-H queries", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
