"""Throughput by number of queries, and cost of a query whose joins are already running.

The whole system runs random three-way joins over ten streams (:mod:`workload`). ``growth`` runs
each number of queries in every round; a larger number includes all queries of a smaller one, and
without queries the input is only read and counted. ``added`` registers one more query while some
are running, with the same joins as one of them and fewer columns; its results are written to files,
or only counted. (It is added to a running pipeline, since in a new pipeline the planner might
choose another of several plans of equal estimated cost, with more or less state; a running plan is
kept unless another one saves something.)
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_runtime.inspection import describe
from benchmarks.command import Benchmark, spread
from benchmarks.kinds import KindMeter
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime import workload
from benchmarks.runtime.command import master, run
from benchmarks.runtime.sharing import run_once
from benchmarks.session import session
from benchmarks.system_run import SAMPLING, Configuration, SystemRun

_MEBI = 2**20
PARTS = ("growth", "added")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--counts",
        type=int,
        nargs="+",
        default=[0, 1, 2, 5, 10, 20, 50, 100, 200],
        help="queries",
    )
    parser.add_argument("--base", type=int, default=20, help="queries before the added one")
    parser.add_argument("--rows", type=int, default=40_000, help="of each of the ten streams")
    parser.add_argument("--sparsity", type=float, default=4.0, help="values per row, of a key")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3, help="rounds")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run both parts; return the figures."""
    streams = workload.generate(home / "input", options.rows, options.batches, options.sparsity)
    found: dict[str, Any] = {"input_tuples": sum(s.rows for s in streams)}
    if "growth" in options.parts:
        found["growth"] = _growth(options, home, streams)
    if "added" in options.parts:
        found["added"] = _added(options, home)
    return found


def _growth(
    options: argparse.Namespace, home: Path, streams: Sequence[RecordedStream]
) -> dict[str, Any]:
    counts = sorted(options.counts)
    everything = workload.queries(counts[-1])
    runs: dict[int, list[SystemRun]] = {count: [] for count in counts}
    for number in range(options.runs):
        for count in counts:
            done = _run(options, home / "run", streams, everything[:count])
            runs[count].append(done)
            tell(f"round {number + 1}: {count} queries: {done.rate:,.0f} tuples/s")
    return {
        "counts": [
            {
                "queries": count,
                "joins": workload.distinct_joins(everything[:count]),
                "results": sum(done[0].results.values()),
                **_summary(done),
            }
            for count, done in runs.items()
        ],
        "last": _last_against_first(counts, runs),
    }


def _last_against_first(
    counts: Sequence[int], runs: dict[int, list[SystemRun]]
) -> dict[str, Any] | None:
    """Return the cost of one more query at the end, from the two largest numbers of queries,
    relative to the cost of the first query.

    Cost is time for the same input: wall time of the batches after the first, and CPU time of all
    batches. The first query's cost is the difference to a system without queries, if one was run.
    """
    if len(counts) < 3 or 1 not in counts:
        return None
    before, last = counts[-2], counts[-1]
    nothing = runs.get(0)

    def costs(of: Callable[[SystemRun], float]) -> tuple[list[float], list[float]]:
        """Return the costs of the first query and of one more, per round."""
        none = [0.0] * len(runs[1]) if nothing is None else [of(r) for r in nothing]
        first = [of(run) - free for run, free in zip(runs[1], none, strict=True)]
        pairs = zip(runs[before], runs[last], strict=True)
        return first, [(of(b) - of(a)) / (last - before) for a, b in pairs]

    seconds, more_seconds = costs(lambda r: r.seconds)
    cpu, more_cpu = costs(lambda r: r.cpu_seconds)
    return {
        "from": before,
        "to": last,
        "first_less_nothing": nothing is not None,
        "seconds_first": spread(seconds, 4),
        "seconds_more": spread(more_seconds, 4),
        # A ratio of medians: if the first query costs hardly anything, ratios of single rounds mean
        # little.
        "ratio": _ratio(more_seconds, seconds),
        "cpu_first": spread(cpu, 3),
        "cpu_more": spread(more_cpu, 4),
        "cpu_ratio": _ratio(more_cpu, cpu),
    }


