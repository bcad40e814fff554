"""Time from a tuple's arrival to the commit of its results, at a given rate, open loop.

Five TPC-H queries read seven tables, whose rows are shuffled over the whole run and arrive by the
clock, open loop (:mod:`pacing`). Measurement starts when the batches of the warm-up are committed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from benchmarks.command import Benchmark, made, quantile, spread
from benchmarks.kinds import KindMeter
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.runtime.pacing import Pacer
from benchmarks.session import session

#: Number of TPC-H rows at scale factor 1 in the seven tables.
_ROWS = 8_660_000


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, nargs="+", default=[50_000.0], help="tuples/s, each")
    parser.add_argument("--seconds", type=float, default=30.0, help="of input")
    parser.add_argument(
        *("--interval",), type=float, nargs="+", default=[0.05, 0.1, 0.5],
        help="seconds of input in a batch, each",
    )  # fmt: skip
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds of input before")
    parser.add_argument("--epoch", type=float, default=10.0, help="seconds of input in an epoch")
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure every rate with every interval, in turns."""
    inputs = {
        (rate, interval): _input(options, home, rate, interval)
        for rate in options.rate
        for interval in options.interval
    }
    found: dict[tuple[float, float], list[dict[str, Any]]] = {one: [] for one in inputs}
    for _ in range(options.runs):
        for (rate, interval), streams in inputs.items():
            try:
                one = _run(options, home / "run", streams, interval)
            finally:
                shutil.rmtree(home / "run", ignore_errors=True)
            tell(f"{rate:,.0f}/s by {interval:g} s: p50 {one['p50']:.2f} s, p99 {one['p99']:.2f} s")
            found[rate, interval].append(one)
    names = ("rate", "p50", "p90", "p99", "greatest", "behind", "cpu_share")
    return {
        "rates": [
            {
                "wanted": rate,
                "interval": interval,
                **{name: spread((r[name] for r in runs), 3) for name in names},
                "late_gates": max(r["late_gates"] for r in runs),
                "results": runs[0]["results"],
                "over_time": runs[-1]["over_time"],
            }
            for (rate, interval), runs in found.items()
        ]
    }


def _batches(options: argparse.Namespace, interval: float) -> int:
    """Return the number of batches of a run, including its warm-up."""
    seconds: float = options.seconds + options.warm_up
    return round(seconds / interval)


def _input(
    options: argparse.Namespace, home: Path, rate: float, interval: float
) -> Sequence[RecordedStream]:
    batches = _batches(options, interval)
    folder = made(home / f"input-{rate:g}-{interval:g}")
    return tpch.generate(folder, rate * interval * batches / _ROWS, batches)


def _run(
    options: argparse.Namespace, home: Path, streams: Sequence[RecordedStream], interval: float
) -> dict[str, Any]:
    batches = _batches(options, interval)
    with session(
        home,
        streams,
        tpch.QUERIES,
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=round(options.epoch / interval),
    ) as system:
        system.start()
        pacer = Pacer(system, batches, interval, round(options.warm_up / interval))
        meter = KindMeter(system.roots, 1.0)
        pacer.start()
        meter.start()
        try:
            system.wait_for_batches(batches)
        finally:
            pacer.stop()
            meter.stop()
        _, results = system.finish(tpch.QUERIES)
        found = pacer.latencies(system.log())
    sample = [x for one in found for x in one.sample()]
    seconds = found[-1].at + found[-1].least
    return {
        "rate": sum(one.tuples for one in found) / (len(found) * interval),
        "p50": quantile(sample, 0.5),
        "p90": quantile(sample, 0.9),
        "p99": quantile(sample, 0.99),
        "greatest": max(sample),
        "behind": found[-1].least,
        "cpu_share": meter.cpu_seconds / seconds,
        "late_gates": round(pacer.late, 3),
        "results": {name: one.results for name, one in results.items()},
        "over_time": [[round(o.at, 2), round(o.least + o.interval / 2, 3)] for o in found],
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per rate and interval."""
    rows = [
        (
            f"{one['rate']['median']:,.0f}",
            f"{one['interval']:g}",
            *(shown(one[k], 2) for k in ("p50", "p90", "p99", "greatest")),
            shown(one["behind"], 2),
            shown(one["cpu_share"], 2),
        )
        for one in entry["rates"]
    ]
    return [
        Grid(
            "latency",
            (
                *("tuples/s", "batch every s", "p50 s", "p90 s", "p99 s", "greatest s"),
                *("last batch s", "CPUs used"),
            ),
            tuple(rows),
        )
    ]


BENCHMARK = Benchmark(
    "latency", "from arrival to durable result at a given rate", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