def _ratio(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the ratio of two medians; None if the second one is 0."""
    below = statistics.median(other)
    return None if below <= 0 else round(statistics.median(one) / below, 4)


def _added(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    # As many rows per batch as in the other part, and twice as many batches, half of them before
    # the addition.
    streams = workload.generate(
        home / "longer", 2 * options.rows, 2 * options.batches, options.sparsity
    )
    base = workload.queries(options.base)
    one = base[0]
    # The running queries read all of its columns already: it projects one column less than the
    # first query.
    less = ", ".join(one.select.split(", ")[1:])
    extra = replace(one, name="added", select=less)
    variants: dict[str, tuple[tuple[DemoQuery, ...], tuple[str, ...]]] = {
        "without": ((), ()),
        "counted": ((extra,), (extra.name,)),
        "written": ((extra,), ()),
    }
    runs: dict[str, list[_Joined]] = {name: [] for name in variants}
    for number in range(options.runs):
        for name, (late, counted) in variants.items():
            done = _join_late(options, home / "run", streams, base, late, counted)
            runs[name].append(done)
            tell(f"round {number + 1}: {name}: {done.rate:,.0f} tuples/s")
    found: dict[str, Any] = {
        "base": options.base,
        "input_tuples": sum(s.rows for s in streams),
        "results": runs["written"][0].results,
        "variants": {
            name: {
                "tuples_per_s": spread(r.rate for r in done),
                "cpu_seconds": spread((r.cpu_seconds for r in done), 2),
                "stored_bytes": spread(r.stored_bytes for r in done),
                "probes": spread(r.probes for r in done),
            }
            for name, done in runs.items()
        },
    }
    for name in ("counted", "written"):
        pairs = list(zip(runs["without"], runs[name], strict=True))
        found[name] = {
            "added_state_bytes": spread(b.stored_bytes - a.stored_bytes for a, b in pairs),
            "throughput_lost": spread((1 - b.rate / a.rate for a, b in pairs), 4),
            "cpu_added": spread((b.cpu_seconds / a.cpu_seconds - 1 for a, b in pairs), 4),
            "probes_added": spread(b.probes - a.probes for a, b in pairs),
        }
    return found


@dataclass(frozen=True, slots=True)
class _Joined:
    """A run in which a query may be added halfway. ``rate``, ``cpu_seconds``: of the batches after
    the first one with the query. ``probes``: of all batches. ``results``: of the added query.
    ``stored_bytes``: all bytes that batches have stored; merges, which save a little, are not
    considered, since their progress at the end is random.
    """

    rate: float
    cpu_seconds: float
    stored_bytes: int
    probes: int
    results: int


def _join_late(
    options: argparse.Namespace,
    home: Path,
    streams: Sequence[RecordedStream],
    base: Sequence[DemoQuery],
    late: Sequence[DemoQuery],
    counted: Sequence[str],
) -> _Joined:
    """Run two epochs: ``base`` runs from the first batch on, ``late`` is registered in the first
    epoch and begins with the second, which is planned from the first one's plan and statistics.
    """
    half = options.batches
    try:
        with session(
            home,
            streams,
            base,
            master=master(options),
            mode="step",
            parallelism=options.parallelism,
            epoch_batches=half,
            counted=counted,
        ) as system:
            system.start()
            system.gate(1)
            system.wait_for_batches(1)
            system.register(late)
            system.gate(half + 1)
            system.wait_for_batches(half + 1)
            meter = KindMeter(system.roots, SAMPLING)
            meter.start()
            try:
                began = time.time()
                system.gate(None)
                system.wait_for_batches(2 * half)
            finally:
                meter.stop()
            progress, _ = system.finish(base)
            system.check_guests(late)
            log = system.log()
            return _Joined(
                rate=sum(b.tuples for b in log[half + 1 :]) / (log[-1].committed_at - began),
                cpu_seconds=meter.cpu_seconds,
                stored_bytes=describe(system.pipeline.spec.state)["inserted_bytes"],
                probes=sum(progress.probes.values()),
                results=sum(progress.results.get(q.name, 0) for q in late),
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(
    options: argparse.Namespace,
    home: Path,
    streams: Sequence[RecordedStream],
    queries: Sequence[DemoQuery],
) -> SystemRun:
    # A single epoch, so that only the number of queries differs, without the effect of new
    # statistics.
    configuration = Configuration("step", options.batches, options.batches)
    return run_once(options, configuration, streams, queries, home)


def _summary(runs: Sequence[SystemRun]) -> dict[str, Any]:
    return {
        "tuples_per_s": spread(r.rate for r in runs),
        "seconds": spread((r.seconds for r in runs), 3),
        "cpu_seconds": spread((r.cpu_seconds for r in runs), 2),
        "service_cpu_seconds": spread((r.cpu_by_kind["service"] for r in runs), 2),
        "state_bytes": spread(r.state_bytes for r in runs),
        "probes": spread(r.probes for r in runs),
        "peak_rss_bytes": spread(r.peak_rss_bytes for r in runs),
        "phases": {name: spread((r.phases[name] for r in runs), 3) for name in runs[0].phases},
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: growth, its last step relative to the first query, and the added query."""
    found = []
    if "growth" in entry:
        counts = tuple(
            (
                *(f"{one['queries']:,}", f"{one['joins']:,}", f"{one['results']:,}"),
                shown(one["tuples_per_s"]),
                shown(one["seconds"], 2),
                shown(one["cpu_seconds"], 1),
                shown(one["probes"]),
                shown(one["state_bytes"], 1, _MEBI),
                shown(one["peak_rss_bytes"], unit=_MEBI),
            )
            for one in entry["growth"]["counts"]
        )
        head = ("queries", "different joins", "results", "sustained tuples/s", "seconds", "CPU s")
        found.append(Grid("growth", (*head, "probes", "state MiB", "peak RSS MiB"), counts))
        last = entry["growth"]["last"]
        if last is not None:
            found.append(
                Grid(
                    "one more query",
                    (
                        *("", "seconds of the first", "seconds of one more", "one more / first"),
                        *("CPU s of the first", "CPU s of one more", "one more / first, CPU"),
                    ),
                    (
                        (
                            f"from {last['from']} to {last['to']}",
                            shown(last["seconds_first"], 3),
                            shown(last["seconds_more"], 4),
                            _or_none(last["ratio"]),
                            shown(last["cpu_first"], 3),
                            shown(last["cpu_more"], 4),
                            _or_none(last["cpu_ratio"]),
                        ),
                    ),
                )
            )
    if "added" in entry:
        added = entry["added"]
        rows = tuple(
            (
                f"results {name}",
                shown(added[name]["added_state_bytes"]),
                shown(added[name]["probes_added"]),
                shown(added[name]["throughput_lost"], 1, 0.01, " %"),
                shown(added[name]["cpu_added"], 1, 0.01, " %"),
            )
            for name in ("counted", "written")
        )
        names = ("", "added state bytes", "added probes", "throughput lost", "CPU added")
        found.append(Grid("a query whose joins already run", names, rows))
    return found


def _or_none(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


BENCHMARK = Benchmark(
    "queries", "throughput against the number of queries", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
